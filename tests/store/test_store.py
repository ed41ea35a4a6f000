"""Runs: what is appended comes back, is found by name, survives what kills rater, is removed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.sweep import AxisKind, SweepPoint, SweepSlot
from rater.record.events import Noted, OutputChecked, PhaseEnded, RunEnded
from rater.record.run import (
    BenchmarkUsed,
    CopyStatus,
    MemoryPolicy,
    Placement,
    RunStatus,
    Validity,
)
from rater.record.stored import RunHead, StoredRun
from rater.store.connection import StoreDamagedError, StoreError, StoreFullError
from rater.store.store import Store, open_store
from rater.store.sweeps import create_slot_run, end_sweep, new_sweep, remove_sweeps
from rater.system.errors import InputError
from rater.system.process import is_alive, this_process
from tests.support.calls import Rater
from tests.support.calls import query_rows as rows_of
from tests.support.example_events import (
    HOST,
    SWEEP_ASKED,
    S,
    ended,
    over,
    phase,
    run_of,
    started,
    with_head,
)
from tests.support.places import CHECKOUT
from tests.support.stored_runs import GONE, PUS, append, begin, query_rows, with_uuid

# -- what goes in comes back --------------------------------------------------------------------


def test_the_head_of_a_run_comes_back(store: Store) -> None:
    head = RunHead(
        run=0,
        uuid="u-1",
        source="run",
        status=RunStatus.RUNNING,
        reason=None,
        elapsed_s=None,
        hostname="node7",
        started_at="2026-11-20T12:00:00Z",
        mode="staggered",
        order="homogeneous",
        copies=2,
        iterations=3,
        discard=1,
        stagger_ms=60.5,
        increment=1,
        suite="mini",
        size="test",
        tune="peak",
        layout="balanced",
        memory="bind",
        timeout_s=9.5,
        wrap="perf stat",
        command_line="rater run mini",
        rater_version="0.1.0",
        tags=(("kernel", "6.12"), ("bios", "a=b")),
    )
    run = StoredRun(
        head=head,
        host=HOST,
        environment=(("OMP_NUM_THREADS", "1"),),
        benchmarks=(
            BenchmarkUsed(
                name="stream",
                category="fp",
                command="./stream 1",
                reference_s=2.5,
                binary_sha256="ab",
                compiler="cc 14",
                flags="-O2",
            ),
            BenchmarkUsed(
                name="a-gups",
                category=None,
                command="./gups",
                reference_s=None,
                binary_sha256=None,
                compiler=None,
                flags=None,
            ),
        ),
        placements=(
            Placement(
                copy=0,
                cpus=(0, 1, 8),
                cpu=1,
                core=0,
                llc=0,
                node=0,
                package=0,
                memory_policy=MemoryPolicy.BIND,
                memory_nodes=(0, 1),
            ),
            Placement(
                copy=1,
                cpus=None,
                cpu=None,
                core=None,
                llc=None,
                node=None,
                package=None,
                memory_policy=MemoryPolicy.NONE,
                memory_nodes=(),
            ),
        ),
        warnings=("1 PU is shared",),
    )
    number = begin(store, run)
    back = store.load(number)
    assert back == StoredRun(
        head=back.head,
        host=HOST,
        settings=(("governor", "performance"),),
        environment=run.environment,
        benchmarks=run.benchmarks,
        placements=run.placements,
        pus=PUS,
        brackets=(),
        copies=(),
        warnings=run.warnings,
        notes=(),
    )
    head = back.head
    assert (head.run, head.uuid, head.source, head.status) == (number, "u-1", "run", "running")
    assert (head.hostname, head.mode, head.order) == ("node7", "staggered", "homogeneous")
    assert head.discard == 1
    assert (head.copies, head.iterations, head.stagger_ms, head.increment) == (2, 3, 60.5, 1)
    assert (head.suite, head.size, head.tune, head.layout) == ("mini", "test", "peak", "balanced")
    assert (head.memory, head.timeout_s, head.wrap) == ("bind", 9.5, "perf stat")
    assert (head.command_line, head.rater_version) == ("rater run mini", "0.1.0")
    assert head.benchmarks == ("stream", "a-gups")
    assert head.tags == (("bios", "a=b"), ("kernel", "6.12"))
    assert head.elapsed_s is None
    assert query_rows(store, "SELECT cpus, memory_nodes FROM placement") == [
        ("0-1,8", "0-1"),
        (None, ""),
    ]


def test_the_events_of_a_run_come_back(store: Store) -> None:
    number = begin(store, with_head(run_of(2), discard=0, iterations=1))
    first = replace(
        ended(0, 1.5, start_s=0.25, user_ns=900, system_ns=90, gate_cpu_ns=30),
        max_rss_bytes=4096,
        minor_faults=1,
        major_faults=2,
        voluntary_switches=3,
        involuntary_switches=4,
        planned_start_ns=7,
        note="odd",
        run_dir="/tmp/x",
    )
    second = ended(1, 2.0, status=CopyStatus.FAILED, signal=11, gate_cpu_ns=5)
    append(store, number, phase(), started(0), first, second, over(0.0, 2.0), Noted("a note"))
    append(
        store,
        number,
        OutputChecked(
            phase=0,
            benchmark="gups",
            iteration=1,
            copy=0,
            step=0,
            validity=Validity.VALID,
            detail=None,
        ),
    )
    append(store, number, RunEnded(RunStatus.FAILED, "1 copy failed"))
    back = store.load(number)
    assert (back.head.status, back.head.reason) == (RunStatus.FAILED, "1 copy failed")
    assert back.head.elapsed_s == 2.0
    assert back.notes == ("a note",)
    assert back.brackets == (
        PhaseEnded(
            phase=0,
            benchmark="gups",
            iteration=1,
            tune="base",
            counted=True,
            start_ns=0,
            finish_ns=2 * S,
            last_start_ns=0,
            first_finish_ns=2 * S,
            complete=True,
        ),
    )
    good, bad = back.copies
    assert (good.benchmark, good.tune, good.iteration, good.copy) == ("gups", "base", 1, 0)
    assert (good.phase, good.step, good.counted) == (0, 0, True)
    assert (good.cpu, good.core, good.llc, good.node, good.package) == (0, 0, 0, 0, 0)
    assert (good.start_ns, good.finish_ns, good.elapsed_s) == (250_000_000, 1_500_000_000, 1.25)
    assert (good.planned_start_ns, good.max_rss_bytes) == (7, 4096)
    assert (good.cpu_ns, good.user_ns, good.system_ns, good.gate_cpu_ns) == (960, 900, 90, 30)
    assert (good.minor_faults, good.major_faults) == (1, 2)
    assert (good.voluntary_switches, good.involuntary_switches) == (3, 4)
    assert (good.status, good.validity) == (CopyStatus.OK, Validity.VALID)
    assert (good.note, good.run_dir, good.pid) == ("odd", "/tmp/x", 100)
    assert (bad.status, bad.exit_code, bad.signal) == (CopyStatus.FAILED, None, 11)
    assert (bad.validity, bad.cpu_ns) == (Validity.UNCHECKED, 0)  # never below 0


def test_a_wrong_answer_makes_a_copy_that_ended_well_a_failed_one(store: Store) -> None:
    number = begin(store)
    store.append(number, phase(), ended(0, 1.0), ended(1, 1.0, status=CopyStatus.TIMEOUT))
    for copy in (0, 1):
        checked = OutputChecked(
            phase=0,
            benchmark="gups",
            iteration=1,
            copy=copy,
            step=0,
            validity=Validity.INVALID,
            detail="line 3: 7 is not 8",
        )
        store.append(number, checked)
    wrong, late = store.load(number).copies
    assert (wrong.status, wrong.validity_detail) == (CopyStatus.WRONG_OUTPUT, "line 3: 7 is not 8")
    assert (late.status, late.validity) == (CopyStatus.TIMEOUT, Validity.INVALID)


def test_events_that_come_together_share_a_transaction(store: Store) -> None:
    number = begin(store)
    store.append(number, phase(), ended(0, 1.0), ended(1, 1.0), Noted("both"))
    assert [copy.copy for copy in store.load(number).copies] == [0, 1]
    again = (Noted("not this one"), ended(1, 1.0))  # the same copy cannot end twice
    with pytest.raises(
        StoreDamagedError, match="rows contradict each other while storing a result"
    ):
        store.append(number, *again)
    assert store.load(number).notes == ("both",)


def test_what_is_known_of_an_output_at_once_and_where_its_files_are_kept(store: Store) -> None:
    number = begin(store)
    plain = replace(ended(0, 1.0), validity=Validity.NOT_CHECKED, run_dir="/kept/0")
    store.append(number, phase(), plain, replace(ended(1, 1.0), run_dir="/kept/1"))
    store.append(
        number,
        OutputChecked(
            phase=0,
            benchmark="gups",
            iteration=1,
            copy=1,
            step=0,
            validity=Validity.VALID,
            detail=None,
            run_dir="/moved/1",
        ),
    )
    unjudged, judged = store.load(number).copies
    assert (unjudged.validity, unjudged.run_dir) == (Validity.NOT_CHECKED, "/kept/0")
    assert (judged.validity, judged.run_dir) == (Validity.VALID, "/moved/1")


def test_copies_bound_to_nodes_have_their_memory_nodes(store: Store) -> None:
    bound = Placement(
        copy=0,
        cpus=(4,),
        cpu=4,
        core=2,
        llc=1,
        node=1,
        package=0,
        memory_policy=MemoryPolicy.BIND,
        memory_nodes=(1, 2, 3),
    )
    number = begin(store, replace(run_of(2), placements=(bound,)))
    append(store, number, phase(), ended(0, 1.0), ended(1, 1.0))
    known, unknown = store.load(number).copies
    assert (known.cpu, known.core, known.llc, known.node, known.package) == (4, 2, 1, 1, 0)
    assert known.mem_nodes == (1, 2, 3)
    assert (unknown.cpu, unknown.node, unknown.mem_nodes) == (None, None, ())


def test_discarded_rounds_of_a_rotated_run_are_not_counted(store: Store) -> None:
    run = with_head(run_of(1, names=("a", "b"), order="rotated"), iterations=2, discard=1)
    number = begin(store, run)
    append(store, number, phase(name=None, iteration=None))
    for step, (name, iteration) in enumerate([("a", 1), ("b", 1), ("a", 2), ("b", 2)]):
        one = ended(0, step + 1.0, start_s=float(step), name=name, step=step)
        append(store, number, replace(one, iteration=iteration))
    copies = [(copy.benchmark, copy.step, copy.counted) for copy in store.load(number).copies]
    assert copies == [("a", 0, False), ("b", 1, False), ("a", 2, True), ("b", 3, True)]


def test_another_process_sees_a_copy_as_soon_as_it_is_appended(store: Store) -> None:
    number = begin(store)
    append(store, number, phase())
    append(store, number, ended(1, 1.0))
    query = "SELECT run_id, benchmark, iteration, copy, cpu, node, status, exit_code FROM copy"
    assert query_rows(store, query) == [(number, "gups", 1, 1, 1, 0, "ok", 0)]


def test_machines_that_describe_themselves_alike_are_one_host(store: Store) -> None:
    other = replace(HOST, hostname="node8", microcode=None)
    for uuid, host in (("a", HOST), ("b", other), ("c", HOST), ("d", other)):
        store.create_run(replace(with_uuid(uuid), host=host))
    assert query_rows(store, "SELECT host_id, count(*) FROM run GROUP BY 1") == [(1, 2), (2, 2)]


# -- when rater dies or the disk fills ------------------------------------------------------------


def test_a_killed_writer_leaves_every_copy_it_appended(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from rater.store.store import open_store\n"
        "from tests.support.example_events import ended, phase, run_of\n"
        "from tests.support.stored_runs import begin\n"
        "store = open_store(Path(sys.argv[1])); number = begin(store, run_of(500))\n"
        "store.append(number, phase())\n"
        "for copy in range(500):\n"
        "    store.append(number, ended(copy, 1.0))\n"
        "    print(copy, flush=True)\n"
        "sys.stdin.read()\n"
    )
    path = tmp_path / "rater.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    for _ in range(200):
        last = int(writer.stdout.readline())
    with open_store(path) as store:  # while it writes
        assert store.runs()[0].status is RunStatus.RUNNING
        with pytest.raises(InputError, match=rf"still running.*process {writer.pid}"):
            remove_sweeps(store, (), [1])
    writer.kill()
    rest, _ = writer.communicate()
    last = int(rest.split()[-1]) if rest else last
    assert writer.returncode == -signal.SIGKILL
    with open_store(path) as store:
        back = store.load(store.find("last"))
    assert back.head.status is RunStatus.KILLED
    found = [copy.copy for copy in back.copies]
    assert found[: last + 1] == list(range(last + 1))
    (bracket,) = back.brackets
    assert (bracket.start_ns, bracket.finish_ns, bracket.complete) == (None, None, False)


@contextmanager
def room_for(limit_bytes: int) -> Iterator[None]:
    """Let no file grow beyond the limit; Python ignores the signal, so the write fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_is_told_and_can_be_tried_again(store: Store) -> None:
    number = begin(store, run_of(4))
    store.append(number, phase())
    store.append(number, ended(0, 1.0))
    log = store.path.with_name("rater.db-wal").stat().st_size
    with room_for(log), pytest.raises(StoreError, match=r"rater\.db.*while storing a result"):
        store.append(number, ended(1, 1.0))
    assert [copy.copy for copy in store.load(number).copies] == [0]
    store.append(number, ended(1, 1.0))
    store.append(number, ended(2, 1.0))
    assert [copy.copy for copy in store.load(number).copies] == [0, 1, 2]


