import hashlib
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from rater.plan.suite import Expected
from rater.run.workplace.compare_output import WrongOutputError, check_file, same_token


def difference(
    tmp_path: Path, got: str | bytes, want: str, absolute: float = 0.0, relative: float = 0.0
) -> str | None:
    stdout = tmp_path / "stdout"
    stdout.write_bytes(got if isinstance(got, bytes) else got.encode())
    return mistake(stdout, Expected("stdout", want, absolute, relative))


def mistake(path: Path, want: Expected) -> str | None:
    try:
        check_file(path, want)
    except WrongOutputError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ("sum 1.5\n", "sum 1.5\n"),
        ("sum 1.5", "sum 1.5\n"),
        ("sum  1.5   \r\n\n\n", "sum 1.5"),
        ("sum 1.50\n", "sum 1.5\n"),
        ("", ""),
        ("\n \n", ""),
        ("a\n\nb\n", "a\n\nb\n"),
        ("x nan\n", "x nan\n"),
    ],
)
def test_a_right_answer_passes(tmp_path: Path, got: str, want: str) -> None:
    assert difference(tmp_path, got, want) is None


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        ("a\nb\nc 1.25\n", "a\nb\nc 1.5\n", "stdout line 3: got 1.25, expected 1.5"),
        ("foo\n", "bar\n", 'stdout line 1: got "foo", expected "bar"'),
        ("a\n", "a\nb\n", 'stdout line 2: got the end of the file, expected "b"'),
        ("", "a\n", 'stdout line 1: got the end of the file, expected "a"'),
        ("a\nb c\n", "a\n", 'stdout line 2: got "b c", expected the end of the file'),
        ("a\n\n\nb\n", "a\n", 'stdout line 4: got "b", expected the end of the file'),
        ("a 1\n", "a\n", "stdout line 1: got 1 where the line should end"),
        ("a\n", "a 1\n", "stdout line 1: got the end of the line, expected 1"),
        ("a\nb\n", "a\n\nb\n", 'stdout line 2: got "b" where the line should end'),
        ("x", "", 'stdout line 1: got "x", expected the end of the file'),
        ("nan\n", "1.5\n", "stdout line 1: got nan, expected 1.5"),
    ],
)
def test_a_wrong_answer_is_told_by_its_first_difference(
    tmp_path: Path, got: str, want: str, said: str
) -> None:
    assert difference(tmp_path, got, want) == said


def test_a_number_within_tolerance_passes_and_one_outside_does_not(tmp_path: Path) -> None:
    assert difference(tmp_path, "e 1000.0009\n", "e 1000\n", relative=1e-6) is None
    assert (
        difference(tmp_path, "e 1000.0011\n", "e 1000\n", relative=1e-6)
        == "stdout line 1: got 1000.0011, expected 1000 (relative tolerance 1e-06)"
    )
    assert difference(tmp_path, "e 0.4\n", "e 0\n", absolute=0.5, relative=1e-9) is None
    assert (
        difference(tmp_path, "e 0.6\n", "e 0\n", absolute=0.5, relative=1e-9)
        == "stdout line 1: got 0.6, expected 0 (absolute tolerance 0.5, relative tolerance 1e-09)"
    )


@pytest.mark.parametrize(
    ("got", "want", "relative", "same"),
    [
        (b"1.0D+03", b"1000", 0.0, True),
        (b"0x1p-1", b"0.5", 0.0, True),
        (b"0X1F", b"31", 0.0, True),
        (b"-Inf", b"-infinity", 0.0, True),
        (b"inf", b"-inf", 1.0, False),
        (b"5", b"inf", 1.0, False),
        (b"inf", b"5", 1.0, False),
        (b"nan", b"NaN", 1.0, False),
        (b"-nan", b"nan", 1.0, False),
        (b"nan", b"nan", 0.0, True),
        (b"12345678901234567890", b"12345678901234567891", 0.0, False),
        (b"12345678901234567890", b"12345678901234567891", 1e-9, True),
        (b"12e999", b"13e999", 1.0, False),
        (b"1_000", b"1000", 1.0, False),
        (b"\xd9\xa1", b"1", 1.0, False),
        (b"deadbeef", b"DEADBEEF", 1.0, False),
        (b"9" * 5000, b"8" * 5000, 1.0, False),
        (b"9" * 200, b"8" * 200, 1.0, True),
        (b"0x" + b"f" * 190, b"0x" + b"e" * 190, 1e-30, False),
        (b"1.5", b"-1.5", 1.0, False),
        (b"1.5s", b"1.5", 1.0, False),
    ],
)
def test_words_agree_as_numbers_or_not_at_all(
    got: bytes, want: bytes, relative: float, same: bool
) -> None:
    assert same_token(got, want, 0.0, relative) is same


