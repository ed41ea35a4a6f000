"""Runs as text for others, and the observations document read with every mistake named."""

from __future__ import annotations

import copy
import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.results.score import summarise
from rater.record.events import Noted, RunEnded
from rater.record.run import CopyStatus, MachinePU, RunStatus, Validity
from rater.record.stored import StoredRun
from rater.store.export import full_document, observations_document, write_csv, write_document
from rater.store.observations import read_observations
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from rater.system.process import ProcessId, boot_id
from tests.support.example_events import ended, over, phase, run_of, with_head
from tests.support.example_runs import copy_row, stored
from tests.support.observations import DOCUMENT, changed, observed, read
from tests.support.places import DIVOT_CASES, needs_cases
from tests.support.stored_runs import GONE, PUS, append, begin, query_rows

CASES = DIVOT_CASES / "cases"


def taken_over(document: dict[str, Any], path: Path) -> StoredRun:
    """The run of a document in a database of its own."""
    with open_store(path / "other.db") as other:
        number, added = other.add(read(document))
        assert added
        return other.load(number)


# -- storing, and back ----------------------------------------------------------------------------


def test_a_document_comes_back_as_it_was(store: Store) -> None:
    number, added = store.add(read(DOCUMENT))
    assert added
    assert observations_document(store.load(number)) == DOCUMENT


def test_what_is_optional_comes_back_where_it_was_said(store: Store) -> None:
    document = observed(
        {
            "cpu": 1,
            "core": None,
            "llc": None,
            "node": 1,
            "package": None,
            "start_s": None,
            "status": "ok",
        },
        {
            "copy": 1,
            "cpu": None,
            "core": 2,
            "llc": 4,
            "node": None,
            "package": 3,
            "start_s": 0.000000001,
        }
        | {"tune": "peak", "mem_nodes": [0, 2], "cpu_s": 0.7, "status": "wrong-output"},
        {"copy": 2, "cpu": 1, "core": 1, "llc": 1, "node": 1, "package": 1, "start_s": 0.1}
        | {"counted": False, "iteration": 7},
        host="h",
        started_at=None,
        stagger_ms=0.25,
        mode="staggered",
        copies=3,
    )
    number, _ = store.add(read(document))
    back = observations_document(store.load(number))
    assert back["observations"] == document["observations"]
    assert back["run"] == document["run"]


def test_the_stored_run_is_the_one_that_was_read(store: Store) -> None:
    run = read(DOCUMENT)
    number, _ = store.add(run)
    back = store.load(number)
    assert back.head.elapsed_s == 1802.7
    assert replace(back, head=replace(back.head, run=0, elapsed_s=None)) == run


def test_the_same_uuid_is_stored_once(store: Store) -> None:
    assert store.add(read(DOCUMENT)) == (1, True)
    assert store.add(read(observed({}))) == (2, True)
    assert store.add(read(changed("run.host", "another"))) == (1, False)
    assert [head.hostname for head in store.runs()] == ["box", None]


def test_last_is_the_run_stored_last_whenever_it_started(store: Store) -> None:
    store.add(read(observed({}, started_at="2030-01-01T00:00:00Z")))
    store.add(read(DOCUMENT))
    assert (store.find("last"), store.find("last~1")) == (2, 1)


def test_a_run_of_our_own_can_go_to_another_database(store: Store, tmp_path: Path) -> None:
    number = store.create_run(replace(run_of(2), pus=PUS))
    failed = ended(1, 3.0, status=CopyStatus.FAILED, user_ns=10**9)
    append(store, number, phase(), ended(0, 2.0), failed, over(0.0, 3.0))
    append(store, number, RunEnded(RunStatus.FAILED, "1 copy failed"))
    document = observations_document(store.load(number))
    first, second = document["observations"]
    assert (first["status"], first["tune"], first["cpu_s"]) == ("ok", "base", 0.0)
    assert (second["status"], second["elapsed_s"], second["cpu_s"]) == ("failed", 3.0, 1.0)
    assert document["topology"]["nodes"] == {"0": [0, 1]}
    again = taken_over(document, tmp_path)
    assert observations_document(again) == document
    assert again.head.status is RunStatus.FAILED
    assert again.copies[0].validity is Validity.NOT_CHECKED


