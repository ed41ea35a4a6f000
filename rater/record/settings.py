"""Names of recorded settings, and which of them are mere readings."""

from __future__ import annotations

_READINGS = ("load.", "memory.", "rater.")
_HUGE_PAGES_IN_USE = ("free", "reserved", "surplus")


def volatile(name: str) -> bool:
    """Tell whether a setting is a reading that differs between any two runs of one machine."""
    family, _, last = name.rpartition(".")
    if family.partition(".")[0] == "hugepages":
        return last in _HUGE_PAGES_IN_USE
    return name.startswith(_READINGS)


LAYOUT_TEXT = "layout.text"  # setting of a run: the user's own layout file as it was
