"""The launcher of a run: its program, its process, and what goes to it and comes from it."""

from __future__ import annotations

import os
import signal
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import trio

from rater.run.launcher.table import (
    FORMAT,
    MOST_RECORDS,
    RECORD,
    REQUEST,
    ProcessEntry,
    Record,
    RecordKind,
    RequestKind,
    pack_table,
    unpack_records,
)
from rater.run.programs.compile import cache_root, compile_program
from rater.system.errors import InputError, RunError

# -- The program: made with the package, or compiled once from the source beside it ----------------

NAME = "rater-launcher"
_SOURCES = Path(__file__).parent / "native"
_BUILT_PROGRAM = Path(__file__).parent / NAME
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra")  # and static where that can be: it forks sooner


def launcher_program() -> Path:
    """Return the launcher's program; raises `InputError` that says the way out."""
    sources = sorted(_SOURCES.glob("*.[ch]"))
    with suppress(OSError):
        made_ns = _BUILT_PROGRAM.stat().st_mtime_ns
        if all(source.stat().st_mtime_ns <= made_ns for source in sources):
            return _BUILT_PROGRAM
    try:
        files = tuple(source for source in sources if source.suffix == ".c")
        with suppress(InputError):  # without that library
            return compile_program(NAME, files, (*FLAGS, "-static"), (), cache_root()).executable
        return compile_program(NAME, files, FLAGS, (), cache_root()).executable
    except InputError as error:
        raise InputError(
            f"rater starts copies by a small program of its own, {_BUILT_PROGRAM}, which is not "
            "there and "
            f"could not be made: {error}; or install rater from a wheel, which has it"
        ) from error


# -- The process -----------------------------------------------------------------------------------

_MESSAGE_BYTES = RECORD.size * MOST_RECORDS
_MOST_REQUEST_BYTES = 512  # bytes of several in one message; the launcher has room for 64
_GREETING_S, _GREETINGS = 0.5, 40  # so often it is let go on where it was stopped as it began
_CHANGED_STATE = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT


class LauncherDiedError(RunError):
    """It was killed from outside; what it had started is our child by now."""


class Launcher:
    """One process, of one run: on the trio thread, but for its begin and end.

    `processes`: so many at most at one time. `mark` is a limit of file locks that marks what rater
    starts, `locks` that limit as rater was given it.
    """

    def __init__(self, processes: int, mark: int, locks: int, cgroup: Path | None) -> None:
        program = launcher_program()
        self._socket, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._socket.setblocking(False)
            fd = theirs.fileno()
            self.pid = os.posix_spawn(
                program,
                [NAME, *map(str, (fd, processes, mark, locks, cgroup or ""))],
                {"PATH": os.defpath},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fd, fd),  # which it inherits then
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),  # of copies as well
                    *((os.POSIX_SPAWN_OPEN, it, os.devnull, os.O_RDWR, 0) for it in (1, 2)),
                ],
            )
        self._unsent: deque[tuple[bytes, int]] = deque()  # messages, with the table of one or -1
        self.tokens = count(1)  # numbers for processes that are to be started
        self._greet(program)

    def _greet(self, program: Path) -> None:
        """Wait for the first record, which says of which make it is."""
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
            self.close(hunt=False)
            raise InputError(
                f"{program} does not begin, or is not of this rater: remove it and run `make`, or "
                "install rater again"
            )

    async def start(self, entries: Sequence[ProcessEntry]) -> None:
        """Have processes started; those that follow nobody say READY at their gates."""
        table = os.memfd_create("rater-table")
        with open(table, "wb", closefd=False) as file:
            file.write(pack_table(entries))
        self._send(REQUEST.pack(RequestKind.START, 0, 0), table)

    def ask(self, verb: RequestKind, token: int = 0, value: int = 0) -> None:
        """Have something done; all but START.

        RELEASE: all begin that wait at their gates, each at its offset. ALLOW: one that is held
        may follow the one before it. SIGNAL `value`: to a process and its group. DISCARD: one that
        has not begun ends; 0: all of them.
        """
        self._send(REQUEST.pack(verb, token, value))

    def _send(self, request: bytes, table: int = -1) -> None:
        if (
            self._unsent
            and self._unsent[-1][1] < 0 < _MOST_REQUEST_BYTES - len(self._unsent[-1][0])
            and table < 0
        ):
            request = self._unsent.pop()[0] + request
        self._unsent.append((request, table))
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before; returns at once."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):  # `receive` tells
            while self._unsent:
                request, table = self._unsent[0]
                socket.send_fds(self._socket, [request], [table] if table >= 0 else [])
                self._unsent.popleft()
                if table >= 0:
                    os.close(table)

    async def receive(self) -> list[Record]:
        """Wait for records and return them, in order; raises `LauncherDiedError`."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if found := self.receive_waiting():
                return found

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
                how = f"was killed by signal {ended.si_status}"
        return (
            f"rater's launcher (process {self.pid}) {how}: all copies that ran were ended with it, "
            "and what they did has no time; see `dmesg` for a lack of memory, and run again"
        )

    def continue_if_stopped(self) -> str | None:
        """Let it go on where it was stopped; return that in words, None where it was not."""
        with suppress(ChildProcessError):
            found = os.waitid(os.P_PID, self.pid, _CHANGED_STATE)
            if found is not None and found.si_code == os.CLD_STOPPED:
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
                os.kill(self.pid, signal.SIGCONT)
                return "rater's launcher was stopped from outside; it was let go on"
        return None

    def close(self, *, hunt: bool) -> None:
        """End it; with `hunt` it kills what is there first, as if rater had died, unwaited for."""
        with suppress(OSError):
            self._socket.settimeout(1.0)
            self.ask(RequestKind.GOODBYE, value=int(hunt))
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
        self._socket.close()
        if not hunt:
            with suppress(ChildProcessError):
                # Whoever stops it may do so now as well: then nobody else would let it go on.
                while os.WIFSTOPPED(os.waitpid(self.pid, os.WUNTRACED)[1]):
                    os.kill(self.pid, signal.SIGCONT)
