"""`rater rerun RUN`: make a new run of what a stored one was asked for."""

from __future__ import annotations

from rater.commands.common import (
    Subparsers,
    add_common,
    add_doing,
    add_force_and_share,
    add_run_word,
    add_verbose,
    later,
)
from rater.plan.request.request import BY_NAME
from rater.workflow.run_arguments import add_option


def register(subparsers: Subparsers) -> None:
    """Declare `rater rerun`."""
    parser = subparsers.add_parser(
        "rerun",
        help="a stored run once more",
        description="Make a new run of what a stored one was asked for: the same suite or "
        "command in the same directory, as many copies, every option; and report what differs.",
    )
    add_run_word(parser)
    add_option(parser, BY_NAME["tag"], "one more, or another value")
    add_force_and_share(parser)
    add_doing(parser, "show what differs, and the plan", "no progress, no table")
    add_verbose(parser)
    add_common(parser)
    parser.set_defaults(run=later("run.begin", "rerun"))
