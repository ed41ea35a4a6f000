"""Curves of stored runs: placements, speedup, efficiency, SMT, rotated order, what is alike."""

import io
import math
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.compare.falls import first_slow
from rater.analysis.compare.scaling import Curve, Scaling, scaling_curves
from rater.analysis.compare.scaling_samples import orders, smt_yields
from rater.analysis.results.copies import CpusUsed, Point, PointRun, Share, cpus_used, fair_copies
from rater.analysis.stats.curves import NoLaw, Usl
from rater.record.run import CopyStatus, MachinePU, RunStatus
from rater.record.stored import StoredRun
from rater.show.compare.scaling import scaling_parts
from rater.show.screen.console import Printer, TextScreen
from rater.show.screen.document import print_parts
from tests.support.example_runs import copy_row, in_turn, stored, with_energy

# Two lgroups of two cores with two threads each; CPUs 0-3 are the first threads.
PUS = tuple(
    MachinePU(cpu=cpu, core=cpu % 4, llc=cpu % 4 // 2, node=cpu % 4 // 2, package=0)
    for cpu in range(8)
)


def run(
    number: int, cpus: Sequence[int], seconds: dict[str, float], **changes: object
) -> StoredRun:
    """A run with a copy on each of these CPUs; seconds by benchmark, references of 10 s."""
    rows = [
        copy_row(copy, s, phase=phase, benchmark=name, cpu=cpu, core=cpu % 4, node=cpu % 4 // 2)
        for phase, (name, s) in enumerate(seconds.items())
        for copy, cpu in enumerate(cpus)
    ]
    head = {"run": number, "copies": len(cpus), **changes}
    return replace(stored(rows, **head), pus=PUS)  # type: ignore[arg-type]  # head fields by name


def scaled(*runs: StoredRun) -> Scaling:
    points = [Point(f"run {run.head.run}", (), (PointRun(run, None),)) for run in runs]
    return scaling_curves(points)


def curve(*runs: StoredRun) -> Curve:
    (only,) = scaled(*runs).curves
    return only


def test_where_copies_were_placed() -> None:
    alone = cpus_used(run(1, [0, 2], {"a": 1.0}))
    assert (alone.share, alone.per_core) == (Share.CORES, (1, 1))
    assert (alone.lgroups, alone.threads) == ((1, 1), 2)
    threads = cpus_used(run(1, [0, 4, 1], {"a": 1.0}))
    assert (threads.share, threads.cores, threads.per_core) == (Share.THREADS, (0, 1), (1, 2))
    assert (threads.even, threads.lgroups) == (None, (3,))
    assert cpus_used(run(1, [0, 0], {"a": 1.0})).share is Share.CPUS
    assert cpus_used(run(1, [0] * 9, {"a": 1.0})).share is Share.CPUS
    rows = [copy_row(copy, 1.0, cpu=None, core=None, node=None) for copy in range(3)]
    assert cpus_used(stored(rows, copies=3)).share is Share.UNKNOWN
    # Not bound, but more than there are CPUs: they share them wherever they run.
    assert cpus_used(replace(stored(rows, copies=3), pus=PUS[:2])).share is Share.CPUS


def test_energy_of_a_copy_stands_beside_its_rate() -> None:
    """Two copies draw 30 J in both benchmarks, one drew 20: 15 J a copy where it was 20."""
    one, two = run(1, [0], {"a": 1.0, "b": 1.0}), run(2, [0, 1], {"a": 1.0, "b": 1.0})
    every, *_ = curve(with_energy(one, 20, 20), with_energy(two, 30, 30)).series
    assert [point.joules_per_copy for point in every.points] == pytest.approx([40, 30])
    every, *_ = curve(with_energy(one, 20), two).series
    assert [at.joules_per_copy for at in every.points] == [None, None]


def test_one_kind_of_copies_ends_where_cores_are_shared() -> None:
    def places(copies: int, share: Share) -> CpusUsed:
        return CpusUsed(
            copies=copies,
            share=share,
            cores=None,
            per_core=None,
            threads=None,
            lgroups=None,
            used_cpus=None,
            cpus=None,
            machine_cores=None,
        )

    kinds = [places(1, Share.CORES), places(2, Share.CORES), places(4, Share.THREADS)]
    assert fair_copies(kinds) == 2
    packed = [places(1, Share.CORES), places(2, Share.THREADS), places(4, Share.THREADS)]
    assert fair_copies([*packed, places(9, Share.CPUS)]) == 4
    assert fair_copies([places(9, Share.CPUS)]) == 9


def test_speedup_efficiency_and_gain() -> None:
    # Rates n x 10 / s: 1, 2 x 10 / 12.5 = 1.6, 4 x 10 / 20 = 2
    scaling = curve(
        run(1, [0], {"a": 10.0}), run(2, [0, 2], {"a": 12.5}), run(3, [0, 1, 2, 3], {"a": 20.0})
    )
    (series,) = scaling.series
    assert [point.rate for point in series.points] == pytest.approx([1.0, 1.6, 2.0])
    assert [point.speedup for point in series.points] == pytest.approx([1.0, 1.6, 2.0])
    assert [point.efficiency for point in series.points] == pytest.approx([1.0, 0.8, 0.5])
    assert [point.gain for point in series.points] == [None, pytest.approx(0.6), pytest.approx(0.2)]
    assert scaling.copies == (1, 2, 4)
    assert isinstance(series.law, NoLaw)
    # Without one copy the smallest number stands for it.
    scaling = curve(run(1, [0, 1], {"a": 10.0}), run(2, [0, 1, 2, 3], {"a": 12.5}))
    first, last = scaling.series[0].points
    assert first.efficiency == 1.0
    assert (last.speedup, last.efficiency) == pytest.approx((1.6, 0.8))
    # Several runs of one number are one point, with a geometric mean.
    several = (
        run(2 + number, [0, 1], {"a": time_s}) for number, time_s in enumerate((20.0, 10.0, 12.5))
    )
    point = curve(run(1, [0], {"a": 10.0}), *several).series[0].points[1]
    assert (point.rates, point.runs) == ((1.0, 2.0, 1.6), (2, 3, 4))
    assert point.rate == pytest.approx(3.2 ** (1 / 3))


def test_linear_per_lgroup_is_what_the_lgroups_do_alone() -> None:
    # Two copies on one lgroup fight for its memory: 1.2 instead of 2; on both lgroups 2.1.
    scaling = curve(
        run(1, [0], {"a": 10.0}),
        run(2, [0, 1], {"a": 20 / 1.2}),
        run(3, [0, 1, 2], {"a": 30 / 2.2}),
        run(4, [0, 1, 2, 3], {"a": 40 / 2.1}),
    )
    shares = [point.per_lgroup for point in scaling.series[0].points]
    assert shares[:2] == [None, None]  # one lgroup
    assert shares[2] == pytest.approx(2.2 / (1.2 + 1.0))
    assert shares[3] == pytest.approx(2.1 / (1.2 + 1.2))


def test_suites_are_geometric_means_over_what_has_a_result_everywhere() -> None:
    def both(number: int, cpus: Sequence[int], a: float, b: float, **changes: object) -> StoredRun:
        made = run(number, cpus, {"a": a, "b": b, "c": 10.0}, **changes)
        kinds = {"a": "int", "b": "int", "c": "fp"}
        used = tuple(
            replace(benchmark, category=kinds[benchmark.name]) for benchmark in made.benchmarks
        )
        return replace(made, benchmarks=used)

    failing = both(2, [0, 1], 12.5, 20.0)
    rows = [
        replace(row, status=CopyStatus.FAILED, exit_code=1) if row.benchmark == "c" else row
        for row in failing.copies
    ]
    failing = replace(
        failing, copies=tuple(rows), head=replace(failing.head, status=RunStatus.FAILED)
    )
    scaling = curve(both(1, [0], 10.0, 10.0), failing)
    suite, *benchmarks = scaling.series
    assert (suite.name, suite.over) == ("all", ("a", "b"))
    assert [point.rate for point in suite.points] == pytest.approx([1.0, (1.6 * 1.0) ** 0.5])
    assert [benchmark.name for benchmark in benchmarks] == ["a", "b", "c"]
    assert [len(benchmark.points) for benchmark in benchmarks] == [2, 2, 1]
    told = " | ".join(scaling.lacking)
    assert "run 2 (2 copies): failed, what it finished counts" in told
    assert "run 2 (2 copies): c: " in told
    assert "c is not in the geometric means: no result with 2 copies" in told


def test_without_references_rates_are_copies_per_hour() -> None:
    one = run(1, [0], {"a": 10.0}, reference_s=None)
    series = curve(one, run(2, [0, 1], {"a": 12.0}, reference_s=None)).series[0]
    assert series.unit == "copies/hour"
    assert [point.rate for point in series.points] == pytest.approx([360.0, 600.0])


def test_runs_that_differ_in_more_than_copies_are_curves_of_their_own() -> None:
    scaling = scaled(
        run(1, [0], {"a": 10.0}),
        run(2, [0, 1], {"a": 10.0}),
        run(3, [0], {"a": 10.0}, size="ref"),
        run(4, [0, 1], {"a": 10.0}, size="ref"),
        run(5, [0, 1], {"a": 10.0}, layout="compact"),
    )
    assert [curve.name for curve in scaling.curves] == [
        "size=test, layout=balanced",
        "size=ref, layout=balanced",
    ]
    assert tuple(map(str, scaling.alone)) == (
        "run 5 (size=test, layout=compact): nothing else like it has another number of copies "
        "than 2",
    )


def test_other_axes_of_a_sweep_are_curves_of_their_own() -> None:
    points = [
        Point(
            f"copies={len(cpus)} thp={thp}",
            (("copies", str(len(cpus))), ("thp", thp)),
            (PointRun(run(number, cpus, {"a": 10.0}), 1),),
        )
        for number, (cpus, thp) in enumerate(
            [([0], "always"), ([0, 1], "always"), ([0], "never"), ([0, 1], "never")], 1
        )
    ]
    found = scaling_curves(points)
    assert [(curve.name, curve.runs) for curve in found.curves] == [
        ("thp=always", (1, 2)),
        ("thp=never", (3, 4)),
    ]


def test_what_else_differs_is_told_but_not_where_copies_are() -> None:
    always = (("thp.enabled", "always"),)
    others = [replace(run(number, [0, 1], {"a": 10.0}), settings=always) for number in (2, 3)]
    ((one, runs),) = curve(run(1, [0], {"a": 10.0}), *others).differences
    assert (one.what, runs) == ("setting thp.enabled", (2, 3))


def test_disturbed_points_are_said() -> None:
    waited: dict[str, Any] = {"cpu_ns": 10**9, "run_delay_ns": 9 * 10**9, "run_delay_cpu_ns": 10**9}
    bad = run(2, [0, 1], {"a": 12.5})
    bad = replace(bad, copies=tuple(replace(copy, **waited) for copy in bad.copies))
    found = scaled(run(1, [0], {"a": 10.0}), bad, run(3, [0, 1, 2, 3], {"a": 20.0}))
    assert [trouble.run for trouble in found.curves[0].troubles if trouble.too_disturbed] == [2]
    out = io.StringIO()
    print_parts(scaling_parts(found, (), ()), Printer(TextScreen(out, width=80)))
    assert "2 copies: cannot tell: 1 of 1 run disturbed" in out.getvalue()


def test_as_many_copies_placed_otherwise_are_no_runs_of_the_same() -> None:
    spread = [run(1, [0], {"a": 10.0}), run(2, [0, 1], {"a": 10.0})]
    cores = run(3, [0, 1, 2, 3], {"a": 10.0})
    threads = run(4, [0, 4, 1, 5], {"a": 20.0})
    scaling = scaled(*spread, threads, cores)
    (only,) = scaling.curves
    assert only.runs == (1, 2, 3)  # one copy a core, as the two of run 2 have
    assert tuple(map(str, scaling.alone)) == (
        "run 4 (placed=4 on 2 cores (4 CPUs)): nothing else like it has another number of copies "
        "than 4",
    )
    # With another number of the same kind they are a curve of their own, from one copy on.
    scaling = scaled(*spread, cores, threads, run(5, [0, 4], {"a": 20.0}))
    assert [(curve.name, curve.runs) for curve in scaling.curves] == [
        ("placed=2 on 2 cores", (1, 2, 3)),
        ("placed=2 on 1 core (2 CPUs)", (1, 5, 4)),
    ]
    lgroups = scaled(run(1, [0, 1], {"a": 10.0}), run(2, [0, 2], {"a": 10.0}))
    assert [one.name for one in lgroups.alone] == [
        "placed=2 on 2 cores",
        "placed=2 on 2 cores, 1+1 by NUMA node",
    ]


def test_other_cpus_and_memory_for_as_many_copies_are_told() -> None:
    def remote(run: StoredRun) -> StoredRun:
        return replace(run, copies=tuple(replace(row, mem_nodes=(1,)) for row in run.copies))

    scaling = curve(
        run(1, [0], {"a": 10.0}),
        run(2, [1], {"a": 10.0}),
        remote(run(3, [0], {"a": 10.0})),
        run(4, [0, 1], {"a": 10.0}),
    )
    assert [(str(one), runs) for one, runs in scaling.differences] == [
        ("CPUs of 1 copy: was 0, is 1", (2,)),
        ("memory of 1 copy: was not there, is 1", (3,)),
    ]


def test_options_that_an_older_rater_did_not_know_had_their_default() -> None:
    def asked(number: int, cpus: Sequence[int], request: str | None) -> StoredRun:
        return run(number, cpus, {"a": 10.0}, request=request)

    new = '{"bind": "pu", "alloc": null, "run_dirs": false, "prepare": null}'
    assert curve(asked(1, [0], None), asked(2, [0, 1], new)).runs == (1, 2)
    assert curve(asked(1, [0], "{}"), asked(2, [0, 1], '{"alloc": "system"}')).runs == (1, 2)
    for other in ('{"reserve": 1}', '{"prepare": "sync"}', '{"run_dirs": true}'):
        assert scaled(asked(1, [0], new), asked(2, [0, 1], other)).curves == ()


def test_an_imported_run_that_lacks_copies_is_no_point() -> None:
    half = run(3, [0, 1, 2, 3], {"a": 10.0, "b": 10.0}, source="import")
    half = replace(half, copies=tuple(row for row in half.copies if row.copy < 2))
    found = curve(run(1, [0], {"a": 10.0, "b": 10.0}), run(2, [0, 1], {"a": 10.0, "b": 10.0}), half)
    assert found.copies == (1, 2)
    assert found.lacking == tuple(
        f"run 3 (4 copies): {name}: times of 2 of 4 copies only" for name in "ab"
    )
    rows = [*in_turn(0, [12.0, 18.0], names="ab"), *in_turn(1, [18.0, 12.0], names="ba")]
    ring = stored(rows, order="rotated", mode="rotated", copies=4, source="import")
    assert str(scaled(ring).alone[0]) == "run 7: no benchmark has a result"


def test_the_law_is_fitted_where_each_copy_has_a_core() -> None:
    def machine(number: int, copies: int, seconds: float) -> StoredRun:
        pus = tuple(
            MachinePU(cpu=cpu, core=cpu % 16, llc=0, node=0, package=0) for cpu in range(32)
        )
        rows = [copy_row(copy, seconds, cpu=copy, core=copy % 16, node=0) for copy in range(copies)]
        return replace(stored(rows, copies=copies, run=number), pus=pus)

    def seconds(n: int) -> float:
        return 10 * (1 + 0.05 * (n - 1) + 0.002 * n * (n - 1))

    runs = [
        machine(number, index, seconds(index)) for number, index in enumerate((1, 2, 4, 8, 16), 1)
    ]
    threads = machine(9, 32, seconds(16) * 2.2)
    (series,) = curve(*runs, threads).series
    assert isinstance(series.law, Usl)
    assert series.law.copies == (1, 2, 4, 8, 16)
    assert series.law.sigma.value == pytest.approx(0.05)
    (few,) = curve(*runs[:3], threads).series
    assert isinstance(few.law, NoLaw)
    assert few.law.reason == (
        "three coefficients need 4 numbers of copies, not 3 (32 does not count: copies share "
        "cores there)"
    )


def test_smt_yield_is_of_the_same_cores_not_of_numbers() -> None:
    one_a_core = run(1, [0, 1, 2, 3], {"a": 10.0, "b": 10.0})
    all_threads = run(2, range(8), {"a": 16.0, "b": 25.0}, layout="compact")
    packed = run(3, [0, 4, 1, 5], {"a": 16.0, "b": 25.0})  # four copies as well, on two cores
    samples = scaled(one_a_core, all_threads, packed).samples
    (found,) = smt_yields(samples)
    assert (found.cores, found.threads, found.of_machine) == (4, 2, True)
    assert (found.one_a_core, found.all_threads) == ((1,), (2,))
    mean, a, b = found.changes
    assert a.share == pytest.approx(0.25)  # twice the copies in 1.6 times the time
    assert b.share == pytest.approx(-0.2)
    assert mean.share == pytest.approx(0.0)
    assert (a.beyond_noise, mean.beyond_noise) == (True, False)
    assert smt_yields(scaled(one_a_core, packed).samples) == ()


def test_rotated_order_beside_homogeneous_at_the_same_copies() -> None:
    homogeneous = run(1, [0, 1], {"a": 10.0, "b": 20.0})
    rows = [
        *in_turn(0, [12.0, 18.0], names="ab", node=0),
        *in_turn(1, [18.0, 12.0], names="ba", node=0),
    ]
    rotated = replace(
        stored(rows, run=2, order="rotated", mode="rotated", copies=2, benchmarks=("a", "b")),
        pus=PUS,
    )
    (comparison,) = orders(scaled(homogeneous, rotated).samples)
    assert (comparison.copies, comparison.homogeneous, comparison.rotated) == (2, (1,), (2,))
    mean, a, b = comparison.times
    assert a.share == pytest.approx(0.2)  # 12 s for 10 s
    assert b.share == pytest.approx(-0.1)
    assert mean.benchmark is None
    assert comparison.work is not None
    # 2 x (10 + 10) reference seconds in 30 s, either way
    assert (comparison.work.before, comparison.work.after) == pytest.approx((40 / 30, 40 / 30))
    assert comparison.scores is not None
    assert comparison.scores.before == pytest.approx((2.0 * 1.0) ** 0.5)
    assert comparison.scores.after == pytest.approx((20 / 12 * 20 / 18) ** 0.5)


def test_an_imported_result_with_two_tunes_is_two_curves() -> None:
    def both(number: int, cpus: Sequence[int]) -> StoredRun:
        rows = [
            copy_row(number, seconds, phase=phase, tune=tune, cpu=cpu, core=cpu, node=0)
            for phase, (tune, seconds) in enumerate((("base", 10.0), ("peak", 8.0)))
            for number, cpu in enumerate(cpus)
        ]
        made = stored(rows, run=number, copies=len(cpus), source="import", tune=None)
        return replace(made, pus=PUS)

    found = scaled(both(1, [0]), both(2, [0, 1]))
    assert [curve.name for curve in found.curves] == ["tune=base", "tune=peak"]
    assert found.curves[1].series[0].points[1].rate == pytest.approx(2.5)


def test_runs_in_which_all_failed_or_without_a_benchmark_in_common_are_no_curve() -> None:
    found = scaled(run(1, [0], {"a": 10.0}), run(2, [0, 1], {"b": 10.0}))
    assert found.curves == ()
    assert str(found.alone[0]) == ("runs 1-2: no benchmark has results with two numbers of copies")
    failed = run(2, [0, 1], {"a": 10.0})
    rows = [replace(row, status=CopyStatus.FAILED, exit_code=1) for row in failed.copies]
    whole = replace(failed, copies=tuple(rows))
    assert str(scaled(whole).alone[0]) == "run 2: no benchmark has a result"
    beside = scaled(run(1, [0], {"a": 10.0}), whole)
    assert "no benchmark has results with two" in str(beside.alone[0])
    (drawn,) = scaled(run(1, [0], {"a": 10.0}), whole, run(3, [0, 1, 2], {"a": 10.0})).curves
    assert drawn.copies == (1, 3)
    assert drawn.lacking[0].startswith("run 2 (2 copies): a: ")


def timed(copies: int, *iterations_s: float, number: int = 1) -> StoredRun:
    """Return a run of copies on cores of their own that take so long in each iteration."""
    rows = [
        copy_row(copy, seconds, node=0, phase=phase, iteration=phase + 1)
        for phase, seconds in enumerate(iterations_s)
        for copy in range(copies)
    ]
    pus = tuple(MachinePU(cpu=cpu, core=cpu, llc=0, node=0, package=0) for cpu in range(64))
    iterations = len(iterations_s)
    made = stored(rows, reference_s=None, run=number, copies=copies, iterations=iterations)
    return replace(made, pus=pus)


def rounds(**seconds_by_copies: float) -> Curve:
    """Return the curve of three runs with each number of copies, 0.1 % apart."""
    return curve(
        *(
            timed(int(name[1:]), seconds * (1 + 0.001 * again), number=3 * place + again + 1)
            for place, (name, seconds) in enumerate(seconds_by_copies.items())
            for again in range(3)
        )
    )


def text_of_curve(measured: Curve) -> str:
    stream = io.StringIO()
    scaling = Scaling((measured,), (), ())
    print_parts(scaling_parts(scaling, (), ()), Printer(TextScreen(stream, width=200)))
    return " ".join(stream.getvalue().split())


def test_a_point_slower_than_fewer_and_more_copies_is_sick_and_no_part_of_the_law() -> None:
    healthy = {"n1": 10.0, "n2": 10.1, "n4": 10.3, "n8": 10.7, "n16": 11.5}
    assert rounds(**healthy).series[0].dips == ()
    sick = rounds(**healthy | {"n8": 25.0})
    (dip,) = sick.series[0].dips
    assert (dip.copies, dip.fewer, dip.more, dip.in_all) == (8, 4, 16, True)
    assert isinstance(sick.series[0].law, Usl)
    assert sick.series[0].law.copies == (1, 2, 4, 16)
    text = text_of_curve(sick)
    assert "A sick point: 8 copies of a do 1151 copies/hour, less than 4 (1397) and 16 (" in text
    assert "`rater divots 10 11 12` may show what was slow" in text


def test_a_point_that_is_slower_for_each_copy_alone_is_sick_too() -> None:
    (dip,) = rounds(n1=10.0, n2=10.1, n4=10.2, n8=13.0, n16=11.0).series[0].dips
    assert (dip.copies, dip.in_all) == (8, False)


def test_a_peak_a_plateau_and_a_slow_last_point_are_not_sick() -> None:
    for last in (11.0, 24.0, 60.0):
        assert rounds(n1=10.0, n2=10.0, n4=10.0, n8=11.0, n16=last).series[0].dips == ()


def test_copies_that_get_another_node_may_be_faster_than_fewer_on_one() -> None:
    alone = replace(cpus_used(timed(8, 1.0)), lgroups=(8,))
    assert not replace(alone, copies=12, lgroups=(8, 4)).has_no_more_room(alone)
    assert replace(alone, copies=16, lgroups=(8, 8)).has_no_more_room(alone)


def test_a_fall_within_the_iterations_of_a_run_is_told_and_a_small_one_is_not() -> None:
    measured = curve(timed(1, 10.0, 13.9, 13.9), timed(2, 10.0, 10.2, 10.1, number=2))
    (fall,) = measured.falls
    assert (fall.run, fall.copies, fall.iteration) == (1, 1, 2)
    assert fall.share == pytest.approx(0.28, abs=0.002)
    assert (
        "Within run 1 (1 copy) the rate of a falls by 28 % from iteration 2 on, and speedups are "
        "against this point: `rater divots 1`"
    ) in text_of_curve(measured)


# Of iterations that differ by themselves only what exceeds that is a fall.
@pytest.mark.parametrize(
    ("times", "first"),
    [
        ([10.0] * 5 + [13.9] * 5, 5),
        ([10.0, 13.9, 10.1, 13.8, 10.0, 13.9, 10.0, 13.8], None),
        ([13.9, 10.0, 10.0, 10.0], None),
        ([10.0, 10.9], None),
        ([10.0], None),
    ],
)
def test_a_fall_begins_where_later_times_are_longer_beyond_noise(
    times: list[float], first: int | None
) -> None:
    assert first_slow([math.log(time_s) for time_s in times]) == first
