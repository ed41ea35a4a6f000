"""`rater versus`: commands alternated in a sweep, compared and gated, in one go."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.compare import MARGIN, compare
from rater.analysis.compare.model import Comparison
from rater.analysis.results.gates import FOUND_STATUS
from rater.analysis.results.measure import find_measure_among
from rater.plan.command_words import distinct_names
from rater.plan.metric import parse_metrics
from rater.plan.options import LONGEST_NAME
from rater.plan.request import COMMAND
from rater.record.run import INSTRUCTIONS, MetricUsed
from rater.show.compare.comparison import comparison_document, comparison_parts
from rater.show.screen.document import Line, Part
from rater.store.store import Store
from rater.store.sweeps import PREFIX, load_sweep
from rater.system.errors import InputError
from rater.system.process import print_error
from rater.text.values import parse_percent
from rater.workflow.arguments import Output, RunArguments, print_view
from rater.workflow.results.ci import CI_FORMATS, print_gates
from rater.workflow.results.compare import (
    gate_cases,
    gate_comparison,
    gate_limit,
    margin_of,
    split_by,
)
from rater.workflow.results.points import count_interim_looks, load_points, missing_points
from rater.workflow.sweep.execute import run_sweep
from rater.workflow.sweep.request import SweepOptions

if TYPE_CHECKING:
    from rater.show.documents.compare import VersusDocument


class VersusOptions(Struct, frozen=True, kw_only=True):
    """What was typed of `rater versus` itself."""

    commands: tuple[str, ...]  # as a shell has them; the first is what others are compared with
    rounds: int | None
    seed: int | None
    until: str | None
    within: str | None
    by: tuple[str, ...]
    fail_on: str | None
    retry: int  # further tries of a gate that fails


class VersusTry(Struct, frozen=True, kw_only=True):
    """One sweep over the commands, compared."""

    sweep: int
    comparison: Comparison
    commands: tuple[tuple[str, str], ...]  # by their names
    without: tuple[str, ...]  # commands that have no runs, and why


def versus(output: Output, run_arguments: RunArguments, options: VersusOptions) -> int:
    """Alternate the commands, compare them with the first, and return the status of the gate.

    A gate that fails is tried again with new runs, `options.retry` times: it fails only where the
    last try fails, too. Raises `InputError`.
    """
    limit = _checked_limit(options)
    _check_measure(run_arguments, options)
    tries: list[VersusTry] = []
    exit_status = 0
    for tries_left in reversed(range(options.retry + 1)):
        made = len(tries)
        sweep_status = _make_try(output, run_arguments, options, tries)
        if len(tries) == made:  # a dry run, or one that compares nothing
            return sweep_status
        last = tries[-1]
        gate = 0 if limit is None else gate_comparison(last.comparison, limit, last.without)
        exit_status = sweep_status or gate
        if sweep_status or gate != FOUND_STATUS or not tries_left:
            break
        print_error(f"sweep {last.sweep} fails the gate: {tries_left} more to try")
    _print(output, tries, options.fail_on, exit_status)
    return exit_status


def _checked_limit(options: VersusOptions) -> float | None:
    """Return the limit of the gate, or None without one; raises `InputError` for wrong options."""
    if len(options.commands) < 2:
        raise InputError(
            "expected two commands or more, each as one word: rater versus './old -x' './new -x'"
        )
    twice = next((it for it, times in Counter(options.commands).items() if times > 1), None)
    if twice is not None:
        raise InputError(
            f"the command {twice!r} stands there twice; to measure it against itself: rater versus "
            f"{shlex.quote(twice)} {shlex.quote(f'env {twice}')}"
        )
    if options.within is not None:
        margin_of(options.within)
    limit = gate_limit(options.fail_on)
    if options.retry < 0:
        raise InputError(f"--retry {options.retry}: expected 0 or more")
    if options.retry and limit is None:
        raise InputError("--retry is of a gate: add --fail-on worse:2%")
    return limit


def _check_measure(run_arguments: RunArguments, options: VersusOptions) -> None:
    """Raise `InputError` for a measure that the runs would not have, before one is made."""
    metric = split_by([word for word in options.by if word != COMMAND.name], ()).metric
    if metric is None:
        return
    request = run_arguments.with_option(COMMAND, options.commands[0]).request()
    if metric == INSTRUCTIONS and request.count:
        return
    declared = parse_metrics(request.metrics)
    find_measure_among(
        metric,
        [MetricUsed(used.name, used.unit, used.better, used.combine) for used in declared],
    )


def _make_try(
    output: Output, run_arguments: RunArguments, options: VersusOptions, tries: list[VersusTry]
) -> int:
    """Make the runs, add their comparison to `tries`, and return the status of the sweep."""

    def compare_commands(_: Output, store: Store, number: int) -> None:
        tries.extend(_compared(store, number, options))

    values = ",".join(text.replace(",", "\\,") for text in options.commands)
    # Work of others does not change a count of instructions: no run is made again for it.
    is_of_counts = INSTRUCTIONS in options.by and "count" in run_arguments.options
    sweep_options = SweepOptions(
        axis=(f"command={values}",),
        rounds=options.rounds,
        seed=options.seed,
        until=options.until,
        retries=0 if is_of_counts else None,
    )
    # A sweep has its result shown where it is not quiet, or is to be JSON.
    is_shown = output.json or (output.quiet and not output.dry_run)
    return run_sweep(
        run_arguments,
        sweep_options,
        replace(output, json=is_shown),
        compare_commands,
        skip_hint="",
    )


def _compared(store: Store, number: int, options: VersusOptions) -> Iterator[VersusTry]:
    """Yield the comparison of a sweep's commands; nothing where fewer than two have runs."""
    word = f"{PREFIX}{number}"
    planned = load_sweep(store, number).points
    texts = [dict(point.values)[COMMAND.name] for point in planned]
    names = distinct_names([shlex.split(text) or [text] for text in texts], LONGEST_NAME)
    name_of_point = {point.label: name for point, name in zip(planned, names, strict=True)}
    points = [
        replace(point, label=name_of_point[point.label]) for point in load_points(store, [word])
    ]
    if len(points) < 2:
        return
    by = split_by(options.by, points)
    comparison = compare(
        points,
        margin=_margin(options),
        looks=count_interim_looks(store, points),
        by_cpu=by.cpu_time,
        by_metric=by.metric,
    )
    yield VersusTry(
        sweep=number,
        comparison=comparison,
        commands=tuple(zip(names, texts, strict=True)),
        without=missing_points(store, [word]),
    )


