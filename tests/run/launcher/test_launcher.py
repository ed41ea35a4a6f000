"""The launcher in C: what copies are given, what goes wrong before they begin, and bad tables."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from rater.plan.schedule import Order, Plan, Window, make_plan
from rater.record.events import CopyEnded, Event
from rater.record.run import CopyStatus, MemoryPolicy, RunStatus
from rater.run.launcher import launcher as face
from rater.run.launcher.launcher import Launcher, launcher_program
from rater.run.launcher.table import (
    FORMAT,
    RECORD,
    REQUEST,
    PackedEnvironments,
    ProcessEntry,
    ProcessFlag,
    Record,
    RecordKind,
    RequestKind,
    StartStep,
    pack_table,
)
from rater.run.supervise.supervisor import Supervisor
from rater.system.errors import InputError, RaterError
from tests.support.calls import RATER, query_rows, rater
from tests.support.processes import state_of
from tests.support.rig import Rig, on_one_cpu

pytestmark = pytest.mark.usefixtures("own_cache")

HERE = Path(__file__).parent
NATIVE = Path(face.__file__).parent / "native"
MS = 1_000_000
STRICT = ("-std=gnu11", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion")


def compiled(target: Path, *sources: Path, flags: Sequence[str] = ()) -> Path:
    words = ["cc", *STRICT, "-Werror", face.digest_flag(), *flags, "-I", str(NATIVE)]
    subprocess.run([*words, *map(str, sources), "-o", str(target)], check=True)
    return target


SANITIZED = """
const char *__asan_default_options(void) { return "log_path=%s:detect_leaks=0"; }
const char *__ubsan_default_options(void) { return "log_path=%s:print_stacktrace=1"; }
"""


# With ASan children are forked, without it they share the launcher's memory.
@pytest.fixture(scope="session", params=["address,undefined", "undefined"])
def sanitized(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A launcher that writes what ASan and UBSan find into files beside it."""
    folder = tmp_path_factory.mktemp("sanitized")
    options = folder / "options.c"
    options.write_text(SANITIZED % (folder / "found", folder / "found"))
    flags = ("-g", "-O1", f"-fsanitize={request.param}", "-fno-sanitize-recover=all")
    return compiled(folder / "launcher", *sorted(NATIVE.glob("*.c")), options, flags=flags)


