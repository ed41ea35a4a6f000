"""`rater run`: resolve what was asked for, then show it (`--dry-run`) or do it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rater.commands.common import add_common, print_json
from rater.commands.request import add_run_arguments, request_from
from rater.errors import InputError

if TYPE_CHECKING:
    from rater.commands.resolve import Resolved
    from rater.record import StoredRun
    from rater.run.needs import Needs


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater run`."""
    parser = subparsers.add_parser(
        "run",
        help="run N copies side by side and record every copy's time",
        description="Run N copies of each benchmark at once, placed by the machine's topology. "
        "`rater run [SUITE[/BENCHMARK] ...]` or `rater run -- COMMAND ...`.",
    )
    add_run_arguments(parser)
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="run what is missing of a stored run, as it was asked for; refused where machine, "
        "settings, programs or suite changed since (--force: go on all the same)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show plan, order, time, memory, disk; run nothing",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no table")
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a suite or a command; return the exit status."""
    from rater.commands.resolve import needs_of, resolve
    from rater.commands.session import Session
    from rater.run import machine
    from rater.run.build import cache_root

    if args.resume is not None:
        from rater.commands.resume import resume

        return resume(args)
    request = request_from(args)
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            f"the current directory cannot be entered ({error.strerror}); cd to one that is there"
        ) from error
    resolved = resolve(request, machine.discover())
    cache = cache_root()
    if args.dry_run:
        return dry_run(args, resolved, needs_of(resolved, cache, ()))
    return Session(args, resolved, cache).run()


def dry_run(
    args: argparse.Namespace, resolved: Resolved, needs: Needs, again: StoredRun | None = None
) -> int:
    """Show a run that is not made, and what differs from the one it would repeat."""
    import shutil

    from rater.commands.plan import plan_view
    from rater.show.changes import changes_document, changes_text
    from rater.show.plan import Estimates, plan_document, print_plan

    warnings, problems = preflight_told(resolved)
    view = plan_view(
        resolved,
        Estimates(
            memory_bytes=needs.memory_bytes,
            memory_benchmark=needs.memory_benchmark,
            memory_available_bytes=needs.available.memory_bytes,
            disk_bytes=needs.disk_bytes,
            disk_available_bytes=needs.available.disk_bytes,
        ),
        warnings=warnings,
        refusals=(
            *(() if resolved.request.force else needs.problems),
            *problems,
            *_obstacles(args, resolved),
        ),
    )
    document = plan_document(view)
    said = ""
    if again is not None:
        from rater.commands.again import conditions_before_building, what_changed

        found = what_changed(again, conditions_before_building(resolved))
        document["differences"] = changes_document(found)
        number = again.head.run
        said = f"nothing that is known before building differs from run {number}"
        if found:
            said = f"differs from run {number}:{changes_text(found)}"
    if args.json:
        print_json(document)
        return 0
    print_plan(view, sys.stdout, shutil.get_terminal_size().columns)
    if said:
        print(said)
    return 0


def preflight_told(resolved: Resolved) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a run would warn of now, and what it would be refused for, one by one."""
    from rater.commands.surroundings import preflight_of

    found = preflight_of(resolved)
    if found is None:
        return (), ()
    if resolved.request.preflight == "strict":
        return found.unchecked, tuple(f"--preflight strict: {text}" for text in found.warnings)
    return found.warnings, ()


def program_problems(resolved: Resolved, planned: Mapping[str, str] | None = None) -> list[str]:
    """Return why programs of a run could not be found, built or given their pages.

    Nothing is made. `planned`: settings of the machine that will be set before.
    """
    from rater.commands.kit import kit_problems
    from rater.commands.tuning import refuse_pages
    from rater.run.build import find_command, find_compiler, missing_programs

    checks: list[Callable[[], object]] = [partial(refuse_pages, resolved.request, planned)]
    if resolved.request.wrap:
        checks.append(partial(find_command, resolved.request.wrap[0], "--wrap"))
    benchmarks = [workload.benchmark for workload in resolved.workloads]
    if any(benchmark.sources for benchmark in benchmarks):
        checks.append(find_compiler)
    found = [
        f"benchmark {w.benchmark.name}: {said}"
        for w in resolved.workloads
        for said in missing_programs(
            w.benchmark, w.size, has_setup=w.suite is not None and bool(w.suite.setup)
        )
    ]
    found += kit_problems([w.kit for w in resolved.workloads if w.kit], resolved.plan.copies)
    return list(dict.fromkeys([*found, *_said(checks)]))


def _obstacles(args: argparse.Namespace, resolved: Resolved) -> list[str]:
    """Try everything a run would be refused for, without making anything."""
    from rater.run.lock import default_lock_path, machine_lock
    from rater.store.database import default_path, is_there
    from rater.store.store import open_store

    def lock() -> None:
        path = default_lock_path()
        if path.exists():
            with machine_lock(path, "", share=resolved.request.share):
                pass

    def database() -> None:
        path = default_path(args.db)
        if is_there(path):
            open_store(path).close()

    return list(dict.fromkeys([*program_problems(resolved), *_said([lock, database])]))


def _said(checks: Sequence[Callable[[], object]]) -> list[str]:
    """Return what checks raise `InputError` for."""
    found = []
    for check in checks:
        try:
            check()
        except InputError as error:
            found.append(str(error))
    return found
