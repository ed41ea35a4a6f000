"""A result file of either kind, read, and as a run that can be stored; pure."""

from __future__ import annotations

import math
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from msgspec import Struct

from rater.plan.topology import Topology
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.run import BenchmarkUsed, Host, RunStatus
from rater.record.stored import ImportedFile, RunHead, StoredRun
from rater.speccpu.config import keys
from rater.speccpu.results.csv_report import is_table, read_table
from rater.speccpu.results.log import read_log
from rater.speccpu.results.places import BindingResolver
from rater.speccpu.results.recompute import (
    RecomputedResults,
    bracket_row,
    copy_row,
    recompute,
    recompute_rotated,
    rotated_brackets,
    rotated_copies,
    rotated_place,
)
from rater.speccpu.results.result import (
    LONGEST_S,
    Lines,
    SpecFile,
    SpecIteration,
)
from rater.speccpu.results.rsf import HEAD_BYTES, is_raw, read_rsf
from rater.system.errors import InputError
from rater.text.documents import open_input
from rater.text.packed import TORN, UnpackedStream, detect_packing
from rater.text.values import truncate_list

MOST_BYTES = 128_000_000  # less than a minute; what is packed or comes by pipe may have no end
_STANDARD_INPUT = ("-", "/dev/stdin")


def read_spec(
    path: Path,
    on_bytes: Callable[[int], object] = id,
    defines: Mapping[str, str] | None = None,
    label: str | None = None,
) -> SpecFile:
    """Read a raw file, a log or a CSV report; `problems` names what cannot be read, by line.

    gzip, bzip2 and xz are unpacked, and `-` and pipes read to their end; what is stored is
    the same as of the plain file. `told` is called with the bytes that are read so far;
    `defines` and `label` are for the configuration inside a raw file. Raises `InputError`
    when there is no file, too large a one, or no result of SPEC CPU in it.
    """
    data, problem = _content(path)
    head, lines = data[:HEAD_BYTES], Lines(data, on_bytes)
    name = "standard input" if str(path) in _STANDARD_INPUT else path.name
    if is_raw(head):
        file = read_rsf(lines, name, defines, label)
    else:
        file = (read_table if is_table(head) else read_log)(lines, name)
    if problem is not None:
        file.problems.add(file.lines, problem)
    if not file.iterations:
        raise InputError(_nothing(path, head, file, problem))
    return file


def _content(path: Path) -> tuple[bytes, str | None]:
    """Return what is in a file, unpacked, and why it is not all of it."""
    if str(path) in _STANDARD_INPUT:
        packed = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        with open_input(path, MOST_BYTES, "a result file of SPEC CPU") as stream:
            packed = stream.read(MOST_BYTES + 1)
            if len(packed) > MOST_BYTES and stream.seekable():
                raise InputError(
                    f"{path} has {stream.seek(0, os.SEEK_END) / 1e6:.0f} MB; expected a result "
                    f"file of at most {MOST_BYTES // 10**6} MB (parts of a log can be imported "
                    "one by one)"
                )
    kind, problem = detect_packing(packed), None
    data = packed if kind is None else b""
    if kind is not None:
        unpacked, pieces, left = UnpackedStream(BytesIO(packed), kind), [], MOST_BYTES + 1
        try:
            while left > 0 and (piece := unpacked.read(left)):
                pieces.append(piece)
                left -= len(piece)
        except (*TORN, OSError) as error:
            problem = f"cannot be read further ({kind}): {error}"
        data = b"".join(pieces)
    if len(data) > MOST_BYTES:
        problem = f"more than {MOST_BYTES // 10**6} MB: read up to here"
    return data[:MOST_BYTES], problem


def _nothing(path: Path, head: bytes, file: SpecFile, problem: str | None) -> str:
    wanted = "expected a raw file (.rsf), a log of runspec or runcpu, or a CSV report"
    if problem is not None:
        return f"{path}: {problem}; no results of SPEC CPU in what comes before"
    if head.startswith(b"(\xb5/\xfd"):
        return f"{path}: packed with zstd; unpack it first ({wanted})"
    if file.format == "rsf":
        return f"{path}: a raw file without a result of any benchmark; nothing to import"
    for pattern, kind in _OTHER_FILES.items():
        if re.search(pattern, head, re.MULTILINE):
            named = [found.decode("latin-1") for found in _NAMED.findall(head)]
            give = " or ".join(named[:4]) or "the raw file (.rsf) of the run"
            return f"{path}: {kind}; give {give}"
    if b"runspec" in head or b"runcpu" in head:
        return f"{path}: a log in which no benchmark was run to its end; nothing to import"
    return f"{path}: no results of SPEC CPU in it; {wanted}"