@contextmanager
def using(program: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use another launcher, and see that nothing was found in it."""
    with patch.context() as patched:
        patched.setattr(face, "launcher_program", lambda: program)
        yield
    assert [path.read_text() for path in program.parent.glob("found*")] == []


# -- what copies are given ------------------------------------------------------------------------


@pytest.fixture(scope="session")
def given_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("given") / "given", HERE / "given.c")


DOCUMENTED = {
    *("RATER_COPY", "RATER_COPIES", "RATER_CPUS", "RATER_NODE"),
    *("RATER_RUN_DIR", "RATER_RUN", "RATER_THREADS", "RATER_ITERATION"),
}


def from_outside(lines: Sequence[str]) -> list[str]:
    return [
        line
        for line in lines
        if line.partition("=")[0].removeprefix("environment ") not in DOCUMENTED
    ]


@pytest.mark.parametrize(
    "words", [(), ("--mode", "steady", "--warmup", "0", "--window", "0.5")], ids=["once", "again"]
)
def test_a_copy_is_given_what_rater_was_given_and_no_terminal(
    given_program: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    user = [str(given_program), "as-user"]
    outside = subprocess.run([*user, given_program, "a b"], capture_output=True, check=True)
    options = ("--copies", "1", "--layout", "none", "--mem", "none", "--quiet", "--keep")
    run = [*user, *RATER, "run", *options, *words, "--", str(given_program), "a b"]
    subprocess.run(run, cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
    seen = [path.read_text(errors="replace") for path in tmp_path.glob("cache/work/*/*stdout")]
    assert len(seen) > len(words) // 6
    for text in filter(None, seen):  # the last of a window may have been ended before it wrote
        *lines, terminal = text.splitlines()
        assert from_outside(lines) == outside.stdout.decode(errors="replace").splitlines()
        assert terminal == "inside: terminal No such device or address, input empty"


def test_a_copy_has_no_locale_that_python_set_for_itself(
    given_program: Path, tmp_path: Path
) -> None:
    rig = Rig(tmp_path, keep=True)
    variables = {
        name: os.environ.pop(name) for name in ("LC_ALL", "LC_CTYPE", "LANG") if name in os.environ
    }
    try:
        os.environ["LC_CTYPE"] = "C.UTF-8"
        rig.run({"say": 'echo "$LC_CTYPE"'}, copies=1)
    finally:
        del os.environ["LC_CTYPE"]
        os.environ.update(variables)
    assert (rig.work / "say.i1.c0000" / "stdout").read_text() == "\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="real-time priority is root's")
@pytest.mark.parametrize(
    ("words", "priority"),
    [
        ("nice -n 5", ("5", "0", "0")),
        ("nice -n -5", ("-5", "0", "0")),
        ("chrt -f 3", ("0", "3", "1")),
        ("chrt -b 0", ("0", "0", "3")),
    ],
)
def test_the_launcher_stands_above_copies_that_have_the_priority_which_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, priority: tuple[str, ...]
) -> None:
    program = script(tmp_path / "x", f'#!/bin/sh\nexec {words} {launcher_program()} "$@"\n')
    with using(Path(program), monkeypatch):
        launched([entry(tmp_path, "/bin/sh", "-c", "cat /proc/$$/stat /proc/$PPID/stat")])
    copy, of_launcher = (
        line.rpartition(")")[2].split() for line in (tmp_path / "out").read_text().splitlines()
    )
    # Fields 19, 40 and 41 of /proc/PID/stat: nice, real-time priority, policy.
    assert (copy[16], copy[37], copy[38]) == priority
    assert int(of_launcher[37]) == os.sched_get_priority_max(os.SCHED_RR) - 1


# -- what goes wrong before a copy begins ----------------------------------------------------------


def entry(folder: Path, *argv: str, **more: object) -> ProcessEntry:
    words = [*map(os.fsencode, argv)]
    place = os.fsencode(folder)
    process_entry = ProcessEntry(
        token=1,
        copy=0,
        argv=words,
        shared_variables={},
        own_variables={},
        directory=place,
        output=place + b"/out",
        error=place + b"/err",
        cpus=None,
    )
    return replace(process_entry, **more)


def greeted(processes: int) -> Launcher:
    """A launcher that takes requests; it is not in a cgroup, and its mark is no other's."""
    launcher = Launcher(processes, 1 << 61, -1, None)
    try:
        launcher.greet()
    except BaseException:
        launcher.close(hunt=False)
        raise
    return launcher


def launched(entries: Sequence[ProcessEntry], processes: int = 8) -> list[Record]:
    """What the launcher says of processes that are released, until all have ended."""
    launcher = greeted(processes)

    async def follow() -> list[Record]:
        records: list[Record] = []
        released = False
        await launcher.start(entries)
        alive = {entry.token for entry in entries}
        waiting = {entry.token for entry in entries if not entry.after}
        with trio.fail_after(20):
            while alive:
                for record in await launcher.receive():
                    records.append(record)
                    if record.kind == RecordKind.BROKEN and not record.pid:
                        alive, waiting = alive - {record.token}, waiting - {record.token}
                    if record.kind == RecordKind.ENDED:
                        alive, waiting = alive - {record.token}, waiting - {record.token}
                    if record.kind == RecordKind.READY:
                        waiting.discard(record.token)
                if not waiting and not released:
                    released = True
                    launcher.ask(RequestKind.RELEASE)
        return records

    try:
        return trio.run(follow)
    finally:
        launcher.close(hunt=False)


def broken(records: Sequence[Record]) -> list[tuple[int, StartStep, int]]:
    return [
        (record.token, StartStep(record.status), record.error)
        for record in records
        if record.kind == RecordKind.BROKEN
    ]


def foreign(path: Path) -> str:
    path.write_bytes(b"\x7fELF\2\1\1" + bytes(200))
    path.chmod(0o755)
    return str(path)


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (lambda folder: (f"{folder}/nothing",), errno.ENOENT),
        (lambda folder: (script(folder / "x", "#!/no/such/shell\n"),), errno.ENOENT),
        (lambda folder: (str(folder),), errno.EACCES),
        (lambda folder: ("/bin/true", "x" * (1 << 18)), errno.E2BIG),
        (lambda folder: (foreign(folder / "x"),), errno.ENOEXEC),
    ],
    ids=["no file", "no interpreter", "a folder", "too long", "another machine's"],
)
def test_what_cannot_be_executed_is_told_and_others_run(
    tmp_path: Path, words: Callable[[Path], tuple[str, ...]], number: int
) -> None:
    well = entry(tmp_path, "/bin/sh", "-c", "exit 3", token=2, copy=1)
    found = launched([entry(tmp_path, *words(tmp_path)), well])
    assert broken(found) == [(1, StartStep.EXECUTE, number)]
    ends = {
        it.token: os.waitstatus_to_exitcode(it.status)
        for it in found
        if it.kind == RecordKind.ENDED
    }
    assert ends == {1: 127 if number == errno.ENOENT else 126, 2: 3}


