"""`rater suites`: list, show, build, check and begin suites."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from rater.commands.common import add_common
from rater.streams import say
from rater.workflow.common import print_json
from rater.workflow.suites import check as suite_check
from rater.workflow.suites import new as suite_new

_SUITE_HELP = "name of a suite, path of a TOML file, or either with /BENCHMARK,..."


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater suites` and its subcommands."""
    suites = subparsers.add_parser(
        "suites",
        help="list, show, begin them",
        description="List, show, build, check and begin suites.",
    )
    suites.set_defaults(run=_list)
    add_common(suites)
    actions = suites.add_subparsers(dest="action", metavar="ACTION")

    listing = actions.add_parser("list", help="the suites that have names (also without ACTION)")
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
        help="report everything that is wrong with a suite at once",
        usage="%(prog)s [-h] [--tune TUNE] [--run[=SIZE]] [--timeout S]\n"
        "                          [--db PATH] [--json] SUITE",
    )
    suite_check.declare(check, _SUITE_HELP)
    add_common(check)

    new = actions.add_parser("new", help="write an example that runs, to be changed by you")
    suite_new.declare(new)
    add_common(new)


def _list(args: argparse.Namespace) -> int:
    from rater.errors import InputError
    from rater.plan.suite.find import find_suites, load_suite
    from rater.show.console.page import standard_page
    from rater.show.plans.suites import ListedSuite, suites_json, suites_text

    suites, troubles = find_suites()
    found = []
    for place in suites:
        listed = ListedSuite(place.name, place.path, None, None, place.folder, place.instead)
        try:
            found.append(replace(listed, suite=load_suite(str(place.path))))
        except InputError as error:
            found.append(replace(listed, trouble=str(error)))
    if args.json:
        print_json(suites_json(found))
    else:
        print(suites_text(found, standard_page()))
    for trouble in troubles:
        say(trouble)
    return 0


def _show(args: argparse.Namespace) -> int:
    from rater.plan.suite.find import load_selection
    from rater.show.console.page import standard_page
    from rater.show.plans.suite import suite_json, suite_text

    suite = load_selection(args.suite)
    if args.json:
        print_json(suite_json(suite))
    else:
        print(suite_text(suite, standard_page()))
    return 0


def _build(args: argparse.Namespace) -> int:
    """Build all, say all that failed; exit 2 when any did."""
    from rater.plan.suite.find import load_selection
    from rater.run.programs.compile import cache_root
    from rater.run.workplace.trial import try_build

    suite, cache = load_selection(args.suite), cache_root()
    trials = []
    for benchmark in suite.benchmarks:
        trials.append(try_build(benchmark, args.tune, cache))
        if not args.json:  # each when it is over: a whole suite takes minutes
            suite_check.report_trial(suite, trials[-1])
    if args.json:
        facts = [asdict(trial) for trial in trials]
        print_json({"suite": suite.name, "path": str(suite.path), "benchmarks": facts})
    return 2 if any(trial.error is not None for trial in trials) else 0
