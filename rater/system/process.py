"""This process: how it was called, its identity, signals that end it, and its output streams."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NamedTuple, cast

from rater.system.paths import is_file
from rater.system.patterns import compile_later

# -- Commands in a text, as they can be typed where this process was called ------------------------
#
# A message that suggests a command has it in backquotes, as `rater show 7`. Every way to people
# (lines on standard error, a `Printer`, help, a report) passes its text through `as_typed`, which
# writes the command as this user has to type it.

DISTRIBUTION = "rater-bench"  # what pip installs: `rater` is a stranger's package


def _current_directory() -> Path:
    with suppress(OSError):  # it was removed, which is refused where a folder is needed
        return Path.cwd()
    return Path()


# Relative paths of PATH and of this program are of the user's shell, wherever rater goes later.
_START_DIRECTORY = _current_directory()
_QUOTED = compile_later(r"`([^`\n]*)`")
_RATER_CALL = compile_later(r"(?<![^ (])(?<!-m )(sudo )?rater(?= [^ ])")
# Commands that open no database, or have an argument that names it.
_NO_DATABASE = compile_later(
    "(completion|doctor|fleet merge|help|plan|settings|spec lint-bind|suites|topo)\\b"
)
_database: list[str] = []  # `--db` and its value, when it was given
_runs: dict[str, str] = {}  # the words for runs that are called by no number, by their number
_COMMAND_ON_RUN = compile_later(r"(?<= )(show|divots|report|plot|export|compare) (\d+)(?= |$)")


def remember_database(typed: str | None) -> None:
    """Let commands that are suggested from now on name the database that --db was given."""
    _database[:] = ["--db", typed] if typed is not None else []
    _runs.clear()


def remember_runs(words: Mapping[int, str]) -> None:
    """Let suggested commands name runs by these words: their numbers are of another database."""
    _runs.update({str(number): word for number, word in words.items()})


def as_typed(text: str) -> str:
    """Return a text whose commands, in backquotes, can be typed by this user."""
    return (
        _QUOTED.sub(lambda quoted: f"`{typed_command(quoted[1])}`", text) if "`" in text else text
    )


def typed_command(line: str) -> str:
    """Return a command line as it can be typed: by this process's program, on its database."""

    def call(match: re.Match[str]) -> str:
        arguments = match.string[match.end() + 1 :]
        needs_no_database = _NO_DATABASE.match(arguments) or re.search("--(db|help)\\b", arguments)
        typed = [
            _rater_command(sudo=bool(match[1])),
            *([] if needs_no_database else map(shlex.quote, _database)),
        ]
        return (match[1] or "") + " ".join(typed)

    return _RATER_CALL.sub(
        call,
        _COMMAND_ON_RUN.sub(
            lambda command: f"{command[1]} {_runs.get(command[2], command[2])}", line
        ),
    )


def _rater_command(*, sudo: bool) -> str:
    """Return the command that calls this rater: `rater` when the PATH (of sudo) finds this one."""
    called_as = sys.argv[0]
    if Path(called_as) == Path(__file__).parents[1] / "__main__.py" and "-m" in sys.orig_argv:
        return shlex.join([sys.orig_argv[0], "-m", "rater"])
    if Path(called_as).name != "rater":
        return "rater"  # imported by a program of the user's
    folders = os.defpath if sudo else os.environ.get("PATH", os.defpath)
    folders_of_shell = (str(_START_DIRECTORY / folder) for folder in folders.split(os.pathsep))
    on_path = shutil.which("rater", path=os.pathsep.join(folders_of_shell))
    program = _START_DIRECTORY / called_as
    with suppress(OSError):  # the program was removed, or its folder cannot be entered
        if on_path and program.samefile(on_path):
            return "rater"
    return shlex.quote(str(program) if sudo else called_as)


def hint_to_measure_program(word: str) -> str:
    """Suggest how to measure a program whose name was typed in place of a suite; "": it is none."""
    program = find_program(word)
    return "" if program is None else f"to measure that program: `rater run -- {program} ...`"


