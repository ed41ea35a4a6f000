"""`python -m benchmarks.divot_cases --runs 1000 --seed S [--report FILE.json]`."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.divot_cases.cases import Case, make
from benchmarks.divot_cases.report import describe_tables, summary
from benchmarks.divot_cases.scoring import Verdict, judge
from rater.commands import cli
from rater.store.store import open_store

_BATCH = 50  # runs in a database


def divots(cases: Sequence[Case], scratch: Path) -> Iterator[tuple[Case, dict[str, Any], float]]:
    """Store the runs in a database of their own and ask `rater divots --json` of each.

    Yields the divots document and the seconds it took.
    """
    database = scratch / "cases.db"
    with open_store(database) as store:
        numbers = [store.add(case.stored())[0] for case in cases]
    for case, number in zip(cases, numbers, strict=True):
        printed = io.StringIO()
        begin = time.monotonic()
        with contextlib.redirect_stdout(printed):
            status = cli.main(["divots", str(number), "--json", "--db", str(database)])
        if status:
            raise SystemExit(f"{case.name}: rater divots: exit status {status}")
        yield case, json.loads(printed.getvalue()), time.monotonic() - begin


def verdicts(seed: int, numbers: Sequence[int]) -> Iterator[tuple[Verdict, dict[str, Any], float]]:
    """Make runs of a seed and judge the findings in them, in batches."""
    for begin in range(0, len(numbers), _BATCH):
        cases = [make(seed, number) for number in numbers[begin : begin + _BATCH]]
        with TemporaryDirectory(prefix="divot-cases-") as scratch:
            for case, document, took_s in divots(cases, Path(scratch)):
                yield judge(case, document["divots"]), document, took_s


def describe_verdict(verdict: Verdict) -> str:
    """Return a run's truth and the mistakes of its findings, for people."""
    case = verdict.case
    b, i, c = case.dims
    nature, unknown = case.nature, "" if case.shape.known else ", no CPU numbers"
    lgroups = len(np.unique(case.shape.copies.node))
    lines = [
        f"{case.name}: {c} copies, {case.shape.layout}, {lgroups} lgroups, "
        f"{b} benchmarks x {i}{' rotated' if case.rotated else ''}, {nature.noise.kind} noise "
        f"{100 * float(nature.deviation.mean()):.2f} %{unknown}"
    ]
    for outcome in verdict.plants:
        plant = outcome.plant
        state = (
            "found"
            if outcome.found
            else "MISSED"
            if outcome.demanded
            else "not found, not demanded"
        )
        lines.append(
            f"  planted {plant.kind}, {plant.about[:60]}, {plant.scope} benchmarks: "
            f"{100 * math.expm1(plant.size):+.1f} % z {outcome.z:.1f}, "
            f"costs {100 * outcome.cost:.2f} %: "
            f"{state}{' (' + outcome.half + ')' if outcome.half else ''}, "
            f"{outcome.fragments} findings"
        )
    lines += [f"  {what}: {finding.kind}: {finding.text[:200]}" for what, finding in verdict.others]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.divot_cases")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--report", type=Path, help="the tables as JSON, and every run that is not right"
    )
    parser.add_argument(
        "--run", type=int, help="one run of the seed: its truth and all that was found"
    )
    parser.add_argument("--document", type=Path, help="with --run: write its observations document")
    args = parser.parse_args()
    if args.run is not None:
        for verdict, document, took_s in verdicts(args.seed, [args.run]):
            print(describe_verdict(verdict))
            print(
                *(f"  said: {row['kind']}: {row['evidence']}" for row in document["divots"]),
                sep="\n",
            )
            print(f"  {took_s:.2f} s")
            if args.document:
                args.document.write_text(json.dumps(verdict.case.document()))
        return 0
    every, slowest, search_s, disturbed = [], (0.0, ""), 0.0, [0, 0]
    for verdict, document, took_s in verdicts(args.seed, range(args.runs)):
        every.append(verdict)
        disturbed[bool(verdict.case.plants)] += bool(document["disturbed"])
        search_s += took_s
        slowest = max(slowest, (took_s, verdict.case.name))
        if len(every) % 100 == 0:
            print(f"{len(every)} runs", file=sys.stderr, flush=True)
    tables = summary(every)
    print(describe_tables(tables))
    print("called too disturbed to judge: {} healthy runs, {} with plants".format(*disturbed))
    print(f"search: {search_s:.0f} s, the longest {slowest[0]:.1f} s ({slowest[1]})")
    if args.report:
        missed = [
            it
            for it in every
            if it.alarms or any(plant.demanded and not plant.found for plant in it.plants)
        ]
        args.report.write_text(
            json.dumps({**tables, "not right": [describe_verdict(it) for it in missed]}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
