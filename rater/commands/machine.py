"""Commands about this machine and what runs on it: `settings`, `suites`, `doctor`, ..."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from rater.commands.command_line import CommandTrait, subparsers_of
from rater.commands.common import Subcommand, command_of, output_of
from rater.commands.defaults import LOCAL, TRUST, read_defaults
from rater.system.errors import InputError
from rater.system.files import trusted_files
from rater.system.process import print_error
from rater.text.values import to_dict
from rater.workflow.arguments import print_json, print_view

_LONGEST_S = 1e9  # a timer takes no more
_TUNE = "--tune TUNE =base  whose compiler flags (default: base)"
_SUITE = "SUITE{}  name of a suite, path of a TOML file, or either with /BENCHMARK,..."


def _list_suites(arguments: Namespace) -> int:
    from rater.plan.suite_find import find_suites, load_suite
    from rater.show.plans.suites import listed_document, suites_parts

    listed_suites, troubles = find_suites()
    documents = []
    for listed in listed_suites:
        try:
            suite, error = load_suite(str(listed.path)), None
        except InputError as mistakes:
            suite, error = None, str(mistakes)
        document = listed_document(listed.name, listed.path, listed.folder, listed.instead, suite)
        documents.append(document | {"error": error})
    print_view(output_of(arguments), documents, suites_parts)
    for trouble in troubles:
        print_error(trouble)
    return 0


def _show_suite(arguments: Namespace) -> int:
    from rater.plan.suite_find import load_selection
    from rater.show.plans.suites import suite_document, suite_parts

    document = suite_document(load_selection(arguments.suite))
    print_view(output_of(arguments), document, suite_parts)
    return 0


def _build_suite(arguments: Namespace) -> int:
    """Build all, say all that failed; exit 2 when any did."""
    from rater.plan.suite_find import load_selection
    from rater.run.programs.compile import cache_root
    from rater.run.workplace.trial import try_build
    from rater.workflow.suites import TrialPrinter

    output = output_of(arguments)
    suite, cache = load_selection(arguments.suite), cache_root()
    trials = []
    printer = None if output.json else TrialPrinter(suite)
    for benchmark in suite.benchmarks:
        trial = try_build(benchmark, arguments.tune, cache)
        trials.append(trial)
        if printer is not None:
            printer.report(trial)
    if output.json:
        facts = [to_dict(trial) for trial in trials]
        print_json({"suite": suite.name, "path": str(suite.path), "benchmarks": facts})
    return 2 if any(trial.error is not None for trial in trials) else 0


def _clean_cache(arguments: Namespace) -> int:
    from rater.workflow.machine import clean

    return clean(output_of(arguments), older=arguments.older, size=arguments.size)


def _check_suite(arguments: Namespace) -> int:
    from rater.workflow.suites import CheckOptions, check

    return check(
        output_of(arguments),
        suite=arguments.suite,
        options=CheckOptions(
            tune=arguments.tune, try_size=arguments.try_size, timeout=arguments.timeout
        ),
    )


def _new_suite(arguments: Namespace) -> int:
    from rater.workflow.suites import new

    return new(output_of(arguments), name=arguments.name, place=arguments.place)


def _show_settings(arguments: Namespace) -> int:
    from rater.workflow.machine import show_settings

    return show_settings(output_of(arguments), names=tuple(arguments.names))


def _restore_settings(arguments: Namespace) -> int:
    from rater.workflow.machine import restore

    return restore(output_of(arguments), force=arguments.force, forget=arguments.forget)


def _show_topology(arguments: Namespace) -> int:
    from rater.workflow.machine import hardware, topo

    if arguments.facts and arguments.described is None:
        return hardware(output_of(arguments), run_of=arguments.run_of)
    if arguments.facts:
        raise InputError(
            f"--facts {arguments.described}: facts are of this machine, or of a run: --run-of RUN"
        )
    if arguments.run_of is not None:
        raise InputError(f"--run-of {arguments.run_of} belongs to --facts: add it")
    return topo(output_of(arguments), described=arguments.described)


def _try_counters(arguments: Namespace) -> int:
    from rater.workflow.machine import counters

    return counters(output_of(arguments), groups=tuple(arguments.groups))


def _doctor(arguments: Namespace) -> int:
    from rater.workflow.doctor import doctor

    return doctor(
        output_of(arguments),
        checks=tuple(arguments.checks),
        run_of=arguments.run_of,
        fix=arguments.fix,
        command=command_of(arguments),
    )


def _list_layouts(arguments: Namespace) -> int:
    from rater.workflow.machine import list_layouts

    return list_layouts(output_of(arguments))


def _show_layout(arguments: Namespace) -> int:
    from rater.workflow.machine import show_layout

    return show_layout(output_of(arguments), layout=arguments.layout)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_S:
        raise ValueError(
            f"expected a number of seconds, above 0 and at most {_LONGEST_S:g}, got {text!r}"
        )
    return value


def _show_paths(arguments: Namespace) -> int:
    from rater.workflow.paths import show_paths

    return show_paths(output_of(arguments))


def _trust(arguments: Namespace) -> int:
    path = Path(arguments.folder).resolve() / LOCAL

    def shown_files() -> list[tuple[Path, Path]]:
        """Return the trusted files that were asked for, each behind the mark that says so."""
        return [(mark, file) for mark, file in trusted_files() if arguments.listing or file == path]

    marks = [mark for mark, _ in shown_files()]
    if arguments.remove and not marks:
        raise InputError(f"{path}: not trusted; `rater {TRUST} --list` shows what is")
    if arguments.remove:
        for mark in marks:
            mark.unlink(missing_ok=True)
    elif not arguments.listing:
        commands, _ = read_defaults(path, arguments.whole.commands, trust=True)
        for name, defaults in commands.items():
            print_error(f"{path}: {name}: {' '.join(default.word for default in defaults)}")
    names = sorted({str(file) for _, file in shown_files()})
    if arguments.json:
        print_json({"trusted": names})
    else:
        print("\n".join(names) or f"{path}: not trusted any more")
    return 0


SHELLS = ("bash", "zsh", "fish")
# Words of the help that stand for files and for folders. A word in small letters is a value.
_FILES = {"FILE", "FILE.cmd", "PATH", "MACHINE", "SUITE", "LAYOUT", "CONFIG", "DB"}
_DIRECTORIES = {"DIR"}


def _print_completion(arguments: Namespace) -> int:
    sys.stdout.write(script(arguments.shell, arguments.whole))
    return 0


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the completion of one of `SHELLS` for all that the parser takes."""
    import shtab

    for action in [*_all_actions(parser)]:
        words = str(action.metavar or "").replace("[", "|").split("|")
        if isinstance(action, argparse._SubParsersAction):
            shown = [choice for choice in action._choices_actions if " " not in choice.dest]
            action._choices_actions = shown  # shtab knows commands of one word
            action.choices = {choice.dest: action.choices[choice.dest] for choice in shown}
        if action.nargs == 0 or action.choices:
            continue
        if known := [word for word in words if word.isalpha() and word.islower()]:
            action.choices = known
        elif not _FILES.isdisjoint(words):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab looks for it
        elif not _DIRECTORIES.isdisjoint(words):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # as above
    return shtab.complete(parser, shell=shell) + "\n"


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    yield from parser._actions
    for sub in subparsers_of(parser).values():
        yield from _all_actions(sub)


