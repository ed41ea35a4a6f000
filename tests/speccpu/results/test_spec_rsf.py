"""Raw files of SPEC CPU read, and what their times come to."""

from __future__ import annotations

import base64
import bz2
import hashlib
import io

import pytest

from rater.record.run import CopyStatus
from rater.speccpu.recompute import recompute, recompute_rotated
from rater.speccpu.result import Failure, SpecFile
from rater.speccpu.rsf import read_rsf, unpack
from tests.support.raw_files import HEAD, bracket, pack


def read(text: str | bytes) -> SpecFile:
    data = text.encode() if isinstance(text, str) else text
    return read_rsf(io.BytesIO(data), "some.rsf")


def problems(file: SpecFile) -> list[str]:
    return [str(problem) for problem in file.problems]


def test_every_copy_has_its_time_and_the_bracket_what_the_file_reports() -> None:
    file = read(HEAD + bracket())
    (one,) = file.iterations
    assert (one.benchmark, one.tune, one.iteration, one.copies) == ("400.perlbench", "base", 0, 2)
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
    assert benchmark.ratios == ((0, 25.0), (1, 20.0), (2, 16.0))
    assert (benchmark.selected, benchmark.ratio) == (1, 20.0)  # of three the median
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
            "line 10: 400.perlbench base, iteration 0: ratio 21.000000, worked out 20.000000",
        ),
        (
            HEAD.replace("20.0", "20.1") + bracket(),
            "line 4: base over 1 benchmark: geometric mean 20.100000, worked out 20.000000",
        ),
        (
            bracket(0, selected=1)
            + bracket(1, reported=400, ratio=25, selected=0)
            + bracket(2, reported=450, ratio=22.222222, selected=0),
            "line 7: 400.perlbench base: selected iteration 0, worked out 2",
        ),
    ],
)
def test_where_the_file_disagrees_with_its_own_numbers_is_said(text: str, message: str) -> None:
    found = [str(one) for one in recompute(read(text)).disagreements]
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
    assert [(one.what, one.own) for one in wrong.disagreements] == [
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
            "line 10: a second time of copy 1 of 400.perlbench base, iteration 0; "
            "the first is kept",
        ),
        (bracket() + "spec.cpu2006.results.a.base: 1\n", "line 10: no key of a result"),
        (bracket() + "spec.cpu2006.results.a.base.x.valid: S\n", "line 10: no number of an"),
        (
            bracket(more="copytime002: 5"),
            "line 1: 400.perlbench base, iteration 0: a time of copy 2, but 2 copies",
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
    assert [one.iteration for one in file.iterations] == [0, 1]
    assert problems(file) == ["line 10: longer than 1 MiB, not read"]
    assert file.iterations[1].line == 11


def test_a_packed_text_is_unpacked() -> None:
    text = "".join(f"bind{n} = n\u20acumactl --physcpubind={n * n % 97}\n" for n in range(64))
    pieces = dict(enumerate(pack(text)))
    assert len(pieces) > 1
    assert unpack(pieces) == text
    # As SPEC's tools pack it: one byte, the length, a bzip2 stream.
    data = b"\xf0\x00\x00\x00\x0a" + bz2.compress(b"bind0 = 0\n")
    assert unpack({0: "&" + base64.b64encode(data).decode()}) == "bind0 = 0\n"
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


def test_a_torn_configuration_costs_only_the_placement() -> None:
    file = read("spec.cpu2006.rawconfig000: @broken\n" + bracket())
    assert file.config is None
    assert problems(file)[0].startswith("line 1: the configuration inside (rawconfig)")
    assert len(file.iterations) == 1


def test_failures_in_the_words_of_our_own_export_are_read() -> None:
    more = (
        "errors000: copy 0: output miscompare:\n"
        "errors001: copy 1: output miscompare: a.out\n"
        "errors002: copy 2: timeout\n"
        "errors003: copy 2 non-zero return code (exit code=0, signal=15)\n"
        "errors004: copy 3 non-zero return code (exit code=0, signal=2)\n"
        "errors005: copy 3: interrupted\n"
        "errors006: copy 4: failed"
    )
    (one,) = read(bracket(more=more)).iterations
    assert one.failures == {
        0: Failure(None, None, ""),
        1: Failure(None, None, "a.out"),
        2: Failure(None, 15, None, CopyStatus.TIMEOUT),
        3: Failure(None, 2, None, CopyStatus.INTERRUPTED),
        4: Failure(None, None),
    }


def test_a_name_that_the_file_ends_in_is_not_used() -> None:
    text = bracket() + bracket(benchmark="429_mcf")
    file = read(text[: text.index("benchmark: 429.mcf") + len("benchmark: 429.m")])
    assert [one.benchmark for one in file.iterations] == ["400.perlbench"]
    assert problems(file)[-1].startswith("line 10: the file ends inside this line")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("benchmark: 429.mcf", "a second benchmark of 400.perlbench base, iteration 0; the first"),
        ("ratio: 99", "line 10: a second ratio of 400.perlbench base, iteration 0; the first is"),
        ("iteration: 5", "line 10: iteration: 5, but the key says 000: the key holds"),
        ("reported_sec: 5\nreported_nsec: 0", "reported_time 500.000000, but reported_sec and"),
    ],
)
def test_what_contradicts_itself_is_named(more: str, message: str) -> None:
    file = read(bracket(more=more))
    assert any(message in problem for problem in problems(file)), problems(file)
    (one,) = file.iterations
    assert (one.benchmark, one.iteration, one.reported_s) == ("400.perlbench", 0, 500)
    assert one.ratio is not None and one.ratio.value == 20