def test_a_script_that_does_not_say_who_runs_it_is_the_shells(tmp_path: Path) -> None:
    launched([entry(tmp_path, script(tmp_path / "x", "echo $0 $1\n"), "a b")])
    assert (tmp_path / "out").read_text() == f"{tmp_path}/x a b\n"


def test_what_stood_in_a_file_of_output_is_gone_before_a_copy_writes(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("of a run that was broken off")
    launched([entry(tmp_path, "/bin/echo", "new")])
    assert (tmp_path / "out").read_text() == "new\n"


@pytest.mark.parametrize("open_files", [3, 4, 5, 6])
def test_a_script_reports_whatever_descriptors_rater_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_files: int
) -> None:
    numbers = " ".join(map(str, range(3, 3 + open_files)))
    given = f'for n in {numbers}; do [ $n = "$1" ] || eval "exec $n</dev/null"; done'
    program = script(tmp_path / "x", f'#!/bin/sh\n{given}\nexec {launcher_program()} "$@"\n')
    with using(Path(program), monkeypatch):
        said = entry(tmp_path, "/bin/sh", "-c", "echo well >&9", flags=ProcessFlag.REPORTS)
        assert [it.text for it in launched([said]) if it.kind == RecordKind.REPORT] == [b"well\n"]


@pytest.mark.parametrize(
    ("more", "failure"),
    [
        ({"cpus": (4095,)}, (StartStep.CPUS, errno.EINVAL)),
        ({"cpus": (min(os.sched_getaffinity(0)), 4095)}, (StartStep.CPUS_GIVEN, 0)),
        ({"policy": 77}, (StartStep.MEMORY, errno.EINVAL)),
        ({"policy": 2, "nodes": (0, 900)}, None),
        ({"directory": b"/no/such"}, (StartStep.DIRECTORY, errno.ENOENT)),
        ({"output": b"/no/such"}, (StartStep.OUTPUT, errno.ENOENT)),
        ({"error": b"/"}, (StartStep.ERROR, errno.EISDIR)),
    ],
)
def test_what_a_copy_cannot_have_is_told_before_it_begins(
    tmp_path: Path, more: dict[str, object], failure: tuple[StartStep, int] | None
) -> None:
    [(_, stage, number)] = broken(launched([entry(tmp_path, "/bin/true", **more)]))
    if failure is None:  # as the kernel is built: it refuses node 900, or gives node 0 alone
        assert stage in (StartStep.MEMORY, StartStep.MEMORY_GIVEN)
    else:
        assert (stage, number) == failure


