"""Raw files and logs of SPEC CPU read, whole and broken, and what their times come to.

`RATER_FUZZ=20000` tries so many broken ones; `python -m tests.support.spec_reading SEED COUNT
FOLDER` runs a campaign and keeps an input that breaks something.
"""

from __future__ import annotations

import base64
import bz2
import hashlib
import os
import zlib
from pathlib import Path

import pytest

from rater.speccpu.config import keys
from rater.speccpu.config.binding import read_binding
from rater.speccpu.config.config import read_config
from rater.speccpu.results.csv_report import read_table
from rater.speccpu.results.log import read_log
from rater.speccpu.results.read import to_import
from rater.speccpu.results.recompute import recompute, recompute_rotated
from rater.speccpu.results.result import Failure, Lines, SpecFile
from rater.speccpu.results.rsf import read_rsf, unpack
from rater.store.store import open_store
from rater.system.errors import InputError
from tests.support.places import SAMPLES
from tests.support.raw_files import HEAD, NEW, OLD, bracket, pack
from tests.support.spec_fuzz import inputs, originals
from tests.support.spec_reading import read as read_anything


def read(text: str | bytes) -> SpecFile:
    data = text.encode() if isinstance(text, str) else text
    return read_rsf(Lines(data), "some.rsf")


def problems(file: SpecFile) -> list[str]:
    return [str(problem) for problem in file.problems]


def test_every_copy_has_its_time_and_the_bracket_what_the_file_reports() -> None:
    file = read(HEAD + bracket())
    (one,) = file.iterations
    assert (one.benchmark, one.tune, one.iteration, one.copies) == ("400.perlbench", "base", 1, 2)
    assert one.times_s == {0: 400.0, 1: 500.0}
    assert (one.reported_s, one.reference_s, one.selected, one.valid) == (500, 5000, True, "S")
    assert (file.suite, file.metric, file.size) == ("cpu2006", "CINT2006", "ref")
    assert file.started_s == 1557939394
    assert problems(file) == []


def test_ratio_selection_and_mean_are_worked_out_again() -> None:
    text = (
        HEAD
        + bracket(0, reported=400, times=(400, 300), ratio=25, selected=0)
        + bracket(1, selected=1)
        + bracket(2, reported=625, times=(625, 300), ratio=16, selected=0)
    )
    result = recompute(read(text))
    assert result.disagreements == ()
    (benchmark,) = result.benchmarks
    assert benchmark.ratios == ((1, 25.0), (2, 20.0), (3, 16.0))
    assert (benchmark.selected, benchmark.ratio) == (2, 20.0)  # of three the median
    assert [(tune, round(mean or 0, 9)) for tune, mean in result.means] == [("base", 20.0)]
    assert result.compared == 5  # three ratios, the selection, the mean


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        (
            bracket(0, reported=400, ratio=25, times=(400, 9), selected=0) + bracket(1),
            20,
        ),  # of two the slower
        (bracket(times=(500,), ratio=10, more="rate: 0"), 10),  # speed: no copies in it
        (bracket(suite="cpu2000", benchmark="164_gzip", copies="users", ratio=23.2), 23.2258),
    ],
)
def test_each_kind_of_run_has_its_ratio(text: str, ratio: float) -> None:
    result = recompute(read(text))
    assert result.benchmarks[0].ratio == pytest.approx(ratio, rel=1e-4)
    assert result.disagreements == ()


