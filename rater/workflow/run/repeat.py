"""A stored run as something to be done once more: what was asked for, where, and what changed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from rater.errors import InputError
from rater.plan.request.request import Request
from rater.plan.request.stored import request_from_json
from rater.plan.suite.find import find_suite, split_selection, suite_names

if TYPE_CHECKING:
    from rater.analysis.conditions.conditions import ConditionDifference, Conditions
    from rater.record.stored import RunHead, StoredRun
    from rater.workflow.run.attempt import Now
    from rater.workflow.run.resolve import Resolved

_URI = "file://"
_PLACES = ("RATER_DB", "RATER_CACHE", "RATER_LOCK", "RATER_JOURNAL", "RATER_SYSROOT")


def request_of(head: RunHead) -> Request:
    """Return what a stored run was asked for, its copies as the number that it meant then.

    Raises `InputError` for imported runs and those of a rater that did not keep it.
    """
    if head.source != "run":
        raise InputError(
            f"run {head.run} was imported: its times are known, not how to make them; "
            "`rater run` makes one here"
        )
    if head.request is None:
        raise InputError(
            f"run {head.run} was made by rater {head.rater_version}, which did not keep what it "
            f"was asked for; type it again: {head.command_line}"
        )
    request = request_from_json(head.request, f"run {head.run}")
    # One a lgroup: the word also leaves out CPUs that are of none.
    return request if request.copies == "nodes" else replace(request, copies=str(head.copies))


def go_to(args: argparse.Namespace, head: RunHead) -> None:
    """Make the directory a run was called in ours; what the caller named stays where it is.

    Raises `InputError` when it cannot be entered.
    """
    go_into(
        args,
        head.directory or ".",
        f"run {head.run}",
        "its command and files were looked for there; put it back, or use `rater run`",
    )


def go_into(
    args: argparse.Namespace,
    directory: str,
    what: str,
    way_out: str = "its command and files were looked for there; put it back",
) -> None:
    """Make `directory` ours, where `what` was made; what the caller named stays where it is.

    Raises `InputError` when it cannot be entered.
    """
    from rater.store.connection import default_path

    args.db = str(default_path(args.db).absolute())
    for name in _PLACES:
        if os.environ.get(name):
            os.environ[name] = str(Path(os.environ[name]).absolute())
    suites = [word for word in os.environ.get("RATER_SUITES", "").split(":") if word]
    if suites:
        os.environ["RATER_SUITES"] = ":".join(str(Path(word).absolute()) for word in suites)
    if directory.startswith(_URI):
        directory = os.fsdecode(unquote_to_bytes(directory.removeprefix(_URI)))
    try:
        os.chdir(directory)
    except OSError as error:
        raise InputError(
            f"{what} was made in {directory}, which cannot be entered ({error.strerror}): {way_out}"
        ) from error
    if "PWD" in os.environ:  # shells that copies start believe it where it is right
        os.environ["PWD"] = directory


@contextmanager
def told_where(head: RunHead) -> Iterator[None]:
    """Let errors about what a stored run was asked for say which run, and where it was made."""
    try:
        yield
    except InputError as error:
        raise InputError(
            f"run {head.run}, made in {head.directory}, cannot be made there again: {error}"
        ) from error


def with_its_suites(request: Request, head: RunHead) -> Request:
    """Return the request with the user's own suites by the files they were, if still there.

    A name can mean another file by now: `RATER_SUITES` is not kept with the run.
    """
    if request.of_kit:  # its newest run directories, which may be other ones by now: that is told
        return request
    names = dict.fromkeys(split_selection(selection)[0] for selection in request.suites)
    files = dict(zip(names, (head.suite_path or "").splitlines(), strict=False))
    return replace(request, suites=tuple(_pinned(it, files) for it in request.suites))


def _pinned(selection: str, files: dict[str, str]) -> str:
    name, benchmarks = split_selection(selection)
    file = files.get(name)
    if file is None or name in suite_names() or not Path(file).is_file():
        return selection
    try:
        if find_suite(name) == Path(file):
            return selection
    except InputError:
        pass
    return f"{file}/{','.join(benchmarks)}" if benchmarks else file


def what_changed(run: StoredRun, now: Conditions) -> tuple[ConditionDifference, ...]:
    """Return what differs from a stored run, readings that always do left out."""
    from rater.analysis.conditions.conditions import condition_differences, stored_conditions

    return condition_differences(stored_conditions(run), now)


def conditions_before_building(resolved: Resolved) -> Conditions:
    """Return the conditions of a run as far as they are known before anything is built."""
    from rater import __version__
    from rater.analysis.conditions.conditions import Conditions
    from rater.run.host.snapshot import host_facts
    from rater.workflow.run.head import machine_pus, placed_copies, settings_now, suite_files

    path, sha256 = suite_files(resolved.request)
    return Conditions(
        host=host_facts(resolved.topology),
        settings=settings_now(resolved),
        pus=tuple(machine_pus(resolved)),
        placements=placed_copies(resolved),
        benchmarks=None,
        suite_path=path,
        suite_sha256=sha256,
        rater_version=__version__,
    )


def conditions_of(now: Now) -> Conditions:
    """Return the conditions of a run that is about to begin."""
    from rater.analysis.conditions.conditions import present_conditions

    return present_conditions(now.run, now.host, now.settings, now.pus)
