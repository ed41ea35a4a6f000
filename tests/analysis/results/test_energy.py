"""Joules of phases and copies from readings of energy: small numbers, the answer beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rater.analysis.results.metrics import PhaseEnergy, copy_estimates, phase_energies
from rater.analysis.results.score import summarise
from rater.record.events import MachineReadings
from rater.record.run import MachinePU
from rater.record.stored import StoredRun
from tests.support.example_runs import HEAD, S, copy_row, stored

TWO = {"package-0": 300, "package-0-dram": 50, "package-0-core": 200, "package-1": 40, "psys": 900}


def drawn(*phases: dict[str, int], elapsed_s: float = 10.0, **changes: Any) -> StoredRun:
    """Two copies on the two packages of a machine, as long as each other; joules by domain."""
    copies = [
        copy_row(copy, 10.0, phase=phase, iteration=phase + 1, package=copy, cpu_ns=(copy + 1) * S)
        for phase in range(len(phases))
        for copy in (0, 1)
    ]
    run = stored(copies)
    readings = tuple(
        MachineReadings(
            phase,
            (
                ("elapsed_ns", round(elapsed_s * S)),
                *((f"energy_{name}_uj", joules * 10**6) for name, joules in domains.items()),
                ("rater_cpu_ns", 0),
            ),
        )
        for phase, domains in enumerate(phases)
    )
    pus = tuple(MachinePU(cpu, cpu, 0, cpu // 2, cpu // 2) for cpu in range(4))
    host = replace(run.host, pus=4, packages=2)
    return replace(replace(run, machine_readings=readings, pus=pus, host=host), **changes)


def of(run: StoredRun) -> PhaseEnergy:
    (energy,) = phase_energies(run)
    return energy


def test_a_phase_drew_what_its_packages_and_their_memory_did() -> None:
    """300 + 50 and 40 J: core is a part of its package, psys all of the machine."""
    energy = of(drawn(TWO))
    assert dict(energy.packages) == {0: 350, 1: 40}
    assert (energy.joules, energy.watts, energy.energy_delay_js) == (390, 39, 3900)
    assert summarise(drawn(TWO)).benchmarks[0].iterations[0].joules_per_copy == 195


def test_packages_without_copies_are_left_out() -> None:
    run = drawn(TWO)
    alone = replace(run, copies=tuple(it for it in run.copies if it.package == 1))
    assert of(alone).joules == 40
    unbound = replace(run, copies=tuple(replace(it, package=None) for it in run.copies[:1]))
    assert of(unbound).joules == 390


def test_dies_of_a_package_are_added_up_and_a_machine_has_its_own_counter() -> None:
    dies = {"package-0-die-0": 1, "package-0-die-1": 2, "package-0-die-1-dram": 4, "package-1": 8}
    assert of(drawn(dies)).packages == ((0, 7), (1, 8))
    assert of(drawn({"psys": 9})).packages == ((None, 9),)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (
            drawn(TWO, elapsed_s=0.09),
            "counters move every millisecond: a phase below 0.1 s is too short",
        ),
        (
            drawn(TWO, pus=(MachinePU(0, 0, 0, 0, 0), MachinePU(1, 1, 0, 0, 0))),
            "the run may use 0 of 2 CPUs of package 1: others draw there too",
        ),
        (
            drawn(TWO, head=replace(HEAD, request='{"share": true}')),
            "what ran beside it (--share) draws there too",
        ),
        (drawn({"package-0": 1}), "the counter of package 1 could not be read to the end"),
        (drawn({"power_meter-energy1": 1}), "no counter is of a package as a whole"),
    ],
)
def test_where_joules_would_not_be_the_runs_own_the_reason_is_given(
    run: StoredRun, reason: str
) -> None:
    energy = of(run)
    assert (energy.joules, energy.watts, energy.energy_delay_js) == (None, None, None)
    assert energy.reason == reason
    assert copy_estimates(run) == {}
    assert summarise(run).joules is None


def test_a_phase_in_which_a_counter_of_others_vanished_has_none() -> None:
    first, then = phase_energies(drawn(TWO, {"package-0": 1, "package-1": 1, "psys": 1}))
    assert first.joules == 390
    assert then.reason == "the counter of package-0-dram could not be read to the end"


def test_runs_without_readings_of_energy_have_none() -> None:
    assert phase_energies(drawn({})) == ()
    assert phase_energies(stored([copy_row(0, 1.0)])) == ()


def test_copies_share_their_package_by_cpu_time() -> None:
    """Both on package 0, 1 s and 2 s of CPU time: a third and two thirds of 350 J."""
    run = drawn(TWO)
    together = replace(run, copies=tuple(replace(it, package=0) for it in run.copies))
    estimates = copy_estimates(together)
    assert estimates == {(0, 0, 0): pytest.approx(350 / 3), (0, 1, 0): pytest.approx(700 / 3)}
    unknown = replace(together, copies=tuple(replace(it, cpu_ns=None) for it in together.copies))
    assert copy_estimates(unknown) == {}


def test_the_suites_energy_is_of_the_iterations_that_stand_for_benchmarks() -> None:
    """Of two iterations of 10 s the first stands for it."""
    summary = summarise(replace(drawn(TWO, TWO | {"package-1": 41}), head=HEAD))
    (chosen,) = [it for it in summary.benchmarks[0].iterations if it.selected]
    assert summary.joules == (390 if chosen.iteration == 1 else 391)
