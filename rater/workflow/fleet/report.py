"""`rater report fleet:3`: a fleet as one page that a person can send."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.fleet.history import History, host_history
from rater.analysis.fleet.model import FleetCompared
from rater.errors import InputError
from rater.record.fleet import IndexedRun, latest
from rater.show.fleet.page import FleetPage, fleet_page, summary_line
from rater.store.fleet.history import history_of_host
from rater.store.fleet.index import runs_of
from rater.store.store import Store
from rater.workflow.common import existing_store, print_json
from rater.workflow.fleet.compared import compared, one_fleet
from rater.workflow.fleet.divots import insides
from rater.workflow.fleet.missing import missing_hosts
from rater.workflow.results.output_file import write_output
from rater.workflow.results.report import check_page

_MOST_OPENED = 40  # slow hosts whose own divots are on the page
_MOST_HISTORIES = 12
_STDOUT = "-"


def report(args: argparse.Namespace) -> int:
    """Write the page of a fleet."""
    with existing_store(args) as store:
        fleet = one_fleet(store, args.which, "report")
        path = Path(args.file or f"rater-report-fleet-{fleet}.html")
        if args.file != _STDOUT:
            check_page(path, force=args.force)
        elif args.json:
            raise InputError("-o - --json: both would be written to standard output; leave one out")
        page = page_data(store, fleet)
    text = fleet_page(page).encode()
    if args.file == _STDOUT:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return 0
    write_output(path, text)
    if args.json:
        print_json({"fleet": fleet, "file": str(path), "bytes": len(text)})
    else:
        print(f"{path.resolve()}: a page on {summary_line(page)}, {len(text) / 1e3:.0f} KB")
    return 0


def page_data(store: Store, fleet: int) -> FleetPage:
    """Return all that the page of a fleet says."""
    found = compared(store, fleet)
    with store.reading() as connection:
        chosen = {host: runs[-1] for host, runs in latest(runs_of(connection, fleet)).items()}
    inside = insides(store, fleet, found, Thresholds(), _MOST_OPENED)
    in_map = {host for kind in found.kinds for host in kind.hosts}
    missing, planned = missing_hosts(store, fleet, chosen, in_map)
    starts = sorted(run.started_at for run in chosen.values() if run.started_at)
    return FleetPage(
        fleet,
        found,
        {host: analysis for host, (_, analysis) in inside.items()},
        {host: _about(run) for host, run in chosen.items()},
        missing,
        max(planned, len(chosen)),
        _histories(store, found),
        starts[0] if starts else None,
    )


def _histories(store: Store, found: FleetCompared) -> list[History]:
    """Return those of the slow hosts, and of hosts too few of a kind to be compared in a fleet."""
    names = [one.host for one in found.slow]
    names += [host for kind in found.kinds if kind.cannot_tell for host in kind.hosts]
    with store.reading() as connection:
        return [
            host_history(name, history_of_host(connection, name))
            for name in names[:_MOST_HISTORIES]
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
