import fcntl
import io
import os
import pty
import re
import statistics
import struct
import termios
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from rater.record.events import Event, Noted, OutputChecked, Resting, RunEnded
from rater.record.run import CopyStatus, RunStatus, Validity
from rater.record.stored import StoredRun
from rater.show.live.lines import LineView, View, title
from rater.show.live.live import LiveView, StateTable
from rater.show.live.progress import (
    DONE,
    FAILED,
    RUNNING,
    WAITING,
    PhaseAhead,
    PhaseResult,
    Progress,
)
from rater.show.live.view import make_view
from rater.show.screen.console import TextScreen
from rater.show.screen.format import place_texts
from tests.support.example_events import S, ended, over, phase, run_of, started

T0 = 1_000 * S  # of the test's clock when the view is made and the first copy is released
WINDOW = (10.0, 70.0)  # seconds after a phase's first release
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def progress_of(copies: int = 4, **options: Any) -> Progress:
    return Progress(run_of(copies, **options), (), clock=lambda: T0)


def window_text(progress: Progress, seconds: float) -> str | None:
    return progress.window_text(T0 + round(seconds * S))


def finished(progress: Progress, finish_s: float) -> PhaseResult:
    """The result of the phase after its window."""
    progress.event(over(0.0, finish_s, window_s=WINDOW))
    assert progress.last_phase is not None
    return progress.last_phase


def view_on(
    width: int = 80, height: int = 24, copies: int = 4, lgroups: int = 1, encoding: str = "utf-8"
) -> tuple[LiveView, io.TextIOWrapper]:
    """A view on a terminal that is a buffer, and that buffer."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(
        file=stream, force_terminal=True, width=width, height=height, color_system="standard"
    )
    return LiveView(console, run_of(copies, lgroups), clock_ns=lambda: T0), stream


def written(stream: io.TextIOWrapper) -> str:
    """What was written since the last call."""
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    text = buffer.getvalue().decode(stream.encoding)
    buffer.seek(0)
    buffer.truncate()
    return text


def seen(text: str) -> list[str]:
    """The lines of a frame without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text).split("\n")


def begin(sink: Progress | View, copies: int, number: int = 0, **options: Any) -> None:
    """A phase begins, and so many copies."""
    sink.event(phase(number, **options))
    for copy in range(copies):
        sink.event(started(copy))


def lines_of(run: StoredRun, *events: Event) -> list[str]:
    """What is written on a stream that is no terminal."""
    stream = io.StringIO()
    view = LineView(stream, run)
    for event in events:
        view.event(event)
    return stream.getvalue().splitlines()


def lasting(finish_s: float, *copies: int, **options: Any) -> list[Event]:
    """Copies that start with their phase and end."""
    name = options.get("name", "gups")
    begun = [started(copy, name=name) for copy in copies]
    return [*begun, *(ended(copy, finish_s, **options) for copy in copies)]


class Terminal:
    """A real pseudo-terminal whose other end is read by a thread."""

    def __init__(self, width: int, height: int) -> None:
        self._master, slave = pty.openpty()
        self.resize(width, height)
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.received = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 65536):
                self.received += data
        except OSError:
            pass  # the other end is closed: all is read

    def close(self) -> str:
        """Hang up and return everything that was drawn."""
        self.stream.close()
        self._reader.join()
        os.close(self._master)
        return self.received.decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal(80, 24)
    yield made
    if not made.stream.closed:
        made.close()


# -- what the events say ----------------------------------------------------------------------


def test_a_title_counts_the_benchmarks_of_a_suite() -> None:
    suite = run_of(2, names=("gups", "lu"))
    assert title(suite, False) == "mini (test, base), 2 benchmarks   homogeneous, 2 copies"


