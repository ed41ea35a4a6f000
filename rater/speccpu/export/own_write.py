"""What SPEC's keys cannot say of a run, as keys of rater's own; pure.

`rater.speccpu.results.own_keys` reads them back, and says what they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rater.record.run import MachinePU, PlacedCopy
from rater.record.status import CopyStatus, Validity
from rater.record.stored import StoredCopy, StoredRun
from rater.speccpu.results.own_keys import PHASE_TIMES, PLACES, run_values
from rater.text.cpuset import format_list

type Where = dict[str, Any]  # a place as it is written


def run_keys(stored: StoredRun, usual: Mapping[int, Where]) -> Iterator[tuple[str, str]]:
    """Yield the own keys of the file; `usual` is where each copy was in most of its runs."""
    yield "rater_run", _json(run_values(stored.head))
    for number, bracket in enumerate(stored.brackets):
        phase: dict[str, Any] = {
            "tune": bracket.tune,
            "counted": bracket.counted,
            "complete": bracket.complete,
        }
        yield (
            f"rater_phase{number:03}",
            _json(phase | {name: getattr(bracket, name) for name in PHASE_TIMES}),
        )
    for number, used in enumerate(stored.benchmarks):
        yield (
            f"rater_benchmark{number:03}",
            _json(
                {
                    "name": used.name,
                    "category": used.category,
                    "threads": used.threads,
                    "reference_s": used.reference_s,
                }
            ),
        )
    yield "rater_pus", _json(_machine(stored.pus))
    for plan in stored.placements:
        yield f"rater_plan{plan.copy:03}", _json(_plan(plan))
    for copy, where in sorted(usual.items()):
        yield f"rater_place{copy:03}", _json(where)


def usual_places(copies: Sequence[StoredCopy]) -> dict[int, Where]:
    """Return where each copy was in its first run."""
    found: dict[int, Where] = {}
    for copy in copies:
        found.setdefault(copy.copy, _where(copy))
    return found


def result_keys(
    copies: Sequence[StoredCopy],
    usual: Mapping[int, Where],
    *,
    benchmark: str,
    tune: str | None,
    iteration: int,
    counted: bool,
    phase: int,
    queued: StoredCopy | None = None,
) -> dict[str, str]:
    """Return the own keys of a result; `queued` is the copy run of a record in rotated order."""
    alike = Counter((it.validity, it.exit_code) for it in copies if it.status is CopyStatus.OK)
    validity, exit_code = alike.most_common(1)[0][0] if alike else (Validity.UNCHECKED, None)
    most = {"validity": str(validity), "exit_code": exit_code}
    values = {
        "phase": phase,
        "benchmark": benchmark,
        "tune": tune,
        "iteration": iteration,
        "counted": counted,
        "copies": _told(most),
    }
    if queued is not None:
        values |= {"copy": queued.copy, "step": queued.step}
    found = {"rater_result": _json(values)}
    for copy in copies:
        own: dict[str, Any] = {}
        where = _where(copy)
        if where != usual[copy.copy]:
            own["place"] = where
        if copy.start_ns is not None:
            own["start_ns"] = copy.start_ns
        ended = {
            "status": None if copy.status is CopyStatus.OK else str(copy.status),
            "validity": str(copy.validity),
            "exit_code": copy.exit_code,
            "signal": copy.signal,
            "detail": copy.validity_detail,
        }
        if _told(ended) != _told(most):
            own |= _told(ended)
        if own:
            found[f"rater_copy{copy.copy:03}"] = _json(own)
    return found


def _where(copy: StoredCopy) -> Where:
    values = _told({name: getattr(copy, name) for name in PLACES})
    if copy.mem_nodes:
        values["mem_nodes"] = format_list(copy.mem_nodes)
    return values


def _plan(plan: PlacedCopy) -> Where:
    values = _told({name: getattr(plan, name) for name in PLACES})
    if plan.cpus is not None:
        values["cpus"] = format_list(plan.cpus)
    values["policy"] = plan.memory_policy
    if plan.memory_nodes:
        values["nodes"] = format_list(plan.memory_nodes)
    return values


def _machine(pus: Sequence[MachinePU]) -> dict[str, Any]:
    """Return the machine's CPUs, and which of them share a core, a cache, a node, a package."""
    values: dict[str, Any] = {"cpus": format_list(pu.cpu for pu in pus)}
    for name in PLACES[1:]:
        groups: dict[int, list[int]] = {}
        for pu in pus:
            number = getattr(pu, name)
            if number is not None:
                groups.setdefault(number, []).append(pu.cpu)
        if groups:
            values[name] = {str(n): format_list(cpus) for n, cpus in sorted(groups.items())}
    return values


def _told(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _json(values: Mapping[str, Any]) -> str:
    """Return an object in one line of ASCII: no encoding of the file can spoil it."""
    return json.dumps(values, allow_nan=False, separators=(", ", ": "))
