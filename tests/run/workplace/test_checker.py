"""Outputs compared, metrics read, and the process that judges them: it can hold up no run."""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.metric import Metric
from rater.plan.schedule import Window, make_plan
from rater.plan.suite import Expected
from rater.record.events import CopyStarted, Event, Noted, PhaseEnded
from rater.record.run import RunStatus, Validity
from rater.run.launcher.guard import MARKER, Helpers, child_pids, guard
from rater.run.supervise.supervisor import Supervisor
from rater.run.workplace import checker
from rater.run.workplace import compare_output as metrics_module
from rater.run.workplace.checker import Checker
from rater.run.workplace.compare_output import (
    CheckRequest,
    CheckResult,
    CheckRules,
    WrongOutputError,
    check_file,
    read_metric,
    same_token,
)
from tests.support.rig import Rig


def difference(
    tmp_path: Path, got: str | bytes, want: str, absolute: float = 0.0, relative: float = 0.0
) -> str | None:
    stdout = tmp_path / "stdout"
    stdout.write_bytes(got if isinstance(got, bytes) else got.encode())
    return mistake(
        stdout,
        Expected(
            file="stdout", text=want, absolute_tolerance=absolute, relative_tolerance=relative
        ),
    )


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
    file, want = (
        tmp_path / "a.txt",
        Expected(file="out/a.txt", text="2\n", absolute_tolerance=0.5, relative_tolerance=0),
    )
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
        want = Expected(file=name, text="1", absolute_tolerance=0, relative_tolerance=0)
        assert mistake(tmp_path / name, want) == f"{name} is not a regular file"


@pytest.mark.parametrize("file", ["/proc/kmsg", "/proc/self/pagemap"])
def test_a_link_to_a_file_of_the_kernel_that_never_ends_is_an_empty_output(
    tmp_path: Path, file: str
) -> None:
    (tmp_path / "out").symlink_to(file)
    if os.access(file, os.R_OK):
        said = mistake(
            tmp_path / "out",
            Expected(file="out", text="1", absolute_tolerance=0, relative_tolerance=0),
        )
        assert said == "out line 1: got the end of the file, expected 1"


@pytest.mark.parametrize("how", [{"sha256": "0" * 64}, {"ignore": "^."}, {}])
def test_terabytes_of_holes_are_not_read(tmp_path: Path, how: dict[str, str]) -> None:
    with (tmp_path / "out").open("wb") as file:
        file.write(b"1\n")
        file.truncate(8 << 40)
    want = Expected(file="out", text="1\n", absolute_tolerance=0, relative_tolerance=0, **how)
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
    expected = Expected(
        file="stdout", text=want, absolute_tolerance=0, relative_tolerance=0, ignore="^(time|rate):"
    )
    found = mistake(stdout, expected)
    assert (found or "").endswith(said) if said else found is None


def test_the_exact_content_of_a_file_is_checked_by_its_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"\x00\xff exact").hexdigest()
    file, want = (
        tmp_path / "x.back",
        Expected(file="back", text="", absolute_tolerance=0, relative_tolerance=0, sha256=digest),
    )
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
    message = mistake(
        stdout,
        Expected(file="stdout", text="sum 1\n2\n", absolute_tolerance=0, relative_tolerance=0),
    )
    elapsed_s = time.perf_counter() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (message or "").startswith("stdout line 2: ")
    assert peak < 1_000_000
    assert elapsed_s < 20  # the bound is for slow machines


def test_white_space_without_end_is_read_through_in_blocks(tmp_path: Path) -> None:
    got = b"sum 1\n" + b"\n" * 20_000_000 + b"x"
    assert (
        difference(tmp_path, got, "sum 1\n")
        == 'stdout line 20000002: got "x", expected the end of the file'
    )


def metric(pattern: str, file: str = "stdout", scale: float = 1.0) -> Metric:
    return Metric(
        name="speed",
        pattern=pattern,
        unit="GB/s",
        better="higher",
        combine="mean",
        file=file,
        scale=scale,
    )


def value(tmp_path: Path, written: str | bytes, pattern: str, scale: float = 1.0) -> float:
    stdout = tmp_path / "stdout"
    stdout.write_bytes(written if isinstance(written, bytes) else written.encode())
    return read_metric(stdout, metric(pattern, scale=scale))


