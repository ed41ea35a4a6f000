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
from rater.workflow.arguments import Output, RunArguments, StartOptions, print_json_rows, print_view
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


def plan(output: Output, run_arguments: RunArguments, topology: str | None) -> int:
    """Print what would run where, on this machine or on one that is only described."""
    request = run_arguments.request()
    described = machine.discover_topology() if topology is None else machine.load_topology(topology)
    document = document_of(resolve(request, described))
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
    copy_bytes = most_bytes(resolved)
    bytes_by_node = needs_by_node(
        placements, {placement.copy: copy_bytes for placement in placements}
    )
    installed_bytes = {
        node.os: node.memory_bytes for node in topology.nodes if node.memory_bytes is not None
    }
    if topology.is_this_system:  # memory may have been plugged in since the firmware counted it
        installed_bytes |= {node: memory.total_bytes for node, memory in read_node_memory().items()}
    threads = {
        workload.benchmark.name: workload.benchmark.threads for workload in resolved.workloads
    }
    size, tune = size_and_tune(resolved)
    facts = {
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
            *capacity_warnings(bytes_by_node, installed_bytes, strict=bound_to_memory(placements)),
            *warnings,
        ],
        "refused": [*resolved.refusals, *refusals],
    }
    node_shares = shares(
        topology, placements, installed_bytes, bytes_by_node if copy_bytes else None
    )
    return plan_document(resolved.plan, topology, placements, node_shares, facts)


def executed_commands(resolved: RunPlan) -> ExecutesJson:
    """Return all that a run executes for JSON, before anything is built or looked for.

    Commands are as a shell would take them; `environment` is what is added to rater's own,
    `settings` are of the machine, set while it runs; `directories`: where copies work, null: where
    it is called.
    """
    request, workloads = resolved.request, resolved.workloads
    environment: dict[str, str] = {}
    setups = []
    for workload in workloads:
        if workload.suite is not None:
            setups.append(workload.suite.setup)
            environment |= dict(workload.suite.environment)
        setups.append(workload.benchmark.setup)
        environment |= dict(workload.benchmark.environment) | dict(workload.size.environment)
    environment |= dict(request.environment)
    added = resolved.tuning.added(
        {os.fsencode(variable): os.fsencode(value) for variable, value in environment.items()}
    )
    environment |= {os.fsdecode(name): os.fsdecode(value) for name, value in added.items()}
    elsewhere = bool(request.command) and not request.run_dirs
    return {
        "directory": directory_here(),
        "setups": list(dict.fromkeys(shlex.join(setup) for setup in setups if setup)),
        "commands": {workload.benchmark.name: _command(workload) for workload in workloads},
        "wrap": shlex.join(request.wrap) or None,
        "prepare": request.prepare,
        "conclude": request.conclude,
        "environment": environment,
        "settings": tuned_settings_of(request),
        "tuned": request.tuned,
        "pages": list(PAGE_CHECKS().pages_words(request) if request.has_pages else ()),
        "directories": None if elsewhere else str(cache_root() / "work"),
    }


def _command(workload: Workload) -> str:
    if workload.kit:
        return KITS().kit_command(workload.kit)
    program_words = workload.benchmark.command or (workload.benchmark.name,)
    return shown(
        [
            CommandLine(
                words=(*(command.program or program_words), *command.args),
                stdin=command.stdin,
                stdout=command.stdout,
                stderr=command.stderr,
            )
            for command in workload.size.commands
        ]
    )


# -- A stored run to be made once more: its request, its directory, and what changed since ---------

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
        differences = changed_conditions(self._stored, stored_conditions(start))
        say(_differences_text(differences, head))
        entered = super().enter(store, plan, start, say)
        store.append(
            entered.number,
            Noted(f"rerun of run {head.run} ({head.uuid})"),
            *(Noted(f"differs from run {head.run}: {difference}") for difference in differences),
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
    sourced: Sourced[T], owner: str, requests: Iterable[str | None], *, force: bool
) -> Sourced[T]:
    """Return a stored value with the reason to doubt that this user asked for it.

    `requests`: the stored requests, as JSON. With `force` there is no doubt.
    """
    doubt = sourced.doubt
    for text in requests:
        with suppress(ValueError, AttributeError, RecursionError):  # told when it is read
            merged = json.loads(text or "{}").get(MERGED_FROM)
            doubt = doubt or (merged and f"it was merged from {merged}")
    if doubt is None or force:
        return Sourced(sourced.value, None)
    warning = (
        f"rater cannot tell that {owner} is yours: {doubt}; --dry-run shows it, --force runs it"
    )
    return Sourced(sourced.value, warning)


