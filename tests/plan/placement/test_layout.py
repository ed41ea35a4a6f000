from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.placement.layout import (
    NAMED_ORDERS,
    BindLevel,
    Counts,
    CpuOrder,
    Layout,
    MachineParts,
    layout_names,
    load_layout,
    parse_layout,
)
from rater.text.documents import MistakesError


def test_the_built_in_layouts_load_and_say_what_they_do() -> None:
    assert set(layout_names()) == set(NAMED_ORDERS)
    for name in layout_names():
        layout = load_layout(name)
        assert layout.order == name
        assert layout.description
        assert layout.equals
    balanced, none = load_layout("balanced"), load_layout("none")
    assert (balanced.order, balanced.bind) == (CpuOrder.BALANCED, BindLevel.PU)
    assert (none.order, none.bind) == (CpuOrder.NONE, BindLevel.NONE)


def test_a_path_works_where_a_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('order = "balanced"\nbind = "core"\n')
    typed = str(tmp_path / "mine.toml")
    assert load_layout(typed) == Layout(typed, "", CpuOrder.BALANCED, BindLevel.CORE)
    monkeypatch.chdir(tmp_path)
    assert load_layout("mine.toml") == Layout("mine.toml", "", CpuOrder.BALANCED, BindLevel.CORE)
    (tmp_path / "plain").write_text('order = "scatter"\n')
    assert load_layout("plain") == Layout("plain", "", CpuOrder.SCATTER, BindLevel.PU)
    (tmp_path / "none").write_text('order = "balanced"\n')  # a name wins over a file like it
    assert load_layout("none").order is CpuOrder.NONE
    assert load_layout("./none").order is CpuOrder.BALANCED


def test_a_layout_of_one_s_own_can_say_everything() -> None:
    text = """
description = "lgroup 0 is slow"
equals = "nothing"
order = "cores"
bind = "core"
smt = 2
kind = "1"
reserve = 3
nodes = "0-2,8"
cpus = "0-63"
[exclude]
cpus = "5"
nodes = "1"
cores = "7,3"
[counts]
0 = 4
1-2 = 2
rest = 1
"""
    assert parse_layout(text, Path("own.toml")) == Layout(
        "own",
        "lgroup 0 is slow",
        CpuOrder.CORES,
        BindLevel.CORE,
        equals="nothing",
        smt=2,
        kind="1",
        reserve=3,
        only=MachineParts(cpus=tuple(range(64)), nodes=(0, 1, 2, 8)),
        exclude=MachineParts(cpus=(5,), nodes=(1,), cores=(3, 7)),
        counts=Counts(((0, 4), (1, 2), (2, 2)), 1),
    )


def test_cpus_can_be_written_out_as_a_layout_or_in_a_file() -> None:
    found = load_layout("list:0,8,1,9")
    assert (found.name, found.order, found.text) == ("list:0,8,1,9", CpuOrder.LIST, "0,8,1,9")
    found = parse_layout('order = "expr:M:scatter"', Path("own.toml"))
    assert (found.name, found.order, found.text) == ("own", CpuOrder.EXPR, "M:scatter")
    assert found.bind is BindLevel.PU


def test_every_mistake_is_said_at_once() -> None:
    text = """order = "list:0-3,0"
bind = "sock"
smt = 0
kind = "quick"
reserve = 1.5
nodes = "0-"
cpus = ""
cpu = "3"
[exclude]
cores = 3
sockets = "1"
[counts]
0 = 4
x = 3
0-2 = -1
"""
    with pytest.raises(MistakesError) as caught:
        parse_layout(text, Path("own.toml"))
    found = [(mistake.line, mistake.key) for mistake in caught.value.mistakes]
    keys = ["order", "bind", "smt", "kind", "reserve", "nodes", "cpus", "cpu"]
    wanted = [(line, key) for line, key in enumerate(keys, 1)]
    wanted += [(10, "exclude.cores"), (11, "exclude.sockets")]
    wanted += [(14, "counts.x"), (15, "counts.0-2"), (15, "counts.0-2")]
    assert found == wanted


def test_an_unknown_name_or_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'description = "\xe9"')
    for path in (tmp_path / "missing.toml", tmp_path / "latin.toml", tmp_path / "a\0b.toml"):
        with pytest.raises(InputError, match="cannot read the layout file"):
            load_layout(str(path))
    with pytest.raises(InputError, match="Is a directory"):
        load_layout(str(tmp_path) + "/")
    with pytest.raises(InputError, match="unknown layout 'balancd'; did you mean balanced"):
        load_layout("balancd")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('order = "balanced', "own.toml:1"),
        ('ordr = "balanced"', "own.toml:1: ordr: unknown key; did you mean order?"),
        ('description = "x"', "own.toml: order: missing"),
        ('\norder = "scater"', "own.toml:2: order: expected"),
        ("order = 3", "own.toml:1: order: expected"),
        ('order = "balanced"\nbind = "socket"', 'own.toml:2: bind: expected "pu" or "core"'),
        ('order = "balanced"\nbind = "none"', "own.toml:2: bind: "),
        ('order = "none"\nbind = "pu"', "copies are bound by both or by neither"),
        ('order = "none"\nsmt = 1', 'own.toml:2: smt: does not go with order = "none"'),
        ('order = "list"', 'expected "none" or "os"'),
        ('order = "expr:Q"', "own.toml:1: order: expr:Q: expected a domain"),
        ('order = "list:CPUS"', "expected a number from 0 to 65535 at character 1"),
        ('order = "list:0"\n[counts]\nrest = 1', 'does not go with order = "list:..."'),
        ('order = "os"\n[counts]\n0 = 0', "own.toml:2: counts: no lgroup gets a copy"),
        ('order = "os"\nnodes = 3', "nodes: expected a string, got the number 3 (put it in quot"),
        ('order = "os"\nsmt = 99999999', "expected a whole number from 1 to 65536"),
        ('order = "balanced"\ndescription = 1', "own.toml:2: description: expected a string"),
    ],
)
def test_a_wrong_layout_is_an_error_that_names_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_layout(text, Path("own.toml"))
    assert message in str(caught.value)
