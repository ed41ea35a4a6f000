"""`rater list`, `show`, `export`, `import` and `rm` as they are typed."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.record.events import OutputChecked, RunEnded
from rater.record.run import BenchmarkUsed, CopyStatus, RunStatus, Validity
from rater.store.store import open_store
from rater.workflow.results import listing
from tests.support.calls import Rater
from tests.support.calls import query_rows as rows_of
from tests.support.example_events import ended, over, phase, run_of, with_head
from tests.support.made_runs import make_run
from tests.support.observations import DOCUMENT, observed
from tests.support.printed import in_words
from tests.support.stored_runs import GONE, PUS, append


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "times.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


def parsed(text: str) -> Any:
    return json.loads(text)


# -- list and show --------------------------------------------------------------------------------


def test_list_is_an_array_of_run_heads(database: Path, rater: Rater) -> None:
    make_run(database, uuid="a")
    make_run(database, uuid="b", finished=False)
    make_run(database, uuid="c", finished=False, owner=GONE)
    status, out, err = rater("list", "--json")
    heads = parsed(out)
    assert (status, err) == (0, "")
    assert [(head["run"], head["uuid"], head["status"]) for head in heads] == [
        (1, "a", "complete"),
        (2, "b", "running"),
        (3, "c", "interrupted"),
    ]
    assert heads[0]["benchmarks"] == ["gups"]
    assert (heads[0]["mode"], heads[0]["copies"], heads[0]["hostname"]) == (
        "homogeneous",
        2,
        "node7",
    )


def test_list_has_a_line_for_runs_that_count_and_one_for_all_that_were_made_again(
    database: Path, rater: Rater
) -> None:
    make_run(database, uuid="a")
    for uuid in "bc":
        make_run(database, uuid=uuid, tags=(("not-counted", "34 % of CPU 1 taken"),))
    lines = rater("list")[1].splitlines()
    assert [line.split()[0] for line in lines[1:2]] == ["1"]
    assert "2 more runs did not count: `rater list --tag not-counted`" in lines[-1]
    asked = rater("list", "--tag", "not-counted")[1].splitlines()
    assert [line.split()[0] for line in asked[1:3]] == ["2", "3"]
    assert [head["run"] for head in parsed(rater("list", "--json")[1])] == [1, 2, 3]


def test_list_for_no_terminal_ends_after_some_runs_and_says_how_many_there_are(
    database: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uuid in "abc":
        make_run(database, uuid=uuid)
    monkeypatch.setattr(listing, "_PIPED_ROWS", 2)
    heading, *rows, note = rater("list")[1].splitlines()
    assert heading.split()[0] == "run"
    assert [row.split()[0] for row in rows] == ["2", "3"]
    assert note.startswith("the latest 2 of 3 runs stored")
    assert note.endswith("(--limit N: more, --limit 0: all)")
    assert len(parsed(rater("list", "--json")[1])) == 3
    assert len(rater("list", "--limit", 0)[1].splitlines()) == 5


def test_list_is_narrowed_by_what_is_asked_for(database: Path, rater: Rater) -> None:
    make_run(database, uuid="a", tags=(("fan", "old"), ("day", "1")))
    make_run(database, uuid="b", tags=(("fan", "old"), ("day", "2")))
    make_run(database, uuid="c", tags=(("fan", "new"),))
    asked: list[tuple[tuple[object, ...], list[int]]] = [
        (("--limit", 2), [2, 3]),
        (("--limit", 0), [1, 2, 3]),
        (("--tag", "fan=old"), [1, 2]),
        (("--tag", "fan"), [1, 2, 3]),
        (("--tag", "fan", "--tag", "day=2"), [2]),
        (("--host", "node7", "--limit", 1), [3]),
        (("--host", "nod?7"), [1, 2, 3]),
        (("--host", "other"), []),
        (("--suite", "mini"), [1, 2, 3]),
        (("--suite", "m*", "--tag", "day=2"), [2]),
        (("--since", "2026-11-20"), [1, 2, 3]),
        (("--since", "2026-11-20T14:00+01:00"), []),
    ]
    for words, runs in asked:
        heads = parsed(rater("list", "--json", *words)[1])
        assert [head["run"] for head in heads] == runs, words
    # 2 copies x 10 s / 4 s; kept, so that the next list reads it
    assert {(round(head["score"]), head["score_unit"], head["divots"]) for head in heads} <= {
        (5, "ratio", None)
    }
    assert rows_of("SELECT run_id, round(value) FROM run_score") == [(1, 5), (2, 5), (3, 5)]


def test_a_score_is_worked_out_again_when_the_run_has_more_copies(
    database: Path, rater: Rater
) -> None:
    make_run(database, finished=False, owner=GONE)
    assert parsed(rater("list", "--json")[1])[0]["score"] is None
    with open_store(database) as store:
        append(store, 1, ended(1, 4.0), over(0.0, 4.0))
        for copy in (0, 1):
            append(
                store,
                1,
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
    assert round(parsed(rater("list", "--json")[1])[0]["score"]) == 5


def test_json_and_db_may_stand_before_the_command(tmp_path: Path, rater: Rater) -> None:
    make_run(tmp_path / "other.db", uuid="there")
    _, out, _ = rater("--json", "--db", tmp_path / "other.db", "list")
    assert parsed(out)[0]["uuid"] == "there"


def test_looking_for_runs_makes_no_database(database: Path, rater: Rater) -> None:
    status, out, err = rater("list", "--json")
    assert (status, parsed(out)) == (0, [])
    assert f"there is no database {database} yet" in err
    for command in (("show",), ("export", "last"), ("rm", "1")):
        status, out, err = rater(*command)
        assert (status, out) == (2, "")
        assert "`rater run` makes it" in err
    assert not database.exists()


def test_show_has_the_keys_of_the_contract(database: Path, rater: Rater) -> None:
    make_run(database)
    status, out, _ = rater("show", "0a", "--json")
    shown = parsed(out)
    assert status == 0
    assert (shown["run"], shown["uuid"], shown["status"]) == (1, "0a1b", "complete")
    assert (shown["mode"], shown["copies"]) == ("homogeneous", 2)
    (benchmark,) = shown["benchmarks"]
    assert (benchmark["benchmark"], benchmark["iteration"]) == ("gups", 1)
    assert (benchmark["bracket_s"], benchmark["median_copy_s"]) == (4.0, 3.5)
    assert benchmark["score_lost"] == pytest.approx(1 - 3.5 / 4)
    assert benchmark["slowest"] == {"copy": 1, "cpu": 1, "node": 0, "elapsed_s": 4.0}
    assert {"ratio", "int", "fp"} <= set(shown["suite"])


def test_a_killed_run_is_shown_with_what_there_is(database: Path, rater: Rater) -> None:
    make_run(database, finished=False, owner=GONE)
    shown = parsed(rater("show", "last", "--json")[1])
    assert shown["status"] == "interrupted"
    assert "killed" in shown["reason"]
    assert shown["benchmarks"][0]["ratio"] is None
    status, out, _ = rater("show", "last")
    assert status == 0
    assert "killed" in out


def test_a_run_that_is_not_there_is_refused(database: Path, rater: Rater) -> None:
    make_run(database)
    for command in (("show", "9"), ("export", "9"), ("rm", "1", "9")):
        status, out, err = rater(*command)
        assert (status, out) == (2, "")
        assert "'9': no such run" in err
    assert len(parsed(rater("list", "--json")[1])) == 1  # `rm 1 9` removed nothing


# -- import and export ----------------------------------------------------------------------------


def test_an_imported_document_is_exported_as_it_was(document: Path, rater: Rater) -> None:
    status, out, _ = rater("import", document)
    assert (status, out) == (0, "run 1: 4 observations of made-by-hand imported\n")
    status, out, _ = rater("export", "last", "--format", "observations")
    assert (status, parsed(out)) == (0, DOCUMENT)


def test_tags_of_an_imported_run_are_kept_and_exported(tmp_path: Path, rater: Rater) -> None:
    tagged = {**DOCUMENT, "run": {**DOCUMENT["run"], "tags": {"thp": "always"}}}
    file = tmp_path / "tagged.json"
    file.write_text(json.dumps(tagged))
    rater("import", str(file))
    assert parsed(rater("list", "--json", "--tag", "thp=always")[1])[0]["run"] == 1
    assert parsed(rater("export", "1", "--format", "observations")[1]) == tagged


def test_importing_twice_adds_nothing_and_says_so(document: Path, rater: Rater) -> None:
    rater("import", document)
    status, out, _ = rater("import", document)
    assert (status, out) == (0, "run 1: made-by-hand is stored already, nothing was added\n")
    assert len(parsed(rater("list", "--json")[1])) == 1
    status, out, _ = rater("import", document, "--json")
    added = {"run": 1, "uuid": "made-by-hand", "added": False, "observations": 4}
    assert parsed(out) == {"rater": 1, **added, "notes": []}


def test_several_documents_are_imported_and_the_bad_ones_named(
    tmp_path: Path, document: Path, rater: Rater
) -> None:
    bad, other = tmp_path / "bad.json", tmp_path / "other.json"
    bad.write_text("{")
    other.write_text(json.dumps(observed({})))
    status, out, err = rater("import", document, bad, other, tmp_path / "none.json")
    assert (status, out.splitlines()) == (
        2,
        [
            "run 1: 4 observations of made-by-hand imported",
            "run 2: 1 observations of u imported",
            "  note: 2 copies, only 1 has observations",
        ],
    )
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        f"{bad}:1:2",
        "no such file",
    ]
    status, out, _ = rater("import", "--json", other, document)
    assert (status, parsed(out)["errors"]) == (0, [])
    assert [(run["run"], run["added"]) for run in parsed(out)["runs"]] == [(2, False), (1, False)]


def test_a_document_can_come_from_standard_input(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.dumps(observed({}) | {"run": {"uuid": "piped", "mode": "steady", "copies": 1}})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
    assert rater("import", "-")[0] == 0
    assert parsed(rater("show", "--json")[1])["mode"] == "steady"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{")))
    status, _, err = rater("import", "-")
    assert status == 2
    assert "standard input:1:2: not JSON" in err


def test_a_mistake_in_a_document_leaves_the_database_as_it_was(
    document: Path, tmp_path: Path, rater: Rater
) -> None:
    rater("import", document)
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(observed({}, {"copy": 1, "elapsed_s": -1})))
    status, out, err = rater("import", wrong)
    assert (status, out) == (2, "")
    assert "wrong.json: observations[1].elapsed_s: expected a number of seconds" in err
    assert len(parsed(rater("list", "--json")[1])) == 1


def test_dev_stdin_is_standard_input(rater: Rater, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps(DOCUMENT).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert rater("import", "/dev/stdin")[0] == 0
    monkeypatch.setattr("sys.stdin", None)  # `rater import - <&-`
    status, _, err = rater("import", "-")
    assert status == 2
    assert "standard input is closed" in err


def test_a_pipe_that_the_shell_has_opened_is_read(rater: Rater) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, json.dumps(observed({}, {"copy": 1})).encode())
    os.close(write_end)
    status, out, _ = rater("import", f"/dev/fd/{read_end}")  # `rater import <(command)`
    os.close(read_end)
    assert (status, out) == (0, "run 1: 2 observations of u imported\n")


def test_what_would_block_or_never_end_is_refused(tmp_path: Path, rater: Rater) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        status, out, err = rater("import", path)
        assert (status, out) == (2, "")
        assert f"{path} is not a regular file but a pipe or a device; expected a file, or -" in err


def test_a_document_beyond_the_limit_is_refused(
    document: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.workflow.results.stored._MOST_BYTES", 100)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b" " * 101)))
    for file in (document, "-"):
        status, out, err = rater("import", file)
        assert (status, out) == (2, "")
        assert f"{file}: more than 100 bytes" in err


def test_an_imported_run_says_how_many_of_its_copies_were_observed(
    tmp_path: Path, rater: Rater
) -> None:
    path = tmp_path / "few.json"
    path.write_text(json.dumps(observed({}, copies=9)))
    assert rater("import", path)[0] == 0
    assert "9 copies, only 1 has observations" in rater("show")[1]


@pytest.mark.parametrize("mode", ["homogeneous", "rotated"])
def test_a_run_without_copies_or_without_time_can_be_shown(
    tmp_path: Path, rater: Rater, mode: str
) -> None:
    path = tmp_path / "empty.json"
    for uuid, rows in (("none", []), ("zero", [{"elapsed_s": 0, "status": "ok", "start_s": 0}])):
        path.write_text(json.dumps(observed(*rows, uuid=uuid, mode=mode)))
        assert rater("import", path)[0] == 0
        assert rater("show")[0] == 0
        assert parsed(rater("show", "--json")[1])["uuid"] == uuid
        assert rater("list")[0] == 0


@pytest.mark.parametrize(
    ("name", "why"), [("missing.json", "no such file"), (".", "is a directory, expected a file")]
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, rater: Rater, name: str, why: str
) -> None:
    status, _, err = rater("import", tmp_path / name)
    assert status == 2
    assert why in err and str(tmp_path / name) in err


def test_the_json_export_is_everything_of_the_run(database: Path, rater: Rater) -> None:
    make_run(database)
    everything = parsed(rater("export", "1", "--format", "json")[1])
    assert everything["run"]["command_line"] == "rater run"
    assert everything["host"]["cpu_model"] == "CPU 9000"
    assert [copy["status"] for copy in everything["copies"]] == [CopyStatus.OK] * 2
    assert everything["brackets"][0]["finish_ns"] == 4_000_000_000


def test_the_copies_of_several_runs_are_one_table(database: Path, rater: Rater) -> None:
    make_run(database, uuid="a", tags=(("build", "old"),))
    make_run(database, uuid="b", tags=(("build", "old"),))
    make_run(database, uuid="c", tags=(("build", "new"),))
    status, out, _ = rater("export", "tag:build=old", "3", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert status == 0
    assert [(row["point"], row["run"], row["copy"]) for row in rows] == [
        *(("build=old", run, copy) for run in ("1", "2") for copy in ("0", "1")),
        *(("run 3", "3", copy) for copy in ("0", "1")),
    ]
    single = list(csv.DictReader(io.StringIO(rater("export", "3", "--format", "csv")[1])))
    assert "point" not in single[0]
    assert {"waited_s", "waited_own_s", "waited_others_s", "slept_s"} <= single[0].keys()
    status, _, err = rater("export", "1", "2")
    assert (status, "several runs are one table: --format csv" in err) == (2, True)


def test_what_a_run_was_asked_for_is_told_in_one_line_and_one_key(
    database: Path, rater: Rater
) -> None:
    make_run(database)
    ran = ("run", "--copies", "2", "--hugepages", "off", "--env", "A=b c", "--no-oversubscribe")
    assert rater(*ran, "--quiet", "--share", "--proof", "off", "--", "true")[0] == 0
    assert "asked: --copies 2 --no-oversubscribe --proof off --env A=b c --hugepages off" in (
        in_words(rater("show", "2")[1])
    )
    asked = parsed(rater("show", "2", "--json")[1])["asked"]
    assert (asked["hugepages"], asked["no-oversubscribe"], asked["copies"]) == ("off", "yes", "2")
    assert parsed(rater("show", "1", "--json")[1])["asked"] is None


def test_copies_are_a_table_sorted_by_any_column(database: Path, rater: Rater) -> None:
    make_run(database)
    assert "Copies" in rater("show", "1", "--copies")[1]
    rows = parsed(rater("show", "1", "--copies", "--sort=-copy", "--json")[1])["copy_table"]
    assert [row["copy"] for row in rows] == [1, 0]
    assert rater("show", "1", "--sort", "copy")[0] == 2
    status, _, err = rater("show", "1", "--copies", "--sort", "sharks")
    assert (status, "--sort sharks: expected one of copy, cpu, node" in err) == (2, True)


# -- rm -------------------------------------------------------------------------------------------


def test_runs_are_removed_as_they_were_named_before_the_first_went(
    database: Path, rater: Rater
) -> None:
    for uuid in ("a", "b", "c"):
        make_run(database, uuid=uuid)
    status, out, _ = rater("rm", "last", "last~1", "c")
    assert (status, out) == (0, "run 3 removed\nrun 2 removed\n")
    assert [head["run"] for head in parsed(rater("list", "--json")[1])] == [1]
    assert parsed(rater("rm", "1", "--json")[1]) == {"rater": 1, "removed": [1]}


def test_a_number_removed_twice_takes_no_other_run_along(database: Path, rater: Rater) -> None:
    make_run(database, uuid="2a000000-0000-0000-0000-000000000000")
    make_run(database, uuid="b")
    assert rater("rm", "2")[0] == 0
    status, out, err = rater("rm", "2")
    assert (status, out) == (2, "")
    assert "'2': no such run" in err
    assert [head["run"] for head in parsed(rater("list", "--json")[1])] == [1]


def test_all_runs_with_a_tag_are_removed_and_one_is_shown_only_alone(
    database: Path, rater: Rater
) -> None:
    for uuid, tag in (("a", "old"), ("b", "new"), ("c", "old")):
        make_run(database, uuid=uuid, tags=(("bios", tag),))
    for command in ("show", "export"):
        status, out, err = rater(command, "tag:bios=old")
        assert (status, out) == (2, "")
        assert "tag:bios=old: 2 runs have this tag, and one is wanted: 3 (c), 1 (a)" in err
    assert parsed(rater("show", "tag:bios=new", "--json")[1])["uuid"] == "b"
    status, _, err = rater("rm", "tag:bios=old", "1")
    assert (status, err) == (2, "rater: tag:bios=old: this removes 2 runs; add --yes to do so\n")
    assert rater("rm", "tag:bios=old", "1", "--yes")[:2] == (0, "run 1 removed\nrun 3 removed\n")
    assert [head["run"] for head in parsed(rater("list", "--json")[1])] == [2]


def test_a_run_that_still_runs_is_not_removed(database: Path, rater: Rater) -> None:
    make_run(database, finished=False)
    status, _, err = rater("rm", "1")
    assert status == 2
    assert "run 1 is still running" in err


def add(database: Path, uuid: str, window_s: tuple[float, float] | None = None) -> None:
    """Two copies of gups, 2 s each time: once, or for 60 s."""
    run = replace(
        with_head(run_of(2, window_s=window_s), uuid=uuid),
        benchmarks=(
            BenchmarkUsed(
                name="gups",
                category="int",
                command="gups",
                reference_s=10.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
            ),
        ),
    )
    with open_store(database) as store:
        number = store.create_run(replace(run, pus=PUS), GONE)
        append(store, number, phase(window_s=window_s))
        steps = 30 if window_s else 1
        for copy in range(2):
            for step in range(steps):
                end = ended(copy, 2.0 * step + 2, start_s=2.0 * step, step=step)
                good = OutputChecked(
                    phase=0,
                    benchmark="gups",
                    iteration=1,
                    copy=copy,
                    step=step,
                    validity=Validity.VALID,
                    detail=None,
                )
                append(store, number, end, good)
        append(store, number, over(0.0, 2.0 * steps, window_s=window_s))
        append(store, number, RunEnded(RunStatus.COMPLETE, None))


def test_a_steady_run_is_shown_beside_the_latest_homogeneous_one(
    database: Path, rater: Rater
) -> None:
    add(database, "a")
    add(database, "b")
    add(database, "c", (3.0, 43.0))
    status, out, _ = rater("show", "last")
    assert status == 0
    assert "Run 3, steady, beside run 2, homogeneous" in out
    found = parsed(rater("show", "last", "--json")[1])
    assert (found["comparison"]["steady"], found["comparison"]["other"]) == (3, 2)
    assert found["comparison"]["difference"] == pytest.approx(0.0)
    assert found["benchmarks"][0]["steady"]["halves"]["verdict"] == "steady"
    assert "comparison" not in parsed(rater("show", "2", "--json")[1])


def test_a_steady_run_beside_one_of_other_programs_says_why_and_has_no_empty_table(
    database: Path, rater: Rater
) -> None:
    add(database, "a")
    add(database, "b", (3.0, 43.0))
    with open_store(database) as store, store.writing("test") as connection:
        connection.execute("UPDATE benchmark SET command = 'other' WHERE run_id = 1")
    told = rater("show", "2")[1].splitlines()
    place = told.index("Run 2, steady, beside run 1, homogeneous")
    assert told[place + 3].endswith("the commands differ")


@pytest.fixture
def two_runs(tmp_path: Path, rater: Rater) -> None:
    """Run 1: four copies of 10, 10, 10 and 14 s; run 2: of 10, 10, 10 and 20 s."""
    for uuid, last_s in (("first", 14.0), ("second", 20.0)):
        document = {
            "rater": 1,
            "run": {"uuid": uuid, "host": "h", "mode": "homogeneous", "copies": 4},
            "topology": {"nodes": {"0": [0, 1], "1": [2, 3]}, "cores": {"7": [3]}},
            "observations": [
                {
                    "benchmark": "429.mcf",
                    "iteration": 0,
                    "copy": copy,
                    "cpu": copy,
                    "core": 7 if copy == 3 else None,
                    "node": copy // 2,
                    "package": None,
                    "start_s": 0.0,
                    "elapsed_s": last_s if copy == 3 else 10.0,
                }
                for copy in range(4)
            ],
        }
        (tmp_path / "one.json").write_text(json.dumps(document))
        assert rater("import", tmp_path / "one.json")[0] == 0


@pytest.mark.usefixtures("two_runs")
def test_the_json_has_them_under_a_key_of_their_own(rater: Rater) -> None:
    before: dict[str, Any] = json.loads(rater("show", "--json")[1])
    words = ("show", "--copies", "--baseline", 1, "--drop", 1, "--json")
    found: dict[str, Any] = json.loads(rater(*words)[1])
    times = found.pop("copy_times")
    assert len(found.pop("copy_runs")) == len(found.pop("copy_table")) == 4
    assert found == before
    assert (times["baseline"], times["drop"]) == (1, 1)
    (cell,) = times["cells"]
    assert (cell["benchmark"], cell["iteration"], cell["baseline_median_s"]) == ("429.mcf", 0, 10.0)
    assert cell["all"] == {"count": 4, "median": 1.0, "mean": 1.25, "sd": 0.5, "maximum": 2.0}
    assert cell["kept"] == {"count": 3, "median": 1.0, "mean": 1.0, "sd": 0.0, "maximum": 1.0}
    (dropped,) = cell["dropped"]
    place = {key: dropped[key] for key in ("copy", "cpu", "core", "node", "normalised")}
    assert place == {"copy": 3, "cpu": 3, "core": 7, "node": 1, "normalised": 2.0}
    assert times["slowest"][0]["copy"] == 3
    assert times["ratios"][0]["change"] == pytest.approx(-0.3)
