"""What Datasette shows beside a database of rater: `make freeze` writes `db/datasette.json`.

Descriptions are the comments of the schema and its steps, the queries those of `db/queries/`.
https://docs.datasette.io/en/stable/metadata.html
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rater.store.rows import migrations
from rater.system.paths import data_folder

NAME = "datasette.json"
_COMMENTED = re.compile(
    r"((?:^--[^\n]*\n)*)^CREATE (TABLE|VIEW) (\w+)(?: \(\n(.*?)^\))?", re.M | re.S
)
_PARAMETER = re.compile(r"(?<!set )(:run|:sweep)\b")  # one that is not given is an empty text
_COLUMN = re.compile(r"^  (\w+) +[A-Z]+\b(?:(?!--).)*(?:-- *(.*))?$")
_MORE = re.compile(r"^ {10,}-- *(.*)$")


def metadata(db: Path) -> dict[str, Any]:
    """Return the document for a database called `rater`."""
    tables: dict[str, dict[str, Any]] = {}
    files = [db / "schema.sql", *migrations(db).values(), *sorted((db / "views").glob("*.sql"))]
    for file in files:
        for above, _, name, body in _COMMENTED.findall(file.read_text()):
            table: dict[str, Any] = {"description": _joined(above)}
            columns = dict(_columns(body or ""))
            if columns:
                table["columns"] = columns
            tables[name] = table
    queries = {
        file.stem: {"title": title, "sql": _PARAMETER.sub(r"nullif(\1, '')", sql)}
        for file in sorted((db / "queries").glob("*.sql"))
        for title, sql in [_query(file.read_text())]
    }
    return {
        "title": "rater",
        "description": "Throughput runs of many copies: begin with the views run_summary, "
        "bracket_result and lgroup_time. Times ending in _ns are nanoseconds from the run's "
        "first release.",
        "databases": {"rater": {"tables": tables, "queries": queries}},
    }


def metadata_text(db: Path) -> str:
    """Return what the file holds."""
    return json.dumps(metadata(db), indent=1, ensure_ascii=False) + "\n"


def _joined(comment: str) -> str:
    return " ".join(line.removeprefix("--").strip() for line in comment.splitlines())


def _columns(body: str) -> list[tuple[str, str]]:
    columns: list[tuple[str, str]] = []
    for line in body.splitlines():
        column, more = _COLUMN.match(line), _MORE.match(line)
        if column and column[2]:
            columns.append((column[1], column[2]))
        elif more and columns:
            columns[-1] = (columns[-1][0], f"{columns[-1][1]} {more[1]}")
    return columns


def _query(sql: str) -> tuple[str, str]:
    comments = [line for line in sql.splitlines() if line.startswith("--")]
    title = comments[0].removeprefix("--").strip() if comments else ""
    return title, sql


def write() -> None:
    """Write the file."""
    db = data_folder("db")
    (db / NAME).write_text(metadata_text(db), encoding="utf-8")


if __name__ == "__main__":
    write()
