"""Files of any runner, told apart by their content, as runs that can be stored; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

from msgspec.structs import replace

from rater.record.stored import StoredRun
from rater.store.formats.benchexec import is_xml, read_benchexec
from rater.store.formats.csv_table import read_csv
from rater.store.formats.document import ForeignRun
from rater.store.formats.google_benchmark import is_google_benchmark, read_google_benchmark
from rater.store.formats.hyperfine import is_hyperfine, read_hyperfine
from rater.store.formats.pyperf import is_pyperf, read_pyperf
from rater.store.observations import EXPECTED, read_document, run_of_document
from rater.system.errors import InputError
from rater.text.documents import Document, json_document
from rater.text.packed import TORN, UnpackedStream, detect_packing


class _JsonFormat(NamedTuple):
    """A program's file in JSON."""

    program: str
    is_its_own: Callable[[Any], bool]
    read: Callable[[bytes, Document], list[ForeignRun]]


_JSON_FORMATS = (
    _JsonFormat("hyperfine", is_hyperfine, read_hyperfine),
    _JsonFormat("pyperf", is_pyperf, read_pyperf),
    _JsonFormat("Google benchmark", is_google_benchmark, read_google_benchmark),
)
KNOWN_FILES = (
    "JSON of hyperfine, pyperf or Google benchmark, XML of BenchExec, or a table with --csv"
)


class ReadRun(NamedTuple):
    """A run of a file, and the program that wrote the file; "" is rater or another one."""

    stored: StoredRun
    program: str


def read_runs(
    data: bytes,
    file: str,
    *,
    columns: Mapping[str, str] | None,
    tags: Mapping[str, str],
    most_bytes: int,
) -> list[ReadRun]:
    """Return the runs of a file, which may be packed; `file` is what errors call it.

    `columns` has the words of a table's columns; None is for any other file.
    `tags` are added to every run. Raises `InputError` naming what is wrong, and what was expected.
    """
    data = _unpacked(data, file, most_bytes)
    if columns is not None:
        runs, program = read_csv(data, file, columns), "CSV"
    elif is_xml(data):
        runs, program = read_benchexec(data, file), "BenchExec"
    elif not data.strip():
        raise InputError(f"{file}: nothing is in it; expected {EXPECTED}; or {KNOWN_FILES}")
    else:
        _refuse_table(data, file)
        document = json_document(data, file, f"{EXPECTED}; or {KNOWN_FILES}")
        known = next((it for it in _JSON_FORMATS if it.is_its_own(document.data)), None)
        if known is None:
            return [ReadRun(_with_tags(read_document(document), tags), "")]
        runs, program = known.read(data, document), known.program
    if not any(run.document["observations"] for run in runs):
        raise InputError(f"{file}: {program} has no times in it: nothing to import")
    return [ReadRun(_stored(run, file, tags), program) for run in runs]


def _stored(run: ForeignRun, file: str, tags: Mapping[str, str]) -> StoredRun:
    stored = run_of_document(Document(file, run.document))
    return _with_tags(replace(stored, notes=(*stored.notes, *run.notes)), tags)


def _with_tags(stored: StoredRun, tags: Mapping[str, str]) -> StoredRun:
    if not tags:
        return stored
    both = {**dict(stored.head.tags), **tags}
    return replace(stored, head=replace(stored.head, tags=tuple(both.items())))


def _unpacked(data: bytes, file: str, most_bytes: int) -> bytes:
    kind = detect_packing(data)
    if kind is None:
        return data
    try:
        unpacked = UnpackedStream(BytesIO(data), kind).read_all(most_bytes + 1)
    except (*TORN, OSError) as error:
        raise InputError(f"{file}: cannot be unpacked ({kind}): {error}") from None
    if len(unpacked) > most_bytes:
        raise InputError(f"{file}: unpacked, more than {most_bytes} bytes")
    return unpacked


def _refuse_table(data: bytes, file: str) -> None:
    """Name the way out for a table that was given without `--csv`."""
    first = data.partition(b"\n")[0]
    if first[:1] not in b"{[ \t\r" and any(first.count(mark) for mark in (b",", b";", b"\t")):
        raise InputError(
            f"{file}: this looks like a table; say which column is what: "
            "`--csv --column benchmark=NAME,time=SECONDS`"
        )
