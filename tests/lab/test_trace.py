"""Page references: a real program under the tracer, the analyser against slow, obvious ones."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.lab.layout.preload import build_library
from rater.lab.trace.machine import machine_tlb, miss_cycles
from rater.lab.trace.pages import check_program
from rater.lab.trace.store import find_trace, keep_check, keep_trace, load_trace, trace_heads
from rater.lab.trace.tlb import CheckTimes, PageTrace, WalkGap, WalkOrder
from rater.lab.trace.tracer import (
    TraceAnalysis,
    TraceRun,
    build_tools,
    find_valgrind,
    machine_costs,
    native_program,
    read_trace,
    run_traced,
)
from rater.plan.counter_choice import choose_groups
from rater.plan.counter_tables import Processor, load_table
from rater.plan.tlb import parse_tlb
from rater.run.launcher.copies import CopySpec
from rater.run.programs.child_process import Limits
from rater.store.store import Store, open_store
from rater.system.errors import InputError, RunError
from rater.workflow.counters import counter_settings, estimate_text
from tests.support.calls import Rater
from tests.support.papers import suite_of
from tests.support.traces import COSTS, TLB, a_trace


@pytest.fixture(scope="session")
def page_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


IN_HEAP, IN_MMAP, IN_STATIC = 0, 1, 2
MB = 1 << 20
PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static char table[8 << 20];
int main(int argc, char **argv)
{
    volatile char *array = malloc(12 << 20);          /* a large block: 6 huge pages, or 7 */
    for (int round = 0; round < 3; round++)
        for (int at = 0; at < 12 << 20; at += 4096) array[at]++;
    char *blocks[2000];
    for (int i = 0; i < 2000; i++) { blocks[i] = malloc(1000); blocks[i][0] = 1; }
    for (int at = 0; at < 8 << 20; at += 4096) table[at] = 1;
    if (fork() == 0) { memset((void *)array, 1, 12 << 20); _exit(0); }
    wait(NULL);
    return argc > 1 ? atoi(argv[1]) : blocks[7][0] + table[4096] - 2;
}
"""

# Each load's register is overwritten by the next one: of eight loads only the last is of use.
UNROLLED = r"""
#include <stdlib.h>
int main(void)
{
    volatile char *array = calloc(1, 16 << 20);
    for (int round = 0; round < 4; round++)
        for (int at = 0; at < 16 << 20; at += 4 * 4096) {
            volatile char *next = array + at;
            (void)next[0]; (void)next[64]; (void)next[4096]; (void)next[4096 + 64];
            (void)next[2 * 4096]; (void)next[2 * 4096 + 64];
            (void)next[3 * 4096]; (void)next[3 * 4096 + 64];
        }
    return 0;
}
"""

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind, which traces, is not installed"
)


def traced(
    tmp_path: Path, cache: Path, *words: str, program: str = PROGRAM, time_s: float = 100
) -> TraceRun:
    source = tmp_path / "program.c"
    source.write_text(program)
    subprocess.run(["cc", "-O1", "-o", tmp_path / "program", source], check=True)
    spec = CopySpec(
        argv=(),
        shared_variables={b"PATH": os.fsencode(os.environ["PATH"])},
        directory=str(tmp_path),
        output=f"{tmp_path}/",
    )

    def running(wrap: tuple[str, ...], doing: Any) -> TraceRun:
        argv = (*wrap, str(tmp_path / "program"), *words)
        trace_run: TraceRun = doing(
            CopySpec(
                argv=argv,
                shared_variables=spec.environment,
                directory=spec.directory,
                output=spec.output,
            )
        )
        return trace_run

    tools = build_tools(find_valgrind(), cache)
    library = build_library(cache, split=True).executable
    mappings = ("12,12,12,12,12,12", "21,21,21,12,12,12")
    analysis = TraceAnalysis(("1:15:64:4", "2:7:1536:12"), mappings, threads=2)
    return run_traced(tools, running, analysis, Limits(time_s, None), library)


