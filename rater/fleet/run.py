"""`rater fleet run|status|wait|cancel|collect|retry|list`: begun, and what becomes of it."""

from __future__ import annotations

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
from rater.fleet.backends.node_names import compress, expand
from rater.fleet.backends.registry import POLL_S, SETTLE_S, backend
from rater.fleet.backends.scheduler import Backend, JobRejectedError
from rater.fleet.driver import (
    FleetDriver,
    collect_published,
    show_fleet,
    take_back_cancelling,
    waited,
)
from rater.fleet.plan import (
    AttemptState,
    FleetOptions,
    FleetRequest,
    StoredFleet,
    deciding_attempt,
    may_come_to_more,
)
from rater.fleet.shared_folder import SharedFolder
from rater.fleet.show_nodes import listed_document, listed_parts
from rater.fleet.store import (
    find_fleet,
    fleets,
    load_fleet,
    new_fleet,
    set_fleet,
    unfinished_like,
)
from rater.plan.options import OptionForm
from rater.plan.placement.layout import load_layout, override_layout
from rater.plan.placement.memory_policy import parse_memory
from rater.plan.placement.place import check_copies
from rater.plan.request import BY_NAME, OPTIONS, Request
from rater.plan.schedule import resolve_mode, resolve_window
from rater.store.connection import default_path
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from rater.system.process import print_error, this_process
from rater.text.values import count, truncate_list
from rater.workflow.arguments import (
    Output,
    RunArguments,
    check_current_directory,
    open_existing_store,
    open_to_list,
    print_view,
)
from rater.workflow.run.head import utc_timestamp
from rater.workflow.run.resolve import load_workloads

# -- `rater fleet run`: everything that can be checked here is, then the plan is stored, then sent -

# Options of `rater run` that jobs do not get: their nodes are theirs alone, --wait is another one.
_NOT_PASSED = ("wait", "share")


class RunOptions(FleetOptions, frozen=True, kw_only=True):
    """What was typed of a fleet itself; durations in seconds."""

    nodes: str | None
    partition: str | None
    idle: bool
    folder: str | None
    scratch: str | None
    settle: float | None


def run(
    output: Output, typed: RunArguments, options: RunOptions, wait: bool, poll: float | None
) -> int:
    """Begin a fleet, or go on with the one that a killed `rater fleet run` left."""
    asked, nodes = _checked(typed, options)
    with open_store(default_path(output.db)) as store:
        number = unfinished_like(store, asked, nodes)
        if number is not None:
            set_fleet(store, number, **this_process()._asdict())
            print_error(f"goes on with fleet {number}: the same command was killed before its end")
        else:
            _make_folder(asked)  # before the plan: what cannot be made leaves no fleet
            number = new_fleet(store, asked, nodes)
        fleet = load_fleet(store, number)
        _make_folder(fleet.asked)
        steps = FleetDriver(store, number, quiet=output.quiet)
        if wait:
            return waited(output, poll, steps)
        steps.act(steps.refresh())
        set_fleet(store, number, begun=1)
        return _submitted(output, store, steps)


def create_confirming_fleet(store: Store, number: int, nodes: tuple[str, ...]) -> int:
    """Plan what a fleet ran once more on some of its nodes, all at a time; return its number.

    Nothing is submitted yet: that is the first step's.
    """
    asked = load_fleet(store, number).asked
    again = _of_now(asked, Path(asked.folder).parent)
    again = replace(again, parallel=None, confirms=number)
    _make_folder(again)
    confirming_fleet = new_fleet(store, again, nodes)
    set_fleet(store, confirming_fleet, begun=1)
    return confirming_fleet


def _of_now(request: FleetRequest, home: Path) -> FleetRequest:
    """Return a request as one that this command makes, with a folder of its own."""
    uuid = str(uuids.uuid4())
    return replace(
        request,
        uuid=uuid,
        started_at=utc_timestamp(),
        folder=str(home / f"rater-{uuid}"),
        command_line=shlex.join(["rater", *sys.argv[1:]]),
        rater_version=__version__,
    )


def _submitted(output: Output, store: Store, steps: FleetDriver) -> int:
    fleet = load_fleet(store, steps.number)
    show_fleet(output, fleet, steps.silent)
    left = sum(not of for of in fleet.attempts.values())
    refused = [of[-1].state is AttemptState.REFUSED for of in fleet.attempts.values() if of]
    if left:
        said = f"{count(left, 'node')} to come: `rater fleet wait {fleet.number}` submits them"
    else:
        said = (
            f"submitted; `rater fleet wait {fleet.number}` waits, tries lost nodes again and "
            "collects"
        )
    if not output.quiet and (left or not all(refused)):
        print_error(said)
    return 1 if any(refused) else 0


