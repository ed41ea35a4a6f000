"""The commands of a copy as one process: executed directly, or in order by a small shell script.

The supervisor sees one process a copy either way. The script stops at the first
command that fails and ends as that one did: with its exit code, or by its signal.
A shell tells both by one number, so that exit codes 129 to 192 of a command that is
not the last one count as signals 1 to 64, as they do wherever a shell ran it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rater.errors import InputError
from rater.plan.suite import Benchmark, Size
from rater.run.build import Built, find_command, key_of, sha256_of

_SHELL = "/bin/sh"
_NAME = "rater-commands"  # $0 of the script: what the shell puts before its own messages
_LONGEST_SCRIPT = (1 << 17) - 1  # bytes; Linux takes no longer argument (MAX_ARG_STRLEN)
_LONGEST_LABEL = 60  # characters
_TAIL_BYTES = 512  # of stderr: the script's last line is shorter
_MARK = re.compile(rb"rater: command (\d+) ended with status \d+\n\Z")
# The script itself can only be ended from outside; other signals end its last command.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# SIGTERM goes to the whole group. The script waits for its command, which may want to clean up,
# then ends by the same signal. A core file of the shell would be of no use to anybody.
_BEGIN = f"""\
rater_failed() {{
printf 'rater: command %s ended with status %s\\n' "$1" "$2" >&2
trap - TERM
ulimit -c 0
[ "$2" -le 128 ] || [ "$2" -gt 192 ] || kill "-$(($2 - 128))" $$ 2>/dev/null
exit "$2"
}}
trap 'trap - TERM; kill -{signal.SIGTERM:d} $$' TERM
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One command of a copy, its program found."""

    words: tuple[str, ...]
    stdin: str | None = None  # relative to the run directory; None: empty
    stdout: str | None = None  # None: the copy's own
    stderr: str | None = None

    def shell(self, wrap: Sequence[str] = ()) -> str:
        """Return the command as a shell takes it, redirections included."""
        parts = [shlex.join([*wrap, *self.words])]
        for sign, name in (("<", self.stdin), (">", self.stdout), ("2>", self.stderr)):
            if name is not None:
                parts.append(sign + shlex.quote(name))
        return " ".join(parts)

    @property
    def plain(self) -> bool:
        """Tell whether no file is put in place of its streams."""
        return self.stdin is None and self.stdout is None and self.stderr is None


def lines_of(benchmark: Benchmark, size: Size, built: Built) -> tuple[Line, ...]:
    """Return what a copy runs in one size, in order. Raises `InputError` for missing programs."""
    lines = []
    for command in size.commands:
        if command.program:
            found = find_command(command.program[0], f"benchmark {benchmark.name}")
            words = (str(found), *command.program[1:], *command.args)
        else:
            words = (str(built.executable), *built.arguments, *command.args)
        lines.append(Line(words, command.stdin, command.stdout, command.stderr))
    return tuple(lines)


def digest_of_programs(built: Built, lines: Sequence[Line]) -> str | None:
    """Return the SHA-256 of a benchmark's program; of the hashes of all, when it runs several.

    None when one of them may be executed but not read.
    """
    programs = dict.fromkeys(line.words[0] for line in lines)
    if len(programs) == 1:
        return built.sha256
    try:
        return key_of(*(sha256_of(Path(program)) for program in programs))
    except OSError:
        return None


def shown(lines: Sequence[Line]) -> str:
    """Return the commands as one line for a shell, for people."""
    return " && ".join(line.shell() for line in lines)


def argv_of(lines: Sequence[Line], wrap: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what to execute, `wrap` in front of every command; one plain command as it is.

    Raises `InputError` when the commands are too long for one script.
    """
    if len(lines) == 1 and lines[0].plain:
        return (*wrap, *lines[0].words)
    *before, last = lines
    steps = [f"{line.shell(wrap)} || rater_failed {n} $?\n" for n, line in enumerate(before, 1)]
    script = "".join([_BEGIN if before else "", *steps, f"exec {last.shell(wrap)}\n"])
    length = len(os.fsencode(script))
    if length > _LONGEST_SCRIPT:
        raise InputError(
            f"the commands of a copy are {length} bytes long together, Linux takes at most "
            f"{_LONGEST_SCRIPT}: put them into a script of your own"
        )
    return (_SHELL, "-c", script, _NAME, *(_label(line) for line in lines))


def folders_of(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the folders of a run directory that commands are sent to write into."""
    names = [name for line in lines for name in (line.stdout, line.stderr) if name is not None]
    folders = dict.fromkeys(str(PurePosixPath(name).parent) for name in names)
    return tuple(folder for folder in folders if folder != ".")


def failed_command(
    argv: Sequence[str], stderr: str, exit_code: int | None, number: int | None
) -> str | None:
    """Say which command of a script ended a copy, `number` being the signal if one did.

    None for a single command, and when the script was ended from outside.
    """
    if len(argv) < 6 or argv[0] != _SHELL or argv[3] != _NAME:
        return None
    labels = argv[4:]
    position = _marked(stderr)
    if position is None:
        if number in _FROM_OUTSIDE:
            return None
        position = len(labels)
    if not 0 < position <= len(labels):
        return None  # the program wrote such a line itself
    ended = f"exit code {exit_code}" if number is None else f"signal {number}"
    return f"command {position} of {len(labels)} ({labels[position - 1]}): {ended}"


def _marked(stderr: str) -> int | None:
    """Return the command that the script's last line on standard error names."""
    try:
        handle = os.open(stderr, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(handle).st_size
        said = os.pread(handle, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    except OSError:
        return None
    finally:
        os.close(handle)
    match = _MARK.search(said)
    return int(match[1]) if match else None


def _label(line: Line) -> str:
    text = line.shell()
    clean = "".join(sign if sign.isprintable() else "?" for sign in text)
    return clean if len(clean) <= _LONGEST_LABEL else f"{clean[: _LONGEST_LABEL - 3]}..."
