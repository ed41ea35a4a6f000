"""The commands of a copy as one process, set-up commands, and the digest of a workload."""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from msgspec import Struct

from rater.plan.suite import Benchmark, Size, Suite
from rater.run.programs.child_process import (
    NO_LIMITS,
    LimitExceeded,
    Limits,
    both_ends,
    excess_text,
    run_child,
)
from rater.run.programs.compile import (
    BuiltProgram,
    cache_errors,
    cache_key,
    find_command,
    locked,
    sha256_of,
)
from rater.run.programs.inputs import (
    ReadyInput,
    SetupFiles,
    cache_setup_files,
    flush_file_system,
    inputs_digest,
)
from rater.system.errors import InputError, RunError
from rater.system.patterns import compile_later
from rater.text.secrets import command_text
from rater.text.values import ending_text, printable

# The supervisor sees one process a copy either way. The script stops at the first
# command that fails and ends as that one did: with its exit code, or by its signal.
# A shell tells both by one number, so that exit codes 129 to 192 of a command that is
# not the last one count as signals 1 to 64, as they do wherever a shell ran it.

_SHELL = "/bin/sh"
_NAME = "rater-commands"  # $0 of the script: what the shell puts before its own messages
_LONGEST_SCRIPT = (1 << 17) - 1  # bytes; Linux takes no longer argument (MAX_ARG_STRLEN)
_LONGEST_LABEL = 60  # characters
_TAIL_BYTES = 512  # of stderr: the script's last line is shorter
_MARK = compile_later(rb"rater: command (\d+) ended with status \d+\n\Z")
# What the shell itself says last: of a file that it could not open.
_SHELL_SAID = compile_later(rb"(?:^|\n)%s: (?:line )?(?:\d+: )?([^\n]{1,300})\n\Z" % _NAME.encode())
_NO_PROGRAM = (126, 127)  # which says enough
# The script itself can only be ended from outside; other signals end its last command.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# SIGTERM goes to the whole group. The script waits for its command, which may want to clean up,
# then ends by the same signal. A core file of the shell would be of no use to anybody.
_FAILED = "rater_failed() {\n"
_BEGIN = f"""\
{_FAILED}\
rater_report "$1" "$2"
printf 'rater: command %s ended with status %s\\n' "$1" "$2" >&2
trap - TERM
ulimit -c 0
[ "$2" -le 128 ] || [ "$2" -gt 192 ] || kill "-$(($2 - 128))" $$ 2>/dev/null
exit "$2"
}}
trap 'trap - TERM; kill -{signal.SIGTERM:d} $$' TERM
"""
# `CommandReports` reads what is written here: the script's process, what happened to which command,
# and the status that it ended with, or the process that it is. In one write(), which a pipe does
# not tear. No command finds the descriptor open.
REPORT_FD = 9
_REPORT = f'rater_report() {{ echo "$$ e $1 $2" >&{REPORT_FD}; }}\n'
_REPORT_TO_NOBODY = "rater_report() { :; }\n"
_CLOSED = f" {REPORT_FD}>&-"
_OWN_SHELL = f"""\
echo "$1 s $2 $$" >&{REPORT_FD}
exec {REPORT_FD}>&-
shift 2
"""


class CommandLine(Struct, frozen=True, kw_only=True):
    """One command of a copy, its program found."""

    words: tuple[str, ...]
    stdin: str | None = None  # relative to the run directory; None: empty
    stdout: str | None = None  # None: the copy's own
    stderr: str | None = None
    appends: bool = False  # to the file of its standard error, which the script has emptied
    closes_stdin: bool = False  # where it has no file to read

    def shell(self, wrap: Sequence[str] = ()) -> str:
        """Return the command as a shell takes it, redirections included."""
        return shlex.join([*wrap, *self.words]) + self.streams

    @property
    def streams(self) -> str:
        """The redirections, each behind a blank."""
        error = "2>>" if self.appends else "2>"
        parts = [
            f" {sign}{shlex.quote(name)}"
            for sign, name in (("<", self.stdin), (">", self.stdout), (error, self.stderr))
            if name is not None
        ]
        if self.closes_stdin and self.stdin is None:
            parts.insert(0, " <&-")
        return "".join(parts)

    @property
    def plain(self) -> bool:
        """Tell whether no file is put in place of its streams."""
        return not self.streams


def command_lines(benchmark: Benchmark, size: Size, built: BuiltProgram) -> tuple[CommandLine, ...]:
    """Return what a copy runs in one size, in order. Raises `InputError` for missing programs."""
    lines = []
    for command in size.commands:
        if command.program:
            program = find_command(command.program[0], f"benchmark {benchmark.name}")
            words = (str(program), *command.program[1:], *command.args)
        else:
            words = (str(built.executable), *built.arguments, *command.args)
        lines.append(
            CommandLine(
                words=words, stdin=command.stdin, stdout=command.stdout, stderr=command.stderr
            )
        )
    return tuple(lines)


