"""`rater spec import` on the command line, and where copies of imported files were."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rater.analysis.results.score import summarise
from rater.commands.cli import main
from rater.store.store import open_store
from tests.support.calls import Rater
from tests.support.places import SAMPLES, needs_samples
from tests.support.raw_files import HEAD, NEW, OLD, ask, bracket, configured, flat, pack, write


def test_one_file_is_one_run_with_base_and_peak(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(
        tmp_path,
        configured(
            "bind0 = numactl -C 2 -m 0\nbind1 = numactl -C 5 -m 1\nsubmit = $BIND $command\n"
        ),
    )
    status, out, _ = rater("spec", "import", path)
    assert status == 0
    assert "run 1: result.rsf (raw file, cpu2006 CINT2006 ref) imported" in flat(out)
    assert "1 benchmark base and peak, 1 iteration, 2 copies, 2 brackets, 4 copy times" in flat(out)
    assert "2 copies bound: on CPUs 2,5, nodes 0-1, memory bind on nodes 0-1" in flat(out)
    assert "all agree" in out
    rows = ask(database, "SELECT tune, copy, cpu, node, mem_nodes, elapsed_ns FROM copy")
    assert rows == [
        ("base", 0, 2, 0, "0", 400 * 10**9),
        ("base", 1, 5, 1, "1", 500 * 10**9),
        ("peak", 0, 2, 0, "0", 250 * 10**9),
        ("peak", 1, 5, 1, "1", 200 * 10**9),
    ]
    iterations = ask(
        database,
        "SELECT own.tune, own.ratio, file.ratio, file.reported_s, file.reference_s, "
        "file.selected, file.valid "
        "FROM bracket_result AS own JOIN spec_result AS file USING (run_id, phase)",
    )
    assert iterations == [
        ("base", 20.0, 20.0, 500.0, 5000.0, 1, "S"),
        ("peak", 40.0, 40.0, 250.0, 5000.0, 1, "S"),
    ]
    with open_store(database) as store:
        stored = store.load(1)
    summary = summarise(stored)
    assert [
        (benchmark.tune, benchmark.ratio, benchmark.category) for benchmark in summary.benchmarks
    ] == [
        ("base", 20.0, "int"),
        ("peak", 40.0, "int"),
    ]
    assert stored.imported is not None and stored.imported.base_mean == 20.0
    assert stored.head.started_at == "2019-05-15T16:56:34Z"


def test_a_file_that_is_stored_already_adds_nothing_whatever_its_name(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    rater("spec", "import", write(tmp_path, HEAD + bracket()))
    other = write(tmp_path, HEAD + bracket(), "renamed.txt")
    status, out, _ = rater("spec", "import", other)
    assert (status, flat(out)) == (
        0,
        "run 1: renamed.txt is stored already, nothing was added",
    )
    assert ask(database, "SELECT count(*) FROM run") == [(1,)]
    status, out, _ = rater("spec", "import", "--topology", "nodes=1x2", other)
    assert "(to read it so: `rater rm 1` first)" in flat(out)


def test_a_described_machine_tells_the_lgroups_of_cpus(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    config = "bind = 1, 6\nsubmit = taskset -c $BIND $command\n"
    path = write(tmp_path, configured(config))
    _, out, _ = rater("spec", "import", path, "--topology", "nodes=2x4", "--json")
    (run,) = json.loads(out)["runs"]
    assert run["placement"] == "2 copies bound: on CPUs 1,6, nodes 0-1 (by taskset)"
    assert ask(database, "SELECT DISTINCT copy, cpu, node, core FROM copy") == [
        (0, 1, 0, 1),
        (1, 6, 1, 6),
    ]
    assert ask(database, "SELECT count(*) FROM pu") == [(8,)]


def test_without_a_machine_and_without_nodes_the_lgroup_is_not_known(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, configured("bind = 1, 6\nsubmit = taskset -c $BIND $command\n"))
    _, out, _ = rater("spec", "import", path)
    assert "the file tells copies' CPUs and not their NUMA nodes; --topology supplies" in flat(out)
    assert ask(database, "SELECT DISTINCT cpu, node FROM copy") == [(1, None), (6, None)]


def test_peak_may_be_bound_otherwise_than_base(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    config = (
        "submit = taskset -c $SPECCOPYNUM $command\n"
        "default=peak=default=default:\nsubmit = taskset -c $((4+$SPECCOPYNUM)) $command\n"
    )
    rater("spec", "import", write(tmp_path, configured(config)))
    assert ask(database, "SELECT tune, copy, cpu FROM copy") == [
        ("base", 0, 0),
        ("base", 1, 1),
        ("peak", 0, 4),
        ("peak", 1, 5),
    ]


def test_a_bracket_that_the_file_calls_not_valid_has_no_ratio(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    text = bracket(0).replace("valid: S", "valid: VE") + bracket(1)
    rater("spec", "import", write(tmp_path, text))
    assert ask(database, "SELECT iteration, ratio FROM bracket_result") == [(1, None), (2, 20.0)]
    _, out, _ = rater("show")
    assert "400.perlbench iteration 1: its output was wrong (VE)" in flat(out)
    assert "failed: 1 of 2 brackets are not valid: VE 1" in flat(out)
    assert "no suite ratio" in out
    document = json.loads(rater("show", "--json")[1])
    assert [benchmark["file_says"]["valid"] for benchmark in document["benchmarks"]] == ["VE", "S"]


def test_failed_copies_have_exit_status_and_signal(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    rater("spec", "import", write(tmp_path, NEW, "cpu.log"))
    assert ask(database, "SELECT copy, status, exit_code, validity, run_dir, node FROM copy") == [
        (0, "ok", None, "unchecked", None, 1),
        (1, "failed", 127, "unchecked", "/opt/run/run_peak_refrate_oct12a.0001", 1),
    ]
    _, out, _ = rater("show")
    assert "505.mcf_r, iteration 2, copy 1, CPU 5, node 1, after 0.250 s: exit status 127" in (
        flat(out)
    )


def test_a_log_brings_its_workloads_and_starts(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    rater("spec", "import", write(tmp_path, OLD + NEW, "cpu.log"))
    assert ask(database, "SELECT copy, workload, elapsed_ns FROM workload") == [
        (0, 1, 500_250_000_000),
        (0, 2, 499_125_000_000),
        (1, 1, 500_500_000_000),
        (1, 2, 499_500_000_000),
    ]
    spans = ask(database, "SELECT benchmark, start_ns, finish_ns FROM bracket ORDER BY phase")
    assert spans[0] == ("400.perlbench", 0, 1_000_125_000_000)
    assert spans[1][1] == round((1554561482.25 - 1500061544) * 1e9)


def test_rolling_round_robin_records_are_a_rotated_run(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    records = []
    for number in range(4):  # two iterations of two copies
        for benchmark, seconds in (("706_stockfish_r", 10.0), ("707_ntest_r", 20.0)):
            record = bracket(
                number,
                benchmark=benchmark,
                suite="cpu2026",
                copies="copies",
                times=(seconds + number,),
                reported=seconds + number,
                more="runmode: rrrate",
            )
            records.append(record.replace("copies: 1", "copies: 2"))
    rater("spec", "import", write(tmp_path, "".join(records)))
    assert ask(database, "SELECT mode, copies, iterations FROM run") == [("rotated", 2, 2)]
    queue = "SELECT benchmark, iteration, elapsed_ns / 1000000000 FROM copy WHERE copy = 1"
    assert ask(database, f"{queue} ORDER BY step") == [
        ("707.ntest_r", 1, 21),
        ("706.stockfish_r", 1, 11),
        ("707.ntest_r", 2, 23),
        ("706.stockfish_r", 2, 13),
    ]
    assert rater("show")[0] == 0


def test_a_pipe_by_its_name_is_not_waited_for_and_one_that_a_shell_passes_is_read(
    rater: Rater, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for command in ("import", "lint-bind"):
        status, _, err = rater("spec", command, tmp_path / "pipe")
        assert (status, "not a regular file but a pipe" in err) == (2, True)
    path = write(tmp_path, configured(BY_COPY))
    for words in (("import",), ("lint-bind", "--copies", "2")):
        reading, writing = os.pipe()
        os.write(writing, path.read_bytes())
        os.close(writing)
        status, out, err = rater("spec", *words, f"/dev/fd/{reading}")
        os.close(reading)
        assert (status, err) == (0, ""), out


@pytest.mark.skipif(os.geteuid() != 0, reason="/proc/kmsg is root's")
def test_what_the_kernel_has_nothing_to_say_of_yet_is_not_waited_for(rater: Rater) -> None:
    for command in ("import", "lint-bind"):
        status, _, err = rater("spec", command, "/proc/kmsg")
        assert (status, "/proc/kmsg" in err) == (2, True)


SHORT_LOG = """\
runcpu v6612 started at 2025-02-12 10:12:40 on "host"
  Running 505.mcf_r refrate (ref) base my-64 (4 copies) [2025-02-12 10:15:46]
