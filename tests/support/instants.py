"""Signals that come at chosen lines as a launcher begins, in processes of their own.

`python -m tests.support.instants SIGNAL STEP [WORD...]` runs the command line of those words, or
a guard that does nothing, again and again, each time in a forked process. The signal comes at
the first line that is run as a launcher begins, then `STEP` lines later, and so on, until a
process ends before that line. One JSON document says how all ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import count
from types import FrameType
from typing import Any

from rater.commands.cli import main as run_command
from rater.run.launcher.guard import guard
from rater.system.process import StoppedBySignal, handle_stop_signals, raise_stopped
from tests.support.processes import session_members

_FILES = ("run/launcher/guard.py", "run/launcher/launcher.py")
_BEGINNING = ("guard", "_enter_guard", "_mark_environment", "make", "enter", "__init__", "greet")
_NOT_REACHED = 100  # exit status of a process that ended before the line
_GONE_S = 5.0


def ends_of_signals(number: int, step: int, words: list[str]) -> list[dict[str, Any]]:
    """Return line, exit status and the processes left of each attempt."""
    ends: list[dict[str, Any]] = []
    for line in count(1, step):
        pid = os.fork()
        if not pid:
            _run_in_child(number, line, words)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == _NOT_REACHED:
            return ends
        ends.append({"line": line, "status": status, "left": _left_in_session(pid)})
    return ends


def _run_in_child(number: int, line: int, words: list[str]) -> None:
    os.setsid()
    lines_left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines_left
        code = frame.f_code
        if code.co_name not in _BEGINNING or not code.co_filename.endswith(_FILES):
            return None
        if event == "line":
            lines_left -= 1
            if not lines_left:
                sys.settrace(None)
                os.kill(os.getpid(), number)
        return trace

    sys.settrace(trace)
    status = run_command(words) if words else _guard_nothing()
    os._exit(_NOT_REACHED if lines_left > 0 else status)


def _guard_nothing() -> int:
    try:
        with handle_stop_signals(raise_stopped), guard("made-for-this-test", 1):
            return 0
    except StoppedBySignal as stopped:
        return stopped.exit_status


def _left_in_session(session: int) -> list[str]:
    """Return the names of the processes of a session that do not end in time."""
    deadline = time.monotonic() + _GONE_S
    while (names := session_members(session)) and time.monotonic() < deadline:
        time.sleep(0.002)
    return names


def main(argv: list[str]) -> None:
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.SIG_DFL)
    print(json.dumps(ends_of_signals(getattr(signal, argv[0]), int(argv[1]), argv[2:])))


if __name__ == "__main__":
    main(sys.argv[1:])
