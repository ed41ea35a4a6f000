"""Sweeps with real processes: resumed, each point once; settings set for points and put back."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from jsonschema import Draft202012Validator

from rater.analysis.divots.model.finding import Analysis, CpuJudgement
from rater.analysis.results.copies import Point
from rater.plan.sweep import SweepSlot
from rater.record.run import RunStatus
from rater.run.host.foreign_load import ForeignLoad, ForeignLoadSampler
from rater.settings import restore as putback
from rater.settings import tuner as tuner_module
from rater.settings.known import write_value
from rater.settings.tuner import SettingsSession
from rater.store.store import open_store
from rater.store.sweeps import create_slot_run, find_sweep, load_sweep
from rater.system.errors import InputError
from rater.system.process import StoppedBySignal
from rater.workflow.results.points import count_interim_looks, load_points
from rater.workflow.run import campaign, prepare
from rater.workflow.run.campaign import stoppable
from rater.workflow.sweep.runner import SweepCampaign
from tests.support.calls import Rater, query_rows
from tests.support.energy_tree import powercap
from tests.support.example_events import run_of
from tests.support.json_schemas import closed, schema_of
from tests.support.settings_tree import THP, make_tree, values

TINY = ("--copies", "1", "--proof", "off", "--share", "--quiet")


def execute(sql: str) -> None:
    with closing(sqlite3.connect(os.environ["RATER_DB"], autocommit=True)) as db:
        db.execute(sql)


def tags_of(run: int) -> dict[str, str]:
    return dict(query_rows(f"SELECT name, value FROM tag WHERE run_id = {run}"))


def interrupted(rater: Rater, folder: Path) -> None:
    """A sweep of two points and two rounds whose third run was interrupted."""
    ends = f"kill -INT {os.getpid()}; exec sleep 60"
    script = f"echo >> {folder}/n; [ $(wc -l < {folder}/n) != 3 ] || {{ {ends}; }}"
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--order", "given")
    status, _, said = rater("sweep", *TINY, *words, "--", "sh", "-c", script)
    assert status == 130, said


def test_what_is_missing_is_made_and_what_was_interrupted_is_kept_and_made_again(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    interrupted(rater, tmp_path)
    assert query_rows("SELECT run_id, done FROM sweep_progress") == [
        (1, 1),
        (2, 1),
        (3, 0),
        (None, 0),
    ]
    monkeypatch.chdir("/")  # it goes on where it was made
    _, out, _ = rater("sweep", "--resume", "last", "--dry-run")
    document = json.loads(rater("sweep", "--resume", "last", "--dry-run", "--json")[1])
    Draft202012Validator(closed(schema_of("sweep-resume"))).validate(document)
    assert "run 3 is kept, made again" in out
    assert rater("sweep", "--resume", "last", "--quiet") == (0, "", "")
    assert query_rows("SELECT run_id, done FROM sweep_progress") == [(1, 1), (2, 1), (4, 1), (5, 1)]
    assert tags_of(3)["replaced-by"] == "4"
    assert [status for (status,) in query_rows("SELECT status FROM run")] == [
        *("complete", "complete", "interrupted", "complete", "complete")
    ]
    assert query_rows("SELECT status, resumed FROM sweep") == [("complete", 1)]


def test_more_rounds_can_be_added(rater: Rater) -> None:
    words = ("--axis", "env:X=1,2", "--rounds", "1", "--seed", "5")
    assert rater("sweep", *TINY, *words, "--", "true")[0] == 0
    assert rater("sweep", "--resume", "1", "--rounds", "2", "--quiet")[0] == 0
    assert query_rows("SELECT block, done FROM sweep_progress") == [(1, 1), (1, 1), (2, 1), (2, 1)]
    status, _, said = rater("sweep", "--resume", "1", "--rounds", "1")
    assert (status, "has 2; more can be added" in said) == (2, True)


def test_rounds_that_were_added_for_what_the_first_said_count_as_another_look(
    rater: Rater, database: Path
) -> None:
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--seed", "5")
    assert rater("sweep", *TINY, *words, "--", "true")[0] == 0

    def looks() -> int:
        with open_store(database) as store:
            by_tag = count_interim_looks(store, load_points(store, ["tag:env:X=1", "tag:env:X=2"]))
            assert count_interim_looks(store, load_points(store, ["sweep:1"])) == by_tag
            return by_tag

    assert looks() == 1
    assert rater("sweep", "--resume", "1", "--rounds", "3", "--quiet")[0] == 0
    assert looks() == 2
    _, out, _ = rater("compare", "sweep:1", "--json")
    assert json.loads(out)["confidence"] == pytest.approx(1 - 0.02205)


def test_a_refused_resumption_leaves_the_sweep_as_it_was(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rater("sweep", *TINY, "--axis", "env:X=1,2", "--rounds", "1", "--", "true")[0] == 0
    before = query_rows("SELECT status, reason, ended_at, rounds, extended FROM sweep")
    slots = query_rows("SELECT * FROM sweep_slot")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    status, _, said = rater("sweep", "--resume", "1", "--rounds", "4")
    assert (status, "cannot go on" in said) == (2, True)
    assert query_rows("SELECT status, reason, ended_at, rounds, extended FROM sweep") == before
    assert query_rows("SELECT * FROM sweep_slot") == slots


def test_a_changed_environment_is_refused_unless_forced(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(rater, tmp_path)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    status, _, said = rater("sweep", "--resume", "1", "--quiet")
    assert status == 2
    assert "sweep 1 cannot go on" in said
    assert "environment variable MALLOC_ARENA_MAX: was not there, is 1" in said
    assert len(query_rows("SELECT 1 FROM run")) == 3
    assert rater("sweep", "--resume", "1", "--quiet", "--force")[0] == 0


def test_a_sweep_whose_rater_lives_is_not_taken_up(rater: Rater, tmp_path: Path) -> None:
    interrupted(rater, tmp_path)
    execute("UPDATE sweep SET status = 'running'")  # by this process, which lives
    status, _, said = rater("sweep", "--resume", "1")
    assert (status, "sweep 1 is still running" in said) == (2, True)


def test_a_slot_has_one_run_that_counts_and_the_database_holds_that(
    rater: Rater, database: Path, tmp_path: Path
) -> None:
    interrupted(rater, tmp_path)
    with open_store(database) as store:
        sweep = load_sweep(store, find_sweep(store, "sweep:last"))
        assert (sweep.status, sweep.missing[0]) == (RunStatus.INTERRUPTED, SweepSlot(2, 1, 0))

        def begin(slot: SweepSlot) -> int:
            return create_slot_run(store, 1, slot, run_of(1), 1)

        with pytest.raises(InputError, match="run 1 was made meanwhile"):
            begin(SweepSlot(1, 1, 0))
        assert begin(SweepSlot(2, 1, 0)) == 4
    with pytest.raises(sqlite3.IntegrityError):
        execute("INSERT INTO sweep_run VALUES (1, 1, 2, 0, 1, 0)")


@pytest.mark.parametrize("word", ["2", "last~1", "sweep:7", "nonsense"])
def test_a_sweep_that_is_not_there_is_told(rater: Rater, tmp_path: Path, word: str) -> None:
    assert rater("sweep", *TINY, "--axis", "env:X=1", "--rounds", "1", "--", "true")[0] == 0
    status, _, said = rater("sweep", "--show", word)
    assert (status, "no such sweep" in said) == (2, True)


@pytest.mark.parametrize("energy", [False, True])
def test_until_stops_after_a_block_from_the_third_on_when_all_is_decided(
    rater: Rater, machine: Path, monkeypatch: pytest.MonkeyPatch, energy: bool
) -> None:
    powercap(machine)
    asked: list[tuple[int, float, int, bool]] = []

    def decided(points: Sequence[Point], margin: float, looks: int, *, energy: bool) -> bool:
        asked.append((len(points[0].runs), margin, looks, energy))
        return True

    monkeypatch.setattr("rater.analysis.compare.compare.is_decided", decided)
    words = (
        "--axis",
        "env:X=1,2",
        "--rounds",
        "4",
        "--until",
        f"{'energy:' * energy}2%",
        "--",
        "true",
    )
    status, _, said = rater("sweep", *TINY, *words)
    assert (status, asked) == (0, [(3, 0.02, 2, energy)])
    assert json.loads(rater("sweep", "--show", "1", "--json")[1])["until_of"] == (
        "energy" if energy else "time"
    )
    assert "decided after block 3 of 4" in said
    assert len(query_rows("SELECT 1 FROM run")) == 6
    status, _, said = rater("sweep", "--resume", "1")
    assert (status, "nothing is missing (decided after block 3" in said) == (0, True)
    assert rater("sweep", "--resume", "1", "--rounds", "4", "--quiet")[0] == 0
    assert len(query_rows("SELECT 1 FROM run")) == 8


@pytest.mark.parametrize("status", ["interrupted", "running"])
def test_a_sweep_that_was_stopped_when_its_last_run_was_done_is_complete_when_it_is_resumed(
    rater: Rater, database: Path, status: str
) -> None:
    assert rater("sweep", *TINY, "--axis", "env:X=1,2", "--rounds", "1", "--", "true")[0] == 0
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE sweep SET status = ?, reason = 'x', pid_start = -1", (status,))
    assert rater("sweep", "--resume", "1", "--dry-run")[0] == 0
    assert query_rows("SELECT status FROM sweep") == [(status,)]
    assert rater("sweep", "--resume", "1", "--quiet") == (0, "", "")
    assert query_rows("SELECT status, reason FROM sweep") == [("complete", None)]


def test_runs_of_a_complete_sweep_that_were_removed_are_made_again(rater: Rater) -> None:
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--", "true")
    assert rater("sweep", *TINY, *words)[0] == 0
    assert rater("rm", "2")[0] == 0
    assert rater("sweep", "--resume", "1", "--quiet") == (0, "", "")
    assert query_rows("SELECT count(*), sum(done) FROM sweep_progress") == [(4, 4)]
    _, _, said = rater("sweep", "--resume", "1")
    assert "None" not in said
    assert "nothing is missing" in said


@pytest.mark.parametrize("stopped", ["interrupted", "running"])
def test_a_sweep_stopped_behind_its_last_run_ends_when_it_is_resumed(
    rater: Rater, stopped: str
) -> None:
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--", "true")
    assert rater("sweep", *TINY, *words)[0] == 0
    execute(f"UPDATE sweep SET status = '{stopped}', reason = 'x', pid_start = 1")  # it is gone
    assert rater("sweep", "--resume", "1", "--quiet") == (0, "", "")
    assert query_rows("SELECT status, reason FROM sweep") == [("complete", None)]
    assert query_rows("SELECT count(*) FROM run") == [(4,)]


SWAPPINESS = "proc/sys/vm/swappiness"


def test_settings_are_set_for_each_point_and_put_back(
    rater: Rater, machine: Path, tmp_path: Path
) -> None:
    before = values(machine)
    copy = f"read it < {machine}/{THP}/enabled; echo $it >> {tmp_path}/seen"
    axes = ("--axis", "thp=never,always", "--rounds", "2", "--order", "abba")
    status, _, said = rater("sweep", *TINY, *axes, "--", "sh", "-c", copy)
    assert (status, said) == (0, "")
    assert (tmp_path / "seen").read_text().split() == ["never", "always", "always", "never"]
    assert values(machine) == before
    assert not (tmp_path / "settings.json").exists()


def test_page_sizes_set_what_they_need_and_leave_nothing_behind(
    rater: Rater, machine: Path, tmp_path: Path
) -> None:
    """64 KB is never and 2 MB inherits madvise: 64k wants the one on and the other off."""
    before = values(machine)
    sizes = [f"{machine}/{THP}/hugepages-{size}kB/enabled" for size in (64, 2048)]
    copy = f"for f in {' '.join(sizes)}; do read it < $f; echo $it; done >> {tmp_path}/seen"
    axes = ("--axis", "pages=0%,64k,2M", "--rounds", "1", "--order", "given")
    words = (*axes, "--pages-heap", "8M", "--", "sh", "-c", copy)

    status, out, _ = rater("sweep", "--copies", "1", "--share", "--dry-run", *words)
    ended = rater("sweep", *TINY, *words)

    assert status == 0
    assert "pages=64k sets thp.64kB=madvise thp.2048kB=never" in out
    assert "REFUSED" not in out
    assert ended == (0, "", "")
    assert (tmp_path / "seen").read_text().split() == [
        *("never", "inherit"),
        *("madvise", "never"),
        *("never", "inherit"),
    ]
    assert values(machine) == before


def test_a_setting_that_is_an_axis_itself_is_not_tied_to_page_sizes(
    rater: Rater, machine: Path
) -> None:
    axes = ("--axis", "pages=0%,64k", "--axis", "thp.2048kB=inherit,never")
    status, out, _ = rater("sweep", *TINY, *axes, "--dry-run", "--json", "--", "true")

    points = json.loads(out)["points"]
    assert status == 0
    left_out = [point["left_out"] for point in points]
    assert [bool(reason) for reason in left_out] == [False, False, True, False]
    assert "transparent pages of 2M are on" in left_out[2]


def test_settings_are_put_back_when_a_signal_ends_the_sweep(rater: Rater, machine: Path) -> None:
    before = values(machine)
    stop = f"kill -TERM {os.getpid()}; sleep 60"
    status, _, said = rater("sweep", *TINY, "--axis", "thp=never", "--", "sh", "-c", stop)
    assert status == 128 + signal.SIGTERM
    assert "sweep 1: stopped by SIGTERM; `rater sweep --resume 1` goes on" in said
    assert values(machine) == before
    assert query_rows("SELECT status FROM sweep") == [("interrupted",)]


def test_a_signal_between_two_runs_ends_the_sweep_as_well(
    rater: Rater, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = values(machine)

    def hang_up(*_: object) -> None:
        assert values(machine) != before
        signal.raise_signal(signal.SIGHUP)

    monkeypatch.setattr("rater.workflow.sweep.runner.SweepCampaign.judge", hang_up)
    words = ("--axis", "thp=never", "--rounds", "2", "--", "true")
    status, _, said = rater("sweep", *TINY, *words)
    assert (status, "stopped by SIGHUP" in said) == (128 + signal.SIGHUP, True)
    assert values(machine) == before
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_a_sweep_waits_once_to_see_who_else_works_here(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[ForeignLoadSampler] = []

    class Young(ForeignLoadSampler):
        would_wait = True  # no time passes

        def busy(self, *_: object, **__: object) -> ForeignLoad:
            waits.append(self)
            return ForeignLoad((), 0.0, 0.0)

    for module in (prepare, campaign):
        monkeypatch.setattr(module, "ForeignLoadSampler", Young)
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--", "true")
    assert rater("sweep", *TINY, *words) == (0, "", "")
    assert (len(query_rows("SELECT 1 FROM run")), len(waits)) == (4, 1)


def test_a_rest_between_runs_can_be_interrupted(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

    monkeypatch.setattr("rater.run.host.idle.cool_down", endless)
    words = ("--axis", "env:X=1", "--rounds", "2", "--cooldown", "0.001", "--", "true")
    status, _, said = rater("sweep", *TINY, *words)
    assert (status, "stopped by SIGINT" in said) == (130, True)
    assert len(query_rows("SELECT 1 FROM run")) == 1


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("thp=never,sometimes", "thp=sometimes: expected one of"),
        ("tpp=never", "did you mean thp"),
        ("swappiness=much", "expected a whole number"),
        ("boost=1,on", "axis boost: 1 and on are the same"),
    ],
)
def test_settings_that_cannot_be_had_are_refused_before_the_first_run(
    rater: Rater, machine: Path, axis: str, said: str
) -> None:
    before = values(machine)
    status, _, told = rater("sweep", *TINY, "--axis", axis, "--", "true")
    assert status == 2
    assert said in told
    assert values(machine) == before
    assert query_rows("SELECT 1 FROM sqlite_master WHERE name = 'sweep'") == [] or (
        query_rows("SELECT 1 FROM sweep") == []
    )


def test_what_a_point_needs_of_a_setting_may_be_another_axis(rater: Rater, machine: Path) -> None:
    words = ("--axis", "hugepages=off,thp", "--axis", "thp=never,always", "--copies", "1")
    status, out, _ = rater("sweep", *words, "--dry-run", "--json", "--", "true")
    points = json.loads(out)["points"]
    assert status == 0
    assert [bool(point["left_out"]) for point in points] == [False, False, True, False]


def test_a_setting_that_takes_cpus_away_has_each_run_look_at_them_anew(
    rater: Rater, machine: Path
) -> None:
    before = values(machine)
    words = ("--axis", "cpu.smt.control=on,off", "--rounds", "1", "--", "true")
    assert rater("sweep", *TINY, *words) == (0, "", "")
    assert len(query_rows("SELECT 1 FROM sweep_progress WHERE done")) == 2
    assert values(machine) == before


def test_of_many_signals_only_the_first_one_counts() -> None:
    later = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    ignored = []
    with pytest.raises(StoppedBySignal) as stopped, stoppable() as ear:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            for number in later:
                signal.raise_signal(number)
                ignored.append(number)
    assert (stopped.value.number, ear.received) == (signal.SIGTERM, signal.SIGTERM)
    assert tuple(ignored) == later


def test_signals_that_come_while_settings_are_put_back_do_not_break_that_off(
    rater: Rater, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = values(machine)
    restore, restored = SettingsSession.restore, []

    def hang_up(*_: object) -> None:
        restored.append(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)

    def disturbed(tuner: SettingsSession) -> None:
        for number in (signal.SIGTERM, signal.SIGINT) if restored else ():
            signal.raise_signal(number)
        restore(tuner)

    monkeypatch.setattr("rater.workflow.sweep.runner.SweepCampaign.judge", hang_up)
    monkeypatch.setattr(SettingsSession, "restore", disturbed)
    status, _, said = rater("sweep", *TINY, "--axis", "thp=never", "--", "true")
    assert (status, "stopped by SIGHUP" in said) == (128 + signal.SIGHUP, True)
    assert values(machine) == before
    assert not (machine.parent / "settings.json").exists()


def test_a_run_whose_setting_somebody_changed_does_not_count_and_ends_the_sweep(
    rater: Rater, machine: Path
) -> None:
    copy = f"test $X = 1 || echo 33 > {machine}/{SWAPPINESS}"
    axes = ("--axis", "swappiness=10", "--axis", "env:X=1,2", "--order", "given", "--rounds", "2")
    status, _, said = rater("sweep", *TINY, *axes, "--", "sh", "-c", copy)
    assert status == 1
    assert "swappiness to 33 while it was to be 10" in said
    assert "run 2 is kept and does not count" in said
    assert "`rater sweep --resume 1` goes on" in said
    assert values(machine)[SWAPPINESS] == "33"  # the user's own is not written over
    tags = dict(query_rows("SELECT name, value FROM tag WHERE run_id = 2"))
    assert sorted(tags) == ["not-counted", "sweep"]  # `tag:swappiness=10` would be false
    assert "to 33" in tags["not-counted"]
    assert query_rows("SELECT run_id, done FROM sweep_progress ORDER BY block, position") == [
        *((1, 1), (None, 0), (None, 0), (None, 0))
    ]
    assert rater("settings", "restore", "--force")[0] == 0
    assert values(machine)[SWAPPINESS] == "60"


def test_a_setting_that_cannot_be_written_for_a_while_is_put_back_at_the_end(
    rater: Rater, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def at_times(root: Path, file: str, value: str) -> None:
        written.append(value)
        if 3 <= len(written) <= 6:  # the second `set`, and the three tries to put back
            raise OSError(30, "Read-only file system", str(root / file))
        write_value(root, file, value)

    for module in (tuner_module, putback):
        monkeypatch.setattr(module, "write_value", at_times)
    axes = ("--axis", "swappiness=10,20", "--order", "given", "--rounds", "2")
    status, _, said = rater("sweep", *TINY, *axes, "--", "true")
    assert status == 1
    assert "1 of 4 runs could not be made" in said
    assert values(machine)[SWAPPINESS] == "60"
    assert not (machine.parent / "settings.json").exists()


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (("swappiness=1,2", "vm.swappiness=1,2"), "swappiness and vm.swappiness set the same"),
        (("thp=never", "thp.enabled=always"), "thp and thp.enabled set the same thing"),
    ],
)
def test_two_names_of_one_setting_are_no_two_axes(
    rater: Rater, machine: Path, axes: tuple[str, ...], said: str
) -> None:
    words = [f"--axis={axis}" for axis in axes]
    status, _, told = rater("sweep", *TINY, *words, "--", "true")
    assert (status, said in told) == (2, True)
    status, out, _ = rater("sweep", *TINY, *words, "--dry-run", "--json", "--", "true")
    assert (status, said in json.loads(out)["refused"][0]) == (2, True)
    assert values(machine) == values(make_tree(machine.parent / "another"))


@pytest.mark.usefixtures("machine")
def test_the_machines_own_switch_of_threads_is_named_where_the_option_was_meant(
    rater: Rater,
) -> None:
    status, _, said = rater("sweep", *TINY, "--axis", "smt=on,off", "--", "true")
    assert (status, "--axis smt.control=on,off" in said) == (2, True)
    assert "did you mean smt.control" in rater("settings", "smt")[2]


def test_looking_at_sweeps_tells_of_settings_that_were_left(rater: Rater, machine: Path) -> None:
    Path(os.environ["RATER_JOURNAL"]).write_text("{")
    for words in (("--list",), ("--example",)):
        assert "rater settings restore --forget" in rater("sweep", *words)[2]
    assert machine.exists()


def test_an_allocator_that_reaches_no_program_is_refused_before_the_first_run(
    rater: Rater, tmp_path: Path
) -> None:
    (tmp_path / "it.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "it.so.c").write_text("int it;\n")
    program, library = tmp_path / "it", tmp_path / "it.so"
    static = subprocess.run(
        ["cc", "-static", "-o", program, tmp_path / "it.c"], capture_output=True, check=False
    )
    if static.returncode:
        pytest.skip("no static C library here")
    subprocess.run(["cc", "-shared", "-o", library, tmp_path / "it.so.c"], check=True)
    axes = ("--axis", f"alloc=system,{library}", "--rounds", "1")
    status, _, said = rater("sweep", *TINY, *axes, "--", program)
    assert (status, "is statically linked" in said, "1 of 2 points" in said) == (2, True, True)
    assert not Path(os.environ["RATER_DB"]).exists()
    status, _, said = rater("run", "--alloc", program, "--copies", "1", "--", "true")
    assert (status, "is a program, no shared library" in said) == (2, True)


def test_a_run_that_cpu_time_judges_is_made_again_for_its_elapsed_times() -> None:
    analysis = Analysis(
        findings=(),
        visible={},
        others_cost=0.4,
        by_cpu=CpuJudgement(others_took=0.4, noise_cost=None),
    )
    examined: Any = SimpleNamespace(analysis=analysis)
    reason = SweepCampaign.disturbance(cast("SweepCampaign", None), examined)
    assert reason == "other processes on these CPUs lowered the score by an estimated 40 %"
