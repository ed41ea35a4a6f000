"""kill -9 of any command, bad disks, bad copies: nothing lives on, is lost or half done.

The long form is `make torture`.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.torture import cpus, disks, faults, hostile, stops
from benchmarks.torture.attempt import Ended, wrong_with
from benchmarks.torture.commands import COMMANDS
from benchmarks.torture.stopping import Stopped
from benchmarks.torture.sweeping import one_sweep
from benchmarks.torture.table import Row, row_of, table
from tests.support.places import CHECKOUT
from tests.support.settings_tree import make_tree, values
from tests.support.strangers import needs_root

BY_NAME = {command.name: command for command in COMMANDS}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return Stopped.prepare(BY_NAME["run"], tmp_path_factory.mktemp("run"), dict(os.environ))


def test_a_run_that_is_killed_leaves_what_was_done_and_the_next_one_works(
    tmp_path: Path, whole_run: Stopped
) -> None:
    assert whole_run.wrong(tmp_path / "killed", late(whole_run)) is None


@pytest.mark.parametrize("name", ["import", "rm"])
def test_a_command_that_is_killed_is_done_whole_or_not_at_all_and_the_next_one_works(
    tmp_path: Path, name: str
) -> None:
    stopped = Stopped.prepare(BY_NAME[name], tmp_path / "of", dict(os.environ))
    assert stopped.wrong(tmp_path / "killed", late(stopped)) is None


def late(stopped: Stopped) -> list[tuple[float, signal.Signals]]:
    """The moment of the kill: in the midst of what it writes."""
    return [(0.8 * stopped.takes_s, signal.SIGKILL)]


def test_without_a_cgroup_the_launcher_still_finds_everything(
    tmp_path: Path, whole_run: Stopped
) -> None:
    # A name in PYTHONPATH that makes the run believe there is no cgroup file system.
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import rater.run.launcher.guard as g\ng.Cgroup.make = classmethod(lambda *a, **k: None)\n"
    )
    stopped = replace(whole_run, environment=dict(os.environ) | {"PYTHONPATH": str(hook)})
    assert stopped.wrong(tmp_path / "killed", late(stopped)) is None


def test_a_killed_sweep_is_resumed_exactly_and_settings_are_put_back(
    tmp_path: Path,
) -> None:
    axes = ("env:WORD=,a", "thp=never,always")
    told = one_sweep(tmp_path, dict(os.environ), random.Random(5), axes, longest_s=1.5)
    assert told.wrong == []
    assert told.ends.total() >= 1


# Forks a child for every moment: just before the n-th call into the system of those that change
# something, so just after the one before.
DRIVER = """
import os, signal, sys
from pathlib import Path
from rater.settings.restore import find_leftovers, restore_leftovers
from rater.settings.tuner import SettingsSession
from tests.support.settings_tree import make_tree, values

folder = Path(sys.argv[1])
root, journal = make_tree(folder / "machine"), folder / "state/settings.json"
before = values(root)
quiet = lambda text: None
CHANGING = ("open", "write", "fsync", "replace", "unlink", "mkdir")

def sweep():
    with SettingsSession(root, journal, "sweep") as tuner:
        tuner.refuse_unless_settable({"thp": ["never"], "governor": ["powersave"]})
        tuner.set({"thp": "never", "hugepages.2048kB": "40"})
        tuner.set({"thp": "always", "governor": "powersave"})

def killed_at(moment, act):
    '''Run it in a child that dies there; tell whether it came to its end.'''
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    passed = 0
    def watch(frame, event, what):
        nonlocal passed
        if event == "c_call" and what.__module__ == "posix" and what.__name__ in CHANGING:
            passed += 1
            if passed == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(watch)
    act()
    sys.setprofile(None)
    os._exit(0)

def check(what, moment):
    left = find_leftovers(root, journal)
    if values(root) != before and left is None:
        sys.exit(f"{what} killed at {moment}: changed, and nobody knows")
    if not restore_leftovers(root, journal, quiet) or values(root) != before or journal.exists():
        found = sorted(set(values(root).items()) - set(before.items()))
        sys.exit(f"{what} killed at {moment}: not put back: {found} {left}")

