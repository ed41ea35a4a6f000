"""Suites and benchmarks as text and as values for JSON."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.plan.suite import Benchmark, Size, Suite
from rater.show.format import aligned, crop, decimals, number, plain

_LEAST = 20  # characters that a sentence gets, however narrow the terminal


@dataclass(frozen=True, slots=True)
class Page:
    """What text is written on."""

    width: int = 80  # characters
    ascii_only: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list of suites: one that reads, or why it does not."""

    name: str
    path: Path
    suite: Suite | None
    trouble: str | None


def suites_text(suites: Sequence[Listed], page: Page) -> str:
    """Return the table of all suites, descriptions cut where the page ends."""
    rows = [("suite", "benchmarks", "sizes", "description")]
    for listed in suites:
        if listed.suite is None:
            rows.append((listed.name, "-", "-", f"broken: see rater suites check {listed.name}"))
            continue
        sizes = ",".join(size_names(listed.suite))
        benchmarks = str(len(listed.suite.benchmarks))
        rows.append((listed.name, benchmarks, sizes, plain(listed.suite.description)))
    table = aligned(rows, (False, True, False, False))
    lines = [crop(line, page.width, ascii_only=page.ascii_only) for line in table]
    more = ["more: rater suites show SUITE", "run one: rater run SUITE"]
    lines += ["", *_prose("    ".join(more), page)]
    return _joined(lines, page)


def suites_json(suites: Sequence[Listed]) -> list[dict[str, object]]:
    """Return the list of suites for JSON."""
    return [
        {
            "name": listed.name,
            "path": str(listed.path),
            "description": listed.suite.description if listed.suite else None,
            "benchmarks": [b.name for b in listed.suite.benchmarks] if listed.suite else [],
            "sizes": size_names(listed.suite) if listed.suite else [],
            "error": listed.trouble,
        }
        for listed in suites
    ]


def suite_text(suite: Suite, page: Page) -> str:
    """Return one suite: what its benchmarks are, then reference time and memory by size."""
    head = f"{suite.name}: {plain(suite.description)}" if suite.description else suite.name
    lines = [*_prose(head, page), f"file: {plain(str(suite.path))}"]
    if suite.reference_machine:
        lines += _prose(f"reference times: {plain(suite.reference_machine)}", page)
    return _joined([*lines, "", *_about(suite, page), "", *_sizes_table(suite, page)], page)


def suite_json(suite: Suite) -> dict[str, object]:
    """Return one suite for JSON."""
    return {
        "name": suite.name,
        "description": suite.description,
        "path": str(suite.path),
        "reference_machine": suite.reference_machine,
        "benchmarks": [
            {
                "name": b.name,
                "category": b.category,
                "description": b.description,
                "sources": [str(source) for source in b.sources],
                "libraries": list(b.libraries),
                "flags": {tune: list(flags) for tune, flags in b.flags.items()},
                "command": list(b.command),
                "sizes": [_size_json(size) for size in b.sizes.values()],
            }
            for b in suite.benchmarks
        ],
    }


def trial_text(
    name: str,
    width: int,
    *,
    error: str | None,
    executable: str | None,
    size: str | None,
    elapsed_s: float | None,
    max_rss_bytes: int | None,
    checked: bool,
    run_dir: str | None,
    remarks: Sequence[str],
    ascii_only: bool = False,
) -> str:
    """Return what a trial of one benchmark showed: a line, and one more for each remark."""
    if error is not None:
        first, *more = error.splitlines()
        facts = f"FAILED  {first}"
        if run_dir is not None:
            more.append(f"its files are in {run_dir}")
    elif elapsed_s is None:
        facts, more = f"built   {executable}", []
    else:
        rss = "" if max_rss_bytes is None else f"{max_rss_bytes / 1e6:8.0f} MB"
        answer = "answer right" if checked else "answer not checked"
        facts, more = f"ok      {size} {elapsed_s:8.2f} s{rss}  {answer}", []
    lines = [f"{name.ljust(width)}  {facts}", *(f"    {line}" for line in more)]
    lines += [f"    note: {remark}" for remark in remarks]
    return "\n".join(plain(line, ascii_only=ascii_only) for line in lines)


def size_names(suite: Suite) -> list[str]:
    """Return the names of all sizes, in the order in which they first appear."""
    return list({name: None for benchmark in suite.benchmarks for name in benchmark.sizes})


def _size_json(size: Size) -> dict[str, object]:
    return {
        "name": size.name,
        "args": list(size.commands[0].args),
        "reference_s": size.reference_s,
        "memory_bytes": size.memory_bytes,
        "disk_bytes": size.disk_bytes,
        "inputs": [wanted.name for wanted in size.inputs],
        "checked": [want.file for want in size.expected],
    }


def _about(suite: Suite, page: Page) -> list[str]:
    """Return the table of benchmarks; descriptions go on below themselves, never cut."""
    rows = [("benchmark", "category")]
    rows += [(b.name, b.category or "-") for b in suite.benchmarks]
    texts = ["description"]
    texts += [plain(b.description or _made_of(b)) for b in suite.benchmarks]
    margin = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True))
    lines: list[str] = []
    for begin, text in zip(aligned(rows, (False, False)), texts, strict=True):
        width = max(_LEAST, page.width - margin)
        first, *more = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        lines += [begin.ljust(margin) + first, *(" " * margin + line for line in more)]
    return lines


def _sizes_table(suite: Suite, page: Page) -> list[str]:
    """Return reference seconds and megabytes per copy of every size, side by side.

    Sizes for which a line has no room follow in a table below.
    """
    names = ["benchmark", *(benchmark.name for benchmark in suite.benchmarks)]
    lines = _prose("reference seconds and MB of memory per copy, by size", page)
    table = [names]
    for name in size_names(suite):
        wider = [*table, *_size_columns(suite, name)]
        if len(table) > 1 and max(map(len, _table(wider))) > page.width:
            lines += [*_table(table), ""]
            wider = [names, *wider[-2:]]
        table = wider
    return lines + _table(table)


def _table(columns: Sequence[Sequence[str]]) -> list[str]:
    right = [False] + [True] * (len(columns) - 1)
    return aligned(list(zip(*columns, strict=True)), right)


def _size_columns(suite: Suite, name: str) -> tuple[list[str], list[str]]:
    sizes = [benchmark.sizes.get(name) for benchmark in suite.benchmarks]
    seconds = [size.reference_s if size else None for size in sizes]
    places = min(2, decimals(seconds))
    return (
        [f"{name} s", *(number(value, places) for value in seconds)],
        [f"{name} MB", *(_megabytes(size) for size in sizes)],
    )


def _prose(text: str, page: Page) -> list[str]:
    """Return a sentence, broken between words where the page ends."""
    width = max(_LEAST, page.width)
    return textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)


def _joined(lines: Sequence[str], page: Page) -> str:
    return "\n".join(plain(line, ascii_only=page.ascii_only) for line in lines)


def _megabytes(size: Size | None) -> str:
    if size is None or size.memory_bytes is None:
        return "-"
    return number(size.memory_bytes / 1e6, 0 if size.memory_bytes >= 1e7 else 1)


def _made_of(benchmark: Benchmark) -> str:
    if benchmark.sources:
        return " ".join(source.name for source in benchmark.sources)
    return shlex.join(benchmark.command)