def test_a_rotated_run_that_repeats_a_benchmark_in_a_round_can_go_to_another_database(
    store: Store, tmp_path: Path
) -> None:
    # Ring a b, increment 2: copy 0 runs a twice a round, copy 1 b.
    run = store.create_run(
        replace(with_head(run_of(2, names="ab", order="rotated"), increment=2), pus=PUS)
    )
    append(store, run, phase(name=None, iteration=None))
    for number, name in ((0, "a"), (1, "b")):
        for step in (0, 1):
            row = ended(number, step + 1.0, start_s=float(step), name=name, step=step)
            append(store, run, row)
    append(store, run, over(0.0, 2.0, name=None, iteration=None))
    document = observations_document(store.load(run))
    assert document["run"]["increment"] == 2
    steps = [(observation["copy"], observation["step"]) for observation in document["observations"]]
    assert steps == [(0, 0), (0, 1), (1, 0), (1, 1)]
    again = taken_over(document, tmp_path)
    assert observations_document(again) == document
    assert again.head.increment == 2


def test_a_run_of_our_own_without_any_copy_can_go_to_another_database(
    store: Store, tmp_path: Path
) -> None:
    number = store.create_run(replace(run_of(2), pus=PUS))
    document = observations_document(store.load(number))
    assert document["observations"] == []
    back = taken_over(document, tmp_path)
    assert (back.copies, back.notes) == ((), ("2 copies, none has observations",))
    assert observations_document(back) == document


@needs_cases
def test_the_shared_cases_come_back(store: Store) -> None:
    paths = [CASES / "paper-table4-run2-only.json", CASES / "paper-fig1.json"]
    for path in paths:
        number, _ = store.add(read_observations(path.read_bytes(), str(path)))
        back = observations_document(store.load(number))
        given = json.loads(path.read_text())
        without_llc = [
            {key: value for key, value in row.items() if key != "llc"}
            for row in back["observations"]
        ]
        assert without_llc == given["observations"]
        assert back["run"] == given["run"]


def test_many_observations_are_read_in_a_time_one_waits_for(store: Store) -> None:
    many = [
        {
            "benchmark": f"b{number % 10}",
            "iteration": number // 1000 % 2,
            "copy": number,
            "cpu": number % 64,
        }
        for number in range(20_000)
    ]
    before_s = time.process_time()
    number, _ = store.add(read(observed(*many, copies=20_000)))
    # 20 000 in about 0.4 s of CPU here, so 100 000 in about 2 s; the bound is for slow machines.
    assert time.process_time() - before_s < 20
    assert len(store.load(number).copies) == 20_000


# -- other formats --------------------------------------------------------------------------------


def test_csv_has_a_line_for_each_copy_and_units_in_its_heading() -> None:
    copies = [copy_row(0, 1.25), copy_row(1, 0.000000007, note='a "b", c', mem_nodes=(0, 1, 4))]
    out = io.StringIO()
    write_csv(stored(copies), out)
    heading, first, second = out.getvalue().splitlines()
    assert heading == (
        "run,uuid,benchmark,tune,iteration,copy,step,phase,counted,cpu,core,llc,node,package,"
        "mem_nodes,planned_start_s,start_s,elapsed_s,cpu_s,user_s,system_s,gate_cpu_s,"
        "max_rss_bytes,minor_faults,major_faults,voluntary_switches,involuntary_switches,status,"
        "exit_code,signal,validity,validity_detail,note,placement,placement_note,late_s,"
        "mean_rss_bytes,peak_rss_bytes"
    )
    assert first == (
        "7,u-7,a,base,1,0,0,0,1,0,0,0,0,0,,0.000000000,0.000000000,1.250000000,0.000000001,"
        "0.000000001,0.000000000,0.000000000,,0,0,0,0,ok,0,,valid,,,,,,,"
    )
    assert ',"0-1,4",' in second
    assert ",0.000000007," in second
    assert second.endswith('valid,,"a ""b"", c",,,,,')


@pytest.mark.parametrize(
    ("planned_ns", "cell"),
    [
        (-5618, "-0.000005618"),
        (-2_000_000_001, "-2.000000001"),
        (-(10**9), "-1.000000000"),
        (1_500_000_000, "1.500000000"),
        (None, ""),
    ],
)
def test_a_time_before_the_first_release_has_its_sign_in_csv(
    planned_ns: int | None, cell: str
) -> None:
    out = io.StringIO()
    write_csv(stored([copy_row(0, 1.0, planned_start_ns=planned_ns)]), out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue()))
    assert row["planned_start_s"] == cell


