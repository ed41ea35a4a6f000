"""Elements of HTML and SVG from text that may hold anything."""

from __future__ import annotations

import html

from rater.show.console.format import plain

_VOID = ("br", "meta", "link", "input")


class Html(str):
    """Text that is HTML (or SVG) already; everything else is escaped where it enters."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | float | bool | None) -> Html:
    """Return an element; text among the children is escaped and freed of control characters.

    `class_` is `class`, `aria_sort` is `aria-sort`; an attribute of None or False is left out.
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        called = key.rstrip("_").replace("_", "-")
        text = (
            "" if value is True else plain(f"{value:g}" if isinstance(value, float) else str(value))
        )
        written.append(f' {called}="{html.escape(text)}"')
    start = f"<{name}{''.join(written)}>"
    return Html(start if name in _VOID else f"{start}{joined(*children)}</{name}>")


def joined(*parts: str) -> Html:
    """Return the parts one after the other, those that are not HTML escaped."""
    return Html(
        "".join(part if isinstance(part, Html) else html.escape(plain(part)) for part in parts)
    )
