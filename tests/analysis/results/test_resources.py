"""Energy, memory, counts and CPU time of a run: small numbers, the answer beside them."""

from __future__ import annotations

import random
from math import fsum
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.results.copies import MemoryCell, Point, PointRun, memory_rows
from rater.analysis.results.counters import BenchmarkCounts, Rates, metrics_of, run_counts, stack_of
from rater.analysis.results.cpu_use import CpuUse, DisturbanceKind, MachineDisturbance, run_counters
from rater.analysis.results.metrics import copy_estimates, phase_energies
from rater.analysis.results.result import PhaseEnergy
from rater.analysis.results.score import summarise
from rater.plan.counter_tables import TABLE_TEXT, load_table, table_names
from rater.record.events import CopyEnded, CpuReading, EventCount, MachineReadings
from rater.record.run import CopyStatus, MachinePU
from rater.record.stored import StoredRun
from rater.show.results.cpu_use import missed_text
from tests.support.counted_runs import SKX, STACK, counted_run, group_counts
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import HEAD, S, copy_row, reading, stored

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
    pus = tuple(
        MachinePU(cpu=cpu, core=cpu, llc=0, node=cpu // 2, package=cpu // 2) for cpu in range(4)
    )
    host = replace(run.host, pus=4, packages=2)
    return replace(replace(run, machine_readings=readings, pus=pus, host=host), **changes)


def energy_of(run: StoredRun) -> PhaseEnergy:
    (energy,) = phase_energies(run)
    return energy


def test_a_phase_drew_what_its_packages_and_their_memory_did() -> None:
    """300 + 50 and 40 J: core is a part of its package, psys all of the machine."""
    energy = energy_of(drawn(TWO))
    assert dict(energy.packages) == {0: 350, 1: 40}
    assert (energy.joules, energy.watts, energy.energy_delay_js) == (390, 39, 3900)
    assert summarise(drawn(TWO)).benchmarks[0].iterations[0].joules_per_copy == 195


@pytest.mark.parametrize(
    ("watts", "above_j"),
    [
        # 390 J in ten seconds: of both packages and their memory.
        ({"given": "20"}, 190.0),
        ({"package-0": "10", "package-0-dram": "1", "package-1": "2", "psys": "80"}, 260.0),
        ({"package-0": "10"}, None),  # what the other draws is not known
        ({"package-0": "30", "package-1": "10"}, None),  # more than copies drew: it did not idle
        ({"given": "0"}, None),
        ({"given": "cold"}, None),
        ({}, None),
    ],
)
def test_energy_above_idle_is_without_what_packages_draw_by_themselves(
    watts: dict[str, str], above_j: float | None
) -> None:
    settings = tuple((f"rater.idle_watts.{name}", text) for name, text in watts.items())
    energy = energy_of(drawn(TWO, settings=settings))
    assert (energy.joules, energy.above_idle_j) == (390.0, above_j)


def test_a_machine_of_one_counter_has_the_idle_power_of_that() -> None:
    settings = (("rater.idle_watts.psys", "80"), ("rater.idle_watts.package-0", "10"))
    energy = energy_of(drawn({"psys": 900}, settings=settings))
    assert (energy.joules, energy.above_idle_j) == (900.0, 100.0)


def test_packages_without_copies_are_left_out() -> None:
    run = drawn(TWO)
    alone = replace(run, copies=tuple(copy for copy in run.copies if copy.package == 1))
    assert energy_of(alone).joules == 40
    unbound = replace(run, copies=tuple(replace(copy, package=None) for copy in run.copies[:1]))
    assert energy_of(unbound).joules == 390


def test_dies_of_a_package_are_added_up_and_a_machine_has_its_own_counter() -> None:
    dies = {"package-0-die-0": 1, "package-0-die-1": 2, "package-0-die-1-dram": 4, "package-1": 8}
    assert energy_of(drawn(dies)).packages == ((0, 7), (1, 8))
    assert energy_of(drawn({"psys": 9})).packages == ((None, 9),)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (
            drawn(TWO, elapsed_s=0.09),
            "counters move every millisecond: a phase below 0.1 s is too short",
        ),
        (
            drawn(
                TWO,
                pus=(
                    MachinePU(cpu=0, core=0, llc=0, node=0, package=0),
                    MachinePU(cpu=1, core=1, llc=0, node=0, package=0),
                ),
            ),
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
    energy = energy_of(run)
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


def test_a_counter_of_a_whole_machine_that_never_moves_is_none() -> None:
    """As psys of virtual machines: 0 J would be a number that nobody measured."""
    assert phase_energies(drawn({"psys": 0}, {"psys": 0})) == ()
    first, then = phase_energies(drawn({"psys": 0}, {"psys": 9}))
    assert [first.packages, then.packages] == [((None, 0),), ((None, 9),)]
    beside = energy_of(drawn({"psys": 0, "package-0": 3, "package-1": 4, "package-1-core": 0}))
    assert beside.domains == (("package-0", 3), ("package-1", 4), ("package-1-core", 0))


def test_copies_share_their_package_by_cpu_time() -> None:
    """Both on package 0, 1 s and 2 s of CPU time: a third and two thirds of 350 J."""
    run = drawn(TWO)
    together = replace(run, copies=tuple(replace(copy, package=0) for copy in run.copies))
    estimates = copy_estimates(together)
    assert estimates == {(0, 0, 0): pytest.approx(350 / 3), (0, 1, 0): pytest.approx(700 / 3)}
    unknown = replace(
        together, copies=tuple(replace(copy, cpu_ns=None) for copy in together.copies)
    )
    assert copy_estimates(unknown) == {}


def test_the_suites_energy_is_of_the_iterations_that_stand_for_benchmarks() -> None:
    """Of two iterations of 10 s the first stands for it."""
    summary = summarise(replace(drawn(TWO, TWO | {"package-1": 41}), head=HEAD))
    (chosen,) = [iteration for iteration in summary.benchmarks[0].iterations if iteration.selected]
    assert summary.joules == (390 if chosen.iteration == 1 else 391)


def looked_at(copy: int, mean: int | None, peak: int | None, kept: int | None) -> CopyEnded:
    looks = None if mean is None else 3
    return copy_row(
        copy, 10.0, mean_rss_bytes=mean, peak_rss_bytes=peak, max_rss_bytes=kept, rss_looks=looks
    )


def point(label: str, *copies: CopyEnded) -> Point:
    return Point(label, (), (PointRun(stored(copies), None),))


def test_copies_are_averaged_and_the_most_of_any_is_taken() -> None:
    """Looks know of hugetlb pages, the kernel's maximum does not; failed copies do not count."""
    base = point("base", looked_at(0, 100, 150, 160), looked_at(1, 300, 350, None))
    huge = point(
        "huge",
        looked_at(0, 800, 900, 10),
        copy_row(1, 1.0, status=CopyStatus.FAILED, mean_rss_bytes=9999, rss_looks=1),
    )
    short = point("short", looked_at(0, None, None, 70))
    (row,) = memory_rows([base, huge, short])
    assert row.benchmark == "a"
    assert row.cells == (
        MemoryCell(200.0, 350, 6, 2),
        MemoryCell(800.0, 900, 3, 1),
        MemoryCell(None, 70, 0, 1),
    )


def only(run: StoredRun) -> BenchmarkCounts:
    [found] = run_counts(run).benchmarks
    return found


def test_groups_of_several_iterations_make_one_stack() -> None:
    workload = only(counted_run())
    assert workload.rates
    assert workload.rates.cpi == pytest.approx(2.0)
    assert workload.rates.ghz == pytest.approx(3.0)  # 2000 and 4000 cycles in 1000 ns each
    assert workload.rates.instructions == 1500
    assert workload.stack
    assert {part.name: part.cycles for part in workload.stack.parts} == pytest.approx(STACK)
    assert (workload.stack.excess, workload.stack.missing) == (0.0, ("stores", "smt"))
    assert dict(workload.metrics) == pytest.approx(
        {"llc_mpki": 20.0, "branch_mpki": 4.0, "walk_cycles": 0.2, "remote_dram_share": 0.25}
    )
    assert workload.cpi_spread == pytest.approx(0.0)
    assert [
        (group.name, group.iterations, group.runs, group.share) for group in workload.groups
    ] == [
        (f"{SKX}:{name}", (number,), 2, 1.0)
        for number, name in enumerate(("pipeline", "memory", "translation", "numa"), 1)
    ]
    assert run_counts(counted_run()).cost_us == pytest.approx(60.0)


def test_each_count_is_divided_by_the_instructions_of_its_own_run() -> None:
    run = counted_run(("pipeline", "memory"))
    slow = tuple(
        replace(copy, counts=group_counts("memory", 1 + copy.copy, cycles=3000))
        if copy.iteration == 2
        else copy
        for copy in run.copies
    )
    workload = only(replace(run, copies=slow))
    assert workload.rates
    assert workload.rates.cpi == pytest.approx(2.5)
    assert workload.cpi_spread == pytest.approx(0.4)
    assert workload.stack
    assert workload.stack.missing == ("translation", "l1", "stores", "smt")
    assert workload.stack.parts[-1].cycles == pytest.approx(
        2.5 - 0.3 - 0.1 - 0.05 - 0.2 - 0.2 - 0.5
    )


def test_what_was_counted_for_a_part_of_the_time_is_scaled_and_told() -> None:
    found = only(counted_run(running=0.5))
    assert found.rates
    assert found.rates.instructions == pytest.approx(1500)
    assert found.rates.ghz == pytest.approx(3.0)
    assert {group.share for group in found.groups} == {0.5}


def test_user_mode_alone_has_no_clock_as_its_time_is_of_the_kernel_too() -> None:
    run = counted_run(end=":u")
    found = only(run)
    assert run_counts(run).user_only
    assert found.rates
    assert found.rates.cpi == pytest.approx(2.0)
    assert found.rates.ghz is None
    assert found.stack


def test_a_group_that_was_never_counted_is_none_and_not_0() -> None:
    never = tuple(replace(count, value=None, running_ns=0) for count in group_counts("numa"))
    found = only(replace(counted_run(), copies=(copy_row(0, 1.0, counts=never),)))
    assert (found.rates, found.stack, found.metrics) == (None, None, ())
    assert [(group.share, group.cpi, group.means) for group in found.groups] == [(0.0, None, ())]


def test_copies_that_failed_or_do_not_count_are_left_out() -> None:
    run = counted_run(("pipeline",))
    failed = tuple(replace(copy, status=CopyStatus.FAILED) for copy in run.copies)
    discarded = tuple(replace(copy, counted=False) for copy in run.copies)
    assert not run_counts(replace(run, copies=failed + discarded)).benchmarks


def test_a_damaged_table_leaves_what_needs_no_table() -> None:
    found = only(replace(counted_run(), settings=((f"{TABLE_TEXT}{SKX}", "[pmu"),)))
    assert found.rates
    assert found.rates.cpi == pytest.approx(2.0)
    assert (found.stack, found.metrics) == (None, ())


def test_parts_and_metrics_without_bounds_are_left_out_and_the_rest_stays_finite() -> None:
    text = load_table(SKX).text
    for formula in ("l3_miss", "dram_remote / (dram_local + dram_remote)"):
        text = text.replace(f'= "{formula}"', f'= "{" * ".join(["1e12"] * 27)}"')
    found = only(replace(counted_run(), settings=((f"{TABLE_TEXT}{SKX}", text),)))
    assert found.stack
    assert fsum(part.cycles for part in found.stack.parts) == pytest.approx(2.0)
    assert "llc_mpki" in dict(found.metrics)
    assert "remote_dram_share" not in dict(found.metrics)


def test_software_events_are_means_of_a_copy_run() -> None:
    counts = (
        EventCount(
            group_name="software:software",
            event="minor_faults",
            value=500,
            enabled_ns=10,
            running_ns=10,
        ),
    )
    found = only(stored([copy_row(0, 1.0, counts=counts), copy_row(1, 1.0, counts=counts)]))
    assert found.rates is None
    assert found.groups[0].means == (("minor_faults", 500.0),)


def test_the_parts_of_every_stack_add_up_to_the_cpi_whatever_was_counted() -> None:
    chance = random.Random(16)
    scaled = 0
    for name in table_names():
        table = load_table(name)
        events = sorted({event.name for group in table.groups for event in group.events})
        for _ in range(200 if table.stack else 0):
            sizes = {event: 10 ** chance.uniform(-6, 2) for event in events}
            zero = {event: 0.0 for event in events if chance.random() < 0.1}
            rates = Rates({**sizes, **zero, "instructions": 1.0}, 1e9, 3.0)
            found = stack_of(table, rates)
            assert min(part.cycles for part in found.parts) >= 0
            total = fsum(part.cycles for part in found.parts)
            assert total == pytest.approx(rates.cpi, rel=1e-12, abs=1e-12)
            scaled += found.excess > 0
            assert all(value >= 0 for value in metrics_of(table, rates).values())
    assert scaled > 100


def uses(run: StoredRun) -> list[CpuUse]:
    return list(run_counters(run).cpus)


def foreign(run: StoredRun) -> list[float | None]:
    return [None if use.foreign is None else round(use.foreign, 6) for use in uses(run)]


def matters(run: StoredRun) -> dict[DisturbanceKind, MachineDisturbance]:
    return {one.matter: one for one in run_counters(run).notable}


def test_shares_are_of_the_time_between_both_readings() -> None:
    row = reading(
        5, 6.0, 1.0, irq_ns=S, iowait_ns=2 * S, steal_ns=S // 2, mean_khz=2_500_000, interrupts=300
    )
    [use] = uses(read_run([computed(0, 4.0, cpu=5)], row))
    assert (use.cpu, use.node, use.copies, use.together) == (5, 1, (0,), 1)
    assert (use.busy, use.irq, use.iowait, use.steal) == (0.8, 0.1, 0.2, 0.05)
    assert use.foreign == pytest.approx(0.3)  # 7 s of work, 4 s of it the copy's
    assert (use.mean_mhz, use.interrupts_per_s, use.throttles) == (2500.0, 30.0, None)


def test_all_copies_of_a_cpu_are_its_own_and_a_cpu_without_copies_has_none() -> None:
    run = read_run(
        [computed(0, 3.0, cpu=1), computed(1, 4.0, cpu=1)], reading(0, 1.0), reading(1, 9.0)
    )
    assert foreign(run) == [0.1, 0.2]
    assert [use.copies for use in uses(run)] == [(), (0, 1)]
    # What the kernel rounds is no foreign load below nothing.
    assert foreign(read_run([computed(0, 5.01)], reading(0, 5.0))) == [0.0]


def test_ticks_that_come_to_more_than_the_time_there_was_are_no_more_than_all_of_it() -> None:
    others, own = uses(read_run([computed(0, 4.0, cpu=1)], reading(0, 10.4), reading(1, 10.3)))
    assert (others.busy, others.foreign) == (1.0, 1.0)
    assert (own.busy, own.foreign) == (1.0, 0.6)


def test_a_cpu_that_was_less_busy_than_its_copy_alone_says_nothing_of_others() -> None:
    run = read_run([computed(0, 9.4), computed(1, 5.5)], reading(0, 1.7), reading(1, 5.0))
    first, second = uses(run)
    assert (first.busy, first.copies_used) == pytest.approx((0.17, 0.94))
    assert first.foreign is None
    # Half a second in ten is what ticks may miss.
    assert (second.copies_used, second.foreign) == (None, 0.0)
    missed = run_counters(run).missed
    assert missed is not None
    assert missed_text(missed) == (
        "The CPU statistics of this machine miss work: CPU 0 was busy 17 % by them, and copies "
        "alone used 94 % of it. Foreign load is not known there."
    )
    stolen = read_run([computed(0, 9.4)], replace(reading(0, 1.7), steal_ns=8 * S))
    assert foreign(stolen) == [0.0]


def test_cpus_that_the_same_copies_may_use_share_their_foreign_load() -> None:
    rows = [reading(0, 9.0), reading(1, 2.0), reading(2, 4.0), reading(3, 1.0)]
    # Copies 0 and 1 have CPUs 0-1 and 1-2 and so all three: 15 s of work, 9 s are theirs.
    copies = [computed(0, 4.0), computed(1, 5.0)]
    run = read_run(copies, *rows, masks=[(0, 1), (1, 2)])
    assert foreign(run) == [0.2, 0.2, 0.2, 0.1]
    assert [use.together for use in uses(run)] == [3, 3, 3, 1]


def test_copies_that_are_not_bound_may_use_all_cpus() -> None:
    copies = [computed(0, 4.0, cpu=None), computed(1, 4.0, cpu=None)]
    run = read_run(copies, reading(0, 5.0), reading(1, 5.0))
    assert foreign(run) == [0.1, 0.1]
    assert [use.copies for use in uses(run)] == [(0, 1), (0, 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": CopyStatus.TIMEOUT},
        {"status": CopyStatus.INTERRUPTED},
        {"status": CopyStatus.FAILED, "exit_code": None, "signal": 9},
        {"note": "left processes behind in its process group; they were killed"},
    ],
)
def test_where_not_all_of_a_copys_time_is_known_neither_is_the_foreign_load(
    changes: dict[str, Any],
) -> None:
    run = read_run(
        [computed(0, 4.0, **changes), computed(1, 4.0)], reading(0, 9.0), reading(1, 9.0)
    )
    assert foreign(run) == [None, 0.5]


def test_others_had_at_least_what_a_copy_that_was_ended_cannot_have_used() -> None:
    killed = replace(computed(0, 0.5, status=CopyStatus.TIMEOUT), elapsed_ns=2 * S)
    assert foreign(read_run([killed], reading(0, 9.0))) == [0.7]


def test_a_copy_that_bound_itself_ran_where_it_was_seen() -> None:
    """Copy 1 was put on CPU 1; both worked on CPU 0, and on CPU 1 somebody else."""
    run = read_run(
        [computed(0, 5.0), computed(1, 5.0, last_cpu=0)], reading(0, 10.0), reading(1, 4.0)
    )
    assert foreign(run) == [0.0, 0.4]
    assert [use.copies for use in uses(run)] == [(0, 1), ()]


def test_others_work_is_no_matter_where_no_copy_waited_for_the_cpu() -> None:
    waited = {
        delay: computed(0, 4.0, run_delay_ns=delay, run_delay_cpu_ns=4 * S) for delay in (0, S)
    }
    told = {
        delay: [it.matter for it in run_counters(read_run([copy], reading(0, 9.0))).notable]
        for delay, copy in waited.items()
    }
    assert told == {0: [], S: [DisturbanceKind.FOREIGN]}


def test_a_quota_that_is_used_up_is_told() -> None:
    quota = {"cfs_periods": 100, "cfs_throttled_periods": 90, "cfs_throttled_ns": 5 * S}
    (one,) = run_counters(
        read_run([computed(0, 4.0)], reading(0, 4.0), masks=None, **quota)
    ).notable
    assert (one.matter, one.share) == (DisturbanceKind.QUOTA, 0.9)


def test_later_runs_of_a_queue_had_their_gate_in_the_phase_and_fillers_are_no_foreign_load() -> (
    None
):
    first = replace(computed(0, 2.0), user_ns=3 * S)  # 1 s of gate, before the release
    then = replace(computed(0, 2.0, step=1), user_ns=3 * S)
    run = read_run([first, then], reading(0, 7.0, filler_ns=S))
    assert foreign(run) == [0.1]  # 7 s less 2 s, 3 s, and 1 s of fillers


def test_a_copy_counts_where_it_ran_though_its_run_went_on_elsewhere() -> None:
    run = read_run([computed(0, 4.0, cpu=1)], reading(1, 4.0), reading(2, 0.0), masks=[(2,)])
    run = replace(run, placements=(replace(run.placements[0], cpu=2),))
    assert [use.copies for use in uses(run)] == [(0,), ()]


def test_a_torn_attempt_has_no_readings() -> None:
    run = read_run([computed(0, 4.0), computed(0, 4.0, phase=1)], reading(0, 9.0))
    torn = replace(run, brackets=(replace(run.brackets[0], torn=True), run.brackets[1]))
    assert [use.phase for use in uses(torn)] == [1]
    assert [it.phase for it in run_counters(torn).machine] == [1]


def test_a_run_without_readings_says_nothing() -> None:
    result = run_counters(stored([computed(0, 4.0)]))
    assert (result.cpus, result.machine, result.notable) == ((), (), ())


# -- what is notable -------------------------------------------------------------------------------


def test_foreign_load_names_the_cpu_with_most_and_all_that_have_it() -> None:
    copies = [
        computed(copy, 5.0, phase=phase, iteration=phase + 1)
        for phase in range(2)
        for copy in range(3)
    ]
    run = read_run(copies, reading(0, 5.1), reading(1, 5.3), reading(2, 8.0))
    assert matters(run) == {
        DisturbanceKind.FOREIGN: MachineDisturbance(
            matter=DisturbanceKind.FOREIGN,
            phase=0,
            benchmark="a",
            iteration=1,
            cpu=2,
            share=0.3,
            times=None,
            cpus=(1, 2),
            phases=2,
        )
    }


@pytest.mark.parametrize(
    ("copy", "rows", "counters"),
    [
        # A quiet machine: 1.5 % and 0.9 %; CPU 1 has no copy.
        (
            computed(0, 10.0),
            [reading(0, 10.15, steal_ns=S // 11), reading(1, 9.0)],
            {"pswpin": 0, "pressure_memory_some_ns": S // 11},
        ),
        # What rater itself used is not held against others.
        (computed(0, 5.0), [reading(0, 5.3)], {"rater_cpu_ns": S // 5}),
        # A few ticks of a short phase: 4 %.
        (computed(0, 0.5), [reading(0, 0.54, steal_ns=S // 25)], {"elapsed_ns": S}),
        # An iteration that does not count: 40 %.
        (computed(0, 5.0, counted=False), [reading(0, 9.0)], {}),
    ],
)
def test_what_is_little_or_does_not_count_is_not_notable(
    copy: CopyEnded, rows: list[CpuReading], counters: dict[str, Any]
) -> None:
    run = read_run([copy], *rows, **counters)
    assert any(foreign(run))
    assert run_counters(run).notable == ()


def test_steal_heat_swap_and_waits_for_memory_are_told_where_they_were_worst() -> None:
    rows = [
        reading(0, 5.0, steal_ns=S // 2, throttles=0),
        reading(1, 5.0, steal_ns=S // 4, throttles=7),
    ]
    copies = [computed(0, 5.0), computed(1, 5.0)]
    troubles = matters(read_run(copies, *rows, pswpin=2, pswpout=3, pressure_memory_some_ns=S))
    steal, hot = troubles[DisturbanceKind.STEAL], troubles[DisturbanceKind.THROTTLED]
    assert (steal.cpu, steal.share, steal.cpus) == (0, 0.05, (0, 1))
    assert (hot.cpu, hot.times, hot.cpus) == (1, 7, (1,))
    assert (troubles[DisturbanceKind.SWAP].cpu, troubles[DisturbanceKind.SWAP].times) == (None, 5)
    assert (troubles[DisturbanceKind.MEMORY].share, troubles[DisturbanceKind.MEMORY].times) == (
        0.1,
        None,
    )
    assert list(troubles) == [
        DisturbanceKind.STEAL,
        DisturbanceKind.THROTTLED,
        DisturbanceKind.SWAP,
        DisturbanceKind.MEMORY,
    ]


def test_without_pressure_the_waits_for_memory_are_counted() -> None:
    found = matters(read_run([computed(0, 5.0)], reading(0, 5.0), allocstall=12))
    assert (found[DisturbanceKind.MEMORY].share, found[DisturbanceKind.MEMORY].times) == (None, 12)
    known = read_run([computed(0, 5.0)], reading(0, 5.0), allocstall=12, pressure_memory_some_ns=0)
    assert matters(known) == {}
