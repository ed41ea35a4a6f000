"""`rater pages`: trace, rank, draw, store, and hold the prediction against runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rater.analysis.pages.costs import Loads, page_costs
from rater.analysis.pages.ranking import rank
from rater.errors import InputError, RunError
from rater.plan.pages.mappings import mapping_argument, page_mappings, parse_page_sizes
from rater.plan.pages.tlb import Tlb, parse_tlb, tlb_of_cpuid
from rater.record.pages import PAGE_SIZES, PageTrace
from rater.run.copies.launch import CopySpec
from rater.run.page_sizes.library import build_library
from rater.run.pages.costs import machine_costs
from rater.run.pages.read import read_trace
from rater.run.pages.tools import TraceTools, build_tools, find_valgrind
from rater.run.pages.trace import TraceAnalysis, Traced, ended_text, run_traced
from rater.run.programs.child_process import Limits
from rater.run.programs.compile import cache_root
from rater.run.workplace.trial import guarded
from rater.show.console.printer import Printer
from rater.show.pages.picture import reuse_svg
from rater.show.pages.table import print_check, print_heads, print_ranking, print_trace
from rater.show.pages.to_json import pages_document
from rater.store.connection import default_path
from rater.store.pages import (
    StoredTrace,
    find_trace,
    keep_check,
    keep_trace,
    load_trace,
    trace_heads,
)
from rater.store.store import open_store
from rater.streams import say
from rater.workflow.common import existing_store, refuse_no_directory, show
from rater.workflow.page_sizes.layout import program_problems
from rater.workflow.pages.check import checked, run_check
from rater.workflow.pages.subject import Stage, Subject, limits_of, staged, subject_of
from rater.workflow.results.output_file import drawing_file, write_drawing

_HUGE = PAGE_SIZES[2]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a trace is made with."""

    tools: TraceTools
    tlb: Tlb
    sizes: tuple[int, ...]  # of pages, that categories are mapped to
    rate: float


def pages(args: argparse.Namespace) -> int:
    """Trace one program and rank the mappings of its data to page sizes; or show what there is."""
    file = drawing_file(args.file)
    if args.listing:
        return _list(args)
    if args.trace is not None:
        if args.which is not None or args.command is not None:
            raise InputError("--show names a trace that is there: leave the program out")
        with existing_store(args) as store:
            stored = load_trace(store, find_trace(store, args.trace))
        if args.measure:
            stored = replace(stored, costs=machine_costs(cache_root(), anew=True))
    else:
        stored = _made(args)
    _present(args, stored, file)
    return 0


def _made(args: argparse.Namespace) -> StoredTrace:
    """Trace, and store what was found."""
    refuse_no_directory()
    sizes = parse_page_sizes(args.sizes)
    cache, limits = cache_root(), limits_of(args)
    named = parse_tlb(args.tlb) if args.tlb else None
    tools = build_tools(find_valgrind(), cache)
    with open_store(default_path(args.db)) as store:  # what cannot be stored is not traced
        with guarded():
            subject = subject_of(args, cache, limits)
            measured = machine_costs(cache, anew=args.measure)
            with staged(subject, cache) as stage:
                native_s = stage.native_s(limits)
                asked = _Asked(tools, named or own_tlb(measured), sizes, args.sample)
                trace = _traced(subject, stage, asked, native_s, limits)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        number = keep_trace(store, trace, measured, host=os.uname().nodename, traced_at=now)
        return load_trace(store, number)


def _present(args: argparse.Namespace, stored: StoredTrace, file: Path | None) -> None:
    trace, loads = stored.trace, Loads(args.loads)
    tlb = parse_tlb(trace.tlb)
    costs = page_costs(stored.costs, tlb)
    ranked = rank(trace, costs)
    saved_ns = [it.saved_ns(loads) for it in ranked]
    times = stored.checks
    if args.check:
        times = run_check(args, stored, ranked, saved_ns)
        with existing_store(args) as store:
            keep_check(store, stored.number, times)
    check = checked(ranked, saved_ns, times)
    if file is not None:
        write_drawing(reuse_svg(trace), file)

    def text(printer: Printer) -> None:
        print_trace(trace, tlb, printer, stored.number)
        printer.line()
        print_ranking(trace, ranked, costs, printer, loads=loads, budget=args.budget)
        if check is not None:
            printer.line()
            print_check(check, printer)
        if file is not None:
            printer.line(f"{args.file}: {len(trace.reuse)} panels")

    def document() -> dict[str, Any]:
        return pages_document(
            trace,
            ranked,
            costs,
            loads=loads,
            budget=args.budget,
            number=stored.number,
            check=check,
        )

    show(args, document, text)


def _list(args: argparse.Namespace) -> int:
    with existing_store(args) as store:
        heads = trace_heads(store)
    show(args, lambda: [asdict(it) for it in heads], lambda printer: print_heads(heads, printer))
    return 0


def own_tlb(measured: Mapping[str, Any]) -> Tlb:
    """Return the TLB of the machine that was measured; raises `InputError` where it tells none."""
    found = tlb_of_cpuid(measured["cpuid"])
    if found is None:
        raise InputError(
            "this processor does not tell its TLB: give it with --tlb, as 64x4,1536x12 "
            "(entries x ways of each level)"
        )
    return found


def _traced(
    subject: Subject, stage: Stage, asked: _Asked, native_s: float, limits: Limits
) -> PageTrace:
    tlb, tools, sizes = asked.tlb, asked.tools, asked.sizes
    if _HUGE not in sizes:
        sizes = (*sizes, _HUGE)  # what predictions for layouts are made of
    analysis = TraceAnalysis(
        tuple(it.argument for it in tlb.arrays),
        tuple(mapping_argument(it) for it in page_mappings(sizes)),
        asked.rate,
        max(1, len(os.sched_getaffinity(0))),
    )
    say(f"tracing {subject.name}: {native_s:.1f} s by itself, 5 to 80 times as long traced")

    def running(wrap: tuple[str, ...], doing: Callable[[CopySpec], Traced]) -> Traced:
        return stage.run(wrap, doing)

    library = _library(subject, cache_root())
    traced = run_traced(tools, running, analysis, limits, library[0])
    if traced.status != 0:
        raise RunError(
            f"{subject.name} {ended_text(traced.status)} under the tracer (by itself it did not)"
        )
    return read_trace(
        traced.document,
        huge_bytes=_HUGE,
        told=library[0] is not None,
        elapsed_s=traced.elapsed_s,
        native_s=native_s,
        tlb=str(tlb),
        engine=tools.engine,
        name=subject.name,
        command=subject.command,
        suite=subject.suite,
        size=subject.size,
        notes=_notes(traced, library[1]),
    )


def _library(subject: Subject, cache: Path) -> tuple[Path | None, list[str]]:
    """Return the library of page sizes, None where it does not reach the program, and why."""
    library = build_library(cache, split=True).executable
    problems = program_problems(subject.files, library)
    return (None if problems else library), problems


def _notes(traced: Traced, problems: list[str]) -> tuple[str, ...]:
    document, notes = traced.document, []
    if document["forks"]:
        notes.append(
            f"it started {document['forks']} processes, which are not traced: trace the one that "
            "does the work by itself"
        )
    notes += [
        f"{it}: `rater run --pages` does not reach it, and its heap is told apart from its "
        "mappings only below the break"
        for it in problems
    ]
    return tuple(notes)
