"""Outputs of a kit's copies: which ones a phase wrote, and what the kit's own tool finds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from rater.record.run import Placement, Validity, escape_undecodable
from rater.run.host.thread_binding import bound_as
from rater.run.launcher.copies import CopySpec
from rater.run.programs.child_process import LimitExceeded, Limits, run_child
from rater.run.programs.script import CommandLine, failed_position, to_argv, without_mark
from rater.run.workplace.compare_output import CheckResult
from rater.run.workplace.run_dirs import OVERWRITTEN
from rater.text.values import printable

_SHORTEST_LIMIT_S = 60.0  # of all comparisons of one copy; gigabytes take minutes
_SIGNALS = range(129, 193)  # exit codes of a shell whose command a signal ended
_CANNOT_RUN = (126, 127)
_LONGEST_DETAIL = 200  # characters
_HEAD_BYTES = 4096
_TICK_NS = 20_000_000

type State = tuple[int, int, int]  # of a file: inode, size, ctime


class KitComparison(Struct, frozen=True):
    """How outputs of one benchmark are compared."""

    lines: tuple[CommandLine, ...]  # as to_argv takes them; all have to end with 0
    outputs: tuple[str, ...]  # files that are compared, relative to the run directory
    environment: tuple[tuple[str, str], ...] = ()

    def leftovers(self) -> tuple[str, ...]:
        """Return the files with their states; those of an earlier run mean nothing."""
        found = [line.stdout for line in self.lines if line.stdout]
        return tuple(dict.fromkeys([*found, *(f"{name}.mis" for name in self.outputs)]))


class KitOutput(Struct, frozen=True):
    """What one copy wrote, and how it is compared."""

    comparison: KitComparison
    placement: Placement  # where the copy ran: its files are in the memory there
    directory: str
    before: Mapping[str, State]  # compared files as they were before it ran


def states(directory: str, names: Sequence[str]) -> dict[str, State]:
    """Return what tells whether files are written again; those just written are left out.

    File systems stamp by the kernel's tick (up to 10 ms): another write at once may not show.
    The modification time tells nothing: `cp -p` of an input preserves it.
    """
    states_by_file = {}
    until_ns = time.time_ns() - _TICK_NS
    for name in names:
        with suppress(OSError, ValueError):
            stat = os.stat(f"{directory}/{name}")  # noqa: PTH116 - a thousand copies
            if stat.st_ctime_ns < until_ns:
                states_by_file[name] = (stat.st_ino, stat.st_size, stat.st_ctime_ns)
    return states_by_file


def _compare_one(
    kit_output: KitOutput,
    log: str,
    stop: Callable[[], bool],
    limits: Limits,
    too_long: threading.Event,
) -> CheckResult:
    comparison, slow = kit_output.comparison, f"comparing took over {limits.time_s:.0f} s"
    now = states(kit_output.directory, tuple(kit_output.before))
    for name, state in kit_output.before.items():
        if now.get(name) == state:
            return CheckResult(Validity.INVALID, f"{name} was not written: it is of an earlier run")
    if stop() or too_long.is_set():
        return CheckResult(Validity.UNCHECKED) if stop() else _not_validated(slow)
    for name in comparison.leftovers():
        with suppress(OSError):
            os.unlink(f"{kit_output.directory}/{name}")  # noqa: PTH108 - text, as the directory is
    argv = to_argv(comparison.lines)
    environment = {**os.environ, **dict(comparison.environment)}
    printed = f"{log}.out"
    try:
        with open(log, "wb") as errors, open(printed, "wb") as out:  # noqa: PTH123 - text, as above
            own = {name: value for name, value in environment.items() if name}
            ended = run_child(argv, kit_output.directory, own, (out, errors), limits, stop=stop)
        if ended.excess is LimitExceeded.STOPPED:
            return CheckResult(Validity.UNCHECKED)
        if ended.excess is not None:
            too_long.set()
            return _not_validated(slow)
        return _judged(kit_output, log, argv, ended.status)
    except OSError as error:
        return _not_validated(f"{error.strerror}: {error.filename}")
    finally:
        for name in (log, printed):
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108 - as above


def _not_validated(why: str) -> CheckResult:
    return CheckResult(Validity.NOT_CHECKED, f"not validated: {why}")


def _judged(kit_output: KitOutput, log: str, argv: Sequence[str], code: int) -> CheckResult:
    """Return what comparing commands found, which ended with `code` (negative: by a signal).

    Found is what specdiff reports: a `.mis`, or words on standard output with an exit code. One
    that breaks (a signal, no such program, an exit code and no words) has found nothing.
    """
    mismatches = [f"{kit_output.directory}/{name}.mis" for name in kit_output.comparison.outputs]
    mismatch = next((path for path in mismatches if _first_line(path)), None)
    if code == 0 and mismatch is None:
        return CheckResult(Validity.VALID)
    failed = kit_output.comparison.lines[failed_position(argv, log) - 1]
    output = f"{kit_output.directory}/{failed.stdout}" if failed.stdout else f"{log}.out"
    by_signal = -code if code < 0 else code - 128 if code in _SIGNALS else None
    printed = _first_line(output)
    if by_signal or code in _CANNOT_RUN or (mismatch is None and not printed):
        error = f"{kit_output.directory}/{failed.stderr}" if failed.stderr else log
        ended = f"signal {by_signal}" if by_signal else f"exit code {code}"
        detail = (
            _first_line(error) or f"{ended} of {printable(failed.words[-1], _LONGEST_DETAIL, ' ')}"
        )
        if by_signal and not detail.startswith(ended):
            detail = f"{ended}: {detail}"
        return _not_validated(f"the kit's specdiff: {detail}")
    if mismatch is not None:
        name = mismatch.rpartition("/")[2].removesuffix(".mis")
        return CheckResult(
            Validity.INVALID, f"{name} differs: {_first_line(mismatch)} (see {mismatch})"
        )
    where = f" (see {output})" if failed.stdout else ""
    return CheckResult(Validity.INVALID, f"{printed}{where}")


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - text, as the directory is
            text = without_mark(file.read(_HEAD_BYTES)).decode(errors="replace")
    except OSError:
        return ""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return printable(line, _LONGEST_DETAIL, " ")


# -- Outputs in the run directories of kits: which ones a phase wrote, and what the kit finds ------


class KitOutputs:
    """What is compared once a phase is over; copies may use a directory several times."""

    def __init__(self) -> None:
        # By directory: who writes there last, and compared files as they were before the phase.
        self._last: dict[str, str] = {}
        self._before: dict[str, KitOutput] = {}
        self._begin_s = 0.0  # of the monotonic clock

    def begin_phase(self) -> None:
        """Forget the phase before."""
        self._last.clear()
        self._before.clear()
        self._begin_s = time.monotonic()

    def expect(self, comparison: KitComparison, placement: Placement, spec: CopySpec) -> None:
        """Take note of what is compared once the phase is over."""
        directory = spec.directory
        self._last[directory] = spec.output
        if directory not in self._before:
            before = states(directory, comparison.outputs)
            self._before[directory] = KitOutput(comparison, placement, directory, before)

    def judge(
        self, specs: Sequence[CopySpec], workers: int, stop: Callable[[], bool]
    ) -> list[CheckResult]:
        """Let the kit's own tool compare; where a later run of the copy wrote, nothing is left.

        `Validity.UNCHECKED` is who was not compared before `stop`. Comparing one copy may take
        twice as long as all of them ran; where that is not enough once, nobody else waits.
        """
        last = {
            spec.output: self._before[spec.directory]
            for spec in specs
            if self._last.get(spec.directory) == spec.output
        }
        taken_s = time.monotonic() - self._begin_s
        limits = Limits(time_s=max(_SHORTEST_LIMIT_S, 2 * taken_s))
        too_long = threading.Event()

        def compare_output(output: str) -> CheckResult:
            with bound_as(last[output].placement):
                log = f"{output}compare"  # what the comparing commands print
                judged = _compare_one(last[output], log, stop, limits, too_long)
            detail = None if judged.detail is None else escape_undecodable(judged.detail)
            return replace(judged, detail=detail)

        with ThreadPoolExecutor(max(1, min(workers, len(last)))) as pool:
            judged = dict(zip(last, pool.map(compare_output, last), strict=True))
        return [judged.get(spec.output, OVERWRITTEN) for spec in specs]


def kit_outputs() -> KitOutputs:
    """Return what takes note of the outputs of a run, of none so far."""
    return KitOutputs()
