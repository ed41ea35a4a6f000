"""Disks that fill, run out of inodes or turn read-only: small file systems of a namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import COPY, DATABASE, attempts, run, wrong_with
from benchmarks.torture.faults import COPIES, RUN
from benchmarks.torture.table import Row, row_of, scaled_number

# $1: what is mounted small, $2: its options, $3: seconds until it is read-only. The database is
# copied out at the end, as the file systems go with the namespace.
_INSIDE = """
mkdir -p "$1"; mount -t tmpfs -o "$2" tmpfs "$1" || exit 99
[ -z "$3" ] || { (sleep "$3"; mount -o remount,ro "$1") & }
shift 3; "$@"; status=$?
for file in ../db/*; do [ ! -e "$file" ] || cp "$file" ../; done
exit $status
"""
_CASES = (
    *(("db", f"size={kb}k", "", "is full") for kb in (4, 64, 256, 320, 400, 800)),
    *(("db", f"size=8m,nr_inodes={number}", "", "has no inodes") for number in (1, 2, 3, 4, 6)),
    *(("db", "size=8m", s, "turns read-only") for s in ("0", "0.4", "0.8", "1.2", "1.6")),
    *(("cache", f"size={kb}k", "", "is full") for kb in (4, 16, 64)),
    *(
        ("cache", f"size=8m,nr_inodes={number}", "", "has no inodes")
        for number in (1, 3, 5, 8, 12, 20)
    ),
    *(("cache", "size=8m", s, "turns read-only") for s in ("0", "0.4", "0.8", "1.2", "1.6")),
)


def campaign(bench: Bench, share: float = 1.0) -> list[Row]:
    """Make a run on each of 30 bad disks."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        return [Row("disks full, read-only", 0, 0, "left out: only root may mount (unshare -m)")]
    cases = [
        _CASES[number * len(_CASES) // scaled_number(share, len(_CASES))]
        for number in range(scaled_number(share, len(_CASES)))
    ]

    def attempt(folder: Path, case: tuple[str, str, str, str]) -> str | None:
        place, options, after_s, _ = case
        problem = run_on_disk(folder, bench.environment, place, options, after_s)
        return problem and f"{options} {after_s}: {problem}"

    wrong: dict[str, list[str | None]] = {}
    for case, found in zip(cases, attempts(bench, attempt, cases), strict=True):
        wrong.setdefault(f"{case[0]} {case[3]}", []).append(found)
    return [row_of(f"the disk of the {name}", found) for name, found in wrong.items()]


def run_on_disk(
    folder: Path, environment: Mapping[str, str], place: str, options: str, after_s: str
) -> str | None:
    """Make a run whose database (`db`) or cache (`cache`) is on such a disk; say what is wrong."""
    (folder / "db").mkdir()
    prefix = ["unshare", "-m", "sh", "-c", _INSIDE, "sh", str(folder / place), options, after_s]
    ended = run(
        folder,
        environment,
        [*RUN, "--", "sh", "-c", COPY],
        prefix=prefix,
        database=f"db/{DATABASE}",
    )
    return wrong_with(ended, folder, copies=2 * COPIES)
