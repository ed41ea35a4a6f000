"""Settings of the machine for the time of a run or a command: set, told, put back."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rater.errors import InputError
from rater.run.host.lock import default_lock_path, machine_lock
from rater.settings.catalog import find
from rater.settings.paths import default_journal_path, sysroot
from rater.settings.tuner import Tuner
from rater.stop_signals import Stopped
from rater.text.words import some
from rater.workflow.common import say
from rater.workflow.restore_settings import put_back


def tuned_now(root: Path) -> dict[str, str]:
    """Return what the doctor would set on this machine as it is, by name."""
    from rater.analysis.doctor.examine import examine, tuned_settings
    from rater.workflow.doctor.facts import facts_now, names_here

    return tuned_settings(examine(facts_now(root, with_load=False)), names_here(root))


@contextmanager
def set_for(what: str, wanted: Mapping[str, str], report: Callable[[str], None]) -> Iterator[None]:
    """Have settings at these values while the block runs; put back whatever ends it.

    `what` tells people who changes them. Raises `InputError` where they cannot be set,
    `RunError` where the kernel takes something else.
    """
    root = sysroot()
    if not wanted:
        yield
        return
    with Tuner(root, default_journal_path(), what) as tuner:
        tuner.refuse_unless_settable({name: [value] for name, value in wanted.items()})
        before = {name: find(name, root).read().text for name in wanted}
        tuner.set(wanted)
        told = [f"{name}={value} (was {before[name]})" for name, value in wanted.items()]
        report(f"set for now, and put back at the end: {some(told, 8)}")
        yield


def fix(args: argparse.Namespace) -> int:
    """Run a command with what the doctor would set; return the command's exit status."""
    if not args.command:
        raise InputError(
            "--fix sets settings for the time of a command: rater doctor --fix -- make bench; "
            "`rater run --tuned` does so for a run"
        )
    what = f"rater doctor --fix -- {shlex.join(args.command)}"[:80]
    with machine_lock(default_lock_path(), f"{what}, process {os.getpid()}"):
        pass  # nobody times copies now, whom that would disturb; the command may be a rater
    for warning in put_back():
        say(f"warning: {warning}")
    wanted = tuned_now(sysroot())
    if not wanted:
        say("nothing to set: what the doctor would set is as it should be, or not here")
    with set_for(what, wanted, say):
        return _ended(args.command)


def _ended(command: list[str]) -> int:
    """Run a command to its end; a signal that ends rater ends it first."""
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}") from error
    try:
        status = process.wait()
    except Stopped:
        process.terminate()
        process.wait()
        raise
    return status if status >= 0 else 128 - status
