"""TOML text to what is to be swept; every mistake names file, line and key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rater.plan.request.argument import Form
from rater.plan.request.request import OPTIONS
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
rounds = 6               # every point runs once a round
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


def parse_sweep(text: str, path: Path) -> SweepFile:
    """Read a sweep's file. Raises `MistakesError` with all mistakes together."""
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
        options=_options(root.table("run")),
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


def _options(table: TableReader) -> tuple[tuple[str, bool | str | tuple[str, ...]], ...]:
    found: list[tuple[str, bool | str | tuple[str, ...]]] = []
    for option in OPTIONS:
        name = option.name
        if name not in table:
            continue
        value: bool | str | tuple[str, ...] | None
        if option.kind.form is Form.FLAG:
            value = table.get(name, FLAG)
        elif option.kind.form is Form.ONE:
            value = table.get(name, WORD)
        else:
            value = table.items(name, WORD, _WORDS)
        if value:
            found.append((name, value))
    table.finish()
    return tuple(found)
