"""What is written into a picture of the copies' times: names of slow parts, times, sizes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from rater.analysis.divots.data import words
from rater.analysis.divots.data.finding import Finding, Kind
from rater.groups import grouped
from rater.record.status import CopyStatus
from rater.show.charts.picture import Dot, Label, Panel
from rater.text.cpuset import format_list
from rater.text.words import copies_text

_LEAST_EXPLAINED = 0.01  # of a time; less than the layout does is hardly to be seen
_MOST_LETTERS = 20  # of a list of copies
# Findings whose place is no name: it is all copies.
_NAMES = {
    Kind.STARTUP: "start-up",
    Kind.DRIFT: "drift",
    Kind.BIMODAL: "two speeds",
    Kind.WANDERING: "lgroups take turns",
}


def labels_from(findings: Iterable[Finding]) -> tuple[Label, ...]:
    """Return labels for what the search for divots found, benchmark by benchmark.

    Copies that were judged singly are one label where they are the same in each iteration.
    What the layout explains has one where it is large enough to be seen.
    """
    labels: list[Label] = []
    for one in findings:
        if one.explained and abs(one.slowdown - 1) < _LEAST_EXPLAINED:
            continue
        if one.singles:
            labels += _single_labels(one)
            continue
        what = _NAMES.get(one.kind, one.place)
        effects = grouped((cell.benchmark, cell.slowdown) for cell in one.cells)
        for benchmark in tuple(effects) or one.benchmarks or (None,):
            # A drift is told from end to end, whatever a single iteration has of it.
            own = [] if one.kind is Kind.DRIFT else effects.get(benchmark or "", [])
            slowdown = statistics.median(own or [one.slowdown])
            # What a layout does differs from benchmark to benchmark: one size would be wrong.
            size = words.per_cent(slowdown)
            labels.append(
                Label(
                    copies=one.copies,
                    text=f"{what}: {'by the layout' if one.explained else size}",
                    iterations=one.iterations,
                    benchmark=benchmark,
                    tune=one.tune,
                    cpus=one.cpus,
                    explained=one.explained,
                    fast=slowdown < 1,
                )
            )
    return tuple(labels)


def _single_labels(one: Finding) -> Iterator[Label]:
    cells = grouped(((one.benchmark, one.tune, one.iteration), one) for one in one.singles)
    groups = grouped(
        ((benchmark, tune, tuple(sorted({single.copy for single in members}))), iteration)
        for (benchmark, tune, iteration), members in cells.items()
    )
    for (benchmark, tune, copies), iterations in groups.items():
        members = [single for it in iterations for single in cells[benchmark, tune, it]]
        sizes = [single.slowdown for single in members]
        what = f"copy {copies[0]}" if len(copies) == 1 else f"{len(copies)} copies"
        node = members[0].node
        what += f" (lgroup {node})" if len(copies) == 1 and node is not None else ""
        cpus = {single.cpu for single in members if single.cpu is not None}
        yield Label(
            copies,
            f"{what}: {words.sizes(sizes)}",
            tuple(sorted(iterations)),
            benchmark,
            tune,
            tuple(sorted(cpus)),
            one.explained,
            fast=sizes[0] < 1,
        )


def time_text(seconds: float) -> str:
    """Return a time with the digits that its size deserves: `2408 s`, `12.3 s`, `4.56 ms`."""
    if seconds >= 1000:
        return f"{seconds:.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size or unit == "ns":
            value = seconds / size
            break
    # Four digits: copies of a quiet machine differ by a thousandth.
    return f"{value:.{max(0, 4 - len(str(int(value))))}f} {unit}"


def percent_text(value: float) -> str:
    """Return a share of the median as its distance: `+52 %`, `-0.4 %`."""
    size = (value - 1) * 100
    return f"{size:+.0f} %" if abs(size) >= 10 else f"{size:+.1f} %"


def ticks(panel: Panel, gap_s: float = 0.0) -> list[tuple[float, str, str]]:
    """Return the ends of the dots and their median: seconds, their text, and per cent.

    The axis begins and ends with what was measured; no round numbers that were not. `gap_s`:
    between them at least.
    """
    extent, median_s = panel.extent_s(), panel.median_s
    if median_s is None or extent is None:
        return []
    shown = [median_s] if extent[0] <= median_s <= extent[1] else []
    for value in reversed(extent):
        if all(abs(value - other) >= gap_s for other in shown):
            shown.append(value)
    return [
        (at, time_text(at), "median" if at == median_s else percent_text(at / median_s))
        for at in shown
    ]


def label_text(label: Label, panel: Panel) -> str:
    """Return a label's words, with its iterations where the panel shows others as well."""
    shown = {dot.iteration for dot in panel.dots}
    here = sorted(shown.intersection(label.iterations))
    if not here or len(here) == len(shown) or "iteration" in label.text:
        return label.text
    return f"{label.text} ({'iteration' if len(here) == 1 else 'iterations'} {format_list(here)})"


def outside_text(dots: Sequence[Dot], most: int = 3) -> str:
    """Say how far out the dots are that lie beyond an end of the axis."""
    if len(dots) > most:
        times = [dot.elapsed_s for dot in dots]
        return f"{len(dots)} copies: {time_text(min(times))} to {time_text(max(times))}"
    return ", ".join(f"copy {dot.copy}: {time_text(dot.elapsed_s)}" for dot in dots)


def failed_text(panel: Panel) -> str | None:
    """Say which copies failed, and which rater stopped, which is no fault of theirs; None: none."""
    parts = []
    by_cause = grouped((one.status is CopyStatus.INTERRUPTED, one.copy) for _, one in panel.failed)
    for interrupted, how in ((False, "failed"), (True, "interrupted")):
        copies = sorted(set(by_cause.get(interrupted, ())))
        long = len(format_list(copies)) > _MOST_LETTERS
        which = copies_text(len(copies)) if long else words.copies(copies)
        parts += [f"{which} {how}"] if copies else []
    return "; ".join(parts) or None