def digest_of_programs(built: BuiltProgram, lines: Sequence[CommandLine]) -> str | None:
    """Return the SHA-256 of a benchmark's program; of the hashes of all, when it runs several.

    None when one of them may be executed but not read.
    """
    programs = dict.fromkeys(line.words[0] for line in lines)
    if len(programs) == 1:
        return built.sha256
    try:
        return cache_key(*(sha256_of(Path(program)) for program in programs))
    except OSError:
        return None


def shown(lines: Sequence[CommandLine]) -> str:
    """Return the commands as one line that a shell would take, to be shown."""
    return " && ".join(line.shell() for line in lines)


def to_argv(
    lines: Sequence[CommandLine],
    wrap: Sequence[str] = (),
    *,
    reports: bool = False,
    accepted: Sequence[int] = (),
) -> tuple[str, ...]:
    """Return the argument vector of commands, `wrap` in front of each; one plain command unchanged.

    With `reports`, a script of several commands writes to descriptor `REPORT_FD` when one of
    them, which is not the last, has ended. After a status of `accepted` it goes on. Raises
    `InputError` when the commands are too long for one script.
    """
    if len(lines) == 1 and lines[0].plain:
        return (*wrap, *lines[0].words)
    *first_lines, last_line = lines
    closing = _CLOSED if reports and first_lines else ""
    report = "rater_report {} $?\n" if closing else ""
    steps = [
        f"{line.shell(wrap)}{closing} || rater_failed {number} $?\n{report.format(number)}"
        for number, line in enumerate(first_lines, 1)
    ]
    beginning = f"{_REPORT if closing else _REPORT_TO_NOBODY}{_BEGIN}" if first_lines else ""
    code_checks = "".join(f'[ "$2" -ne {code} ] || return {code}\n' for code in accepted)
    beginning = beginning.replace(_FAILED, _FAILED + code_checks)
    return _script_argv([beginning, *steps, f"exec {last_line.shell(wrap)}{closing}\n"], lines)


