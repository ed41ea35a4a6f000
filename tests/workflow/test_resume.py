"""What is stored goes on: `--resume` runs exactly what is missing, in databases of before too.

The long form is `make torture`. The old databases are made from the frozen steps up to their own,
and get rows of today's rater in the columns they have: no version that is added needs a line.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.torture.resume import SUITE, one_resume
from rater.analysis.results.remaining import PhaseState, RemainingPlan, remaining_plan
from rater.commands.cli import main
from rater.plan.request import request_from_json
from rater.plan.schedule import Order, Plan, Window, make_plan
from rater.record.run import CopyStatus, MachinePU, MemoryPolicy, Placement, RunStatus, Validity
from rater.record.stored import StoredRun
from rater.run.launcher.guard import end_leftovers
from rater.store.rows import migrate, migrations, read_pragma
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from rater.system.paths import data_folder
from rater.system.process import ProcessId, this_process
from rater.workflow.run.repeat import select_benchmarks
from tests.support.calls import RATER, Rater, rater
from tests.support.example_events import ended, over, phase, run_of
from tests.support.example_runs import S, copy_row, stored
from tests.support.pages import VEGA
from tests.support.released import copy_of
from tests.support.stored_runs import GONE, PUS, append

PLAN = make_plan(["a", "b"], 2, iterations=2)  # phases 0 a1, 1 b1, 2 a2, 3 b2


def of_phase(number: int, **changes: Any) -> list[Any]:
    """Both copies of a phase of `PLAN`, well and judged."""
    planned = PLAN.phases[number % 4]
    here = {"phase": number, "benchmark": planned.benchmark, "iteration": planned.iteration}
    return [copy_row(copy, 1.0, start_ns=number * S, **(here | changes)) for copy in range(2)]


def states(remaining: RemainingPlan) -> list[tuple[str, int]]:
    return [(phase.state.value, phase.phase.number) for phase in remaining.phases]


# -- what is missing, as a pure function --------------------------------------------------------


def test_a_phase_is_done_when_all_its_copies_ended_and_were_judged() -> None:
    left = remaining_plan(PLAN, stored([*of_phase(0), *of_phase(1)]))
    assert states(left) == [("done", 0), ("done", 1), ("missing", 2), ("missing", 3)]
    assert [it.number for it in left.ahead] == [2, 3]
    assert (left.runs_done, left.failed, left.torn) == (4, 0, ())


@pytest.mark.parametrize(
    "changes",
    [{"validity": Validity.UNCHECKED}, {"status": CopyStatus.INTERRUPTED}],
    ids=["never-judged", "stopped"],
)
def test_a_phase_with_a_copy_that_is_open_is_torn_and_gets_a_fresh_number(
    changes: dict[str, Any],
) -> None:
    left = remaining_plan(PLAN, stored([*of_phase(0), *of_phase(1, **changes)]))
    assert states(left) == [("done", 0), ("torn", 4), ("missing", 2), ("missing", 3)]
    assert left.torn == (1,)


def test_a_phase_that_lacks_a_copy_or_its_end_is_torn() -> None:
    assert remaining_plan(PLAN, stored(of_phase(0)[:1])).torn == (0,)
    assert remaining_plan(PLAN, stored(of_phase(0), closed=False)).torn == (0,)


def test_a_phase_whose_copies_failed_was_measured_and_counts() -> None:
    failed = of_phase(0, status=CopyStatus.FAILED, validity=Validity.UNCHECKED)
    left = remaining_plan(PLAN, stored([*failed, *of_phase(1)]))
    assert states(left)[:2] == [("done", 0), ("done", 1)]
    assert (left.runs_done, left.failed) == (4, 2)


def test_what_ran_again_is_found_under_its_fresh_number_and_numbers_are_never_used_twice() -> None:
    run = stored([*of_phase(0), *of_phase(4, benchmark="b", iteration=1), *of_phase(5)[:1]])
    torn = replace(run.brackets[0], phase=1, benchmark="b", complete=False, torn=True)
    again = replace(run.brackets[2], benchmark="a", iteration=2)
    run = replace(run, brackets=(run.brackets[0], torn, run.brackets[1], again))
    left = remaining_plan(PLAN, run)
    assert states(left) == [("done", 0), ("done", 1), ("torn", 2), ("missing", 3)]
    assert left.torn == (5,)
    more = replace(torn, phase=2, benchmark="a", iteration=2)
    left = remaining_plan(PLAN, replace(run, brackets=(*run.brackets, more)))
    assert states(left)[2] == ("torn", 6)


def rotated(steps: int) -> tuple[Plan, StoredRun]:
    plan = make_plan(["a", "b"], 2, mode="rotated", order=Order.ROTATED)
    rows = [
        copy_row(copy, 1.0, benchmark="ab"[(copy + step) % 2], step=step, start_ns=step * S)
        for copy in range(2)
        for step in range(steps)
    ]
    return plan, stored(rows, order="rotated")


def test_a_rotated_phase_is_done_when_every_step_of_every_queue_is_there() -> None:
    assert [phase.state for phase in remaining_plan(*rotated(2)).phases] == [PhaseState.DONE]
    assert [phase.state for phase in remaining_plan(*rotated(1)).phases] == [PhaseState.TORN]


def test_a_steady_phase_is_done_with_as_many_runs_as_there_was_time_for() -> None:
    plan = make_plan(["a"], 2, mode="steady", window=Window(0, 2 * S))
    rows = [copy_row(0, 1.0), copy_row(0, 1.0, step=1, start_ns=S), copy_row(1, 2.0)]
    assert remaining_plan(plan, stored(rows, mode="steady")).ahead == ()
    assert len(remaining_plan(plan, stored(rows[:2], mode="steady")).ahead) == 1


def test_the_time_goes_on_behind_what_is_stored_even_when_the_clock_was_set_back() -> None:
    left = remaining_plan(PLAN, stored(of_phase(0)))
    assert left.resumed_at_ns(90 * S) == 90 * S
    assert left.resumed_at_ns(-90 * S) == left.elapsed_ns + S == 2 * S
    assert remaining_plan(PLAN, stored([])).resumed_at_ns(90 * S) == 0


# -- taking a run up, in the database -------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.db") as opened:
        yield opened


def killed_run(store: Store, owner: ProcessId = GONE) -> int:
    """Phase 0 done, phase 1 begun."""
    number = store.create_run(replace(run_of(2), pus=PUS), owner)
    append(store, number, phase(0), ended(0, 1.0), ended(1, 1.0), over(0.0, 1.0), phase(1))
    return number


def take_up(store: Store, number: int, resumed: int = 0, owner: ProcessId | None = None) -> None:
    places = (
        Placement(
            copy=0,
            cpus=(9,),
            cpu=9,
            core=9,
            llc=9,
            node=9,
            package=9,
            memory_policy=MemoryPolicy.BIND,
            memory_nodes=(9,),
        ),
    )
    pus = (MachinePU(cpu=9, core=9, llc=9, node=9, package=9),)
    store.claim_run(
        number,
        resumed=resumed,
        torn=[1],
        placements=places,
        pus=pus,
        notes=["taken up"],
        owner=owner,
    )


def test_taking_up_marks_what_is_torn_and_makes_the_run_ours(store: Store) -> None:
    number = killed_run(store)
    before = store.load(number)
    take_up(store, number)
    run = store.load(number)
    assert (run.head.status, run.head.reason, run.head.resumed) == (RunStatus.RUNNING, None, 1)
    assert [bracket.torn for bracket in run.brackets] == [False, True]
    assert run.notes == ("taken up",)
    assert run.copies == before.copies


def test_copies_from_then_on_are_where_they_are_now(store: Store) -> None:
    number = killed_run(store)
    take_up(store, number)
    append(store, number, phase(4), replace(ended(0, 3.0, start_s=2.0), phase=4))
    run = store.load(number)
    assert [(copy.phase, copy.cpu) for copy in run.copies] == [(0, 0), (0, 1), (4, 9)]
    assert ([placement.cpu for placement in run.placements], [it.cpu for it in run.pus]) == (
        [9],
        [9],
    )


def test_a_run_whose_rater_lives_is_not_taken_up(store: Store) -> None:
    number = killed_run(store, this_process())
    with pytest.raises(InputError, match="still running"):
        take_up(store, number)
    assert store.load(number).head.resumed == 0


def test_a_run_that_another_rater_had_meanwhile_is_not_taken_up(store: Store) -> None:
    number = killed_run(store)
    take_up(store, number, owner=GONE)
    with pytest.raises(InputError, match="meanwhile"):
        take_up(store, number)
    take_up(store, number, resumed=1)


# -- what a killed attempt left -------------------------------------------------------------------


def test_what_earlier_attempts_left_is_ended_and_nothing_else() -> None:
    marks = ["u-1", "u-1.1.77", "u-1.2.88", "u-2"]
    left = [
        subprocess.Popen(["sleep", "60"], env=os.environ | {"RATER_RUN": mark}) for mark in marks
    ]
    try:
        # Those of the dead are nobody's children: here they are ours, and to be reaped.
        with ThreadPoolExecutor() as reaping:
            ends = [reaping.submit(left[it].wait) for it in (0, 1)]
            assert end_leftovers("u-1", "u-1.2.88") == 2
        assert [end.result() for end in ends] == [-9, -9]
        assert [process.poll() for process in left[2:]] == [None, None]
    finally:
        for process in left:
            process.kill()
            process.wait()


# -- on the command line --------------------------------------------------------------------------

# The first copy run fails, the third kills rater once two phases are stored, all others are well.
SCRIPT = """
echo x >> count
rater=$(cut -d' ' -f4 /proc/$PPID/stat)
case $(wc -l < count) in 1) exit 3;; 3) "$PYTHON" wait.py; kill -9 $rater;; esac
"""
WAIT = """
import os, sqlite3, time
db = sqlite3.connect(os.environ["RATER_DB"])
while db.execute("SELECT sum(complete) FROM bracket").fetchone() != (2,):
    time.sleep(0.01)
