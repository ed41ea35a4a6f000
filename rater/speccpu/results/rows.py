"""Brackets, and times of copies, as the rows that are stored."""

from __future__ import annotations

from rater.record.events import WorkloadTime
from rater.record.status import CopyStatus, Validity
from rater.record.stored import Reported, StoredBracket, StoredCopy
from rater.speccpu.results.places import Places
from rater.speccpu.results.result import Failure, SpecIteration


def bracket_row(
    phase: int,
    tune: str,
    one: SpecIteration | None = None,
    start_ns: int | None = None,
    finish_ns: int | None = None,
) -> StoredBracket:
    """Return the row of an iteration, or of the queues of all copies."""
    reported = None
    if one is not None:
        reported = Reported(
            copies=one.copies,
            reported_s=one.reported_s,
            reference_s=one.reference_s,
            ratio=one.ratio.value if one.ratio else None,
            selected=one.selected,
            valid=one.valid,
            errors="\n".join(one.errors) or None,
        )
    return StoredBracket(
        phase=phase,
        benchmark=one.benchmark if one else None,
        iteration=one.iteration if one else None,
        tune=tune,
        counted=True,
        start_ns=start_ns,
        finish_ns=finish_ns,
        last_start_ns=None,
        first_finish_ns=None,
        complete=one is None or not one.copies or len(one.times_s) >= one.copies,
        reported=reported,
    )


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
    """Return the row of a copy run of an iteration that took `seconds`."""
    place = places.of(one, copy)
    failure = one.failures.get(copy)
    wrong = failure is not None and failure.detail is not None
    valid = failure is None and one.valid == "S"
    return StoredCopy(
        phase=phase,
        benchmark=one.benchmark,
        tune=one.tune,
        iteration=iteration,
        copy=copy,
        step=step,
        counted=True,
        cpu=place.cpu,
        core=place.core,
        llc=place.llc,
        node=place.node,
        package=place.package,
        mem_nodes=place.mem_nodes,
        planned_start_ns=None,
        start_ns=None,
        finish_ns=None,
        elapsed_ns=round(seconds * 1e9),
        status=_status(failure),
        exit_code=failure.exit_code if failure else 0 if valid else None,
        signal=failure.signal if failure else None,
        validity=(Validity.INVALID if wrong else Validity.VALID if valid else Validity.UNCHECKED),
        validity_detail=failure.detail if failure else None,
        cpu_ns=None,
        run_dir=one.folders.get(copy),
        workloads=tuple(
            WorkloadTime(
                workload=number,
                start_ns=None,
                finish_ns=None,
                elapsed_ns=round(took_s * 1e9),
                exit_code=0 if valid else None,
                signal=None,
            )
            for number, took_s in enumerate(one.workloads_s.get(copy, ()), 1)
        ),
    )


def _status(failure: Failure | None) -> CopyStatus:
    if failure is None:
        return CopyStatus.OK
    return failure.status if failure.detail is None else CopyStatus.WRONG_OUTPUT