def test_the_full_document_has_every_row(store: Store) -> None:
    number, _ = store.add(read(DOCUMENT))
    out = io.StringIO()
    write_document(full_document(store.load(number)), out)
    document = json.loads(out.getvalue())
    assert document["run"]["uuid"] == "made-by-hand"
    assert document["host"]["hostname"] == "box"
    lengths = [len(document[key]) for key in ("copies", "brackets", "pus", "placements")]
    assert lengths == [4, 2, 4, 0]
    assert document["copies"][0]["elapsed_ns"] == 801_200_000_000


def test_a_document_is_written_with_an_observation_a_line() -> None:
    out = io.StringIO()
    write_document({"rater": 1, "none": [], "observations": [{"a": 1}, {"a": 2}]}, out)
    assert out.getvalue() == (
        '{\n"rater": 1,\n"none": [],\n"observations": [\n{"a": 1},\n{"a": 2}\n]\n}\n'
    )


def test_a_steady_run_goes_to_another_database_with_its_window(
    store: Store, tmp_path: Path
) -> None:
    window = {"benchmark": "b", "iteration": 1, "start_s": 1.0, "finish_s": 5.0}
    head: dict[str, Any] = {"mode": "steady", "order": "homogeneous", "host": "h"}
    head |= {"warmup_s": 1.0, "window_s": 4.0, "windows": [window]}
    of_copies = [
        {"copy": copy, "step": step, "start_s": step * 2.0, "elapsed_s": 2.0, "status": "ok"}
        for copy in (0, 1)
        for step in (0, 1, 2)
    ]
    number, _ = store.add(read(observed(*of_copies, **head)))
    again = observations_document(store.load(number))
    # Each copy: half of its first run, the second whole, half of its third.
    assert query_rows(store, "SELECT completions, whole FROM steady_rate") == [(4.0, 2)]
    assert {key: again["run"][key] for key in head} == head
    assert [row["step"] for row in again["observations"]] == [0, 1, 2, 0, 1, 2]
    assert observations_document(taken_over(again, tmp_path)) == again


@pytest.mark.parametrize(
    ("event", "owner", "expected"),
    [
        (RunEnded(RunStatus.FAILED, "2 copies\nfailed"), None, ("failed", "2 copies failed")),
        (RunEnded(RunStatus.INTERRUPTED, "Ctrl-C"), None, ("interrupted", "Ctrl-C")),
        (RunEnded(RunStatus.COMPLETE, None), None, ("complete", None)),
        (Noted("killed"), GONE, ("interrupted", "rater was killed or the machine went down; ")),
        (Noted("a"), GONE._replace(boot_id=boot_id()), ("interrupted", "rater was killed; what")),
        (Noted("runs"), None, ("interrupted", "it had not ended when it was exported")),
    ],
)
def test_how_a_run_ended_goes_along_with_it(
    store: Store,
    tmp_path: Path,
    event: RunEnded | Noted,
    owner: ProcessId | None,
    expected: tuple[str, str | None],
) -> None:
    number = begin(store, owner=owner)
    append(store, number, phase(), ended(0, 1.0), ended(1, 2.0), over(0.0, 2.0), event)
    document = observations_document(store.load(number))
    with open_store(tmp_path / "other.db") as other:
        back = other.load(other.add(read(document))[0]).head
    assert back.status == expected[0]
    assert (back.reason or "").startswith(expected[1] or "")
    assert (back.reason is None) == (expected[1] is None)
    assert ("status" in document["run"]) == (expected[0] != "complete")


def test_a_document_that_calls_a_failed_run_complete_is_not_believed() -> None:
    document = changed("observations.0.status", "failed")
    document["run"]["status"] = "complete"
    assert read(document).head.status is RunStatus.FAILED


# -- reading --------------------------------------------------------------------------------------


