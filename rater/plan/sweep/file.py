"""TOML text to what is to be swept; every mistake names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rater.plan.sweep.grid import MOST_ROUNDS, Axis, BlockOrder
from rater.text.toml_table import Document, MistakesError, Table

_AXIS_NAME = re.compile(r"[^\s=,]{1,200}")
_AXIS_SAID = 'expected the name of an axis, such as copies, thp or "env:NAME"'
_LONGEST_SEED = 10**15

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
    document = Document(text, path)
    root = document.root()
    head = root.table("sweep")
    suites, command = head.strings("suites"), head.strings("command")
    if suites and command:
        head.mistake("both suites and a command: one sweep rates one or the other", "command")
    order = head.choice("order", tuple(BlockOrder))
    found = SweepFile(
        suites=suites,
        command=command,
        axes=_axes(root.table("axes", required=True)),
        options=_options(root.table("run"), options),
        rounds=head.whole("rounds", 0, least=1, most=MOST_ROUNDS) or None,
        order=BlockOrder(order) if order else None,
        seed=head.whole("seed", 0, least=0, most=_LONGEST_SEED) if "seed" in head else None,
        until=head.word("until"),
        skip_refused=head.flag("skip_refused"),
        stop_on_failure=head.flag("stop_on_failure"),
    )
    head.finish()
    root.finish()
    if document.mistakes:
        raise MistakesError(document.mistakes)
    return found


def _axes(table: Table) -> tuple[Axis, ...]:
    axes = []
    for name in table.names(_AXIS_NAME, _AXIS_SAID):
        values = table.words(name)
        if table.is_list(name) and not values:
            table.mistake("expected at least one value, got an empty list", name)
        axes.append(Axis(name, values))
    return tuple(axes)


def _options(
    table: Table, options: Mapping[str, OptionForm]
) -> tuple[tuple[str, bool | str | tuple[str, ...]], ...]:
    found: list[tuple[str, bool | str | tuple[str, ...]]] = []
    for name, form in options.items():
        if name not in table:
            continue
        value: bool | str | tuple[str, ...] | None
        if form is OptionForm.FLAG:
            value = table.flag(name)
        elif form is OptionForm.SEVERAL:
            value = table.words(name)
        else:
            value = table.word(name)
        if value:
            found.append((name, value))
    table.finish()
    return tuple(found)
