"""`--dry-run`: the plan, and whether the run would be refused."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from rater.record.stored import StoredRun
from rater.show.console.format import plain
from rater.show.plans.plan import Estimates, plan_document, print_plan
from rater.workflow.common import print_json
from rater.workflow.run.plan_view import plan_view
from rater.workflow.run.preflight import checked, obstacles
from rater.workflow.run.resolve import Resolved


def dry_run(
    args: argparse.Namespace, resolved: Resolved, cache: Path, again: StoredRun | None = None
) -> int:
    """Show a run that is not made, and what differs from the one it would repeat."""
    needs, warnings, refusals = checked(resolved, cache)
    estimates = Estimates(
        memory_bytes=needs.memory_bytes,
        memory_benchmark=needs.memory_benchmark,
        memory_available_bytes=needs.available.memory_bytes,
        disk_bytes=needs.disk_bytes,
        disk_available_bytes=needs.available.disk_bytes,
    )
    refusals = tuple(dict.fromkeys([*refusals, *obstacles(args, resolved)]))
    view = plan_view(resolved, estimates, warnings=warnings, refusals=refusals)
    document = plan_document(view) if args.json else {}
    if not args.json:
        print_plan(view, sys.stdout, shutil.get_terminal_size().columns)
    if again is not None:
        from rater.show.compare.changes import changes_document, changes_text
        from rater.workflow.doctor.mend import tuned_settings_of
        from rater.workflow.run.head import conditions_now
        from rater.workflow.run.repeat import what_changed

        planned, number = tuned_settings_of(resolved.request), again.head.run
        found = what_changed(again, conditions_now(resolved), planned)
        document["differences"] = changes_document(found)
        if not args.json:
            print(plain(f"in       {Path.cwd()}"))
            print(
                f"differs from run {number}:{changes_text(found)}"
                if found
                else f"nothing that is known before building differs from run {number}"
            )
    if args.json:
        print_json(document)
    return 0
