"""`rater pages --check`: mappings run as a sweep over `--pages`, held against the prediction."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence

from rater.analysis.pages.check import BenefitCheck, check_benefits, mappings_to_check
from rater.analysis.pages.ranking import RankedMapping
from rater.errors import InputError, RunError
from rater.plan.pages.mappings import mapping_layout
from rater.record.pages import PageTrace
from rater.record.status import CopyStatus
from rater.record.stored import StoredRun
from rater.store.pages import StoredTrace
from rater.store.store import Store
from rater.store.sweeps import PREFIX
from rater.workflow.results.points import points_from
from rater.workflow.run_arguments import add_run_arguments
from rater.workflow.sweep.conduct import new

_ITERATIONS = 3  # of a run, of which the fastest counts: other load only adds
_DEFAULTS = {
    "block_order": None,
    "seed": None,
    "until": None,
    "skip_refused": False,
    "stop_on_failure": True,
    "listing": False,
    "show": None,
    "example": False,
    "resume": None,
    "dry_run": False,
    "quiet": False,
}


def run_check(
    args: argparse.Namespace,
    stored: StoredTrace,
    ranked: Sequence[RankedMapping],
    saved_ns: Sequence[float],
) -> dict[str, tuple[float, ...]]:
    """Run mappings turn by turn; return CPU times of a copy in s, by layout and round.

    Raises `InputError` where a layout is refused, `RunError` where runs did not end well.
    """
    places = mappings_to_check(stored.trace, ranked, saved_ns, every=args.check == "all")
    if len(places) == 1:
        raise InputError("--check: the program touches no data that could have larger pages")
    layouts = [mapping_layout(ranked[place].mapping.sizes) for place in places]
    found: dict[str, tuple[float, ...]] = {}

    def keep(_: argparse.Namespace, store: Store, sweep: int) -> None:
        for point in points_from(store, [f"{PREFIX}{sweep}"]):
            layout = dict(point.values)["pages"]
            by_block = sorted(point.runs, key=lambda it: it.block or 0)
            found[layout] = tuple(_time_s(it.run) for it in by_block)

    status = new(_sweep_of(args, stored.trace, layouts), keep)
    if status != 0 or set(found) != set(layouts):
        raise RunError("--check: not all runs ended well (`rater sweep --show last`)")
    return {layout: found[layout] for layout in layouts}


def checked(
    ranked: Sequence[RankedMapping],
    saved_ns: Sequence[float],
    times: Mapping[str, Sequence[float]],
) -> BenefitCheck | None:
    """Return times of runs against the prediction, None where there are none."""
    layouts = [mapping_layout(it.mapping.sizes) for it in ranked]
    those = [place for place, layout in enumerate(layouts) if layout in times]
    if len(those) < 2 or those[0] != 0:
        return None
    return check_benefits(
        [layouts[place] for place in those],
        [saved_ns[place] for place in those],
        [times[layouts[place]] for place in those],
    )


def _sweep_of(
    args: argparse.Namespace, trace: PageTrace, layouts: Sequence[str]
) -> argparse.Namespace:
    """Return what `rater sweep` would have been called with."""
    parser = argparse.ArgumentParser(prog="rater pages --check")
    add_run_arguments(parser)
    words = ["--copies", "1", "--iterations", str(_ITERATIONS), "--timeout", f"{args.timeout:g}"]
    command: list[str] | None = None
    if trace.suite is None:
        command = list(trace.command)
    else:
        words = [f"{trace.suite}/{trace.name}", *words, "--tune", args.tune]
        words += ["--size", trace.size] if trace.size else []
    sweep = parser.parse_args(words)
    for name, value in _DEFAULTS.items():
        setattr(sweep, name, value)
    sweep.axis = [f"pages={','.join(layouts)}"]
    sweep.rounds, sweep.db, sweep.json = args.rounds, args.db, args.json
    sweep.command, sweep.subcommand = command, "sweep"
    return sweep


def _time_s(run: StoredRun) -> float:
    times = [
        it.cpu_ns if it.cpu_ns is not None else it.elapsed_ns
        for it in run.copies
        if it.status is CopyStatus.OK
    ]
    if not times:
        raise RunError(f"--check: no copy of run {run.head.run} ended well ({_why(run)})")
    return min(times) * 1e-9


def _why(run: StoredRun) -> str:
    return shlex.join(("rater", "show", str(run.head.run)))
