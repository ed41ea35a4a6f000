"""The detector: coarse to fine, each step taking out what it found; pure.

Layout, start-up, groups, iterations, CPUs, two modes, single copies: otherwise one
slow lgroup would be told again as eight slow CPUs and as eight slow copies of every
benchmark. Formulas and thresholds are those of the note `divots.md` (section 3) of
rater's designers; where real servers taught otherwise (section 9) the modules say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.candidates.groups import group_drafts
from rater.analysis.divots.candidates.moving import moving_drafts
from rater.analysis.divots.candidates.over_time import iteration_drafts, startup_drafts, with_spared
from rater.analysis.divots.candidates.single import copy_drafts, cpu_drafts, mode_drafts
from rater.analysis.divots.candidates.state import begin
from rater.analysis.divots.data.candidate import Draft, total_effect
from rater.analysis.divots.data.finding import Kind, Thresholds
from rater.analysis.divots.data.noise_scales import Scales
from rater.analysis.divots.data.table import Table
from rater.analysis.divots.detectors.groups import Level
from rater.analysis.divots.detectors.layout import Predicted, explain
from rater.analysis.stats.robust import Floats

_OF_PARTS = (Kind.SLOW_LGROUP, Kind.SLOW_GROUP, Kind.SLOW_CPU, Kind.WANDERING)
_OF_COPIES = (Kind.OUTLIER_COPY, Kind.BIMODAL)


@dataclass(frozen=True, slots=True, eq=False)
class Detected:
    """All that was found in a run, with what the words are made from."""

    table: Table
    drafts: list[Draft]
    predicted: list[Predicted]
    residuals: Floats  # what nothing explains
    scales: Scales
    levels: tuple[Level, ...]


def detect(table: Table, thresholds: Thresholds) -> Detected:
    """Find what is slow, or fast, in a run."""
    work = begin(table, explain(table), thresholds)
    drafts = startup_drafts(work)
    drafts += group_drafts(work)
    drafts = with_spared(drafts, iteration_drafts(work, table.log_s - total_effect(table, drafts)))
    drafts += cpu_drafts(work)
    drafts += moving_drafts(work)
    drafts += mode_drafts(work)
    drafts += copy_drafts(work)
    drafts = [draft for draft in drafts if _counts(draft, thresholds)]
    return Detected(table, drafts, work.predicted, work.r, work.scales, work.levels)


def _counts(draft: Draft, thresholds: Thresholds) -> bool:
    """Tell whether a finding shows somewhere as much as the user asked for.

    By default parts of the machine that are slow in nearly all benchmarks alike count
    from less (the steps' own rules); a larger threshold is meant as it is said.
    """
    if draft.kind in _OF_PARTS:
        least, usual = thresholds.group, Thresholds().group
    elif draft.kind in _OF_COPIES:
        least, usual = thresholds.copy, Thresholds().copy
    else:
        return True
    if least <= usual:
        return True
    sizes = [abs(math.expm1(float(np.median(p.effect)))) for p in draft.parts if len(p.effect)]
    return max(sizes, default=0.0) >= least
