"""What changed over runs: the history of a benchmark, and facts of machines that differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from rater.analysis.compare.conditions import (
    condition_differences,
    setting_label,
    stored_conditions,
)
from rater.analysis.compare.hardware import HardwareDifference, hardware_differences
from rater.analysis.compare.history import Group, Grouping, RunHistory, run_histories
from rater.analysis.stats.steps import find_steps
from rater.record.run import MetricUsed
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from tests.support.compared_runs import beside_others
from tests.support.compared_runs import run as compared_run

FIRST = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY, MINUTES = timedelta(days=1), timedelta(minutes=5)


def runs_made(
    seconds: Sequence[float],
    settings: Callable[[int], Mapping[str, str]] = lambda place: {},
    *,
    every: timedelta = DAY,
    a_session: int = 1,
    **head: Any,
) -> list[StoredRun]:
    """Runs of benchmark a: one `every` so often, or so many of a session, five minutes apart."""
    runs = []
    for place, time_s in enumerate(seconds):
        session, inside = divmod(place, a_session)
        started = FIRST + session * every + inside * MINUTES
        started_at = started.strftime("%Y-%m-%dT%H:%M:%SZ")
        of_run = compared_run(place + 1, {"a": [[time_s, time_s]]}, started_at=started_at, **head)
        runs.append(replace(of_run, settings=tuple(settings(place).items())))
    return runs


def only(runs: Sequence[StoredRun], **options: Any) -> RunHistory:
    (history,) = run_histories("a", runs, **{"grouping": Grouping(), **options})
    return history


def noise(count: int, seed: int, sd: float = 0.005) -> list[float]:
    return list(10 * np.exp(sd * np.random.default_rng(seed).standard_t(4, count)))


def kernel(place: int) -> Mapping[str, str]:
    """Another kernel from the 13th run on; a setting that is another one each time."""
    return {"kernel.release": "6.2" if place >= 12 else "6.1", "thp.defrag": str(place % 2)}


def test_a_step_has_its_date_its_size_and_what_changed_then_and_at_no_other_time() -> None:
    seconds = [s * (1.05 if place >= 12 else 1) for place, s in enumerate(noise(20, 1, 0.002))]
    history = only(runs_made(seconds, kernel))
    (step,) = history.steps
    assert history.points[step.place].started_at == "2026-03-13T12:00:00Z"
    assert step.ratio == pytest.approx(1 / 1.05, abs=0.003)
    named = [(it.what, it.before, it.after) for it in step.changes if not it.elsewhere]
    assert named == [("setting kernel.release", "6.1", "6.2")]
    assert [it.what for it in step.changes if it.elsewhere] == ["setting thp.defrag"]


def test_noise_makes_no_step_in_any_of_fifty_histories() -> None:
    assert not any(only(runs_made(noise(14, seed))).steps for seed in range(50))


def test_two_modes_between_which_runs_change_at_random_are_no_steps() -> None:
    for seed in range(8):
        random = np.random.default_rng(seed)
        modes = 0.04 * (random.random(30) < 0.5) + 0.003 * random.standard_normal(30)
        assert find_steps(modes, 0.01) == ()


def test_where_noise_hides_the_place_what_changed_about_there_is_told() -> None:
    seconds = [10.0] * 8 + [10.3] + [10.6] * 8  # the ninth run may belong to either side
    settings = {"kernel.release": "6.1"}
    history = only(runs_made(seconds, lambda place: {**settings, "thp.enabled": str(place >= 8)}))
    (step,) = history.steps
    assert [it.what for it in step.changes] == ["setting thp.enabled"]


def test_runs_of_sessions_are_a_point_together_where_sessions_are_enough() -> None:
    random = np.random.default_rng(5)
    seconds = 10 * np.exp(np.repeat(0.02 * random.standard_normal(8), 4))
    history = only(runs_made(list(seconds), a_session=4))
    assert (history.group, len(history.points), history.steps) == (Group.SESSION, 8, ())
    assert history.points[1].runs == (5, 6, 7, 8)


def test_a_step_between_two_sessions_may_be_that_sessions_differ() -> None:
    seconds = [*noise(8, 1, 0.002), *(1.03 * s for s in noise(8, 2, 0.002))]
    (step,) = only(runs_made(seconds, a_session=8)).steps
    assert (step.place, step.between_sessions) == (8, True)
    (step,) = only(runs_made(seconds, every=DAY)).steps
    assert not step.between_sessions


def test_runs_of_a_commit_are_a_point_wherever_the_program_lies() -> None:
    runs = runs_made(noise(14, 1))
    of_commits = [
        replace(run, head=replace(run.head, tags=(("commit", f"c{place // 2}"),)))
        for place, run in enumerate(runs[:-1])
    ]
    history = only([*of_commits, runs[-1]], grouping=Grouping(group=Group.TAG, tag="commit"))
    assert [point.label for point in history.points] == [f"c{number}" for number in range(7)]
    assert [(it.run, it.reason) for it in history.excluded] == [(14, "no tag commit")]


def test_other_work_is_a_history_of_its_own() -> None:
    runs = [*runs_made(noise(8, 1)), *runs_made(noise(3, 2), size="ref")]
    histories = run_histories("a", runs, grouping=Grouping())
    assert [(it.head.size, len(it.points)) for it in histories] == [("test", 8), ("ref", 3)]


def test_disturbed_runs_are_judged_by_cpu_time_or_left_out() -> None:
    quiet, disturbed = beside_others(1, [1.0] * 8, 0.0), beside_others(11, [1.0] * 9, 0.5)
    history = only([*quiet, *disturbed])
    assert (history.measure.by_cpu, history.measure.unasked, len(history.points)) == (
        True,
        True,
        17,
    )
    history = only([*quiet, *disturbed[:2]])
    assert (history.measure.by_cpu, len(history.points)) == (False, 8)
    assert {it.reason for it in history.excluded} == {"too disturbed by other processes"}


def test_counts_show_steps_of_a_fifth_of_a_per_cent_and_no_two_sources_are_mixed() -> None:
    counts = [6_000_000] * 4 + [6_012_000] * 4
    timed_runs = runs_made([10.0] * 8)
    runs = [counted(run, counts[place], "valgrind 3.19.0") for place, run in enumerate(timed_runs)]
    history = only(runs, by_metric="instructions")
    (step,) = history.steps
    assert step.place == 4
    assert history.measure.value(step.after) == pytest.approx(6_012_000)
    assert math.isclose(step.ratio, 6000 / 6012)
    later_runs = runs_made([10.0] * 3, every=2 * DAY)
    others = [counted(run, 7_000_000, "valgrind 3.22.0") for run in later_runs]
    assert (
        len(run_histories("a", [*runs, *others], grouping=Grouping(), by_metric="instructions"))
        == 2
    )
    with pytest.raises(
        InputError, match=r"--by bandwidth: expected day, .* direction: instructions"
    ):
        only(runs, by_metric="bandwidth")


def counted(of_run: StoredRun, count: int, source: str) -> StoredRun:
    used = replace(
        of_run.benchmarks[0],
        metrics=(MetricUsed(name="instructions", unit=source, better="lower", combine="mean"),),
    )
    copies = tuple(replace(it, metrics=(("instructions", float(count)),)) for it in of_run.copies)
    return replace(of_run, benchmarks=(used,), copies=copies)


def test_a_memory_slot_is_called_by_its_own_name() -> None:
    assert setting_label("dimm.P0 CHANNEL H/DIMM 0") == "memory slot P0 CHANNEL H/DIMM 0"
    assert setting_label("thp.enabled") == "setting thp.enabled"


def test_runs_are_told_apart_by_the_facts_that_both_know() -> None:
    differences = hardware_differences(
        {
            7: {"dimm.P0-H": "empty", "firmware.version": "1", "thp.enabled": "never"},
            8: {"dimm.P0-H": "64 GB DDR5", "firmware.version": "1", "thp.enabled": "always"},
            9: {"firmware.version": "1"},  # made by a user, who cannot read the slots
        }
    )
    assert differences == (
        HardwareDifference("memory slot P0-H", (("empty", (7,)), ("64 GB DDR5", (8,)))),
    )


def test_runs_are_told_apart_by_microcode_caches_and_words_of_the_command_line() -> None:
    differences = hardware_differences(
        {
            1: {"host.microcode": "0x1", "kernel.cmdline": "ro quiet", "cache.L3": "32768K"},
            2: {"host.microcode": "0x2", "kernel.cmdline": "ro", "cache.L3": "16384K"},
            3: {"host.microcode": "0x1", "kernel.cmdline": "ro quiet", "cpu.boost": "1"},
        }
    )
    assert differences == (
        HardwareDifference("setting cache.L3", (("32768K", (1,)), ("16384K", (2,)))),
        HardwareDifference("microcode", (("0x1", (1, 3)), ("0x2", (2,)))),
        HardwareDifference(
            "setting kernel.cmdline", (("quiet", (1, 3)), ("none of these words", (2,)))
        ),
    )


@pytest.mark.parametrize(
    ("was", "is_now", "difference"),
    [
        ("quiet root=/dev/a nosmt", "quiet root=/dev/a", "was nosmt, is not there"),
        ("a b mitigations=auto", "a b mitigations=off", "was mitigations=auto, is mitigations=off"),
        ("a b", "b a", "was a b, is b a"),
        ("a", "a password=secret", "was not there, is password=[redacted]"),
    ],
)
def test_of_command_lines_the_words_that_differ_are_told(
    was: str, is_now: str, difference: str
) -> None:
    before, now = (
        stored_conditions(replace(made, settings=(("kernel.cmdline", line),)))
        for line, made in zip((was, is_now), runs_made([1.0]) * 2, strict=True)
    )
    (told,) = condition_differences(before, now)
    assert str(told) == f"setting kernel.cmdline: {difference}"
