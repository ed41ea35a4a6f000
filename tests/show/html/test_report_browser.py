"""The page of `rater report` in a headless Chromium, by real mouse and keyboard."""

from pathlib import Path

import pytest

from rater.cli import main
from tests.support.browser import Browser
from tests.support.pages import CARD, CHOSEN, PANEL, needs_browser, opened
from tests.support.report_runs import HOSTILE, document, written

pytestmark = needs_browser
PICKED = (
    "[...document.querySelectorAll('#panels figure')]"
    ".map(f => f.querySelectorAll('.picked-marks path').length)"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of a run, of one with hostile names, of both, and of the first and one like it."""
    folder = tmp_path_factory.mktemp("pages")
    hostile = document(name=HOSTILE, host=HOSTILE, uuid="</script>u-2", benchmarks=2)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATER_DB", str(folder / "r.db"))
        for one in (document(), hostile, document(slow=1.15, uuid="u-3")):
            assert main(["import", str(written(folder, one))]) == 0
        other = document(uuid="u-4", benchmarks=1, name="other")
        assert main(["import", str(written(folder, other))]) == 0
        wanted = {"one": "1", "hostile": "2", "both": "1 2", "twice": "1 3", "unlike": "1 4"}
        for name, runs in wanted.items():
            found[name] = folder / f"{name}.html"
            assert main(["report", *runs.split(), "-o", str(found[name])]) == 0
    return found


def dot(browser: Browser, copy: int) -> tuple[float, float]:
    """Where the dot of a copy is in the window: its slower iteration in the panel PANEL."""
    browser.box(PANEL)  # scrolls there
    paths = browser.js(
        f"[...document.querySelectorAll('{PANEL} .dots-marks path')].map(p => "
        "{ const r = p.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })"
    )
    places = sorted({round(x, 1) for x, _ in paths})
    x = places[copy]
    return x, min(y for at, y in paths if round(at, 1) == x)


def test_every_benchmark_has_a_panel_with_all_its_dots(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])

    dots = browser.js(
        "[...document.querySelectorAll('#panels figure')].map("
        "f => [f.querySelector('b').textContent, f.querySelectorAll('.dots-marks path').length])"
    )

    assert sorted(dots) == [["b0", 32], ["b1", 32], ["b2", 32]]
    assert browser.said() == []


def test_hovering_a_dot_tells_which_copy_it_is(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["one"])

    browser.move(*dot(browser, 5))
    card = browser.js(CARD)
    x, y, _, _ = browser.box("h2")
    browser.move(x, y)

    assert card[0] == "copy 5 · CPU 5 · core 2 · lgroup 1"
    assert card[1].startswith("b0, iteration ")
    assert card[2].startswith("13.0")
    assert "to the median copy" in card[2]
    assert card[3].startswith("ran from ")
    assert browser.js(CARD) is None, "it goes with the mouse"


def test_choosing_a_copy_highlights_it_in_every_panel(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])

    browser.click_at(*dot(browser, 5))

    assert browser.js(PICKED) == [2, 2, 2]
    assert browser.js(CHOSEN).startswith("copy 5: 1 copy, +30 %")
    assert browser.js("[...document.querySelectorAll('.cpu.chosen')].map(c => c.dataset.cpu)") == [
        "5"
    ]
    assert browser.js("document.querySelectorAll('#timeline .picked-marks path').length") == 1
    browser.key("Escape")
    assert browser.js(PICKED) == [0, 0, 0]


def test_an_lgroup_of_the_machine_highlights_its_copies(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])

    browser.click("[data-node='1']")

    assert browser.js(PICKED) == [8, 8, 8]
    assert browser.js("document.querySelectorAll('.cpu.chosen').length") == 4
    assert browser.js(CHOSEN).startswith("lgroup 1: 4 copies, +30 %")


def test_the_machine_shows_the_slow_lgroup(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["one"])

    shares = browser.js("[...document.querySelectorAll('.share')].map(s => s.textContent)")
    heats = browser.js(
        "[...document.querySelectorAll('.cpu')]"
        ".map(c => parseFloat(c.style.getPropertyValue('--heat')))"
    )

    assert [shares[n].startswith("+30") for n in range(4)] == [False, True, False, False]
    assert min(heats[4:8]) > 90
    assert max(heats[:4] + heats[8:]) < 10


def test_a_divot_leads_to_its_picture_and_highlights_its_copies(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])

    browser.click("a[data-pick]")

    assert browser.js("location.hash").startswith("#panel-1-")
    assert browser.js(PICKED) == [8, 8, 8]
    top = browser.js("document.querySelector(location.hash).getBoundingClientRect().top")
    assert 0 <= top < 900, "it is to be seen"


def test_the_keyboard_does_what_the_mouse_does(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["one"])

    browser.js(f"document.querySelector('{PANEL}').focus()")
    browser.key("Home", "ArrowRight", "ArrowRight")
    assert browser.js(CARD)[0].startswith("copy 2 ·")
    browser.key("Enter")
    assert browser.js(PICKED) == [2, 2, 2]

    browser.click("#clear")
    browser.click("#choose")
    browser.type("lgroup 2")
    browser.key("Enter")
    assert browser.js(PICKED) == [8, 8, 8]

    browser.js("document.querySelector('.cpu').focus()")
    browser.key("ArrowRight", "Enter")
    assert browser.js(CHOSEN).startswith("CPU 1: ")


def test_a_table_sorts_by_click_and_by_key(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["one"])
    table = "#results section table"
    brackets = (
        f"[...document.querySelectorAll('{table}')[0].tBodies[0].rows]"
        ".map(r => +r.cells[2].textContent)"
    )
    third = f"{table} th:nth-child(3)"
    state = f"document.querySelector('{third}').getAttribute('aria-sort')"
    assert browser.js(state) == "none"

    browser.click(f"{third} button")
    assert (browser.js(state), browser.js(brackets)) == ("ascending", sorted(browser.js(brackets)))

    browser.js(f"document.querySelector('{third} button').focus()")
    browser.key("Enter")
    down = browser.js(brackets)
    assert (browser.js(state), down) == ("descending", sorted(down, reverse=True))
    assert down[0] > down[-1]


def test_a_click_on_a_bracket_shows_its_copies(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["one"])
    chosen = "document.getElementById('bracket').selectedOptions[0].textContent"
    before = browser.js(chosen)

    browser.box("#brackets")  # scrolls there
    box = browser.js(
        "(r => [r.x, r.y, r.width, r.height])([...document.querySelectorAll("
        "'#brackets .work-marks path')].at(-1).getBoundingClientRect())"
    )
    browser.click_at(box[0] + box[2] / 3, box[1] + box[3] / 2)
    browser.wait(lambda: browser.js(chosen) != before, "another bracket is not shown")

    assert browser.js("document.querySelectorAll('#timeline .bars-marks path').length") == 16
    assert browser.said() == []


def test_the_last_of_many_quick_clicks_counts(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["one"])

    browser.js(
        "(n => { for (let i = 0; i < 5; i++) n.click(); })"
        "(document.querySelector('[aria-label=\"the next bracket\"]'))"
    )
    browser.frame()
    browser.frame()

    assert browser.js("document.getElementById('bracket').value") == "5"
    bars = "document.querySelectorAll('#timeline .bars-marks path').length"
    browser.wait(lambda: browser.js(bars) == 16, "the bars are not drawn")
    assert browser.js("document.querySelectorAll('#timeline svg').length") == 1
    assert browser.said() == []


@pytest.mark.parametrize("name", ["hostile", "both"])
def test_hostile_names_are_only_text(browser: Browser, pages: dict[str, Path], name: str) -> None:
    opened(browser, pages[name])
    titles = browser.js(
        "[...document.querySelectorAll('#panels figcaption b')].map(b => b.textContent)"
    )

    browser.move(*_first_dot(browser))
    card = browser.js(CARD)

    assert any(title.startswith(HOSTILE) for title in titles)
    assert card is not None
    assert browser.js("document.querySelectorAll('script').length") == 3
    assert browser.js("document.querySelectorAll('img').length") == 0
    assert browser.said() == [], "no dialog, no error, no request"


def test_the_panels_of_several_runs_stand_benchmark_by_benchmark(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["twice"])

    groups = browser.js(
        "[...document.querySelectorAll('#panels .group')].map(g => "
        "[...g.querySelectorAll('figcaption > b')].map(b => b.textContent))"
    )
    heats = browser.js(
        "[...document.querySelectorAll('.map')].map(m => "
        "parseFloat(m.querySelector('[data-cpu=\"5\"]').style.getPropertyValue('--heat')))"
    )

    assert sorted(groups) == [[f"b{n}, run 1", f"b{n}, run 3"] for n in range(3)]
    # 30 % and 15 % on one scale: the same colour is the same slowdown.
    assert heats[0] > 95
    assert 40 < heats[1] < 60


def test_a_link_of_the_same_divot_in_another_run_is_its_own(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["twice"])
    links = browser.js("[...document.querySelectorAll('a[data-pick]')].map(a => a.hash)")
    of_second = next(i for i, link in enumerate(links) if link.startswith("#panel-3-"))

    for link, run in ((0, 1), (of_second, 3)):
        browser.js(f"document.querySelectorAll('a[data-pick]')[{link}].click()")
        browser.frame()
        assert browser.js(CHOSEN).startswith(f"divot: lgroup 1: run {run}: 4 copies, +")
        chosen = browser.js(
            "[...document.querySelectorAll('#panels figure')]"
            ".filter(f => f.querySelector('.picked-marks path')).map(f => f.id.split('-')[1])"
        )
        assert set(chosen) == {str(run)}


def test_panels_of_runs_with_other_benchmarks_have_widths_of_their_own(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["unlike"])

    beyond = browser.js(
        "[...document.querySelectorAll('#panels .drawn')].map(d => "
        "d.querySelector('svg').getBoundingClientRect().width - d.clientWidth)"
    )

    assert len(beyond) == 4
    assert max(beyond) <= 1


def test_the_field_takes_lists_and_says_what_it_does_not_understand(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])
    found = []
    for text in ("7", "lgroup1", "core 1", "CPU 0-2,8", "the slow one"):
        browser.js(
            "(i => { i.value = '" + text + "'; i.dispatchEvent(new Event('change')); })"
            "(document.getElementById('choose'))"
        )
        browser.frame()
        found.append((browser.js(CHOSEN), browser.js(PICKED)[0]))

    assert [count for _, count in found] == [2, 8, 4, 8, 8]
    assert "“the slow one” is not understood" in found[-1][0]


def test_the_brackets_and_the_timeline_answer_to_keys(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])
    bracket = "document.getElementById('bracket').value"

    browser.js("document.getElementById('brackets').focus()")
    browser.key("Home")
    first = browser.js(bracket)
    browser.key("ArrowDown")
    browser.wait(lambda: browser.js(bracket) != first, "another bracket is not shown")
    bars = "document.querySelectorAll('#timeline .bars-marks path').length"
    browser.wait(lambda: browser.js(bars) == 16, "the bars are not drawn")

    browser.js("document.getElementById('timeline').focus()")
    browser.key("Home", "ArrowDown")
    assert browser.js(CARD)[0].startswith("copy 1 ·")
    browser.key("Enter")
    assert browser.js(CHOSEN).startswith("copy 1: ")


def test_the_comparison_is_drawn(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["twice"])

    shown = browser.js(
        "[...document.querySelectorAll('#comparison .titles-marks text')].map(t => t.textContent)"
    )

    assert sorted(shown) == ["b0", "b1", "b2", "suite"]
    assert browser.said() == []


def test_a_phone_has_no_need_to_scroll_sideways(browser: Browser, pages: dict[str, Path]) -> None:
    for name in ("one", "hostile"):
        opened(browser, pages[name], width=390)
        assert browser.js("document.documentElement.scrollWidth") == 390


def test_dark_and_light_have_colours_of_their_own_and_print_is_light(
    browser: Browser, pages: dict[str, Path]
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    opened(browser, pages["one"])
    light = browser.js(ground)
    browser.screen(1200, 900, dark=True)
    dark = browser.js(ground)
    browser.screen(1200, 900, dark=True, media="print")

    assert light == "rgb(255, 255, 255)"
    assert dark != light
    assert browser.js(ground) == light
    assert browser.js("getComputedStyle(document.getElementById('tools')).display") == "none"
    assert browser.pdf().startswith(b"%PDF")


def test_panels_can_stand_in_the_order_of_the_suite(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])

    browser.js(
        "(s => { s.value = 'suite'; s.dispatchEvent(new Event('change')); })"
        "(document.getElementById('order'))"
    )

    assert browser.js(
        "[...document.querySelectorAll('#panels figure b')].map(b => b.textContent)"
    ) == [
        "b0",
        "b1",
        "b2",
    ]


def _first_dot(browser: Browser) -> tuple[float, float]:
    browser.box("#panels figure .drawn")
    x, y = browser.js(
        "(r => [r.x + r.width / 2, r.y + r.height / 2])"
        "(document.querySelector('#panels .dots-marks path').getBoundingClientRect())"
    )
    return x, y
