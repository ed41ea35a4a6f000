"""TLBs: as `--tlb` describes them, as CPUID tells them."""

from __future__ import annotations

import pytest

from rater.errors import InputError
from rater.lab.tlb import mapping_layout, page_mappings, parse_page_sizes, parse_tlb, tlb_of_cpuid

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


def test_an_amd_zen_4_tells_one_array_a_level_for_small_and_huge_pages() -> None:
    leaves = {
        "80000005": (0xFF48FF40, 0xFF48FF40, 0, 0),  # 72 entries, fully associative
        "80000006": (0x5C002200, 0x6C004200, 0, 0),  # 3072, 6 and 8 ways
        "80000019": (0, 0, 0, 0),
    }
    tlb = tlb_of_cpuid(leaves)
    assert str(tlb) == "72x72,4k/64k/2M:3072x8"
    assert tlb is not None
    assert tlb.entries(4 * KB) == (72, 3072)
    assert tlb.entries(GB) == (72, 72)  # not told: where the first level has 2 MB pages


def test_an_intel_skylake_tells_descriptors() -> None:
    # 0x63: 2 MB 32x4, 1 GB 4x4; 0x64 is not there; 0xC3: shared 1536x6, 1 GB 16x4; 0x03: 4 KB 64x4
    tlb = tlb_of_cpuid({"2": (0x76036301, 0x00F0B5FF, 0, 0x00C30000)})
    assert str(tlb) == "4k/64k:64x4+2M:32x4+1G:4x4,4k/64k/2M:1536x6+1G:16x4"


def test_an_intel_with_leaf_18_tells_loads_and_shared_ones() -> None:
    leaves = {
        "2": (0x00FEFF01, 0xF0, 0, 0),
        "18.0": (5, 0, 0, 0),
        "18.1": (0, (6 << 16) | 1, 16, (1 << 5) | 4),  # 4 KB, 6 ways, 16 sets, loads, level 1
        "18.2": (0, (4 << 16) | 2, 8, (1 << 5) | 4),  # 2 MB, 4 ways, 8 sets
        "18.3": (0, (8 << 16) | 1, 2, (1 << 5) | 2),  # of instructions
        "18.4": (0, (16 << 16) | 3, 128, (2 << 5) | 3),  # 4 KB and 2 MB, level 2, shared
    }
    assert str(tlb_of_cpuid(leaves)) == "4k/64k:96x6+2M/1G:32x4,4k/64k/2M:2048x16"


def test_a_processor_that_tells_nothing_has_no_tlb_to_model() -> None:
    assert tlb_of_cpuid({}) is None
    assert tlb_of_cpuid({"2": (0, 0, 0, 0), "80000005": (0, 0, 0, 0)}) is None


@pytest.mark.parametrize(
    "text", ["64x4,1536x12", "4k/64k:64x4+2M:32x4,4k/64k/2M:1536x12+1G:16x4", "48x48"]
)
def test_a_described_tlb_prints_as_it_was_typed(text: str) -> None:
    assert str(parse_tlb(text)) == text


def test_a_level_without_an_array_for_a_size_misses_there() -> None:
    assert parse_tlb("4k:64x4,4k:1536x12").entries(2 * MB) == (0, 0)
    assert parse_tlb("64x4").entries(4 * KB) == (64, 64)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("64", "no array of entries x ways"),
        ("64x5", "no multiple"),
        ("64x0", "no multiple"),
        ("1x1,1x1,1x1", "more than two levels"),
        ("3k:64x4", "page sizes are 4k, 64k, 2M, 1G"),
        ("x:64x4", "expected a size"),
        ("4k:64x4+4k:8x8", "two arrays for one page size"),
    ],
)
def test_what_is_no_tlb_is_refused_with_the_way_out(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_tlb(text)


def test_mappings_are_all_ways_to_give_three_categories_a_size() -> None:
    found = page_mappings(parse_page_sizes("2M,4k"))
    assert found[0] == (4 * KB, 4 * KB, 4 * KB)
    assert len(found) == len(set(found)) == 8
    assert mapping_layout(found[1]) == "heap:2M;mmap:4k;static:4k"


@pytest.mark.parametrize("text", ["4k", "2M", "4k,8k", "4k,x", ""])
def test_page_sizes_that_leave_no_choice_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--sizes"):
        parse_page_sizes(text)
