"""A run as a trace, read by a reader of our own: slices nest, time never goes back."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from msgspec.structs import replace

from rater.analysis.results.series import phase_times
from rater.record.events import WorkloadTime
from rater.record.stored import StoredRun
from rater.show.charts.trace import trace_document
from tests.support.example_runs import S, copy_row, stored
from tests.support.series import MB, busy_run


class Trace:
    """A trace read by the rules of its format. Raises AssertionError where it breaks one."""

    def __init__(self, document: dict[str, Any]) -> None:
        document = json.loads(json.dumps(document, allow_nan=False))
        self.events = document["traceEvents"]
        self.names: dict[tuple[int, int], str] = {}
        self.processes: dict[int, str] = {}
        self.slices: dict[tuple[int, int], list[tuple[str, float, float]]] = defaultdict(list)
        self.counters: dict[str, list[tuple[float, dict[str, float]]]] = defaultdict(list)
        last_us = 0.0
        for event in self.events:
            thread = (event["pid"], event["tid"])
            assert event["ts"] >= last_us, "time goes back"
            last_us = event["ts"]
            if event["ph"] == "M":
                if event["name"] == "process_name":
                    self.processes[event["pid"]] = event["args"]["name"]
                elif event["name"] == "thread_name":
                    self.names[thread] = event["args"]["name"]
            elif event["ph"] == "X":
                self._add_slice(thread, event)
            else:
                assert event["ph"] == "C"
                assert all(isinstance(value, float | int) for value in event["args"].values())
                self.counters[event["name"]].append((event["ts"], event["args"]))
        assert {process for process, _ in self.slices} <= self.processes.keys()
        assert self.slices.keys() <= self.names.keys()

    def _add_slice(self, thread: tuple[int, int], event: dict[str, Any]) -> None:
        begin, end = event["ts"], event["ts"] + event["dur"]
        assert event["dur"] >= 0
        for _, other_begin, other_end in self.slices[thread]:
            is_apart = end <= other_begin or other_end <= begin
            is_inside = other_begin <= begin and end <= other_end
            assert is_apart or is_inside, "slices of a thread overlap without nesting"
        self.slices[thread].append((event["name"], begin, end))

    def of_thread(self, process: str, thread: str) -> list[tuple[str, float, float]]:
        [key] = [
            key
            for key, name in self.names.items()
            if (self.processes[key[0]], name) == (process, thread)
        ]
        return self.slices[key]


def trace_of(run: StoredRun) -> Trace:
    return Trace(trace_document(run, phase_times(run)))


def test_a_copy_is_a_slice_on_its_cpu_and_the_bracket_one_of_the_machine() -> None:
    trace = trace_of(busy_run())
    assert trace.of_thread("NUMA node 1", "CPU 1") == [("a, copy 1", 0.0, 11.5e6)]
    [(name, begin, end)] = trace.of_thread("run 7: the machine", "brackets")
    assert (name, begin, end) == ("a, iteration 1", 0.0, 11.5e6)


def test_series_are_counters_that_end_with_their_phase() -> None:
    trace = trace_of(busy_run())
    cpu = dict(trace.counters["CPU 1, %"])
    assert cpu[2e6]["others"] == 0.0
    assert cpu[3e6] == {"copies": 50.0, "others": 50.0}
    assert cpu[11e6] == {"copies": 0, "others": 0, "irq": 0, "steal": 0}
    read = dict(trace.counters["copies, MB/s"])
    assert (read[0]["read"], read[1e6]["read"]) == (60 * MB / 1e6, 0.0)
    assert dict(trace.counters["kept off by the CPU quota, CPUs"])[7e6] == {"CPUs": 0.5}


def test_places_in_time_are_slices_of_the_machine_beside_its_brackets() -> None:
    run = busy_run(iterations=2)
    assert trace_of(run).of_thread("run 7: the machine", "over time") == [
        ("start-up of copy 0: 0.3 of 1 s computed, 60 MB/s read", 0.0, 1e6),
        ("start-up of copy 0: 0.3 of 1 s computed, 60 MB/s read", 20e6, 21e6),
        ("CPU 1: others had 50 % from second 3 to 6", 23e6, 26e6),
        ("the CPU quota kept copies off 0.5 CPUs from second 7 to 8", 27e6, 28e6),
    ]


def test_copies_that_share_a_cpu_have_threads_beside_each_other() -> None:
    rows = [copy_row(copy, 5.0, cpu=0, node=0, start_ns=copy * S) for copy in range(3)]
    later = copy_row(3, 1.0, cpu=0, node=0, start_ns=6 * S)
    trace = trace_of(stored([*rows, later]))
    assert trace.of_thread("NUMA node 0", "CPU 0") == [
        ("a, copy 0", 0.0, 5e6),
        ("a, copy 3", 6e6, 7e6),
    ]
    assert len(trace.of_thread("NUMA node 0", "CPU 0, copies beside the first: 2")) == 1


def test_copies_that_are_not_bound_are_threads_of_their_own() -> None:
    trace = trace_of(stored([copy_row(7, 2.0, cpu=None, node=None)]))
    assert trace.of_thread("copies that are not bound", "copy 7") == [("a, copy 7", 0.0, 2e6)]


def test_commands_of_a_copy_lie_inside_it_even_where_their_times_do_not() -> None:
    times = [(1, -5, S), (2, S, 3 * S)]
    commands = tuple(
        WorkloadTime(
            workload=number,
            start_ns=start_ns,
            finish_ns=finish_ns,
            elapsed_ns=finish_ns - start_ns,
            exit_code=0,
            signal=None,
        )
        for number, start_ns, finish_ns in times
    )
    row = replace(copy_row(0, 2.0), workloads=commands)
    assert trace_of(stored([row])).of_thread("NUMA node 0", "CPU 0") == [
        ("a, copy 0", 0.0, 2e6),
        ("command 1", 0.0, 1e6),
        ("command 2", 1e6, 2e6),
    ]


def test_names_of_others_are_freed_of_control_characters() -> None:
    run = stored([copy_row(0, 1.0, benchmark="a\x1b[2J")], benchmarks=("a\x1b[2J",))
    trace = trace_of(run)
    assert all("\x1b" not in json.dumps(event) for event in trace.events)
    assert not any("\\u001b" in json.dumps(event) for event in trace.events)
