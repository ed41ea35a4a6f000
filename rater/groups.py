"""Values by what they have in common."""

from __future__ import annotations

from collections.abc import Iterable


def grouped[K, V](pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values by key; keys and values stand in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
