"""Readings in the database, and as `rater show` tells of them."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from dataclasses import replace

from rich.console import Console

from rater.analysis.results.cpu_use import run_counters
from rater.record.events import CpuReading, CpuReadings, MachineReadings, RunEnded
from rater.record.run import MachinePU, PlacedCopy, RunStatus
from rater.show.console import Printer
from rater.show.results.cpu_use import notable_text, print_cpus
from rater.store.export import full_document
from rater.store.store import Store
from tests.support.calls import Rater
from tests.support.cpu_readings import computed, read_run
from tests.support.example_events import S, ended, over, phase, run_of
from tests.support.example_runs import reading
from tests.support.stored_runs import GONE, HOST, query_file, rows

PUS = tuple(MachinePU(cpu, cpu, 0, cpu // 2, 0) for cpu in range(4))
# Two copies on CPUs 0 and 2; somebody computes on CPU 2, and on CPU 3 beside it.
CPUS = CpuReadings(
    0,
    (
        CpuReading(0, 9 * S, S // 10, 0, S // 10, 0, S // 2, 3_000_000, 0, 12_000),
        CpuReading(1, 0, 0, 0, 0, 0, 10 * S, 1_200_000, 0, 40),
        CpuReading(2, 9 * S, S, 0, 0, S // 5, 0, 2_400_000, 3, 2_000),
        CpuReading(3, 4 * S, 0, 0, 0, 0, 6 * S, None, 0, 400),
    ),
)
MACHINE = MachineReadings(
    0,
    (
        ("elapsed_ns", 10 * S),
        ("pgmajfault", 1),
        ("pgmigrate_success", 7),
        ("pressure_io_some_ns", S // 10),
        ("pressure_memory_some_ns", 0),
        ("rater_cpu_ns", S // 100),
    ),
)


def store_run(store: Store) -> int:
    """Two copies on two lgroups; each computes for 9 s of 10."""
    placed = tuple(PlacedCopy(n, (2 * n,), 2 * n, 2 * n, 0, n, 0, "none", ()) for n in range(2))
    run = replace(run_of(2, 2), placements=placed)
    number = store.create_run(run, HOST, [], PUS, GONE)
    store.append(number, phase())
    for copy in range(2):
        store.append(number, replace(ended(copy, 10.0), user_ns=9 * S, last_cpu=2 * copy))
    store.append(number, CPUS)
    store.append(number, MACHINE, over(0.0, 10.0), RunEnded(RunStatus.COMPLETE, None))
    return number


def test_readings_come_back_as_they_were_and_once_when_tried_again(store: Store) -> None:
    number = store_run(store)
    store.append(number, CPUS, MACHINE)
    run = store.load(number)
    assert run.cpu_readings == (CPUS,)
    assert run.machine_readings == (MACHINE,)


def test_readings_go_with_their_run(store: Store) -> None:
    store.remove(store_run(store))
    for table in ("cpu_reading", "phase_reading"):
        assert rows(store, f"SELECT count(*) FROM {table}") == [(0,)]


def test_readings_of_a_torn_attempt_are_kept_but_do_not_count(store: Store) -> None:
    run = store.load(store_run(store))
    torn = replace(run, brackets=tuple(replace(it, torn=True) for it in run.brackets))
    assert torn.without_torn().cpu_readings == ()
    assert torn.without_torn().machine_readings == ()
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE bracket SET torn = 1")
    assert query_file(store, "foreign_load") == query_file(store, "steal") == []


def test_everything_that_is_exported_has_the_readings(store: Store) -> None:
    document = full_document(store.load(store_run(store)))
    assert document["cpu_readings"][2] == {
        "phase": 0,
        "cpu": 2,
        "user_ns": 9 * S,
        "system_ns": S,
        "iowait_ns": 0,
        "irq_ns": 0,
        "steal_ns": S // 5,
        "idle_ns": 0,
        "mean_khz": 2_400_000,
        "throttles": 3,
        "interrupts": 2_000,
        "filler_ns": 0,
    }
    assert document["phase_readings"] == [{"phase": 0, **dict(MACHINE.values)}]


def test_the_queries_find_what_the_analysis_finds(store: Store) -> None:
    run = store.load(store_run(store))
    expected = [
        (use.phase, use.benchmark, use.iteration, use.cpu, use.node, len(use.copies), 10.0)
        for use in sorted(run_counters(run).cpus, key=lambda use: -(use.foreign or 0.0))
        if (use.foreign or 0.0) > 0.02
    ]
    found = query_file(store, "foreign_load")
    assert [row[:7] for row in found] == expected
    assert [row[7:] for row in found] == [(40.0, 40.0), (100.0, 10.0)]
    assert query_file(store, "steal") == [(0, "gups", 1, 2, 1, 0.2, 2.0)]


def test_copies_that_may_run_anywhere_have_no_cpu_of_their_own_to_ask_for(store: Store) -> None:
    number = store.create_run(replace(run_of(2, bound=False), uuid="v"), HOST, [], PUS, GONE)
    store.append(number, phase(), ended(0, 10.0), CPUS, MACHINE, over(0.0, 10.0))
    assert query_file(store, "foreign_load") == []


# -- shown -----------------------------------------------------------------------------------------


def test_a_line_names_the_cpu_and_how_much(store: Store) -> None:
    run = store.load(store_run(store))
    assert notable_text(run_counters(run).notable, 7) == (
        "while copies ran: other work took 10.0 % of CPU 2 (gups, iteration 1); the hypervisor "
        "took 2.0 % of CPU 2 (gups, iteration 1); CPU 2 was throttled 3 times, too hot (gups, "
        "iteration 1) (rater show 7 --cpus)"
    )


def test_a_line_tells_how_many_cpus_more_and_what_the_machine_lacked() -> None:
    copies = [computed(n, 5.0) for n in range(3)]
    rows = [reading(n, 6.0 + n) for n in range(3)]
    run = read_run(copies, *rows, pswpout=1, pressure_memory_some_ns=S)
    assert notable_text(run_counters(run).notable, 7) == (
        "while copies ran: other work took 30.0 % of CPU 2 (a, iteration 1), and up to as "
        "much of 2 other CPUs; 1 page swapped (a, iteration 1); tasks waited for memory 10.0 % of "
        "the time (a, iteration 1) (rater show 7 --cpus)"
    )
    assert notable_text((), 7) is None


def test_cpus_stand_by_lgroup_with_and_without_copies_and_the_worst_one_by_one(
    store: Store,
) -> None:
    stream = io.StringIO()
    run = store.load(store_run(store))
    print_cpus(run_counters(run), Printer(Console(file=stream, width=80)))
    assert stream.getvalue() == EXPECTED


EXPECTED = """\

