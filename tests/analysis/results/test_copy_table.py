"""A row a copy: times, where they went, memory, faults, exit and metrics."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rater.analysis.results.copy_table import CopyRow, copy_rows
from rater.record.events import CopyEnded
from rater.record.run import CopyStatus
from rater.record.stored import StoredRun
from rater.show.results.copies import copy_rows_document
from rater.system.errors import InputError
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, reading, stored


def worked(copy: int, iteration: int, cpu_s: float, **changes: object) -> CopyEnded:
    """A copy of 10 s on CPU 0 that waited for the rest of its time."""
    row = computed(copy, cpu_s, cpu=0, phase=iteration, iteration=iteration + 1)
    delay_ns = round((10.0 - cpu_s) * S)
    row = replace(row, run_delay_ns=delay_ns, run_delay_cpu_ns=row.cpu_ns)
    return replace(row, **changes)


def two_copies_on_a_cpu() -> StoredRun:
    """Two iterations: copies of 4 s (5 s) on one CPU that others had for 2 s (none)."""
    rows = [
        worked(copy, iteration, (4.0, 5.0)[iteration]) for iteration in (0, 1) for copy in (0, 1)
    ]
    return read_run(rows, reading(0, 10.0))


def test_each_iteration_has_a_row_with_where_its_time_went() -> None:
    first, *_, last = copy_rows(two_copies_on_a_cpu(), each=True)
    assert (first.iteration, first.copy, first.cpu, first.elapsed_s) == (1, 0, 0, 10.0)
    assert (first.cpu_s, first.waited, first.slept) == (4.0, 0.6, 0.0)
    assert (round(first.waited_own or 0, 6), round(first.waited_others or 0, 6)) == (0.4, 0.2)
    assert (last.iteration, last.waited_own, last.waited_others) == (2, 0.5, 0.0)


def test_a_row_a_copy_has_medians_over_the_iterations_that_count() -> None:
    run = two_copies_on_a_cpu()
    rows = copy_rows(run)
    assert [(row.copy, row.iteration, row.cpu_s, row.over_median) for row in rows] == [
        (0, None, 4.5, 1.0),
        (1, None, 4.5, 1.0),
    ]
    discarded = replace(
        run, copies=tuple(replace(copy, counted=copy.iteration == 2) for copy in run.copies)
    )
    assert [row.cpu_s for row in copy_rows(discarded)] == [5.0, 5.0]


def test_what_is_not_known_is_not_zero() -> None:
    bare = replace(computed(0, 1.0), cpu_ns=None, cpu=None, node=None, minor_faults=None)
    (row,) = copy_rows(stored([replace(bare, major_faults=None)]))
    unknown = (row.cpu, row.node, row.cpu_s, row.waited, row.slept, row.memory_bytes, row.faults)
    assert unknown == (None,) * 7


def test_how_copies_ended_is_told_and_how_often() -> None:
    bad = {"status": CopyStatus.FAILED, "exit_code": 3}
    rows = [worked(0, 0, 5.0), worked(0, 1, 5.0, **bad), worked(1, 0, 5.0), worked(1, 1, 5.0)]
    run = read_run(rows, reading(0, 10.0))
    assert [row.exit for row in copy_rows(run)] == ["exit code 3, 1 time of 2", "ok"]
    killed = replace(run, copies=(replace(rows[0], status=CopyStatus.FAILED, signal=9),))
    assert [row.exit for row in copy_rows(killed)] == ["signal 9"]


def rows_of(*seconds: float) -> list[CopyRow]:
    return copy_rows(
        stored(
            [
                replace(
                    computed(copy, 1.0),
                    elapsed_ns=round(time_s * S),
                    metrics=(("rate", time_s),) if time_s < 3 else (),
                )
                for copy, time_s in enumerate(seconds)
            ]
        )
    )


@pytest.mark.parametrize(
    ("sort", "copies"),
    [
        (None, [1, 2, 0]),  # the slowest first
        ("time", [1, 2, 0]),
        ("-time", [0, 2, 1]),
        ("copy", [0, 1, 2]),
        ("-copy", [2, 1, 0]),
        ("rate", [2, 0, 1]),  # what is not known stands last
        ("-rate", [0, 2, 1]),
        ("memory", [0, 1, 2]),
    ],
)
def test_rows_are_sorted_by_any_column(sort: str | None, copies: list[int]) -> None:
    documents = copy_rows_document(rows_of(1.0, 3.0, 2.0), sort)
    assert [document["copy"] for document in documents] == copies


def test_a_column_that_is_not_there_is_the_users_mistake() -> None:
    with pytest.raises(InputError, match=r"--sort sharks: expected one of copy, cpu, .*, rate"):
        copy_rows_document(rows_of(1.0), "sharks")


def test_four_thousand_copies_have_a_row_each() -> None:
    run = stored([computed(copy, 1.0, cpu=copy) for copy in range(4096)])
    assert len(copy_rows(run)) == 4096
