"""What stands in a picture drawn as SVG: its words, and how many marks of a kind each chart has."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.support.pages import VEGA

needs_vega = pytest.mark.skipif(not VEGA, reason="vl-convert-python ([report]) is missing")
_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str, tag: str = "text") -> list[str]:
    """All words of a picture, line by line, in the order they are drawn."""
    drawn = ET.fromstring(svg).iter(f"{_SVG}{tag}")
    lines = [it for one in drawn for it in ([one] if one.text else one.findall(f"{_SVG}tspan"))]
    return ["".join(line.itertext()) for line in lines]


def marks(svg: str, name: str) -> list[list[dict[str, str]]]:
    """The attributes of the marks of a name (`dots`, `grid`), chart by chart."""
    groups = [
        one
        for one in ET.fromstring(svg).iter(f"{_SVG}g")
        if f"{name}-marks" in str(one.get("class")).split()
    ]
    return [[dict(mark.attrib) for mark in group] for group in groups]
