"""`rater suites`: list, show, build and check suites."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from rater.commands.common import add_common, print_json

if TYPE_CHECKING:
    from rater.plan.suite import Suite
    from rater.plan.tomltable import Mistake
    from rater.run.trial import Trial

_SUITE_HELP = "name of a suite, path of a TOML file, or either with /BENCHMARK,..."
_ANY_SIZE = ""  # --run without SIZE


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater suites` and its subcommands."""
    suites = subparsers.add_parser("suites", help="list, show, build and check suites")
    suites.set_defaults(run=_list)
    add_common(suites)
    actions = suites.add_subparsers(dest="action", metavar="ACTION")

    listing = actions.add_parser("list", help="the built-in suites (also without ACTION)")
    listing.set_defaults(run=_list)
    add_common(listing)

    show = actions.add_parser("show", help="benchmarks, sizes, reference times, memory")
    show.add_argument("suite", metavar="SUITE", help=_SUITE_HELP)
    show.set_defaults(run=_show)
    add_common(show)

    build = actions.add_parser("build", help="compile a suite's programs into the cache")
    build.add_argument("suite", metavar="SUITE", help=_SUITE_HELP)
    build.add_argument("--tune", default="base", help="whose compiler flags (default: base)")
    build.set_defaults(run=_build)
    add_common(build)

    check = actions.add_parser("check", help="say everything that is wrong with a suite at once")
    check.add_argument("suite", metavar="SUITE", help=_SUITE_HELP)
    check.add_argument("--tune", default="base", help="whose compiler flags (default: base)")
    check.add_argument(
        "--run",
        dest="try_size",
        nargs="?",
        const=_ANY_SIZE,
        metavar="SIZE",
        help="also run each benchmark once, alone, and check its answer (default SIZE: test, "
        "else the first)",
    )
    check.add_argument(
        "--timeout",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="give up on a benchmark after S seconds (default: 600)",
    )
    check.set_defaults(run=_check)
    add_common(check)


def _list(args: argparse.Namespace) -> int:
    from rater.errors import InputError
    from rater.plan.suite import load_suite, suite_names
    from rater.resources import folder
    from rater.show.suites import Listed, suites_json, suites_text

    found = []
    for name in suite_names():
        path = folder("suites") / f"{name}.toml"
        try:
            found.append(Listed(name, path, load_suite(name), None))
        except InputError as error:
            found.append(Listed(name, path, None, str(error)))
    if args.json:
        print_json(suites_json(found))
    else:
        print(suites_text(found))
    return 0


def _show(args: argparse.Namespace) -> int:
    from rater.plan.suite import load_selection
    from rater.show.suites import suite_json, suite_text

    suite = load_selection(args.suite)
    if args.json:
        print_json(suite_json(suite))
    else:
        print(suite_text(suite))
    return 0


def _build(args: argparse.Namespace) -> int:
    """Build all, say all that failed; exit 2 when any did."""
    from rater.plan.suite import load_selection
    from rater.run.build import cache_root
    from rater.run.trial import try_build

    suite, cache = load_selection(args.suite), cache_root()
    trials = [
        _told(try_build(benchmark, args.tune, cache), suite, args.json)
        for benchmark in suite.benchmarks
    ]
    if args.json:
        print_json(_trials_json(suite, trials))
    return 2 if any(trial.error is not None for trial in trials) else 0


def _check(args: argparse.Namespace) -> int:
    """Exit 2 when the file is wrong, 1 when a benchmark fails."""
    from rater.plan.suite import load_selection
    from rater.plan.tomltable import MistakesError
    from rater.run.build import cache_root
    from rater.run.trial import try_build, try_run

    try:
        suite = load_selection(args.suite)
    except MistakesError as error:
        if args.json:
            print_json({"ok": False, "mistakes": [_mistake_json(m) for m in error.mistakes]})
        raise
    cache = cache_root()
    size = args.try_size or None
    trials = []
    for benchmark in suite.benchmarks:
        if args.try_size is None:
            trial = try_build(benchmark, args.tune, cache)
        else:
            trial = try_run(benchmark, args.tune, size, cache, args.timeout)
        trials.append(_told(trial, suite, args.json))
    failed = [trial.benchmark for trial in trials if trial.error is not None]
    if args.json:
        print_json({"ok": not failed, "mistakes": [], **_trials_json(suite, trials)})
    elif failed:
        print(f"{suite.name}: {len(failed)} of {len(trials)} benchmarks failed", file=sys.stderr)
    else:
        print(f"{suite.name}: nothing wrong")
    return 1 if failed else 0


def _told(trial: Trial, suite: Suite, quiet: bool) -> Trial:
    """Print a trial when it is over: a whole suite takes minutes."""
    from rater.show.suites import trial_text

    if not quiet:
        facts = asdict(trial)
        width = max(len(benchmark.name) for benchmark in suite.benchmarks)
        print(trial_text(facts.pop("benchmark"), width, **facts), flush=True)
    return trial


def _trials_json(suite: Suite, trials: list[Trial]) -> dict[str, object]:
    return {"suite": suite.name, "path": str(suite.path), "benchmarks": [asdict(t) for t in trials]}


def _mistake_json(mistake: Mistake) -> dict[str, object]:
    return {
        "file": str(mistake.path),
        "line": mistake.line,
        "key": mistake.key or None,
        "text": mistake.text,
    }


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text}")
    return value
