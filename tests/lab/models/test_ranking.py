"""What a trace predicts of layouts against runs that go exactly as predicted, and otherwise."""

from __future__ import annotations

import pytest

from rater.lab.models import BenchmarkTrace, misses_of, ranking_check
from rater.lab.ranking import page_costs
from rater.lab.tlb import parse_tlb
from tests.support.traces import COSTS, TLB, a_trace

TRACED = BenchmarkTrace(4, a_trace(), page_costs(COSTS, parse_tlb(TLB)))


def test_misses_are_those_of_the_benchmarks_trace() -> None:
    predicted = misses_of({"made": TRACED})
    assert predicted is not None
    # 400 walks of the heap, 3000 of mappings, 7 of the stack; all in huge pages 2 and 7 are left.
    assert predicted("made", "0%") == 400 + 3000 + 7
    assert predicted("made", "100%") == pytest.approx(2 + 7)
    assert predicted("other", "0%") is None
    assert misses_of({}) is None


def test_runs_that_go_as_predicted_have_no_error_and_others_theirs() -> None:
    names = ("0%", "heap:huge", "mmap:huge", "100%")
    as_it_is = ranking_check("made", TRACED, [(name, (1.0, 1.0, 1.0)) for name in names])
    assert (as_it_is.trace, as_it_is.best.large_pages) == (4, 5)
    assert as_it_is.check is not None
    assert not as_it_is.check.told  # nothing differs: nothing is told
    shares = [it.predicted for it in as_it_is.check.mappings]
    assert shares[0] == 0
    assert shares[3] == 1
    assert shares[1] + shares[2] == pytest.approx(1)  # the heap's part and that of mappings
    times = [(name, (2 - share,) * 3) for name, share in zip(names, shares, strict=True)]
    check = ranking_check("made", TRACED, times).check
    assert check is not None
    assert check.told
    assert check.max_error == pytest.approx(0)
    times[2] = (names[2], (2.0,) * 3)  # mappings bring nothing at all
    check = ranking_check("made", TRACED, times).check
    assert check is not None
    assert check.max_error == pytest.approx(shares[2])
