"""`--speccmds-out`: what specinvoke would have left in the run directory of copy 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rater import __version__
from rater.record.stored import StoredCopy, StoredRun
from rater.speccpu.kit.kit import KitBenchmark
from rater.speccpu.kit.specout import OUT, ChildRun, raw_status, speccmds_out
from rater.workflow.run.resolve import Resolved
from rater.workflow.speccpu.kit import texts_of

_BY = "written by rater"  # how the first line begins: what stands so was not made by specinvoke


def write_outs(
    resolved: Resolved, run: StoredRun, began_ns: int, say: Callable[[str], None]
) -> None:
    """Write a file for every benchmark of the run; `say` tells of each, and what was in the way.

    `began_ns` is the run's time 0 since the epoch. A file that rater did not write is kept
    under another name.
    """
    run = run.without_torn()
    for workload in resolved.workloads:
        kit = workload.kit
        copies = [copy for copy in run.copies if copy.benchmark == workload.benchmark.name]
        if kit is None or not any(copy.workloads for copy in copies):
            continue
        by = f"{_BY} {__version__}: run {run.head.run} ({run.head.uuid}), {kit.name}"
        text = speccmds_out(_runs(resolved, kit, copies, began_ns), by=by, file=kit.run.file.name)
        file = Path(kit.directories[0]) / OUT
        try:
            kept = _keep(file)
            file.unlink(missing_ok=True)
            with file.open("x", encoding="utf-8", errors="surrogateescape") as new:
                new.write(text)
        except OSError as error:
            say(f"{file}: cannot be written ({error.strerror}); the times are in the database")
            continue
        say(f"{kit.name}: {file}" + (f" (the one that was there is {kept.name})" if kept else ""))


def _runs(
    resolved: Resolved, kit: KitBenchmark, copies: list[StoredCopy], began_ns: int
) -> list[list[ChildRun]]:
    """Return the children of each iteration, in order."""
    from_file = resolved.request.bind_from_file
    texts = {it.copy: texts_of(kit, it, from_file=from_file) for it in resolved.placements}
    runs: defaultdict[tuple[int, int], list[ChildRun]] = defaultdict(list)
    for copy in copies:
        for it in copy.workloads:
            if it.start_ns is None or it.finish_ns is None:
                continue
            child = ChildRun(
                copy.copy,
                began_ns + it.start_ns,
                began_ns + it.finish_ns,
                it.pid,
                raw_status(it.exit_code, it.signal),
                texts[copy.copy][it.workload - 1],
            )
            runs[copy.phase, copy.iteration].append(child)
    return [runs[key] for key in sorted(runs)]


def _keep(file: Path) -> Path | None:
    """Give a file that rater did not write another name; return that, None where there was none."""
    if not file.exists():
        return None
    with file.open("rb") as opened:
        if opened.read(len(_BY)) == _BY.encode():
            return None
    number = 1
    while (kept := file.with_name(f"{file.name}.{number}")).exists():
        number += 1
    file.rename(kept)
    return kept
