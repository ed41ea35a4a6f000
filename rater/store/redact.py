"""A run as it may be shown: secrets of its environment and its commands left out."""

from __future__ import annotations

import json
from dataclasses import replace

from rater.plan.sweep.grid import ENVIRONMENT
from rater.record.stored import RunHead, StoredRun
from rater.text.secrets import Redactor

_INHERITED = "env."  # settings of this name are variables that copies inherited


def redacted_head(head: RunHead, redactor: Redactor) -> RunHead:
    """Return the head of a run without secrets in what was called."""
    return replace(
        head,
        command_line=head.command_line and redactor.text(head.command_line),
        wrap=head.wrap and redactor.text(head.wrap),
        request=head.request and _request(head.request, redactor),
        tags=tuple(
            (
                name,
                redactor.pair(name, value)
                if name.startswith(ENVIRONMENT)
                else redactor.text(value),
            )
            for name, value in head.tags
        ),
    )


def redacted(run: StoredRun, redactor: Redactor) -> StoredRun:
    """Return a run without secrets, which says of what values were left out."""
    shown = replace(
        run,
        head=redacted_head(run.head, redactor),
        environment=tuple((name, redactor.pair(name, value)) for name, value in run.environment),
        settings=tuple(
            (name, redactor.pair(name.removeprefix(_INHERITED), value))
            if name.startswith(_INHERITED)
            else (name, value)
            for name, value in run.settings
        ),
        benchmarks=tuple(
            replace(used, command=redactor.text(used.command)) for used in run.benchmarks
        ),
    )
    return replace(shown, redacted=tuple(redactor.hidden))


def _request(text: str, redactor: Redactor) -> str:
    """Return what was asked for; what is no JSON of ours may hold anything."""
    try:
        asked = json.loads(text)
        pairs = asked.pop("environment", [])
        asked = redactor.values(asked)
        asked["environment"] = [[name, redactor.pair(name, value)] for name, value in pairs]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return redactor.text(text)
    return json.dumps(asked)
