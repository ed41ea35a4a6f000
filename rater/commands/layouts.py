"""`rater layouts`: list and show placement layouts."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater layouts` and its subcommands."""
    layouts = subparsers.add_parser(
        "layouts", help="how copies are placed", description="List and show placement layouts."
    )
    layouts.set_defaults(run=later("layouts", "list_layouts"))
    add_common(layouts)
    actions = layouts.add_subparsers(dest="action", metavar="ACTION")

    listing = actions.add_parser("list", help="the built-in layouts (also without ACTION)")
    listing.set_defaults(run=later("layouts", "list_layouts"))
    add_common(listing)

    show = actions.add_parser("show", help="a layout's file, to learn from and to go on from")
    show.add_argument(
        "layout", metavar="LAYOUT", help="name of a layout, path of a TOML file, list: or expr:"
    )
    show.set_defaults(run=later("layouts", "show_layout"))
    add_common(show)
