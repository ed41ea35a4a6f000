"""`rater paths`: where rater keeps and looks for its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rater.plan.suite_find import suite_folders
from rater.run.host.admission import default_lock_path
from rater.run.programs.compile import cache_root
from rater.store.connection import default_path
from rater.system.paths import data_folder, default_journal_path, exists, user_folder
from rater.workflow.arguments import Output, print_view


def show_paths(output: Output) -> int:
    """Print the place of each kind of file, what sets it, and whether it is there."""
    from rater.show.screen.document import TEXT, Field, ViewTable

    rows = [*_places(output)]
    document = [
        {"files": files, "path": str(path), "set_by": variable, "exists": exists(path)}
        for files, path, variable in rows
    ]
    table = ViewTable(
        title="",
        rows=document,
        fields=(
            Field(heading="files", value=lambda row: row["files"], form=TEXT),
            Field(heading="path", value=lambda row: row["path"], form=TEXT, flexible=True),
            Field(heading="there", value=lambda row: "yes" if row["exists"] else "no", form=TEXT),
            Field(heading="set by", value=lambda row: row["set_by"], form=TEXT),
        ),
    )
    print_view(output, document, lambda _: [table])
    return 0


def _places(output: Output) -> Iterator[tuple[str, Path, str]]:
    """Yield the kind of files, their place, and the variable that sets it."""
    yield "database", default_path(output.db), "RATER_DB"
    yield "cache", cache_root(), "RATER_CACHE"
    named, config = os.environ.get("RATER_CONFIG"), user_folder("CONFIG")
    if named:
        yield "defaults", Path(named), "RATER_CONFIG"
    elif named is None:
        yield "defaults here", Path.cwd() / "rater.toml", "RATER_CONFIG"
        if config is not None:
            yield "defaults of the user", config / "config.toml", "RATER_CONFIG"
    for folder in suite_folders():
        yield "suites", folder, "RATER_SUITES"
    yield "lock of the machine", default_lock_path(), "RATER_LOCK"
    yield "journal of settings", default_journal_path(), "RATER_JOURNAL"
    for name in ("suites", "layouts", "db"):
        yield f"built-in {name}", data_folder(name), "-"
