"""`rater` and `python -m rater`; a signal while modules are read, or at the end, just ends it."""

# `signal` would be a module to read: this is what it stands on, and is there.
import _signal  # type: ignore[import-not-found]  # typeshed has no such module
import gc
import os
import sys

for _number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    if _signal.getsignal(_number) is not _signal.SIG_IGN:
        _signal.signal(_number, lambda number, _: os._exit(128 + number))

# Rows come by the hundred thousand, and in no circles: to look for these takes a tenth of a report.
# What `rater run` imports is 80,000 objects, and to look through these takes a twentieth of it.
gc.set_threshold(200_000, 20, 100)

from rater.commands.cli import main  # noqa: E402 - not before: reading modules takes its time

if __name__ == "__main__":
    sys.exit(main())