def trace_of(trace_run: TraceRun) -> PageTrace:
    return read_trace(
        trace_run.document,
        huge_bytes=2 * MB,
        has_ranges=True,
        elapsed_s=trace_run.elapsed_s,
        native_s=None,
        native_cpu_s=None,
        tlb="",
        engine="",
        name="program",
        command=(),
        suite=None,
        size=None,
    )


@needs_valgrind
def test_loads_that_nobody_uses_are_counted_as_the_processor_makes_them(
    tmp_path: Path, page_cache: Path
) -> None:
    trace = trace_of(traced(tmp_path, page_cache, program=UNROLLED))
    assert trace.references[IN_MMAP] == 4 * 2 * 4096
    assert trace.of_size(4096).pages[IN_MMAP] == 4096
    # Each page is walked again when caches took two lines of each of the 4096 in.
    walks = sum(gap.loads for gap in trace.mappings[0].gaps if gap.octave == 14)
    assert 3 * 4096 <= walks <= 3 * 4096 + 50


@needs_valgrind
def test_data_is_told_apart_and_counted_page_by_page(tmp_path: Path, page_cache: Path) -> None:
    trace_run = traced(tmp_path, page_cache, "3")
    assert trace_run.status == 3
    trace = trace_of(trace_run)
    base, huge = trace.of_size(4096), trace.of_size(2 * MB)
    assert base.pages[IN_MMAP] == base.faults[IN_MMAP] == 3072
    assert huge.pages[IN_MMAP] == 6
    # Twice more around, with all the others in between: beyond 1536, where a bin begins.
    far = sum(count for distance, count in base.histogram[IN_MMAP] if distance >= 1536)
    assert far == 2 * 3072
    # 2000 blocks of 1008 bytes, of which some fit into what was free before the range began
    assert 440 <= base.pages[IN_HEAP] <= 500, base
    assert huge.pages[IN_HEAP] == 1
    # .bss begins anywhere: 3 whole huge pages lie in it, the rest is small
    assert base.pages[IN_STATIC] == 3 * 512
    assert sum(base.pages[IN_STATIC : IN_STATIC + 2]) >= 2048
    assert trace.references[IN_MMAP] == 3 * 2 * 3072  # a load and a store
    assert (trace.programs, trace.processes) == (1, 1)  # its child is not traced
    walks = [region.walks_base for region in trace.regions if region.category == "mmap"]
    assert walks == [3 * 512] * 6


@needs_valgrind
def test_a_program_that_takes_too_long_is_killed(tmp_path: Path, page_cache: Path) -> None:
    with pytest.raises(RunError, match="--timeout"):
        traced(tmp_path, page_cache, time_s=0.05)


def a_valgrind(folder: Path, version: str) -> dict[str, str]:
    program = folder / "bin" / "valgrind"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return {"PATH": str(program.parent)}


