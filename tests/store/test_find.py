"""Runs can be named, by number, uuid, place from the last or tag, and removed."""

from dataclasses import replace

import pytest

from rater.errors import InputError
from rater.record.events import Noted
from rater.store.store import Store
from tests.support.example_events import ended, over, phase
from tests.support.stored_runs import GONE, begin, rows, with_uuid


def test_a_run_is_found_by_number_by_the_start_of_its_uuid_and_from_the_last(store: Store) -> None:
    with pytest.raises(InputError, match="no runs stored yet; `rater run` makes one"):
        store.find("last")
    for uuid in ("aabb", "aacc", "bbbb", "aa"):
        begin(store, with_uuid(uuid), GONE)
    named = ("2", "0002", "aac", "b", "last", "last~0", "last~1", "last~3", "aa")
    assert [store.find(name) for name in named] == [2, 2, 2, 3, 4, 4, 3, 1, 4]


def test_few_digits_are_a_number_and_eight_the_start_of_a_uuid_where_no_run_has_that_number(
    store: Store,
) -> None:
    for uuid in ("20000000-1", "00000003-2", "99999999-3"):
        begin(store, with_uuid(uuid), GONE)
    named = ("2", "0000000002", "20000000", "99999999", "00000003")
    assert [store.find(name) for name in named] == [2, 2, 1, 3, 3]
    for name in ("20", "9", "2000000"):
        with pytest.raises(InputError, match=f"'{name}': no such run"):
            store.find(name)


def test_a_tag_means_all_runs_that_have_it(store: Store) -> None:
    for uuid, tags in (("a", (("k", "v=1"),)), ("b", ()), ("c", (("k", "v=1"), ("x", "")))):
        begin(store, replace(with_uuid(uuid), tags=tags), GONE)
    assert store.find_all("tag:k=v=1") == (1, 3)
    assert store.find_all("tag:x=") == (3,)
    assert store.find("tag:x=") == 3
    assert [store.find_all(name) for name in ("2", "last~1", "a")] == [(2,), (2,), (1,)]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            "tag:k=v",
            r"tag:k=v: 7 runs have this tag.*7 \(g\), 6 \(f\), .* and 2 more; take the num",
        ),
        ("tag:k=w", "no run in .* has this tag"),
        ("tag:K=v", "no run in .* has this tag"),
        ("tag:\udcff=v", "no run in .* has this tag"),
        ("tag:k", "'tag:k': expected tag:KEY=VALUE"),
        ("tag:=v", "expected tag:KEY=VALUE"),
    ],
)
def test_where_one_run_is_wanted_a_tag_of_none_or_several_is_refused(
    store: Store, spec: str, says: str
) -> None:
    for uuid in "abcdefg":
        begin(store, replace(with_uuid(uuid), tags=(("k", "v"),)), GONE)
    with pytest.raises(InputError, match=says):
        store.find(spec)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("aa", r"the uuids of 2 runs begin so: 2 \(aacc\), 1 \(aabb\)"),
        ("7", "no such run in .*up to 2.*rater list"),
        ("zz", "no such run"),
        ("", "no such run"),
        ("last~2", "only 2 runs are stored"),
        ("last~", "no such run"),
        ("9" * 30, "no such run"),
        ("٢", "no such run"),
        ("%", "no such run"),
    ],
)
def test_a_name_that_means_no_run_or_several_is_refused(store: Store, spec: str, says: str) -> None:
    for uuid in ("aabb", "aacc"):
        begin(store, with_uuid(uuid), GONE)
    with pytest.raises(InputError, match=says):
        store.find(spec)


def test_a_removed_run_takes_all_its_rows_along_and_its_number_does_not_come_back(
    store: Store,
) -> None:
    for uuid in ("a", "b"):
        number = begin(store, replace(with_uuid(uuid), tags=(("k", "v"),), warnings=("w",)), GONE)
        for event in (phase(), ended(0, 1.0), over(0.0, 1.0), Noted("n")):
            store.append(number, event)
    store.remove(2)
    assert [head.run for head in store.runs()] == [1]
    assert len(store.load(1).copies) == 1
    store.remove(1)
    tables = rows(store, "SELECT name FROM pragma_table_list WHERE type = 'table'")
    for (table,) in tables:
        if not str(table).startswith("sqlite_") and table != "removed":
            assert rows(store, f"SELECT count(*) FROM {table}") == [(0,)], table
    assert rows(store, "SELECT uuid, kind FROM removed") == [("a", "run"), ("b", "run")]
    assert begin(store, with_uuid("c")) == 3


def test_several_runs_are_removed_all_or_none(store: Store) -> None:
    begin(store, with_uuid("a"), GONE)
    begin(store, with_uuid("b"))
    begin(store, with_uuid("c"), GONE)
    with pytest.raises(InputError, match="run 2 is still running"):
        store.remove(1, 2)
    assert [head.run for head in store.runs()] == [1, 2, 3]
    store.remove(1, 3)
    assert [head.run for head in store.runs()] == [2]
    with pytest.raises(InputError, match="no run 3 any more"):  # it went away meanwhile
        store.load(3)
