"""Suites and benchmarks as text and as values for JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.plan.suite import Benchmark, Size, Suite
from rater.show.format import aligned, crop, decimals, number, plain

_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the list of suites: one that reads, or why it does not."""

    name: str
    path: Path
    suite: Suite | None
    trouble: str | None


def suites_text(suites: Sequence[Listed]) -> str:
    """Return the table of all suites."""
    rows = [("suite", "benchmarks", "sizes", "description")]
    for listed in suites:
        if listed.suite is None:
            rows.append((listed.name, "-", "-", f"broken: see rater suites check {listed.name}"))
            continue
        sizes = ",".join(size_names(listed.suite))
        benchmarks = str(len(listed.suite.benchmarks))
        rows.append((listed.name, benchmarks, sizes, plain(listed.suite.description)))
    lines = [crop(line, _WIDTH) for line in aligned(rows, (False, True, False, False))]
    return "\n".join([*lines, "", "more: rater suites show SUITE    run one: rater run SUITE"])


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


def suite_text(suite: Suite) -> str:
    """Return one suite: what its benchmarks are, then reference time and memory by size."""
    head = [f"{suite.name}: {plain(suite.description)}" if suite.description else suite.name]
    head.append(f"file: {suite.path}")
    if suite.reference_machine:
        head.append(f"reference times: {plain(suite.reference_machine)}")
    rows = [("benchmark", "kind", "description")]
    rows += [
        (b.name, b.category or "-", plain(b.description or _made_of(b))) for b in suite.benchmarks
    ]
    about = [crop(line, _WIDTH) for line in aligned(rows, (False, False, False))]
    return "\n".join([*head, "", *about, "", *_sizes_table(suite)])


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
) -> str:
    """Return what a trial of one benchmark showed: a line, and one more for each remark."""
    if error is not None:
        first, *more = error.splitlines()
        facts = f"FAILED  {plain(first)}"
        if run_dir is not None:
            more.append(f"its files are in {run_dir}")
    elif elapsed_s is None:
        facts, more = f"built   {executable}", []
    else:
        rss = "" if max_rss_bytes is None else f"{max_rss_bytes / 1e6:8.0f} MB"
        answer = "answer right" if checked else "answer not checked"
        facts, more = f"ok      {size} {elapsed_s:8.2f} s{rss}  {answer}", []
    lines = [f"{name.ljust(width)}  {facts}", *(f"    {plain(line)}" for line in more)]
    return "\n".join(lines + [f"    note: {plain(remark)}" for remark in remarks])


def size_names(suite: Suite) -> list[str]:
    """Return the names of all sizes, in the order in which they first appear."""
    return list({name: None for benchmark in suite.benchmarks for name in benchmark.sizes})


def _size_json(size: Size) -> dict[str, object]:
    return {
        "name": size.name,
        "args": list(size.args),
        "reference_s": size.reference_s,
        "memory_bytes": size.memory_bytes,
        "disk_bytes": size.disk_bytes,
        "inputs": [wanted.name for wanted in size.inputs],
        "checked": [want.file for want in size.expected],
    }


def _sizes_table(suite: Suite) -> list[str]:
    """Return reference seconds and megabytes per copy of every size, side by side."""
    names = size_names(suite)
    rows = [["benchmark", *(f"{name} {unit}" for name in names for unit in ("s", "MB"))]]
    columns = []
    for name in names:
        sizes = [benchmark.sizes.get(name) for benchmark in suite.benchmarks]
        seconds = [size.reference_s if size else None for size in sizes]
        places = min(2, decimals(seconds))
        columns.append([number(value, places) for value in seconds])
        columns.append([_megabytes(size) for size in sizes])
    for position, benchmark in enumerate(suite.benchmarks):
        rows.append([benchmark.name, *(column[position] for column in columns)])
    title = "reference seconds and MB of memory per copy, by size"
    return [title, *aligned(rows, [False] + [True] * len(columns))]


def _megabytes(size: Size | None) -> str:
    if size is None or size.memory_bytes is None:
        return "-"
    return number(size.memory_bytes / 1e6, 0 if size.memory_bytes >= 1e7 else 1)


def _made_of(benchmark: Benchmark) -> str:
    if benchmark.sources:
        return " ".join(source.name for source in benchmark.sources)
    return shlex.join(benchmark.command)