# Other files that lie beside a result: their kind, by a pattern of their content.
_OTHER_FILES = {
    rb"^\d{9,10}\.\d+: ": (
        "a log with a time before every line (.log.debug, log_timestamp), which "
        "`sed -E 's/^[0-9.]+: //' FILE | rater spec import -` can read"
    ),
    rb"^(?:%PDF|%!PS|\s*<(?:!DOCTYPE|html|\?xml))": "a report for people or a web page",
    rb"^\s*format: raw -> |^The log for this run is in ": (
        "what runcpu printed, without the times of copies"
    ),
    rb"^[ \t]*SPEC(?:\(R\))? ?CPU.{0,60}(?:Result|Summary)|^#{20}": "a report as text",
    rb"^[\w.,=+-]+:[ \t]*(?:#.*)?$(?s:.*)^\s*\w+\s*=": (
        "a configuration, which `rater spec lint-bind FILE` reads; it has no results"
    ),
}
_NAMED = re.compile(rb"(?:format: raw -> |The log for this run is in )(\S+)")


# -- A result file as a run that can be stored -----------------------------------------------------

_MOST_NOTES = 20  # problems, and disagreements, that are stored with the run
_MOST_ERRORS = 3  # of the result as a whole
_SETTINGS = ("metric", "suitever", "runspecver", "runcpuver", "tools", "label", "ext", "test_date")
_LATEST_S = 4e9  # of a start: the year 2096


class SpecImport(Struct, frozen=True, kw_only=True):
    """A result file, what it comes to, and the run to store."""

    file: SpecFile
    recomputed: RecomputedResults
    stored: StoredRun  # without its copies: `copies` makes them anew, one at a time
    places: BindingResolver
    remarks: tuple[str, ...]  # what is to be known of it, without problems and disagreements
    brackets: tuple[tuple[PhaseEnded, tuple[SpecIteration, ...]], ...]
    copy_runs: int

    def copies(self) -> Iterator[CopyEnded]:
        """Yield the copy runs by phase, copy and step."""
        for bracket, members in self.brackets:
            if self.stored.head.order == "rotated":
                yield from rotated_copies(bracket.phase, members, self.places)
            else:
                [one] = members
                for copy, seconds in sorted(one.times_s.items()):
                    yield copy_row(bracket.phase, one, copy, self.places, seconds)


def to_import(file: SpecFile, topology: Topology | None) -> SpecImport:
    """Return the run of a result file; `topology` is the machine it was made on, if known.

    Raises `InputError` when the file has no bracket.
    """
    scored = [
        iteration
        for iteration in file.iterations
        if keys.number_of(iteration.benchmark) not in keys.NOT_SCORED
    ]
    left_out = sorted(
        {iteration.benchmark for iteration in file.iterations} - {one.benchmark for one in scored}
    )
    if not scored:
        raise InputError(f"{file.name}: no benchmark that counts; nothing to import")
    file.iterations = scored
    rotated = all(iteration.is_rotated for iteration in scored)
    recomputed = recompute_rotated(file) if rotated else recompute(file)
    places = BindingResolver(file, topology)
    brackets = rotated_brackets(scored) if rotated else _brackets(scored)
    for iteration in scored:  # before anything is said about places
        for copy in iteration.times_s:
            places.place_of(iteration, rotated_place(iteration)[1] if rotated else copy)
    references = _references(file)
    threads = {
        iteration.benchmark: min(65535, iteration.threads)
        for iteration in scored
        if iteration.threads
    }
    remarks = tuple(_remarks(file, places, left_out))
    stored = StoredRun(
        head=_head(file, scored, rotated),
        host=_host(file),
        settings=tuple((f"spec.{key}", file.facts[key]) for key in _SETTINGS if key in file.facts),
        benchmarks=tuple(
            BenchmarkUsed(
                name=name,
                category=keys.category(name, file.suite, file.metric),
                reference_s=references.get(name),
                compiler=file.facts.get("sw_compiler") or file.facts.get("sw_compiler000"),
                threads=threads.get(name, 1),
            )
            for name in dict.fromkeys(iteration.benchmark for iteration in scored)
        ),
        pus=places.pus(),
        brackets=tuple(bracket for bracket, _ in brackets),
        notes=(*remarks, *_findings(file, recomputed)),
        imported=_imported_file(file, recomputed),
    )
    runs = sum(1 if rotated else len(iteration.times_s) for iteration in scored)
    return SpecImport(
        file=file,
        recomputed=recomputed,
        stored=stored,
        places=places,
        remarks=remarks,
        brackets=tuple(brackets),
        copy_runs=runs,
    )


