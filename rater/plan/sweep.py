"""A sweep as values: axes, the points of their grid, runs in blocks, and its file; pure."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from itertools import product
from pathlib import Path

from msgspec import Struct

from rater.plan.options import OptionForm
from rater.plan.request import OPTIONS
from rater.record.run import RunStatus
from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text.documents import TableReader, did_you_mean, toml_document
from rater.text.kinds import FLAG, WORD, choice, whole

# A *block* is one round: every point runs once in it, next to the others, so that
# what drifts over time (heat, other users, a filling page cache) hits all points
# alike and points are compared inside a block.

ENVIRONMENT = "env:"
MOST_POINTS = 10_000
MOST_ROUNDS = 10_000
NONE_SHOWN = "(none)"
_OURS = ("RATER_COPY", "RATER_CPUS", "RATER_ITERATION", "RATER_NODE")  # every copy has its own
_VARIABLE = compile_later(r"[A-Za-z_][A-Za-z0-9_]*")
# A comma ends a value, `\,` is one inside it.
_COMMA = compile_later(r"(?<!\\),")
_RANGE = compile_later(r"([0-9]{1,9})\.\.([0-9]{1,9})")

type Values = tuple[tuple[str, str], ...]  # axis and value, in the order of the axes


class BlockOrder(StrEnum):
    """In which order the points of a block run."""

    SHUFFLED = "shuffled"  # another random permutation in every block
    GIVEN = "given"  # as the grid has them
    ABBA = "abba"  # as the grid has them, in every second block backwards


class SweepMeasure(StrEnum):
    """What points are compared in."""

    TIME = "time"  # copies an hour
    ENERGY = "energy"  # joules a copy


class AxisKind(StrEnum):
    """What a value of an axis changes."""

    OPTION = "option"  # of `rater run`
    ENVIRONMENT = "environment"  # a variable of every copy
    SETTING = "setting"  # of the machine: set, and put back


RETRIES = 2  # runs of a sweep in the place of one that others took too much of


class Axis(Struct, frozen=True):
    """One tunable and its values; an empty one stands for an option or variable that is not set."""

    name: str
    values: tuple[str, ...]


class SweepSlot(Struct, frozen=True):
    """One run of a sweep: which point, when."""

    block: int  # from 1
    position: int  # in the block, from 1
    point: int  # in the grid, from 0


class SweepSpec(Struct, frozen=True, kw_only=True):
    """The head of a sweep: the values that the user asked for, stored before the first run."""

    uuid: str
    started_at: str  # UTC, ISO 8601 with "Z"
    rounds: int
    block_order: BlockOrder
    seed: int
    until: float | None  # 0.01: 1 %
    stop_on_failure: bool
    suite: str | None  # None for a plain command
    command_line: str
    rater_version: str
    directory: str
    until_of: SweepMeasure = SweepMeasure.TIME
    file: str | None = None  # the TOML file it was read from
    file_sha256: str | None = None
    file_text: str | None = None


class SweepPoint(Struct, frozen=True, kw_only=True):
    """One combination of values."""

    point: int  # from 0, the baseline
    label: str
    values: Values
    request: str  # JSON, as `request_to_json` has it; without settings of the machine
    left_out: str | None  # why it cannot run


class SlotRun(Struct, frozen=True):
    """One run that a sweep planned, and how far it came."""

    slot: SweepSlot
    run: int | None  # None if it did not begin
    status: RunStatus | None  # as stored: a killed rater's run is still "running"
    done: bool  # all of it was measured, well or not
    elapsed_s: float | None  # first release to last finish

    @property
    def failed(self) -> bool:
        """Tell whether it is done and a copy of it failed."""
        return self.done and self.status is RunStatus.FAILED


class StoredSweep(Struct, frozen=True, kw_only=True):
    """A sweep read back."""

    number: int
    asked: SweepSpec
    status: RunStatus  # `KILLED` where its rater is gone
    reason: str | None
    ended_at: str | None
    resumed: int
    extended: int  # how often rounds were added
    axes: tuple[tuple[str, AxisKind], ...]
    points: tuple[SweepPoint, ...]
    slots: tuple[SlotRun, ...]  # in the order in which they are run

    @property
    def missing(self) -> tuple[SweepSlot, ...]:
        """What is still to be run."""
        return tuple(slot.slot for slot in self.slots if not slot.done)


def parse_axis(text: str) -> Axis:
    r"""Read `NAME=V1,V2,...`; `\,` is a comma inside a value. Raises `InputError`.

    The name ends at the first `=`. Blanks around values do not count, but those of
    environment variables.
    """
    name, equals, rest = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise InputError(f"--axis {text!r}: expected NAME=V1,V2,... as in --axis copies=1,2,4")
    values = [value.replace("\\,", ",") for value in _COMMA.split(rest)]
    if not name.startswith(ENVIRONMENT):
        values = expand_ranges(name, values)
    if not name.startswith(ENVIRONMENT):
        values = [value.strip() for value in values]
    if values == [""]:
        raise InputError(f"--axis {text!r}: no values behind the =; expected V1,V2,...")
    return Axis(name, tuple(values))


def expand_ranges(name: str, values: Sequence[str]) -> list[str]:
    r"""Return values with ranges of whole numbers written out: `1..4` is 1, 2, 3, 4.

    A range goes on as the two values before `..` do: `2,4..16` doubles, as 4 is twice 2, and
    `1,3..9` goes on by 2; alone it counts. A value `1\..4` is the text `1..4`. Raises `InputError`
    where such steps do not meet the end.
    """
    expanded: list[str] = []
    for value in values:
        match = _RANGE.fullmatch(value.strip())
        if match is None:
            expanded.append(value.replace("\\..", ".."))
            continue
        first, last = int(match[1]), int(match[2])
        before = int(expanded[-1]) if expanded and expanded[-1].strip().isdecimal() else None
        expanded += map(str, _range_from(f"axis {name}: {value}", before, first, last))
    return expanded


def _range_from(where: str, before: int | None, first: int, last: int) -> list[int]:
    """Return the values of a range, `before` the value in front of it."""
    doubles = before is not None and before > 0 and first == 2 * before
    step = 1 if before is None else first - before
    if step < 1 or last < first:
        raise InputError(f"{where}: expected a range that rises")
    numbers = [first]
    while numbers[-1] < last and len(numbers) <= MOST_POINTS:
        numbers.append(numbers[-1] * 2 if doubles else numbers[-1] + step)
    if numbers[-1] < last:
        raise InputError(f"{where}: more than {MOST_POINTS} values, which no sweep has")
    if numbers[-1] != last:
        rule = f"doubles, as {first} is twice {before}" if doubles else f"goes on by {step}"
        near = numbers[-2] if len(numbers) > 1 else first
        raise InputError(
            f"{where} {rule}, and does not meet {last}: expected an end such as {near} or "
            f"{numbers[-1]}, or all values with commas"
        )
    return numbers


def check_axes(axes: Sequence[Axis]) -> None:
    """Raise `InputError` for axes that stand twice, have values twice, or too many points."""
    if not axes:
        raise InputError(
            "a sweep needs at least one axis: --axis NAME=V1,V2,... as in --axis copies=1,2,4"
        )
    seen: set[str] = set()
    points = 1
    for axis in axes:
        if axis.name in seen:
            raise InputError(f"axis {axis.name} stands there twice: put all its values into one")
        seen.add(axis.name)
        for twice in [it for it, times in Counter(axis.values).items() if times > 1]:
            raise InputError(
                f"axis {axis.name}: the value {twice or NONE_SHOWN} stands there twice"
            )
        points *= len(axis.values)
    if points > MOST_POINTS:
        raise InputError(
            f"{points} points: more than {MOST_POINTS} are no sweep that ends; take fewer values"
        )


def kinds_of(
    axes: Iterable[Axis],
    options: Iterable[str],
    settings: Iterable[str],
    placeholders: Collection[str] = (),
) -> dict[str, AxisKind]:
    """Return what each axis is, by name; raises `InputError` with the nearest names there are.

    `options` are those of `rater run` that can be swept, `settings` those of this machine.
    `placeholders`: axes that the command has in braces, as in `--size {n}`, and that change it.
    """
    known_options, known_settings = list(options), list(settings)
    kinds = {}
    for axis in axes:
        name = axis.name
        if name.startswith(ENVIRONMENT):
            variable = name.removeprefix(ENVIRONMENT)
            if not _VARIABLE.fullmatch(variable):
                raise InputError(
                    f"axis {name}: {variable!r} is no name of an environment variable; "
                    f"expected {ENVIRONMENT}NAME"
                )
            if variable in _OURS:
                raise InputError(
                    f"axis {name}: rater itself gives {variable} to each copy; take another name"
                )
            kinds[name] = AxisKind.ENVIRONMENT
        elif name in known_options or (name in placeholders and name not in known_settings):
            kinds[name] = AxisKind.OPTION
        elif name in known_settings:
            kinds[name] = AxisKind.SETTING
            if "" in axis.values:
                raise InputError(
                    f"axis {name}: an empty value; a setting of the machine always has one "
                    f"(`rater settings {name}` shows which it takes)"
                )
        else:
            raise InputError(_unknown(name, known_options, known_settings))
    return kinds


def grid(axes: Sequence[Axis]) -> tuple[Values, ...]:
    """Return all points, the last axis changing fastest; the first one is the baseline."""
    names = [axis.name for axis in axes]
    return tuple(
        tuple(zip(names, values, strict=True))
        for values in product(*(axis.values for axis in axes))
    )


def point_label(values: Values) -> str:
    """Return a point in words: `copies=4 thp=always`."""
    return " ".join(f"{name}={value or NONE_SHOWN}" for name, value in values)


def order_slots(
    points: Sequence[int], rounds: int, order: BlockOrder, seed: int, first: int = 1
) -> tuple[SweepSlot, ...]:
    """Return the runs of blocks `first` to `rounds` in their order, every point once a block.

    `points` are the numbers of those that run. Shuffled blocks are permutations by one
    generator seeded with `seed` (`random.Random`): blocks added later are those that a
    longer sweep would have had at once.
    """
    rng = random.Random(seed)
    slots = []
    for block in range(1, rounds + 1):
        turn = list(points)
        if order is BlockOrder.SHUFFLED:
            rng.shuffle(turn)
        elif order is BlockOrder.ABBA and block % 2 == 0:
            turn.reverse()
        if block >= first:
            slots += [SweepSlot(block, place, point) for place, point in enumerate(turn, 1)]
    return tuple(slots)


def _unknown(name: str, options: Sequence[str], settings: Sequence[str]) -> str:
    hint = did_you_mean(name, [*options, *settings])
    variable = name if _VARIABLE.fullmatch(name) else "NAME"
    ways = (
        f"{{{name}}} in the command makes it one of the command, "
        "`rater settings` lists the settings, `rater run --help` the options, "
        f"{ENVIRONMENT}{variable} is a variable of copies"
    )
    text = f"{hint} ({ways})" if hint.startswith("did you mean") else ways
    return f"axis {name}: neither an option nor a setting of this machine; {text}"


# -- TOML text to what is to be swept; every mistake names file, line and key ----------------------

_AXIS_NAME = compile_later(r"[^\s=,]{1,200}")
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


class SweepFile(Struct, frozen=True, kw_only=True):
    """The content of a sweep's file; None for keys that it does not have."""

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
    return re.search(r"^[ \t]*\[[ \t]*(sweep|axes)[ \t]*\]", text, re.MULTILINE) is not None