def test_a_full_disk_is_named_as_such(store: Store) -> None:
    number = begin(store)
    store.append(number, phase())
    (used,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {used}")
    with pytest.raises(StoreFullError, match=r"the disk is full.*make room"):
        store.append(number, Noted("x" * 100_000))
    with pytest.raises(StoreFullError):
        begin(store, replace(with_uuid("v"), warnings=("x" * 100_000,)))
    store._database.execute("PRAGMA max_page_count = 100000")
    store.append(number, Noted("x" * 100_000))
    assert len(store.load(number).notes[0]) == 100_000
    assert len(store.runs()) == 1  # nothing of the run that could not begin


def test_a_run_is_killed_when_its_process_is_gone_or_another(store: Store) -> None:
    me = this_process()
    owners = [me, GONE, me._replace(pid_start=1), me._replace(boot_id="other")]
    for number, owner in enumerate(owners):
        begin(store, with_uuid(str(number)), owner)
    assert [head.status for head in store.runs()] == ["running", "killed", "killed", "killed"]


def test_a_zombie_does_not_live() -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    stat = Path(f"/proc/{child}/stat").read_text()
    owner = this_process()._replace(pid=child, pid_start=int(stat.rpartition(")")[2].split()[19]))
    assert not is_alive(owner)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)


