"""Check what copies wrote, in a process of its own that `checker.py` starts.

`python -I -S checker_main.py LIFE_FD FOLDER...`: reads requests from standard input and
writes answers to standard output, one JSON object a line: `at`, what may take long from
now on, or `detail` and `metrics`, the result of a request. Patterns of suites run here
and nowhere else: they may take for ever, and this process can be killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rater.run.workplace.compare_output import CheckRequest

# A quarter of a CPU for one copy's whole one: copies come first. More would starve it on a full
# machine, and what is not judged in steady mode is not cleared and fills the disk.
NICENESS = 5


def main(argv: list[str]) -> int:
    """Answer until standard input ends."""
    _die_with_parent(int(argv[0]))
    sys.path += argv[1:]  # last: no file in rater's folder stands in for the library
    from rater.plan.suite import Expected, Metric  # noqa: PLC0415 (found only now)
    from rater.run.workplace.compare_output import (  # noqa: PLC0415 (found only now)
        CheckRequest,
        CheckRules,
        WrongOutputError,
    )

    os.nice(NICENESS)
    rules: dict[int, CheckRules] = {}
    _answer(at="checking its output")
    for line in sys.stdin.buffer:
        number, new, *files = json.loads(line)
        if new is not None:  # those of this number, sent once
            expected, metrics = new
            rules[number] = CheckRules(
                tuple(Expected(*fields) for fields in expected),
                tuple(Metric(*fields) for fields in metrics),
            )
        detail, found = None, []
        try:
            found = _metrics(CheckRequest(rules[number], *files))
        except WrongOutputError as error:
            detail = str(error)
        except OSError as error:
            detail = f"what it wrote cannot be read: {error.strerror}"
        _answer(detail=detail, metrics=found)
    return 0


def _answer(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def _metrics(request: CheckRequest) -> list[tuple[str, float]]:
    """Return what a copy reported; raises `WrongOutputError` where its output is wrong."""
    # Found only by `main`.
    from rater.run.workplace.compare_output import check_file, read_metric  # noqa: PLC0415

    for want in request.rules.expected:
        _answer(at=f"checking {want.file}")
        check_file(request.path_of(want.file), want)
    found = []
    for metric in request.rules.metrics:
        _answer(at=f"metric {metric.name}: its pattern")
        found.append((metric.name, read_metric(request.path_of(metric.file), metric)))
    return found


def _die_with_parent(life: int) -> None:
    """Have SIGIO end this process when the other end of a pipe is closed.

    Seeing the end of standard input takes an interpreter that polls for it.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        os.read(life, 1)
    except BlockingIOError:
        return
    sys.exit(1)  # closed before we asked for the signal


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
