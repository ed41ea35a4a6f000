"""`rater layouts`: the built-in ones, and one as its file."""

from __future__ import annotations

import argparse

from rater.errors import InputError
from rater.plan.placement.layout import (
    EXPLICIT,
    layout_names,
    layout_path,
    layout_text,
    load_layout,
    parse_layout,
)
from rater.show.console.page import standard_page
from rater.show.plans.layouts import (
    ListedLayout,
    file_text,
    layout_json,
    layouts_json,
    layouts_text,
    written_text,
)
from rater.workflow.common import print_json


def list_layouts(args: argparse.Namespace) -> int:
    """Print the built-in layouts, and what is wrong with those that do not read."""
    found = []
    for name in layout_names():
        path = layout_path(name)
        try:
            found.append(ListedLayout(name, path, load_layout(name), None))
        except InputError as error:
            found.append(ListedLayout(name, path, None, str(error)))
    if args.json:
        print_json(layouts_json(found))
    else:
        print(layouts_text(found, standard_page()))
    return 0


def show_layout(args: argparse.Namespace) -> int:
    """Print a layout that reads; one that does not is an error with all its mistakes."""
    if args.layout.partition(":")[0] in EXPLICIT and ":" in args.layout:
        layout, path = load_layout(args.layout), None
        text = written_text(layout)
    else:
        path = layout_path(args.layout)
        read = layout_text(path)
        layout, text = parse_layout(read, path), file_text(read, path, standard_page())
    if args.json:
        print_json(layout_json(layout, path))
    else:
        print(text)
    return 0
