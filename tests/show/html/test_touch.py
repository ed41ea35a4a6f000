"""What a reader of a report's page can reach: by mouse, keys, on a phone and on paper."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rater.commands.cli import main
from rater.show.charts import timeline as page_timeline
from tests.support.browser import Browser
from tests.support.pages import CARD, CHOSEN, PANEL, needs_browser, opened
from tests.support.report_runs import document, written

pytestmark = needs_browser
KEY = "document.getElementById('timeline-key').innerText"


type Report = Callable[..., Path]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A page of runs of these documents."""
    folder = tmp_path_factory.mktemp("touch")
    path_by_name: dict[str, Path] = {}

    def page(name: str, *documents: dict[str, Any]) -> Path:
        if name not in path_by_name:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RATER_DB", str(folder / f"{name}.db"))
                for number, found in enumerate(documents):
                    found["run"]["uuid"] = f"{name}-{number}"
                    assert main(["import", str(written(folder, found))]) == 0
                path_by_name[name] = folder / f"{name}.html"
                runs = [str(number + 1) for number in range(len(documents))]
                assert main(["report", *runs, "-o", str(path_by_name[name])]) == 0
        return path_by_name[name]

    return page


def slowed(document: dict[str, Any], shares: dict[int, float]) -> dict[str, Any]:
    """A run some of whose copies take longer."""
    for row in document["observations"]:
        row["elapsed_s"] *= shares.get(row["copy"], 1)
    return document


def rotated(slow: float = 1) -> dict[str, Any]:
    """Each copy runs b0, b1, b2 from another one on; the second iteration is 40 % slower."""
    made_document = document(slow=slow, mode="rotated", order="rotated")
    times = {(o["benchmark"], o["iteration"], o["copy"]): o for o in made_document["observations"]}
    made_document["observations"] = []
    for copy in range(16):
        at = 0.0
        for iteration in (1, 2, 3):
            for step in range(3):
                row = dict(times[f"b{(copy + step) % 3}", min(iteration, 2), copy])
                share = 1.4 if iteration == 2 else 1
                row |= {"iteration": iteration, "start_s": at}
                row["elapsed_s"] *= share
                at += row["elapsed_s"]
                made_document["observations"].append(row)
    return made_document


