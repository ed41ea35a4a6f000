"""`rater divots`: what is slow in a run, where, by how much and what it costs."""

from __future__ import annotations

import argparse
import math
import sys
from statistics import median
from typing import TYPE_CHECKING

from rater.commands.common import add_common
from rater.errors import InputError
from rater.workflow.common import existing_store, print_json
from rater.workflow.run_arguments import options_given

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rater.analysis.divots.data.finding import Finding
    from rater.analysis.divots.recurring import Between

_ANY = "any"
_GROUP = 1.5  # per cent, as in `divots.data.finding.Thresholds`: too much to load for --help
_COPY = 3.0
_TRIAL_ONLY = ("finding", "pairs", "dry_run", "force", "share", "quiet")
_OF_TRIAL = frozenset(
    (
        *_TRIAL_ONLY,
        *("which", "confirm", "fresh", "json", "db", "run", "subcommand", "command"),
        *("threshold_group", "threshold_copy"),
    )
)


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater divots`."""
    parser = subparsers.add_parser(
        "divots",
        help="what is slow in a run, and the smallest part of the machine that explains it",
        description="Say what is slow in a run (or fast), where, by how much and what it costs; "
        "with several runs also what comes back in the same place.",
    )
    parser.add_argument(
        "which",
        metavar="RUN",
        nargs="*",
        default=[],
        help="a number, the start of a uuid, last, last~1, or tag:K=V (default: last)",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="search again, whatever is stored of it"
    )
    parser.add_argument(
        "--threshold-group",
        metavar="P",
        type=_per_cent,
        default=_GROUP / 100,
        help=f"smallest slowdown of a part of the machine that counts, in %% (default: {_GROUP:g})",
    )
    parser.add_argument(
        "--threshold-copy",
        metavar="P",
        type=_per_cent,
        default=_COPY / 100,
        help=f"smallest slowdown of a single copy that counts, in %% (default: {_COPY:g})",
    )
    parser.add_argument(
        "--fail-on",
        metavar="KIND[:P]",
        action="append",
        default=[],
        help="exit 1 where there is a divot of this kind of P %% or more (slow-lgroup:2%%, "
        f"{_ANY}:5%%); may be given several times",
    )
    trial = parser.add_argument_group("confirm a divot")
    trial.add_argument(
        "--confirm",
        metavar="RUN",
        help="run the benchmarks of a divot on its CPUs and on others like them, in turn, and say "
        "whether it is there again; exits 0 where it is",
    )
    trial.add_argument(
        "--finding", metavar="N", type=int, help="which divot of the run, as numbered; default 1"
    )
    trial.add_argument("--pairs", metavar="K", type=int, help="runs of each side; default 5")
    trial.add_argument("--dry-run", action="store_true", help="show what would run; run nothing")
    trial.add_argument("--force", action="store_true", help="run though memory or disk may not do")
    trial.add_argument("--share", action="store_true", help="run beside another rater")
    trial.add_argument("--quiet", action="store_true", help="no progress")
    add_common(parser)
    parser.set_defaults(run=_divots)


def _per_cent(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 < value < 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected per cent above 0, such as 1.5")
    return value / 100


def _divots(args: argparse.Namespace) -> int:
    if args.confirm is not None:
        from rater.workflow.run.confirm import confirm

        given = [*args.which, *options_given(args, _OF_TRIAL)]
        if given:
            raise InputError(f"--confirm {args.confirm}: leave out {' '.join(given)}")
        return confirm(args)
    given = [name for name in _TRIAL_ONLY if getattr(args, name) not in (None, False)]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(f"{option} belongs to --confirm RUN: `rater divots --confirm last ...`")
    return _search(args)


def _search(args: argparse.Namespace) -> int:
    from rater.analysis.divots.data.finding import Thresholds
    from rater.analysis.divots.recurring import between_runs
    from rater.show.divots.to_json import divots_document
    from rater.workflow.results.divots import analysis_of

    limits = [_limit(text) for text in args.fail_on]
    thresholds = Thresholds(args.threshold_group, args.threshold_copy)
    with existing_store(args) as store:
        numbers = list(
            dict.fromkeys(n for spec in args.which or ["last"] for n in store.find_all(spec))
        )
        heads = {head.run: head for head in store.runs()}
        runs = [
            (heads[number], analysis_of(store, heads[number], thresholds, fresh=args.fresh))
            for number in numbers
        ]
    between = between_runs([(head.run, analysis.findings) for head, analysis in runs])
    if args.json:
        print_json(divots_document(runs, between))
    else:
        from rich.console import Console

        from rater.show.divots.findings import print_between, print_divots

        console = Console()
        for head, analysis in runs:
            print_divots(head, analysis, console)
        if len(runs) > 1:
            print_between(between, len(runs), console)
    found = [one for _, analysis in runs for one in analysis.findings]
    return _status(limits, found, between)


def _limit(text: str) -> tuple[str, float]:
    """Return the kind and the least slowdown of `slow-lgroup:2%`."""
    from rater.analysis.divots.data.finding import Kind

    kind, colon, size = text.partition(":")
    kinds = [str(one) for one in Kind if one is not Kind.LAYOUT]
    if kind not in (*kinds, _ANY):
        raise InputError(f"--fail-on {text}: no kind of divot; expected {_ANY}, {', '.join(kinds)}")
    if not colon:
        return kind, 0.0
    try:
        return kind, _per_cent(size)
    except argparse.ArgumentTypeError as error:
        raise InputError(f"--fail-on {text}: {error}") from error


def _status(
    limits: Sequence[tuple[str, float]], findings: Sequence[Finding], between: Sequence[Between]
) -> int:
    told = [(one.kind, one.place, *_largest(one)) for one in findings if not one.explained]
    told += [(one.kind, one.places[0][1], one.slowdown, "") for one in between]
    for kind, least in limits:
        for of, place, size, where in told:
            if kind not in (of, _ANY) or (kind.startswith("slow-") and size < 1):
                continue  # a faster lgroup is no slow group, whatever its kind is called
            if abs(size - 1) >= least:
                print(
                    f"rater: --fail-on {kind}: {place} ({where}{(size - 1) * 100:+.1f} %)",
                    file=sys.stderr,
                )
                return 1
    return 0


def _largest(one: Finding) -> tuple[float, str]:
    """Return the largest slowdown of a finding that its sentence stands for, and of what it is.

    The typical one, or that of one benchmark or copy over its iterations: a single
    iteration of three is no more than its noise.
    """
    by_part: dict[str, list[float]] = {}
    for cell in one.cells:
        by_part.setdefault(f"{cell.benchmark} ", []).append(cell.slowdown)
    for single in one.singles:
        name = f"copy {single.copy} of {single.benchmark} "
        by_part.setdefault(name, []).append(single.slowdown)
    largest, where = one.slowdown, ""
    for name, sizes in by_part.items():
        if abs(median(sizes) - 1) > abs(largest - 1):
            largest, where = median(sizes), name
    return largest, where