def test_a_carriage_return_ends_a_line_of_progress(tmp_path: Path) -> None:
    drawn = "speed 1\rspeed 2\r\nspeed 30\rdone\r"
    [found] = Checker().check([request(tmp_path, drawn, replace(NUMBER, pattern=r"^speed (\d+)$"))])
    assert found.metrics == (("speed", 30.0),)


@pytest.mark.parametrize(
    ("written", "pattern", "expected"),
    [
        ("Triad: 12.5 GB/s\n", r"^Triad:\s+([0-9.]+)", 12.5),
        ("n 1\nn 2\nn 3\nend\n", r"^n (\d+)$", 3),
        ("n 1 n 2", r"n (\d+)", 2),
        ("a\nb 7\n", r"a\nb (\d+)", 7),
        ("x 1.5D+3\n", r"x (\S+)", 1500),
        ("x 0x10\n", r"x (\S+)", 16),
        ("x -2e-3\n", r"x (\S+)", -0.002),
        ("ä 4 µs\n", r"^ä (\d) µs$", 4),
        (b"\xff\xfe 5\n", r"(\d)", 5),
    ],
)
def test_the_last_match_of_a_pattern_is_the_number(
    tmp_path: Path, written: str | bytes, pattern: str, expected: float
) -> None:
    assert value(tmp_path, written, pattern) == expected


def test_a_value_is_the_number_times_its_scale(tmp_path: Path) -> None:
    assert value(tmp_path, "1500 MB/s", r"(\d+)", scale=1e-3) == 1.5


@pytest.mark.parametrize(
    ("written", "pattern", "said"),
    [
        ("nothing\n", r"^T: (\d+)", r"metric speed: no line of stdout matches ^T: (\d+)"),
        ("", r"(\d+)", r"metric speed: no line of stdout matches (\d+)"),
        ("x fast\n", r"x (\w+)", "metric speed: stdout has 'fast' there, expected a finite number"),
        ("x inf\n", r"x (\w+)", "metric speed: stdout has 'inf' there, expected a finite number"),
        ("x nan\n", r"x (\w+)", "metric speed: stdout has 'nan' there, expected a finite number"),
        ("x 1_0\n", r"x (\w+)", "metric speed: stdout has '1_0' there, expected a finite number"),
        ("x\n", r"x(\d)?", "metric speed: stdout has '' there, expected a finite number"),
        ("x 1e308\n", r"x (\S+)", "metric speed: stdout has '1e308' there, expected a finite num"),
        (f"x {'9' * 190}\n", r"x (\S+)", None),
        (f"x {'9' * 5000}\n", r"x (\S+)", f"metric speed: stdout has '{'9' * 60}' there, expec"),
    ],
)
def test_what_is_not_there_or_no_number_is_told(
    tmp_path: Path, written: str, pattern: str, said: str | None
) -> None:
    if said is None:
        assert value(tmp_path, written, pattern) == pytest.approx(1e190)
        return
    with pytest.raises(WrongOutputError) as caught:
        value(tmp_path, written, pattern, scale=100)
    assert str(caught.value).startswith(said)


def test_a_file_that_is_missing_or_no_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("gone", "was not written"), ("pipe", "is not a regular file")):
        with pytest.raises(WrongOutputError, match=f"^metric speed: {name} {said}$"):
            read_metric(tmp_path / name, metric("(x)", name))


def test_a_number_far_from_the_end_of_a_gigabyte_is_found_in_little_memory(tmp_path: Path) -> None:
    stdout = tmp_path / "stdout"
    line = b"x" * 99 + b"\n"
    with stdout.open("wb") as file:
        file.write(b"n 1\n" + line * 200_000 + b"n 2\nn 3\n" + line * 100_000)
    tracemalloc.start()
    begin = time.perf_counter()
    found = read_metric(stdout, metric(r"^n (\d)$"))
    elapsed_s = time.perf_counter() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == 3
    assert peak < 20_000_000
    assert elapsed_s < 20  # the bound is for slow machines


