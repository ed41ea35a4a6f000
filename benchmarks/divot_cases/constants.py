"""`python -m benchmarks.divot_cases.constants --cache FILE`: what each constant of the model does.

Each number of `rater/analysis/divots/model/limits.py` is made 0.7 and 1.4 times as large (a count:
by one at least; a share stays one), and with `--extremes` next to nothing and next to everything,
which puts the rule out of force. All others stay. The same runs are judged each time: a seed of
made runs, and the shared cases with a known truth where they lie beside the checkout. A constant
without effect there serves a rule that nothing here shows: remove both, or write down why not.

What a change does is kept in the cache, by the detector's source: a run goes on where it
ended, and `--share 1/2` and `--share 2/2` divide it between two processes.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import importlib.util
import json
import math
import multiprocessing
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rater
from benchmarks.divot_cases.cases import Case, make
from benchmarks.divot_cases.direct import (
    findings_in,
    for_scorer,
    scorer,
    shared_cases,
    table_of_case,
)
from benchmarks.divot_cases.scoring import judge
from rater.analysis.divots.model.table import Table
from rater.show.results.to_json import divot_rows
from tests.support.places import DIVOT_CASES

LIMITS = "rater.analysis.divots.model.limits"
_DETECTOR = Path(rater.__file__).parent / "analysis/divots"
_LOWER, _HIGHER, _NOTHING, _EVERYTHING = 0.7, 1.4, 1e-6, 1e6

type Value = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A constant with another value; no name: all as they are."""

    name: str
    how: str  # such as x0.7
    value: Value


@dataclass(frozen=True, slots=True)
class Told:
    """What was said of one run."""

    found: str  # of each truth that is demanded: its name where it was found
    false: int
    innocent: bool
    words: str  # digest of kinds, places, benchmarks and iterations


@dataclass(frozen=True, slots=True)
class Difference:
    """In how many runs of two evaluations the verdict is another one."""

    runs: int
    found: tuple[int, int]  # truths more and less
    false: tuple[int, int]
    innocents: tuple[int, int]  # runs that accuse one, more and less
    words: int  # runs of which anything else is said

    @property
    def verdicts(self) -> int:
        return sum(self.found) + sum(self.false) + sum(self.innocents)

    def __str__(self) -> str:
        pairs = {"found": self.found, "false": self.false, "innocents": self.innocents}
        told = [f"{name} +{more} -{less}" for name, (more, less) in pairs.items() if more or less]
        return ", ".join([*told, f"{self.words} told otherwise"]) if self.words else "nothing"


def constants() -> dict[str, Value]:
    """Return the numbers of the model by their names; the model is not loaded for that."""
    found = importlib.util.find_spec(LIMITS)
    assert found and found.origin
    return {name: it for name, it in runpy.run_path(found.origin).items() if name.isupper()}


def changes(values: Mapping[str, Value], *, extremes: bool) -> Iterator[Change]:
    """Return what to try of each constant."""
    factors = (_NOTHING, _EVERYTHING) if extremes else (_LOWER, _HIGHER)
    for name, value in values.items():
        for factor in factors:
            if isinstance(value, tuple):
                new: Value = tuple(_scaled(it, factor) for it in value)
            else:
                new = _scaled(value, factor)
            if new != value:
                yield Change(name, f"x{factor:g}", new)


def _scaled(value: float, factor: float) -> float:
    if isinstance(value, int):
        other = round(value * factor)
        return max(0, min(other, value - 1) if factor < 1 else max(other, value + 1))
    if 0 < value < 1 and factor > 1 and value * factor > (1 + value) / 2:
        return (1 + value) / 2 if factor < _EVERYTHING else 1.0
    return value * factor


def evaluated(
    tried: Iterable[Change], made: Sequence[tuple[Case, Table]], shared: Sequence[tuple[str, Table]]
) -> Iterator[tuple[Change, list[Told] | None]]:
    """Judge all runs with each change, in a process of its own; None: the search failed."""
    _runs.update(made=made, shared=shared)
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        yield from pool.imap(_evaluate, tried, chunksize=1)


_runs: dict[str, Sequence[tuple[Any, Table]]] = {}  # what the processes have from their parent


def _evaluate(change: Change) -> tuple[Change, list[Told] | None]:
    if change.name:
        setattr(importlib.import_module(LIMITS), change.name, change.value)
    try:
        told = [_told_of_case(case, table) for case, table in _runs["made"]]
        told += [_told_of_shared(name, table) for name, table in _runs["shared"]]
    except Exception as error:  # of any kind: numbers that make no sense
        print(f"{change}: {error!r}", file=sys.stderr)
        return change, None
    return change, told


def _told_of_case(case: Case, table: Table) -> Told:
    rows = divot_rows(findings_in(table))
    verdict = judge(case, rows)
    found = [f"{at} " for at, it in enumerate(verdict.plants) if it.demanded and it.found]
    return Told("".join(found), len(verdict.alarms), verdict.accuses_an_innocent, _words(rows))


