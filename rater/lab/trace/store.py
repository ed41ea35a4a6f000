"""Traced runs written to and read from the database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import astuple

from rater.lab.trace.tlb import (
    CATEGORIES,
    CheckTimes,
    PageMapping,
    PageReuse,
    PageTrace,
    RegionMisses,
    TraceHead,
    WalkGap,
    WalkOrder,
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
    """A trace as the database has it: with its number, the costs of misses, and times of runs."""

    number: int
    trace: PageTrace
    costs: Mapping[str, Any]  # document of `lab.trace.tracer.machine_costs`
    checks: CheckTimes  # of runs; empty where there were none


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
        for reuse in trace.reuse:
            add("page_size", [(reuse.page_bytes, reuse.error, reuse.error_from)])
            touched = zip(CATEGORIES, reuse.pages, reuse.faults, strict=True)
            add("page_touched", ((reuse.page_bytes, *row) for row in touched))
            named = zip(CATEGORIES, reuse.histogram, strict=True)
            add(
                "page_reuse",
                ((reuse.page_bytes, category, *row) for category, rows in named for row in rows),
            )
        for position, mapping in enumerate(trace.mappings):
            missed = zip(CATEGORIES, mapping.l1_misses, mapping.walks, strict=True)
            of_stores = zip(mapping.store_l1_misses, mapping.store_walks, strict=True)
            both = zip(missed, of_stores, strict=True)
            add("page_mapping", ((*mapping.sizes, *row, position, *stores) for row, stores in both))
            add("page_walk", ((position, *astuple(gap)) for gap in mapping.gaps))
        add("page_region_misses", map(astuple, trace.regions))
    return number


_PLAIN = (
    *("name", "suite", "size", "engine", "tlb", "rate", "elapsed_s", "native_s"),
    *("native_cpu_s", "page_changes", "programs", "processes"),
)


def keep_check(
    store: Store, number: int, times: CheckTimes, costs: Mapping[str, Any] | None = None
) -> None:
    """Store the times of runs instead of those of an earlier check.

    `costs`: what misses cost beside these runs, instead of the earlier ones.
    """
    with store.writing("storing a check") as connection:
        if costs is not None:
            connection.execute(
                "UPDATE page_trace SET costs = ? WHERE id = ?", (json.dumps(costs), number)
            )
        connection.execute("DELETE FROM page_check WHERE trace_id = ?", (number,))
        connection.executemany(
            "INSERT INTO page_check VALUES (?, ?, ?, ?, ?)",
            (
                (number, layout, turn, cpu_s, user_s)
                for layout, every_cpu_s in times.cpu_s.items()
                for turn, (cpu_s, user_s) in enumerate(
                    zip_longest(every_cpu_s, times.user_s.get(layout, ())), 1
                )
            ),
        )


def trace_heads(store: Store) -> list[TraceHead]:
    """Return the stored traces without their counts, in the order they were stored."""
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
    """Return a stored trace; raises `InputError` when there is none of this number."""
    with store.reading() as connection:
        cursor = connection.execute("SELECT * FROM page_trace WHERE id = ?", (number,))
        columns = [column[0] for column in cursor.description]
        row = cursor.fetchone()
        if row is None:
            raise InputError(f"there is no trace {number}; `rater lab trace --list` shows them")
        head = dict(zip(columns, row, strict=True))

        def read_rows(table: str, selected: str, order: str = "1") -> list[tuple[Any, ...]]:
            query = f"SELECT {selected} FROM {table} WHERE trace_id = ? ORDER BY {order}"
            return connection.execute(query, (number,)).fetchall()

        counts = {
            category: (references, stores)
            for category, references, stores in read_rows("page_category", "category, refs, stores")
        }
        trace = PageTrace(
            **{name: head[name] for name in _PLAIN},
            command=tuple(json.loads(head["command"])),
            notes=tuple(json.loads(head["notes"])),
            references=tuple(counts[category][0] for category in CATEGORIES),
            stores=tuple(counts[category][1] for category in CATEGORIES),
            reuse=_load_reuse(read_rows),
            mappings=_load_mappings(read_rows),
            regions=connection.read_table(
                RegionMisses, "page_region_misses", order="category, region", trace_id=number
            ),
        )
        checked = read_rows("page_check", "layout, elapsed_s, user_s", "layout, round")
    times = CheckTimes(
        cpu_s=group_by_key((layout, cpu_s) for layout, cpu_s, _ in checked),
        user_s=group_by_key(
            (layout, user_s) for layout, _, user_s in checked if user_s is not None
        ),
    )
    return StoredTrace(number=number, trace=trace, costs=json.loads(head["costs"]), checks=times)


# Table, columns and order of the rows of one trace.
type _ReadRows = Callable[..., list[tuple[Any, ...]]]


def _load_reuse(read_rows: _ReadRows) -> tuple[PageReuse, ...]:
    histograms = group_by_key(
        ((size, category), (distance, references))
        for size, category, distance, references in read_rows(
            "page_reuse", "page_bytes, category, distance, refs", "1, 2, 3"
        )
    )
    touched = {
        (size, category): (pages, faults)
        for size, category, pages, faults in read_rows(
            "page_touched", "page_bytes, category, pages, faults"
        )
    }
    return tuple(
        PageReuse(
            page_bytes=size,
            faults=tuple(touched[size, category][1] for category in CATEGORIES),
            pages=tuple(touched[size, category][0] for category in CATEGORIES),
            histogram=tuple(tuple(histograms.get((size, category), ())) for category in CATEGORIES),
            error=error,
            error_from=error_from,
        )
        for size, error, error_from in read_rows("page_size", "page_bytes, error, error_from")
    )


def _load_mappings(read_rows: _ReadRows) -> tuple[PageMapping, ...]:
    gaps = group_by_key(
        (position, WalkGap(order=WalkOrder(order), octave=octave, loads=loads, stores=stores))
        for position, order, octave, loads, stores in read_rows(
            "page_walk", "position, walk_order, octave, loads, stores", "1, 2, 3"
        )
    )
    misses_by_mapping: dict[tuple[int, ...], dict[str, tuple[int, ...]]] = {}
    for position, heap_bytes, mmap_bytes, static_bytes, category, *misses in read_rows(
        "page_mapping",
        "position, heap_bytes, mmap_bytes, static_bytes, category, l1_misses, walks, "
        "coalesce(store_l1_misses, 0), coalesce(store_walks, 0)",
    ):
        mapping = (position, heap_bytes, mmap_bytes, static_bytes)
        misses_by_mapping.setdefault(mapping, {})[category] = tuple(misses)
    return tuple(
        PageMapping(
            heap_bytes=heap_bytes,
            mmap_bytes=mmap_bytes,
            static_bytes=static_bytes,
            l1_misses=tuple(misses[category][0] for category in CATEGORIES),
            walks=tuple(misses[category][1] for category in CATEGORIES),
            store_l1_misses=tuple(misses[category][2] for category in CATEGORIES),
            store_walks=tuple(misses[category][3] for category in CATEGORIES),
            gaps=tuple(gaps.get(position, ())),
        )
        for (position, heap_bytes, mmap_bytes, static_bytes), misses in misses_by_mapping.items()
    )