def parse_sweep(text: str, path: Path) -> SweepFile:
    """Read a sweep's file. Raises `MistakesError` with all mistakes together."""
    document = toml_document(text, path)
    root = document.root()
    head = root.table("sweep")
    suites, command = head.strings("suites"), head.strings("command")
    if suites and command:
        head.mistake("both suites and a command: one sweep rates one or the other", "command")
    sweep = SweepFile(
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
    return sweep


def _axes(table: TableReader) -> tuple[Axis, ...]:
    axes = []
    for name in table.names(_AXIS_NAME, _AXIS_SAID):
        values = table.items(name, WORD, _WORDS)
        if not name.startswith(ENVIRONMENT):
            try:
                values = tuple(expand_ranges(name, values))
            except InputError as error:
                table.mistake(str(error), name)
        if table.is_a(list, name) and not values:
            table.mistake("expected at least one value, got an empty list", name)
        axes.append(Axis(name, values))
    return tuple(axes)


def _options(table: TableReader) -> tuple[tuple[str, bool | str | tuple[str, ...]], ...]:
    options: list[tuple[str, bool | str | tuple[str, ...]]] = []
    for option in OPTIONS:
        name = option.name
        if name not in table:
            continue
        value: bool | str | tuple[str, ...] | None
        if option.kind.form is OptionForm.FLAG:
            value = table.get(name, FLAG)
        elif option.kind.form is OptionForm.ONE:
            value = table.get(name, WORD)
        else:
            value = table.items(name, WORD, _WORDS)
        if value:
            options.append((name, value))
    table.finish()
    return tuple(options)
