"""What was counted, in the database and through documents."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from rater.errors import InputError
from rater.plan.counter_tables import TABLE_TEXT, counter_tables
from rater.record.events import CopyCounted, EventCount, PhaseCounted
from rater.store.export import full_document, observations_document, write_csv
from rater.store.store import Store, open_store
from rater.workflow.results.columns import columns_of_copies
from tests.support.example_events import ended, over, phase, run_of
from tests.support.observations import observed, read
from tests.support.stored_runs import HOST, PUS, query_file

CYCLES = EventCount("intel-skx:numa", "cycles", 300, 10, 10)
REMOTE = EventCount("intel-skx:numa", "dram_remote", None, 10, 0)
COST = PhaseCounted(0, user_only=True, copies=1, open_ns=3, read_ns=2, close_ns=1)
TABLE = (f"{TABLE_TEXT}intel-skx", "[pmu]\n")


def counted_run(store: Store) -> int:
    number = store.create_run(run_of(2), HOST, [TABLE], PUS)
    store.append(number, phase(), ended(0, 2.0), ended(1, 2.0))
    store.append(number, CopyCounted(0, 1, 0, (CYCLES, REMOTE)), COST, over(0.0, 2.0))
    return number


def test_counts_come_back_with_their_copy_and_cost(store: Store) -> None:
    run = store.load(counted_run(store))
    assert [copy.counts for copy in run.copies] == [(), (CYCLES, REMOTE)]
    assert run.counted == (COST,)
    assert query_file(store, "copy_counts")[0] == (0, 1, 0, "intel-skx:numa", "cycles", 300, 10, 10)
    document = full_document(run)
    assert document["copies"][1]["counts"][0]["value"] == 300
    assert document["counted"][0]["open_ns"] == 3


def test_an_observations_document_takes_counts_and_tables_along(
    store: Store, tmp_path: Path
) -> None:
    document = observations_document(store.load(counted_run(store)))
    with open_store(tmp_path / "other.db") as other:
        number, _ = other.add(read(document))
        run = other.load(number)
    assert [copy.counts for copy in run.copies] == [(), (CYCLES, REMOTE)]
    assert counter_tables(run.settings) == {"intel-skx": "[pmu]\n"}
    assert observations_document(run)["observations"][1]["counts"] == [
        {
            "group_name": "intel-skx:numa",
            "event": event,
            "value": value,
            "enabled_ns": 10,
            "running_ns": running,
        }
        for event, value, running in (("cycles", 300, 10), ("dram_remote", None, 0))
    ]


def test_csv_has_a_column_for_each_event_scaled_where_it_was_counted_in_part(store: Store) -> None:
    number = store.create_run(run_of(2), HOST, [TABLE], PUS)
    store.append(number, phase(), ended(0, 2.0), ended(1, 2.0))
    half = EventCount("software:software", "minor_faults", 7, 10, 5)
    never = EventCount("software:software", "migrations", None, 10, 5)
    store.append(number, CopyCounted(0, 1, 0, (CYCLES, half, never)), COST, over(0.0, 2.0))
    out = io.StringIO()
    write_csv(store.load(number), out)
    heading, *rows = (line.split(",")[-5:] for line in out.getvalue().splitlines())
    numa, software = "intel-skx:numa", "software:software"
    assert heading == [
        *(f"{numa} share_counted", f"{numa} cycles"),
        *(f"{software} share_counted", f"{software} migrations", f"{software} minor_faults"),
    ]
    assert rows == [["", "", "", "", ""], ["1.0", "300", "0.5", "", "14.0"]]


def test_an_event_called_like_a_time_is_no_time_in_csv(store: Store) -> None:
    number = store.create_run(run_of(1), HOST, [TABLE], PUS)
    waits = EventCount("mine:stalls", "waits_s", 300, 10, 10)
    store.append(number, phase(), ended(0, 2.0), CopyCounted(0, 0, 0, (waits,)), over(0.0, 2.0))
    run, out = store.load(number), io.StringIO()
    write_csv(run, out)
    assert out.getvalue().splitlines()[1].endswith(",1.0,300")
    assert columns_of_copies(run)["mine:stalls waits_s"].tolist() == [300]


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        [{"event": "cycles"}],
        [{"group_name": "g", "event": "e", "value": 2**64, "enabled_ns": 0, "running_ns": 0}],
        [{"group_name": "", "event": "e", "value": 1, "enabled_ns": 0, "running_ns": 0}],
        [{"group_name": "g", "event": "e", "value": -1, "enabled_ns": 0, "running_ns": 0}],
    ],
)
def test_counts_of_a_document_are_read_strictly(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"observations\[0\]\W+counts"):
        read(observed({"counts": wrong}))