@pytest.mark.parametrize(
    ("end", "encoding", "mark"),
    [("\r\n", "latin-1", ""), ("\n", "utf-8", ""), ("\n", "utf-8", "\ufeff")],
)
def test_line_ends_and_alphabets_do_no_harm(end: str, encoding: str, mark: str) -> None:
    text = f"{mark}spec.cpu2006.hw_vendor: Soci\u00e9t\u00e9\n{bracket()}"
    data = text.replace("\n", end).encode(encoding)
    file = read(data)
    assert file.iterations[0].times_s == {0: 400.0, 1: 500.0}
    assert (file.facts["hw_vendor"], problems(file)) == ("Soci\u00e9t\u00e9", [])
    assert file.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD + bracket(ratio=21),
            "line 10: 400.perlbench base, iteration 1: ratio 21.000000, worked out 20.000000",
        ),
        (
            HEAD.replace("20.0", "20.1") + bracket(),
            "line 4: base over 1 benchmark: geometric mean 20.100000, worked out 20.000000",
        ),
        (
            bracket(0, selected=1)
            + bracket(1, reported=400, ratio=25, selected=0)
            + bracket(2, reported=450, ratio=22.222222, selected=0),
            "line 7: 400.perlbench base: selected iteration 1, worked out 3",
        ),
    ],
)
def test_where_the_file_disagrees_with_its_own_numbers_is_said(text: str, message: str) -> None:
    found = [str(disagreement) for disagreement in recompute(read(text)).disagreements]
    assert message.split(": ", 1)[1] in [one.split(": ", 1)[1] for one in found]


def test_statistics_of_cpu2026_are_checked() -> None:
    more = "time_avg: 450.000000\nratio_avg: 22.500000\ntime_cv: 0.111111"
    text = bracket(suite="cpu2026", benchmark="706_stockfish_r", copies="copies", more=more)
    text += "spec.cpu2026.results.706_stockfish_r.base.time_avg: 450.000000\n"
    file = read(text)
    assert file.suite == "cpu2026"
    result = recompute(file)
    assert (result.compared, result.disagreements) == (6, ())
    wrong = recompute(read(text.replace("time_avg: 450", "time_avg: 451")))
    assert [(disagreement.what, disagreement.own) for disagreement in wrong.disagreements] == [
        ("time_avg", "450.000000"),
        ("time_avg", "450.000000"),
    ]


def test_a_copy_that_the_errors_name_failed() -> None:
    more = "errors000: copy 1 non-zero return code (exit code=0, signal=11)\nrc: 11"
    file = read(bracket(more=more).replace("valid: S", "valid: RE"))
    (one,) = file.iterations
    assert one.failures == {1: Failure(None, 11)}
    assert not one.good
    assert recompute(file).benchmarks[0].ratio is None