def test_a_run_is_found_by_number_by_the_start_of_its_uuid_and_from_the_last(store: Store) -> None:
    with pytest.raises(InputError, match="no runs stored yet; `rater run` makes one"):
        store.find("last")
    for uuid in ("aabb", "aacc", "bbbb", "aa"):
        begin(store, with_uuid(uuid), GONE)
    named = ("2", "0002", "aac", "b", "last", "last~0", "last~1", "last~3", "aa")
    assert [store.find(name) for name in named] == [2, 2, 2, 3, 4, 4, 3, 1, 4]


def test_few_digits_are_a_number_and_eight_the_start_of_a_uuid_where_no_run_has_that_number(
    store: Store,
) -> None:
    for uuid in ("20000000-1", "00000003-2", "99999999-3"):
        begin(store, with_uuid(uuid), GONE)
    named = ("2", "0000000002", "20000000", "99999999", "00000003")
    assert [store.find(name) for name in named] == [2, 2, 1, 3, 3]
    for name in ("20", "9", "2000000"):
        with pytest.raises(InputError, match=f"'{name}': no such run"):
            store.find(name)


def test_a_tag_means_all_runs_that_have_it(store: Store) -> None:
    for uuid, tags in (("a", (("k", "v=1"),)), ("b", ()), ("c", (("k", "v=1"), ("x", "")))):
        begin(store, with_head(with_uuid(uuid), tags=tags), GONE)
    assert store.find_all("tag:k=v=1") == (1, 3)
    assert store.find_all("tag:x=") == (3,)
    assert store.find("tag:x=") == 3
    assert [store.find_all(name) for name in ("2", "last~1", "a")] == [(2,), (2,), (1,)]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            "tag:k=v",
            r"tag:k=v: 7 runs have this tag.*7 \(g\), 6 \(f\), .* and 2 more; take the num",
        ),
        ("tag:k=w", "no run in .* has this tag"),
        ("tag:K=v", "no run in .* has this tag"),
        ("tag:\udcff=v", "no run in .* has this tag"),
        ("tag:k", "'tag:k': expected tag:KEY=VALUE"),
        ("tag:=v", "expected tag:KEY=VALUE"),
    ],
)
def test_where_one_run_is_wanted_a_tag_of_none_or_several_is_refused(
    store: Store, spec: str, says: str
) -> None:
    for uuid in "abcdefg":
        begin(store, with_head(with_uuid(uuid), tags=(("k", "v"),)), GONE)
    with pytest.raises(InputError, match=says):
        store.find(spec)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("aa", r"the uuids of 2 runs begin so: 2 \(aacc\), 1 \(aabb\)"),
        ("7", "no such run in .*up to 2.*rater list"),
        ("zz", "no such run"),
        ("", "no such run"),
        ("last~2", "only 2 runs are stored"),
        ("last~", "no such run"),
        ("9" * 30, "no such run"),
        ("٢", "no such run"),
        ("%", "no such run"),
    ],
)
def test_a_name_that_means_no_run_or_several_is_refused(store: Store, spec: str, says: str) -> None:
    for uuid in ("aabb", "aacc"):
        begin(store, with_uuid(uuid), GONE)
    with pytest.raises(InputError, match=says):
        store.find(spec)


