"""Counter tables: read strictly, found by processor, chosen by `--counters`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.counter_choice import CounterChoice, choose_groups, refuse_few_iterations
from rater.plan.counter_tables import (
    CYCLES,
    INSTRUCTIONS,
    CounterTable,
    Processor,
    load_table,
    parse_cpuinfo,
    parse_table,
    table_for,
    table_names,
)

X86 = """processor\t: 0
vendor_id\t: {vendor}
cpu family\t: {family}
model\t\t: {model}
model name\t: A CPU
stepping\t: 7
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x4
CPU part\t: {part}
CPU revision\t: 1
"""
POWER = """processor\t: 0
cpu\t\t: {cpu} (raw), altivec supported
revision\t: 2.2 (pvr {pvr} 1202)
"""
PROCESSORS = {
    "intel-skx": X86.format(vendor="GenuineIntel", family=6, model=85),
    "intel-icx": X86.format(vendor="GenuineIntel", family=6, model=106),
    "intel-spr": X86.format(vendor="GenuineIntel", family=6, model=207),
    "amd-zen2": X86.format(vendor="AuthenticAMD", family=23, model=49),
    "amd-zen3": X86.format(vendor="AuthenticAMD", family=25, model=1),
    "amd-zen4": X86.format(vendor="AuthenticAMD", family=25, model=17),
    "amd-zen5": X86.format(vendor="AuthenticAMD", family=26, model=2),
    "arm-neoverse-n1": ARM.format(part="0xd0c"),
    "arm-neoverse-n2": ARM.format(part="0xd49"),
    "arm-neoverse-v1": ARM.format(part="0xd40"),
    "arm-neoverse-v2": ARM.format(part="0xd4f"),
    "ibm-power9": POWER.format(cpu="POWER9", pvr="004e"),
    "ibm-power10": POWER.format(cpu="POWER10", pvr="0080"),
}
SKX = parse_cpuinfo(PROCESSORS["intel-skx"])
UNKNOWN = parse_cpuinfo(X86.format(vendor="GenuineIntel", family=6, model=1))
TABLE = """[pmu]
name = "mine"
counters = 2
fixed = ["cycles", "instructions"]
[events]
cycles = { config = 0x3c }
instructions = { config = 0xc0 }
stalls = { config = 0xa3, vendor = "STALLS" }
[groups]
one = ["cycles", "instructions", "stalls"]
[stack]
memory = "stalls"
"""


def read(text: str) -> CounterTable:
    return parse_table(text, Path("mine.toml"))


def names(choice: CounterChoice) -> list[str]:
    return list(choice.names)


def test_every_processor_has_the_table_of_its_family() -> None:
    found = {name: table_for(parse_cpuinfo(text)) for name, text in PROCESSORS.items()}
    assert {name: table and table.name for name, table in found.items()} == {
        name: name for name in PROCESSORS
    }
    assert set(table_names()) == {*PROCESSORS, "generic", "software"}
    assert table_for(UNKNOWN) is table_for(Processor("")) is None


def test_every_table_of_a_processor_makes_a_stack_of_groups_with_cycles_and_instructions() -> None:
    for name in PROCESSORS:
        table = load_table(name)
        assert table.name == name
        assert table.stack_groups()
        for group in table.groups:
            assert [event.name for event in group.events][:2] == [CYCLES, INSTRUCTIONS], name
        values = dict.fromkeys((it.name for g in table.groups for it in g.events), 1.0)
        assert all(formula.value(values) >= 0 for _, formula in table.stack)


def test_no_two_events_of_a_power_group_want_the_same_counter() -> None:
    for name in ("ibm-power9", "ibm-power10"):
        for group in load_table(name).groups:
            counters = [event.config >> 16 & 0xF for event in group.events]
            assert len(set(counters)) == len(counters), group.name


@pytest.mark.parametrize(
    ("change", "to", "told"),
    [
        ("counters = 2", "counters = 0", "mine.toml:3: pmu.counters: expected a whole number"),
        ("0xa3, vendor", '"a3", vendor', "mine.toml:8: events.stalls.config: expected a whole"),
        ('"stalls"]', '"stals"]', "mine.toml:10: groups.one: unknown event 'stals'; did you mean"),
        ('"stalls"]', '"cycles"]', "groups.one: an event twice"),
        ('"stalls"\n', '"stalls * 2 +"\n', "mine.toml:12: stack.memory: no formula"),
        ('"stalls"\n', '"walks"\n', "stack.memory: unknown event 'walks'"),
        ("[stack]", "[stacks]", "stacks: unknown key; did you mean stack?"),
        ("fixed = [", 'fixed = ["none", ', "pmu.fixed: unknown event 'none'"),
        ('name = "mine"', 'name = "mine"\ndevice = "../x"', "expected a name below /sys/bus/"),
        ('name = "mine"', 'name = "mine"\nmatch = { models = ["1-x"] }', "a number or a range"),
        ("[pmu]", "#" * 100_000 + "\n[pmu]", "mine.toml: more than 100 kB"),
        (
            'fixed = ["cycles", "instructions"]',
            "",
            "3 events that have no counter of their own, the processor has 2 counters",
        ),
    ],
)
def test_mistakes_of_a_table_are_told_with_line_and_key(change: str, to: str, told: str) -> None:
    read(TABLE)
    with pytest.raises(InputError) as error:
        read(TABLE.replace(change, to))
    assert told in str(error.value)


def test_formulas_are_of_events_that_are_counted_with_cycles() -> None:
    alone = TABLE.replace('one = ["cycles", "instructions", "stalls"]', 'one = ["stalls"]')
    with pytest.raises(InputError, match="unknown event 'stalls'; there are none"):
        read(alone)


def test_counters_names_groups_tables_and_files(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(TABLE)
    pipeline, memory = "intel-skx:pipeline", "intel-skx:memory"
    for asked, found in {
        "cpi": [pipeline, memory, "intel-skx:translation"],
        "all": [pipeline, memory, *(f"intel-skx:{it}" for it in ("translation", "tlb", "numa"))],
        "numa,pipeline": ["intel-skx:numa", pipeline],
        "pipeline,pipeline": [pipeline],
        "pipeline+memory, software": [f"{pipeline}+{memory}", "software:software"],
        "arm-neoverse-n1:cpi": ["arm-neoverse-n1:stalls"],
        str(own): ["mine:one"],
        f"{own}:one": ["mine:one"],
        "cpi:u": [f"{pipeline}:u", f"{memory}:u", "intel-skx:translation:u"],
        f"software,{own}:u": ["software:software", "mine:one:u"],
    }.items():
        choice = choose_groups(asked, SKX)
        assert (names(choice), choice.notes) == (found, ()), asked
    assert choose_groups("pipeline+memory", SKX).most_events == 12
    assert [it.name for it in choose_groups("cpi,software", SKX).tables] == [
        "intel-skx",
        "software",
    ]


def test_an_unknown_processor_counts_what_the_kernel_names_and_says_so() -> None:
    choice = choose_groups("cpi,software", UNKNOWN)
    assert names(choice) == ["generic:stalls", "software:software"]
    assert choice.notes == (
        "counters: no table for A CPU: the kernel's generic events are counted instead "
        "(its codes in a file of your own: --counters ./MINE.toml)",
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("", "expected GROUP,... such as cpi or software; `rater counters` shows"),
        ("pipeline,", "expected GROUP"),
        ("pipelin", "the table intel-skx has no group 'pipelin'; did you mean pipeline?"),
        ("amd-zen9:cpi", "unknown counter table 'amd-zen9'; did you mean amd-zen"),
        ("./none.toml", "cannot read the counter table none.toml: No such file"),
        ("numa,cpi:u", "groups of intel-skx with and without the kernel's part (:u) have no rates"),
        ("software:zz", "there are: cpi, all, software"),
        ("software:cpi", "the table software has no CPI stack; it has the groups software"),
    ],
)
def test_groups_that_are_not_there_are_refused(asked: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        choose_groups(asked, SKX)
    assert told in str(error.value)


def test_groups_take_turns_over_counted_iterations() -> None:
    choice = choose_groups("cpi", SKX)
    turns = [[one.group.name for one in choice.turn(n, 1)] for n in range(1, 6)]
    assert turns == [[], ["pipeline"], ["memory"], ["translation"], ["pipeline"]]
    refuse_few_iterations(choice, 4, 1)
    with pytest.raises(
        InputError,
        match=r"3 groups \(pipeline, memory, translation\), one an iteration beside the 1 "
        r"discarded, need --iterations 4 or more \(there are 3\)",
    ):
        refuse_few_iterations(choice, 3, 1)