def test_copies_are_counted_by_what_they_do() -> None:
    progress = progress_of()
    progress.event(phase())
    assert progress.counts == [4, 0, 0, 0, 0]
    for copy in range(3):
        progress.event(started(copy))
    progress.event(ended(0, 1.0))
    progress.event(ended(1, 1.0, status=CopyStatus.FAILED, signal=11))
    progress.event(ended(2, 1.0, status=CopyStatus.INTERRUPTED, signal=15))
    assert progress.counts == [1, 0, 1, 1, 1]
    assert progress.last_failure == "copy 1 of gups: killed by SIGSEGV"


def test_a_wrong_answer_found_after_the_phase_is_a_failed_copy() -> None:
    progress = progress_of(copies=1)
    begin(progress, 1)
    progress.event(ended(0, 1.0))
    progress.event(over(0.0, 1.0))
    assert progress.counts[DONE] == 1
    progress.event(
        OutputChecked(
            phase=0,
            benchmark="gups",
            iteration=1,
            copy=0,
            step=0,
            validity=Validity.INVALID,
            detail="line 1",
        )
    )
    assert progress.counts[FAILED] == 1
    assert progress.last_failure == "copy 0 of gups: wrong output: line 1"


def test_a_rotated_copy_is_done_after_its_last_step() -> None:
    progress = progress_of(copies=1, names=("gups", "lu"), order="rotated")
    begin(progress, 1, name=None, iteration=None)
    progress.event(ended(0, 1.0))
    assert progress.counts[RUNNING] == 1
    progress.event(started(0, 1.0, name="lu", step=1))
    progress.event(ended(0, 2.0, start_s=1.0, name="lu", step=1))
    assert progress.counts[DONE] == 1
    assert progress.steps_done == progress.steps_per_copy == 2
    assert progress.done_of == {"gups": 1, "lu": 1}


def test_the_copy_that_runs_on_stands_out_with_its_distance_from_the_median() -> None:
    progress = progress_of()
    begin(progress, 4)
    progress.event(ended(0, 10.0))
    assert progress.standouts(T0 + 100 * S) == []  # before half of the copies have finished
    for copy in (1, 2):
        progress.event(ended(copy, 10.0))
    assert progress.standouts(T0 + 11 * S) == []
    (one,) = progress.standouts(T0 + 15 * S)
    assert (one.copy, one.running, one.elapsed_s) == (3, True, 15.0)
    assert one.over == pytest.approx(0.5)


def test_the_slowest_finished_copy_stands_out_against_its_own_benchmark() -> None:
    progress = progress_of(copies=4, names=("gups", "lu"), order="rotated")
    progress.event(phase(name=None, iteration=None))
    for copy, name, seconds in [(0, "gups", 1.0), (1, "gups", 1.3), (2, "lu", 9.0), (3, "lu", 9.0)]:
        progress.event(started(copy, name=name))
        progress.event(ended(copy, seconds, name=name))
    (one,) = progress.standouts(T0)
    assert (one.copy, one.benchmark, one.running) == (1, "gups", False)
    assert one.over == pytest.approx(1.3 / 1.15 - 1)


def test_the_time_left_is_the_plans_and_then_what_was_measured() -> None:
    ahead = [PhaseAhead("gups", 10.0), PhaseAhead("lu", 20.0), PhaseAhead("gups", 10.0)]
    progress = Progress(run_of(1, names=("gups", "lu"), iterations=2), ahead, clock=lambda: T0)
    begin(progress, 1, total=3, expected_s=10.0)
    assert progress.next_benchmark == "lu"
    assert progress.time_left_s(T0 + 4 * S) == (36.0, False)
    progress.event(ended(0, 5.0))
    progress.event(over(0.0, 5.0))
    # gups took half of what was expected: so will lu; gups itself takes what it took.
    assert progress.time_left_s(T0 + 5 * S) == (15.0, False)
    # A phase that is late gives a lower bound.
    late = Progress(run_of(1, names=("gups", "lu")), ahead[:2], clock=lambda: T0)
    begin(late, 1, total=2, expected_s=10.0)
    assert late.time_left_s(T0 + 30 * S) == (20.0, True)


