"""Traced runs in and out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import astuple

from rater.lab.trace.tlb import (
    CATEGORIES,
    PageMapping,
    PageReuse,
    PageTrace,
    PerCategory,
    RegionMisses,
    TraceHead,
)
from rater.record.run import escape_undecodable
from rater.store.read import find_numbered
from rater.store.store import Store
from rater.system.errors import InputError
from rater.text.values import group_by_key

_HEAD = (
    "SELECT id AS number, uuid, traced_at, host, name, suite, size, engine, rate, elapsed_s "
    "FROM page_trace ORDER BY id"
)


class StoredTrace(Struct, frozen=True):
    """A trace with what it is known by."""

    number: int
    trace: PageTrace
    costs: Mapping[str, Any]  # as `run.pages.costs` returned them
    checks: Mapping[str, Sequence[float]]  # times of runs in s, by layout


def keep_trace(
    store: Store, trace: PageTrace, costs: Mapping[str, Any], *, host: str, traced_at: str
) -> int:
    """Store a trace, all or nothing; return its number."""
    with store.writing("storing a trace") as connection:
        # Not by the class: its lists are rows of other tables.
        number = connection.insert(
            "page_trace",
            uuid=str(uuid4()),
            traced_at=traced_at,
            host=host,
            command=json.dumps([escape_undecodable(word) for word in trace.command]),
            notes=json.dumps(trace.notes),
            costs=json.dumps(costs),
            **{name: getattr(trace, name) for name in _PLAIN},
        )

        def add(table: str, rows: Iterable[Sequence[object]]) -> None:
            columns = connection.execute(f"SELECT * FROM {table} LIMIT 0").description
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})", ((number, *row) for row in rows)
            )

        add("page_category", zip(CATEGORIES, trace.references, trace.stores, strict=True))
        for it in trace.reuse:
            add("page_size", [(it.page_bytes, it.error, it.error_from)])
            touched = zip(CATEGORIES, it.pages, it.faults, strict=True)
            add("page_touched", ((it.page_bytes, *row) for row in touched))
            named = zip(CATEGORIES, it.histogram, strict=True)
            add("page_reuse", ((it.page_bytes, name, *row) for name, rows in named for row in rows))
        for position, mapping in enumerate(trace.mappings):
            missed = zip(CATEGORIES, mapping.l1_misses, mapping.walks, strict=True)
            of_stores = zip(mapping.store_l1_misses, mapping.store_walks, strict=True)
            both = zip(missed, of_stores, strict=True)
            add("page_mapping", ((*mapping.sizes, *row, position, *stores) for row, stores in both))
        add("page_region_misses", map(astuple, trace.regions))
    return number


_PLAIN = (
    *("name", "suite", "size", "engine", "tlb", "rate", "elapsed_s", "native_s", "page_changes"),
    *("programs", "processes"),
)


def keep_check(store: Store, number: int, times_s: Mapping[str, Sequence[float]]) -> None:
    """Store the times of runs in s by layout, instead of those of an earlier check."""
    with store.writing("storing a check") as connection:
        connection.execute("DELETE FROM page_check WHERE trace_id = ?", (number,))
        connection.executemany(
            "INSERT INTO page_check VALUES (?, ?, ?, ?)",
            (
                (number, layout, turn, time)
                for layout, times in times_s.items()
                for turn, time in enumerate(times, 1)
            ),
        )


def trace_heads(store: Store) -> list[TraceHead]:
    """Return what traces there are, in the order they were stored."""
    with store.reading() as connection:
        return connection.read(TraceHead, _HEAD)


def find_trace(store: Store, word: str) -> int:
    """Return the number of the trace that a word means: a number, `last`, `last~1`, a uuid's start.

    Raises `InputError` where there is none.
    """
    known = [(head.number, head.uuid) for head in reversed(trace_heads(store))]
    makes, lists = "rater lab trace SUITE/BENCHMARK", "rater lab trace --list"
    return find_numbered(store.path, word, known, kind="trace", makes=makes, lists=lists)


def load_trace(store: Store, number: int) -> StoredTrace:
    """Return a trace as it was; raises `InputError` where there is none."""
    with store.reading() as connection:
        row = connection.execute("SELECT * FROM page_trace WHERE id = ?", (number,))
        names = [column[0] for column in row.description]
        found = row.fetchone()
        if found is None:
            raise InputError(f"there is no trace {number}; `rater lab trace --list` shows them")
        head = dict(zip(names, found, strict=True))

        def rows(table: str, columns: str, order: str = "1") -> list[tuple[Any, ...]]:
            query = f"SELECT {columns} FROM {table} WHERE trace_id = ? ORDER BY {order}"
            return connection.execute(query, (number,)).fetchall()

        counts = {name: more for name, *more in rows("page_category", "category, refs, stores")}
        touched = rows("page_touched", "page_bytes, category, pages, faults")
        reuse = rows("page_reuse", "page_bytes, category, distance, refs", "1, 2, 3")
        sizes = rows("page_size", "page_bytes, error, error_from")
        mappings = rows(
            "page_mapping",
            "position, heap_bytes, mmap_bytes, static_bytes, category, l1_misses, walks, "
            "coalesce(store_l1_misses, 0), coalesce(store_walks, 0)",
        )
        regions = connection.read_table(
            RegionMisses, "page_region_misses", order="category, region", trace_id=number
        )
        times: dict[str, list[float]] = {}
        for layout, time in rows("page_check", "layout, elapsed_s", "layout, round"):
            times.setdefault(layout, []).append(time)
    histograms = group_by_key((row[:2], row[2:]) for row in reuse)
    trace = PageTrace(
        **{name: head[name] for name in _PLAIN},
        command=tuple(json.loads(head["command"])),
        notes=tuple(json.loads(head["notes"])),
        references=tuple(counts[name][0] for name in CATEGORIES),
        stores=tuple(counts[name][1] for name in CATEGORIES),
        reuse=tuple(
            PageReuse(
                page_bytes=size,
                faults=_of(touched, (size,), 3),
                pages=_of(touched, (size,), 2),
                histogram=tuple(tuple(histograms.get((size, name), ())) for name in CATEGORIES),
                error=error,
                error_from=far,
            )
            for size, error, far in sizes
        ),
        mappings=tuple(
            PageMapping(*key[1:], *(_of(mappings, key, place) for place in range(5, 9)))
            for key in dict.fromkeys(row[:4] for row in mappings)
        ),
        regions=regions,
    )
    return StoredTrace(number, trace, json.loads(head["costs"]), times)


def _of(rows: Iterable[Sequence[Any]], key: tuple[Any, ...], column: int) -> PerCategory:
    found = {row[len(key)]: row[column] for row in rows if tuple(row[: len(key)]) == key}
    return tuple(found[name] for name in CATEGORIES)
