"""What scripts and notebooks call: `rater.run("mini", copies=4)`, `rater.load("last")`, ...

Each does what the command of its name does. Arrays are numpy's; `to_pandas`, `to_polars` and
`to_arrow` make frames of them where those libraries are installed.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from msgspec import Struct

from rater.analysis.results.score import summarise
from rater.plan.request import BY_NAME, COMMAND
from rater.record.stored import StoredRun
from rater.show.compare.comparison import comparison_document
from rater.show.compare.sweep import sweep_document
from rater.show.results.to_json import divot_rows
from rater.store.export import head_document
from rater.store.store import Store
from rater.store.sweeps import PREFIX, find_sweep, load_sweep
from rater.system.errors import InputError, RaterError
from rater.system.process import StoppedBySignal
from rater.text.documents import did_you_mean
from rater.text.values import copies_text, count, to_json
from rater.workflow.arguments import Output, RunArguments, open_store_for_reading
from rater.workflow.results.columns import (
    ColumnTable,
    column_table,
    columns_of_copies,
    columns_of_points,
)
from rater.workflow.results.compare import compare_words
from rater.workflow.results.divots import analysis_for_results
from rater.workflow.results.points import load_points
from rater.workflow.run.begin import make_asked
from rater.workflow.sweep.execute import run_sweep
from rater.workflow.sweep.request import SweepOptions
from rater.workflow.sweep.view import results_of, view_of

if TYPE_CHECKING:
    from rater.show.documents.divots import DivotJson


class LoadedRun(Struct, frozen=True, kw_only=True):
    """A stored run."""

    head: dict[
        str, Any
    ]  # as one of `rater list --json`: run, uuid, status, mode, copies, tags, ...
    copies: ColumnTable  # a row per copy run: benchmark, iteration, copy, cpu, node, elapsed_s, ...
    brackets: ColumnTable  # a row per benchmark and iteration: bracket_s, ratio, score_lost, ...
    settings: dict[str, str]  # of the machine and of the run, as they were recorded
    divots: tuple[DivotJson, ...]  # as `divots` of `rater divots --json`

    def __repr__(self) -> str:
        """Return which run it is, how it ended, and how large it is."""
        head = self.head
        what = ", ".join([head["suite"] or "command", *head["benchmarks"][:1]])
        copies = copies_text(head["copies"])
        return f"<run {head['run']}: {what}, {copies}, {head['status']}>"


class LoadedRuns(Struct, frozen=True, kw_only=True):
    """Several stored runs."""

    runs: tuple[LoadedRun, ...]  # in the order of the words that name them
    copies: ColumnTable  # of all of them; the first column is the point's label

    def __repr__(self) -> str:
        """Return how many they are."""
        return f"<{count(len(self.runs), 'run')}>"


class LoadedSweep(Struct, frozen=True, kw_only=True):
    """A stored sweep."""

    head: dict[str, Any]  # as `rater sweep --show N --json`, and as `rater.sweep` returns it
    runs: tuple[LoadedRun, ...]  # that count, point by point
    copies: ColumnTable  # of all these runs; the first column is the point's label

    def __repr__(self) -> str:
        """Return which sweep it is, how it ended, and how large it is."""
        head = self.head
        points, runs = count(len(head["points"]), "point"), count(len(self.runs), "run")
        return f"<sweep {head['sweep']}: {points}, {runs}, {head['status']}>"


def run(
    suites: str | Sequence[str] = (),
    *,
    command: Sequence[str] | None = None,
    db: str | None = None,
    **options: object,
) -> LoadedRun:
    """Make a run as `rater run` does, and return it; one that failed says so in its head.

    `suites`: "mini", "mini/lu"; `command`: a program and its arguments instead. `options`: those of
    `rater run` with `_` for `-`: copies=4, timeout="90s", env={"A": "1"}. Raises `InputError` for
    what is refused, `RaterError` where it cannot be made (in a thread, too), KeyboardInterrupt for
    a signal.
    """
    status, run_uuid = make_asked(Output(db=db, quiet=True), _asked(suites, command, options))
    _raise_stopped(status)
    made: LoadedRun = load(run_uuid, db=db)
    return made


def sweep(
    suites: str | Sequence[str] = (),
    *,
    axes: Mapping[str, Sequence[object]],
    command: Sequence[str] | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    until: str | None = None,
    db: str | None = None,
    **options: object,
) -> dict[str, Any]:
    """Make a sweep as `rater sweep` does, and return it as `rater sweep --show N --json` has it.

    `axes`: by name, the values of each: {"copies": [1, 2, 4], "env:A": ["", "1"]}. Else as `run`.
    """
    for name, values in axes.items():
        if isinstance(values, str):
            raise InputError(f"axis {name}: expected a list of values, got {values!r}")
    if rounds is not None and not isinstance(rounds, int):
        raise InputError(f"rounds {rounds!r}: expected a whole number")
    values_by_axis = {
        name: [str(value).replace(",", "\\,") for value in values] for name, values in axes.items()
    }
    axis = tuple(f"{name}={','.join(values)}" for name, values in values_by_axis.items())
    sweep_options = SweepOptions(axis=axis, rounds=rounds, seed=seed, until=until)
    document: dict[str, Any] = {}

    def keep(_: Output, store: Store, number: int) -> None:
        document.update(_sweep_document(store, number))

    output = Output(db=db, json=True, quiet=True)
    _raise_stopped(run_sweep(_asked(suites, command, options), sweep_options, output, keep))
    return document


def _sweep_document(store: Store, number: int) -> dict[str, Any]:
    stored_sweep = load_sweep(store, number)
    view = view_of(stored_sweep, results_of(store, stored_sweep))
    document: dict[str, Any] = to_json(sweep_document(view))  # enums as plain text
    return document


def compare(
    *points: str | int,
    within: str | float = "1%",
    baseline: str | int | None = None,
    by: Sequence[str] = (),
    db: str | None = None,
) -> dict[str, Any]:
    """Compare points with the first, and return what `rater compare --json` has.

    A point: a run (7, "last"), several ("7,8,9"), "tag:thp=always", "sweep:3". `within`: what is
    the same, as a share (0.01) or in per cent ("1%"). Raises `InputError`.
    """
    words = [str(point) for point in points]
    if not isinstance(within, str):
        if not 0 < within < 1:
            raise InputError(
                f"within {within}: expected a share below 1, 0.01 for 1 %, or per cent as '1%'"
            )
        within = f"{within * 100:.12g}%"
    with open_store_for_reading(Output(db=db), words) as store:
        comparison, without = compare_words(
            store,
            words,
            within,
            baseline=None if baseline is None else str(baseline),
            by=(by,) if isinstance(by, str) else by,
        )
    return {**comparison_document(comparison), "points_without_runs": [*without]}


def _asked(
    suites: str | Sequence[str], command: Sequence[str] | None, options: Mapping[str, object]
) -> RunArguments:
    if threading.current_thread() is not threading.main_thread():
        raise RaterError("runs are made in the main thread alone, which hears signals")
    if isinstance(command, str):
        raise InputError(f"command {command!r}: expected a list, as in ['./bench', '--flag']")
    command_words = None if command is None else tuple(map(str, command))
    if command_words is not None and any("\0" in word for word in command_words):
        raise InputError(f"command {list(command_words)!r}: no argument can have a NUL")
    words = (suites,) if isinstance(suites, str) else (*suites,)
    run_arguments = RunArguments(words, command_words)
    for name, value in options.items():
        option = BY_NAME.get(name.replace("_", "-"))
        if option is None or option is COMMAND:
            raise InputError(f"{name}: no option of a run; {did_you_mean(name, BY_NAME)}")
        run_arguments = run_arguments.with_option(option, option.typed_as(value, name))
    return run_arguments


def _raise_stopped(status: int) -> None:
    gc.unfreeze()  # objects from before the run may be collected again
    if status > 128:
        raise StoppedBySignal(status - 128)


@overload
def load(which: int, *, db: str | None = None) -> LoadedRun: ...
@overload
def load(which: str = "last", *, db: str | None = None) -> Any: ...
@overload
def load(
    which: str | int, second: str | int, /, *others: str | int, db: str | None = None
) -> LoadedRuns: ...
def load(
    which: str | int = "last", *others: str | int, db: str | None = None
) -> LoadedRun | LoadedRuns | LoadedSweep:
    """Return a run: a number, the start of a uuid, `last`, `last~1`, `tag:K=V`, `fleet:3/n017`.

    Of several words (7, 8, "tag:build=old") all runs that they mean, as a `LoadedRuns`.
    `sweep:3` and `sweep:last` are a sweep, as a `LoadedSweep`. `db`: the database, else RATER_DB,
    else the user's own. Raises `rater.system.errors.InputError` where there is no such run, sweep
    or database.
    """
    if others:
        return _load_runs([str(word) for word in (which, *others)], db)
    word = str(which)
    with open_store_for_reading(Output(db=db), [word]) as store:
        if word.startswith(PREFIX):
            return _load_sweep(store, find_sweep(store, word))
        return _load_run(store, store.load(store.find(word)))


def _load_runs(words: Sequence[str], db: str | None) -> LoadedRuns:
    with open_store_for_reading(Output(db=db), list(words)) as store:
        points = load_points(store, words)
        loaded = [(point.label, point_run.run) for point in points for point_run in point.runs]
        return LoadedRuns(
            runs=tuple(_load_run(store, stored) for _, stored in loaded),
            copies=columns_of_points(loaded),
        )


def _load_run(store: Store, stored: StoredRun) -> LoadedRun:
    analysis = analysis_for_results(store, stored)
    return LoadedRun(
        head=dict(head_document(stored.head)),
        copies=columns_of_copies(stored),
        brackets=_brackets(stored),
        settings=dict(stored.settings),
        divots=tuple(divot_rows(analysis.findings, analysis.confirm)) if analysis else (),
    )


def _load_sweep(store: Store, number: int) -> LoadedSweep:
    document = _sweep_document(store, number)
    loaded = [
        (point["label"], store.load(run)) for point in document["points"] for run in point["runs"]
    ]
    return LoadedSweep(
        head=document,
        runs=tuple(_load_run(store, stored) for _, stored in loaded),
        copies=columns_of_points(loaded),
    )


def runs(*, db: str | None = None) -> ColumnTable:
    """Return the heads of all stored runs, a row each, by number."""
    with open_store_for_reading(Output(db=db), []) as store:
        heads = [head_document(head) for head in store.runs()]
    return column_table(list(heads[0]) if heads else [], [list(head.values()) for head in heads])


def _brackets(stored: StoredRun) -> ColumnTable:
    names = (
        *("benchmark", "tune", "iteration", "counted", "selected", "copies", "good", "failed"),
        *("bracket_s", "overlap_s", "ratio", "per_hour", "median_copy_s", "score_lost"),
    )
    iterations = [
        iteration
        for benchmark in summarise(stored).benchmarks
        for iteration in benchmark.iterations
    ]
    return column_table(
        names,
        [[getattr(iteration_result, name) for name in names] for iteration_result in iterations],
    )
