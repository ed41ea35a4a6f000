"""The frame of every page, and HTML from text that may hold anything."""

from __future__ import annotations

import hashlib
import html
import io
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from string import Template

from rater import __version__
from rater.show.charts.vega import ASSETS, Html, element, joined
from rater.show.screen.console import Column, Printer, TextScreen, heading_text
from rater.show.screen.document import Part, print_parts
from rater.show.screen.format import sanitize
from rater.system.process import as_typed

# -- The frame of every page that rater writes: one HTML file with its data, styles and scripts ----
#
# It asks the network for nothing, and its Content-Security-Policy would not let it.

_MARK = "rater report"  # in the page's head: rater may write over a file that has it


def page_html(
    title: str,
    main: str,
    data: object,
    *,
    skip: Mapping[str, str],
    styles: Sequence[str],
    scripts: Sequence[str],
) -> str:
    """Return a whole page; `main` is HTML, `title` a text, `data` what its scripts draw from.

    `skip`: places to go to at once, by their ids; `styles`: names of assets.
    """
    inlined = [_inline(script) for script in scripts]
    return template(
        "shell.html",
        mark=_MARK,
        version=__version__,
        hashes=" ".join(map(script_hash, inlined)),
        title=html.escape(sanitize(title)),
        style="".join(map(asset, styles)),
        skip="".join(
            f'<a class="skip" href="#{place}">{text}</a>\n' for place, text in skip.items()
        ),
        main=main,
        data=packed(data),
        scripts="".join(f"<script>{script}</script>\n" for script in inlined),
    )


def template(name: str, **values: object) -> Html:
    """Return an asset with its names replaced; values are HTML."""
    return Html(Template(asset(name)).substitute(values))


def asset(name: str) -> str:
    """Return the text of an asset."""
    return (ASSETS / name).read_text(encoding="utf-8")


def own_script(*names: str) -> str:
    """Return scripts of ours as one, which leaves no names behind."""
    parts = "\n".join(asset(f"{name}.js") for name in ("data", *names))
    return f"(async function () {{\n'use strict';\n{parts}}})();\n"


def is_page(start: str) -> bool:
    """Tell from its first kilobytes whether a file is a page that rater wrote."""
    return bool(re.search(rf'<meta name="generator" content="{_MARK} [^"]*">', start))


def _inline(script: str) -> str:
    """Return a script in which nothing ends its element, or begins a comment of HTML."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


# -- HTML from text that may hold anything: scripts, and tables as a printer has them --------------

_WIDE = 10_000  # cells: a page breaks its lines itself
_LONG = 40  # letters: longer cells break into lines
_CLASSES = {
    "red": "bad",
    "bold red": "bad",
    "yellow": "warn",
    "bold yellow": "warn",
    "green": "good",
    "dim": "dim",
    "bold": "lead",
}


def packed(value: object) -> str:
    """Return JSON, deflated, as text without signs of HTML; `data.js` reads it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return b64encode(zlib.compress(text.encode())).decode()


def script_hash(script: str) -> str:
    """Return what a Content-Security-Policy calls a script that may run."""
    return f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


class HtmlPrinter(Printer):
    """Takes what is printed on a terminal as paragraphs and tables of a page."""

    whole = True

    def __init__(self) -> None:
        super().__init__(TextScreen(io.StringIO(), width=_WIDE))
        self.ascii_only = False
        self.parts: list[Html] = []

    def line(self, text: str = "", style: str = "") -> None:
        """Add a paragraph; what only sets things apart on a terminal is left out."""
        if text.strip():
            self.parts.append(element("p", as_typed(text.strip()), class_=_CLASSES.get(style)))

    def table(
        self,
        columns: Sequence[Column],
        styles: Sequence[str] = (),
        groups: Mapping[int, str] | None = None,
    ) -> None:
        """Add a table that a page can sort; `styles` are those of its rows."""
        self.parts.append(table_html(columns, styles))

    def take(self) -> Html:
        """Return what was printed since the last time."""
        printed = joined(*self.parts)
        self.parts.clear()
        return printed


def html_parts(*several: Iterable[Part]) -> Html:
    """Return tables and sentences of documents as HTML."""
    printer = HtmlPrinter()
    for parts in several:
        print_parts(parts, printer)
    return printer.take()


def table_html(columns: Sequence[Column], styles: Sequence[str] = ()) -> Html:
    """Return a table; without headings the first column names what is in the others.

    A name that stands for the rows below it as well is repeated, faintly: sorted by another
    column, each row would else lose it.
    """
    shown = [column for column in columns if any(column.lines) or any(column.cells)]
    named = any(heading_text(column.heading) for column in shown)
    heads = [
        element("th", heading_text(column.heading), scope="col", class_="r" * column.right or None)
        for column in shown
    ]
    rows, name_above = [], ""
    for place in range(max(len(column.cells) for column in shown)):
        cells = []
        for number, column in enumerate(shown):
            text = column.cells[place].strip()
            is_repeated = not number and not text and bool(name_above)
            if not number:
                name_above = text = text or name_above
            if number or named:
                cells.append(_cell_html(text, is_right=column.right, is_repeated=is_repeated))
            else:
                cells.append(element("th", text, scope="row"))
        style = _CLASSES.get(styles[place]) if place < len(styles) else None
        rows.append(element("tr", *cells, class_=style))
    head = element("thead", element("tr", *heads)) if named else Html("")
    table = element("table", head, element("tbody", *rows), class_=None if named else "pairs")
    return element("div", table, class_="scroll", tabindex=0)


def _cell_html(text: str, *, is_right: bool, is_repeated: bool) -> Html:
    is_long = len(text) > _LONG and not is_right
    classes = "r" * is_right, "again" * is_repeated, "long" * is_long
    return element("td", text, class_=" ".join(filter(None, classes)) or None)
