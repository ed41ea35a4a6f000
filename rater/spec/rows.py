"""One time of a copy as the row that is stored."""

from __future__ import annotations

from rater.record import CopyStatus, StoredCopy, Validity, WorkloadTime
from rater.spec.placed import Places
from rater.spec.result import Failure, SpecIteration


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
    status, validity = _outcome(one, failure)
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
        status=status,
        exit_code=failure.exit_code if failure else 0 if validity is Validity.VALID else None,
        signal=failure.signal if failure else None,
        validity=validity,
        validity_detail=failure.detail if failure else None,
        cpu_ns=None,
        user_ns=None,
        system_ns=None,
        gate_cpu_ns=None,
        max_rss_bytes=None,
        minor_faults=None,
        major_faults=None,
        voluntary_switches=None,
        involuntary_switches=None,
        pid=None,
        note=None,
        run_dir=one.folders.get(copy),
        workloads=tuple(
            WorkloadTime(
                workload=number,
                start_ns=None,
                finish_ns=None,
                elapsed_ns=round(took_s * 1e9),
                exit_code=0 if validity is Validity.VALID else None,
                signal=None,
            )
            for number, took_s in enumerate(one.workloads_s.get(copy, ()), 1)
        ),
    )


def _outcome(one: SpecIteration, failure: Failure | None) -> tuple[CopyStatus, Validity]:
    if failure is None:
        return CopyStatus.OK, Validity.VALID if one.valid == "S" else Validity.UNCHECKED
    if failure.detail is not None:
        return CopyStatus.WRONG_OUTPUT, Validity.INVALID
    return CopyStatus.FAILED, Validity.UNCHECKED