def test_a_number_at_the_edge_of_a_window_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "_WINDOW", 40)
    monkeypatch.setattr(metrics_module, "_OVERLAP", 16)
    for behind in range(120):
        written = "\n" * 50 + "n 1\nn 123456\n" + "rest\n" * (behind // 5) + "\n" * (behind % 5)
        assert value(tmp_path, written, r"(?:^| )(\d+)") == 123456
        assert value(tmp_path, written, r"n 1\nn (\d+)") == 123456


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(r"^time (\d+)$", 55), (r"^time (\d+)\b(?! ms)", 55), (r"\A(?:x )?time (\d+)\s", 55)],
)
def test_the_edge_of_a_window_is_no_end_of_a_line_or_file(
    tmp_path: Path, pattern: str, expected: float
) -> None:
    lines = "time 123456 ms of step\n" * 400_000
    assert value(tmp_path, "time 55\n" + lines, pattern) == expected
    with pytest.raises(WrongOutputError, match="no line of stdout matches"):
        value(tmp_path, "none\n" + lines, pattern)


def test_the_end_of_a_window_is_not_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "_WINDOW", 40)
    monkeypatch.setattr(metrics_module, "_OVERLAP", 16)
    for behind in range(120):
        with pytest.raises(WrongOutputError):
            value(tmp_path, "n 1\n" * 50 + "rest\n" * (behind // 5) + "x\n", r"n (\d)\n\Z")


def test_in_a_line_longer_than_a_window_nothing_is_guessed(tmp_path: Path) -> None:
    long = b'{"speed": 5, ' + b"z" * 6_000_000 + b"}"
    with pytest.raises(WrongOutputError) as caught:
        value(tmp_path, long, r'"speed": (\d)')
    assert str(caught.value) == "metric speed: stdout: a line is longer than 4194304 bytes"
    assert value(tmp_path, long + b'\n"speed": 6\n', r'"speed": (\d)') == 6


@pytest.mark.parametrize(("written", "scale"), [("1e291", 1.0), ("-1e280", 1e20)])
def test_a_value_too_large_for_sums_is_told(tmp_path: Path, written: str, scale: float) -> None:
    with pytest.raises(WrongOutputError, match=r"beyond 1e\+290 nothing can be reckoned with it"):
        value(tmp_path, f"x {written}\n", r"x (\S+)", scale)
    assert value(tmp_path, "x -1e290\n", r"x (\S+)") == -1e290


ENDLESS = r"^((?:a+)+)$"
TRAP = "a" * 60 + "!\n"
NUMBER = Metric(
    name="speed",
    pattern=r"speed (\d+)",
    unit="GB/s",
    better="higher",
    combine="mean",
    file="stdout",
    scale=1.0,
)
STUCK = Metric(
    name="trap", pattern=ENDLESS, unit="", better=None, combine="sum", file="stdout", scale=1.0
)


def request(
    folder: Path, wrote: str, *metrics: Metric, expected: tuple[Expected, ...] = ()
) -> CheckRequest:
    stdout = folder / f"{len(list(folder.iterdir()))}.stdout"
    stdout.write_text(wrote)
    return CheckRequest(CheckRules(expected, metrics), str(folder), str(stdout), str(stdout))


def test_many_copies_of_several_benchmarks_are_judged_in_their_order(tmp_path: Path) -> None:
    text = "line\n" * 20_000  # more than a pipe holds
    requests = [
        request(tmp_path, "speed 7\n", NUMBER),
        request(tmp_path, "nothing\n", NUMBER),
        request(tmp_path, "anything"),
        request(
            tmp_path,
            text,
            expected=(
                Expected(file="stdout", text=text, absolute_tolerance=0, relative_tolerance=0),
            ),
        ),
        request(tmp_path, "speed ?\n", NUMBER),
    ] * 20
    with Checker() as process:
        verdicts = process.check(requests)
    silent, other = (
        CheckResult(
            Validity.INVALID,
            rf"metric speed: no line of stdout matches speed (\d+); it ends: {end}",
        )
        for end in ("nothing", "speed ?")
    )
    assert verdicts[:5] == [
        CheckResult(Validity.NOT_CHECKED, None, (("speed", 7.0),)),
        silent,
        CheckResult(Validity.NOT_CHECKED),
        CheckResult(Validity.VALID),
        other,
    ]
    assert verdicts == verdicts[:5] * 20


def test_files_are_found_by_their_names_and_numbers_in_the_order_of_the_suite(
    tmp_path: Path,
) -> None:
    for number, name in enumerate(("out.stdout", "out.stderr", "log/x")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"a {number}\n")
    rules = CheckRules(
        tuple(
            Expected(file=f, text=f"a {number}", absolute_tolerance=0, relative_tolerance=0)
            for number, f in ((0, "stdout"), (2, "log/x"))
        ),
        tuple(
            Metric(
                name=name,
                pattern=r"a (\d)",
                unit="",
                better=None,
                combine="sum",
                file=file,
                scale=1.0,
            )
            for name, file in (("c", "log/x"), ("b", "stderr"), ("a", "stdout"))
        ),
    )
    files = [str(tmp_path / name) for name in ("out.stdout", "out.stderr")]
    with Checker() as process:
        found = process.check([CheckRequest(rules, str(tmp_path), *files)])
    assert found == [CheckResult(Validity.VALID, None, (("c", 2.0), ("b", 1.0), ("a", 0.0)))]


def give_the_next_one_time(monkeypatch: pytest.MonkeyPatch, process: Checker) -> None:
    """Lift the limits once another process is needed: to start takes long on a full machine."""
    process.start()
    start = checker._Process

    def started(helpers: Helpers) -> checker._Process:
        monkeypatch.setattr(checker, "LIMIT_S", 60.0)
        process._wall_s = 60.0
        return start(helpers)

    monkeypatch.setattr(checker, "_Process", started)


@pytest.mark.parametrize(
    ("metrics", "expected", "at"),
    [
        ((NUMBER, STUCK), (), "metric trap: its pattern"),
        (
            (),
            (
                Expected(
                    file="stdout",
                    text="",
                    absolute_tolerance=0,
                    relative_tolerance=0,
                    ignore=ENDLESS,
                ),
            ),
            "checking stdout",
        ),
    ],
)
def test_a_pattern_without_end_is_wrong_and_the_next_copy_is_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    metrics: tuple[Metric, ...],
    expected: tuple[Expected, ...],
    at: str,
) -> None:
    monkeypatch.setattr(checker, "LIMIT_S", 0.15)
    with Checker() as process:
        give_the_next_one_time(monkeypatch, process)
        bad, good = process.check(
            [
                request(tmp_path, f"{TRAP}speed 1\n", *metrics, expected=expected),
                request(tmp_path, "speed 2\n", NUMBER),
            ]
        )
    assert bad.detail == f"{at} took longer than 0.15 s of CPU time"
    assert good.metrics == (("speed", 2.0),)


def test_a_check_without_end_is_left_alone_when_the_run_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "AFTER_STOP_S", 0.1)
    begin_s = time.monotonic()
    with Checker(stopped=lambda: time.monotonic() > begin_s + 0.2) as process:
        found = process.check([request(tmp_path, ""), request(tmp_path, TRAP, STUCK)])
        assert time.monotonic() - begin_s < 20
        assert found == [CheckResult(Validity.NOT_CHECKED), CheckResult(Validity.UNCHECKED)]
        assert process.check([request(tmp_path, "", NUMBER)]) == [CheckResult(Validity.UNCHECKED)]


