"""`rater doctor`: this machine read, judged and shown; or mended for the time of a command."""

from __future__ import annotations

import argparse
from dataclasses import replace

from rater.analysis.doctor.examine import CHECKS, examine, facts_of_run, tuned_settings
from rater.analysis.doctor.model import DoctorFinding
from rater.errors import InputError
from rater.run.host.memory import pool_rooms
from rater.settings.paths import sysroot
from rater.show.console.page import standard_page
from rater.show.doctor.findings import DoctorView, doctor_document, doctor_text
from rater.workflow.common import existing_store, print_json
from rater.workflow.doctor.facts import facts_now, names_here


def doctor(args: argparse.Namespace) -> int:
    """Show what was found; 0 whatever it is: `--json` has the counts."""
    if args.fix:
        return _fix(args)
    if args.command is not None:
        raise InputError("a command behind `--` belongs to --fix: rater doctor --fix -- COMMAND")
    view = _of_run(args) if args.run_of else _now(with_load=True)
    findings = _named(view.findings, args.checks)
    if args.json:
        print_json(doctor_document(view))
        return 0
    detailed = bool(args.checks) or args.verbose
    shown = replace(view, findings=findings)
    if args.checks:
        shown = replace(shown, rooms=(), tuned={})
    print(doctor_text(shown, standard_page(), detailed=detailed))
    return 0


def _fix(args: argparse.Namespace) -> int:
    if args.checks or args.run_of or args.json:
        raise InputError("--fix takes a command behind `--` and nothing else")
    from rater.workflow.doctor.mend import fix

    return fix(args)


def _now(*, with_load: bool) -> DoctorView:
    root = sysroot()
    findings = examine(facts_now(root, with_load=with_load))
    tuned = tuned_settings(findings, names_here(root))
    return DoctorView(findings, pool_rooms(root / "proc", root / "sys"), tuned, "this machine")


def _of_run(args: argparse.Namespace) -> DoctorView:
    with existing_store(args) as store:
        run = store.load(store.find(args.run_of))
    return DoctorView(examine(facts_of_run(run)), (), {}, f"the machine of run {run.head.run}")


def _named(findings: tuple[DoctorFinding, ...], names: list[str]) -> tuple[DoctorFinding, ...]:
    known = {check.name.lower(): check.name for check in CHECKS}
    wanted = {known.get(name.lower()) for name in names}
    for name in names:
        if name.lower() not in known:
            raise InputError(f"{name}: no such check; there are: {', '.join(known.values())}")
    return tuple(one for one in findings if not names or one.check in wanted)
