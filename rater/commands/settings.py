"""`rater settings` and `rater restore`: the machine's settings, and putting them back."""

from __future__ import annotations

import argparse
import shutil
import sys

from rater.commands.common import add_common
from rater.workflow.common import print_json


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater settings` and `rater restore`."""
    settings = subparsers.add_parser(
        "settings",
        help="the machine's settings that a sweep can set, and what they are now",
        description="Show the settings of the machine that `rater sweep --axis NAME=...` can set "
        "and puts back afterwards: what they are now and which values they take.",
    )
    settings.add_argument(
        "names", nargs="*", metavar="NAME", help="only these, and those below them (thp: thp.*)"
    )
    add_common(settings)
    settings.set_defaults(run=_settings)
    restore = subparsers.add_parser(
        "restore",
        help="put back settings that a killed sweep left changed",
        description="Put back the settings of the machine that a sweep had changed when it was "
        "killed. `rater run` and `rater sweep` do so before they begin; other commands only tell.",
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
    restore.set_defaults(run=_restore)


def _settings(args: argparse.Namespace) -> int:
    from rater.settings.catalog import find, knobs, lacking
    from rater.settings.paths import journal_paths, sysroot
    from rater.show.plans.settings import Row, settings_document, settings_text
    from rater.show.plans.suite import Page

    root = sysroot()
    here = knobs(root)
    if args.names:
        wanted = [find(name, root).name for name in args.names]
        here = tuple(
            knob
            for knob in here
            if any(knob.name == name or knob.name.startswith(f"{name}.") for name in wanted)
        )
    rows = [
        Row(
            name=knob.name,
            also=knob.also,
            group=knob.group,
            what=knob.what,
            now=knob.read().text,
            choices=knob.choices,
            least=knob.least,
            most=knob.most,
            obstacle=knob.obstacle(),
            files=tuple((str(root / file), value) for file, value in knob.read().files),
        )
        for knob in here
    ]
    absent = [] if args.names else [(one.names, one.why) for one in lacking(root)]
    if args.json:
        print_json(settings_document(rows, absent, [str(path) for path in journal_paths()]))
        return 0
    ascii_only = not (sys.stdout.encoding or "ascii").lower().startswith("utf")
    page = Page(shutil.get_terminal_size().columns, ascii_only)
    print(settings_text(rows, absent, page, detailed=bool(args.names)))
    return 0


def _restore(args: argparse.Namespace) -> int:
    from rater.settings.paths import is_there, journal_paths, sysroot
    from rater.settings.recover import forget, recover

    root = sysroot()
    said: list[str] = []
    done = True
    found = [path for path in journal_paths() if is_there(path)]
    for path in found:
        if args.forget:
            said.append(f"all is left as it is; what was there is in {forget(root, path)}")
        else:
            done = recover(root, path, said.append, force=args.force) and done
    if not found:
        said.append("nothing to put back: no sweep left settings changed")
    if args.json:
        paths = [str(path) for path in journal_paths()]
        print_json({"journals": paths, "restored": done, "said": said})
    else:
        print("\n".join(said))
    return 0 if done else 1
