"""Say how fast one CPU is, all the time: run as a program of its own, it imports nothing of rater.

`python -I -S speedometer.py CPU`: every 25 ms it does the same work of about half a millisecond and
writes when (monotonic clock) and how much CPU time that took, two native 64-bit integers in
nanoseconds. Who shares the CPU with it does not change that time; a neighbour on the other thread
of its core, another guest of the host, or another clock frequency do. It ends with standard input.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
import time

RECORD = struct.Struct("=qq")
_PERIOD_S = 0.025
_STEPS = 8000


def main(argv: list[str]) -> int:
    """Measure one CPU until standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.sched_setaffinity(0, {int(argv[0])})
    os.set_blocking(1, False)
    while not select.select([0], [], [], _PERIOD_S)[0]:
        began_ns = time.thread_time_ns()
        rest = 0
        for step in range(_STEPS):
            rest += step * step % 7
        took_ns = time.thread_time_ns() - began_ns
        try:
            os.write(1, RECORD.pack(time.monotonic_ns(), took_ns))
        except BlockingIOError:  # nobody has read for minutes
            continue
        except BrokenPipeError:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