def test_a_document_is_a_run_with_copies_brackets_and_the_machine() -> None:
    run = read(DOCUMENT)
    head = run.head
    assert (head.uuid, head.source, head.hostname) == ("made-by-hand", "import", "box")
    assert (head.mode, head.order, head.copies) == ("homogeneous", "homogeneous", 2)
    assert (head.iterations, head.discard, head.benchmarks) == (2, 0, ("429.mcf",))
    assert (head.status, head.started_at) == (RunStatus.COMPLETE, "2026-11-20T12:00:00Z")
    assert run.pus == (
        MachinePU(cpu=0, core=0, llc=4, node=0, package=0),
        MachinePU(cpu=1, core=0, llc=4, node=0, package=0),
        MachinePU(cpu=2, core=1, llc=5, node=1, package=0),
        MachinePU(cpu=3, core=1, llc=5, node=1, package=0),
    )
    assert [
        (copy.phase, copy.iteration, copy.copy, copy.cpu, copy.node) for copy in run.copies
    ] == [
        (0, 0, 0, 0, 0),
        (0, 0, 1, 2, 1),
        (1, 1, 0, 0, 0),
        (1, 1, 1, 2, 1),
    ]
    assert run.copies[3].start_ns == 1_000_500_000_000
    assert run.copies[3].elapsed_ns == 802_200_000_000
    first, second = run.brackets
    assert (first.benchmark, first.iteration, first.start_ns) == ("429.mcf", 0, 0)
    assert (first.last_start_ns, first.first_finish_ns) == (500_000_000, 801_200_000_000)
    assert (first.finish_ns, first.complete, second.iteration) == (802_700_000_000, True, 1)


def test_what_is_not_known_is_none() -> None:
    run = read(observed({"cpu": None, "start_s": None}, {"copy": 1}))
    assert (run.head.hostname, run.head.started_at, run.pus) == (None, None, ())
    for copy_run in run.copies:
        assert (
            copy_run.cpu,
            copy_run.node,
            copy_run.start_ns,
            copy_run.finish_ns,
            copy_run.cpu_ns,
        ) == (None,) * 5
    assert run.brackets[0].bracket_s is None


def test_optional_keys_are_read_and_unknown_ones_left_alone() -> None:
    row = {"tune": "peak", "mem_nodes": [3, 1], "cpu_s": 0.75, "status": "timeout", "colour": 1}
    run = read(observed(row) | {"more": {"keys": 1}})
    (one,) = run.copies
    assert (one.tune, one.mem_nodes, one.cpu_s) == ("peak", (1, 3), 0.75)
    assert one.status is CopyStatus.TIMEOUT
    assert (run.head.status, run.head.reason) == ("failed", "1 of 1 copy runs failed")
    run = read(observed({"status": "interrupted"}, {"copy": 1}))
    assert run.head.status is RunStatus.INTERRUPTED
    assert not run.brackets[0].complete


def test_base_and_peak_have_brackets_of_their_own() -> None:
    run = read(observed({"tune": "base"}, {"tune": "peak"}))
    found = [(bracket.phase, bracket.benchmark, bracket.tune) for bracket in run.brackets]
    assert found == [(0, "b", "base"), (1, "b", "peak")]


@pytest.mark.parametrize("mode", ["rotated", "heterogeneous"])
def test_a_rotated_run_is_one_phase_of_queues_in_the_order_of_their_starts(mode: str) -> None:
    run = read(
        observed(
            {"benchmark": "b", "start_s": 1.0},
            {"benchmark": "a", "start_s": 0.0},
            {"benchmark": "b", "start_s": 0.0, "copy": 1},
            {"benchmark": "a", "start_s": 1.0, "copy": 1, "elapsed_s": 2.0},
            mode=mode,
        )
    )
    assert (run.head.mode, run.head.order) == (mode, "rotated")
    found = [(copy.copy, copy.step, copy.benchmark) for copy in run.copies]
    assert found == [(0, 0, "a"), (0, 1, "b"), (1, 0, "b"), (1, 1, "a")]
    (bracket,) = run.brackets
    assert (bracket.benchmark, bracket.iteration, bracket.bracket_s) == (None, None, 3.0)
    assert (bracket.last_start_ns, bracket.first_finish_ns) == (0, 2_000_000_000)


def test_the_stagger_is_read_or_else_seen_in_the_starts() -> None:
    rows = [{"copy": number, "start_s": number * 0.25} for number in range(3)]
    assert read(observed(*rows, mode="staggered", copies=3)).head.stagger_ms == 250.0
    assert read(observed(*rows, mode="staggered", copies=3, stagger_ms=7)).head.stagger_ms == 7.0
    assert read(observed(*rows, copies=3)).head.stagger_ms == 0.0


def test_discarded_iterations_are_told_by_counted() -> None:
    run = read(observed({"iteration": 0, "counted": False}, {"iteration": 1}))
    assert (run.head.iterations, run.head.discard) == (2, 1)
    assert [bracket.counted for bracket in run.brackets] == [False, True]


