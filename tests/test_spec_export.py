"""What `rater export --format rsf` and `--format observations` write, read back copy by copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rater.cli import main
from rater.record import CopyStatus, PlacedCopy, StoredRun, Validity
from rater.spec.own_keys import PREFIX, own_of
from rater.spec.packed import unpack
from rater.spec.read import read_spec
from rater.spec.rsf_bind import configuration
from rater.spec.rsf_write import rsf_lines
from rater.store.observations import read_observations
from rater.store.store import open_store
from tests.test_spec_rsf import HEAD, bracket

type Rater = Callable[..., tuple[int, str, str]]
type Back = Callable[..., StoredRun]


@pytest.fixture
def rater(capsys: pytest.CaptureFixture[str]) -> Rater:
    """Run `rater ...` on the test's own database; return status, standard output and error."""

    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The one that RATER_DB names (see conftest.py)."""
    return tmp_path / "rater.db"


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
        words = ["import", path] if kind == "observations" else ["import", "spec", path]
        status, _, err = rater(*words)
        assert (status, err) == (0, "")
        with open_store(database) as store:
            return store.load(2)

    return go


def stored(database: Path, run: StoredRun) -> StoredRun:
    with open_store(database) as store:
        return store.load(store.add(run)[0])


def observed(rows: list[dict[str, Any]], **run: object) -> StoredRun:
    """A run of these observations; what they leave out is benchmark a, iteration 1, 1 s."""
    always = {"benchmark": "a", "iteration": 1, "copy": 0, "elapsed_s": 1.0}
    copies = 1 + max(row.get("copy", 0) for row in rows)
    document = {
        "rater": 1,
        "run": {"uuid": "u", "mode": "homogeneous", "copies": copies} | run,
        "observations": [always | row for row in rows],
    }
    return read_observations(json.dumps(document).encode(), "doc")


def times(run: StoredRun) -> list[tuple[object, ...]]:
    rows = [(it.benchmark, it.iteration, it.copy, it.step, it.elapsed_ns) for it in run.copies]
    return sorted(rows)


def ends(run: StoredRun) -> list[tuple[object, ...]]:
    return [
        (it.copy, it.status.value, it.exit_code, it.signal, it.validity.value, it.validity_detail)
        for it in run.copies
    ]


def places(run: StoredRun) -> list[tuple[object, ...]]:
    return sorted(
        (it.benchmark, it.tune or "base", it.copy, it.cpu, it.core, it.node, it.mem_nodes)
        for it in run.copies
    )


def config_in(text: str) -> list[str]:
    """Return the lines of the configuration inside a raw file, the first two left out."""
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


@pytest.mark.parametrize("kind", ["rsf", "observations"])
def test_copies_come_back_with_how_they_ended(
    database: Path, there_and_back: Back, kind: str
) -> None:
    run = stored(database, observed(FAILED))
    back = there_and_back(kind)
    found = [copy.status.value for copy in back.copies]
    assert found == ["ok", "failed", "timeout", "wrong-output", "interrupted", "ok"]
    assert (ends(back), times(back)) == (ends(run), times(run))
    assert back.head.status.value == "failed"


def test_exit_codes_signals_and_details_come_back(database: Path, there_and_back: Back) -> None:
    plain = observed([{"copy": number} for number in range(4)])
    ended: list[dict[str, Any]] = [
        {"status": CopyStatus.TIMEOUT, "signal": 15},
        {"status": CopyStatus.FAILED, "exit_code": 0},  # wrote too much
        {"status": CopyStatus.WRONG_OUTPUT, "exit_code": 0, "validity": Validity.INVALID}
        | {"validity_detail": "line 1:  two blanks, \u00e4"},
        {"exit_code": 0, "validity": Validity.VALID},
    ]
    copies = tuple(replace(it, **end) for it, end in zip(plain.copies, ended, strict=True))
    run = stored(database, replace(plain, copies=copies))
    assert ends(there_and_back()) == ends(run)


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


def test_far_memory_is_far_again_and_no_memory_binding_is_made_up(
    rater: Rater, database: Path, there_and_back: Back
) -> None:
    place: dict[str, Any] = {"cpu": 0, "core": 0, "node": 0, "package": 0}
    run = stored(database, observed([{"copy": 0, "mem_nodes": [1], **place}, {"copy": 1, **place}]))
    text = rater("export", 1, "--format", "rsf")[1]
    assert config_in(text) == [
        "bind0 = numactl --physcpubind=0",
        "bind1 = numactl --physcpubind=0",
    ]
    back = there_and_back()
    assert [(copy.node, copy.mem_nodes) for copy in back.copies] == [(0, (1,)), (0, ())]
    assert places(back) == places(run)


def test_copies_of_another_benchmark_were_elsewhere(
    rater: Rater, database: Path, there_and_back: Back
) -> None:
    rows = [
        {"benchmark": name, "tune": tune, "copy": copy, "cpu": cpu, "node": cpu // 2}
        for name, tune, cpus in [("a", "base", (0, 1)), ("a", "peak", (1, 3)), ("b", "peak", (0,))]
        for copy, cpu in enumerate(cpus)
    ]
    run = stored(database, observed(rows))
    assert config_in(rater("export", 1, "--format", "rsf")[1]) == [
        "bind0 = numactl --physcpubind=0",
        "bind1 = numactl --physcpubind=1",
        "",
        "a=peak:",
        "bind0 = numactl --physcpubind=1",
        "bind1 = numactl --physcpubind=3",
    ]
    assert places(there_and_back()) == places(run)


def test_masks_and_policies_are_written_as_they_were_planned() -> None:
    plans = [
        ((0, 1), 0, "local", ()),
        ((2, 3), 2, "interleave", (0, 1)),
        ((4,), 4, "preferred", (1,)),
        ((5,), 5, "none", ()),
        (None, None, "bind", (1,)),
    ]
    run = observed([{"copy": copy, "cpu": plan[1]} for copy, plan in enumerate(plans)])
    run = replace(
        run,
        placements=tuple(
            PlacedCopy(copy, cpus, cpu, None, None, None, None, policy, nodes)
            for copy, (cpus, cpu, policy, nodes) in enumerate(plans)
        ),
        benchmarks=tuple(replace(it, threads=2) for it in run.benchmarks),
    )
    assert (configuration(run, {None: "base"}, "estimate") or "").splitlines() == [
        "# estimate",
        "submit = $BIND $command",
        "bind0 = numactl --physcpubind=0-1 --localalloc",
        "bind1 = numactl --physcpubind=2-3 --interleave=0-1",
        "bind2 = numactl --physcpubind=4 --preferred=1",
        "bind3 = numactl --physcpubind=5",
        "bind4 = numactl --membind=1",
    ]


def test_a_copy_of_several_threads_is_not_narrowed_to_one_cpu() -> None:
    run = observed([{"copy": 0, "cpu": 0, "node": 1}])
    run = replace(run, benchmarks=tuple(replace(it, threads=4) for it in run.benchmarks))
    assert (configuration(run, {None: "base"}, "estimate") or "").splitlines()[2:] == [
        "bind0 = numactl --cpunodebind=1"
    ]
    assert "spec.cpu2017.results.a.base.000.threads: 4" in rsf_lines(run, {}, {})


def test_what_the_keys_of_spec_cannot_say_is_in_keys_of_our_own(tmp_path: Path) -> None:
    rows = [{"iteration": n, "copy": 0, "counted": n > 1, "start_s": n} for n in (1, 2)]
    run = observed(rows, mode="staggered", stagger_ms=5)
    path = tmp_path / "own.rsf"
    path.write_text("\n".join(rsf_lines(run, {}, {})) + "\n")
    first, second = map(own_of, read_spec(path).iterations)
    assert first is not None and second is not None
    assert (first.counted, second.counted) == (False, True)
    assert (first.tune, first.iteration, first.of(0).start_ns) == (None, 1, 10**9)
    assert first.run.phases[0]["finish_ns"] == 2 * 10**9
    assert first.run.head is not None
    assert (first.run.head["mode"], first.run.head["stagger_ms"]) == ("staggered", 5.0)
    assert (first.run.head["iterations"], first.run.head["discard"]) == (2, 1)


def test_benchmarks_and_tunes_that_are_spelt_alike_stay_apart(
    rater: Rater, database: Path, there_and_back: Back
) -> None:
    names = ["sort.c", "sort_c", "SORT_C", "sort_c_2", "429.mcf", "429_mcf", "\u00e4", "\u00f6"]
    rows = [
        {"benchmark": name, "tune": tune, "copy": 0, "elapsed_s": 1.0 + number}
        for tune in (None, "base", "O3", "o.3", "o 3")
        for number, name in enumerate([*names, " two  blanks ", "x" * 300])
    ]
    run = stored(database, observed(rows))
    text = rater("export", 1, "--format", "rsf")[1]
    assert "spec.cpu2017.results.sort_c.base.000.benchmark: sort.c" in text
    back = there_and_back()
    assert times(back) == times(run)
    assert len({it.tune for it in back.brackets}) == 5


def test_queues_of_any_ring_and_increment_come_back(database: Path, there_and_back: Back) -> None:
    ring = ["c", "a", "b", "d"]
    rows = [
        {"benchmark": ring[(copy + 2 * step) % 4], "iteration": 1 + step // 4, "copy": copy}
        | {"step": step, "elapsed_s": 1.0 + copy + step / 8, "start_s": 10.0 * step}
        | {"counted": step > 3, "tune": "base", "status": "failed" if step == 5 else "ok"}
        for copy in range(3)
        for step in range(8)  # meets a benchmark twice in a round
    ]
    run = stored(database, observed(rows, mode="rotated", increment=2))
    back = there_and_back()
    assert back.copies == tuple(run.copies)
    assert [replace(it, reported=None) for it in back.brackets] == list(run.brackets)


def test_the_ratios_of_cpu2000_are_its_own(rater: Rater, tmp_path: Path) -> None:
    # 2 copies x 5000 s / 500 s x 3600 / 3100
    text = (HEAD + bracket(ratio=23.225806)).replace("cpu2006", "cpu2000")
    path = tmp_path / "old.rsf"
    path.write_text(text.replace("basemean: 20", "basemean: 23"))
    rater("import", "spec", path)
    exported = rater("export", 1, "--format", "rsf")[1]
    assert "spec.cpu2000.basemean: 23.225806" in exported
    path.write_text(exported)
    (run,) = json.loads(rater("import", "spec", path, "--json")[1])["runs"]
    assert run["disagreements"] == []


def test_own_keys_that_cannot_be_understood_are_named_and_the_rest_is_read(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    stored(database, observed([{"copy": 0, "cpu": 1}, {"copy": 1, "cpu": 2}]))
    spoilt = []
    for line in rater("export", 1, "--format", "rsf")[1].splitlines():
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


def test_a_program_that_does_not_know_our_keys_can_leave_them_out(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    run = stored(database, observed([{"copy": 0, "cpu": 1}, {"copy": 1, "cpu": 2}]))
    lines = rater("export", 1, "--format", "rsf")[1].splitlines()
    plain = [line for line in lines if f".{PREFIX}" not in line]
    assert len(plain) < len(lines)
    path = tmp_path / "plain.rsf"
    path.write_text("\n".join(plain) + "\n")
    rater("import", "spec", path)
    with open_store(database) as store:
        back = store.load(2)
    assert [(it.cpu, it.elapsed_ns) for it in back.copies] == [
        (it.cpu, it.elapsed_ns) for it in run.copies
    ]