def test_a_cpuset_that_lost_a_cpu_since_planning_is_an_error_that_names_copy_and_way_out(
    tmp_path: Path,
) -> None:
    well, lost = on_one_cpu(2)
    gone = replace(lost, cpus=(4095,), cpu=4095)
    seen = Rig(tmp_path, placements=(well, gone)).run({"nap": "true"}, 2)
    assert seen.outcome.status is RunStatus.FAILED
    reason = str(seen.outcome.reason)
    assert reason.startswith("copy 1 of nap: CPUs 4095: the kernel does not let rater use them")
    assert "rater run --dry-run" in reason
    assert seen.started == []


@pytest.mark.parametrize("policy", [MemoryPolicy.BIND, MemoryPolicy.INTERLEAVE])
def test_a_memory_policy_that_the_kernel_refuses_names_copy_and_way_out(
    tmp_path: Path, policy: MemoryPolicy
) -> None:
    placed = tuple(replace(it, memory_policy=policy, memory_nodes=(0, 900)) for it in on_one_cpu(1))
    reason = str(Rig(tmp_path, placements=placed).run({"nap": "true"}, 1).outcome.reason)
    assert reason.startswith("copy 0 of nap: ")
    assert "run with --mem" in reason


def test_a_copy_that_cannot_be_executed_fails_with_the_reason_and_the_way_out(
    tmp_path: Path,
) -> None:
    program = script(tmp_path / "x", "#!/no/such/shell\n")
    done = rater("run", "--copies", "2", "--", program)
    assert done.returncode == 1
    ((note, status, exit_code), _) = query_rows(
        "SELECT note, status, exit_code FROM copy ORDER BY copy"
    )
    assert (status, exit_code) == ("failed", 127)
    assert note.startswith(f"could not be executed: No such file or directory ({program}): ")
    assert "what its first line names" in note


def test_a_full_process_table_is_an_error_that_names_copy_and_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = Launcher.__init__

    def of_three(self: Launcher, processes: int, *more: Any) -> None:
        init(self, 3, *more)  # the fourth fork fails, as where `ulimit -u` is reached

    monkeypatch.setattr(Launcher, "__init__", of_three)
    seen = Rig(tmp_path).run({"nap": "sleep 0.1"}, 5)
    assert seen.outcome.status is RunStatus.FAILED
    assert str(seen.outcome.reason).startswith(
        "copy 3 of nap could not be started: Resource temporarily unavailable (/bin/sh -c"
    )
    assert "as many processes and threads run as may: " in str(seen.outcome.reason)
    assert "kernel.pid_max is " in str(seen.outcome.reason)
    assert seen.started == []


def test_a_follower_begins_with_the_end_of_the_one_before_even_if_that_was_long_ago(
    tmp_path: Path,
) -> None:
    one = entry(tmp_path, "/bin/true")
    late = entry(tmp_path, "/bin/true", token=2, after=1)
    later = entry(tmp_path, "/bin/false", token=3, after=2, flags=ProcessFlag.WELL)
    never = entry(tmp_path, "/bin/true", token=4, after=3, flags=ProcessFlag.WELL)
    found = launched([one, late, later, never])
    ends = {it.token: it for it in found if it.kind == RecordKind.ENDED}
    assert ends[1].at_ns <= ends[2].start_ns < ends[2].at_ns <= ends[3].start_ns
    assert ends[4].start_ns == 0


SLOW_START = """
#include <sched.h>
#include <unistd.h>
int clone_slowly(int (*begin)(void *), void *stack, int flags, void *argument)
{
    usleep(50000);
    return clone(begin, stack, flags, argument);
}
pid_t fork_slowly(void) { usleep(50000); return fork(); }
"""


