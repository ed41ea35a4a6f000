"""`rater divots fleet:3`: which hosts are slow, and what is slow inside of them."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rater.analysis.divots.data.finding import Analysis, Thresholds
from rater.analysis.fleet.model import FleetCompared
from rater.errors import RaterError
from rater.record.fleet import latest
from rater.record.stored import RunHead
from rater.show.console.printer import Printer
from rater.show.divots.to_json import divot_rows
from rater.show.fleet.slow_hosts import (
    fleet_document,
    print_fleet,
    print_missing,
    print_next,
)
from rater.store.fleet.index import opened_run, runs_of
from rater.store.store import Store
from rater.streams import say
from rater.workflow.common import existing_store, show
from rater.workflow.fleet.compared import compared, one_fleet
from rater.workflow.fleet.missing import missing_hosts
from rater.workflow.results.divots import analysis_of

_MOST_OPENED = 5  # slow hosts whose own divots are told unasked: each is unpacked and searched

type Inside = dict[str, tuple[RunHead, Analysis]]  # by host


def fleet_divots(args: argparse.Namespace) -> int:
    """Print the slow hosts of a fleet, and the divots of the slowest ones."""
    with existing_store(args) as store:
        fleet = one_fleet(store, args.which, "divots")
        found = compared(store, fleet)
        thresholds = Thresholds(args.threshold_group, args.threshold_copy)
        own = insides(store, fleet, found, thresholds)
        with store.reading() as connection:
            chosen = {host: them[-1] for host, them in latest(runs_of(connection, fleet)).items()}
        in_times = {host for kind in found.kinds for host in kind.hosts}
        missing, _ = missing_hosts(store, fleet, chosen, in_times)
    inside = {host: analysis for host, (_, analysis) in own.items()}

    def document() -> object:
        divots = {host: divot_rows(it.findings, head) for host, (head, it) in own.items()}
        told = [asdict(it) for it in missing]
        return fleet_document(fleet, found, inside) | {"missing": told, "divots": divots}

    def text(printer: Printer) -> None:
        print_fleet(fleet, found, inside, printer)
        print_missing(missing, printer)
        printer.line()
        print_next(fleet, found, printer)

    show(args, document, text)
    return 0


def insides(
    store: Store,
    fleet: int,
    found: FleetCompared,
    thresholds: Thresholds,
    most: int = _MOST_OPENED,
) -> Inside:
    """Return the divots of the slowest hosts; one that cannot be opened is said, not fatal."""
    with store.reading() as connection:
        chosen = latest(runs_of(connection, fleet))
        told: Inside = {}
        for slow in found.slow[:most]:
            run = chosen[slow.host][-1]
            try:
                with opened_run(connection, run) as archived:
                    (head,) = (it for it in archived.runs() if it.run == run.run)
                    analysis = analysis_of(archived, head, thresholds, fresh=False)
                    told[slow.host] = head, analysis
            except RaterError as error:
                say(f"{slow.host}: {error}")
    return told
