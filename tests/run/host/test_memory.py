"""How much memory there is for copies, and what a thread sets before a spawn reaches the child."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.placement.preflight import (
    gb,
    memory_warnings,
    needs_by_node,
    preflight,
)
from rater.plan.topology import HugePages, NodeMemory
from rater.record.run import MemoryPolicy, Placement
from rater.run.host import memory as pagecache
from rater.run.host import thread_binding as binding
from rater.run.host.memory import drop_page_cache, preflight_now, read_node_memory
from rater.run.host.thread_binding import bound_as, memory_support
from rater.system.errors import InputError, RunError
from tests.support.page_cache import cached_bytes, is_droppable

GB = 10**9
PAGE = mmap.PAGESIZE


def on(copy: int, node: int | None) -> Placement:
    return Placement(
        copy=copy,
        cpus=(copy,),
        cpu=copy,
        core=copy,
        llc=None,
        node=node,
        package=0,
        memory_policy=MemoryPolicy.LOCAL,
        memory_nodes=(),
    )


def memory(
    node: int,
    free: int,
    cache: int = 0,
    *,
    blocks: int | None = None,
    pools: tuple[HugePages, ...] = (),
) -> NodeMemory:
    return NodeMemory(
        node=node,
        total_bytes=64 * GB,
        free_bytes=free,
        page_cache_bytes=cache,
        dirty_bytes=0,
        free_huge_order_bytes=blocks,
        huge_pages=pools,
    )


def test_lgroups_that_hold_their_copies_are_no_reason_for_words() -> None:
    verdict = preflight(
        [on(0, 0), on(1, 1), on(2, 1)],
        {0: 2 * GB, 1: 2 * GB, 2: 3 * GB},
        {0: memory(0, 8 * GB, GB), 1: memory(1, 5 * GB)},
    )
    assert verdict.warnings == ()
    assert verdict.refusal() is None


def test_an_lgroup_full_of_page_cache_is_warned_of_with_the_way_out() -> None:
    has = {0: memory(0, 16 * GB, GB), 1: memory(0, 3 * GB, 14 * GB)}
    assert memory_warnings({0: 12 * GB, 1: 12 * GB, 7: GB}, has) == (
        "page cache fills node 1 (its copies need 12.0 GB; 3.0 GB free, 14.0 GB page cache): "
        "the kernel drops it while copies are timed or takes memory of another NUMA node; "
        "`sync; echo 1 > /proc/sys/vm/drop_caches` as root frees it; what a set-up reads under "
        "`numactl --interleave=all` spreads over all NUMA nodes",
    )
    assert memory_warnings({0: 3 * GB}, {0: memory(0, GB, 4 * GB)}) == (
        "page cache fills node 0 (its copies need 3.0 GB; 1.0 GB free, 4.0 GB page cache): "
        "the kernel drops it while copies are timed; "
        "`sync; echo 1 > /proc/sys/vm/drop_caches` as root frees it",
    )
    assert memory_warnings({0: 16 * GB, 1: 3 * GB}, has) == ()


def test_lgroups_too_small_for_their_copies_are_warned_of_together() -> None:
    has = {node: memory(0, 50_000_000, 0) for node in range(6)}
    [warning] = memory_warnings(dict.fromkeys(range(6), GB), has)
    told = "node {} (its copies need 1.0 GB; 50.0 MB free, 0.0 MB page cache)"
    assert warning == (
        f"too little memory in {', '.join(told.format(node) for node in range(4))} and 2 more: the "
        "rest comes from other NUMA nodes, from swap, or not at all; fewer copies, a smaller "
        "size or "
        "a layout that spreads them avoids it"
    )
    [strict] = memory_warnings({0: GB}, has, strict=True)
    assert strict.endswith(
        ": they are bound to it: what it lacks is swapped, or the kernel kills a copy; fewer "
        "copies, a smaller size or a layout that spreads them avoids it"
    )
    [alone] = memory_warnings({0: GB}, {0: has[0]})
    assert alone.endswith(
        ": the rest comes from swap, or not at all; fewer copies or a smaller size avoid it"
    )


def test_copies_need_memory_where_they_run_or_are_bound() -> None:
    home = Placement(
        copy=0,
        cpus=(0,),
        cpu=0,
        core=0,
        llc=0,
        node=1,
        package=0,
        memory_policy=MemoryPolicy.LOCAL,
        memory_nodes=(),
    )
    placements = (
        home,
        replace(home, copy=1, memory_policy=MemoryPolicy.BIND, memory_nodes=(2, 3)),
        replace(home, copy=2, node=None),
    )
    assert needs_by_node(placements, {0: 100, 1: 60, 2: 7}) == {1: 100, 2: 30, 3: 30}


def test_page_cache_of_the_set_up_on_one_lgroup_is_told_with_the_cure() -> None:
    before = {0: memory(0, 8 * GB, GB), 1: memory(1, 8 * GB, GB)}
    now = {0: memory(0, 2 * GB, 7 * GB), 1: memory(1, 8 * GB, GB)}
    verdict = preflight([on(0, 0), on(1, 1)], {0: 4 * GB, 1: 4 * GB}, now, before=before)
    assert verdict.warnings == (
        "page cache fills node 0 (its copies need 4.0 GB; 2.0 GB free, 7.0 GB page cache): "
        "the "
        "kernel drops it while copies are timed or takes memory of another NUMA node; `sync; "
        "echo 1 > "
        "/proc/sys/vm/drop_caches` as root frees it; what a set-up reads under `numactl "
        "--interleave=all` spreads over all NUMA nodes",
        "page cache that came during the set-up (builds, inputs): 6.0 GB on node 0; once inputs "
        "are made, a second run has less of it",
    )
    refusal = verdict.refusal()
    assert refusal is not None
    assert refusal.splitlines()[-1] == "--preflight strict refuses the run for that"


def test_too_little_memory_is_told_and_huge_pages_set_aside_may_be_the_reason() -> None:
    pools = (HugePages(2 << 20, 2000, 1500), HugePages(1 << 30, 4, 0))
    now = {0: memory(0, GB, pools=pools), 1: memory(1, 9 * GB)}
    found = preflight([on(0, 0), on(1, 1)], {0: 4 * GB, 1: 4 * GB}, now)
    short, pool = found.warnings
    assert short.startswith("too little memory in node 0 (its copies need 4.0 GB; 1.0 GB free")
    assert pool == (
        "3.15 GB of node 0 lie in huge pages that are set aside and free: only programs that ask "
        "for them get that memory; as root `echo 500 > /sys/devices/system/node/node0/hugepages/"
        "hugepages-2048kB/nr_hugepages` gives it back"
    )


def test_memory_in_small_pieces_matters_where_huge_pages_are_for_all() -> None:
    now = {0: memory(0, 9 * GB, blocks=GB), 1: memory(1, 9 * GB, blocks=9 * GB)}
    placements, needs = [on(0, 0), on(1, 1)], {0: 4 * GB, 1: 4 * GB}
    assert preflight(placements, needs, now).warnings == ()
    [warning] = preflight(placements, needs, now, huge_pages_always=True).warnings
    assert warning == (
        "too few free blocks of the size of a huge page in node 0 (its copies need 4.0 GB; "
        "1.0 GB free in such blocks): part of the copies' memory comes in small pages, or is "
        "compacted while copies are timed; `echo 1 > /proc/sys/vm/compact_memory` as root makes "
        "larger blocks"
    )


def test_what_is_not_known_is_no_warning() -> None:
    found = preflight([on(0, 5), on(1, None)], {0: 4 * GB, 1: 4 * GB}, {})
    assert found.warnings == ()
    assert preflight([on(0, 0)], {}, {0: memory(0, 0)}).warnings == ()


def test_what_could_not_be_compared_is_known() -> None:
    def unchecked(
        placements: list[Placement], need: int, *unstated: str, now: int = 0
    ) -> tuple[str, ...]:
        needs = {placed.copy: need for placed in placements}
        return preflight(placements, needs, {now: memory(now, 9 * GB)}, unstated=unstated).unchecked

    way = "`memory_mb` in a benchmark's size states it (`rater suites new` writes a suite)"
    assert unchecked([on(0, 0)], GB) == ()
    assert unchecked([on(0, 0)], 0, "a") == (f"memory need not stated: memory not checked; {way}",)
    assert unchecked([on(0, 0)], GB, "b", "c") == (
        f"memory need of b, c not stated: only the other benchmarks are checked; {way}",
    )
    assert unchecked([on(0, None)], GB) == (
        "copies are bound to no NUMA node: memory not checked; a layout binds them",
    )
    assert unchecked([on(0, 0), on(1, 3)], GB) == (
        "the kernel does not tell what is free on node 3: not checked",
    )


def test_numbers_have_digits_enough_to_be_told_apart() -> None:
    text_by_count = {
        0: "0.0 MB",
        262_144: "0.26 MB",
        8_000_000: "8.0 MB",
        99_960_000: "100 MB",
        216_200_000: "216 MB",
        999_600_000: "1.0 GB",
        1_234_000_000: "1.23 GB",
        14 * GB: "14.0 GB",
        900_000 * GB: "900000 GB",
    }
    assert {count: gb(count) for count in text_by_count} == text_by_count


def machine(root: Path) -> None:
    """A machine of two lgroups below `root`: its /proc and /sys."""

    proc, sys = root / "proc", root / "sys"
    proc.mkdir()
    (proc / "meminfo").write_text("MemTotal: 999 kB\nHugepagesize:       2048 kB\n")
    # 3 blocks of 2 MiB (order 9) and 1 of 4 MiB.
    zeros = "0 " * 9
    (proc / "buddyinfo").write_text(f"Node 1, zone   Normal  {zeros}3 1 \n")
    for node, free in ((0, 100), (1, 200)):
        folder = sys / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "meminfo").write_text(
            f"Node {node} MemTotal:  1000 kB\nNode {node} MemFree:  {free} kB\n"
            f"Node {node} FilePages:   300 kB\nNode {node} Shmem:   50 kB\n"
            f"Node {node} Dirty:   7 kB\nNode {node} Writeback:   1 kB\n"
        )
        for size, total in ((1048576, 0), (2048, 8)):
            pool = folder / f"hugepages/hugepages-{size}kB"
            pool.mkdir(parents=True)
            (pool / "nr_hugepages").write_text(f"{total}\n")
            (pool / "free_hugepages").write_text(f"{total // 2}\n")


def test_lgroups_are_read_from_the_kernel(tmp_path: Path) -> None:
    machine(tmp_path)
    pools = (HugePages(2 << 20, 8, 4), HugePages(1 << 30, 0, 0))
    first = NodeMemory(
        node=0,
        total_bytes=1000 << 10,
        free_bytes=100 << 10,
        page_cache_bytes=250 << 10,
        dirty_bytes=8 << 10,
        free_huge_order_bytes=None,
        huge_pages=pools,
    )
    second = replace(first, node=1, free_bytes=200 << 10, free_huge_order_bytes=10 << 20)
    assert read_node_memory(tmp_path) == {0: first, 1: second}
    assert first.droppable_bytes == 242 << 10
    assert first.pooled_bytes == 8 << 20
    assert read_node_memory(tmp_path / "none") == {}


def test_the_preflight_of_a_machine_reads_it(tmp_path: Path) -> None:
    machine(tmp_path)
    found = preflight_now([on(0, 1)], {0: 300 << 10}, root=tmp_path)
    assert "node 0" not in found.warnings[0]
    assert "node 1 (its copies need 0.31 MB; 0.2 MB free, 0.26 MB page cache)" in found.warnings[0]


def test_this_machine_has_lgroups() -> None:
    if not Path("/sys/devices/system/node/node0").exists():
        pytest.skip("this kernel knows no NUMA nodes")
    for node, has in read_node_memory().items():
        assert has.node == node
        assert has.total_bytes >= has.free_bytes > 0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A run directory: 100 pages in a file with two names, an empty file, a link, a pipe."""
    root = tmp_path / "run"
    (root / "deep").mkdir(parents=True)
    (root / "data").write_bytes(b"x" * (100 * PAGE - 7))
    os.link(root / "data", root / "deep" / "same")
    (root / "empty").touch()
    (root / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    return root


def test_what_was_written_is_cached_until_it_is_dropped(tree: Path) -> None:
    if not is_droppable(tree):
        pytest.skip("files here live in memory")
    assert cached_bytes(tree) == 100 * PAGE
    drop_page_cache(tree)
    assert cached_bytes(tree) == 0
    assert (tree / "data").read_bytes() == b"x" * (100 * PAGE - 7)


def test_mapped_pages_stay(tree: Path) -> None:
    if not is_droppable(tree):
        pytest.skip("files here live in memory")
    drop_page_cache(tree)  # now on disk: what is read from there can be mapped and clean
    with (
        (tree / "data").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert sum(mapped[number * PAGE] for number in range(100)) == 100 * ord("x")
        drop_page_cache(tree / "data")
        assert cached_bytes(tree / "data") == 100 * PAGE
    drop_page_cache(tree / "data")
    assert cached_bytes(tree / "data") == 0


@pytest.mark.parametrize("refused", [False, True])
def test_only_what_may_be_dirty_is_flushed(
    tree: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    if not is_droppable(tree):
        pytest.skip("files here live in memory")
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    drop_page_cache(tree)
    assert len(flushed) >= 1  # `data`, never flushed; Linux before 6.5: both files
    for name in ("data", "empty"):
        with (tree / name).open("rb") as file:
            os.fdatasync(file)
    flushed.clear()
    if refused:
        monkeypatch.setattr(pagecache, "_NR_CACHESTAT", -1)
    drop_page_cache(tree)
    assert len(flushed) == (2 if refused or not cachestat_is_there() else 0)


def cachestat_is_there() -> bool:
    return tuple(int(it) for it in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 5)


def test_what_is_not_there_is_left(tmp_path: Path) -> None:
    drop_page_cache(tmp_path / "gone")


NODE = int(sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))[0].name[4:])
CPU = min(os.sched_getaffinity(0))


def support() -> frozenset[MemoryPolicy]:
    found = memory_support().policies
    if MemoryPolicy.BIND not in found:
        pytest.skip(f"memory policies can not be set here: {memory_support().reason}")
    return found


def planned(policy: MemoryPolicy, *nodes: int, cpu: int | None = None) -> Placement:
    return Placement(
        copy=0,
        cpus=None if cpu is None else (cpu,),
        cpu=cpu,
        core=None,
        llc=None,
        node=None,
        package=None,
        memory_policy=policy,
        memory_nodes=nodes,
    )


def in_a_thread[V](work: Callable[[], V]) -> V:
    """Policies belong to a thread: what a test leaves behind ends with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def own_policy() -> str:
    """The policy of this thread's children, as the kernel names it."""
    child = subprocess.run(
        ["/bin/cat", "/proc/self/numa_maps"], capture_output=True, text=True, check=True
    )
    stack = next(line for line in child.stdout.splitlines() if " stack " in line)
    return stack.split()[1]


KERNEL_NAMES = [
    (planned(MemoryPolicy.LOCAL), {"local"}),
    (planned(MemoryPolicy.BIND, NODE), {f"bind:{NODE}"}),
    (planned(MemoryPolicy.PREFERRED, NODE), {f"prefer (many):{NODE}", f"prefer:{NODE}", "prefer"}),
    (planned(MemoryPolicy.INTERLEAVE, NODE), {f"interleave:{NODE}"}),
    (planned(MemoryPolicy.WEIGHTED, NODE), {f"weighted interleave:{NODE}", "weighted"}),
    (planned(MemoryPolicy.NONE), set()),
]


@pytest.mark.parametrize(("placement", "names"), KERNEL_NAMES)
def test_a_child_has_the_policy_that_was_planned(placement: Placement, names: set[str]) -> None:
    if placement.memory_policy not in {*support(), MemoryPolicy.NONE}:
        pytest.skip(f"this kernel has no policy {placement.memory_policy}")

    def work() -> tuple[str, str, str]:
        before = own_policy()
        with bound_as(placement):
            there = own_policy()
        return before, there, own_policy()

    before, there, after = in_a_thread(work)
    assert there in (names or {before})
    assert after == before


def test_what_the_thread_had_before_is_put_back_flags_and_all() -> None:
    support()
    static_bind = binding.KernelPolicy(2 | 1 << 15, 1 << NODE)

    def work() -> binding.KernelPolicy:
        binding.write_policy(static_bind)
        with bound_as(planned(MemoryPolicy.LOCAL, cpu=CPU)):
            assert binding.read_policy() != static_bind
        with bound_as(planned(MemoryPolicy.NONE, cpu=CPU)):
            assert binding.read_policy() == static_bind
        with bound_as(planned(MemoryPolicy.INTERLEAVE, NODE, cpu=CPU)):
            assert binding.read_policy() != static_bind
        return binding.read_policy()

    affinity = os.sched_getaffinity(0)
    assert in_a_thread(work) == static_bind
    assert os.sched_getaffinity(0) == affinity


def test_an_error_while_copies_are_spawned_undoes_all_the_same() -> None:
    support()

    def work() -> tuple[binding.KernelPolicy, set[int]]:
        bound = bound_as(planned(MemoryPolicy.BIND, NODE, cpu=CPU))
        with pytest.raises(ZeroDivisionError), bound:
            raise ZeroDivisionError
        return binding.read_policy(), os.sched_getaffinity(0)

    assert in_a_thread(work) == (binding.KernelPolicy(0, 0), os.sched_getaffinity(0))


def test_nodes_that_the_kernel_does_not_have_are_an_error_with_its_words() -> None:
    support()
    for policy in (MemoryPolicy.BIND, MemoryPolicy.INTERLEAVE):

        def work(policy: MemoryPolicy = policy) -> binding.KernelPolicy:
            with (
                pytest.raises(RunError, match=rf"refused memory policy {policy} on nodes 900 \("),
                bound_as(planned(policy, 900)),
            ):
                pass
            return binding.read_policy()

        assert in_a_thread(work) == binding.KernelPolicy(0, 0)


def test_less_than_what_was_asked_for_is_noticed() -> None:
    support()
    with pytest.raises(RunError, match="the kernel"):
        # The node of number 900 is left out by the kernel where another one is there.
        in_a_thread(lambda: bound_as(planned(MemoryPolicy.BIND, NODE, 900)).__enter__())
    error = binding.cannot_bind_memory(
        planned(MemoryPolicy.BIND, 2, 3), binding.KernelPolicy(2, 0b100)
    )
    assert "bind 2-3, the kernel has policy number 2 on nodes 2: a cpuset" in str(error)
    assert binding._is_policy(MemoryPolicy.LOCAL, 1)
    assert not binding._is_policy(MemoryPolicy.WEIGHTED, 3)


def test_cpus_that_are_not_there_are_an_error() -> None:
    with pytest.raises(InputError, match="the kernel does not let rater use them"):
        in_a_thread(lambda: bound_as(planned(MemoryPolicy.NONE, cpu=9999)).__enter__())


def test_trying_policies_leaves_this_thread_as_it_was() -> None:
    memory_support.cache_clear()
    before = own_policy()
    first = memory_support()
    assert own_policy() == before
    assert memory_support() is first
    assert first.policies or first.reason


def test_a_kernel_that_refuses_all_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    memory_support.cache_clear()
    monkeypatch.setattr(binding, "_system_call", refused)
    found = memory_support()
    assert (found.policies, found.preferred_many) == (frozenset(), False)
    assert "Operation not permitted" in found.reason
    memory_support.cache_clear()