def test_seconds_and_nanoseconds_stand_for_a_time_that_is_missing() -> None:
    text = bracket().replace("reported_time: 500.000000", "reported_sec: 499")
    text += "spec.cpu2006.results.400_perlbench.base.000.reported_nsec: 250000000\n"
    assert read(text).iterations[0].reported_s == 499.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense\n" + bracket(), "line 1: no `key: value` line: 'nonsense'"),
        (bracket(more="copytime002: soon"), "line 10: copytime002: no number: 'soon'"),
        (bracket(more="copytime002: -1"), "line 10: copytime002: no time: '-1'"),
        (bracket(more="copytime002: 1e300"), "line 10: copytime002: no time: '1e300'"),
        (
            bracket(more="copytime001: 7"),
            "line 10: a second time of copy 1 of 400.perlbench base, iteration 1; "
            "the first is kept",
        ),
        (bracket() + "spec.cpu2006.results.a.base: 1\n", "line 10: no key of a result"),
        (bracket() + "spec.cpu2006.results.a.base.x.valid: S\n", "line 10: no number of an"),
        (
            bracket(more="copytime002: 5"),
            "line 1: 400.perlbench base, iteration 1: a time of copy 2, but 2 copies",
        ),
        (bracket(more="copytime9999999: 1"), "line 10: no number of a copy: copytime'9999999'"),
        (bracket(more="threads: many"), "line 10: threads: no whole number: 'many'"),
        (bracket().replace("clcopies: 2", "clcopies: 999999"), "line 2: 999999 copies are more"),
        (bracket() + "spec.cpu2017.size: ref\n", "line 10: keys of another suite (cpu2017)"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(text: str, message: str) -> None:
    file = read(text)
    assert any(problem.startswith(message) for problem in problems(file)), problems(file)
    assert file.iterations[0].times_s[0] == 400.0


def test_a_number_that_the_file_ends_in_is_not_used() -> None:
    whole = bracket()
    cut = whole[: whole.index("500.000000") + 2]  # copytime001: 50
    file = read(cut)
    assert file.iterations[0].times_s == {0: 400.0}
    assert problems(file)[0].startswith("line 4: the file ends inside this line")


def test_a_line_of_megabytes_is_left_out_and_its_number_said() -> None:
    data = bracket().encode() + b"x" * (3 << 20) + b"\n" + bracket(1).encode()
    file = read(data)
    assert [iteration.iteration for iteration in file.iterations] == [1, 2]
    assert problems(file) == ["line 10: longer than 1 MiB, not read"]
    assert file.iterations[1].line == 11


def test_a_packed_text_is_unpacked() -> None:
    text = "".join(
        f"bind{number} = n\u20acumactl --physcpubind={number * number % 97}\n"
        for number in range(64)
    )
    pieces = dict(enumerate(pack(text)))
    assert len(pieces) > 1
    assert unpack(pieces) == text
    # As SPEC's tools pack it: one byte, the length, a bzip2 stream.
    data = b"\xf0\x00\x00\x00\x0a" + bz2.compress(b"bind0 = 0\n")
    assert unpack({0: "&" + base64.b64encode(data).decode()}) == "bind0 = 0\n"
    for plain in (bz2.compress(b"bind0 = 0\n"), zlib.compress(b"bind0 = 0\n")):  # newer kits
        assert unpack({0: "&" + base64.b64encode(plain).decode()}) == "bind0 = 0\n"
    with pytest.raises(ValueError, match="it is cut off"):
        unpack({0: "&" + base64.b64encode(data[:4] + b"\x0b" + data[5:]).decode()})


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ({0: "@eN", 2: "x"}, "piece 001 of 3 is missing"),
        ({0: "!abc"}, "packed in a way that is not known"),
        ({0: "@@@@"}, "no base64"),
        ({0: "@AAAA"}, "cannot be unpacked"),
        ({0: "&8AAAAA"}, "no base64|cannot be unpacked|shorter"),
    ],
)
def test_what_is_wrong_with_a_packed_text_is_said(pieces: dict[int, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack(pieces)


def test_the_mean_is_over_the_benchmarks_that_have_a_ratio() -> None:
    """20 and 5 make 10; what was not run is in no mean."""
    text = (
        HEAD.replace("20.0", "10.0")
        + bracket()
        + bracket(benchmark="401_bzip2", reported=2000, times=(2000, 1000), ratio=5)
        + "spec.cpu2006.results.403_gcc.base.000.valid: NR\n"
        + "spec.cpu2006.results.403_gcc.base.000.iteration: -1\n"
    )
    result = recompute(read(text))
    assert [(tune, round(mean or 0, 9)) for tune, mean in result.means] == [("base", 10.0)]
    assert result.disagreements == ()


def test_a_ratio_that_is_not_rounded_says_so_with_minus_one() -> None:
    file = read(HEAD + bracket(more="dp: -1"))
    assert problems(file) == []
    assert recompute(file).disagreements == ()


@pytest.mark.parametrize("name", ["801.xz_s", "829.abc_s", "881.neutron_s"])
def test_numbers_from_800_are_speed_benchmarks_of_cpu2026(name: str) -> None:
    assert keys.suite_of(name) == "cpu2026"
    assert keys.category(name, "cpu2026") == ("fp" if name.startswith("88") else "int")
    assert not keys.is_whole([name])


TABLE = """\
valid,1
"SPEC CPU2017 Integer Rate Result"
"Full Results Table"
Benchmark,"Base # Copies","Est. Base Run Time","Est. Base Rate",\
"Base Selected","Base Status",Description,"Peak # Copies",\
"Est. Peak Run Time","Est. Peak Rate","Peak Selected","Peak Status",Description
500.perlbench_r,4,100.0,63.680000,0,S,"refrate(ref) iteration #1",4,50.0,127.360000,1,S,""
500.perlbench_r,4,200.0,31.840000,1,S,"refrate(ref) iteration #2",,,,,,
505.mcf_r,4,,,,RE,"refrate(ref) iteration #1",,,,,,

"Selected Results Table"
Benchmark,"Base # Copies","Base Run Time","Base Rate"
500.perlbench_r,4,200.0,31.840000
"""


def test_a_csv_report_has_an_iteration_in_each_row() -> None:
    file = read_table(Lines(TABLE.encode()), "report.csv")
    assert [
        (iteration.benchmark, iteration.tune, iteration.iteration, iteration.copies)
        for iteration in file.iterations
    ] == [
        ("500.perlbench_r", "base", 1, 4),
        ("500.perlbench_r", "peak", 1, 4),
        ("500.perlbench_r", "base", 2, 4),
        ("505.mcf_r", "base", 1, 4),
    ]
    assert [iteration.reported_s for iteration in file.iterations] == [100.0, 50.0, 200.0, None]
    assert [iteration.valid for iteration in file.iterations] == ["S", "S", "S", "RE"]
    assert (file.suite, file.size, file.iterations[0].reference_s) == ("cpu2017", "refrate", 1592.0)
    assert problems(file) == [] and recompute(file).disagreements == ()


def test_ratios_of_many_copies_come_from_quotients_of_six_decimals() -> None:
    times_s = (998.344268, 996.814365, 996.673647)
    rows = [
        f"500.perlbench_r,192,{time_s:.6f},{192 * round(1592 / time_s, 6):.6f},,S"
        for time_s in times_s
    ]
    head = 'Benchmark,"Base # Copies","Base Run Time","Base Rate","Base Selected","Base Status"'
    file = read_table(Lines("\n".join([head, *rows]).encode()), "report.csv")
    assert [iteration.reference_s for iteration in file.iterations] == [1592.0] * 3
    assert recompute(file).disagreements == ()
    wrong = rows[0].replace("306.1", "307.1")
    assert wrong != rows[0]
    file = read_table(Lines("\n".join([head, wrong, *rows[1:]]).encode()), "report.csv")
    assert [str(one).split(":")[0] for one in recompute(file).disagreements] == ["line 2"]


FACTS = """"Hardware Vendor:","Vendor, One"
"Hardware Model:","Rack 930"
"Test date:",Dec-2024
"Test date:",Jan-2025

HARDWARE

"CPU Name","AMD EPYC 7763"
"CPU MHz:",2450
SOFTWARE
Compiler:,"C/C++: Version 1 of A"
,"Fortran: Version 2 of B"
"Parallel:",No
"""


def test_a_csv_report_names_its_machine_as_a_raw_file_does() -> None:
    file = read_table(Lines((TABLE + FACTS).replace("\n", "\r\n").encode()), "report.csv")
    assert file.facts == {
        "hw_vendor": "Vendor, One",
        "hw_model": "Rack 930",
        "test_date": "Dec-2024",
        "hw_cpu_name": "AMD EPYC 7763",
        "sw_compiler": "C/C++: Version 1 of A Fortran: Version 2 of B",
    }
    host = to_import(file, None).stored.host
    assert (host.product, host.cpu_model) == ("Vendor, One Rack 930", "AMD EPYC 7763")


def test_a_csv_report_of_threads_is_one_of_speed() -> None:
    text = (
        'Benchmark,"Base # Threads","Base Run Time","Base Ratio","Base Selected","Base Status"\n'
        "801.xz_s,16,100.0,20.000000,1,S\n801.xz_s,16,125.0,16.000000,0,S\n"
    )
    first, second = read_table(Lines(text.encode()), "speed.csv").iterations
    assert (first.threads, first.copies, first.rate, first.reference_s) == (16, 1, False, 2000.0)
    assert (second.iteration, second.selected) == (2, False)


def test_a_torn_configuration_costs_only_the_placement() -> None:
    file = read("spec.cpu2006.rawconfig000: @broken\n" + bracket())
    assert file.config is None
    assert problems(file)[0].startswith("line 1: the configuration inside (rawconfig)")
    assert len(file.iterations) == 1


def test_a_name_that_the_file_ends_in_is_not_used() -> None:
    text = bracket() + bracket(benchmark="429_mcf")
    file = read(text[: text.index("benchmark: 429.mcf") + len("benchmark: 429.m")])
    assert [iteration.benchmark for iteration in file.iterations] == ["400.perlbench"]
    assert problems(file)[-1].startswith("line 10: the file ends inside this line")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("benchmark: 429.mcf", "a second benchmark of 400.perlbench base, iteration 1; the first"),
        ("ratio: 99", "line 10: a second ratio of 400.perlbench base, iteration 1; the first is"),
        ("iteration: 5", "line 10: iteration: 5, but the key says 000: the key holds"),
        ("reported_sec: 5\nreported_nsec: 0", "reported_time 500.000000, but reported_sec and"),
    ],
)
def test_what_contradicts_itself_is_named(more: str, message: str) -> None:
    file = read(bracket(more=more))
    assert any(message in problem for problem in problems(file)), problems(file)
    (one,) = file.iterations
    assert (one.benchmark, one.iteration, one.reported_s) == ("400.perlbench", 1, 500)
    assert one.ratio is not None and one.ratio.value == 20


