"""A run that is planned, or stored and asked for again, shown: `rater plan`, `--dry-run`."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace

from rater.analysis.compare.conditions import (
    ConditionDifference,
    Conditions,
    condition_differences,
    stored_conditions,
)
from rater.plan.placement.preflight import bound_to_memory, capacity_warnings, needs_by_node
from rater.plan.placement.summary import remarks, shares
from rater.plan.request import MERGED_FROM, Request, request_from_json
from rater.plan.schedule import Plan
from rater.plan.suite_find import find_suite, load_suite, split_selection, suite_names
from rater.record.events import Noted
from rater.record.stored import RunHead, StoredRun
from rater.run.host import discover as machine
from rater.run.host.facts import machine_id
from rater.run.host.memory import read_node_memory
from rater.run.programs.compile import cache_root
from rater.run.programs.script import CommandLine, shown
from rater.settings.known import changes_with
from rater.show.plans.plan import (
    changes_document,
    changes_text,
    difference_parts,
    plan_document,
    plan_parts,
)
from rater.show.screen.document import Part
from rater.store.store import Store
from rater.system.errors import InputError
from rater.system.files import Sourced
from rater.workflow.arguments import Asked, Output, StartOptions, print_json_rows, print_view
from rater.workflow.doctor import tuned_settings_of
from rater.workflow.run.head import ActiveRun, RunLauncher, directory_here
from rater.workflow.run.prepare import checked, obstacles
from rater.workflow.run.resolve import (
    RunPlan,
    expected_total_s,
    most_bytes,
    resolve,
    size_and_tune,
)
from rater.workflow.run.workload import KITS, PAGE_CHECKS, Workload

if TYPE_CHECKING:
    from rater.show.documents.plan import DryRunDocument, ExecutesJson, PlanDocument


def plan(output: Output, asked: Asked, topology: str | None) -> int:
    """Print what would run where, on this machine or on one that is only described."""
    request = asked.request()
    where = machine.discover_topology() if topology is None else machine.load_topology(topology)
    document = document_of(resolve(request, where))
    if output.json:
        print_json_rows(document)
    else:
        print_view(output, document, plan_parts)
    return 0


def document_of(
    resolved: RunPlan, warnings: Sequence[str] = (), refusals: Sequence[str] = ()
) -> PlanDocument:
    """Return a resolved run for JSON and its screen; more warnings may be added."""
    topology, placements = resolved.topology, resolved.placements
    per_copy = most_bytes(resolved)
    needs = needs_by_node(placements, {p.copy: per_copy for p in placements})
    installed = {node.os: node.memory_bytes for node in topology.nodes}
    if topology.is_this_system:  # memory may have been plugged in since the firmware counted it
        installed |= {node: memory.total_bytes for node, memory in read_node_memory().items()}
    threads = {w.benchmark.name: w.benchmark.threads for w in resolved.workloads}
    size, tune = size_and_tune(resolved)
    known = {
        "suite": resolved.suite,
        "size": size,
        "tune": tune,
        "layout": resolved.layout,
        "threads": threads,
        "cooldown_s": resolved.request.cooldown_s,
        "until_idle_s": resolved.request.until_idle_s,
        "reserved_cpus": resolved.reserved,
        "counters": resolved.counters.names if resolved.counters else (),
        "expected_s": expected_total_s(resolved),
        "warnings": [
            *resolved.warnings,
            *remarks(topology, placements, max(threads.values())),
            *capacity_warnings(needs, installed, strict=bound_to_memory(placements)),
            *warnings,
        ],
        "refused": [*resolved.refusals, *refusals],
    }
    parts = shares(topology, placements, installed, needs if per_copy else None)
    return plan_document(resolved.plan, topology, placements, parts, known)


def executed_commands(resolved: RunPlan) -> ExecutesJson:
    """Return all that a run executes for JSON, before anything is built or looked for.

    Commands are as a shell would take them; `environment` is what is added to rater's own,
    `settings` are of the machine, set while it runs; `directories`: where copies work, null: where
    it is called.
    """
    request, workloads = resolved.request, resolved.workloads
    environment: dict[str, str] = {}
    setups = []
    for it in workloads:
        if it.suite is not None:
            setups.append(it.suite.setup)
            environment |= dict(it.suite.environment)
        setups.append(it.benchmark.setup)
        environment |= dict(it.benchmark.environment) | dict(it.size.environment)
    environment |= dict(request.environment)
    added = resolved.tuning.added({os.fsencode(k): os.fsencode(v) for k, v in environment.items()})
    environment |= {os.fsdecode(name): os.fsdecode(value) for name, value in added.items()}
    elsewhere = bool(request.command) and not request.run_dirs
    return {
        "directory": directory_here(),
        "setups": list(dict.fromkeys(shlex.join(setup) for setup in setups if setup)),
        "commands": {workload.benchmark.name: _command(workload) for workload in workloads},
        "wrap": shlex.join(request.wrap) or None,
        "prepare": request.prepare,
        "environment": environment,
        "settings": tuned_settings_of(request),
        "tuned": request.tuned,
        "pages": list(PAGE_CHECKS().pages_words(request) if request.has_pages else ()),
        "directories": None if elsewhere else str(cache_root() / "work"),
    }


def _command(it: Workload) -> str:
    if it.kit:
        return KITS().kit_command(it.kit)
    own = it.benchmark.command or (it.benchmark.name,)
    return shown(
        [
            CommandLine(
                words=(*(command.program or own), *command.args),
                stdin=command.stdin,
                stdout=command.stdout,
                stderr=command.stderr,
            )
            for command in it.size.commands
        ]
    )


# -- A stored run as something to be done once more: what was asked for, where, and what changed ---

_URI = "file://"
_PLACES = ("RATER_DB", "RATER_CACHE", "RATER_LOCK", "RATER_JOURNAL", "RATER_SYSROOT")
_LOOKED_FOR = "its command and files were looked for there; put it back"
WAY_TO_RUN = f"{_LOOKED_FOR}, or use `rater run`"


class Rerun(RunLauncher):
    """A new run that remembers which one it repeats."""

    def __init__(self, run: StoredRun) -> None:
        super().__init__()
        self._stored = run

    def enter(
        self, store: Store, plan: Plan, start: StoredRun, say: Callable[[str], None]
    ) -> ActiveRun:
        """Store that the run begins, and what differs from the one it repeats."""
        head = self._stored.head
        found = changed_conditions(self._stored, stored_conditions(start))
        say(
            f"differs from run {head.run}:{changes_text(found)}"
            if found
            else f"nothing differs from run {head.run}"
        )
        entered = super().enter(store, plan, start, say)
        store.append(
            entered.number,
            Noted(f"rerun of run {head.run} ({head.uuid})"),
            *(Noted(f"differs from run {head.run}: {it}") for it in found),
        )
        return entered


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


def judged[T](
    asked: Sourced[T], what: str, requests: Iterable[str | None], *, force: bool
) -> Sourced[T]:
    """Return what a database has with why nobody knows that this user asked for it.

    `requests`: what it was asked for, as JSON. No doubt with `force`.
    """
    why = asked.doubt
    for text in requests:
        with suppress(ValueError, AttributeError, RecursionError):  # told when it is read
            merged = json.loads(text or "{}").get(MERGED_FROM)
            why = why or (merged and f"it was merged from {merged}")
    if why is None or force:
        return Sourced(asked.value, None)
    told = f"rater cannot tell that {what} is yours: {why}; --dry-run shows it, --force runs it"
    return Sourced(asked.value, told)


def load_again(store: Store, word: str, *, force: bool) -> Sourced[StoredRun]:
    """Return the run that a word means, to be run again."""
    asked = store.load_asked(store.find(word))
    head, there, here = asked.value.head, asked.value.host, machine_id()
    if asked.doubt is None and here is not None and here != there.machine_id_hash:
        doubt = f"it was made on another machine ({there.hostname or 'not known'})"
        asked = Sourced(asked.value, doubt)
    return judged(asked, f"run {head.run}", [head.request], force=force)


def resolve_again(
    run: Sourced[StoredRun],
    start: StartOptions,
    benchmarks: Sequence[str] | None = None,
    tags: tuple[tuple[str, str], ...] = (),
    *,
    dry_run: bool,
) -> Sourced[RunPlan]:
    """Plan a stored run once more, in the directory it was called in, which becomes ours.

    `benchmarks`: just these; `tags`: more of them. A `dry_run` says among its refusals that others
    may have written what it shows. Raises `InputError` that says which run.
    """
    head = run.value.head
    request = request_of(head)
    chdir_to(run.with_value(head.directory or "."), f"run {head.run}", WAY_TO_RUN, dry_run=dry_run)
    with _naming(head):
        request = pin_suites(request, head)
        if benchmarks is not None:
            request = select_benchmarks(request, benchmarks)
        request = replace(start.on(request), tags=(*request.tags, *tags))
        resolved = resolve(request, machine.discover_topology())
    others = () if run.doubt is None else (run.doubt,)
    return Sourced(replace(resolved, refusals=(*others, *resolved.refusals)), run.doubt)


def chdir_to(where: Sourced[str], what: str, way_out: str = _LOOKED_FOR, *, dry_run: bool) -> None:
    """Make a directory ours, where `what` was made; what the caller named stays where it is.

    Whatever runs what a database says comes through here. Raises `InputError` when it cannot be
    entered, or when others may have written that database, unless nothing will be run.
    """
    directory = where.value if dry_run else where.trusted().value
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
def _naming(head: RunHead) -> Iterator[None]:
    """Let errors about what a stored run was asked for say which run, and where it was made."""
    try:
        yield
    except InputError as error:
        raise InputError(
            f"run {head.run}, made in {head.directory}, cannot be made there again: {error}"
        ) from error


def pin_suites(request: Request, head: RunHead) -> Request:
    """Return the request with the user's own suites by the files they were, if still there.

    A name can mean another file by now: `RATER_SUITES` is not kept with the run.
    """
    if request.of_kit:  # its newest run directories, which may be other ones by now: that is told
        return request
    names = dict.fromkeys(split_selection(selection)[0] for selection in request.suites)
    files = dict(zip(names, (head.suite_path or "").splitlines(), strict=False))
    return replace(request, suites=tuple(_pinned(suite, files) for suite in request.suites))


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


def select_benchmarks(request: Request, benchmarks: Sequence[str]) -> Request:
    """Return the request for exactly these benchmarks.

    What was left out then is not asked for, though it may be installed or fit by now;
    what was not left out then must be there.
    """
    if request.of_kit:
        return request
    selections = []
    for name in dict.fromkeys(split_selection(selection)[0] for selection in request.suites):
        own = [
            benchmark.name
            for benchmark in load_suite(name).benchmarks
            if benchmark.name in benchmarks
        ]
        if own:
            selections.append(f"{name}/{','.join(own)}")
    return replace(request, suites=tuple(selections)) if selections else request


def changed_conditions(
    run: StoredRun, now: Conditions, planned: Iterable[str] = ()
) -> tuple[ConditionDifference, ...]:
    """Return what differs from a stored run, readings that always do left out.

    `planned`: settings of the machine that will be set before, by name.
    """
    planned = tuple(planned)
    return tuple(
        difference
        for difference in condition_differences(stored_conditions(run), now)
        if not any(changes_with(name, difference.what.removeprefix("setting ")) for name in planned)
    )


# -- `--dry-run`: the plan, and whether the run would be refused -----------------------------------


def dry_run(output: Output, resolved: RunPlan, again: StoredRun | None = None) -> int:
    """Show a run that is not made, and what differs from the one it would repeat."""
    needs, warnings, refusals = checked(resolved)
    refusals = tuple(dict.fromkeys([*refusals, *obstacles(output.db, resolved)]))
    # The keys that a dry run adds follow at once.
    document = cast("DryRunDocument", document_of(resolved, warnings, refusals))
    document["dry_run"] = True
    document["memory_bytes"] = needs.memory_bytes
    document["memory_benchmark"] = needs.memory_benchmark
    document["memory_available_bytes"] = needs.available.memory_bytes
    document["disk_bytes"] = needs.disk_bytes
    document["disk_available_bytes"] = needs.available.disk_bytes
    document["executes"] = executed_commands(resolved)
    since = ""
    if again is not None:
        from rater.workflow.run.head import conditions_now

        planned, since = tuned_settings_of(resolved.request), f"run {again.head.run}"
        found = changed_conditions(again, conditions_now(resolved), planned)
        document["differences"] = changes_document(found)

    def parts(shown: DryRunDocument) -> Iterator[Part]:
        yield from plan_parts(shown)
        if since:
            yield from difference_parts(shown["differences"], since)

    print_view(output, document, parts)
    return 0