@pytest.fixture(scope="session")
def slow_launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launcher to which each start of a process takes 50 ms."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.c").write_text("#define _GNU_SOURCE" + SLOW_START)
    slow = compiled(folder / "slow.o", folder / "slow.c", flags=("-c",))
    sources = sorted(NATIVE.glob("*.c"))
    flags = ("-Dfork=fork_slowly", "-Dclone=clone_slowly")
    return compiled(folder / "launcher", *sources, slow, flags=flags)


def test_a_launcher_that_forks_for_long_while_a_copy_runs_has_not_stood_still(
    slow_launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face, "launcher_program", lambda: slow_launcher)
    launcher = greeted(64)
    ends = tmp_path / "end"
    wait = entry(tmp_path, "/bin/sh", "-c", f"while [ ! -e {ends} ]; do sleep 0.01; done")
    later = [entry(tmp_path, "/bin/true", token=copy, copy=copy, after=99) for copy in range(2, 34)]
    records: list[Record] = []

    async def follow() -> None:
        with trio.fail_after(20):
            await launcher.start([wait])
            await launcher.receive()
            launcher.ask(RequestKind.RELEASE)
            await launcher.start([*later, entry(tmp_path, "/bin/true", token=50, copy=50)])
            while not records or records[-1].kind != RecordKind.ENDED:
                records.extend(await launcher.receive())
                if any(record.kind == RecordKind.READY for record in records):
                    ends.touch()

    try:
        trio.run(follow)
    finally:
        launcher.close(hunt=False)
    assert not [
        record for record in records if record.kind == RecordKind.STALLED or record.stalled_ns
    ]


@pytest.mark.parametrize("stop_s", [0.05, 0.3])
def test_an_end_while_the_launcher_was_stopped_says_when_the_launcher_ran_last(
    tmp_path: Path, stop_s: float
) -> None:
    launcher = greeted(1)
    begun, ends = tmp_path / "begun", tmp_path / "end"
    loop = f"touch {begun}; while [ ! -e {ends} ]; do sleep 0.01; done"
    wait = entry(tmp_path, "/bin/sh", "-c", loop)

    async def follow() -> tuple[Record, int]:
        records: list[Record] = []
        with trio.fail_after(20):
            await launcher.start([wait])
            [ready] = await launcher.receive()
            launcher.ask(RequestKind.RELEASE)
            while not begun.exists():
                await trio.sleep(0.001)
            os.kill(launcher.pid, signal.SIGSTOP)
            while state_of(launcher.pid) != "T":
                await trio.sleep(0.001)
            ends.touch()
            while state_of(ready.pid) != "Z":
                await trio.sleep(0.001)
            ended_ns = time.monotonic_ns()
            await trio.sleep(stop_s)
            os.kill(launcher.pid, signal.SIGCONT)
            while not records or records[-1].kind != RecordKind.ENDED:
                records.extend(await launcher.receive())
        return records[-1], ended_ns

    try:
        end, ended_ns = trio.run(follow)
    finally:
        launcher.close(hunt=False)
    assert end.at_ns - ended_ns >= stop_s * 1e9 * 0.9
    assert end.seen_ns <= ended_ns
    assert end.stalled_ns >= end.at_ns - ended_ns


def test_a_copy_that_is_due_begins_while_the_launcher_forks_others(
    slow_launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face, "launcher_program", lambda: slow_launcher)
    launcher = greeted(32)
    due = entry(tmp_path, "/bin/true", offset_ns=20 * MS)
    later = [entry(tmp_path, "/bin/true", token=copy, copy=copy, after=99) for copy in range(2, 22)]

    async def follow() -> Record:
        with trio.fail_after(20):
            await launcher.start([due])
            await launcher.receive()
            launcher.ask(RequestKind.RELEASE)
            await launcher.start(later)  # for a second
            while True:
                for record in await launcher.receive():
                    if record.kind == RecordKind.STARTED:
                        return record

    try:
        began = trio.run(follow)
    finally:
        launcher.close(hunt=False)
    assert began.start_ns - began.planned_ns < 500 * MS


