"""`rater rm sweep:N`: a sweep goes with every run that was made for it, and with nothing else."""

import json
from dataclasses import replace
from pathlib import Path

from rater.plan.sweep import AxisKind, SweepSlot
from rater.record.events import RunEnded
from rater.record.run import RunStatus
from rater.store.store import Store, open_store
from rater.store.sweeps import SweepPoint, create_slot_run, end_sweep, new_sweep
from tests.support.calls import Rater, rows
from tests.support.example_events import SWEEP_ASKED, run_of
from tests.support.stored_runs import HOST, PUS


def sweep(store: Store, name: str, *, ended: bool = True) -> int:
    """One point with two runs: the first did not get to its end, the second is in its place."""
    point = SweepPoint(0, "thp=never", (("thp", "never"),), "{}", None)
    slot = SweepSlot(1, 1, 0)
    asked = replace(SWEEP_ASKED, uuid=name)
    number = new_sweep(store, asked, [("thp", AxisKind.SETTING)], [point], [slot])
    for place in range(2):
        made = replace(run_of(2), uuid=f"{name}{place}")
        run = create_slot_run(store, number, slot, made, HOST, settings=(), pus=PUS, phases=1)
        store.append(run, RunEnded(RunStatus.INTERRUPTED, None))
    if ended:
        end_sweep(store, number, RunStatus.COMPLETE, None, SWEEP_ASKED.started_at)
    return number


def test_a_sweep_takes_all_its_runs_along_and_no_others(database: Path, rater: Rater) -> None:
    with open_store(database) as store:
        for name in ("aa", "bb"):  # runs 1 and 2, 3 and 4
            sweep(store, name)
        assert sweep(store, "cc") == 3  # runs 5 and 6
    status, out, _ = rater("rm", "6", "sweep:last", "sweep:1", "--yes")
    assert status == 0
    assert out.splitlines() == [
        *(f"run {number} removed" for number in (6, 5, 1, 2)),
        *(f"sweep {number} removed" for number in (3, 1)),
    ]
    assert rows("SELECT id FROM run") == [(3,), (4,)]
    assert rows("SELECT DISTINCT sweep_id FROM sweep_slot") == [(2,)]
    out = rater("rm", "sweep:2", "--yes", "--json")[1]
    assert json.loads(out) == {"rater": 1, "removed": [3, 4], "sweeps": [2]}
    for table in ("run", "host", "sweep", "sweep_axis", "sweep_point", "sweep_value", "sweep_slot"):
        assert rows(f"SELECT count(*) FROM {table}") == [(0,)], table
    status, _, err = rater("rm", "sweep:2", "--yes")
    assert (status, "no sweeps stored yet" in err) == (2, True)


def test_a_sweep_that_still_runs_is_not_removed_and_nothing_else_goes(
    database: Path, rater: Rater
) -> None:
    with open_store(database) as store:
        sweep(store, "aa")
        sweep(store, "bb", ended=False)
    status, out, err = rater("rm", "1", "sweep:1", "sweep:2", "--yes")
    assert (status, out) == (2, "")
    assert "sweep 2 is still running" in err
    assert rows("SELECT count(*) FROM run") == [(4,)]
    assert rows("SELECT count(*) FROM sweep") == [(2,)]