def test_a_file_the_benchmark_writes_is_checked_with_its_own_tolerance(tmp_path: Path) -> None:
    file, want = tmp_path / "a.txt", Expected("out/a.txt", "2\n", 0.5, 0)
    assert mistake(file, want) == "out/a.txt was not written"
    file.write_text("2.6\n")
    assert mistake(file, want) == "out/a.txt line 1: got 2.6, expected 2 (absolute tolerance 0.5)"
    file.write_text("2.5\n")
    assert mistake(file, want) is None


def test_binary_garbage_is_told_without_control_characters(tmp_path: Path) -> None:
    assert (
        difference(tmp_path, b"\x1b[2J\xff\x00\n", "fine\n")
        == 'stdout line 1: got "\\x1b[2J\\xff\\x00", expected "fine"'
    )


def test_a_pipe_or_folder_in_place_of_the_output_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        want = Expected(name, "1", 0, 0)
        assert mistake(tmp_path / name, want) == f"{name} is not a regular file"


@pytest.mark.parametrize("file", ["/proc/kmsg", "/proc/self/pagemap"])
def test_a_link_to_a_file_of_the_kernel_that_never_ends_is_an_empty_output(
    tmp_path: Path, file: str
) -> None:
    (tmp_path / "out").symlink_to(file)
    if os.access(file, os.R_OK):
        said = mistake(tmp_path / "out", Expected("out", "1", 0, 0))
        assert said == "out line 1: got the end of the file, expected 1"


@pytest.mark.parametrize("how", [{"sha256": "0" * 64}, {"ignore": "^."}, {}])
def test_terabytes_of_holes_are_not_read(tmp_path: Path, how: dict[str, str]) -> None:
    with (tmp_path / "out").open("wb") as file:
        file.write(b"1\n")
        file.truncate(8 << 40)
    want = Expected("out", "1\n", 0, 0, **how)
    assert mistake(tmp_path / "out", want) == (
        "out is 8796 GB long and nearly all of it holes, not read"
    )


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        ("a\ntime: 1\nb\n", "a\nb\n", None),
        ("a\ntime: 1\nb\n", "a\ntime: 2\nb\n", None),
        ("time: 1\n", "", None),
        ("time: 1\n", "time: 2\n\n", None),
        ("a\r\ntime: 1\r\n\n", "a\n", None),
        ("a\ntime: 1\nc\n", "a\nb\n", 'stdout line 3: got "c", expected "b"'),
        ("time: 1\na\n", "a\nb\n", 'stdout line 3: got the end of the file, expected "b"'),
        ("a\ntime: 1\nb\n", "a\n", 'stdout line 3: got "b", expected the end of the file'),
        ("time: 1" + "x" * 200_000 + "\na\n", "a\n", None),
        ("a\n" + " " * 200_000 + "x\n", "a\n", 'line 2: got "x", expected the end of the file'),
    ],
)
def test_lines_to_be_ignored_are_not_compared(
    tmp_path: Path, got: str, want: str, said: str | None
) -> None:
    stdout = tmp_path / "stdout"
    stdout.write_text(got, newline="")
    expected = Expected("stdout", want, 0, 0, ignore="^(time|rate):")
    found = mistake(stdout, expected)
    assert (found or "").endswith(said) if said else found is None


def test_the_exact_content_of_a_file_is_checked_by_its_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"\x00\xff exact").hexdigest()
    file, want = tmp_path / "x.back", Expected("back", "", 0, 0, digest)
    assert mistake(file, want) == "back was not written"
    file.write_bytes(b"\x00\xff exact")
    assert mistake(file, want) is None
    file.write_bytes(b"\x00\xff exact\n")
    other = hashlib.sha256(b"\x00\xff exact\n").hexdigest()
    assert mistake(file, want) == f"back has SHA-256 {other}, expected {digest}"


@pytest.mark.parametrize("filling", [b"\n", b" ", b"x", b"\0"])
def test_a_gigabyte_of_output_is_never_in_memory(tmp_path: Path, filling: bytes) -> None:
    stdout = tmp_path / "stdout"
    with stdout.open("wb") as file:
        file.write(b"sum 1\n" + filling * 1000)
        file.truncate(1_000_000_000)  # zeros, in a sparse file
    tracemalloc.start()
    begin = time.perf_counter()
    found = mistake(stdout, Expected("stdout", "sum 1\n2\n", 0, 0))
    elapsed_s = time.perf_counter() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found or "").startswith("stdout line 2: ")
    assert peak < 1_000_000
    assert elapsed_s < 20  # the bound is for slow machines


def test_white_space_without_end_is_read_through_in_blocks(tmp_path: Path) -> None:
    got = b"sum 1\n" + b"\n" * 20_000_000 + b"x"
    assert (
        difference(tmp_path, got, "sum 1\n")
        == 'stdout line 20000002: got "x", expected the end of the file'
    )