def test_copies_begin_at_their_offsets(tmp_path: Path) -> None:
    offsets = [0, 30 * MS, 50 * MS]
    entries = [
        entry(tmp_path, "/bin/true", token=number + 1, copy=number, offset_ns=offset)
        for number, offset in enumerate(offsets)
    ]
    found = launched(entries)
    [released] = [it for it in found if it.kind == RecordKind.RELEASED]
    starts = {it.token: it for it in found if it.kind == RecordKind.STARTED}
    assert [starts[number].planned_ns - released.at_ns for number in (2, 3)] == offsets[1:]
    assert all(start.start_ns >= start.planned_ns for start in starts.values())


# -- children in the launcher's memory -----------------------------------------------------------


def test_a_child_in_the_launchers_memory_needs_less_than_half_of_its_stack(tmp_path: Path) -> None:
    source = tmp_path / "size.c"
    source.write_text('#include "launcher.h"\nint main(void) { printf("%d", STACK_BYTES); }\n')
    size = compiled(tmp_path / "size", source, flags=("-O2",))
    stack_bytes = int(subprocess.check_output([size], text=True))
    compiled(tmp_path / "child.o", NATIVE / "child.c", flags=("-c", "-O2", "-fstack-usage"))
    [usage] = tmp_path.glob("*.su")
    frames = [int(line.split("\t")[1]) for line in usage.read_text().splitlines()]
    red_zone = 128  # below the stack of the function that calls no other
    assert sum(frames) + red_zone < stack_bytes * 3 // 4


def test_huge_pages_of_one_copy_are_not_those_of_the_launcher_and_others(tmp_path: Path) -> None:
    words = ("/bin/grep", "THP_enabled", "/proc/self/status")
    without, others = (
        entry(tmp_path, *words, token=token, copy=token, output=os.fsencode(tmp_path / str(token)))
        for token in (1, 2)
    )
    launched([replace(without, transparent=False), others])
    assert [(tmp_path / name).read_text().split()[1] for name in ("1", "2")] == ["0", "1"]


def test_what_copies_are_given_does_not_change_while_others_of_their_table_run(
    tmp_path: Path,
) -> None:
    text = "sleep 0.05; echo $0 $NAME"
    entries = [
        entry(
            tmp_path,
            *("/bin/sh", "-c", text if copy < 8 else "exit 3", f"word-{copy}"),
            token=copy + 1,
            copy=copy,
            own_variables={b"NAME": b"%d" % copy},
            output=os.fsencode(tmp_path / f"out{copy}"),
        )
        for copy in range(16)
    ]
    again = entry(tmp_path, "/bin/true", token=17, copy=8, after=9)
    launched([*entries, again], processes=32)
    outputs = [(tmp_path / f"out{copy}").read_text() for copy in range(8)]
    assert outputs == [f"word-{copy} {copy}\n" for copy in range(8)]


# -- the program itself ----------------------------------------------------------------------------


def test_both_sides_have_the_same_structures(tmp_path: Path) -> None:
    source = tmp_path / "sizes.c"
    source.write_text(
        '#include "launcher.h"\n#include <stdio.h>\n'
        'int main(void) { printf("%zu %zu %zu %u %d %d", '
        "sizeof(struct record), sizeof(struct entry), sizeof(struct request), FORMAT, EXECUTE, "
        "REPEATED); }\n"
    )
    sizes = subprocess.check_output([compiled(tmp_path / "sizes", source)], text=True).split()
    table = pack_table([]), pack_table([entry(tmp_path)])
    assert int(sizes[0]) == RECORD.size
    assert REQUEST.size == int(sizes[2])
    assert len(table[1]) - len(table[0]) > int(sizes[1])
    assert [*map(int, sizes[3:])] == [FORMAT, max(StartStep), max(RecordKind)]
    environments = PackedEnvironments()  # tables of one run are as if each was the first
    assert [pack_table([entry(tmp_path)], environments) for _ in range(2)] == [table[1]] * 2