_SUITE_ACTIONS = {
    "list": Subcommand(
        run=_list_suites, tables=True, help="the suites that have names (also without ACTION)"
    ),
    "show": Subcommand(
        run=_show_suite,
        arguments=_SUITE.format(""),
        tables=True,
        help="benchmarks, sizes, reference times, memory",
    ),
    "build": Subcommand(
        run=_build_suite,
        arguments=f"{_SUITE.format('')}\n{_TUNE}",
        help="compile a suite's programs into the cache",
    ),
    "clean": Subcommand(
        run=_clean_cache,
        arguments="""
--older TIME:duration  unused for so long (default: 30d)
--size SIZE:bytes    until it has so much
--dry-run            only say what would go
""",
        help="trim the cache by age and size",
        description="Remove from the cache programs, inputs and digests that nothing has used for "
        "long, then those unused longest until it is small enough. What is missing is made again.",
    ),
    # SUITE may be left out for argparse: of `--run SUITE` the use case says what was meant.
    "check": Subcommand(
        run=_check_suite,
        arguments=f"""
{_SUITE.format("?")}
{_TUNE}
--run SIZE >try_size ?  also run each benchmark once, alone, and check its answer (default SIZE:
                     test, else the first); --run=SIZE, or behind SUITE
--timeout S:seconds =600  give up on a benchmark, or a set-up, after S seconds (default: 600)
""",
        types={"seconds": _seconds},
        help="report everything that is wrong with a suite at once",
        usage="%(prog)s [-h] [--tune TUNE] [--run[=SIZE]] [--timeout S]\n"
        "                          [--db PATH] [--json] SUITE",
    ),
    "new": Subcommand(
        run=_new_suite,
        arguments="""
NAME                 of the suite; a path to write it somewhere else
--dir DIR:path >place  folder to write NAME.toml and NAME/ into (default: here)
""",
        help="write an example that runs, to be changed by you",
    ),
}
COMMANDS = {
    "settings": Subcommand(
        run=_show_settings,
        arguments="""
NAME* >names  only these, and those below them (thp: thp.*)
$ rater settings
$ rater settings thp
""",
        tables=True,
        description="Show the settings of the machine that `rater sweep --axis NAME=...` can set "
        "and restores afterwards: the value now, and the possible values.",
    ),
    "settings restore": Subcommand(
        run=_restore_settings,
        arguments="""
either:
--force   also where somebody else has changed a setting since then
--forget  leave everything as it is and drop the journal
$ rater settings restore
""",
        traits=CommandTrait.RESTORES,
        description="Restore the settings of the machine that a sweep had changed when it was "
        "killed. `rater run` and `rater sweep` do so before they begin; other commands only warn.",
    ),
    "topo": Subcommand(
        run=_show_topology,
        arguments="""
MACHINE? >described  hwloc XML file, what numactl -H or lscpu -e printed, - (standard input), a
                     description such as 'pack:2 numa:4 core:8 pu:2', or nodes=4x24 (default: this
                     machine)
--facts              what no setting changes: BIOS, memory slots with rated and configured speed,
                     promises of the firmware (HMAT), TLBs, and why something is not known
--run-of RUN         with --facts: as RUN recorded them (a number, last, ...)
$ rater topo
$ rater topo machine.xml
$ rater topo --facts
$ rater topo 'pack:2 numa:4 core:8 pu:2'
""",
        tables=True,
        description="Show the machine: NUMA nodes with their CPUs, cores, last-level "
        "caches (LLC) and memory, threads of a core, CPU kinds, distances, CPUs that may not be "
        "used; of this machine also what memory is free, page cache, or in huge pages.",
        epilog="--json has all of it: `counts`, `nodes`, `cpus`, `siblings`, `caches`, "
        "`kinds`, `groups`, `distances`, `not_usable`; CPUs and nodes by OS number, the rest by "
        "hwloc's logical indexes.",
    ),
    "doctor counters": Subcommand(
        run=_try_counters,
        arguments="""
GROUP* >groups  only these, as --counters takes them: numa, software, cpi, ./MINE.toml
$ rater doctor counters
$ rater doctor counters cpi numa
""",
        tables=True,
        description="Try the groups of events that `rater run --counters` takes, 10 ms each: those "
        "of this processor's table and the kernel's own; and where energy is read. What does not "
        "work is listed with the reason and the command that would allow it.",
    ),
    "doctor": Subcommand(
        run=_doctor,
        arguments="""
CHECK* >checks       only these (governor, THP, ...), with all details
-v, --verbose        why each check matters, and what improves it
--run-of RUN         check the machine as RUN recorded it (a number, last, ...)
--fix                apply the recommended settings while the command behind `--` runs; they are
                     restored at its end, or by the next rater after kill -9
$ rater doctor
$ rater doctor -v governor THP
$ rater doctor --fix -- make bench
""",
        tables=True,
        traits=CommandTrait.TAKES_COMMAND,
        description="Check everything on this machine that makes results vary: other work, "
        "frequencies, isolation, interrupts, huge pages, NUMA, swap, permissions, limits. Each "
        "check is good, to consider, bad, or unavailable here; -v has why it matters and the "
        "command that improves it. Nothing is changed, unless a command follows --fix --.",
        epilog="`rater run --tuned` sets what the doctor would for the time of a run, and puts it "
        "back; `rater doctor --fix -- COMMAND` does so around any command.",
    ),
    TRUST: Subcommand(
        run=_trust,
        arguments="""
DIR? >folder =.      default: this one
either:
--remove             take that back
--list >listing      show what is trusted
$ rater trust
$ rater trust --list
""",
        help="use a folder's defaults",
        description=f"Let {LOCAL} of a folder give every option of `rater run` and other commands, "
        "as long as its text stays as it is. Until then it gives none that runs something, names "
        "a file or a database, hides or forces (prepare, wrap, env, db, quiet, force, ...).",
    ),
    "suites": Subcommand(
        run=_list_suites,
        arguments="$ rater suites\n$ rater suites show mini\n$ rater suites clean --size 5G",
        tables=True,
        description="List, show, build, check and begin suites.",
        actions=_SUITE_ACTIONS,
    ),
    "plan layouts": Subcommand(
        run=_list_layouts,
        arguments="$ rater plan layouts\n$ rater plan layouts show balanced",
        tables=True,
        description="List and show placement layouts.",
        actions={
            "list": Subcommand(
                run=_list_layouts, tables=True, help="the built-in layouts (also without ACTION)"
            ),
            "show": Subcommand(
                run=_show_layout,
                arguments="LAYOUT  name of a layout, path of a TOML file, list: or expr:",
                tables=True,
                help="a layout's file, to learn from and to go on from",
            ),
        },
    ),
    "paths": Subcommand(
        run=_show_paths,
        arguments="$ rater paths\n$ rater paths --json",
        tables=True,
        description="Show where rater keeps and looks for its files: database, cache, defaults, "
        "suites, lock and journal, and the variable that sets each.",
    ),
    "completion": Subcommand(
        run=_print_completion,
        is_plain=True,
        arguments="""
(bash|zsh|fish) >shell  whose
$ rater completion bash > ~/.local/share/bash-completion/completions/rater
$ rater completion fish > ~/.config/fish/completions/rater.fish
""",
        description="Print the completion of commands, options and their values for a shell. "
        "Packages install it; elsewhere: "
        "bash: rater completion bash > ~/.local/share/bash-completion/completions/rater; "
        "zsh: rater completion zsh > _rater, in a folder of $fpath; "
        "fish: rater completion fish > ~/.config/fish/completions/rater.fish.",
    ),
}