def test_a_benchmark_that_its_key_contradicts_is_not_merged_with_another() -> None:
    other = bracket(benchmark="429_mcf").replace("benchmark: 429.mcf", "benchmark: 400.perlbench")
    file = read(bracket() + other)
    assert [iteration.benchmark for iteration in file.iterations] == ["400.perlbench", "429.mcf"]
    assert problems(file) == [
        "line 10: benchmark: '400.perlbench', but the key says 429.mcf: the key holds"
    ]


def test_a_bracket_shorter_than_its_slowest_copy_is_a_disagreement() -> None:
    text = bracket(reported=100, ratio=100)
    found = [
        (disagreement.what, disagreement.file, disagreement.own)
        for disagreement in recompute(read(text)).disagreements
    ]
    assert found == [("time of the bracket", "100.000000", "500.000000 of copy 1")]


def test_without_reference_times_the_brackets_tell_the_selection() -> None:
    texts = [
        bracket(number, reported=s, times=(s,), selected=chosen)
        for number, s, chosen in ((0, 400, 0), (1, 500, 1), (2, 625, 0))
    ]
    text = "".join(texts).replace("reference: 5000", "reference: --")
    text = text.replace("ratio: 20.000000", "ratio: --")
    result = recompute(read(text))
    assert (result.disagreements, result.benchmarks[0].selected) == ((), 2)
    wrong = text.replace("000.selected: 0", "000.selected: 1").replace(
        "001.selected: 1", "001.x: 1"
    )
    assert [
        (disagreement.file, disagreement.own)
        for disagreement in recompute(read(wrong)).disagreements
    ] == [("1", "2")]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("time_sd", 50.0),  # of 400 and 500, over n
        ("time_variance", 2500.0),
        ("time_q1", 425.0),
        ("time_q1", 400.0),  # the median of the lower half
        ("time_iqr", 50.0),
    ],
)
def test_the_spread_of_times_is_checked(key: str, value: float) -> None:
    good = recompute(read(bracket(suite="cpu2026", more=f"{key}: {value:.6f}")))
    assert good.disagreements == ()
    wrong = recompute(read(bracket(suite="cpu2026", more=f"{key}: {value * 1.01:.6f}")))
    assert [disagreement.what for disagreement in wrong.disagreements] == [key]


