"""`rater fleet run|status|wait|cancel|collect|retry|list`: begun, and what becomes of it."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
import uuid as uuids
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rater import __version__
from rater.errors import InputError
from rater.fleet.backends import POLL_S, backend
from rater.fleet.driver import (
    FleetDriver,
    collect_published,
    show_fleet,
    take_back_cancelling,
    update_printer,
    waited,
)
from rater.fleet.plan import AttemptState, deciding_attempt, expand, may_come_to_more
from rater.fleet.shared_folder import SharedFolder
from rater.fleet.store import (
    FleetRequest,
    StoredFleet,
    find_fleet,
    fleets,
    load_fleet,
    new_fleet,
    set_fleet,
    unfinished_like,
)
from rater.fleet.table import listed_document, listed_parts
from rater.plan.options import OptionForm, was_given
from rater.plan.placement.layout import load_layout, override_layout
from rater.plan.placement.memory_policy import parse_memory
from rater.plan.placement.place import check_copies
from rater.plan.request import OPTIONS, Request
from rater.plan.schedule import resolve_mode, resolve_window
from rater.process import print_error, this_process
from rater.store.connection import default_path
from rater.store.store import Store, open_store
from rater.text.values import count, truncate_list
from rater.workflow.arguments import (
    Asked,
    check_current_directory,
    open_existing_store,
    open_to_list,
    print_view,
)
from rater.workflow.run.head import utc_timestamp
from rater.workflow.run.resolve import load_workloads

# -- `rater fleet run`: everything that can be checked here is, then the plan is stored, then sent -

_SETTLE_S = {"slurm": 60.0, "local": 1.0}
# Options of `rater run` that jobs do not get: their nodes are theirs alone, --wait is another one.
_NOT_PASSED = ("wait", "share")


def run(args: argparse.Namespace) -> int:
    """Begin a fleet, or go on with the one that a killed `rater fleet run` left."""
    asked, nodes = _checked(args)
    with open_store(default_path(args.db)) as store:
        number = unfinished_like(store, asked, nodes)
        if number is not None:
            set_fleet(store, number, **this_process()._asdict())
            print_error(f"goes on with fleet {number}: the same command was killed before its end")
        else:
            _make_folder(asked)  # before the plan: what cannot be made leaves no fleet
            number = new_fleet(store, asked, nodes)
        fleet = load_fleet(store, number)
        _make_folder(fleet.asked)
        steps = FleetDriver(store, number, update_printer(len(fleet.nodes), quiet=args.quiet))
        if args.wait:
            return waited(args, steps)
        steps.act(steps.refresh())
        set_fleet(store, number, begun=1)
        return _submitted(args, store, steps)


def create_confirming_fleet(store: Store, number: int, nodes: tuple[str, ...]) -> int:
    """Plan what a fleet ran once more on some of its nodes, all at a time; return its number.

    Nothing is submitted yet: that is the first step's.
    """
    asked = load_fleet(store, number).asked
    uuid = str(uuids.uuid4())
    folder = Path(asked.folder).with_name(f"rater-{uuid}")
    command_line = shlex.join(["rater", *sys.argv[1:]])
    again = replace(
        asked,
        uuid=uuid,
        started_at=utc_timestamp(),
        folder=str(folder),
        command_line=command_line,
        rater_version=__version__,
        parallel=None,
        confirms=number,
    )
    _make_folder(again)
    made = new_fleet(store, again, nodes)
    set_fleet(store, made, begun=1)
    return made


def _submitted(args: argparse.Namespace, store: Store, steps: FleetDriver) -> int:
    fleet = load_fleet(store, steps.number)
    if not args.quiet or args.json:
        show_fleet(args, fleet, steps.silent)
    left = sum(not of for of in fleet.attempts.values())
    last = [of[-1] for of in fleet.attempts.values() if of]
    if not args.quiet:
        if left:
            print_error(
                f"{count(left, 'node')} to come: `rater fleet wait {fleet.number}` submits them"
            )
        elif any(it.state != "refused" for it in last):
            print_error(
                f"submitted; `rater fleet wait {fleet.number}` waits, tries lost nodes again and "
                "collects"
            )
    return 1 if any(it.state == "refused" for it in last) else 0


def _checked(args: argparse.Namespace) -> tuple[FleetRequest, tuple[str, ...]]:
    """Return what was typed, and its nodes, checked as far as this machine can tell.

    Raises `InputError`.
    """
    check_current_directory()
    if args.nodes is None:
        raise InputError("--nodes is missing: the nodes to run on, such as --nodes 'n[001-128]'")
    nodes = expand(args.nodes)
    _check_numbers(args)
    request = Asked.of(args, but=_NOT_PASSED).request()
    _check_request(request)
    directory = Path.cwd()
    if request.command:
        _check_command(request.command[0])
    uuid = str(uuids.uuid4())
    folder = _home(args) / f"rater-{uuid}"
    found = {it.name: it for it in backend(args.backend, folder).nodes(nodes)}
    for it in found.values():
        if it.reason is not None:
            print_error(f"warning: {it.name} is {it.word}: {it.reason}")
    unknown = [name for name in nodes if name not in found]
    if unknown:
        raise InputError(
            f"--nodes: {truncate_list(unknown)}: not among the scheduler's nodes; `sinfo -N` "
            "lists them"
        )
    asked = FleetRequest(
        uuid=uuid,
        started_at=utc_timestamp(),
        backend=args.backend,
        folder=str(folder),
        scratch=str(Path(args.scratch or "/var/tmp").absolute()),
        directory=str(directory),
        words=words_of(args),
        command=tuple(args.command) if args.command else None,
        command_line=shlex.join(["rater", *sys.argv[1:]]),
        rater_version=__version__,
        parallel=args.parallel,
        attempts=args.attempts,
        minutes=args.minutes,
        pending_limit_s=args.pending_limit,
        settle_s=_SETTLE_S[args.backend] if args.settle is None else args.settle,
        arguments=tuple(args.slurm_arg),
        allow_partial=args.allow_partial,
        busy_limit_s=args.busy_limit,
    )
    return asked, nodes


def _check_numbers(args: argparse.Namespace) -> None:
    for name in ("parallel", "attempts", "minutes"):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= 10**6:
            raise InputError(f"--{name} {value}: expected a whole number, 1 or more")
    for name in ("pending-limit", "busy-limit", "settle"):
        value = getattr(args, name.replace("-", "_"))
        if value is not None and not 0 <= value < 1e9:
            raise InputError(f"--{name} {value:g}: expected seconds, 0 or more")


def _check_request(request: Request) -> None:
    """Check what does not hang on the machine: every node would refuse the same.

    Whether as many copies fit, and which CPUs there are, each node finds for itself.
    """
    load_workloads(request)
    mode, _, stagger_ms = resolve_mode(request.mode, request.stagger_ms, request.order)
    resolve_window(mode, request.warmup_s, request.window_s, stagger_ms / 1e3)
    override_layout(
        load_layout(request.layout),
        **{it: getattr(request, it) for it in ("bind", "smt", "kind", "reserve")},
    )
    if request.memory is not None:
        parse_memory(request.memory)
    if request.copies is not None:
        check_copies(request.copies)


def _check_command(word: str) -> None:
    if shutil.which(word) is None and not Path(word).exists():
        print_error(f"warning: {word} is not on this machine; each node looks for it by itself")


def words_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return what stands behind `rater run` on a node: suites, and options that were given."""
    words: list[str] = [*args.suites]
    for option in OPTIONS:
        value: Any = None if option.dest in _NOT_PASSED else getattr(args, option.dest)
        if not was_given(value):
            continue
        if option.kind.form is OptionForm.FLAG:
            words.append(option.typed)
        elif option.kind.form in (OptionForm.SEVERAL, OptionForm.REPEATED):
            words += [f"{option.typed}={it}" for it in value]
        else:
            words.append(f"{option.typed}={value}")
    return tuple(words)


