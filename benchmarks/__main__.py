"""`python -m benchmarks [--land] [NAME ...]`: one table of figures, with goals and landed values.

All figures, or those whose names begin so. `--land` keeps what was measured in `figures.toml`, as
what the next one is held against. Exit status 1: one misses its goal, could not be measured, or got
dearer by more than 10 % on the machine where it landed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks import reading, starting, supervising
from benchmarks.bench import Bench, bench
from benchmarks.starting import Figures, Values

TABLE = Path(__file__).with_name("figures.toml")
DEARER = 0.10
_APART = 1 / 3  # of the median, between two modes
_LEAST_MODE = 0.2  # of the values, in each
# What measures together, and the figures that it gives, by how their names begin.
MEASURES: dict[Callable[[Bench], Figures], tuple[str, ...]] = {
    starting.together: ("skew-128", "bracket-128", "xargs", "parallel"),
    starting.many_together: ("skew-1024", "bracket-1024"),
    starting.bracket: ("bracket-late",),
    starting.phases: ("spawn-128", "phase", "hyperfine", "runexec"),
    supervising.own_cpu: ("own-cpu",),
    starting.stagger: ("stagger",),
    supervising.steady: ("steady",),
    supervising.live: ("live",),
    supervising.proof: ("proof",),
    supervising.series: ("series",),
    starting.startup: ("start",),
    reading.runs_of_many: ("import-1", "divots-1", "divots-8", "report"),
    reading.a_million: ("divots-1M",),
    reading.thousands: ("compare-", "list-"),
    reading.log_reading: ("import-log",),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table."""

    name: str
    what: str
    unit: str = ""
    goal: float | None = None
    landed: float | None = None
    more: bool = False  # is better

    def dearer(self, value: float) -> float | None:
        """Return the share by which a figure got worse since it landed, None if it never landed."""
        if not self.landed:
            return None
        return (self.landed / value if self.more else value / self.landed) - 1

    def misses_goal(self, value: float) -> bool:
        """Tell whether a value is not as good as was asked for."""
        if self.goal is None:
            return False
        return value < self.goal if self.more else value > self.goal

    def verdict(self, value: float) -> str:
        """Say how a value stands against the goal and what landed."""
        words = ["beyond the goal"] if self.misses_goal(value) else []
        change = self.dearer(value)
        if change is not None and abs(change) > DEARER:
            words.append(f"{'dearer' if change > 0 else 'cheaper'} by {abs(change):.0%}")
        return ", ".join(filter(None, words))


