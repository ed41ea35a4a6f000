"""In which order the compared runs were made, and in which sessions; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from rater.analysis.results.points import PointRun
from rater.analysis.results.rates import RunRates
from rater.record.stored import RunHead

_SESSION_GAP_S = 3600.0


def in_order(runs: dict[int, RunRates], made: Iterable[PointRun]) -> dict[int, RunRates]:
    """Return the runs with their places in time; as they are where one's is not known.

    An hour in which none of them ran parts two sessions: others have been at work since, or the
    machine was off.
    """
    heads = {one.run.head.run: one.run.head for one in made}
    if any(head.started_at is None for head in heads.values()):
        return runs
    order = sorted(heads.values(), key=lambda head: (head.started_at or "", head.run))
    placed, session, ended_s = {}, 0, None
    for place, head in enumerate(order):
        begun_s = _begun_s(head)
        if ended_s is not None and begun_s - ended_s > _SESSION_GAP_S:
            session += 1
        ended_s = max(ended_s or 0.0, begun_s + (head.elapsed_s or 0.0))
        placed[head.run] = replace(runs[head.run], place=place, session=session)
    return {number: placed[number] for number in runs}


def _begun_s(head: RunHead) -> float:
    return datetime.fromisoformat(head.started_at or "").timestamp()
