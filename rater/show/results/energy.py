"""Energy of a run: joules of phases, copies and the suite, where the machine counts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rater.analysis.results.energy import PhaseEnergy
from rater.analysis.results.model import IterationScore, Summary
from rater.show.console.printer import Printer
from rater.show.console.table import Columns
from rater.text.to_json import Members


@dataclass(frozen=True, slots=True)
class _Row:
    """One phase with readings."""

    energy: PhaseEnergy
    it: IterationScore | None  # None: it runs several benchmarks

    @property
    def joules_per_copy(self) -> float | None:
        """Of a copy, or in rotated order of a copy's run of any benchmark."""
        if self.it is not None:
            return self.it.joules_per_copy
        joules, runs = self.energy.joules, self.energy.copy_runs
        return None if joules is None or not runs else joules / runs


def print_energy(summary: Summary, printer: Printer) -> None:
    """Print a line for each counted phase, what the suite comes to, and why there is none."""
    rows = [row for row in _rows(summary) if row.energy.counted]
    if not rows:
        return
    printer.line()
    known = [row for row in rows if row.energy.joules is not None]
    if known:
        of = Columns(known)
        printer.table(
            [
                of.left("energy", lambda row: row.energy.benchmark or "(all)", flexible=True),
                of.right("iter", lambda row: row.energy.iteration),
                of.numbers("J", lambda row: row.energy.joules),
                of.numbers("J|/copy", lambda row: row.joules_per_copy),
                of.numbers("W", lambda row: row.energy.watts),
                of.numbers("energy x|time Js", lambda row: row.energy.energy_delay_js, optional=1),
                of.numbers("memory|J", lambda row: _memory(row.energy), optional=2),
            ]
        )
        if summary.joules is not None and len(summary.benchmarks) != 1:
            printer.prose(f"energy of the suite: {summary.joules:.4g} J")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.energy.reason:
            reasons.setdefault(row.energy.reason, []).append(row.energy.benchmark or "(all)")
    printer.some(
        (f"no energy of {', '.join(dict.fromkeys(of))}: {why}" for why, of in reasons.items()),
        "yellow",
    )


def _rows(summary: Summary) -> Iterator[_Row]:
    scores = {
        it.energy.phase: it
        for benchmark in summary.benchmarks
        for it in benchmark.iterations
        if it.energy is not None
    }
    return (_Row(energy, scores.get(energy.phase)) for energy in summary.energies)


def _memory(energy: PhaseEnergy) -> float | None:
    """Return the joules of memory, where they are counted apart."""
    ours = {f"package-{package}" for package, _ in energy.packages}
    parts = [
        joules
        for name, joules in energy.domains
        if name.endswith("-dram") and name.removesuffix("-dram").partition("-die")[0] in ours
    ]
    return sum(parts) if parts else None


ENERGY_MEMBERS = Members(
    "energy.phase energy.benchmark energy.iteration energy.counted energy.elapsed_s energy.joules"
    " joules_per_copy energy.watts energy.energy_delay_js",
    {"domains": lambda row: dict(row.energy.domains)},
    "energy.reason",
)


def energy_document(summary: Summary) -> Mapping[str, object]:
    """Return what JSON has of it: nothing where the machine counts no energy."""
    phases = [ENERGY_MEMBERS.of(row) for row in _rows(summary)]
    return {"energy": {"suite_joules": summary.joules, "phases": phases}} if phases else {}
