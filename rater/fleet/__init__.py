"""Measurements on many machines: their jobs, merged databases, history."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the core asks for is what it says
    from rater.fleet import merge
    from rater.workflow.results.stored import Merge

    MERGE: Merge = merge