def find_program(word: str) -> str | None:
    """Return how to type the program that a word names, on the PATH or here; None: no program."""
    if shutil.which(word) is not None:
        return word
    return f"./{word}" if is_file(word) and os.access(word, os.X_OK) else None


def pip_install(requirement: str) -> str:
    """Return the pip command for a requirement, or for an extra of rater such as `[report]`."""
    whole = requirement.replace("[", f"{DISTRIBUTION}[", 1)
    return shlex.join([sys.executable, "-m", "pip", "install", whole])


# -- A process by name: does it still live? --------------------------------------------------------
#
# The kernel gives a pid again to another process. Together with the start of the process and the
# boot it is unique on a machine.

_BOOT_ID = "proc/sys/kernel/random/boot_id"


class ProcessId(NamedTuple):
    """A process of this machine, of this boot or an earlier one."""

    pid: int
    pid_start: int | None  # clock ticks after boot (/proc/PID/stat, field 22); None: not known
    boot_id: str


def this_process(root: Path = Path("/")) -> ProcessId:
    """Return the calling process; `root` is where the machine's /proc/sys is."""
    pid = os.getpid()
    return ProcessId(pid, process_start_ticks(pid), boot_id(root))


def is_alive(process: ProcessId, root: Path = Path("/")) -> bool:
    """Tell whether exactly this process still runs, here, since the same boot."""
    start_ticks = process_start_ticks(process.pid)
    same_start = start_ticks is not None and process.pid_start in (None, start_ticks)
    return same_start and process.boot_id == boot_id(root)


def boot_id(root: Path = Path("/")) -> str:
    """Return the kernel's random name of this boot, `""` where it has none."""
    for base in (root, Path("/")):
        with suppress(OSError):
            return (base / _BOOT_ID).read_text().strip()
    return ""


def process_start_ticks(pid: int) -> int | None:
    """Return the start of a process in clock ticks after boot, None when it is dead."""
    try:
        fields = stat_fields(Path(f"/proc/{pid}/stat").read_bytes())
    except OSError:
        return None
    return None if fields[3] in b"ZX" else int(fields[22])


def stat_fields(line: bytes, last: int = 52) -> list[bytes]:
    """Return the fields of /proc/PID/stat up to `last`, at the numbers of proc_pid_stat(5).

    Field 1 is the pid, 2 the name without its brackets, 22 the start. What is behind `last`
    is one more field; a line that was cut off has fewer.
    """
    # The name itself may contain blanks and brackets.
    bracket, last_bracket = line.find(b"("), line.rfind(b")")
    return [
        b"",
        line[: bracket - 1],
        line[bracket + 1 : last_bracket],
        *line[last_bracket + 2 :].split(b" ", last - 2),
    ]


# -- SIGINT, SIGTERM and SIGHUP --------------------------------------------------------------------
#
# They raise an exception while nothing is lost by that, and are held back else. A signal that was
# ignored when rater was started (nohup, a background job) stays ignored.

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedBySignal(KeyboardInterrupt):
    """A signal came that ends rater."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """The status that a shell gives for a program that a signal ended."""
        return 128 + self.number


@contextmanager
def handle_stop_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `handler` for stop signals; only the main thread can set it, others change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop_signals = [
        stop_signal
        for stop_signal in STOP_SIGNALS
        if signal.getsignal(stop_signal) is not signal.SIG_IGN
    ]
    earlier_handlers: dict[signal.Signals, Any] = {}
    try:
        with block_stop_signals():  # else a signal amid the change is taken by one of two handlers
            for stop_signal in stop_signals:
                earlier_handlers[stop_signal] = signal.signal(stop_signal, handler)
        yield
    finally:
        with block_stop_signals():
            for stop_signal, earlier_handler in earlier_handlers.items():
                signal.signal(stop_signal, earlier_handler)


@contextmanager
def block_stop_signals() -> Iterator[None]:
    """Have the kernel keep stop signals until the context ends; start no process in it."""
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)


_IMPORT_FILE = "<frozen importlib._bootstrap>"


def raise_stopped(number: int, frame: FrameType | None) -> None:
    """Raise `StoppedBySignal`; this is a handler.

    Amid an import it is raised in the function that imports, as soon as the module is whole: one
    that is left half made crashes its next user.
    """
    importer = _importer_of(frame)
    if importer is None:
        raise StoppedBySignal(number)

    def raise_in_importer(*_: object) -> None:
        sys.settrace(None)
        raise StoppedBySignal(number)

    importer.f_trace = raise_in_importer
    sys.settrace(lambda *_: None)  # else no frame is traced


def _importer_of(frame: FrameType | None) -> FrameType | None:
    """Return the function that imports the modules which this frame is a part of, if it is."""
    importer = None
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FILE:
            importer = frame.f_back
        frame = frame.f_back
    return importer


class DeferredSignals:
    """Signals that came while they are held."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._new: deque[int] = deque()
        self._wake: Callable[[], None] = lambda: None

    def take(self, number: int, _: FrameType | None) -> None:
        """Keep a signal; this is a handler."""
        if self.first is None:
            self.first = number
        self._new.append(number)
        self._wake()

    @contextmanager
    def deliver_to(
        self, receive: Callable[[int], None], call_soon: Callable[[Callable[[], None]], None]
    ) -> Iterator[None]:
        """Call `receive` for each signal, earlier ones included, by way of `call_soon`.

        `call_soon` must be safe in the midst of anything, as trio's `run_sync_soon` is.
        """

        def hand_over() -> None:
            while self._new:
                receive(self._new.popleft())

        self._wake = lambda: call_soon(hand_over)
        hand_over()
        try:
            yield
        finally:
            self._wake = lambda: None


