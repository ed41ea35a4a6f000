"""Observations documents, and whole databases, into the database: `rater import FILE...`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, BinaryIO

from rater.errors import InputError
from rater.record.stored import StoredRun
from rater.store.connection import default_path
from rater.store.exchange.read_observations import read_observations
from rater.store.merge.merge import MergedFile, merge_database
from rater.store.merge.source import SourceRefusedError, is_database
from rater.store.store import open_store
from rater.streams import say
from rater.workflow.common import print_json
from rater.workflow.results.merge import document, in_words, remarks

_STDIN = ("-", "/dev/stdin")
_PASSED = "/dev/fd/"  # what a shell makes of <(command): a pipe that is open already
_MOST_BYTES = 128_000_000  # a document of 600,000 copy runs: half a minute, 1 GB of memory
_PIECE_BYTES = 1 << 20


def import_documents(args: argparse.Namespace) -> int:
    """Store the run of each document; one that cannot be read does not keep the others out."""
    files: list[str] = args.file
    documents = []
    merged: list[MergedFile] = []
    errors: list[str] = []
    for file in files:
        if file not in _STDIN and is_database(Path(file)):
            merged += _merge(args, file, errors)
            continue
        try:
            name = "standard input" if file in _STDIN else file
            stored = read_observations(_bytes_of(file), name)
        except InputError as error:
            if len(files) == 1:
                raise
            errors.append(str(error))
            say(str(error))
        else:
            documents.append(_add(args, stored))
    if args.json:
        several = {"runs": documents, "errors": errors}
        if merged:
            several["files"] = [document(it) for it in merged]
        print_json(documents[0] if len(files) == len(documents) == 1 else several)
    return InputError.exit_status if errors else 0


def _merge(args: argparse.Namespace, file: str, errors: list[str]) -> list[MergedFile]:
    """Merge a database; return what became of it, nothing where it cannot be merged."""
    with open_store(default_path(args.db)) as store:
        try:
            result = merge_database(store, Path(file), restore=args.restore)
        except SourceRefusedError as error:
            errors.append(str(error))
            say(str(error))
            return []
    if not args.json:
        print(in_words(result))
        for text in remarks(result):
            say(text)
    return [result]


def _add(args: argparse.Namespace, stored: StoredRun) -> dict[str, Any]:
    """Store a run where it is not there already; return what `--json` says of it."""
    with open_store(default_path(args.db)) as store:
        number, added = store.add(stored)
    uuid, observations = stored.head.uuid, len(stored.copies)
    if not args.json and added:
        print(f"run {number}: {observations} observations of {uuid} imported")
    elif not args.json:
        print(f"run {number}: {uuid} is stored already, nothing was added")
    return {"run": number, "uuid": uuid, "added": added, "observations": observations}


def _bytes_of(file: str) -> bytes:
    """Return what is in a file or comes from standard input, at most `_MOST_BYTES`."""
    path = Path(file)
    try:
        if file in _STDIN:
            if sys.stdin is None:  # closed: `rater import - <&-`
                raise InputError(f"{file}: standard input is closed; expected a document there")
            return _limited(sys.stdin.buffer, file)
        if path.exists() and not (path.is_file() or path.is_dir() or file.startswith(_PASSED)):
            # Opening a FIFO waits for a writer, and a device may never end.
            raise InputError(
                f"{file}: not a regular file; expected a file, or - for standard input"
            )
        with path.open("rb") as opened:
            return _limited(opened, file)
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); expected a file, or - for stdin"
        ) from error


def _limited(stream: BinaryIO, file: str) -> bytes:
    """Read a stream to its end, in pieces: a read of the limit at once would ask for its memory."""
    data = bytearray()
    while piece := stream.read(_PIECE_BYTES):
        data += piece
        if len(data) > _MOST_BYTES:
            raise InputError(
                f"{file}: more than {_MOST_BYTES} bytes; expected an observations document, "
                "about 200 bytes for each copy run"
            )
    return bytes(data)