def test_a_second_iteration_of_a_plain_command_is_expected_to_take_what_the_first_took() -> None:
    progress = progress_of(copies=1, iterations=2)
    assert progress.time_left_s(T0) is None
    begin(progress, 1, total=2)
    assert progress.time_left_s(T0 + S) is None
    progress.event(ended(0, 5.0))
    progress.event(over(0.0, 5.0))
    assert progress.time_left_s(T0 + 5 * S) == (5.0, False)


def in_window(copies: int = 2, total: int = 2) -> Progress:
    """A phase of steady mode whose copies have just been released."""
    progress = Progress(run_of(copies, window_s=WINDOW), (), clock=lambda: T0)
    begin(progress, copies, total=total, window_s=WINDOW)
    return progress


def test_a_phase_of_steady_mode_is_in_its_warm_up_its_window_or_closing() -> None:
    progress = in_window()
    assert window_text(progress, 3.9) == "warm-up 3 of 10 s"
    for step in range(4):  # copy 0 ends at 20, 40, 60, 80
        progress.event(ended(0, 20.0 * step + 20, start_s=20.0 * step, step=step))
        progress.event(started(0, 20.0 * step + 20, step=step + 1))
    assert window_text(progress, 12) == "window 2 of 60 s, 3 runs"  # too early for a rate
    assert window_text(progress, 40) == "window 30 of 60 s, 3 runs, 0.100/s"
    # Copy 1 runs since before the window closed; what copy 0 began after it only keeps up the load.
    assert window_text(progress, 85) == "closing: waiting for 1 run"


def test_a_copy_runs_all_the_time_and_is_done_when_its_last_run_of_the_window_is() -> None:
    progress = in_window()
    progress.event(ended(0, 69.0))
    progress.event(started(0, 69.0, step=1))
    assert progress.counts[RUNNING] == 2
    progress.event(ended(0, 71.0, start_s=69.0, step=1))
    progress.event(started(0, 71.0, step=2))
    assert (progress.counts[RUNNING], progress.counts[DONE]) == (1, 1)


def test_completions_count_runs_across_an_edge_by_their_share_inside() -> None:
    progress = in_window(copies=1)
    for step, (start_s, finish_s) in enumerate([(0.0, 20.0), (20.0, 60.0), (60.0, 100.0)]):
        progress.event(started(0, start_s, step=step))
        progress.event(ended(0, finish_s, start_s=start_s, step=step))
    done = finished(progress, 100.0)
    assert (done.window_s, done.completions) == (60.0, 0.5 + 1 + 0.25)


def test_the_time_left_of_steady_mode_is_that_of_its_windows_and_a_run() -> None:
    progress = in_window(copies=1)
    assert progress.time_left_s(T0 + 30 * S) == (40.0 + 70.0, False)
    progress.event(ended(0, 30.0))
    assert progress.time_left_s(T0 + 30 * S) == (40.0 + 30 + 70 + 30, False)


def test_the_median_of_endless_runs_is_that_of_the_latest() -> None:
    progress = in_window(copies=1)
    for step in range(9000):
        seconds = 0.002 if step < 4000 else 0.001
        progress.event(ended(0, 12.0 + seconds, start_s=12.0, step=step))
    assert finished(progress, 70.0).median_s == pytest.approx(0.001)


def test_the_median_of_a_window_is_not_that_of_its_warm_up() -> None:
    progress = in_window(copies=1)
    for step, (start_s, finish_s) in enumerate([(0.0, 4.0), (4.0, 8.0), (8.0, 11.0), (11.0, 13.0)]):
        progress.event(ended(0, finish_s, start_s=start_s, step=step))
    assert finished(progress, 70.0).median_s == 2.5


