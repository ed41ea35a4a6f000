"""Looking at copies: the kernel's texts, real processes, and how often."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from rater.plan.options import Cadence, parse_cadence
from rater.plan.placement.summary import gate_mismatches
from rater.plan.schedule import make_plan
from rater.record.events import GateFacts, Sampled
from rater.run.host.procfs import (
    PAGE_BYTES,
    Stat,
    Status,
    gate_facts,
    open_process,
    parse_numa_maps,
    parse_sched,
    parse_sizes,
    parse_stat,
    parse_status,
    read_file,
)
from rater.run.launcher.copies import Child, CopySpec
from rater.run.launcher.launcher import NAME
from rater.run.observe.observer import FIRST_S, Observer
from rater.run.observe.probe import NO_NUMA_MAPS, NOT_PERMITTED, NoSample, Probe
from rater.system.errors import InputError

MB = 1 << 20
# Eight nodes, every kind of line: file pages, private pages of a file, heap, stack, vdso,
# transparent huge pages (counted in 4 KB), huge pages of both sizes, private and shared.
MANY_NODES = rb"""55d0a5c00000 bind:2 file=/my\040prog\075x mapped=40 N7=40 kernelpagesize_kB=4
55d0a5e00000 bind:2 file=/my\040prog\075x anon=3 dirty=3 active=0 N2=3 kernelpagesize_kB=4
55d0a6000000 bind:2 heap anon=100 dirty=100 N2=90 N5=10 kernelpagesize_kB=4
7f0000000000 bind:2 anon=1024 dirty=1024 active=0 N2=1024 kernelpagesize_kB=4
7f0010000000 interleave:0-3 anon=8 dirty=8 N0=2 N1=2 N2=2 N3=2 kernelpagesize_kB=4
7f0020000000 prefer (many):0-1 file=/hp\040(deleted) huge anon=5 N0=5 kernelpagesize_kB=2048
7f0030000000 bind:2 file=/dev/hugepages/x huge dirty=1 N6=1 kernelpagesize_kB=1048576
7f0040000000 bind:2 file=/usr/lib/libm.so.6 mapped=200 mapmax=64 N0=200 kernelpagesize_kB=4
7f0050000000 bind:2 file=/dev/zero\040(deleted) dirty=77 N1=77 kernelpagesize_kB=4
7f0060000000 bind:2
7ffd00000000 bind:2 stack anon=4 dirty=4 N2=4 kernelpagesize_kB=4
7ffd00100000 bind:2
"""


def test_anonymous_and_shared_memory_is_counted_by_node_and_files_are_not() -> None:
    maps = parse_numa_maps(MANY_NODES)
    assert maps.node_bytes == {
        0: 2 * 4096 + 5 * 2 * MB,
        1: (2 + 77) * 4096,
        2: (3 + 90 + 1024 + 2 + 4) * 4096,
        3: 2 * 4096,
        5: 10 * 4096,
        6: 1024 * MB,
    }
    assert maps.page_bytes == {4096: (3 + 100 + 1024 + 8 + 4 + 77) * 4096}
    assert maps.huge_bytes == {2 * MB: 10 * MB, 1024 * MB: 1024 * MB}
    assert maps.resident_bytes == sum(maps.node_bytes.values()) + (40 + 200) * 4096


def test_policies_keep_their_names_even_with_a_blank_in_them() -> None:
    assert parse_numa_maps(MANY_NODES).policy_bytes == {
        "bind:2": (3 + 100 + 1024 + 4 + 77) * 4096 + 1024 * MB,
        "interleave:0-3": 8 * 4096,
        "prefer (many):0-1": 10 * MB,
    }
    line = b"7f00 weighted interleave:0-1 anon=2 dirty=2 N0=1 N1=1 kernelpagesize_kB=64\n"
    assert parse_numa_maps(line).policy_bytes == {"weighted interleave:0-1": 2 * 65536}


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        # Pages of a file are not taken for anonymous ones: 6 of the 10 are the file's.
        (b" default file=/c.so anon=4 dirty=4 mapped=10 N0=9 N1=1", {0: 3, 1: 0}),
        (b" default file=/c.so anon=4 dirty=4 mapped=10 N3=10", {3: 4}),
        # A file name can not pass for a field, and may be long.
        (rb" default file=/tmp/a\040anon\0759\040N3\0759 mapped=2 N0=2", {}),
        (b" default file=/" + b"d/" * 2000 + b"x anon=1 dirty=1 N1023=1", {1023: 1}),
    ],
)
def test_only_anonymous_pages_of_a_file_s_mapping_count(text: bytes, pages: dict[int, int]) -> None:
    maps = parse_numa_maps(b"7f00" + text + b" kernelpagesize_kB=4\n")
    assert maps.node_bytes == {node: count * 4096 for node, count in pages.items()}


def test_a_text_cut_short_is_no_error() -> None:
    cut = MANY_NODES[: MANY_NODES.index(b"N5=10")]
    assert parse_numa_maps(cut).node_bytes == {2: 3 * 4096}
    assert parse_numa_maps(b"").resident_bytes == 0


def test_a_rollup_gives_bytes() -> None:
    text = (
        b"55b1d9d26000-7fff9ff8e000 ---p 00000000 00:00 0                          [rollup]\n"
        b"Rss:              945172 kB\nPss_Anon:         942000 kB\nAnonymous:        942108 kB\n"
        b"AnonHugePages:    921600 kB\nPrivate_Hugetlb:       0 kB\nSwap:                 12 kB\n"
    )
    sizes = parse_sizes(text)
    assert (sizes["AnonHugePages"], sizes["Swap"]) == (921600 * 1024, 12 * 1024)


def test_a_name_with_brackets_does_not_shift_the_fields_of_a_stat_line() -> None:
    after = b"R 17 18 18 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 99 1000 250 " + b"0 " * 14 + b"41 0"
    stat = parse_stat(b"42 (a) R 1 (b)) " + after)
    assert stat == Stat(
        name="a) R 1 (b)",
        state="R",
        parent=17,
        kernel=False,
        own=11,
        children=15,
        threads=3,
        started=99,
        rss_pages=250,
        cpu=41,
    )
    assert parse_stat(b"42 (a) R 1") is None


def test_a_status_shows_the_masks_and_the_peak() -> None:
    status = parse_status(
        b"Name:\tx\nVmHWM:\t    2048 kB\nVmSwap:\t       4 kB\n"
        b"Cpus_allowed:\tff,0000000f\nCpus_allowed_list:\t0-3,32\nMems_allowed_list:\t0,2\n"
    )
    assert status == Status(
        state="",
        tracer=0,
        cpus=(0, 1, 2, 3, 32),
        mems=(0, 2),
        peak_bytes=2 * MB,
        swap_bytes=4096,
    )
    assert parse_status(b"Name:\tx\n").cpus is None
    assert parse_status(b"Name:\tzombie\n") == Status()


def test_a_sched_file_shows_migrations_where_it_has_them() -> None:
    text = b"se.nr_migrations                 :                   12\nnuma_pages_migrated : 7\n"
    assert parse_sched(text) == (12, 7)
    assert parse_sched(b"nr_migrations   :  3\n") == (3, None)
    assert parse_sched(b"") == (None, None)


def test_a_mask_narrowed_by_a_cpuset_is_known_from_a_wrong_one() -> None:
    seen = GateFacts(cpus=(0, 1), mems=(0,))
    assert gate_mismatches(seen, (0, 1), (0,)) == ()
    assert gate_mismatches(seen, None, ()) == ()
    [narrowed] = gate_mismatches(seen, (0, 1, 2, 3), ())
    assert narrowed.startswith("may use CPUs 0-1 only of the planned 0-3")
    [wrong] = gate_mismatches(seen, (2,), ())
    assert wrong == "bound to CPUs 0-1, planned 2"
    [missing] = gate_mismatches(seen, (0, 1), (0, 2))
    assert "node 2 as planned: its cpuset allows 0" in missing
    assert gate_mismatches(GateFacts(None, None), (1,), (1,)) == ()


# -- real processes -------------------------------------------------------------------------------

HOLD = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def running(
    *argv: str, affinity: set[int] | None = None, executable: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that said `ready` and waits for the end of its input."""

    def bind() -> None:
        if affinity is not None:
            os.sched_setaffinity(0, affinity)

    process = subprocess.Popen(
        argv,
        executable=executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=bind,  # noqa: PLW1509 (no other threads here)
    )
    with process:
        assert process.stdout is not None
        if argv[0] == sys.executable:
            assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def python(
    code: str, affinity: set[int] | None = None
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(sys.executable, "-I", "-S", "-c", f"{code}\n{HOLD}", affinity=affinity)


def watched(pid: int, copy: int = 0) -> Child:
    step = make_plan(["a"], 1).phases[0].queues[0].steps[0]
    spec = CopySpec(argv=("true",), shared_variables={}, directory="/", output="/out.")
    launcher: Any = None
    return Child(
        launcher=launcher,
        token=1,
        copy=copy,
        position=0,
        step=step,
        spec=spec,
        pid=pid,
        start_ns=time.monotonic_ns(),
    )


def probed(pid: int, probe: Probe | None = None, *orphans: int) -> Sampled | NoSample:
    directory = open_process(pid)
    try:
        return (probe or Probe(spread=True)).sample(watched(pid), directory, False, orphans)
    finally:
        os.close(directory)


def sample_of(pid: int, probe: Probe | None = None, *orphans: int) -> Sampled:
    sample = probed(pid, probe, *orphans)
    assert isinstance(sample, Sampled)
    return sample


@contextmanager
def idle_copies(number: int) -> Iterator[list[Child]]:
    with ExitStack() as stack:
        pids = [stack.enter_context(python("pass")).pid for _ in range(number)]
        now = time.monotonic_ns()
        yield [replace(watched(pid, copy), start_ns=now) for copy, pid in enumerate(pids)]


needs_numa_maps = pytest.mark.skipif(
    not Path("/proc/self/numa_maps").exists(), reason="this kernel has no numa_maps"
)


@needs_numa_maps
def test_a_copy_of_known_size_is_seen_with_its_node_and_page_size() -> None:
    cpu = min(os.sched_getaffinity(0))
    with python("held = b'x' * (80 << 20)", {cpu}) as process:
        sample = sample_of(process.pid)
    assert sample.cpus == sample.allowed == (cpu,)
    assert (sample.processes, sample.unread) == (1, 0)
    assert sample.node_bytes is not None and sample.page_bytes is not None
    total = sum(size for _, size in sample.node_bytes)
    assert 80 * MB <= total <= 100 * MB
    assert sum(size for _, size in sample.page_bytes) == total
    assert sample.rss_bytes is not None and sample.peak_bytes is not None
    assert total <= sample.rss_bytes <= 120 * MB
    assert 80 * MB <= sample.peak_bytes <= 120 * MB
    assert sample.policy is not None
    assert sample.migrations is None or sample.migrations >= 0  # bound only after its fork


@needs_numa_maps
def test_transparent_huge_pages_are_known_from_small_ones() -> None:
    folder = Path("/sys/kernel/mm/transparent_hugepage")
    if not folder.exists() or "[never]" in (folder / "enabled").read_text():
        pytest.skip("this kernel gives out no transparent huge pages")
    huge = int((folder / "hpage_pmd_size").read_text())
    code = (
        "import mmap; m = mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "m.madvise(mmap.MADV_HUGEPAGE)\n"
        "for at in range(0, 48 << 20, 4096): m[at] = 1"
    )
    with python(code) as process:
        sample = sample_of(process.pid)
    assert sample.page_bytes is not None
    sizes = dict(sample.page_bytes)
    if huge not in sizes:
        pytest.skip("no transparent huge page was to be had")
    assert sizes[huge] % huge == 0
    assert sizes[huge] + sizes[PAGE_BYTES] == sample.private_bytes


@needs_numa_maps
def test_huge_pages_of_a_pool_count_with_their_size() -> None:
    pool = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    if not pool.exists() or int(pool.read_text()) < 4:
        pytest.skip("no free 2 MB huge pages here")
    flags = "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000 | 21 << 26"  # MAP_HUGETLB, 2^21
    code = (
        f"import mmap; m = mmap.mmap(-1, 8 << 20, flags={flags})\nfor i in range(4): m[i << 21] = 1"
    )
    with python(code) as process:
        sample = sample_of(process.pid)
    assert sample.page_bytes is not None
    assert dict(sample.page_bytes)[2 * MB] >= 8 * MB
    assert sample.rss_bytes is not None and sample.rss_bytes >= 8 * MB


@needs_numa_maps
def test_what_a_copy_starts_counts_with_it() -> None:
    code = f"held = b'x' * (40 << 20)\n{HOLD}"
    script = 'exec 3<&0; "$0" -I -S -c "$1" <&3 & wait'
    with running("/bin/sh", "-c", script, sys.executable, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        sample = sample_of(process.pid)
        assert process.stdin is not None
        process.stdin.close()  # ends the child
    assert sample.processes == 2
    assert sample.private_bytes is not None and sample.private_bytes >= 40 * MB
    assert sample.peak_bytes is None


def test_every_thread_of_a_copy_is_sampled() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    code = (
        "import threading, os\n"
        "def hold(cpu):\n    os.sched_setaffinity(0, {cpu})\n    done.wait()\n    ready.wait()\n"
        f"cpus = {cpus!r}\ndone = threading.Barrier(len(cpus) + 1)\nready = threading.Event()\n"
        "for cpu in cpus: threading.Thread(target=hold, args=(cpu,), daemon=True).start()\n"
        "done.wait()"
    )
    with python(code) as process:
        sample = sample_of(process.pid)
    assert sample.cpus == tuple(cpus)


def test_a_copy_whose_first_thread_has_ended_is_seen_by_those_that_go_on() -> None:
    exit_number = {"x86_64": 60, "aarch64": 93}.get(os.uname().machine)
    if exit_number is None:
        pytest.skip("the number of exit(2) is known for x86_64 and aarch64")
    code = f"""
import ctypes, os, threading
def go_on():
    while open('/proc/self/stat').read().rpartition(')')[2].split()[0] != 'Z':
        pass
    os.write(1, b'ready\\n')
    os.read(0, 1)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall({exit_number}, 0)
"""
    with running(sys.executable, "-I", "-S", "-c", code) as process:
        sample = sample_of(process.pid)
    assert (sample.processes, sample.unread) == (1, 0)
    assert sample.rss_bytes is not None and sample.cpus


def test_orphans_of_a_copy_count_with_it_as_long_as_they_are_our_children() -> None:
    with python("pass") as copy, python("x = bytearray(b'x') * 9_000_000") as orphan:
        both = sample_of(copy.pid, None, orphan.pid)
        alone = sample_of(copy.pid, None, os.getppid())
    assert (both.processes, alone.processes) == (2, 1)
    assert (both.rss_bytes or 0) > (alone.rss_bytes or 0)


def test_a_descriptor_of_a_dead_process_reads_nothing_whoever_has_its_number_now() -> None:
    with python("pass") as process:
        directory = open_process(process.pid)
        probe = Probe(spread=False)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert probe.sample(watched(process.pid), directory, past_gate=False) is NoSample.ENDED
        process.wait()
        assert probe.sample(watched(process.pid), directory, past_gate=True) is NoSample.ENDED
    os.close(directory)


def test_a_copy_still_in_its_gate_is_not_taken_for_the_benchmark() -> None:
    script = "echo ready; read -r line; exec sleep 60"
    shell = "/bin/sh"
    with running(NAME, "-c", script, executable=shell) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        assert probed(process.pid) is NoSample.AT_GATE
        process.stdin.write(b"\n")
        process.stdin.flush()
        while (sample := probed(process.pid)) is NoSample.AT_GATE:
            time.sleep(0.001)
    assert isinstance(sample, Sampled)


def test_what_may_not_be_read_is_not_known_and_noted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str, directory: int) -> bytes:
        if name in ("numa_maps", "smaps_rollup"):
            raise PermissionError
        return read_file(name, directory)

    monkeypatch.setattr("rater.run.observe.probe.read_file", refuse)
    probe = Probe(spread=True)
    with python("pass") as process:
        samples = [sample_of(process.pid, probe) for _ in range(2)]
    for sample in samples:
        assert sample.node_bytes is sample.page_bytes is None
        assert sample.cpus and sample.rss_bytes and sample.unread == 1
    assert list(probe.unknown) == [NOT_PERMITTED]


def test_a_kernel_without_numa_maps_still_shows_page_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda p: "numa_maps" not in str(p) and present(p))
    probe = Probe(spread=True)
    with python("held = b'x' * (20 << 20)") as process:
        sample = sample_of(process.pid, probe)
    assert sample.node_bytes is None
    assert sample.page_bytes is not None
    assert sum(size for _, size in sample.page_bytes) >= 20 * MB
    assert list(probe.unknown) == [NO_NUMA_MAPS]


