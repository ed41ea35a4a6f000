"""Logs of SPEC CPU read: both dialects, wrapped, torn, of any size."""

from __future__ import annotations

import io

import pytest

from rater.speccpu.log import read_log
from rater.speccpu.recompute import recompute
from rater.speccpu.result import Failure, SpecFile
from tests.support.raw_files import NEW, OLD


def read(text: str) -> SpecFile:
    return read_log(io.BytesIO(text.encode("latin-1")), "some.log")


def wrapped(text: str, width: int) -> str:
    return "\n".join(
        line[at : at + width]
        for line in text.split("\n")
        for at in range(0, max(1, len(line)), width)
    )


def read_from(file: SpecFile) -> list[tuple[object, ...]]:
    return [
        (one.name, one.size, one.copies, one.times_s, one.valid, one.reported_s, one.reference_s)
        + (one.failures, one.binds, one.start_s, one.errors, one.folders, one.workloads_s)
        for one in file.iterations
    ]


def problems(file: SpecFile) -> list[str]:
    return [str(problem) for problem in file.problems]


def test_a_log_of_cpu2006_has_copies_workloads_and_what_was_reported() -> None:
    file = read(OLD)
    (one,) = file.iterations
    assert (file.suite, file.hostname, file.size) == ("cpu2006", "host", "ref")
    assert (one.name, one.copies, one.valid) == ("400.perlbench base, iteration 1", 2, "S")
    assert one.times_s == {0: 999.375, 1: 1000.0}
    assert {copy: list(times) for copy, times in one.workloads_s.items()} == {
        0: [500.25, 499.125],
        1: [500.5, 499.5],
    }
    assert (one.reported_s, one.start_s, one.binds) == (1000.125, 1500061544, ("0", "8"))
    assert problems(file) == []


def test_a_log_of_cpu2017_has_iterations_failures_and_error_codes() -> None:
    (one,) = (file := read(NEW)).iterations
    assert (file.suite, file.hostname) == ("cpu2017", "node7")
    assert (one.name, one.size, one.copies) == ("505.mcf_r peak, iteration 2", "refrate", 2)
    assert (one.times_s, one.valid) == ({0: 30.5, 1: 0.25}, "RE")
    assert one.failures == {1: Failure(127, None)}
    assert one.folders == {1: "/opt/run/run_peak_refrate_oct12a.0001"}
    assert (one.reported_s, one.start_s) == (30.5, 1554561482.25)
    assert problems(file) == []


@pytest.mark.parametrize("width", [40, 57, 61, 79, 80, 100, 132])
@pytest.mark.parametrize("text", [OLD, NEW], ids=["2006", "2017"])
def test_wrapped_lines_are_joined_wherever_they_were_cut(text: str, width: int) -> None:
    assert read_from(read(wrapped(text, width))) == read_from(read(text))


def test_reference_times_are_worked_out_from_the_ratios() -> None:
    file = read(OLD)
    assert (file.iterations[0].reference_s, file.iterations[0].reference_derived) == (9770.0, True)
    assert recompute(file).disagreements == ()
    # 19.54 and 21.54 x 1000.125 / 2 are not one reference time: they differ by 10 %.
    other = read(OLD + OLD.replace("run 1", "run 2").replace("19.54", "21.54"))
    assert [one.what for one in recompute(other).disagreements] == ["ratio"]


def test_what_two_logs_in_one_file_repeat_counts_on() -> None:
    file = read(OLD + OLD + OLD)
    assert [one.iteration for one in file.iterations] == [1, 2, 3]
    assert all(one.times_s == {0: 999.375, 1: 1000.0} for one in file.iterations)
    assert "the file holds 3 logs; the second begins at line 23" in file.notes


def test_runs_of_small_inputs_are_left_out_beside_those_that_are_timed() -> None:
    small = OLD.replace("(base ref)", "(base test)").replace("base ref ratio", "base test ratio")
    file = read(small.replace("perlbench ref", "perlbench test") + OLD)
    assert [one.size for one in file.iterations] == ["ref"]
    assert file.notes[-1].startswith("1 runs of sizes test and train are left out")
    assert len(read(small).iterations) == 1  # they are all there is


def test_wrong_output_is_that_of_the_copy_whose_directory_is_named() -> None:
    text = OLD.replace(
        "Benchmark Times:",
        "*** Miscompare of a.out; for details see\n"
        "    /opt/spec/run/run_base_ref_gcc.0014/a.out.mis\n"
        "Benchmark Times:",
    ).replace(" Success", " Error")
    (one,) = read(text).iterations
    assert (one.valid, one.failures) == ("VE", {1: Failure(None, None, "a.out")})
    assert one.errors == ["Miscompare of a.out"]


