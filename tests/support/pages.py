"""A report page in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import Browser, chromium

try:
    import vl_convert  # noqa: F401 - whether it is there
except ImportError:
    VEGA = False
else:
    VEGA = True

PROGRAM = chromium()


needs_browser = pytest.mark.skipif(
    PROGRAM is None or not VEGA,
    reason="no chromium here" if PROGRAM is None else "vl-convert-python ([report]) is missing",
)


DRAWN = "document.documentElement.dataset.drawnMs"


CARD = "(c => c.hidden ? null : c.innerText.split('\\n'))(document.getElementById('card'))"


CHOSEN = "document.getElementById('chosen').textContent"


# Each panel has 16 copies x 2 iterations; the first in order of the suite is panel-1-0.
PANEL = "#panel-1-0 .drawn"


def opened(browser: Browser, page: Path, width: int = 1200, *, dark: bool = False) -> Browser:
    browser.events.clear()
    browser.screen(width, 900, dark=dark)
    browser.open(page)
    browser.wait(lambda: browser.js(DRAWN), "the pictures are not drawn")
    return browser
