"""Runs out as SPEC's raw files, marked as estimates, and result files into the database."""

from __future__ import annotations

import argparse
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TextIO

from rater import __version__
from rater.errors import InputError
from rater.process import print_error
from rater.record.run import BenchmarkUsed, CopyStatus, PlacedCopy
from rater.record.stored import StoredBracket, StoredCopy, StoredRun
from rater.speccpu import keys
from rater.speccpu.rsf import ESTIMATE_KEY, ESTIMATE_TEXT, ROTATED_MODE, pack
from rater.text.cpuset import format_list
from rater.workflow.arguments import print_json

# -- The configuration that an exported raw file carries: `bind` lines that say where copies were --
#
# For the programs that read such lines; rater itself takes places from its own keys. A copy
# of which it is not known where it was has an empty line, and what is not known of its
# memory is not said.

_POLICIES = {
    "bind": "membind",
    "preferred": "preferred-many",  # of a single node `preferred`, which every numactl has
    "interleave": "interleave",
    "weighted": "weighted-interleave",
}
_SECTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*$", re.ASCII)

type _Key = tuple[str, str | None]  # benchmark, tune


def configuration(stored: StoredRun, tunes: Mapping[str | None, str], heading: str) -> str | None:
    """Return the configuration, in ASCII; None where nothing is known of any copy's place.

    A benchmark whose copies were elsewhere than those of the first one has a section of its
    own (`429.mcf=peak:`), if its name can stand there.
    """
    plans = {plan.copy: plan for plan in stored.placements}
    threads = {used.name: used.threads for used in stored.benchmarks}
    by_key: dict[_Key, dict[int, StoredCopy]] = {}
    for one in stored.copies:
        by_key.setdefault((one.benchmark, one.tune), {}).setdefault(one.copy, one)
    words = {
        key: {
            copy: _numactl(one, plans.get(copy), threads.get(one.benchmark, 1))
            for copy, one in places.items()
        }
        for key, places in by_key.items()
    }
    if not any(any(them.values()) for them in words.values()):
        return None
    usual: dict[int, str] = {}
    for them in words.values():
        for copy, text in them.items():
            usual.setdefault(copy, text)
    lines = [f"# {heading}", "submit = $BIND $command", *_binds(usual)]
    for (benchmark, tune), them in words.items():
        if all(usual[copy] == text for copy, text in them.items()):
            continue
        if _SECTION.match(benchmark):
            lines += ["", f"{benchmark}={tunes[tune]}:", *_binds(usual | them)]
        else:
            lines.append("# the copies of another benchmark, which cannot be named here, differ")
    return "\n".join(lines) + "\n"


def _binds(words: Mapping[int, str]) -> list[str]:
    # The values are used in a circle: every copy up to the last needs its own.
    return [f"bind{copy} = {words.get(copy, '')}".rstrip() for copy in range(max(words) + 1)]


def _numactl(copy: StoredCopy, plan: PlacedCopy | None, threads: int) -> str:
    """Return the command that puts a copy where it was, '' where that is not known."""
    words = []
    # A resumed run may have rows that were elsewhere than the plan of its last attempt.
    planned = plan is not None and plan.cpu == copy.cpu and plan.node == copy.node
    if planned and plan is not None and plan.cpus:
        words.append(f"--physcpubind={format_list(plan.cpus)}")
    elif copy.cpu is not None and threads == 1:
        words.append(f"--physcpubind={copy.cpu}")
    elif copy.node is not None:
        words.append(f"--cpunodebind={copy.node}")
    if planned and plan is not None:
        words += _memory(plan)
    return " ".join(("numactl", *words)) if words else ""


def _memory(plan: PlacedCopy) -> list[str]:
    if plan.memory_policy == "local":
        return ["--localalloc"]
    option = _POLICIES.get(plan.memory_policy)
    if option is None or not plan.memory_nodes:
        return []
    if plan.memory_policy == "preferred" and len(plan.memory_nodes) == 1:
        option = "preferred"
    return [f"--{option}={format_list(plan.memory_nodes)}"]


# -- A stored run as `key: value` lines of SPEC's raw files, marked as an estimate -----------------
#
# For programs that read `reported_time`, `copytimeNNN` and `ratio`. What SPEC's tools make of
# a raw file (reports, hashes, submissions) is not the purpose: the file calls itself invalid.
# Steady mode has no brackets, and so no such lines.

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


# -- SPEC CPU's result files into the database (`rater import spec FILE...`), and runs out as such -

_SAYING_S = 5.0  # between two words on how far the reading is


def import_spec(args: argparse.Namespace) -> int:
    """Import result files, one run each; what one of them lacks does not keep the others out."""
    from rater.show.console import Printer, terminal
    from rater.speccpu.read import read_spec, to_import
    from rater.speccpu.show import import_document, print_import
    from rater.store.connection import default_path
    from rater.store.store import open_store

    topology = None
    described: str | None = getattr(args, "topology", None)
    if described is not None:
        from rater.run.host import discover as machine

        topology = machine.load_topology(described)
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
                print_error(error)
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
            print_error(f"{name}: {read_bytes // 10**6} MB read")

    return told


def write_rsf(stored: StoredRun, out: TextIO) -> None:
    """Write a run as the `key: value` lines of a raw file, marked as an estimate."""
    from rater.analysis.results.score import summarise

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
