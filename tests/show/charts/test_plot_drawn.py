"""The picture in a terminal and in files, and `rater plot`."""

import io
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rater.analysis.results.copies import group_cells
from rater.record.run import CopyStatus
from rater.record.stored import StoredCopy
from rater.show.charts.panels import picture_svg
from rater.show.charts.picture import Label, Picture, picture_of
from rater.show.charts.terminal import print_picture
from rater.show.charts.vega import rendered
from rater.show.console import Printer
from rater.workflow.results.points import write_drawing
from tests.support.calls import Rater
from tests.support.drawings import marks, needs_vega, texts
from tests.support.example_runs import copy_row, stored


def picture(rows: Sequence[StoredCopy], *labels: Label) -> Picture:
    run = stored(rows, copies=len({row.copy for row in rows}), hostname="h")
    return picture_of(run.head, group_cells(run), labels)


def times(*seconds: float, **changes: object) -> list[StoredCopy]:
    return [copy_row(n, s, node=n // 4, **changes) for n, s in enumerate(seconds)]


SLOW = (100.0, 100.0, 100.0, 100.0, 130.0, 130.0, 130.0, 130.0, 100.0, 100.0, 100.0, 100.0)
NAMED = Label((4, 5, 6, 7), "lgroup 1: +30 %", (), "a")


def text(
    shown: Picture, width: int = 48, encoding: str = "utf-8", terminal: bool | None = None
) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=stream, width=width, force_terminal=terminal, legacy_windows=False)
    print_picture(shown, Printer(console))
    stream.flush()
    return raw.getvalue().decode(encoding)


def dots(svg: str) -> list[list[tuple[int, str, str]]]:
    """How many dots of which colour and opacity each panel has."""
    return [
        [(one["d"].count("M"), one["stroke"], one.get("opacity", "1")) for one in panel]
        for panel in marks(svg, "dots")
    ]


GREY, SLOW_DOT = "#3a3a3a", "#d55e00"

ASCII = """\
time of each copy, run 7 on h, 12 copies

a  median 100.0 s
                    lgroup 1: +30 %
130.0 s              |'' ''  '' ''|
                     |            |
                     |            |
                     |            |
                     |            |
                     |            |
                     |            |
                     |            |
                     |            |
100.0 s  .. .. ..  ..|            |..  .. .. ..
 lgroup       0             1            2
   copy  0             4            8         11
"""


def test_a_slow_lgroup_in_plain_ascii() -> None:
    assert text(picture(times(*SLOW), NAMED), encoding="ascii") == ASCII


def test_braille_has_the_same_lines_and_per_cent_where_there_is_room() -> None:
    lines = text(picture(times(*SLOW), NAMED), width=80).splitlines()
    assert lines[3].strip() == "lgroup 1: +30 %"
    assert re.fullmatch(r"130.0 s +┊[⠀-⣿ ]+┊? +\+30 %", lines[4])
    assert lines[13].endswith(" median")
    assert len(lines) == len(ASCII.splitlines())


@pytest.mark.parametrize("width", [20, 40, 57, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = [replace(row, benchmark="a" * 300) for row in times(*SLOW, 9000.0)]
    many = Label((4,), "a name that is much too long for a narrow terminal, really")
    for encoding in ("ascii", "utf-8"):
        shown = text(picture(rows, NAMED, many), width=width, encoding=encoding)
        assert max(map(len, shown.splitlines())) <= max(30, width)


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = picture(times(*SLOW), NAMED)
    assert "\x1b[" not in text(shown)
    assert "\x1b[1;31mlgroup 1: +30 %" in text(shown, terminal=True)


def test_iterations_of_one_benchmark_stand_one_below_the_other() -> None:
    rows = [*times(10.0, 10.0), *times(10.0, 12.0, iteration=2, phase=1)]
    label = Label((1,), "copy 1: +20 %", (2,), "a")
    lines = text(picture(rows, label)).splitlines()
    assert [line for line in lines if "iteration" in line] == [
        "a, iteration 1  median 10.00 s",
        "a, iteration 2  median 10.00 s",
    ]
    assert [line.strip() for line in lines].count("copy 1: +20 %") == 1


def test_stray_and_failed_copies_are_marked() -> None:
    rows = times(*[100.0] * 14, 90_000.0, 1.0)
    rows[3] = replace(rows[3], status=CopyStatus.FAILED, exit_code=1)
    for encoding, signs in (("ascii", "^vx"), ("utf-8", "▲▼×")):
        lines = text(picture(rows), encoding=encoding).splitlines()
        assert "copy 3 failed" in lines[2]
        assert "copy 14: 90000 s" in lines[3] + lines[4]
        assert "copy 15: 1.000 s" in lines[3] + lines[4]
        assert all(any(sign in line for line in lines[5:]) for sign in signs)


@needs_vega
def test_a_run_in_which_all_failed_says_so() -> None:
    rows = [replace(row, status=CopyStatus.FAILED, exit_code=1) for row in times(1.0, 1.0)]
    assert "no copy ran well" in text(picture(rows))
    assert {"no copy ran well", "× copies 0-1 failed"} <= set(texts(picture_svg(picture(rows))))


@needs_vega
def test_a_file_has_real_text_and_every_dot() -> None:
    svg = picture_svg(picture(times(*SLOW), NAMED))
    words = texts(svg)
    assert {"time of each copy, run 7 on h, 12 copies", "a", "lgroup 1: +30 %"} <= set(words)
    assert {"100.0 s", "130.0 s", "median", "+30 %", "lgroup", "copy", "11"} <= set(words)
    assert "iteration" not in words, "there is one"
    assert dots(svg) == [[(8, GREY, "1"), (4, SLOW_DOT, "1")]]
    assert len(marks(svg, "grid")[0]) == 2, "a line where an lgroup ends"


@needs_vega
def test_iterations_are_told_apart_by_shade_with_a_key() -> None:
    rows = [row for it in (1, 2, 3) for row in times(10.0, 10.1, 13.0, iteration=it, phase=it)]
    svg = picture_svg(picture(rows, Label((2,), "copy 2: +30 %")))
    assert texts(svg)[1:5] == ["3", "2", "1", "iteration"]
    assert dots(svg) == [
        [
            *((2, grey, "1") for grey in ("#929292", "#6f6f6f", GREY)),
            *((1, SLOW_DOT, opacity) for opacity in ("0.6", "0.8", "1")),
        ]
    ]


@needs_vega
def test_a_file_has_a_panel_for_each_benchmark_with_all_its_dots() -> None:
    rows = [row for n in range(29) for row in times(*SLOW, benchmark=f"b{n}", phase=n)]
    svg = picture_svg(picture(rows))
    assert set(texts(svg)) >= {f"b{n}" for n in range(29)}
    assert dots(svg) == 29 * [[(12, GREY, "1")]]


@needs_vega
def test_copies_of_unknown_lgroups_have_no_lines_between_them() -> None:
    svg = picture_svg(picture([replace(row, node=None) for row in times(*SLOW)]))
    assert marks(svg, "grid") == [[]]
    assert "lgroup" not in texts(svg)


@needs_vega
def test_a_file_has_strays_at_its_edge_with_their_times_and_crosses_for_failed_copies() -> None:
    rows = times(*[100.0] * 15, 90_000.0)
    rows[3] = replace(rows[3], status=CopyStatus.FAILED, exit_code=1)
    svg = picture_svg(picture(rows))
    assert {"copy 15: 90000 s", "× copy 3 failed"} <= set(texts(svg))
    assert dots(svg) == [[(14, GREY, "1")]]
    assert [len(marks(svg, name)[0]) for name in ("outside", "failed")] == [1, 1]


@needs_vega
def test_scattered_copies_have_their_numbers_beside_their_dots() -> None:
    rows = [copy_row(n, 13.0 if n in (3, 7) else 10.0, node=0) for n in range(40)]
    words = texts(picture_svg(picture(rows, Label((3, 7), "2 copies: +30 %"))))
    assert {"3", "7", "2 copies: +30 %"} <= set(words)


@needs_vega
def test_names_of_parts_do_not_lie_on_each_other() -> None:
    parts = [Label((n,), f"copy {n}: a name that is long", (), "a") for n in range(4)]
    svg = picture_svg(picture(times(13.0, 13.0, 13.0, 13.0, *[10.0] * 12), *parts))
    heights = re.findall(r'translate\([\d.]+,([\d.]+)\)"[^>]*>copy \d: a name', svg)
    assert len(set(heights)) == 4


@needs_vega
def test_names_of_other_people_do_no_harm() -> None:
    name = "$x^2 <&> \x1b[31m"
    assert "$x^2 <&> ?[31m" in texts(picture_svg(picture(times(1.0, 2.0, benchmark=name))))
    rendered(picture_svg(picture(times(1.0, 2.0, benchmark="測定"))), "png")


@needs_vega
@pytest.mark.parametrize("form", ["svg", "png"])
def test_files_are_the_same_for_the_same_run(form: str) -> None:
    shown = picture(times(*SLOW, 90_000.0), NAMED)
    assert rendered(picture_svg(shown), form) == rendered(picture_svg(shown), form)


@needs_vega
def test_thousands_of_dots_make_a_small_file() -> None:
    rows = [row for it in range(3) for row in times(*range(1000, 2000), iteration=it, phase=it)]
    assert len(picture_svg(picture(rows))) < 40 * 3000


@needs_vega
def test_the_formats_are_what_their_names_say(tmp_path: Path) -> None:
    svg = picture_svg(picture(times(1.0, 2.0)))
    for name, begin in (("a.svg", b"<svg"), ("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")):
        write_drawing(svg, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)


@pytest.fixture
def rater(rater: Rater, tmp_path: Path) -> Rater:
    """Run `rater ...` on a database with one run of 16 copies, one lgroup of which is slow."""
    document = {
        "rater": 1,
        "run": {"uuid": "u", "host": "h", "mode": "homogeneous", "copies": 16},
        "topology": {"nodes": {str(n): list(range(4 * n, 4 * n + 4)) for n in range(4)}},
        "observations": [
            {
                "benchmark": benchmark,
                "iteration": iteration,
                "copy": copy,
                "cpu": copy,
                "core": copy,
                "node": copy // 4,
                "package": 0,
                "start_s": None,
                "elapsed_s": 100 + copy % 3 / 10 + (40 if copy // 4 == 2 else 0),
            }
            for benchmark in ("429.mcf", "470.lbm")
            for iteration in (0, 1, 2)
            for copy in range(16)
        ],
    }
    (tmp_path / "one.json").write_text(json.dumps(document))
    assert rater("import", tmp_path / "one.json")[0] == 0
    return rater


@needs_vega
def test_the_slow_lgroup_is_named_in_the_terminal_and_in_the_file(
    rater: Rater, tmp_path: Path
) -> None:
    status, out, _ = rater("plot", "--benchmark", "mcf")
    assert status == 0
    assert out.count("429.mcf, iteration ") == 3
    assert "470.lbm" not in out
    assert "lgroup 2: +40." in out

    file = tmp_path / "a.svg"
    status, out, err = rater("plot", "-o", file)
    assert (status, err) == (0, "")
    assert out == f"{file}: time of each copy, run 1 on h, 16 copies, 2 benchmarks\n"
    assert any(it.startswith("lgroup 2: +40.") for it in texts(file.read_text()))


@needs_vega
def test_the_json_has_what_is_drawn(rater: Rater, tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    status, out, err = rater("plot", "--iteration", 1, "-o", file, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert (document["run"], document["file"]) == (1, str(file))
    assert document["places"] == list(range(16))
    assert document["lgroups"][2] == {"node": 2, "first": 8, "size": 4}
    first = document["benchmarks"][0]
    assert (first["benchmark"], len(first["dots"])) == ("429.mcf", 16)
    assert first["dots"][8]["elapsed_s"] == 140.2
    assert first["labels"][0]["copies"] == [8, 9, 10, 11]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--benchmark", "4"), "--benchmark 4: is in the names of several"),
        (("--benchmark", "milc"), "expected one of 429.mcf, 470.lbm"),
        (("--iteration", 9), "--iteration 9: run 1 has not this iteration"),
        (("-o", "a.gif"), "-o a.gif: expected a name that ends in .svg, .png or .pdf"),
        (("-o", "nowhere/a.svg"), "there is no directory nowhere"),
        (("-o", "/dev/full/a.svg"), "there is no directory /dev/full"),
        ((9,), "no such run"),
    ],
)
def test_mistakes_are_named(rater: Rater, words: tuple[object, ...], message: str) -> None:
    status, out, err = rater("plot", *words)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "words",
    [("plot", 99), ("plot", "--machine"), ("plot", "--timeline"), ("scale", 1), ("compare", 1, 1)],
)
def test_without_the_extra_the_error_says_what_to_install_before_anything_is_read(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    status, out, err = rater(*words, "-o", tmp_path / "a.svg")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "needs vl-convert-python" in err
    assert "`pip install 'rater[report]'` installs it" in err
    assert rater("plot", "--benchmark", "mcf")[0] == 0, "the terminal needs none"


@needs_vega
def test_a_file_that_cannot_be_written_is_no_traceback(rater: Rater, tmp_path: Path) -> None:
    full = tmp_path / "full.svg"
    full.symlink_to("/dev/full")
    status, out, err = rater("plot", "-o", full)
    assert (status, out) == (2, "")
    assert "cannot be written (No space left on device)" in err
