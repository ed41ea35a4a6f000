"""What `rater show --counters` says."""

from __future__ import annotations

from typing import Any

from rater.analysis.results.counters import run_counts
from rater.record.stored import StoredRun
from rater.show.results.cpu_use import counters_document, print_counters
from tests.support.counted_runs import counted_run
from tests.support.example_runs import stored
from tests.support.printed import printed_by


def text(run: StoredRun) -> str:
    return printed_by(lambda printer: print_counters(run_counts(run), printer))


def test_rates_stack_and_cost_are_shown() -> None:
    shown = text(counted_run())
    assert "front end         0.100    5.0" in shown
    assert "remote dram" in shown
    assert "counting took 60 us of rater's CPU time a copy run, outside of its time" in shown


def test_what_limits_the_numbers_is_said() -> None:
    run = counted_run(("pipeline",), running=0.5, end=":u")
    shown = " ".join(text(run).split())
    assert "not counted, and in `other`: translation, l1, l2, l3, dram" in shown
    assert "a base: intel-skx:pipeline:u was counted for 50.0 % of the time and scaled" in shown
    assert "user mode only" in shown
    assert "nothing was counted in this run (rater run --counters cpi)" in text(stored([]))


def test_json_has_rates_stack_and_groups() -> None:
    document: Any = counters_document(run_counts(counted_run()))
    [one] = document["benchmarks"]
    assert (one["cpi"], one["ipc"], one["ghz"]) == (2.0, 0.5, 3.0)
    assert one["stack"]["parts"][0] == {"name": "base", "cycles": 0.3}
    assert one["metrics"]["remote_dram_share"] == 0.25
    assert one["groups"][0]["name"] == "intel-skx:pipeline"
