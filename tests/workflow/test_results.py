"""Stored runs: words for points, the file of `-o`, the search for divots, text of others."""

from __future__ import annotations

import csv
import json
import math
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import unicodedata
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.divots.model.finding import Thresholds
from rater.commands.cli import main
from rater.plan.sweep import AxisKind, SweepPoint, SweepSlot
from rater.record.events import OutputChecked, RunEnded
from rater.record.run import RunStatus, Validity
from rater.record.stored import StoredRun, TimeRow
from rater.store.store import Store, open_store
from rater.store.sweeps import create_slot_run, new_sweep
from rater.system.errors import InputError
from rater.workflow.results import divots, points
from rater.workflow.results.divots import load_or_analyse
from rater.workflow.results.points import (
    check_distinct,
    count_interim_looks,
    load_points,
    missing_points,
    write_output,
)
from tests.support.calls import RATER, Rater
from tests.support.example_events import HOST, SWEEP_ASKED, ended, over, phase, run_of, with_head
from tests.support.example_runs import copy_row, stored
from tests.support.machines import machine
from tests.support.made_runs import make
from tests.support.observations import observed, read
from tests.support.places import own_places_in
from tests.support.series import busy_run
from tests.support.stored_runs import append


def test_a_word_is_a_point(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 4)
    with open_store(database) as store:
        points = load_points(store, ["1", "last", "2,last~1,2"])
    assert [(point.label, point.numbers) for point in points] == [
        ("run 1", (1,)),
        ("run 4", (4,)),
        ("runs 2, 3", (2, 3)),
    ]
    assert all(run.block is None for point in points for run in point.runs)
    assert all(point.values == () for point in points)


def test_tags_give_values_and_blocks_where_all_runs_have_one(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 2, {"env:X": "a,b=c"})
    make(database, [(10.0, 10.0)] * 2, {"env:X": "2"})
    with open_store(database) as store:
        first, second = load_points(store, ["tag:env:X=a,b=c", "tag:env:X=2"])
    assert (first.label, first.values) == ("env:X=a,b=c", (("env:X", "a,b=c"),))
    assert [run.block for run in first.runs] == [run.block for run in second.runs] == [0, 1]


def test_equal_block_numbers_of_two_sweeps_are_two_blocks(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 2, {"x": "1", "sweep": "1"})
    make(database, [(10.0, 10.0)] * 2, {"x": "2", "sweep": "2"})
    with open_store(database) as store:
        first, second = load_points(store, ["tag:x=1", "tag:x=2"])
    assert not {run.block for run in first.runs} & {run.block for run in second.runs}


def test_a_run_of_a_tag_without_a_block_leaves_the_others_theirs(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 2, {"x": "1"})
    with open_store(database) as store:
        store.create_run(with_head(run_of(2), tags=(("x", "1"),)))
        (point,) = load_points(store, ["tag:x=1"])
        assert [run.block for run in point.runs] == [0, 1, None]
        points = load_points(store, ["1", "tag:x=1"])
        with pytest.raises(InputError, match=r"run 1 is in two points \(run 1; x=1\)"):
            check_distinct(points)


def sweep(store: Store, *, until: float | None = None) -> int:
    """Three points, two rounds; the last one left out, the second done in the first round only."""
    points = [
        SweepPoint(
            point=0, label="thp=never", values=(("thp", "never"),), request="{}", left_out=None
        ),
        SweepPoint(
            point=1, label="thp=always", values=(("thp", "always"),), request="{}", left_out=None
        ),
        SweepPoint(
            point=2,
            label="thp=odd",
            values=(("thp", "odd"),),
            request="{}",
            left_out="this kernel has not got it",
        ),
    ]
    slots = [SweepSlot(1, 1, 1), SweepSlot(1, 2, 0), SweepSlot(2, 1, 0), SweepSlot(2, 2, 1)]
    asked = replace(SWEEP_ASKED, uuid=f"s{until}", rounds=20, until=until)
    number = new_sweep(store, asked, [("thp", AxisKind.SETTING)], points, slots)
    for place, slot in enumerate(slots[:3]):
        made = with_head(run_of(2), uuid=f"u{until}{place}")
        run = create_slot_run(store, number, slot, made, 1)
        append(store, run, phase(), ended(0, 3.0), ended(1, 3.0), over(0.0, 3.0))
        for copy in (0, 1):
            append(
                store,
                run,
                OutputChecked(
                    phase=0,
                    benchmark="gups",
                    iteration=1,
                    copy=copy,
                    step=0,
                    validity=Validity.VALID,
                    detail=None,
                ),
            )
        append(store, run, RunEnded(RunStatus.COMPLETE, None))
    return number


