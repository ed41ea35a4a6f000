"""Findings in a few words, for tests of their readers."""

from typing import Any

from msgspec.structs import replace

from rater.analysis.divots.model.finding import Finding, Kind


def finding_of(kind: Kind, place: str, cpus: tuple[int, ...], **changes: Any) -> Finding:
    """Copies on CPUs of their own number: 20 % slow in benchmark a, nothing known of it."""
    finding = Finding(
        kind=kind,
        place=place,
        benchmarks=("a",),
        tune="base",
        iterations=(),
        copies=cpus,
        cpus=cpus,
        nodes=(),
        package=0,
        core=None,
        slowdown=1.2,
        score_lost=0.1,
        explained=False,
        expectation=None,
        summary="",
        evidence=(),
    )
    return replace(finding, **changes)