def two_modes(values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    """Return the values of both modes; None: there is one.

    Two modes are parted by a gap that is wider than both are together, relative to their middle by
    a third, and a fifth of the values at least are in each.
    """
    ordered = sorted(values)
    gaps = [after - before for before, after in pairwise(ordered)]
    if not gaps:
        return None
    place = gaps.index(max(gaps)) + 1
    low, high = ordered[:place], ordered[place:]
    width = low[-1] - low[0] + high[-1] - high[0]
    apart = max(gaps) > max(width, _APART * statistics.median(ordered))
    fewest = max(2, len(ordered) * _LEAST_MODE)
    return (low, high) if apart and min(len(low), len(high)) >= fewest else None


def modes_text(values: Sequence[float]) -> str:
    """Return `two modes: 0.28 (3 times), 0.97 (2)`, or nothing."""
    modes = two_modes(values)
    if modes is None:
        return ""
    low, high = modes
    return (
        f"two modes: {statistics.median(low):.3g} ({len(low)} times), "
        f"{statistics.median(high):.3g} ({len(high)})"
    )


def read_figures(text: str) -> tuple[str, dict[str, Figure]]:
    """Return the machine that the landed values are of, and the rows by name."""
    document = tomllib.loads(text)
    machine = document.pop("machine", "")
    return machine, {name: Figure(name, **row) for name, row in document.items()}


def landed(text: str, values: dict[str, float], machine: str) -> str:
    """Return the text of `figures.toml` with these values as landed, on this machine."""
    text = re.sub(r"(?m)^machine = .*$", f'machine = "{machine}"', text)
    for name, value in values.items():
        head, mark, rest = text.partition(f"[{name}]\n")
        entry, blank, after = rest.partition("\n\n")
        kept = [
            splitline
            for splitline in entry.strip().splitlines()
            if not splitline.startswith("landed = ")
        ]
        text = f"{head}{mark}{'\n'.join((*kept, f'landed = {value:.4g}'))}{blank or '\n'}{after}"
    return text


def lines(
    figures: Sequence[Figure], values: dict[str, float], modes: dict[str, str] | None = None
) -> list[str]:
    """Return the table; `modes`: of what has two, in words."""
    rows = [("", "now", "goal", "landed", "")]
    for figure in figures:
        if figure.name in values:
            goal, before = (
                f"{one:.3g}" if one is not None else "-" for one in (figure.goal, figure.landed)
            )
            now = f"{values[figure.name]:.3g} {figure.unit or 'x'}"
            rows.append(
                (
                    f"{figure.name:24}{figure.what}",
                    now,
                    goal,
                    before,
                    "; ".join(
                        filter(
                            None,
                            (
                                figure.verdict(values[figure.name]),
                                (modes or {}).get(figure.name, ""),
                            ),
                        )
                    ),
                )
            )
    wide = [max(len(row[place]) for row in rows) for place in range(4)]
    return [
        f"{row[0]:{wide[0]}}  {row[1]:>{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]:>{wide[3]}}  "
        f"{row[4]}".rstrip()
        for row in rows
    ]


def this_machine() -> str:
    """Return processor and count of CPUs."""
    names = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return f"{len(os.sched_getaffinity(0))} x {names[0] if names else platform.machine()}"


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table; return 1 where a figure misses what it is held against."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--land", action="store_true", help="keep the values as landed")
    parser.add_argument("names", metavar="NAME", nargs="*", help="figures that begin so")
    asked = parser.parse_args(words)
    text = TABLE.read_text()
    machine, figures = read_figures(text)
    wanted = [
        figure for figure in figures if not asked.names or figure.startswith(tuple(asked.names))
    ]
    if not wanted:
        parser.error(f"no figure {asked.names[0]!r}; there are {', '.join(figures)}")
    measured: dict[str, Values] = {}
    failed: list[str] = []
    with bench() as scratch:
        for measure, names in MEASURES.items():
            if any(it.startswith(names) for it in wanted):
                print(f"{(measure.__doc__ or '').partition('\n')[0]}", file=sys.stderr, flush=True)
                try:
                    measured.update(measure(scratch))
                except SystemExit as error:  # a call failed: the others are measured all the same
                    print(error, file=sys.stderr)
                    failed.append(measure.__name__)
    runs = {
        name: [value] if isinstance(value, float | int) else [*value]
        for name, value in measured.items()
        if name in wanted
    }
    values = {name: statistics.median(of_runs) for name, of_runs in runs.items()}
    modes = {name: modes_text(of_runs) for name, of_runs in runs.items()}
    here = this_machine()
    is_same = machine in ("", here)
    if not is_same:
        print(f"landed on another machine ({machine}; this one: {here}): only ratios compare")
    print("\n".join(lines([figures[name] for name in wanted], values, modes)))
    if asked.land:
        TABLE.write_text(landed(text, values, here))
    return _status(figures, values, failed, is_same=is_same)


def _status(
    figures: dict[str, Figure], values: dict[str, float], failed: Sequence[str], *, is_same: bool
) -> int:
    """Name the figures that miss what they are held against; return the exit status.

    `is_same`: the machine is that on which figures landed.
    """
    missed = [name for name, value in values.items() if figures[name].misses_goal(value)]
    dearer = [
        name
        for name, value in values.items()
        if is_same and (figures[name].dearer(value) or 0) > DEARER
    ]
    for words, names in (
        ("beyond the goal", missed),
        (f"dearer by more than {DEARER:.0%}", dearer),
        ("not measured", failed),
    ):
        if names:
            print(f"{words}: {', '.join(names)}")
    return 1 if missed or dearer or failed else 0


if __name__ == "__main__":
    sys.exit(main())