def test_the_mean_of_a_set_that_is_not_whole_is_0_in_the_file() -> None:
    text = HEAD.replace("20.000000", "0") + bracket()
    assert recompute(read(text)).disagreements == ()
    assert recompute(read(HEAD.replace("20.000000", "1") + bracket())).disagreements != ()


def test_roll_ups_of_rolling_round_robin_are_checked() -> None:
    at = "spec.cpu2026.results.706_stockfish_r.base"
    text = "".join(
        bracket(
            number,
            benchmark="706_stockfish_r",
            suite="cpu2026",
            copies="copies",
            times=(time_s,),
            reported=time_s,
            more="runmode: rrrate",
        ).replace("copies: 1", "copies: 2")
        for number, time_s in enumerate(
            (10.0, 20.0, 12.0, 24.0)
        )  # copies 0 1 0 1: medians 11 and 22
    )
    text += f"{at}.time_avg: 16.500000\n{at}.time_cv: 0.333333\n"
    result = recompute_rotated(read(text))
    assert (result.compared, result.disagreements) == (2, ())
    wrong = recompute_rotated(read(text.replace("16.5", "16.6")))
    assert [(disagreement.what, disagreement.own) for disagreement in wrong.disagreements] == [
        ("time_avg", "16.500000")
    ]


