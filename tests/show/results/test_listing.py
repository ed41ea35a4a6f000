"""The list of runs: what gives way in a narrow terminal, and what never does."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rater.record.run import RunStatus
from rater.record.stored import PER_HOUR, RATIO, RunHead
from rater.show.console import Printer
from rater.show.format import crop_apart
from rater.show.results.listing import ListedRun, RunPage, print_list
from tests.support.example_runs import HEAD

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
    print_list(page, Printer(Console(file=stream, width=width)))
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
    assert listed() == ["no runs yet: rater run makes one"]
    assert listed(narrowed=True) == ["no run matches: rater list shows all"]


def test_a_rate_is_told_from_a_ratio() -> None:
    stream = io.StringIO()
    runs = (ListedRun(HEAD, 1234.5, PER_HOUR, None), ListedRun(OTHER, None, None, 0))
    print_list(RunPage(runs, 2), Printer(Console(file=stream, width=120)))
    first, second = stream.getvalue().splitlines()[1:3]
    assert "1234/h" in first or "1235/h" in first or "1234.5/h" in first
    assert " - " in second


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


def test_wide_signs_are_cut_by_the_cells_they_take() -> None:
    names = ["性能性能性能一", "性能性能性能二"]
    assert crop_apart(names, 7) == ["性…一", "性…二"]
    assert crop_apart(names, 1) == ["…", "…"]
