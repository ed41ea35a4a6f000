"""Settings of the machine around a run, and the doctor: read, judged, set, put back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from rater.analysis.doctor.examine import CHECKS, examine, facts_of_run, tuned_settings
from rater.analysis.doctor.findings import DoctorFinding, MachineFacts
from rater.plan.request import Request
from rater.run.host.admission import default_lock_path, machine_lock
from rater.run.host.facts import microcode_now, present_readings, settings_snapshot
from rater.run.host.foreign_load import ForeignLoadSampler
from rater.run.host.inherited import process_settings
from rater.run.host.memory import pool_rooms
from rater.run.observe.perf import perf_obstacle
from rater.settings.restore import find_leftovers, may_recover, restore_leftovers
from rater.settings.tuner import SettingsSession, available_settings, find_setting
from rater.system.errors import InputError
from rater.system.paths import default_journal_path, journal_paths, sysroot
from rater.system.process import StoppedBySignal, print_error
from rater.text.cpuset import parse_set
from rater.text.secrets import command_text
from rater.text.values import truncate_list
from rater.workflow.arguments import Output, open_existing_store, print_view

if TYPE_CHECKING:
    from rater.show.plans.machine import DoctorView

# -- Settings of the machine that a run or a command itself needs: set, told, put back -------------

_SHOWN = 8


def refuse_unsettable(values: Mapping[str, str]) -> None:
    """Raise `InputError` that names the settings that this process cannot set; only looks."""
    obstacles = {name: find_setting(name, sysroot()).obstacle() for name in values}
    refused = [
        f"{name} cannot be set: {obstacle}" for name, obstacle in obstacles.items() if obstacle
    ]
    if refused:
        raise InputError("\n".join(refused))


class RunSettings:
    """Sets what one run wants of the machine; a context manager, behind which it is put back.

    All goes through a `SettingsSession`, which other settings may be set with, and which puts
    everything back at its own end, also after a kill -9.
    """

    def __init__(self, tuner: SettingsSession, report: Callable[[str], None]) -> None:
        self._tuner = tuner
        self._report = report
        self._before: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Put back what this run set for itself: the next is not to differ by that."""
        if self._before:
            self._tuner.set(self._before)

    def set(self, values: Mapping[str, str]) -> None:
        """Set settings by name. Raises `InputError` where one cannot be set.

        Raises `RunError` where the kernel takes another value, which then stays.
        """
        if not values:
            return
        refuse_unsettable(values)
        readings = {name: find_setting(name, sysroot()).read() for name in values}
        for name, present in readings.items():
            if len({value for _, value in present.files}) == 1:  # else it is no one value
                self._before.setdefault(name, present.description)
        self._tuner.set(values)
        changes = [
            f"{name}={value} (was {readings[name].description})" for name, value in values.items()
        ]
        self._report(f"changed for this run, restored at its end: {truncate_list(changes, _SHOWN)}")


# -- `rater doctor`: this machine read, judged and shown; or mended for the time of a command ------


def doctor(
    output: Output,
    checks: tuple[str, ...],
    run_of: str | None,
    fix: bool,
    command: tuple[str, ...] | None,
) -> int:
    """Show all findings; the exit status is 0 in any case, `--json` has the counts."""
    from rater.show.plans.machine import doctor_document, doctor_parts

    if fix:
        if checks or run_of or output.json:
            raise InputError("--fix takes a command behind `--` and nothing else")
        return _run_tuned(command or ())
    if command is not None:
        raise InputError("a command behind `--` belongs to --fix: `rater doctor --fix -- COMMAND`")
    view = _view_of_run(output, run_of) if run_of else _view_this_machine()
    findings = _select_findings(view.findings, checks)
    if checks and not output.json:
        view = replace(view, findings=findings, rooms=(), tuned={})
    detailed = bool(checks) or output.verbose
    print_view(output, doctor_document(view), partial(doctor_parts, detailed=detailed))
    return 0


def _view_this_machine() -> DoctorView:
    from rater.show.plans.machine import DoctorView

    root = sysroot()
    findings = examine(facts_now(root, with_load=True))
    tuned = tuned_settings(findings, names_here(root))
    return DoctorView(findings, pool_rooms(root), tuned, "this machine")


def _view_of_run(output: Output, word: str) -> DoctorView:
    from rater.show.plans.machine import DoctorView

    with open_existing_store(output) as store:
        run = store.load(store.find(word))
    return DoctorView(examine(facts_of_run(run)), (), {}, f"the machine of run {run.head.run}")


