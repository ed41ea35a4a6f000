"""What a run was asked for, and what it left out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from rater.record.stored import RunHead

_LEFT_OUT = re.compile(r"left out: ([^:]+): (.*)", re.DOTALL)


def request_of(head: RunHead) -> dict[str, object] | None:
    """Return what a run was asked for; None: imported, or an older rater did not keep it."""
    try:
        found = json.loads(head.request or "null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def left_out(warnings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the benchmarks that a run's warnings say were left out, each with the reason."""
    found = [match for text in warnings if (match := _LEFT_OUT.fullmatch(text))]
    return tuple((match[1], match[2]) for match in found)


def is_selection(head: RunHead) -> bool:
    """Tell whether the user asked for single benchmarks, `SUITE/BENCHMARK`."""
    asked = (request_of(head) or {}).get("suites")
    return isinstance(asked, list) and any(
        isinstance(one, str) and one.endswith(f"/{name}")
        for one in asked
        for name in head.benchmarks
    )
