"""`rater layouts`: list and show placement layouts."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from rater.commands.common import add_common
from rater.workflow.common import print_json

if TYPE_CHECKING:
    from rater.show.plans.suite import Page


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater layouts` and its subcommands."""
    layouts = subparsers.add_parser("layouts", help="list and show placement layouts")
    layouts.set_defaults(run=_list)
    add_common(layouts)
    actions = layouts.add_subparsers(dest="action", metavar="ACTION")

    listing = actions.add_parser("list", help="the built-in layouts (also without ACTION)")
    listing.set_defaults(run=_list)
    add_common(listing)

    show = actions.add_parser("show", help="a layout's file, to learn from and to go on from")
    show.add_argument(
        "layout", metavar="LAYOUT", help="name of a layout, path of a TOML file, list: or expr:"
    )
    show.set_defaults(run=_show)
    add_common(show)


def _list(args: argparse.Namespace) -> int:
    from rater.errors import InputError
    from rater.plan.placement.layout import layout_names, layout_path, load_layout
    from rater.show.plans.layouts import Listed, layouts_json, layouts_text

    found = []
    for name in layout_names():
        path = layout_path(name)
        try:
            found.append(Listed(name, path, load_layout(name), None))
        except InputError as error:
            found.append(Listed(name, path, None, str(error)))
    if args.json:
        print_json(layouts_json(found))
    else:
        print(layouts_text(found, _page()))
    return 0


def _show(args: argparse.Namespace) -> int:
    """Show a layout that reads; one that does not is an error with all its mistakes."""
    from rater.plan.placement.layout import (
        WRITTEN,
        layout_path,
        layout_text,
        load_layout,
        parse_layout,
    )
    from rater.show.plans.layouts import file_text, layout_json, written_text

    if args.layout.partition(":")[0] in WRITTEN and ":" in args.layout:
        layout = load_layout(args.layout)
        path, said = None, written_text(layout)
    else:
        path = layout_path(args.layout)
        text = layout_text(path)
        layout, said = parse_layout(text, path), file_text(text, path, _page())
    if args.json:
        print_json(layout_json(layout, path))
    else:
        print(said)
    return 0


def _page() -> Page:
    """Return what fits on standard output: the terminal, COLUMNS, or 80 characters."""
    from rater.show.plans.suite import Page

    ascii_only = not (sys.stdout.encoding or "ascii").lower().startswith("utf")
    return Page(shutil.get_terminal_size().columns, ascii_only)