def test_phases_count_as_they_come_whatever_their_numbers() -> None:
    ahead = [PhaseAhead("lu", 10.0), PhaseAhead("gups", 20.0)]
    progress = Progress(run_of(1, names=("gups", "lu")), ahead, clock=lambda: T0)
    progress.event(phase(7, name="lu", total=2, expected_s=10.0))
    progress.event(started(0, name="lu"))
    assert progress.phase_number == 1
    assert progress.time_left_s(T0 + 4 * S) == (26.0, False)
    progress.event(over(0.0, 10.0, number=7, name="lu"))
    progress.event(phase(8, total=2, expected_s=20.0))
    assert progress.phase_number == 2
    assert progress.time_left_s(T0 + 10 * S) == (20.0, False)


# -- the table --------------------------------------------------------------------------------


def table_of(run: StoredRun, states: bytearray, width: int = 79, height: int = 16) -> list[str]:
    """The table as plain text in ASCII."""
    lines = StateTable(run, ascii_only=True).lines(states, set(), width, height)
    return ["".join(part.text for part in line).rstrip() for line in lines]


def test_a_row_is_a_numa_node_and_a_sign_one_copy_where_there_is_room() -> None:
    states = bytearray([WAITING, RUNNING, DONE, DONE])
    assert table_of(run_of(4, 2), states) == [
        "NUMA node  . waiting  > running  + done  x failed",
        "0                  1          1       0         0  .>",
        "1                  0          0       2         0  ++",
        "all 4              1          1       2         0",
    ]
    unbound = table_of(run_of(3, bound=False), bytearray(3))
    assert unbound[1:] == ["not bound          3          0       0         0  ..."]


def test_a_bar_stands_for_many_copies_and_a_failed_one_does_not_vanish_in_it() -> None:
    states = bytearray([DONE]) * 1024
    states[3] = FAILED
    first = table_of(run_of(1024, 8), states)[1]
    assert first.split() == ["0", "0", "0", "127", "1", "+" * 27 + "x"]


def test_of_more_numa_nodes_than_lines_those_with_failed_copies_show() -> None:
    states = bytearray([DONE]) * 64
    states[63] = FAILED
    lines = table_of(run_of(64, 64), states, height=6)
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "63"]
    assert lines[4] == "and 61 more NUMA nodes"
    assert lines[5].split() == ["all", "64", "0", "0", "63", "1"]


def test_a_narrow_terminal_has_signs_for_headings() -> None:
    lines = table_of(run_of(4, 2), bytearray(4), width=39)
    assert lines[0].split() == ["NUMA", "node", ".", ">", "+", "x"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 20), (200, 60), (40, 10), (20, 3)])
@pytest.mark.parametrize(("copies", "lgroups"), [(1, 1), (128, 4), (1024, 8), (1024, 128)])
def test_no_line_is_wider_than_the_terminal(
    width: int, height: int, copies: int, lgroups: int
) -> None:
    view, stream = view_on(width, height, copies, lgroups)
    begin(view, copies)
    view.tick(T0)
    lines = seen(written(stream))
    assert max(len(line) for line in lines) <= width
    assert len(lines) < height


# -- the view ---------------------------------------------------------------------------------


def test_a_frame_shows_phase_counts_grid_and_the_slow_copy() -> None:
    view, stream = view_on(copies=8, lgroups=2)
    begin(view, 8, total=3)
    for copy in range(6):
        view.event(ended(copy, 10.0))
    view.event(ended(6, 10.0, status=CopyStatus.FAILED, signal=11))
    view.tick(T0 + 15 * S)
    assert seen(written(stream)) == [
        "mini/gups (test, base)   homogeneous, 8 copies",
        "phase 1 of 3: gups, iteration 1",
        "elapsed 0:15   this phase 0:15",
        "",
        "NUMA node  · waiting  ► running  ! slow  ✓ done  ✗ failed",
        "0                  0          0       0       4         0  ✓✓✓✓",
        "1                  0          0       1       2         1  ✓✓✗!",
        "all 8              0          0       1       6         1",
        "",
        "copy 6 of gups: killed by SIGSEGV",
        f"slow: copy 7  {', '.join(place_texts(7, 1))}  15.0 s  50 % over the median so far",
    ]


