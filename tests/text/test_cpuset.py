import re

import pytest

from rater.text import cpuset
from tests.support.bitmaps import format_bitmap


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("", ()),
        ("\n", ()),
        ("0\n", (0,)),
        (" 0 - 2 ,  7 ", (0, 1, 2, 7)),
        ("8,0,1", (8, 0, 1)),
        ("3,3", (3, 3)),
        ("007", (7,)),
        ("65535", (65535,)),
    ],
)
def test_a_list_is_read_in_the_order_written(text: str, numbers: tuple[int, ...]) -> None:
    assert cpuset.parse_list(text) == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-", "expected a number at character 3 of '0-', found the end"),
        ("0,,1", "expected a number at character 3 of '0,,1', found ','"),
        ("a", "expected a number at character 1 of 'a', found 'a'"),
        ("-1", "expected a number at character 1"),
        ("0 1", "unexpected '1' at character 3"),
        ("0-7:2/4", "unexpected ':' at character 4"),
        ("3-1", "the range 3-1 in '3-1' runs backwards"),
        ("0-4000000000", "at character 3 of '0-4000000000' is above 65535"),
        ("99999999999999999999999999", "at character 1"),
        ("0-65535,0-65535", "names more than 65536 numbers"),
        ("١", "expected a number"),
    ],
)
def test_a_wrong_list_is_an_error_with_its_position(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        cpuset.parse_list(text)


def test_a_set_is_a_list_without_order() -> None:
    assert cpuset.parse_set("5,1-2,1") == {1, 2, 5}


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((5,), "5"), ((8, 0, 1, 3, 2), "0-3,8"), ((0, 2, 4), "0,2,4"), ((1, 1), "1")],
)
def test_numbers_are_printed_as_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert cpuset.format_list(numbers) == text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0x000000ff", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("0x0", ()),
        ("0x00000001,,0x00000100", (8, 64)),
        ("0x80000000,,,0x0", (127,)),
        ("0xF", (0, 1, 2, 3)),
    ],
)
def test_a_bitmap_of_hwloc_is_read(text: str, numbers: tuple[int, ...]) -> None:
    assert cpuset.numbers_of(cpuset.parse_bitmap(text)) == numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("0x1,", "ends with ','"),
        (",", "ends with ','"),
        ("0xf...f", "infinite"),
        ("0xf...f,0x00000003", "infinite"),
        ("0x1,0xg", "'0xg' at character 5 of the bitmap '0x1,0xg'"),
        ("0x123456789", "no word of up to 8 hex digits"),
        ("ff", "expected 0x..."),
        ("0x1, 0x1", "' 0x1' at character 5"),
        ("0x1" + "," * 2048 + "0x0", "names numbers above 65535"),
        ("0xffffffff," * 9000 + "0x0", "names numbers above 65535"),
    ],
)
def test_a_wrong_bitmap_is_an_error_with_its_position(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        cpuset.parse_bitmap(text)
    assert len(str(caught.value)) < 300


def test_bitmaps_and_lists_are_printed_as_they_are_read() -> None:
    for numbers in ((), (0,), (8, 64), (31, 32, 33), (65535,), tuple(range(0, 4096, 3))):
        mask = cpuset.mask_of(numbers)
        assert cpuset.parse_bitmap(format_bitmap(mask)) == mask
        assert cpuset.parse_list(cpuset.format_list(numbers)) == numbers
        assert cpuset.numbers_of(mask) == numbers
