"""Pages of the reference that mkdocs builds from the code, so that none can be out of date."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from rater.commands.cli import MENU, build_parser
from rater.commands.command_line import Parser, shown_actions, subparsers_of
from rater.settings.known import SETTABLE

ROOT = Path(__file__).parent.parent
_OF_HELP = re.compile(r"%%")


def on_config(config: Any) -> Any:
    """Put the pages that are made, and those that lie in the folder, into the navigation."""
    docs = Path(config.docs_dir)
    made = [{title.capitalize(): [_page(name) for name in names]} for title, names in MENU.items()]
    written = sorted(str(it.relative_to(docs)) for it in (docs / "reference").glob("*.md"))
    for part in config.nav:
        if part.get("Reference") == "reference/":
            part["Reference"] = [
                *written,
                {"Database": "reference/database.md"},
                {"Settings": "reference/settings.md"},
                {"Commands": made},
            ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    pages = {_page(name): _command(name, it) for name, it in _commands()}
    pages["reference/database.md"] = _database()
    pages["reference/settings.md"] = _settings()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def _page(command: str) -> str:
    return f"reference/commands/{command.replace(' ', '-')}.md"


def _commands() -> list[tuple[str, argparse.ArgumentParser]]:
    return list(subparsers_of(build_parser()).items())


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    return "\n".join([f"# rater {name}", "", *_described(parser, 2)]) + "\n"


def _described(parser: Parser, level: int) -> Iterator[str]:
    if parser.description:
        yield from (parser.description, "")
    usage = parser.format_usage().removeprefix("usage: ")
    yield from ("```text", usage.rstrip(), "```", "")
    for group in parser._action_groups:
        actions = [
            it
            for it in group._group_actions
            if it in [*shown_actions(parser)] and it.dest != "help"
        ]
        if not actions:
            continue
        title = (group.title or "options").capitalize().removeprefix("Positional ").capitalize()
        yield from (f"{'#' * level} {title}", "")
        for action in actions:
            yield from (_typed(action), f":   {_OF_HELP.sub('%', action.help or '')}", "")
    for name, sub in subparsers_of(parser).items():
        yield from (f"{'#' * level} {parser.prog.split()[-1]} {name}", "")
        yield from _described(sub, level + 1)
    if parser.epilog:
        yield from (parser.epilog, "")
    if parser.examples:
        yield from (f"{'#' * level} Examples", "", "```sh", *parser.examples, "```", "")


def _typed(action: argparse.Action) -> str:
    names = action.option_strings or [""]
    values = action.metavar if isinstance(action.metavar, str) else None
    if values is None and action.choices is not None:
        values = "|".join(map(str, action.choices))
    value = "" if action.nargs == 0 else values or action.dest.upper()
    if action.nargs in ("?", "*") and value:
        value = f"[{value}]"
    return ", ".join(f"`{f'{name} {value}'.strip()}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _database() -> str:
    lines = [
        "# The database",
        "",
        "One SQLite file. The views are the place to begin; the queries run in the `sqlite3` shell "
        "as they are. `db/schema.sql` is schema 9; each migration after it changes it as shown.",
        "",
    ]
    for title, folder in (("Views", "views"), ("Queries", "queries")):
        lines += [f"## {title}", ""]
        for path in sorted((ROOT / "db" / folder).glob("*.sql")):
            lines += [f"### {path.stem}", "", "```sql", path.read_text().strip(), "```", ""]
    lines += [
        "## Tables",
        "",
        "```sql",
        (ROOT / "db" / "schema.sql").read_text().strip(),
        "```",
        "",
    ]
    lines += ["## Migrations", ""]
    for path in sorted((ROOT / "db" / "migrations").glob("*.sql")):
        lines += [f"### {path.stem}", "", "```sql", path.read_text().strip(), "```", ""]
    return "\n".join(lines)


def _settings() -> str:
    lines = [
        "# Settings of the machine",
        "",
        "What `rater sweep --axis NAME=...` can set and puts back ([how](../how-to/settings.md)); "
        "`rater settings` lists those that a machine has.",
        "",
        "| setting | what it is | where |",
        "|---|---|---|",
    ]
    for one in SETTABLE:
        where = ", ".join(f"`/{path}`" for path in one.files)
        lines.append(f"| `{one.name}` | {_cell(one.what)} | {where} |")
    return "\n".join(lines) + "\n"
