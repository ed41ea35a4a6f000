"""Fault with real processes, and `rater doctor selftest` from end to end on copies of moments."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rater.analysis.divots.model.finding import Analysis
from rater.analysis.divots.selftest import Judgement, judge
from rater.commands.cli import main
from rater.plan.selftest import Injection, PlantKind
from rater.record.events import PhaseEnded, PhaseStarted
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.admission import default_lock_path, machine_lock
from rater.run.host.foreign_load import BusyProcess, ForeignLoad
from rater.run.launcher.guard import child_pids, guard
from rater.run.supervise import competitor
from rater.run.supervise.disturb import Injector
from rater.store.store import open_store
from rater.workflow.run import selftest
from rater.workflow.run.selftest import result_of
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import reading
from tests.support.processes import PATIENCE_S

CPU = min(os.sched_getaffinity(0))
BEGIN = PhaseStarted(
    phase=0, benchmark="b", iteration=1, counted=True, total_phases=1, expected_s=None
)
END = PhaseEnded(
    phase=0,
    benchmark="b",
    iteration=1,
    tune=None,
    counted=True,
    start_ns=0,
    finish_ns=1,
    last_start_ns=0,
    first_finish_ns=1,
    complete=True,
)

FIRST = Injection(kind=PlantKind.SLOW_ITERATION, place="", cpus=(CPU,), iteration=1, aimed=1.25)


@contextmanager
def planting(injection: Injection) -> Iterator[Injector]:
    """An injector that disturbs one copy on one CPU."""
    placement = Placement(
        copy=0,
        cpus=(CPU,),
        cpu=CPU,
        core=0,
        llc=0,
        node=0,
        package=0,
        memory_policy=MemoryPolicy.LOCAL,
        memory_nodes=(),
    )
    with guard("of-a-test", 1, use_cgroup=False) as keeper:
        injector = Injector(injection, [placement], keeper)
        injector.start()
        try:
            yield injector
        finally:
            injector.close()
        assert keeper.helpers.pids == set()
        assert set(child_pids()) <= {keeper.launcher.pid}


def taken_by(injector: Injector) -> dict[tuple[str, int, int], float]:
    injector.put(END)
    injector.close()
    return injector.taken_s


def test_a_competing_process_takes_time_of_its_cpu_and_is_gone_afterwards() -> None:
    with planting(FIRST) as injector:
        injector.put(BEGIN)
        work = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"]
        subprocess.run(work, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {CPU}))
        taken_s = taken_by(injector)
    assert list(taken_s) == [("b", 1, CPU)]
    assert 0 < taken_s["b", 1, CPU] < 0.9


def test_nothing_competes_while_nothing_is_to_be_disturbed() -> None:
    with planting(FIRST) as injector:
        injector.put(
            PhaseStarted(
                phase=0, benchmark="b", iteration=2, counted=True, total_phases=1, expected_s=None
            )
        )
        taken_s = taken_by(injector)
    assert list(taken_s) == [("b", 2, CPU)]
    assert taken_s["b", 2, CPU] < 0.5  # its own start only


def test_what_competes_is_neither_work_of_others_nor_a_cost_of_the_copies() -> None:
    run = read_run([computed(0, 6.0), computed(1, 7.0)], reading(0, 9.0), reading(1, 7.5))
    found = Analysis(findings=(), visible={})
    ran = result_of(run, found, {("a", 1, 0): 2.0}, ForeignLoad((), 0.0, 0.0))
    assert ran.times == {("a", 1, 0): 10.0, ("a", 1, 1): 10.0}
    assert ran.costs == {("a", 1, 0): 7.0, ("a", 1, 1): 7.5}
    assert ran.others == pytest.approx(0.1)
    assert ran.others_words.startswith("others took 10% of CPU 0 (a, iteration 1): no process")


def test_a_competitor_ends_with_the_rater_that_started_it() -> None:
    argv = [sys.executable, "-I", "-S", "-B", competitor.__file__, str(CPU)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"0.5\n")
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of 10 ms instead of 300, and a folder of our own for the temporary database."""
    suite = "[suite]\nformat = 1\n" + "".join(
        f'[benchmarks.{name}]\ncommand = ["sleep", "0.01"]\n[benchmarks.{name}.sizes.test]\n'
        "reference_s = 0.01\nmemory_mb = 1\n"
        f"[benchmarks.{name}.sizes.train]\nreference_s = 0.01\nmemory_mb = 1\n"
        for name in ("first", "second")
    )
    (tmp_path / "moments.toml").write_text(suite)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(selftest, "_FEWER_KERNELS", str(tmp_path / "moments.toml"))
    monkeypatch.setattr(selftest, "_REPEATS", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.mark.usefixtures("moments")
def test_everything_is_planted_and_judged_and_kept_when_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(selftest, "NOISIEST", math.inf)
    status = main(
        ["doctor", "selftest", "--quick", "--copies", "3", "--seed", "1", "--keep", "--json"]
    )
    document = json.loads(capsys.readouterr().out)
    assert (status == 0) == document["right"]  # whether it is, hangs on the machine
    assert document["seed"] == 1
    kinds = [plant["kind"] for plant in document["plants"]]
    assert kinds[0] == "nothing"
    assert {it["kind"] for it in document["not_planted"]} | set(kinds) == {
        *("nothing", "slow-lgroup", "slow-cpu", "slow-iteration"),
    }
    with open_store(tmp_path / "rater.db") as store:
        assert all(store.find_all(f"tag:selftest={kind}") for kind in kinds)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert child_pids() == []


@pytest.mark.usefixtures("moments")
def test_a_disturbed_run_that_is_not_right_is_made_once_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_named(injection: Injection, *_: object, **__: object) -> Judgement:
        return judge(injection, None, [], 0.05, 3, others=0.5)

    monkeypatch.setattr(selftest, "NOISIEST", math.inf)
    monkeypatch.setattr(selftest, "_OTHERS", -1.0)  # whatever others take is too much
    monkeypatch.setattr(selftest, "_REPEATS", 1)
    monkeypatch.setattr(selftest, "judge", never_named)
    assert main(["doctor", "selftest", "--quick", "--copies", "3", "--json"]) == 3
    said = capsys.readouterr()
    document = json.loads(said.out)
    plants = len(document["plants"]) - 1  # all but the undisturbed run, which is right
    assert document["not_judged"] == document["made_again"] == plants
    assert said.err.count("selftest once more: others took") == plants


@pytest.mark.usefixtures("moments")
def test_nothing_is_planted_on_a_machine_that_is_too_noisy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(selftest, "NOISIEST", 1e-9)
    assert main(["doctor", "selftest", "--quick", "--copies", "3"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "too noisy right now: copies differ by" in said.err
    assert "selftest 1 of " in said.err
    assert "selftest 2 of" not in said.err
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "rater.db").exists()


@pytest.mark.usefixtures("moments")
def test_one_undisturbed_run_is_enough_to_refuse_and_names_who_is_busy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "NOISIEST", 1e-9)
    monkeypatch.setattr(selftest, "_REPEATS", 5)
    busy = ForeignLoad((BusyProcess(7, "cc1", 0.96, "ann"),), 0.0, 0.0)
    monkeypatch.setattr(
        "rater.run.host.foreign_load.ForeignLoadSampler.busy", lambda *_, **__: busy
    )
    assert main(["doctor", "selftest", "--copies", "3", "--json"]) == 3
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == (
        "rater: selftest in short (--quick), as other work goes on here"
    )
    assert said.err.count("rater: selftest ") == 2  # one run, no second try
    refused = json.loads(said.out)["refused"]
    assert re.search(r"others took \d+% of CPU \d+ \(\w+, iteration \d\): cc1 \(pid 7, ", refused)


@pytest.mark.usefixtures("moments")
def test_what_is_not_judged_for_too_long_is_given_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_named(injection: Injection, *_: object, **__: object) -> Judgement:
        return judge(injection, None, [], 0.05, 3, others=0.5)

    monkeypatch.setattr(selftest, "NOISIEST", math.inf)
    monkeypatch.setattr(selftest, "_OTHERS", -1.0)
    monkeypatch.setattr(selftest, "_REPEATS", 5)
    monkeypatch.setattr(selftest, "_REPEATS_S", 0.0)
    monkeypatch.setattr(selftest, "judge", never_named)
    assert main(["doctor", "selftest", "--quick", "--copies", "8", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["made_again"], document["not_judged"]) == (0, 1)
    given_up = [one for one in document["not_planted"] if "other work" in one["why"]]
    assert len(given_up) >= 1


@pytest.mark.parametrize("machine_words", ["nodes=4x24", "pack:2 numa:2 core:4 pu:2", "1x2"])
def test_made_times_of_any_machine_have_their_plants_found(
    machine_words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["selftest", "--simulate", "--quick", "--topology", machine_words]
    words += ["--seed", "3", "--json"]
    with machine_lock(default_lock_path(), "rater run 0123, process 1"):  # it runs nothing
        status = main(words)
    document = json.loads(capsys.readouterr().out)
    assert (status, document["right"]) == (0, True), document["summary"]
    assert document["planted"] >= 2
    assert {one["scope"] for one in document["promised"]} >= {"copy"}
    assert all(one["trials"] == 5 and one["kept"] for one in document["promised"])
    assert document["made_noise"] == 0.005


def test_the_lock_of_another_run_applies(capsys: pytest.CaptureFixture[str]) -> None:
    with machine_lock(default_lock_path(), "rater run 0123, process 1"):
        assert main(["doctor", "selftest"]) == 2
    assert "another run holds this machine: rater run 0123" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--copies", "0"], "--copies 0"),
        (["--seconds", "0"], "--seconds 0"),
        (["--until-idle", "-1"], "--until-idle -1"),
        (["--db", "x.db"], "add --keep"),
        (["--topology", "4x16"], "add --simulate"),
    ],
)
def test_mistakes_are_told_with_the_way_out(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "selftest", *words]) == 2
    assert said in capsys.readouterr().err