def frame_at(view: LiveView, stream: io.TextIOWrapper, seconds: float) -> list[str]:
    written(stream)
    view.tick(T0 + round(seconds * S))
    return seen(written(stream))


def test_a_frame_of_steady_mode_says_where_the_window_is() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(file=stream, force_terminal=True, width=80, height=24)
    view = LiveView(console, run_of(2, window_s=WINDOW), clock_ns=lambda: T0)
    begin(view, 2, 5, total=3, window_s=WINDOW)
    warming = frame_at(view, stream, 3.5)
    assert warming[0] == "mini/gups (test, base)   steady, 2 copies"
    assert warming[1] == "phase 1 of 3: gups, iteration 1"
    assert warming[2] == "elapsed 0:03   warm-up 3 of 10 s   about 3:27 left"
    for step in range(12):
        view.event(ended(0, 5.0 * step + 5, start_s=5.0 * step, step=step))
        view.event(started(0, 5.0 * step + 5, step=step + 1))
    within = frame_at(view, stream, 60.0)
    assert within[2] == "elapsed 1:00   window 50 of 60 s, 10 runs, 0.200/s   about 2:45 left"
    assert within[5].split() == ["0", "0", "1", "1", "0", "0", "►!"]
    closing = frame_at(view, stream, 71.0)
    assert closing[2] == "elapsed 1:11   closing: waiting for 2 runs   about 2:34 left"


def test_what_is_waited_for_between_phases_stands_where_the_phase_does() -> None:
    view, stream = view_on()
    begin(view, 1, total=2)
    view.event(ended(0, 1.0))
    view.event(over(0.0, 1.0))
    view.event(Resting("cooling down for 5 s"))
    assert frame_at(view, stream, 2.0)[1] == "cooling down for 5 s, then phase 2 of 2"
    view.event(phase(1, total=2))
    assert frame_at(view, stream, 4.0)[1].startswith("phase 2 of 2: gups")


def test_a_terminal_without_utf_8_gets_plain_ascii() -> None:
    view, stream = view_on(encoding="latin-1")
    begin(view, 1, name="caf\u00e9")
    view.event(Noted("na\u00efve"))
    view.tick(T0)
    assert written(stream).isascii()


def test_names_are_never_read_as_markup_or_as_control_codes() -> None:
    view, stream = view_on()
    view.event(phase(name="[bold]x\x1b[2J"))
    view.tick(T0)
    text = written(stream)
    assert "phase 1 of 1: [bold]x?[2J" in text
    assert "\x1b[2J" not in text


