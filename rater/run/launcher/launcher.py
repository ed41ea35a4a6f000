"""The launcher of a run: its program, its process, requests to it and records of it."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import trio

from rater.run.host.inherited import pipes_are_ignored
from rater.run.launcher.table import (
    FORMAT,
    MOST_RECORDS,
    RECORD,
    REQUEST,
    PackedEnvironments,
    ProcessEntry,
    Record,
    RecordKind,
    RequestKind,
    pack_table,
    unpack_records,
)
from rater.run.programs.compile import cache_root, compile_program
from rater.system.errors import InputError, RunError
from rater.system.process import delay_stop_signals
from rater.text.values import signal_name

# -- The program: it is built with the package, or compiled once from the source beside it ---------

NAME = "rater-launcher"
_SOURCES = Path(__file__).parent / "native"
_BUILT_PROGRAM = Path(__file__).parent / NAME
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra")


def launcher_program() -> Path:
    """Return the launcher's program; raises `InputError` that says the way out."""
    if not _BUILT_PROGRAM.is_file():
        return _compile_launcher("is not there")
    if not os.access(_BUILT_PROGRAM, os.X_OK):
        return _compile_launcher("may not be executed (its mode, or a mount with noexec)")
    return _BUILT_PROGRAM


def source_digest() -> bytes | None:
    """Return what a program says that was made from the sources beside it; None: there are none.

    It is the SHA-256 of all files, in the order of their names. Times would not do: an installer
    may write the program before its sources.
    """
    try:
        texts = [file.read_bytes() for file in sorted(_SOURCES.glob("*.[ch]"))]
    except OSError:
        return None
    return hashlib.sha256(b"".join(texts)).hexdigest().encode() if texts else None


def digest_flag() -> str:
    """Return the option of the compiler that puts the digest of the sources into the program."""
    return f'-DSOURCE_DIGEST="{(source_digest() or b"").decode()}"'


def _compile_launcher(fault: str) -> Path:
    """Compile the program into the cache; `fault`: what is wrong with the one that was built."""
    flags = (*FLAGS, digest_flag())
    files = sorted(_SOURCES.glob("*.c"))
    try:
        # A static program forks sooner; the static library may not be there.
        with suppress(InputError):
            return compile_program(NAME, files, (*flags, "-static"), (), cache_root()).executable
        return compile_program(NAME, files, flags, (), cache_root()).executable
    except InputError as error:
        raise InputError(
            f"rater starts copies by a small program of its own, {_BUILT_PROGRAM}, which {fault} "
            f"and could not be made: {error}; or install rater from a wheel, which has it"
        ) from error


# -- The process -----------------------------------------------------------------------------------

_MESSAGE_BYTES = RECORD.size * MOST_RECORDS
_MOST_REQUEST_BYTES = 512  # of one message, 42 requests; the launcher reads at most 64 at once
_GREETING_S = 0.5  # between two looks at whether a new launcher was stopped
_GREETINGS = 40  # looks
# A package may be shared by machines of several architectures. ENOENT: its loader is not here.
_OF_ANOTHER_MACHINE = (errno.ENOEXEC, errno.ENOENT, errno.ELIBBAD)
_CHANGED_STATE = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT


class LauncherDiedError(RunError):
    """The launcher was killed from outside; the processes that it had started are ours by now."""


_NO_TABLE = -1


class _Message(NamedTuple):
    """Requests that are sent together, or one START with its table."""

    requests: bytes
    table: int  # descriptor, or `_NO_TABLE`


