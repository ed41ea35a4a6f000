from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.layout import Bind, Layout, Order, layout_names, load_layout, parse_layout


def test_the_built_in_layouts_load_and_say_what_they_do() -> None:
    assert {"balanced", "none"} <= set(layout_names())
    for name in layout_names():
        assert load_layout(name).description
    balanced, none = load_layout("balanced"), load_layout("none")
    assert (balanced.order, balanced.bind) == (Order.BALANCED, Bind.PU)
    assert (none.order, none.bind) == (Order.NONE, Bind.NONE)


def test_a_path_works_where_a_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('order = "balanced"\nbind = "core"\n')
    wanted = Layout("mine", "", Order.BALANCED, Bind.CORE)
    assert load_layout(str(tmp_path / "mine.toml")) == wanted
    monkeypatch.chdir(tmp_path)
    assert load_layout("mine.toml") == wanted
    (tmp_path / "plain").write_text('order = "scatter"\n')
    assert load_layout("plain") == Layout("plain", "", Order.SCATTER, Bind.PU)


def test_a_name_wins_over_a_file_called_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none").write_text('order = "balanced"\n')
    monkeypatch.chdir(tmp_path)
    assert load_layout("none").order is Order.NONE
    assert load_layout("./none").order is Order.BALANCED


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(InputError, match="unknown layout 'balancd'; did you mean balanced"):
        load_layout("balancd")


def test_an_unreadable_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'description = "\xe9"')
    for path in (tmp_path / "missing.toml", tmp_path / "latin.toml", tmp_path / "a\0b.toml"):
        with pytest.raises(InputError, match="cannot read the layout file"):
            load_layout(str(path))
    with pytest.raises(InputError, match="Is a directory"):
        load_layout(str(tmp_path) + "/")


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
        ('order = "balanced"\ndescription = 1', "own.toml:2: description: expected a string"),
    ],
)
def test_a_wrong_layout_is_an_error_that_names_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_layout(text, Path("own.toml"))
    assert message in str(caught.value)
