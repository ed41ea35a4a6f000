"""Where copies of imported files were, and other ways to hand a file over."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.calls import Rater
from tests.support.raw_files import HEAD, ask, bracket, configured, flat, pack, write

BY_COPY = "submit = taskset -c $SPECCOPYNUM $command\n"
SYSINFO = (
    "spec.cpu2006.notes_plat_sysinfo_000:  node 0 cpus: 0\n"
    "spec.cpu2006.notes_plat_sysinfo_005:  node 1 cpus: 1\n"
)


def test_a_mask_of_many_copies_binds_each(rater: Rater, tmp_path: Path, database: Path) -> None:
    config = "submit = MYMASK=`printf '0x%x' $((1<<$SPECCOPYNUM))`; taskset $MYMASK $command\n"
    pieces = "".join(f"spec.cpu2006.rawconfig{n:03}: {p}\n" for n, p in enumerate(pack(config)))
    text = HEAD + pieces + bracket(times=tuple(range(400, 464)), reported=463)
    rater("import", "spec", write(tmp_path, text))
    assert ask(database, "SELECT copy, cpu FROM copy") == [(n, n) for n in range(64)]


def test_lgroups_are_those_that_the_file_names(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, SYSINFO + configured(BY_COPY))
    _, out, _ = rater("import", "spec", path)
    assert "lgroups are the nodes that the file's sysinfo names" in flat(out)
    assert "--topology" not in out
    assert ask(database, "SELECT DISTINCT copy, cpu, node FROM copy") == [(0, 0, 0), (1, 1, 1)]
    assert ask(database, "SELECT cpu, node FROM pu") == [(0, 0), (1, 1)]


def test_the_file_holds_where_a_topology_contradicts_it(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, SYSINFO + configured(BY_COPY))
    _, out, _ = rater("import", "spec", "--topology", "nodes=1x4", path)
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
    _, out, _ = rater("import", "spec", write(tmp_path, configured(config)))
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
    rater("import", "spec", path)
    assert ask(database, "SELECT DISTINCT copy, cpu FROM copy") == [(0, 10), (1, 11)]


def test_a_configuration_that_may_be_read_wrongly_is_named(rater: Rater, tmp_path: Path) -> None:
    config = (
        "%if '%{mode}' =~ /far/\nsubmit = numactl -m 1 -C $SPECCOPYNUM $command\n"
        f"%else\n{BY_COPY}%endif\n"
    )
    _, out, _ = rater("import", "spec", write(tmp_path, configured(config)))
    assert (
        "note: the configuration inside, line 1: the condition %if '%{mode}' =~ /far/ is not "
        "understood: taken as false" in flat(out)
    )


def test_a_peak_that_is_its_base_is_told(rater: Rater, tmp_path: Path) -> None:
    text = HEAD + bracket() + bracket(tune="peak", more="basepeak: 1")
    _, out, _ = rater("import", "spec", write(tmp_path, text))
    assert "the peak of 400.perlbench is its base again (basepeak): measured once" in flat(out)


def test_a_long_list_of_cpus_is_cut(rater: Rater, tmp_path: Path) -> None:
    pieces = "".join(
        f"spec.cpu2006.rawconfig{n:03}: {p}\n"
        for n, p in enumerate(pack("submit = taskset -c $((2*$SPECCOPYNUM)) $command\n"))
    )
    text = HEAD + pieces + bracket(times=tuple(range(400, 464)), reported=463)
    _, out, _ = rater("import", "spec", write(tmp_path, text))
    assert "64 copies bound: on CPUs 0-126:2 (by taskset)" in flat(out)
    assert "1 bracket, 64 copy times" in flat(out)


def test_relative_cpus_are_counted_on_the_described_machine(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    path = write(tmp_path, configured("submit = numactl -i all -C +$SPECCOPYNUM $command\n"))
    _, out, _ = rater("import", "spec", path)
    assert "numactl counts +N inside the CPUs that it may use" in flat(out)
    rater("rm", "1")
    _, out, _ = rater("import", "spec", "--topology", "nodes=2x1", path)
    assert "numactl counts +N" not in flat(out)
    assert ask(database, "SELECT DISTINCT copy, cpu, node, mem_nodes FROM copy") == [
        (0, 0, 0, "0-1"),
        (1, 1, 1, "0-1"),
    ]


# -- how a file comes -----------------------------------------------------------------------------


def test_a_packed_file_is_the_same_as_the_plain_one(rater: Rater, tmp_path: Path) -> None:
    text = HEAD + bracket()
    rater("import", "spec", write(tmp_path, text))
    packed = tmp_path / "result.rsf.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    status, out, _ = rater("import", "spec", packed)
    assert (status, "stored already" in out) == (0, True)


def test_of_a_torn_packed_file_what_can_be_read_is_read(rater: Rater, tmp_path: Path) -> None:
    text = HEAD + bracket() + "# " + os.urandom(4000).hex()
    packed = tmp_path / "result.rsf.gz"
    packed.write_bytes(gzip.compress(text.encode())[:-2000])
    status, out, _ = rater("import", "spec", packed, "--json")
    (run,) = json.loads(out)["runs"]
    assert (status, run["copy_times"]) == (0, 2)
    assert "cannot be read further (gzip)" in run["problems"][-1]["text"]


def test_standard_input_is_read(rater: Rater, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (HEAD + bracket()).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status, out, _ = rater("import", "spec", "-")
    assert status == 0
    assert "run 1: standard input (raw file, cpu2006 CINT2006 ref) imported" in flat(out)


def test_a_pipe_is_read(rater: Rater, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(HEAD + bracket()))
    writer.start()
    status, out, _ = rater("import", "spec", pipe)
    writer.join()
    assert (status, "run 1: pipe" in out) == (0, True)


@pytest.mark.parametrize("pack_it", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_behind_each_other_are_one(
    rater: Rater, tmp_path: Path, pack_it: Callable[[bytes], bytes]
) -> None:
    packed = tmp_path / "result"
    parts = (HEAD + bracket(), bracket(1), "# " + "x" * 3_000_000 + "\n", bracket(2))
    packed.write_bytes(b"".join(pack_it(part.encode()) for part in parts))
    _, out, _ = rater("import", "spec", packed, "--json")
    (run,) = json.loads(out)["runs"]
    assert (run["copy_times"], run["problem_count"]) == (6, 1)


def test_bind_lines_are_taken_where_the_submit_line_is_not_there(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    _, out, _ = rater("import", "spec", write(tmp_path, configured("bind = 3, 7\n")))
    assert "has no submit line for what ran" in flat(out)
    assert ask(database, "SELECT copy, cpu FROM copy WHERE tune = 'base'") == [(0, 3), (1, 7)]
