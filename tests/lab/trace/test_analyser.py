"""The analyser of page references against slow, obvious ones: stacks as lists, TLBs as lists."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rater.lab.trace import native_program

HEAP, MMAP, STATIC, STACK, OTHER, UNMAP, DROP, RESET, FORK = range(1, 10)
NAMES = ("heap", "mmap", "static", "small static", "stack", "other")
OF_KIND = {HEAP: 0, MMAP: 1, STATIC: 2, STACK: 4, OTHER: 5}
MB = 1 << 20
SHIFTS = (12, 16, 21, 30)
BASE = "12,12,12,12,12,12"

type Records = list[tuple[int, ...]]  # (page, count), or (event, begin, end)


@pytest.fixture(scope="module")
def analyser(page_cache: Path) -> Path:
    return native_program("analyse", page_cache, ("-pthread",))


def words(records: Records) -> bytes:
    found = []
    for record in records:
        if len(record) == 2:
            page, count = record
            found.append(page | count << 37)
        else:
            kind, begin, end = record
            found += [1 << 63 | kind << 56 | begin, end]
    return struct.pack(f"={len(found)}Q", *found)


def analysed(analyser: Path, records: Records, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [analyser, *options], input=words(records), capture_output=True, check=True
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
    found: list[Counter[int]] = [Counter() for _ in NAMES]
    first = [0] * len(NAMES)
    for small, count, category in references(records):
        page = small >> (shift - 12)
        if page in stack:
            found[category][stack.index(page)] += 1
            stack.remove(page)
        else:
            first[category] += 1
        stack.insert(0, page)
        found[category][0] += count - 1
    return found, first


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
    at = {kind: (1 + 8 * i) * 512 * MB for i, kind in enumerate(kinds)}
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
    assert found["page_changes"] == sum(len(it) == 2 for it in records)
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
    touch: Records = [(page + n, 1) for n in range(1024)]
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
    found = analysed(
        analyser,
        [
            (STATIC, at + 4096, at + 5 * MB),  # whole huge pages: from 2 to 4 MB
            *((page, 2) for page in range((at >> 12) + 1, (at + 5 * MB) >> 12)),
        ],
    )
    assert found["references"] == [0, 0, 2 * 512, 2 * (511 + 256), 0, 0]


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
    far = sum(n for distance, n in exact["histogram"]["other"] if distance >= 1024)
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