def _told_of_shared(name: str, table: Table) -> Told:
    rows = divot_rows(findings_in(table))
    truth = json.loads((DIVOT_CASES / "truth" / f"{name}.json").read_text())
    result = scorer().score([truth], for_scorer(name, rows))
    missed = [one for _, _, one in result["missed"]]
    floor = scorer().FLOOR
    truths = [one for one in truth["divots"] if one["slowdown"] >= floor[one["kind"]]]
    found = [f"{at} " for at, one in enumerate(truths) if one not in missed]
    return Told("".join(found), len(result["false"]), False, _words(rows))


def _words(rows: Sequence[Mapping[str, Any]]) -> str:
    names = ("kind", "place", "benchmarks", "iterations", "copies")
    said = sorted(json.dumps([row[name] for name in names]) for row in rows)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def difference(base: Sequence[Told], other: Sequence[Told]) -> Difference:
    """Return what of the verdicts changed."""
    pairs = list(zip(base, other, strict=True))
    found = [({*a.found.split()}, {*b.found.split()}) for a, b in pairs]
    more = [b.false - a.false for a, b in pairs]
    accused = [b.innocent - a.innocent for a, b in pairs]
    return Difference(
        runs=len(pairs),
        found=(sum(len(b - a) for a, b in found), sum(len(a - b) for a, b in found)),
        false=(sum(max(0, it) for it in more), sum(max(0, -it) for it in more)),
        innocents=(accused.count(1), accused.count(-1)),
        words=sum(a.words != b.words for a, b in pairs),
    )


def _source() -> str:
    """Return a digest of the detector's code: with another one, nothing of a cache is true."""
    digest = hashlib.sha256()
    for path in sorted(_DETECTOR.rglob("*.py")):
        digest.update(ast.dump(ast.parse(path.read_text())).encode())
    return digest.hexdigest()[:12]


def _kept(path: Path, key: str) -> dict[Change, list[Told] | None]:
    """Return what a cache holds of this source, seed and number of runs."""
    kept: dict[Change, list[Told] | None] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        one = json.loads(line)
        if one["key"] == key:
            value = one["value"]
            own = tuple(value) if isinstance(value, list) else value
            told = one["told"] and [Told(**it) for it in one["told"]]
            kept[Change(one["name"], one["how"], own)] = told
    return kept


def _keep(path: Path, key: str, change: Change, told: Sequence[Told] | None) -> None:
    rows = None if told is None else [asdict(it) for it in told]
    line = json.dumps({"key": key, **asdict(change), "told": rows}) + "\n"
    with path.open("ab", buffering=0) as file:  # one write: two processes have one file
        file.write(line.encode())


def table(kept: Mapping[Change, Sequence[Told] | None], made: int) -> str:
    """Return what each constant does to verdicts of made runs (the first `made`) and shared ones.

    Those that do most come first.
    """
    base = kept[BASE]
    assert base is not None
    lines: list[tuple[float, str]] = []
    for change, told in kept.items():
        if change == BASE:
            continue
        if told is None:
            lines.append((math.inf, f"{change.name:20} {change.how:6} the search fails"))
            continue
        of_made = difference(base[:made], told[:made])
        of_shared = difference(base[made:], told[made:])
        weight = of_made.verdicts + of_shared.verdicts + (of_made.words + of_shared.words) / 1000
        lines.append((weight, f"{change.name:20} {change.how:6} {of_made}; shared: {of_shared}"))
    return "\n".join(line for _, line in sorted(lines, key=lambda it: (-it[0], it[1])))


BASE = Change("", "base", 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.divot_cases.constants")
    parser.add_argument("names", nargs="*", help="constants to try (default: all)")
    parser.add_argument("--cache", type=Path, required=True, help="what is known, one line each")
    parser.add_argument("--runs", type=int, default=160, help="made runs (default: 160)")
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--extremes", action="store_true", help="put the rules out of force")
    parser.add_argument("--share", default="1/1", help="this one of so many processes")
    parser.add_argument("--table", action="store_true", help="print what is known, try nothing")
    args = parser.parse_args()
    key = f"{_source()} {args.seed} {args.runs}"
    number, of = map(int, args.share.split("/"))
    values = constants()
    mine = [*(args.names or values)][number - 1 :: of]
    wanted = {name: values[name] for name in mine}
    todo = [BASE, *changes(wanted, extremes=args.extremes)]
    known = _kept(args.cache, key)
    missing = [] if args.table else [it for it in todo if it not in known]
    if missing:
        cases = [make(args.seed, at) for at in range(args.runs)]
        made = [(case, table_of_case(case)) for case in cases]
        for change, told in evaluated(missing, made, shared_cases()):
            _keep(args.cache, key, change, told)
    known = _kept(args.cache, key)
    print(f"{len(values)} constants")
    print(table(known, args.runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
