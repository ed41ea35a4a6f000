"""The table of options beside the fields of a request."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rater.plan.options import (
    FLAG,
    IN_HEAD,
    SWEPT,
    CompareAs,
    CopyNumbers,
    Option,
    read_options,
)
from rater.plan.request import OPTIONS, Request
from rater.run.host.discover import discover_topology
from rater.system.errors import InputError
from rater.workflow.arguments import RunArguments
from rater.workflow.run.resolve import resolve

DEFAULTS = {"wait_s": None, "energy": "auto", "keep": False}


def read_one(entry: str) -> Option:
    (option,) = read_options(f"how:\n{entry}", {"flag": FLAG}, DEFAULTS)
    return option


def test_each_field_has_one_option_but_what_is_typed_by_none() -> None:
    fields = [option.field for option in OPTIONS]
    assert [*Request.__struct_fields__] == ["suites", "command", *fields]


def test_an_entry_says_all_of_an_option() -> None:
    option = read_one(
        "--wait, --queue MAX_S ?60  wait up to MAX_S\n    for another\n"
        '    [field=wait_s traits=swept,in_head compare_as=note label="time to wait" neutral=0\n'
        '     implies="load, command of "]'
    )
    assert option == Option(
        field="wait_s",
        name="wait",
        group="how",
        help="wait up to MAX_S for another",
        default=None,
        label="time to wait",
        aliases=("queue",),
        metavar="MAX_S",
        const="60",
        traits=SWEPT | IN_HEAD,
        compare_as=CompareAs.NOTE,
        neutral=("0",),
        implies=("load", "command of "),
    )


def test_an_option_without_properties_is_text_and_different_work() -> None:
    option = read_one("--energy (auto|off)  joules")
    assert (option.field, option.label, option.default) == ("energy", "--energy", "auto")
    assert option.choices == ("auto", "off")
    assert option.compare_as is CompareAs.DIFFERENT_WORK


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ("sort=flag", AssertionError),
        ("kind=flags", KeyError),
        ("traits=sweeped", KeyError),
        ("compare_as=notes", ValueError),
        ("field=kept", KeyError),
    ],
)
def test_a_slip_in_the_table_is_an_error(properties: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_one(f"--keep  keep them\n    [{properties}]")


@pytest.mark.parametrize(
    ("text", "numbers", "total"),
    [("3/8", (3,), 8), ("5,0-2/8", (5, 0, 1, 2), 8), ("3", (3,), 4), ("0-4095/4096", None, 4096)],
)
def test_copy_numbers_keep_their_order_and_say_of_how_many(
    text: str, numbers: tuple[int, ...] | None, total: int
) -> None:
    parsed = CopyNumbers.parse(text)
    assert parsed.numbers == (tuple(range(4096)) if numbers is None else numbers)
    assert parsed.of == total


@pytest.mark.parametrize("text", ["", "8/8", "1,1/4", "3/", "3/x", "-1/4", "x", "/8"])
def test_what_is_no_list_of_copy_numbers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|list|number"):
        CopyNumbers.parse(text)


def test_warm_up_is_iterations_that_come_first_and_seconds_of_a_steady_run() -> None:
    def planned(**options: object) -> tuple[int, list[bool]]:
        """The seconds of the warm-up, and which iterations count."""
        request = RunArguments(command=("true",), options=options).request()
        plan = resolve(replace(request, copies="1"), discover_topology()).plan
        window_s = 0 if plan.window is None else plan.window.warmup_ns / 1e9
        return round(window_s), [phase.counted for phase in plan.phases]

    assert planned(warmup="2", iterations=1) == (0, [False, False, True])
    assert planned(warmup="1", iterations=3, discard=1) == (0, [False, False, True, True])
    assert planned(warmup="2s", window=20.0, mode="steady") == (2, [True])
    with pytest.raises(InputError, match="--warmup 2s: expected a whole number of iterations"):
        planned(warmup="2s", iterations=3)