def _home(args: argparse.Namespace) -> Path:
    """Return where fleets have their folders: a place that all nodes see."""
    named = args.folder or os.environ.get("RATER_FLEETS")
    if named:
        return Path(named).absolute()
    return default_path(None).absolute().parent / "fleets"


def _make_folder(asked: FleetRequest) -> None:
    lock = os.environ.get("RATER_LOCK")
    SharedFolder(Path(asked.folder)).make(replace(asked, lock=lock))


# -- `rater fleet status|wait|cancel|collect|retry|list`: what becomes of a fleet that was begun ---

_CANCEL_WAIT_S, _CANCEL_POLL_S = 60.0, 2.0


def status(args: argparse.Namespace) -> int:
    """Look once, store what is seen and show it; nothing is submitted or ended."""
    with open_existing_store(args) as store:
        number, silent = find_fleet(store, args.fleet), None
        try:
            steps = FleetDriver(store, number)
            fleet, silent = steps.refresh(), steps.silent
        except InputError as error:  # no commands of Slurm, somebody else's: as it is stored
            print_error(str(error))
            fleet = load_fleet(store, number)
        show_fleet(args, fleet, silent, every=args.all)
    return 0


@contextmanager
def _opened(args: argparse.Namespace, *, news: bool = True) -> Iterator[FleetDriver]:
    """Give the steps of the fleet that a command names; `news`: what becomes of nodes is said."""
    with open_existing_store(args) as store:
        number = find_fleet(store, args.fleet)
        nodes = len(load_fleet(store, number).nodes)
        yield FleetDriver(store, number, update_printer(nodes, quiet=args.quiet or not news))


