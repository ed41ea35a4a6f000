"""What a run was asked for, and what it left out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from rater.record.stored import RunHead

_LEFT_OUT = re.compile(r"left out: ([^:]+): (.*)", re.DOTALL)


def left_out(warnings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the benchmarks that a run's warnings say were left out, each with the reason."""
    found = [match for text in warnings if (match := _LEFT_OUT.fullmatch(text))]
    return tuple((match[1], match[2]) for match in found)


def is_selection(head: RunHead) -> bool:
    """Tell whether the user asked for single benchmarks, `SUITE/BENCHMARK`."""
    try:
        request = json.loads(head.request or "{}")
    except ValueError:
        return False
    asked = request.get("suites") if isinstance(request, dict) else None
    return isinstance(asked, list) and any(
        isinstance(one, str) and one.endswith(f"/{name}")
        for one in asked
        for name in head.benchmarks
    )
