"""Slow hosts of a fleet: found, confirmed, over time, and on a page."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from rater.analysis.divots.confirm import LEAST_PAIRS, ConfirmVerdict
from rater.analysis.divots.gate import GateLimit
from rater.analysis.divots.model.finding import Analysis, Thresholds
from rater.analysis.results.disturbed import NOT_JUDGED
from rater.analysis.results.gates import GateAnswer, gate_status, reasons_of
from rater.fleet.archive import (
    IndexedRun,
    fleet_number,
    fleet_word,
    indexed_runs,
    latest,
    opened_run,
)
from rater.fleet.backends.node_names import compress
from rater.fleet.backends.registry import POLL_S
from rater.fleet.driver import FleetDriver, collect_published
from rater.fleet.gate import GATE_KINDS, judge_fleet
from rater.fleet.history import (
    History,
    Round,
    benchmark_history,
    host_history,
    judge_suspect,
    pairs_of,
    points_of_benchmark,
    points_of_host,
    suspect_of,
)
from rater.fleet.hosts import (
    FleetComparison,
    HostResult,
    SlowHost,
    Times,
    compare_fleet,
    compare_fleet_against,
    results_of,
)
from rater.fleet.page import fleet_page, summary_line
from rater.fleet.plan import FILES, AttemptState, StoredFleet, deciding_attempt
from rater.fleet.run import create_confirming_fleet
from rater.fleet.show import (
    MissingHost,
    fleet_document,
    fleet_parts,
    histories_parts,
    history_document,
    trial_document,
    trial_plan_parts,
    trial_verdict_parts,
)
from rater.fleet.store import load_fleet
from rater.show.results.to_json import divot_rows
from rater.store.store import Store
from rater.system.errors import InputError, RaterError
from rater.system.process import print_error
from rater.text.secrets import command_text
from rater.text.values import count, truncate_list
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
        fleet = _one_fleet(store, [confirm], "divots --confirm")
        plan = load_fleet(store, fleet)  # else nobody knows how its hosts are reached
        if plan.asked.backend == FILES:
            raise InputError(
                f"fleet:{fleet} was made of databases: rater does not know how its hosts are "
                "reached; measure them again, and make a fleet of that"
            )
        comparison = compare_fleet(_results(store, fleet))
        chosen = _chosen(finding, fleet, comparison)
        paired = pairs_of(comparison, [one.host for one in chosen], rounds)
        suspects = [suspect_of(one) for one in chosen]
        if output.dry_run or not (output.quiet or output.json):
            print_view(output, trial_document(fleet, suspects, paired), trial_plan_parts)
        if output.dry_run:
            return 0
        numbers = [_round(store, fleet, them, quiet=output.quiet) for them in paired]
        measured = [
            {result.host: result for result in _results(store, number)} for number in numbers
        ]
    verdicts = [judge_suspect(suspect, zip(paired, measured, strict=True)) for suspect in suspects]
    print_view(
        output, trial_document(fleet, suspects, paired, numbers, verdicts), trial_verdict_parts
    )
    again = (ConfirmVerdict.CONFIRMED, ConfirmVerdict.SMALLER)
    if any(verdict is not None and verdict.answer in again for verdict in verdicts):
        return 0
    return NOT_JUDGED if None in verdicts else 1


def _chosen(finding: int | None, fleet: int, comparison: FleetComparison) -> Sequence[SlowHost]:
    slow = comparison.slow
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


def _round(store: Store, fleet: int, pairs: Round, *, quiet: bool) -> int:
    """Make a fleet of these hosts with what the first one ran; return its number."""
    nodes = tuple(dict.fromkeys(host for pair in pairs.items() for host in pair))
    number = create_confirming_fleet(store, fleet, nodes)
    steps = FleetDriver(store, number, quiet=quiet)
    while not steps.act(steps.refresh()).is_settled:
        time.sleep(POLL_S[load_fleet(store, number).asked.backend])
    collect_published(steps, quiet=True)
    return number


# -- `rater fleet history`: a host against its fleets over weeks, or a benchmark over all of them --


def history(output: Output, name: str) -> int:
    """Print the histories of a name: one for each program, the last one run first."""
    with open_existing_store(output) as store:
        histories = histories_in(store, name)
    print_view(output, history_document(histories), histories_parts)
    return 0


def histories_in(store: Store, name: str) -> list[History]:
    """Return the histories of a host, else of a benchmark; raises `InputError` for neither.

    A benchmark may stand behind the name of its suite: `mini/lu`.
    """
    with store.reading() as connection:
        query = "SELECT DISTINCT host FROM fleet_run ORDER BY 1"
        hosts = [host for (host,) in connection.execute(query)]
        query = "SELECT DISTINCT benchmark FROM result ORDER BY 1"
        benchmarks = [benchmark for (benchmark,) in connection.execute(query)]
        if not hosts:
            fleet_number(connection, fleet_word("fleet:last"))  # which says what there is
    suite, _, benchmark = name.rpartition("/")
    by_fleet = _fleets_before(store, name if name in hosts else None)
    histories = []
    if name in hosts:
        histories = [
            host_history(name, history) for history in points_of_host(name, by_fleet).values()
        ]
    elif benchmark in benchmarks:
        histories = [
            benchmark_history(benchmark, *points)
            for program, points in points_of_benchmark(benchmark, by_fleet).items()
            if not suite or program.startswith(f"{suite}, ")
        ]
    if not histories:
        raise InputError(
            f"{name}: neither a host nor a benchmark of a fleet; benchmarks: "
            f"{truncate_list(benchmarks, 20)}; hosts: {truncate_list(hosts, 8)}"
        )
    return sorted(histories, key=lambda history: -max(history.series[0].fleets, default=0))


def _fleets_before(store: Store, host: str | None, *more: int) -> dict[int, list[HostResult]]:
    """Return what counts in the fleets that have runs (of a host), by their number.

    Without those that confirm another one: their hosts were chosen because they are slow.
    """
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT DISTINCT fleet FROM fleet_run LEFT JOIN fleet ON id = fleet "
            "WHERE confirms IS NULL AND (:host IS NULL OR host = :host)",
            {"host": host},
        )
        fleets = sorted({*(number for (number,) in rows), *more})
    return {number: _results(store, number) for number in fleets}


# -- `rater report fleet:3`: a fleet as one page that a person can send ----------------------------

_REPORT_MOST_OPENED = 40  # slow hosts whose own divots are on the page
_MOST_HISTORIES = 12


def report(output: Output, run_words: tuple[str, ...], file: str | None, force: bool) -> int:
    """Write the page of a fleet."""
    with open_existing_store(output) as store:
        fleet = _one_fleet(store, run_words, "report")
        path = page_path(output, file, f"fleet-{fleet}", force=force)
        loaded = _loaded(store, fleet, Thresholds(), _REPORT_MOST_OPENED)
        histories = _histories(store, fleet, loaded.compared)
    document = loaded.document(fleet)
    planned = max(loaded.planned, len(loaded.chosen))
    page = fleet_page(document, loaded.chosen, planned, histories)
    return deliver_page(output, path, page, {"fleet": fleet}, summary_line(document))


def _histories(store: Store, fleet: int, comparison: FleetComparison) -> list[History]:
    """Return those of the slow hosts, and of hosts too few of a kind to be compared in a fleet."""
    names = [one.host for one in comparison.slow]
    names += [host for kind in comparison.kinds if kind.why_not for host in kind.hosts]
    by_fleet = _fleets_before(store, None, fleet) if names else {}
    return [
        host_history(name, points)
        for name in names[:_MOST_HISTORIES]
        for points in points_of_host(name, by_fleet).values()
        if any(point.fleet == fleet for point in points)
    ]


# -- `rater divots fleet:3`: which hosts are slow, and what is slow inside of them -----------------

NODELIST = "nodelist"  # a form of the output: the slow hosts alone, for other programs
_MOST_REASONS = 8  # of a gate that are told
_DIVOTS_MOST_OPENED = 5  # slow hosts whose own divots are told unasked: each is copied and searched


def fleet_divots(
    output: Output,
    run_words: tuple[str, ...],
    *,
    fail_on: tuple[str, ...],
    threshold_group: float,
    threshold_copy: float,
    against: str | None,
) -> int:
    """Print the slow hosts of a fleet, and the divots of the slowest ones; see `_gate`."""
    limits = [parse_limit(text, GATE_KINDS) for text in fail_on]
    with open_existing_store(output) as store:
        fleet = _one_fleet(store, run_words, "divots")
        thresholds = Thresholds(threshold_group, threshold_copy)
        other = None if against is None else _one_fleet(store, [against], "divots --against")
        loaded = _loaded(store, fleet, thresholds, _DIVOTS_MOST_OPENED, other)
    if output.format == NODELIST:
        print(compress([host.host for host in loaded.compared.slow]))
    else:
        divots = {host: divot_rows(it.findings) for host, it in loaded.inside.items()}
        print_view(output, loaded.document(fleet) | {"divots": divots}, fleet_parts)
    return _gate(limits, loaded) if limits else 0


class _Loaded(Struct, kw_only=True):
    """The comparison of a fleet's hosts, with the divots inside of them and missing hosts."""

    compared: FleetComparison
    chosen: dict[str, IndexedRun]  # by host, its run that counts
    inside: dict[str, Analysis]  # the divots of slow hosts
    missing: list[MissingHost]
    planned: int  # hosts
    backend: str | None = None  # that reaches the hosts; None: its index came without its plan

    @property
    def all_failed(self) -> frozenset[str]:
        """The hosts whose every copy failed."""
        return frozenset(
            host for host, run in self.chosen.items() if 0 < run.copy_runs == run.failed
        )

    def document(self, fleet: int) -> dict[str, object]:
        """Return all of it."""
        document = fleet_document(fleet, self.compared, self.inside, self.missing)
        return document | {"backend": self.backend}