def test_a_sweep_is_all_its_points_with_their_blocks(database: Path) -> None:
    with open_store(database) as store:
        number = sweep(store)
        assert [number] == [1]
        for word in ("sweep:1", "sweep:last"):
            points = load_points(store, [word])
            assert [(point.label, point.numbers) for point in points] == [
                ("thp=never", (2, 3)),
                ("thp=always", (1,)),
            ]
        never, always = points
        assert never.values == (("thp", "never"),)
        assert [run.block for run in always.runs] == [run.block for run in never.runs][:1]
        assert missing_points(store, ["sweep:1"]) == (
            "sweep 1: thp=odd: this kernel has not got it",
        )
        assert (
            missing_points(store, ["1"]),
            count_interim_looks(store, load_points(store, ["1"])),
        ) == (
            (),
            1,
        )
        with pytest.raises(InputError, match="no such sweep"):
            load_points(store, ["sweep:7"])


def test_a_sweep_that_stopped_when_it_was_decided_had_many_looks(
    database: Path, rater: Rater
) -> None:
    with open_store(database) as store:
        number = sweep(store, until=0.01)
        assert count_interim_looks(store, load_points(store, [f"sweep:{number}"])) == 18
    status, out, _ = rater("compare", "sweep:1", "--json")
    document = json.loads(out)
    assert status == 0
    assert (document["looks"], document["confidence"]) == (18, pytest.approx(0.99246))
    assert document["points_without_runs"] == ["sweep 1: thp=odd: this kernel has not got it"]
    _, out, _ = rater("compare", "sweep:1")
    words = " ".join(out.split())
    assert "18 interim looks were taken" in words
    assert "99.25 %" in words


def test_a_file_is_written_beside_its_place_and_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[list[str]] = []
    real = points._give_mode

    def note_names(*args: Any) -> None:
        real(*args)
        names.append(sorted(path.name[:7] for path in tmp_path.iterdir()))

    monkeypatch.setattr(points, "_give_mode", note_names)
    for text in (b"first", b"second"):
        write_output(tmp_path / "page.html", text)
        assert (tmp_path / "page.html").read_bytes() == text
    assert names == [[".rater-"], [".rater-", "page.ht"]]
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def slow_lgroup(cpu_s: float | None) -> StoredRun:
    """Sixteen copies on two lgroups, the second one a fifth slower."""
    return read(
        observed(
            *(
                {"benchmark": name, "copy": copy, "cpu": copy, "core": copy, "node": copy // 8}
                | {"elapsed_s": 10 + 2 * (copy // 8) + copy / 1000, "cpu_s": cpu_s}
                for name in "abc"
                for copy in range(16)
            ),
            copies=16,
        )
    )


@pytest.mark.parametrize(("cpu_s", "loaded"), [(None, []), (9.0, [1])])
def test_an_import_is_loaded_whole_only_where_it_has_cpu_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu_s: float | None, loaded: list[int]
) -> None:
    calls: list[int] = []
    load = Store.load

    def counted(store: Store, run: int) -> StoredRun:
        calls.append(run)
        return load(store, run)

    monkeypatch.setattr(Store, "load", counted)
    with open_store(tmp_path / "rater.db") as store:
        store.add(slow_lgroup(cpu_s))
        (head,) = store.runs()
        found = load_or_analyse(store, head, Thresholds(), fresh=True)
        assert [finding.place for finding in found.findings if not finding.explained] == ["node 1"]
        assert calls == loaded
        row = TimeRow(*store.times(1).chunks[0][0])
        assert (row.elapsed_ns, row.good) == (10 * 10**9, 1)
        assert row.cpu_ns == pytest.approx((cpu_s and 9 * 10**9) or math.nan, nan_ok=True)


def test_a_run_in_which_nothing_stands_out_has_its_places_in_time(tmp_path: Path) -> None:
    with open_store(tmp_path / "rater.db") as store:
        run = busy_run()
        ended = {"elapsed_ns": 10 * 10**9, "finish_ns": 10 * 10**9}
        store.add(replace(run, copies=tuple(replace(copy, **ended) for copy in run.copies)))
        (head,) = store.runs()
        found = load_or_analyse(store, head, Thresholds(), fresh=True)
        assert [finding for finding in found.findings if not finding.explained] == []
        assert [period.kind for period in found.periods] == ["others", "start-up", "quota"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"hostname": "n1"}, "was made on node7, and this is n1: of the same model, but machine"),
        ({"machine_id_hash": "other"}, "was made on another machine"),
        ({"fingerprint": "other"}, "was made on another machine"),
    ],
)
def test_a_run_of_another_host_is_refused_though_its_machine_id_is_the_same(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str | None
) -> None:
    run = stored([copy_row(0, 1.0)])
    run = replace(run, host=HOST, head=replace(run.head, hostname=HOST.hostname))
    monkeypatch.setattr(divots, "host_facts", lambda _: replace(HOST, **changes))
    refused = divots.refusal(run, machine(1))
    assert (refused is None) if said is None else (said in (refused or ""))


