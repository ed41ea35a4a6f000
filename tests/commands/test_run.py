"""`rater run` as a user types it: real processes, real database, exit status."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rater.commands.cli import main
from rater.run.host.foreign_load import BusyProcess, ForeignLoad
from rater.run.workplace.printed import shown_output
from tests.support.calls import RATER, Rater, query_rows
from tests.support.places import CHECKOUT, own_places_in
from tests.support.processes import state_of, wait_until_dead

type Ran = Callable[..., Any]  # the words of a good run; returns its document

QUIET = [*RATER, "run", "--quiet"]

OWN_SUITE = """
[suite]
format = 1
name = "own"

[benchmarks.right]
category = "int"
command = ["./say.sh"]
[benchmarks.right.sizes.test]
args = ["42"]
reference_s = 1.0
memory_mb = 1
expected = "42\\n"

[benchmarks.near]
category = "fp"
command = ["./say.sh"]
[benchmarks.near.sizes.test]
args = ["0.30000001"]
reference_s = 1.0
memory_mb = 1
expected = "0.3\\n"
relative_tolerance = 1e-6
"""


class Told(NamedTuple):
    """A run that others than its test read of."""

    database: Path
    lines: list[str]  # that its one copy printed

    def stored(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask its database."""
        with closing(sqlite3.connect(self.database)) as db:
            return db.execute(sql).fetchall()


@pytest.fixture
def ran(rater: Rater) -> Ran:
    def run(*words: str) -> Any:
        status, said, error = rater("run", "--json", *words)
        assert status == 0, error
        assert "phase 1 of " in error  # progress and table stay out of the document
        return json.loads(said)

    return run


def pid_in(file: Path) -> int:
    """Wait for the number that a copy writes into a file."""
    while not file.exists() or not file.read_text().endswith("\n"):
        time.sleep(0.01)
    return int(file.read_text())


@pytest.fixture
def own_suite(tmp_path: Path) -> Path:
    script = tmp_path / "say.sh"
    script.write_text('#!/bin/sh\necho "$1"\n')
    script.chmod(0o755)
    path = tmp_path / "own.toml"
    path.write_text(OWN_SUITE)
    return path


def test_any_command_can_be_rated_without_a_suite(ran: Ran) -> None:
    document = ran("--copies", "3", "--", "sleep", "0.05")
    [one] = document["benchmarks"]
    assert (document["status"], document["copies"], one["benchmark"]) == ("complete", 3, "sleep")
    assert one["ratio"] is None
    assert one["copies_per_hour"] == pytest.approx(3 * 3600 / one["bracket_s"])
    assert 0.05 < one["bracket_s"] < 10