def argv_of_texts(
    texts: Sequence[str],
    lines: Sequence[CommandLine],
    outputs: Sequence[Sequence[str]],
    wrap: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what to execute for commands that are texts for a shell, as specinvoke's are.

    Each has a shell of its own, which tells its process before it runs the text; `lines`
    are their streams. The files `outputs` of each are emptied before the first that has them:
    what an earlier run left in them is no answer of this one.
    """
    steps = []
    emptied: set[str] = set()
    for number, (text, line) in enumerate(zip(texts, lines, strict=True), 1):
        shell_command = shlex.join([*wrap, _SHELL, "-c", f"{_OWN_SHELL}{text}\n", _SHELL])
        # Without `command` a file that can not be made would end the script unheard.
        emptying = "".join(
            f"command : >{shlex.quote(output)} || rater_failed {number} $?\n"
            for output in dict.fromkeys(outputs[number - 1])
            if output not in emptied
        )
        emptied.update(outputs[number - 1])
        steps.append((emptying, f'{shell_command} "$$" {number}{line.streams}'))
    *first_steps, (emptying, last_command) = steps
    return _script_argv(
        [
            _REPORT,
            _BEGIN,
            *(
                f"{emptying}{command} || rater_failed {number} $?\nrater_report {number} 0\n"
                for number, (emptying, command) in enumerate(first_steps, 1)
            ),
            f"{emptying}exec {last_command}\n",
        ],
        lines,
    )


def count_reported_commands(argv: Sequence[str]) -> int:
    """Return how many commands a script tells of, 0 for one that tells nothing."""
    return len(argv) - 4 if _is_script(argv) and argv[2].startswith(_REPORT) else 0


def _script_argv(parts: Sequence[str], lines: Sequence[CommandLine]) -> tuple[str, ...]:
    script = "".join(parts)
    length_bytes = len(os.fsencode(script))
    if length_bytes > _LONGEST_SCRIPT:
        raise InputError(
            f"the commands of a copy are {length_bytes} bytes long together, Linux takes at most "
            f"{_LONGEST_SCRIPT}: put them into a script of your own"
        )
    return (
        _SHELL,
        "-c",
        script,
        _NAME,
        *(printable(line.shell(), _LONGEST_LABEL) for line in lines),
    )


def _is_script(argv: Sequence[str]) -> bool:
    return len(argv) > 4 and argv[0] == _SHELL and argv[3] == _NAME


def folders_of(lines: Sequence[CommandLine]) -> tuple[str, ...]:
    """Return the folders of a run directory that commands are sent to write into."""
    names = [name for line in lines for name in (line.stdout, line.stderr) if name is not None]
    folders = dict.fromkeys(str(PurePosixPath(name).parent) for name in names)
    return tuple(folder for folder in folders if folder != "." and not folder.startswith("/"))


def failed_command(
    argv: Sequence[str], stderr: str, exit_code: int | None, signal_number: int | None
) -> str | None:
    """Say which command of a script ended a copy, `number` being the signal if one did.

    None for a single command, and when a signal from outside ended the script.
    """
    if not _is_script(argv) or (len(argv) == 5 and not count_reported_commands(argv)):
        return None
    labels = argv[4:]
    position, shell_message = _read_mark(stderr)
    if position is None:
        if signal_number in _FROM_OUTSIDE:
            return None
        position = len(labels)
    if not 0 < position <= len(labels):
        return None  # the program wrote such a line itself
    ending = f"exit code {exit_code}" if signal_number is None else f"signal {signal_number}"
    if shell_message and exit_code not in (None, *_NO_PROGRAM):
        ending += f": {shell_message}"
    return f"command {position} of {len(labels)} ({labels[position - 1]}): {ending}"


def failed_position(argv: Sequence[str], stderr: str) -> int:
    """Return which command of a script failed, from 1; the last one when the script names none."""
    last = len(argv) - 4 if _is_script(argv) else 1
    position = _read_mark(stderr)[0]
    return position if position is not None and 0 < position <= last else last


def without_mark(text: bytes) -> bytes:
    """Return what was written to standard error, without the script's own last line."""
    return _MARK.sub(b"", text)


def _read_mark(stderr: str) -> tuple[int | None, str]:
    """Return the number of the command that the script's last line on standard error names.

    The second value is the shell's own last message, of a file that it could not open.
    """
    try:
        descriptor = os.open(stderr, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, ""
    try:
        size_bytes = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _TAIL_BYTES, max(0, size_bytes - _TAIL_BYTES))
    except OSError:
        return None, ""
    finally:
        os.close(descriptor)
    mark = _MARK.search(tail)
    said_match = _SHELL_SAID.search(_MARK.sub(b"", tail))
    shell_message = said_match[1].decode(errors="replace") if said_match else ""
    return (int(mark[1]) if mark else None), printable(shell_message)


# -- Set-up commands of suites and benchmarks: run before copies are timed, never with them --------

OUTPUT = "setup.out"  # of a copy's set-up, in its run directory
_LINES = 20  # shown of what a failed set-up printed


def setup_folder(suite: Suite, cache: Path) -> Path:
    """Return the folder that a suite's set-up works in, kept from run to run."""
    return cache / "setup" / cache_key(str(suite.path), *suite.setup)[:32]


def benchmark_environment(
    suite: Suite | None, benchmark: Benchmark, size: Size, cache: Path
) -> tuple[tuple[str, str], ...]:
    """Return the variables of copies of a benchmark that are not from the user's environment."""
    merged = dict(suite.environment) if suite is not None else {}
    merged |= dict(benchmark.environment) | dict(size.environment)
    if suite is not None:
        merged |= _suite_variables(suite, cache)
    return tuple(merged.items())


def setup_argv(benchmark: Benchmark) -> tuple[str, ...]:
    """Return the command line of a benchmark's set-up, empty when it has none."""
    if not benchmark.setup:
        return ()
    program = find_command(benchmark.setup[0], f"set-up of benchmark {benchmark.name}")
    return (str(program), *benchmark.setup[1:])


def made_files(sizes: Iterable[Size]) -> tuple[str, ...]:
    """Return the files that a suite's set-up has to leave for some sizes."""
    inputs = (input_file for size in sizes for input_file in size.inputs)
    return tuple(input_file.made for input_file in inputs if input_file.made is not None)


def set_up_suite(
    suite: Suite,
    cache: Path,
    environment: Mapping[str, str],
    wanted_files: Iterable[str] = (),
    limits: Limits = NO_LIMITS,
) -> SetupFiles | None:
    """Run the set-up of a suite in its folder; return the files called `made` that it left.

    All that it left is on disk then, and nothing of its folder in the page cache.
    None without a set-up. Another rater that does the same is waited for, and waits
    until the files are copied. Raises `InputError` with the last lines of what it printed
    when it fails or takes more than `limits`.
    """
    if not suite.setup:
        return None
    setup_name = f"set-up of suite {suite.name}"
    program = str(find_command(suite.setup[0], setup_name))
    folder = setup_folder(suite, cache)
    with cache_errors(cache):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder), tempfile.TemporaryFile(dir=folder.parent) as output:
            merged = {**environment, **_suite_variables(suite, cache)}
            encoded = {os.fsencode(name): os.fsencode(value) for name, value in merged.items()}
            argv = (program, *suite.setup[1:])
            problem = _run_setup(argv, folder, encoded, output, limits=limits)
            if problem is not None:
                raise InputError(f"{setup_name} {problem}\n(it ran in {folder})")
            # Writing back what it wrote must not fall into a measurement, nor can it be
            # dropped before; where this is refused there is nothing else to be done.
            flush_file_system(folder)
            return cache_setup_files(folder, wanted_files, cache)


