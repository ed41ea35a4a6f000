"""Databases of other machines into one: `rater merge TARGET DB...`, and `rater import DB`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rater.errors import InputError
from rater.store.connection import default_path
from rater.store.merge.merge import MergedFile, merge_database
from rater.store.merge.source import SourceRefusedError
from rater.store.store import Store, open_store
from rater.streams import say
from rater.text.words import count, runs_text, some
from rater.workflow.common import print_json


def merge(args: argparse.Namespace) -> int:
    """Merge each database; one that cannot be merged does not keep the others out."""
    target = Path(args.target)
    if args.db is not None and default_path(args.db) != target:
        raise InputError(
            f"--db {args.db}: `rater merge` merges into the database that it is given first "
            f"({target}); leave out --db"
        )
    sources = list(dict.fromkeys(Path(it) for it in args.source))
    with open_store(target) as store:
        merged, errors = _merge_all(store, sources, args)
    if args.json:
        print_json({"files": [document(it) for it in merged], "errors": errors})
    elif len(sources) > 1:
        print(_total(merged, errors, target))
    return InputError.exit_status if errors else 0


def _merge_all(
    store: Store, sources: Sequence[Path], args: argparse.Namespace
) -> tuple[list[MergedFile], list[str]]:
    merged: list[MergedFile] = []
    errors: list[str] = []
    alone = len(sources) == 1
    for path in sources:
        try:
            result = merge_database(store, path, restore=args.restore)
        except SourceRefusedError as error:
            errors.append(str(error))
            say(str(error))
            continue
        merged.append(result)
        if not args.json:
            # Of many files that have nothing new the last line is enough.
            if any((result.added, result.replaced, result.sweeps, result.traces)) or alone:
                print(in_words(result))
            for text in remarks(result):
                say(text)
    return merged, errors


def in_words(result: MergedFile) -> str:
    """Return a line about a file."""
    done = []
    if result.added:
        done.append(f"{runs_text(result.added)} added")
    if result.replaced:
        done.append(f"{runs_text(result.replaced)} replaced, which went on since")
    if result.sweeps:
        done.append(f"{count(result.sweeps, 'sweep')} added")
    if result.traces:
        done.append(f"{count(result.traces, 'traced program')} added")
    if result.known:
        done.append(f"{count(result.known, 'run')} known")
    if result.schema is None:
        done.append("merged before, nothing new in it")
    return f"{result.path}: {', '.join(done) or 'no runs in it'}"


def remarks(result: MergedFile) -> list[str]:
    """Return what a person should know of a file beside that."""
    told = []
    if result.removed:
        told.append(
            f"{result.path}: {count(result.removed, 'run or sweep', 'runs and sweeps')} that "
            f"{'was' if result.removed == 1 else 'were'} removed here left out; --restore brings "
            f"{'it' if result.removed == 1 else 'them'} back"
        )
    if result.running:
        told.append(f"{result.path}: {runs_text(result.running)} still running here, left as it is")
    if result.left_out:
        told.append(f"{result.path}: tables that stay behind: {some(result.left_out)}")
    return told


def document(result: MergedFile) -> dict[str, Any]:
    """Return what `--json` has of a file."""
    return asdict(result) | {"path": str(result.path), "merged_before": result.schema is None}


def _total(merged: Sequence[MergedFile], errors: Sequence[str], target: Path) -> str:
    added = sum(len(it.added) for it in merged)
    replaced = sum(len(it.replaced) for it in merged)
    before = sum(it.schema is None for it in merged)
    parts = [f"{count(added, 'run')} added"]
    parts += [f"{replaced} replaced"] if replaced else []
    parts += [f"{count(before, 'file')} merged before"] if before else []
    parts += [f"{count(len(errors), 'file')} not merged, named above"] if errors else []
    return f"{target}: {', '.join(parts)}, of {count(len(merged) + len(errors), 'file')}"
