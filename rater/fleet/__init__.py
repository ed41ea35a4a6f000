"""Measurements on many machines: their jobs, merged databases, history."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the core asks for is what it says
    from rater.commands.results import FleetWords
    from rater.fleet import merge, slow_hosts
    from rater.workflow.results.stored import Merge

    MERGE: Merge = merge
    FLEET_WORDS: FleetWords = slow_hosts