def _imported_file(file: SpecFile, recomputed: RecomputedResults) -> ImportedFile:
    return ImportedFile(
        name=file.name,
        sha256=file.sha256,
        format="rsf" if file.format == "rsf" else "log",  # a table is as little as a log
        suite=file.suite,
        metric=file.metric,
        base_mean=file.means["base"].value if "base" in file.means else None,
        peak_mean=file.means["peak"].value if "peak" in file.means else None,
        problems=file.problems.count,
        disagreements=len(recomputed.disagreements),
    )


def identity(sha256: str) -> str:
    """Return the uuid of the run of a file with this content, whatever the file is called."""
    return str(uuid.UUID(sha256[:32], version=5))


def _head(file: SpecFile, scored: Sequence[SpecIteration], rotated: bool) -> RunHead:
    tunes = sorted({iteration.tune for iteration in scored})
    status, reason = _how_it_ended(scored)
    started = file.started_s if file.started_s and file.started_s < _LATEST_S else None
    copies = max((_copies_of(iteration) for iteration in scored), default=1)
    numbers = {
        rotated_place(iteration)[0] if rotated else iteration.iteration for iteration in scored
    }
    moment = None if started is None else datetime.fromtimestamp(int(started), UTC)
    return RunHead(
        run=0,
        uuid=identity(file.sha256),
        source="import",
        status=status,
        reason=reason,
        started_at=None if moment is None else moment.isoformat().replace("+00:00", "Z"),
        elapsed_s=None,
        hostname=file.hostname,
        mode="rotated" if rotated else "homogeneous",
        order="rotated" if rotated else "homogeneous",
        copies=copies,
        iterations=len(numbers),
        discard=0,
        stagger_ms=0.0,
        increment=1,
        suite=file.suite,
        size=file.size,
        tune=tunes[0] if len(tunes) == 1 else None,
        benchmarks=tuple(dict.fromkeys(iteration.benchmark for iteration in scored)),
    )


def _copies_of(iteration: SpecIteration) -> int:
    return max(
        1, iteration.copies or 0, len(iteration.times_s), max(iteration.times_s, default=0) + 1
    )


def _how_it_ended(scored: Sequence[SpecIteration]) -> tuple[RunStatus, str | None]:
    bad: dict[str, int] = {}
    for iteration in scored:
        if not iteration.good and (iteration.failures or iteration.valid is not None):
            code = iteration.valid if iteration.valid not in (None, "S") else "a copy failed"
            bad[code or ""] = bad.get(code or "", 0) + 1
    if bad:
        codes = ", ".join(f"{code} {count}" for code, count in sorted(bad.items()))
        return (
            RunStatus.FAILED,
            f"{sum(bad.values())} of {len(scored)} brackets are not valid: {codes}",
        )
    open_ones = sum(iteration.valid is None for iteration in scored)
    if open_ones:
        return (
            RunStatus.INTERRUPTED,
            f"of {open_ones} of {len(scored)} brackets the file does not say how they ended",
        )
    return RunStatus.COMPLETE, None


def _host(file: SpecFile) -> Host:
    def fact(*names: str) -> str | None:
        return next((file.facts[name] for name in names if file.facts.get(name)), None)

    product = " ".join(filter(None, (fact("hw_vendor"), fact("hw_model")))) or None
    model = fact("hw_cpu_name", "hw_cpu")
    return Host.imported(
        file.hostname or product or "", hostname=file.hostname, cpu_model=model, product=product
    )