HOSTILE = "=1\x1b]0;own\x07\x1b[31m\x1b[2J\x9b2Jx\x7f\u202e\u2066\rend"
# What is ours on a terminal: colours, erasing and moving, the cursor hidden and shown.
OURS = re.compile(r"\x1b\[(?:[\d;]*[mKAGH]|\?25[lh])|\r")
SHOWING = """
list | show 1 | show 1 --copies | divots 1 | compare 1 2 | export 1 --format csv | plot 1
export 1 --format observations | rerun 1 --dry-run | sweep --list
show 1 --json | list --json | export 1 --format json | run --resume 1 | list --db none\x1b[31m.db
report 1 -o page.html | plot 1 -o plot.svg | report 1 2 -o pages.html | scale 1 2
"""
ENDLESS = f"energy_package-{'9' * 5000}_uj"
KEPT = ("id", "uuid", "name", "pid", "fingerprint", "source", "status", "mode", "run_order")
MORE = ("memory_policy", "kind", "boot_id", "benchmark", "layout", "memory")
# Columns of lists, times and JSON.
LISTS = re.compile("(_nodes|cpus|_at|mems|_bytes|request|allowed|finding|visible|unknown)$")


def control_characters(text: str) -> set[str]:
    return {
        repr(it) for it in text if unicodedata.category(it) in ("Cc", "Cf", "Cs") and it != "\n"
    }


