import json
import os
import resource
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rater.command_line import Parser
from rater.commands import machine
from rater.errors import RaterError
from rater.plan.suite_find import load_suite, suite_names, suite_warnings
from rater.run.programs.child_process import Limits
from rater.run.workplace import trial
from rater.run.workplace.trial import try_run
from rater.show.console import Printer
from rater.show.document import print_parts
from rater.show.plans.suites import suite_document, suite_parts
from tests.support.calls import Rater

SUM = """\
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  double sum = 0;
  for (int i = 1; i <= atoi(argv[1]); i++) sum += 1.0 / i;
  printf("sum %.9f\\n", sum);
  return argc > 2 ? atoi(argv[2]) : 0;
}
"""
OWN = """\
[suite]
format = 1
name = "own"
description = "sums"
[benchmarks.sum]
category = "fp"
description = "harmonic sum"
sources = ["sum.c"]
[benchmarks.sum.sizes.test]
args = ["4"]
reference_s = 0.25
memory_mb = 2
expected = "sum 2.0833333\\n"
relative_tolerance = 1e-6
[benchmarks.echo]
category = "int"
command = ["echo", "hello"]
[benchmarks.echo.sizes.train]
args = ["you"]
expected = "hello you\\n"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
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
        machine.register_suites(parser.add_subparsers(dest="subcommand", required=True))
        args = parser.parse_args([str(word) for word in words])
        try:
            status = args.run(args)
        except RaterError as error:
            print(error, file=sys.stderr)
            status = error.exit_status
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def work_folders(own: Path) -> list[Path]:
    return sorted((own.parent / "cache" / "work").iterdir())


def document(text: str) -> Any:
    return json.loads(text)


def test_a_suite_is_shown_with_reference_times_and_memory(own: Path, rater: Rater) -> None:
    status, out, _ = rater("suites", "show", own)
    assert status == 0
    assert (
        out
        == f"""\
own: sums
file: {own}

benchmark  category  description
sum        fp        harmonic sum
echo       int       echo hello

Reference seconds and MB of memory per copy, by size
benchmark  test s  test MB
sum         0.250      2.0
echo            -        -

sum, size test
runs     sum 4
answers  stdout as expected, relative 1e-06

echo, size train
runs     echo hello you
answers  stdout as expected
"""
    )


WORDY = OWN.replace('"sums"', '"sums – of all kinds, and of some more kinds"').replace(
    '"harmonic sum"', '"adds up the harmonic series term by term"'
)


def test_a_suite_is_shown_whole_on_a_narrow_terminal(
    own: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write_text(WORDY.replace("\ndesc", '\nreference_machine = "a laptop on the desk"\ndesc', 1))
    monkeypatch.setenv("COLUMNS", "45")
    _, out, _ = rater("suites", "show", own)
    assert (
        out[: out.index("\nsum, size test\n")]
        == f"""\
own: sums – of all kinds, and of some more
    kinds
file: {own}
reference times: a laptop on the desk

benchmark  category  description
sum        fp        adds up the harmonic
                     series term by term
echo       int       echo hello

Reference seconds and MB of memory per copy,
    by size
benchmark  test s  test MB
sum         0.250      2.0
echo            -        -
"""
    )
    monkeypatch.setenv("COLUMNS", "30")
    own.write_text(own.read_text().replace('args = ["you"]', 'args = ["you"]\nreference_s = 1'))
    _, out, _ = rater("suites", "show", own)
    assert out[: out.index("\nsum, size test\n")].endswith(
        """
benchmark  test s  test MB
sum         0.250      2.0
echo            -        -

