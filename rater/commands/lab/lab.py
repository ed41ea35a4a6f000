"""`rater lab`: whole studies by one command."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, add_doing, add_file, later
from rater.commands.lab.model import add_y
from rater.workflow.run_arguments import add_run_arguments

_PAGES = """\
Sweep page layouts over a suite (default: pages) or a command and report what
a study of page sizes needs: speedups over base pages with geometric means, the
memory of a copy, where the cycles go (--counters cpi), models of time and
energy with their errors, as a summary and as one page. Layouts are compared
with 0%, never with no library."""


def register(subparsers: Subparsers) -> None:
    """Declare `rater lab`."""
    parser = subparsers.add_parser(
        "lab", help="study of page sizes", description="Run a whole study."
    )
    actions = parser.add_subparsers(dest="action", metavar="STUDY", required=True)
    pages = actions.add_parser(
        "pages",
        help="what page sizes do to a suite or a command",
        description=_PAGES,
    )
    add_run_arguments(pages)
    study = pages.add_argument_group("the study")
    study.add_argument(
        "--layouts",
        metavar="LAYOUT,...",
        help="as --pages takes them, 0%% among them; default: nine from 0%% to 100%%",
    )
    add_y(study)
    study.add_argument("--rounds", type=int, metavar="N", help="default 6")
    study.add_argument(
        "--quick",
        action="store_true",
        help="size test, four layouts, two rounds: about a minute, to see that all works",
    )
    study.add_argument("--show", metavar="SWEEP", help="of a sweep that is stored; runs nothing")
    study.add_argument("--skip-refused", action="store_true", help="leave out what cannot run")
    study.add_argument(
        "--stop-on-failure", action="store_true", help="stop when a copy failed; else it goes on"
    )
    add_doing(study, "show all layouts; run nothing", "no progress, no summary")
    add_file(study, "the page (default: rater-lab-pages-SWEEP.html)")
    add_common(pages)
    pages.set_defaults(
        run=later("models.lab", "lab_pages"),
        block_order=None,
        seed=None,
        until=None,
        axis=[],
        verbose=False,
        listing=False,
        example=False,
        resume=None,
    )
