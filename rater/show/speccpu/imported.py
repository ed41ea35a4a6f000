"""What was read of SPEC's result files: counts, places, what disagrees, what was not read."""

from __future__ import annotations

from typing import Any

from rater.show.console.format import decimals, number
from rater.show.console.printer import Printer
from rater.speccpu.problem import Problem
from rater.speccpu.results.recompute import Disagreement, Recomputed, own_ratio
from rater.speccpu.results.result import SpecIteration
from rater.speccpu.results.to_run import SpecImport
from rater.text.cpuset import format_list
from rater.text.to_json import Members, to_json
from rater.text.words import copies_text, count

_TOLD = {"rsf": "raw file", "log": "log"}


def print_import(
    one: SpecImport, run: int, added: bool, printer: Printer, *, again: str = ""
) -> None:
    """Print one imported file; `again`: what to say of a file that was stored already."""
    file = one.file
    if not added:
        printer.prose(f"run {run}: {file.name} is stored already, nothing was added{again}", "bold")
        return
    what = " ".join(filter(None, (file.suite, file.metric, file.size)))
    printer.prose(f"run {run}: {file.name} ({_TOLD[file.format]}, {what}) imported", "bold")
    printer.prose(f"  {counted(one)}")
    printer.prose(f"  {one.places.summary()}")
    printer.some([f"  note: {remark}" for remark in one.remarks], "yellow")
    recomputed = one.recomputed
    for tune, mean in recomputed.means:
        in_file = file.means.get(tune)
        parts = [f"{tune} geometric mean worked out: {_mean(mean, tune, recomputed)}"]
        if in_file is not None:
            parts.append(f"the file: {in_file.value:.{min(in_file.places, 6)}f}")
        printer.prose(f"  {', '.join(parts)}")
    if recomputed.disagreements:
        printer.prose(
            f"  {count(recomputed.compared, 'value')} of the file checked, "
            f"{len(recomputed.disagreements)} disagree with its own numbers:",
            "yellow",
        )
        printer.some([f"    {found}" for found in recomputed.disagreements], "yellow")
    elif recomputed.compared:
        printer.prose(f"  {count(recomputed.compared, 'value')} of the file checked: all agree")
    if file.problems.count:
        printer.prose(f"  {count(file.problems.count, 'problem')}:", "yellow")
        printer.some([f"    {problem}" for problem in file.problems], "yellow")


def counted(one: SpecImport) -> str:
    """Return benchmarks, tunes, iterations and copies of a file in a line."""
    iterations = one.file.iterations
    head = one.stored.head
    tunes = " and ".join(sorted({it.tune for it in iterations}))
    parts = [
        f"{count(len(head.benchmarks), 'benchmark')} {tunes}",
        count(head.iterations, "iteration"),
        copies_text(head.copies),
        count(len(one.brackets), "bracket") if head.order != "rotated" else "rotated",
        count(one.copy_runs, "copy time"),
    ]
    bad = sum(not it.good for it in iterations)
    failed = sum(len(it.failures) for it in iterations)
    if bad:
        parts.append(f"{bad} not valid")
    if failed:
        parts.append(f"{count(failed, 'copy run')} failed")
    return ", ".join(parts)


_TABLE = {
    Disagreement: Members("line where what file own"),
    Problem: Members("line text"),
}
_RESULT = Members(
    "benchmark tune iteration copies",
    {
        "copy_times": lambda it: len(it.times_s),
        "failed_copies": lambda it: format_list(it.failures),
    },
    "reported_s reference_s reference_derived ratio=ratio.value",
)


def import_document(one: SpecImport, run: int, added: bool) -> dict[str, Any]:
    """Return one imported file as JSON values."""
    file, recomputed = one.file, one.recomputed
    head = one.stored.head
    return {
        "file": file.name,
        "format": file.format,
        "run": run,
        "uuid": head.uuid,
        "sha256": file.sha256,
        "added": added,
        "suite": file.suite,
        "metric": file.metric,
        "size": file.size,
        "copies": head.copies,
        "iterations": head.iterations,
        "benchmarks": len(head.benchmarks),
        "tunes": sorted({it.tune for it in file.iterations}),
        "copy_times": one.copy_runs,
        "placement": one.places.summary(),
        "means": {
            tune: {"file": file.means[tune].value if tune in file.means else None, "own": mean}
            for tune, mean in recomputed.means
        },
        "results": [_result(it, file.suite) for it in file.iterations],
        "checked": recomputed.compared,
        "disagreements": to_json(recomputed.disagreements, _TABLE),
        "problem_count": file.problems.count,
        "problems": to_json([*file.problems], _TABLE),
        "notes": [*one.stored.notes],
    }


def _result(it: SpecIteration, suite: str | None) -> dict[str, Any]:
    return {
        **_RESULT.of(it),
        "own_ratio": own_ratio(it, suite),
        "selected": it.selected,
        "valid": it.valid,
        "errors": it.errors,
    }


def _mean(mean: float | None, tune: str, recomputed: Recomputed) -> str:
    if mean is not None:
        return number(mean, max(2, decimals([mean])))
    of_tune = [result for result in recomputed.benchmarks if result.tune == tune]
    without = sum(result.ratio is None for result in of_tune)
    return f"none ({without} of {count(len(of_tune), 'benchmark')} without a valid ratio)"
