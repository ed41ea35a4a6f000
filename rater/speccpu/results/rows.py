"""One time of a copy as the row that is stored."""

from __future__ import annotations

from rater.record.events import WorkloadTime
from rater.record.status import CopyStatus, Validity
from rater.record.stored import StoredCopy
from rater.speccpu.results.places import Places
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
