"""Collect what nodes have published: into the archive and its index, as often as one likes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from rater.plan.fleet.attempt import AttemptState, NodeAttempt
from rater.run.fleet.shared_folder import SharedFolder
from rater.store.fleet.admit import Admitted, admit
from rater.store.fleet.fleets import StoredAttempt, change, load_fleet
from rater.streams import say
from rater.text.words import count
from rater.workflow.fleet.step import Steps


def collected(steps: Steps, *, quiet: bool) -> int:
    """Admit every published database that was not; return how many had to be set aside.

    One that is damaged makes its attempt a lost one, which is tried again where attempts are left.
    """
    fleet = load_fleet(steps.store, steps.number)
    folder = SharedFolder(Path(fleet.asked.folder))
    added = aside = 0
    for row in (row for of_node in fleet.rows.values() for row in of_node):
        verdict = row.it.verdict
        if verdict is None or verdict.database is None or row.it.collected == verdict.sha256:
            continue
        file = folder.inbox / verdict.database
        if not file.exists():
            say(f"{row.it.node}: {file} is not there (yet)")
            continue
        with steps.store.writing("collecting") as connection:
            admission = admit(
                connection,
                file,
                fleet.number,
                row.it.node,
                row.it.attempt,
                expected_sha256=verdict.sha256,
            )
        if admission.outcome is Admitted.SET_ASIDE:
            say(f"{row.it.node}: {verdict.database} is set aside: {admission.reason}")
            folder.set_aside(row.it.node, row.it.attempt)
            why = f"the published database was set aside: {admission.reason}"
            _stored(steps, row, replace(row.it, state=AttemptState.LOST, reason=why, verdict=None))
            aside += 1
            continue
        added += admission.outcome in (Admitted.ADDED, Admitted.REPLACED)
        _stored(steps, row, replace(row.it, collected=verdict.sha256))
    if not quiet:
        say(f"{count(added, 'database')} collected" + (f", {aside} set aside" if aside else ""))
    return aside


def _stored(steps: Steps, row: StoredAttempt, now: NodeAttempt) -> None:
    change(steps.store, steps.number, [(row, now)], time.time())