def test_a_time_of_zero_is_taken_as_a_log_of_whole_seconds_has_it() -> None:
    run = read(observed({"elapsed_s": 0, "status": "ok"}, {"copy": 1, "elapsed_s": 0}))
    assert [copy.elapsed_ns for copy in run.copies] == [0, 0]
    (benchmark,) = summarise(run).benchmarks
    assert (benchmark.ratio, benchmark.per_hour) == (None, None)


@pytest.mark.parametrize("elapsed_s", [1e-12, 1.2681155e-9, 123.4e-9])
def test_a_time_that_whole_nanoseconds_do_not_keep_is_refused(elapsed_s: float) -> None:
    with pytest.raises(InputError, match=r"\[0\].elapsed_s: .* loses its digits in whole nanosec"):
        read(observed({"elapsed_s": elapsed_s}))
    for kept in (120e-9, 1.2344e-6):
        assert read(observed({"elapsed_s": kept})).copies[0].elapsed_ns == round(kept * 1e9)


def test_copies_that_nobody_observed_are_noted() -> None:
    assert read(observed({}, {"copy": 1})).notes == ()
    nine: list[dict[str, Any]] = [{"copy": copy} for copy in (0, 1, 2, 8)]
    assert read(observed(*nine, copies=9)).notes == ("9 copies, only 4 have observations",)
    assert read(observed({})).notes == ("2 copies, only 1 has observations",)


@pytest.mark.parametrize("mode", ["homogeneous", "staggered", "rotated"])
def test_a_run_without_any_copy_is_one_that_was_interrupted(mode: str) -> None:
    run = read(observed(mode=mode))
    assert (run.copies, run.brackets, run.notes) == ((), (), ("2 copies, none has observations",))
    assert (run.head.status, run.head.reason) == (
        RunStatus.INTERRUPTED,
        "the document has no observations",
    )
    assert summarise(run).benchmarks == ()


def test_a_step_is_the_place_in_the_queue_and_tells_runs_of_one_benchmark_apart() -> None:
    rows = ({"step": 2, "start_s": None}, {"step": 0}, {"step": 1, "benchmark": "a"})
    run = read(observed(*rows, mode="rotated", increment=2))
    assert [(copy.step, copy.benchmark) for copy in run.copies] == [(0, "b"), (1, "a"), (2, "b")]
    assert run.head.increment == 2