"""


NOWHERE_ELSE: Mapping[str, str] = {}  # the database of the test itself


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database of a run of four iterations, killed in the third."""
    folder = tmp_path_factory.mktemp("killed")
    places = {name: str(folder / name) for name in ("RATER_DB", "RATER_CACHE", "RATER_LOCK")}
    make_killed_run(folder, SCRIPT, "--iterations", "4", "--tag", "who=me", places=places)
    return folder


def make_killed_run(
    folder: Path, script: str, *options: str, places: Mapping[str, str] = NOWHERE_ELSE
) -> None:
    """Begin a run of one copy in a folder, whose script kills rater in the third iteration."""
    (folder / "wait.py").write_text(WAIT)
    done = subprocess.run(
        [*RATER, "run", "--copies", "1", "--quiet", *options, "--", "sh", "-c", script],
        cwd=folder,
        env=os.environ | places | {"PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == -9


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, its database copied to be this test's own."""
    for file in killed_once.glob("RATER_DB*"):
        shutil.copy(file, tmp_path / file.name.replace("RATER_DB", "rater.db"))
    monkeypatch.chdir(tmp_path)  # not where the run was made
    return tmp_path


def dump(columns: str = "*", table: str = "bracket") -> list[Any]:
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as db:
        return db.execute(f"SELECT {columns} FROM {table}").fetchall()


def everything() -> list[str]:
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as db:
        return list(db.iterdump())


def test_until_goes_on_with_the_iterations_of_a_killed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    well = SCRIPT.replace("1) exit 3;;", "")
    make_killed_run(tmp_path, well, "--until", "1%", "--iterations", "7")
    assert rater("run", "--resume", "last", "--quiet").returncode == 0
    [(status, resumed, iterations)] = dump("status, resumed, iterations", "run")
    assert (status, resumed) == ("complete", 1)
    assert 5 <= iterations <= 7
    assert [number for (number,) in dump("iteration")] == [*range(1, iterations + 1), 3]
    assert len((tmp_path / "count").read_text().split()) == iterations + 1  # the third one twice
    [(said,)] = dump("text", "note WHERE text LIKE '--until%'")
    assert f"after {iterations} iterations" in said


def test_a_killed_run_goes_on_where_it_was_made_and_its_failures_count(killed: Path) -> None:
    done = rater("run", "--resume", "last")
    assert done.returncode == 1  # the first copy run, before the kill
    assert dump("status, reason, resumed", "run") == [("failed", "1 of 4 copy runs failed", 1)]
    assert dump("phase, iteration, complete, torn") == [
        (0, 1, 1, 0),
        (1, 2, 1, 0),
        (2, 3, 0, 1),
        (3, 4, 1, 0),
        (4, 3, 1, 0),
    ]
    assert dump("phase, exit_code", "copy") == [(0, 3), (1, 0), (3, 0), (4, 0)]
    assert "discarded incomplete: sh, iteration 3 (phase 2, again as phase 4)" in str(
        dump("text", "note")
    )
    starts = dict(dump("phase, start_ns"))
    assert starts[0] < starts[1] < starts[4] < starts[3]
    assert "phase 1 of 2: sh, iteration 3" in done.stderr
    assert main(["run", "--resume", "last", "--quiet"]) == 1  # nothing is left
    assert dump("resumed", "run") == [(1,)]


def test_a_dry_run_of_resuming_says_what_is_there_and_changes_nothing(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything()
    assert main(["run", "--resume", "last", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "killed: 2 of 4 phases done" in said
    assert "2  sh, iteration 3  torn: runs again as phase 4" in said
    assert main(["run", "--resume", "last", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [phase["state"] for phase in document["phases"]] == ["done", "done", "torn", "missing"]
    assert (document["differences"], document["refused"]) == ([], None)
    assert everything() == before


def test_a_changed_environment_is_refused_with_the_differences_unless_forced(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    done = rater("run", "--resume", "last")
    assert done.returncode == 2
    assert "environment variable MALLOC_ARENA_MAX: was not there, is 1" in done.stderr
    assert everything() == before
    forced = rater("run", "--resume", "last", "--force", "--quiet")
    assert forced.returncode == 1
    notes = [text for (text,) in dump("text", "note")]
    assert "differs since then: environment variable MALLOC_ARENA_MAX: was not there, is 1" in notes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--iterations", "4"], "leave out --iterations"),
        (["mini", "--discard", "0"], "leave out mini --discard"),
        (["--", "true"], "leave out -- COMMAND"),
    ],
)
def test_options_come_from_the_run(
    killed: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["run", "--resume", "last", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_how_it_is_made_and_shown_may_be_asked_beside_resume(
    command: str, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ("-v", "--quiet", "--wait", "1s", "--force", "--share", "--json")
    assert main([command, "--resume", "last", *how]) == 2
    assert f"there is no database {database}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("source = 'import'", "run 1 was imported"),
        ("request = NULL", "did not keep what it was asked for; type it again: rater run"),
        ("request = '{\"sharks\": 1}'", "made by a newer rater"),
        ("directory = '/nowhere'", "cannot be entered"),
        ("directory = '/', request = replace(request, '[\"sh', '[\"./sh')", "no such file: /sh"),
    ],
)
def test_runs_that_cannot_go_on_are_refused_with_the_reason(
    killed: Path, capsys: pytest.CaptureFixture[str], change: str, said: str
) -> None:
    with closing(sqlite3.connect(os.environ["RATER_DB"], autocommit=True)) as db:
        db.execute(f"UPDATE run SET {change}")
    before = everything()
    assert main(["run", "--resume", "last"]) == 2
    assert said in capsys.readouterr().err
    assert everything() == before


def test_what_was_left_out_when_the_run_began_is_not_asked_for_again(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(SUITE)
    values = {"suites": [str(file), "mini"], "command": []}
    request = request_from_json(json.dumps(values), "run 7")
    assert select_benchmarks(request, ["late", "early", "lu"]).suites == (
        f"{file}/early,late",
        "mini/lu",
    )
    assert (
        select_benchmarks(request, ["gone"]) == request
    )  # and is then refused: it is another plan


def test_a_run_that_lacks_only_its_end_gets_it(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(os.environ["RATER_DB"], autocommit=True)) as db:
        db.execute("DELETE FROM bracket WHERE phase > 1")
        request = dump("request", "run")[0][0].replace('"iterations": 4', '"iterations": 2')
        db.execute("UPDATE run SET request = ?, iterations = 2", (request,))
        db.execute("UPDATE copy SET status = 'ok', exit_code = 0")
    assert main(["run", "--resume", "last"]) == 0
    assert "nothing is missing of 2 phases" in capsys.readouterr().err
    assert dump("status, reason, resumed", "run") == [("complete", None, 0)]


@pytest.mark.parametrize(("mode", "seed"), [("homogeneous", 11), ("rotated", 9), ("staggered", 3)])
def test_a_run_killed_at_any_moment_is_resumed_exactly(
    tmp_path: Path, mode: str, seed: int
) -> None:
    told = one_resume(tmp_path, dict(os.environ), mode, random.Random(seed))
    assert told.wrong == []
    assert told.kills > 0


@pytest.mark.parametrize(
    ("status", "number", "torn"),
    [
        (RunStatus.KILLED, signal.SIGKILL, (1,)),
        (RunStatus.KILLED, signal.SIGSEGV, ()),
        (RunStatus.INTERRUPTED, signal.SIGKILL, ()),
    ],
)
def test_the_last_phase_of_a_killed_run_whose_copies_were_killed_runs_again(
    status: RunStatus, number: int, torn: tuple[int, ...]
) -> None:
    killed = of_phase(1, status=CopyStatus.FAILED, signal=number)
    run = stored([*of_phase(0), *killed])
    run = replace(run, head=replace(run.head, status=status))
    assert remaining_plan(PLAN, run).torn == torn


VERSIONS = list(migrations(data_folder("db")))
# Each goes on by the same steps as the one before it: all that runs can be asked is asked of these.
WHOLE = {VERSIONS[0], *VERSIONS[6::7], *VERSIONS[-2:]}
TABLES = "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' ORDER BY name"
PARTS = ("table_xinfo", "foreign_key_list", "index_list")  # columns, foreign keys, indexes
INDEX = (
    "SELECT of.name, it.* FROM sqlite_schema AS of, pragma_index_xinfo(of.name) AS it "
    "WHERE of.type = 'index' ORDER BY of.name, it.seqno"
)


def names(connection: sqlite3.Connection, sql: str) -> list[str]:
    return [name for (name,) in connection.execute(sql)]


def structure(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Every table, column by column, and every index and view."""
    columns = {
        f"{part} {table}": connection.execute(f"PRAGMA {part}({table})").fetchall()
        for table in names(connection, TABLES)
        for part in PARTS
    }
    views = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'")
    return columns | {"indexes": connection.execute(INDEX).fetchall(), "views": sorted(views)}


def older(version: int, newer: Path, path: Path, place: Path) -> None:
    """A database of that version at `path`, with the rows of `made` that it has columns for."""
    copy_of(data_folder("db"), place, version)
    with closing(sqlite3.connect(path, autocommit=True)) as old:
        migrate(old, path, place)
        assert read_pragma(old, "user_version") == version
        old.execute("ATTACH ? AS new", (str(newer),))
        for table in names(old, TABLES):
            if not table.startswith("sqlite_"):
                columns = ", ".join(
                    names(
                        old,
                        f"SELECT name FROM pragma_table_info('{table}') WHERE name IN "
                        f"(SELECT name FROM pragma_table_info('{table}', 'new'))",
                    )
                )
                old.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM new.{table}")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_runs_of_an_older_schema_are_shown_resumed_and_added_to(
    version: int, rater: Rater, database: Path, tmp_path: Path
) -> None:
    asked = ("--copies", 2, "--iterations", 2, "--env", "A=1", "--tag", "of=before", "--quiet")
    assert rater("run", *asked, "--", "true") == (0, "", "")
    old = tmp_path / "old.db"
    older(version, database, old, tmp_path / "db")
    with closing(sqlite3.connect(old, autocommit=True)) as connection:  # killed in its last phase
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM bracket WHERE phase = 1")
        connection.execute("UPDATE run SET status = 'interrupted'")

    def query_old(*words: object) -> str:
        status, out, said = rater("--db", old, *words)
        assert (status, said) == (0, ""), words
        return out

    assert "interrupted" in query_old("list")
    with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh, open_store(old) as store:
        migrate(fresh, Path(":memory:"))
        with store.reading() as opened:
            assert structure(opened.connection) == structure(fresh)
    query_old("run", "--resume", 1, "--quiet")
    if version not in WHOLE:
        query_old("show", 1, "--copies")
        query_old("divots", 1)
        return
    query_old("rerun", 1, "--quiet")
    for run in (1, 2):
        assert ("resumed" in query_old("show", run, "--copies")) == (run == 1)
        query_old("divots", run)
        query_old("export", run)
        if VEGA:
            query_old("report", run, "-o", tmp_path / "page.html")
    query_old("compare", 1, 2)
    query_old("sweep", "--rounds", 2, "--axis", "copies=1,2", "--quiet", "--", "true")
    assert "sweep 1" in query_old("sweep", "--show", 1)
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        ended = "SELECT status, resumed, count(*) FROM run GROUP BY 1, 2 ORDER BY 2"
        assert connection.execute(ended).fetchall() == [("complete", 0, 5), ("complete", 1, 1)]
