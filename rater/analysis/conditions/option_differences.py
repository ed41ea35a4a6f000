"""In what two runs differ beside their mode, from what was asked for and what they inherited; pure.

What the program is (its binary, its inputs) is not compared here: `compare.barrier` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from rater.record.stored import RunHead

_SAME = (
    ("hostname", "host"),
    ("suite", "suite"),
    ("size", "size"),
    ("tune", "tune"),
    ("copies", "copies"),
    ("layout", "layout"),
    ("memory", "memory"),
    ("wrap", "wrap"),
)
_INHERITED = "env."
_NOT_COMPARED = "env.PATH"  # the programs themselves are compared by content

type Settings = tuple[tuple[str, str], ...]


def differences(head: RunHead, other: RunHead) -> tuple[str, ...]:
    """Return what keeps a run from being compared unasked, in words, the other's value first."""
    found: list[str] = []
    for field, name in _SAME:
        found += _compared(name, getattr(head, field), getattr(other, field))
    if other.stagger_ms:
        found.append(f"{other.stagger_ms:g} ms between starts")
    here, there = _asked(head), _asked(other)
    if here is None or there is None:
        if here is not there:
            found.append(f"options that are {'' if here is None else 'not '}known")
        return tuple(found)
    mine, others = _variables(here), _variables(there)
    for name in sorted(mine.keys() | others.keys()):
        found += _compared(f"--env {name}", mine.get(name), others.get(name))
    found += _compared("--prepare", here.get("prepare"), there.get("prepare"))
    found += _compared("--run-dirs", bool(here.get("run_dirs")), bool(there.get("run_dirs")))
    return tuple(found)


def lesser_differences(
    head: RunHead, settings: Settings, other: RunHead, other_settings: Settings
) -> tuple[str, ...]:
    """Return what is worth a word beside a comparison: rests, and what the copies inherited."""
    here, there = _asked(head) or {}, _asked(other) or {}
    found: list[str] = []
    if here and there:
        for key, name in (("cooldown_s", "--cooldown"), ("until_idle_s", "--until-idle")):
            found += _compared(name, here.get(key) or None, there.get(key) or None)
    given = _variables(here).keys() & _variables(there).keys()  # these stand over inherited ones
    mine, others = _inherited(settings), _inherited(other_settings)
    for name in sorted((mine.keys() | others.keys()) - given):
        found += _compared(f"environment variable {name}", mine.get(name), others.get(name))
    return tuple(found)


def _asked(head: RunHead) -> dict[str, object] | None:
    """Return what a run was asked for; None: imported, or an older rater did not keep it."""
    try:
        found = json.loads(head.request or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _variables(asked: dict[str, object]) -> dict[str, str]:
    pairs = asked.get("environment")
    if not isinstance(pairs, list):
        return {}
    return {str(pair[0]): str(pair[1]) for pair in pairs if isinstance(pair, list) and pair[1:]}


def _inherited(settings: Settings) -> dict[str, str]:
    return {
        name.removeprefix(_INHERITED): value
        for name, value in settings
        if name.startswith(_INHERITED) and name != _NOT_COMPARED
    }


def _compared(name: str, here: object, there: object) -> Iterator[str]:
    if here != there:
        yield f"{name} {_value(there)}, not {_value(here)}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
