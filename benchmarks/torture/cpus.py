"""CPUs that go while copies run: an affinity and a cpuset that shrink, a CPU that is unplugged."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import attempts, run, until_copies, wrong_with
from benchmarks.torture.table import Row, row_of, scaled_number
from rater.text.cpuset import format_list

UNPLUG = "TORTURE_UNPLUG"  # a variable: the CPU of this guest that may go and come back
_RUN = ("run", "--quiet", "--copies", "4", "--iterations", "2", "--timeout", "20")
_COPY = ("--", "sleep", "0.4")
_INSIDE = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
_CPUS = Path("/sys/devices/system/cpu")
type _Doing = Callable[[subprocess.Popen[bytes]], None]


def campaign(bench: Bench, share: float = 1.0) -> list[Row]:
    """Take CPUs away from five runs each way."""
    return [
        row_of(
            "the affinity shrinks to one CPU",
            _runs(bench, scaled_number(share, 5), shrink_affinity),
        ),
        _by_cpuset(bench, scaled_number(share, 5)),
        _by_unplugging(bench, scaled_number(share, 2)),
    ]


def run_with_change(
    folder: Path, environment: Mapping[str, str], doing: _Doing, prefix: Sequence[str] = ()
) -> str | None:
    """Do that to a run as soon as its copies run; return what is wrong with how it ended."""

    def during(process: subprocess.Popen[bytes]) -> None:
        until_copies(process, "sleep")
        doing(process)

    ended = run(folder, environment, [*_RUN, *_COPY], prefix=prefix, during=during)
    return wrong_with(ended, folder, (0, 1))


def _runs(bench: Bench, number: int, doing: _Doing, prefix: Sequence[str] = ()) -> list[str | None]:
    return attempts(
        bench,
        lambda folder, _: run_with_change(folder, bench.environment, doing, prefix),
        range(number),
    )


def shrink_affinity(process: subprocess.Popen[bytes]) -> None:
    """Leave one CPU to all threads of a process."""
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {min(os.sched_getaffinity(0))})


def _by_cpuset(bench: Bench, number: int) -> Row:
    name = "the cpuset shrinks to one CPU"
    try:
        return row_of(name, [found for _ in range(number) for found in _in_cpuset(bench)])
    except OSError as error:
        return Row(name, 0, 0, f"left out: no cpuset of our own ({error})")


def _in_cpuset(bench: Bench) -> list[str | None]:
    every = os.sched_getaffinity(0)
    with cpuset() as group:
        cpus = group / "cpuset.cpus"
        cpus.write_text(format_list(every))

        def shrink(_: subprocess.Popen[bytes]) -> None:
            cpus.write_text(str(min(every)))

        return _runs(bench, 1, shrink, ["sh", "-c", _INSIDE, "sh", str(group)])


@contextmanager
def cpuset() -> Iterator[Path]:
    """Make a cpuset with all memory nodes, of either version of cgroups; raises `OSError`."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    roots = [
        Path(words[4])
        for words in mounts
        if (words[-3] == "cgroup" and "cpuset" in words[-1].split(","))
        or (words[-3] == "cgroup2" and "cpuset" in _controllers(Path(words[4])))
    ]
    if not roots:
        raise OSError("no cgroup file system has cpusets")
    group = roots[0] / f"rater-torture-{os.getpid()}"
    group.mkdir()
    try:
        mems = next(roots[0].glob("cpuset.*effective*mems*"), roots[0] / "cpuset.mems.effective")
        (group / "cpuset.mems").write_text(mems.read_text())
        yield group
    finally:
        group.rmdir()


def _controllers(root: Path) -> list[str]:
    return (root / "cgroup.subtree_control").read_text().split()


def _by_unplugging(bench: Bench, number: int) -> Row:
    name = "a CPU is unplugged"
    cpu = os.environ.get(UNPLUG, "")
    online = _CPUS / f"cpu{cpu}" / "online"
    if " hypervisor" not in Path("/proc/cpuinfo").read_text():
        return Row(name, 0, 0, "left out: only in a guest")
    if not cpu.isdecimal():
        return Row(name, 0, 0, f"left out: {UNPLUG}=N names a CPU of this guest that may go")
    if not os.access(online, os.W_OK):
        return Row(name, 0, 0, f"left out: {online} cannot be written")

    def unplug(_: subprocess.Popen[bytes]) -> None:
        online.write_text("0")

    problems: list[str | None] = []
    for _ in range(number):
        try:
            problems += _runs(bench, 1, unplug)
        finally:
            online.write_text("1")
    return row_of(name, problems)
