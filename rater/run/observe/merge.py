"""Two samples of a copy as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `--proof` is checked by commands that need no records
    from rater.record.events import Sampled


def together(first: Sampled, then: Sampled, nodes: Sequence[int]) -> Sampled:
    """Return two samples of one copy as one: averages by the looks behind each, extremes kept.

    `nodes` are those that its memory is to come from: what lay elsewhere in one look
    must not vanish in an average.
    """
    weights = (first.looks, then.looks)
    highest = (first.peak_bytes, then.peak_bytes, first.rss_bytes, then.rss_bytes)
    return replace(
        then,
        processes=max(first.processes, then.processes),
        unread=max(first.unread, then.unread),
        cpus=tuple(sorted({*first.cpus, *then.cpus})),
        allowed=_united(first.allowed, then.allowed),
        migrations=_largest((first.migrations, then.migrations)),
        pages_migrated=_largest((first.pages_migrated, then.pages_migrated)),
        node_bytes=_mean_table(first.node_bytes, then.node_bytes, weights),
        astray_bytes=max(
            (first.astray_bytes or first.node_bytes, then.astray_bytes or then.node_bytes),
            key=lambda table: _astray(table, nodes),
        ),
        policy=then.policy or first.policy,
        page_bytes=_mean_table(first.page_bytes, then.page_bytes, weights),
        rss_bytes=_mean(first.rss_bytes, then.rss_bytes, weights),
        peak_bytes=_largest(highest),
        swap_bytes=_largest((first.swap_bytes, then.swap_bytes)),
        read_ns=max(first.read_ns, then.read_ns),
        looks=sum(weights),
    )


def _astray(node_bytes: tuple[tuple[int, int], ...] | None, nodes: Sequence[int]) -> float:
    """Rank a look by what lay on other nodes than these: much, and a large part of all."""
    total = sum(size for _, size in node_bytes or ())
    off = sum(size for node, size in node_bytes or () if node not in nodes)
    return off * off / total if total else 0.0


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _united(first: tuple[int, ...] | None, then: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if first is None or then is None or first == then:
        return first if then is None else then
    return tuple(sorted({*first, *then}))


def _mean(first: int | None, then: int | None, weights: tuple[int, int]) -> int | None:
    if first is None or then is None:
        return first if then is None else then
    return round((first * weights[0] + then * weights[1]) / sum(weights))


def _mean_table(
    first: tuple[tuple[int, int], ...] | None,
    then: tuple[tuple[int, int], ...] | None,
    weights: tuple[int, int],
) -> tuple[tuple[int, int], ...] | None:
    if first is None or then is None:
        return first if then is None else then
    before, after = dict(first), dict(then)
    keys = sorted(before.keys() | after.keys())
    return tuple((key, _mean(before.get(key, 0), after.get(key, 0), weights) or 0) for key in keys)
