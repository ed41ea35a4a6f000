"""Layout options and the preflight of `rater run`, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.plan.schedule import Step
from rater.plan.suite import Benchmark, InputFile, Size
from rater.run.copies.spawn import living_on
from rater.run.programs import inputs as prepare
from rater.run.programs.inputs import ReadyInput, ready_inputs
from rater.run.workplace import run_dirs as workplace
from rater.run.workplace.run_dirs import Program, RunFolders
from tests.support.calls import RATER, rater, rows
from tests.support.page_cache import cached_bytes, is_droppable

CPUS = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
WHO = (
    "cat /proc/$PPID/task/*/status; "
    "for child in $(cat /proc/$PPID/task/*/children); do cat /proc/$child/status; done"
)
BIG = """
[suite]
format = 1
name = "big"
[benchmarks.big]
command = ["true"]
[benchmarks.big.sizes.train]
memory_mb = 900000000
"""


def said_by_copy(field: str) -> list[str]:
    [output] = Path(os.environ["RATER_CACHE"]).rglob("*.stdout")
    lines = output.read_text().splitlines()
    return [line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:")]


@two_cpus
def test_rater_and_its_watchdog_live_on_the_reserved_core_and_the_copy_does_not() -> None:
    words = ("run", "--quiet", "--reserve", "1", "--copies", "1", "--keep", "--", "sh", "-c", WHO)
    subprocess.run([*RATER, *words], check=True)
    pids, masks = said_by_copy("Pid"), said_by_copy("Cpus_allowed_list")
    reserved = rows("SELECT value FROM setting WHERE name = 'rater.reserved_cpus'")[0][0]
    [cpu] = rows("SELECT cpu FROM copy")[0]
    assert reserved == str(CPUS[0])
    assert masks.count(str(cpu)) == 1 and cpu != CPUS[0]
    others = [mask for mask in masks if mask != str(cpu)]
    assert len(others) == len(pids) - 1 >= 2  # our threads and the watchdog
    assert set(others) == {reserved}


@two_cpus
def test_what_was_changed_of_a_layout_is_told_with_the_run() -> None:
    done = rater(
        *("run", "--quiet", "--layout", "cores", "--bind", "package", "--smt", "1"),
        *("--copies", "2", "--keep", "--", "grep", "Cpus_allowed_list", "/proc/self/status"),
    )
    assert done.returncode == 0, done.stderr
    assert "layout cores, bind package, smt 1, memory local" in rater("show", "last").stdout
    request = json.loads(rows("SELECT request FROM run")[0][0])
    assert (request["bind"], request["smt"], request["reserve"]) == ("package", 1, None)
    assert rater("rerun", "last", "--quiet").returncode == 0
    assert [layout for (layout,) in rows("SELECT layout FROM run")] == [
        "cores, bind package, smt 1"
    ] * 2


def test_too_many_copies_for_a_layout_are_refused_before_anything_begins() -> None:
    done = rater("run", "--layout", f"list:{CPUS[0]}", "--copies", "2", "--no-oversubscribe",
                 "--", "true")  # fmt: skip
    assert done.returncode == 2
    assert "use --copies 1 or leave the option out" in done.stderr
    assert not Path(os.environ["RATER_DB"]).exists()


def test_a_reservation_is_over_when_it_is_left() -> None:
    before = os.sched_getaffinity(0)
    with living_on([CPUS[0]]):
        assert os.sched_getaffinity(0) == {CPUS[0]}
    assert os.sched_getaffinity(0) == before
    with living_on([]):
        assert os.sched_getaffinity(0) == before


# -- preflight -----------------------------------------------------------------------------------


@pytest.fixture
def big(tmp_path: Path) -> str:
    path = tmp_path / "big.toml"
    path.write_text(BIG)
    return str(path)


def test_a_full_lgroup_is_a_warning_that_is_kept_once(big: str) -> None:
    done = rater("run", big, "--copies", "1", "--force")
    assert done.returncode == 0
    assert done.stderr.count("too little memory in lgroup 0") == 1
    notes = [text for (text,) in rows("SELECT text FROM note") if "too little memory" in text]
    assert len(notes) == 1


def test_a_strict_preflight_refuses_and_stores_nothing(big: str) -> None:
    done = rater("run", big, "--copies", "1", "--force", "--preflight", "strict")
    assert done.returncode == 2
    assert "too little memory in lgroup 0" in done.stderr
    assert done.stderr.endswith("--preflight strict refuses the run for that\n")
    assert rows("SELECT count(*) FROM run") == [(0,)]
    words = ("--force", "--preflight", "strict", "--dry-run", "--json")
    dry = rater("run", big, "--copies", "1", *words)
    assert dry.returncode == 0
    [refusal] = json.loads(dry.stdout)["refused"]
    assert refusal.startswith("--preflight strict: too little memory in lgroup 0")


def test_a_strict_preflight_of_what_states_no_memory_says_that_it_knows_nothing() -> None:
    words = ("--copies", "1", "--preflight", "strict", "--", "true")
    done = rater("run", *words)
    assert done.returncode == 0
    told = "memory need not stated: lgroups not checked; `memory_mb` in a benchmark's size"
    assert f"warning: {told}" in done.stderr
    assert len(rows(f"SELECT text FROM note WHERE text LIKE '{told.replace("'", "''")}%'")) == 1
    dry = json.loads(rater("run", "--dry-run", "--json", *words).stdout)
    assert [text for text in dry["warnings"] if text.startswith(told)]
    assert dry["refused"] == []
    assert told not in rater("run", "--copies", "1", "--", "true").stderr


def test_without_a_preflight_there_is_no_warning(big: str) -> None:
    done = rater("run", big, "--copies", "1", "--force", "--preflight", "off")
    assert done.returncode == 0
    assert "too little memory" not in done.stderr


# -- what the set-up leaves in the page cache ----------------------------------------------------


def test_the_original_of_an_input_is_dropped_from_the_page_cache_and_the_copy_is_not(
    tmp_path: Path,
) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"x" * (1 << 20))
    if not is_droppable(tmp_path):
        pytest.skip("the file system of temporary files is in memory")
    size = Size("t", (), (), None, None, None, 0, (InputFile("data", source, None),), ())
    benchmark = Benchmark("b", None, "", (), (), {}, ("true",), {"t": size})
    [made] = ready_inputs(benchmark, size, tmp_path / "cache")
    assert cached_bytes(source) == 0
    assert cached_bytes(made.path) == 1 << 20


def test_inputs_of_a_copy_of_its_own_are_written_from_its_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"x")
    seen: list[set[int]] = []
    make = prepare.make_run_dir

    def watched(*words: Any) -> Any:
        seen.append(os.sched_getaffinity(0))
        return make(*words)

    monkeypatch.setattr(workplace, "make_run_dir", watched)
    placed = [
        Placement(copy, (cpu,), cpu, 0, None, 0, 0, MemoryPolicy.NONE, ())
        for copy, cpu in enumerate(CPUS[:2])
    ]
    found = data.stat()
    for private in (True, False):
        inputs = (ReadyInput("in", data, 1, found.st_mtime_ns, private=private),)
        program = Program("b", ("true",), inputs, (), None)
        folders = RunFolders(tmp_path / f"{private}", "u", {"b": program}, placed, (), keep=False)
        for copy in range(len(placed)):
            folders.spec(copy, 0, Step("b", 1))
    assert seen == [{cpu} for cpu in CPUS[:2]] + [set(CPUS)] * len(placed)
