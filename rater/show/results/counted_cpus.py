"""What was counted on each CPU, and how far the parts of a CPI can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rater.analysis.results.counters import BenchmarkCounts, CpuCounts, RunCounts
from rater.show.screen.document import NUMBER, PERCENT, Field, Part, ViewTable, decimals
from rater.text.values import count, percent

if TYPE_CHECKING:
    from rater.show.documents.readings import CpuCountsJson

_MOST_CPUS = 8  # of a benchmark, unless all are asked for
_SHARE = "_share"  # ends the names of metrics that are shares


def counted_cpu_parts(counts: RunCounts, *, every: bool) -> Iterator[Part]:
    """Yield a table for each benchmark: the worst CPUs first, or `every` one by its number."""
    for benchmark in counts.benchmarks:
        if len(benchmark.cpus) > 1:
            yield _cpu_table(benchmark, every=every)


def _badness(cpu: CpuCounts) -> tuple[float, float]:
    return cpu.translation or 0.0, cpu.cpi


def _cpu_table(benchmark: BenchmarkCounts, *, every: bool) -> ViewTable:
    worst = sorted(benchmark.cpus, key=_badness, reverse=True)[:_MOST_CPUS]
    rows = benchmark.cpus if every else worst
    names = dict.fromkeys(name for cpu in benchmark.cpus for name, _ in cpu.metrics)

    def metric(name: str) -> Callable[[CpuCounts], float | None]:
        return lambda cpu: dict(cpu.metrics).get(name)

    name = f"{benchmark.benchmark} {benchmark.tune}" if benchmark.tune else benchmark.benchmark
    fields = (
        Field(heading=(name, "CPU"), value=lambda cpu: cpu.cpu),
        Field(heading=("", "node"), value=lambda cpu: cpu.node),
        Field(heading="copy|runs", value=lambda cpu: cpu.runs, optional=1),
        Field(heading="cycles|/instr", value=lambda cpu: cpu.cpi, form=decimals(3)),
        Field(heading="in page|walks %", value=lambda cpu: cpu.translation, form=PERCENT),
        *(
            Field(
                heading=metric_heading(name),
                value=metric(name),
                form=PERCENT if name.endswith(_SHARE) else NUMBER,
                optional=2 + place,
            )
            for place, name in enumerate(names)
        ),
    )
    left_out = len(benchmark.cpus) - len(rows)
    note = f"and {count(left_out, 'CPU')} with less: `rater show RUN --counters -v`"
    return ViewTable(title="", rows=rows, fields=fields, note=note if left_out else "")


def counted_cpu_json(cpu: CpuCounts) -> CpuCountsJson:
    """Return what was counted on one CPU as JSON values."""
    return {
        "cpu": cpu.cpu,
        "node": cpu.node,
        "runs": cpu.runs,
        "cpi": cpu.cpi,
        "translation": cpu.translation,
        "metrics": dict(cpu.metrics),
    }


def metric_heading(name: str) -> str:
    """Return `walks|/1000 instr` for `walks_mpki`, and `l1|%` for `l1_share`."""
    words = name.removesuffix(_SHARE).replace("_", " ").replace(" mpki", "|/1000 instr")
    return words + "|%" * name.endswith(_SHARE)


def stack_notes(counts: BenchmarkCounts) -> Iterator[str]:
    """Yield which parts of a CPI were not counted, which are estimates, and what was scaled."""
    stack = counts.stack
    if stack is None:
        return
    if stack.missing:
        yield f"not counted, and in `other`: {_part_names(stack.missing)}"
    if stack.estimated:
        yield (
            f"{_part_names(stack.estimated)} is an estimate: misses x the "
            f"{counts.miss_cycles or 0:.3g} cycles that one costs on this machine by `rater lab "
            "trace --measure`"
        )
    if stack.not_estimated:
        yield (
            f"{_part_names(stack.not_estimated)} is no part of its own: this processor counts "
            "misses alone, and what one costs is not known; measure it with `rater lab trace "
            "--measure`, then count again"
        )
    if stack.excess:
        yield (
            f"the parts exceeded the CPI by {percent(stack.excess)} % and are scaled to it: each "
            "of several stalls at once is counted"
        )


def _part_names(names: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)
