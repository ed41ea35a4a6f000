"""A stored run as `key: value` lines of SPEC's raw files, marked as an estimate; pure.

For programs that read `reported_time`, `copytimeNNN` and `ratio`. What SPEC's tools make of
a raw file (reports, hashes, submissions) is not the purpose: the file calls itself invalid.
Steady mode has no brackets, and so no such lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from rater import __version__
from rater.errors import InputError
from rater.record import CopyStatus, StoredBracket, StoredCopy, StoredRun
from rater.spec import keys
from rater.spec.packed import pack
from rater.spec.rsf import ESTIMATE_KEY, ESTIMATE_TEXT, ROTATED_MODE

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

    Raises `InputError` for a run in steady mode.
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
    tunes = _tunes(stored)
    yield f"# {ESTIMATE_TEXT}"
    yield f"# written by rater {__version__} from its run {head.run}, {head.uuid}"
    for key, value in _facts(stored, rotated):
        yield f"spec.{suite}.{key}: {value}"
    for tune, written in tunes.items():
        mean = means.get(tune)
        yield f"spec.{suite}.{written}mean: {'--' if mean is None else f'{mean:.6f}'}"
    for number, piece in enumerate(pack(_bindings(stored)) if _is_bound(stored) else ()):
        yield f"spec.{suite}.rawconfig{number:03}: {piece}"
    results = _rotated(stored) if rotated else _results(stored, scores)
    for benchmark, tune, number, values in results:
        at = f"spec.{suite}.results.{keys.undotted(benchmark)}.{tunes[tune]}.{number:03}"
        for key, value in sorted(values.items()):
            yield f"{at}.{key}: {_line(value)}"


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
    tunes = list(dict.fromkeys(bracket.tune for bracket in stored.brackets))
    if len(tunes) == 1 and tunes[0] not in _TUNES:
        return {tunes[0]: "base"}
    return {tune: tune if tune in _TUNES else keys.undotted(tune or "base") for tune in tunes}


# -- results --------------------------------------------------------------------------------------

type _Result = tuple[str, str | None, int, dict[str, str]]


def _results(stored: StoredRun, scores: Scores) -> Iterator[_Result]:
    by_phase = {phase: tuple(them) for phase, them in groupby(stored.copies, lambda c: c.phase)}
    references = {used.name: used.reference_s for used in stored.benchmarks}
    numbers: dict[tuple[str | None, str], int] = {}
    for bracket in stored.brackets:
        if bracket.benchmark is None or bracket.iteration is None:
            continue
        of_it = (bracket.tune, bracket.benchmark)
        number = numbers[of_it] = numbers.get(of_it, -1) + 1
        copies = by_phase.get(bracket.phase, ())
        scored = scores.get((*of_it, bracket.iteration))
        planned = scored.copies if scored else stored.head.copies
        values = _common(bracket.benchmark, number, planned, references[bracket.benchmark])
        values["selected"] = "1" if scored and scored.selected else "0"
        values["ratio"] = _number(scored.ratio if scored else None)
        values["valid"] = _validity(bracket, copies, planned)
        bracket_s = scored.bracket_s if scored else None
        if bracket_s is not None:
            values |= _reported(bracket_s)
        if not bracket.counted:
            values["errors000"] = "this iteration is not counted"
        for copy in copies:
            values[f"copytime{copy.copy:03}"] = f"{copy.elapsed_s:.9f}"
        values |= _errors(copies, first=0 if bracket.counted else 1)
        yield bracket.benchmark, bracket.tune, number, values


def _rotated(stored: StoredRun) -> Iterator[_Result]:
    """Yield a record for every copy run: its number is iteration x copies + copy."""
    references = {used.name: used.reference_s for used in stored.benchmarks}
    planned = stored.head.copies
    iterations = {n: i for i, n in enumerate(sorted({c.iteration for c in stored.copies}))}
    seen: set[tuple[str, str | None, int]] = set()
    for copy in stored.copies:
        number = iterations[copy.iteration] * planned + copy.copy
        if (copy.benchmark, copy.tune, number) in seen:
            continue  # an increment that meets a benchmark twice in a round
        seen.add((copy.benchmark, copy.tune, number))
        values = _common(copy.benchmark, number, planned, references[copy.benchmark])
        good = copy.status is CopyStatus.OK
        values |= {
            "runmode": ROTATED_MODE,
            "ratio": "--",
            "selected": "0",
            "valid": "S" if good else "RE",
            "copytime000": f"{copy.elapsed_s:.9f}",
        }
        values |= _reported(copy.elapsed_s) | _errors((copy,), first=0)
        yield copy.benchmark, copy.tune, number, values


def _common(benchmark: str, number: int, copies: int, reference_s: float | None) -> dict[str, str]:
    return {
        "benchmark": benchmark,
        "iteration": str(number),
        "copies": str(copies),
        "clcopies": str(copies),  # CPU2006's word
        "dp": "9",
        "rate": "1",
        "reference": "--" if not reference_s else f"{reference_s:.9g}",
        "submit": "1",
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


def _errors(copies: Sequence[StoredCopy], first: int) -> dict[str, str]:
    """Return the failures of copies in the words that SPEC's tools have for them."""
    told = []
    for copy in copies:
        if copy.status is CopyStatus.OK:
            continue
        if copy.status is CopyStatus.WRONG_OUTPUT:
            told.append(f"copy {copy.copy}: output miscompare: {copy.validity_detail or ''}")
        elif copy.exit_code is not None or copy.signal is not None:
            told.append(
                f"copy {copy.copy} non-zero return code "
                f"(exit code={copy.exit_code or 0}, signal={copy.signal or 0})"
            )
        else:
            told.append(f"copy {copy.copy}: {copy.status.value}")
    return {f"errors{number:03}": text for number, text in enumerate(told, first)}


# -- placement ------------------------------------------------------------------------------------


def _is_bound(stored: StoredRun) -> bool:
    return any(copy.cpu is not None for copy in stored.copies)


def _bindings(stored: StoredRun) -> str:
    """Return a configuration that says where every copy was, as the reader takes it back."""
    places: dict[int, StoredCopy] = {}
    for one in stored.copies:
        places.setdefault(one.copy, one)
    lines = [f"# {ESTIMATE_TEXT}", "submit = $BIND $command"]
    for number in range(max(places, default=-1) + 1):
        copy = places.get(number)
        words = ["numactl"]
        if copy is not None and copy.cpu is not None:
            words.append(f"--physcpubind={copy.cpu}")
        nodes = () if copy is None else copy.mem_nodes or _home(copy)
        if nodes:
            words.append(f"--membind={','.join(map(str, nodes))}")
        lines.append(f"bind{number} = {' '.join(words) if len(words) > 1 else ''}")
    return "\n".join(lines) + "\n"


def _home(copy: StoredCopy) -> tuple[int, ...]:
    return () if copy.node is None else (copy.node,)


def _number(value: float | None) -> str:
    return "--" if value is None else f"{value:.6f}"


def _line(text: str) -> str:
    """Return text as it can stand in a line."""
    return " ".join(text.split())