TELLS = (
    'printf "%s\\n" "$#|$1|$2" "$WRAPPED" "$B" "$(pwd)"; cat /proc/self/status /proc/self/numa_maps'
)
BAD = os.fsdecode(b"\xff")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What the one copy of a run with many options printed."""
    folder = tmp_path_factory.mktemp("told")
    words = ["--copies", "1", "--mem", "bind", "--wrap", "env WRAPPED='a b'", "--keep"]
    words += ["--tag", f"a={BAD}", "--env", f"B={BAD}", "--", "sh", "-c", TELLS]
    with pytest.MonkeyPatch.context() as patch:
        database = own_places_in(folder, patch)
        assert main(["run", "--quiet", *words, "name", "a b", f"--copies={BAD}"]) == 0
    [stdout] = (folder / "cache").rglob("*.stdout")
    return Told(database, stdout.read_text(errors="surrogateescape").splitlines())


def test_a_command_gets_exactly_its_own_arguments(printed: Told) -> None:
    assert printed.lines[0] == f"2|a b|--copies={BAD}"


def test_wrap_puts_a_prefix_before_every_copy(printed: Told) -> None:
    assert printed.lines[1] == "a b"
    assert printed.stored("SELECT wrap FROM run") == [("env 'WRAPPED=a b'",)]


def test_bytes_that_are_no_text_reach_the_copy_and_are_stored_escaped(printed: Told) -> None:
    assert printed.lines[2] == BAD
    assert printed.stored("SELECT value FROM tag") == [("\\xff",)]


def test_strict_memory_of_the_home_node_is_inherited_by_the_copy(printed: Told) -> None:
    assert {line.split()[1] for line in printed.lines if "file=" in line} == {"bind:0"}


def test_a_command_runs_where_the_user_stands_unless_run_dirs(
    printed: Told, tmp_path: Path, ran: Ran
) -> None:
    assert printed.lines[3] == str(Path.cwd())
    ran("--run-dirs", "--copies", "1", "--", "sh", "-c", f"pwd > {tmp_path}/where")
    assert (tmp_path / "where").read_text().endswith("sh.i1.c0000\n")


def test_a_suite_gives_ratios_and_a_geometric_mean(own_suite: Path, ran: Ran) -> None:
    document = ran(str(own_suite), "--size", "test", "--copies", "2")
    right, near = document["benchmarks"]
    assert right["ratio"] == pytest.approx(2 * 1.0 / right["bracket_s"])
    suite = document["suite"]
    assert suite["ratio"] == pytest.approx((right["ratio"] * near["ratio"]) ** 0.5)
    assert (suite["int"], suite["fp"]) == pytest.approx((right["ratio"], near["ratio"]))


def test_a_wrong_answer_fails_the_run_and_is_kept(own_suite: Path, rater: Rater) -> None:
    own_suite.write_text(OWN_SUITE.replace('expected = "42', 'expected = "43'))
    status, *_ = rater("run", str(own_suite), "--size", "test", "--copies", "2")
    assert status == 1
    assert query_rows("SELECT benchmark, status, validity FROM copy WHERE copy = 0 ORDER BY 1") == [
        ("near", "ok", "valid"),
        ("right", "wrong-output", "invalid"),
    ]
    kept = query_rows("SELECT run_dir FROM copy WHERE benchmark = 'right'")
    assert all((Path(path) / "stdout").read_text() == "42\n" for (path,) in kept)


def test_one_benchmark_of_a_suite_can_be_named(own_suite: Path, ran: Ran) -> None:
    document = ran(f"{own_suite}/near", "--size", "test", "--copies", "1")
    assert [benchmark["benchmark"] for benchmark in document["benchmarks"]] == ["near"]


@pytest.mark.usefixtures("own_cache")
def test_each_copy_is_bound_to_its_own_cpu_and_the_database_says_so(ran: Ran) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    script = "grep Cpus_allowed_list /proc/self/status"
    ran("--copies", "pus", "--keep", "--", "sh", "-c", script)
    stored = dict(query_rows("SELECT copy, cpu FROM copy"))
    assert sorted(stored.values()) == cpus
    for path in Path(os.environ["RATER_CACHE"]).rglob("*.stdout"):
        copy = int(path.name.split(".c")[1].split(".")[0])
        assert path.read_text().split() == ["Cpus_allowed_list:", str(stored[copy])]


def test_layout_none_binds_nothing(ran: Ran, tmp_path: Path) -> None:
    script = f"grep Cpus_allowed_list /proc/self/status > {tmp_path}/allowed"
    ran("--copies", "1", "--layout", "none", "--", "sh", "-c", script)
    assert (tmp_path / "allowed").read_text() in Path("/proc/self/status").read_text()
    assert query_rows("SELECT cpu, node FROM copy") == [(None, None)]


def test_tags_environment_and_discarded_iterations_are_stored(ran: Ran) -> None:
    document = ran(
        *("--copies", "1", "--iterations", "3", "--discard", "1", "--tag", "thp=always"),
        *("--env", "X=1", "--", "sh", "-c", 'test "$X" = 1'),
    )
    assert document["tags"] == {"thp": "always"}
    assert [benchmark["counted"] for benchmark in document["benchmarks"]] == [False, True, True]
    assert query_rows("SELECT name, value FROM environment") == [("X", "1")]


def test_staggered_runs_tell_both_brackets(ran: Ran) -> None:
    document = ran("--copies", "3", "--stagger", "30", "--", "sleep", "0.2")
    [benchmark] = document["benchmarks"]
    assert document["mode"] == "staggered"
    [(first, last_start, first_finish, last)] = query_rows(
        "SELECT min(start_ns), max(start_ns), min(finish_ns), max(finish_ns) FROM copy"
    )
    assert benchmark["bracket_s"] == pytest.approx((last - first) / 1e9)
    assert benchmark["overlap_s"] == pytest.approx((first_finish - last_start) / 1e9)
    assert benchmark["bracket_s"] > 0.26


def test_heterogeneous_means_rotated(own_suite: Path, ran: Ran) -> None:
    words = ("--size", "test", "--copies", "2", "--mode", "heterogeneous", "--iterations", "2")
    document = ran(str(own_suite), *words)
    assert document["mode"] == "rotated"
    assert query_rows(
        "SELECT copy, group_concat(benchmark, ' ') FROM (SELECT * FROM copy "
        "ORDER BY copy, step) GROUP BY copy"
    ) == [
        (0, "right near right near"),
        (1, "near right near right"),
    ]


@pytest.mark.usefixtures("own_cache")
def test_a_dry_run_starts_and_stores_nothing(own_suite: Path, rater: Rater) -> None:
    status, out, _ = rater("run", str(own_suite), "--size", "test", "--copies", "4", "--dry-run")
    assert status == 0
    assert "right, near" in out
    assert not Path(os.environ["RATER_DB"]).exists()
    assert not Path(os.environ["RATER_CACHE"]).exists()


def test_a_dry_run_of_what_would_be_refused_says_so_and_exits_0(
    own_suite: Path, rater: Rater
) -> None:
    own_suite.write_text(OWN_SUITE.replace("memory_mb = 1", "memory_mb = 900000000"))
    words = ("run", str(own_suite), "--size", "test", "--copies", "4")
    dry = rater(*words, "--dry-run")
    assert dry[0] == 0
    assert "would refuse this: memory" in dry[1]
    refused = rater(*words)
    assert refused[:2] == (2, "")
    assert "--force" in refused[2]
    assert rater(*words, "--force")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --dry-run -- ./not-there", "no such file"),
        ("run --dry-run --wrap nosuchwrap -- true", "not in PATH"),
        ("run --dry-run --copies 300 --no-oversubscribe -- true", "--no-oversubscribe"),
    ],
)
def test_a_dry_run_says_what_the_run_would_be_refused_for(
    words: str, said: str, rater: Rater
) -> None:
    status, out, _ = rater(*words.split())
    assert status == 0
    assert "REFUSED" in out
    assert said in " ".join(out.split())
    [refused] = json.loads(rater("--json", *words.split())[1])["refused"]
    assert said in refused


@pytest.mark.usefixtures("own_cache")
def test_a_dry_run_fits_the_terminal_and_shows_no_control_characters(
    own_suite: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = ("--size", "test", "--copies", "30", "--mode", "rotated", "--dry-run")
    _, out, _ = rater("run", str(own_suite), *words)
    lines = out.splitlines()
    assert max(len(line) for line in lines if str(own_suite.parent) not in line) <= 60
    _, out, _ = rater("run", "--dry-run", "--", "bin/\x1b[31mred\n")
    assert "\x1b" not in out


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&-"])
def test_closed_standard_descriptors_do_not_matter(closed: str) -> None:
    command = f'"{sys.executable}" -m rater run --copies 2 -- true {closed}'
    assert subprocess.run(["sh", "-c", command], check=False, capture_output=True).returncode == 0
    assert query_rows("PRAGMA integrity_check") == [("ok",)]
    assert query_rows("SELECT status FROM copy") == [("ok",), ("ok",)]


def test_a_reader_who_leaves_changes_no_exit_status() -> None:
    # Unbuffered, a write finds out; buffered, the end of the process does.
    for unbuffered, words, status in (
        ("", "run --copies 2 --proof off -- true", 0),
        ("1", "run --copies 2 --proof off -- false", 1),
        ("", "show last", 0),
        ("1", "list --json", 0),
    ):
        # Nobody reads from the start; what rater says on standard error goes there too.
        rater = f'PYTHONUNBUFFERED={unbuffered} "{sys.executable}" -m rater {words}'
        command = f"exec 3>&1; {{ {rater} 2>&1; echo $? >&3; }} | true"
        done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == (f"{status}\n", ""), words
    assert query_rows("SELECT status FROM run") == [("complete",), ("failed",)]


def test_a_full_standard_output_is_an_error_in_words() -> None:
    command = f'"{sys.executable}" -m rater run --copies 2 -- true > /dev/full'
    done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert query_rows("SELECT status FROM run") == [("complete",)]


def test_a_directory_that_is_gone_is_an_error_in_words(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = f'mkdir {gone}; cd {gone}; rmdir {gone}; "{sys.executable}" -m rater run -- true'
    done = subprocess.run(
        ["sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
    )
    assert done.returncode == 2
    assert "cd to one that is there" in done.stderr


def test_the_plan_of_128_staggered_copies_as_the_user_types_it(rater: Rater) -> None:
    words = "--copies 128 --mode staggered --stagger 6000 --dry-run --json -- sleep 1"
    plan = json.loads(rater("run", *words.split())[1])
    assert len(plan["copies"]) == 128
    assert plan["copies"][127]["start_ms"] == 762_000


def test_who_else_works_here_is_a_warning_that_is_kept(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ForeignLoad((BusyProcess(77, "cc1", 1.5, "anna"),), unseen=0.0, stolen=0.0)
    monkeypatch.setattr("rater.workflow.run.prepare.ForeignLoadSampler.busy", lambda self: found)
    ran("--copies", "1", "--", "true")
    [(kind, text)] = query_rows("SELECT kind, text FROM note WHERE text LIKE '%cc1%'")
    assert kind == "warning"
    assert "anna" in text


def test_quiet_says_nothing(rater: Rater) -> None:
    _, out, error = rater("run", "--quiet", "--copies", "2", "--", "true")
    assert (out, error) == ("", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run nosuchsuite", "unknown suite 'nosuchsuite'"),
        ("run ./missing.toml", "missing.toml"),
        ("run --stagger -1 -- true", "--stagger -1"),
        ("run --iterations 0 -- true", "--iterations 0"),
        ("run --copies 0 -- true", "--copies '0'"),
        ("run --copies -- true", "expected one argument"),
        ("run --mode staggered -- true", "needs --stagger"),
        ("run -- ./not-there", "no such file"),
        ("run -- /etc/passwd", "may not be executed"),
        ("run --", "expected a command"),
        ("run mini -- true", "both a suite"),
        ("run --timeout 0 -- true", "--timeout 0"),
        ("run --tag novalue -- true", "KEY=VALUE"),
        ("run --env 1X=2 -- true", "no name of an environment variable"),
        ("run --wrap 'open -- true", "--wrap"),
        ("run --wrap nosuchwrapper -- true", "not in PATH"),
        ("run --mem sideways -- true", "--mem sideways"),
        ("run --layout sideways -- true", "unknown layout"),
        ("run --layout none --mem bind -- true", "home node"),
        ("run --copies 100 --no-oversubscribe -- true", "--no-oversubscribe"),
        ("run --output-limit many -- true", "--output-limit"),
        ("list -- true", "belong to `rater` `run`"),
        ("show 12", "there is no database"),
        ("run --increment 5 -- true", "--mode rotated"),
        ("run --size ref -- true", "is for suites"),
        ("run --tune peak -- true", "is for suites"),
        ("run --iterations 100000000000 -- true", "take fewer"),
        ("run --stagger 1e300 -- true", "at most"),
    ],
)
def test_bad_input_is_one_clear_error_and_exit_status_2(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):  # argparse has said it
        assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_second_run_is_refused_and_told_who_is_first(rater: Rater) -> None:
    first = subprocess.Popen([*QUIET, "--copies", "1", "--", "sleep", "30"])
    try:
        lock = Path(os.environ["RATER_LOCK"])
        while not (lock.exists() and lock.read_text()):
            time.sleep(0.01)
        second = rater("run", "--copies", "1", "--", "true")
        assert second[0] == 2
        assert f"process {first.pid}" in second[2]
        # In a process of its own: every child of the process that runs copies is taken for theirs.
        beside = [*QUIET, "--share", "--copies", "1", "--", "true"]
        assert subprocess.run(beside, check=False).returncode == 0
    finally:
        first.terminate()
        assert first.wait() == 143


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_keeps_what_finished_and_tells_its_number(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    script = f'touch {tmp_path}/up.$RATER_COPY; test "$RATER_COPY" = 0 || exec sleep 60'
    process = subprocess.Popen([*QUIET, "--copies", "2", "--", "sh", "-c", script])
    while len(list(tmp_path.glob("up.*"))) < 2 or not rows_if_any("SELECT 1 FROM copy"):
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(timeout=20) == status
    assert query_rows("SELECT copy, status FROM copy ORDER BY copy") == [
        (0, "ok"),
        (1, "interrupted"),
    ]
    assert query_rows("SELECT status, reason FROM run") == [
        ("interrupted", f"stopped by {number.name}")
    ]


def rows_if_any(sql: str) -> list[tuple[Any, ...]]:
    try:
        return query_rows(sql)
    except sqlite3.OperationalError:  # not made yet
        return []


def test_ctrl_z_stops_the_copies_marks_the_run_and_does_not_count_for_the_time_limit(
    tmp_path: Path,
) -> None:
    # exec: a shell that has forked and waits for its child's exec can not be seen stopped
    waits = f"import os, time\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.01)"
    script = f'echo $$ > {tmp_path}/pid; exec {sys.executable} -S -c "{waits}"'
    words = ("--copies", "1", "--timeout", "1.2", "--", "sh", "-c", script)
    process = subprocess.Popen([*QUIET, *words])
    copy = pid_in(tmp_path / "pid")
    process.send_signal(signal.SIGTSTP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    while state_of(copy) != "T":
        time.sleep(0.01)
    time.sleep(1.3)  # longer than the limit: the length of the pause is what is tested
    (tmp_path / "go").touch()
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=20) == 0
    assert "suspended (Ctrl-Z)" in str(query_rows("SELECT text FROM note"))


def test_an_ignored_sigchld_and_a_variable_without_a_name_do_not_matter() -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'rater', 'run', '--quiet', '--', 'true'])"
    )
    done = subprocess.run(["env", "=x", sys.executable, "-c", code], check=False)
    assert done.returncode == 0


def test_the_memory_of_every_mix_of_a_rotated_run_is_estimated(
    own_suite: Path, rater: Rater
) -> None:
    # One copy: it begins with `right` and comes to `near`, which does not fit.
    first, second = OWN_SUITE.split("[benchmarks.near]")
    second = second.replace("memory_mb = 1", "memory_mb = 900000000")
    own_suite.write_text(f"{first}[benchmarks.near]{second}")
    words = ("--size", "test", "--copies", "1", "--mode", "rotated", "--dry-run")
    assert "would refuse this: memory" in " ".join(rater("run", str(own_suite), *words)[1].split())


def test_a_compiler_dies_with_a_killed_rater(tmp_path: Path) -> None:
    slow = tmp_path / "slowcc"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo slow 1; exit;; esac\n'
        f"sleep 300 & echo $! > {tmp_path}/pid; wait\n"
    )
    slow.chmod(0o755)
    words = ["mini/lu", "--size", "test", "--copies", "1"]
    process = subprocess.Popen([*QUIET, *words], env=os.environ | {"CC": str(slow)})
    compiler = pid_in(tmp_path / "pid")
    process.kill()
    process.wait()
    wait_until_dead(compiler)


def test_a_database_of_somebody_else_is_refused_and_left_alone(
    tmp_path: Path, rater: Rater
) -> None:
    foreign = tmp_path / "photos.db"
    with closing(sqlite3.connect(foreign)) as db, db:
        db.execute("CREATE TABLE photo (id INTEGER)")
    before = foreign.read_bytes()
    status, *_ = rater("run", "--db", str(foreign), "--copies", "1", "--", "true")
    assert status == 2
    assert foreign.read_bytes() == before


def test_db_and_json_may_stand_before_the_subcommand(tmp_path: Path, rater: Rater) -> None:
    other = tmp_path / "other.db"
    assert rater("--db", str(other), "run", "--quiet", "--copies", "1", "--", "true")[0] == 0
    assert len(json.loads(rater("--json", "--db", str(other), "list")[1])) == 1


def test_what_a_program_said_when_it_failed_is_said_after_the_result(rater: Rater) -> None:
    command = ("--", "sh", "-c", "echo no such option >&2; exit 3")
    status, _, err = rater("run", "--copies", "2", "--share", "--proof", "off", *command)
    assert status == 1
    assert err.endswith("rater: its standard error:\n  no such option\n")


def test_a_failing_copy_makes_exit_status_1_with_its_status_stored(rater: Rater) -> None:
    status, out, _ = rater("run", "--copies", "2", "--", "sh", "-c", "exit $((RATER_COPY * 7))")
    assert status == 1
    assert query_rows("SELECT copy, status, exit_code FROM copy ORDER BY copy") == [
        (0, "ok", 0),
        (1, "failed", 7),
    ]
    assert "exit status 7" in out


def test_an_accepted_exit_code_counts_and_rerun_accepts_it_again(rater: Rater) -> None:
    command = ("--copies", "2", "--accept-exit", "1,4-5", "--proof", "off", "--", "sh", "-c")
    assert rater("run", "--quiet", *command, "exit 4")[0] == 0
    assert rater("rerun", "last", "--quiet")[0] == 0
    assert query_rows("SELECT DISTINCT status, exit_code FROM copy") == [("ok", 4)]
    assert rater("run", "--quiet", *command, "exit 3")[0] == 1
    status, _, err = rater("run", "--accept-exit", "300", "--", "true")
    assert (status, err) == (2, "rater: --accept-exit '300': expected exit codes from 1 to 255\n")


def test_of_a_failed_copy_both_ends_of_its_standard_error_are_said(rater: Rater) -> None:
    command = ("--copies", "1", "--proof", "off", "--quiet", "--", "sh", "-c")
    err = rater("run", *command, "seq 9000 >&2; exit 1")[2]
    assert "error:\n  1\n  2\n  3\n  ...\n  8998\n  8999\n  9000\n" in err


def test_show_output_has_what_each_copy_printed_and_json_stays_a_document(rater: Rater) -> None:
    program = ("sh", "-c", 'echo "hello $RATER_COPY"; printf "\\033[2J" >&2')
    status, out, err = rater("run", "--copies", "2", "--show-output", "--json", "--", *program)
    assert (status, json.loads(out)["mode"]) == (0, "homogeneous")
    shown = [line for line in err.splitlines() if line.startswith("copy ")]
    assert sorted(shown) == [
        *("copy 0: ?[2J", "copy 0: hello 0"),
        *("copy 1: ?[2J", "copy 1: hello 1"),
    ]
    _, _, err = rater("run", "--copies", "1", "--show-output", "--quiet", "--", "echo", "hello")
    assert "hello" in err.splitlines()


def test_a_metric_of_one_of_several_programs_is_asked_of_no_other(rater: Rater) -> None:
    programs = ("--", "echo", "rate 5", ":", "true")
    metric = ("--metric", "rate MB/s higher of echo: rate ([0-9]+)")
    assert rater("run", "--copies", "1", "--quiet", *metric, *programs)[0] == 0
    assert query_rows("SELECT benchmark, name, unit FROM metric") == [("echo", "rate", "MB/s")]
    wrong = ("--metric", "rate MB/s higher of sleep: rate ([0-9]+)")
    status, _, err = rater("run", "--copies", "1", *wrong, *programs)
    assert status == 2
    assert "--metric rate of sleep: no such program behind --; expected one of echo, true" in err


def test_iterations_end_once_every_bracket_is_known_well_enough(rater: Rater) -> None:
    status, out, _ = rater(
        "run", "--copies", "1", "--until", "99%", "--json", "--", "sleep", "0.01"
    )
    ended = json.loads(out)["iterations"]
    [(note,)] = query_rows("SELECT text FROM note WHERE text LIKE '--until%'")
    assert (status, len(query_rows("SELECT 1 FROM bracket"))) == (0, ended)
    assert f"after {ended} iterations" in note
    status, _, _ = rater("run", "--copies", "1", "--until", "1%", "--quiet", "--", "false")
    assert (status, query_rows("SELECT iterations FROM run WHERE id = 2")) == (1, [(1,)])
    for words, reason in (
        (("1%", "--mode", "steady", "--window", "1"), "--mode steady has no bracket"),
        (("1%", "--iterations", "3"), "expected 5 iterations or more"),
        (("1%", "--count", "instructions"), "are no measure"),
        (("much",), "expected a number of per cent above 0"),
    ):
        status, _, err = rater("run", "--until", *words, "--", "true")
        assert (status, reason in " ".join(err.split())) == (2, True)


def test_of_a_long_output_both_ends_are_shown(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("a\n" * 20_000 + "b\n" * 20_000)
    shown = shown_output("", [str(tmp_path / "stdout"), str(tmp_path / "absent")]).splitlines()
    assert (shown[0], shown[16384], shown[-1]) == ("a", "", "b")
    assert "... 14464 bytes ..." in shown


def test_numactl_inside_a_bound_copy_is_told_the_way_out(rater: Rater) -> None:
    said = "libnuma: Warning: cpu argument 1 is out of range"  # of numactl 2.0.16
    command = ("--copies", "1", "--proof", "off", "--", "sh", "-c", f"echo '{said}' >&2; exit 1")
    assert "`--bind none --mem none` leaves both to the command" in rater("run", *command)[2]
    assert "--bind none" not in rater("run", "--bind", "none", *command)[2]


def test_copies_may_be_placed_where_rater_itself_was_not_started(rater: Rater) -> None:
    every = sorted(os.sched_getaffinity(0))
    if len(every) < 2:
        pytest.skip("one CPU")
    os.sched_setaffinity(0, {every[0]})
    try:
        words = ("run", "--layout", f"list:{every[1]}", "--quiet", "--", "sh", "-c")
        status, _, err = rater(*words, "grep Cpus_allowed_list /proc/self/status >&2; exit 1")
    finally:
        os.sched_setaffinity(0, every)
    assert (status, f"Cpus_allowed_list:?{every[1]}\n" in err) == (1, True), err


@pytest.mark.parametrize("words", [("list",), ("run", "--copies", "1", "--", "true"), ("suites",)])
def test_a_user_without_home_or_line_of_passwd_needs_neither(
    rater: Rater, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def unknown(user: int) -> object:
        raise KeyError(user)

    for name in ("HOME", "RATER_JOURNAL", "RATER_CONFIG", "RATER_SUITES"):
        monkeypatch.delenv(name, raising=False)
    for kind in ("STATE", "DATA", "CACHE", "CONFIG"):
        monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    assert rater(*words)[0] == 0
    monkeypatch.delenv("RATER_DB")
    monkeypatch.delenv("RATER_CACHE")
    status, _, err = rater(*words)
    assert status == (0 if words == ("suites",) else 2)
    assert not err or "no home directory" in err


@pytest.mark.parametrize("variable", ["RATER_DB", "RATER_CACHE"])
def test_a_home_that_is_not_there_is_no_home_and_never_made(
    rater: Rater, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nonexistent"))
    for kind in ("STATE", "DATA", "CACHE", "CONFIG"):
        monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)
    assert rater("run", "--quiet", "--copies", "1", "--", "true")[0] == 0
    monkeypatch.delenv(variable)
    status, _, err = rater("run", "--copies", "1", "--", "true")
    assert (status, "no home directory (HOME)" in err, variable in err) == (2, True, True)
    assert not (tmp_path / "nonexistent").exists()


def test_a_clock_that_python_cannot_read_is_told_with_the_way_out(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def far() -> float:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")

    monkeypatch.setattr("time.time", far)
    status, _, err = rater("run", "--copies", "1", "--", "true")
    assert (status, "clock of this machine is beyond the year 2262" in err) == (2, True)


def test_without_room_for_a_thread_a_run_fails_with_what_limits_it(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def full(self: threading.Thread) -> None:
        if self.name == "recorder":
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", full)
    status, _, err = rater("run", "--quiet", "--copies", "1", "--", "true")
    text = "rater could not start a thread of its own: as many processes and threads run as may: "
    assert (status, err.startswith(f"rater: {text}"), err.count("\n")) == (1, True, 1)
    [(state, reason)] = query_rows("SELECT status, reason FROM run")
    assert (state, str(reason).startswith(text)) == ("failed", True)


def test_the_screen_is_drawn_on_a_terminal_and_left_clean() -> None:
    ours, terminal = os.openpty()
    process = subprocess.Popen(
        [*RATER, "run", "--copies", "4", "--", "sleep", "0.6"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
    )
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the other side is closed: Linux says EIO
        pass
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "CPU, node" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert "run 1: " in text


def test_a_cold_cache_is_no_blank_screen_and_a_warm_one_is_silent(
    tmp_path: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_CACHE", str(tmp_path / "cold"))
    (tmp_path / "one.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "own.toml").write_text(
        '[suite]\nformat = 1\nname = "own"\n'
        '[benchmarks.a]\nsources = ["one.c"]\n[benchmarks.a.sizes.train]\n'
        '[benchmarks.b]\ncommand = ["true"]\n[benchmarks.b.sizes.train]\n'
    )
    words = ("run", str(tmp_path / "own.toml"), "--copies", "1")
    cold, warm = rater(*words), rater(*words)
    assert (cold[0], warm[0]) == (0, 0)
    assert f"building 1 program, once; {tmp_path / 'cold'} keeps it" in cold[2]
    assert "building" not in warm[2]
