"""`python -m benchmarks [--land] [NAME ...]`: one table of figures, with goals and landed values.

All figures, or those whose names begin so. `--land` keeps what was measured in `figures.toml`, as
what the next one is held against. Exit status 1: one got dearer by more than 10 %.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import reading, starting, supervising
from benchmarks.bench import Bench, bench
from benchmarks.starting import Figures

TABLE = Path(__file__).with_name("figures.toml")
DEARER = 0.10
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
    starting.startup: ("start",),
    reading.runs_of_many: ("import-1", "divots-1", "divots-8", "report"),
    reading.a_million: ("divots-1M",),
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

    def verdict(self, value: float) -> str:
        """Say how a value stands against the goal and what landed."""
        words = []
        if self.goal is not None:
            good = value >= self.goal if self.more else value <= self.goal
            words.append("" if good else "beyond the goal")
        change = self.dearer(value)
        if change is not None and abs(change) > DEARER:
            words.append(f"{'dearer' if change > 0 else 'cheaper'} by {abs(change):.0%}")
        return ", ".join(filter(None, words))


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


def lines(figures: Sequence[Figure], values: dict[str, float]) -> list[str]:
    """Return the table."""
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
                    figure.verdict(values[figure.name]),
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
    """Measure, print the table; return 1 where a figure got dearer."""
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
    values: dict[str, float] = {}
    failed: list[str] = []
    with bench() as scratch:
        for measure, names in MEASURES.items():
            if any(it.startswith(names) for it in wanted):
                print(f"{(measure.__doc__ or '').partition('\n')[0]}", file=sys.stderr, flush=True)
                try:
                    values.update(measure(scratch))
                except SystemExit as error:  # a call failed: the others are measured all the same
                    print(error, file=sys.stderr)
                    failed.append(measure.__name__)
    values = {name: value for name, value in values.items() if name in wanted}
    here = this_machine()
    if machine and machine != here:
        print(f"landed on another machine ({machine}; this one: {here}): only ratios compare")
    print("\n".join(lines([figures[name] for name in wanted], values)))
    if asked.land:
        TABLE.write_text(landed(text, values, here))
    dearer = [name for name, value in values.items() if (figures[name].dearer(value) or 0) > DEARER]
    if dearer:
        print(f"dearer by more than {DEARER:.0%}: {', '.join(dearer)}")
    if failed:
        print(f"not measured: {', '.join(failed)}")
    return 1 if dearer or failed else 0


if __name__ == "__main__":
    sys.exit(main())
