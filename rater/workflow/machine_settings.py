"""`rater settings` and `rater restore`: what the machine can be set to, and putting it back."""

from __future__ import annotations

import argparse

from rater.settings.catalog import find, lacking, present_settings
from rater.settings.paths import is_there, journal_paths, sysroot
from rater.settings.recover import forget, recover
from rater.show.console.page import standard_page
from rater.show.plans.settings import SettingRow, settings_document, settings_text
from rater.workflow.common import print_json


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