def test_a_copy_of_no_time_at_all_is_none() -> None:
    file = read(bracket(times=(0, 500)))
    assert file.iterations[0].times_s == {1: 500.0}
    assert problems(file) == [
        "line 1: 400.perlbench base, iteration 1: 0 s is no time of a copy: copies 0"
    ]


def test_facts_in_several_lines_are_joined() -> None:
    text = "spec.cpu2006.hw_model000: Box 5000\nspec.cpu2006.hw_model001: (2.1 GHz)\n" + bracket()
    assert read(text).facts["hw_model"] == "Box 5000 (2.1 GHz)"


def test_nodes_are_those_of_sysinfo() -> None:
    lines = [
        "From lscpu:",
        "NUMA node0 CPU(s):  0,2",
        "NUMA node1 CPU(s): 1,3",
        "node 0 cpus: 0",
        "2",
        "node 0 size: 5 MB",
        "4",
        "node 1 cpus: 1 3",
    ]
    text = "".join(
        f"spec.cpu2006.notes_plat_sysinfo_{number:03}:  {line}\n"
        for number, line in enumerate(lines)
    )
    file = read(text + bracket())
    assert (file.node_of, file.notes) == ({0: 0, 2: 0, 1: 1, 3: 1}, [])
    by_lscpu = read(text.split("spec.cpu2006.notes_plat_sysinfo_003")[0] + bracket())
    assert by_lscpu.node_of == {0: 0, 2: 0, 1: 1, 3: 1}


def read_old_log(text: str) -> SpecFile:
    return read_log(Lines(text.encode("latin-1")), "some.log")


def wrapped(text: str, width: int) -> str:
    return "\n".join(
        line[at : at + width]
        for line in text.split("\n")
        for at in range(0, max(1, len(line)), width)
    )


def read_from(file: SpecFile) -> list[tuple[object, ...]]:
    return [
        (
            iteration.name,
            iteration.size,
            iteration.copies,
            iteration.times_s,
            iteration.valid,
            iteration.reported_s,
            iteration.reference_s,
        )
        + (
            iteration.failures,
            iteration.binds,
            iteration.start_s,
            iteration.errors,
            iteration.folders,
            iteration.workloads_s,
        )
        for iteration in file.iterations
    ]


def test_a_log_of_cpu2006_has_copies_workloads_and_what_was_reported() -> None:
    file = read_old_log(OLD)
    (iteration,) = file.iterations
    assert (file.suite, file.hostname, file.size) == ("cpu2006", "host", "ref")
    assert (iteration.name, iteration.copies, iteration.valid) == (
        "400.perlbench base, iteration 1",
        2,
        "S",
    )
    assert iteration.times_s == {0: 999.375, 1: 1000.0}
    assert {copy: list(times) for copy, times in iteration.workloads_s.items()} == {
        0: [500.25, 499.125],
        1: [500.5, 499.5],
    }
    assert (iteration.reported_s, iteration.start_s, iteration.binds) == (
        1000.125,
        1500061544,
        ("0", "8"),
    )
    assert problems(file) == []


def test_a_log_of_cpu2017_has_iterations_failures_and_error_codes() -> None:
    (iteration,) = (file := read_old_log(NEW)).iterations
    assert (file.suite, file.hostname) == ("cpu2017", "node7")
    assert (iteration.name, iteration.size, iteration.copies) == (
        "505.mcf_r peak, iteration 2",
        "refrate",
        2,
    )
    assert (iteration.times_s, iteration.valid) == ({0: 30.5, 1: 0.25}, "RE")
    assert iteration.failures == {1: Failure(127, None)}
    assert iteration.folders == {1: "/opt/run/run_peak_refrate_oct12a.0001"}
    assert (iteration.reported_s, iteration.start_s) == (30.5, 1554561482.25)
    assert problems(file) == []


