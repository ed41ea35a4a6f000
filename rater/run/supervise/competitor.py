"""Take a share of one CPU's time: run as a program of its own, it imports nothing of rater.

`python -I -S competitor.py CPU`: a line on standard input is the share that it takes from now on,
by its own CPU clock: neither more nor less. Of a rater that was stopped (Ctrl-Z) it takes nothing,
and it ends with the pipe.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

_STEP_S = 0.01


def main(argv: list[str]) -> int:
    """Compete for a CPU until the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.sched_setaffinity(0, {int(argv[0])})
    share = began_s = used_s = 0.0
    while True:
        lacks_s = share * (time.monotonic() - began_s) - (time.process_time() - used_s)
        works = lacks_s > 0 and not _is_stopped(os.getppid())
        wait_s = 0 if works else _STEP_S if share else None
        if select.select([0], [], [], wait_s)[0]:
            line = os.read(0, 4096)
            if not line:
                return 0
            share, began_s, used_s = float(line.split()[-1]), time.monotonic(), time.process_time()
        elif works:
            until_s = time.monotonic() + _STEP_S
            while time.monotonic() < until_s:
                pass


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - `pathlib` starts slowly
        return stat.read().rpartition(b") ")[2][:1] == b"T"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
