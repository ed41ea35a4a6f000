"""Runs that are exported in SPEC's own form, for tests of the file and of what comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rater.record.run import PlacedCopy
from rater.record.stored import StoredRun
from rater.store.observations import read_observations

# The CPUs a copy may use, its CPU, its policy of memory, the nodes of that; by number of the copy.
PLANS = [
    ((0, 1), 0, "local", ()),
    ((2, 3), 2, "interleave", (0, 1)),
    ((4,), 4, "preferred", (1,)),
    ((5,), 5, "none", ()),
    (None, None, "bind", (1,)),
]
PLACEMENTS = tuple(
    PlacedCopy(copy, cpus, cpu, None, None, None, None, policy, nodes)
    for copy, (cpus, cpu, policy, nodes) in enumerate(PLANS)
)


def observed(rows: list[dict[str, Any]], **run: object) -> StoredRun:
    """A run of these observations; what they leave out is benchmark a, iteration 1, 1 s."""
    always = {"benchmark": "a", "iteration": 1, "copy": 0, "elapsed_s": 1.0}
    copies = 1 + max(row.get("copy", 0) for row in rows)
    document = {
        "rater": 1,
        "run": {"uuid": "u", "mode": "homogeneous", "copies": copies} | run,
        "observations": [always | row for row in rows],
    }
    return read_observations(json.dumps(document).encode(), "doc")


def planned() -> StoredRun:
    """A run of `PLANS`, each copy of two threads."""
    run = observed([{"copy": copy, "cpu": plan[1]} for copy, plan in enumerate(PLANS)])
    used = tuple(replace(it, threads=2) for it in run.benchmarks)
    return replace(run, placements=PLACEMENTS, benchmarks=used)