@pytest.mark.parametrize("width", [40, 57, 61, 79, 80, 100, 132])
@pytest.mark.parametrize("text", [OLD, NEW], ids=["2006", "2017"])
def test_wrapped_lines_are_joined_wherever_they_were_cut(text: str, width: int) -> None:
    assert read_from(read_old_log(wrapped(text, width))) == read_from(read_old_log(text))


def test_reference_times_are_worked_out_from_the_ratios() -> None:
    file = read_old_log(OLD)
    assert (file.iterations[0].reference_s, file.iterations[0].reference_derived) == (9770.0, True)
    assert recompute(file).disagreements == ()
    # 19.54 and 21.54 x 1000.125 / 2 are not one reference time: they differ by 10 %.
    other = read_old_log(OLD + OLD.replace("run 1", "run 2").replace("19.54", "21.54"))
    assert [disagreement.what for disagreement in recompute(other).disagreements] == ["ratio"]


def test_what_two_logs_in_one_file_repeat_counts_on() -> None:
    file = read_old_log(OLD + OLD + OLD)
    assert [iteration.iteration for iteration in file.iterations] == [1, 2, 3]
    assert all(iteration.times_s == {0: 999.375, 1: 1000.0} for iteration in file.iterations)
    assert "the file holds 3 logs; the second begins at line 23" in file.notes


def test_runs_of_small_inputs_are_left_out_beside_those_that_are_timed() -> None:
    small = OLD.replace("(base ref)", "(base test)").replace("base ref ratio", "base test ratio")
    file = read_old_log(small.replace("perlbench ref", "perlbench test") + OLD)
    assert [iteration.size for iteration in file.iterations] == ["ref"]
    assert file.notes[-1].startswith("1 runs of sizes test and train are left out")
    assert len(read_old_log(small).iterations) == 1  # they are all there is


def test_wrong_output_is_that_of_the_copy_whose_directory_is_named() -> None:
    text = OLD.replace(
        "Benchmark Times:",
        "*** Miscompare of a.out; for details see\n"
        "    /opt/spec/run/run_base_ref_gcc.0014/a.out.mis\n"
        "Benchmark Times:",
    ).replace(" Success", " Error")
    (one,) = read_old_log(text).iterations
    assert (one.valid, one.failures) == ("VE", {1: Failure(None, None, "a.out")})
    assert one.errors == ["Miscompare of a.out"]


def test_the_oldest_tools_tell_the_time_of_a_copy_in_other_words() -> None:
    lines = [line for line in OLD.splitlines() if not line.startswith(("Copy", "Workload"))]
    lines[9:9] = [
        f"copy {number} finished @ Fri Jul 14 15:02:20 2017.  Total elapsed time: {number + 7}"
        for number in (0, 1)
    ]
    (one,) = read_old_log("\n".join(lines)).iterations
    assert one.times_s == {0: 7.0, 1: 8.0}


def test_a_log_that_ends_early_has_what_came_before() -> None:
    file = read_old_log(OLD[: OLD.index("Benchmark Times")])
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
def test_what_cannot_be_read_in_a_log_is_named_by_its_line(
    before: str, after: str, message: str
) -> None:
    file = read_old_log(OLD.replace(before, after))
    assert any(problem.startswith(message) for problem in problems(file)), problems(file)
    assert len(file.iterations) == 1


def test_lines_of_other_programs_are_passed_over() -> None:
    noise = "Copy constructor called\ncopying\nRunning late\n Error in line 3\n  Start: x\n" * 3
    file = read_old_log(noise + OLD + noise)
    assert read_from(file) == read_from(read_old_log(OLD))
    assert problems(file) == []


def test_what_a_bracket_was_told_is_kept_where_its_end_is_missing() -> None:
    cut = NEW[: NEW.index("  Run Stop:")] + "  Run Reported: 00:00:30 (30 500000000 30.500000)\n"
    for text in (cut, cut + OLD, cut + "  Running (#1) 500.perlbench_r refrate (ref) base x\n"):
        iteration = read_old_log(text).iterations[0]
        assert iteration.times_s == {0: 30.5, 1: 0.25}
        assert iteration.failures == {1: Failure(127, None)}
        assert iteration.folders == {1: "/opt/run/run_peak_refrate_oct12a.0001"}
        assert iteration.binds[1] == "numactl -m 1 --physcpubind=5"
        assert (iteration.command or "").startswith("a.out")
        assert (iteration.reported_s, iteration.start_s, iteration.valid) == (
            30.5,
            1554561482.25,
            None,
        )


