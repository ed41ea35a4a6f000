"""What of a group a machine counts, and what it says of the rest: every way a kernel refuses."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from rater.plan.counter_choice import TableGroup
from rater.plan.counter_tables import load_table
from rater.run.copies.counters import (
    GroupProbe,
    PerfEvent,
    perf_events,
    probe_group,
    this_processor,
)
from tests.support.perf import USER_ONLY, MadeKernel

SKX = load_table("intel-skx")
PIPELINE = TableGroup(SKX, SKX.groups[0])
SOFTWARE = TableGroup(load_table("software"), load_table("software").groups[0])
RECOVERY = 0x010D
NAMES = tuple(event.name for event in PIPELINE.group.events)


def machine(root: Path, *, paranoid: int | None = 2, watchdog: int = 0) -> Path:
    for name, value in (("perf_event_paranoid", paranoid), ("nmi_watchdog", watchdog)):
        if value is not None:
            file = root / "proc/sys/kernel" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
    return root


def tried(kernel: MadeKernel, root: Path, of: TableGroup = PIPELINE) -> GroupProbe:
    found = probe_group(of, kernel, root)
    assert not kernel.opened, "nothing is left open"
    return found


def test_a_group_that_works_counts_user_and_kernel(tmp_path: Path) -> None:
    kernel = MadeKernel()
    found = tried(kernel, machine(tmp_path))
    assert found.ready
    assert (found.ready.user_only, found.missing, found.why) == (False, (), "")
    assert tuple(it.name for it in found.ready.events) == NAMES
    assert found.reading
    assert found.reading.values == (1000,) * 6


def test_a_user_who_may_not_see_the_kernel_counts_user_mode(tmp_path: Path) -> None:
    kernel = MadeKernel(refuse=lambda event, flags: 0 if flags & USER_ONLY else errno.EACCES)
    found = tried(kernel, machine(tmp_path, paranoid=2))
    assert found.ready
    assert found.ready.user_only
    assert found.ready.name == "intel-skx:pipeline:u"
    assert found.why == (
        "user mode only: kernel.perf_event_paranoid is 2: not the kernel's part, for users but root"
    )
    assert found.remedy == "sudo sysctl kernel.perf_event_paranoid=1"


def test_what_happens_in_the_kernel_is_not_counted_as_0_in_user_mode(tmp_path: Path) -> None:
    kernel = MadeKernel(refuse=lambda event, flags: 0 if flags & USER_ONLY else errno.EACCES)
    found = tried(kernel, machine(tmp_path), SOFTWARE)
    assert found.missing == ("context_switches", "migrations")
    assert found.ready
    assert [it.name for it in found.ready.events] == [
        "task_clock_ns",
        "minor_faults",
        "major_faults",
    ]


def test_user_mode_alone_is_counted_by_choice_too(tmp_path: Path) -> None:
    kernel = MadeKernel()
    found = tried(kernel, machine(tmp_path), replace(SOFTWARE, user_only=True))
    assert found.ready
    assert (found.ready.name, found.ready.user_only, found.why) == ("software:software:u", True, "")
    assert len(found.ready.events) == 3
    assert all(flags & USER_ONLY for _, flags, _ in kernel.calls)
    refused = MadeKernel(refuse=lambda event, flags: errno.EACCES)
    found = tried(refused, machine(tmp_path, paranoid=3), replace(SOFTWARE, user_only=True))
    assert (found.ready, found.why[-26:]) == (None, "nothing for users but root")


@pytest.mark.parametrize(
    ("paranoid", "number", "why", "remedy"),
    [
        (
            *(3, errno.EACCES, "kernel.perf_event_paranoid is 3: nothing for users but root"),
            "sudo sysctl kernel.perf_event_paranoid=1",
        ),
        (
            *(1, errno.EPERM, "refused though kernel.perf_event_paranoid is 1: seccomp or an LSM"),
            "a container: run it with --security-opt seccomp=unconfined",
        ),
        (
            *(None, errno.EACCES, "refused, and the kernel has no perf events"),
            "a container: run it with",
        ),
        (2, errno.ENOSYS, "this kernel has no perf events, ENOSYS", "CONFIG_PERF_EVENTS"),
        (2, errno.EMFILE, "too many open files, EMFILE", "raise `ulimit -n`"),
        (2, errno.ENFILE, "too many open files on the whole machine, ENFILE", "sysctl fs.file-max"),
        (2, errno.EBUSY, "another has the counters for itself, EBUSY", "end it (`perf`"),
        (2, errno.E2BIG, "the kernel is too old for it, E2BIG", "a newer kernel"),
        (2, errno.ESRCH, "the process was gone, ESRCH", ""),
        (2, errno.ENOENT, "no counters of the processor for it (the processor or its", "KVM: a vi"),
        (2, errno.EOPNOTSUPP, "no counters of the processor for it (the driver", "firmware"),
    ],
)
def test_every_refusal_is_told_with_its_way_out(
    tmp_path: Path, paranoid: int | None, number: int, why: str, remedy: str
) -> None:
    kernel = MadeKernel(refuse=lambda event, flags: number)
    found = tried(kernel, machine(tmp_path, paranoid=paranoid))
    assert found.ready is None
    assert why in found.why
    assert remedy in found.remedy


def test_a_machine_without_some_event_counts_the_others(tmp_path: Path) -> None:
    kernel = MadeKernel(refuse=lambda it, flags: errno.ENOENT if it.config == RECOVERY else 0)
    found = tried(kernel, machine(tmp_path))
    assert found.missing == ("recovery",)
    assert found.ready
    assert [it.name for it in found.ready.events] == list(NAMES[:-1])
    assert found.why == (
        "not on this machine: recovery (the processor or its driver has no such event, ENOENT)"
    )


def test_a_group_that_is_too_large_is_told_as_that(tmp_path: Path) -> None:
    found = tried(MadeKernel(room=5), machine(tmp_path))
    assert found.ready is None
    assert "each of its 6 events counts alone, together they do not" in found.why
    assert "smaller groups" in found.remedy


@pytest.mark.parametrize(
    ("watchdog", "why", "remedy"),
    [
        (1, "others have the counters (the NMI watchdog", "sysctl kernel.nmi_watchdog=0"),
        (0, "others have the counters", "end other users of the counters"),
    ],
)
def test_a_group_that_never_runs_is_not_counted(
    tmp_path: Path, watchdog: int, why: str, remedy: str
) -> None:
    found = tried(MadeKernel(running=0.0), machine(tmp_path, watchdog=watchdog))
    assert found.ready is None
    assert why in found.why
    assert found.remedy.startswith(remedy)


def test_codes_go_to_the_device_that_the_kernel_has_for_them(tmp_path: Path) -> None:
    arm = load_table("arm-neoverse-n1")
    group = arm.groups[0]
    assert perf_events(arm, group, tmp_path)[0] == PerfEvent(4, 0x11)
    device = tmp_path / "sys/bus/event_source/devices/armv8_pmuv3_0"
    device.mkdir(parents=True)
    (device / "type").write_text("9\n")
    assert perf_events(arm, group, tmp_path)[0] == PerfEvent(9, 0x11)
    assert this_processor(tmp_path).name == ""
