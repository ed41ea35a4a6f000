"""A sweep as values: axes, grids, orders, and the file that says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.sweep import (
    EXAMPLE,
    Axis,
    AxisKind,
    BlockOrder,
    SweepSlot,
    check_axes,
    grid,
    is_sweep_text,
    kinds_of,
    order_slots,
    parse_axis,
    parse_sweep,
    point_label,
)
from rater.text.documents import MistakesError

FILE = Path("own.toml")


# -- axes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("copies=1,2,4", Axis("copies", ("1", "2", "4"))),
        (" copies = 1, 2 ", Axis("copies", ("1", "2"))),
        ("thp=never", Axis("thp", ("never",))),
        ("env:G=a.b=0,a.b=1", Axis("env:G", ("a.b=0", "a.b=1"))),
        ("env:G=, x ", Axis("env:G", ("", " x "))),
        (r"layout=list:0\,1,list:2\,3", Axis("layout", ("list:0,1", "list:2,3"))),
        ("wrap=,nice", Axis("wrap", ("", "nice"))),
    ],
)
def test_an_axis_is_a_name_and_its_values(text: str, axis: Axis) -> None:
    assert parse_axis(text) == axis


@pytest.mark.parametrize("text", ["copies", "=1,2", "copies=", " =1"])
def test_what_is_no_axis_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"expected (NAME=)?V1,V2"):
        parse_axis(text)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([], "at least one axis"),
        ([Axis("copies", ("1", "2", "1"))], "copies: the value 1 stands there twice"),
        ([Axis("env:X", ("", ""))], r"the value \(none\) stands there twice"),
        ([Axis("thp", ("never",)), Axis("thp", ("always",))], "axis thp stands there twice"),
        ([Axis(name, tuple("0123456789")) for name in "abcde"], "100000 points"),
    ],
)
def test_axes_that_make_no_grid_are_refused(axes: list[Axis], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_axes(axes)


def test_a_name_is_an_option_a_variable_or_a_setting_and_options_come_first() -> None:
    axes = [Axis("copies", ("1",)), Axis("env:X", ("1",)), Axis("thp", ("never",))]
    assert kinds_of(axes, ["copies"], ["copies", "thp"]) == {
        "copies": AxisKind.OPTION,
        "env:X": AxisKind.ENVIRONMENT,
        "thp": AxisKind.SETTING,
    }


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        (Axis("copys", ("1",)), "did you mean copies"),
        (Axis("governer", ("1",)), "did you mean governor"),
        (Axis("xyz", ("1",)), "`rater settings` lists the settings, `rater run --help`"),
        (Axis("env:1X", ("1",)), "no name of an environment variable"),
        (Axis("env:RATER_COPY", ("7", "8")), "rater itself gives RATER_COPY to each copy"),
        (Axis("governor", ("", "powersave")), "governor: an empty value"),
    ],
)
def test_an_unknown_name_is_told_with_those_near_it(axis: Axis, said: str) -> None:
    with pytest.raises(InputError, match=said):
        kinds_of([axis], ["copies"], ["governor"])


# -- points and orders ----------------------------------------------------------------------------


def test_the_grid_has_the_last_axis_change_fastest_and_the_first_values_first() -> None:
    points = grid([Axis("copies", ("1", "4")), Axis("env:X", ("", "a"))])
    assert [point_label(point) for point in points] == [
        "copies=1 env:X=(none)",
        "copies=1 env:X=a",
        "copies=4 env:X=(none)",
        "copies=4 env:X=a",
    ]


def orders(order: BlockOrder, rounds: int = 3, seed: int = 7) -> list[list[int]]:
    slots = order_slots([0, 1, 2, 3], rounds, order, seed)
    return [[it.point for it in slots if it.block == block] for block in range(1, rounds + 1)]


def test_given_order_is_the_same_in_every_block_and_abba_goes_backwards_in_every_second() -> None:
    assert orders(BlockOrder.GIVEN) == [[0, 1, 2, 3]] * 3
    assert orders(BlockOrder.ABBA) == [[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3]]


def test_shuffled_blocks_are_permutations_of_one_seed() -> None:
    blocks = orders(BlockOrder.SHUFFLED, rounds=20)
    assert all(sorted(block) == [0, 1, 2, 3] for block in blocks)
    assert len({tuple(block) for block in blocks}) > 10
    assert blocks == orders(BlockOrder.SHUFFLED, rounds=20)
    assert blocks != orders(BlockOrder.SHUFFLED, rounds=20, seed=8)


def test_slots_count_from_1_and_blocks_that_are_added_are_those_of_a_longer_sweep() -> None:
    assert order_slots([0, 2], 1, BlockOrder.GIVEN, 0) == (SweepSlot(1, 1, 0), SweepSlot(1, 2, 2))
    whole = order_slots([0, 2, 3], 5, BlockOrder.SHUFFLED, 7)
    begun = order_slots([0, 2, 3], 2, BlockOrder.SHUFFLED, 7)
    assert (*begun, *order_slots([0, 2, 3], 5, BlockOrder.SHUFFLED, 7, first=3)) == whole


# -- the file -------------------------------------------------------------------------------------


def test_a_file_says_all_that_a_command_line_can() -> None:
    file = parse_sweep(
        '[sweep]\nsuites = ["mini"]\nrounds = 4\norder = "abba"\nseed = 0\nuntil = "1%"\n'
        'skip_refused = true\n[axes]\ncopies = [1, 2]\n"env:X" = ["", "a,b"]\nstagger = [0.5]\n'
        '[run]\nsize = "test"\nkeep = true\nenv = ["A=1"]\n',
        FILE,
    )
    assert (file.suites, file.command, file.rounds, file.seed) == (("mini",), (), 4, 0)
    assert (file.order, file.until) == (BlockOrder.ABBA, "1%")
    assert (file.skip_refused, file.stop_on_failure) == (True, False)
    assert file.axes == (
        Axis("copies", ("1", "2")),
        Axis("env:X", ("", "a,b")),
        Axis("stagger", ("0.5",)),
    )
    assert file.options == (("size", "test"), ("env", ("A=1",)), ("keep", True))


def test_what_a_file_does_not_say_is_none() -> None:
    file = parse_sweep("[axes]\ncopies = [1]\n", FILE)
    assert (file.rounds, file.order, file.seed, file.until) == (None,) * 4
    assert file.options == ()


def test_the_example_is_a_file_without_mistakes() -> None:
    file = parse_sweep(EXAMPLE, FILE)
    assert [axis.name for axis in file.axes] == ["copies", "thp", "env:MALLOC_ARENA_MAX"]
    assert is_sweep_text(EXAMPLE)
    assert not is_sweep_text("[suite]\nformat = 1\n# [sweep]\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[axes]\ncopies = 1\n", "own.toml:2: axes.copies: expected a list of strings or numbers"),
        ("[axes]\ncopies = []\n", "own.toml:2: axes.copies: expected at least one value"),
        ("[axes]\ncopies = [true]\n", r"own.toml:2: axes.copies\[0\]: expected a string or a num"),
        ("[sweep]\nrounds = 1\n", "axes: missing; expected a table"),
        ("[axes]\nc = [1]\n[sweep]\nround = 1\n", "own.toml:4: sweep.round: .*mean rounds"),
        ("[axes]\nc = [1]\n[sweep]\nrounds = 0\n", "own.toml:4: sweep.rounds: expected a whole"),
        ("[axes]\nc = [1]\n[run]\nsise = 'x'\n", "own.toml:4: run.sise: unknown key; .*size"),
        ("[axes]\nc = [1]\n[run]\nkeep = 1\n", "own.toml:4: run.keep: expected true or false"),
        ("[axes]\nc = [1]\n[sweep]\nsuites = ['a']\ncommand = ['b']\n", "own.toml:5: .*both"),
        ("[axes\n", "own.toml:1: not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(MistakesError, match=said):
        parse_sweep(text, FILE)