def noise(seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Requests that are none, and tables whose offsets lead anywhere."""
    chance = random.Random(seed)
    place = Path("/tmp")
    again = entry(place, "/bin/true", flags=ProcessFlag.AGAIN, next_output=b"/tmp/err")
    whole = pack_table([entry(place, "/bin/true", cpus=(0,), policy=4), again])
    for _ in range(60):
        table = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(table))
            table[at : at + 4] = chance.randbytes(4)
        if chance.random() < 0.3:
            del table[chance.randrange(len(table)) :]
        yield REQUEST.pack(RequestKind.START, 0, 0), bytes(table)
    for _ in range(9):
        yield REQUEST.pack(RequestKind(chance.randrange(1, 6)), chance.randrange(9), 0), b""


def test_tables_that_lead_nowhere_break_nothing_in_the_launcher(
    sanitized: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with using(sanitized, monkeypatch):
        for seed in range(2):
            launcher = greeted(256)

            async def send(launcher: Launcher = launcher, seed: int = seed) -> None:
                for request, data in noise(seed):
                    table = os.memfd_create("table") if data else -1
                    assert os.write(table, data) == len(data) if data else True
                    launcher._send(request, table)
                launcher.ask(RequestKind.DISCARD)
                with trio.move_on_after(0.3):
                    while True:
                        await launcher.receive()

            trio.run(send)
            for pid in face_children(launcher.pid):
                with suppress(ProcessLookupError):  # the launcher has reaped it since
                    os.kill(pid, signal.SIGKILL)
            launcher.close(hunt=False)


def face_children(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def plans() -> dict[str, tuple[Plan, str]]:
    window = Window(50 * MS, 200 * MS)
    return {
        "staggered": (make_plan(["a"], 4, mode="staggered", stagger_ms=5), "exit $RATER_COPY"),
        "rotated": (make_plan(["a", "b"], 3, mode="rotated", order=Order.ROTATED), "sleep 0.01"),
        "steady": (make_plan(["a"], 3, mode="steady", window=window), "sleep 0.01"),
        "again": (make_plan(["a"], 3, mode="steady", window=window), "sleep 0.01"),
        "left": (make_plan(["a"], 2), "setsid sleep 60 & sleep 0.05"),
    }


@pytest.mark.parametrize("mode", plans())
def test_runs_of_all_modes_are_clean_under_asan_and_ubsan(
    sanitized: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    plan, text = plans()[mode]
    placed, directory = on_one_cpu(plan.copies), str(tmp_path) if mode == "again" else None
    with using(sanitized, monkeypatch):
        seen = Rig(tmp_path, placements=placed, directory=directory).run(
            dict.fromkeys("ab", text), plan.copies, plan
        )
    assert seen.outcome.reason in (None, "3 copies failed")
    assert seen.ended


def test_stopped_runs_are_clean_under_asan_and_ubsan(
    sanitized: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyEnded):
            os.kill(os.getpid(), signal.SIGTERM)

    plan = make_plan(["a", "b"], 3, mode="rotated", order=Order.ROTATED)
    with using(sanitized, monkeypatch):
        text = '[ "$RATER_COPY" = 0 ] || exec sleep 60'
        seen = Rig(tmp_path, on_event=stop).run(dict.fromkeys("ab", text), 3, plan)
    assert seen.outcome.status is RunStatus.INTERRUPTED
    assert CopyStatus.INTERRUPTED in {event.status for event in seen.ended}


def test_without_a_compiler_a_launcher_that_is_not_there_says_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(face, "_BUILT_PROGRAM", tmp_path / "rater-launcher")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(InputError, match=r"is not there and could not be made.*from a wheel"):
        launcher_program()


def test_a_launcher_that_may_not_be_executed_is_made_anew_or_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = Path(shutil.copy(launcher_program(), tmp_path / "rater-launcher"))
    built.chmod(0o644)
    monkeypatch.setattr(face, "_BUILT_PROGRAM", built)
    assert launcher_program().is_relative_to(os.environ["RATER_CACHE"])
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("RATER_CACHE", str(tmp_path / "empty"))
    with pytest.raises(InputError, match=r"may not be executed .* and could not be made"):
        launcher_program()


def test_a_launcher_of_another_architecture_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    foreign = tmp_path / "rater-launcher"
    foreign.write_bytes(b"\x7fELF of another machine")
    foreign.chmod(0o755)
    monkeypatch.setattr(face, "_BUILT_PROGRAM", foreign)
    assert launched([entry(tmp_path, "/bin/true")])[-1].status == 0
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(InputError, match=r"cannot be executed here \(Exec format error\) and"):
        greeted(1)


def test_from_a_checkout_it_is_compiled_once_into_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(face, "_BUILT_PROGRAM", tmp_path / "rater-launcher")
    program = launcher_program()
    assert program.is_relative_to(os.environ["RATER_CACHE"])
    made_ns = program.stat().st_mtime_ns
    assert launcher_program().stat().st_mtime_ns == made_ns


def test_a_program_that_is_older_than_its_sources_but_made_of_them_needs_no_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = shutil.copy(launcher_program(), tmp_path / "rater-launcher")
    os.utime(built, (1, 1))
    monkeypatch.setattr(face, "_BUILT_PROGRAM", built)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert launched([entry(tmp_path, "/bin/true")])[-1].status == 0


@pytest.fixture
def program_of_other_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "other").mkdir()
    shutil.copytree(NATIVE, tmp_path / "other" / "native")
    (tmp_path / "other" / "native" / "more.h").write_text("/* another word */\n")
    with monkeypatch.context() as patched:
        patched.setattr(face, "_SOURCES", tmp_path / "other" / "native")
        built = compiled(tmp_path / "rater-launcher", *sorted(NATIVE.glob("*.c")))
    monkeypatch.setattr(face, "_BUILT_PROGRAM", built)
    return built


@pytest.mark.usefixtures("program_of_other_sources")
def test_a_program_of_other_sources_is_exchanged_for_the_right_one() -> None:
    launcher = greeted(1)
    program = Path(f"/proc/{launcher.pid}/exe").readlink()
    launcher.close(hunt=False)
    assert program.is_relative_to(os.environ["RATER_CACHE"])


@pytest.mark.usefixtures("program_of_other_sources")
def test_without_a_compiler_a_program_of_other_sources_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(InputError, match=r"was made from other sources, and could not be made.*CC"):
        greeted(1)


def test_a_launcher_that_is_stopped_as_it_begins_is_let_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stops = script(tmp_path / "x", f'#!/bin/sh\nkill -STOP $$; exec {launcher_program()} "$@"\n')
    with using(Path(stops), monkeypatch):
        assert launched([entry(tmp_path, "/bin/true")])[-1].status == 0


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 2\n", "#!/bin/sh\nkill -9 $$\n"])
def test_a_launcher_that_does_not_begin_is_one_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    program = Path(script(tmp_path / "other", text))
    monkeypatch.setattr(face, "launcher_program", lambda: program)
    with pytest.raises(RaterError, match="does not begin, or is not of this rater"):
        greeted(1)


def test_a_thousand_copies_run_under_a_limit_of_256_open_files(tmp_path: Path) -> None:
    words = [
        "run",
        "--copies",
        "1000",
        "--layout",
        "none",
        "--mem",
        "none",
        "--quiet",
        "--proof",
        "off",
    ]
    text = 'ulimit -n 256; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", text, "sh", *RATER, *words, "--", "/bin/true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    # On a machine so full that the launcher itself lacks a CPU some ends are late, and say so.
    is_well = "status = 'ok' OR late_ns IS NOT NULL"
    counts = query_rows(f"SELECT count(*), sum({is_well}), sum(status = 'ok') FROM copy")
    [(copies, well, in_time)] = counts
    assert (copies, well) == (1000, 1000), done.stderr[-2000:]
    assert done.returncode == (0 if in_time == 1000 else 1)
