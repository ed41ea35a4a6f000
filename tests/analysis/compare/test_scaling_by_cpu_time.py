"""Curves of disturbed runs: by CPU time where that may judge, else nothing is concluded."""

from __future__ import annotations

from msgspec.structs import replace

from rater.analysis.compare.scaling import Series, scaling_curves
from rater.analysis.results.copies import Point, PointRun
from rater.analysis.stats.curves import NoLaw
from rater.record.run import MachinePU
from rater.record.stored import StoredRun
from rater.show.compare.scaling import scaling_parts
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, reading
from tests.support.printed import in_words, text_of


def run_of(number: int, copies: int, cpus: int, others_s: float) -> StoredRun:
    """Copies of 6 s of CPU time each, so many CPUs, and others that take so long of each CPU."""
    sharing = -(-copies // cpus)
    rows = []
    for copy in range(copies):
        waited_s = 6.0 * (sharing - 1) + others_s
        took_ns = round((6.0 + waited_s) * S)
        row = computed(copy, 6.0, cpu=copy % cpus, run_delay_ns=round(waited_s * S))
        rows.append(
            replace(row, run_delay_cpu_ns=row.cpu_ns, elapsed_ns=took_ns, finish_ns=took_ns)
        )
    longest_s = max(row.elapsed_ns for row in rows) / S
    used = {row.cpu for row in rows}
    busy = [reading(cpu, longest_s if others_s or cpu in used else 0.0) for cpu in range(cpus)]
    run = read_run(rows, *busy, elapsed_ns=round(longest_s * S))
    return replace(
        run,
        head=replace(run.head, run=number, uuid=f"u-{number}", copies=copies),
        pus=tuple(MachinePU(cpu=cpu, core=cpu, llc=0, node=0, package=0) for cpu in range(cpus)),
    )


def curve(copies: list[int], cpus: int, others_s: float) -> tuple[Series, str]:
    """The curve of three runs a point, and its screen."""
    points = [
        Point(
            f"copies={count}",
            (("copies", str(count)),),
            tuple(
                PointRun(run_of(10 * place + run, count, cpus, others_s), run) for run in range(3)
            ),
        )
        for place, count in enumerate(copies, 1)
    ]
    scaling = scaling_curves(points)
    (series,) = scaling.curves[0].series
    return series, in_words(text_of(scaling_parts(scaling, (), ()), 100))


def test_a_quiet_curve_is_by_elapsed_time() -> None:
    series, text = curve([1, 2, 4, 8], 8, 0.0)
    assert (series.by_cpu, series.unjudged) == (None, ())
    assert [round(point.speedup, 2) for point in series.points] == [1.0, 2.0, 4.0, 8.0]
    assert "by CPU time" not in text


def test_a_disturbed_curve_is_by_cpu_time_where_each_copy_has_a_cpu() -> None:
    series, text = curve([1, 2, 4, 8], 8, 4.0)
    assert series.unit == "ratio by CPU time"
    assert [round(point.speedup, 2) for point in series.points] == [1.0, 2.0, 4.0, 8.0]
    assert "By CPU time, as elapsed times are disturbed: others took up to 40 %" in text
    assert "cannot tell" not in text


def test_points_of_more_copies_than_cpus_are_left_out_of_a_curve_by_cpu_time() -> None:
    series, text = curve([1, 2, 4, 8], 2, 8.0)
    assert [point.copies for point in series.points] == [1, 2]
    assert [copies for copies, _ in series.unjudged] == [4, 8]
    assert "8 copies: cannot tell: 3 of 3 runs disturbed; not by CPU time: 8 copies share 2" in text
    assert "knee" not in text and "no gain" not in text and "falls" not in text


def test_nothing_is_concluded_from_points_that_cannot_be_judged() -> None:
    series, text = curve([2, 4, 8], 2, 8.0)
    assert series.by_cpu is None
    assert series.judged == ()
    assert isinstance(series.law, NoLaw)
    assert (series.shape.knee, series.shape.plateau, series.shape.falls_at) == (None, None, None)
    assert "times the work" not in text and "knee" not in text and "no gain" not in text
    assert text.count("cannot tell") == 3