benchmark  train s
sum              -
echo          1.00
"""
    )


def test_long_names_do_not_make_a_suite_wider_than_the_terminal(own: Path) -> None:
    text = OWN.replace("benchmarks.sum", f"benchmarks.{'s' * 90}")
    own.write_text(text.replace("sizes.test", f"sizes.{'t' * 90}"))
    for width in (60, 80, 120):
        tables = screen(own, width).partition(f"\n{'s' * 90},")[0].splitlines()[2:]
        assert max(map(len, tables)) <= width
    assert "… fp " in screen(own, 80)


def screen(own: Path, width: int, encoding: str = "utf-8") -> str:
    file = TextIOWrapper(BytesIO(), encoding, newline="")
    printer = Printer(Console(file=file, width=width))
    print_parts(suite_parts(suite_document(load_suite(str(own)))), printer)
    file.seek(0)
    return file.read()


def test_a_command_of_several_lines_is_shown_as_one_command(own: Path) -> None:
    own.write_text(OWN.replace('"echo", "hello"', '"echo", "a\\nb"'))
    assert "echo 'a\\nb'" in screen(own, 80)


def test_where_the_terminal_knows_only_ascii_nothing_else_is_written(own: Path) -> None:
    own.write_text(WORDY.replace("benchmarks.sum", f"benchmarks.{'s' * 90}"))
    assert screen(own, 80, "ascii").startswith("own: sums ? of all kinds")
    assert "~ fp " in screen(own, 80, "ascii")


def test_the_encoding_of_standard_output_decides_what_is_written(own: Path) -> None:
    own.write_text(WORDY)
    command = [sys.executable, "-m", "rater", "suites", "show", str(own)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("own: sums ? of all kinds")


def test_the_list_of_suites_is_as_wide_as_the_terminal(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = load_suite("mini").description
    assert description in rater("suites")[1]
    monkeypatch.setenv("COLUMNS", "80")
    at_80 = rater("suites")[1]
    assert description in " ".join(at_80.split())
    assert "…" not in at_80
    assert max(map(len, at_80.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, rater("suites")[1].splitlines())) <= 60


def test_json_may_stand_before_or_after_the_subcommand(own: Path, rater: Rater) -> None:
    after = rater("suites", "show", f"{own}/sum", "--json")
    assert after == rater("--json", "suites", "show", f"{own}/sum")
    shown = document(after[1])
    assert [b["name"] for b in shown["benchmarks"]] == ["sum"]
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


def test_a_suite_is_built_for_a_tune(own: Path, rater: Rater, tmp_path: Path) -> None:
    status, out, _ = rater("suites", "build", own, "--tune", "peak", "--json")
    assert status == 0
    first, second = document(out)["benchmarks"]
    assert Path(first["executable"]).is_relative_to(tmp_path / "cache" / "build")
    assert Path(second["executable"]).name == "echo"


def test_a_benchmark_that_does_not_compile_does_not_hide_the_others(
    own: Path, rater: Rater, tmp_path: Path
) -> None:
    (tmp_path / "sum.c").write_text("int main(void) { return oops; }")
    status, out, _ = rater("suites", "build", own)
    assert status == 2
    assert "sum   FAILED  sum: the compiler failed (status 1)" in out
    assert "oops" in out
    assert "echo  found   /" in out


def test_right_answers_pass_the_check(own: Path, rater: Rater, tmp_path: Path) -> None:
    status, out, _ = rater("suites", "check", own, "--run")
    assert status == 0, out
    lines = out.splitlines()
    assert lines[0].startswith("sum   ok      test ")
    assert lines[1].startswith("echo  ok      train ")
    assert lines[0].endswith("answer right")
    assert lines[-1] == "own: nothing wrong"
    assert list((tmp_path / "cache" / "work").iterdir()) == []


def test_a_wrong_answer_fails_the_check_and_keeps_its_files(own: Path, rater: Rater) -> None:
    own.write_text(OWN.replace("2.0833333", "2.0843333").replace("hello you", "hello me"))
    status, out, _ = rater("suites", "check", own, "--run", "--json")
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
    own: Path, rater: Rater, command: str, said: str
) -> None:
    (own.parent / "plain").write_bytes(b"\0\1\2\3")
    (own.parent / "plain").chmod(0o755)
    own.write_text(
        f"[suite]\nformat = 1\n[benchmarks.a]\ncommand = {command}\n[benchmarks.a.sizes.test]\n"
    )
    status, out, err = rater("suites", "check", own, "--run", "--timeout", "0.2")
    assert status == 1
    assert said in out
    kept = work_folders(own)
    assert len(kept) == (0 if said.startswith(("cannot be started", "is not in PATH")) else 1)
    stay = "".join(f"; their files stay in {folder}" for folder in kept)
    assert err == f"own: 1 of 1 benchmarks failed{stay}\n"


def test_what_an_earlier_check_left_is_not_in_the_way(own: Path, rater: Rater) -> None:
    own.write_text(OWN.replace("hello you", "hello me"))
    for times in (1, 2, 3):
        assert rater("suites", "check", own, "--run")[0] == 1
        assert len(work_folders(own)) == times
        assert [[d.name for d in f.iterdir()] for f in work_folders(own)] == [
            ["echo.i1.c0000"]
        ] * times
    own.write_text(OWN)
    assert rater("suites", "check", own, "--run")[0] == 0
    assert len(work_folders(own)) == 3


def test_an_interrupted_check_leaves_nothing(
    own: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "run_alone", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rater("suites", "check", own, "--run")
    assert work_folders(own) == []


def test_a_suite_taken_for_the_size_is_told_so(rater: Rater) -> None:
    status, out, err = rater("suites", "check", "--run", "mini")
    assert (status, out) == (2, "")
    assert "--run took 'mini' as its SIZE" in err
    assert "`rater suites check mini --run`" in err
    assert rater("suites", "check")[0] == 2


@pytest.mark.parametrize("word", ["abc", "0", "-1", "nan", "inf", "1e10"])
def test_a_time_limit_that_is_none_is_told_in_plain_words(
    rater: Rater, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    with pytest.raises(SystemExit):
        rater("suites", "check", f"--timeout={word}", "mini")
    assert (
        f"argument --timeout: expected a number of seconds, above 0 and at most 1e+09, got '{word}'"
        in capsys.readouterr().err
    )


def test_a_size_that_a_benchmark_lacks_fails_the_check(own: Path, rater: Rater) -> None:
    status, out, _ = rater("suites", "check", own, "--run", "train")
    assert status == 1
    assert "sum   FAILED  has no size train; there are: test" in out
    assert "echo  ok      train" in out


def test_a_wrong_file_is_told_whole(own: Path, rater: Rater) -> None:
    own.write_text(OWN.replace("sources", "source").replace("0.25", "-1"))
    status, out, err = rater("suites", "check", own)
    assert (status, out) == (2, "")
    assert err.splitlines()[0] == f"{own} has 3 mistakes:"
    status, out, _ = rater("suites", "check", own, "--json")
    assert status == 2
    assert [(m["line"], m["key"]) for m in document(out)["mistakes"]] == [
        (5, "benchmarks.sum"),
        (8, "benchmarks.sum.source"),
        (11, "benchmarks.sum.sizes.test.reference_s"),
    ]


def test_memory_beyond_what_is_stated_is_remarked_and_a_shared_input_written_is_a_failure(
    own: Path, rater: Rater
) -> None:
    # A peak is known as the copy's own only above ours, which what is tested before has made.
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 * 5 // 4
    (own.parent / "hog.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/stat.h>\n"
        f"int main(void) {{ char *p = malloc({size}ul); memset(p, 1, {size}ul);\n"
        'chmod("in.txt", 0600); FILE *f = fopen("in.txt", "a"); fprintf(f, "%d", p[7]);\n'
        "return fclose(f); }\n"
    )
    (own.parent / "in.txt").write_text("mine")
    own.write_text(
        '[suite]\nformat = 1\n[benchmarks.hog]\nsources = ["hog.c"]\n[benchmarks.hog.sizes.test]\n'
        'memory_mb = 1\ninputs = [{ name = "in.txt", path = "in.txt" }]\n'
    )
    status, out, _ = rater("suites", "check", own, "--run")
    assert status == 1
    assert "FAILED  input in.txt was changed while copies ran" in out
    assert "note: a copy of hog wrote into its input in.txt, which all copies share" in out
    assert "note: no expected output: any answer passes" in out
    assert "MB, the suite states memory_mb = 1" in out
    assert (own.parent / "in.txt").read_text() == "mine"


@pytest.mark.slow
def test_quick_kernels_of_the_built_in_suite_answer_rightly(tmp_path: Path) -> None:
    if "mini" not in suite_names():
        pytest.skip("suites/mini.toml is not there")
    quick = sorted(
        (b for b in load_suite("mini").benchmarks if "test" in b.sizes),
        key=lambda b: b.sizes["test"].reference_s or 1e9,
    )[:2]
    trials = [
        try_run(benchmark, "base", "test", cache=tmp_path, work=tmp_path, limits=Limits(60))
        for benchmark in quick
    ]
    assert [(t.error, t.checked) for t in trials] == [(None, True)] * 2


BEYOND = """\
[suite]
format = 1
name = "beyond"
setup = ["./prepare.sh", "a b"]
environment = { LC_ALL = "C" }
leave_out = ["unfit"]
[benchmarks.solve]
category = "fp"
description = "solves"
command = ["./solve.sh"]
threads = 4
setup = ["sh", "-c", "date > now"]
environment = { OMP_NUM_THREADS = "4" }
metrics.rate = { pattern = "rate (.*)", unit = "GB/s", better = "higher", combine = "sum" }
metrics.wait = { pattern = "wait (.*)" }
[benchmarks.solve.sizes.train]
commands = [
  { args = ["1"], stdin = "a.txt", stdout = "a.out", stderr = "a err" },
  { command = ["cmp", "a.out", "b.txt"] },
]
environment = { MODE = "x y" }
memory_total_mb = 2048
reference_s = 1
disk_mb = 2
inputs = [
  { name = "a.txt", path = "first.txt", copy = true },
  { name = "b.txt", made = "b" },
]
expected = [
  { file = "a.out", sha256 = "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff" },
  { text = "1\\n2\\n", absolute = 0.5, ignore = "^time" },
]
"""


def test_everything_that_a_suite_can_state_is_shown(
    tmp_path: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first.txt").write_text("1")
    (tmp_path / "beyond.toml").write_text(BEYOND)
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = rater("suites", "show", tmp_path / "beyond")
    assert (
        out
        == f"""\
