import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rater.commands import machine
from rater.commands.command_line import Parser
from rater.commands.common import declare
from rater.plan.suite_find import load_suite, suite_names, suite_warnings
from rater.run.programs.child_process import Limits
from rater.run.workplace import trial
from rater.run.workplace.trial import try_run
from rater.system.errors import RaterError
from tests.support.calls import Rater
from tests.support.suite_text import OWN, SUM

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    (tmp_path / "sum.c").write_text(SUM)
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


@pytest.fixture
def rater(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Rater:
    """Run `rater suites ...`; return status, standard output and standard error."""
    monkeypatch.setenv("RATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("RATER_SUITES", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> tuple[int, str, str]:
        parser = Parser()
        parser.add_argument("--json", action="store_true", default=False)
        parser.add_argument("--db", default=None)
        to = parser.add_subparsers(dest="subcommand", required=True)
        declare(to, "suites", machine.COMMANDS["suites"])
        args = parser.parse_args([str(word) for word in words])
        try:
            status = args.run(args)
        except RaterError as error:
            print(error, file=sys.stderr)
            status = error.exit_status
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def work_folders(suite_file: Path) -> list[Path]:
    return sorted((suite_file.parent / "cache" / "work").iterdir())


def document(text: str) -> Any:
    return json.loads(text)


WORDY = OWN.replace('"sums"', '"sums – of all kinds, and of some more kinds"').replace(
    '"harmonic sum"', '"adds up the harmonic series term by term"'
)


def test_the_encoding_of_standard_output_decides_what_is_written(suite_file: Path) -> None:
    suite_file.write_text(WORDY)
    command = [sys.executable, "-m", "rater", "suites", "show", str(suite_file)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("own: sums ? of all kinds")


def test_json_may_stand_before_or_after_the_subcommand(suite_file: Path, rater: Rater) -> None:
    after = rater("suites", "show", f"{suite_file}/sum", "--json")
    assert after == rater("--json", "suites", "show", f"{suite_file}/sum")
    shown = document(after[1])
    assert [benchmark["name"] for benchmark in shown["benchmarks"]] == ["sum"]
    (size,) = shown["benchmarks"][0]["sizes"]
    assert (size["name"], size["args"], size["memory_bytes"]) == ("test", ["4"], 2_000_000)
    assert (size["inputs"], size["checked"]) == ([], ["stdout"])
    assert size["expected"][0]["relative_tolerance"] == 1e-6


def test_suites_are_listed_with_and_without_the_word(rater: Rater) -> None:
    status, out, _ = rater("suites")
    assert status == 0
    assert rater("suites", "list") == (0, out, "")
    listed = document(rater("suites", "--json")[1])
    assert [suite["name"] for suite in listed] == suite_names()


def test_a_suite_is_built_for_a_tune(suite_file: Path, rater: Rater, tmp_path: Path) -> None:
    status, out, _ = rater("suites", "build", suite_file, "--tune", "peak", "--json")
    assert status == 0
    first, second = document(out)["benchmarks"]
    assert Path(first["executable"]).is_relative_to(tmp_path / "cache" / "build")
    assert Path(second["executable"]).name == "echo"


def test_a_benchmark_that_does_not_compile_does_not_hide_the_others(
    suite_file: Path, rater: Rater, tmp_path: Path
) -> None:
    (tmp_path / "sum.c").write_text("int main(void) { return oops; }")
    status, out, _ = rater("suites", "build", suite_file)
    assert status == 2
    assert "sum   FAILED  sum: the compiler failed (status 1)" in out
    assert "oops" in out
    assert "echo  found   /" in out


def test_right_answers_pass_the_check(suite_file: Path, rater: Rater, tmp_path: Path) -> None:
    status, out, _ = rater("suites", "check", suite_file, "--run")
    assert status == 0, out
    lines = out.splitlines()
    assert lines[0].startswith("sum   ok      test ")
    assert lines[1].startswith("echo  ok      train ")
    assert lines[0].endswith("answer right")
    assert lines[-1] == "own: nothing wrong"
    assert list((tmp_path / "cache" / "work").iterdir()) == []


def test_a_wrong_answer_fails_the_check_and_keeps_its_files(suite_file: Path, rater: Rater) -> None:
    suite_file.write_text(OWN.replace("2.0833333", "2.0843333").replace("hello you", "hello me"))
    status, out, _ = rater("suites", "check", suite_file, "--run", "--json")
    assert status == 1
    checked = document(out)
    assert (checked["ok"], checked["mistakes"]) == (False, [])
    first, second = checked["benchmarks"]
    assert (
        first["error"]
        == "stdout line 1: got 2.083333333, expected 2.0843333 (relative tolerance 1e-06)"
    )
    assert second["error"] == 'stdout line 1: got "you", expected "me"'
    assert (Path(first["run_dir"]) / "stdout").read_text() == "sum 2.083333333\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('["sh", "-c", "exit 3"]', "ended with exit code 3"),
        ('["sh", "-c", "kill -SEGV $$"]', "was killed by SIGSEGV"),
        ('["sh", "-c", "kill -40 $$"]', "was killed by signal 40"),
        ('["sleep", "60"]', "was not done after 0.2 s (--timeout)"),
        ('["./plain"]', "cannot be started: Exec format error"),
        ('["no-such-command"]', "is not in PATH"),
    ],
)
def test_a_benchmark_that_does_not_end_well_fails_the_check(
    suite_file: Path, rater: Rater, command: str, said: str
) -> None:
    (suite_file.parent / "plain").write_bytes(b"\0\1\2\3")
    (suite_file.parent / "plain").chmod(0o755)
    suite_file.write_text(
        f"[suite]\nformat = 1\n[benchmarks.a]\ncommand = {command}\n[benchmarks.a.sizes.test]\n"
    )
    status, out, err = rater("suites", "check", suite_file, "--run", "--timeout", "0.2")
    assert status == 1
    assert said in out
    kept = work_folders(suite_file)
    assert len(kept) == (0 if said.startswith(("cannot be started", "is not in PATH")) else 1)
    stay = "".join(f"; their files stay in {folder}" for folder in kept)
    assert err == f"own: 1 of 1 benchmarks failed{stay}\n"


def test_what_an_earlier_check_left_is_not_in_the_way(suite_file: Path, rater: Rater) -> None:
    suite_file.write_text(OWN.replace("hello you", "hello me"))
    for times in (1, 2, 3):
        assert rater("suites", "check", suite_file, "--run")[0] == 1
        assert len(work_folders(suite_file)) == times
        assert [[d.name for d in f.iterdir()] for f in work_folders(suite_file)] == [
            ["echo.i1.c0000"]
        ] * times
    suite_file.write_text(OWN)
    assert rater("suites", "check", suite_file, "--run")[0] == 0
    assert len(work_folders(suite_file)) == 3


def test_an_interrupted_check_leaves_nothing(
    suite_file: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "run_alone", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rater("suites", "check", suite_file, "--run")
    assert work_folders(suite_file) == []


def test_a_size_that_a_benchmark_lacks_fails_the_check(suite_file: Path, rater: Rater) -> None:
    status, out, _ = rater("suites", "check", suite_file, "--run", "train")
    assert status == 1
    assert "sum   FAILED  has no size train; there are: test" in out
    assert "echo  ok      train" in out


def test_a_wrong_file_is_told_whole(suite_file: Path, rater: Rater) -> None:
    suite_file.write_text(OWN.replace("sources", "source").replace("0.25", "-1"))
    status, out, err = rater("suites", "check", suite_file)
    assert (status, out) == (2, "")
    assert err.splitlines()[0] == f"{suite_file} has 3 mistakes:"
    status, out, _ = rater("suites", "check", suite_file, "--json")
    assert status == 2
    assert [(mistake["line"], mistake["key"]) for mistake in document(out)["mistakes"]] == [
        (5, "benchmarks.sum"),
        (8, "benchmarks.sum.source"),
        (11, "benchmarks.sum.sizes.test.reference_s"),
    ]


def test_memory_beyond_what_is_stated_is_remarked_and_a_shared_input_written_is_a_failure(
    suite_file: Path, rater: Rater
) -> None:
    # A peak is known as the copy's own only above ours, which what is tested before has made.
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 * 5 // 4
    (suite_file.parent / "hog.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/stat.h>\n"
        f"int main(void) {{ char *p = malloc({size}ul); memset(p, 1, {size}ul);\n"
        'chmod("in.txt", 0600); FILE *f = fopen("in.txt", "a"); fprintf(f, "%d", p[7]);\n'
        "return fclose(f); }\n"
    )
    (suite_file.parent / "in.txt").write_text("mine")
    suite_file.write_text(
        '[suite]\nformat = 1\n[benchmarks.hog]\nsources = ["hog.c"]\n[benchmarks.hog.sizes.test]\n'
        'memory_mb = 1\ninputs = [{ name = "in.txt", path = "in.txt" }]\n'
    )
    status, out, _ = rater("suites", "check", suite_file, "--run")
    assert status == 1
    assert "FAILED  input in.txt was changed while copies ran" in out
    assert "note: a copy of hog wrote into its input in.txt, which all copies share" in out
    assert "note: no expected output: any answer passes" in out
    assert "MB, the suite states memory_mb = 1" in out
    assert (suite_file.parent / "in.txt").read_text() == "mine"


@pytest.mark.slow
def test_quick_kernels_of_the_built_in_suite_answer_rightly(tmp_path: Path) -> None:
    if "mini" not in suite_names():
        pytest.skip("suites/mini.toml is not there")
    quick = sorted(
        (benchmark for benchmark in load_suite("mini").benchmarks if "test" in benchmark.sizes),
        key=lambda b: b.sizes["test"].reference_s or 1e9,
    )[:2]
    trials = [
        try_run(benchmark, "base", "test", cache=tmp_path, work=tmp_path, limits=Limits(60))
        for benchmark in quick
    ]
    assert [(trial.error, trial.checked) for trial in trials] == [(None, True)] * 2


def test_suites_in_the_users_folders_are_listed_with_their_folder(
    suite_file: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = suite_file.parent / "first", suite_file.parent / "second"
    for place in (first, second):
        place.mkdir()
        (place / "sum.c").write_text(SUM)
        (place / "own.toml").write_text(OWN)
    (second / "odd.toml").write_text("[suite]\nformat = 1\n")
    (second / "mini.toml").write_text(OWN)
    monkeypatch.setenv("RATER_SUITES", f"{first}:{second}:{suite_file.parent / 'none'}")
    status, out, err = rater("suites")
    assert status == 0
    lines = out.splitlines()
    at = lines.index(f"in {first}")
    assert [line.split("  ")[0] for line in lines[at + 1 : at + 5]] == [
        "own",
        "",
        f"in {second}",
        "odd",
    ]
    assert lines[at + 4].endswith("broken: `rater suites check odd`")
    said = " ".join(out.split())
    assert f"the name own means {first}/own.toml, not {second}/own.toml" in said
    assert f"the name mini means the suite that comes with rater, not {second}/mini.toml" in said
    assert err == f"rater: {suite_file.parent}/none (of RATER_SUITES): no such folder\n"
    listed = document(rater("suites", "--json")[1])[len(suite_names()) :]
    assert [(s["name"], s["folder"], s["instead"]) for s in listed] == [
        ("own", str(first), None),
        ("mini", str(second), str(load_suite("mini").path)),
        ("odd", str(second), None),
        ("own", str(second), str(first / "own.toml")),
    ]
    assert rater("suites", "check", "own")[0] == 0
    assert "benchmarks: missing; expected a table" in rater("suites", "check", "odd")[2]


WANTING = """\
[suite]
format = 1
setup = ["./nowhere.sh"]
[benchmarks.a]
command = ["no-such-command"]
setup = ["no-such-setup"]
[benchmarks.a.sizes.test]
[benchmarks.b]
sources = ["b.c"]
[benchmarks.b.sizes.train]
commands = [{ args = ["1"] }, { command = ["no-such-compare"] }]
memory_mb = 1
reference_s = 1
expected = "1"
inputs = [{ name = "g", generator = { sources = ["g.c"], args = ["{output}"] } }]
"""


def test_all_missing_programs_and_failing_builds_are_told_at_once(
    suite_file: Path, rater: Rater
) -> None:
    (suite_file.parent / "b.c").write_text("int main(void) { return oops; }")
    (suite_file.parent / "g.c").write_text("int main(void) { return alas; }")
    suite_file.write_text(WANTING)
    status, out, err = rater("suites", "check", suite_file)
    assert status == 1
    for said in (
        f"[suite]  FAILED  own.toml:3: suite.setup: no such file: {suite_file.parent}/nowhere.sh",
        "a  FAILED  own.toml:5: benchmarks.a.command: 'no-such-command' is not in PATH",
        "    own.toml:6: benchmarks.a.setup: 'no-such-setup' is not in PATH",
        "b  FAILED  own.toml:11: benchmarks.b.sizes.train.commands[1].command: 'no-such-compare'",
        "    input g: generator: the compiler failed",
        "    b: the compiler failed",
    ):
        assert len([line for line in out.splitlines() if line.startswith(said)]) == 1, out
    assert err == "own: its set-up fails, and 2 of 2 benchmarks failed\n"


def test_mistakes_of_the_file_do_not_hide_missing_programs(suite_file: Path, rater: Rater) -> None:
    (suite_file.parent / "b.c").write_text("int main(void) { return 0; }")
    (suite_file.parent / "g.c").write_text("int main(void) { return 0; }")
    suite_file.write_text(WANTING.replace("memory_mb = 1", "memory_mb = -1"))
    status, out, err = rater("suites", "check", suite_file, "--run")
    assert status == 2
    assert err.startswith(f"{suite_file}:12: benchmarks.b.sizes.train.memory_mb: expected a number")
    assert "a  FAILED  own.toml:5: benchmarks.a.command: 'no-such-command' is not in PATH" in out
    assert "b  FAILED  own.toml:11: " in out
    status, out, _ = rater("suites", "check", suite_file, "--json")
    checked = document(out)
    assert (status, checked["ok"], len(checked["mistakes"])) == (2, False, 1)
    assert [benchmark["benchmark"] for benchmark in checked["benchmarks"]] == ["[suite]", "a", "b"]


def test_what_is_probably_not_meant_is_a_warning_each_kind_once(
    suite_file: Path, rater: Rater
) -> None:
    (suite_file.parent / "b.c").write_text("int main(void) { return 0; }")
    with (suite_file.parent / "huge.bin").open("wb") as file:
        file.truncate(200_000_000)  # sparse
    suite_file.write_text(
        WANTING[WANTING.index("[benchmarks.b]") :]
        .replace(
            "[benchmarks.b]",
            '[suite]\nformat = 1\n[benchmarks.a]\ncommand = ["true"]\n'
            "[benchmarks.a.sizes.test]\n[benchmarks.a.sizes.quick]\n[benchmarks.b]",
        )
        .replace("no-such-compare", "true")
        .replace(
            'generator = { sources = ["g.c"], args = ["{output}"] }',
            'path = "huge.bin", copy = true',
        )
    )
    status, out, _ = rater("suites", "check", suite_file)
    assert status == 0
    assert [line for line in out.splitlines() if line.startswith("warning: ")] == [
        "warning: no expected output, so any answer passes: a",
        "warning: no reference_s, so no ratio: a",
        "warning: no memory_mb or memory_total_mb, so a run that cannot fit is not refused: a",
        "warning: no size test, so a run of the whole suite in it is refused: b",
        "warning: no size quick, so a run of the whole suite in it is refused: b",
        "warning: no size train, so a run of the whole suite in it is refused: a",
        "warning: copy = true: b gets 200 MB of g for each copy before every run",
    ]
    assert out.endswith("own: nothing wrong\n")
    assert len(document(rater("suites", "check", suite_file, "--json")[1])["warnings"]) == 7


def test_a_benchmark_that_may_be_missing_is_left_out_unless_it_is_named(
    suite_file: Path, rater: Rater
) -> None:
    suite_file.write_text(
        OWN.replace("[benchmarks.sum]", 'leave_out = ["missing"]\n[benchmarks.sum]').replace(
            '"echo", ', '"no-such-command", '
        )
    )
    status, out, _ = rater("suites", "check", suite_file, "--run")
    assert status == 0
    assert "echo  left out of a run: own.toml:18: benchmarks.echo.command: 'no-such-command'" in out
    assert out.endswith("own: nothing wrong, 1 of 2 benchmarks left out\n")
    assert rater("suites", "check", f"{suite_file}/echo", "--run")[0] == 1


def test_the_suite_that_comes_with_rater_gives_no_warning() -> None:
    assert suite_warnings(load_suite("mini"), "train", lambda _path: 0) == []
