"""A stored run as `key: value` lines of SPEC's raw files, marked as an estimate; pure.

For programs that read `reported_time`, `copytimeNNN` and `ratio`. What SPEC's tools make of
a raw file (reports, hashes, submissions) is not the purpose: the file calls itself invalid.
Steady mode has no brackets, and so no such lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from rater import __version__
from rater.errors import InputError
from rater.record.run import BenchmarkUsed
from rater.record.status import CopyStatus
from rater.record.stored import StoredBracket, StoredCopy, StoredRun
from rater.speccpu import keys
from rater.speccpu.export.rsf_bind import configuration
from rater.speccpu.results.packed import pack
from rater.speccpu.results.rsf import ROTATED_MODE
from rater.speccpu.results.rsf_head import ESTIMATE_KEY, ESTIMATE_TEXT

_DEFAULT_SUITE = "cpu2017"  # whose keys most readers know
_TUNES = ("base", "peak")


@dataclass(frozen=True, slots=True)
class Scored:
    """What a bracket came to."""

    bracket_s: float | None
    ratio: float | None
    selected: bool
    copies: int  # that should have run


type Scores = Mapping[tuple[str | None, str, int], Scored]  # by tune, benchmark, iteration


def rsf_lines(
    stored: StoredRun, scores: Scores, means: Mapping[str | None, float | None]
) -> Iterator[str]:
    """Yield the lines of a raw file; `means` are the suite ratios by tune.

    What SPEC's keys cannot say, and what does not count, is left out: the observations document
    has it. Raises `InputError` for a run in steady mode.
    """
    stored = stored.without_torn()
    head = stored.head
    if head.mode == "steady":
        raise InputError(
            f"run {head.run} is steady: a raw file tells the time of brackets, and it has none; "
            "`rater export RUN --format observations` has its times"
        )
    rotated = head.order == "rotated"
    suite = head.suite if head.suite in keys.KNOWN_SUITES else _DEFAULT_SUITE
    if rotated:
        suite = "cpu2026"  # the suite that has such a mode
    factor = keys.RATE_FACTOR.get(suite, 1.0)
    scores = {key: _times(scored, factor) for key, scored in scores.items()}
    tunes = _tunes(stored)
    names = _spelt(dict.fromkeys(copy.benchmark for copy in stored.copies), stored)
    yield f"# {ESTIMATE_TEXT}"
    yield f"# written by rater {__version__} from its run {head.run}, {head.uuid}"
    for key, value in _facts(stored, rotated):
        yield f"spec.{suite}.{key}: {value}"
    for tune, written in tunes.items():
        mean = means.get(tune)
        yield f"spec.{suite}.{written}mean: {'--' if mean is None else f'{mean * factor:.6f}'}"
    config = configuration(stored, tunes, ESTIMATE_TEXT)
    for number, piece in enumerate(pack(config) if config else ()):
        yield f"spec.{suite}.rawconfig{number:03}: {piece}"
    results = _rotated(stored) if rotated else _results(stored, scores)
    for benchmark, tune, number, values in results:
        at = f"spec.{suite}.results.{names[benchmark]}.{tunes[tune]}.{number:03}"
        for key, value in sorted(values.items()):
            yield f"{at}.{key}: {_line(value)}"


def _times(scored: Scored, factor: float) -> Scored:
    return scored if scored.ratio is None else replace(scored, ratio=scored.ratio * factor)


def _facts(stored: StoredRun, rotated: bool) -> Iterator[tuple[str, str]]:
    head, host = stored.head, stored.host
    yield ESTIMATE_KEY, "1"
    yield "errors000", ESTIMATE_TEXT
    yield "notes_000", ESTIMATE_TEXT
    yield "invalid", "1"
    yield "valid", "X"
    yield "metric", "estimate by rater (no SPEC metric)"
    yield "units", "ratio"
    yield "rate", "1"
    yield "runmode", ROTATED_MODE if rotated else "rate"
    yield "base_copies", str(head.copies)
    for key, value in (
        ("name", head.suite),
        ("size", head.size),
        ("hw_cpu_name", host.cpu_model),
        ("hw_model", host.product),
        ("sw_os000", dict(stored.settings).get("kernel")),
    ):
        if value:
            yield key, _line(value)
    if host.hostname:
        yield "notes_plat_sysinfo_000", f" running on {_line(host.hostname)}"
    if head.started_at:
        yield "time", f"{datetime.fromisoformat(head.started_at).timestamp():.0f}"


def _tunes(stored: StoredRun) -> dict[str | None, str]:
    """Return how tunes are written: base and peak are all that readers know."""
    tunes = dict.fromkeys(
        [*(it.tune for it in stored.brackets), *(it.tune for it in stored.copies)]
    )
    if len(tunes) == 1:
        (tune,) = tunes
        return {tune: tune if tune in _TUNES else "base"}
    found: dict[str | None, str] = {tune: tune for tune in tunes if tune in _TUNES}
    for tune in tunes:
        if tune not in found:
            found[tune] = _unlike(keys.undotted(tune or "base"), found.values())
    return found


def _spelt(benchmarks: Iterable[str], stored: StoredRun) -> dict[str, str]:
    """Return how benchmarks are written inside keys, no two of them alike."""
    found: dict[str, str] = {}
    brackets = (it.benchmark for it in stored.brackets if it.benchmark is not None)
    for benchmark in (*benchmarks, *brackets):
        if benchmark not in found:
            found[benchmark] = _unlike(keys.undotted(benchmark), found.values())
    return found


def _unlike(name: str, others: Iterable[str]) -> str:
    """Return a name that none of the others has, whoever compares them."""
    taken = {other.lower() for other in others}
    numbers = itertools.count(2)
    found = name
    while found.lower() in taken:
        found = f"{name}_{next(numbers)}"
    return found


# -- results --------------------------------------------------------------------------------------

type _Result = tuple[str, str | None, int, dict[str, str]]


def _results(stored: StoredRun, scores: Scores) -> Iterator[_Result]:
    by_phase = {phase: tuple(them) for phase, them in groupby(stored.copies, lambda c: c.phase)}
    used = {it.name: it for it in stored.benchmarks}
    started_s = None
    if stored.head.started_at:
        started_s = datetime.fromisoformat(stored.head.started_at).timestamp()
    numbers: dict[tuple[str | None, str], int] = {}
    for bracket in stored.brackets:
        if bracket.benchmark is None or bracket.iteration is None or not bracket.counted:
            continue  # readers would count a warm-up
        of_it = (bracket.tune, bracket.benchmark)
        number = numbers[of_it] = numbers.get(of_it, -1) + 1
        copies = by_phase.get(bracket.phase, ())
        scored = scores.get((*of_it, bracket.iteration))
        planned = scored.copies if scored else stored.head.copies
        values = _common(used[bracket.benchmark], number, planned)
        values["selected"] = "1" if scored and scored.selected else "0"
        values["ratio"] = _number(scored.ratio if scored else None)
        values["valid"] = _validity(bracket, copies, planned)
        bracket_s = scored.bracket_s if scored else None
        if bracket_s is not None:
            values |= _reported(bracket_s)
        if started_s is not None and bracket.start_ns is not None:
            values["rate_start"] = f"{started_s + bracket.start_ns / 1e9:.6f}"
        for copy in copies:
            values[f"copytime{copy.copy:03}"] = f"{copy.elapsed_s:.9f}"
        values |= _errors(_wrong_of(bracket, copies))
        yield bracket.benchmark, bracket.tune, number, values


def _wrong_of(bracket: StoredBracket, copies: Sequence[StoredCopy]) -> Iterable[str]:
    """Return what is wrong with a bracket, each once: of its copies, then of its file."""
    errors = bracket.reported.errors if bracket.reported is not None else None
    return dict.fromkeys([*_failures(copies), *(errors or "").splitlines()])


def _rotated(stored: StoredRun) -> Iterator[_Result]:
    """Yield a record for every copy run: its number is iteration x copies + copy."""
    used = {it.name: it for it in stored.benchmarks}
    planned = stored.head.copies
    copies = [copy for copy in stored.copies if copy.counted]
    iterations = {n: i for i, n in enumerate(sorted({c.iteration for c in copies}))}
    seen: set[tuple[str, str | None, int]] = set()
    for copy in copies:
        number = iterations[copy.iteration] * planned + copy.copy
        while (copy.benchmark, copy.tune, number) in seen:
            # An increment that meets a benchmark twice in a round: still the copy's, but later.
            number += len(iterations) * planned
        seen.add((copy.benchmark, copy.tune, number))
        values = _common(used[copy.benchmark], number, planned)
        good = copy.status is CopyStatus.OK
        values |= {
            "runmode": ROTATED_MODE,
            "ratio": "--",
            "selected": "0",
            "valid": "S" if good else "RE",
            "copytime000": f"{copy.elapsed_s:.9f}",
        }
        values |= _reported(copy.elapsed_s) | _errors(_failures((copy,)))
        yield copy.benchmark, copy.tune, number, values


def _common(used: BenchmarkUsed, number: int, copies: int) -> dict[str, str]:
    return {
        "benchmark": used.name,
        "iteration": str(number),
        "copies": str(copies),
        "clcopies": str(copies),  # CPU2006's word
        "dp": "9",
        "rate": "1",
        "reference": "--" if not used.reference_s else f"{used.reference_s:.9g}",
        "submit": "1",
        "threads": str(used.threads),
    }


def _reported(seconds: float) -> dict[str, str]:
    whole, nanoseconds = divmod(round(seconds * 1e9), 10**9)
    return {
        "reported_time": f"{whole}.{nanoseconds:09}",
        "reported_sec": str(whole),
        "reported_nsec": str(nanoseconds),
    }


def _validity(bracket: StoredBracket, copies: Sequence[StoredCopy], planned: int) -> str:
    if bracket.reported is not None and bracket.reported.valid is not None:
        return bracket.reported.valid
    statuses = {copy.status for copy in copies}
    if statuses & {CopyStatus.FAILED, CopyStatus.TIMEOUT}:
        return "RE"
    if CopyStatus.WRONG_OUTPUT in statuses:
        return "VE"
    return "S" if statuses == {CopyStatus.OK} and len(copies) >= planned else "NR"


def _failures(copies: Sequence[StoredCopy]) -> list[str]:
    """Return the failures of copies, in the words that SPEC's tools have for them if any."""
    texts = []
    for copy in copies:
        if copy.status is CopyStatus.OK:
            continue
        if copy.status is CopyStatus.WRONG_OUTPUT:
            texts.append(
                f"copy {copy.copy}: output miscompare: {_line(copy.validity_detail or '')}"
            )
        elif copy.status is CopyStatus.FAILED and (copy.exit_code or copy.signal):
            texts.append(
                f"copy {copy.copy} non-zero return code "
                f"(exit code={copy.exit_code or 0}, signal={copy.signal or 0})"
            )
        else:
            texts.append(f"copy {copy.copy}: {copy.status.value}")
    return texts


def _errors(texts: Iterable[str]) -> dict[str, str]:
    return {f"errors{number:03}": text for number, text in enumerate(texts)}


def _number(value: float | None) -> str:
    return "--" if value is None else f"{value:.6f}"


def _line(text: str) -> str:
    """Return text as it can stand in a line."""
    return " ".join(text.split())
