"""What of a report's page can be read: in light and dark, on a phone, without empty rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rater.cli import main
from tests.support.browser import Browser
from tests.support.pages import needs_browser, opened
from tests.support.report_runs import document, written

pytestmark = needs_browser


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