beyond
file: {tmp_path}/beyond.toml
set-up, once a run: ./prepare.sh 'a b'
environment: LC_ALL=C
left out of a run: benchmarks that are too big for the machine

benchmark  category  description
solve      fp        solves
                     threads: 4, each copy gets as many CPUs
                     reports rate in GB/s, higher is better, sum of the copies
                     reports wait, mean of the copies
                     set-up, before each run of a copy: sh -c 'date > now'
                     environment: OMP_NUM_THREADS=4

Reference seconds and MB of memory per copy, by size
benchmark  train s  train MB
solve         1.00     2048*

* of all copies together

solve, size train
runs     ./solve.sh 1 < a.txt > a.out 2> 'a err'
         cmp a.out b.txt
with     MODE='x y'
finds    a.txt (./first.txt, its own copy), b.txt (b from the set-up)
writes   2.00 MB
answers  a.out with the SHA-256 stated; stdout as expected, +-0.5, but not lines
         with "^time"
"""
    )
    shown = document(rater("suites", "show", tmp_path / "beyond", "--json")[1])
    (solve,) = shown["benchmarks"]
    (size,) = solve["sizes"]
    assert (shown["leave_out"], solve["threads"]) == (["unfit"], 4)
    assert [metric["name"] for metric in solve["metrics"]] == ["rate", "wait"]
    assert [command["stdin"] for command in size["commands"]] == ["a.txt", None]
    assert size["total_memory_bytes"] == 2_048_000_000
    assert [wanted["copy"] for wanted in size["input_files"]] == [True, False]


def test_suites_in_the_users_folders_are_listed_with_their_folder(
    own: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = own.parent / "first", own.parent / "second"
    for place in (first, second):
        place.mkdir()
        (place / "sum.c").write_text(SUM)
        (place / "own.toml").write_text(OWN)
    (second / "odd.toml").write_text("[suite]\nformat = 1\n")
    (second / "mini.toml").write_text(OWN)
    monkeypatch.setenv("RATER_SUITES", f"{first}:{second}:{own.parent / 'none'}")
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
    assert f"the name own means {first}/own.toml, not {second}/own.toml" in out
    assert f"the name mini means the suite that comes with rater, not {second}/mini.toml" in out
    assert err == f"rater: {own.parent}/none (of RATER_SUITES): no such folder\n"
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


def test_all_missing_programs_and_failing_builds_are_told_at_once(own: Path, rater: Rater) -> None:
    (own.parent / "b.c").write_text("int main(void) { return oops; }")
    (own.parent / "g.c").write_text("int main(void) { return alas; }")
    own.write_text(WANTING)
    status, out, err = rater("suites", "check", own)
    assert status == 1
    for said in (
        f"[suite]  FAILED  own.toml:3: suite.setup: no such file: {own.parent}/nowhere.sh",
        "a  FAILED  own.toml:5: benchmarks.a.command: 'no-such-command' is not in PATH",
        "    own.toml:6: benchmarks.a.setup: 'no-such-setup' is not in PATH",
        "b  FAILED  own.toml:11: benchmarks.b.sizes.train.commands[1].command: 'no-such-compare'",
        "    input g: generator: the compiler failed",
        "    b: the compiler failed",
    ):
        assert len([line for line in out.splitlines() if line.startswith(said)]) == 1, out
    assert err == "own: its set-up fails, and 2 of 2 benchmarks failed\n"


def test_mistakes_of_the_file_do_not_hide_missing_programs(own: Path, rater: Rater) -> None:
    (own.parent / "b.c").write_text("int main(void) { return 0; }")
    (own.parent / "g.c").write_text("int main(void) { return 0; }")
    own.write_text(WANTING.replace("memory_mb = 1", "memory_mb = -1"))
    status, out, err = rater("suites", "check", own, "--run")
    assert status == 2
    assert err.startswith(f"{own}:12: benchmarks.b.sizes.train.memory_mb: expected a number")
    assert "a  FAILED  own.toml:5: benchmarks.a.command: 'no-such-command' is not in PATH" in out
    assert "b  FAILED  own.toml:11: " in out
    status, out, _ = rater("suites", "check", own, "--json")
    checked = document(out)
    assert (status, checked["ok"], len(checked["mistakes"])) == (2, False, 1)
    assert [b["benchmark"] for b in checked["benchmarks"]] == ["[suite]", "a", "b"]


def test_what_is_probably_not_meant_is_a_warning_each_kind_once(own: Path, rater: Rater) -> None:
    (own.parent / "b.c").write_text("int main(void) { return 0; }")
    with (own.parent / "huge.bin").open("wb") as file:
        file.truncate(200_000_000)  # sparse
    own.write_text(
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
    status, out, _ = rater("suites", "check", own)
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
    assert len(document(rater("suites", "check", own, "--json")[1])["warnings"]) == 7


def test_a_benchmark_that_may_be_missing_is_left_out_unless_it_is_named(
    own: Path, rater: Rater
) -> None:
    own.write_text(
        OWN.replace("[benchmarks.sum]", 'leave_out = ["missing"]\n[benchmarks.sum]').replace(
            '"echo", ', '"no-such-command", '
        )
    )
    status, out, _ = rater("suites", "check", own, "--run")
    assert status == 0
    assert "echo  left out of a run: own.toml:18: benchmarks.echo.command: 'no-such-command'" in out
    assert out.endswith("own: nothing wrong, 1 of 2 benchmarks left out\n")
    assert rater("suites", "check", f"{own}/echo", "--run")[0] == 1


def test_the_suite_that_comes_with_rater_gives_no_warning() -> None:
    assert suite_warnings(load_suite("mini"), "train", lambda _path: 0) == []