def _checked(typed: RunArguments, options: RunOptions) -> tuple[FleetRequest, tuple[str, ...]]:
    """Return what was typed, and its nodes, checked as far as this machine can tell.

    Raises `InputError`.
    """
    check_current_directory()
    if options.nodes is None and options.partition is None and not options.idle:
        raise InputError(
            "--nodes is missing: the nodes to run on, such as --nodes 'n[001-128]', or --partition "
            "P, or --idle"
        )
    named_nodes = () if options.nodes is None else expand(options.nodes)
    _check_numbers(options)
    for name in _NOT_PASSED:
        typed = typed.with_option(BY_NAME[name], None)
    request = typed.request()
    _check_request(request)
    if request.command:
        word = request.command[0]
        if shutil.which(word) is None and not Path(word).exists():
            print_error(f"warning: {word} is not on this machine; each node looks for it by itself")
    named = options.folder or os.environ.get("RATER_FLEETS")
    home = Path(named).absolute() if named else default_path(None).absolute().parent / "fleets"
    nodes = _chosen_nodes(backend(options.backend, home), named_nodes, options)
    facts: dict[str, Any] = {
        field: getattr(options, field) for field in FleetOptions.__struct_fields__
    }
    if options.partition is not None and options.backend == "slurm":
        facts["arguments"] = (f"--partition={options.partition}", *options.arguments)
    elif options.partition is not None:
        facts["arguments"] = ("-q", options.partition, *options.arguments)
    facts |= dict.fromkeys(("uuid", "started_at", "folder", "command_line", "rater_version"), "")
    asked = FleetRequest(
        **facts,
        scratch=str(Path(options.scratch or "/var/tmp").absolute()),
        directory=str(Path.cwd()),
        words=words_of(typed),
        command=typed.command or None,
        settle_s=SETTLE_S[options.backend] if options.settle is None else options.settle,
    )
    return _of_now(asked, home), nodes


def _chosen_nodes(calls: Backend, named: tuple[str, ...], options: RunOptions) -> tuple[str, ...]:
    """Return the nodes that are meant; says which of them take no jobs. Raises `InputError`."""
    try:
        nodes = calls.nodes(named, options.partition)
    except JobRejectedError as error:  # no such partition
        raise InputError(f"the scheduler does not list these nodes: {error}") from error
    unknown = [name for name in named if name not in {node.name for node in nodes}]
    if unknown:
        of_partition = f" of partition {options.partition}" if options.partition else ""
        raise InputError(
            f"--nodes: {truncate_list(unknown)}: not among the nodes{of_partition} that the "
            f"backend {options.backend} knows"
        )
    chosen = [node for node in nodes if node.is_idle or not options.idle]
    if not chosen:
        states = truncate_list([f"{node.name} is {node.word}" for node in nodes])
        of_partition = f" of {options.partition}" if options.partition else ""
        if nodes:
            raise InputError(f"no node{of_partition} is idle: {states}")
        raise InputError(f"the backend {options.backend} has no nodes{of_partition}")
    for node in chosen:
        if node.reason is not None:
            print_error(f"warning: {node.name} is {node.word}: {node.reason}")
    return tuple(node.name for node in chosen)


