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
from rater.plan.suite.model import Benchmark, Size
from rater.run.programs.compile import Built, find_command, key_of, sha256_of
from rater.text.words import printable

_SHELL = "/bin/sh"
_NAME = "rater-commands"  # $0 of the script: what the shell puts before its own messages
_LONGEST_SCRIPT = (1 << 17) - 1  # bytes; Linux takes no longer argument (MAX_ARG_STRLEN)
_LONGEST_LABEL = 60  # characters
_TAIL_BYTES = 512  # of stderr: the script's last line is shorter
_MARK = re.compile(rb"rater: command (\d+) ended with status \d+\n\Z")
# What the shell itself says last: of a file that it could not open.
_SHELL_SAID = re.compile(rb"(?:^|\n)%s: (?:line )?(?:\d+: )?([^\n]{1,300})\n\Z" % _NAME.encode())
_NO_PROGRAM = (126, 127)  # which says enough
# The script itself can only be ended from outside; other signals end its last command.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# SIGTERM goes to the whole group. The script waits for its command, which may want to clean up,
# then ends by the same signal. A core file of the shell would be of no use to anybody.
_BEGIN = f"""\
rater_failed() {{
rater_report "$1" "$2"
printf 'rater: command %s ended with status %s\\n' "$1" "$2" >&2
trap - TERM
ulimit -c 0
[ "$2" -le 128 ] || [ "$2" -gt 192 ] || kill "-$(($2 - 128))" $$ 2>/dev/null
exit "$2"
}}
trap 'trap - TERM; kill -{signal.SIGTERM:d} $$' TERM
"""
# `copies.command_times` reads what is written here: the script's process, what happened to which
# command, and the status that it ended with, or the process that it is. In one write(), which a
# pipe does not tear. No command finds the descriptor open.
REPORT_FD = 9
_REPORT = f'rater_report() {{ echo "$$ e $1 $2" >&{REPORT_FD}; }}\n'
_REPORT_TO_NOBODY = "rater_report() { :; }\n"
_CLOSED = f" {REPORT_FD}>&-"
_OWN_SHELL = f"""\
echo "$1 s $2 $$" >&{REPORT_FD}
exec {REPORT_FD}>&-
shift 2
"""


@dataclass(frozen=True, slots=True)
class Line:
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


def argv_of(
    lines: Sequence[Line], wrap: Sequence[str] = (), *, reports: bool = False
) -> tuple[str, ...]:
    """Return what to execute, `wrap` in front of every command; one plain command as it is.

    With `reports`, a script of several commands writes to descriptor `REPORT_FD` when one of
    them, which is not the last, has ended. Raises `InputError` when the commands are too
    long for one script.
    """
    if len(lines) == 1 and lines[0].plain:
        return (*wrap, *lines[0].words)
    *before, last = lines
    closed = _CLOSED if reports and before else ""
    ended = "rater_report {} 0\n" if closed else ""
    steps = [
        f"{line.shell(wrap)}{closed} || rater_failed {n} $?\n{ended.format(n)}"
        for n, line in enumerate(before, 1)
    ]
    begin = f"{_REPORT if closed else _REPORT_TO_NOBODY}{_BEGIN}" if before else ""
    return _script([begin, *steps, f"exec {last.shell(wrap)}{closed}\n"], lines)


def argv_of_texts(
    texts: Sequence[str],
    lines: Sequence[Line],
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
    for n, (text, line) in enumerate(zip(texts, lines, strict=True), 1):
        own = shlex.join([*wrap, _SHELL, "-c", f"{_OWN_SHELL}{text}\n", _SHELL])
        # Without `command` a file that can not be made would end the script unheard.
        empty = "".join(
            f"command : >{shlex.quote(name)} || rater_failed {n} $?\n"
            for name in dict.fromkeys(outputs[n - 1])
            if name not in emptied
        )
        emptied.update(outputs[n - 1])
        steps.append((empty, f'{own} "$$" {n}{line.streams}'))
    *before, (empty, last) = steps
    return _script(
        [
            _REPORT,
            _BEGIN,
            *(
                f"{first}{it} || rater_failed {n} $?\nrater_report {n} 0\n"
                for n, (first, it) in enumerate(before, 1)
            ),
            f"{empty}exec {last}\n",
        ],
        lines,
    )


def workloads_in(argv: Sequence[str]) -> int:
    """Return how many commands a script tells of, 0 for one that tells nothing."""
    return len(argv) - 4 if _is_script(argv) and argv[2].startswith(_REPORT) else 0


def _script(parts: Sequence[str], lines: Sequence[Line]) -> tuple[str, ...]:
    script = "".join(parts)
    length = len(os.fsencode(script))
    if length > _LONGEST_SCRIPT:
        raise InputError(
            f"the commands of a copy are {length} bytes long together, Linux takes at most "
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


def folders_of(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the folders of a run directory that commands are sent to write into."""
    names = [name for line in lines for name in (line.stdout, line.stderr) if name is not None]
    folders = dict.fromkeys(str(PurePosixPath(name).parent) for name in names)
    return tuple(folder for folder in folders if folder != "." and not folder.startswith("/"))


def failed_command(
    argv: Sequence[str], stderr: str, exit_code: int | None, number: int | None
) -> str | None:
    """Say which command of a script ended a copy, `number` being the signal if one did.

    None for a single command, and when the script was ended from outside.
    """
    if not _is_script(argv) or (len(argv) == 5 and not workloads_in(argv)):
        return None
    labels = argv[4:]
    position, text = _marked(stderr)
    if position is None:
        if number in _FROM_OUTSIDE:
            return None
        position = len(labels)
    if not 0 < position <= len(labels):
        return None  # the program wrote such a line itself
    ended = f"exit code {exit_code}" if number is None else f"signal {number}"
    if text and exit_code not in (None, *_NO_PROGRAM):
        ended += f": {text}"
    return f"command {position} of {len(labels)} ({labels[position - 1]}): {ended}"


def failed_position(argv: Sequence[str], stderr: str) -> int:
    """Return which command of a script failed, from 1; the last one where it does not say."""
    last = len(argv) - 4 if _is_script(argv) else 1
    position = _marked(stderr)[0]
    return position if position is not None and 0 < position <= last else last


def without_mark(text: bytes) -> bytes:
    """Return what was written to standard error, without the script's own last line."""
    return _MARK.sub(b"", text)


def _marked(stderr: str) -> tuple[int | None, str]:
    """Return the command that the script's last line on standard error names.

    With it what the shell itself printed last, of a file that could not be opened.
    """
    try:
        handle = os.open(stderr, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, ""
    try:
        size = os.fstat(handle).st_size
        text = os.pread(handle, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    except OSError:
        return None, ""
    finally:
        os.close(handle)
    match = _MARK.search(text)
    shell = _SHELL_SAID.search(_MARK.sub(b"", text))
    clean = shell[1].decode(errors="replace") if shell else ""
    return (int(match[1]) if match else None), printable(clean)
