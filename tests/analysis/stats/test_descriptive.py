import pytest

from rater.analysis.stats.estimate import geometric_mean, lower_median_index, population_cv, spread


def test_the_geometric_mean_of_two_and_eight_is_four_and_needs_numbers_above_zero() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None
    assert geometric_mean([1.0, 0.0]) is None


def test_the_cv_divides_by_n_as_spec_cpu_2026_does() -> None:
    # The example of the public write-ups: mean 226, CV 0.018 (sample SD would give 0.0208).
    assert population_cv([220.0, 225.0, 228.0, 231.0]) == pytest.approx(0.0180, abs=5e-5)
    assert (population_cv([3.0]), population_cv([])) == (0.0, None)


def test_of_three_ratios_the_median_counts_and_of_two_the_slower() -> None:
    assert lower_median_index([30.0, 10.0, 20.0]) == 2
    assert lower_median_index([20.0, 10.0]) == 1
    assert lower_median_index([4.0, 1.0, 3.0, 2.0]) == 3
    assert lower_median_index([5.0, 5.0, 5.0]) == 0


def test_quartiles_and_fences_of_five_numbers() -> None:
    found = spread([1.0, 2.0, 3.0, 4.0, 10.0])
    assert found is not None
    assert (found.minimum, found.lower_quartile, found.median) == (1.0, 2.0, 3.0)
    assert (found.upper_quartile, found.maximum, found.mean) == (4.0, 10.0, 4.0)


def test_the_spread_of_one_number_is_that_number() -> None:
    found = spread([7.0])
    assert found is not None
    assert (found.lower_quartile, found.median, found.upper_quartile) == (7.0, 7.0, 7.0)
    assert spread([]) is None
