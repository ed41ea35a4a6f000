"""`rater history`: a host against its fleets over weeks, or a benchmark over all of them."""

from __future__ import annotations

import argparse

from rater.analysis.fleet.history import History, benchmark_history, host_history
from rater.errors import InputError
from rater.show.fleet.history import history_document, print_history
from rater.store.fleet.history import (
    history_of_benchmark,
    history_of_host,
    known_names,
    unknown_name,
)
from rater.store.store import Store
from rater.workflow.common import existing_store, show


def history(args: argparse.Namespace) -> int:
    """Print the history of a name."""
    with existing_store(args) as store:
        found = history_in(store, args.name)
    show(args, lambda: history_document(found), lambda printer: print_history(found, printer))
    return 0


def history_in(store: Store, name: str) -> History:
    """Return the history of a host, else of a benchmark; raises `InputError` for neither."""
    with store.reading() as connection:
        hosts, benchmarks = known_names(connection)
        if not hosts:
            raise InputError(
                "no host of a fleet has published a run yet; `rater fleet run` makes fleets and "
                "`rater fleet collect` takes them in"
            )
        if name in hosts:
            return host_history(name, history_of_host(connection, name))
        if name in benchmarks:
            return benchmark_history(name, *history_of_benchmark(connection, name))
    raise unknown_name(name, hosts, benchmarks)
