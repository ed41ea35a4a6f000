"""Keep one CPU busy when told to: run as a program of its own, it imports nothing of rater.

`python -I -S competitor.py CPU`: every byte on standard input says for how many
milliseconds from now it wants the CPU. A rater that was stopped (Ctrl-Z) says nothing
more, of one that died the pipe ends: either way the CPU is free again at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main(argv: list[str]) -> int:
    """Compete for a CPU until the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.sched_setaffinity(0, {int(argv[0])})
    while wanted := os.read(0, 4096):
        until_s = time.monotonic() + wanted[-1] / 1e3  # what was wanted before is past
        while time.monotonic() < until_s:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
