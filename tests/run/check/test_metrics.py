import os
import time
import tracemalloc
from pathlib import Path

import pytest

from rater.plan.suite import Metric
from rater.run.workplace import compare_output as metrics_module
from rater.run.workplace.compare_output import WrongOutputError, read_metric


def metric(pattern: str, file: str = "stdout", scale: float = 1.0) -> Metric:
    return Metric("speed", pattern, "GB/s", "higher", "mean", file, scale)


def value(tmp_path: Path, written: str | bytes, pattern: str, scale: float = 1.0) -> float:
    stdout = tmp_path / "stdout"
    stdout.write_bytes(written if isinstance(written, bytes) else written.encode())
    return read_metric(stdout, metric(pattern, scale=scale))


@pytest.mark.parametrize(
    ("written", "pattern", "found"),
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
    tmp_path: Path, written: str | bytes, pattern: str, found: float
) -> None:
    assert value(tmp_path, written, pattern) == found


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
    ("pattern", "found"),
    [(r"^time (\d+)$", 55), (r"^time (\d+)\b(?! ms)", 55), (r"\A(?:x )?time (\d+)\s", 55)],
)
def test_the_edge_of_a_window_is_no_end_of_a_line_or_file(
    tmp_path: Path, pattern: str, found: float
) -> None:
    lines = "time 123456 ms of step\n" * 400_000
    assert value(tmp_path, "time 55\n" + lines, pattern) == found
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
