"""Copies that misbehave, and another user who was there first: the run ends, and says how."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import attempts, run, wrong_with
from benchmarks.torture.commands import MACHINE, on_machine
from benchmarks.torture.table import Row, row_of, scaled_number
from tests.support.settings_tree import make_tree, values
from tests.support.strangers import stranger_does

WORDS = (
    "--quiet",
    "--proof",
    "off",
    "--copies",
    "3",
    "--timeout",
    "1",
    "--grace",
    "0.5",
    "--output-limit",
    "2M",
)
_USER = 54321  # who may have few processes; needs no entry in any file
_RATER = "$(cut -d' ' -f4 /proc/$PPID/stat)"  # the parent of its parent
# What a copy does, and the exit statuses of rater that are right (-9: it was killed by a copy).
COPIES = {
    "ignores SIGTERM": ("trap '' TERM; while :; do sleep 0.1; done", (1,)),
    "stops itself": ("kill -STOP $$", (1,)),
    "stops its group": ("kill -STOP 0", (1,)),
    "closes its descriptors": ("exec 0<&- 1>&- 2>&- 3>&- 9>&-; sleep 0.2", (0,)),
    "writes without end": ("yes", (1,)),
    "leaves a session behind": ("setsid sleep 300 & setsid setsid sleep 300 & exit 0", (0,)),
    "kills the launcher": ("kill -9 $PPID; sleep 300", (1,)),
    "interrupts the launcher": ("kill -INT $PPID; sleep 300", (1,)),
    "kills rater": (f"kill -9 {_RATER}; sleep 300", (-9,)),
    "interrupts rater": (f"kill -INT {_RATER}; sleep 300", (130, -2)),
    "reads the terminal": ("read answer </dev/tty", (1,)),
    "kills its group": ("kill -9 0", (1,)),
    "removes its directory": ('rm -rf "$PWD"; sleep 0.1', (0, 1)),
    "fills its directory": ("i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done", (0,)),
    "nests its directory": (
        "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done",
        (0, 1),
    ),
    "exits by a signal": ("kill -SEGV $$", (1,)),
    "forks as another user": (
        f"exec setpriv --reuid {_USER} --regid {_USER} --clear-groups sh -c "
        "'ulimit -u 40; f() { f | f & }; f; sleep 300'",
        (1,),
    ),
}


# What another user does in a folder where everybody may make files, before root's run comes there.
STRANGERS = {
    "makes the lock a link": "ln -s precious lock",
    "makes the journal a link": "ln -s precious settings.json",
    "makes the journal a pipe": "mkfifo settings.json",
    "has a journal of their own": """printf '{"settings": {}}' > settings.json""",
    "has the lock": ": > lock; chmod 666 lock",
    "makes the cache a link": "mkdir theirs; ln -s theirs cache",
    "has the cache": "mkdir -m 777 cache cache/work cache/build",
}
_SWEEP = ("sweep", "--axis", "thp=never,always", "--rounds", "1", "--copies", "1", "--quiet")


def campaign(bench: Bench, share: float = 1.0) -> list[Row]:
    """Run each kind of bad copy twice; as root let another user be there first."""
    may_be_another = os.geteuid() == 0
    names = [it for it in COPIES if may_be_another or "another user" not in it]
    bad = attempts(
        bench,
        lambda folder, name: run_misbehaving(folder, bench.environment, name),
        names[: scaled_number(share, len(names))] * scaled_number(share, 2),
    )
    rows = [row_of("copies that misbehave", bad)]
    if not may_be_another:
        return [*rows, Row("another user", 0, 0, "left out: only root can be another user")]
    bench.folder.chmod(0o711)
    rows.append(
        row_of(
            "another user was there first",
            attempts(
                bench,
                lambda folder, name: after_stranger(folder, bench.environment, name),
                list(STRANGERS)[: scaled_number(share, len(STRANGERS))],
            ),
        )
    )
    return rows


def run_misbehaving(folder: Path, environment: Mapping[str, str], name: str) -> str | None:
    """Run copies that misbehave in that way; return what is wrong with how the run ended."""
    script, statuses = COPIES[name]
    ended = run(folder, environment, ["run", *WORDS, "--", "sh", "-c", script])
    found = wrong_with(ended, folder, statuses)
    return found and f"{name}: {found}"


def after_stranger(folder: Path, environment: Mapping[str, str], name: str) -> str | None:
    """Sweep where another user was first: it runs or is refused; nothing of root's changes."""
    folder.chmod(0o1777)
    settings = values(make_tree(folder / MACHINE))
    precious = folder / "precious"
    precious.write_text("precious")
    precious.chmod(0o600)
    stranger_does(STRANGERS[name], folder)
    ended = run(folder, on_machine(environment, folder), [*_SWEEP, "--", "true"])
    found = wrong_with(ended, folder, (0, 2))
    if precious.read_text() != "precious" or precious.stat().st_mode & 0o777 != 0o600:
        found = "a file of root's was changed"
    if values(folder / MACHINE) != settings:
        found = "settings are not put back"
    return found and f"the other user {name}: {found}"
