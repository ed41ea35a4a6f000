"""What is said of shared cores and of CPU kinds: by what copies may run on."""

from __future__ import annotations

import re
from dataclasses import replace

from rater.plan.hwloc_xml import parse_xml
from rater.plan.placement.layout import BindLevel, CpuOrder, Layout
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import plan_placements
from rater.plan.placement.summary import remarks
from rater.plan.placement.warnings import CorePool, pools
from rater.plan.topology import CpuKind, Topology
from rater.run.host.discover import parse_synthetic
from tests.support.machines import SMT, real
from tests.support.places import MACHINES, needs_machines
from tests.support.small_machines import hybrid, two_kinds


def warned(
    topology: Topology,
    copies: int,
    bind: BindLevel = BindLevel.PU,
    *,
    order: CpuOrder = CpuOrder.BALANCED,
    threads: int = 1,
) -> list[str]:
    layout = Layout("mine", "", order, bind)
    placed = plan_placements(topology, layout, copies, MemoryPolicy.LOCAL, threads)
    return [*placed.warnings, *remarks(topology, placed.placements, threads)]


def test_cores_that_copies_share_are_found_by_their_masks() -> None:
    # PUs 0 and 4 are of core 0, 1 and 5 of core 1.
    assert pools(SMT, [(0,), (4,), (1,)]) == [CorePool(2, 1, 2), CorePool(1, 1, 1)]
    node = (0, 1, 4, 5)
    assert pools(SMT, [node, node, (2,)]) == [CorePool(2, 2, 4), CorePool(1, 1, 1)]
    assert pools(SMT, [(0, 4), (4, 5), (3,)]) == [CorePool(2, 2, 3), CorePool(1, 1, 1)]


def test_copies_on_a_wide_mask_share_cores_only_where_they_have_no_choice() -> None:
    assert warned(SMT, 6) == [
        "4 copies share 2 cores while 2 run on cores of their own: they will not take equally long"
    ]
    # Three copies move over the two cores of each lgroup: all are alike.
    assert warned(SMT, 6, BindLevel.NODE) == [
        "6 copies share 4 cores, a thread for every copy: --smt 1 and fewer copies give each a "
        "core of its own"
    ]
    assert warned(SMT, 4, BindLevel.NODE) == []
    # Lgroup 0 has four copies for its two cores, lgroup 1 a core for each.
    assert warned(SMT, 6, BindLevel.NODE, order=CpuOrder.COMPACT) == [
        "4 copies share 2 cores while 2 run on cores of their own: they will not take equally long",
        "lgroups run unequal numbers of copies: 4 on lgroup 0, 2 on lgroup 1",
    ]
    assert warned(SMT, 5, BindLevel.CORE)[0] == (
        "2 copies share 1 core while 3 run on cores of their own: they will not take equally long"
    )
    # One copy alone is spoken of in the singular.
    assert warned(SMT, 3, order=CpuOrder.COMPACT)[0] == (
        "2 copies share 1 core while 1 runs on cores of their own: they will not take equally long"
    )


def test_copies_and_threads_on_a_wide_mask_are_counted_by_mask() -> None:
    said = warned(SMT, 18, BindLevel.NODE)
    assert said[0] == "18 copies share 8 usable PUs: 2 to 2.5 for each PU"
    assert warned(SMT, 16, BindLevel.NODE) == ["16 copies share 8 usable PUs: 2 for each PU"]
    assert warned(SMT, 2, BindLevel.NODE, threads=2) == []
    assert warned(SMT, 3, BindLevel.NODE, threads=2)[0] == (
        "2 copies have more threads than cores while 1 has not: they will not take equally long"
    )


def test_a_mask_over_cpus_of_several_speeds_is_the_warning() -> None:
    assert warned(hybrid(), 7) == [
        "4 copies share 2 cores while 3 run on cores of their own: they will not take equally long",
        "copies run on CPUs of 2 speeds, from the fastest kind to the slowest: 4, 3 copies",
    ]
    mixed = (
        "copies may run on CPUs of 2 speeds each: how long they take depends on where the kernel "
        "puts them"
    )
    assert warned(hybrid(), 3, BindLevel.NODE) == [f"3 {mixed}"]
    assert warned(hybrid(), 7, BindLevel.PACKAGE) == [
        f"7 {mixed}",
        "7 copies share 5 cores, a thread for every copy: --smt 1 and fewer copies give each a "
        "core of its own",
    ]


def test_kinds_that_nothing_ranks_get_a_warning_too() -> None:
    unranked = two_kinds(hybrid(), "made")
    assert warned(unranked, 7)[1] == (
        "copies run on CPUs of 2 kinds, and which is faster is not known: 4, 3 copies"
    )
    assert warned(unranked, 2, BindLevel.NODE) == [
        "2 copies may run on CPUs of 2 kinds each, and which is faster is not known: how long they "
        "take depends on where the kernel puts them"
    ]
    one = replace(unranked, details=replace(unranked.details, kinds=(CpuKind((0, 1), ()),)))
    assert one.unranked_kinds == ()


@needs_machines
def test_a_hybrid_without_frequencies_is_of_unknown_speeds() -> None:
    text = (MACHINES / "i7-1370p-hybrid-6p8e.xml").read_text()
    bare = re.sub(r'<info name="(CoreType|Frequency\w+)"[^>]*/>|forced_efficiency="\d+"', "", text)
    unranked = parse_xml(bare, "bare")
    assert unranked.unranked_kinds == (tuple(range(12, 20)), tuple(range(12)))
    assert any("2 kinds, and which is faster is not known" in said for said in warned(unranked, 20))
    assert real("i7-1370p").unranked_kinds == ()


@needs_machines
def test_a_hybrid_whose_copies_float_is_not_said_to_have_copies_on_cores_of_their_own() -> None:
    for bind in (BindLevel.LLC, BindLevel.NODE, BindLevel.PACKAGE):
        found = warned(real("i7-1370p"), 20, bind)
        assert [said.split(":")[0] for said in found] == [
            "20 copies may run on CPUs of 2 speeds each",
            "20 copies share 14 cores, a thread for every copy",
        ]


def test_copies_that_float_over_lgroups_are_in_none_of_them() -> None:
    topology = parse_synthetic("pack:1 numa:2 core:2 pu:1")
    assert warned(topology, 3, BindLevel.PACKAGE) == []
    assert warned(topology, 3) == [
        "lgroups run unequal numbers of copies: 2 on lgroup 0, 1 on lgroup 1"
    ]
