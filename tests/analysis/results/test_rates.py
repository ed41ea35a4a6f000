"""What of a run counts in comparisons and curves, and the words for what does not."""

from msgspec.structs import replace

from rater.analysis.results.rates import run_rates
from tests.support.example_runs import copy_row, stored


def test_a_benchmark_of_discarded_iterations_alone_has_no_counted_iteration() -> None:
    rows = [replace(copy_row(number, 10.0), counted=False) for number in (0, 1)]
    assert run_rates(stored(rows, discard=1), None).left_out == ("a: no counted iteration",)
