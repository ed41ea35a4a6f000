"""One time of a copy as the row that is stored."""

from __future__ import annotations

from dataclasses import replace

from rater.record.events import WorkloadTime
from rater.record.status import CopyStatus, Validity
from rater.record.stored import StoredCopy
from rater.speccpu.results.own_keys import OwnCopy, OwnResult, own_of
from rater.speccpu.results.places import Place, Places
from rater.speccpu.results.result import Failure, SpecIteration


def copy_row(
    phase: int,
    one: SpecIteration,
    copy: int,
    places: Places,
    *,
    iteration: int,
    step: int,
    seconds: float,
) -> StoredCopy:
    """Return the row of a copy run of an iteration that took `seconds`.

    Where there are keys of rater's own the copy starts, has a tune and counts as they say.
    """
    own = own_of(one)
    place = _place(places.of(one, copy), own, copy, described=places.topology is not None)
    told = _outcome(one, one.failures.get(copy)) if own is None else own.of(copy)
    start_ns = told.start_ns if own else None
    elapsed_ns = round(seconds * 1e9)
    return StoredCopy(
        phase=phase,
        benchmark=one.benchmark,
        tune=own.tune if own else one.tune,
        iteration=iteration,
        copy=copy,
        step=step,
        counted=own is None or own.counted,
        cpu=place.cpu,
        core=place.core,
        llc=place.llc,
        node=place.node,
        package=place.package,
        mem_nodes=place.mem_nodes,
        planned_start_ns=None,
        start_ns=start_ns,
        finish_ns=None if start_ns is None else start_ns + elapsed_ns,
        elapsed_ns=elapsed_ns,
        status=told.status,
        exit_code=told.exit_code,
        signal=told.signal,
        validity=told.validity,
        validity_detail=told.detail,
        cpu_ns=None,
        run_dir=one.folders.get(copy),
        workloads=tuple(
            WorkloadTime(
                workload=number,
                start_ns=None,
                finish_ns=None,
                elapsed_ns=round(took_s * 1e9),
                exit_code=0 if told.validity is Validity.VALID else None,
                signal=None,
            )
            for number, took_s in enumerate(one.workloads_s.get(copy, ()), 1)
        ),
    )


def _place(seen: Place, own: OwnResult | None, copy: int, *, described: bool) -> Place:
    """Return where a copy was: what rater's own keys say, completed from a described machine."""
    if own is None:
        return seen
    told = own.place(copy)
    if not described or seen.cpu != told.cpu:
        return told
    return replace(
        told,
        core=seen.core if told.core is None else told.core,
        llc=seen.llc if told.llc is None else told.llc,
        node=seen.node if told.node is None else told.node,
        package=seen.package if told.package is None else told.package,
    )


def _outcome(one: SpecIteration, failure: Failure | None) -> OwnCopy:
    if failure is None and one.valid == "S":
        return OwnCopy(exit_code=0, validity=Validity.VALID)
    if failure is None:
        return OwnCopy()
    wrong = failure.detail is not None
    return OwnCopy(
        status=CopyStatus.WRONG_OUTPUT if wrong else failure.status,
        exit_code=failure.exit_code,
        signal=failure.signal,
        validity=Validity.INVALID if wrong else Validity.UNCHECKED,
        detail=failure.detail,
    )