@contextmanager
def hold_stop_signals() -> Iterator[DeferredSignals]:
    """Let no stop signal break anything off: they are kept in the object that is given."""
    signals = DeferredSignals()
    with handle_stop_signals(signals.take):
        yield signals


@contextmanager
def delay_stop_signals() -> Iterator[None]:
    """Let stop signals wait until the context ends; the first that came is raised again then.

    Processes may be started in it, as nothing is blocked that they would inherit.
    """
    signals = DeferredSignals()
    try:
        with handle_stop_signals(signals.take):
            yield
    finally:
        if signals.first is not None:
            signal.raise_signal(signals.first)


# -- Standard output and error of a process whose reader may leave before it has read all ----------

_LEAST_WIDTH = 20  # columns that lines are broken for at least


class _StreamThatMayLoseItsReader(io.FileIO):
    """A descriptor that becomes /dev/null when its reader has left."""

    def write(self, data: Any, /) -> int:
        """Write what can be written; raises `OSError` where standard output cannot be."""
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return super().write(data)
        except OSError as error:
            if self.fileno() == 2:  # the error cannot be shown; the exit status remains
                return len(memoryview(data).cast("B"))
            raise OSError(error.errno, error.strerror, "standard output") from None


def ignore_broken_pipe() -> None:
    """Let the command go on to its end, and to its own exit status, in `rater list | head`.

    A character that the terminal's encoding lacks is shown escaped: it is no reason to fail either.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        buffer: Any = stream.buffer
        raw = getattr(buffer, "raw", buffer)  # itself where Python buffers nothing (`python -u`)
        if type(raw) is io.FileIO:  # not what a test has put there
            stream.flush()
            leaving = _StreamThatMayLoseItsReader(raw.fileno(), "w", closefd=False)
            stream = io.TextIOWrapper(
                cast(BinaryIO, leaving) if buffer is raw else io.BufferedWriter(leaving),
                encoding=stream.encoding,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, stream)
        stream.reconfigure(errors="backslashreplace")


def print_error(text: object) -> None:
    """Print lines on standard error as rater's; on a terminal none is broken within a word."""
    lines = f"rater: {as_typed(str(text))}".split("\n")
    if sys.stderr.isatty():
        width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns - 1)
        lines = [piece for line in lines for piece in _wrap_line(line, width)]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _wrap_line(line: str, width: int) -> list[str]:
    """Break a line between words; a path longer than the terminal stays whole, to be copied."""
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    whole = _QUOTED.sub(
        lambda quoted: quoted[0].replace(" ", "\0"), line
    )  # a command is a word, too
    return [part.replace("\0", " ") for part in wrapper.wrap(whole)] or [""]