def test_an_end_that_cannot_be_read_costs_no_placement() -> None:
    (one,) = read_old_log(OLD.replace("ratio=19.54", "ratio=--")).iterations
    assert (one.binds, one.reported_s, one.copies) == (("0", "8"), 1000.125, 2)


def test_a_second_attempt_is_not_mixed_with_the_first() -> None:
    first = OLD[: OLD.index("Copy 1 of")]
    for again in (OLD, OLD[OLD.index("  Running") :]):
        file = read_old_log(first + again.replace("999.375", "998").replace("499.125", "497.75"))
        assert [(iteration.iteration, iteration.times_s) for iteration in file.iterations] == [
            (1, {0: 999.375}),
            (2, {0: 998.0, 1: 1000.0}),
        ]


@pytest.mark.parametrize(("end", "line"), [("elapsed time: 10", 15), ("1000 125000000 100", 21)])
def test_a_number_that_the_log_ends_in_is_not_used(end: str, line: int) -> None:
    at = OLD.rindex(end) + len(end)
    (one,) = (file := read_old_log(OLD[:at])).iterations
    assert 10 not in one.times_s.values() and one.reported_s is None
    assert f"line {line}: the file ends inside this line, its value is not used" in problems(file)


def test_a_log_in_utf8_is_one() -> None:
    text = OLD.replace('"host"', '"h\u00f6st"')
    assert read_log(Lines(text.encode()), "x").hostname == "h\u00f6st"
    assert read_old_log(text).hostname == "h\u00f6st"  # Latin-1


def test_a_line_of_blanks_does_not_take_long() -> None:
    line = "  Running 400.perlbench" + " " * 500_000 + "x\n"
    assert read_old_log(line * 3 + OLD).iterations[0].times_s == {0: 999.375, 1: 1000.0}


INPUTS = int(os.environ.get("RATER_FUZZ", "300"))


@pytest.mark.slow
def test_no_broken_file_breaks_the_readers(tmp_path: Path) -> None:
    with open_store(tmp_path / "fuzz.db") as store:
        for data in inputs(1, INPUTS, originals(SAMPLES)):
            read_anything(data, store)
        assert store.runs() == ()


def test_the_whole_files_that_are_broken_are_good_ones(tmp_path: Path) -> None:
    with open_store(tmp_path / "fuzz.db") as store:
        for data in originals():
            read_anything(data, store)
    file = read_rsf(Lines(originals()[0]), "whole")
    assert file.config is not None and len(file.iterations) == 2
    assert len(read_log(Lines(originals()[1]), "whole").iterations) == 2


@pytest.mark.slow
def test_files_made_to_take_long_do_not() -> None:
    """What is quadratic in them would take minutes."""
    read_config("a <<EOT\n" * 50_000)
    read_config("%if 1\n" * 20_000)
    read_config("".join(f"a{number}=b:\nbind{number} = {number}\n" for number in range(20_000)))
    for line in (b"Copy 1 of\n", b"Workload elapsed time (", b"  Running 400.a \n    -b x\n"):
        read_log(Lines(line * 100_000), "log")
    read_rsf(Lines(b"spec.cpu2006.results.a.base.000.copytime001: 1\n" * 100_000), "rsf")
    read_binding('"' * 20_000)
    read_binding("$((" * 5_000)
    read_binding("numactl -l" + "l" * 5_000)


def test_a_log_of_more_benchmarks_than_there_are_is_refused_before_it_fills_the_memory() -> None:
    line = "Copy 0 of {}.b (base ref) run 1 finished at Fri Jul 14 14:52:21 2017.  "
    text = "".join(line.format(number) + "Total elapsed time: 1.5\n" for number in range(10_001))
    with pytest.raises(InputError, match=r"it\.log: more than 10000"):
        read_log(Lines(text.encode()), "it.log")
