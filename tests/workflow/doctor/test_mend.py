"""What the doctor sets for the time of a command is set, put back, and put back after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.calls import RATER, Rater
from tests.support.doctor_tree import change, make_doctor_tree
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
