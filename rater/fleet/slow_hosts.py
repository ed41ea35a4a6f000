"""Slow hosts of a fleet: found, confirmed, over time, and on a page."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from rater.analysis.divots.confirm import LEAST_PAIRS, ConfirmVerdict
from rater.analysis.divots.model.finding import Analysis, Thresholds
from rater.analysis.divots.model.formatting import format_slowdown
from rater.analysis.results.disturbed import NOT_JUDGED
from rater.errors import InputError, RaterError
from rater.fleet.archive import (
    IndexedRun,
    command_of,
    fleet_number,
    fleet_word,
    fleets_with,
    indexed_runs,
    known_names,
    latest,
    opened_run,
    settings_of,
    times_of,
    unknown_name,
)
from rater.fleet.backends import POLL_S
from rater.fleet.driver import FleetDriver, collect_published, update_printer
from rater.fleet.history import (
    History,
    benchmark_history,
    host_history,
    judge_suspect,
    pairs_of,
    points_of_benchmark,
    points_of_host,
    suspect_of,
)
from rater.fleet.hosts import compare_fleet, results_of
from rater.fleet.model import FleetComparison, HostResult, SlowHost
from rater.fleet.page import FleetPage, fleet_page, summary_line
from rater.fleet.plan import AttemptState, deciding_attempt
from rater.fleet.run import create_confirming_fleet
from rater.fleet.show import (
    HostConfirmView,
    MissingHost,
    fleet_document,
    fleet_parts,
    histories_parts,
    history_document,
    host_trial_document,
    trial_plan_parts,
    trial_verdict_parts,
)
from rater.fleet.store import load_fleet
from rater.process import print_error
from rater.show.results.to_json import divot_rows
from rater.store.store import Store
from rater.text.values import truncate_list
from rater.workflow.arguments import Output, open_existing_store, print_view
from rater.workflow.results.divots import load_or_analyse, parse_limit
from rater.workflow.results.report import deliver_page, page_path

# -- `rater divots --confirm fleet:3`: slow hosts run again, each beside a quiet one ---------------

_ROUNDS = 3
_MOST_SUSPECTS = 64


def confirm(output: Output, confirm: str, finding: int | None, pairs: int | None) -> int:
    """Run the rounds and say which hosts are slow again; 0 where one is."""
    rounds = _ROUNDS if pairs is None else pairs
    if rounds < LEAST_PAIRS:
        raise InputError(f"--pairs {rounds}: expected {LEAST_PAIRS} or more")
    with open_existing_store(output) as store:
        fleet = one_fleet(store, [confirm], "divots --confirm")
        load_fleet(store, fleet)  # else nobody knows how its hosts are reached
        found = compare_fleet(results(store, fleet))
        chosen = _chosen(finding, fleet, found)
        paired = pairs_of(found, [one.host for one in chosen], rounds)
        trial = HostConfirmView(fleet, [suspect_of(one) for one in chosen], paired)
        if output.dry_run or not (output.quiet or output.json):
            print_view(output, host_trial_document(trial), trial_plan_parts)
        if output.dry_run:
            return 0
        numbers = [
            _round(
                store,
                fleet,
                [name for it in them for name in (it.suspect.host, it.quiet)],
                quiet=output.quiet,
            )
            for them in paired
        ]
        measured = [{it.host: it for it in results(store, number)} for number in numbers]
    verdicts = [
        judge_suspect(suspect, list(zip(paired, measured, strict=True)))
        for suspect in trial.suspects
    ]
    trial = HostConfirmView(fleet, trial.suspects, paired, numbers, verdicts)
    print_view(output, host_trial_document(trial), trial_verdict_parts)
    again = (ConfirmVerdict.CONFIRMED, ConfirmVerdict.SMALLER)
    if any(it is not None and it.answer in again for it in verdicts):
        return 0
    return NOT_JUDGED if None in verdicts else 1


def _chosen(finding: int | None, fleet: int, found: FleetComparison) -> list[SlowHost]:
    slow = list(found.slow)
    if not slow:
        raise InputError(f"fleet:{fleet} has no slow hosts: there is nothing to confirm")
    if finding is not None:
        if not 1 <= finding <= len(slow):
            raise InputError(
                f"--finding {finding}: of the slow hosts of fleet:{fleet} expected 1 to {len(slow)}"
            )
        return [slow[finding - 1]]
    if len(slow) > _MOST_SUSPECTS:
        print_error(f"the {_MOST_SUSPECTS} slowest of {len(slow)} slow hosts are confirmed")
    return slow[:_MOST_SUSPECTS]


def _round(store: Store, fleet: int, nodes: list[str], *, quiet: bool) -> int:
    """Make a fleet of these nodes with what the first one ran; return its number."""
    number = create_confirming_fleet(store, fleet, tuple(dict.fromkeys(nodes)))
    steps = FleetDriver(store, number, update_printer(len(set(nodes)), quiet=quiet))
    while not steps.act(steps.refresh()).is_settled:
        time.sleep(POLL_S[load_fleet(store, number).asked.backend])
    collect_published(steps, quiet=True)
    return number


# -- `rater fleet history`: a host against its fleets over weeks, or a benchmark over all of them --


def history(output: Output, name: str) -> int:
    """Print the histories of a name: one for each program, the last one run first."""
    with open_existing_store(output) as store:
        found = histories_in(store, name)
    print_view(output, history_document(found), histories_parts)
    return 0


def histories_in(store: Store, name: str) -> list[History]:
    """Return the histories of a host, else of a benchmark; raises `InputError` for neither.

    A benchmark may stand behind the name of its suite: `mini/lu`.
    """
    with store.reading() as connection:
        hosts, benchmarks = known_names(connection)
        if not hosts:
            fleet_number(connection, fleet_word("fleet:last"))  # which says what there is
        suite, _, benchmark = name.rpartition("/")
        fleets = fleets_with(connection, name if name in hosts else None)
    by_fleet = {fleet: results(store, fleet) for fleet in fleets}
    if name in hosts:
        found = [host_history(name, it) for it in points_of_host(name, by_fleet).values()]
    elif benchmark in benchmarks:
        of = points_of_benchmark(benchmark, by_fleet).items()
        found = [
            benchmark_history(benchmark, *points)
            for program, points in of
            if not suite or program.startswith(f"{suite}, ")
        ]
    else:
        found = []
    if not found:
        raise unknown_name(name, hosts, benchmarks)
    return sorted(found, key=lambda it: -max(it.series[0].fleets, default=0))


# -- `rater report fleet:3`: a fleet as one page that a person can send ----------------------------

_REPORT_MOST_OPENED = 40  # slow hosts whose own divots are on the page
_MOST_HISTORIES = 12


def report(output: Output, which: tuple[str, ...], file: str | None, force: bool) -> int:
    """Write the page of a fleet."""
    with open_existing_store(output) as store:
        fleet = one_fleet(store, which, "report")
        path = page_path(output, file, f"fleet-{fleet}", force=force)
        page = page_data(store, fleet)
    return deliver_page(output, path, fleet_page(page), {"fleet": fleet}, summary_line(page))


def page_data(store: Store, fleet: int) -> FleetPage:
    """Return all that the page of a fleet says."""
    found, chosen, inside, missing, planned = _loaded(
        store, fleet, Thresholds(), _REPORT_MOST_OPENED
    )
    starts = sorted(run.started_at for run in chosen.values() if run.started_at)
    return FleetPage(
        fleet_document(fleet, found, inside, missing),
        {host: _about(run) for host, run in chosen.items()},
        max(planned, len(chosen)),
        _histories(store, fleet, found),
        starts[0] if starts else None,
    )


def _histories(store: Store, fleet: int, found: FleetComparison) -> list[History]:
    """Return those of the slow hosts, and of hosts too few of a kind to be compared in a fleet."""
    names = [one.host for one in found.slow]
    names += [host for kind in found.kinds if kind.cannot_tell for host in kind.hosts]
    if not names:
        return []
    with store.reading() as connection:
        fleets = {*fleets_with(connection), fleet}
    by_fleet = {number: results(store, number) for number in sorted(fleets)}
    of_names = (points_of_host(name, by_fleet) for name in names[:_MOST_HISTORIES])
    return [
        host_history(name, points)
        for name, by_program in zip(names, of_names, strict=False)
        for points in by_program.values()
        if any(it.fleet == fleet for it in points)
    ]


def _about(run: IndexedRun) -> str:
    parts = (
        f"attempt {run.attempt}",
        f"run {run.status}",
        run.started_at and f"began {run.started_at[:16].replace('T', ' ')} UTC",
        run.hostname and run.hostname != run.host and f"calls itself {run.hostname}",
        run.failed and f"{run.failed} of {run.copy_runs} copy runs failed",
    )
    return ", ".join(str(part) for part in parts if part)


# -- `rater divots fleet:3`: which hosts are slow, and what is slow inside of them -----------------

SLOW_HOST = "slow-host"  # a kind of --fail-on
_DIVOTS_MOST_OPENED = 5  # slow hosts whose own divots are told unasked: each is copied and searched

Inside = dict[str, Analysis]  # by host


def fleet_divots(
    output: Output,
    which: tuple[str, ...],
    fail_on: tuple[str, ...],
    threshold_group: float,
    threshold_copy: float,
) -> int:
    """Print the slow hosts of a fleet, and the divots of the slowest ones; see `_gate`."""
    limits = [parse_limit(text, (SLOW_HOST,)) for text in fail_on]
    with open_existing_store(output) as store:
        fleet = one_fleet(store, which, "divots")
        thresholds = Thresholds(threshold_group, threshold_copy)
        found, _, own, missing, _ = _loaded(store, fleet, thresholds, _DIVOTS_MOST_OPENED)
    divots = {host: divot_rows(it.findings) for host, it in own.items()}
    document = fleet_document(fleet, found, own, missing) | {"divots": divots}
    print_view(output, document, fleet_parts)
    return _gate(min(least for _, least in limits), found, missing) if limits else 0


def _gate(least: float, found: FleetComparison, missing: Sequence[MissingHost]) -> int:
    """Say on stderr why it fails, or cannot be judged; return the exit status."""
    slow = [f"{it.host} {format_slowdown(it.worst)}" for it in found.slow if it.worst - 1 >= least]
    if slow:
        print_error(f"--fail-on {SLOW_HOST}: {truncate_list(slow)}")
        return 1
    unjudged = [kind for kind in found.kinds if kind.why_not and kind.beside is None]
    why = [f"{truncate_list(kind.hosts)}: {kind.why_not}" for kind in unjudged]
    why += [f"{it.host}: {it.reason or it.state}" for it in missing]
    why += [f"{host}: no benchmark ended well" for host in found.without_times] if not why else []
    if why:
        print_error(f"--fail-on {SLOW_HOST}: cannot be judged: {truncate_list(why)}")
    return NOT_JUDGED if why else 0


def _loaded(
    store: Store, fleet: int, thresholds: Thresholds, most: int
) -> tuple[FleetComparison, dict[str, IndexedRun], Inside, list[MissingHost], int]:
    """Return the hosts compared, their runs, the divots of so many slow ones, who is missing.

    And how many were planned. A run that cannot be opened is said, not fatal.
    """
    found, told = compare_fleet(results(store, fleet)), Inside()
    with store.reading() as connection:
        chosen = {host: runs[-1] for host, runs in latest(indexed_runs(connection, fleet)).items()}
        for slow in found.slow[:most]:
            run = chosen[slow.host]
            try:
                with opened_run(connection, run) as archived:
                    (head,) = (it for it in archived.runs() if it.run == run.run)
                    told[slow.host] = load_or_analyse(archived, head, thresholds, fresh=False)
            except RaterError as error:
                print_error(f"{slow.host}: {error}")
    in_times = {host for kind in found.kinds for host in kind.hosts}
    missing, planned = missing_hosts(store, fleet, chosen, in_times)
    return found, chosen, told, missing, planned


# -- Hosts of a fleet's plan that have no complete run, and why ------------------------------------


def missing_hosts(
    store: Store, fleet: int, chosen: Mapping[str, IndexedRun], in_map: Collection[str]
) -> tuple[list[MissingHost], int]:
    """Return the nodes that are not complete, and how many were planned."""
    try:
        plan = load_fleet(store, fleet)
    except InputError:  # its index came without its plan
        return [
            MissingHost(host, "without times", run.reason, run.attempt, has_times=False)
            for host, run in chosen.items()
            if host not in in_map
        ], len(chosen)
    missing = []
    for node, tried in plan.attempts.items():
        last = deciding_attempt(tried) if tried else None
        if last is not None and last.state is AttemptState.COMPLETE and node in in_map:
            continue
        if last is None:
            state, reason = "not submitted", None
        elif last.state is AttemptState.COMPLETE:
            has = "no benchmark in it ended well" if node in chosen else "not collected yet"
            state, reason = "without times", has
        else:
            state, reason = last.state.value, last.reason
        missing.append(MissingHost(node, state, reason, len(tried), has_times=node in in_map))
    return missing, len(plan.nodes)


# -- Load a fleet from its index and compare its hosts ---------------------------------------------


def results(store: Store, fleet: int) -> list[HostResult]:
    """Return what counts of every host of a fleet."""
    with store.reading() as connection:
        runs = indexed_runs(connection, fleet)
        times = times_of(connection, fleet)
        settings = settings_of(connection, (run.setting for run in runs))
        command = command_of(connection, fleet)
    return results_of(runs, times, settings, command)


def one_fleet(store: Store, words: Sequence[str], command: str) -> int:
    """Return the number of the fleet that a command was given; raises `InputError` for several."""
    if len(words) != 1:
        raise InputError(f"{' '.join(words)}: one fleet at a time: `rater {command} fleet:N`")
    with store.reading() as connection:
        return fleet_number(connection, fleet_word(words[0]))