def test_when_the_process_dies_the_copy_in_hand_is_wrong_and_another_goes_on(
    tmp_path: Path,
) -> None:
    with guard("judge-dies", 1, use_cgroup=False) as keeper, Checker(keeper.helpers) as process:
        process.start()
        [first] = keeper.helpers.pids
        os.kill(first, signal.SIGKILL)
        bad, good = process.check([request(tmp_path, "speed 2\n", NUMBER)] * 2)
        assert bad.detail is not None
        assert bad.detail.startswith("checking its output ended the process that did it: signal 9")
        assert "a process sent it" in bad.detail
        assert good.metrics == (("speed", 2.0),)
        [second] = keeper.helpers.pids
        assert second != first


def test_a_process_that_is_stopped_is_not_waited_for_and_another_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        guard("judge-stops", 1, use_cgroup=False) as keeper,
        Checker(keeper.helpers, wall_s=0.3) as process,
    ):
        give_the_next_one_time(monkeypatch, process)
        [first] = keeper.helpers.pids
        os.kill(first, signal.SIGSTOP)
        bad, good = process.check([request(tmp_path, "speed 2\n", NUMBER)] * 2)
        assert bad.detail == (
            "checking its output took longer than 0.3 s (--check-limit), 0.0 s of it on a CPU: "
            "its process was stopped, or waits for a disk or a CPU"
        )
        assert good.metrics == (("speed", 2.0),)
        assert first not in child_pids()


