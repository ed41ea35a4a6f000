"""What copies inherit from the process that started rater, read and told by a run."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rater.run.host.facts import thp_mode
from rater.run.host.inherited import process_settings
from tests.support.calls import RATER

# Runs a command without transparent huge pages, as MemoryTHP= of systemd does.
WITHOUT_THP = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_what_copies_inherit_from_this_process_is_told(tmp_path: Path) -> None:
    described = {
        "status": "Name:\tx\nSigBlk:\t0000000000002000\nSigIgn:\t0000000000001201\n"
        "Speculation_Store_Bypass:\tthread force mitigated\n",
        "personality": "00040000",
        "oom_score_adj": "-500\n",
        "sched": "x (1, #threads: 1)\nuclamp.min                  :        0\n"
        "uclamp.max                  :      512\neffective uclamp.max        :      512\n",
    }
    for name, text in described.items():
        (tmp_path / name).write_text(text)
    settings = dict(process_settings(tmp_path))
    # SIGPIPE (bit 12) is ignored by Python itself.
    assert settings["process.ignored_signals"] == "SIGHUP SIGUSR1"
    assert settings["process.blocked_signals"] == "SIGALRM"
    assert settings["process.oom_score_adj"] == "-500"
    assert settings["process.store_bypass"] == "thread force mitigated"
    assert settings["process.personality"] == "40000"
    assert (settings["process.uclamp_min"], settings["process.uclamp_max"]) == ("0", "512")
    assert settings["process.scheduler"] == "other"


def test_huge_pages_and_timers_of_a_process_are_told_as_its_parent_left_them() -> None:
    code = (
        "import ctypes; from rater.run.host.inherited import process_settings\n"
        "prctl = ctypes.CDLL(None).prctl; prctl(41, 1, 0, 0, 0); prctl(29, 70000, 0, 0, 0)\n"
        "print(dict(process_settings()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'process.thp': 'off'" in done.stdout
    assert "'process.timer_slack_ns': '70000'" in done.stdout


@pytest.mark.skipif(thp_mode() in (None, "never"), reason="this machine has no THP to switch off")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "transparent huge pages are switched off (prctl PR_SET_THP_DISABLE); start rater"),
        (["--hugepages", "madvise"], "--hugepages madvise switches them on for copies"),
        (["--hugepages", "off"], None),
    ],
)
def test_a_run_says_what_its_copies_inherit_unless_it_was_asked_for(
    options: list[str], text: str | None
) -> None:
    run = [*RATER, "run", "--dry-run", "--copies", "1", *options, "--", "true"]
    command = [sys.executable, "-c", WITHOUT_THP, *run]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    said = " ".join(done.stdout.split())
    assert (text in said) if text else ("huge pages are switched off" not in said), done


def test_an_ignored_sigpipe_is_handed_on_where_the_shell_that_started_rater_tells(
    tmp_path: Path,
) -> None:
    copy = ["sh", "-c", 'grep SigIgn /proc/self/status > "$PLACE"']
    run = shlex.join([*RATER, "run", "--copies", "1", "--share", "--", *copy])
    place = tmp_path / "status"
    bits = []
    for trap in ("trap '' PIPE; ", ""):
        done = subprocess.run(
            ["sh", "-c", f"{trap}{run}; true"],  # the shell stays, for a command comes behind
            env={**os.environ, "PLACE": str(place)},
            check=True,
            capture_output=True,
            text=True,
        )
        bits.append(int(place.read_text().split()[1], 16) >> (signal.SIGPIPE - 1) & 1)
        said = " ".join(done.stderr.split())
        assert ("SIGPIPE ignored: programs that wait for it" in said) == bool(trap), said
    assert bits == [1, 0]