def test_a_removed_run_takes_all_its_rows_along_and_its_number_does_not_come_back(
    store: Store,
) -> None:
    for uuid in ("a", "b"):
        number = begin(
            store, replace(with_head(with_uuid(uuid), tags=(("k", "v"),)), warnings=("w",)), GONE
        )
        for event in (phase(), ended(0, 1.0), over(0.0, 1.0), Noted("n")):
            store.append(number, event)
    remove_sweeps(store, (), [2])
    assert [head.run for head in store.runs()] == [1]
    assert len(store.load(1).copies) == 1
    remove_sweeps(store, (), [1])
    tables = query_rows(store, "SELECT name FROM pragma_table_list WHERE type = 'table'")
    for (table,) in tables:
        if not str(table).startswith("sqlite_") and table != "removed":
            assert query_rows(store, f"SELECT count(*) FROM {table}") == [(0,)], table
    assert query_rows(store, "SELECT uuid, kind FROM removed") == [("a", "run"), ("b", "run")]
    assert begin(store, with_uuid("c")) == 3


def test_several_runs_are_removed_all_or_none(store: Store) -> None:
    begin(store, with_uuid("a"), GONE)
    begin(store, with_uuid("b"))
    begin(store, with_uuid("c"), GONE)
    with pytest.raises(InputError, match="run 2 is still running"):
        remove_sweeps(store, (), [1, 2])
    assert [head.run for head in store.runs()] == [1, 2, 3]
    remove_sweeps(store, (), [1, 3])
    assert [head.run for head in store.runs()] == [2]
    with pytest.raises(InputError, match="no run 3 any more"):  # it went away meanwhile
        store.load(3)


