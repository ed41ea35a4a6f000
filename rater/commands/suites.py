"""`rater suites`: list, show, build and check suites."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rater.commands.common import add_common, print_json

if TYPE_CHECKING:
    from rater.plan.suite import Suite
    from rater.plan.tomltable import Mistake
    from rater.run.trial import Trial
    from rater.show.suites import Page

_SUITE_HELP = "name of a suite, path of a TOML file, or either with /BENCHMARK,..."
_ANY_SIZE = ""  # --run without SIZE
_LONGEST_S = 1e9  # a timer takes no more


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

    check = actions.add_parser(
        "check",
        help="say everything that is wrong with a suite at once",
        usage="%(prog)s [-h] [--tune TUNE] [--run[=SIZE]] [--timeout S]\n"
        "                          [--db PATH] [--json] SUITE",
    )
    # Not missing for argparse: what `--run SUITE` means is told better by us.
    check.add_argument("suite", metavar="SUITE", nargs="?", help=_SUITE_HELP)
    check.add_argument("--tune", default="base", help="whose compiler flags (default: base)")
    check.add_argument(
        "--run",
        dest="try_size",
        nargs="?",
        const=_ANY_SIZE,
        metavar="SIZE",
        help="also run each benchmark once, alone, and check its answer (default SIZE: test, "
        "else the first); --run=SIZE, or behind SUITE",
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
        print(suites_text(found, _page()))
    return 0


def _show(args: argparse.Namespace) -> int:
    from rater.plan.suite import load_selection
    from rater.show.suites import suite_json, suite_text

    suite = load_selection(args.suite)
    if args.json:
        print_json(suite_json(suite))
    else:
        print(suite_text(suite, _page()))
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
    from rater.errors import InputError
    from rater.plan.suite import load_selection
    from rater.plan.tomltable import MistakesError
    from rater.run.build import cache_root
    from rater.run.trial import trial_folder, try_build, try_run

    if args.suite is None:
        raise InputError(_no_suite(args.try_size))
    try:
        suite = load_selection(args.suite)
    except MistakesError as error:
        if args.json:
            print_json({"ok": False, "mistakes": [_mistake_json(m) for m in error.mistakes]})
        raise
    cache = cache_root()
    trials = []
    if args.try_size is None:
        trials = [
            _told(try_build(benchmark, args.tune, cache), suite, args.json)
            for benchmark in suite.benchmarks
        ]
    else:
        size = args.try_size or None
        with trial_folder(cache) as work:
            for benchmark in suite.benchmarks:
                trial = try_run(
                    benchmark, args.tune, size, cache=cache, work=work, timeout_s=args.timeout
                )
                trials.append(_told(trial, suite, args.json))
    failed = [trial.benchmark for trial in trials if trial.error is not None]
    if args.json:
        print_json({"ok": not failed, "mistakes": [], **_trials_json(suite, trials)})
    elif failed:
        said = f"{suite.name}: {len(failed)} of {len(trials)} benchmarks failed"
        kept = {str(Path(trial.run_dir).parent) for trial in trials if trial.run_dir}
        print("; their files stay in ".join([said, *kept]), file=sys.stderr)
    else:
        print(f"{suite.name}: nothing wrong")
    return 1 if failed else 0


def _no_suite(try_size: str | None) -> str:
    """Say that `suites check` lacks its SUITE, and whether --run took it as its SIZE."""
    if try_size:
        return (
            f"suites check: --run took {try_size!r} as its SIZE and no SUITE is left: write "
            f"`rater suites check SUITE --run={try_size}`, or `rater suites check {try_size} --run`"
        )
    return "suites check: which SUITE? A name that `rater suites` lists, or the path of a TOML file"


def _told(trial: Trial, suite: Suite, quiet: bool) -> Trial:
    """Print a trial when it is over: a whole suite takes minutes."""
    from rater.show.suites import trial_text

    if not quiet:
        facts = asdict(trial)
        width = max(len(benchmark.name) for benchmark in suite.benchmarks)
        text = trial_text(facts.pop("benchmark"), width, ascii_only=_page().ascii_only, **facts)
        print(text, flush=True)
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
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"expected a number of seconds, above 0 and at most {_LONGEST_S:g}, got {text!r}"
        )
    return value


def _page() -> Page:
    """Return what fits on standard output: the terminal, COLUMNS, or 80 characters."""
    from rater.show.suites import Page

    ascii_only = not (sys.stdout.encoding or "ascii").lower().startswith("utf")
    return Page(shutil.get_terminal_size().columns, ascii_only)
