"""`rater pages`: trace, rank, draw, store, and hold the prediction against runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rater.analysis.pages.costs import Loads, page_costs
from rater.analysis.pages.ranking import rank
from rater.errors import InputError, RunError
from rater.plan.pages.mappings import mapping_argument, page_mappings, parse_page_sizes
from rater.plan.pages.tlb import Tlb, parse_tlb, tlb_of_cpuid
from rater.record.pages import PAGE_SIZES, PageTrace
from rater.run.copies.launch import CopySpec
from rater.run.pages.costs import machine_costs
from rater.run.pages.read import read_trace
from rater.run.pages.tools import TraceTools, build_tools, find_valgrind
from rater.run.pages.trace import TraceAnalysis, Traced, ended_text, run_traced
from rater.run.programs.child_process import Limits
from rater.run.programs.compile import cache_root
from rater.run.workplace.trial import guarded
from rater.show.console.printer import Printer
from rater.show.pages.picture import reuse_svg
from rater.show.pages.table import print_ranking, print_trace
from rater.show.pages.to_json import pages_document
from rater.workflow.common import refuse_no_directory, say, show
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
    """Trace one program and rank the mappings of its data to page sizes."""
    refuse_no_directory()
    file = drawing_file(args.file)
    sizes = parse_page_sizes(args.sizes)
    cache, limits = cache_root(), limits_of(args)
    named = parse_tlb(args.tlb) if args.tlb else None
    tools = build_tools(find_valgrind(), cache)
    with guarded():
        subject = subject_of(args, cache, limits)
        measured = machine_costs(cache, anew=args.measure)
        tlb = named or _own_tlb(measured)
        with staged(subject, cache) as stage:
            native_s = stage.native_s(limits)
            asked = _Asked(tools, tlb, sizes, args.sample)
            trace = _traced(subject, stage, asked, native_s, limits)
    costs = page_costs(measured, tlb)
    ranked = rank(trace, costs)
    loads = Loads(args.loads)
    if file is not None:
        write_drawing(reuse_svg(trace), file)

    def text(printer: Printer) -> None:
        print_trace(trace, tlb, printer)
        printer.line()
        print_ranking(trace, ranked, costs, printer, loads=loads, budget=args.budget)
        if file is not None:
            printer.line(f"{args.file}: {len(trace.reuse)} panels")

    def document() -> dict[str, Any]:
        return pages_document(
            trace, ranked, costs, loads=loads, budget=args.budget, number=None, check=None
        )

    show(args, document, text)
    return 0


def _own_tlb(measured: dict[str, Any]) -> Tlb:
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

    traced = run_traced(tools, running, analysis, limits)
    if traced.status != 0:
        raise RunError(
            f"{subject.name} {ended_text(traced.status)} under the tracer (by itself it did not)"
        )
    return read_trace(
        traced.document,
        huge_bytes=_HUGE,
        elapsed_s=traced.elapsed_s,
        native_s=native_s,
        tlb=str(tlb),
        engine=tools.engine,
        name=subject.name,
        command=subject.command,
        suite=subject.suite,
        size=subject.size,
        notes=_notes(traced),
    )


def _notes(traced: Traced) -> tuple[str, ...]:
    document, notes = traced.document, []
    if document["forks"]:
        notes.append(
            f"it started {document['forks']} processes, which are not traced: trace the one that "
            "does the work by itself"
        )
    if not document["heap"][0]:
        notes.append(
            "a static program, or one without the C library's malloc: its heap is told apart from "
            "its mappings only as far as it is below the break"
        )
    return tuple(notes)
