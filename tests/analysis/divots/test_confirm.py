"""Divots of several runs in common, and tried again against other CPUs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rater.analysis.divots.confirm import (
    ConfirmPlan,
    ConfirmResult,
    ConfirmVerdict,
    judge_cause,
    judge_pairs,
    next_commands,
    slowdown_of,
    times_of,
    trial_of,
)
from rater.analysis.divots.model.finding import (
    VERSION,
    CellEffect,
    Finding,
    Kind,
    Presence,
    RecurringDivot,
    to_json,
)
from rater.analysis.divots.recurring import between_runs
from rater.analysis.results import disturbed
from rater.commands.cli import main
from rater.record.run import CopyStatus, MemoryPolicy, Placement
from rater.record.stored import StoredRun
from rater.store.store import DivotSearch, Store, StoredDivot, open_store
from tests.support.divot_runs import Machine, quiet, run_times
from tests.support.example_findings import finding_of
from tests.support.example_runs import copy_row, stored


def slow(
    kind: Kind = Kind.SLOW_LGROUP, cpus: tuple[int, ...] = (4, 5, 6, 7), **changes: Any
) -> Finding:
    finding = finding_of(
        kind,
        "node 1",
        cpus,
        nodes=tuple(sorted({cpu // 4 for cpu in cpus})),
        summary="a +20.0 %",
        cells=(CellEffect(benchmark="a", tune="base", iteration=1, slowdown=1.2, rate_lost=0.1),),
    )
    return replace(finding, **changes)


def run_of(copies: int = 16, threads: int = 1) -> StoredRun:
    """Copy c on CPU c; four CPUs a node, two nodes a package, two threads a core."""
    run = stored([copy_row(c, 10.0) for c in range(copies)], copies=copies)
    return replace(
        run,
        placements=tuple(
            Placement(
                copy=c,
                cpus=(c,),
                cpu=c,
                core=c // 2,
                llc=0,
                node=c // 4,
                package=c // 8,
                memory_policy=MemoryPolicy.LOCAL,
                memory_nodes=(),
            )
            for c in range(copies)
        ),
        benchmarks=tuple(replace(used, threads=threads) for used in run.benchmarks),
    )


def tried(finding: Finding, run: StoredRun, *more: Finding) -> ConfirmPlan:
    trial = trial_of(finding, [finding, *more], run)
    assert isinstance(trial, ConfirmPlan), trial
    return trial


def test_an_lgroup_is_tried_against_one_of_its_package() -> None:
    trial = tried(slow(), run_of())
    assert (trial.copies, trial.here, trial.there) == (4, (4, 5, 6, 7), (0, 1, 2, 3))
    assert (trial.there_name, trial.benchmarks) == ("node 0", ("a",))


def test_what_is_slow_itself_is_no_yardstick() -> None:
    trial = tried(slow(), run_of(), slow(cpus=(0, 1, 2, 3)))
    assert trial.there_name == "node 2"


def test_where_all_is_slow_something_slow_has_to_do() -> None:
    trial = tried(slow(), run_of(8), slow(cpus=(0, 1, 2, 3)))
    assert trial.there_name == "node 0"


def test_a_cpu_is_tried_against_another_core_of_its_lgroup() -> None:
    trial = tried(slow(Kind.SLOW_CPU, (5,)), run_of())
    assert (trial.copies, trial.there, trial.there_name) == (1, (6,), "CPU 6")


@pytest.mark.parametrize(
    ("finding", "run", "why"),
    [
        (slow(Kind.SLOW_ITERATION, ()), run_of(), "rater rerun 7"),
        (slow(Kind.SLOW_LGROUP, ()), run_of(), "not bound"),
        (slow(), run_of(threads=2), "several CPUs"),
        (slow(cpus=tuple(range(16))), run_of(), "no other 16 CPUs"),
        (slow(copies=(0, 1)), run_of(), "other CPUs in each iteration"),
    ],
)
def test_what_cannot_be_tried_says_why(finding: Finding, run: StoredRun, why: str) -> None:
    told = trial_of(finding, [finding], run)
    assert isinstance(told, str)
    assert why in told


def test_next_is_a_trial_or_a_rerun_where_a_trial_would_refuse() -> None:
    again = "rater rerun 7 && rater divots 7 last"
    confirms = "rater divots --confirm 7 --finding 2"
    explained = slow(explained=True)
    found = [slow(Kind.DRIFT, ()), slow(), explained]
    assert next_commands(found, run_of(), of_kit=False) == (again, confirms)
    assert next_commands(found, run_of(threads=2), of_kit=False) == (again, again)
    assert next_commands(found, run_of(), of_kit=True) == (again, again)


@pytest.mark.parametrize(
    ("pairs", "stored_slowdown", "answer"),
    [
        ([1.19, 1.21, 1.20], 1.2, ConfirmVerdict.CONFIRMED),
        ([1.04, 1.05, 1.045], 1.2, ConfirmVerdict.SMALLER),
        ([1.00, 1.01, 0.99], 1.2, ConfirmVerdict.NOT_CONFIRMED),
        ([1.4, 0.9, 1.1], 1.2, ConfirmVerdict.OPEN),
        ([0.81, 0.80, 0.79], 0.8, ConfirmVerdict.CONFIRMED),  # a fast copy
        ([1.19, 1.21, 1.20], 0.8, ConfirmVerdict.NOT_CONFIRMED),  # slow now, found fast
    ],
)
def test_pairs_decide(pairs: list[float], stored_slowdown: float, answer: ConfirmVerdict) -> None:
    told = judge_pairs(pairs, stored_slowdown)
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


def result(answer: ConfirmVerdict, slowdown: float) -> ConfirmResult:
    return ConfirmResult(answer=answer, slowdown=slowdown, low=1.0, high=2.0, pairs=())


CONFIRMED, SMALLER, NOT_CONFIRMED, OPEN, *_ = ConfirmVerdict


@pytest.mark.parametrize(
    ("place", "copy", "cause"),
    [
        ((CONFIRMED, 1.2), (NOT_CONFIRMED, 1.0), "place"),
        ((NOT_CONFIRMED, 1.0), (CONFIRMED, 1.2), "copy"),
        ((SMALLER, 1.1), (CONFIRMED, 1.3), "copy"),
        ((CONFIRMED, 1.3), (SMALLER, 1.1), "place"),
        ((CONFIRMED, 0.7), (SMALLER, 0.9), "place"),  # of a fast one
        ((NOT_CONFIRMED, 1.0), (NOT_CONFIRMED, 1.0), "neither"),
        ((NOT_CONFIRMED, 1.0), (OPEN, 1.1), "cannot tell"),
        ((OPEN, 1.1), (CONFIRMED, 1.2), "copy"),
        ((CONFIRMED, 1.2), None, "place"),
        ((NOT_CONFIRMED, 1.0), None, "neither"),
        ((OPEN, 1.0), None, "cannot tell"),
    ],
)
def test_both_questions_together_say_what_a_divot_is_of(
    place: tuple[ConfirmVerdict, float], copy: tuple[ConfirmVerdict, float] | None, cause: str
) -> None:
    assert judge_cause(result(*place), None if copy is None else result(*copy)) == cause


def test_a_trial_keeps_the_numbers_of_the_copies_and_has_median_copies_beside_them() -> None:
    run = run_of()
    seconds = {copy: 10.0 + 0.1 * copy for copy in range(16)}
    run = replace(
        run,
        copies=tuple(
            replace(copy, elapsed_ns=round(seconds[copy.copy] * 1e9)) for copy in run.copies
        ),
    )
    one = slow(Kind.SLOW_CPU, (5,), place="CPU 5", copies=(5,), benchmarks=())
    trial = trial_of(one, [one], run)
    assert isinstance(trial, ConfirmPlan)
    # Of the other 15 copies copy 8 has the median time.
    assert (trial.numbers, trial.other_numbers, trial.copies_of_run) == ((5,), (8,), 16)
    node = trial_of(slow(), [slow()], run)
    assert isinstance(node, ConfirmPlan)
    assert (node.numbers, len(node.other_numbers)) == ((4, 5, 6, 7), 4)
    assert not {*node.numbers} & {*node.other_numbers}


# -- the command ----------------------------------------------------------------------------------


def keep(store: Store, number: int, finding: Finding) -> None:
    """Store a finding as if it had been found."""
    (head,) = (head for head in store.runs() if head.run == number)
    copies = head.copies * head.iterations
    row = StoredDivot(finding, evidence="", finding=to_json(finding))
    store.keep_divots(
        number,
        DivotSearch(
            version=VERSION,
            threshold_group=0.015,
            threshold_copy=0.03,
            copy_runs=copies,
            visible={},
            failed=0,
        ),
        [row],
    )


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
                f"echo $RATER_COPY/$RATER_COPIES >> {tmp_path}/copies; "
                "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done",
            ]
        )
        == 0
    )
    one = slow(Kind.SLOW_CPU, (cpus[1],), place=f"CPU {cpus[1]}", copies=(1,), benchmarks=())
    with open_store(tmp_path / "rater.db") as store:
        keep(store, 1, one)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [0.0, 0.5])
def test_confirm_runs_both_sides_in_turn_and_keeps_them(
    tmp_path: Path,
    two_cpus: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cost: float,
) -> None:
    monkeypatch.setattr(disturbed, "foreign_load_cost", lambda *_: cost)
    a_run(tmp_path, two_cpus)
    status = main(["divots", "--confirm", "1", "--pairs", "2", "--share", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["refused"] is None
    assert document["runs"] == [{"a": 2, "b": 3, "c": 4}, {"a": 5, "b": 6, "c": 7}]
    verdict = document["verdict"]
    assert verdict["answer"] in set(ConfirmVerdict)
    if cost and not verdict["by_cpu_time"]:
        told = (status, verdict["answer"], verdict["cause"], verdict["disturbed"])
        assert told == (3, "cannot tell", "cannot tell", "2 of 2 runs disturbed")
    else:
        statuses = {"place": 0, "copy": 0, "neither": 1, "cannot tell": 3}
        assert status == statuses[verdict["cause"]]
    assert len(verdict["pairs"]) == len(verdict["copy"]["pairs"]) == 2
    with open_store(tmp_path / "rater.db") as store:
        runs = [store.load(number) for number in range(2, 8)]
    assert [dict(run.head.tags)["side"] for run in runs] == ["a", "b", "c"] * 2
    assert [dict(run.head.tags)["confirm"] for run in runs] == ["1"] * 6
    slow_cpu, other_cpu = two_cpus[1], two_cpus[0]
    assert [run.placements[0].cpu for run in runs] == [slow_cpu, other_cpu, slow_cpu] * 2
    # The first run had copies 0 and 1 of 2; the copy of the finding keeps its number.
    copies = (tmp_path / "copies").read_text().split()
    assert sorted(copies[:2]) == ["0/2", "1/2"]
    assert copies[2:] == ["1/2", "1/2", "0/2"] * 2


def test_a_dry_run_runs_nothing(
    tmp_path: Path, two_cpus: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path, two_cpus)
    assert main(["divots", "--confirm", "1", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "5 rounds of runs in turn, 1 copy each" in out
    line = out.replace("\n    ", " ")
    for numbers, cpu in (("1/2", two_cpus[1]), ("1/2", two_cpus[0]), ("0/2", two_cpus[1])):
        assert f"--copy-numbers {numbers} --layout list:{cpu}" in line
    with open_store(tmp_path / "rater.db") as store:
        assert len(store.runs()) == 1


def test_what_was_imported_cannot_be_run_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "times.json"
    times = [100.0 + 0.1 * (copy % 3) + 30.0 * (copy == 5) for copy in range(16)]
    rows = [
        {
            "benchmark": "b",
            "iteration": 1,
            "copy": copy,
            "cpu": copy,
            "node": 0,
            "elapsed_s": time_s,
        }
        for copy, time_s in enumerate(times)
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
    assert "--finding 2: run 1 has 1 divot, numbered from 1" in capsys.readouterr().err


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


FOUR = Machine(4, 8)

type Slow = tuple[slice | list[int], slice | list[int], slice | list[int], float]

ALL = slice(None)
LGROUP_1 = (ALL, ALL, slice(8, 16), 1.2)
LGROUP_3 = (ALL, ALL, slice(24, 32), 1.2)
HALF = (ALL, ALL, slice(8, 16), 1.1)
TENTH = (ALL, ALL, slice(8, 16), 1.02)
ONE_CPU = ([2], ALL, [5], 1.2)
OTHER_CPU = ([2], ALL, [22], 1.2)
CPU_IN_B4 = ([4], ALL, [5], 1.2)
IN_TWO = ([0, 1], ALL, slice(8, 16), 1.2)
IN_THREE = ([0, 1, 4], ALL, slice(8, 16), 1.2)
IN_OTHERS = ([3, 4], ALL, slice(8, 16), 1.2)
IN_ITERATION_1 = (ALL, [0], [5], 1.2)
IN_ITERATION_2 = (ALL, [1], [5], 1.2)
LGROUP_0 = (ALL, ALL, slice(8), 1.2)
UPPER = (ALL, ALL, slice(48, 64), 1.2)
LGROUP_2_OF_4 = (ALL, ALL, slice(8, 12), 1.2)
EVEN = Machine(4, 16, cpu=lambda copy, iteration: 2 * copy)
TWO_COPIES = ([3], [0], [4, 17], 1.3)
OTHER_TWO = ([3], [1], [9, 30], 1.3)


def between(
    *slow: Slow | None, machines: Sequence[Machine] = (), noises: Sequence[float] = ()
) -> tuple[RecurringDivot, ...]:
    runs = []
    for number, one in enumerate(slow, 1):
        machine = machines[number - 1] if machines else FOUR
        noise = noises[number - 1] if noises else 0.003
        times = quiet(6, 3, machine.copies, seed=number, noise=noise)
        if one is not None:
            benchmarks, iterations, copies, size = one
            mask = np.zeros(times.shape, dtype=bool)
            mask[benchmarks] = True
            for axis, chosen in ((1, iterations), (2, copies)):
                keep = np.zeros(times.shape[axis], dtype=bool)
                keep[chosen] = True
                mask &= np.expand_dims(keep, tuple({0, 1, 2} - {axis}))
            times[mask] *= size
        runs.append(run_times(number, times, machine))
    return between_runs(runs)


def test_a_run_in_which_no_copy_of_the_place_ended_well_did_not_run_there() -> None:
    (one,) = between((ALL, ALL, [5], 1.2), (ALL, ALL, [5], np.nan))
    assert [(look.there, look.slowdown) for look in one.looks][1:] == [(Presence.NOT_RUN, None)]


def said(recurring: RecurringDivot) -> str:
    """`recurring lgroup 1 in b0,b1: +20 +10` with a size for each run that has it."""
    each = [
        f"{((look.slowdown or 1) - 1) * 100:+.0f}"
        if look.there is Presence.YES
        else str(look.there)
        for look in recurring.looks
    ]
    places = list(dict.fromkeys(place.place for place in recurring.places))
    where = ",".join(recurring.benchmarks) or "all"
    return f"{recurring.kind} {', '.join(places)} in {where}: {' '.join(each)}"


@pytest.mark.parametrize(
    ("slow", "lines"),
    [
        # In both at the same place; in one only, whichever is named first; in none.
        ((LGROUP_1, LGROUP_1), ["recurring node 1 in all: +20 +20"]),
        ((LGROUP_1, None), ["once node 1 in all: +20 no"]),
        ((None, LGROUP_1), ["once node 1 in all: no +20"]),
        ((None, None), []),
        # Moved, or two faults that have nothing in common.
        ((LGROUP_1, LGROUP_3), ["wandering node 1, node 3 in all: +20 +20"]),
        ((ONE_CPU, OTHER_CPU), ["wandering CPU 5, CPU 22 in b2: +20 +20"]),
        ((TWO_COPIES, OTHER_TWO), ["wandering CPUs 4,17, CPUs 9,30 in b3: +30 +30"]),
        ((LGROUP_1, OTHER_CPU), ["once CPU 22 in b2: no +20", "once node 1 in all: +20 no"]),
        # Half the size is the same fault, a tenth of the size is named beside it.
        ((LGROUP_1, HALF), ["recurring node 1 in all: +20 +10"]),
        ((LGROUP_1, TENTH), ["recurring node 1 in all: +20 +2"]),
        # Other benchmarks.
        ((IN_TWO, IN_THREE), ["recurring node 1 in b0,b1: +20 +20"]),
        ((IN_TWO, IN_OTHERS), ["wandering node 1 in b0,b1,b3,b4: +20 +20"]),
        ((ONE_CPU, CPU_IN_B4), ["wandering CPU 5 in b2,b4: +20 +20"]),
        # One iteration of a run is another's in the next.
        ((IN_ITERATION_2, IN_ITERATION_1), ["recurring CPU 5 in all: +20 +20"]),
        ((IN_ITERATION_2, None), ["once CPU 5 in all: +20 no"]),
        # Three runs of which one differs, or two; five with the place that two of them share.
        ((LGROUP_1, None, LGROUP_1), ["recurring node 1 in all: +20 no +20"]),
        ((None, LGROUP_1, None), ["once node 1 in all: no +20 no"]),
        (
            (LGROUP_1, LGROUP_1, LGROUP_3, None, LGROUP_0),
            ["wandering node 1, node 3, node 0 in all: +20 +20 +20 no +20"],
        ),
    ],
)
def test_a_fault_recurs_only_where_it_is(slow: tuple[Slow | None, ...], lines: list[str]) -> None:
    assert sorted(map(said, between(*slow))) == lines


@pytest.mark.parametrize(
    ("slow", "second", "line"),
    [
        # Half as many copies on each lgroup: CPU 5 is there, of lgroup 1 now; and where only even
        # CPUs have copies it is not.
        ((ONE_CPU, ONE_CPU), Machine(4, 4), "recurring CPU 5 in b2: +20 +20"),
        ((LGROUP_1, None), Machine(4, 4), "once node 1 in all: +20 no"),
        ((LGROUP_1, UPPER), Machine(4, 16), "wandering node 1, node 3 in all: +20 +20"),
        ((LGROUP_1, LGROUP_2_OF_4), Machine(8, 4), "wandering node 1, node 2 in all: +20 +20"),
        ((ONE_CPU, None), EVEN, "once CPU 5 in b2: +20 not run"),
        ((ONE_CPU, None), Machine(4, 8, places=False), "once CPU 5 in b2: +20 not run"),
    ],
)
def test_runs_of_other_numbers_of_copies_are_compared_by_the_place(
    slow: tuple[Slow | None, ...], second: Machine, line: str
) -> None:
    assert [said(it) for it in between(*slow, machines=(FOUR, second))] == [line]


def test_a_copy_that_is_slow_wherever_it_runs_recurs_by_its_number() -> None:
    turned = Machine(4, 8, cpu=lambda copy, iteration: (copy + 5 * iteration) % 32)
    both = between(ONE_CPU, ONE_CPU, machines=(turned, turned))
    assert [said(it) for it in both] == ["recurring copy 5, wherever it ran in b2: +20 +20"]
    (one,) = between(ONE_CPU, None, machines=(turned, turned))
    assert said(one) == "once copy 5, wherever it ran in b2: +20 no"


def test_a_run_too_noisy_to_tell_is_no_run_without_it() -> None:
    small = (ALL, ALL, slice(8, 16), 1.03)
    (one,) = between(small, None, noises=(0.002, 0.3))
    assert said(one) == "once node 1 in all: +3 too noisy to tell"
    assert ", run 2 is too noisy to tell (" in one.summary
    (one,) = between(small, None, small, noises=(0.002, 0.3, 0.002))
    assert said(one) == "recurring node 1 in all: +3 too noisy to tell +3"


def test_runs_are_told_with_the_size_of_each() -> None:
    (recurring,) = between(LGROUP_1, HALF)
    assert recurring.summary == (
        "node 1: all benchmarks +10 to +20 % in 2 of 2 runs: run 1 +20.0 %, run 2 +10.0 %; "
        "it comes back"
    )
    (recurring,) = between(LGROUP_1, None)
    assert recurring.summary == (
        "node 1: all benchmarks +20.0 % in 1 of 2 runs: run 1 +20.0 %, not in run 2 (+0.0 %); "
        "in one run only"
    )
    (recurring,) = between(ONE_CPU, OTHER_CPU)
    assert recurring.summary == (
        "b2 +20.1 % in 2 of 2 runs: run 1 CPU 5 +20.1 %, run 2 CPU 22 +20.1 %; each time in "
        "another place"
    )
    (recurring,) = between(IN_TWO, IN_OTHERS)
    assert recurring.summary == (
        "node 1: b0, b1, b3, b4 +20.0 % in 2 of 2 runs: run 1 in b0, b1 +19.9 %, "
        "run 2 in b3, b4 +20.0 %; each time in another place"
    )
