"""The picture in a terminal and in files, and `rater plot`."""

import io
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from rater.analysis.results.copies import cells_of
from rater.errors import InputError
from rater.record.status import CopyStatus
from rater.record.stored import StoredCopy
from rater.show.charts.file import draw, drawn
from rater.show.charts.picture import Label, Picture, picture_of
from rater.show.charts.terminal import print_picture
from rater.show.console.printer import Printer
from tests.support.calls import Rater
from tests.support.example_runs import copy_row, stored

SVG = "{http://www.w3.org/2000/svg}"


def picture(rows: Sequence[StoredCopy], *labels: Label) -> Picture:
    run = stored(rows, copies=len({row.copy for row in rows}), hostname="h")
    return picture_of(run.head, cells_of(run), labels)


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


def drawing(shown: Picture) -> ET.Element:
    return ET.fromstring(drawn(shown, "svg"))


def texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def points(root: ET.Element) -> dict[str, int]:
    """How many dots each path of dots has, by its name."""
    return {
        str(group.get("id")): sum(
            str(path.get("d")).count("M") for path in group.iter(f"{SVG}path")
        )
        for group in root.iter(f"{SVG}g")
        if str(group.get("id")).startswith("dots")
    }


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


def test_braille_has_the_same_lines() -> None:
    lines = text(picture(times(*SLOW), NAMED)).splitlines()
    assert lines[3].strip() == "lgroup 1: +30 %"
    assert re.fullmatch(r"130.0 s +┊[⠀-⣿ ]+┊?", lines[4])
    assert len(lines) == len(ASCII.splitlines())


def test_wide_terminals_have_per_cent_beside() -> None:
    lines = text(picture(times(*SLOW), NAMED), width=80).splitlines()
    assert lines[4].endswith(" +30 %")
    assert lines[13].endswith(" median")


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


def test_a_run_in_which_all_failed_says_so() -> None:
    rows = [replace(row, status=CopyStatus.FAILED, exit_code=1) for row in times(1.0, 1.0)]
    assert "no copy ran well" in text(picture(rows))
    assert "no copy ran well" in texts(drawing(picture(rows)))


def test_an_svg_has_real_text_and_every_dot() -> None:
    root = drawing(picture(times(*SLOW), NAMED))
    said = texts(root)
    assert {"time of each copy, run 7 on h, 12 copies", "a", "lgroup 1: +30 %"} <= set(said)
    assert {"100.0 s", "130.0 s", "median", "+30 %", "lgroup", "copy", "11"} <= set(said)
    assert points(root) == {"dots-a-1": 8, "dots-slow-a-1": 4}


def test_iterations_are_told_apart_by_shade() -> None:
    rows = [row for it in (1, 2, 3) for row in times(10.0, 11.0, iteration=it, phase=it)]
    svg = drawn(picture(rows), "svg").decode()
    strokes = re.findall(r'id="dots-a-\d">\s*<path [^>]*stroke: (#\w+)', svg)
    assert len(strokes) == 3
    assert strokes == sorted(strokes, reverse=True)  # ever darker


def test_a_panel_for_each_benchmark_with_all_its_dots() -> None:
    rows = [
        row for number in range(29) for row in times(*SLOW, benchmark=f"b{number}", phase=number)
    ]
    root = drawing(picture(rows))
    assert set(texts(root)) >= {f"b{number}" for number in range(29)}
    assert points(root) == {f"dots-b{number}-1": 12 for number in range(29)}


def test_grid_lines_only_where_an_lgroup_ends() -> None:
    svg = drawn(picture(times(*SLOW)), "svg").decode()
    assert svg.count("stroke: #e4e4e4") == 2
    unknown = [replace(row, node=None) for row in times(*SLOW)]
    assert "#e4e4e4" not in drawn(picture(unknown), "svg").decode()


def test_a_stray_copy_is_a_triangle_with_its_time() -> None:
    rows = times(*[100.0] * 15, 90_000.0)
    root = drawing(picture(rows))
    assert "copy 15: 90000 s" in texts(root)
    assert points(root) == {"dots-a-1": 15}


def test_names_of_other_people_do_no_harm() -> None:
    name = "$x^2 <&> \x1b[31m"
    said = texts(drawing(picture(times(1.0, 2.0, benchmark=name))))
    assert "$x^2 <&> ?[31m" in said
    drawn(picture(times(1.0, 2.0, benchmark="測定")), "png")


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_files_are_the_same_for_the_same_run(form: str) -> None:
    shown = picture(times(*SLOW, 90_000.0), NAMED)
    assert drawn(shown, form) == drawn(shown, form)


def test_thousands_of_dots_make_a_small_file() -> None:
    rows = [row for it in range(3) for row in times(*range(1000, 2000), iteration=it, phase=it)]
    assert len(drawn(picture(rows), "svg")) < 60 * 3000


def test_the_formats_are_what_their_names_say(tmp_path: Path) -> None:
    shown = picture(times(1.0, 2.0))
    for name, begin in (("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")):
        draw(shown, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)


def test_a_missing_library_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="`pip install matplotlib` installs it"):
        drawn(picture(times(1.0, 2.0)), "svg")


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


def test_the_slow_lgroup_is_named_in_the_terminal(rater: Rater) -> None:
    status, out, _ = rater("plot", "--benchmark", "mcf")
    assert status == 0
    assert out.count("429.mcf, iteration ") == 3
    assert "470.lbm" not in out
    assert "lgroup 2: +40 %" in out


def test_the_slow_lgroup_is_named_in_the_file(rater: Rater, tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    status, out, err = rater("plot", "-o", file)
    assert (status, err) == (0, "")
    assert out == f"{file}: time of each copy, run 1 on h, 16 copies, 2 benchmarks\n"
    assert "lgroup 2: +40 %" in texts(ET.fromstring(file.read_bytes()))


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


def test_a_file_that_cannot_be_written_is_no_traceback(rater: Rater, tmp_path: Path) -> None:
    full = tmp_path / "full.svg"
    full.symlink_to("/dev/full")
    status, out, err = rater("plot", "-o", full)
    assert (status, out) == (2, "")
    assert "cannot be written (No space left on device)" in err
