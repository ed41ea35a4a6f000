"""The page of `rater report` in a headless Chromium: mouse, keys, light and dark, a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rater.commands.cli import main
from rater.store.store import open_store
from tests.support.browser import Browser
from tests.support.golden_runs import Made, host
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
    path_by_name = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATER_DB", str(folder / "r.db"))
        like, other = document(slow=1.15, uuid="u-3"), document(uuid="u-4", benchmarks=1, name="o")
        faster = document(name=HOSTILE, host=HOSTILE, uuid="u-5", benchmarks=2, slow=1)
        for run in (document(), hostile, like, other, faster):
            assert main(["import", str(written(folder, run))]) == 0
        wanted = {"one": "1", "hostile": "2", "both": "1 2", "twice": "1 3", "unlike": "1 4"}
        wanted["hostile pair"] = "2 5"
        rates = document(uuid="u-6", benchmarks=1, iterations=1)
        rates["run"]["metrics"] = [{"name": "<b>rate", "unit": "MB/s", "better": "higher"}]
        for row in rates["observations"]:
            row["metrics"] = {"<b>rate": 13000.0 / row["elapsed_s"]}
        rates["run"]["metrics"].append({"name": "small"})
        for row in rates["observations"]:
            row["metrics"]["small"] = 1e-8
        assert main(["import", str(written(folder, rates))]) == 0
        wanted["by"] = "6 --by <b>rate"
        for name, runs in wanted.items():
            path_by_name[name] = folder / f"{name}.html"
            assert main(["report", *runs.split(), "-o", str(path_by_name[name])]) == 0
    return path_by_name


@pytest.fixture
def run_page(browser: Browser, pages: dict[str, Path]) -> Browser:
    """The page of one run."""
    opened(browser, pages["one"])
    return browser


@pytest.fixture
def twice(browser: Browser, pages: dict[str, Path]) -> Browser:
    """The page of two runs."""
    opened(browser, pages["twice"])
    return browser


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


def test_every_benchmark_has_a_panel_with_all_its_dots(run_page: Browser) -> None:
    figures = (
        "[...document.querySelectorAll('#panels figure')].map("
        "f => [f.querySelector('b').textContent, f.querySelectorAll('.dots-marks path').length])"
    )
    in_suite = [["b0", 32], ["b1", 32], ["b2", 32]]
    assert sorted(run_page.js(figures)) == in_suite

    run_page.js(
        "(s => { s.value = 'suite'; s.dispatchEvent(new Event('change')); })"
        "(document.getElementById('order'))"
    )

    assert run_page.js(figures) == in_suite
    assert run_page.said() == []


def test_hovering_a_dot_tells_which_copy_it_is(run_page: Browser) -> None:
    run_page.move(*dot(run_page, 5))
    card = run_page.js(CARD)
    x, y, _, _ = run_page.box("h2")
    run_page.move(x, y)

    assert card[0] == "copy 5 · CPU 5 · core 2 · NUMA node 1"
    assert card[1].startswith("b0, iteration ")
    assert card[2].startswith("13.0")
    assert "to the median copy" in card[2]
    assert card[3].startswith("ran from ")
    assert run_page.js(CARD) is None, "it goes with the mouse"


def test_a_page_by_a_metric_has_its_values_and_orange_where_less_is_worse(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["by"])
    browser.box("#pictures .drawn")
    browser.js("document.querySelector('#panels .drawn').focus()")
    browser.key("Home")
    card = browser.js(CARD)
    classes = "[...document.querySelectorAll('.cpu')].map(c => c.classList.contains('quick'))"

    assert (
        browser.js("document.querySelector('#pictures h2').textContent") == "<b>rate of every copy"
    )
    assert "A dot is a copy's <b>rate (MB/s), higher is better." in browser.js(
        "document.querySelector('#pictures .how').textContent"
    )
    assert card[2].startswith("<b>rate 1299 MB/s (+0.1 %")
    assert card[3].startswith("started 0.000 s after")
    assert browser.js(classes)[4:8] == [False] * 4, "node 1 has less: it is orange"
    assert browser.js("document.querySelector('.scale').textContent").startswith("+23 %")
    figures = browser.js("[...document.querySelectorAll('.figure dd')].map(one => one.textContent)")
    assert "1.000e-08" in figures, "a small number is not 0.000000"
    assert browser.said() == []


def test_choosing_a_copy_highlights_it_in_every_panel(run_page: Browser) -> None:
    run_page.click_at(*dot(run_page, 5))

    assert run_page.js(PICKED) == [2, 2, 2]
    assert run_page.js(CHOSEN).startswith("copy 5: 1 copy, +30 %")
    assert run_page.js("[...document.querySelectorAll('.cpu.chosen')].map(c => c.dataset.cpu)") == [
        "5"
    ]
    assert run_page.js("document.querySelectorAll('#timeline .picked-marks path').length") == 1
    run_page.key("Escape")
    assert run_page.js(PICKED) == [0, 0, 0]


def test_an_lgroup_of_the_machine_highlights_its_copies(run_page: Browser) -> None:
    run_page.click("[data-node='1']")

    assert run_page.js(PICKED) == [8, 8, 8]
    assert run_page.js("document.querySelectorAll('.cpu.chosen').length") == 4
    assert run_page.js(CHOSEN).startswith("NUMA node 1: 4 copies, +30 %")


def test_the_machine_shows_the_slow_lgroup(run_page: Browser) -> None:
    shares = run_page.js("[...document.querySelectorAll('.share')].map(s => s.textContent)")
    heats = run_page.js(
        "[...document.querySelectorAll('.cpu')]"
        ".map(c => parseFloat(c.style.getPropertyValue('--heat')))"
    )

    assert [shares[number].startswith("+30") for number in range(4)] == [False, True, False, False]
    assert min(heats[4:8]) > 90
    assert max(heats[:4] + heats[8:]) < 10


def test_a_divot_leads_to_its_picture_and_highlights_its_copies(run_page: Browser) -> None:
    run_page.click("a[data-pick]")

    assert run_page.js("location.hash").startswith("#panel-1-")
    assert run_page.js(PICKED) == [8, 8, 8]
    top = run_page.js(
        "document.querySelector(location.hash.split('&')[0]).getBoundingClientRect().top"
    )
    assert 0 <= top < 900, "it is to be seen"


def test_the_keyboard_does_what_the_mouse_does(run_page: Browser) -> None:
    run_page.js(f"document.querySelector('{PANEL}').focus()")
    run_page.key("Home", "ArrowRight", "ArrowRight")
    assert run_page.js(CARD)[0].startswith("copy 2 ·")
    run_page.key("Enter")
    assert run_page.js(PICKED) == [2, 2, 2]

    run_page.click("#clear")
    run_page.click("#choose")
    run_page.type("NUMA node 2")
    run_page.key("Enter")
    assert run_page.js(PICKED) == [8, 8, 8]

    run_page.js("document.querySelector('.cpu').focus()")
    run_page.key("ArrowRight", "Enter")
    assert run_page.js(CHOSEN).startswith("CPU 1: ")

    run_page.js("document.querySelector('[data-node=\"3\"]').focus()")
    run_page.key("Enter")
    assert run_page.js(CHOSEN).startswith("NUMA node 3: ")


def test_a_table_sorts_by_click_and_by_key(run_page: Browser) -> None:
    table = "#results section table"
    brackets = (
        f"[...document.querySelectorAll('{table}')[0].tBodies[0].rows]"
        ".map(r => +r.cells[2].textContent)"
    )
    third = f"{table} th:nth-child(3)"
    state = f"document.querySelector('{third}').getAttribute('aria-sort')"
    assert run_page.js(state) == "none"

    run_page.click(f"{third} button")
    assert (run_page.js(state), run_page.js(brackets)) == (
        "ascending",
        sorted(run_page.js(brackets)),
    )

    run_page.js(f"document.querySelector('{third} button').focus()")
    run_page.key("Enter")
    down = run_page.js(brackets)
    assert (run_page.js(state), down) == ("descending", sorted(down, reverse=True))
    assert down[0] > down[-1]


def test_rows_are_filtered_by_their_words_and_what_is_shown_becomes_csv(run_page: Browser) -> None:
    table = "document.querySelector('#results section table')"
    shown = f"[...{table}.tBodies[0].rows].filter(r => !r.hidden).length"
    every = run_page.js(shown)
    name = run_page.js(f"{table}.tBodies[0].rows[0].cells[0].textContent")
    run_page.click("#rows")
    run_page.type(name)
    few = run_page.js(shown)
    assert 0 < few < every
    assert run_page.js("location.hash").startswith("#rows=")
    row = f"{table}.tBodies[0].rows[0].cells"
    run_page.js(f"{row}[1].textContent = '-2+3'; {row}[2].textContent = '\u22121,024 %'")
    # The button makes a file of its text; the browser of a test has no folder for it.
    saved = run_page.js(
        "(async () => { let kept; HTMLAnchorElement.prototype.click = () => {};"
        " URL.createObjectURL = (blob) => { kept = blob; return '#'; };"
        " document.querySelector('#results .csv').click(); return await kept.text(); })()"
    )
    lines = saved.splitlines()
    assert len(lines) == 1 + few  # the heading
    assert all(line.startswith(name) for line in lines[1:])
    assert lines[1].startswith(f'{name},\'-2+3,"-1,024 %",'), "a formula is none, a number is one"
    run_page.js(
        "{const rows = document.getElementById('rows'); rows.value = '';"
        " rows.dispatchEvent(new Event('input'))}"
    )
    assert run_page.js(shown) == every


def test_what_a_reader_has_set_stands_in_the_address(
    browser: Browser, pages: dict[str, Path]
) -> None:
    opened(browser, pages["one"])
    browser.click("a[data-pick]")
    browser.js(
        "{const set = (id, value) => { const it = document.getElementById(id); it.value = value;"
        " it.dispatchEvent(new Event(it.tagName === 'SELECT' ? 'change' : 'input')); };"
        " set('order', 'suite'); set('panels-with', 'b1'); set('bracket', '0')}"
    )
    browser.click("#results th button")
    hash_of_page = browser.js("location.hash")
    seen = (
        "[...document.querySelectorAll('#panels figure')].filter(f => f.offsetHeight).length + ' '"
        " + ['order', 'rows', 'bracket'].map(id => document.getElementById(id).value).join(' ')"
        " + ' ' + document.querySelector('#results th').ariaSort"
    )
    as_set = browser.js(f"{seen} + {CHOSEN}")

    browser.open(pages["unlike"])
    browser.call("Page.navigate", url=pages["one"].resolve().as_uri() + hash_of_page)
    drawn = "!!document.documentElement?.dataset.drawnMs && location.pathname.endsWith('one.html')"
    browser.wait(lambda: browser.js(drawn), "the pictures are not drawn")

    assert as_set.startswith("1 suite b1 0 ascending")
    assert "node 1" in as_set
    assert browser.js(f"{seen} + {CHOSEN}") == as_set
    assert browser.js("location.hash") == hash_of_page
    assert browser.said() == []


def test_benchmarks_that_do_not_differ_are_left_out_on_demand(
    browser: Browser, pages: dict[str, Path]
) -> None:
    """Runs 1 and 4 have no benchmark in common; in those of run 1 alone node 1 is slow."""
    opened(browser, pages["twice"])
    panels = "[...document.querySelectorAll('#panels figure')].filter(f => f.offsetHeight).length"
    facts = "[...document.querySelectorAll('#results .pairs tr')].filter(r => !r.hidden).length"
    before = browser.js(panels), browser.js(facts)

    browser.click(".only-differing")

    assert before[0] == browser.js(panels) == 6, "node 1 is slow in all of them"
    assert 0 < browser.js(facts) < before[1], "facts that both runs have alike go"
    assert browser.js("location.hash") == "#only=1"


def test_two_runs_are_read_copy_by_copy(twice: Browser) -> None:
    rooms = ("pair-places", "pair-scatter", "pair-ranks")
    assert [
        twice.js(f"document.querySelectorAll('#{room} figure svg').length") for room in rooms
    ] == [3, 3, 3]
    assert twice.js("document.querySelectorAll('#pair-places .dots-marks path').length") == 96
    labels = twice.js("document.querySelector('#pair-places figcaption').textContent")
    assert "run 1: node 1: +30.0 %" in labels

    twice.js("document.querySelector('#pair-places .drawn').focus()")
    twice.key("Home")
    places = twice.js(CARD)
    twice.js("document.querySelector('#pair-scatter .drawn').focus()")
    twice.key("Home")

    assert places[0] == "CPU 0 \u00b7 NUMA node 0"
    assert places[1].startswith("run 1: 10.")
    assert [line.partition(":")[0] for line in twice.js(CARD)[1:3]] == ["run 1", "run 3"]


def test_the_map_of_differences_has_the_benchmark_that_changed_most(twice: Browser) -> None:
    """Node 1 took 30 % longer in run 1, and 15 % in run 3: 11.5 % less."""
    room = "document.querySelector('.map[data-run=pair]')"
    node = f"{room}.querySelector('[data-node=\"1\"] .share').textContent"
    assert twice.js(node) == "\u221212 %"
    assert twice.js(f"{room}.querySelector('.scale').innerText").endswith("%, run 3 over run 1")
    twice.js(
        f"(s => {{ s.value = ''; s.dispatchEvent(new Event('change')); }})({room}.querySelector"
        "('select'))"
    )
    assert twice.js("location.hash") == "#map-pair=0", "what is chosen can be sent"
    twice.js(f"{room}.querySelector('.cpu').dispatchEvent(new PointerEvent('pointerenter'))")
    assert twice.js(CARD)[-1].endswith(", run 3 over run 1, all benchmarks (median)")
    assert twice.said() == []


def test_a_click_on_a_bracket_shows_its_copies(run_page: Browser) -> None:
    chosen = "document.getElementById('bracket').selectedOptions[0].textContent"
    before = run_page.js(chosen)

    run_page.box("#brackets")  # scrolls there
    box = run_page.js(
        "(r => [r.x, r.y, r.width, r.height])([...document.querySelectorAll("
        "'#brackets .work-marks path')].at(-1).getBoundingClientRect())"
    )
    run_page.click_at(box[0] + box[2] / 3, box[1] + box[3] / 2)
    run_page.wait(lambda: run_page.js(chosen) != before, "another bracket is not shown")

    assert run_page.js("document.querySelectorAll('#timeline .bars-marks path').length") == 16
    assert run_page.said() == []


def test_the_last_of_many_quick_clicks_counts(run_page: Browser) -> None:
    run_page.js(
        "(n => { for (let i = 0; i < 5; i++) n.click(); })"
        "(document.querySelector('[aria-label=\"the next bracket\"]'))"
    )
    run_page.frame()
    run_page.frame()

    assert run_page.js("document.getElementById('bracket').value") == "5"
    bars = "document.querySelectorAll('#timeline .bars-marks path').length"
    run_page.wait(lambda: run_page.js(bars) == 16, "the bars are not drawn")
    assert run_page.js("document.querySelectorAll('#timeline svg').length") == 1
    assert run_page.said() == []


@pytest.mark.parametrize("name", ["hostile", "both", "hostile pair"])
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


def test_the_panels_of_several_runs_stand_benchmark_by_benchmark(twice: Browser) -> None:
    groups = twice.js(
        "[...document.querySelectorAll('#panels .group')].map(g => "
        "[...g.querySelectorAll('figcaption > b')].map(b => b.textContent))"
    )
    heats = twice.js(
        "[...document.querySelectorAll('.story .map')].map(m => "
        "parseFloat(m.querySelector('[data-cpu=\"5\"]').style.getPropertyValue('--heat')))"
    )

    assert sorted(groups) == [[f"b{number}, run 1", f"b{number}, run 3"] for number in range(3)]
    # 30 % and 15 % on one scale: the same colour is the same slowdown.
    assert heats[0] > 95
    assert 40 < heats[1] < 60


def test_a_link_of_the_same_divot_in_another_run_is_its_own(twice: Browser) -> None:
    links = twice.js("[...document.querySelectorAll('a[data-pick]')].map(a => a.hash)")
    of_second = next(number for number, link in enumerate(links) if link.startswith("#panel-3-"))

    for link, run in ((0, 1), (of_second, 3)):
        twice.js(f"document.querySelectorAll('a[data-pick]')[{link}].click()")
        twice.frame()
        assert twice.js(CHOSEN).startswith(f"divot: node 1: run {run}: 4 copies, +")
        chosen = twice.js(
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


def test_the_field_takes_lists_and_says_what_it_does_not_understand(run_page: Browser) -> None:
    shown = []
    for text in ("7", "lgroup1", "core 1", "CPU 0-2,8", "the slow one"):
        run_page.js(
            "(i => { i.value = '" + text + "'; i.dispatchEvent(new Event('change')); })"
            "(document.getElementById('choose'))"
        )
        run_page.frame()
        shown.append((run_page.js(CHOSEN), run_page.js(PICKED)[0]))

    assert [count for _, count in shown] == [2, 8, 4, 8, 8]
    assert "“the slow one” is not understood" in shown[-1][0]


def test_the_brackets_and_the_timeline_answer_to_keys(run_page: Browser) -> None:
    bracket = "document.getElementById('bracket').value"

    run_page.js("document.getElementById('brackets').focus()")
    run_page.key("Home")
    first = run_page.js(bracket)
    run_page.key("ArrowDown")
    run_page.wait(lambda: run_page.js(bracket) != first, "another bracket is not shown")
    bars = "document.querySelectorAll('#timeline .bars-marks path').length"
    run_page.wait(lambda: run_page.js(bars) == 16, "the bars are not drawn")

    run_page.js("document.getElementById('timeline').focus()")
    run_page.key("Home", "ArrowDown")
    assert run_page.js(CARD)[0].startswith("copy 1 ·")
    run_page.key("Enter")
    assert run_page.js(CHOSEN).startswith("copy 1: ")


def test_the_comparison_is_drawn(twice: Browser) -> None:
    shown = twice.js(
        "[...document.querySelectorAll('#comparison .titles-marks text')].map(t => t.textContent)"
    )

    assert sorted(shown) == ["b0", "b1", "b2", "suite"]
    assert twice.said() == []


def test_a_phone_has_no_need_to_scroll_sideways(browser: Browser, pages: dict[str, Path]) -> None:
    for name in ("one", "hostile"):
        opened(browser, pages[name], width=390)
        assert browser.js("document.documentElement.scrollWidth") == 390


def test_dark_and_light_have_colours_of_their_own_and_print_is_light(run_page: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = run_page.js(ground)
    run_page.screen(1200, 900, dark=True)
    dark = run_page.js(ground)
    run_page.screen(1200, 900, dark=True, media="print")

    assert light == "rgb(255, 255, 255)"
    assert dark != light
    assert run_page.js(ground) == light
    assert run_page.js("getComputedStyle(document.getElementById('tools')).display") == "none"
    assert run_page.pdf().startswith(b"%PDF")


def _first_dot(browser: Browser) -> tuple[float, float]:
    browser.box("#panels figure .drawn")
    x, y = browser.js(
        "(r => [r.x + r.width / 2, r.y + r.height / 2])"
        "(document.querySelector('#panels .dots-marks path').getBoundingClientRect())"
    )
    return x, y


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a run of three iterations, which have a shade each."""
    folder = tmp_path_factory.mktemp("seen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATER_DB", str(folder / "rater.db"))
        assert main(["import", str(written(folder, document(iterations=3)))]) == 0
        assert main(["report", "1", "-o", str(folder / "page.html")]) == 0
    return folder / "page.html"


