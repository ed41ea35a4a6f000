"""Pools of huge pages that copies take from: set to what they need, where that can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rater.errors import RaterError
from rater.plan.pools.pools import PoolNeed, pool_settings, shortage_text
from rater.run.page_sizes.machine import lacking_pages
from rater.settings.catalog import find


def filled(
    needs: Sequence[PoolNeed], fill: Callable[[Mapping[str, str]], None], root: Path
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Have pools hold what copies need.

    Return what they were set to, by the names that runs record, and what they lack then, in words.
    """
    short = lacking_pages(needs, root)
    wanted = {} if any(it.is_hopeless for it in short) else pool_settings(short)
    why = ""
    if wanted:
        try:
            fill(wanted)
        except RaterError as error:
            why = f" ({error})"
        short = lacking_pages(needs, root)
    pools = (find(name, root) for name in wanted)
    now = tuple((it.also, it.read().text) for it in pools)
    return now, [shortage_text(short) + why] if short else []