def test_the_process_is_no_leftover_and_bears_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARKER, "judge-stays")
    with guard("judge-stays", 1, use_cgroup=False) as keeper, Checker(keeper.helpers) as process:
        process.start()
        [pid] = keeper.helpers.pids
        assert pid in child_pids()
        keeper.kill_strays(())
        assert keeper.kill_leftovers() == []
        assert MARKER.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.getpgid(pid) == pid
        process.check([request(tmp_path, "speed 2\n", NUMBER)])
        assert keeper.helpers.pids == {pid}
    assert pid not in child_pids()


def test_the_process_dies_with_rater_whatever_it_does(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text(TRAP)
    script = f"""
import sys
from rater.plan.suite import Metric
from rater.run.workplace.checker import Checker
from rater.run.workplace.compare_output import CheckRequest, CheckRules
checker = Checker()
checker.start()
print(*checker._helpers.pids, flush=True)
metric = Metric(
    name="m", pattern={ENDLESS!r}, unit="", better=None, combine="sum", file="stdout", scale=1.0
)
checker.check(
    [
        CheckRequest(
            rules=CheckRules((), (metric,)),
            directory={str(tmp_path)!r},
            stdout={str(tmp_path / "stdout")!r},
            stderr="",
        )
    ]
)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as rater:
        assert rater.stdout is not None
        pidfd = os.pidfd_open(int(rater.stdout.readline()))
        try:
            time.sleep(0.1)  # into the pattern; if not yet there, all the better
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)  # readable when the process has ended
            assert poll.poll(0) == []
            rater.kill()
            assert poll.poll(20_000) != []
        finally:
            os.close(pidfd)


def test_a_run_that_is_stopped_while_it_judges_ends_and_leaves_the_rest_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "AFTER_STOP_S", 0.1)

    def stop(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, PhaseEnded):
            os.kill(os.getpid(), signal.SIGINT)

    begin_s = time.monotonic()
    rig = Rig(tmp_path, metrics=(STUCK,), on_event=stop)
    seen = rig.run({"trap": f"echo {TRAP}"}, 2)
    assert time.monotonic() - begin_s < 20
    assert (seen.outcome.status, seen.outcome.signal) == (RunStatus.INTERRUPTED, signal.SIGINT)
    assert seen.checked == []
    assert {event.validity for event in seen.ended} == {Validity.UNCHECKED}
    assert not [event for event in seen.events if isinstance(event, Noted)]
    assert list(rig.work.iterdir()) == []


def test_a_pattern_without_end_does_not_hold_up_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "LIMIT_S", 0.3)
    gone = tmp_path / "gone"
    # The first run of copy 0 sets the trap, which is sprung while the others go on.
    script = f"if mkdir {gone} 2>/dev/null; then echo {TRAP.strip()}; else echo aa; fi; sleep 0.02"
    window = Window(warmup_ns=0, length_ns=1_000_000_000)
    plan = make_plan(["nap"], 2, mode="steady", window=window)
    metric = Metric(
        name="trap",
        pattern=rf"{ENDLESS}|(?!)",
        unit="",
        better=None,
        combine="sum",
        file="stdout",
        scale=1.0,
    )
    seen = Rig(tmp_path, metrics=(metric,)).run({"nap": script}, 2, plan)
    [overdue] = [event for event in seen.checked if event.detail and "longer" in event.detail]
    assert overdue.detail == "metric trap: its pattern took longer than 0.3 s of CPU time"
    assert len(seen.checked) == len(seen.ended)
    [trapped] = [
        event for event in seen.ended if (event.copy, event.step) == (overdue.copy, overdue.step)
    ]
    meanwhile = seen.events[seen.events.index(trapped) : seen.events.index(overdue)]
    assert sum(isinstance(event, CopyStarted) for event in meanwhile) > 4