@needs_valgrind
def test_a_missing_old_or_headless_valgrind_is_refused_with_the_package(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not in PATH: install valgrind with its headers"):
        find_valgrind({"PATH": str(tmp_path)})
    environment = a_valgrind(tmp_path / "old", "valgrind-3.14.0")
    with pytest.raises(InputError, match=r"wants valgrind 3\.15 on"):
        find_valgrind(environment, tmp_path)
    environment = a_valgrind(tmp_path / "bare", "valgrind-3.19.0")
    with pytest.raises(InputError, match=r"headers for tools not: .*valgrind-devel"):
        find_valgrind(environment, tmp_path)


@needs_valgrind
def test_a_valgrind_of_another_prefix_is_found_whole(tmp_path: Path) -> None:
    environment = a_valgrind(tmp_path, "valgrind-3.22.0")
    for name in (
        "include/valgrind/pub_tool_tooliface.h",
        "lib64/valgrind/libcoregrind-amd64-linux.a",
        "lib64/valgrind/libcoregrind-arm64-linux.a",
        "libexec/valgrind/none-amd64-linux",
        "libexec/valgrind/none-arm64-linux",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = find_valgrind(environment, tmp_path)
    assert (found.version, found.parts) == ("3.22.0", tmp_path / "libexec/valgrind")
    assert found.libraries == tmp_path / "lib64/valgrind"


HEAP, MMAP, STATIC, STACK, OTHER, UNMAP, DROP, RESET, FORK = range(1, 10)
NAMES = ("heap", "mmap", "static", "small static", "stack", "other")
OF_KIND = {HEAP: 0, MMAP: 1, STATIC: 2, STACK: 4, OTHER: 5}
SHIFTS = (12, 16, 21, 30)
BASE = "12,12,12,12,12,12"

type Records = list[tuple[int, ...]]  # (page, count), or (event, begin, end)


@pytest.fixture(scope="module")
def analyser(page_cache: Path) -> Path:
    return native_program("analyse", page_cache, ("-pthread",))


def pack_records(records: Records) -> bytes:
    packed = []
    for record in records:
        if len(record) == 2:
            page, count = record
            packed.append(page | count << 37)
        else:
            kind, begin, end = record
            packed += [1 << 63 | kind << 56 | begin, end]
    return struct.pack(f"={len(packed)}Q", *packed)


def analysed(analyser: Path, records: Records, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [analyser, *options], input=pack_records(records), capture_output=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def references(records: Records) -> Iterator[tuple[int, int, int]]:
    """Page, count, category of each record; a category holds for whole 2 MB here."""
    kinds: dict[int, int] = {}
    for record in records:
        if len(record) == 3:
            kind, begin, end = record
            kinds |= {at: OF_KIND[kind] for at in range(begin >> 21, end >> 21)}
        else:
            page, count = record
            yield page, count, kinds.get(page >> 9, 5)


def slow_distances(records: Records, shift: int) -> tuple[list[Counter[int]], list[int]]:
    """Distances by category, and first touches: a list with the newest page in front."""
    stack: list[int] = []
    histograms: list[Counter[int]] = [Counter() for _ in NAMES]
    first = [0] * len(NAMES)
    for small, count, category in references(records):
        page = small >> (shift - 12)
        if page in stack:
            histograms[category][stack.index(page)] += 1
            stack.remove(page)
        else:
            first[category] += 1
        stack.insert(0, page)
        histograms[category][0] += count - 1
    return histograms, first


def in_bins(distances: Counter[int]) -> Counter[int]:
    """Exact below 32, then 16 bins an octave."""
    found: Counter[int] = Counter()
    for distance, count in distances.items():
        step = max(0, distance.bit_length() - 5)
        found[distance >> step << step] += count
    return found


def slow_misses(
    records: Records, shifts: Sequence[int], arrays: Sequence[tuple[int, set[int], int, int]]
) -> tuple[list[int], list[int]]:
    """Misses of both levels by category: each set a list with the newest entry in front."""
    sets: dict[tuple[int, int], list[tuple[int, int]]] = {}
    missed = ([0] * len(NAMES), [0] * len(NAMES))
    last = None
    for small, _, category in references(records):
        shift = shifts[category]
        page = small >> (shift - 12)
        if (shift, page) == last:
            continue
        last = (shift, page)
        for level in (1, 2):
            hit = False
            for number, (of, sizes, entries, ways) in enumerate(arrays):
                if of == level and shift in sizes:
                    place = sets.setdefault((number, page % (entries // ways)), [])
                    hit = (shift, page) in place
                    if hit:
                        place.remove((shift, page))
                    place.insert(0, (shift, page))
                    del place[ways:]
            if hit:
                break
            missed[level - 1][category] += 1
    return missed


def a_program(seed: int, size: int) -> Records:
    """Heap, mappings, static data and a stack, with hot pages, sweeps and far jumps."""
    choose = random.Random(seed)
    kinds = (HEAP, MMAP, STATIC, STACK, OTHER)
    at = {kind: (1 + 8 * number) * 512 * MB for number, kind in enumerate(kinds)}
    records: Records = [(kind, begin, begin + 64 * MB) for kind, begin in at.items()]
    before = -1
    while len(records) < size:
        first = at[choose.choice(kinds)] >> 12
        span = choose.choice((3, 40, 700, 16384))
        page = first + choose.randrange(span)
        for step in range(choose.choice((1, 1, 1, 30))):
            if page + step != before and page + step < first + 16384:
                before = page + step
                records.append((before, choose.choice((1, 1, 5))))
    return records


@pytest.mark.parametrize("seed", [1, 2])
def test_distances_are_those_of_a_list_for_each_page_size_and_category(
    analyser: Path, seed: int
) -> None:
    records = a_program(seed, 6000)
    found = analysed(analyser, records, "-j", "3")
    assert found["page_changes"] == sum(len(record) == 2 for record in records)
    for shift, size in zip(SHIFTS, found["sizes"], strict=True):
        distances, first = slow_distances(records, shift)
        assert size["cold"] == first
        for name, near, slow in zip(NAMES, size["near"], distances, strict=True):
            told = Counter({distance: count for distance, count in size["histogram"][name]})
            told[0] += near
            assert told == in_bins(slow), (shift, name)


def test_stacks_that_outgrow_their_room_stay_exact(analyser: Path) -> None:
    # 40,000 pages twice over, then the last 20,000 backwards: more than the first room of a stack
    pages = [*range(40_000), *range(40_000), *range(39_998, 20_000, -1)]
    found = analysed(analyser, [(page, 1) for page in pages])
    [base, *_] = found["sizes"]
    told = {distance: count for distance, count in base["histogram"]["other"]}
    assert base["cold"] == [0, 0, 0, 0, 0, 40_000]
    again = in_bins(Counter([39_999] * 40_000 + list(range(1, 19_999))))
    assert told == again


@pytest.mark.parametrize("seed", [3, 4])
def test_misses_are_those_of_lists_for_every_mapping(analyser: Path, seed: int) -> None:
    arrays = [(1, {12, 16}, 16, 4), (1, {21, 30}, 8, 8), (2, {12, 16, 21}, 96, 6)]
    options = [
        *("-t", "1:3:16:4", "-t", "1:12:8:8", "-t", "2:7:96:6"),
        *("-m", BASE, "-m", "21,12,12,12,12,12", "-m", "16,21,30,12,12,12"),
    ]
    records = a_program(seed, 6000)
    found = analysed(analyser, records, *options, "-j", "2")
    for mapping in found["mappings"]:
        l1, walks = slow_misses(records, mapping["shifts"], arrays)
        assert (mapping["l1"], mapping["l2"]) == (l1, walks)
        by_region = [0] * len(NAMES)
        for category, _, missed, _ in mapping["regions"]:
            by_region[category] += missed
        assert by_region == l1


def test_memory_given_back_is_a_fault_again_but_no_new_page(analyser: Path) -> None:
    at = 1024 * MB
    page = at >> 12
    touch: Records = [(page + number, 1) for number in range(1024)]
    records: Records = [
        (MMAP, at, at + 4 * MB),
        *touch,
        (DROP, at, at + 2 * MB),
        *touch,
        (UNMAP, at + 3 * MB, at + 4 * MB),  # half of a huge page: that stays
        (MMAP, at + 3 * MB, at + 4 * MB),
        *touch,
    ]
    base, _, huge, _ = analysed(analyser, records)["sizes"]
    assert base["cold"][1] == base["pages"][1] == 1024
    assert base["faults"][1] == 1024 + 512 + 256
    assert huge["faults"][1] == 2 + 1


def test_a_page_counts_for_each_category_that_has_a_part_of_it(analyser: Path) -> None:
    at = 1024 * MB
    page = at >> 12
    found = analysed(
        analyser,
        [(OTHER, at, at + MB), (page, 1), (HEAP, at, at + 2 * MB), (page, 1), (page + 1, 1)],
    )
    base, _, huge, _ = found["sizes"]
    assert (base["pages"], huge["pages"]) == ([2, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 1])


def test_static_data_is_small_where_no_huge_page_lies_wholly_in_it(analyser: Path) -> None:
    at = 1024 * MB
    analysis = analysed(
        analyser,
        [
            (STATIC, at + 4096, at + 5 * MB),  # whole huge pages: from 2 to 4 MB
            *((page, 2) for page in range((at >> 12) + 1, (at + 5 * MB) >> 12)),
        ],
    )
    assert analysis["references"] == [0, 0, 2 * 512, 2 * (511 + 256), 0, 0]


def test_another_program_begins_with_empty_stacks_and_tlbs(analyser: Path) -> None:
    options = ("-t", "1:15:8:8", "-m", BASE)
    one: Records = [(RESET, 1, 2), (7, 1), (8, 1), (7, 1), (8, 1)]
    found = analysed(analyser, [*one, (FORK, 1, 2), *one], *options)
    assert found["sizes"][0]["cold"][5] == found["mappings"][0]["l1"][5] == 4
    assert (found["programs"], found["forks"]) == (2, 1)


def test_a_sample_finds_the_misses_of_the_whole_within_its_error(analyser: Path) -> None:
    choose = random.Random(5)
    records: Records = [(choose.randrange(20_000), 1) for _ in range(200_000)]
    exact = analysed(analyser, records, "-t", "1:15:1024:1024")["sizes"][0]
    sample = analysed(analyser, records, "-t", "1:15:1024:1024", "-s", "0.1")["sizes"][0]
    far = sum(number for distance, number in exact["histogram"]["other"] if distance >= 1024)
    far += exact["cold"][5]
    assert sum(sample["far"]) / 0.1 == pytest.approx(far, rel=0.05)
    assert sum(sample["sampled"]) / 0.1 == pytest.approx(200_000, rel=0.05)


@pytest.mark.parametrize("wrong", ["-t1:15:8:3", "-t3:1:8:8", "-m12", "-s2", "-j0", "more"])
def test_wrong_arguments_are_refused(analyser: Path, wrong: str) -> None:
    done = subprocess.run([analyser, wrong], input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_misses_of_stores_are_told_apart(analyser: Path) -> None:
    store = 1 << 36
    records = [(HEAP, 2 * MB, 4 * MB), (512, 1), (513 | store, 2), (512 | store, 1), (514, 1)]
    found = analysed(analyser, records, "-t", "1:1:1:1", "-t", "2:1:2:2", "-m", BASE)
    [mapping] = found["mappings"]
    # One entry, then two: the second level has 512 again.
    assert (mapping["l1"][0], mapping["store_l1"][0]) == (4, 2)
    assert (mapping["l2"][0], mapping["store_l2"][0]) == (3, 1)


def test_walks_are_told_by_their_order_and_by_how_long_ago_their_page_was_walked(
    analyser: Path,
) -> None:
    options = ("-t", "1:1:1:1", "-t", "2:1:2:2", "-m", BASE)
    store = 1 << 36

    def gaps(*pages: int) -> list[list[int]]:
        [mapping] = analysed(analyser, [(page, 1) for page in pages], *options)["mappings"]
        found: list[list[int]] = mapping["gaps"]
        return found

    far, beside, near, alone, near_alone = range(5)
    # Two entries: each reference to one of twenty pages in turn walks. First walks have octave 0,
    # the others come twenty walks later (octave 5, from 16 to 31), a store among them.
    apart = range(1000, 3000, 100)
    assert gaps(*apart, *apart, 1000 | store) == [[far, 0, 20, 0], [far, 5, 20, 1]]
    # A column with rows of ten pages: beside the walk before. Eight pages: one line of the table.
    assert gaps(1000, 1010, 1020, 1030) == [[far, 0, 1, 0], [beside, 0, 3, 0]]
    assert gaps(1000, 1003, 1006, 1001) == [[far, 0, 1, 0], [near, 0, 3, 0]]
    # Each of the twenty takes 8 lines into the caches: walked again 160 lines later (octave 8).
    lines = [page | 8 << 55 for page in apart]
    assert gaps(*lines, *lines) == [[far, 0, 20, 0], [far, 8, 20, 0]]
    sample = analysed(analyser, [(page, 1) for page in apart], *options, "-s", "0.5")
    assert sample["mappings"][0]["gaps"] == []
    # 32 references between two walks: no other work of the processor overlaps both. Not the first.
    many: Records = [(page, 32) for page in (1000, 1003, 2000, 1000)]
    [mapping] = analysed(analyser, many, *options)["mappings"]
    firsts = [[far, 0, 1, 0], [alone, 0, 1, 0], [near_alone, 0, 1, 0]]
    assert mapping["gaps"] == [*firsts, [near_alone, 2, 1, 0]]


def test_a_trace_comes_back_as_it_was(store: Store) -> None:
    for rate in (1.0, 0.01):
        number = keep_trace(store, a_trace(rate), COSTS, host="here", traced_at="2026-01-01")
        found = load_trace(store, number)
        assert (found.trace, found.costs) == (a_trace(rate), COSTS)
        assert found.checks == CheckTimes(cpu_s={}, user_s={})


def test_a_trace_of_an_older_rater_has_no_misses_of_stores_and_no_gaps(store: Store) -> None:
    base, *others = a_trace().mappings
    told = replace(base, store_l1_misses=(3, 2, 0, 0, 1, 0), store_walks=(2, 1, 0, 0, 1, 0))
    gap = WalkGap(order=WalkOrder.NEAR, octave=3, loads=400, stores=7)
    gaps = replace(others[0], gaps=(replace(gap, order=WalkOrder.FAR), gap))
    trace = replace(a_trace(), mappings=(told, gaps, *others[1:]))
    number = keep_trace(store, trace, COSTS, host="here", traced_at="2026-01-01")
    assert load_trace(store, number).trace == trace
    with store.writing("an older trace") as connection:
        connection.execute("UPDATE page_mapping SET store_l1_misses = NULL, store_walks = NULL")
        connection.execute("DELETE FROM page_walk")
    assert load_trace(store, number).trace == a_trace()


def test_times_of_a_check_replace_those_of_an_earlier_one_with_the_costs_beside_them(
    store: Store,
) -> None:
    number = keep_trace(store, a_trace(), COSTS, host="here", traced_at="2026-01-01")
    taken = CheckTimes(cpu_s={"heap:2M": [1.0]}, user_s={"heap:2M": [0.5]})
    keep_check(store, number, taken)
    assert load_trace(store, number).checks == taken
    assert taken.times_s == {"heap:2M": [0.5]}
    later = CheckTimes(cpu_s={"heap:4k": [2.0, 3.0], "heap:2M": [1.5, 1.25]}, user_s={})
    costs = COSTS | {"cycle_ns": 0.25}
    keep_check(store, number, later, costs)
    found = load_trace(store, number)
    assert (found.checks, found.costs) == (later, costs)
    assert later.times_s == later.cpu_s


def test_a_trace_is_found_by_number_by_last_and_by_the_start_of_its_uuid(store: Store) -> None:
    with pytest.raises(InputError, match="no traces stored yet; `rater lab trace SUITE/"):
        find_trace(store, "last")
    for _ in range(2):
        keep_trace(store, a_trace(), COSTS, host="here", traced_at="2026-01-01")
    first, second = trace_heads(store)
    words = ("1", "trace:1", "last~1", first.uuid[:8])
    assert [find_trace(store, word) for word in words] == [1, 1, 1, 1]
    assert find_trace(store, "last") == second.number == 2
    for word in ("3", "last~2", "zzzz"):
        with pytest.raises(InputError, match="no such trace"):
            find_trace(store, word)


ZEN_4 = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\n"


def test_a_tlb_that_cpuid_does_not_tell_is_that_of_the_family_and_said_to_be_assumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(ZEN_4)
    monkeypatch.setenv("RATER_SYSROOT", str(tmp_path))
    monkeypatch.setattr("rater.lab.trace.machine.cpuid_leaves", lambda: ({}, None))
    tlb, [note] = machine_tlb()
    assert str(tlb) == "72x72,3072x24"
    assert "TLB is assumed: this processor does not tell its own, and those of its family" in note


def test_where_no_tlb_is_known_it_is_asked_for_before_anything_is_built_or_run(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_SYSROOT", str(tmp_path))
    monkeypatch.setenv("RATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("rater.lab.trace.machine.cpuid_leaves", lambda: ({}, None))
    status, _, err = rater("lab", "trace", "--", "true")
    assert (status, "give it with --tlb, as 64x4,1536x12" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("rate", "processes", "words"),
    [
        (1.0, 0, "; exact; TLB"),
        (1.0, 2, "; exact for the one process that was traced; TLB"),
        (0.125, 0, "; from 12.5 % of all pages; TLB"),
    ],
)
def test_a_trace_is_called_exact_as_far_as_it_is(
    rater: Rater, database: Path, rate: float, processes: int, words: str
) -> None:
    trace = replace(a_trace(rate), processes=processes)
    with open_store(database) as store:
        keep_trace(store, trace, COSTS, host="here", traced_at="2026-01-01")
    assert words in " ".join(rater("lab", "trace", "--show", "last")[1].split())


def test_costs_are_read_whole_however_many_there_are_and_kept_for_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = COSTS | {"unread": ["of a later rater"] * 1000}  # 20 kB: longer than what people see
    program = tmp_path / "cost"
    program.write_text(f"#!/bin/sh\ncat <<end\n{json.dumps(many)}\nend\n")
    program.chmod(0o700)
    monkeypatch.setattr("rater.lab.trace.tracer.native_program", lambda *_: program)
    monkeypatch.setattr("rater.lab.trace.machine.machine_tlb", lambda: (parse_tlb(TLB), ()))
    monkeypatch.setenv("RATER_CACHE", str(tmp_path))
    choice = choose_groups("cpi", Processor(name="", vendor="AuthenticAMD", family=26, model=2))
    names = [name for name, _ in counter_settings(choice)]
    assert (miss_cycles(), names) == (None, ["rater.counters.amd-zen5"])  # nobody measured it
    zen_5 = load_table("amd-zen5")
    assert "translation is not known" in (estimate_text(zen_5) or "")
    assert machine_costs(tmp_path) == many
    # An L1 miss of 2 ns and a walk of 2048 pages (4 x 512 entries), the mean of sqrt(24 x 6) - 2
    # at 1024 and sqrt(44 x 11) - 2 at 4096: 17 ns of half a nanosecond a cycle.
    assert miss_cycles() == pytest.approx(34.0)
    assert dict(counter_settings(choice))["rater.tlb_miss_cycles"] == "34"
    assert (estimate_text(zen_5) or "").endswith("misses x the 34 cycles one costs here")
    assert estimate_text(load_table("intel-spr")) is None
    # Intel's tables count the time of walks: nothing is to be estimated.
    intel = choose_groups("cpi", Processor(name="", vendor="GenuineIntel", family=6, model=207))
    assert [name for name, _ in counter_settings(intel)] == ["rater.counters.intel-spr"]


def test_a_program_beside_a_stored_trace_is_the_one_that_was_traced(
    rater: Rater, store: Store, tmp_path: Path
) -> None:
    """A suite that was given by its path is given once more to be run again."""
    suite = suite_of(tmp_path, ["a", "b"])
    trace = replace(a_trace(), suite="of-names", name="a")
    keep_trace(store, trace, COSTS, host="here", traced_at="2026-01-01")
    for words, said in (
        ((f"{suite}/b", "--check"), "b: the trace is of of-names/a; name that one, or nothing"),
        ((suite, "--check"), "the trace is of of-names/a; name that one, or nothing"),
        ((f"{suite}/a",), "--show names a trace that is there: leave the program out"),
    ):
        status, _, err = rater("lab", "trace", "--show", "last", *words)
        assert (status, said in err) == (2, True), err
    check_program(trace, f"{suite}/a")
