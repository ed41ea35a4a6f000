"""What is stored: `rater export`, `rm`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rater.errors import InputError
from rater.record.stored import StoredRun, folder_of
from rater.run.programs.compile import cache_root
from rater.run.programs.inputs import remove_run_dir
from rater.store.exchange.export import (
    full_document,
    observations_document,
    write_csv,
    write_document,
)
from rater.store.find import TAG
from rater.store.sweeps import PREFIX, find_sweep, remove_sweeps
from rater.streams import say
from rater.text.words import count
from rater.trusted_files import other_writer
from rater.workflow.common import existing_store, print_json, store_to_read
from rater.workflow.speccpu.import_results import write_rsf


def export_run(args: argparse.Namespace) -> int:
    """Write a run on standard output in the format that was asked for."""
    if args.json and args.format in ("csv", "rsf", "parquet"):
        raise InputError(
            f"--format {args.format} is no JSON document: leave out --json, or --format "
            f"{args.format}"
        )
    with store_to_read(args) as store:
        stored = store.load(store.find(args.which))
    if args.format == "csv":
        write_csv(stored, sys.stdout)
    elif args.format == "rsf":
        write_rsf(stored, sys.stdout)
    elif args.format == "parquet":
        _write_parquet(stored)
    else:
        make = full_document if args.format == "json" else observations_document
        write_document(make(stored), sys.stdout)
    return 0


def _write_parquet(stored: StoredRun) -> None:
    from rater.workflow.results.columns import columns_of_copies, library

    if sys.stdout.isatty():
        raise InputError("--format parquet is no text for a terminal: > run.parquet")
    parquet = library("pyarrow.parquet")
    parquet.write_table(columns_of_copies(stored).to_arrow(), sys.stdout.buffer)


def _ask(several: Sequence[str], sweeps: Sequence[int], runs: Sequence[int]) -> None:
    """Ask before a word that stands for several runs takes them; `InputError` where it may not."""
    if not sweeps and (not several or len(runs) < 2):
        return
    what = " and ".join(
        [count(len(sweeps), "sweep") + " with all its runs"] * bool(sweeps)
        + [count(len(runs), "run")] * bool(runs)
    )
    if not sys.stdin.isatty():
        raise InputError(f"{' '.join(several)}: this removes {what}; add --yes to do so")
    print(f"Remove {what} for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("nothing was removed")


def remove(args: argparse.Namespace) -> int:
    """Remove runs and sweeps, with what failed copies left of them."""
    with existing_store(args) as store:
        # One of somebody else's may name folders of our own runs.
        ours = other_writer(store.path) is None
        # All are found before the first goes: `last last~1` means two runs as they stand now.
        of_sweeps = [which for which in args.which if which.startswith(PREFIX)]
        sweeps = list(dict.fromkeys(find_sweep(store, which) for which in of_sweeps))
        words = [which for which in args.which if which not in of_sweeps]
        named = list(dict.fromkeys(n for which in words for n in store.find_all(which)))
        if not args.yes:
            _ask([*of_sweeps, *(it for it in words if it.startswith(TAG))], sweeps, named)
        numbers = remove_sweeps(store, sweeps, named)
    for uuid in numbers.values():
        folder = folder_of(uuid) if ours else None
        trouble = remove_run_dir(cache_root() / "work" / folder) if folder else None
        if trouble:
            say(trouble)
    if args.json:
        print_json({"removed": [*numbers], **({"sweeps": sweeps} if sweeps else {})})
    else:
        for number in numbers:
            print(f"run {number} removed")
        for number in sweeps:
            print(f"sweep {number} removed")
    return 0
