"""What rater exports comes back: all of it as observations, what others read as a raw file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rater.record.stored import StoredCopy, StoredRun
from rater.speccpu.export import configuration, rsf_lines
from rater.speccpu.rsf import unpack
from rater.store.store import open_store
from tests.support.calls import Rater
from tests.support.raw_files import HEAD, bracket
from tests.support.spec_runs import observed, planned

type Back = Callable[..., StoredRun]

# Without a reference time there are no ratios, and so nothing to compare them with.
with_ratios_or_without = pytest.mark.parametrize("reference_s", [None, 10.0])


@pytest.fixture
def there_and_back(rater: Rater, tmp_path: Path, database: Path) -> Back:
    """Export run 1, import that, and return what is stored of it then."""

    def go(kind: str = "rsf") -> StoredRun:
        status, out, err = rater("export", 1, "--format", kind)
        assert (status, err) == (0, "")
        path = tmp_path / f"back.{kind}"
        if kind == "observations":  # a uuid that is stored already would add nothing
            document = json.loads(out)
            document["run"]["uuid"] = "back"
            out = json.dumps(document)
        path.write_text(out, encoding="utf-8")
        words = ["import", path] if kind == "observations" else ["import", "spec", path, "--json"]
        status, message, err = rater(*words)
        assert (status, err) == (0, "")
        if kind == "rsf":
            (run,) = json.loads(message)["runs"]
            assert (run["problem_count"], run["disagreements"]) == (0, [])
        with open_store(database) as store:
            return store.load(2)

    return go


def stored(database: Path, run: StoredRun, reference_s: float | None = 10.0) -> StoredRun:
    """Store a run, its benchmarks with this reference time, so that ratios are compared."""
    used = tuple(replace(it, reference_s=reference_s) for it in run.benchmarks)
    run = replace(run, benchmarks=used)
    with open_store(database) as store:
        return store.load(store.add(run)[0])


def times(run: StoredRun) -> list[tuple[str, int, int | None, int]]:
    """What every reader of a raw file is to see: whose time, where."""
    return sorted((it.benchmark, it.copy, it.cpu, it.elapsed_ns) for it in run.copies)


def config_in(text: str) -> list[str]:
    """Return the configuration inside a raw file, without its heading."""
    pieces = [line.partition(": ")[2] for line in text.splitlines() if ".rawconfig" in line]
    return unpack(dict(enumerate(pieces))).splitlines()[2:]


FAILED: list[dict[str, Any]] = [
    {"copy": 0, "status": "ok"},
    {"copy": 1, "status": "failed"},
    {"copy": 2, "status": "timeout"},
    {"copy": 3, "status": "wrong-output"},
    {"copy": 4, "status": "interrupted"},
    {"copy": 5},
]


@with_ratios_or_without
@pytest.mark.parametrize("kind", ["rsf", "observations"])
def test_copies_come_back_with_how_they_ended(
    database: Path, there_and_back: Back, kind: str, reference_s: float | None
) -> None:
    run = stored(database, observed(FAILED), reference_s)
    back = there_and_back(kind)
    assert [copy.status.value for copy in back.copies] == [
        "ok",
        "failed",
        "timeout",
        "wrong-output",
        "interrupted",
        "ok",
    ]
    assert times(back) == times(run)
    assert back.head.status.value == run.head.status.value == "failed"


def test_observations_come_back_whole(database: Path, there_and_back: Back) -> None:
    def seen(run: StoredRun) -> list[StoredCopy]:
        return [replace(copy, cpu_ns=None, run_dir=None) for copy in run.copies]

    place: dict[str, Any] = {"cpu": 0, "core": 0, "node": 0, "package": 0}
    rows = [
        {"iteration": n, "copy": 0, "mem_nodes": [1], "counted": n > 1, "start_s": n, **place}
        for n in (1, 2, 3)
    ]
    run = stored(database, observed(rows, mode="staggered", stagger_ms=10))
    back = there_and_back("observations")
    assert seen(back) == seen(run)
    assert (back.head.mode, back.head.stagger_ms, back.head.discard) == ("staggered", 10.0, 1)


def test_the_words_for_failures_are_those_that_are_agreed(rater: Rater, database: Path) -> None:
    stored(database, observed(FAILED))
    text = rater("export", 1, "--format", "rsf")[1]
    errors = [line.partition(": ")[2] for line in text.splitlines() if ".base.000.errors" in line]
    assert errors == [
        "copy 1: failed",
        "copy 2: timeout",
        "copy 3: output miscompare:",
        "copy 4: interrupted",
    ]


def test_failed_copies_of_a_result_file_are_failed_in_the_observations(
    rater: Rater, tmp_path: Path, there_and_back: Back
) -> None:
    more = "errors000: copy 1 non-zero return code (exit code=1, signal=0)"
    path = tmp_path / "failed.rsf"
    path.write_text(HEAD + bracket(more=more).replace("valid: S", "valid: RE"))
    rater("import", "spec", path)
    back = there_and_back("observations")
    assert [copy.status.value for copy in back.copies] == ["ok", "failed"]
    assert back.head.status.value == "failed"


@with_ratios_or_without
def test_copies_of_another_benchmark_were_elsewhere(
    rater: Rater, database: Path, there_and_back: Back, reference_s: float | None
) -> None:
    rows = [
        {"benchmark": name, "tune": tune, "copy": copy, "cpu": cpu, "node": cpu // 2}
        for name, tune, cpus in [("a", "base", (0, 1)), ("a", "peak", (1, 3)), ("b", "peak", (0,))]
        for copy, cpu in enumerate(cpus)
    ]
    run = stored(database, observed(rows), reference_s)
    assert config_in(rater("export", 1, "--format", "rsf")[1]) == [
        "bind0 = numactl --physcpubind=0",
        "bind1 = numactl --physcpubind=1",
        "",
        "a=peak:",
        "bind0 = numactl --physcpubind=1",
        "bind1 = numactl --physcpubind=3",
    ]
    back = there_and_back()
    assert times(back) == times(run)
    assert [(it.tune, it.benchmark) for it in back.brackets] == [
        ("base", "a"),
        ("peak", "a"),
        ("peak", "b"),
    ]


def test_masks_of_cpus_and_policies_of_memory_are_bind_lines(
    rater: Rater, database: Path, there_and_back: Back
) -> None:
    run = stored(database, planned())
    assert config_in(rater("export", 1, "--format", "rsf")[1]) == [
        "bind0 = numactl --physcpubind=0-1 --localalloc",
        "bind1 = numactl --physcpubind=2-3 --interleave=0-1",
        "bind2 = numactl --physcpubind=4 --preferred=1",
        "bind3 = numactl --physcpubind=5",
        "bind4 = numactl --membind=1",
    ]
    assert len(there_and_back().copies) == len(run.copies)


def test_iterations_that_do_not_count_are_left_out(database: Path, there_and_back: Back) -> None:
    rows = [
        {"iteration": n, "copy": copy, "elapsed_s": 9.0 - n, "counted": n > 1}
        for n in (1, 2, 3)
        for copy in (0, 1)
    ]
    stored(database, observed(rows))
    back = there_and_back()
    assert [it.elapsed_s for it in back.copies] == [7.0, 7.0, 6.0, 6.0]
    selected = [it.reported.selected for it in back.brackets if it.reported]
    assert selected == [True, False]  # of two the slower


@with_ratios_or_without
def test_benchmarks_and_tunes_that_are_spelt_alike_stay_apart(
    rater: Rater, database: Path, there_and_back: Back, reference_s: float | None
) -> None:
    names = ["sort.c", "sort_c", "SORT_C", "sort_c_2", "429.mcf", "429_mcf", "\u00e4", "\u00f6"]
    rows = [
        {"benchmark": name, "tune": tune, "copy": 0, "elapsed_s": 1.0 + number}
        for tune in (None, "base", "O3", "o.3", "o 3")
        for number, name in enumerate([*names, "two blanks", "x" * 300])
    ]
    run = stored(database, observed(rows), reference_s)
    text = rater("export", 1, "--format", "rsf")[1]
    assert "spec.cpu2017.results.sort_c.base.000.benchmark: sort.c" in text
    back = there_and_back()
    assert sorted(it.elapsed_ns for it in back.copies) == sorted(it.elapsed_ns for it in run.copies)
    assert len({it.tune for it in back.brackets}) == 5
    assert len(back.head.benchmarks) == len(run.head.benchmarks)


def test_a_queue_comes_back_as_its_rule_says(database: Path, there_and_back: Back) -> None:
    ring = ["a", "b", "c"]
    rows = [
        {"benchmark": ring[(copy + step) % 3], "iteration": 1, "copy": copy, "step": step}
        | {"elapsed_s": 1.0 + copy + step / 8, "start_s": 10.0 * step, "tune": "base"}
        for copy in range(3)
        for step in range(3)
    ]
    run = stored(database, observed(rows, mode="rotated", increment=1))
    back = there_and_back()
    assert [(it.copy, it.step, it.benchmark, it.elapsed_ns) for it in back.copies] == [
        (it.copy, it.step, it.benchmark, it.elapsed_ns) for it in run.copies
    ]


@pytest.mark.parametrize("basemean", ["23", "23.225806"])
def test_the_ratios_of_cpu2000_are_its_own(
    rater: Rater, tmp_path: Path, there_and_back: Back, basemean: str
) -> None:
    # 2 copies x 5000 s / 500 s x 3600 / 3100
    text = (HEAD + bracket(ratio=23.225806)).replace("cpu2006", "cpu2000")
    path = tmp_path / "old.rsf"
    path.write_text(text.replace("basemean: 20", f"basemean: {basemean}"))
    rater("import", "spec", path)
    exported = rater("export", 1, "--format", "rsf")[1]
    assert "spec.cpu2000.basemean: 23.225806" in exported
    there_and_back()


def test_keys_of_an_older_export_are_passed_over(rater: Rater, tmp_path: Path) -> None:
    path = tmp_path / "older.rsf"
    own = 'spec.cpu2006.rater_run: {"mode": "staggered"}\n'
    path.write_text(HEAD + own + bracket(more='rater_copy001: {"status": "failed"}'))
    status, out, _ = rater("import", "spec", path, "--json")
    assert status == 0
    assert json.loads(out)["runs"][0]["problem_count"] == 0


def test_a_copy_of_several_threads_is_not_narrowed_to_one_cpu() -> None:
    run = observed([{"copy": 0, "cpu": 0, "node": 1}])
    run = replace(run, benchmarks=tuple(replace(it, threads=4) for it in run.benchmarks))
    assert (configuration(run, {None: "base"}, "estimate") or "").splitlines()[2:] == [
        "bind0 = numactl --cpunodebind=1"
    ]
    assert "spec.cpu2017.results.a.base.000.threads: 4" in rsf_lines(run, {}, {})