def _references(file: SpecFile) -> dict[str, float]:
    references: dict[str, float] = {}
    for iteration in file.iterations:
        if (
            iteration.reference_s
            and references.setdefault(iteration.benchmark, iteration.reference_s)
            != iteration.reference_s
        ):
            file.problems.add(
                iteration.line,
                f"{iteration.name}: reference time {iteration.reference_s:g} s, "
                f"elsewhere {references[iteration.benchmark]:g} s",
            )
    return references


def _remarks(file: SpecFile, places: BindingResolver, left_out: Sequence[str]) -> Iterator[str]:
    yield from file.notes
    if left_out:
        yield f"left out, as they count in no result: {', '.join(left_out)}"
    errors = [f"the file says: {text}" for text in file.errors]
    yield from _first(errors, len(errors), _MOST_ERRORS, "errors that the file names")
    copied = sorted(
        {
            iteration.benchmark
            for iteration in file.iterations
            if iteration.basepeak and iteration.tune == "peak"
        }
    )
    if copied:
        yield (
            f"the peak of {truncate_list(copied)} is its base again (basepeak): measured once, "
            "not twice"
        )
    if any(iteration.reference_derived for iteration in file.iterations):
        kind = "log" if file.format == "log" else "CSV report"
        yield f"a {kind} has no reference times: they are worked out from its ratios"
    if file.suite in keys.RATE_FACTOR and any(iteration.rate for iteration in file.iterations):
        yield "ratios are copies x reference / bracket; CPU2000's own are 1.16 times as high"
    yield from _missing(file)
    yield from places.notes()


def _findings(file: SpecFile, recomputed: RecomputedResults) -> Iterator[str]:
    found = [
        f"the file disagrees with its own numbers: {disagreement}"
        for disagreement in recomputed.disagreements
    ]
    yield from _first(found, len(found), _MOST_NOTES, "values that disagree")
    problems = [f"not read: {problem}" for problem in file.problems]
    yield from _first(problems, file.problems.count, _MOST_NOTES, "problems in the file")


def _first(texts: Sequence[str], number: int, most: int, noun: str) -> Iterator[str]:
    yield from texts[:most]
    if number > most:
        yield f"and {number - most} more {noun}"


def _missing(file: SpecFile) -> Iterator[str]:
    short = [
        iteration
        for iteration in file.iterations
        if iteration.copies
        and len(iteration.times_s) < iteration.copies
        and iteration.good
        and not iteration.is_rotated
    ]
    if not short:
        return
    first = short[0]
    some = f"{first.name}: {len(first.times_s)} of {first.copies} copies"
    more = f", and {len(short) - 1} more brackets" if len(short) > 1 else ""
    yield f"times of copies are missing in the file: {some}{more}"


# -- homogeneous ----------------------------------------------------------------------------------


def _brackets(
    scored: Sequence[SpecIteration],
) -> list[tuple[PhaseEnded, tuple[SpecIteration, ...]]]:
    """Return a bracket for each iteration, in the order in which they ran.

    Starts tell the order; without them it is SPEC's rule: base before peak, an iteration
    of all benchmarks before the next.
    """
    # What never ran has no start, and comes last.
    starts = [
        iteration.start_s
        for iteration in scored
        if iteration.times_s or iteration.reported_s is not None
    ]
    known_starts = [start for start in starts if start is not None]
    first_s = min(known_starts, default=None) if len(known_starts) == len(starts) else None
    ordered = sorted(
        scored, key=lambda iteration: (iteration.tune, iteration.iteration, iteration.line)
    )
    if first_s is not None:
        ordered.sort(
            key=lambda iteration: math.inf if iteration.start_s is None else iteration.start_s
        )
    brackets: list[tuple[PhaseEnded, tuple[SpecIteration, ...]]] = []
    for phase, iteration in enumerate(ordered):
        start_ns = finish_ns = None
        if (
            first_s is not None
            and iteration.start_s is not None
            and iteration.reported_s is not None
        ):
            start_ns = round((iteration.start_s - first_s) * 1e9)
            finish_ns = start_ns + round(iteration.reported_s * 1e9)
            if iteration.start_s - first_s > LONGEST_S:
                start_ns = finish_ns = None
        bracket = bracket_row(
            phase,
            iteration.tune,
            iteration,
            start_ns=start_ns,
            finish_ns=finish_ns,
        )
        brackets.append((bracket, (iteration,)))
    return brackets