class SetupStopped(Exception):  # noqa: N818 - no error: somebody does not want it any more
    """A set-up was stopped before it had ended."""


def set_up_copy(
    argv: tuple[str, ...],
    run_dir: Path,
    environment: Mapping[bytes, bytes],
    copy_name: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    limits: Limits = NO_LIMITS,
) -> None:
    """Run the set-up of one copy, `copy_name` in messages, in its run directory.

    It inherits the binding of the calling thread; processes that it leaves go on while
    the copy runs. Its output is kept, in `OUTPUT`, only when it fails. `stop` is called
    a few times a second.
    Raises `RunError` when it fails or takes more than `limits`, `SetupStopped` when it
    was stopped.
    """
    path = run_dir / OUTPUT
    with path.open("w+b") as output:
        problem = _run_setup(argv, run_dir, environment, output, limits=limits, stop=stop)
    if problem is not None:
        raise RunError(f"set-up of {copy_name} {problem}\n(its files are in {run_dir})")
    with suppress(OSError):
        path.unlink()


def _run_setup(
    argv: tuple[str, ...],
    folder: Path,
    environment: Mapping[bytes, bytes],
    output: IO[bytes],
    *,
    limits: Limits,
    stop: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run a set-up in a process group of its own; return what went wrong, in words.

    The group of one that did not end well is killed. Raises `SetupStopped` when it was stopped.
    """
    try:
        ended = run_child(
            argv, folder, environment, (output, output), limits, stop=stop, leaves=True
        )
    except OSError as error:
        return f"cannot be started: {error.strerror} ({command_text(argv)})"
    if ended.excess is LimitExceeded.STOPPED:
        raise SetupStopped
    if ended.excess is not None:
        problem = excess_text(ended.excess, limits)
    elif ended.status:
        problem = ending_text(ended.status)
    else:
        return None
    lines = both_ends(output.fileno()).splitlines()[-_LINES:]
    return "\n".join([f"{problem}: {command_text(argv)}", *lines])


def _suite_variables(suite: Suite, cache: Path) -> dict[str, str]:
    variables = {"RATER_SUITE_DIR": str(suite.path.parent)}
    if suite.setup:
        variables["RATER_SETUP_DIR"] = str(setup_folder(suite, cache))
    return variables


# -- Inputs and scripts: all that must not change within a run but programs and settings ----------

_INTERPRETER = compile_later(
    r"(?:python|pypy|perl|ruby|node|lua|bash|dash|ksh|zsh|sh|awk|gawk)[\d.]*"
)


def digest_of_workload(
    size: Size,
    lines: Sequence[CommandLine],
    inputs: Sequence[ReadyInput],
    others: Iterable[Sequence[str]] = (),
) -> str | None:
    """Return a SHA-256 over what a benchmark reads and is judged by; None for nothing.

    Input files, expected outputs, scripts that its commands name, and programs and
    scripts of `others` (set-ups, a prefix). Data files that are plain arguments are
    left out: they may as well be what it writes.
    """
    parts: list[str] = []
    input_digest = inputs_digest(inputs)
    if input_digest is not None:
        parts += ["inputs", input_digest]
    for expectation in size.expected:
        parts += ["expected", repr(expectation)]
    for words in (*(line.words for line in lines), *others):
        for file in _script_files(words):
            parts += ["script", file.name, sha256_of(file)]
    for words in others:
        if words and os.access(words[0], os.R_OK) and Path(words[0]).is_file():
            parts += ["program", sha256_of(Path(words[0]))]
    return cache_key(*parts) if parts else None


def _script_files(words: Sequence[str]) -> Iterator[Path]:
    script_due = bool(words) and _INTERPRETER.fullmatch(Path(words[0]).name) is not None
    for word in words[1:]:
        file = Path(word)
        if word.startswith("-") or not _is_readable(file):
            continue
        if script_due or os.access(file, os.X_OK) or _begins_as_script(file):
            yield file
        script_due = False


def _is_readable(file: Path) -> bool:
    try:
        return file.is_file() and os.access(file, os.R_OK)
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False


def _begins_as_script(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(2) == b"#!"
