"""What every use case shares: an existing store, JSON or text on standard output, a word aside."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rater.errors import InputError
from rater.streams import say

if TYPE_CHECKING:
    from rater.show.console.printer import Printer
    from rater.store.store import Store

_RUN_WORDS = ("which", "points", "beside", "baseline")  # arguments that are words for runs


def existing_store(args: argparse.Namespace) -> Store:
    """Open the database, which there must be."""
    from rater.store.connection import default_path, is_there
    from rater.store.store import open_store

    path = default_path(args.db)
    if not is_there(path):
        raise InputError(
            f"there is no database {path}; `rater run` makes it, or name another with --db"
        )
    return open_store(path)


def store_to_read(args: argparse.Namespace) -> Store:
    """Open the database, which there must be, of a command that only reads runs.

    Where its words name runs in the archive of a fleet (`fleet:3/n017`), these are unpacked, and
    the store has them alone.
    """
    from rater.store.fleet.archived import ArchivedStore, fleet_words

    store = existing_store(args)
    words: list[str | None] = []
    for name in _RUN_WORDS:
        given = getattr(args, name, None)
        words += [given] if isinstance(given, str) else given or []
    archived = fleet_words(words)
    if not archived:
        return store
    with store:
        found = ArchivedStore(store, archived)
    for word, number in found.numbers.items():
        say(f"{word} is called run {number} here, and {word} in commands")
    return found


def refuse_no_directory() -> None:
    """Raise `InputError` where the current directory is gone or forbidden."""
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            f"the current directory cannot be entered ({error.strerror}); cd to one that is there"
        ) from error


def show(
    args: argparse.Namespace, document: Callable[[], object], text: Callable[[Printer], None]
) -> None:
    """Print the one JSON document that `--json` asks for, else text for people."""
    if args.json:
        print_json(document())
        return
    from rater.show.console.printer import Printer
    from rater.show.console.terminal import terminal

    text(Printer(terminal()))


JSON_VERSION = 1  # of documents: grows when a key is taken away or comes to mean something else


def print_json(value: object) -> None:
    """Print the one JSON document of a `--json` command.

    The version stands in it under `rater`, of a list in each of its members.
    """
    if isinstance(value, Mapping):
        value = {"rater": JSON_VERSION, **value}
    elif isinstance(value, list):
        value = [{"rater": JSON_VERSION, **it} if isinstance(it, Mapping) else it for it in value]
    # At once: of the pieces of `json.dump` a list of all runs has millions, each cleaned by itself.
    sys.stdout.write(f"{json.dumps(value, indent=2, allow_nan=False)}\n")


def print_json_rows(document: Mapping[str, object]) -> None:
    """Print the one JSON document of a `--json` command, an element of its lists a line.

    Ten times as fast as `print_json`, which matters for thousands of copies.
    """
    told = []
    for key, value in {"rater": JSON_VERSION, **document}.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value and not isinstance(value[0], int):
            rows = [f"    {json.dumps(one, allow_nan=False)}" for one in value]
            text = "[\n" + ",\n".join(rows) + "\n  ]"
        told.append(f"  {json.dumps(key)}: {text}")
    sys.stdout.write("{\n" + ",\n".join(told) + "\n}\n")
