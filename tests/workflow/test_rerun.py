"""`rater rerun`: the same once more from the database alone, and what was asked for as JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rater.cli import main
from rater.errors import InputError
from rater.plan.request import Request, request_from_json, request_to_json
from rater.workflow.arguments import add_run_arguments, parse_request
from rater.workflow.run.repeat import pin_suites
from tests.support.calls import rater, rows
from tests.support.example_runs import HEAD

EVERY = [
    *("--name", "ü b"),
    *("--copies", "cores", "--mode", "steady", "--order", "rotated", "--window", "0.1"),
    *("--warmup", "0.3", "--stagger", "0.7", "--increment", "3", "--iterations", "4"),
    *("--discard", "1", "--layout", "./l.toml", "--mem", "bind", "--no-oversubscribe"),
    *("--bind", "core", "--smt", "2", "--kind", "fast", "--reserve", "3", "--preflight", "off"),
    *("--proof", "0.25", "--energy", "off", "--counters", "software"),
    *("--timeout", "1e-2", "--grace", "0", "--tag", "k=v=w", "--tag", "k=", "--env", "E=\udcff ü"),
    *("--alloc", "./lib ü.so", "--hugepages", "thp"),
    *("--pages", "heap:50%@20%;static:2M:best", "--pages-backing", "hugetlb", "--pages-heap", "1G"),
    *("--wrap", "nice -n 'a b'", "--prepare", 'sync; echo "\'"', "--cooldown", "0.1"),
    *("--until-idle", "--output-limit", "3k", "--run-dirs", "--keep", "--force", "--share"),
    *("--check-limit", "7", "--wait", "5m", "--tuned"),
]
# What goes with no command, and with no suite of rater's own.
OF_KIT = [
    *("spec:/kit", "--speccmds", "./a b.cmd", "c.cmd", "--bind-from-file"),
    *("--size", "ref", "--tune", "peak"),
]


def asked(*words: str, command: list[str] | None = None) -> Request:
    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    return parse_request(parser.parse_args(words, argparse.Namespace(command=command)))


# -- what was asked for, as JSON -----------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        asked(),
        asked(*EVERY, command=["./x", "", "a b", "\udcff"]),
        asked("a/b,c", "--size", "ref"),
        asked(*OF_KIT),
        asked("spec:/kit"),
    ],
    ids=["nothing", "everything", "suite", "everything of a kit", "kit"],
)
def test_a_request_comes_back_from_json_as_it_was(request_: Request) -> None:
    text = request_to_json(request_)
    text.encode("utf-8")  # a database takes it
    assert request_from_json(text, "run 7") == request_


def test_every_field_of_the_test_above_is_not_the_default() -> None:
    default, every = asdict(asked(command=["x"])), asdict(asked(*EVERY, command=["y"]))
    same = {name for name in default if default[name] == every[name]}
    of_kit = {"speccmds", "bind_from_file"}
    assert same == {"suites", "size", "tune"} | of_kit  # not of commands
    kit = asdict(asked(*OF_KIT))
    assert {name for name in same if default[name] == kit[name]} == set()


def test_what_an_older_rater_did_not_know_has_its_default_and_what_it_had_is_left() -> None:
    values = json.loads(request_to_json(asked("mini", "--copies", "3")))
    del values["cooldown_s"], values["layout"]
    values["speccmds_out"] = True  # an option that there was
    assert request_from_json(json.dumps(values), "run 7") == asked("mini", "--copies", "3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"sharks": 1, "copies": "2"}', "run 7 was made by a newer rater: .* with sharks"),
        ('{"copies": 2}', "run 7: .* damaged: copies: expected a string, got the number 2"),
        ('{"tags": [["a"]]}', r"run 7: .* damaged: tags\[0\]: expected a list of 2"),
        (
            '{"iterations": true}',
            "run 7: .* damaged: iterations: expected a whole number",
        ),
        ("[]", "run 7: .* no JSON object"),
        ("{", "run 7: .* not JSON"),
    ],
)
def test_a_request_that_cannot_be_read_is_an_error_that_names_the_run(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        request_from_json(text, "run 7")


# -- as it is typed ------------------------------------------------------------------------------

SUITE = """
[suite]
format = 1
[benchmarks.one]
command = ["./say.sh"]
[benchmarks.one.sizes.train]
reference_s = 1.0
memory_mb = 1
expected = "right\\n"
"""


def test_a_run_is_made_again_from_the_database_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "own.toml").write_text(SUITE)
    script = home / "say.sh"
    script.write_text("#!/bin/sh\necho $SAY\n")
    script.chmod(0o755)
    words = ["own.toml", "--copies", "pus", "--iterations", "2", "--env", "SAY=right"]
    first = rater("run", *words, "--tag", "a=1", "--tag", "b=1", "--quiet", cwd=home)
    assert (first.returncode, first.stderr) == (0, "")
    script.write_text(script.read_text() + "# a comment\n")
    second = rater("rerun", "1", "--tag", "b=2", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "rater: differs from run 1:\n  program of one: was sha256 " in second.stderr
    third = rater("rerun", "2", "--quiet", cwd=tmp_path)
    assert (third.returncode, third.stdout, third.stderr) == (0, "", "")
    heads = rows(
        "SELECT status, suite, copies, iterations, directory, suite_path, suite_sha256, layout "
        "FROM run"
    )
    assert len(heads) == 3
    assert len(set(heads)) == 1
    assert heads[0][:2] == ("complete", "own")
    tags = rows("SELECT run_id, name || value FROM tag ORDER BY 1, 2")
    assert tags == [(1, "a1"), (1, "b1"), (2, "a1"), (2, "b2"), (3, "a1"), (3, "b2")]
    [uuid] = rows("SELECT uuid FROM run WHERE id = 1")[0]
    notes = [text for (text,) in rows("SELECT text FROM note WHERE run_id = 2")]
    assert f"rerun of run 1 ({uuid})" in notes
    assert any(text.startswith("differs from run 1: program of one: was") for text in notes)
    requests = [json.loads(text) for (text,) in rows("SELECT request FROM run")]
    assert requests[0]["copies"] == "pus"
    assert requests[1]["copies"] == str(heads[0][2])


def test_a_layout_of_one_s_own_is_kept_with_the_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.toml"
    text = 'order = "compact"  # mine\n'
    own.write_text(text)
    words = ["--copies", "1", "--layout", "own.toml", "--quiet", "--", "true"]
    assert rater("run", *words, cwd=tmp_path).returncode == 0
    assert rows("SELECT value FROM setting WHERE name = 'layout.text'") == [(text,)]
    own.write_text(text + "# more\n")
    again = rater("rerun", "1", "--dry-run", cwd=tmp_path)
    assert "layout file: was sha256 " in again.stdout + again.stderr


def test_a_dry_run_of_a_rerun_shows_plan_and_differences_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = rater("run", "--copies", "1", "--quiet", "--", "true")
    assert done.returncode == 0
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert main(["rerun", "last", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "homogeneous, 1 copy, 1 iteration" in said
    assert "environment variable OMP_NUM_THREADS: was not there, is 3" in said
    assert main(["rerun", "last", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == [
        {
            "what": "environment variable OMP_NUM_THREADS",
            "before": None,
            "now": "3",
            "weighs": True,
        }
    ]
    assert rows("SELECT count(*) FROM run") == [(1,)]


def test_a_suite_that_was_found_by_name_is_found_again_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(SUITE)
    head = replace(HEAD, suite_path=f"/somewhere/mini.toml\n{file}")
    pinned = pin_suites(asked("mini/lu", "own/one"), head)
    assert pinned.suites == ("mini/lu", f"{file}/one")
