"""SPEC CPU's result files into the database (`rater import spec FILE...`), and runs out as such."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rater.errors import InputError
from rater.streams import say
from rater.workflow.common import print_json

if TYPE_CHECKING:
    from rater.record.stored import StoredRun

_SAYING_S = 5.0  # between two words on how far the reading is


def import_spec(args: argparse.Namespace) -> int:
    """Import result files, one run each; what one of them lacks does not keep the others out."""
    from rater.show.console.printer import Printer
    from rater.show.console.terminal import terminal
    from rater.show.speccpu.imported import import_document, print_import
    from rater.speccpu.results.read import read_spec
    from rater.speccpu.results.to_run import to_import
    from rater.store.connection import default_path
    from rater.store.store import open_store

    topology = None
    described: str | None = getattr(args, "topology", None)
    if described is not None:
        from rater.run.host import discover as machine

        topology = machine.load(described)
    documents = []
    errors: list[str] = []
    printer = Printer(terminal())
    store = None
    try:
        for place, name in enumerate(args.file):
            try:
                one = to_import(read_spec(Path(name), _progress(name)), topology)
            except InputError as error:
                errors.append(str(error))
                say(error)
                continue
            store = store or open_store(default_path(args.db))
            number, added = store.add(one.stored, one.copies())
            if args.json:
                documents.append(import_document(one, number, added))
                continue
            if place:
                printer.line()
            again = f" (with another --topology: `rater rm {number}` first)" if topology else ""
            print_import(one, number, added, printer, again=again)
            if added:
                printer.line(f"  rater show {number}")
    finally:
        if store is not None:
            store.close()
    if args.json:
        print_json({"runs": documents, "errors": errors})
    return InputError.exit_status if errors else 0


def _progress(name: str) -> Callable[[int], None]:
    """Return what says every few seconds how much of a file was read."""
    last_s = time.monotonic()

    def told(read_bytes: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > _SAYING_S:
            last_s = time.monotonic()
            say(f"{name}: {read_bytes // 10**6} MB read")

    return told


def write_rsf(stored: StoredRun, out: TextIO) -> None:
    """Write a run as the `key: value` lines of a raw file, marked as an estimate."""
    from rater.analysis.results.score import summarise
    from rater.speccpu.export.rsf_write import Scored, rsf_lines

    summary = summarise(stored)
    scores = {
        (benchmark.tune, benchmark.benchmark, it.iteration): Scored(
            it.bracket_s, it.ratio, it.selected, it.copies
        )
        for benchmark in summary.benchmarks
        for it in benchmark.iterations
    }
    means = {score.tune: score.ratio for score in summary.suites if score.kind == "all"}
    for line in rsf_lines(stored, scores, means):
        out.write(f"{line}\n")
