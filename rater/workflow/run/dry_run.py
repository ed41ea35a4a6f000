"""`--dry-run`: the plan, and whether the run would be refused."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rater.workflow.common import print_json
from rater.workflow.run.obstacles import obstacles, preflight_told

if TYPE_CHECKING:
    from rater.record.stored import StoredRun
    from rater.run.host.requirements import Needs
    from rater.workflow.run.resolve import Resolved


def dry_run(
    args: argparse.Namespace, resolved: Resolved, needs: Needs, again: StoredRun | None = None
) -> int:
    """Show a run that is not made, and what differs from the one it would repeat."""
    import shutil

    from rater.show.compare.changes import changes_document, changes_text
    from rater.show.plans.plan import Estimates, plan_document, print_plan
    from rater.workflow.run.plan_view import plan_view

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
            *obstacles(args, resolved),
        ),
    )
    document = plan_document(view)
    said = ""
    if again is not None:
        from rater.workflow.run.repeat import conditions_before_building, what_changed

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
