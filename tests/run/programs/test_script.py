"""The commands of a copy as one process, under every shell that is here as /bin/sh may be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.suite import Command
from rater.run.programs.compile import build
from rater.run.programs.script import (
    CommandLine,
    command_lines,
    digest_of_programs,
    failed_command,
    shown,
    to_argv,
)
from tests.support.shells import SHELLS, sh
from tests.support.suite_text import parse_suite


class Ended:
    """A script that ran to its end in one of the shells."""

    def __init__(self, shell: list[str], lines: list[CommandLine], folder: Path) -> None:
        argv = to_argv(lines)
        program = shutil.which(shell[0])
        if program is None:
            pytest.skip(f"no {shell[0]} here")
        self.stderr = folder / "stderr"
        with (folder / "stdout").open("wb") as stdout, self.stderr.open("wb") as stderr:
            child = subprocess.Popen(
                [program, *shell[1:], *argv[1:]],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
            _, status, self.usage = os.wait4(child.pid, 0)
            child.returncode = code = os.waitstatus_to_exitcode(status)
        self.exit_code = code if code >= 0 else None
        self.signal = -code if code < 0 else None
        self.stdout = (folder / "stdout").read_text()
        self.blamed = failed_command(argv, str(self.stderr), self.exit_code, self.signal)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return SHELLS[request.param]


def test_one_plain_command_is_executed_without_a_shell() -> None:
    assert to_argv([CommandLine(("/bin/echo", "a b"))]) == ("/bin/echo", "a b")
    assert to_argv([CommandLine(("/bin/echo",))], ["/usr/bin/nice"]) == (
        "/usr/bin/nice",
        "/bin/echo",
    )
    assert failed_command(("/bin/echo",), "/nonexistent", 1, None) is None


def test_commands_run_in_order_and_stop_at_the_first_that_fails(
    shell: list[str], tmp_path: Path
) -> None:
    done = Ended(shell, [sh("echo a"), sh("echo b; exit 7"), sh("echo c")], tmp_path)
    assert (done.stdout, done.exit_code) == ("a\nb\n", 7)
    assert done.blamed == "command 2 of 3 (/bin/sh -c 'echo b; exit 7'): exit code 7"


def test_the_last_command_is_told_by_what_the_script_did_not_say(
    shell: list[str], tmp_path: Path
) -> None:
    done = Ended(shell, [sh("echo a"), sh("echo b; exit 3")], tmp_path)
    assert (done.stdout, done.exit_code) == ("a\nb\n", 3)
    assert done.blamed == "command 2 of 2 (/bin/sh -c 'echo b; exit 3'): exit code 3"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGPIPE])
def test_a_signal_that_ends_a_command_ends_the_script(
    shell: list[str], tmp_path: Path, number: int
) -> None:
    done = Ended(shell, [sh(f"kill -{int(number)} $$"), sh("echo no")], tmp_path)
    assert (done.stdout, done.signal) == ("", number)
    assert done.blamed == f"command 1 of 2 (/bin/sh -c 'kill -{int(number)} $$'): signal {number}"


def test_nobody_is_blamed_for_a_script_that_was_killed_from_outside(tmp_path: Path) -> None:
    done = Ended(["dash"], [sh("exit 0"), sh("kill -9 $$")], tmp_path)
    assert (done.signal, done.blamed) == (signal.SIGKILL, None)


def test_a_program_or_input_that_is_not_there_fails_its_own_command(
    shell: list[str], tmp_path: Path
) -> None:
    done = Ended(shell, [CommandLine(("/no/such",)), sh("echo no")], tmp_path)
    assert (done.exit_code, done.blamed) == (127, "command 1 of 2 (/no/such): exit code 127")
    for lines in ([CommandLine(("/bin/cat",), "missing"), sh("true")],
                  [sh("true"), CommandLine(("/bin/cat",), "missing")]):  # fmt: skip
        done = Ended(shell, lines, tmp_path)
        position = 1 if lines[0].stdin else 2
        assert done.exit_code in (1, 2)
        assert done.blamed is not None
        assert done.blamed.startswith(f"command {position} of 2 (/bin/cat <missing): exit code")


def test_streams_go_to_files_and_words_stay_as_they_are(shell: list[str], tmp_path: Path) -> None:
    odd = ["a b", "it's", "$HOME", "~", "*", "-n", "", "\\", "ä", "x=~", "{a,b}", "line\nbreak"]
    (tmp_path / "in put").write_text("from file\n")
    cat, printf = (str(shutil.which(name)) for name in ("cat", "printf"))
    done = Ended(
        shell,
        [
            CommandLine((cat,), "in put", "o 'ut"),
            CommandLine((printf, "%s\\n", *odd), stdout="words"),
            CommandLine(("/bin/sh", "-c", "cat; echo more >&2"), "o 'ut", None, "err"),
        ],
        tmp_path,
    )
    assert (done.exit_code, done.stdout) == (0, "from file\n")
    assert (tmp_path / "words").read_text() == "".join(f"{word}\n" for word in odd)
    assert (tmp_path / "err").read_text() == "more\n"


def test_one_command_with_an_input_needs_no_process_more(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello\n")
    argv = to_argv([CommandLine(("/bin/sh", "-c", "read x; echo $x $PPID"), "in")])
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"hello {os.getpid()}\n"


def test_cpu_time_and_faults_of_all_commands_count(shell: list[str], tmp_path: Path) -> None:
    burn = sh("i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done")
    done = Ended(shell, [burn, sh("true")], tmp_path)
    alone = Ended(shell, [sh("true"), sh("true")], tmp_path)
    assert done.usage.ru_utime - alone.usage.ru_utime > 0.02
    assert alone.usage.ru_minflt > 100


def test_sigterm_lets_the_command_clean_up_and_starts_no_other(
    shell: list[str], tmp_path: Path
) -> None:
    # The command tells the whole group, as the supervisor does, and then takes its time.
    tidy = sh("trap 'echo tidied; exit 0' TERM; kill -TERM $PPID; kill -TERM $$")
    done = Ended(shell, [tidy, sh("echo no")], tmp_path)
    assert (done.stdout, done.signal) == ("tidied\n", signal.SIGTERM)
    assert done.blamed is None


def test_a_line_that_a_program_wrote_itself_blames_no_command_that_is_not_there(
    tmp_path: Path,
) -> None:
    said = "rater: command 9 ended with status 1"
    done = Ended(["dash"], [sh("true"), sh(f"echo '{said}' >&2; exit 1")], tmp_path)
    assert done.blamed is None


def test_commands_beyond_what_linux_takes_are_an_error() -> None:
    with pytest.raises(InputError, match="bytes long together, Linux takes at most 131071"):
        to_argv([sh("x" * 70_000), sh("x" * 70_000)])


SUITE = """\
[suite]
format = 1
[benchmarks.p]
command = ["cat", "-u"]
[benchmarks.p.sizes.one]
args = ["x"]
[benchmarks.p.sizes.other]
command = ["true", "-a"]
args = ["y"]
[benchmarks.p.sizes.all]
commands = [
  { args = ["in"], stdout = "out" },
  { command = ["cmp", "in", "out"] },
]
inputs = [{ name = "in", path = "in" }]
"""


def test_a_size_may_have_programs_of_its_own(tmp_path: Path) -> None:
    (wanted,) = parse_suite(SUITE, tmp_path / "s.toml").benchmarks
    cat, true, cmp = (str(shutil.which(name)) for name in ("cat", "true", "cmp"))
    lines = {}
    digests = {}
    for name, size in wanted.sizes.items():
        built = build(wanted, "base", tmp_path, size)
        lines[name] = command_lines(wanted, size, built)
        digests[name] = digest_of_programs(built, lines[name])
    assert lines["one"] == (CommandLine((cat, "-u", "x")),)
    assert lines["other"] == (CommandLine((true, "-a", "y")),)
    assert shown(lines["all"]) == f"{cat} -u in >out && {cmp} in out"
    assert to_argv(lines["all"], ["/usr/bin/nice", "-n 1"])[2].count("/usr/bin/nice '-n 1' ") == 2
    assert len({*digests.values()}) == 3
    gone = replace(wanted, command=("no-such-program",))
    size = wanted.sizes["other"]
    assert command_lines(gone, size, build(gone, "base", tmp_path, size)) == lines["other"]
    with pytest.raises(InputError, match="benchmark p: 'no-such-program' is not in PATH"):
        build(gone, "base", tmp_path, wanted.sizes["all"])
    nope = replace(size, commands=(Command(("nope",), (), None, None, None),) * 2)
    with pytest.raises(InputError, match="benchmark p: 'nope' is not in PATH"):
        build(wanted, "base", tmp_path, nope)
