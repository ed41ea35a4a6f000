"""What a thread sets before a spawn reaches the child, and is undone after."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rater.errors import InputError, RunError
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.run.host import thread_binding as binding
from rater.run.host.thread_binding import ThreadBinding, memory_support

NODE = int(sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))[0].name[4:])
CPU = min(os.sched_getaffinity(0))


def support() -> frozenset[MemoryPolicy]:
    found = memory_support().policies
    if MemoryPolicy.BIND not in found:
        pytest.skip(f"memory policies can not be set here: {memory_support().reason}")
    return found


def planned(policy: MemoryPolicy, *nodes: int, cpu: int | None = None) -> Placement:
    return Placement(0, None if cpu is None else (cpu,), cpu, None, None, None, None, policy, nodes)


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
    if placement.policy not in {*support(), MemoryPolicy.NONE}:
        pytest.skip(f"this kernel has no policy {placement.policy}")

    def work() -> tuple[str, str, str]:
        before = own_policy()
        with ThreadBinding() as bound:
            bound.apply(placement)
            there = own_policy()
        return before, there, own_policy()

    before, there, after = in_a_thread(work)
    assert there in (names or {before})
    assert after == before


def test_what_the_thread_had_before_is_put_back_flags_and_all() -> None:
    support()
    static_bind = binding._KernelPolicy(2 | 1 << 15, 1 << NODE)

    def work() -> binding._KernelPolicy:
        binding._write_policy(static_bind)
        with ThreadBinding() as bound:
            bound.apply(planned(MemoryPolicy.LOCAL, cpu=CPU))
            bound.apply(planned(MemoryPolicy.INTERLEAVE, NODE, cpu=CPU))
            bound.apply(planned(MemoryPolicy.NONE, cpu=CPU))
            assert binding._read_policy() == static_bind
            bound.apply(planned(MemoryPolicy.LOCAL, cpu=CPU))
        return binding._read_policy()

    affinity = os.sched_getaffinity(0)
    assert in_a_thread(work) == static_bind
    assert os.sched_getaffinity(0) == affinity


def test_an_error_while_copies_are_spawned_undoes_all_the_same() -> None:
    support()

    def work() -> tuple[binding._KernelPolicy, set[int]]:
        with pytest.raises(ZeroDivisionError), ThreadBinding() as bound:
            bound.apply(planned(MemoryPolicy.BIND, NODE, cpu=CPU))
            raise ZeroDivisionError
        return binding._read_policy(), os.sched_getaffinity(0)

    assert in_a_thread(work) == (binding._KernelPolicy(0, 0), os.sched_getaffinity(0))


def test_nodes_that_the_kernel_does_not_have_are_an_error_with_its_words() -> None:
    support()
    for policy in (MemoryPolicy.BIND, MemoryPolicy.INTERLEAVE):

        def work(policy: MemoryPolicy = policy) -> binding._KernelPolicy:
            with (
                pytest.raises(RunError, match=rf"refused memory policy {policy} on nodes 900 \("),
                ThreadBinding() as bound,
            ):
                bound.apply(planned(policy, 900))
            return binding._read_policy()

        assert in_a_thread(work) == binding._KernelPolicy(0, 0)


def test_less_than_what_was_asked_for_is_noticed() -> None:
    support()
    # The node of number 900 is left out by the kernel where another one is there.
    with pytest.raises(RunError, match="the kernel"):
        in_a_thread(lambda: ThreadBinding().apply(planned(MemoryPolicy.BIND, NODE, 900)))
    two = binding._difference(MemoryPolicy.BIND, (2, 3), binding._KernelPolicy(2, 0b100))
    assert two == "the kernel gave nodes 2"
    other = binding._difference(MemoryPolicy.WEIGHTED, (2,), binding._KernelPolicy(3, 0b100))
    assert other == "the kernel has policy number 3"
    assert binding._difference(MemoryPolicy.LOCAL, (), binding._KernelPolicy(1, 0)) is None


def test_cpus_that_are_not_there_are_an_error() -> None:
    with pytest.raises(InputError, match="the kernel does not let rater use them"):
        in_a_thread(lambda: ThreadBinding().apply(planned(MemoryPolicy.NONE, cpu=9999)))


def test_trying_policies_leaves_this_thread_as_it_was() -> None:
    binding._tried_once.cache_clear()
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

    binding._tried_once.cache_clear()
    monkeypatch.setattr(binding, "_system_call", refused)
    found = memory_support()
    assert (found.policies, found.preferred_many) == (frozenset(), False)
    assert "Operation not permitted" in found.reason
    binding._tried_once.cache_clear()
