"""Checks of a planned run: one list of refusals, which the dry run shows and the run raises.

A plan has refusals of its own (`RunPlan.refusals`), such as more copies than there is room for.
Refusals of a later step, as programs are built and free memory is read, are in `prepare.py`; the
dry run calls the same functions of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from rater.run.launcher.limits import refuse_copies
from rater.system.errors import InputError
from rater.workflow.run.resolve import RunPlan
from rater.workflow.run.workload import refuse_pages

type PlannedSettings = Mapping[str, str] | None  # of the machine, set before the run: name to value


class RunCheck(Struct, frozen=True, kw_only=True):
    """A check of a planned run."""

    refuse: Callable[[RunPlan, PlannedSettings], None]  # raises `InputError`
    # Whether it looks at settings of the machine, which the run may set once it has the machine.
    looks_at_settings: bool = False


def _refuse_copies(resolved: RunPlan, _: PlannedSettings) -> None:
    refuse_copies(resolved.plan, resolved.counted_events)


def _refuse_pages(resolved: RunPlan, planned: PlannedSettings) -> None:
    refuse_pages(resolved.request, planned)


CHECKS = (
    RunCheck(refuse=_refuse_copies),
    RunCheck(refuse=_refuse_pages, looks_at_settings=True),
)


def refuse_plan(resolved: RunPlan) -> None:
    """Raise `InputError` for a run that is known not to be possible, whatever settings are."""
    if resolved.refusals:
        raise InputError("\n".join(resolved.refusals))
    for check in CHECKS:
        if not check.looks_at_settings:
            check.refuse(resolved, None)


def refuse_run(resolved: RunPlan) -> None:
    """Raise `InputError` for a run that is not possible with the settings in force now."""
    refuse_plan(resolved)
    for check in CHECKS:
        if check.looks_at_settings:
            check.refuse(resolved, None)


def checks_for_dry_run(resolved: RunPlan, planned: PlannedSettings) -> list[Callable[[], object]]:
    """Return every check, to be called; each raises `InputError` for what it refuses.

    `planned`: settings of the machine that will be set before the run.
    """
    return [partial(check.refuse, resolved, planned) for check in CHECKS]
