"""Facts of machines in which several runs differ: a channel that is empty in one of them; pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from rater.analysis.compare.conditions import own_words, setting_label
from rater.settings.known import COMMAND_LINE, FIXED
from rater.text.values import group_by_key


class HardwareDifference(Struct, frozen=True):
    """A fact that is not the same in all runs."""

    what: str  # "memory slot P0 CHANNEL H/DIMM 0"
    values: tuple[tuple[str, tuple[int, ...]], ...]  # each value, and the runs that have it


_HOST = "host."
_HOST_WORDS = {"host.product": "product", "host.cpu_model": "CPU model"}


def hardware_differences(
    facts_by_run: Mapping[int, Mapping[str, str]],
) -> tuple[HardwareDifference, ...]:
    """Return the facts of machines that differ between runs.

    Facts are settings, and `host.microcode` and its like. A run that does not know a fact tells
    nothing of it: most of them only root can read.
    """
    names = sorted({name for facts in facts_by_run.values() for name in facts})
    differing = []
    for name in names:
        if not name.startswith((*FIXED, _HOST)):
            continue
        known = {run: facts[name] for run, facts in facts_by_run.items() if name in facts}
        by_value = group_by_key((value, run) for run, value in known.items())
        if len(by_value) < 2:
            continue
        values = own_words([*by_value]) if name == COMMAND_LINE else [*by_value]
        shown = [value or "none of these words" for value in values]
        label = name.removeprefix(_HOST) if name.startswith(_HOST) else setting_label(name)
        differing.append(
            HardwareDifference(
                _HOST_WORDS.get(name, label),
                tuple(
                    (value, tuple(runs))
                    for value, runs in zip(shown, by_value.values(), strict=True)
                ),
            )
        )
    return tuple(differing)
