"""What the kernel ended a copy for: its own counts and limits tell, nothing is guessed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rater.run.host.procfs import find_count
from rater.run.launcher.limits import KernelKills, limits_at_end, tasks_of_groups_problem

V2 = {
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw",
    "proc/self/cgroup": "0::/job/step",
    "sys/fs/cgroup/job/memory.max": "52428800",
    "sys/fs/cgroup/job/memory.events": "low 0\nhigh 0\nmax 5\noom 0\noom_kill 0",
    "sys/fs/cgroup/job/hugetlb.2MB.events": "max 3",
    "sys/fs/cgroup/job/step/memory.max": "max",
    "sys/fs/cgroup/job/step/memory.events": "low 0\nhigh 0\nmax 5\noom 0\noom_kill 0",
    "proc/vmstat": "nr_free_pages 1\noom_kill 7",
}
V1 = {
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
    "proc/self/cgroup": "4:memory:/job",
    "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "52428800",
    "sys/fs/cgroup/memory/job/memory.failcnt": "3",
    "sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2",
}
UNKNOWN = "a process sent it: the kernel counted no kill for want of memory"


def machine(root: Path, files: dict[str, str]) -> KernelKills:
    write(root, files)
    return KernelKills(root)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def sigkill(kills: KernelKills) -> str | None:
    return kills.cause(signal.SIGKILL, 0.1, {})


def test_a_kill_of_a_cgroup_names_the_group_that_has_the_limit(tmp_path: Path) -> None:
    kills = machine(tmp_path, V2)
    assert sigkill(kills) == UNKNOWN
    for group in ("job", "job/step"):
        write(tmp_path, {f"sys/fs/cgroup/{group}/memory.events": "max 9\noom 1\noom_kill 1"})
    assert sigkill(kills) == "the kernel killed it: memory of cgroup /job (52 MB) was used up"
    assert sigkill(kills) == UNKNOWN  # one kill explains one copy


def test_kills_before_a_phase_explain_no_copy_of_it(tmp_path: Path) -> None:
    kills = machine(tmp_path, V2 | {"proc/vmstat": "oom_kill 7"})
    killed = {"sys/fs/cgroup/job/step/memory.events": "max 9\noom 1\noom_kill 1"}
    write(tmp_path, killed | {"proc/vmstat": "oom_kill 8"})
    kills.begin_phase()
    assert sigkill(kills) == UNKNOWN
    more = {"sys/fs/cgroup/job/step/memory.events": "max 9\noom 1\noom_kill 2"}
    write(tmp_path, more | {"proc/vmstat": "oom_kill 9"})
    assert sigkill(kills) != UNKNOWN
    kills.begin_phase()
    assert sigkill(kills) == UNKNOWN


def test_a_kill_in_another_cgroup_may_be_of_a_copy_that_went_there(tmp_path: Path) -> None:
    kills = machine(tmp_path, V2 | {"proc/vmstat": "oom_kill 7"})
    write(tmp_path, {"proc/vmstat": "oom_kill 8"})
    assert (sigkill(kills) or "").startswith("the kernel killed it or a process did: meanwhile")
    killed = {"sys/fs/cgroup/job/step/memory.events": "max 9\noom 1\noom_kill 1"}
    write(tmp_path, killed)  # it was in ours
    assert sigkill(kills) != UNKNOWN
    assert sigkill(kills) == UNKNOWN


def test_the_machine_is_blamed_only_where_its_own_counters_rose(tmp_path: Path) -> None:
    counts = V2 | {"proc/vmstat": "allocstall_dma32 3\nallocstall_normal 4\noom_kill 7"}
    kills = machine(tmp_path, counts)
    write(tmp_path, {"sys/fs/cgroup/job/step/memory.events": "oom 0\noom_kill 3"})
    assert "so it was a limit above this container" in (sigkill(kills) or "")
    # Every kill counts here, that of another container too.
    write(tmp_path, {"proc/vmstat": "allocstall_dma32 3\nallocstall_normal 4\noom_kill 8"})
    assert "so it was a limit above this container" in (sigkill(kills) or "")
    write(tmp_path, {"proc/vmstat": "allocstall_dma32 3\nallocstall_normal 90\noom_kill 9"})
    assert sigkill(kills) == "the kernel killed it: the machine's memory was used up"


def test_the_cgroup_is_named_whose_own_limit_was_reached(tmp_path: Path) -> None:
    limits = {
        "sys/fs/cgroup/job/memory.events.local": "max 0\noom 0\noom_kill 0",
        "sys/fs/cgroup/job/step/memory.max": "40000000",
        "sys/fs/cgroup/job/step/memory.oom.group": "1",
        "sys/fs/cgroup/job/step/memory.events.local": "max 0\noom 0\noom_kill 0",
    }
    kills = machine(tmp_path, V2 | limits)
    # A neighbour of ours below /job is killed as well, which only the sum of /job counts.
    write(tmp_path, {"sys/fs/cgroup/job/memory.events": "max 9\noom 4\noom_kill 4"})
    write(tmp_path, {"sys/fs/cgroup/job/step/memory.events": "max 9\noom 1\noom_kill 1"})
    write(tmp_path, {"sys/fs/cgroup/job/step/memory.events.local": "max 9\noom 1\noom_kill 1"})
    assert sigkill(kills) == (
        "the kernel killed it: memory of cgroup /job/step (40 MB) was used up, and all processes "
        "of that cgroup are killed together (memory.oom.group)"
    )


def test_memory_and_swap_of_version_1_have_a_limit_of_their_own(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/job"
    both = {
        f"{folder}/memory.memsw.limit_in_bytes": "52428800",
        f"{folder}/memory.memsw.failcnt": "3",
    }
    kills = machine(tmp_path, V1 | both)
    write(tmp_path, {f"{folder}/memory.memsw.failcnt": "9"})
    write(tmp_path, {f"{folder}/memory.oom_control": "oom_kill 3"})
    assert sigkill(kills) == (
        "the kernel killed it: memory and swap of cgroup /job (52 MB) were used up"
    )


def test_a_limit_that_counts_no_hit_is_known_by_the_most_that_was_used(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/job"
    both = {f"{folder}/memory.memsw.limit_in_bytes": "52428800"}
    waits = {"proc/vmstat": "allocstall_normal 4\noom_kill 7"}
    kills = machine(tmp_path, V1 | both | waits)
    write(tmp_path, {f"{folder}/memory.memsw.max_usage_in_bytes": "52424704"})
    write(tmp_path, {f"{folder}/memory.oom_control": "oom_kill 3"})
    write(tmp_path, {"proc/vmstat": "allocstall_normal 4\noom_kill 8"})
    assert sigkill(kills) == (
        "the kernel killed it: memory and swap of cgroup /job (52 MB) were used up"
    )
    # It was reached before, and now the machine itself is full.
    write(tmp_path, {f"{folder}/memory.oom_control": "oom_kill 4"})
    write(tmp_path, {"proc/vmstat": "allocstall_normal 5\noom_kill 9"})
    assert sigkill(kills) == "the kernel killed it: the machine's memory was used up"


def test_cgroups_of_version_1_count_in_other_files(tmp_path: Path) -> None:
    kills = machine(tmp_path, V1)
    assert sigkill(kills) == UNKNOWN
    write(
        tmp_path,
        {
            "sys/fs/cgroup/memory/job/memory.failcnt": "40",
            "sys/fs/cgroup/memory/job/memory.oom_control": "oom_kill 3",
        },
    )
    # A shell that lost its command to the kernel ends with 137.
    assert kills.cause(signal.SIGTERM, 0.1, {}, handed_on=True) is None
    text = kills.cause(signal.SIGKILL, 0.1, {}, handed_on=True)
    assert text == "the kernel killed it: memory of cgroup /job (52 MB) was used up"


def test_without_cgroups_the_machine_counts_and_without_counts_nothing_is_said(
    tmp_path: Path,
) -> None:
    assert sigkill(KernelKills(tmp_path)) == "killed from outside"
    kills = machine(tmp_path, {"proc/vmstat": "oom_kill 7"})
    write(tmp_path, {"proc/vmstat": "oom_kill 8"})
    assert sigkill(kills) == "the kernel killed it: the machine's memory was used up"


def test_a_bus_error_is_explained_by_a_refused_huge_page_only_where_one_was(
    tmp_path: Path,
) -> None:
    kills = machine(tmp_path, V2)
    assert kills.cause(signal.SIGBUS, 0.1, {}) is None
    write(tmp_path, {"sys/fs/cgroup/job/hugetlb.2MB.events": "max 4"})
    text = kills.cause(signal.SIGBUS, 0.1, {})
    assert text == "huge pages of cgroup /job were used up (hugetlb.2MB)"


@pytest.mark.parametrize(
    ("number", "cpu_s", "expected"),
    [
        (signal.SIGKILL, 0.99, "it used 0.99 s of CPU time, the limit is 1 (`ulimit -t`)"),
        (signal.SIGKILL, 0.2, UNKNOWN),
        (signal.SIGXCPU, 1.01, "it used 1.01 s of CPU time, the limit is 1 (`ulimit -t`)"),
        (signal.SIGXFSZ, 0.1, "a file may have 512 bytes (`ulimit -f`)"),
        (signal.SIGSEGV, 3.0, None),
    ],
)
def test_limits_explain_what_they_can(
    tmp_path: Path, number: int, cpu_s: float, expected: str | None
) -> None:
    limits = {"cpu time": (2, 1), "file size": (512, -1)}  # raised by 1 with SIGXCPU
    assert machine(tmp_path, V2).cause(number, cpu_s, limits) == expected


def test_limits_that_a_process_set_itself_are_read_before_it_is_reaped() -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "ulimit -t 77; kill -9 $$"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert limits_at_end(pid)["cpu time"] == (77, 77)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_the_limit_of_processes_of_any_cgroup_above_is_asked_before_the_start(
    tmp_path: Path,
) -> None:
    folder = "sys/fs/cgroup/job"
    machine(tmp_path, V2 | {f"{folder}/pids.max": "40", f"{folder}/step/pids.max": "max"})
    write(tmp_path, {f"{folder}/pids.current": "30", f"{folder}/step/pids.current": "3"})
    assert tasks_of_groups_problem(4, tmp_path) is None
    assert tasks_of_groups_problem(5, tmp_path) == (
        "cgroup /job may have 40 processes and threads (pids.max) and has 30; 11 more are needed"
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"oom_kill 7\nfree 1\n", 7),
        (b"free 1\noom_kill 7", 7),
        (b"my_oom_kill 3\noom_kill_more 4\n", None),
        (b"oom_kill many\n", None),
        (b"", None),
    ],
)
def test_a_count_is_found_by_its_whole_name_at_the_begin_of_a_line(
    text: bytes, count: int | None
) -> None:
    assert find_count(text, b"oom_kill") == count


def test_kills_that_the_text_of_a_phases_begin_has_explain_no_copy_of_it(tmp_path: Path) -> None:
    kills = machine(tmp_path, {"proc/vmstat": "oom_kill 7"})
    write(tmp_path, {"proc/vmstat": "oom_kill 8"})
    kills.begin_phase((tmp_path / "proc/vmstat").read_bytes())
    assert sigkill(kills) == UNKNOWN
    write(tmp_path, {"proc/vmstat": "oom_kill 9"})
    assert str(sigkill(kills)).startswith("the kernel killed it")
