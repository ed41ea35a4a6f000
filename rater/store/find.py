"""Which runs RUN means: `7`, the start of a uuid, `last`, `last~1`, `tag:K=V`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.record.fleet import is_fleet_word
from rater.record.run import storable
from rater.text.words import some

type _Known = tuple[int, str]  # number and uuid of a run

_LAST = re.compile(r"last(?:~([0-9]{1,9}))?", re.ASCII)
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
# From here on digits may be the start of a uuid as well. Shorter ones never are: after `rater rm 7`
# another `rater rm 7` would remove whichever run has a uuid that happens to begin with 7.
_DIGITS_OF_A_UUID = 8
_LEAST_OF_A_UUID = 4  # of a sweep or a fleet, of which there are few
_MOST_DIGITS = 18  # SQLite's numbers end at 2^63 - 1
TAG = "tag:"
_MOST_NAMED = 5
_LARGEST_SIGN = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list is of; what is not given narrows nothing."""

    tags: tuple[tuple[str, str | None], ...] = ()  # key and value; no value: any
    host: str | None = None  # a name, or a pattern with * and ?
    suite: str | None = None  # the same
    since: str | None = None  # UTC, ISO 8601 with "Z": begun then or later


def matching(
    connection: sqlite3.Connection, wanted: RunFilter, limit: int | None = None
) -> tuple[tuple[int, ...], int]:
    """Return the numbers of the latest `limit` runs (None: all), and how many match in all."""
    conditions, values = [], []
    for name, value in wanted.tags:
        conditions.append(
            "run.id IN (SELECT run_id FROM tag WHERE name = ?"
            + (")" if value is None else " AND value = ?)")
        )
        values += [name] if value is None else [name, value]
    if wanted.host is not None:
        conditions.append(
            f"run.host_id IN (SELECT id FROM host WHERE hostname {_like(wanted.host)})"
        )
        values.append(wanted.host)
    if wanted.suite is not None:
        conditions.append(f"run.suite {_like(wanted.suite)}")
        values.append(wanted.suite)
    if wanted.since is not None:
        conditions.append("coalesce(run.started_at, run.stored_at) >= ?")
        values.append(wanted.since)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    (count,) = connection.execute(f"SELECT count(*) FROM run {where}", values).fetchone()
    rows = connection.execute(
        f"SELECT run.id FROM run {where} ORDER BY run.id DESC LIMIT ?",
        (*values, -1 if limit is None else limit),
    )
    return tuple(reversed([number for (number,) in rows])), count


def _like(text: str) -> str:
    """Return how a column is compared: an index finds what is no pattern."""
    return "GLOB ?" if set(text) & set("*?[") else "= ?"


def find_one(connection: sqlite3.Connection, path: Path, spec: str) -> int:
    """Return the number of the one run that `spec` means.

    Raises `InputError` when nothing, or more than one run, is meant; `path` is
    what it calls the database.
    """
    found = find_all(connection, path, spec)
    if len(found) == 1:
        return found[0]
    named = _named([_uuid_of(connection, number) for number in reversed(found)])
    raise InputError(
        f"{spec}: {len(found)} runs have this tag, and one is wanted: {named}; "
        "take the number of one of them"
    )


def find_all(connection: sqlite3.Connection, path: Path, spec: str) -> tuple[int, ...]:
    """Return the numbers of the runs that `spec` means, ascending; several only for `tag:K=V`.

    Raises `InputError` when nothing, or otherwise more than one run, is meant.
    """
    if is_fleet_word(spec):
        raise InputError(
            f"{spec}: a run in the archive of a fleet can be read (show, divots, plot, report, "
            "compare, scale, export) and neither removed nor run again"
        )
    (newest,) = connection.execute("SELECT max(id) FROM run").fetchone()
    if newest is None:
        raise InputError(f"{path}: no runs stored yet; `rater run` makes one")
    if spec.startswith(TAG):
        return _with_tag(connection, path, spec)
    last = _LAST.fullmatch(spec)
    if last:
        found = connection.execute(
            "SELECT id FROM run ORDER BY id DESC LIMIT 1 OFFSET ?", (int(last[1] or 0),)
        ).fetchone()
        if found is None:
            (stored,) = connection.execute("SELECT count(*) FROM run").fetchone()
            raise InputError(f"{spec}: only {stored} runs are stored in {path}")
        return tuple(found)
    return (_by_number_or_uuid(connection, newest, path, spec),)


def number_meant(word: str, known: Sequence[_Known]) -> int | None:
    """Return the number of the one sweep, or fleet, of these (the last first) that `word` means.

    A number, `last`, `last~1` or the start of a uuid; None where it means none, or several.
    """
    last = _LAST.fullmatch(word)
    if last:
        back = int(last[1] or 0)
        return known[back][0] if back < len(known) else None
    if _DIGITS.fullmatch(word) and len(word) <= _MOST_DIGITS:
        number = int(word)
        if any(number == one for one, _ in known):
            return number
    if len(word) < _LEAST_OF_A_UUID:
        return None
    meant = [number for number, uuid in known if uuid.startswith(word)]
    return meant[0] if len(meant) == 1 else None


def _uuid_of(connection: sqlite3.Connection, number: int) -> _Known:
    known: _Known = connection.execute(
        "SELECT id, uuid FROM run WHERE id = ?", (number,)
    ).fetchone()
    return known


def _by_number_or_uuid(connection: sqlite3.Connection, newest: int, path: Path, spec: str) -> int:
    only_digits = _DIGITS.fullmatch(spec) is not None
    if only_digits and len(spec) <= _MOST_DIGITS:
        number = int(spec)
        if connection.execute("SELECT 1 FROM run WHERE id = ?", (number,)).fetchone():
            return number
    may_be_uuid = spec and not (only_digits and len(spec) < _DIGITS_OF_A_UUID)
    meant: list[_Known] = []
    if may_be_uuid:
        # A range of the index on uuids, the last one first.
        meant = connection.execute(
            "SELECT id, uuid FROM run WHERE uuid >= ? AND uuid < ? ORDER BY id DESC",
            (storable(spec), f"{storable(spec)}{_LARGEST_SIGN}"),
        ).fetchall()
    exact = [number for number, uuid in meant if uuid == spec]
    if exact or len(meant) == 1:
        return exact[0] if exact else meant[0][0]
    if meant:
        raise InputError(f"{spec}: the uuids of {len(meant)} runs begin so: {_named(meant)}")
    raise InputError(
        f"{spec!r}: no such run in {path}; RUN is a number up to {newest}, the start of a "
        f"uuid (where that is all digits, {_DIGITS_OF_A_UUID} or more), `last`, `last~1` or "
        "`tag:K=V`, and `rater list` shows them"
    )


def _with_tag(connection: sqlite3.Connection, path: Path, spec: str) -> tuple[int, ...]:
    name, equals, value = storable(spec).removeprefix(TAG).partition("=")
    if not equals or not name.strip():
        raise InputError(f"{spec!r}: expected tag:KEY=VALUE, as `rater run --tag` was given it")
    rows = connection.execute(
        "SELECT run_id FROM tag WHERE name = ? AND value = ? ORDER BY run_id", (name.strip(), value)
    )
    found = tuple(number for (number,) in rows)
    if not found:
        raise InputError(
            f"{spec!r}: no run in {path} has this tag; `rater list --json` shows the tags"
        )
    return found


def _named(runs: Sequence[_Known]) -> str:
    return some([f"{number} ({uuid})" for number, uuid in runs], _MOST_NAMED)
