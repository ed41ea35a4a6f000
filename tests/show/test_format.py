"""Numbers, other people's text, lists of runs, plans and sweeps as they are shown."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import MARGIN, compare
from rater.analysis.compare.model import Comparison
from rater.commands.cli import main
from rater.plan.schedule import Order, Window, make_plan
from rater.record.run import MemoryPolicy, Placement, RunStatus
from rater.record.stored import PER_HOUR, RATIO, RunHead
from rater.show.compare.comparison import comparison_parts
from rater.show.documents.plan import ExecutesJson
from rater.show.plans.plan import plan_document, plan_parts
from rater.show.results.listing import ListedRun, RunPage, list_parts
from rater.show.screen.console import Column, Printer, TextScreen, table_lines
from rater.show.screen.document import (
    CHANGE,
    GIGABYTES,
    NUMBER,
    PERCENT,
    TEXT,
    Field,
    MarkdownPrinter,
    Part,
    ViewTable,
    print_parts,
    write_csv,
)
from rater.show.screen.format import (
    align_columns,
    crop,
    crop_apart,
    format_clock,
    format_duration,
    format_gigabytes,
    format_number,
    format_together,
    gigabytes_column,
    needed_decimals,
    place_texts,
    run_title,
    sanitize,
    wrap_text,
)
from rater.store.store import Store
from rater.workflow.results.points import count_interim_looks, load_points
from tests.support.calls import Rater
from tests.support.example_runs import HEAD
from tests.support.made_runs import make
from tests.support.printed import printed_by
from tests.support.small_machines import ONE


def lines_of(columns: Sequence[Column], width: int, *, ascii_only: bool) -> list[str]:
    heading, rows = table_lines(columns, width, ascii_only=ascii_only)
    return [*heading, *(line for row in rows for line in row)]


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([12.5, 12.04], ["12.5", "12.0"]),
        ([3.2e-9], ["3.200e-09"]),
        ([1.8e19, 9e18], ["1.800e+19", "9.000e+18"]),
        ([1e200], ["1.000e+200"]),
        ([0.0001, None], ["0.000100", "-"]),
        ([0.0, 5e-5, -1e-4], ["0", "5.000e-05", "-1.000e-04"]),
        ([999999999.0], ["999999999"]),
        ([1e9, 5e8], ["1.000e+09", "5.000e+08"]),
        ([0.5, 2e6], ["5.000e-01", "2.000e+06"]),
        ([0.0, None], ["0", "-"]),
        ([], []),
    ],
)
def test_numbers_beside_each_other_are_written_alike(
    values: list[float | None], written: list[str]
) -> None:
    assert format_together(values) == written


def test_several_lines_become_one_that_shows_where_they_end() -> None:
    assert sanitize("set-up ended with status 2: make\ncc: no\r\n\nstop\n") == (
        "set-up ended with status 2: make | cc: no | stop"
    )
    assert sanitize("a\tb\x1b[1m\x9b") == "a?b?[1m?"


def test_columns_are_made_of_what_the_rows_are_of() -> None:
    rows = [{"a": 1, "b": 0.25}, {"a": None}, {"a": 20, "of": {"b": 3}}]
    assert Field(heading="a|b", value="a").column(rows).cells == ["1", "-", "20"]
    assert Field(heading="a", value="b", form=TEXT).column(rows).right is False
    assert Field(heading="a", value="b", form=NUMBER).column(rows).cells == ["0.250", "-", "-"]
    assert Field(heading="a", value="b", form=PERCENT).column(rows).cells == ["25.0", "-", "-"]
    assert Field(heading="a", value="b", form=CHANGE).column(rows).cells == ["+25.0", "-", "-"]
    assert Field(heading="a", value="of.b").column(rows).cells == ["-", "-", "3"]
    assert Field(heading="a|b", value="a").column(rows).lines == ("a", "b")
    assert Field(heading=("a|b", "c"), value="a").column(rows).lines == ("a|b", "c")


def test_the_last_column_goes_on_below_itself_and_commands_stay_whole() -> None:
    long = Column(
        heading="", cells=["one two three four five\nsix", "-> seven eight nine ten 11"], wrap=True
    )
    columns = [Column(heading="", cells=["a", "name"], right=False), long]
    assert lines_of(columns, 24, ascii_only=True) == [
        "a     one two three four",
        "      five",
        "      six",
        "name  -> seven eight nine ten 11",
    ]


def test_a_document_is_a_table_on_a_terminal_in_markdown_and_as_csv() -> None:
    rows = [
        {"of": "a", "name": "x|y", "bytes": 1_500_000_000, "unknown": None},
        {"of": "b", "name": "z", "bytes": None, "unknown": None},
    ]
    columns = (
        Field(heading="name", value="name", form=TEXT),
        Field(heading="size|GB", value="bytes", form=GIGABYTES),
        Field(heading="never known", value="unknown"),
    )
    parts: list[Part] = [
        "before",
        ViewTable(title="sizes", rows=rows, fields=columns, group="of"),
        None,
        "after",
    ]
    assert printed_by(partial(print_parts, parts)) == (
        "before\n\nsizes\nname  size\n        GB\n\na\nx|y   1.50\n\nb\nz        -\n\nafter\n"
    )
    out = io.StringIO()
    print_parts(parts, MarkdownPrinter(out))
    assert out.getvalue() == (
        "before\n\n**sizes**\n\n| group | name | size GB |\n| :-- | :-- | --: |\n"
        "| a | x\\|y | 1.50 |\n| b | z | - |\n\nafter\n\n"
    )
    out = io.StringIO()
    write_csv(parts, out)
    assert out.getvalue() == "group,name,size GB\na,x|y,1500000000\nb,z,\n"


def test_columns_without_room_follow_in_a_further_table() -> None:
    columns = [
        Field(heading="name", value="a", form=TEXT),
        *(Field(heading=name * 9, value=name) for name in "bcd"),
    ]
    table = ViewTable(
        title="", rows=[dict(zip("abcd", "nbcd", strict=True))], fields=columns, repeated=1
    )
    assert printed_by(partial(print_parts, [table]), 30) == (
        "name  bbbbbbbbb  ccccccccc\nn             b          c\n\n"
        "name  ddddddddd\nn             d\n"
    )


def test_sizes_and_places_are_as_short_as_they_can_be() -> None:
    assert gigabytes_column([4_000_000_000, None, 250_000_000]) == ["4.00", "-", "0.25"]
    assert (place_texts(3, 1), place_texts(None, 1)) == (["CPU 3", "node 1"], ["node 1"])
    assert place_texts(3, None) == ["CPU 3"]


def test_a_table_cuts_names_before_it_leaves_out_columns() -> None:
    columns = [
        Column(heading="name", cells=["n" * 40], right=False, flexible=True),
        Column(heading="x|s", cells=["1" * 10], optional=1),
        Column(heading="y|s", cells=["2" * 10]),
    ]
    whole = lines_of(columns, 64, ascii_only=True)
    assert whole[2] == f"{'n' * 40}  {'1' * 10}  {'2' * 10}"
    assert lines_of(columns, 40, ascii_only=True)[2] == f"{'n' * 17}~ {'1' * 10} {'2' * 10}"
    assert lines_of(columns, 30, ascii_only=True)[2] == f"{'n' * 18}~ {'2' * 10}"
    assert max(len(line) for line in lines_of(columns, 12, ascii_only=True)) <= 12


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([0.000912, 0.00096], 6),
        ([0.0009, 12.0], 4),
        ([5.0], 2),
        ([0.123, 60.0], 3),
        ([12.0], 1),
        ([55385.0], 0),
        ([0.0001, 99999.0], 1),
        ([], 1),
    ],
)
def test_a_column_has_the_decimals_its_smallest_number_needs(
    values: list[float], places: int
) -> None:
    assert needed_decimals(values) == places


def test_times_and_bytes_read_as_people_say_them() -> None:
    assert [format_clock(s) for s in (7, 725, 3723)] == ["0:07", "12:05", "1:02:03"]
    durations = [format_duration(s) for s in (0.0, 0.0062, 0.44, 42, 725, 11100)]
    assert durations == ["0.0 s", "6.2 ms", "0.4 s", "42 s", "12 min", "3 h 05 min"]
    assert [format_gigabytes(b) for b in (12.34e9, 4e6)] == ["12 GB", "0.0040 GB"]
    assert (format_number(None), format_number(float("nan"))) == ("-", "-")


def test_wide_signs_take_two_cells_of_a_column() -> None:
    wide = "\u6027\u80fd"  # two signs, four cells
    assert align_columns([[wide, "1"], ["abcd", "2"]], [False, True]) == [f"{wide}  1", "abcd  2"]
    cropped = [crop(wide, cells) for cells in (4, 3, 2, 1)]
    assert cropped == [wide, "\u6027\u2026", "\u2026", "\u2026"]
    assert wrap_text(f"{wide} {wide} {wide}", 9) == [f"{wide} {wide}", f"    {wide}"]


def test_sentences_break_between_words_and_keep_their_blanks() -> None:
    assert wrap_text("", 20) == [""]
    assert wrap_text("line 3: 'a  b' is not", 20) == ["line 3: 'a  b' is", "    not"]
    assert wrap_text("/a/very/long/path and more", 10) == [
        "/a/very/long/path",
        "    and",
        "    more",
    ]


def test_what_ran_names_one_benchmark_and_counts_several() -> None:
    assert run_title("mini", ["lu"]) == ("mini/lu", "")
    assert run_title("mini", ["lu", "sort", "rays"]) == ("mini", "3 benchmarks")
    assert run_title("mini, mini, other", ["lu", "x"]) == ("mini, other", "2 benchmarks")
    assert run_title(None, ["gups"]) == ("gups", "")


TAGGED = replace(HEAD, tags=(("smt", "off"),), elapsed_s=61.2)
OTHER = replace(
    HEAD,
    run=113,
    hostname="n2",
    suite="/home/me/a-suite-of-mine.toml",
    status=RunStatus.RUNNING,
    started_at=None,
    elapsed_s=None,
    copies=1024,
    mode="staggered",
)


def listed(
    *heads: RunHead, width: int = 80, count: int | None = None, narrowed: bool = False
) -> list[str]:
    stream = io.StringIO()
    runs = tuple(ListedRun(head, 15.7, RATIO, 2) for head in heads)
    page = RunPage(runs, len(runs) if count is None else count, narrowed=narrowed)
    print_parts(list_parts(page), Printer(TextScreen(stream, width=width)))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_list_has_a_line_per_run_with_score_host_and_tags_at_any_width(width: int) -> None:
    lines = listed(TAGGED, OTHER, width=width)
    assert len(lines) == 3
    assert max(len(line) for line in lines) <= width
    for word in ("15.7", "smt=off", "complete", "h "):
        assert word in lines[1], word
    assert "running" in lines[2] and "n2" in lines[2]
    assert ("1:01" in lines[1]) == (width >= 120)
    assert ("rater run" in lines[1]) == (width >= 120)


def test_one_host_is_named_once() -> None:
    lines = listed(TAGGED, replace(OTHER, hostname="h"))
    assert "host" not in lines[0]
    assert lines[-1] == "2 runs, all on h"


def test_what_is_left_out_is_said() -> None:
    assert listed(TAGGED, count=12)[-1] == (
        "the latest 1 of 12 runs stored, all on h (--limit N: more, --limit 0: all)"
    )
    assert listed(TAGGED, OTHER, count=12, narrowed=True)[-1] == (
        "the latest 2 of 12 runs that match (--limit N: more, --limit 0: all)"
    )
    assert listed() == ["no runs yet: `rater run` makes one"]
    assert listed(narrowed=True) == ["no run matches: `rater list` shows all"]


def test_a_rate_is_told_from_a_ratio() -> None:
    stream = io.StringIO()
    runs = (ListedRun(HEAD, 1234.5, PER_HOUR, None), ListedRun(OTHER, 0.176, RATIO, 0))
    print_parts(list_parts(RunPage(runs, 2)), Printer(TextScreen(stream, width=120)))
    heading, first, second = stream.getvalue().splitlines()[:3]
    rate, ratio = (heading.index(word) + len(word) for word in ("copies/h", "ratio"))
    assert first[:rate].split()[-1] in ("1234", "1235") and first[:ratio].endswith(" -")
    assert second[:rate].endswith(" -") and second[:ratio].endswith("0.176")


def test_a_run_of_some_benchmarks_of_a_suite_is_told_from_the_whole() -> None:
    assert "3 of mini (test, base)" in listed(replace(HEAD, benchmarks=("lu", "sort", "rays")))[1]


@pytest.mark.parametrize(
    ("names", "cut"),
    [
        (["sparse-solver-a", "dense-solver-b"], ["sparse-s…", "dense-so…"]),
        (["sparse-solver-a", "sparse-solver-b"], ["spar…er-a", "spar…er-b"]),
        (["solver-1-of-many-large", "solver-2-of-many-large"], ["solver-1…", "solver-2…"]),
        (["a-long-prefix-1-xyzzyz", "a-long-prefix-2-xyzzyz"], ["…1-xyzzyz", "…2-xyzzyz"]),
        (["short", "short"], ["short", "short"]),
    ],
)
def test_names_that_differ_anywhere_still_differ_when_they_are_cut(
    names: list[str], cut: list[str]
) -> None:
    assert crop_apart(names, 9) == cut


def test_what_long_names_have_in_common_goes_where_they_differ_in_several_places() -> None:
    names = [
        f"suite/kind={kind}/n={number}/on={on}"
        for kind in "ab"
        for number in (15, 40)
        for on in "xy"
    ]
    cut = crop_apart([*names, "suite (8)"], 9)
    assert cut[:2] == ["…a…15…x", "…a…15…y"]
    assert len(set(cut)) == 9
    assert cut[-1] == "suite (8)"
    # In two places, of other numbers of words: the second one takes the place of the end.
    names = [
        f"perf/{a}/queue/{b}/threads=16"
        for a in ("lockfree_bounded_ring", "lockfree_unbounded_list")
        for b in ("spsc_single_producer", "mpmc_multi_producer", "mpsc")
    ]
    assert len(set(crop_apart(names, 13))) == 6
    # Of other numbers of words what all begin and end with goes.
    assert crop_apart(["many-words-1-at-end", "many-words-2-3-at-end"], 8) == ["…1…", "…2-3…"]


def test_wide_signs_are_cut_by_the_cells_they_take() -> None:
    names = ["性能性能性能一", "性能性能性能二"]
    assert crop_apart(names, 7) == ["性…一", "性…二"]
    assert crop_apart(names, 1) == ["…", "…"]


S = 1_000_000_000


def document(copies: int = 2, **options: Any) -> Any:
    executes: ExecutesJson = {
        "directory": "/",
        "setups": [],
        "commands": {"lu": "lu", "gups": "gups"},
        "wrap": None,
        "prepare": None,
        "conclude": None,
        "directories": None,
        "environment": {},
        "settings": {},
        "tuned": False,
        "pages": [],
    }
    facts = {
        "suite": "mini",
        "size": "test",
        "tune": "base",
        "layout": "balanced",
        "threads": dict(options.pop("threads", ())),
        "cooldown_s": options.pop("cooldown_s", 0.0),
        "until_idle_s": options.pop("until_idle_s", None),
        "reserved_cpus": [],
        "counters": [],
        "expected_s": 140.0,
        "warnings": [],
        "refused": [],
        "dry_run": True,
        "memory_bytes": 10**9,
        "memory_benchmark": "lu",
        "memory_available_bytes": 8 * 10**9,
        "disk_bytes": 0,
        "disk_available_bytes": 10**10,
        "executes": executes,
    }
    plan = make_plan(["lu", "gups"], copies, **options)
    placements = [
        Placement(
            copy=copy,
            cpus=(copy,),
            cpu=copy,
            core=copy,
            llc=0,
            node=0,
            package=0,
            memory_policy=MemoryPolicy.LOCAL,
            memory_nodes=(),
        )
        for copy in range(copies)
    ]
    document: Any = plan_document(plan, ONE, placements, (), facts)
    return document


def shown(document: Any, width: int = 80) -> str:
    return printed_by(partial(print_parts, plan_parts(document)), width)


WINDOW = Window(6 * S, 60 * S)


def test_windows_are_told_with_their_warm_up() -> None:
    text = shown(document(mode="steady", window=WINDOW))
    assert (
        "window  2 windows of 60 s, each after 6.0 s of warm-up; copies repeat until\n"
        "        every run that began before its end has ended\n"
    ) in text
    assert "how     steady, 2 copies, 1 iteration\n" in text
    assert "time    about 2 min, the windows and the runs that cross their ends\n" in text


def test_a_steady_mix_is_one_window_an_iteration_in_rotated_order() -> None:
    text = shown(document(mode="steady", order=Order.ROTATED, window=WINDOW, iterations=3))
    assert "how     steady in rotated order, 2 copies, 3 iterations" in text
    assert "3 windows of 60 s" in text
    assert "order   copies with the same queue, one round" in text


@pytest.mark.parametrize(
    ("threads", "line"),
    [
        ((("lu", 4), ("gups", 4)), "threads  4 CPUs for each copy\n"),
        ((("lu", 4), ("gups", 1)), "threads  CPUs that a copy uses: lu 4, gups 1\n"),
        ((("lu", 1), ("gups", 1)), ""),
        ((), ""),
    ],
)
def test_threads_are_told_where_there_are_several(
    threads: tuple[tuple[str, int], ...], line: str
) -> None:
    text = shown(document(threads=threads))
    assert line in text
    assert ("threads" in text) is bool(line)


def test_rests_are_told_where_there_is_something_to_rest_between() -> None:
    text = " ".join(shown(document(cooldown_s=5.0, until_idle_s=300.0)).split())
    assert (
        "between phases: 5.0 s of rest, then at most 5 min until the machine is idle again" in text
    )
    assert "between" not in shown(document())
    one = document(mode="rotated", order=Order.ROTATED, cooldown_s=5.0)
    assert "between" not in shown(one)


def test_the_document_of_a_plan_has_them_too() -> None:
    it = document(mode="steady", window=WINDOW, threads=(("lu", 4),), cooldown_s=5.0)
    assert (it["warmup_s"], it["window_s"], it["phases"]) == (6.0, 60.0, 2)
    assert (it["threads"], it["cooldown_s"]) == ({"lu": 4}, 5.0)
    assert (it["order"], it["until_idle_s"]) == ("homogeneous", None)
    plain = document()
    assert (plain["warmup_s"], plain["window_s"]) == (None, None)


NAMES = [f"kernel{number}" for number in range(14)]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def compared(store: Store, *words: str) -> Comparison:
    points = load_points(store, list(words))
    return compare(points, margin=MARGIN, looks=count_interim_looks(store, points))


def test_of_fourteen_benchmarks_those_that_changed_stand_in_the_table(
    database: Path, store: Store
) -> None:
    make(database, [(9.99, 10.0)] * 6, names=NAMES)
    for name, time_s in (("kernel3", 8.0), ("kernel9", 12.0)):
        assert name in NAMES
        make(database, [(time_s - 0.01, time_s)] * 6, names=[name])
    same = [name for name in NAMES if name not in ("kernel3", "kernel9")]
    make(database, [(9.99, 10.0)] * 6, names=same)
    words = ("1,2,3,4,5,6", ",".join(str(run) for run in range(7, 25)))
    parts = comparison_parts(compared(store, *words), detailed=False)
    text = printed_by(partial(print_parts, parts), 80)
    lines = text.splitlines()
    table = [line.split()[0] for line in lines if line.startswith("kernel")]
    assert {"kernel3", "kernel9"} < set(table)
    assert len(table) < 8
    assert f"and {len(NAMES) - len(table)} benchmarks that changed less" in lines
    assert "Compared:" not in lines
    assert len(lines) <= 20


def test_a_sweep_of_two_points_ends_within_a_screen_and_v_says_the_rest(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("sweep", "--axis", "env:X=0,1", "--rounds", "2", "--copies", "1", "--share")
    shown = []
    for more in ((), ("-v",)):
        out = _Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        assert main([*words, *more, "--", "true"]) == 0
        shown.append(out.getvalue())
    brief, whole = shown
    assert len(brief.splitlines()) <= 17  # the rest of 24 is of progress
    assert "speed-" in brief
    assert brief.rstrip().endswith("`rater sweep --show 1`")
    assert "Compared:" not in brief
    assert "Compared:" in whole
    assert "paired within 2 blocks" in whole
