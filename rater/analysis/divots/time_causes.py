"""The three causes of a finding's time, each with its share, and whose fault it can be; pure.

A copy's time is CPU time, waiting for a CPU, and sleep. So what a slow copy has more of it has
more of one of these: it did more work or computed more slowly, it waited, or it slept or was
stopped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean, median

from msgspec.structs import replace

from rater.analysis.divots.measures import Row, seconds_of
from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import Evidence, EvidenceKind, Finding, Kind, TimeShares
from rater.record.stored import StoredRun
from rater.text.cpuset import copy_numbers_text
from rater.text.values import percent

type _Sides = tuple[Sequence[Row], Sequence[Row]]  # of one cell: the finding's rows, and others

_LEAST_TOLD = 0.1  # of the extra time: a smaller share of a cause is not told
_MOST = 0.5  # of the extra time, from which on it is the cause
_INPUT_BY_COPY = re.compile(r"\bRATER_COPY\b")  # a command with it gives each copy an own input


def time_shares(cells: Sequence[_Sides]) -> TimeShares | None:
    """Return which share each cause has in the time by which a finding's copies are slower.

    Medians of both sides in each cell, in times of the others; the mean over the cells. A finding
    whose copies are not slower, or whose time is not known by parts, has none.
    """
    parts = {
        "cpu": [_excess(sides, ("on-cpu",)) for sides in cells],
        "waited_own": [_excess(sides, ("waited-own",)) for sides in cells],
        "waited_others": [_excess(sides, ("waited-others",)) for sides in cells],
        "waited": [_excess(sides, ("waited",)) for sides in cells],
        "slept": [_excess(sides, ("slept", "stopped", "quota")) for sides in cells],
    }
    known = {
        name: [part for part in of_name if part is not None] for name, of_name in parts.items()
    }
    excess = {name: max(0.0, fmean(of_name)) for name, of_name in known.items() if of_name}
    whole = sum(excess.values())
    if "cpu" not in excess or len(excess) < 2 or whole <= 0:
        return None
    return TimeShares(**{name: part / whole for name, part in excess.items()})


def _excess(sides: _Sides, names: Sequence[str]) -> float | None:
    """Return how much more of some parts of its time a finding's copies had than the others had.

    In times of the others; None: too little is known.
    """
    typical = []
    for rows in sides:
        of_rows = [seconds_of(row, names) for row in rows]
        seconds = [value for value in of_rows if value is not None]
        if 2 * len(seconds) <= len(of_rows):
            return None
        typical.append(median(seconds))
    return (typical[0] - typical[1]) / median(row.copy.elapsed_s for row in sides[1])


def shares_evidence(shares: TimeShares) -> Evidence | None:
    """Return the shares in words, where more than one cause has one that matters."""
    texts = {
        "more CPU time": shares.cpu,
        "waiting for other copies": shares.waited_own or 0.0,
        "waiting for other processes": shares.waited_others or 0.0,
        "waiting for a CPU": shares.waited or 0.0,
        "sleep or stops": shares.slept or 0.0,
    }
    told = {text: share for text, share in texts.items() if share >= _LEAST_TOLD}
    if len(told) < 2:
        return None
    ordered = sorted(told.items(), key=lambda pair: -pair[1])
    listed = ", ".join(f"{percent(share, 0)} % {text}" for text, share in ordered)
    return EvidenceKind.TIME.evidence(f"of the extra time: {listed}")


# -- Whose fault it can be -------------------------------------------------------------------------


def attribute(finding: Finding, run: StoredRun) -> Finding:
    """Return a finding of CPUs as one of copies, where what is slow follows the copies' own work.

    A copy that used more CPU time did more work, or its CPU computes more slowly. Where each copy
    has an input of its own (its command has RATER_COPY) and nothing says that the work was the
    same, the copy is named and not the CPU. Where the command is not known (imported), both are.
    """
    is_of_cpu = finding.kind in (Kind.SLOW_CPU, Kind.OUTLIER_COPY) and bool(finding.cpus)
    if not is_of_cpu or finding.fast or not _is_of_cpu_time(finding) or _same_work(finding):
        return finding
    copies, cpus = copy_numbers_text(finding.copies), formatting.format_cpus(finding.cpus)
    if not finding.place.startswith(("CPU", "core", "copy", "copies")):
        return finding
    commands = [
        used.command
        for used in run.benchmarks
        if not finding.benchmarks or used.name in finding.benchmarks
    ]
    if any(map(_INPUT_BY_COPY.search, commands)):
        return replace(finding, kind=Kind.OUTLIER_COPY, place=f"{copies} ({cpus})", core=None)
    if run.head.source != "run" and not all(commands) and finding.place == cpus:
        return replace(finding, place=f"{cpus} ({copies})")
    return finding


def _is_of_cpu_time(finding: Finding) -> bool:
    """Tell whether most of a finding's extra time is CPU time."""
    shares = finding.time_shares
    return finding.by_cpu or (shares is not None and shares.cpu >= _MOST)


def _same_work(finding: Finding) -> bool:
    """Tell whether counters say that a finding's copies executed what the others did."""
    measured = {evidence.name for evidence in finding.evidence}
    return "cpi" in measured and "instructions" not in measured