def test_the_oldest_tools_tell_the_time_of_a_copy_in_other_words() -> None:
    lines = [line for line in OLD.splitlines() if not line.startswith(("Copy", "Workload"))]
    lines[9:9] = [
        f"copy {n} finished @ Fri Jul 14 15:02:20 2017.  Total elapsed time: {n + 7}"
        for n in (0, 1)
    ]
    (one,) = read("\n".join(lines)).iterations
    assert one.times_s == {0: 7.0, 1: 8.0}


def test_a_log_that_ends_early_has_what_came_before() -> None:
    file = read(OLD[: OLD.index("Benchmark Times")])
    assert file.iterations[0].times_s == {0: 999.375, 1: 1000.0}
    assert file.iterations[0].valid is None
    assert problems(file) == ["line 2: 400.perlbench base, iteration 1: its end is not in the file"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("time (0:1) = 500.25", "time (0:1) = soon", "line 11: not understood: 'Workload elapsed"),
        ("time: 999.375", "time: 998.375", "line 14: copy 0 of 400.perlbench base, iteration 1: "),
        ("Copy 1 of", "Copy 0 of", "line 15: a second time of copy 0 of 400.perlbench base"),
        ("Copy 1 of", "Copy 7 of", "line 15: copy 7 of 400.perlbench, which runs 2 copies"),
        ("1000 125000000 1000.125", "1000 125000000 1001", "line 21: reported 1001 s, but 1000 s"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(before: str, after: str, message: str) -> None:
    file = read(OLD.replace(before, after))
    assert any(problem.startswith(message) for problem in problems(file)), problems(file)
    assert len(file.iterations) == 1


def test_lines_of_other_programs_are_passed_over() -> None:
    noise = "Copy constructor called\ncopying\nRunning late\n Error in line 3\n  Start: x\n" * 3
    file = read(noise + OLD + noise)
    assert read_from(file) == read_from(read(OLD))
    assert problems(file) == []


def test_what_a_bracket_was_told_is_kept_where_its_end_is_missing() -> None:
    cut = NEW[: NEW.index("  Run Stop:")] + "  Run Reported: 00:00:30 (30 500000000 30.500000)\n"
    for text in (cut, cut + OLD, cut + "  Running (#1) 500.perlbench_r refrate (ref) base x\n"):
        one = read(text).iterations[0]
        assert one.times_s == {0: 30.5, 1: 0.25}
        assert one.failures == {1: Failure(127, None)}
        assert one.folders == {1: "/opt/run/run_peak_refrate_oct12a.0001"}
        assert one.binds[1] == "numactl -m 1 --physcpubind=5"
        assert (one.command or "").startswith("a.out")
        assert (one.reported_s, one.start_s, one.valid) == (30.5, 1554561482.25, None)


def test_an_end_that_cannot_be_read_costs_no_placement() -> None:
    (one,) = read(OLD.replace("ratio=19.54", "ratio=--")).iterations
    assert (one.binds, one.reported_s, one.copies) == (("0", "8"), 1000.125, 2)


def test_a_second_attempt_is_not_mixed_with_the_first() -> None:
    first = OLD[: OLD.index("Copy 1 of")]
    for again in (OLD, OLD[OLD.index("  Running") :]):
        file = read(first + again.replace("999.375", "998").replace("499.125", "497.75"))
        assert [(one.iteration, one.times_s) for one in file.iterations] == [
            (1, {0: 999.375}),
            (2, {0: 998.0, 1: 1000.0}),
        ]


@pytest.mark.parametrize(("end", "line"), [("elapsed time: 10", 15), ("1000 125000000 100", 21)])
def test_a_number_that_the_log_ends_in_is_not_used(end: str, line: int) -> None:
    at = OLD.rindex(end) + len(end)
    (one,) = (file := read(OLD[:at])).iterations
    assert 10 not in one.times_s.values() and one.reported_s is None
    assert f"line {line}: the file ends inside this line, its value is not used" in problems(file)


def test_a_log_in_utf8_is_one() -> None:
    text = OLD.replace('"host"', '"h\u00f6st"')
    assert read_log(io.BytesIO(text.encode()), "x").hostname == "h\u00f6st"
    assert read(text).hostname == "h\u00f6st"  # Latin-1


def test_a_line_of_blanks_does_not_take_long() -> None:
    line = "  Running 400.perlbench" + " " * 500_000 + "x\n"
    assert read(line * 3 + OLD).iterations[0].times_s == {0: 999.375, 1: 1000.0}
