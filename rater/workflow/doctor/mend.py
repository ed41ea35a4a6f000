"""What the doctor would set: for a run, or around a command."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess

from rater.errors import InputError
from rater.plan.request.request import Request
from rater.run.host.lock import default_lock_path, machine_lock
from rater.settings.paths import default_journal_path, sysroot
from rater.settings.tuner import Tuner
from rater.stop_signals import Stopped
from rater.streams import say
from rater.workflow.own_settings import RunSettings
from rater.workflow.restore_settings import put_back


def tuned_settings_of(request: Request) -> dict[str, str]:
    """Return what a run with --tuned wants of the machine as it is now, by name; else nothing."""
    return _tuned_now() if request.tuned else {}


def _tuned_now() -> dict[str, str]:
    from rater.analysis.doctor.examine import examine, tuned_settings
    from rater.workflow.doctor.facts import facts_now, names_here

    root = sysroot()
    return tuned_settings(examine(facts_now(root, with_load=False)), names_here(root))


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
    wanted = _tuned_now()
    if not wanted:
        say("nothing to set: what the doctor would set is as it should be, or not here")
    with Tuner(sysroot(), default_journal_path(), what) as tuner:
        RunSettings(tuner, say).set(wanted)
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
