"""`rater settings` and `rater restore`: the machine's settings, and putting them back."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater settings` and `rater restore`."""
    settings = subparsers.add_parser(
        "settings",
        help="what a sweep can set",
        description="Show the settings of the machine that `rater sweep --axis NAME=...` can set "
        "and puts back afterwards: what they are now and which values they take.",
    )
    settings.add_argument(
        "names", nargs="*", metavar="NAME", help="only these, and those below them (thp: thp.*)"
    )
    add_common(settings)
    settings.set_defaults(run=later("machine_settings", "show_settings"))
    restore = subparsers.add_parser(
        "restore",
        help="put settings back",
        description="Put back the settings of the machine that a sweep had changed when it was "
        "killed. `rater run` and `rater sweep` do so before they begin; other commands only warn.",
    )
    way = restore.add_mutually_exclusive_group()
    way.add_argument(
        "--force",
        action="store_true",
        help="also where somebody else has changed a setting since then",
    )
    way.add_argument(
        "--forget", action="store_true", help="leave everything as it is and drop the journal"
    )
    add_common(restore)
    restore.set_defaults(run=later("machine_settings", "restore"))
