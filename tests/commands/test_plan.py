"""`rater plan` and `rater plan layouts`, on machines that are only described."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rater.commands import machine as machine_commands
from rater.commands.cli import main
from rater.commands.command_line import Parser
from rater.commands.common import declare
from rater.plan.placement.layout import layout_names, load_layout, parse_layout
from rater.plan.placement.preflight import capacity_warnings
from rater.plan.placement.summary import shares
from rater.show.plans.plan import brief
from rater.system.errors import InputError
from tests.support.places import MACHINES, needs_machines
from tests.support.small_machines import ONE

SMALL = "pack:2 numa:1 l3:1 core:2 pu:2"
HEAVY = """
[suite]
format = 1
name = "heavy"
[benchmarks.one]
command = ["./nowhere"]
[benchmarks.one.sizes.train]
memory_mb = 300
"""


@pytest.fixture(autouse=True)
def terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # a pipe is as wide as what is written


@pytest.fixture
def planned(capsys: pytest.CaptureFixture[str]) -> Any:
    def plan(*words: str) -> Any:
        assert main(["plan", "--json", *words]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return json.loads(captured.out)

    return plan


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", *words]) == 0
    return capsys.readouterr().out


def test_every_copy_has_the_keys_of_the_contract(planned: Any) -> None:
    document = planned("--topology", SMALL, "--copies", "3", "--layout", "cores", "--", "./x")
    assert [
        {key: copy[key] for key in ("copy", "cpus", "core", "node", "package", "memory")}
        for copy in document["copies"]
    ] == [
        {"copy": 0, "cpus": [0], "core": 0, "node": 0, "package": 0,
         "memory": {"policy": "local", "nodes": [0]}},
        {"copy": 1, "cpus": [2], "core": 1, "node": 0, "package": 0,
         "memory": {"policy": "local", "nodes": [0]}},
        {"copy": 2, "cpus": [4], "core": 2, "node": 1, "package": 1,
         "memory": {"policy": "local", "nodes": [1]}},
    ]  # fmt: skip
    assert document["warnings"] == [
        "NUMA nodes run unequal numbers of copies: 2 on node 0, 1 on node 1"
    ]


@pytest.mark.usefixtures("own_cache")
def test_nothing_is_locked_stored_or_made(planned: Any) -> None:
    planned("--topology", SMALL, "mini")
    planned("--copies", "1", "--", "./no-such-program")
    for name in ("RATER_LOCK", "RATER_DB", "RATER_CACHE"):
        assert not Path(os.environ[name]).exists()


@needs_machines
def test_every_real_machine_has_a_plan_that_fits_the_screen(
    planned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in sorted(MACHINES.glob("*.xml")):
        copies = planned("--topology", str(path), "--", "./x")["copies"]
        assert [copy["copy"] for copy in copies] == list(range(len(copies)))
        cpus = [cpu for copy in copies for cpu in copy["cpus"]]
        assert len(set(cpus)) == len(cpus)
        text = shown(capsys, "--topology", str(path), "--copies", "24", "--", "./x")
        assert max(map(len, text.splitlines())) <= 80, path.name


@needs_machines
def test_lgroups_without_cpus_are_a_warning_until_they_are_named(planned: Any) -> None:
    power9 = str(MACHINES / "power9-2n+4gpun-44c-smt4.xml")
    [warning] = planned("--topology", power9, "--copies", "2", "--", "x")["warnings"]
    assert warning.startswith("no copy runs on nodes 252-255, which have no CPUs of their own")
    named = ("--mem", "bind:nodes=252-255")
    document = planned("--topology", power9, "--copies", "2", *named, "--", "x")
    assert document["warnings"] == []
    assert document["copies"][1]["memory"] == {"policy": "bind", "nodes": [252, 253, 254, 255]}


def test_lgroups_too_small_for_their_copies_are_a_warning(planned: Any, tmp_path: Path) -> None:
    suite = tmp_path / "heavy.toml"
    suite.write_text(HEAVY)
    machine = "pack:2 [numa(memory=1000000000)] core:4 pu:1"
    document = planned(str(suite), "--topology", machine)
    assert [share["need_bytes"] for share in document["lgroups"]] == [1_200_000_000] * 2
    [warning] = document["warnings"]
    assert warning.startswith(
        "memory cannot hold the copies of node 0 (1.0 GB installed, its copies need 1.2 GB), "
        "node 1 (1.0 GB installed, its copies need 1.2 GB)"
    )
    assert planned(str(suite), "--topology", machine, "--copies", "6")["warnings"] == []


def test_memory_that_nobody_tells_is_no_warning(planned: Any, tmp_path: Path) -> None:
    suite = tmp_path / "heavy.toml"
    suite.write_text(HEAVY)
    assert planned(str(suite), "--topology", "pack:1 core:8 pu:1")["warnings"] == []
    assert capacity_warnings({0: 10**12}, {}) == ()


def test_pus_are_those_that_the_layout_leaves(planned: Any, tmp_path: Path) -> None:
    layout_file = tmp_path / "own.toml"
    layout_file.write_text('order = "fill"\nbind = "pu"\n[counts]\n0 = 3\nrest = 1\n')
    for words, cpus in (
        (("--smt", "1"), [0, 2, 4, 6]),
        (("--reserve", "1"), [2, 3, 4, 5, 6, 7]),
        (("--layout", "list:0,7,1"), [0, 7, 1]),
        (("--layout", "expr:E:N:4:1:2"), [0, 2, 4, 6]),
        (("--layout", str(layout_file)), [0, 2, 1, 4]),
        (("--layout", "compact", "--copies", "cores", "--smt", "1"), [0, 2, 4, 6]),
    ):
        copies = planned("--topology", SMALL, *words, "--", "x")["copies"]
        assert [copy["cpus"][0] for copy in copies] == cpus, words


def test_copies_that_were_typed_are_not_those_that_the_layout_counts(
    planned: Any, tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text('order = "fill"\nbind = "pu"\n[counts]\n0 = 3\n')
    words = ("--topology", SMALL, "--layout", str(own), "--no-oversubscribe")
    assert len(planned(*words, "--", "x")["copies"]) == 3
    assert main(["plan", *words, "--copies", "pus", "--", "x"]) == 2


@needs_machines
def test_counts_that_cannot_be_are_said_to_be_the_layout_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout_file = tmp_path / "own.toml"
    opteron = str(MACHINES / "opteron865-8n-cpuset-restricted.xml")
    power9 = str(MACHINES / "power9-2n+4gpun-44c-smt4.xml")
    for machine, counts, said in (
        (SMALL, "7 = 1", "node 7 is not there; on pack:2 numa:1 l3:1 core:2 pu:2 copies can "),
        (opteron, "0 = 3", "node 0 is not allowed as memory here, so home of no CPU; on "),
        (power9, "252-253 = 1", "nodes 252-253 are without CPUs; on "),
        (SMALL, "0 = 99999\nrest = 99999", "its counts add up to 199998 copies on pack:2 "),
        (SMALL, "0-1 = 0\n5 = 2", "node 5 is not there; on "),
    ):
        layout_file.write_text(f'order = "fill"\n[counts]\n{counts}\n')
        assert main(["plan", "--topology", machine, "--layout", str(layout_file), "--", "x"]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "--copies" not in error


def test_a_written_order_has_a_copy_for_each_of_its_cpus(planned: Any) -> None:
    machine = "pack:2 numa:2 core:3 pu:2"
    for layout, wanted in (
        ("expr:N:0-3@N:0", [0, 2, 4, 6, 0]),
        ("expr:E:N:8:3:2", [0, 1, 2, 2, 3, 4, 4, 5]),
        ("expr:E:S0:3:1:3:9", [9, 9, 9]),
        ("list:0,8,1", [0, 8, 1]),
    ):
        document = planned("--topology", machine, "--layout", layout, "--", "x")
        assert [copy["cpus"][0] for copy in document["copies"]] == wanted, layout
    typed = ("--topology", machine, "--layout", "expr:N:0-3@N:0", "--copies", "pus")
    assert len(planned(*typed, "--", "x")["copies"]) == 4


@needs_machines
@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("haswell-offline-cpus-memless-node", [1]),
        ("opteron865-8n-cpuset-restricted", [1, 2, 3]),
        ("knl7250-snc4-flat-8n-68c-smt4", [0, 1, 2, 3]),
    ],
)
def test_copies_nodes_is_one_copy_on_each_lgroup_with_cpus(
    planned: Any, name: str, nodes: list[int]
) -> None:
    machine = str(MACHINES / f"{name}.xml")
    for layout in ("balanced", "scatter"):
        words = ("--copies", "nodes", "--layout", layout)
        copies = planned("--topology", machine, *words, "--", "x")["copies"]
        assert sorted(copy["node"] for copy in copies) == nodes


@needs_machines
def test_lgroups_whose_memory_is_forbidden_are_marked_and_keep_their_cpus(
    planned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--topology", str(MACHINES / "opteron865-8n-cpuset-restricted.xml"), "--copies", "10")
    first = planned(*words, "--", "x")["lgroups"][0]
    assert (first["node"], first["copies"], first["cpus"]) == (0, [0, 1], [0, 1])
    assert (first["memory_allowed"], first["memory_bytes"]) == (False, 8587984896)
    text = shown(capsys, *words, "--", "x")
    assert "   0        0       2    2/2   2/2       -\n" in text
    assert "nodes 0,5-7: memory not allowed (a cpuset), for their CPUs all memory is remote" in (
        " ".join(text.split())
    )


def test_many_copies_are_shown_by_node(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--topology", "nodes=2x64", "--layout", "compact", "--", "x")
    lines = [line.split() for line in shown(capsys, *words).splitlines()]
    assert ["128", "copies,", "shown", "by", "NUMA", "node", "(--json", "has", "each):"] in lines
    assert ["1", "64", "64/64", "64/64", "local,", "node", "1", "64-127", "64-127"] in lines


def test_a_path_is_not_broken_at_its_hyphens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a-folder"
    folder.mkdir()
    path = folder / "own.toml"
    path.write_text('order = "fill"\n')
    text = shown(capsys, "--topology", SMALL, "--layout", str(path), "--", "x")
    assert str(path) in text


def test_numbers_that_lie_equally_far_apart_are_brief() -> None:
    sets = ((0, 4, 8, 12), (0, 1, 2), (3,), (0, 5), (), (0, 1, 5))
    assert [brief(numbers) for numbers in sets] == [
        "0-12:4", "0-2", "3", "0,5", "-", "0-1,5"
    ]  # fmt: skip


def test_shares_of_a_plan_without_copies_are_empty() -> None:
    [share] = shares(ONE, (), {0: 5}, None)
    assert (share.copies, share.cpus, share.pus, share.memory_bytes) == ((), (), 2, 5)


def run(*argv: str) -> int:
    parser = Parser()
    parser.set_defaults(json=False, db=None)
    name = "plan layouts"
    declare(parser.add_subparsers(), name, machine_commands.COMMANDS[name])
    args = parser.parse_args(["plan layouts", *argv])
    status: int = args.run(args)
    return status


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
