"""Counts of instructions as the compared measure: no noise, their own spread, never two sources."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rater.plan.count import valgrind_source
from rater.record.events import COUNT_GROUP, CopyCounted, EventCount
from rater.run.workplace.compare_output import WrongOutputError, read_metric
from rater.store.store import Store
from tests.support.calls import Rater
from tests.support.example_events import ended, over, phase, run_of
from tests.support.observations import observed
from tests.support.stored_runs import append, query_rows

VALGRIND = "valgrind 3.19.0"


def counted(
    rater: Rater, folder: Path, build: str, counts: list[int], unit: str = VALGRIND
) -> None:
    """Import a run for each count, tagged with its build; times are all alike."""
    metric = {"name": "instructions", "unit": unit, "better": "lower"}
    for place, count in enumerate(counts):
        head = {"uuid": f"{build}{place}{unit}", "copies": 1, "tags": {"build": build}}
        head["started_at"] = f"2026-11-20T12:{2 * place + (build == 'new'):02}:00Z"
        document = observed({"metrics": {"instructions": count}}, **head, metrics=[metric])
        (folder / f"{build}{place}.json").write_text(json.dumps(document))
    files = [folder / f"{build}{place}.json" for place in range(len(counts))]
    assert rater("import", *files)[0] == 0


def compared(rater: Rater, *words: str) -> tuple[int, str, str]:
    return rater("compare", "tag:build=old", "tag:build=new", "--by", "instructions", *words)


def test_one_per_cent_more_instructions_is_worse_by_its_size(rater: Rater, tmp_path: Path) -> None:
    counted(rater, tmp_path, "old", [6_000_000] * 6)
    counted(rater, tmp_path, "new", [6_060_000] * 6)
    status, out, err = compared(rater, "--fail-on", "worse:0.5%", "--json")
    assert (status, "worse: b (build=new)" in err) == (1, True)
    [row] = json.loads(out)["benchmarks"]
    assert row["points"][0]["speedup"]["ratio"] == pytest.approx(1 / 1.01, abs=1e-4)


def test_equal_counts_are_the_same_and_pass_a_gate(rater: Rater, tmp_path: Path) -> None:
    counted(rater, tmp_path, "old", [6_000_000] * 4)
    counted(rater, tmp_path, "new", [6_000_000] * 4)
    status, out, _ = compared(rater, "--fail-on", "worse:0.1%")
    assert (status, "same within" in out) == (0, True)


def test_counts_that_differ_between_equal_runs_are_told_and_widen_the_interval(
    rater: Rater, tmp_path: Path
) -> None:
    counted(rater, tmp_path, "old", [6_000_000, 6_120_000, 5_940_000, 6_060_000])
    counted(rater, tmp_path, "new", [6_060_000, 5_960_000, 6_100_000, 6_000_000])
    status, out, _ = compared(rater, "--fail-on", "worse:0.5%")
    assert status == 3
    assert "instructions of equal runs differ by 3.0 %" in " ".join(out.split())


def test_counts_of_two_sources_or_versions_are_never_compared(rater: Rater, tmp_path: Path) -> None:
    counted(rater, tmp_path, "old", [6_000_000] * 2)
    counted(rater, tmp_path, "new", [6_000_000] * 2, unit="valgrind 3.22.0")
    status, _, err = compared(rater)
    assert status == 2
    assert "valgrind 3.19.0 and by valgrind 3.22.0" in " ".join(err.split())


def test_processes_of_a_copy_are_added_up(tmp_path: Path) -> None:
    metric = valgrind_source("/usr/bin/valgrind", "3.19.0").metric
    errors = tmp_path / "stderr"
    errors.write_text("==7== I   refs:      2,241,878\nwarning\n==9== I   refs:      245,166\n")
    assert read_metric(errors, metric) == 2_487_044.0
    errors.write_text("valgrind: cannot execute\n")
    with pytest.raises(WrongOutputError, match="cannot execute"):
        read_metric(errors, metric)


def test_a_count_of_the_pmu_becomes_the_metric_where_it_counted_all_the_time(
    store: Store,
) -> None:
    number = store.create_run(run_of(2))
    append(store, number, phase(), ended(0, 1.0), ended(1, 1.0), over(0.0, 1.0))
    for copy, running_ns in ((0, 100), (1, 60)):
        count = EventCount(COUNT_GROUP, "instructions", 2_101_625, 100, running_ns)
        append(store, number, CopyCounted(0, copy, 0, (count,)))
    rows = query_rows(store, "SELECT copy, name, value FROM copy_metric")
    assert rows == [(0, "instructions", 2_101_625.0)]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_instructions_of_a_program_are_counted_here_equal_to_the_digit(rater: Rater) -> None:
    words = ("run", "--quiet", "--copies", "2", "--count", "instructions", "--", "/bin/true")
    status, _, err = rater(*words)
    assert status == 0, err
    observations = json.loads(rater("export", "last")[1])["observations"]
    counts = {row["metrics"]["instructions"] for row in observations}
    assert len(counts) == 1
    assert counts.pop() > 10_000
