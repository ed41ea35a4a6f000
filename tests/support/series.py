"""Made series of a phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from rater.record.events import PhaseSeries
from rater.record.series import Column, SeriesPacker
from rater.record.stored import StoredRun
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, reading

MB = 1_000_000


def packed(
    family: str,
    places: Sequence[int],
    columns: Sequence[str],
    rows: Mapping[float, Sequence[Column]],
    phase: int = 0,
) -> PhaseSeries:
    """Series with a row for each second that is a key: a number of each place for each column."""
    packer = SeriesPacker(family, places, columns)
    for second, row in rows.items():
        packer.add(round(second * S), row)
    return packer.finish(phase, 0)


def busy_run(*, iterations: int = 1) -> StoredRun:
    """Four copies on CPUs 0 to 3 that take 10 s each, sampled once a second.

    Copy 0 reads 60 MB in its first second, in which it computes for 0.3 s. In the last iteration
    others have half of CPU 1 from second 3 to 6, and copy 1 takes 11.5 s. In its eighth second
    the quota keeps half a CPU off from the run.
    """
    copies, series = [], []
    for phase in range(iterations):
        begin_s, is_slow = 20 * phase, phase == iterations - 1
        for copy in range(4):
            seconds = 11.5 if is_slow and copy == 1 else 10.0
            row = computed(
                copy,
                9.3 if copy == 0 else 10.0,
                start_ns=begin_s * S,
                phase=phase,
                iteration=phase + 1,
                run_delay_ns=round((seconds - 10) * S),
                run_delay_cpu_ns=10 * S,
            )
            elapsed_ns = round(seconds * S)
            finish_ns = begin_s * S + elapsed_ns
            copies.append(replace(row, finish_ns=finish_ns, elapsed_ns=elapsed_ns))
        series += [*_series_of_phase(phase, begin_s, is_slow=is_slow)]
    return replace(
        read_run(copies, *(reading(cpu, 10.0) for cpu in range(4))),
        series=tuple(series),
    )


def _series_of_phase(phase: int, begin_s: int, *, is_slow: bool) -> Iterator[PhaseSeries]:
    user, cpu_ms, read, throttled = [0] * 4, [0] * 4, 0, 0
    rows: dict[str, dict[float, Sequence[Column]]] = {"cpu": {}, "copy": {}, "machine": {}}
    for second in range(12 if is_slow else 11):
        rows["cpu"][begin_s + second] = [[*user], [0] * 4]
        rows["copy"][begin_s + second] = [[*cpu_ms], [read, 0, 0, 0], [0] * 4]
        rows["machine"][begin_s + second] = [[throttled]]
        read = 60 * MB
        for cpu in range(4):
            share = 0.3 if cpu == second == 0 else 1.0 if second < 10 or cpu == 1 else 0.0
            others = 0.5 if is_slow and cpu == 1 and 3 <= second < 6 else 0.0
            user[cpu] += round(100 * share)
            cpu_ms[cpu] += round(1000 * (share - others))
        throttled += S // 2 if is_slow and second == 7 else 0
    yield packed("cpu", range(4), ("user", "system"), rows["cpu"], phase)
    columns = ("cpu_ms", "read_bytes", "written_bytes")
    yield packed("copy", range(4), columns, rows["copy"], phase)
    yield packed("machine", (0,), ("cfs_throttled_ns",), rows["machine"], phase)