def _select_findings(
    findings: tuple[DoctorFinding, ...], names: Sequence[str]
) -> tuple[DoctorFinding, ...]:
    names_of_checks = {check.name.lower(): check.name for check in CHECKS}
    wanted = {names_of_checks.get(name.lower()) for name in names}
    for name in names:
        if name.lower() not in names_of_checks:
            raise InputError(
                f"{name}: no such check; there are: {', '.join(names_of_checks.values())}"
            )
    return tuple(finding for finding in findings if not names or finding.check in wanted)


# -- What the doctor would set: for a run, or around a command -------------------------------------


def tuned_settings_of(request: Request) -> dict[str, str]:
    """Return the settings that a run with --tuned sets, by name; none without --tuned."""
    return _tuned_now() if request.tuned else {}


def _tuned_now() -> dict[str, str]:
    root = sysroot()
    return tuned_settings(examine(facts_now(root, with_load=False)), names_here(root))


def _run_tuned(command: Sequence[str]) -> int:
    """Run a command with what the doctor would set; return the command's exit status."""
    if not command:
        raise InputError(
            "--fix sets settings for the time of a command: `rater doctor --fix -- make bench`; "
            "`rater run --tuned` does so for a run"
        )
    holder = f"rater doctor --fix -- {command_text(command)}"[:80]
    with machine_lock(default_lock_path(), f"{holder}, process {os.getpid()}"):
        pass  # nobody times copies now, whom that would disturb; the command may be a rater
    for warning in restore_leftover_settings():
        print_error(f"warning: {warning}")
    values = _tuned_now()
    if not values:
        print_error("nothing to set: recommended settings are in place, or not on this machine")
    with SettingsSession(sysroot(), default_journal_path(), holder) as tuner:
        RunSettings(tuner, print_error).set(values)
        return _run_command(command)


def _run_command(command: Sequence[str]) -> int:
    """Run a command to its end; a signal that ends rater ends it first."""
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise InputError(f"{command[0]}: {error.strerror}") from error
    try:
        status = process.wait()
    except StoppedBySignal:
        process.terminate()
        process.wait()
        raise
    return status if status >= 0 else 128 - status


# -- Settings of the machine that a dead sweep left: put back before a run, else only reported -----


def restore_leftover_settings() -> tuple[str, ...]:
    """Put back what a dead process left, and say so; return what a run should be warned of.

    Call it with the machine's lock, before anything is read of the machine: settings must
    not change under copies that are timed. Nothing happens while their owner lives, this
    process or another.
    """
    root = sysroot()
    warnings: list[str] = []
    for path in journal_paths():
        leftovers = find_leftovers(root, path)
        if leftovers is None:
            continue
        if not may_recover(path):
            warnings.append(
                f"{leftovers.summary}; they are in force still: `sudo rater settings restore`"
            )
            continue
        messages: list[str] = []
        if restore_leftovers(root, path, messages.append):
            for text in messages:
                print_error(text)
        else:
            warnings += messages
    return tuple(warnings)


def report() -> None:
    """Say what a dead process left, on standard error; change nothing."""
    for path in journal_paths():
        leftovers = find_leftovers(sysroot(), path)
        if leftovers is not None:
            print_error(f"{leftovers.summary}; {leftovers.remedy}")


# -- What the doctor reads of this machine now -----------------------------------------------------

_LEAST_BUSY = 0.05  # of a CPU: smaller processes are counted together


def facts_now(root: Path, *, with_load: bool) -> MachineFacts:
    """Return facts of this machine; `with_load` samples its load for a quarter of a second."""
    values = dict(settings_snapshot(root)) | dict(process_settings())
    values |= dict(present_readings(root))
    if root == Path("/") and (refused := perf_obstacle()):
        values["rater.perf_refused"] = "\n".join(refused)
    if with_load:
        values |= _read_load()
    nodes, online = values.get("nodes"), parse_set(values.get("cpu.online", ""))
    return MachineFacts(
        values=values,
        microcode=microcode_now(root),
        nodes=None if nodes is None else int(nodes),
        pus=len(online) or None,
    )


def names_here(root: Path) -> tuple[str, ...]:
    """Return the names of the settings that this machine has."""
    return tuple(setting.name for setting in available_settings(root))


def _read_load() -> dict[str, str]:
    busy = ForeignLoadSampler().busy(_LEAST_BUSY)
    cpus = sum(process.share for process in busy.processes) + busy.unseen
    named = truncate_list(
        [f"{process.command} {process.share:.1f}" for process in busy.processes], 2
    )
    found = {"others.busy_cpus": f"{cpus:.2f}", "others.stolen_share": f"{busy.stolen:.4f}"}
    return found | ({"others.named": named} if named else {})
