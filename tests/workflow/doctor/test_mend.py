"""What the doctor sets for the time of a command is set, put back, and put back after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rater.analysis.compare.conditions import stored_conditions
from rater.workflow.run.repeat import changed_conditions
from tests.support.calls import RATER, Rater
from tests.support.doctor_tree import change, make_doctor_tree
from tests.support.example_runs import copy_row, stored
from tests.support.settings_tree import values

WRONG: dict[str, str | None] = {
    "proc/sys/kernel/numa_balancing": "1",
    "sys/kernel/mm/ksm/run": "1",
    "proc/sys/kernel/nmi_watchdog": "1",
    # Not to be mended: they change what is measured.
    "proc/sys/kernel/randomize_va_space": "0",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
}
SHOWN = "cat $RATER_SYSROOT/sys/kernel/mm/ksm/run $RATER_SYSROOT/proc/sys/kernel/numa_balancing"


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_doctor_tree(tmp_path / "machine")
    change(root, WRONG)
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    monkeypatch.setenv("RATER_JOURNAL", str(tmp_path / "settings.json"))
    return root


def test_a_command_runs_with_what_the_doctor_sets(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before, seen = values(wrong), tmp_path / "seen"
    status, _, err = rater("doctor", "--fix", "--", "sh", "-c", f"({SHOWN}) > {seen}; exit 5")
    assert (status, seen.read_text().split()) == (5, ["0", "0"])
    assert "numa_balancing=0 (was 1)" in err
    assert values(wrong) == before
    tuned = json.loads(rater("doctor", "--json")[1])["tuned"]
    assert tuned == {"numa_balancing": "0", "ksm": "0", "nmi_watchdog": "0"}


def test_what_it_set_is_put_back_after_kill_9(wrong: Path, rater: Rater, tmp_path: Path) -> None:
    before = values(wrong)
    words = ("doctor", "--fix", "--", "sh", "-c", "echo on; exec sleep 60")
    with subprocess.Popen([*RATER, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        assert values(wrong)["sys/kernel/mm/ksm/run"] == "0"
        sleeping = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        for pid in sleeping:
            os.kill(int(pid), signal.SIGKILL)
    assert values(wrong) != before
    assert rater("restore")[0] == 0
    assert values(wrong) == before


def test_fix_wants_a_command_and_a_machine_that_nobody_measures(wrong: Path, rater: Rater) -> None:
    assert rater("doctor", "--fix")[0] == 2
    assert rater("doctor", "--", "true")[0] == 2
    status, _, err = rater("doctor", "--fix", "--", "/no/such/program")
    assert (status, "/no/such/program" in err) == (2, True)
    assert values(wrong)["sys/kernel/mm/ksm/run"] == "1"


RUN = ("run", "--copies", "1", "--proof", "off", "--share", "--quiet", "--tuned")


def test_a_tuned_run_has_what_the_doctor_sets_and_puts_it_back(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before, seen = values(wrong), tmp_path / "seen"
    status, _, err = rater(*RUN, "--", "sh", "-c", f"({SHOWN}) > {seen}")
    assert (status, err, seen.read_text().split()) == (0, "", ["0", "0"])
    assert values(wrong) == before
    assert rater(*RUN, "--", "false")[0] == 1
    assert values(wrong) == before


def test_a_tuned_run_is_refused_where_a_setting_cannot_be_set(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    (wrong / "sys/kernel/mm/ksm/run").chmod(0o444)
    before = values(wrong)
    status, out, _ = rater(*RUN, "--dry-run", "--", "true")
    assert (status, "sets     numa_balancing=0" in out) == (0, True)
    assert "ksm cannot be set: the kernel only tells it" in " ".join(out.split())
    status, _, err = rater(*RUN, "--", "touch", str(tmp_path / "made"))
    assert (status, "ksm cannot be set: the kernel only tells it" in err) == (2, True)
    assert values(wrong) == before
    assert not (tmp_path / "made").exists()


def test_an_axis_of_a_sweep_stands_over_what_tuned_runs_want(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before, seen = values(wrong), tmp_path / "seen"
    loud = [word for word in RUN[1:] if word != "--quiet"]
    words = ("sweep", *loud, "--axis", "ksm=0,1", "--rounds", "1", "--", "sh", "-c")
    status, _, err = rater(*words, f"({SHOWN}) >> {seen}")
    told = "set for the sweep, and put back at its end: numa_balancing=0, nmi_watchdog=0"
    assert (status, told in err) == (0, True)
    assert sorted(zip(*[iter(seen.read_text().split())] * 2, strict=True)) == [
        ("0", "0"),
        ("1", "0"),
    ]
    assert values(wrong) == before


def test_a_tuned_run_killed_with_kill_9_is_put_back_by_the_next_one(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before = values(wrong)
    os.mkfifo(tmp_path / "on")
    words = (*RUN, "--", "sh", "-c", f"echo on > {tmp_path}/on; exec sleep 60")
    with subprocess.Popen([*RATER, *words]) as process:
        assert (tmp_path / "on").read_text() == "on\n"
        assert values(wrong)["sys/kernel/mm/ksm/run"] == "0"
        process.kill()
    assert values(wrong) != before
    status, _, err = rater("run", *RUN[1:-1], "--", "true")
    assert (status, "put back what rater run" in err) == (0, True)
    assert values(wrong) == before


def test_what_will_be_set_is_no_difference_from_a_run_that_had_it() -> None:
    settings = (("kernel.numa_balancing", "0"), ("vm.swappiness", "60"))
    run = replace(stored([copy_row(0, 1.0)]), settings=settings)
    present = (("kernel.numa_balancing", "1"), ("vm.swappiness", "10"))
    now = replace(stored_conditions(run), settings=present)
    told = [one.what for one in changed_conditions(run, now, ["numa_balancing"])]
    assert told == ["setting vm.swappiness"]
    assert len(changed_conditions(run, now)) == 2
