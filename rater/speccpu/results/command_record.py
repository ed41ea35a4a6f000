"""What specinvoke leaves of a run (`speccmds.out`): start, end and status of every copy; pure.

CPU2006's and CPU2017's forms are read, and the old one without `pid=`. For a run whose log is lost
it is the only record of its copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from rater.record.stored import StoredRun
from rater.speccpu.config import keys
from rater.speccpu.config.binding import read_binding
from rater.store.formats.document import document_of
from rater.store.observations import run_of_document
from rater.system.errors import InputError
from rater.text.documents import Document

_STARTED = re.compile(
    r"child started: (\d+),\s+(\d{1,10}),\s+(\d{1,9}),\s+(?:pid=)?\d+,\s+'(.*?)'?$"
)
_FINISHED = re.compile(
    r"child finished: (\d+),\s+(\d{1,10}),\s+(\d{1,9}),\s+(?:sec=)?(\d{1,10}),"
    r"\s+(?:nsec=)?(\d{1,9}),\s+(?:pid=)?\d+,\s+(?:rc=)?(-?\d+)"
)
_RUN = re.compile(r"run (\d+) started at")
_MARK: Final = re.compile(rb"^(?:child started: \d|runs? (?:\d+ )?started at\s)", re.MULTILINE)
_PROGRAM = re.compile(r"(?<![\w.+-])([\w.+-]+)_(base|peak)\.")
_INVOKED = re.compile(rb"Invoked as: (.*)")
_LEAST_STAGGER_NS: Final = 50_000_000  # starts further apart than any loop of forks leaves them


def is_command_record(head: bytes) -> bool:
    """Tell whether a file that begins so is what specinvoke printed, and no log around it."""
    before = head[: match.start()] if (match := _MARK.search(head)) else head
    return match is not None and b"runspec" not in before and b"Contents of" not in before


class _CopyRecord(Struct, kw_only=True):
    """What one copy ran in one run, command after command."""

    start_ns: int
    command: str
    finish_ns: int | None = None  # of the last command that ended
    codes: list[int] = field(default_factory=list)  # wait statuses
    running: int = 0  # commands without an end


def read_command_record(data: bytes, path: Path) -> StoredRun:
    """Return the run of a `speccmds.out`; the file's folder tells the benchmark, if it can.

    Raises `InputError` where no copy has an end.
    """
    copies = _copies(data.decode("utf-8", "replace").splitlines())
    ended = {place: copy for place, copy in copies.items() if copy.finish_ns is not None}
    if not ended:
        raise InputError(f"{path}: no copy has an end in it; nothing to import")
    program = next(filter(None, (_PROGRAM.search(copy.command) for copy in ended.values())), None)
    invoked = match[1].decode("utf-8", "replace") if (match := _INVOKED.search(data)) else ""
    named = keys.first_benchmark([*path.absolute().parts, *re.split(r"[\s/]", invoked)])
    benchmark = named or (program[1] if program else path.stem)
    first_ns = min(copy.start_ns for copy in ended.values())
    category = keys.category(benchmark, keys.suite_of(benchmark))
    common = {
        "benchmark": benchmark,
        **({"tune": program[2]} if program else {}),
        **({"category": category} if category else {}),
    }
    observations = [
        common | {"iteration": run, "copy": number} | _observation(copy, first_ns)
        for (run, number), copy in ended.items()
    ]
    started = datetime.fromtimestamp(first_ns // 10**9, UTC)
    head: dict[str, Any] = {
        "mode": "staggered" if _is_staggered(ended.values()) else "homogeneous",
        "started_at": started.isoformat(),
    }
    if lost := len(copies) - len(ended):
        head |= {"status": "interrupted", "reason": f"{lost} copy runs have no end"}
    document = document_of(data, observations, head, part=benchmark)
    return run_of_document(Document(str(path), document))


def _copies(lines: Sequence[str]) -> dict[tuple[int, int], _CopyRecord]:
    """Return the copies by run and number, in the order of their starts."""
    copies: dict[tuple[int, int], _CopyRecord] = {}
    run = 1
    for line in lines:
        if match := _RUN.match(line):
            run = int(match[1])
        elif match := _STARTED.match(line):
            begun_ns = int(match[2]) * 10**9 + int(match[3])
            fresh = _CopyRecord(start_ns=begun_ns, command=match[4])
            copies.setdefault((run, int(match[1])), fresh).running += 1
        elif (match := _FINISHED.match(line)) and (run, int(match[1])) in copies:
            copy = copies[run, int(match[1])]
            copy.finish_ns = int(match[2]) * 10**9 + int(match[3])
            if copy.running == 1 and not copy.codes:  # one command: its own time has no rounding
                copy.finish_ns = copy.start_ns + int(match[4]) * 10**9 + int(match[5])
            copy.codes.append(int(match[6]))
            copy.running -= 1
    return copies


def _observation(copy: _CopyRecord, first_ns: int) -> dict[str, Any]:
    binding = read_binding(copy.command)
    row: dict[str, Any] = {
        "start_s": (copy.start_ns - first_ns) / 1e9,
        "elapsed_s": ((copy.finish_ns or copy.start_ns) - copy.start_ns) / 1e9,
        "status": "failed" if any(copy.codes) else "interrupted" if copy.running else "ok",
    }
    row |= {"cpu": binding.cpus[0]} if binding.cpus and len(binding.cpus) == 1 else {}
    return row | ({"mem_nodes": list(binding.mem_nodes)} if binding.mem_nodes else {})


def _is_staggered(copies: Iterable[_CopyRecord]) -> bool:
    starts = sorted(copy.start_ns for copy in copies)
    gaps_ns = [later - earlier for earlier, later in pairwise(starts)]
    return bool(gaps_ns) and min(gaps_ns) >= _LEAST_STAGGER_NS
