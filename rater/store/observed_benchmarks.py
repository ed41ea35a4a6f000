"""Benchmarks of an observations document: category, reference time and metrics; pure.

An observation may have `metrics` by name, `counts` by name and `joules`; each becomes a metric of
its benchmark. `run.metrics` says what unit a metric has and which direction is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from rater.record.events import EventCount
from rater.record.run import BenchmarkUsed, MetricUsed
from rater.text.documents import TableReader, did_you_mean
from rater.text.kinds import LINE, ValueKind, choice, is_number, meaning, number, of_type
from rater.text.values import truncate_list

LONGEST_S: Final = 1e9  # about 30 years; keeps start + elapsed in 64-bit nanoseconds
_LARGEST: Final = 2**63 - 1  # that the database holds

# -- Kinds of what an observation says of its benchmark -------------------------------------------


def _metrics(value: Any) -> dict[str, float] | None:
    if type(value) is not dict:
        return None
    for name, measured in value.items():
        if LINE.convert(name) is None:
            raise ValueError("expected names of printable characters")
        if not is_number(measured) or not math.isfinite(measured):
            raise ValueError(f"{name}: expected a number")
    return {name: float(measured) for name, measured in value.items()}


METRICS: ValueKind[dict[str, float]] = ValueKind("an object of numbers by name", _metrics, {})


def _counts(value: Any) -> tuple[EventCount, ...] | dict[str, float] | None:
    if type(value) is dict:
        return _metrics(value)
    rows: tuple[EventCount, ...] | None = _COUNT_ROWS.convert(value)
    numbers = [
        counted
        for count in rows or ()
        for counted in (count.value or 0, count.enabled_ns, count.running_ns)
    ]
    names = [name for count in rows or () for name in (count.group_name, count.event)]
    are_valid = all(0 <= counted <= _LARGEST for counted in numbers)
    return rows if are_valid and all(map(LINE.convert, names)) else None


_COUNT_ROWS = of_type(tuple[EventCount, ...])
COUNTS: ValueKind[tuple[EventCount, ...] | dict[str, float]] = ValueKind(
    "an object of numbers by event, or a list of counts as `rater export` writes them", _counts, ()
)
CATEGORY: Final = meaning({"int": "int", "fp": "fp", "INT": "int", "FP": "fp"})
REFERENCE: Final = number(LONGEST_S, positive=True, unit="seconds")
JOULES: Final = number(LONGEST_S, unit="joules")

ENERGY_METRIC: Final = MetricUsed("energy", "J", "lower", "sum")
_COUNT_UNIT: Final = "count"


# -- Metrics as the head of the document declares them ---------------------------------------------


class MetricTable(Struct, frozen=True):
    """Declared metrics by name and benchmark; without a benchmark it holds for all."""

    declared: dict[tuple[str, str | None], MetricUsed]

    def metric(self, name: str, benchmark: str, *, is_count: bool) -> MetricUsed:
        """Return a benchmark's metric, declared or by default."""
        default = MetricUsed(
            name, _COUNT_UNIT if is_count else "", "lower" if is_count else None, "mean"
        )
        of_all = self.declared.get((name, None), default)
        return self.declared.get((name, benchmark), of_all)


def read_metric_table(run: TableReader) -> MetricTable:
    """Read `run.metrics`, a list of declared metrics."""
    declared = {}
    for metric in run.tables("metrics"):
        used = MetricUsed(
            name=metric.get("name", LINE),
            unit=metric.get("unit", LINE, ""),
            better=metric.get("better", choice(("higher", "lower")), None),
            combine=metric.get("combine", choice(("sum", "mean")), "mean"),
        )
        declared[used.name, metric.get("benchmark", LINE, None)] = used
    return MetricTable(declared)


# -- What observations say of their benchmarks -----------------------------------------------------


def take_metrics(
    column: dict[str, list[Any]], unexpected: Callable[[int, str, str], None]
) -> set[str]:
    """Put counts by name and joules among the metrics; return the names that are counts.

    `column` has the observations' values by field. `unexpected` notes a mistake: position, key
    and what was expected.
    """
    counted: set[str] = set()
    rows = zip(column["metrics"], column["counts"], column["joules"], strict=True)
    metrics: list[tuple[tuple[str, float], ...]] = []
    for position, (reported, counts, joules) in enumerate(rows):
        by_name = dict(reported)
        events = counts if isinstance(counts, dict) else {}
        energy = {} if joules is None else {ENERGY_METRIC.name: joules}
        for key, values in (("counts", events), ("joules", energy)):
            for name in values.keys() & by_name.keys():
                unexpected(position, key, f"{name} once (its metrics have the name as well)")
            by_name |= values
        counted |= events.keys()
        metrics.append(tuple(by_name.items()))
    column["metrics"] = metrics
    column["counts"] = [counts if type(counts) is tuple else () for counts in column["counts"]]
    return counted


def used_benchmarks(
    column: Mapping[str, Sequence[Any]],
    table: MetricTable,
    counted: set[str],
    unexpected: Callable[[int, str, str], None],
) -> tuple[BenchmarkUsed, ...]:
    """Return the benchmarks in the order of the document; contradictions are mistakes."""
    categories = _facts("category", column, unexpected)
    references = _facts("reference_s", column, unexpected)
    metrics: dict[str, dict[str, None]] = {}
    for benchmark, values in zip(column["benchmark"], column["metrics"], strict=True):
        metrics.setdefault(benchmark, {}).update(dict.fromkeys(name for name, _ in values))
    energy = {(ENERGY_METRIC.name, None): ENERGY_METRIC} if any(column["joules"]) else {}
    table = MetricTable(energy | table.declared)
    return tuple(
        BenchmarkUsed(
            name=benchmark,
            category=categories.get(benchmark),
            reference_s=references.get(benchmark),
            metrics=tuple(
                table.metric(name, benchmark, is_count=name in counted) for name in names
            ),
        )
        for benchmark, names in metrics.items()
    )


def _facts(
    key: str, column: Mapping[str, Sequence[Any]], unexpected: Callable[[int, str, str], None]
) -> dict[str, Any]:
    """Return what observations say of each benchmark by its name."""
    facts: dict[str, Any] = {}
    for position, (benchmark, value) in enumerate(
        zip(column["benchmark"], column[key], strict=True)
    ):
        if value is not None and facts.setdefault(benchmark, value) != value:
            unexpected(position, key, f"the same of all of {benchmark} ({facts[benchmark]} before)")
    return facts


# -- Keys that nobody reads ------------------------------------------------------------------------


def note_unknown_keys(place: str, unknown: Sequence[str], read_names: Sequence[str]) -> list[str]:
    """Return a sentence that names keys which are left out, with what may have been meant."""
    if not unknown:
        return []
    meant = [did_you_mean(name, read_names) for name in unknown]
    hints = [hint for hint in meant if hint.startswith("did you mean")]
    many = "an unknown key" if len(unknown) == 1 else "unknown keys"
    hint = f" ({hints[0]})" if len(unknown) == 1 and hints else ""
    return [f"{place} has {many}, left out: {truncate_list(list(unknown), 8)}{hint}"]
