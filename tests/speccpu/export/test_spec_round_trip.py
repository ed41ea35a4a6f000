"""What rater exports as a raw file or as observations comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rater.record.status import CopyStatus, Validity
from rater.record.stored import StoredCopy, StoredRun
from rater.speccpu.results.own_keys import PREFIX, own_of
from rater.speccpu.results.packed import unpack
from rater.speccpu.results.read import read_spec
from rater.store.exchange.read_observations import read_observations
from rater.store.store import open_store
from tests.support.calls import Rater
from tests.support.raw_files import HEAD, bracket
from tests.support.spec_runs import PLACEMENTS, observed, planned

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
        status, said, err = rater(*words)
        assert (status, err) == (0, "")
        if kind == "rsf":
            (run,) = json.loads(said)["runs"]
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


def seen(run: StoredRun) -> list[StoredCopy]:
    """The copy runs, without what neither form has a word for."""
    return [replace(copy, cpu_ns=None, run_dir=None) for copy in run.copies]


def config_in(text: str) -> str:
    """Return the configuration inside a raw file."""
    pieces = [line.partition(": ")[2] for line in text.splitlines() if ".rawconfig" in line]
    return unpack(dict(enumerate(pieces)))


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
    assert seen(back) == seen(run)
    assert back.head.status.value == "failed"
    assert back.head.status == run.head.status


@with_ratios_or_without
def test_exit_codes_signals_and_details_come_back(
    database: Path, there_and_back: Back, reference_s: float | None
) -> None:
    plain = observed([{"copy": number} for number in range(4)])
    ended: list[dict[str, Any]] = [
        {"status": CopyStatus.TIMEOUT, "signal": 15},
        {"status": CopyStatus.FAILED, "exit_code": 0},  # wrote too much
        {"status": CopyStatus.WRONG_OUTPUT, "exit_code": 0, "validity": Validity.INVALID}
        | {"validity_detail": "line 1:  two blanks, \u00e4"},
        {"exit_code": 0, "validity": Validity.VALID},
    ]
    copies = tuple(
        replace(copy, **values) for copy, values in zip(plain.copies, ended, strict=True)
    )
    run = stored(database, replace(plain, copies=copies), reference_s)
    assert seen(there_and_back()) == seen(run)


@with_ratios_or_without
def test_the_words_for_failures_are_those_that_are_agreed(
    rater: Rater, database: Path, reference_s: float | None
) -> None:
    stored(database, observed(FAILED), reference_s)
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
def test_far_memory_is_far_again_and_no_memory_binding_is_made_up(
    rater: Rater, database: Path, there_and_back: Back, reference_s: float | None
) -> None:
    place: dict[str, Any] = {"cpu": 0, "core": 0, "node": 0, "package": 0}
    rows = [{"copy": 0, "mem_nodes": [1], **place}, {"copy": 1, **place}]
    run = stored(database, observed(rows), reference_s)
    text = rater("export", 1, "--format", "rsf")[1]
    assert config_in(text).splitlines()[2:] == [
        "bind0 = numactl --physcpubind=0",
        "bind1 = numactl --physcpubind=0",
    ]
    back = there_and_back()
    assert seen(back) == seen(run)
    assert [(copy.node, copy.mem_nodes) for copy in back.copies] == [(0, (1,)), (0, ())]


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
    text = rater("export", 1, "--format", "rsf")[1]
    assert config_in(text).splitlines()[2:] == [
        "bind0 = numactl --physcpubind=0",
        "bind1 = numactl --physcpubind=1",
        "",
        "a=peak:",
        "bind0 = numactl --physcpubind=1",
        "bind1 = numactl --physcpubind=3",
    ]
    back = there_and_back()
    assert seen(back) == seen(run)
    assert [(it.tune, it.benchmark) for it in back.brackets] == [
        ("base", "a"),
        ("peak", "a"),
        ("peak", "b"),
    ]


def test_masks_of_cpus_and_policies_of_memory_come_back(
    rater: Rater, database: Path, there_and_back: Back
) -> None:
    plain = planned()
    used = tuple(replace(it, category="fp") for it in plain.benchmarks)
    run = stored(database, replace(plain, benchmarks=used))
    text = rater("export", 1, "--format", "rsf")[1]
    assert config_in(text).splitlines()[2:] == [
        "bind0 = numactl --physcpubind=0-1 --localalloc",
        "bind1 = numactl --physcpubind=2-3 --interleave=0-1",
        "bind2 = numactl --physcpubind=4 --preferred=1",
        "bind3 = numactl --physcpubind=5",
        "bind4 = numactl --membind=1",
    ]
    back = there_and_back()
    assert (back.placements, seen(back)) == (PLACEMENTS, seen(run))
    assert [(it.threads, it.category) for it in back.benchmarks] == [(2, "fp")]


def test_a_machine_comes_back(database: Path, there_and_back: Back) -> None:
    document = {
        "rater": 1,
        "run": {"uuid": "u", "mode": "homogeneous", "copies": 1, "host": "h\u00f6st"},
        "topology": {"nodes": {"1": [0, 4], "3": [5]}, "cores": {"0": [0, 4]}},
        "observations": [{"benchmark": "a", "iteration": 1, "copy": 0, "cpu": 4, "elapsed_s": 1}],
    }
    run = stored(database, read_observations(json.dumps(document).encode(), "doc"))
    back = there_and_back()
    assert back.pus == run.pus
    assert (back.head.hostname, back.host.hostname) == ("h\u00f6st", "h\u00f6st")


def test_discarded_iterations_are_not_counted_again(database: Path, there_and_back: Back) -> None:
    rows = [
        {"iteration": n, "copy": copy, "elapsed_s": 9.0 - n, "counted": n > 1}
        for n in (1, 2, 3)
        for copy in (0, 1)
    ]
    run = stored(database, observed(rows))
    back = there_and_back()
    assert [(it.iteration, it.counted) for it in back.brackets] == [
        (1, False),
        (2, True),
        (3, True),
    ]
    assert seen(back) == seen(run)
    assert (back.head.iterations, back.head.discard) == (3, 1)
    selected = [it.reported.selected for it in back.brackets if it.reported]
    assert selected == [False, True, False]  # of two the slower


@with_ratios_or_without
def test_benchmarks_and_tunes_that_are_spelt_alike_stay_apart(
    rater: Rater, database: Path, there_and_back: Back, reference_s: float | None
) -> None:
    names = ["sort.c", "sort_c", "SORT_C", "sort_c_2", "429.mcf", "429_mcf", "\u00e4", "\u00f6"]
    rows = [
        {"benchmark": name, "tune": tune, "copy": 0, "elapsed_s": 1.0 + number}
        for tune in (None, "base", "O3", "o.3", "o 3")
        for number, name in enumerate([*names, " two  blanks ", "x" * 300])
    ]
    run = stored(database, observed(rows), reference_s)
    text = rater("export", 1, "--format", "rsf")[1]
    assert "spec.cpu2017.results.sort_c.base.000.benchmark: sort.c" in text
    back = there_and_back()
    assert seen(back) == seen(run)
    assert len({it.tune for it in back.brackets}) == 5
    assert back.head.benchmarks == run.head.benchmarks


@pytest.mark.parametrize(
    ("more", "stagger_ms", "reference_s"), [({}, 0.0, None), ({"stagger_ms": 5}, 5.0, 10.0)]
)
def test_queues_of_any_ring_and_increment_come_back(
    database: Path,
    there_and_back: Back,
    more: dict[str, Any],
    stagger_ms: float,
    reference_s: float | None,
) -> None:
    ring = ["c", "a", "b", "d"]
    rows = [
        {"benchmark": ring[(copy + 2 * step) % 4], "iteration": 1 + step // 4, "copy": copy}
        | {"step": step, "elapsed_s": 1.0 + copy + step / 8, "start_s": 10.0 * step}
        | {"counted": step > 3, "tune": "base", "status": "failed" if step == 5 else "ok"}
        for copy in range(3)
        for step in range(8)  # meets a benchmark twice in a round
    ]
    run = stored(database, observed(rows, mode="rotated", increment=2, **more), reference_s)
    back = there_and_back()
    assert back.copies == tuple(run.copies)
    assert back.head.benchmarks == run.head.benchmarks  # the ring
    assert (back.head.increment, back.head.stagger_ms) == (2, stagger_ms)
    assert [replace(it, reported=None) for it in back.brackets] == list(run.brackets)


def test_starts_and_the_order_of_brackets_come_back(database: Path, there_and_back: Back) -> None:
    rows = [
        {"benchmark": name, "iteration": n, "copy": copy, "start_s": start + copy / 100}
        for start, (name, n) in enumerate([("b", 1), ("b", 2), ("a", 1), ("a", 2)])
        for copy in (0, 1)
    ]
    run = stored(database, observed(rows, mode="staggered", stagger_ms=10))
    back = there_and_back()
    assert [replace(it, reported=None) for it in back.brackets] == list(run.brackets)
    assert seen(back) == seen(run)
    assert (back.head.mode, back.head.stagger_ms) == ("staggered", 10.0)


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


@with_ratios_or_without
def test_own_keys_that_cannot_be_understood_are_named_and_the_rest_is_read(
    rater: Rater, tmp_path: Path, database: Path, reference_s: float | None
) -> None:
    stored(database, observed([{"copy": 0, "cpu": 1}, {"copy": 1, "cpu": 2}]), reference_s)
    lines = rater("export", 1, "--format", "rsf")[1].splitlines()
    spoilt = []
    for line in lines:
        key, _, value = line.partition(": ")
        if key.endswith("rater_place001"):
            value = '{"cpu": -1}'
        elif key.endswith("rater_run"):
            value = "[" * 100_000
        elif key.endswith("rater_phase000"):
            value = '{"counted": 1}'
        spoilt.append(f"{key}: {value}" if value else line)
    path = tmp_path / "spoilt.rsf"
    path.write_text("\n".join(spoilt) + "\n")
    file = read_spec(path)
    assert [problem.text.partition(": ")[0] for problem in file.problems] == [
        "rater_run",
        "rater_phase000",
        "rater_place001",
    ]
    own = own_of(file.iterations[0])
    assert own is not None
    assert [own.place(copy).cpu for copy in (0, 1)] == [1, None]
    (run,) = json.loads(rater("import", "spec", path, "--json")[1])["runs"]
    assert run["problem_count"] == 3
    with open_store(database) as store:
        back = store.load(2)
    assert [copy.cpu for copy in back.copies] == [1, None]


@pytest.mark.parametrize(("kept", "reference_s"), [((), None), ((".rater_estimate",), 10.0)])
def test_a_program_that_does_not_know_our_keys_can_leave_them_out(
    rater: Rater,
    tmp_path: Path,
    database: Path,
    kept: tuple[str, ...],
    reference_s: float | None,
) -> None:
    run = stored(database, observed([{"copy": 0, "cpu": 1}, {"copy": 1, "cpu": 2}]), reference_s)
    lines = rater("export", 1, "--format", "rsf")[1].splitlines()
    path = tmp_path / "plain.rsf"
    plain = [line for line in lines if f".{PREFIX}" not in line or any(key in line for key in kept)]
    path.write_text("\n".join(plain) + "\n")
    assert len(plain) < len(lines)
    rater("import", "spec", path)
    with open_store(database) as store:
        back = store.load(2)
    assert [(it.cpu, it.elapsed_ns) for it in back.copies] == [
        (it.cpu, it.elapsed_ns) for it in run.copies
    ]
