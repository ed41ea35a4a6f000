"""`python -m benchmarks [NAME ...]`: print the figures, all or those named."""

from __future__ import annotations

import sys

from benchmarks import importing, repeating, starting, supervising
from benchmarks.bench import bench

FIGURES = {
    "skew": starting.skew,
    "bracket": starting.bracket_truth,
    "stagger": starting.stagger,
    "startup": starting.startup,
    "cost": supervising.cost_per_copy,
    "idle": supervising.idle,
    "steady": repeating.steady,
    "import": importing.log_reading,
    "observations": importing.document_reading,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        print(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    with bench() as scratch:
        for name in names or FIGURES:
            print(f"\n== {name}", flush=True)
            FIGURES[name](scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
