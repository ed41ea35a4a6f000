"""What was seen of copies, in the database: stored, read back, migrated to, asked with SQL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rater.record.events import GateFacts, Observed
from rater.store.export import full_document
from rater.store.store import Store
from tests.support.placement_samples import BARE, FULL, MB, OBSERVED, store_run
from tests.support.stored_runs import rows


def test_what_was_seen_comes_back(store: Store) -> None:
    run = store.load(store_run(store))
    later = replace(FULL, age_ns=400_000_000, looks=1, node_bytes=((0, 120 * MB),))
    assert run.samples == (FULL, later, BARE)
    assert run.observed == OBSERVED
    assert [copy.gate for copy in run.copies] == [
        GateFacts((0, 1, 2, 4), (0, 1)),
        GateFacts(None, (1,)),
    ]


def test_samples_of_an_attempt_that_was_torn_do_not_count(store: Store) -> None:
    run = store.load(store_run(store))
    torn = replace(run, brackets=tuple(replace(it, torn=True) for it in run.brackets))
    assert torn.without_torn().samples == ()


def test_events_that_are_tried_again_are_stored_once(store: Store) -> None:
    number = store_run(store)
    store.append(number, FULL)
    assert len(store.load(number).samples) == 3


def test_a_resumed_run_was_observed_as_often_as_all_its_attempts(store: Store) -> None:
    number = store_run(store)
    store.append(number, Observed("auto", 1, 3.5, 0.03, 0.01, 0.001, ()))
    seen = store.load(number).observed
    assert seen is not None
    assert (seen.samples, seen.interval_s) == (4, 2.0)
    assert seen.cpu_s == pytest.approx(0.04)
    assert seen.share == pytest.approx(0.04 / 5)  # 2 s and 3 s of running
    assert (seen.longest_read_s, seen.unknown) == (0.002, ())
    store.append(number, Observed("auto", 0, None, 0.0, 0.0, 0.0, ()))
    assert store.load(number).observed == replace(seen, unknown=())


def test_what_was_seen_goes_with_its_run(store: Store) -> None:
    store.remove(store_run(store))
    for table in ("sample", "observed", "copy"):
        assert rows(store, f"SELECT count(*) FROM {table}") == [(0,)]


def test_the_view_says_how_much_lay_at_home(store: Store) -> None:
    number = store_run(store)
    found = rows(
        store,
        "SELECT copy, node, gate_cpus, gate_mems, looks, round(home_share, 6), "
        "round(rss_mib * 1048576), round(most_rss_mib * 1048576) "
        f"FROM placement_proof WHERE run_id = {number}",
    )
    # 30 of 120 MB in three looks, all of 120 MB in one.
    share = (30 * 3 + 120) / (120 * 4)
    assert found == [
        (0, 0, "0-2,4", "0-1", 4, round(share, 6), 121 * MB, 122 * MB),
        (1, 1, None, "1", 1, None, None, None),
    ]


def test_the_full_document_has_what_was_seen(store: Store) -> None:
    document = full_document(store.load(store_run(store)))
    assert document["samples"][0]["node_bytes"] == {"0": 30 * MB, "1": 90 * MB}
    assert document["samples"][0]["page_bytes"] == {"4096": 20 * MB, "2097152": 100 * MB}
    assert document["samples"][2]["node_bytes"] is None
    assert document["copies"][0]["gate_cpus"] == [0, 1, 2, 4]
    assert document["copies"][1]["gate_cpus"] is None
    assert "gate" not in document["copies"][0]
    assert document["observed"]["interval_s"] == 1.5