def test_the_gate_shows_what_the_kernel_allows() -> None:
    cpu = max(os.sched_getaffinity(0))
    with python("pass", {cpu}) as process:
        facts = gate_facts(process.pid)
    assert facts.cpus == (cpu,)
    assert facts.mems
    assert gate_facts(process.pid) == GateFacts(None, None)  # reaped


# -- how often ------------------------------------------------------------------------------------


def observe(
    observer: Observer,
    alive: list[Child],
    enough: Callable[[list[Sampled]], bool],
    *,
    then_s: float = 0.0,
    most_s: float = 20.0,
) -> list[Sampled]:
    """Observe until the samples are enough and so much longer, and for so long at most."""
    samples: list[Sampled] = []
    for one in alive:
        observer.started(one)

    async def main() -> None:
        with trio.move_on_after(most_s) as scope:

            def emit(sample: Sampled) -> None:
                samples.append(sample)
                if enough(samples):
                    scope.deadline = min(scope.deadline, trio.current_time() + then_s)

            await observer.run(dict, emit)

    trio.run(main)
    return samples


@pytest.fixture
def steps_of_100_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is measured costs so much CPU time: what is real depends on what else runs here."""
    monkeypatch.setattr(time, "thread_time_ns", itertools.count(0, 100_000).__next__)


def test_a_copy_is_sampled_soon_after_its_release_and_not_before() -> None:
    with idle_copies(1) as mine:
        observer = Observer(Cadence())
        [sample] = observe(observer, mine, bool)
    assert sample.age_ns >= FIRST_S * 1e9
    report = observer.report()
    assert (report.samples, report.interval_s, report.cadence) == (1, None, "auto")
    assert report.cpu_s > 0 and report.longest_read_s > 0


def test_once_is_once_and_seconds_are_seconds() -> None:
    with idle_copies(2) as mine:
        once = observe(Observer(Cadence(once=True)), mine, lambda got: len(got) == 2, then_s=0.3)
        often = Observer(Cadence(every_s=0.05))
        many = observe(often, mine, lambda got: len(got) == 8)
    assert sorted(sample.copy for sample in once) == [0, 1]
    assert {sample.copy for sample in many[2:]} == {0, 1}
    interval_s = often.report().interval_s
    assert interval_s is not None and interval_s >= 0.05


def test_the_next_run_of_a_copy_that_was_seen_is_one_more_sample_and_not_owed() -> None:
    with idle_copies(1) as [first]:
        observer = Observer(Cadence(once=True))
        [sample] = observe(observer, [first], bool)
        assert sample.step == 0
        assert observe(observer, [replace(first, step=1, repeats=True)], bool, most_s=0.5) == []


def test_costly_samples_are_made_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    cheap = Probe.sample

    def costly(self: Probe, *arguments: object, **named: object) -> Sampled | NoSample:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return cheap(self, *arguments, **named)  # type: ignore[arg-type] # handed on as they came

    monkeypatch.setattr(Probe, "sample", costly)
    with idle_copies(1) as mine:
        # 20 ms are 1 % of 2 s: the second sample has to wait for longer than this observes.
        samples = observe(Observer(Cadence()), mine, bool, then_s=0.7)
    assert len(samples) == 1


@pytest.mark.usefixtures("steps_of_100_us")
def test_of_short_copies_some_are_sampled_spread_over_their_numbers_and_of_long_ones_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sure = "rater.run.observe.observer._SURE_NS"
    monkeypatch.setattr(sure, 60_000_000_000)
    monkeypatch.setattr("rater.run.observe.observer._AT_ONCE_NS", 1_000_000)
    monkeypatch.setattr("rater.run.observe.observer._EACH_NS", 0)
    monkeypatch.setattr("rater.run.observe.observer._SHARE", 1e-6)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    with idle_copies(8) as copies:
        observer = Observer(Cadence())
        # A sample is taken to cost 250 us: there is room for four.
        short = observe(observer, copies, lambda got: len(got) == 4, then_s=0.3)
        monkeypatch.setattr(sure, 600_000_000)
        monkeypatch.setattr("rater.run.observe.observer._AT_ONCE_NS", 0)
        now = time.monotonic_ns()
        long = [replace(copy, start_ns=now) for copy in copies]
        rest = observe(observer, long, lambda got: len(got) == 8)
    # Multiples of 0.618 without their whole part: 0, 0.09 (5), 0.24 (2), 0.33 (7), 0.47 (4), ...
    assert [sample.copy for sample in short] == [0, 5, 2, 7]
    assert sorted(sample.copy for sample in rest) == list(range(8))
    assert [sample.copy for sample in rest[:4]] == [4, 1, 6, 3]  # not seen before
    assert rest[0].age_ns >= 600_000_000


def test_samples_follow_after_half_a_copy_s_age_where_they_can_be_afforded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rater.run.observe.observer._SHARE", 1.0)
    with idle_copies(1) as [one]:
        old = replace(one, start_ns=(one.start_ns or 0) - 9_700_000_000)
        first, second = observe(Observer(Cadence()), [old], lambda got: len(got) == 2)
    assert 9.7e9 <= first.age_ns < 10.125e9 <= second.age_ns  # 1 2 3 4.5 6.75 10.125


def test_copies_that_were_not_afforded_are_sampled_late_and_the_last_when_they_are_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rater.run.observe.observer._AT_ONCE_NS", 0)
    monkeypatch.setattr("rater.run.observe.observer._EACH_NS", 0)
    monkeypatch.setattr("rater.run.observe.observer._SHARE", 0.0)
    with idle_copies(1) as [one]:
        old = replace(one, start_ns=(one.start_ns or 0) - 1_500_000_000)
        [sample] = observe(Observer(Cadence()), [old], bool)
    assert sample.age_ns >= 2e9


def test_a_sample_that_breaks_stops_the_observer_instead_of_hanging_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> NoSample:
        raise ValueError("what is this file?")

    monkeypatch.setattr(Probe, "sample", broken)
    broke = pytest.raises(ValueError, match="what is this file")
    with idle_copies(1) as mine, broke:
        observe(Observer(Cadence()), mine, bool)


def test_a_copy_that_is_released_later_wakes_the_observer() -> None:
    observer = Observer(Cadence())
    samples: list[Sampled] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            def emit(sample: Sampled) -> None:
                samples.append(sample)
                nursery.cancel_scope.cancel()

            nursery.start_soon(observer.run, dict, emit)
            await trio.testing.wait_all_tasks_blocked()
            observer.started(watched(process.pid, 5))

    with python("pass") as process:
        trio.run(main)
    assert [sample.copy for sample in samples] == [5]


def test_a_copy_that_was_reaped_is_sampled_no_more() -> None:
    with idle_copies(2) as copies:
        observer = Observer(Cadence(every_s=0.05))

        def enough(got: list[Sampled]) -> bool:
            if len(got) == 2:
                observer.ended(copies[0])
            return len(got) == 5

        got = observe(observer, copies, enough)
    assert sorted(sample.copy for sample in got[:2]) == [0, 1]
    assert [sample.copy for sample in got[2:]] == [1, 1, 1]


def test_copies_that_ended_are_no_error_and_leave_no_descriptor() -> None:
    with python("pass") as gone, python("pass") as zombie, python("pass") as there:
        gone.kill()
        gone.wait()
        zombie.kill()
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        mine = [watched(gone.pid, 0), watched(zombie.pid, 1), watched(there.pid, 2)]
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (their number)
        observer = Observer(Cadence(every_s=0.05))
        samples = observe(observer, mine, lambda got: len(got) == 3)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert {sample.copy for sample in samples} == {2}


def test_the_proof_option_takes_words_and_seconds() -> None:
    assert parse_cadence("off") is None
    assert parse_cadence("auto") == Cadence()
    assert parse_cadence("once") == Cadence(once=True)
    assert parse_cadence("2.5") == Cadence(every_s=2.5)
    shown = [str(parse_cadence(text)) for text in ("auto", "once", "2.50")]
    assert shown == ["auto", "once", "2.5"]
    for bad in ("0", "-1", "nan", "inf", "often", ""):
        with pytest.raises(InputError, match="--proof"):
            parse_cadence(bad)


def test_where_copies_share_cpus_those_that_end_within_half_a_second_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with idle_copies(2) as mine:
        got = observe(Observer(Cadence(once=True)), mine, lambda got: len(got) == 2)
    assert [sample.age_ns > 0.4e9 for sample in got] == [True, True]