def _margin(options: VersusOptions) -> float:
    if options.within is not None:
        return margin_of(options.within)
    return MARGIN if options.until is None else parse_percent(options.until) or MARGIN


def _print(
    output: Output, tries: Sequence[VersusTry], fail_on: str | None, exit_status: int
) -> None:
    """Print the last try, and what the gate says of it."""
    last = tries[-1]
    document: VersusDocument = {
        **comparison_document(last.comparison),
        "points_without_runs": list(last.without),
        "sweeps": [versus_try.sweep for versus_try in tries],
        "commands": [{"name": name, "command": command} for name, command in last.commands],
        "gate_exit_status": None if fail_on is None else exit_status,
    }

    def parts(_: object) -> Iterator[Part]:
        yield from (
            Line(f"{name}: {command}") for name, command in last.commands if name != command
        )
        yield from (Line(text, "yellow") for text in last.without)
        yield from comparison_parts(last.comparison, detailed=output.verbose)
        yield f"All of it: `rater compare {PREFIX}{last.sweep}`"

    if output.format in CI_FORMATS and not output.json:
        cases = gate_cases(last.comparison, fail_on, last.without)
        title = f"rater versus: {', '.join(name for name, _ in last.commands)}"
        print_gates(output, title, cases, parts(None))
    else:
        print_view(output, document, parts)
