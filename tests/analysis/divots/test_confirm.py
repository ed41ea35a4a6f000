"""Which CPUs a divot is tried against, what the pairs say, and the command that runs them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rater.analysis.divots.confirm import (
    ConfirmPlan,
    ConfirmVerdict,
    judge_pairs,
    next_command,
    slowdown_of,
    times_of,
    trial_of,
)
from rater.analysis.divots.model.finding import VERSION, CellEffect, Finding, Kind, to_json
from rater.cli import main
from rater.record.run import CopyStatus, PlacedCopy
from rater.record.stored import StoredRun
from rater.store.store import DivotSearch, Store, StoredDivot, open_store
from tests.support.example_findings import finding_of
from tests.support.example_runs import HEAD, copy_row, stored


def slow(
    kind: Kind = Kind.SLOW_LGROUP, cpus: tuple[int, ...] = (4, 5, 6, 7), **changes: Any
) -> Finding:
    one = finding_of(
        kind,
        "lgroup 1",
        cpus,
        nodes=tuple(sorted({cpu // 4 for cpu in cpus})),
        summary="a +20.0 %",
        cells=(CellEffect("a", "base", 1, 1.2, 0.1),),
    )
    return replace(one, **changes)


def run_of(copies: int = 16, threads: int = 1) -> StoredRun:
    """Copy c on CPU c; four CPUs a node, two nodes a package, two threads a core."""
    run = stored([copy_row(c, 10.0) for c in range(copies)], copies=copies)
    return replace(
        run,
        placements=tuple(
            PlacedCopy(c, (c,), c, c // 2, 0, c // 4, c // 8, "local", ()) for c in range(copies)
        ),
        benchmarks=tuple(replace(used, threads=threads) for used in run.benchmarks),
    )


def tried(one: Finding, run: StoredRun, *more: Finding) -> ConfirmPlan:
    trial = trial_of(one, [one, *more], run)
    assert isinstance(trial, ConfirmPlan), trial
    return trial


def test_an_lgroup_is_tried_against_one_of_its_package() -> None:
    trial = tried(slow(), run_of())
    assert (trial.copies, trial.here, trial.there) == (4, (4, 5, 6, 7), (0, 1, 2, 3))
    assert (trial.there_name, trial.benchmarks) == ("lgroup 0", ("a",))


def test_what_is_slow_itself_is_no_yardstick() -> None:
    trial = tried(slow(), run_of(), slow(cpus=(0, 1, 2, 3)))
    assert trial.there_name == "lgroup 2"


def test_where_all_is_slow_something_slow_has_to_do() -> None:
    trial = tried(slow(), run_of(8), slow(cpus=(0, 1, 2, 3)))
    assert trial.there_name == "lgroup 0"


def test_a_cpu_is_tried_against_another_core_of_its_lgroup() -> None:
    trial = tried(slow(Kind.SLOW_CPU, (5,)), run_of())
    assert (trial.copies, trial.there, trial.there_name) == (1, (6,), "CPU 6")


@pytest.mark.parametrize(
    ("one", "run", "why"),
    [
        (slow(Kind.SLOW_ITERATION, ()), run_of(), "rater rerun 7"),
        (slow(Kind.SLOW_LGROUP, ()), run_of(), "not bound"),
        (slow(), run_of(threads=2), "several CPUs"),
        (slow(cpus=tuple(range(16))), run_of(), "no other 16 CPUs"),
        (slow(copies=(0, 1)), run_of(), "other CPUs in each iteration"),
    ],
)
def test_what_cannot_be_tried_says_why(one: Finding, run: StoredRun, why: str) -> None:
    told = trial_of(one, [one], run)
    assert isinstance(told, str)
    assert why in told


def test_next_is_a_trial_a_rerun_or_nothing() -> None:
    head = replace(HEAD, request="{}", copies=16)
    assert next_command(2, slow(), head) == "rater divots --confirm 7 --finding 2"
    again = "rater rerun 7 && rater divots 7 last"
    assert next_command(1, slow(Kind.DRIFT, ()), head) == again
    assert next_command(1, slow(), replace(head, source="import")) is None
    assert next_command(1, slow(explained=True), head) is None


@pytest.mark.parametrize(
    ("pairs", "found", "answer"),
    [
        ([1.19, 1.21, 1.20], 1.2, ConfirmVerdict.CONFIRMED),
        ([1.04, 1.05, 1.045], 1.2, ConfirmVerdict.SMALLER),
        ([1.00, 1.01, 0.99], 1.2, ConfirmVerdict.NOT_CONFIRMED),
        ([1.4, 0.9, 1.1], 1.2, ConfirmVerdict.OPEN),
        ([0.81, 0.80, 0.79], 0.8, ConfirmVerdict.CONFIRMED),  # a fast copy
        ([1.19, 1.21, 1.20], 0.8, ConfirmVerdict.NOT_CONFIRMED),  # slow now, found fast
    ],
)
def test_pairs_decide(pairs: list[float], found: float, answer: ConfirmVerdict) -> None:
    told = judge_pairs(pairs, found)
    assert told.answer is answer
    assert told.low <= told.slowdown <= told.high


def test_the_interval_is_students_over_the_pairs_logs() -> None:
    told = judge_pairs(
        [1.1, 1.21], 1.2
    )  # ln: .0953 and .1906, their mean's error .0477, t(1) = 12.706
    assert told.slowdown == pytest.approx(1.1537, abs=1e-4)
    assert told.low == pytest.approx(0.6296, abs=1e-3)
    assert told.high == pytest.approx(2.1138, abs=2e-3)


def test_a_benchmark_with_a_failed_copy_is_in_no_pair() -> None:
    run = stored(
        [
            copy_row(0, 10.0),
            copy_row(1, 12.0),
            copy_row(0, 5.0, benchmark="b", phase=1),
            copy_row(1, 5.0, benchmark="b", phase=1, status=CopyStatus.FAILED),
        ]
    )
    assert times_of(run) == {"a": 11.0}
    assert slowdown_of({"a": 11.0, "b": 1.0}, {"a": 10.0}) == pytest.approx(1.1)
    assert slowdown_of({"b": 1.0}, {"a": 10.0}) is None


# -- the command ----------------------------------------------------------------------------------


def keep(store: Store, number: int, one: Finding) -> None:
    """Store a finding as if it had been found."""
    (head,) = (head for head in store.runs() if head.run == number)
    copies = head.copies * head.iterations
    row = StoredDivot(one, evidence="", finding=to_json(one))
    store.keep_divots(number, DivotSearch(VERSION, 0.015, 0.03, copies, {}, 0), [row])


@pytest.fixture
def two_cpus() -> list[int]:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs: a side each")
    return cpus[:2]


def a_run(tmp_path: Path, cpus: list[int]) -> None:
    layout = f"list:{cpus[0]},{cpus[1]}"
    options = ("--copies", "2", "--layout", layout, "--proof", "off", "--share", "--quiet")
    assert (
        main(
            [
                "run",
                *options,
                "--",
                "/bin/sh",
                "-c",
                "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done",
            ]
        )
        == 0
    )
    one = slow(Kind.SLOW_CPU, (cpus[1],), place=f"CPU {cpus[1]}", copies=(1,), benchmarks=())
    with open_store(tmp_path / "rater.db") as store:
        keep(store, 1, one)


@pytest.mark.slow
def test_confirm_runs_both_sides_in_turn_and_keeps_them(
    tmp_path: Path, two_cpus: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path, two_cpus)
    status = main(["divots", "--confirm", "1", "--pairs", "2", "--share", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["refused"] is None
    assert told["runs"] == [{"a": 2, "b": 3}, {"a": 4, "b": 5}]
    assert told["verdict"]["answer"] in set(ConfirmVerdict)
    assert (status == 0) == (told["verdict"]["answer"] in ("confirmed", "confirmed in part"))
    assert len(told["verdict"]["pairs"]) == 2
    with open_store(tmp_path / "rater.db") as store:
        runs = [store.load(number) for number in range(2, 6)]
    assert [dict(run.head.tags)["side"] for run in runs] == ["a", "b", "a", "b"]
    assert [dict(run.head.tags)["confirm"] for run in runs] == ["1"] * 4
    assert [run.placements[0].cpu for run in runs] == [two_cpus[1], two_cpus[0]] * 2


def test_a_dry_run_runs_nothing(
    tmp_path: Path, two_cpus: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path, two_cpus)
    assert main(["divots", "--confirm", "1", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "5 pairs of runs in turn, 1 copy each" in out
    assert f"--layout list:{two_cpus[1]}" in out.replace("\n    ", " ")
    with open_store(tmp_path / "rater.db") as store:
        assert len(store.runs()) == 1


def test_what_was_imported_cannot_be_run_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "times.json"
    times = [100.0 + 0.1 * (c % 3) + 30.0 * (c == 5) for c in range(16)]
    rows = [
        {"benchmark": "b", "iteration": 1, "copy": c, "cpu": c, "node": 0, "elapsed_s": time_s}
        for c, time_s in enumerate(times)
    ]
    head = {"uuid": "u", "host": "h", "mode": "homogeneous", "copies": 16}
    path.write_text(json.dumps({"rater": 1, "run": head, "observations": rows}))
    assert main(["import", str(path)]) == 0
    capsys.readouterr()
    assert main(["divots", "--confirm", "last"]) == 1
    assert "cannot be confirmed here: run 1 was imported" in capsys.readouterr().out
    assert main(["divots", "--confirm", "last", "--dry-run"]) == 0
    assert "cannot be confirmed here: run 1 was imported" in capsys.readouterr().out
    assert main(["divots", "1", "--confirm", "last"]) == 2
    assert "--confirm last: leave out 1\n" in capsys.readouterr().err
    assert main(["divots", "last", "--threshold-copy", "100"]) == 0
    capsys.readouterr()
    assert main(["divots", "--confirm", "last", "--finding", "2"]) == 2
    assert "expected 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--finding", "1"),
        ("--dry-run",),
        ("--confirm", "1", "2"),
        ("--confirm", "1", "--pairs", "1"),
    ],
)
def test_options_that_do_not_go_together_are_the_users_mistake(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["divots", *words]) == 2
    assert capsys.readouterr().err.startswith("rater: ")