@pytest.fixture
def hostile(edited: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that database, to be damaged more."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(edited, database))


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of two runs, every free text of which somebody has edited."""
    folder = tmp_path_factory.mktemp("edited")
    words = ["run", "--copies", "2", "--env", "A=1", "--tag", "b=1", "--quiet", "--", "true"]
    with pytest.MonkeyPatch.context() as patch:
        database = own_places_in(folder, patch)
        assert [main(words), main(words)] == [0, 0]
    with closing(sqlite3.connect(database, autocommit=True)) as connection:
        tables = "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"
        edited = 0
        for table, text in connection.execute(tables).fetchall():
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                bound = f"CHECK ({column}" in text or re.search(rf"{column} +TEXT[^,]*CHECK", text)
                if (
                    kind == "TEXT"
                    and column not in KEPT + MORE
                    and not bound
                    and not LISTS.search(column)
                ):
                    edited += connection.execute(
                        f"UPDATE {table} SET {column} = ? || coalesce({column}, '')", (HOSTILE,)
                    ).rowcount
        assert edited > 50
    return database


def test_every_command_that_shows_something_shows_it_clean(rater: Rater, hostile: Path) -> None:
    for words in re.split(r"[|\n]", SHOWING.strip()):
        status, out, said = rater(*words.split())
        assert control_characters(out + said) == set(), words
        assert status in (0, 1, 2), words
    status, out, said = rater("export", 1, "--format", "json")
    assert (status, said) == (0, "")
    document = json.loads(out)
    assert document["host"]["hostname"].startswith(HOSTILE)  # values as they are, escaped
    rows = list(csv.reader(StringIO(rater("export", 1, "--format", "csv")[1])))
    assert [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))] == []
    for file in ("page.html", "pages.html", "plot.svg"):
        shown = re.sub(r"<script.*?</script>", "", Path(file).read_text(), flags=re.DOTALL)
        assert control_characters(shown) <= {"'\\t'"}, file


@pytest.mark.parametrize("damage", ['{"a": "b"}', '{"command": 7, "a": {}}', "[" * 100_000])
def test_what_is_no_json_of_ours_is_damage_that_is_named(
    rater: Rater, hostile: Path, damage: str
) -> None:
    assert rater("divots", 1)[0] == 0
    with closing(sqlite3.connect(hostile, autocommit=True)) as connection:
        divot = "INSERT INTO divot VALUES (1, 0, 'drift', 0, '', '[]', NULL, '', '', '', '', 1, 1,"
        connection.execute(f"{divot} 1.5, 0.5, '', ?)", (damage,))
        for table, column in (
            ("divot_search", "visible"),
            ("observed", "unknown"),
            ("run", "request"),
            ("placement", "memory_nodes"),
        ):
            connection.execute(f"UPDATE {table} SET {column} = ?", (damage,))
            for words in ("list", "show 1", "divots 1", "compare 1 2", "rerun 1 --dry-run"):
                assert rater(*words.split())[0] in (0, 1, 2), (words, column)
    assert "a row is damaged: " in rater("show", 1)[2]
    assert rater("rm", 1, 2)[0] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE divot_search SET others_cost = 9e999", "others_cost is the number inf"),
        ("UPDATE run SET timeout_s = -9e999", "timeout_s is the number -inf"),
        ("UPDATE observed SET share = 9e999", "share is the number inf"),
        ("UPDATE placement SET memory_policy = 'near'", "memory_policy is 'near'"),
        (f"UPDATE phase_reading SET name = '{ENDLESS}' WHERE name = 'allocstall'", ""),
    ],
)
def test_numbers_without_bounds_are_damage_and_not_shown(
    rater: Rater, hostile: Path, change: str, said: str
) -> None:
    assert rater("divots", 1)[0] == 0
    with closing(sqlite3.connect(hostile, autocommit=True)) as connection:
        assert connection.execute(change).rowcount
    for words in ("show 1 --json", "report 1 -o page.html", "compare 1 2 --json"):
        status, _, problem = rater(*words.split())
        assert (status, said in problem) == (2 if said else 0, True), words
    assert rater("rm", 1, 2)[0] == 0


def test_on_a_terminal_only_our_own_control_sequences_are_written(hostile: Path) -> None:
    coloured = 0
    for words in ("list", "show 1 --copies", "compare 1 2", "plot 1", "run --copies 1 -- true"):
        ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        with subprocess.Popen(
            [*RATER, *words.split()], stdout=theirs, stderr=theirs, env=environment
        ) as running:
            os.close(theirs)
            seen = b""
            while True:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # the last one who wrote is gone
                    break
                seen += part
        os.close(ours)
        text = seen.decode()
        assert running.returncode in (0, 1), text
        coloured += "\x1b[1m" in text
        assert control_characters(OURS.sub("", text)) == set(), words
    assert coloured


def test_errors_about_names_are_clean(rater: Rater) -> None:
    for words in (
        ("show", "a\x1b[31mb"),
        ("run", "no\x1b]0;x\x07ne"),
        ("--db", "x\x9b.db", "list"),
    ):
        status, out, said = rater(*words)
        assert status in (0, 2)
        assert control_characters(out + said) == set()
