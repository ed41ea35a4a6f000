"""`rater divots`: what is slow in a run, where, by how much and what it costs."""

from __future__ import annotations

import argparse

from rater.commands.common import (
    Subparsers,
    add_common,
    add_doing,
    add_force_and_share,
    add_run_word,
    later,
)
from rater.errors import InputError
from rater.record.fleet import is_fleet_word
from rater.text.words import parse_percent
from rater.workflow.run_arguments import options_given

_ANY = "any"
_GROUP = 1.5  # per cent, as in `divots.data.finding.Thresholds`: too much to load for --help
_COPY = 3.0
_TRIAL_ONLY = ("finding", "pairs", "dry_run", "force", "share", "wait", "quiet")
_OF_TRIAL = (
    *_TRIAL_ONLY,
    *("which", "confirm", "fresh", "json", "db", "threshold_group", "threshold_copy"),
)


def register(subparsers: Subparsers) -> None:
    """Declare `rater divots`."""
    parser = subparsers.add_parser(
        "divots",
        help="what is slow, and where",
        description="Report what is slow in a run (or fast), where, by how much and what it costs; "
        "with several runs also what comes back in the same place; with fleet:N which of its hosts "
        "are slow.",
    )
    add_run_word(parser, "*")
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
        f"{_ANY}:5%%), 3 where there is none but a run was too disturbed to judge; may be given "
        "several times",
    )
    trial = parser.add_argument_group("confirm a divot")
    trial.add_argument(
        "--confirm",
        metavar="RUN",
        help="run the benchmarks of a divot on its CPUs and on others like them, in turn, and "
        "report whether it comes back; exits 0 if so; fleet:N: run its slow hosts again, each "
        "beside a quiet one",
    )
    trial.add_argument(
        "--finding", metavar="N", type=int, help="which divot of the run, as numbered; default 1"
    )
    trial.add_argument("--pairs", metavar="K", type=int, help="runs of each side; default 5")
    add_force_and_share(trial)
    add_doing(trial, "show what would run; run nothing", "no progress")
    add_common(parser)
    parser.set_defaults(run=_divots)


def _per_cent(text: str) -> float:
    value = parse_percent(text, 1000)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r}: expected per cent above 0, such as 1.5")
    return value


def _divots(args: argparse.Namespace) -> int:
    if args.confirm is not None:
        given = [*args.which, *options_given(args, _OF_TRIAL)]
        if given:
            raise InputError(f"--confirm {args.confirm}: leave out {' '.join(given)}")
        if is_fleet_word(args.confirm) and "/" not in args.confirm:
            return later("fleet.confirm", "confirm")(args)
        return later("run.confirm", "confirm")(args)
    given = [name for name in _TRIAL_ONLY if getattr(args, name) not in (None, False)]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(f"{option} belongs to --confirm RUN: `rater divots --confirm last ...`")
    if any(is_fleet_word(word) and "/" not in word for word in args.which):
        return later("fleet.divots", "fleet_divots")(args)
    return later("results.find_divots", "find_divots")(args)
