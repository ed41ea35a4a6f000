"""What a run was asked for, and how its copies ended, in words and as members of results; pure."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence

from msgspec import Struct

from rater.record.run import CopyStatus, Validity
from rater.record.stored import RunHead, StoredCopy, is_good

_LEFT_OUT = re.compile(r"left out: ([^:]+): (.*)", re.DOTALL)


def stored_request(head: RunHead) -> dict[str, object] | None:
    """Return what a run was asked for; None: imported, or an older rater did not keep it."""
    try:
        found = json.loads(head.request or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def left_out(warnings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the benchmarks that a run's warnings say were left out, each with the reason."""
    found = [match for text in warnings if (match := _LEFT_OUT.fullmatch(text))]
    return tuple((match[1], match[2]) for match in found)


def is_selection(head: RunHead) -> bool:
    """Tell whether the user asked for single benchmarks, `SUITE/BENCHMARK`."""
    asked = (stored_request(head) or {}).get("suites")
    return isinstance(asked, list) and any(
        isinstance(one, str) and one.endswith(f"/{name}")
        for one in asked
        for name in head.benchmarks
    )


# -- How one copy ended, in words and as a member of a result --------------------------------------


class CopyTime(Struct, frozen=True):
    """The time of one copy, and where it ran (None: not bound or not known)."""

    copy: int
    cpu: int | None
    node: int | None  # OS number of its lgroup
    elapsed_s: float


class FailedCopy(Struct, frozen=True):
    """A copy that does not count, and what it did."""

    benchmark: str
    tune: str | None
    iteration: int
    copy: int
    cpu: int | None
    node: int | None
    elapsed_s: float
    status: CopyStatus
    what: str  # "killed by SIGSEGV", "wrong output: line 3: ..."
    run_dir: str | None


def copy_time(copy: StoredCopy) -> CopyTime:
    """Return the copy's time with its place."""
    return CopyTime(copy.copy, copy.cpu, copy.node, copy.elapsed_s)


def slowest(copies: Sequence[StoredCopy]) -> CopyTime | None:
    """Return the copy with the longest time, the lowest number among equals."""
    if not copies:
        return None
    return copy_time(max(copies, key=lambda copy: (copy.elapsed_ns, -copy.copy)))


def failed_copy(copy: StoredCopy) -> FailedCopy:
    """Return a copy that is not good as a line of the report."""
    return FailedCopy(
        benchmark=copy.benchmark,
        tune=copy.tune,
        iteration=copy.iteration,
        copy=copy.copy,
        cpu=copy.cpu,
        node=copy.node,
        elapsed_s=copy.elapsed_s,
        status=copy.status if copy.status is not CopyStatus.OK else CopyStatus.WRONG_OUTPUT,
        what=failure_text(copy),
        run_dir=copy.run_dir,
    )


def failure_text(copy: StoredCopy) -> str:
    """Say how a copy that is not good ended."""
    late = copy.late_ns is not None
    words = merge_line(copy.status, copy.exit_code, copy.signal, copy.validity_detail, late=late)
    return f"{words} ({copy.note})" if copy.note else words


def merge_line(
    status: CopyStatus,
    exit_code: int | None,
    signal_number: int | None,
    detail: str | None = None,
    *,
    late: bool = False,
) -> str:
    """Say how a copy ended; one that seemed well is taken for a wrong answer (`detail`).

    `late`: nobody saw in time when it did.
    """
    if status is CopyStatus.TIMEOUT:
        return "stopped at its time limit"
    if status is CopyStatus.INTERRUPTED:
        return "interrupted"
    if status is not CopyStatus.FAILED:
        return f"wrong output: {detail}" if detail else "wrong output"
    if signal_number is not None:
        try:
            return f"killed by {signal.Signals(signal_number).name}"
        except ValueError:  # most real-time signals have no name of their own
            return f"killed by signal {signal_number}"
    seemed_well = "its time is not known" if late else "failed"
    return f"exit status {exit_code}" if exit_code else seemed_well


def why_no_ratio(copies: Sequence[StoredCopy], planned: int, checked: bool) -> str | None:
    """Say why these copies of one iteration give no ratio, None when nothing is against it.

    `checked`: outputs that nobody has looked at (rater died first) count against it.
    """
    bad = [copy for copy in copies if not is_good(copy)]
    stopped = [copy for copy in bad if copy.status is CopyStatus.INTERRUPTED]
    failures = [copy for copy in bad if copy.status is not CopyStatus.INTERRUPTED]
    if len(failures) == 1:
        return f"copy {failures[0].copy}: {failure_text(failures[0])}"
    if failures:
        first = failures[0]
        return (
            f"{len(failures)} of {planned} copies failed; copy {first.copy}: {failure_text(first)}"
        )
    if stopped or len(copies) < planned:
        return f"not complete: {len(copies) - len(stopped)} of {planned} copies finished"
    if not copies:
        return "no copy finished"
    unchecked = sum(copy.validity is Validity.UNCHECKED for copy in copies)
    if checked and unchecked:
        return f"the output of {unchecked} of {planned} copies was not checked"
    return None
