"""Runs with planted divots in a few words, for tests of the detector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rater.analysis.divots.findings import analyse, build_findings
from rater.analysis.divots.model.finding import Analysis, Finding, Thresholds
from rater.analysis.divots.model.search import search
from rater.analysis.divots.model.table import Row, Table, build_table
from rater.analysis.divots.recurring import SearchedRun

type Times = npt.NDArray[np.float64]  # (benchmarks, iterations, copies), seconds


@dataclass
class Machine:
    """Where copy c runs: CPU c on lgroups of equal size; unknown where `places` is False."""

    nodes: int = 4
    per_node: int = 8
    places: bool = True
    memory: dict[int, int] = field(default_factory=dict)  # copies with memory elsewhere
    cpu: Callable[[int, int], int] = lambda copy, iteration: copy

    @property
    def copies(self) -> int:
        return self.nodes * self.per_node


def quiet(
    benchmarks: int, iterations: int, copies: int, *, noise: float = 0.003, seed: int = 1
) -> Times:
    """Seconds (benchmarks, iterations, copies): 100 s and normal noise."""
    random = np.random.default_rng(seed)
    times: Times = 100 * np.exp(noise * random.standard_normal((benchmarks, iterations, copies)))
    return times


def rows_of(times: Times, machine: Machine, bad: Sequence[tuple[int, int, int]] = ()) -> list[Row]:
    """The rows of a run; `bad` are (benchmark, iteration, copy) that failed."""
    rows: list[Row] = []
    for benchmark, iteration, copy in np.ndindex(*times.shape):
        cpu = machine.cpu(copy, iteration)
        node = cpu // machine.per_node
        place: tuple[float | None, ...] = (cpu, cpu, None, node, None)
        memory = machine.memory.get(copy, node)
        if not machine.places:
            place, memory = (None,) * 5, None  # type: ignore[assignment] # nothing is known
        start_ns, good = 1000.0 * copy, (benchmark, iteration, copy) not in bad
        rows.append(
            (
                benchmark,
                iteration + 1,
                copy,
                0,
                *place,
                memory,
                start_ns,
                float(times[benchmark, iteration, copy]) * 1e9,
                None,
                good,
            )
        )
    return rows


def names(count: int) -> list[tuple[str, str | None]]:
    return [(f"b{number}", None) for number in range(count)]


def table_of(times: Times, machine: Machine, bad: Sequence[tuple[int, int, int]] = ()) -> Table:
    table = build_table([rows_of(times, machine, bad)], names(len(times)))
    assert table is not None
    return table


def analysed(
    times: Times,
    machine: Machine,
    bad: Sequence[tuple[int, int, int]] = (),
    thresholds: Thresholds | None = None,
) -> Analysis:
    rows = rows_of(times, machine, bad)
    return analyse([rows], names(len(times)), thresholds or Thresholds())


def divots(
    times: Times, machine: Machine, bad: Sequence[tuple[int, int, int]] = ()
) -> list[Finding]:
    """Return findings that nothing explains, without the visible sizes, which take longer."""
    found = build_findings(search(table_of(times, machine, bad), Thresholds()))
    return [one for one in found if not one.explained]


def run_times(number: int, times: Times, machine: Machine) -> SearchedRun:
    """A run with all that is found in it, for what several have in common."""
    table = table_of(times, machine)
    return SearchedRun(number, tuple(build_findings(search(table, Thresholds()))), table)