def test_without_steps_runs_of_one_benchmark_are_told_apart_by_their_starts() -> None:
    rows: list[dict[str, Any]] = [{"start_s": 3.0}, {"start_s": 0.0}]
    run = read(observed(*rows, {"start_s": 1.5, "benchmark": "a"}, mode="rotated"))
    assert [(copy.step, copy.benchmark, copy.start_ns) for copy in run.copies] == [
        (0, "b", 0),
        (1, "a", 1_500_000_000),
        (2, "b", 3_000_000_000),
    ]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"start_s": 1.0}, {"start_s": 1.0}], r"\[1\].copy: .*observations\[0\] is of the same"),
        ([{"start_s": 1.0}, {"start_s": None}], r"\[1\].copy: .*, or a step or start_s to tell"),
        ([{}, {"start_s": 1.0}], r"\[1\].copy: .*observations\[0\] is of the same one"),
        ([{"step": 1}, {"step": 1, "benchmark": "a"}], r"\[1\].step: .*\[0\] has the same one"),
        ([{"step": 1}, {"start_s": 1.0}], r"\[1\].step: missing; expected a step in every"),
        (
            [{}, {"copy": 1, "step": 0}],
            r"\[1\].step: expected a step in every .*, got the number 0",
        ),
        ([{"step": -1}], r"\[0\].step: expected a whole number from 0"),
    ],
)
def test_runs_of_a_copy_that_cannot_be_told_apart_are_refused(
    rows: list[dict[str, Any]], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        read(observed(*rows, mode="rotated"))


def test_in_homogeneous_order_a_copy_runs_a_benchmark_once_whatever_its_start() -> None:
    with pytest.raises(InputError, match=r"observations\[0\] is of the same one"):
        read(observed({"start_s": 0.0, "step": 0}, {"start_s": 1.0, "step": 1}))


@pytest.mark.parametrize(
    ("started_at", "stored_as"),
    [
        ("2026-11-20T13:30:00+01:30", "2026-11-20T12:00:00Z"),
        ("2026-11-20T12:00:00", "2026-11-20T12:00:00Z"),
        (None, None),
    ],
)
def test_the_start_is_kept_in_utc(started_at: str | None, stored_as: str | None) -> None:
    assert read(changed("run.started_at", started_at)).head.started_at == stored_as


# -- places that an observation leaves out --------------------------------------------------------

_TOPOLOGY = {
    "cores": {"10": [0, 1], "11": [2, 3], "12": [4, 5]},
    "llcs": {"20": [0, 1], "21": [2, 3], "22": [4, 5]},
    "nodes": {"30": [0, 1, 2, 3], "31": [4, 5]},
    "packages": {"0": [0, 1, 2, 3, 4, 5]},
}


def with_topology(topology: dict[str, Any] | None, *rows: dict[str, Any]) -> StoredRun:
    """Return a run of a copy for each observation."""
    numbered = ({"copy": copy} | row for copy, row in enumerate(rows))
    return read(observed(*numbered, copies=len(rows)) | {"topology": topology})


def places_of(run: StoredRun) -> list[tuple[int | None, ...]]:
    """Return CPU, core, cache, node and package of the copies."""
    return [(copy.cpu, copy.core, copy.llc, copy.node, copy.package) for copy in run.copies]


def test_the_cpu_of_an_observation_tells_all_places_that_the_topology_knows() -> None:
    run = with_topology(_TOPOLOGY, {"cpu": 3}, {"cpu": 5, "node": None}, {"cpu": 9})
    assert places_of(run) == [(3, 11, 21, 30, 0), (5, 12, 22, 31, 0), (9, None, None, None, None)]
    assert run.notes == ()


def test_a_copy_bound_to_a_node_is_where_all_cpus_of_the_node_are() -> None:
    run = with_topology(_TOPOLOGY, {"node": 30}, {"node": 31}, {"core": 11})
    assert places_of(run) == [
        (None, None, None, 30, 0),
        (None, 12, 22, 31, 0),
        (None, 11, 21, 30, 0),
    ]


def test_an_observation_keeps_its_places_and_what_contradicts_them_is_named() -> None:
    run = with_topology(_TOPOLOGY, {"cpu": 2, "node": 31}, {"cpu": 3, "node": 31}, {"cpu": 4})
    assert places_of(run) == [(2, 11, 21, 31, 0), (3, 11, 21, 31, 0), (4, 12, 22, 31, 0)]
    assert run.notes == (
        "the observations have CPUs 2-3 in another node than the topology has (CPU 2 in 31, "
        "not 30): what they say counts",
    )
    run = with_topology(None, {"cpu": 3, "llc": 1}, {"cpu": 3, "llc": 0})
    assert run.notes == (
        "the observations have CPU 3 in more than one last-level cache (CPU 3 in 1 and 0)",
    )


def test_cores_that_are_numbered_in_each_package_are_named() -> None:
    run = with_topology({"cores": {"0": [0, 8]}, "packages": {"0": [0], "1": [8]}}, {"cpu": 0})
    assert run.notes == (
        "topology.cores has cores of several packages (0: CPU 0 of package 0, CPU 8 of 1): cores "
        "are numbered over the whole machine",
    )


# -- mistakes -------------------------------------------------------------------------------------

_SECONDS = "a number of seconds, 0 or more"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("rater", 2, "rater: expected 1, the version of the format"),
        ("rater", "1", "rater: expected 1, the version of the format.*got .1.$"),
        ("run", None, "run: expected an object, got null"),
        ("run.uuid", "", "run.uuid: expected a text of printable characters, got ''"),
        ("run.host", "\ud800", "run.host: expected a text"),
        ("run.mode", "random", 'run.mode: expected "homogeneous" or "staggered".*got .random'),
        ("run.copies", 0, "run.copies: expected a whole number from 1"),
        ("run.copies", 2**31 - 1, "run.copies: expected a whole number from 1 to 99999"),
        ("run.started_at", "yesterday", "run.started_at: expected null or a time"),
        ("run.increment", -1, "run.increment: expected a whole number from 0"),
        ("run.stagger_ms", -1, "run.stagger_ms: expected a number of milliseconds"),
        ("topology", [], "topology: expected an object, got a list"),
        (
            "topology.nodes",
            {"x": [0]},
            "topology.nodes.x: expected numbers as keys, each of a node",
        ),
        ("topology.nodes", {"0": 0}, "topology.nodes.0: expected a list of whole numbers"),
        ("topology.nodes", {"0": [0], "1": [0]}, r"topology.nodes.1: .* \(CPU 0 is in 0\)"),
        ("observations", {}, "observations: expected a list, got an object"),
        ("observations", [1], r"observations\[0\]: expected an object, got the number 1"),
        ("observations.3.elapsed_s", -1, rf"observations\[3\].elapsed_s: expected {_SECONDS}"),
        ("observations.3.elapsed_s", None, r"\[3\].elapsed_s: .*got null"),
        (
            "observations.3.elapsed_s",
            1e300,
            r"\[3\].elapsed_s: .*at most 1e\+09, got the number 1e\+300",
        ),
        ("observations.3.elapsed_s", float("nan"), r"\[3\].elapsed_s: .*got the number nan"),
        ("observations.1.start_s", -0.5, rf"observations\[1\].start_s: expected {_SECONDS}"),
        ("observations.1.cpu_s", float("nan"), r"observations\[1\].cpu_s: expected a number"),
        ("observations.1.cpu", -1, r"observations\[1\].cpu: expected a whole number"),
        ("observations.1.node", False, r"observations\[1\].node: .*got false"),
        ("observations.1.package", "0", r"observations\[1\].package: .*got '0'"),
        ("observations.1.core", 65536, r"observations\[1\].core: .*from 0 to 65535"),
        (
            "observations.3.copy",
            2,
            r"\[3\].copy: .* from 0 to 1 \(run.copies is 2\), got the number 2",
        ),
        ("observations.1.copy", None, r"observations\[1\].copy: expected a whole number"),
        ("observations.1.iteration", 2**63, r"observations\[1\].iteration: expected a whole"),
        ("observations.1.benchmark", None, r"observations\[1\].benchmark: expected a text"),
        ("observations.1.status", "great", r"observations\[1\].status: expected .ok. or .failed"),
        ("observations.1.mem_nodes", [True], r"observations\[1\].mem_nodes: expected a list"),
        ("observations.1.counted", 1, r"observations\[1\].counted: expected true or false"),
        ("observations.1.tune", 7, r"observations\[1\].tune: expected a text"),
        ("observations.1.copy", 0, r"observations\[1\].copy: .*\(observations\[0\] is of the same"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_was_expected(
    path: str, value: object, says: str
) -> None:
    with pytest.raises(InputError, match=f"times.json: .*{says}"):
        read(changed(path, value))


def test_all_mistakes_of_the_observations_are_named_together() -> None:
    with pytest.raises(InputError) as caught:
        read(observed({"node": True}, {"copy": 1, "elapsed_s": "1"}))
    assert str(caught.value).splitlines() == [
        "times.json has 2 mistakes:",
        "times.json: observations[0].node: expected a whole number from 0 to 65535, got true",
        "times.json: observations[1].elapsed_s: expected a number of seconds, 0 or more, got '1'",
    ]


@pytest.mark.parametrize("key", ["uuid", "mode", "copies"])
def test_a_key_that_must_be_there_is_missed(key: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    del document["run"][key]
    with pytest.raises(InputError, match=rf"run\.{key}: missing; expected"):
        read(document)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"rater": 1,\n "run": }', "f.json:2:9: not JSON .* `rater export RUN"),
        (b"[" * 100_000, "f.json: not JSON that can be read"),
        (b"[]", "f.json: this is JSON of another program .a list., not an observations document"),
        (b'{"results": [], "context": {}}', "of another program .with results, context., not an"),
        (b'{"rater": 1, "run": {}, "copies": []}', "this is other JSON of rater .with rater, run"),
    ],
)
def test_what_is_no_document_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_observations(data, "f.json")


def test_tags_of_a_run_are_texts_by_name() -> None:
    given = {"thp": "always", "block": "2"}
    assert read(changed("run.tags", given)).head.tags == (("thp", "always"), ("block", "2"))
    with pytest.raises(
        InputError, match=r"run\.tags: a value: expected a string, got a whole number"
    ):
        read(changed("run.tags", {"thp": 3}))


def test_a_byte_order_mark_is_no_mistake() -> None:
    data = b"\xef\xbb\xbf" + json.dumps(DOCUMENT).encode()
    assert read_observations(data, "f.json").head.uuid == "made-by-hand"