class Launcher:
    """The launcher's process in one run; on the trio thread, but for its begin and end.

    It takes requests once it was greeted. `processes` is the most that it has at one time. `mark`
    is a limit of file locks that marks all processes that rater starts, `locks` that limit as rater
    itself was given it.
    """

    def __init__(self, processes: int, mark: int, locks: int, cgroup: Path | None) -> None:
        self._arguments = tuple(map(str, (processes, mark, locks, cgroup or "")))
        self._environments = PackedEnvironments()
        self._unsent: deque[_Message] = deque()
        self.tokens = count(1)  # numbers for processes that are to be started
        try:
            self._spawn(launcher_program())
        except OSError as error:
            self._socket.close()
            if self._program != _BUILT_PROGRAM or error.errno not in _OF_ANOTHER_MACHINE:
                raise
            self._spawn(_compile_launcher(f"cannot be executed here ({error.strerror})"))

    def _spawn(self, program: Path) -> None:
        self._program = program
        self._socket, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._socket.setblocking(False)
            fd = theirs.fileno()
            self.pid = os.posix_spawn(
                program,
                [NAME, str(fd), *self._arguments],
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fd, fd),  # so that it is not closed by the exec
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),  # copies inherit it
                    *((os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_RDWR, 0) for out in (1, 2)),
                ],
                # Python ignores it for itself.
                setsigdef=() if pipes_are_ignored() else (signal.SIGPIPE,),
                setpgroup=0,  # Ctrl-C at the terminal is for rater alone, from the first moment on
            )

    def greet(self) -> None:
        """Wait for the first record, which says from which sources the program was made.

        A program that was built from others is exchanged for the right one, which is compiled.
        Raises `InputError` where that cannot be, or where no program begins.
        """
        if self._is_right():
            return
        with suppress(ProcessLookupError):  # so that nobody waits for it for ever
            os.kill(self.pid, signal.SIGKILL)
        if self._program == _BUILT_PROGRAM:
            self.close(hunt=False)
            program = _compile_launcher("is broken, or was made from other sources,")
            with delay_stop_signals():  # a launcher whose number nobody keeps would be left alone
                self._spawn(program)
            if self._is_right():
                return
        raise InputError(
            f"{self._program} does not begin, or is not of this rater: remove it and run "
            "`make`, or install rater again"
        )

    def _is_right(self) -> bool:
        """Wait for the greeting; tell whether it is that of this rater's program."""
        self._socket.settimeout(_GREETING_S)
        data = b""
        for _ in range(_GREETINGS):
            try:
                data = self._socket.recv(_MESSAGE_BYTES)
                break
            except TimeoutError:
                self.continue_if_stopped()
            except OSError:
                break
        self._socket.setblocking(False)
        hello = next(unpack_records(data), None)
        if hello is None or (hello.kind, hello.status) != (RecordKind.HELLO, FORMAT):
            return False
        return source_digest() in (None, hello.text.rstrip(b"\0"))

    async def start(self, entries: Sequence[ProcessEntry]) -> None:
        """Have processes forked. Those that follow no other one are READY at their gates."""
        table = os.memfd_create("rater-table")
        unwritten = memoryview(pack_table(entries, self._environments))
        while unwritten:
            unwritten = unwritten[os.write(table, unwritten) :]
        self._send(REQUEST.pack(RequestKind.START, 0, 0), table)

    def ask(self, kind: RequestKind, token: int = 0, value: int = 0) -> None:
        """Send a request of any kind but START.

        RELEASE: all processes at their gates begin, each at its offset. ALLOW: a process that is
        held may follow the one before it. SIGNAL: the signal `value` goes to a process and its
        group. DISCARD: a process that has not begun is killed; with token 0, all of these.
        """
        self._send(REQUEST.pack(kind, token, value))

    def _send(self, request: bytes, table: int = _NO_TABLE) -> None:
        if self._unsent and table == _NO_TABLE:
            last = self._unsent[-1]
            if last.table == _NO_TABLE and len(last.requests) < _MOST_REQUEST_BYTES:
                request = self._unsent.pop().requests + request
        self._unsent.append(_Message(request, table))
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before; returns at once."""
        # Where the launcher is dead, `receive` raises the error.
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._unsent:
                requests, table = self._unsent[0]
                has_table = table != _NO_TABLE
                socket.send_fds(self._socket, [requests], [table] if has_table else [])
                self._unsent.popleft()
                if has_table:
                    os.close(table)

    async def receive(self) -> list[Record]:
        """Wait for records and return them, in order; raises `LauncherDiedError`."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if records := self.receive_waiting():
                return records

    def receive_waiting(self) -> list[Record]:
        """Return the records that are there; raises `LauncherDiedError`."""
        try:
            data = self._socket.recv(_MESSAGE_BYTES)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            data = b""
        if not data:
            raise LauncherDiedError(self._describe_death())
        self.flush()
        return list(unpack_records(data))

    def _describe_death(self) -> str:
        how = "ended"
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            if ended is not None and ended.si_code != os.CLD_EXITED:
                how = f"was killed by {signal_name(ended.si_status)}"
        return (
            f"rater's launcher (process {self.pid}) {how}: all copies that ran were ended with it, "
            "and what they did has no time; see `dmesg` for a lack of memory, and run again"
        )

    def continue_if_stopped(self) -> str | None:
        """Let the launcher go on if it was stopped, and return a note of that."""
        with suppress(ChildProcessError):
            change = os.waitid(os.P_PID, self.pid, _CHANGED_STATE)
            if change is not None and change.si_code == os.CLD_STOPPED:
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
                os.kill(self.pid, signal.SIGCONT)
                return "rater's launcher was stopped from outside; it was let go on"
        return None

    def close(self, *, hunt: bool) -> None:
        """End the launcher. With `hunt` it first kills all processes of the run by itself.

        It does so as if rater had died, and nobody waits for it.
        """
        with suppress(OSError):
            self._socket.settimeout(1.0)
            self.ask(RequestKind.GOODBYE, value=int(hunt))
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        self._socket.close()
        if not hunt:
            with suppress(ChildProcessError):
                # It may be stopped from outside even now, and nobody else would let it go on.
                while os.WIFSTOPPED(os.waitpid(self.pid, os.WUNTRACED)[1]):
                    os.kill(self.pid, signal.SIGCONT)
