"""Commands about this machine and what runs on it: `settings`, `suites`, `doctor`, ..."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rater.commands.command_line import CommandTrait, subparsers_of
from rater.commands.common import LOCAL, TRUST, Subcommand, read_defaults
from rater.system.errors import InputError
from rater.system.files import trusted_files
from rater.system.process import print_error
from rater.text.values import to_dict
from rater.workflow.arguments import Output, print_json, print_view

_LONGEST_S = 1e9  # a timer takes no more
_LAYOUTS = "workflow.machine.list_layouts"
_TUNE = "--tune TUNE =base  whose compiler flags (default: base)"
_SUITE = "SUITE{}  name of a suite, path of a TOML file, or either with /BENCHMARK,..."


def _list(output: Output) -> int:
    from rater.plan.suite_find import find_suites, load_suite
    from rater.show.plans.suites import listed_document, suites_parts
    from rater.system.errors import InputError

    suites, troubles = find_suites()
    found = []
    for it in suites:
        try:
            suite, error = load_suite(str(it.path)), None
        except InputError as wrong:
            suite, error = None, str(wrong)
        listed = listed_document(it.name, it.path, it.folder, it.instead, suite)
        found.append(listed | {"error": error})
    print_view(output, found, suites_parts)
    for trouble in troubles:
        print_error(trouble)
    return 0


def _show(output: Output, suite: str) -> int:
    from rater.plan.suite_find import load_selection
    from rater.show.plans.suites import suite_document, suite_parts

    print_view(output, suite_document(load_selection(suite)), suite_parts)
    return 0


def _build(output: Output, suite: str, tune: str) -> int:
    """Build all, say all that failed; exit 2 when any did."""
    from rater.plan.suite_find import load_selection
    from rater.run.programs.compile import cache_root
    from rater.run.workplace.trial import try_build
    from rater.workflow.suites import report_trial

    selected, cache = load_selection(suite), cache_root()
    trials = []
    for benchmark in selected.benchmarks:
        trials.append(try_build(benchmark, tune, cache))
        if not output.json:  # each when it is over: a whole suite takes minutes
            report_trial(selected, trials[-1])
    if output.json:
        facts = [to_dict(trial) for trial in trials]
        print_json({"suite": selected.name, "path": str(selected.path), "benchmarks": facts})
    return 2 if any(trial.error is not None for trial in trials) else 0


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


def _trust(args: argparse.Namespace) -> int:
    path = Path(args.folder).resolve() / LOCAL
    marks = [mark for mark, file in trusted_files() if args.listing or file == path]
    if args.remove and not marks:
        raise InputError(f"{path}: not trusted; `rater {TRUST} --list` shows what is")
    if args.remove:
        for mark in marks:
            mark.unlink(missing_ok=True)
    elif not args.listing:
        commands, _ = read_defaults(path, args.whole.commands, trust=True)
        for name, found in commands.items():
            print_error(f"{path}: {name}: {' '.join(it.word for it in found)}")
    names = sorted({str(file) for mark, file in trusted_files() if args.listing or file == path})
    if args.json:
        print_json({"trusted": names})
    else:
        print("\n".join(names) or f"{path}: not trusted any more")
    return 0


SHELLS = ("bash", "zsh", "fish")
# What an argument takes, by the words its help has for it; those in small letters are values.
_FILES = {"FILE", "FILE.cmd", "PATH", "MACHINE", "SUITE", "LAYOUT", "CONFIG", "DB"}
_DIRECTORIES = {"DIR"}


def _print(args: argparse.Namespace) -> int:
    sys.stdout.write(script(args.shell, args.whole))
    return 0


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the completion of one of `SHELLS` for all that the parser takes."""
    import shtab

    for action in [*_all_actions(parser)]:
        words = str(action.metavar or "").replace("[", "|").split("|")
        if isinstance(action, argparse._SubParsersAction):
            shown = [it for it in action._choices_actions if " " not in it.dest]
            action._choices_actions = shown  # shtab knows commands of one word
            action.choices = {it.dest: action.choices[it.dest] for it in shown}
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
        run=_list, tables=True, help="the suites that have names (also without ACTION)"
    ),
    "show": Subcommand(
        run=_show,
        arguments=_SUITE.format(""),
        tables=True,
        help="benchmarks, sizes, reference times, memory",
    ),
    "build": Subcommand(
        run=_build,
        arguments=f"{_SUITE.format('')}\n{_TUNE}",
        help="compile a suite's programs into the cache",
    ),
    "clean": Subcommand(
        run="workflow.machine.clean",
        arguments="""
--older TIME:duration  unused for so long (default: 30d)
--size SIZE:bytes    until it has so much
--dry-run            only say what would go
""",
        help="trim the cache by age and size",
        description="Remove from the cache programs, inputs and digests that nothing has used for "
        "long, then those unused longest until it is small enough. What is missing is made again.",
    ),
    # SUITE is not missing for argparse: what `--run SUITE` means is told better by us.
    "check": Subcommand(
        run="workflow.suites.check",
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
        run="workflow.suites.new",
        arguments="""
NAME                 of the suite; a path to write it somewhere else
--dir DIR:path >place  folder to write NAME.toml and NAME/ into (default: here)
""",
        help="write an example that runs, to be changed by you",
    ),
}
COMMANDS = {
    "settings": Subcommand(
        run="workflow.machine.show_settings",
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
        run="workflow.machine.restore",
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
        run="workflow.machine.topo",
        arguments="""
MACHINE? >described  hwloc XML file, what numactl -H or lscpu -e printed, - (standard input), a
                     description such as 'pack:2 numa:4 core:8 pu:2', or nodes=4x24 (default: this
                     machine)
$ rater topo
$ rater topo machine.xml
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
        run="workflow.machine.counters",
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
        run="workflow.doctor.doctor",
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
        run=_list,
        arguments="$ rater suites\n$ rater suites show mini\n$ rater suites clean --size 5G",
        tables=True,
        description="List, show, build, check and begin suites.",
        actions=_SUITE_ACTIONS,
    ),
    "plan layouts": Subcommand(
        run=_LAYOUTS,
        arguments="$ rater plan layouts\n$ rater plan layouts show balanced",
        tables=True,
        description="List and show placement layouts.",
        actions={
            "list": Subcommand(
                run=_LAYOUTS, tables=True, help="the built-in layouts (also without ACTION)"
            ),
            "show": Subcommand(
                run="workflow.machine.show_layout",
                arguments="LAYOUT  name of a layout, path of a TOML file, list: or expr:",
                tables=True,
                help="a layout's file, to learn from and to go on from",
            ),
        },
    ),
    "completion": Subcommand(
        run=_print,
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
