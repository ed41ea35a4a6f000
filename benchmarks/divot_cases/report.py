"""The verdicts of many runs as tables: shares with 95 % intervals (Wilson)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.divot_cases.scoring import WRONG, Outcome, Verdict

_Z = 1.959964  # 95 %, two-sided
_BANDS = (6, 10, 20, 50, math.inf)  # of the oracle's z
_SIZES = (0.015, 0.03, 0.06, 0.15, 0.3, math.inf)
_COPIES = (2, 5, 9, 17, 33, 97, 513)


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927)."""
    if not of:
        return 0.0, 1.0
    p, n = hits / of, of
    middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits: int, of: int) -> dict[str, Any]:
    low, high = wilson(hits, of)
    return {"hits": hits, "of": of, "share": hits / of if of else None, "low": low, "high": high}


def _band(value: float, edges: Sequence[float]) -> str:
    for low, high in pairwise(edges):
        if value < high:
            return f"{low:g} to {high:g}" if high < math.inf else f"{low:g} and more"
    return "more"


def _copies(verdict: Verdict) -> str:
    size = verdict.case.shape.size
    low, high = next((a, b) for a, b in pairwise(_COPIES) if size < b)
    return f"{low} to {high - 1} copies"


def _noise(verdict: Verdict) -> str:
    return f"noise {verdict.case.nature.noise.kind}"


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return every table as values."""
    clean = [verdict for verdict in verdicts if not verdict.case.plants]
    planted = [verdict for verdict in verdicts if verdict.case.plants]
    pairs = [(verdict, plant) for verdict in planted for plant in verdict.plants]
    demanded = [(verdict, outcome) for verdict, outcome in pairs if outcome.demanded]
    keys: dict[str, Callable[[Verdict, Outcome], str]] = {
        "kind": lambda _, outcome: outcome.plant.kind,
        "scope": lambda _, outcome: f"{outcome.plant.family}: {outcome.plant.scope}",
        "oracle's z": lambda _, outcome: f"z {_band(outcome.z, _BANDS)}",
        "size": lambda _, outcome: f"size {_band(math.expm1(abs(outcome.plant.size)), _SIZES)}",
        "copies": lambda verdict, _: _copies(verdict),
        "noise": lambda verdict, _: _noise(verdict),
        "plants in the run": lambda verdict, _: f"{len(verdict.plants)} in the run",
    }
    belonging = sum(verdict.belonging for verdict in verdicts)
    outcomes = Counter(name for verdict in verdicts for name, _ in verdict.others)
    wrong = sum(outcomes[name] for name in WRONG)
    return {
        "runs": len(verdicts),
        "clean": {
            "with an alarm": share(sum(bool(verdict.alarms) for verdict in clean), len(clean)),
            "with the layout told as a divot": share(_with("layout", clean), len(clean)),
            "with nature told as a divot": share(_with("nature", clean), len(clean)),
            "alarms by kind": dict(
                Counter(alarm.kind for verdict in clean for alarm in verdict.alarms)
            ),
            "by copies": _shares((_copies(verdict), bool(verdict.alarms)) for verdict in clean),
            "by noise": _shares((_noise(verdict), bool(verdict.alarms)) for verdict in clean),
            "by layout": _shares(
                (verdict.case.shape.layout, bool(verdict.alarms)) for verdict in clean
            ),
        },
        "recall": share(sum(outcome.found for _, outcome in demanded), len(demanded)),
        "named by one finding": share(sum(outcome.whole for _, outcome in demanded), len(demanded)),
        "precision": share(belonging, belonging + wrong),
        "planted runs that accuse an innocent": share(
            sum(verdict.accuses_an_innocent for verdict in planted), len(planted)
        ),
        "findings": {"belonging": belonging, **{name: outcomes[name] for name in sorted(outcomes)}},
        "precision by copies": _precision(planted, _copies),
        "precision by noise": _precision(planted, _noise),
        "recall by": {
            name: _shares((key(verdict, outcome), outcome.found) for verdict, outcome in demanded)
            for name, key in keys.items()
        },
        "not demanded, found": share(
            sum(outcome.found for _, outcome in pairs if not outcome.demanded),
            len(pairs) - len(demanded),
        ),
        "fragments of a found plant": _spread(
            [float(outcome.fragments) for _, outcome in demanded if outcome.found]
        ),
        "exactly its copies": share(
            sum(
                outcome.exact
                for _, outcome in demanded
                if outcome.found and outcome.plant.family == "place"
            ),
            sum(outcome.found and outcome.plant.family == "place" for _, outcome in demanded),
        ),
        "error of the size": _spread(
            [outcome.size_error for _, outcome in demanded if outcome.size_error is not None]
        ),
        "error of the score lost": _spread(
            [
                abs(outcome.cost_error)
                for verdict, outcome in demanded
                if outcome.cost_error is not None and len(verdict.plants) >= 1
            ]
        ),
        "two equal halves": dict(
            Counter(
                f"{outcome.plant.kind}: {outcome.half}" for _, outcome in demanded if outcome.half
            )
        ),
    }


def _with(name: str, verdicts: Iterable[Verdict]) -> int:
    return sum(any(what == name for what, _ in verdict.others) for verdict in verdicts)


def _shares(of: Iterable[tuple[str, bool]]) -> dict[str, dict[str, Any]]:
    hits: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for key, hit in of:
        every[key] += 1
        hits[key] += hit
    return {key: share(hits[key], every[key]) for key in sorted(every, key=_order)}


def _order(key: str) -> tuple[str, float, str]:
    number = next((float(word) for word in key.split() if word.replace(".", "").isdigit()), 0.0)
    return key.split(maxsplit=1)[0] if not key[0].isdigit() else "", number, key


def _precision(
    verdicts: Iterable[Verdict], key: Callable[[Verdict], str]
) -> dict[str, dict[str, Any]]:
    of = [
        (key(verdict), hit)
        for verdict in verdicts
        for hit in [True] * verdict.belonging + [False] * len(verdict.alarms)
    ]
    return _shares(of)


def _spread(values: Sequence[float]) -> dict[str, Any]:
    if not values:
        return {"of": 0}
    median, high = np.quantile(values, [0.5, 0.9])
    return {
        "of": len(values),
        "median": float(median),
        "90 %": float(high),
        "mean": float(np.mean(values)),
    }


def describe_tables(tables: dict[str, Any], indent: int = 0) -> str:
    """Return the tables for people."""
    lines = []
    pad = "  " * indent
    for name, value in tables.items():
        if not isinstance(value, dict):
            lines.append(f"{pad}{name}: {value}")
        elif "share" in value:
            lines.append(f"{pad}{name:<{46 - len(pad)}} {_share(value)}")
        elif "median" in value:
            spread = ", ".join(f"{key} {value[key]:.3g}" for key in ("median", "90 %", "mean"))
            lines.append(f"{pad}{name:<{46 - len(pad)}} {spread} (of {value['of']})")
        elif value and not any(isinstance(it, dict) for it in value.values()):
            lines.append(f"{pad}{name}: " + ", ".join(f"{key} {it}" for key, it in value.items()))
        else:
            lines += [f"{pad}{name}", describe_tables(value, indent + 1)]
    return "\n".join(line for line in lines if line)


def _share(of: dict[str, Any]) -> str:
    if not of["of"]:
        return "    none"
    return (
        f"{100 * of['share']:5.1f} %  ({of['hits']} of {of['of']}; "
        f"{100 * of['low']:.1f} to {100 * of['high']:.1f} %)"
    )