lgroup  copies  CPUs   busy  foreign  most  steal  most  irq   MHz
                          %        %     %      %     %    %   min  mean   max
     0  yes     0      92.0      1.0   1.0    0.0   0.0  1.0  3000  3000  3000
     1  yes     2     100.0     10.0  10.0    2.0   2.0  0.0  2400  2400  2400
     0  none    1       0.0      0.0   0.0    0.0   0.0  0.0  1200  1200  1200
     1  none    3      40.0     40.0  40.0    0.0   0.0  0.0     -     -     -
of all CPUs and phases together; foreign: work of others than copies, rater's
    own included; most: of one CPU in one phase

most foreign load, steal and interrupts, CPUs of copies first:
CPU lgroup copy benchmark iter  busy foreign steal irq interrupts  MHz too hot
                                   %       %     %   %         /s        times
  2      1    1 gups         1 100.0    10.0   2.0 0.0        200 2400       3
  0      0    0 gups         1  92.0     1.0   0.0 1.0       1200 3000       0
  3      1    - gups         1  40.0    40.0   0.0 0.0         40    -       0

the whole machine: some task waited for memory 0.0 %, io 1.0 % of the time; 1
    major fault, 7 pages moved
"""


def test_a_run_without_readings_says_why() -> None:
    stream = io.StringIO()
    run = replace(read_run([computed(0, 1.0)]), cpu_readings=(), machine_readings=())
    print_cpus(run_counters(run), Printer(Console(file=stream, width=100)))
    assert stream.getvalue().strip() == (
        "what the CPUs did was not read (--proof off, an older rater, or a run of another tool)"
    )


def test_show_has_the_line_and_with_cpus_the_tables(store: Store, rater: Rater) -> None:
    store_run(store)
    status, brief, _ = rater("show")
    assert status == 0
    assert "other work took 10.0 % of CPU 2" in brief
    assert "foreign" not in brief
    assert "foreign" in rater("show", "--cpus")[1]
    document = json.loads(rater("show", "--json")[1])
    matters = [one["matter"] for one in document["notable"]]
    assert matters == ["foreign load", "steal", "throttled"]
    assert "readings" not in document
    readings = json.loads(rater("show", "--cpus", "--json")[1])["readings"]
    assert [use["cpu"] for use in readings["cpus"]] == [0, 1, 2, 3]
    assert readings["machine"][0]["pressure"] == {"cpu": None, "memory": 0.0, "io": 0.01}


def test_a_real_run_is_read_and_one_without_proof_is_not(store: Store, rater: Rater) -> None:
    for words in ((), ("--proof", "off")):
        options = ("--quiet", "--copies", "1", "--preflight", "off")
        assert rater("run", *options, *words, "--", "sleep", "0.05")[0] == 0
    read, unread = (store.load(head.run) for head in store.runs())
    [use] = [use for use in run_counters(read).cpus if use.copies == (0,)]
    assert use.elapsed_s >= 0.05
    assert (unread.cpu_readings, unread.machine_readings) == ((), ())