# Of every text: the contrast of its colour with what lies under it, least first; what is
# transparent is there for programs that read a row alone.
CONTRASTS = """(() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255)
      .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * x + .7152 * y + .0722 * z + .05;
  };
  const ground = element => {
    const found = numbers(getComputedStyle(element).backgroundColor);
    return found[3] === 0 && element.parentElement ? ground(element.parentElement) : found;
  };
  const told = [];
  for (const element of document.querySelectorAll('body *')) {
    const style = getComputedStyle(element);
    const text = [...element.childNodes].some(it => it.nodeType === 3 && it.data.trim());
    const colour = numbers(element.closest('svg') ? style.fill : style.color);
    if (!text || !element.getClientRects().length || colour[3] === 0) continue;
    const pair = [light(colour), light(ground(element))].sort((a, b) => b - a);
    told.push([pair[0] / pair[1], element.textContent.trim().slice(0, 30)]);
  }
  return told.sort((a, b) => a[0] - b[0]);
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_of_the_page_stands_out_from_its_ground(
    browser: Browser, page: Path, dark: bool
) -> None:
    opened(browser, page, dark=dark)
    told = browser.js(CONTRASTS)
    assert len(told) > 50
    assert [one for one in told if one[0] < 4.5] == []


def test_a_table_that_is_wider_than_a_phone_has_a_shade_where_more_of_it_lies(
    browser: Browser, page: Path
) -> None:
    opened(browser, page, width=390)
    wide = browser.js(
        "[...document.querySelectorAll('.scroll')].filter(it => it.scrollWidth > it.clientWidth)"
        ".map(it => getComputedStyle(it).backgroundAttachment)"
    )
    assert wide
    assert set(wide) == {"local, local, scroll, scroll"}


def test_what_a_run_has_not_is_no_row(page: Path) -> None:
    text = page.read_text()
    assert ">uuid<" in text
    assert ">redacted<" not in text


@pytest.fixture(scope="module")
def history_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history of eight runs of a host with a hostile name, from the fifth on 8 % slower."""
    folder = tmp_path_factory.mktemp("history")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATER_DB", str(folder / "r.db"))
        with open_store(folder / "r.db") as store:
            for number in range(1, 9):
                seconds = 100.0 + 0.1 * (number * 7 % 5) + (8 if number > 4 else 0)
                settings = {"kernel.release": HOSTILE if number > 4 else "6.1"}
                Made(
                    ("lu",), seconds=seconds, settings=settings, machine=host(8, 2, HOSTILE)
                ).store(store)
        assert main(["history", "lu", "-o", str(folder / "lu.html")]) == 0
    return folder / "lu.html"


@pytest.mark.parametrize("width", [390, 2200])
def test_a_history_has_its_steps_in_words_and_a_card_at_each_point(
    browser: Browser, history_page: Path, width: int
) -> None:
    opened(browser, history_page, width)
    assert browser.js("document.documentElement.scrollWidth") <= width
    assert browser.js("document.querySelector('h1').textContent").endswith(HOSTILE)
    (step,) = browser.js("[...document.querySelectorAll('ol li')].map(one => one.innerText)")
    assert "run 5: -7." in step
    assert f"kernel.release 6.1 -> {HOSTILE}" in step
    assert browser.js("document.querySelectorAll('#history-0 .dots-marks path').length") == 8

    browser.js("document.querySelector('#history-0 .drawn').focus()")
    browser.key("Home", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")

    date, run, value, over_first, size, change = browser.js(CARD)
    assert date.endswith(" UTC")
    assert (run, value[-6:], over_first[:3]) == ("run 5", " ratio", "-7.")
    assert size.endswith(" %, worse")
    assert change == f"kernel.release 6.1 -> {HOSTILE}"
    assert browser.said() == []
