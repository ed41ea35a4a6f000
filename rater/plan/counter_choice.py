"""What `--counters` asks for: groups of counter tables, in turn over iterations; pure."""

from __future__ import annotations

from msgspec import Struct

from rater.plan.counter_tables import (
    GENERIC,
    SOFTWARE,
    CounterTable,
    EventGroup,
    Processor,
    load_table,
    table_for,
)
from rater.record.events import USER_ONLY
from rater.system.errors import InputError
from rater.text.documents import did_you_mean

STACK, ALL = "cpi", "all"  # words for the groups of the stack, and for all of them


class TableGroup(Struct, frozen=True):
    """A group with the table that it is of."""

    table: CounterTable
    group: EventGroup
    user_only: bool = False  # by choice: without what the kernel does for the copies

    @property
    def short_name(self) -> str:
        """How it is called among those of its table."""
        return self.group.name + (USER_ONLY if self.user_only else "")

    @property
    def name(self) -> str:
        """How it is called with a run."""
        return f"{self.table.name}:{self.short_name}"


class CounterChoice(Struct, frozen=True):
    """The groups to count: one turn an iteration, all copies the same one."""

    turns: tuple[tuple[TableGroup, ...], ...]  # several in a turn share the counters (multiplexed)
    notes: tuple[str, ...]  # what a person should know of it

    @property
    def tables(self) -> tuple[CounterTable, ...]:
        """Return the tables that they are of, each once."""
        found = {one.table.name: one.table for turn in self.turns for one in turn}
        return tuple(found.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Return what each turn counts: `intel-skx:pipeline+intel-skx:numa`."""
        return tuple("+".join(one.name for one in turn) for turn in self.turns)

    @property
    def most_events(self) -> int:
        """Return how many events a copy has open at most: a descriptor each."""
        return max(sum(len(one.group.events) for one in turn) for turn in self.turns)

    def turn(self, iteration: int, discard: int) -> tuple[TableGroup, ...]:
        """Return what is counted in an iteration (from 1): nothing in those that are discarded."""
        if iteration <= discard:
            return ()
        return self.turns[(iteration - discard - 1) % len(self.turns)]


def choose_groups(counters: str, processor: Processor) -> CounterChoice:
    """Return the groups that `--counters` names on a processor.

    `GROUP,...` are groups of the processor's table or `software`; `TABLE:GROUP` and `PATH:GROUP`
    those of another one; `cpi` stands for the groups of a table's stack, `all` for all of them;
    `A+B` counts two groups in the same iteration, in turn many times a second; `:u` behind any of
    them counts user mode alone. Raises `InputError`.
    """
    turns: list[tuple[TableGroup, ...]] = []
    notes: dict[str, None] = {}
    for word in counters.split(","):
        parts = [_groups_of(name.strip(), counters, processor, notes) for name in word.split("+")]
        turns += (
            [tuple(group for part in parts for group in part)]
            if len(parts) > 1
            else [(group,) for group in parts[0]]
        )
    user_only_by_table = {group.table.name: group.user_only for turn in turns for group in turn}
    for group in [group for turn in turns for group in turn]:
        if group.user_only != user_only_by_table[group.table.name]:
            raise InputError(
                f"--counters {counters}: groups of {group.table.name} with and without the "
                f"kernel's part ({USER_ONLY}) have no rates together; count them in two runs"
            )
    return CounterChoice(tuple(dict.fromkeys(turns)), tuple(notes))


def refuse_few_iterations(choice: CounterChoice, iterations: int, discard: int) -> None:
    """Raise `InputError` where there are fewer counted iterations than turns."""
    needed = len(choice.turns) + discard
    if iterations < needed:
        names = ", ".join("+".join(group.short_name for group in turn) for turn in choice.turns)
        beside = f" beside the {discard} discarded" if discard else ""
        raise InputError(
            f"--counters: {len(choice.turns)} groups ({names}), one an iteration{beside}, need "
            f"--iterations {needed} or more (there are {iterations}); or name fewer groups"
        )


def _groups_of(
    word: str, counters: str, processor: Processor, notes: dict[str, None]
) -> tuple[TableGroup, ...]:
    if not word:
        raise InputError(
            f"--counters {counters!r}: expected GROUP,... such as {STACK} or {SOFTWARE}; "
            "`rater doctor counters` shows what there is"
        )
    user_only = word.endswith(USER_ONLY)
    table, name = _table_of(word.removesuffix(USER_ONLY), processor, notes)
    if name == STACK:
        groups = table.stack_groups()
        if not groups:
            raise InputError(
                f"--counters {word}: the table {table.name} has no CPI stack; it has the groups "
                f"{', '.join(group.name for group in table.groups)} ({ALL}: all of them)"
            )
    elif name == ALL:
        groups = table.groups
    else:
        groups = tuple(group for group in table.groups if group.name == name)
        if not groups:
            known_names = list(
                dict.fromkeys([STACK, ALL, SOFTWARE, *(group.name for group in table.groups)])
            )
            raise InputError(
                f"--counters {word}: the table {table.name} has no group {name!r}; "
                f"{did_you_mean(name, known_names)}"
            )
    chosen = tuple(TableGroup(table, group, user_only) for group in groups)
    for group_of_table in chosen:
        if user_only and all(event.in_kernel for event in group_of_table.group.events):
            raise InputError(
                f"--counters {word}: nothing of {group_of_table.name} happens in user mode"
            )
    return chosen


def _table_of(word: str, processor: Processor, notes: dict[str, None]) -> tuple[CounterTable, str]:
    place, colon, name = word.rpartition(":")
    if colon and "/" not in name:
        return load_table(place), name
    if "/" in word or word.endswith(".toml"):
        table = load_table(word)
        return table, STACK if table.stack else ALL
    if word == SOFTWARE:
        return load_table(SOFTWARE), ALL
    table_of_processor = table_for(processor)
    if table_of_processor is None:
        processor_name = processor.name or "this processor"
        notes[
            f"counters: no table for {processor_name}: the kernel's generic events are counted "
            "instead (its codes in a file of your own: --counters ./MINE.toml)"
        ] = None
        table_of_processor = load_table(GENERIC)
    return table_of_processor, word