def smt8(document: dict[str, Any]) -> dict[str, Any]:
    """The same copies on two cores of eight CPUs."""
    for row in document["observations"]:
        row |= {"core": row["copy"] // 8, "node": row["copy"] // 8, "package": 0}
    nodes = {str(number): list(range(8 * number, 8 * number + 8)) for number in range(2)}
    document["topology"] = {"nodes": nodes, "packages": {"0": [*range(16)]}}
    return document


def shown(browser: Browser, selector: str) -> list[str]:
    """The texts of a picture's part."""
    found: list[str] = browser.js(
        f"[...document.querySelectorAll({selector!r})].map(t => t.textContent)"
    )
    return found


def test_a_click_under_a_panel_chooses_the_lgroup_above_it(
    browser: Browser, report: Report
) -> None:
    opened(browser, report("one", document()))
    browser.box(PANEL)  # scrolls there
    places = browser.js(
        f"[...document.querySelectorAll('{PANEL} .lgroups-marks text')].map(t => "
        "{ const r = t.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })"
    )

    chosen = []
    for x, y in places:
        browser.click_at(x, y)
        chosen.append(browser.js(CHOSEN).split(":")[0])
        browser.key("Escape")

    assert chosen == ["NUMA node 0", "NUMA node 1", "NUMA node 2", "NUMA node 3"]


def test_the_colours_of_a_small_machine_reach_to_its_slowest_cpu(
    browser: Browser, report: Report
) -> None:
    found = slowed(document(slow=1, benchmarks=1), {3: 1.4, 5: 1.05})
    opened(browser, report("small", found))

    heats = browser.js(
        "[3, 5].map(n => parseFloat(document.querySelector(`[data-cpu='${n}']`)"
        ".style.getPropertyValue('--heat')))"
    )

    assert "+40 % to the median copy" in browser.js("document.querySelector('.scale').textContent")
    assert heats[0] == 100
    assert 10 < heats[1] < 15


def test_a_slow_iteration_of_a_rotated_run_is_green_in_the_timeline(
    browser: Browser, report: Report
) -> None:
    opened(browser, report("rotated", rotated()))

    links = shown(browser, ".divots li")
    browser.click("a[data-pick]")

    assert "iteration 2" in links[0]
    picked = browser.js("[...document.querySelectorAll('#timeline .picked-marks path')].length")
    assert picked == 16 * 3, "each copy's three runs of the iteration"


def test_a_divot_of_one_tune_is_green_in_a_timeline_of_several(
    browser: Browser, report: Report
) -> None:
    found = rotated()
    for row in found["observations"]:
        row["tune"] = "peak" if row["benchmark"] == "b0" else "base"
        if row["tune"] == "base" and row["iteration"] == 2:
            row["elapsed_s"] /= 1.4
    opened(browser, report("tunes", found))

    browser.click("a[data-pick]")

    assert '"tune": "peak"' in browser.js("document.querySelector('a[data-pick]').dataset.pick")
    assert browser.js("document.querySelectorAll('#timeline .picked-marks path').length") == 16


def test_bars_of_all_runs_of_a_copy_are_chosen_with_the_copy(
    browser: Browser, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_timeline, "_MOST_BARS", 5)
    opened(browser, report("folded", rotated(slow=1.3)))

    browser.click("[data-node='1']")
    places = browser.js(
        "[...document.querySelectorAll('#timeline .picked-marks path')]"
        ".map(p => p.getBoundingClientRect().width > 100)"
    )

    assert places == [True] * 4


def test_the_shades_of_several_runs_are_those_of_one_key(browser: Browser, report: Report) -> None:
    page = report("its", document(iterations=1, slow=1), document(iterations=3, slow=1))
    opened(browser, page)

    key = browser.js(
        "[...document.querySelectorAll('#panel-key b[class^=dot]')]"
        ".map(b => [b.textContent.trim(), b.className])"
    )
    fills = browser.js(
        "['#panel-1-0', '#panel-2-0'].map(p => [...new Set([...document.querySelectorAll("
        "p + ' .dots-marks path')].map(d => d.getAttribute('fill')))].sort())"
    )

    assert key == [["1", "dot2"], ["2", "dot1"], ["3", "dot0"]]
    assert fills == [["var(--dot2)"], ["var(--dot0)", "var(--dot1)", "var(--dot2)"]]


def test_the_key_names_every_iteration(browser: Browser, report: Report) -> None:
    opened(browser, report("eight", document(iterations=8, slow=1, benchmarks=1)))

    assert shown(browser, "#panel-key b[class^=dot]") == [" 1-5 ", " 6 ", " 7 ", " 8 "]


@pytest.mark.parametrize("width", [360, 1280])
def test_no_cpu_of_a_wide_core_lies_under_another(
    browser: Browser, report: Report, width: int
) -> None:
    opened(browser, report("smt8", smt8(document(slow=1))), width)

    cpus = browser.js(
        "[...document.querySelectorAll('.cpu')].map(c => [c, c.closest('svg')].map(e => "
        "(r => [r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect())))"
    )

    assert len(cpus) == 16
    for (left, top, right, bottom), box in cpus:
        assert box[0] <= left
        assert right <= box[2]
        assert box[1] <= top
        assert bottom <= box[3]
    for number, (one, _) in enumerate(cpus):
        assert not any(_overlap(one, other) for other, _ in cpus[:number])


def _overlap(box: Sequence[float], other: Sequence[float]) -> bool:
    return (
        box[0] < other[2] - 0.1
        and other[0] < box[2] - 0.1
        and box[1] < other[3] - 0.1
        and other[1] < box[3] - 0.1
    )


def test_the_keyboard_reads_the_comparison(browser: Browser, report: Report) -> None:
    opened(browser, report("twice", document(), document(slow=1.15)))
    names = shown(browser, "#comparison .titles-marks text")

    browser.js("document.getElementById('comparison').focus()")
    browser.key("ArrowDown")
    first = browser.js(CARD)
    browser.key("ArrowDown")
    second = browser.js(CARD)
    ring = "document.querySelectorAll('#comparison .at-marks path').length"
    marked = browser.js(ring)
    browser.key("Escape")

    assert first[0].startswith(f"{names[0]},")
    assert second[0].startswith(f"{names[1]},")
    assert marked == 1
    assert (browser.js(CARD), browser.js(ring)) == (None, 0)


def test_the_keyboard_reads_the_scaling(browser: Browser, report: Report) -> None:
    half = document(slow=1)
    half["observations"] = [row for row in half["observations"] if row["copy"] < 8]
    half["run"]["copies"] = 8
    opened(browser, report("scaling", half, document(slow=1)))

    browser.js("document.querySelector('#scaling .drawn').focus()")
    browser.key("Home")
    first = browser.js(CARD)
    browser.key("ArrowRight")

    assert first[0].endswith(", 8 copies")
    assert browser.js(CARD)[0].endswith(", 16 copies")
    browser.key("Tab")
    assert browser.js(CARD) is None, "it goes with the focus"


def test_paper_says_what_the_tools_say_on_a_screen(browser: Browser, report: Report) -> None:
    opened(browser, report("one", document()))
    on_screen = browser.js("document.body.innerText")
    browser.js(
        "(s => { s.value = '1'; s.dispatchEvent(new Event('change')); })"
        "(document.querySelector('.map select'))"
    )
    browser.click("[data-node='1']")
    bracket = browser.js("document.getElementById('bracket').selectedOptions[0].textContent")

    browser.screen(1200, 900, media="print")

    assert browser.js(KEY).startswith(f"{bracket}. A bar is a run of a copy")
    assert "; green: NUMA node 1" in browser.js(KEY)
    key = browser.js("document.getElementById('panel-key').innerText")
    assert "Green: NUMA node 1: 4 copies, +30 % to the median copy" in key
    assert browser.js("document.querySelector('.scale').innerText").startswith("b1")
    assert "A click, or the list below" in on_screen
    assert "Green:" not in on_screen
    assert "A click" not in browser.js("document.getElementById('when').innerText")


def test_pictures_are_drawn_as_wide_as_paper_and_wide_again(
    browser: Browser, report: Report
) -> None:
    """Shrunk from a wide screen, their letters were 3 pixels high."""
    opened(browser, report("wide", document(benchmarks=1)), 2200)
    widths = "['#panels', '#timeline'].map(n => document.querySelector(n + ' svg').viewBox.baseVal)"
    widths = f"{widths}.map(box => Math.round(box.width))"
    before = browser.js(widths)

    browser.js("dispatchEvent(new Event('beforeprint'))")
    on_paper = browser.js(widths)
    browser.js("dispatchEvent(new Event('afterprint'))")

    assert min(before) > 2000
    assert on_paper == [700, 700]
    assert browser.js(widths) == before
    assert browser.said() == []


def test_the_title_that_a_divot_leads_to_is_below_the_tools(
    browser: Browser, report: Report
) -> None:
    opened(browser, report("long", document(name="n" * 150, benchmarks=1)))
    browser.screen(360, 640)
    browser.frame()

    browser.js("document.querySelector('a[data-pick]').click()")
    browser.frame()
    title, top, tools = browser.js(
        "[document.querySelector(location.hash.split('&')[0] + ' b').getBoundingClientRect().top,"
        "...(r => [r.top, r.bottom])(document.getElementById('tools').getBoundingClientRect())]"
    )

    assert abs(top) < 1, "they stay at the top"
    assert tools <= title < 640


def test_a_phone_has_room_for_when_half_had_finished(browser: Browser, report: Report) -> None:
    opened(browser, report("late", document(slow=1.6)), 360)

    half, room = browser.js(
        "['.names-marks text', 'svg'].map(e => "
        "(r => [r.left, r.right])"
        "(document.querySelector('#timeline ' + e).getBoundingClientRect()))"
    )

    assert shown(browser, "#timeline .names-marks text")[0].startswith("half had finished after ")
    assert room[0] <= half[0]
    assert half[1] <= room[1]


def test_copies_that_failed_are_no_half_that_finished(browser: Browser, report: Report) -> None:
    some, every = document(slow=1, benchmarks=1), document(slow=1, benchmarks=1)
    for row in some["observations"]:
        if row["copy"] < 10:
            row |= {"status": "failed", "elapsed_s": 1.0}
    for row in every["observations"]:
        row |= {"status": "failed", "elapsed_s": 1.0}

    opened(browser, report("some", some))
    found = shown(browser, "#timeline .names-marks text")
    opened(browser, report("every", every))

    assert found == ["half of those that ended well: 10.01 s"]
    assert shown(browser, "#timeline .names-marks text") == []


def test_bars_of_many_iterations_can_be_seen(browser: Browser, report: Report) -> None:
    opened(browser, report("thirty", document(iterations=30, benchmarks=2)))

    heights = browser.js(
        "[...document.querySelectorAll('#brackets .work-marks path')]"
        ".map(p => p.getBoundingClientRect().height)"
    )

    assert len(heights) == 60
    assert min(heights) >= 2