Benchmark Times:
  Rate Start:   2025-02-12 10:15:46 (1739322946.13335)
  Run Reported: 00:04:48 (288 66154003 288.066154)
 Success 505.mcf_r base refrate ratio=22.44, runtime=288.066154, copies=4, threads=1, power=0.00W
  Running 521.wrf_r refrate (ref) base my-64 (4 copies) [2025-02-12 10:20:46]
 Error 521.wrf_r base refrate ratio=53.32, runtime=168.066154, copies=4, threads=1, errorcode=VE
"""


def test_a_log_without_times_of_copies_has_its_results(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, SHORT_LOG, "CPU2017.001.log")
    _, out, _ = rater("spec", "import", path)
    assert "geometric mean base 22.44 (1 of 2 benchmarks without a valid ratio)" in flat(out)
    with open_store(database) as store:
        good, bad = summarise(store.load(1)).benchmarks
    assert (good.reason, round(good.ratio or 0, 2), good.iterations[0].bracket_s) == (
        (None, 22.44, 288.066154)
    )
    assert (bad.ratio, bad.reason) == (None, "its output was wrong (VE)")
    assert "Cannot tell whether a part is slow: too few times of copies" in flat(rater("show")[1])


def test_one_bad_file_keeps_no_other_out(rater: Rater, tmp_path: Path, database: Path) -> None:
    bad = write(tmp_path, "hello\n", "hello.txt")
    good = write(tmp_path, HEAD + bracket())
    status, out, err = rater("spec", "import", bad, tmp_path / "none.rsf", good, tmp_path)
    assert status == 2
    assert "run 1: result.rsf" in out
    message = err.splitlines()
    assert message[0].endswith(
        "hello.txt: no results of SPEC CPU in it; expected a raw file (.rsf), "
        "a log of runspec or runcpu, or a CSV report"
    )
    assert "no such file" in message[1] and "is a directory" in message[2]
    document = json.loads(rater("--json", "import", "spec", bad, good)[1])
    assert len(document["errors"]) == 1 and document["runs"][0]["added"] is False


def test_the_forms_of_import_are_told_apart(
    rater: Rater, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, message in (
        (["import", "spec"], "required: FILE"),
        (["import"], "required: FILE"),
        (["import", "a.json", "--topology", "nodes=1x1"], "; `rater spec import` has it"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
    path = write(tmp_path, HEAD + bracket())
    words = ["import", "spec", "--topology", "nodes=1x2", str(path), "--json"]
    assert json.loads(rater(*words)[1])["runs"][0]["added"] is True


# -- export ---------------------------------------------------------------------------------------


def test_failed_copies_of_a_result_file_are_failed_in_the_observations(
    rater: Rater, tmp_path: Path
) -> None:
    more = "errors000: copy 1 non-zero return code (exit code=1, signal=0)"
    text = (HEAD + bracket(more=more)).replace("valid: S", "valid: RE")
    rater("spec", "import", write(tmp_path, text))
    copies = json.loads(rater("export", 1)[1])["observations"]
    assert [copy.get("status", "ok") for copy in copies] == ["ok", "failed"]


# -- real files -----------------------------------------------------------------------------------


@needs_samples
@pytest.mark.parametrize(
    ("name", "counts"),  # benchmarks, iterations, copies, times of copies, values checked
    [
        ("CINT2006-64copies.rsf", (12, 3, 64, 2304, 49)),
        ("CPU2006-10copies-power8.log", (29, 1, 10, 290, 26)),
        ("CPU2017-1copy-failed.rsf", (9, 1, 1, 16, 18)),
        ("CPU2017-1copy-failed.log", (8, 1, 1, 16, 0)),
    ],
)
def test_real_files_are_read_whole(rater: Rater, name: str, counts: tuple[int, ...]) -> None:
    status, out, _ = rater("spec", "import", SAMPLES / name, "--json")
    (run,) = json.loads(out)["runs"]
    assert status == 0
    keys = ("benchmarks", "iterations", "copies", "copy_times", "checked")
    assert tuple(run[key] for key in keys) == counts
    assert (run["disagreements"], run["problem_count"]) == ([], 0)
    for result in run["results"]:
        if result["valid"] == "S":
            assert result["own_ratio"] == pytest.approx(result["ratio"], rel=5e-5)
    assert rater("show")[0] == 0


@needs_samples
def test_every_copy_of_a_real_raw_file_has_its_cpu_and_its_memory_node(
    rater: Rater, database: Path
) -> None:
    rater("spec", "import", SAMPLES / "CINT2006-64copies.rsf")
    rows = ask(database, "SELECT DISTINCT copy, cpu, node, mem_nodes FROM copy ORDER BY copy")
    assert rows == [(number, number, number // 16, str(number // 16)) for number in range(64)]


BY_COPY = "submit = taskset -c $SPECCOPYNUM $command\n"
SYSINFO = (
    "spec.cpu2006.notes_plat_sysinfo_000:  node 0 cpus: 0\n"
    "spec.cpu2006.notes_plat_sysinfo_005:  node 1 cpus: 1\n"
)


def test_a_mask_of_many_copies_binds_each(rater: Rater, tmp_path: Path, database: Path) -> None:
    config = "submit = MYMASK=`printf '0x%x' $((1<<$SPECCOPYNUM))`; taskset $MYMASK $command\n"
    pieces = "".join(
        f"spec.cpu2006.rawconfig{number:03}: {piece}\n" for number, piece in enumerate(pack(config))
    )
    text = HEAD + pieces + bracket(times=tuple(range(400, 464)), reported=463)
    rater("spec", "import", write(tmp_path, text))
    assert ask(database, "SELECT copy, cpu FROM copy") == [(number, number) for number in range(64)]


def test_macros_of_the_command_line_choose_branches_of_the_configuration_inside(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    backwards = "%if defined %{back}\nsubmit = taskset -c $[last] $command\n%endif\nlast = 3\n"
    path = write(tmp_path, configured(BY_COPY + backwards))
    rater("spec", "import", path)
    rater("spec", "import", path, "--define", "back", "--db", tmp_path / "other.db")
    assert {cpu for _, cpu in ask(database, "SELECT copy, cpu FROM copy")} == {0, 1}
    assert {cpu for _, cpu in ask(tmp_path / "other.db", "SELECT copy, cpu FROM copy")} == {3}


def test_lgroups_are_those_that_the_file_names(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, SYSINFO + configured(BY_COPY))
    _, out, _ = rater("spec", "import", path)
    assert "nodes are those that the file's sysinfo names" in flat(out)
    assert "--topology" not in out
    assert ask(database, "SELECT DISTINCT copy, cpu, node FROM copy") == [(0, 0, 0), (1, 1, 1)]
    assert ask(database, "SELECT cpu, node FROM pu") == [(0, 0), (1, 1)]


def test_the_file_holds_where_a_topology_contradicts_it(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, SYSINFO + configured(BY_COPY))
    _, out, _ = rater("spec", "import", "--topology", "nodes=1x4", path)
    assert "have CPU 1 on different nodes: the file holds" in flat(out)
    assert ask(database, "SELECT DISTINCT copy, cpu, node, core FROM copy") == [
        (0, 0, 0, 0),
        (1, 1, 1, 1),
    ]


def test_copies_of_base_and_of_peak_do_not_share_a_cpu(rater: Rater, tmp_path: Path) -> None:
    config = (
        "submit = taskset -c $BIND $command\nbind = 0, 1\n"
        "default=peak=default=default:\nbind = 1, 0\n"
    )
    _, out, _ = rater("spec", "import", write(tmp_path, configured(config)))
    assert "same CPU" not in flat(out)


def test_the_section_of_the_label_that_ran_binds(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    config = (
        "default=default=mine=default:\nsubmit = taskset -c 1$SPECCOPYNUM $command\n"
        "default=default=other=default:\nsubmit = taskset -c 2$SPECCOPYNUM $command\n"
        "default=default=default=boxB:\nsubmit = taskset -c 3$SPECCOPYNUM $command\n"
    )
    path = write(tmp_path, "spec.cpu2006.ext: mine\n" + configured(config))
    rater("spec", "import", path)
    assert ask(database, "SELECT DISTINCT copy, cpu FROM copy") == [(0, 10), (1, 11)]


def test_a_long_list_of_cpus_is_cut(rater: Rater, tmp_path: Path) -> None:
    pieces = "".join(
        f"spec.cpu2006.rawconfig{number:03}: {piece}\n"
        for number, piece in enumerate(pack("submit = taskset -c $((2*$SPECCOPYNUM)) $command\n"))
    )
    text = HEAD + pieces + bracket(times=tuple(range(400, 464)), reported=463)
    _, out, _ = rater("spec", "import", write(tmp_path, text))
    assert "64 copies bound: on CPUs 0-126:2 (by taskset)" in flat(out)
    assert "1 bracket, 64 copy times" in flat(out)


def test_relative_cpus_are_counted_on_the_described_machine(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, configured("submit = numactl -i all -C +$SPECCOPYNUM $command\n"))
    _, out, _ = rater("spec", "import", path)
    assert "numactl counts +N inside the CPUs that it may use" in flat(out)
    rater("rm", "1")
    _, out, _ = rater("spec", "import", "--topology", "nodes=2x1", path)
    assert "numactl counts +N" not in flat(out)
    assert ask(database, "SELECT DISTINCT copy, cpu, node, mem_nodes FROM copy") == [
        (0, 0, 0, "0-1"),
        (1, 1, 1, "0-1"),
    ]


# -- how a file comes -----------------------------------------------------------------------------


def test_a_packed_file_is_the_same_as_the_plain_one(rater: Rater, tmp_path: Path) -> None:
    text = HEAD + bracket()
    rater("spec", "import", write(tmp_path, text))
    packed = tmp_path / "result.rsf.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    status, out, _ = rater("spec", "import", packed)
    assert (status, "stored already" in out) == (0, True)


def test_of_a_torn_packed_file_what_can_be_read_is_read(rater: Rater, tmp_path: Path) -> None:
    text = HEAD + bracket() + "# " + os.urandom(4000).hex()
    packed = tmp_path / "result.rsf.gz"
    packed.write_bytes(gzip.compress(text.encode())[:-2000])
    status, out, _ = rater("spec", "import", packed, "--json")
    (run,) = json.loads(out)["runs"]
    assert (status, run["copy_times"]) == (0, 2)
    assert "cannot be read further (gzip)" in run["problems"][-1]["text"]


def test_standard_input_is_read(rater: Rater, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (HEAD + bracket()).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status, out, _ = rater("spec", "import", "-")
    assert status == 0
    assert "run 1: standard input (raw file, cpu2006 CINT2006 ref) imported" in flat(out)


@pytest.mark.parametrize("pack_it", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_behind_each_other_are_one(
    rater: Rater, tmp_path: Path, pack_it: Callable[[bytes], bytes]
) -> None:
    packed = tmp_path / "result"
    parts = (HEAD + bracket(), bracket(1), "# " + "x" * 3_000_000 + "\n", bracket(2))
    packed.write_bytes(b"".join(pack_it(part.encode()) for part in parts))
    _, out, _ = rater("spec", "import", packed, "--json")
    (run,) = json.loads(out)["runs"]
    assert (run["copy_times"], run["problem_count"]) == (6, 1)


def test_bind_lines_are_taken_where_the_submit_line_is_not_there(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    _, out, _ = rater("spec", "import", write(tmp_path, configured("bind = 3, 7\n")))
    assert "has no submit line for what ran" in flat(out)
    assert ask(database, "SELECT copy, cpu FROM copy WHERE tune = 'base'") == [(0, 3), (1, 7)]
