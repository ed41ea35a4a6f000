"""Counter tables: read strictly, found by processor; formulas, and codes against the vendors'.

Vendors' files are named by RATER_VENDOR_EVENTS: a folder with checkouts (or bare repositories) of
intel/perfmon, ARM-software/data and wcohen/libpfm4 as OWNER+NAME/repo.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.vendor_codes import KNOWN, stored, vendor_codes, with_codes
from rater.analysis.results.counters import ESTIMATED_WALKS, Rates, metrics_of, stack_of
from rater.plan.counter_choice import CounterChoice, choose_groups, refuse_few_iterations
from rater.plan.counter_tables import (
    CYCLES,
    INSTRUCTIONS,
    CounterTable,
    EventCode,
    Processor,
    load_table,
    parse_cpuinfo,
    parse_formula,
    parse_table,
    table_for,
    table_names,
)
from rater.system.errors import InputError

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
    "arm-neoverse-n2-r0p0": ARM.format(part="0xd49").replace("variant\t: 0x4", "variant\t: 0x0"),
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
    assert table_for(UNKNOWN) is table_for(Processor(name="")) is None


def test_every_table_of_a_processor_makes_a_stack_of_groups_with_cycles_and_instructions() -> None:
    for name in PROCESSORS:
        table = load_table(name)
        assert table.name == name
        assert table.stack_groups()
        for group in table.groups:
            assert [event.name for event in group.events][:2] == [CYCLES, INSTRUCTIONS], name
        values = dict.fromkeys(
            (event.name for group in table.groups for event in group.events), 1.0
        )
        assert all(formula.value(values) >= 0 for _, formula in table.stack)


def test_no_two_events_of_a_power_group_want_the_same_counter() -> None:
    for name in ("ibm-power9", "ibm-power10"):
        for group in load_table(name).groups:
            counters = [event.config >> 16 & 0xF for event in group.events]
            assert len(set(counters)) == len(counters), group.name


@pytest.mark.parametrize(
    ("change", "to", "message"),
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
def test_mistakes_of_a_table_are_told_with_line_and_key(change: str, to: str, message: str) -> None:
    read(TABLE)
    with pytest.raises(InputError) as error:
        read(TABLE.replace(change, to))
    assert message in str(error.value)


def test_formulas_are_of_events_that_are_counted_with_cycles() -> None:
    alone = TABLE.replace('one = ["cycles", "instructions", "stalls"]', 'one = ["stalls"]')
    with pytest.raises(InputError, match="unknown event 'stalls'; there are none"):
        read(alone)


def test_counters_names_groups_tables_and_files(tmp_path: Path) -> None:
    table_file = tmp_path / "own.toml"
    table_file.write_text(TABLE)
    pipeline, memory = "intel-skx:pipeline", "intel-skx:memory"
    threads, translation = "intel-skx:threads", "intel-skx:translation"
    for asked, expected in {
        "cpi": [pipeline, memory, threads, translation],
        "all": [pipeline, memory, threads, translation, "intel-skx:tlb", "intel-skx:numa"],
        "numa,pipeline": ["intel-skx:numa", pipeline],
        "pipeline,pipeline": [pipeline],
        "pipeline+memory, software": [f"{pipeline}+{memory}", "software:software"],
        "arm-neoverse-n1:cpi": ["arm-neoverse-n1:stalls"],
        str(table_file): ["mine:one"],
        f"{table_file}:one": ["mine:one"],
        "cpi:u": [f"{name}:u" for name in (pipeline, memory, threads, translation)],
        f"software,{table_file}:u": ["software:software", "mine:one:u"],
    }.items():
        choice = choose_groups(asked, SKX)
        assert (names(choice), choice.notes) == (expected, ()), asked
    assert choose_groups("pipeline+memory", SKX).most_events == 12
    assert [table.name for table in choose_groups("cpi,software", SKX).tables] == [
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
    ("groups", "message"),
    [
        ("", "expected GROUP,... such as cpi or software; `rater doctor counters` shows"),
        ("pipeline,", "expected GROUP"),
        ("pipelin", "the table intel-skx has no group 'pipelin'; did you mean pipeline?"),
        ("amd-zen9:cpi", "unknown counter table 'amd-zen9'; did you mean amd-zen"),
        ("./none.toml", "cannot read the counter table none.toml: No such file"),
        ("numa,cpi:u", "groups of intel-skx with and without the kernel's part (:u) have no rates"),
        ("software:zz", "there are: cpi, all, software"),
        ("software:cpi", "the table software has no CPI stack; it has the groups software"),
    ],
)
def test_groups_that_are_not_there_are_refused(groups: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        choose_groups(groups, SKX)
    assert message in str(error.value)


def test_groups_take_turns_over_counted_iterations() -> None:
    choice = choose_groups("cpi", SKX)
    turns = [[one.group.name for one in choice.turn(number, 1)] for number in range(1, 6)]
    assert turns == [[], ["pipeline"], ["memory"], ["threads"], ["translation"]]
    refuse_few_iterations(choice, 5, 1)
    with pytest.raises(
        InputError,
        match=r"4 groups \(pipeline, memory, threads, translation\), one an iteration beside the 1 "
        r"discarded, need --iterations 5 or more \(there are 4\)",
    ):
        refuse_few_iterations(choice, 4, 1)


VALUES = {"a": 6.0, "b": 4.0, "zero": 0.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 6.0),
        ("1000 * a", 6000.0),
        ("a / (a + b)", 0.6),
        ("-a + 2.5", -3.5),
        ("max(b - a, 0)", 0.0),
        ("min(a, b, 5) - max(1, 2)", 2.0),
    ],
)
def test_a_formula_comes_to_what_it_says(text: str, value: float) -> None:
    assert parse_formula(text, VALUES).value(VALUES) == pytest.approx(value)


def test_a_formula_knows_the_events_it_needs() -> None:
    assert parse_formula("a / max(a, b)", VALUES).names == {"a", "b"}
    for text in (
        "a / zero",
        "1e12 * a",
        "*".join(["1e12"] * 30),
        "0 * (" + "*".join(["1e12"] * 27) + ")",
    ):
        with pytest.raises(ArithmeticError):
            parse_formula(text, VALUES).value(VALUES)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("c + a", "unknown event 'c'; there are: a, b, zero"),
        ("a.real", "'a.real': expected names"),
        ("a[0]", "expected names"),
        ("__import__('os')", "expected names"),
        ("max(a)", "expected names"),
        ("max(*a, b)", "unknown|expected names"),
        ("max(a, b, key=a)", "expected names"),
        ("(lambda: a)()", "expected names"),
        ("a if b else a", "expected names"),
        ("a ** b", "expected names"),
        ("a // b", "expected names"),
        ("True", "expected names"),
        ("'a'", "expected names"),
        ("1e13", "expected names"),
        ("1j", "expected names"),
        ("a +", "no formula"),
        ("1if a else b", "no formula"),
        ("(" * 300 + "a", "no formula"),
        ("a" * 500, "more than 400 characters"),
        ("+".join("a" * 100), "too long"),
    ],
)
def test_anything_but_sums_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_formula(text, VALUES)


# The libpfm4 of an architecture has the events of that one only.
PMUS = {
    "intel-skx": ("skx", "clx"),
    "intel-icx": ("icx",),
    "intel-spr": ("spr",),
    "amd-zen2": ("amd64_fam17h_zen2",),
    "amd-zen3": ("amd64_fam19h_zen3",),
    "amd-zen4": ("amd64_fam19h_zen4",),
    "amd-zen5": ("amd64_fam1ah_zen5",),
    "arm-neoverse-n1": ("arm_n1",),
    "arm-neoverse-n2": ("arm_n2",),
    "arm-neoverse-n2-r0p0": ("arm_n2",),
    "arm-neoverse-v1": ("arm_v1",),
    "arm-neoverse-v2": ("arm_v2",),
}
# Bits that libpfm4 adds: user, system, interrupt, enable; Arm: exclusion of levels.
ADDED = 0x0000_0000_0053_0000
VENDORS = os.environ.get("RATER_VENDOR_EVENTS", "")


class PerfArgument(ctypes.Structure):
    """`pfm_pmu_encode_arg_t` of perfmon/pfmlib.h."""

    _fields_ = (
        ("codes", ctypes.POINTER(ctypes.c_uint64)),
        ("fstr", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("count", ctypes.c_int),
        ("idx", ctypes.c_int),
    )


# Read when the library begins, so by a process of its own.
ENCODE = f"""
import ctypes, json, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.plan.test_counter_tables import encode_all
print(json.dumps(encode_all(json.loads(sys.stdin.read()))))
"""


def encode_all(names: list[str]) -> dict[str, int | None]:
    library = ctypes.CDLL("libpfm.so.4")
    library.pfm_initialize()
    found: dict[str, int | None] = {}
    for name in names:
        argument = PerfArgument(None, None, ctypes.sizeof(PerfArgument), 0, 0)
        wrong = library.pfm_get_os_event_encoding(name.encode(), 8, 0, ctypes.byref(argument))
        found[name] = None if wrong or argument.count != 1 else argument.codes[0]
    return found


def events(table: str) -> Iterator[EventCode]:
    yield from {
        event.name: event for group in load_table(table).groups for event in group.events
    }.values()


def test_codes_are_those_of_libpfm4() -> None:
    try:
        ctypes.CDLL("libpfm.so.4")
    except OSError:
        pytest.skip("libpfm.so.4 is not installed (apt install libpfm4)")
    wanted = {
        f"{pmu}::{event.vendor.replace('.', ':')}": event.config
        for table, pmus in PMUS.items()
        for pmu in pmus
        for event in events(table)
    }
    encoded = json.loads(
        subprocess.run(
            [sys.executable, "-c", ENCODE],
            input=json.dumps(list(wanted)),
            env={**os.environ, "LIBPFM_ENCODE_INACTIVE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    known = {name: code & ~ADDED for name, code in encoded.items() if code is not None}
    assert {name: hex(code) for name, code in known.items()} == {
        name: hex(wanted[name]) for name in known
    }
    absent = {name.split("::")[0] for name in wanted.keys() - known}
    complete = {name.split("::")[0] for name in known} - absent
    assert complete, "it knows all events of at least one processor"


@pytest.mark.parametrize("table", KNOWN)
def test_codes_are_those_of_the_vendors_file(table: str) -> None:
    try:
        files = [*vendor_codes(Path(VENDORS or "/none"), table)]
    except FileNotFoundError as error:
        pytest.skip(f"RATER_VENDOR_EVENTS: {error}")
    for known in files:
        found = {event.vendor: known.get(event.vendor) for event in events(table)}
        assert found == {event.vendor: event.config for event in events(table)}


def test_a_table_takes_the_codes_of_the_vendors_file_and_keeps_its_other_lines() -> None:
    text = TABLE.replace("config = 0x3c }", 'config = 0x003c, vendor = "CYCLES" }')
    text = text.replace("config = 0xa3,", "config = 0xa4,")
    # As wide as it was written where the code is the same.
    codes = {"CYCLES": 0x3C, "STALLS": 0xA3}
    assert with_codes(text, codes) == text.replace("0xa4", "0xa3")
    with pytest.raises(KeyError, match="STALLS"):
        with_codes(text, {"CYCLES": 0x3C})


ZEN5_UNIT = re.compile(r'\.uname\s*= "(\w+)",.*?\.ucode\s*= (0x\w+)', re.DOTALL)


def test_codes_of_zen_5_are_those_of_libpfm4s_source() -> None:
    try:
        path = "lib/events/amd64_events_fam1ah_zen5.h"
        text = stored(Path(VENDORS or "/none"), "wcohen+libpfm4", path)
    except FileNotFoundError as error:
        pytest.skip(f"RATER_VENDOR_EVENTS: {error}")
    masks = {
        name: {unit: int(code, 16) for unit, code in ZEN5_UNIT.findall(body)}
        for name, body in re.findall(r"amd64_umask_t (\w+)\[\]=\{(.*?)\n\};", text, re.DOTALL)
    }
    entries = re.findall(
        r'\.name\s*= "(\w+)",.*?\.code\s*= (0x\w+),.*?(?:\.umasks = (\w+),|\n  \})', text, re.DOTALL
    )
    known = {name: (int(code, 16), masks.get(units, {})) for name, code, units in entries}
    for event in events("amd-zen5"):
        name, *units = event.vendor.split(".")
        code, of = known[name]
        mask = sum(of[unit] for unit in units)
        assert event.config == (code & 0xFF | mask << 8 | (code & 0xF00) << 24), event.name


# Two cycles an instruction: half a cycle of slots retires, a tenth of one is not delivered. Loads
# from DRAM stall .4, a full store buffer .1. The core gives .8 to its other thread, or none.
BOTH_THREADS = {"intel-icx": {"distributed": 1.2}, "intel-spr": {"distributed": 1.2}}
BOTH_THREADS |= {"intel-skx": {"alone": 0.2, "ref_clock": 1.0}}
ONE_THREAD = {"intel-icx": {"distributed": 2.0}, "intel-spr": {"distributed": 2.0}}
ONE_THREAD |= {"intel-skx": {"alone": 1.0, "ref_clock": 1.0}}


@pytest.mark.parametrize(("table", "slots"), [("intel-skx", 4), ("intel-icx", 5), ("intel-spr", 6)])
def test_full_store_buffers_and_the_other_thread_of_a_core_are_parts_of_the_stack(
    table: str, slots: int
) -> None:
    common = {"instructions": 1.0, "cycles": 2.0, "recovery": 0.0, "stores": 0.1}
    common |= {"retired_slots": 0.5 * slots, "issued": 0.5 * slots, "not_delivered": 0.1 * slots}
    common |= dict.fromkeys(("mem_any", "l1_miss", "l2_miss", "l3_miss"), 0.4)
    common |= {"walk_load": 0.0, "walk_store": 0.0}

    def parts(threads: dict[str, float], more: dict[str, float]) -> dict[str, float]:
        stack = stack_of(load_table(table), Rates(common | threads | more, 2.0, None))
        assert stack.missing == ()
        return {part.name: part.cycles for part in stack.parts}

    both = parts(BOTH_THREADS[table], {})
    assert (both["stores"], both["smt"], both["other"]) == pytest.approx((0.1, 0.8, 0.1))
    alone = parts(ONE_THREAD[table], {})
    assert (alone["stores"], alone["smt"], alone["other"]) == pytest.approx((0.1, 0.0, 0.9))
    # The thread waited for a store nearly always: what the core did meanwhile cost it nothing.
    waited = parts(BOTH_THREADS[table], {"stores": 0.9})
    assert (waited["smt"], waited["other"]) == pytest.approx((0.1, 0.0), abs=1e-9)


def test_a_slot_that_early_n2_count_too_many_in_each_cycle_is_taken_off() -> None:
    """Of 2 cycles an instruction 10 slots: 3 stall in front, 2 behind; r0p0 counts 2 more of each.

    What is left retires: a whole cycle. Without the erratum's share the front end had a fifth more.
    """
    common = {"slot_backend": 2.0, "op_retired": 1.0, "op_spec": 1.0}
    common |= {"backend_mem": 1.0, "stall_backend": 2.0, "instructions": 1.0, "cycles": 2.0}
    sound = common | {"stall_slot": 5.0, "slot_frontend": 3.0}
    early = common | {"stall_slot": 7.0, "slot_frontend": 5.0}
    stacks = [
        stack_of(load_table(name), Rates(rates, 1.0, None))
        for name, rates in (("arm-neoverse-n2", sound), ("arm-neoverse-n2-r0p0", early))
    ]
    parts = [{part.name: part.cycles for part in stack.parts} for stack in stacks]
    assert parts[0] == pytest.approx(parts[1])
    assert parts[0]["front_end"] == pytest.approx(0.6)
    assert parts[0]["base"] == pytest.approx(1.0)


# Of 2 cycles an instruction a tenth of a miss: at 5 cycles each half a cycle.
ESTIMATED = {
    "amd-zen2": ("other", {"retired_ops": 3.0, "queue_empty": 0.3, "dispatched": 3.0}),
    "amd-zen3": ("other", {"retired_ops": 3.0, "queue_empty": 0.3, "dispatched": 3.0}),
    "amd-zen4": (
        "memory",
        {"retired_ops": 3.0, "no_ops": 0.6, "dispatched": 3.0, "smt": 0.0, "backend": 6.0}
        | {"load_not_complete": 0.7, "not_complete": 1.0},
    ),
    "amd-zen5": (
        "back_end",
        {"retired_ops": 3.0, "no_ops": 0.8, "dispatched": 3.0, "smt": 0.0, "backend": 5.6},
    ),
    "arm-neoverse-n1": ("back_end", {"stall_frontend": 0.3, "stall_backend": 0.7}),
    "arm-neoverse-n2": ("memory", {"slot_frontend": 1.5, "slot_backend": 5.0, "stall_slot": 6.5}),
    "arm-neoverse-v1": ("memory", {"slot_frontend": 2.4, "slot_backend": 8.0, "stall_slot": 10.4}),
    "arm-neoverse-v2": ("memory", {"slot_frontend": 2.4, "slot_backend": 8.0, "stall_slot": 10.4}),
}
SLOTS = {"op_retired": 1.0, "op_spec": 1.0, "backend_mem": 0.7, "stall_backend": 1.0}


@pytest.mark.parametrize("name", ESTIMATED)
def test_translation_is_misses_x_what_one_costs_taken_off_the_part_it_lies_in(name: str) -> None:
    inside, events = ESTIMATED[name]
    misses = {"dtlb_miss": 0.1, "dtlb_walk": 0.1}
    common = SLOTS if "slot_frontend" in events else {}
    rates = Rates(common | events | misses | {"cycles": 2.0, "instructions": 1.0}, 1.0, None)
    table = load_table(name)

    def parts(miss_cycles: float | None) -> dict[str, float]:
        stack = stack_of(table, rates, miss_cycles)
        assert sum(part.cycles for part in stack.parts) == pytest.approx(2.0)
        assert (stack.missing, len(stack.estimated) + len(stack.not_estimated)) == ((), 1)
        assert stack.estimated == (() if miss_cycles is None else ("translation",))
        return {part.name: part.cycles for part in stack.parts}

    unknown, known = parts(None), parts(5.0)
    assert unknown[inside] == pytest.approx(1.2 if inside == "other" else 0.7)
    assert "translation" not in unknown  # and no 0
    assert known["translation"] == pytest.approx(0.5)
    assert known[inside] == pytest.approx(unknown[inside] - 0.5)
    assert metrics_of(table, rates, 5.0)[ESTIMATED_WALKS] == pytest.approx(0.5)
    assert ESTIMATED_WALKS not in metrics_of(table, rates)
    # A miss cannot take more than the stalls that it lies in.
    dear = parts(1000.0)
    assert dear["translation"] == pytest.approx(unknown[inside])
    assert dear[inside] == 0.0


def test_misses_that_were_not_counted_estimate_nothing() -> None:
    rates = Rates({"cycles": 2.0, "instructions": 1.0, "stall_backend": 0.7}, 1.0, None)
    stack = stack_of(load_table("arm-neoverse-n1"), rates, 5.0)
    assert (stack.missing, stack.estimated) == (("front_end",), ())
    assert stack.not_estimated == ("translation",)


def test_an_estimate_lies_in_a_part_of_its_stack() -> None:
    text = load_table("amd-zen5").text.replace('inside = "back_end"', 'inside = "backend"')
    with pytest.raises(InputError, match=r"no part 'backend'; did you mean back_end\?"):
        parse_table(text, Path("mine.toml"))
