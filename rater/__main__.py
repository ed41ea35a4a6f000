"""`rater` and `python -m rater`; a signal while modules are read, or at the end, just ends it."""

import os
import signal
import sys

for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is not signal.SIG_IGN:
        signal.signal(_number, lambda number, _: os._exit(128 + number))

from rater.cli import main  # noqa: E402 - not before: reading modules takes its time

if __name__ == "__main__":
    sys.exit(main())
