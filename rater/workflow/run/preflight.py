"""What a run is warned of and refused for: before it begins, and of its surroundings as it does."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rater.errors import InputError
from rater.plan.placement.memory_needs import Preflight
from rater.plan.request.request import Request
from rater.plan.topology.lgroup_memory import LgroupMemory
from rater.run.copies.limits import refuse_copies
from rater.run.host.busy import BusyWatch, busy_warning
from rater.run.host.lock import default_lock_path, machine_lock
from rater.run.host.memory import lgroups_now, preflight_now
from rater.run.host.requirements import Needs
from rater.run.programs.compile import find_command, find_compiler, missing_programs
from rater.store.connection import default_path, is_there
from rater.store.store import open_store
from rater.text.secrets import Redactor
from rater.text.words import some
from rater.workflow.doctor.mend import tuned_settings_of
from rater.workflow.own_settings import refuse_unsettable
from rater.workflow.page_sizes.layout import refuse_layout
from rater.workflow.run.memory_tuning import refuse_pages
from rater.workflow.run.prepare import needs_of
from rater.workflow.run.resolve import Resolved, most_bytes
from rater.workflow.speccpu.kit import kit_problems


class Surroundings:
    """Who else works here, what the lgroups' memory holds: make it before anything is set up."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._watch = BusyWatch()
        self._before = lgroups_now() if resolved.request.preflight != "off" else None

    def warnings(self) -> tuple[str, ...]:
        """Return what a person should know of the machine before copies run on it.

        Raises `InputError` where `--preflight strict` refuses the run.
        """
        busy = busy_warning(self._watch.busy())
        found = _preflight(self._resolved, self._before)
        warnings, refused = _sorted(self._resolved, found)
        if refused and found:
            raise InputError(found.refusal() or "")
        return (*([busy] if busy else []), *warnings)


def _preflight(
    resolved: Resolved, before: Mapping[int, LgroupMemory] | None = None
) -> Preflight | None:
    """Compare what copies need with what their lgroups have now; None with `--preflight off`.

    `before` is what they had before the set-up.
    """
    if resolved.request.preflight == "off":
        return None
    per_copy = most_bytes(resolved)
    by_copy = {placement.copy: per_copy for placement in resolved.placements}
    unstated = [
        workload.benchmark.name
        for workload in resolved.workloads
        if workload.size.memory_bytes is None and workload.size.total_memory_bytes is None
    ]
    return preflight_now(resolved.placements, by_copy, before, unstated=unstated)


def _sorted(resolved: Resolved, found: Preflight | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to warn of, and what `--preflight strict` refuses the run for."""
    if found is None:
        return (), ()
    if resolved.request.preflight == "strict":
        # Who asked for a refusal has to know what was not looked at.
        return found.unchecked, found.warnings
    return found.warnings, ()


def checked(
    resolved: Resolved, cache: Path, planned: Mapping[str, str] | None = None
) -> tuple[Needs, tuple[str, ...], tuple[str, ...]]:
    """Return what a run needs, would warn of, and would be refused for; nothing is made.

    `planned`: settings of the machine that will be set before, by name.
    """
    needs = needs_of(resolved, cache, ())
    warnings, short = _sorted(resolved, _preflight(resolved))
    refusals = (
        *(() if resolved.request.force else needs.problems),
        *(f"--preflight strict: {text}" for text in short),
        *_program_problems(resolved, planned),
    )
    return needs, warnings, refusals


def _program_problems(resolved: Resolved, planned: Mapping[str, str] | None) -> list[str]:
    """Return why programs of a run could not be found, built or given their pages."""
    checks: list[Callable[[], object]] = [
        partial(refuse_pages, resolved.request, planned),
        partial(refuse_layout, resolved.request, planned),
        partial(refuse_copies, resolved.plan, resolved.counted_events),
    ]
    if resolved.request.wrap:
        checks.append(partial(find_command, resolved.request.wrap[0], "--wrap"))
    if any(workload.benchmark.sources for workload in resolved.workloads):
        checks.append(find_compiler)
    found = [
        f"benchmark {w.benchmark.name}: {problem}"
        for w in resolved.workloads
        for problem in missing_programs(
            w.benchmark, w.size, has_setup=w.suite is not None and bool(w.suite.setup)
        )
    ]
    found += kit_problems([w.kit for w in resolved.workloads if w.kit], resolved.plan.copies)
    return list(dict.fromkeys([*found, *_failures(checks)]))


def obstacles(args: argparse.Namespace, resolved: Resolved) -> list[str]:
    """Return why lock, database or the machine's settings cannot be had."""

    def lock() -> None:
        path = default_lock_path()
        if path.exists():
            with machine_lock(path, "", share=resolved.request.share):
                pass

    def database() -> None:
        path = default_path(args.db)
        if is_there(path):
            open_store(path).close()

    def settings() -> None:
        refuse_unsettable(tuned_settings_of(resolved.request))

    return _failures([lock, database, settings])


def _failures(checks: Sequence[Callable[[], object]]) -> list[str]:
    """Return what checks raise `InputError` for."""
    found = []
    for check in checks:
        try:
            check()
        except InputError as error:
            found.append(str(error))
    return found


def secrets_for_others(database: Path, request: Request) -> tuple[str, ...]:
    """Warn where other users may read the values of secrets in a database of before."""
    redactor = Redactor()
    redactor.values([f"{name}={value}" for name, value in request.environment])
    mode = database.stat().st_mode & 0o777
    if not redactor.hidden or not mode & 0o077:
        return ()
    return (
        f"others may read {database} (mode {mode:o}), which keeps the values of "
        f"{some(list(redactor.hidden))} for `rater rerun`; `chmod 600` closes it",
    )
