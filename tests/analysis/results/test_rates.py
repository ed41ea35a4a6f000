"""The one number of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rater.analysis.results.rates import Overall, overall
from rater.record.run import CopyStatus
from rater.record.stored import StoredRun
from tests.support.example_runs import copy_row, stored


def two_benchmarks(reference_s: float | None, **of_last: CopyStatus) -> StoredRun:
    """Two copies of a, 10 s each, then of b, 5 s each."""
    run = stored(
        [
            *(copy_row(copy, 10.0) for copy in range(2)),
            copy_row(0, 5.0, benchmark="b", phase=1),
            copy_row(1, 5.0, benchmark="b", phase=1, **of_last),
        ]
    )
    return replace(
        run, benchmarks=tuple(replace(used, reference_s=reference_s) for used in run.benchmarks)
    )


def rounded(it: Overall | None) -> Overall | None:
    return it and replace(it, value=round(it.value, 4))


def test_it_is_the_suites_ratio() -> None:
    # 2 copies x 20 s / 10 s = 4 and 2 x 20 / 5 = 8; their geometric mean
    assert rounded(overall(two_benchmarks(20.0))) == Overall(5.6569, "ratio")


def test_without_reference_times_it_is_copies_an_hour() -> None:
    # 2 copies in 10 s are 720 an hour, in 5 s 1440
    assert rounded(overall(two_benchmarks(None))) == Overall(1018.2338, "copies/hour")


@pytest.mark.parametrize("reference_s", [20.0, None])
def test_a_failed_copy_leaves_no_number(reference_s: float | None) -> None:
    assert overall(two_benchmarks(reference_s, status=CopyStatus.FAILED)) is None
