"""Compare outputs with a kit's own tool: commands of its compare.cmd, run in a copy's directory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rater.plan.place import Placement
from rater.record import Validity, storable
from rater.run.binding import ThreadBinding
from rater.run.child import Excess, Limits, kill_group, wait_within
from rater.run.job import Judged
from rater.run.script import Line, argv_of, failed_command

_LIMITS = Limits(time_s=3600.0)  # of all comparisons of one copy; gigabytes take minutes
_CANNOT_RUN = (126, 127)
_LONGEST_DETAIL = 200  # characters
_HEAD_BYTES = 4096
_TICK_NS = 20_000_000

type State = tuple[int, int, int]  # of a file: inode, size, mtime


@dataclass(frozen=True, slots=True)
class Comparison:
    """How outputs of one benchmark are compared."""

    lines: tuple[Line, ...]  # as argv_of takes them; all have to end with 0
    outputs: tuple[str, ...]  # files that are compared, relative to the run directory
    environment: tuple[tuple[str, str], ...] = ()

    def leftovers(self) -> tuple[str, ...]:
        """Return the files that say what was found; those of an earlier run say nothing."""
        found = [line.stdout for line in self.lines if line.stdout]
        return tuple(dict.fromkeys([*found, *(f"{name}.mis" for name in self.outputs)]))


@dataclass(frozen=True, slots=True)
class Handed:
    """What one copy hands in."""

    comparison: Comparison
    placement: Placement  # where the copy ran: its files are in the memory there
    directory: str
    before: Mapping[str, State]  # compared files as they were before it ran


def states(directory: str, names: Sequence[str]) -> dict[str, State]:
    """Return what tells whether files are written again; those just written are left out.

    File systems stamp by the kernel's tick (up to 10 ms): another write at once may not show.
    """
    found = {}
    until_ns = time.time_ns() - _TICK_NS
    for name in names:
        with suppress(OSError, ValueError):
            stat = os.stat(f"{directory}/{name}")  # noqa: PTH116 - a thousand copies
            if stat.st_mtime_ns < until_ns:
                found[name] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


def compare(
    handed: Sequence[tuple[Handed, str]], workers: int, stop: Callable[[], bool]
) -> list[Judged]:
    """Compare what copies wrote, `workers` at a time.

    With each comes a file name for what the comparing commands print. `Validity.UNCHECKED`
    is who was not looked at before `stop` said so.
    """
    if not handed:
        return []

    def one(pair: tuple[Handed, str]) -> Judged:
        with ThreadBinding() as binding:
            binding.apply(pair[0].placement)
            judged = _compare_one(*pair, stop)
        return judged if judged.detail is None else replace(judged, detail=storable(judged.detail))

    with ThreadPoolExecutor(min(workers, len(handed))) as pool:
        return list(pool.map(one, handed))


def _compare_one(one: Handed, log: str, stop: Callable[[], bool]) -> Judged:
    comparison = one.comparison
    now = states(one.directory, tuple(one.before))
    for name, state in one.before.items():
        if now.get(name) == state:
            return Judged(Validity.INVALID, f"{name} was not written: it is of an earlier run")
    if stop():
        return Judged(Validity.UNCHECKED)
    for name in comparison.leftovers():
        with suppress(OSError):
            os.unlink(f"{one.directory}/{name}")  # noqa: PTH108 - text, as the directory is
    argv = argv_of(comparison.lines)
    environment = {**os.environ, **dict(comparison.environment)}
    try:
        with open(log, "wb") as said:  # noqa: PTH123 - text, as the directory is
            process = subprocess.Popen(
                argv,
                cwd=one.directory,
                env={name: value for name, value in environment.items() if name},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )
            try:
                excess = wait_within(process.pid, _LIMITS, (), stop)
            finally:
                kill_group(process.pid)
                code = process.wait()
        return _judged(one, log, argv, code, excess)
    except OSError as error:
        return Judged(Validity.NOT_CHECKED, f"not validated: {error.strerror}: {error.filename}")
    finally:
        with suppress(OSError):
            os.unlink(log)  # noqa: PTH108 - as above


def _judged(one: Handed, log: str, argv: Sequence[str], code: int, excess: Excess | None) -> Judged:
    if excess is Excess.STOPPED:
        return Judged(Validity.UNCHECKED)
    if excess is not None:
        return Judged(
            Validity.NOT_CHECKED, f"not validated: comparing took over {_LIMITS.time_s:g} s"
        )
    blamed = failed_command(argv, log, code if code >= 0 else None, -code if code < 0 else None)
    if code in _CANNOT_RUN:
        said = _first_line(log) or blamed or f"exit code {code}"
        return Judged(Validity.NOT_CHECKED, f"not validated: the kit's specdiff: {said}")
    mismatches = [f"{one.directory}/{name}.mis" for name in one.comparison.outputs]
    found = next((path for path in mismatches if _first_line(path)), None)
    if code == 0 and found is None:
        return Judged(Validity.VALID)
    outputs = [f"{one.directory}/{line.stdout}" for line in one.comparison.lines if line.stdout]
    last = next((path for path in reversed(outputs) if _first_line(path)), None)
    if code == 0 or found is not None:
        path = found or ""
        detail = f"{Path(path).name.removesuffix('.mis')} differs: {_first_line(path)} (see {path})"
    elif last is not None:
        detail = f"{_first_line(last)} (see {last})"
    else:
        detail = _first_line(log) or blamed or f"specdiff ended with exit code {code}"
    return Judged(Validity.INVALID, detail)


def _first_line(path: str) -> str:
    """Return the first line of a file that says something, fit for a table."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - text, as the directory is
            text = file.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return ""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    clean = "".join(sign if sign.isprintable() else " " for sign in line)
    return clean if len(clean) <= _LONGEST_DETAIL else f"{clean[: _LONGEST_DETAIL - 3]}..."