moment, changed, ended = -1, 0, False
while not ended:
    moment += 2  # every second one: the put-back of each dies at another place anyway
    ended = killed_at(moment, sweep)
    changed += values(root) != before
    # The first rater that puts things back is killed as well, somewhere else each time.
    killed_at(moment * 7 % 30 + 1, lambda: restore_leftovers(root, journal, quiet))
    check("sweep", moment)
print(moment, changed)
"""


def test_a_sweep_killed_at_any_moment_leaves_a_machine_that_is_put_back(tmp_path: Path) -> None:
    root = CHECKOUT
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    assert done.returncode == 0, done.stderr
    moments, changed = map(int, done.stdout.split())
    assert moments > 40
    assert changed > 10  # of those, so many found settings changed
    assert values(tmp_path / "machine") == values(make_tree(tmp_path / "another"))


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@needs_cc
@pytest.mark.parametrize(("at", "ever"), [(70, True), (75, False)])
def test_a_write_of_the_database_that_fails_loses_no_finished_copy(
    tmp_path: Path, at: int, ever: bool
) -> None:
    library = faults.compiled(tmp_path)
    environment = dict(os.environ)
    assert (
        faults.run_with_failing_call(tmp_path, environment, library, at, errno.EIO, ever=ever)
        is None
    )


def test_only_a_finished_copy_without_a_row_is_lost(tmp_path: Path) -> None:
    rows = [(0, "ok"), (1, "ok"), (1, "interrupted")]
    with closing(sqlite3.connect(tmp_path / "fault.db")) as database:
        database.execute("CREATE TABLE copy (copy, status)")
        database.execute("CREATE TABLE run (id, status)")
        database.executemany("INSERT INTO copy VALUES (?, ?)", rows)
        database.commit()
    failed = Ended(1, "rater: run 1 failed", 0)
    (tmp_path / "done").write_text("0\n1\n1\n")  # copy 1 came to its end while others were stopped
    assert wrong_with(failed, tmp_path) is None
    (tmp_path / "done").write_text("0\n1\n2\n")
    assert wrong_with(failed, tmp_path) == (
        "1 finished copies are stored nowhere: rater: run 1 failed"
    )


@needs_cc
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_disk_without_room_for_the_database_is_told(tmp_path: Path) -> None:
    assert disks.run_on_disk(tmp_path, dict(os.environ), "db", "size=64k", "") is None


@needs_cc
@pytest.mark.parametrize("name", ["stops its group", "closes its descriptors"])
def test_a_run_of_copies_that_misbehave_ends_in_order(tmp_path: Path, name: str) -> None:
    assert hostile.run_misbehaving(tmp_path, dict(os.environ), name) is None


@needs_cc
@needs_root
def test_what_another_user_put_in_the_place_of_the_journal_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):  # pytest's are for its own user only
        folder.chmod(0o711)
    (tmp_path / "open").mkdir()
    name = "makes the journal a link"
    assert hostile.after_stranger(tmp_path / "open", dict(os.environ), name) is None


@needs_cc
@pytest.mark.parametrize("name", ["the launcher", "the checker"])
def test_a_run_whose_helper_is_stopped_ends(tmp_path: Path, name: str) -> None:
    assert stops.run_with_stopped_helper(tmp_path, dict(os.environ), name, 0.1) is None


@needs_cc
def test_a_run_whose_affinity_shrinks_ends(tmp_path: Path) -> None:
    assert cpus.run_with_change(tmp_path, dict(os.environ), cpus.shrink_affinity) is None


@needs_cc
def test_the_table_counts_what_was_lost_and_says_what_first() -> None:
    rows = [row_of("a", [None, "gone", "away"]), Row("longer", 0, 0, "left out: no disk")]
    assert table(rows) == (
        "campaign     tried  survived   lost\n"
        "a              3         1      2  gone\n"
        "longer         0         0      0  left out: no disk"
    )