def _shown(args: argparse.Namespace, steps: FleetDriver, fleet: StoredFleet) -> None:
    if args.json or not args.quiet:
        show_fleet(args, fleet, steps.silent)


def wait(args: argparse.Namespace) -> int:
    """Submit what is due, try lost nodes again, until nothing is left to be done; collect."""
    with _opened(args) as steps:
        return waited(args, steps)


def cancel(args: argparse.Namespace) -> int:
    """End a fleet: nothing more is submitted, jobs are told to publish what they have and end."""
    with open_existing_store(args) as store:  # before whose its folder is matters
        fleet = load_fleet(store, find_fleet(store, args.fleet))
    if fleet.is_settled:
        print_error(f"fleet {fleet.number} has no jobs left: {fleet.status}")
        return 0
    with _opened(args) as steps:
        cancelled_at = fleet.cancelled_at or utc_timestamp()
        set_fleet(steps.store, steps.number, cancelled_at=cancelled_at)
        steps.folder.mark_cancelled(True)
        until_s = time.monotonic() + _CANCEL_WAIT_S
        while True:
            fleet = steps.act(steps.refresh(), submit=False)
            if not fleet.live or time.monotonic() > until_s or not args.wait:
                break
            time.sleep(min(_CANCEL_POLL_S, POLL_S[fleet.asked.backend]))
        if fleet.live and args.wait:
            ending = f"{count(len(fleet.live), 'job')} still ending"
            print_error(f"{ending}; `rater fleet status {fleet.number}` looks again")
        _shown(args, steps, fleet)
        return 1 if steps.silent else 0


def collect(args: argparse.Namespace) -> int:
    """Admit what was published so far; the exit status says whether anything was set aside."""
    with _opened(args, news=False) as steps:
        try:
            steps.refresh()
        except InputError as error:
            print_error(str(error))
        aside = collect_published(steps, quiet=args.quiet)
        _shown(args, steps, load_fleet(steps.store, steps.number))
    return 1 if aside else 0


def retry(args: argparse.Namespace) -> int:
    """Try nodes again that came to less than all: those that may, or those that are named."""
    with _opened(args) as steps:
        fleet = steps.refresh()
        wanted = _retried(fleet, args.nodes)
        if not wanted:
            what = "all of these nodes are complete" if args.nodes else fleet.status
            print_error(f"fleet {fleet.number}: nothing to try again ({what})")
            return 0
        if fleet.cancelled_at is not None:
            fleet = take_back_cancelling(steps, wanted)
        fleet = steps.act(fleet, again=wanted)
        if args.wait:
            return waited(args, steps)
        _shown(args, steps, fleet)
    return 0


def _retried(fleet: StoredFleet, named: str | None) -> tuple[str, ...]:
    """Return the nodes that are to be tried again. Raises `InputError`."""
    if named is None:
        return tuple(node for node, tried in fleet.attempts.items() if may_come_to_more(tried))
    nodes = expand(named)
    unknown = [node for node in nodes if node not in fleet.nodes]
    if unknown:
        raise InputError(f"--nodes: {truncate_list(unknown)}: not of fleet {fleet.number}")
    attempts = fleet.attempts
    busy = [node for node in nodes if any(not it.state.ended for it in attempts[node])]
    if busy:
        ends = f"`rater fleet cancel {fleet.number}` ends it"
        raise InputError(f"--nodes: {truncate_list(busy)}: has a job already; {ends}")
    return tuple(
        node
        for node in nodes
        if not attempts[node] or deciding_attempt(attempts[node]).state is not AttemptState.COMPLETE
    )


def list_fleets(args: argparse.Namespace) -> int:
    """Print the fleets that are stored; no scheduler is asked."""
    lines: tuple[StoredFleet, ...] = ()
    if (store := open_to_list(args)) is not None:
        with store:
            lines = fleets(store)
    print_view(args, listed_document(lines), listed_parts)
    return 0
