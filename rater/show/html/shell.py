"""The frame of every page that rater writes: one HTML file with its data, styles and scripts.

It asks the network for nothing, and its Content-Security-Policy would not let it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from string import Template

from rater import __version__
from rater.show.charts.vega import ASSETS
from rater.show.console.format import plain
from rater.show.html.html import script_hash, script_json

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
        title=html.escape(plain(title)),
        style="".join(map(asset, styles)),
        skip="".join(f'<a class="skip" href="#{to}">{text}</a>\n' for to, text in skip.items()),
        main=main,
        data=script_json(data),
        scripts="".join(f"<script>{script}</script>\n" for script in inlined),
    )


def template(name: str, **values: object) -> str:
    """Return an asset with its names replaced; values are HTML."""
    return Template(asset(name)).substitute(values)


def asset(name: str) -> str:
    """Return the text of an asset."""
    return (ASSETS / name).read_text(encoding="utf-8")


def own_script(*names: str) -> str:
    """Return scripts of ours as one, which leaves no names behind."""
    parts = "\n".join(asset(f"{name}.js") for name in names)
    return f"(function () {{\n'use strict';\n{parts}}})();\n"


def is_page(start: str) -> bool:
    """Tell from its first kilobytes whether a file is a page that rater wrote."""
    return bool(re.search(rf'<meta name="generator" content="{_MARK} [^"]*">', start))


def _inline(script: str) -> str:
    """Return a script in which nothing ends its element, or begins a comment of HTML."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")
