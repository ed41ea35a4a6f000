"""Facts of machines in which several runs differ: a channel that is empty in one of them; pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rater.analysis.compare.conditions import setting_label
from rater.settings.known import HARDWARE
from rater.text.values import group_by_key


class HardwareDifference(Struct, frozen=True):
    """A fact that is not the same in all runs."""

    what: str  # "memory slot P0 CHANNEL H/DIMM 0"
    values: tuple[tuple[str, tuple[int, ...]], ...]  # each value, and the runs that have it


def hardware_differences(
    settings_by_run: Mapping[int, Mapping[str, str]],
) -> tuple[HardwareDifference, ...]:
    """Return the facts of hardware that differ between runs.

    A run that does not know a fact tells nothing of it: most of them only root can read.
    """
    names = sorted({name for settings in settings_by_run.values() for name in settings})
    differing = []
    for name in names:
        known = [(it[name], run) for run, it in settings_by_run.items() if name in it]
        values = tuple((value, tuple(runs)) for value, runs in group_by_key(known).items())
        if name.startswith(HARDWARE) and len(values) > 1:
            differing.append(HardwareDifference(setting_label(name), values))
    return tuple(differing)