def _check_numbers(options: RunOptions) -> None:
    for name in ("parallel", "attempts", "minutes"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= 10**6:
            raise InputError(f"--{name} {value}: expected a whole number, 1 or more")
    for name in ("pending_limit_s", "busy_limit_s", "settle"):
        value = getattr(options, name)
        if value is not None and not 0 <= value < 1e9:
            option = name.removesuffix("_s").replace("_", "-")
            raise InputError(f"--{option} {value:g}: expected seconds, 0 or more")


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


def words_of(typed: RunArguments) -> tuple[str, ...]:
    """Return what stands behind `rater run` on a node: suites, and options that were given."""
    words: list[str] = [*typed.suites]
    for option in OPTIONS:
        if (value := typed.options.get(option.name)) is None:
            continue
        if option.kind.form is OptionForm.FLAG:
            words.append(option.typed)
        elif option.kind.form in (OptionForm.SEVERAL, OptionForm.REPEATED):
            words += [f"{option.typed}={it}" for it in value]
        else:
            words.append(f"{option.typed}={value}")
    return tuple(words)


def _make_folder(request: FleetRequest) -> None:
    lock = os.environ.get("RATER_LOCK")
    SharedFolder(Path(request.folder)).make(replace(request, lock=lock))


# -- `rater fleet status|wait|cancel|collect|retry|list`: what becomes of a fleet that was begun ---

LAST = "last"  # the fleet that commands mean which are given none
_CANCEL_WAIT_S, _CANCEL_POLL_S = 60.0, 2.0


def status(output: Output, fleet: str, every: bool) -> int:
    """Look once, store what is seen and show it; nothing is submitted or ended."""
    with open_existing_store(output) as store:
        number, silent = find_fleet(store, fleet), None
        try:
            steps = FleetDriver(store, number)
            refreshed, silent = steps.refresh(), steps.silent
        except InputError as error:  # without Slurm, or of another user: the stored state is shown
            print_error(str(error))
            refreshed = load_fleet(store, number)
        show_fleet(output, refreshed, silent, every=every)
    return 0


@contextmanager
def _opened(output: Output, fleet: str, *, quiet: bool = False) -> Iterator[FleetDriver]:
    """Give the steps of the fleet that a command names."""
    with open_existing_store(output) as store:
        yield FleetDriver(store, find_fleet(store, fleet), quiet=output.quiet or quiet)


def wait(output: Output, fleet: str, poll: float | None) -> int:
    """Submit what is due, try lost nodes again, until nothing is left to be done; collect."""
    with _opened(output, fleet) as steps:
        return waited(output, poll, steps)


def cancel(output: Output, fleet: str, wait: bool) -> int:
    """End a fleet: submit nothing more, let its jobs publish their results and end."""
    with open_existing_store(output) as store:  # before whose its folder is matters
        stored_fleet = load_fleet(store, find_fleet(store, fleet))
    if stored_fleet.is_settled:
        print_error(f"fleet {stored_fleet.number} has no jobs left: {stored_fleet.status}")
        return 0
    with _opened(output, fleet) as steps:
        cancelled_at = stored_fleet.cancelled_at or utc_timestamp()
        set_fleet(steps.store, steps.number, cancelled_at=cancelled_at)
        steps.folder.mark_cancelled(True)
        until_s = time.monotonic() + _CANCEL_WAIT_S
        while True:
            stored_fleet = steps.act(steps.refresh(), submit=False)
            if not stored_fleet.live or time.monotonic() > until_s or not wait:
                break
            time.sleep(min(_CANCEL_POLL_S, POLL_S[stored_fleet.asked.backend]))
        if stored_fleet.live and wait:
            ending = f"{count(len(stored_fleet.live), 'job')} still ending"
            print_error(f"{ending}; `rater fleet status {stored_fleet.number}` looks again")
        show_fleet(output, stored_fleet, steps.silent)
        return 1 if steps.silent else 0


def collect(output: Output, fleet: str) -> int:
    """Admit what was published so far; the exit status says whether anything was set aside."""
    with _opened(output, fleet, quiet=True) as steps:
        try:
            steps.refresh()
        except InputError as error:
            print_error(str(error))
        aside = collect_published(steps, quiet=output.quiet)
        show_fleet(output, load_fleet(steps.store, steps.number), steps.silent)
    return 1 if aside else 0


def retry(output: Output, fleet: str, nodes: str | None, wait: bool, poll: float | None) -> int:
    """Try nodes again that came to less than all: those that may, or those that are named."""
    with _opened(output, fleet) as steps:
        refreshed = steps.refresh()
        wanted = _retried(refreshed, nodes)
        if not wanted:
            state = "all of these nodes are complete" if nodes else refreshed.status
            print_error(f"fleet {refreshed.number}: nothing to try again ({state})")
            _name_the_others(refreshed, nodes)
            return 0
        if refreshed.cancelled_at is not None:
            refreshed = take_back_cancelling(steps, wanted)
        refreshed = steps.act(refreshed, again=wanted)
        if wait:
            return waited(output, poll, steps)
        show_fleet(output, refreshed, steps.silent)
    return 0


def _name_the_others(fleet: StoredFleet, nodes: str | None) -> None:
    """Say which nodes are only tried again when they are named: those that failed, say."""
    states = {
        node: attempt.state.shown
        for node, attempt in fleet.deciding.items()
        if attempt is not None and attempt.state is not AttemptState.COMPLETE
    }
    if states and nodes is None:
        named = truncate_list([f"{node} {state}" for node, state in states.items()])
        words = shlex.quote(compress(states))
        retry_named = f"`rater fleet retry {fleet.number} --nodes {words}`"
        print_error(f"{named}: {retry_named} measures what is named, once it is mended")


def _retried(fleet: StoredFleet, named: str | None) -> tuple[str, ...]:
    """Return the nodes that are to be tried again. Raises `InputError`."""
    if named is None:
        return tuple(node for node, tried in fleet.attempts.items() if may_come_to_more(tried))
    nodes = expand(named)
    unknown = [node for node in nodes if node not in fleet.attempts]
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


def list_fleets(output: Output) -> int:
    """Print the fleets that are stored; no scheduler is asked."""
    lines: tuple[StoredFleet, ...] = ()
    if (store := open_to_list(output)) is not None:
        with store:
            lines = fleets(store)
    print_view(output, listed_document(lines), listed_parts)
    return 0