def test_a_benchmark_that_its_key_contradicts_is_not_merged_with_another() -> None:
    other = bracket(benchmark="429_mcf").replace("benchmark: 429.mcf", "benchmark: 400.perlbench")
    file = read(bracket() + other)
    assert [one.benchmark for one in file.iterations] == ["400.perlbench", "429.mcf"]
    assert problems(file) == [
        "line 10: benchmark: '400.perlbench', but the key says 429.mcf: the key holds"
    ]


def test_a_bracket_shorter_than_its_slowest_copy_is_a_disagreement() -> None:
    text = bracket(reported=100, ratio=100)
    found = [(one.what, one.file, one.own) for one in recompute(read(text)).disagreements]
    assert found == [("time of the bracket", "100.000000", "500.000000 of copy 1")]


def test_without_reference_times_the_brackets_tell_the_selection() -> None:
    texts = [
        bracket(n, reported=s, times=(s,), selected=chosen)
        for n, s, chosen in ((0, 400, 0), (1, 500, 1), (2, 625, 0))
    ]
    text = "".join(texts).replace("reference: 5000", "reference: --")
    text = text.replace("ratio: 20.000000", "ratio: --")
    result = recompute(read(text))
    assert (result.disagreements, result.benchmarks[0].selected) == ((), 1)
    wrong = text.replace("000.selected: 0", "000.selected: 1").replace(
        "001.selected: 1", "001.x: 1"
    )
    assert [(one.file, one.own) for one in recompute(read(wrong)).disagreements] == [("0", "1")]


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
    assert [one.what for one in wrong.disagreements] == [key]


def test_the_mean_of_a_set_that_is_not_whole_is_0_in_the_file() -> None:
    text = HEAD.replace("20.000000", "0") + bracket()
    assert recompute(read(text)).disagreements == ()
    assert recompute(read(HEAD.replace("20.000000", "1") + bracket())).disagreements != ()


def test_roll_ups_of_rolling_round_robin_are_checked() -> None:
    at = "spec.cpu2026.results.706_stockfish_r.base"
    text = "".join(
        bracket(
            n,
            benchmark="706_stockfish_r",
            suite="cpu2026",
            copies="copies",
            times=(s,),
            reported=s,
            more="runmode: rrrate",
        ).replace("copies: 1", "copies: 2")
        for n, s in enumerate((10.0, 20.0, 12.0, 24.0))  # copies 0 1 0 1: medians 11 and 22
    )
    text += f"{at}.time_avg: 16.500000\n{at}.time_cv: 0.333333\n"
    result = recompute_rotated(read(text))
    assert (result.compared, result.disagreements) == (2, ())
    wrong = recompute_rotated(read(text.replace("16.5", "16.6")))
    assert [(one.what, one.own) for one in wrong.disagreements] == [("time_avg", "16.500000")]


def test_a_copy_of_no_time_at_all_is_none() -> None:
    file = read(bracket(times=(0, 500)))
    assert file.iterations[0].times_s == {1: 500.0}
    assert problems(file) == [
        "line 1: 400.perlbench base, iteration 0: 0 s is no time of a copy: copies 0"
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
        f"spec.cpu2006.notes_plat_sysinfo_{n:03}:  {line}\n" for n, line in enumerate(lines)
    )
    file = read(text + bracket())
    assert (file.node_of, file.notes) == ({0: 0, 2: 0, 1: 1, 3: 1}, [])
    by_lscpu = read(text.split("spec.cpu2006.notes_plat_sysinfo_003")[0] + bracket())
    assert by_lscpu.node_of == {0: 0, 2: 0, 1: 1, 3: 1}
