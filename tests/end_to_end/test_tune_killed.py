"""kill -9 between any two system calls leaves nothing changed, or a journal that puts it back."""

import subprocess
import sys
from pathlib import Path

from tests.support.places import CHECKOUT
from tests.support.settings_tree import make_tree, values

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

moment, changed, ended = 0, 0, False
while not ended:
    moment += 1
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