def sweep(store: Store, name: str, *, ended: bool = True) -> int:
    """One point with two runs: the first did not get to its end, the second is in its place."""
    point = SweepPoint(
        point=0, label="thp=never", values=(("thp", "never"),), request="{}", left_out=None
    )
    slot = SweepSlot(1, 1, 0)
    asked = replace(SWEEP_ASKED, uuid=name)
    number = new_sweep(store, asked, [("thp", AxisKind.SETTING)], [point], [slot])
    for place in range(2):
        made = with_head(run_of(2), uuid=f"{name}{place}")
        run = create_slot_run(store, number, slot, made, 1)
        store.append(run, RunEnded(RunStatus.INTERRUPTED, None))
    if ended:
        end_sweep(store, number, RunStatus.COMPLETE, None, SWEEP_ASKED.started_at)
    return number


def test_a_sweep_takes_all_its_runs_along_and_no_others(database: Path, rater: Rater) -> None:
    with open_store(database) as store:
        for name in ("aa", "bb"):  # runs 1 and 2, 3 and 4
            sweep(store, name)
        assert sweep(store, "cc") == 3  # runs 5 and 6
    status, out, _ = rater("rm", "6", "sweep:last", "sweep:1", "--yes")
    assert status == 0
    assert out.splitlines() == [
        *(f"run {number} removed" for number in (6, 5, 1, 2)),
        *(f"sweep {number} removed" for number in (3, 1)),
    ]
    assert rows_of("SELECT id FROM run") == [(3,), (4,)]
    assert rows_of("SELECT DISTINCT sweep_id FROM sweep_slot") == [(2,)]
    out = rater("rm", "sweep:2", "--yes", "--json")[1]
    assert json.loads(out) == {"rater": 1, "removed": [3, 4], "sweeps": [2]}
    for table in ("run", "host", "sweep", "sweep_axis", "sweep_point", "sweep_value", "sweep_slot"):
        assert rows_of(f"SELECT count(*) FROM {table}") == [(0,)], table
    status, _, err = rater("rm", "sweep:2", "--yes")
    assert (status, "no sweeps stored yet" in err) == (2, True)


def test_a_sweep_that_still_runs_is_not_removed_and_nothing_else_goes(
    database: Path, rater: Rater
) -> None:
    with open_store(database) as store:
        sweep(store, "aa")
        sweep(store, "bb", ended=False)
    status, out, err = rater("rm", "1", "sweep:1", "sweep:2", "--yes")
    assert (status, out) == (2, "")
    assert "sweep 2 is still running" in err
    assert rows_of("SELECT count(*) FROM run") == [(4,)]
    assert rows_of("SELECT count(*) FROM sweep") == [(2,)]