def _gate(limits: Sequence[GateLimit], loaded: _Loaded) -> int:
    """Say on stderr why it fails, or cannot be judged; return the exit status."""
    verdicts = [*judge_fleet(loaded.compared, loaded.missing, loaded.all_failed, limits)]
    for answer in (GateAnswer.FOUND, GateAnswer.OPEN):
        if reasons := reasons_of(verdicts, answer):
            colon = "" if answer is GateAnswer.FOUND else ": cannot be judged:"
            for reason in reasons[:_MOST_REASONS]:
                print_error(f"--fail-on{colon} {reason}")
            if len(reasons) > _MOST_REASONS:
                more = count(len(reasons) - _MOST_REASONS, "more reason")
                print_error(f"--fail-on{colon} {more}")
            break
    return gate_status(verdicts)


def _loaded(
    store: Store, fleet: int, thresholds: Thresholds, most: int, against: int | None = None
) -> _Loaded:
    """Return a fleet with the divots of so many slow hosts.

    Its hosts are held against each other, or those of another fleet. A run that cannot be opened is
    said, not fatal.
    """
    inside: dict[str, Analysis] = {}
    results = _results(store, fleet)
    comparison = (
        compare_fleet(results)
        if against is None
        else compare_fleet_against(results, against, _results(store, against))
    )
    with store.reading() as connection:
        chosen = {host: runs[-1] for host, runs in latest(indexed_runs(connection, fleet)).items()}
        for slow in comparison.slow[:most]:
            run = chosen[slow.host]
            try:
                with opened_run(connection, run) as archived:
                    (head,) = archived.runs([run.run])
                    inside[slow.host] = load_or_analyse(archived, head, thresholds, fresh=False)
            except RaterError as error:
                print_error(f"{slow.host}: {error}")
    with_times = {host for kind in comparison.kinds for host in kind.hosts}
    try:
        plan = load_fleet(store, fleet)
    except InputError:  # its index came without its plan
        missing = [
            MissingHost(
                host=host,
                state="without times",
                reason=run.reason,
                attempts=run.attempt,
                has_times=False,
            )
            for host, run in chosen.items()
            if host not in with_times
        ]
        return _Loaded(
            compared=comparison, chosen=chosen, inside=inside, missing=missing, planned=len(chosen)
        )
    return _Loaded(
        compared=comparison,
        chosen=chosen,
        inside=inside,
        missing=_missing_hosts(plan, chosen, with_times),
        planned=len(plan.attempts),
        backend=plan.asked.backend,
    )


