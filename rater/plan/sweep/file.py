"""TOML text to what is to be swept; every mistake names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rater.plan.sweep.grid import MOST_ROUNDS, Axis, BlockOrder
from rater.text.document import TableReader, toml_document
from rater.text.kinds import FLAG, WORD, choice, whole

_AXIS_NAME = re.compile(r"[^\s=,]{1,200}")
_AXIS_SAID = 'expected the name of an axis, such as copies, thp or "env:NAME"'
_LONGEST_SEED = 10**15
_WORDS = "a list of strings or numbers"

EXAMPLE = """\
# A sweep of rater: `rater sweep THIS_FILE.toml` runs it, with --dry-run it only shows it.

[sweep]
suites = ["mini"]        # or command = ["./bench", "--fast"]
rounds = 5               # every point runs once a round
order = "shuffled"       # another random order each round; or "given", "abba"
# seed = 7               # of the random orders; else one is drawn, and kept with the sweep
# until = "1%"           # stop when every comparison with the first point is decided
# skip_refused = true    # leave out points that cannot run here
# stop_on_failure = true # stop at the first failed copy

[axes]                   # the first value of each makes the baseline
copies = [1, 2, 4]                      # an option of `rater run`
thp = ["never", "always"]               # a setting of the machine: `rater settings`
"env:MALLOC_ARENA_MAX" = ["", "1"]      # a variable of every copy; "": not set

[run]                    # any other option of `rater run`
size = "test"
iterations = 1
"""


class OptionForm(StrEnum):
    """What an option of `rater run` takes."""

    FLAG = "flag"
    ONE = "one"  # a value
    SEVERAL = "several"


@dataclass(frozen=True, slots=True)
class SweepFile:
    """What a sweep's file says; None where it says nothing."""

    suites: tuple[str, ...]
    command: tuple[str, ...]
    axes: tuple[Axis, ...]
    # Options of `rater run` by name without dashes: True, or their values as texts.
    options: tuple[tuple[str, bool | str | tuple[str, ...]], ...]
    rounds: int | None
    order: BlockOrder | None
    seed: int | None
    until: str | None
    skip_refused: bool
    stop_on_failure: bool


def is_sweep_text(text: str) -> bool:
    """Tell whether a TOML text has a table of a sweep's file."""
    return re.search(r"^\s*\[\s*(sweep|axes)\s*\]", text, re.MULTILINE) is not None


def parse_sweep(text: str, path: Path, options: Mapping[str, OptionForm]) -> SweepFile:
    """Read a sweep's file; `options` are those of `rater run` by name without dashes.

    Raises `MistakesError` with all mistakes together.
    """
    document = toml_document(text, path)
    root = document.root()
    head = root.table("sweep")
    suites, command = head.strings("suites"), head.strings("command")
    if suites and command:
        head.mistake("both suites and a command: one sweep rates one or the other", "command")
    found = SweepFile(
        suites=suites,
        command=command,
        axes=_axes(root.table("axes", required=True)),
        options=_options(root.table("run"), options),
        rounds=head.get("rounds", whole(1, MOST_ROUNDS), None),
        order=head.get("order", choice(BlockOrder), None),
        seed=head.get("seed", whole(0, _LONGEST_SEED), None),
        until=head.get("until", WORD, None),
        skip_refused=head.get("skip_refused", FLAG, default=False),
        stop_on_failure=head.get("stop_on_failure", FLAG, default=False),
    )
    head.finish()
    root.finish()
    document.raise_mistakes()
    return found


def _axes(table: TableReader) -> tuple[Axis, ...]:
    axes = []
    for name in table.names(_AXIS_NAME, _AXIS_SAID):
        values = table.items(name, WORD, _WORDS)
        if table.is_a(list, name) and not values:
            table.mistake("expected at least one value, got an empty list", name)
        axes.append(Axis(name, values))
    return tuple(axes)


def _options(
    table: TableReader, options: Mapping[str, OptionForm]
) -> tuple[tuple[str, bool | str | tuple[str, ...]], ...]:
    found: list[tuple[str, bool | str | tuple[str, ...]]] = []
    for name, form in options.items():
        if name not in table:
            continue
        value: bool | str | tuple[str, ...] | None
        if form is OptionForm.FLAG:
            value = table.get(name, FLAG)
        elif form is OptionForm.SEVERAL:
            value = table.items(name, WORD, _WORDS)
        else:
            value = table.get(name, WORD)
        if value:
            found.append((name, value))
    table.finish()
    return tuple(found)