def load_again(store: Store, word: str, *, force: bool) -> Sourced[StoredRun]:
    """Return the run that a word means, to be run again."""
    sourced_run = store.load_asked(store.find(word))
    head, stored_host, this_machine = sourced_run.value.head, sourced_run.value.host, machine_id()
    if (
        sourced_run.doubt is None
        and this_machine is not None
        and this_machine != stored_host.machine_id_hash
    ):
        doubt = f"it was made on another machine ({stored_host.hostname or 'not known'})"
        sourced_run = Sourced(sourced_run.value, doubt)
    return judged(sourced_run, f"run {head.run}", [head.request], force=force)


def resolve_again(
    sourced_run: Sourced[StoredRun],
    start_options: StartOptions,
    benchmarks: Sequence[str] | None = None,
    tags: tuple[tuple[str, str], ...] = (),
    *,
    dry_run: bool,
) -> Sourced[RunPlan]:
    """Plan a stored run once more, in the directory it was called in, which becomes ours.

    `benchmarks`: just these; `tags`: more of them. A `dry_run` says among its refusals that others
    may have written what it shows. Raises `InputError` that says which run.
    """
    head = sourced_run.value.head
    request = request_of(head)
    chdir_to(
        sourced_run.with_value(head.directory or "."),
        f"run {head.run}",
        WAY_TO_RUN,
        dry_run=dry_run,
    )
    with _naming(head):
        request = pin_suites(request, head)
        if benchmarks is not None:
            request = select_benchmarks(request, benchmarks)
        request = replace(start_options.on(request), tags=(*request.tags, *tags))
        resolved = resolve(request, machine.discover_topology())
    doubts = () if sourced_run.doubt is None else (sourced_run.doubt,)
    return Sourced(replace(resolved, refusals=(*doubts, *resolved.refusals)), sourced_run.doubt)


def chdir_to(
    sourced_directory: Sourced[str], stored_name: str, way_out: str = _LOOKED_FOR, *, dry_run: bool
) -> None:
    """Make a directory ours, where `stored_name` was made. Paths that the caller gave
    by environment are made absolute before.

    Whatever runs what a database says comes through here. Raises `InputError` when it cannot be
    entered, or when others may have written that database, unless nothing will be run.
    """
    directory = sourced_directory.value if dry_run else sourced_directory.trusted().value
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
            f"{stored_name} was made in {directory}, which cannot be entered "
            f"({error.strerror}): {way_out}"
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
        chosen = [
            benchmark.name
            for benchmark in load_suite(name).benchmarks
            if benchmark.name in benchmarks
        ]
        if chosen:
            selections.append(f"{name}/{','.join(chosen)}")
    return replace(request, suites=tuple(selections)) if selections else request


def changed_conditions(
    run: StoredRun, conditions: Conditions, planned: Iterable[str] = ()
) -> tuple[ConditionDifference, ...]:
    """Return what differs from a stored run, readings that always do left out.

    `planned`: settings of the machine that will be set before, by name.
    """
    planned = tuple(planned)
    return tuple(
        difference
        for difference in condition_differences(stored_conditions(run), conditions)
        if not any(changes_with(name, difference.what.removeprefix("setting ")) for name in planned)
    )


def text_of_differences(run: StoredRun) -> str:
    """Return how this machine differs from that of a run which cannot be planned here."""
    from rater.workflow.run.head import conditions_now

    here = conditions_now(resolve(Request(command=("true",)), machine.discover_topology()))
    then = stored_conditions(run)
    conditions = replace(then, host=here.host, settings=here.settings, pus=here.pus)
    return _differences_text(condition_differences(then, conditions), run.head)


def _differences_text(differences: Sequence[ConditionDifference], head: RunHead) -> str:
    if not differences:
        return f"nothing differs from run {head.run}"
    return f"differs from run {head.run}:{changes_text(differences)}"


# -- `--dry-run`: the plan, and whether the run would be refused -----------------------------------


def dry_run(output: Output, resolved: RunPlan, repeated_run: StoredRun | None = None) -> int:
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
    repeated_name = ""
    if repeated_run is not None:
        from rater.workflow.run.head import conditions_now

        planned, repeated_name = tuned_settings_of(resolved.request), f"run {repeated_run.head.run}"
        differences = changed_conditions(repeated_run, conditions_now(resolved), planned)
        document["differences"] = changes_document(differences)

    def parts(shown: DryRunDocument) -> Iterator[Part]:
        yield from plan_parts(shown)
        if repeated_name:
            yield from difference_parts(shown["differences"], repeated_name)

    print_view(output, document, parts)
    return 0
