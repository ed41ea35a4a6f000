"""Check what copies wrote, in a process of its own; `judge_process` starts it.

`python -I -S judge_program.py PACKAGES LIFE_FD`: reads requests from standard input and
writes answers to standard output, one JSON object a line. Patterns of suites run here
and nowhere else: they may take for ever, and this process can be killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rater.plan.suite.model import Expected, Metric

# A quarter of a CPU beside one copy: copies come first. More would starve it on a full machine,
# and what is not judged in steady mode is not cleared and fills the disk.
NICENESS = 5


def main(argv: list[str]) -> int:
    """Answer until standard input ends."""
    _die_with_parent(int(argv[1]))
    sys.path.append(argv[0])  # last: nothing that lies beside rater stands in for the library
    from rater.plan.suite.model import Expected, Metric  # noqa: PLC0415 (found only now)
    from rater.run.check.metrics import NoMetricError  # noqa: PLC0415 (found only now)

    os.nice(NICENESS)
    rules: dict[int, tuple[list[Expected], list[Metric]]] = {}

    def say(**answer: object) -> None:
        os.write(1, json.dumps(answer).encode() + b"\n")

    say(ready=True)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "expected" in request:
            rules[request["rules"]] = (
                [Expected(*fields) for fields in request["expected"]],
                [Metric(*fields) for fields in request["metrics"]],
            )
            continue
        try:
            metrics = _metrics(request, *rules[request["rules"]], lambda at: say(at=at))
        except (NoMetricError, _WrongError) as error:
            say(detail=str(error), metrics=[])
        except OSError as error:
            say(detail=f"what it wrote cannot be read: {error.strerror}", metrics=[])
        else:
            say(detail=None, metrics=metrics)
    return 0


class _WrongError(Exception):
    """An output is not as expected."""


def _metrics(
    request: dict[str, Any],
    expected: list[Expected],
    metrics: list[Metric],
    begin: Callable[[str], None],
) -> list[tuple[str, float]]:
    """Return what a copy reported; `begin` is told of each thing that may take long."""
    from rater.run.check.compare_output import check_output  # noqa: PLC0415 (found only when `main` runs)
    from rater.run.check.metrics import read_metrics  # noqa: PLC0415 (found only when `main` runs)

    directory = Path(request["directory"])
    stdout, stderr = Path(request["stdout"]), Path(request["stderr"])
    for want in expected:
        begin(f"checking {want.file}")
        difference = check_output(directory, stdout, [want])
        if difference is not None:
            raise _WrongError(difference)
    found: list[tuple[str, float]] = []
    for metric in metrics:
        begin(f"metric {metric.name}: its pattern")
        found += read_metrics(directory, stdout, stderr, [metric])
    return found


def _die_with_parent(life: int) -> None:
    """Have SIGIO end this process when the other end of a pipe is closed.

    Seeing the end of standard input takes an interpreter that comes to look.
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
