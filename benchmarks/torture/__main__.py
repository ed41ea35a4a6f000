"""`python -m benchmarks.torture [--share S] [NAME ...]`: torture rater, print one table.

Exit status 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback

from benchmarks.bench import bench
from benchmarks.torture import (
    cells,
    cpus,
    disks,
    exchanges,
    faults,
    hostile,
    launchers,
    readers,
    restoring,
    resume,
    stamps,
    stopping,
    stops,
    sweeping,
)
from benchmarks.torture.table import Campaign, Row, table

CAMPAIGNS: dict[str, Campaign] = {
    "kill9": stopping.kill9,
    "resume": resume.campaign,
    "restoring": restoring.campaign,
    "sweeping": sweeping.campaign,
    "signals": stopping.signals,
    "launchers": launchers.campaign,
    "stops": stops.campaign,
    "stamps": stamps.campaign,
    "cpus": cpus.campaign,
    "faults": faults.campaign,
    "disks": disks.campaign,
    "hostile": hostile.campaign,
    "readers": readers.campaign,
    "cells": cells.campaign,
    "exchanges": exchanges.campaign,
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CAMPAIGNS))
    parser.add_argument("--share", type=float, default=1.0, help="of the full length (default 1)")
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in CAMPAIGNS]
    if unknown:
        parser.error(f"no campaign {unknown[0]!r}; there are {', '.join(CAMPAIGNS)}")
    # In the background these are ignored, and what is tortured would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    rows: list[Row] = []
    with bench() as scratch:
        for name in args.names or CAMPAIGNS:
            began = time.monotonic()
            print(f"== {name}", flush=True)
            try:
                found = list(CAMPAIGNS[name](scratch, args.share))
            except Exception as error:
                traceback.print_exc()
                found = [Row(name, 1, 1, f"the campaign broke: {error!r}")]
            rows += found
            print(table(found))  # whoever ends this sees what there is
            print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
    print("\n" + table(rows))
    return 1 if any(row.lost for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
