"""Energy of phases: joules of the packages that a run's copies were on, and estimates for copies.

What is counted belongs to packages, for all that draws power there. It is the run's where
the run has all of a package to itself, idle CPUs included: BenchExec gives none else
either (D. Beyer and others, *Reliable benchmarking*, 2019). On servers memory (`dram`) is
counted apart from its package; `core` and `uncore` are parts of the package's own number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.results.request import request_of
from rater.analysis.results.steady import is_steady
from rater.groups import grouped
from rater.record.stored import StoredBracket, StoredCopy, StoredRun
from rater.text.words import count, some

# RAPL counters move every millisecond: the two ends of a shorter phase are over 2 % of it.
LEAST_S = 0.1
_DOMAIN = re.compile(r"energy_(.+)_uj")
_WHOLE = re.compile(r"package-([0-9]{1,9})(?:-die-\d+)?(-dram)?")  # together all of a package
_PSYS = "psys"


@dataclass(frozen=True, slots=True)
class PhaseEnergy:
    """The energy of one phase; `joules` None: `reason` tells why it is not given."""

    phase: int
    benchmark: str | None  # None: several (rotated order)
    iteration: int | None
    counted: bool
    elapsed_s: float  # between the two readings
    bracket_s: float | None  # None: not known, or a window, whose length is no result
    domains: tuple[tuple[str, float], ...]  # joules of each, by name, whoever drew them
    packages: tuple[tuple[int | None, float], ...]  # joules of those with copies; None: of all
    copy_runs: int  # that ended in the phase
    reason: str | None

    @property
    def joules(self) -> float | None:
        """Of the packages that copies were on, with their memory."""
        return None if self.reason else sum(joules for _, joules in self.packages)

    @property
    def watts(self) -> float | None:
        """Mean power between the readings."""
        return None if self.joules is None else self.joules / self.elapsed_s

    @property
    def energy_delay_js(self) -> float | None:
        """Energy-delay product: joules x bracket in seconds; less is better."""
        if self.joules is None or self.bracket_s is None:
            return None
        return self.joules * self.bracket_s


def phase_energies(run: StoredRun) -> tuple[PhaseEnergy, ...]:
    """Return the energy of every phase that has readings of it, by phase."""
    if not any(_joules(it.values) for it in run.machine_readings):
        return ()
    run = run.without_torn()
    copies = grouped((copy.phase, copy) for copy in run.copies)
    brackets = {bracket.phase: bracket for bracket in run.brackets}
    read = {it.phase: _joules(it.values) for it in run.machine_readings}
    names = {name for joules in read.values() for name in joules}
    found = []
    for it in run.machine_readings:
        joules, elapsed_ns = read[it.phase], dict(it.values).get("elapsed_ns")
        if joules and elapsed_ns:
            gone = sorted(names - joules.keys())
            own = copies.get(it.phase, [])
            energy = _phase(
                *(run, brackets[it.phase], own),
                elapsed_s=elapsed_ns / 1e9,
                domains=joules,
                gone=gone,
            )
            found.append(energy)
    return tuple(found)


def _joules(values: Iterable[tuple[str, int]]) -> dict[str, float]:
    found = ((_DOMAIN.fullmatch(name), microjoules) for name, microjoules in values)
    return {match[1]: microjoules / 1e6 for match, microjoules in found if match}


def copy_estimates(run: StoredRun) -> dict[tuple[int, int, int], float]:
    """Return joules by phase, copy and step: its package's, by its share of the copies' CPU time.

    An estimate: watts a CPU second differ between programs, and idle power is shared out as well.
    Copies of a package have none where the CPU time of one is not known.
    """
    run = run.without_torn()
    copies = grouped((copy.phase, copy) for copy in run.copies)
    found: dict[tuple[int, int, int], float] = {}
    for energy in phase_energies(run):
        if energy.joules is None:
            continue
        for package, joules in energy.packages:
            there = [c for c in copies.get(energy.phase, ()) if package in (None, c.package)]
            times_ns = [copy.cpu_ns for copy in there if copy.cpu_ns is not None]
            total_ns = sum(times_ns)
            if total_ns and len(times_ns) == len(there):
                for copy in there:
                    share = (copy.cpu_ns or 0) / total_ns
                    found[copy.phase, copy.copy, copy.step] = joules * share
    return found


def _phase(
    run: StoredRun,
    bracket: StoredBracket,
    copies: Sequence[StoredCopy],
    *,
    elapsed_s: float,
    domains: Mapping[str, float],
    gone: Sequence[str],
) -> PhaseEnergy:
    whole: defaultdict[int | None, float] = defaultdict(float)
    for name, joules in domains.items():
        if match := _WHOLE.fullmatch(name):
            whole[int(match[1])] += joules
    if not whole and _PSYS in domains:
        whole[None] = domains[_PSYS]
    # A copy that is not bound may have been on any package.
    asked = {copy.package for copy in copies}
    anywhere = not asked or None in asked or None in whole
    packages = [it for it in whole if anywhere or it in asked]
    lost = [name for name in gone if _WHOLE.fullmatch(name)]
    lost += [] if anywhere else [f"package {it}" for it in asked if it not in whole]
    reason: str | None
    if elapsed_s < LEAST_S:
        reason = f"counters move every millisecond: a phase below {LEAST_S:g} s is too short"
    elif not whole:
        reason = "no counter is of a package as a whole"
    elif lost:
        reason = f"the counter of {some(lost)} could not be read to the end"
    else:
        reason = _not_alone(run, packages)
    return PhaseEnergy(
        *(bracket.phase, bracket.benchmark, bracket.iteration, bracket.counted),
        elapsed_s=elapsed_s,
        bracket_s=None if is_steady(run.head) else bracket.bracket_s,
        domains=tuple(sorted(domains.items())),
        packages=tuple((it, whole[it]) for it in packages),
        copy_runs=len(copies),
        reason=reason,
    )


def _not_alone(run: StoredRun, packages: Sequence[int | None]) -> str | None:
    """Return why others may have drawn part of it, None where the run had the packages alone."""
    if (request_of(run.head) or {}).get("share") is True:
        return "what ran beside it (--share) draws there too"
    machine = run.host.pus
    if machine is None or not run.host.packages:
        return None
    own = Counter(pu.package for pu in run.pus)
    every = machine // run.host.packages
    for package in packages:
        have, of = (len(run.pus), machine) if package is None else (own[package], every)
        if have < of:
            where = "the machine" if package is None else f"package {package}"
            return f"the run may use {have} of {count(of, 'CPU')} of {where}: others draw there too"
    return None
