"""A database with made-up fleets, to look at pages and to time lists.

    python -m benchmarks.made_fleet DB --hosts 100 [--weeks 1] [--copies 8] [--iterations 3]

Every host's database is written, published and admitted as `rater fleet collect` does. One host in
50 is slow in some way, one has another microcode; with several weeks (a fleet each) host n002 gets
4 % slower after half of them, with another kernel.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from rater.fleet.archive import admit_database
from rater.store.connection import connect
from tests.support.fleets import NAMES, SETTINGS, publish, slow_ones, times_of


def main() -> None:
    """Make them and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--weeks", type=int, default=1)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=3)
    args = parser.parse_args()
    random = np.random.default_rng(1)
    start = datetime(2026, 9, 1, 12, tzinfo=UTC)
    writing_s = admitting_s = 0.0
    with closing(connect(args.database)) as connection, tempfile.TemporaryDirectory() as folder:
        for week in range(1, args.weeks + 1):
            at = (start + timedelta(weeks=week)).strftime("%Y-%m-%dT%H:%M:%SZ")
            for host in slow_ones(args.hosts):
                made = host
                if args.weeks > 1 and host.node == "n002" and week > args.weeks // 2:
                    later = SETTINGS | {"kernel.release": "6.1.0-44-amd64"}
                    made = replace(host, slow={"": 1.04}, settings=later)
                times = times_of(made, NAMES, args.iterations, args.copies, random)
                began = time.perf_counter()
                path = publish(Path(folder) / "node.db", made, times, started_at=at)
                written = time.perf_counter()
                found = admit_database(connection, path, week, made.node, 1)
                assert found.reason is None, found.reason
                writing_s += written - began
                admitting_s += time.perf_counter() - written
    many = args.hosts * args.weeks
    each_ms = admitting_s / many * 1000
    print(f"{many} databases: {writing_s:.1f} s written, {each_ms:.1f} ms admitted each")


if __name__ == "__main__":
    main()
