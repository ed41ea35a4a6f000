"""Check outputs of copies, in a process of its own that `checker.py` starts.

`python -I -S checker_main.py LIFE_FD FOLDER...`: reads requests from standard input and
writes answers to standard output, one JSON object a line. A request has the `number` of its
rules, `rules` where that number is new, else null, and `directory`, `stdout` and `stderr` of the
copy. An answer has `at`, the name of work that may take long, or `detail` and `metrics`, the
result of a request. Patterns of suites run here and nowhere else: they may take for ever, and
this process can be killed.
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
    from msgspec import convert  # noqa: PLC0415 (found only now)

    from rater.run.workplace.compare_output import (  # noqa: PLC0415 (found only now)
        CheckRequest,
        CheckRules,
        WrongOutputError,
    )

    os.nice(NICENESS)
    rules_by_number: dict[int, CheckRules] = {}
    _answer(at="checking its output")
    for line in sys.stdin.buffer:
        message = json.loads(line)
        number = message["number"]
        if message["rules"] is not None:
            rules_by_number[number] = convert(message["rules"], CheckRules)
        request = CheckRequest(
            rules=rules_by_number[number],
            directory=message["directory"],
            stdout=message["stdout"],
            stderr=message["stderr"],
        )
        detail, metrics = None, []
        try:
            metrics = _check_and_read_metrics(request)
        except WrongOutputError as error:
            detail = str(error)
        except OSError as error:
            detail = f"what it wrote cannot be read: {error.strerror}"
        _answer(detail=detail, metrics=metrics)
    return 0


def _answer(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def _check_and_read_metrics(request: CheckRequest) -> list[tuple[str, float]]:
    """Return the numbers that a copy reported; raises `WrongOutputError` for a wrong output."""
    # Found only by `main`.
    from rater.run.workplace.compare_output import check_file, read_metric  # noqa: PLC0415

    for expected in request.rules.expected:
        _answer(at=f"checking {expected.file}")
        check_file(request.path_of(expected.file), expected)
    value_by_name = []
    for metric in request.rules.metrics:
        _answer(at=f"metric {metric.name}: its pattern")
        value_by_name.append((metric.name, read_metric(request.path_of(metric.file), metric)))
    return value_by_name


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
