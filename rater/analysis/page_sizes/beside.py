"""Page layouts beside each other: which one the others are compared with, and doubts; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.analysis.page_sizes.proof import PageVerdict, asked_pages, prove_pages
from rater.plan.pages.layout import PageLayout
from rater.record.stored import StoredRun
from rater.text.words import count, some

type SideRuns = Sequence[StoredRun]


def base_side(sides: Sequence[SideRuns]) -> int | None:
    """Return which side has all in base pages with the library: what layouts are compared with.

    None where no side has that alone, or none has a layout.
    """
    layouts = [_layouts(runs) for runs in sides]
    if not any(it is not None and not it.is_base for found in layouts for it in found):
        return None
    return next(
        (
            place
            for place, found in enumerate(layouts)
            if found and all(it is not None and it.is_base for it in found)
        ),
        None,
    )


def layout_warnings(sides: Sequence[tuple[str, SideRuns]]) -> tuple[str, ...]:
    """Return what is wrong with comparing these sides, the first of which is the baseline."""
    return tuple(_warnings(sides))


def _warnings(sides: Sequence[tuple[str, SideRuns]]) -> Iterator[str]:
    layouts = {label: _layouts(runs) for label, runs in sides}
    without = [label for label, found in layouts.items() if None in found]
    having = [label for label, found in layouts.items() if any(found)]
    if without and having:
        yield (
            f"{some(having)} with --pages beside {some(without)} without: --pages alone changes "
            "times (one arena of malloc, no memory given back); compare layouts with --pages 0%"
        )
    apart = [label for label, found in layouts.items() if any(it and it.split for it in found)]
    whole = [label for label, found in layouts.items() if any(it and not it.split for it in found)]
    if apart and whole:
        yield (
            f"{some(apart)} keeps large blocks apart from small ones, {some(whole)} does not: "
            "compare layouts by category with --pages heap:base"
        )
    for label, runs in sides:
        proofs = [it for it in map(prove_pages, runs) if it is not None]
        differ = sum(len(it.of(PageVerdict.DIFFERS)) for it in proofs)
        if differ:
            whole_number = sum(len(it.copies) for it in proofs)
            yield (
                f"{label}: {count(differ, 'copy run')} of {whole_number} had other page sizes "
                "than planned (`rater show RUN` says which, and why)"
            )


def _layouts(runs: SideRuns) -> list[PageLayout | None]:
    return [asked[0] if (asked := asked_pages(run)) else None for run in runs]
