"""One run of the self-test: what came of it, who disturbed it and on which CPU; quiet before it."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass

from rater.analysis.divots.data.finding import Finding
from rater.analysis.selftest.cpu_speed import STEADY, unsteady
from rater.run.host.busy import Busyness, busy_names
from rater.run.selftest.disturb import PROC, Disturbed, busy_by_cpu
from rater.show.divots.selftest import speed_words
from rater.text.words import series

_SAMPLE_S, _SAMPLES = 1.0, 3  # so many quiet samples in a row
OTHERS = 0.1  # share of a CPU that others may take in any iteration


@dataclass(frozen=True, slots=True)
class Ran:
    """One run with what was done in it."""

    times: dict[tuple[str, int, int], float]
    findings: tuple[Finding, ...]
    others: float  # the most that others took of a CPU in any iteration, as a share
    costs: dict[tuple[str, int, int], float]  # see `analysis.cpuspeed.Costs`
    taken_words: str = ""  # of which CPU, and who it was

    @property
    def taken(self) -> float | None:
        """What others took of a CPU, where it was too much."""
        return self.others if self.others > OTHERS else None

    @property
    def unsteady(self) -> float | None:
        """By how much the speed of a CPU changed by itself, where it was too much."""
        change, _ = unsteady(self.costs)
        return change if abs(change) > STEADY else None

    @property
    def disturbed(self) -> str:
        """What others did to its CPUs meanwhile, in words; "" when they were left alone."""
        if self.taken is not None:
            return self.taken_words
        return "" if self.unsteady is None else speed_words(*unsteady(self.costs))


def most_taken(seen: Sequence[Disturbed]) -> tuple[float, int | None, str]:
    """Return the most that others took of a CPU while a benchmark ran once: share, CPU, when."""
    cells = [
        (share, cpu, f"{cell.benchmark}, iteration {cell.iteration}")
        for cell in seen
        for cpu, share in cell.others
    ]
    return max(cells, key=lambda cell: cell[0], default=(0.0, None, ""))


def taken_words(seen: Sequence[Disturbed], found: Busyness) -> str:
    """Say which CPU others took most of, and which processes worked meanwhile."""
    share, cpu, when = most_taken(seen)
    where = "a CPU" if cpu is None else f"CPU {cpu} ({when})"
    return f"others took {share:.0%} of {where}: {who(found)}"


def who(found: Busyness) -> str:
    """Name those who worked beside a run."""
    names = busy_names(found)
    if found.stolen:
        names.append(f"the hypervisor's other guests ({found.stolen:.0%} of all CPUs)")
    return series(names) if names else "no process that can be seen here"


def wait_until_idle(cpus: Set[int], patience_s: float) -> None:
    """Wait until others leave the CPUs of the copies alone; `patience_s`: of the clock."""
    quiet = 0
    before = busy_by_cpu(PROC)
    while quiet < _SAMPLES and time.monotonic() < patience_s:
        time.sleep(_SAMPLE_S)
        after = busy_by_cpu(PROC)
        busy_s = [after[cpu] - before[cpu] for cpu in after if cpu in cpus and cpu in before]
        quiet = quiet + 1 if max(busy_s, default=0.0) <= OTHERS * _SAMPLE_S else 0
        before = after


def same_again(args: argparse.Namespace, seed: int, usual_s: float) -> str:
    """Return the command that plants the same again; `usual_s`: what --seconds is without it."""
    more = " --simulate" if args.simulate else ""
    more += f" --topology {shlex.quote(args.topology)}" if args.topology is not None else ""
    more += f" --copies {args.copies}" if args.copies is not None else ""
    more += " --quick" if args.quick else ""
    more += "" if args.seconds == usual_s else f" --seconds {args.seconds:g}"
    return f"rater selftest --seed {seed}{more}"
