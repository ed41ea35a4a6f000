"""J. Korn and F. Chang, SPEC CPU2006 in pages of 4 KB, 64 KB and 16 MB: speed-ups, CPI, memory.

Speed-ups of single benchmarks are made, so that their geometric means are those of the paper.
"""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from rater.plan.counter_choice import choose_groups
from rater.plan.counter_tables import Processor
from rater.plan.tlb import tlb_facts
from rater.record.run import BenchmarkUsed
from rater.run.host.hardware import hardware_facts
from rater.store.observations import read_observations
from rater.store.store import Store
from tests.support.calls import Rater
from tests.support.counted_runs import counted_run
from tests.support.golden_shapes import keep
from tests.support.observations import observed
from tests.support.papers import FLOATING, INTEGER, json_of, rows_of, store_times

SMALL_S = 1000.0  # of each benchmark in pages of 4 KB
MEANS = {"64k": (1.071, 1.103), "16M": (1.079, 1.111)}


def speedups(names: tuple[str, ...], mean: float) -> dict[str, float]:
    """Return factors from 1.5 % below their geometric mean to 1.5 % above it, a benchmark each."""
    middle = (len(names) - 1) / 2
    return {
        name: mean * 1.03 ** ((place - middle) / len(names)) for place, name in enumerate(names)
    }


def store_sizes(store: Store) -> dict[str, dict[str, float]]:
    """Store a run for each page size, benchmarks with their categories; return the speed-ups."""
    factors = {"4k": dict.fromkeys((*INTEGER, *FLOATING), 1.0)} | {
        size: speedups(INTEGER, integer) | speedups(FLOATING, floating)
        for size, (integer, floating) in MEANS.items()
    }
    for size, by_name in factors.items():
        rows = [
            {"benchmark": name, "elapsed_s": SMALL_S / factor} for name, factor in by_name.items()
        ]
        text = json.dumps(observed(*rows, uuid=size, copies=1)).encode()
        run = read_observations(text, size)
        categories = dict.fromkeys(INTEGER, "int") | dict.fromkeys(FLOATING, "fp")
        used = tuple(
            BenchmarkUsed(name=name, category=category, command=name)
            for name, category in categories.items()
        )
        store.add(replace(run, benchmarks=used))
    return factors


def test_table_1_caches_and_tlbs_have_their_size_ways_and_lines(tmp_path: Path) -> None:
    """A first level of 48 KB in 12 ways of 64-byte lines, as /sys has it, and 72 entries."""
    cache = tmp_path / "sys/devices/system/cpu/cpu0/cache/index0"
    cache.mkdir(parents=True)
    texts = {"level": "1", "type": "Data", "size": "48K"}
    texts |= {"ways_of_associativity": "12", "coherency_line_size": "64"}
    for name, text in texts.items():
        (cache / name).write_text(f"{text}\n")
    assert dict(hardware_facts(tmp_path))["cache.L1d"] == "48K, 12 ways, 64-byte lines"
    leaves = {"80000005": (0, 72 << 16 | 0xFF << 24, 0, 0), "80000006": (0, 0, 0, 0)}
    assert "72 entries, 72 ways" in dict(tlb_facts(leaves)).values()


def test_table_4_has_58_speedups_to_three_digits(rater: Rater, store: Store) -> None:
    factors = store_sizes(store)
    document = json_of(rater, "compare", 1, 2, 3)
    ratios = {
        (row["benchmark"], size): round(point["speedup"]["ratio"], 3)
        for row in document["benchmarks"]
        for size, point in zip(MEANS, row["points"], strict=True)
    }
    assert len(ratios) == 58
    assert ratios == {
        (name, size): round(factors[size][name], 3)
        for size in MEANS
        for name in (*INTEGER, *FLOATING)
    }


def test_table_4_has_the_geometric_means_of_int_and_fp(rater: Rater, store: Store) -> None:
    store_sizes(store)
    _, out, _ = rater("compare", 1, 2, 3)
    lines = [line for line in rows_of(out) if line[:1] == ["suite,"]]
    assert [[*line[:3], *(cell.rstrip("?") for cell in line[-2:])] for line in lines] == [
        ["suite,", "int", "(12)", "1.071", "1.079"],
        ["suite,", "fp", "(17)", "1.103", "1.111"],
    ]


def test_table_2_the_compiler_its_flags_and_the_system_are_kept_with_a_run(
    rater: Rater, store: Store
) -> None:
    run = counted_run()
    used = replace(run.benchmarks[0], compiler="cc 12.2", flags="-O3 -static")
    host = replace(run.host, product="Power 550", cpu_model="POWER6 4.7 GHz")
    keep(store, replace(run, benchmarks=(used, *run.benchmarks[1:]), host=host))
    _, out, _ = rater("export", "last", "--format", "json")
    document = json.loads(out)
    machine, (kept, *_) = document["host"], document["benchmarks"]
    assert (machine["product"], machine["cpu_model"]) == ("Power 550", "POWER6 4.7 GHz")
    assert (kept["compiler"], kept["flags"]) == ("cc 12.2", "-O3 -static")


def test_table_3_groups_of_events_are_counted_in_turn_over_iterations(tmp_path: Path) -> None:
    """The paper's 35 events in 19 groups: a table of one's own, a group an iteration."""
    events = "\n".join(f"event{number} = {{ config = {number} }}" for number in range(33))
    groups = "\n".join(
        f'group{number} = ["cycles", "instructions", '
        + ", ".join(f'"event{at}"' for at in (2 * number, 2 * number + 1) if at < 33)
        + "]"
        for number in range(17)
    )
    table = tmp_path / "mine.toml"
    table.write_text(
        '[pmu]\nname = "mine"\ncounters = 4\n[events]\ncycles = { config = 100 }\n'
        f"instructions = {{ config = 101 }}\n{events}\n[groups]\n{groups}\n"
        'first = ["cycles", "instructions"]\nlast = ["cycles", "instructions", "event0"]\n'
    )
    choice = choose_groups(f"{table}:all", Processor(name="any"))
    assert len(choice.turns) == 19
    counted = {event.name for turn in choice.turns for one in turn for event in one.group.events}
    assert len(counted) == 35


def test_figures_1_and_2_have_cycles_per_instruction_over_those_of_the_first_run(
    rater: Rater, store: Store
) -> None:
    for cycles in (2000, 1900, 1800):
        keep(store, counted_run(cycles=cycles))
    _, out, _ = rater("show", "plot", "--cpi", 1, 2, 3)
    text = " ".join(out.split())
    assert "100 %" in text
    assert "95 %" in text
    assert "90 %" in text


def test_appendix_a_has_average_and_maximum_memory_of_each_size(
    rater: Rater, tmp_path: Path
) -> None:
    """The average is that of both copies, the maximum that of either."""
    for uuid, average, most in (("4k", 100e6, 110e6), ("64k", 101e6, 112e6), ("16M", 130e6, 151e6)):
        memory = ((average - 2e6, most), (average + 2e6, most - 3e6))
        rows = [
            {"copy": copy, "mean_rss_bytes": int(mean), "peak_rss_bytes": int(peak)}
            for copy, (mean, peak) in enumerate(memory)
        ]
        store_times(rater, tmp_path, uuid, rows, copies=2)
    _, out, _ = rater("compare", 1, 2, 3, "--memory")
    assert ["b", "100", "110", "101", "112", "130", "151"] in [
        [cell.removesuffix(".0") for cell in line] for line in rows_of(out)
    ]
