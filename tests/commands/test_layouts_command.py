"""`rater layouts` as people and programs see it."""

import argparse
import json
from pathlib import Path

import pytest

from rater.commands import machine
from rater.errors import InputError
from rater.plan.placement.layout import layout_names, load_layout, parse_layout


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    parser.set_defaults(json=False)
    machine.register_layouts(parser.add_subparsers())
    args = parser.parse_args(["layouts", *argv])
    status: int = args.run(args)
    return status


def test_the_list_says_what_each_layout_does_and_what_else_may_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run() == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    for text in (*layout_names(), "list:0,8,1,9", "expr:", "./mine.toml", "OMP_PROC_BIND=spread"):
        assert text in said
    monkeypatch.setenv("COLUMNS", "30")
    run("list")
    assert len(capsys.readouterr().out.splitlines()) > len(said.splitlines())


def test_the_list_is_a_json_array(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == list(layout_names())
    assert all(one["order"] == one["name"] and one["error"] is None for one in found)


def test_what_is_shown_of_a_layout_is_a_layout_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in (*layout_names(), "list:0,8,1,9", "expr:S0:0-3@S1:0-3"):
        assert run("show", name) == 0
        again = parse_layout(capsys.readouterr().out, Path("again.toml"))
        wanted = load_layout(name)
        assert (again.order, again.bind, again.text) == (wanted.order, wanted.bind, wanted.text)


def test_a_layout_of_one_s_own_is_shown_and_its_mistakes_are_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('order = "fill"\nnodes = "0-1"\n[exclude]\ncores = "3"\n[counts]\nrest = 2\n')
    assert run("show", str(path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["only"] == {"nodes": "0-1"}
    assert found["exclude"] == {"cores": "3"}
    assert found["counts"] == {"lgroups": {}, "rest": 2}
    path.write_text('order = "fil"\nsmt = 0\n')
    with pytest.raises(InputError, match="has 2 mistakes"):
        run("show", str(path))
    with pytest.raises(InputError, match="unknown layout 'fil'; did you mean fill"):
        run("show", "fil")


def test_a_file_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('# \u202e\norder = "fill"  # \u009b2J\n')
    run("show", str(path))
    assert "\u009b" not in capsys.readouterr().out
