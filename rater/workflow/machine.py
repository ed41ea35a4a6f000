"""What the machine is and can be set to: `rater topo`, `layouts`, `settings`, `restore`."""

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
from rater.run.host import discover as machine
from rater.run.host.memory import lgroups_now
from rater.settings.catalog import find, lacking, present_settings
from rater.settings.paths import is_there, journal_paths, sysroot
from rater.settings.recover import forget, recover
from rater.show.console.page import standard_page
from rater.show.plans.layouts import (
    ListedLayout,
    file_text,
    layout_json,
    layouts_json,
    layouts_text,
    written_text,
)
from rater.show.plans.settings import SettingRow, settings_document, settings_text
from rater.show.plans.topology import topo_lines
from rater.show.plans.topology_json import topo_document
from rater.show.plans.topology_view import TopoView
from rater.workflow.common import print_json


def topo(args: argparse.Namespace) -> int:
    """Print this machine, or one from a file or a description."""
    if args.machine is None:
        view = TopoView(machine.discover(), lgroups_now())
    else:
        view = TopoView(machine.load(args.machine))
    if args.json:
        print_json(topo_document(view))
    else:
        page = standard_page()
        print("\n".join(topo_lines(view, page.width, ascii_only=page.ascii_only)))
    return 0


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


def show_settings(args: argparse.Namespace) -> int:
    """Print the settings that a sweep can set, and what they are now."""
    root = sysroot()
    here = present_settings(root)
    if args.names:
        wanted = [find(name, root).name for name in args.names]
        here = tuple(
            setting
            for setting in here
            if any(setting.name == name or setting.name.startswith(f"{name}.") for name in wanted)
        )
    rows = [
        SettingRow(
            name=setting.name,
            also=setting.also,
            group=setting.group,
            what=setting.what,
            now=setting.read().text,
            choices=setting.choices,
            least=setting.least,
            most=setting.most,
            obstacle=setting.obstacle(),
            files=tuple((str(root / file), value) for file, value in setting.read().files),
        )
        for setting in here
    ]
    absent = [] if args.names else [(one.names, one.why) for one in lacking(root)]
    if args.json:
        print_json(settings_document(rows, absent, [str(path) for path in journal_paths()]))
    else:
        print(settings_text(rows, absent, standard_page(), detailed=bool(args.names)))
    return 0


def restore(args: argparse.Namespace) -> int:
    """Put back what a killed sweep left changed; 1 where something could not be."""
    root = sysroot()
    messages: list[str] = []
    done = True
    found = [path for path in journal_paths() if is_there(path)]
    for path in found:
        if args.forget:
            messages.append(f"all is left as it is; what was there is in {forget(root, path)}")
        else:
            done = recover(root, path, messages.append, force=args.force) and done
    if not found:
        messages.append("nothing to put back: no sweep left settings changed")
    if args.json:
        paths = [str(path) for path in journal_paths()]
        print_json({"journals": paths, "restored": done, "said": messages})
    else:
        print("\n".join(messages))
    return 0 if done else 1