def _missing_hosts(
    plan: StoredFleet, chosen: Mapping[str, IndexedRun], with_times: Collection[str]
) -> list[MissingHost]:
    """Return the planned hosts without a complete run or without times, and why."""
    missing = []
    for node, tried in plan.attempts.items():
        last = deciding_attempt(tried) if tried else None
        if last is None:
            state, reason = "not submitted", None
        elif last.state is not AttemptState.COMPLETE:
            state, reason = last.state.value, last.reason
        elif node in with_times:
            continue
        else:
            has = "no benchmark in it ended well" if node in chosen else "not collected yet"
            state, reason = "without times", has
        missing.append(
            MissingHost(
                host=node,
                state=state,
                reason=reason,
                attempts=len(tried),
                has_times=node in with_times,
            )
        )
    return missing


def _results(store: Store, fleet: int) -> list[HostResult]:
    """Return what counts of every host of a fleet."""
    with store.reading() as connection:
        row = connection.execute("SELECT command FROM fleet WHERE id = ?", (fleet,)).fetchone()
        times: defaultdict[tuple[str, int, int], Times] = defaultdict(dict)
        for *of, benchmark, bracket_s, copy_s in connection.execute(
            "SELECT host, attempt, run, benchmark, bracket_s, copy_s FROM result WHERE fleet = ? "
            "ORDER BY benchmark",
            (fleet,),
        ):
            bracket_and_copy_s = tuple(json.loads(bracket_s or "[]")), tuple(json.loads(copy_s))
            times[tuple(of)][benchmark] = bracket_and_copy_s
        settings = connection.execute(
            "SELECT id, settings FROM fleet_setting WHERE id IN "
            "(SELECT setting FROM fleet_run WHERE fleet = ?)",
            (fleet,),
        )
        return results_of(
            indexed_runs(connection, fleet),
            times,
            {number: json.loads(text) for number, text in settings},
            command_text(json.loads(row[0])) if row and row[0] else None,
        )


def _one_fleet(store: Store, words: Sequence[str], command: str) -> int:
    """Return the number of the fleet that a command was given; raises `InputError` for several."""
    if len(words) != 1:
        raise InputError(f"{' '.join(words)}: one fleet at a time: `rater {command} fleet:N`")
    with store.reading() as connection:
        return fleet_number(connection, fleet_word(words[0]))
