"""Load a fleet from its index and compare its hosts."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.fleet.hosts import compare_fleet, results_of
from rater.analysis.fleet.model import FleetCompared, HostResult
from rater.errors import InputError
from rater.record.fleet import fleet_word
from rater.store.fleet.index import fleet_number, runs_of, settings_of, times_of
from rater.store.store import Store


def results(store: Store, fleet: int) -> list[HostResult]:
    """Return what counts of every host of a fleet."""
    with store.reading() as connection:
        runs = runs_of(connection, fleet)
        times = times_of(connection, fleet)
        settings = settings_of(connection, (run.setting for run in runs))
    return results_of(runs, times, settings)


def compared(store: Store, fleet: int) -> FleetCompared:
    """Return the hosts of a fleet, compared kind by kind."""
    return compare_fleet(results(store, fleet))


def one_fleet(store: Store, words: Sequence[str], command: str) -> int:
    """Return the number of the fleet that a command was given; raises `InputError` for several."""
    if len(words) != 1:
        raise InputError(f"{' '.join(words)}: one fleet at a time: rater {command} fleet:N")
    with store.reading() as connection:
        return fleet_number(connection, fleet_word(words[0]))
