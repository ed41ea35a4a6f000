"""What would refuse a run, found before it begins."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rater.errors import InputError

if TYPE_CHECKING:
    from rater.workflow.run.resolve import Resolved


def preflight_told(resolved: Resolved) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a run would warn of now, and what it would be refused for, one by one."""
    from rater.workflow.run.surroundings import preflight_of

    found = preflight_of(resolved)
    if found is None:
        return (), ()
    if resolved.request.preflight == "strict":
        return found.unchecked, tuple(f"--preflight strict: {text}" for text in found.warnings)
    return found.warnings, ()


def program_problems(resolved: Resolved, planned: Mapping[str, str] | None = None) -> list[str]:
    """Return why programs of a run could not be found, built or given their pages.

    Nothing is made. `planned`: settings of the machine that will be set before.
    """
    from rater.run.programs.compile import find_command, find_compiler, missing_programs
    from rater.workflow.run.memory_tuning import refuse_pages
    from rater.workflow.speccpu.kit import kit_problems

    checks: list[Callable[[], object]] = [partial(refuse_pages, resolved.request, planned)]
    if resolved.request.wrap:
        checks.append(partial(find_command, resolved.request.wrap[0], "--wrap"))
    benchmarks = [workload.benchmark for workload in resolved.workloads]
    if any(benchmark.sources for benchmark in benchmarks):
        checks.append(find_compiler)
    found = [
        f"benchmark {w.benchmark.name}: {said}"
        for w in resolved.workloads
        for said in missing_programs(
            w.benchmark, w.size, has_setup=w.suite is not None and bool(w.suite.setup)
        )
    ]
    found += kit_problems([w.kit for w in resolved.workloads if w.kit], resolved.plan.copies)
    return list(dict.fromkeys([*found, *_said(checks)]))


def obstacles(args: argparse.Namespace, resolved: Resolved) -> list[str]:
    """Try everything a run would be refused for, without making anything."""
    from rater.run.host.lock import default_lock_path, machine_lock
    from rater.store.connection import default_path, is_there
    from rater.store.store import open_store

    def lock() -> None:
        path = default_lock_path()
        if path.exists():
            with machine_lock(path, "", share=resolved.request.share):
                pass

    def database() -> None:
        path = default_path(args.db)
        if is_there(path):
            open_store(path).close()

    return list(dict.fromkeys([*program_problems(resolved), *_said([lock, database])]))


def _said(checks: Sequence[Callable[[], object]]) -> list[str]:
    """Return what checks raise `InputError` for."""
    found = []
    for check in checks:
        try:
            check()
        except InputError as error:
            found.append(str(error))
    return found
