"""`rater settings`, `rater restore`, and what other commands do about settings that were left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rater.files import default_journal_path, journal_paths
from rater.settings.tuner import SettingsSession
from tests.support.calls import Rater, rows
from tests.support.settings_tree import BOOT_ID, line, policy, values

SWAPPINESS = "proc/sys/vm/swappiness"


def die_with(machine: Path, **wanted: str) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            SettingsSession(machine, default_journal_path(), "rater sweep mini").set(wanted)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.usefixtures("machine")
def test_settings_are_shown_by_group_in_eighty_columns(rater: Rater) -> None:
    status, out, _ = rater("settings")
    assert status == 0
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert "transparent huge pages\n  thp               madvise  who gets" in out
    assert "  smt.control        on" in out
    assert "now performance (0,3), powersave" in out
    assert "unavailable here: compaction_proactiveness (this kernel was built without)" in out


@pytest.mark.usefixtures("machine")
def test_a_name_narrows_to_it_and_what_is_below_it_with_its_files(rater: Rater) -> None:
    status, out, _ = rater("settings", "hugepages.2048kB", "kernel.randomize_va_space")
    assert status == 0
    assert "  hugepages.2048kB        12  pages reserved for explicit requests" in out
    assert "hugepages.2048kB.node1  2" in out
    assert "recorded as hugepages.node1.2048kB.total" in out
    assert "/proc/sys/kernel/randomize_va_space" in out
    assert "swappiness" not in out


@pytest.mark.usefixtures("machine")
def test_an_unknown_setting_is_told_with_close_ones(rater: Rater) -> None:
    status, _, err = rater("settings", "govenor")
    assert status == 2
    assert "did you mean governor" in err


def test_settings_as_json_have_values_choices_and_files(rater: Rater, machine: Path) -> None:
    status, out, _ = rater("settings", "--json")
    document = json.loads(out)
    found = {one["name"]: one for one in document["settings"]}
    assert status == 0
    assert found["thp"]["value"] == "madvise"
    assert found["thp"]["choices"] == ["always", "madvise", "never"]
    assert found["thp"]["recorded_as"] == "thp.enabled"
    assert (found["swappiness"]["least"], found["swappiness"]["most"]) == (0, 200)
    assert found["governor"]["files"][str(machine / policy(1, "scaling_governor"))] == "powersave"
    assert document["journals"] == [str(default_journal_path())]


@pytest.mark.usefixtures("machine")
def test_there_is_nothing_to_put_back_where_nothing_was_left(rater: Rater) -> None:
    status, out, err = rater("restore")
    assert (status, out) == (0, "nothing to put back: no sweep left settings changed\n")
    assert err == ""


def test_restore_puts_back_what_a_dead_sweep_left_and_other_commands_only_tell(
    rater: Rater, machine: Path
) -> None:
    before = values(machine)
    die_with(machine, swappiness="10", thp="never")
    status, _, err = rater("layouts")
    assert status == 0
    assert "died and left settings changed: thp was madvise, swappiness was 60" in err
    assert "`rater restore` puts them back" in err
    assert values(machine) != before
    status, out, _ = rater("restore")
    assert status == 0
    assert "thp madvise (was never)" in out
    assert values(machine) == before
    assert rater("layouts")[2] == ""


def test_restore_leaves_what_somebody_else_set_and_says_how_to_undo_that(
    rater: Rater, machine: Path
) -> None:
    die_with(machine, swappiness="10")
    (machine / SWAPPINESS).write_text("33\n")
    status, out, _ = rater("restore", "--json")
    document = json.loads(out)
    assert (status, document["restored"]) == (1, False)
    assert "swappiness was 60 and is not put back: somebody set it to 33" in document["said"][0]
    assert "--force writes what was there" in document["said"][1]
    assert rater("restore", "--force")[0] == 0
    assert line(machine / SWAPPINESS) == "60"


def test_forget_leaves_everything_and_keeps_the_journal_aside(rater: Rater, machine: Path) -> None:
    die_with(machine, swappiness="10")
    status, out, _ = rater("restore", "--forget")
    assert status == 0
    assert "settings.json.old" in out
    assert line(machine / SWAPPINESS) == "10"
    assert rater("restore")[1].startswith("nothing to put back")


def test_a_run_puts_back_first_and_says_so(rater: Rater, machine: Path) -> None:
    die_with(machine, swappiness="10")
    status, _, err = rater("run", "--dry-run", "--copies", "1", "--", "true")
    assert (status, line(machine / SWAPPINESS)) == (0, "10")
    assert "`rater restore` puts them back" in err
    status, _, err = rater("run", "--copies", "1", "--quiet", "--", "true")
    assert status == 0
    assert "put back what rater sweep mini (process " in err
    assert line(machine / SWAPPINESS) == "60"


def test_a_run_under_settings_that_could_not_be_put_back_is_warned_of_it_for_good(
    rater: Rater, machine: Path
) -> None:
    die_with(machine, swappiness="10")
    (machine / SWAPPINESS).write_text("33\n")
    assert rater("run", "--copies", "1", "--quiet", "--", "true")[0] == 0
    told = [text for (text,) in rows("SELECT text FROM note")]
    assert any("swappiness was 60 and is not put back" in text for text in told)


def test_after_a_reboot_a_run_closes_the_journal(rater: Rater, machine: Path) -> None:
    die_with(machine, swappiness="10")
    (machine / BOOT_ID).write_text("another\n")
    assert "`rater restore` closes it" in rater("layouts")[2]
    status, _, err = rater("run", "--copies", "1", "--quiet", "--", "true")
    assert status == 0
    assert "booted since then" in err
    assert line(machine / SWAPPINESS) == "10"
    assert not default_journal_path().exists()


def test_the_journal_of_the_machine_concerns_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATER_JOURNAL")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/me/state")
    machine, own = Path("/var/lib/rater/settings.json"), Path("/home/me/state/rater/settings.json")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (default_journal_path(), journal_paths()) == (machine, (machine,))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (default_journal_path(), journal_paths()) == (own, (machine, own))


def test_commands_load_nothing_of_it_where_nothing_was_left() -> None:
    code = (
        "import sys\n"
        "from rater.cli import main\n"
        "main(['list', '--json'])\n"
        "print('rater.settings.restore' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "False"