def test_it_draws_four_times_a_second_when_something_changed_and_else_once() -> None:
    view, stream = view_on()
    view.event(phase())
    assert view.tick(T0) == 1.0
    assert view.tick(T0 + S // 2) == 0.5
    height = len(seen(written(stream)))
    view.event(started(0))
    assert view.tick(T0 + S // 10) == pytest.approx(0.15)
    assert written(stream) == ""
    assert view.tick(T0 + S // 4) == 1.0
    frame = written(stream)
    assert "►" in frame.split("done")[1]
    assert frame.count("\x1b[1A") == height - 1  # exactly the frame before is erased
    view.tick(T0 + S)
    assert written(stream) == ""
    view.tick(T0 + 2 * S)
    assert "elapsed 0:02" in written(stream)


def test_a_narrower_terminal_has_the_wrapped_rows_erased_too(terminal: Terminal) -> None:
    console = Console(file=terminal.stream, force_terminal=True)
    console.size = (80, 24)
    view = LiveView(console, run_of(64), clock_ns=lambda: T0)
    view.event(phase())
    view.tick(T0)
    console.size = (40, 24)
    view.tick(T0 + 2 * S)
    view.stop()
    drawn = terminal.close().split("\x1b[?25l")[1]
    second = drawn.split("phase 1 of 1")[1]
    # Six lines; the title (47 characters), phase (60), heading (49) and row (77) take two rows.
    assert second.count("\x1b[1A") == 5 + 4


def test_the_frame_follows_the_size_of_a_real_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("LINES", "12")
    view = make_view(TextScreen(terminal.stream), run_of(64))
    assert isinstance(view, LiveView)
    view.event(phase())
    view.tick(T0)
    view.stop()
    frames = terminal.close().split("\r\x1b[2K")  # each begins by erasing the one before
    assert max(len(line) for frame in frames for line in seen(frame)) == 30


def test_the_cursor_is_back_after_an_exception(terminal: Terminal) -> None:
    view = LiveView(Console(file=terminal.stream, force_terminal=True), run_of(2))
    with pytest.raises(ZeroDivisionError):
        try:
            view.event(phase())
            view.tick(time.monotonic_ns())
            raise ZeroDivisionError
        finally:
            view.stop()
            view.stop()
    drawn = terminal.close()
    assert drawn.count(HIDE) == drawn.count(SHOW) == 1
    assert drawn.index(HIDE) < drawn.index(SHOW)


def test_ctrl_z_gives_the_terminal_back_and_the_view_comes_again() -> None:
    view, stream = view_on()
    view.event(phase())
    view.tick(T0)
    written(stream)
    view.pause()
    assert SHOW in written(stream)
    view.tick(T0 + 5 * S)
    assert written(stream) == ""
    view.resume()
    view.tick(T0 + 5 * S)
    again = written(stream)
    assert HIDE in again and "\x1b[1A" not in again
    view.stop()
    assert SHOW in written(stream)
    view.tick(T0 + 9 * S)
    assert written(stream) == ""


def test_a_terminal_that_goes_away_does_not_end_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    console = Console(file=Gone(), force_terminal=True, width=80, height=24)
    view = LiveView(console, run_of(2), clock_ns=lambda: T0)
    view.event(phase())
    view.tick(T0)
    view.event(started(0))
    view.tick(T0 + 2 * S)
    view.stop()


def test_no_color_leaves_the_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    view, stream = view_on()
    begin(view, 4)
    view.tick(T0)
    text = written(stream)
    assert "►►►►" in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)


@pytest.mark.parametrize(("copies", "limit_s"), [(128, 0.03), (1024, 0.12)])
def test_a_redraw_on_a_real_terminal_costs_little(
    terminal: Terminal, copies: int, limit_s: float
) -> None:
    console = Console(file=terminal.stream, force_terminal=True, color_system="standard")
    view = LiveView(console, run_of(copies, 8), clock_ns=lambda: T0)
    begin(view, copies)
    view.tick(T0)
    costs_s = []
    for second in range(2, 32, 2):
        for copy in range(second % 3, copies, 3):
            view.event(ended(copy, float(second)))
        begin_s = time.thread_time()
        view.tick(T0 + second * S)
        costs_s.append(time.thread_time() - begin_s)
    view.stop()
    assert statistics.median(costs_s) < limit_s


# -- lines ------------------------------------------------------------------------------------


def test_a_pipe_gets_one_line_per_finished_phase() -> None:
    stream = io.StringIO()
    view = make_view(TextScreen(stream), run_of(3, 3, iterations=2))
    assert isinstance(view, LineView)
    begin(view, 3, total=2)
    for copy in range(3):
        view.event(ended(copy, 1.0 + copy))
    assert view.tick(T0) > 60
    view.event(over(0.0, 3.0))
    assert stream.getvalue() == (
        "phase 1 of 2: gups, iteration 1: bracket 3.00 s, median 2.00 s, slowest 3.00 s "
        f"(copy 2, {', '.join(place_texts(2, 2))})\n"
    )


def test_a_line_of_steady_mode_has_the_runs_of_the_window() -> None:
    runs = [
        event
        for copy in range(2)
        for step in range(8)
        for event in (
            started(copy, 10.0 * step, step=step),
            ended(copy, 10.0 * step + 10, start_s=10.0 * step, step=step),
        )
    ]
    first, second = lines_of(
        run_of(2, window_s=WINDOW),
        *(phase(5, total=2, window_s=WINDOW), *runs, over(0.0, 80.0, number=5, window_s=WINDOW)),
        *(phase(6, total=2, window_s=WINDOW), started(0, 90.0)),
        ended(0, 95.0, start_s=90.0, status=CopyStatus.TIMEOUT, signal=15),
        over(90.0, 95.0, number=6, complete=False),
    )
    assert first == ("phase 1 of 2: gups, iteration 1: 12.0 runs in 60 s, 0.200/s, median 10.0 s")
    assert second.startswith("phase 2 of 2: gups, iteration 1: 5.0 s; 1 copy run failed")
    assert second.endswith(
        "stopped at its time limit; no complete window: stopped or suspended before all runs in "
        "it had ended"
    )


def test_a_line_says_that_all_copies_failed_before_the_window_closed() -> None:
    failed = [ended(copy, 5.0, start_s=2.0, step=1, status=CopyStatus.FAILED) for copy in (0, 1)]
    run, begun = run_of(2, window_s=WINDOW), phase(window_s=WINDOW)
    (line,) = lines_of(run, begun, *lasting(2.0, 0, 1), *failed, over(0.0, 5.0, complete=False))
    assert line.endswith("; all copies failed before the window closed")
    assert "CPU" not in line  # which copy was the slowest says nothing without a bracket


def test_wrong_outputs_get_a_line_of_their_own_because_they_are_found_later() -> None:
    wrong = [
        OutputChecked(
            phase=0,
            benchmark="gups",
            iteration=1,
            copy=copy,
            step=0,
            validity=Validity.INVALID,
            detail="line 1",
        )
        for copy in (0, 1)
    ]
    end = RunEnded(RunStatus.FAILED, None)
    _, line = lines_of(run_of(2), phase(), *lasting(1.0, 0, 1), over(0.0, 1.0), *wrong, end)
    assert line == "2 wrong outputs; the last: copy 1 of gups: wrong output: line 1"


def test_a_stopped_phase_and_its_failures_are_told() -> None:
    late = lasting(1.0, 1, status=CopyStatus.TIMEOUT, signal=15)
    stopped = lasting(2.0, 2, status=CopyStatus.INTERRUPTED, signal=15)
    end = over(0.0, 2.0, complete=False)
    (line,) = lines_of(run_of(3), phase(), *lasting(1.0, 0), *late, *stopped, end)
    assert "; 1 copy failed, the last: copy 1 of gups: stopped at its time limit" in line
    assert line.endswith("; stopped: 1 of 3 copies done")


def test_two_failed_runs_of_one_rotated_copy_are_two() -> None:
    run = run_of(2, names=("gups", "lu"), order="rotated")
    crashed: dict[str, Any] = {"status": CopyStatus.FAILED, "signal": 11}
    one = lasting(1.0, 0, name="gups", **crashed)
    other = lasting(2.0, 0, name="lu", step=1, **crashed)
    end = over(0.0, 2.0, name=None, iteration=None)
    (line,) = lines_of(run, phase(name=None, iteration=None), *one, *other, end)
    assert line.endswith("; 2 copy runs failed, the last: copy 0 of lu: killed by SIGSEGV")


def test_failures_of_an_earlier_phase_are_not_told_again() -> None:
    late = lasting(1.0, 0, status=CopyStatus.TIMEOUT, signal=15)
    first, second = lines_of(
        run_of(1, iterations=2),
        *(phase(0, total=2), *late, over(0.0, 1.0, number=0)),
        *(phase(1, total=2), *lasting(1.0, 0), over(0.0, 1.0, number=1)),
    )
    assert "; 1 copy failed" in first and "failed" not in second


def test_lines_that_nobody_reads_do_not_end_the_run() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    view = LineView(Closed(), run_of(1))
    for event in (phase(), started(0), ended(0, 1.0), over(0.0, 1.0), over(0.0, 1.0)):
        view.event(event)
    view.stop()
