"""`list:` and `expr:`: what likwid's documentation shows, and errors with their position."""

import pytest

from rater.errors import InputError
from rater.plan.placement.assign import assign_cpus
from rater.plan.placement.layout import Layout, load_layout, parse_cpus, parse_expression
from rater.plan.placement.order import apply_filters, cpus_of, evaluate_expression
from rater.run.host.discover import parse_synthetic
from tests.support.machines import SMT, made


# likwid's example: two sockets of two cores; siblings are numbered last.
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("E:N:2", [0, 4]),
        ("E:N:2:1:2", [0, 1]),
        ("E:N:4:2:4", [0, 4, 2, 6]),
        ("E:N:8", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("E:N", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("E:S1:2:1:2", [2, 3]),
        ("E:N:2:1:2:1", [4, 5]),
        ("E:S0:6", [0, 4, 1, 5, 0, 4]),  # begins again at the end, as likwid does
        ("E:N:3:2:4", [0, 4, 2]),
        ("N", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("M1", [2, 6, 3, 7]),
        ("D0", [0, 4, 1, 5]),  # no dies: packages
        ("N:0-7", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("L:N:1,4-6", [1, 4, 5, 6]),
        ("N:0-6:2", [0, 2, 4, 6]),
        ("S0:0-3@S1:2-3", [0, 1, 4, 5, 6, 7]),
        (" S0 : 0 - 1 @ E:S1:2 ", [0, 1, 2, 6]),
        ("S:scatter", [0, 2, 1, 3, 4, 6, 5, 7]),
        ("S:scatter:3", [0, 2, 1]),
        ("S:balanced:4", [0, 4, 2, 6]),
        ("S:cbalanced:4", [0, 1, 2, 3]),
        ("S:cbalanced:6", [0, 4, 1, 2, 6, 3]),
        ("M:balanced:3", [0, 4, 2]),
        ("N:scatter:2", [0, 1]),
        ("N:0@N:0", [0, 0]),
    ],
)
def test_expressions_mean_what_they_mean_to_likwid(text: str, wanted: list[int]) -> None:
    assert [pu.os for pu in evaluate_expression(SMT, text)] == wanted


def test_caches_and_dies_are_counted_over_the_machine() -> None:
    topology = parse_synthetic("pack:2 die:2 l3:2 core:2 pu:1")
    assert [pu.os for pu in evaluate_expression(topology, "C3@D1@S1:0")] == [6, 7, 4, 5, 6, 7, 8]
    assert [pu.os for pu in evaluate_expression(topology, "C:scatter:9")] == [*range(0, 16, 2), 1]
    assert [pu.os for pu in evaluate_expression(topology, "D:scatter:4")] == [0, 4, 8, 12]


def test_numbers_of_lgroups_are_those_of_the_system_and_gaps_stay() -> None:
    some = made([[[0], [1]], [[2], [3]], [[4], [5]]], usable={0, 3, 4, 5})
    assert [pu.os for pu in evaluate_expression(some, "M2@M1")] == [4, 5, 3]
    assert [slot[0].os for slot in assign_cpus(some, load_layout("expr:N"), 4).slots] == [
        0,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "expected a domain (N, S0, D0, C0, M0) or E: or L: at character 1 behind expr:, found",
        ),
        ("Q:3", "at character 1 behind expr:, found 'Q'"),
        ("E:N:0", "expected a number from 1 to 99999 at character 5 behind expr:, found '0'"),
        ("E:N:x", "at character 5 behind expr:, found 'x'"),
        ("E:N:4:2", "expected ':' and the stride, as in E:N:8:2:4 at character 8"),
        ("E N", "expected ':' at character 3"),
        ("S", "expected the number of a domain, as in S0, or ':' and scatter or balanced"),
        ("S0", None),
        ("S:spread", "expected scatter or balanced or cbalanced at character 3"),
        ("N:3-1", "expected a range that runs upwards, not 3-1, at character 3"),
        ("N:1,", "expected a number from 0 to 65535 at character 5 behind expr:, found the end"),
        ("N:1@", "at character 5 behind expr:, found the end"),
        ("N:1 2", "expected '@' or the end at character 5 behind expr:, found '2'"),
        ("N:" + "9" * 5000, "at character 3"),
        ("N:0-65535,0-65535", "expected no more than 99999 numbers"),
        ("N:٣", "at character 3"),
    ],
)
def test_a_wrong_expression_is_an_error_with_its_position(text: str, message: str | None) -> None:
    if message is None:
        parse_expression(text)
        return
    with pytest.raises(InputError) as caught:
        load_layout(f"expr:{text}")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S3", "made has no S3 with usable CPUs; packages with some: S0-1"),
        ("C0", "C stands for caches, and made names none for its usable CPUs: use N"),
        ("M0:0,4", "M0 has no position 4 on made: its 4 usable CPUs are at 0-3"),
        ("E:M0:1:1:1:4", "the offset 4 lies behind the 4 usable CPUs of M0"),
        ("S:scatter:9", "S:scatter:9 wants 9 CPUs, and packages of made have 8"),
        ("E:N:99999@E:N:1", "100000 CPUs, expected no more than 99999"),
    ],
)
def test_an_expression_that_the_machine_does_not_fit_is_an_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate_expression(SMT, text)
    assert message in str(caught.value)


def test_a_list_is_taken_in_its_own_order() -> None:
    assert parse_cpus("0,8,1,9") == (0, 8, 1, 9)
    assert parse_cpus(" 7, 0-6:3 ,4-5") == (7, 0, 3, 6, 4, 5)
    assert [pu.os for pu in cpus_of(SMT, "7,0-2")] == [7, 0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1,0-2", "list:0,1,0-2 names CPUs 0-1 more than once: name each once"),
        ("", "expected a number from 0 to 65535 at character 1 behind list:, found the end"),
        ("0;1", "expected ',' or '-' or the end at character 2 behind list:, found ';'"),
        ("3-1", "expected a range that runs upwards, not 3-1, at character 1"),
        ("0-8:0", "expected a number from 1 to 65535 at character 5"),
        ("70000", "at character 1"),
        ("0,\x1b[2J", "at character 3"),
    ],
)
def test_a_wrong_list_is_an_error_with_its_position(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_layout(f"list:{text}")
    assert message in str(caught.value)
    assert "\x1b" not in str(caught.value).replace("\\x1b", "")


def test_cpus_that_the_machine_lacks_are_named_with_what_there_is() -> None:
    part = made([[[0, 4], [1, 5]], [[2, 6], [3, 7]]], usable={0, 1, 4, 5})
    with pytest.raises(InputError) as caught:
        cpus_of(part, "0,2-3,8,96-97")
    assert str(caught.value) == (
        "list:0,2-3,8,96-97: on made CPUs 8,96-97 are not there and CPUs 2-3 are not free to use: "
        "use some of 0-1,4-5"
    )


def test_filters_take_cpus_out_of_a_list_and_reserved_ones_must_not_be_in_it() -> None:
    base = load_layout("list:0-7")
    first = Layout(base.name, "", base.order, base.bind, text=base.text, smt=1)
    assert [slot[0].os for slot in assign_cpus(SMT, first, 4).slots] == [0, 1, 2, 3]
    kept = Layout(base.name, "", base.order, base.bind, text=base.text, reserve=1)
    assert [pu.os for pu in apply_filters(SMT, kept).reserved] == [0, 4]
    with pytest.raises(InputError, match="CPUs 0,4 are not free to use: use some of 1-3,5-7"):
        assign_cpus(SMT, kept, 4)
