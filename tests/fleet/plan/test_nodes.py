"""Names of many nodes in one word."""

from __future__ import annotations

import pytest

from rater.errors import InputError
from rater.fleet.plan import MOST_NODES, compress, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n1,n3", ("n1", "n3")),
        ("n[1-3,7]", ("n1", "n2", "n3", "n7")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("n[8-10]", ("n8", "n9", "n10")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("a[1,3]-x, login", ("a1-x", "a3-x", "login")),
        ("n[1-2],n[2-3]", ("n1", "n2", "n3")),
        ("node-7.cluster.example", ("node-7.cluster.example",)),
    ],
)
def test_a_text_stands_for_names(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a name is missing"),
        ("n1,,n2", "a name is missing"),
        ("n[1-3", "brackets do not match"),
        ("n1]", "brackets do not match"),
        ("n[[1]]", "brackets do not match"),
        ("n[a-b]", "neither a number nor FIRST-LAST"),
        ("n[3-1]", "runs backwards"),
        ("n[]", "neither a number nor FIRST-LAST"),
        ("../n1", "no name of a node"),
        ("n 1", "no name of a node"),
        ("-n1", "no name of a node"),
        ("n[1-999999999]", f"more than {MOST_NODES} nodes"),
        ("n[1-999][1-999]", f"more than {MOST_NODES} nodes"),
    ],
)
def test_what_is_none_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        expand(text)


@pytest.mark.parametrize(
    "text",
    ["n1", "n[1-3,7]", "n[08-10]", "n[098-101]", "login,n[1-2]", "a1,b1", "r1n[1-2],r2n1", "n1-x"],
)
def test_names_become_the_same_text_again(text: str) -> None:
    assert compress(expand(text)) == text


def test_names_of_one_number_with_and_without_zeros_stay_apart() -> None:
    assert expand(compress(["n1", "n01"])) == ("n1", "n01")
