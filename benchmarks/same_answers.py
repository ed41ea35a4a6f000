"""Whether this checkout gives the same answers as an older one.

`python -m benchmarks.same_answers --old CHECKOUT [--keep DIR] [--only PATTERN] [--full] [--texts]`,
called in the new checkout, makes a database of runs of every kind with the old code (once, in DIR),
asks old and new code the same two thousand questions about a copy of it, about machines, suites
and layouts, lets both make a few runs, and compares line by line. The old checkout needs its
`.venv`; the new code runs by the interpreter that runs this. JSON (numbers to 12 digits), data
(CSV, raw files), exit statuses and what is in the databases afterwards must be equal: exit status 1
where they are not. Texts may be worded anew, unless `--texts`: differences are shown, not counted.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import html
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.same_answers_asked import Question, questions
from benchmarks.same_answers_runs import environment, make_runs

# What a reading of the moment, or a page's size, is called in JSON: that it is there is compared.
VARYING = re.compile(r"\.(memory|disk)_available_bytes$|\.now\.\w+$|^\$\.bytes$")
# The same in texts and data: what matches becomes the word behind it.
VARYING_TEXT = (
    (re.compile(r"[\d.]+ (.B) (available|free)\)"), r"N \1 \2)"),
    # What `topo` says of this moment's memory, a line for each lgroup.
    (re.compile(r"(?<=\nmemory now\n)(.+\n)+"), "(varies)\n"),
)
# The same of columns, as TABLE.COLUMN: of databases, and of one where both made runs of their own.
VARYING_COLUMNS = re.compile(r"\.(stored|searched)_at$")
LIVE_COLUMNS = re.compile(
    r"_(ns|at|bytes|faults|switches|start|id|cpus?|dir)$|\.(uuid|pid)$"
    r"|^(setting|copy_metric)\.value$|^copy\.placement"
)
# Tables with a row for each look at a machine.
SAMPLED = ("cpu_reading", "divot", "divot_search", "note", "observed", "phase_reading", "sample")

SIDES = ("old", "new")
CODE = ("rater", "suites", "layouts", "db")
MOST_SHOWN = 8  # differences of one answer, and lines of a text's, without --full
SLOWEST_S = 120  # one question

# Runs in each checkout: `main` is called in a fork for each question, so that all is imported once.
DRIVER = """
import gc, importlib, json, os, pkgutil, signal, sys, traceback
from pathlib import Path

sys.path.insert(0, str(Path.cwd().parent / "code"))
import rater, rater.cli

assert Path(rater.__file__).is_relative_to(Path.cwd().parent / "code"), rater.__file__
for module in pkgutil.walk_packages(rater.__path__, "rater."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
gc.freeze()
told = []
for number, words in enumerate(json.load(open("../questions.json"))):
    child = os.fork()
    if not child:
        signal.alarm(int(sys.argv[1]))
        for descriptor, end in ((1, "out"), (2, "err")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(f"../answers/{number}.{end}", flags, 0o644), descriptor)
        try:
            status = rater.cli.main(words)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
            status = 70
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)
    _, status, used = os.wait4(child, 0)
    told.append((os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
json.dump(told, open("../told.json", "w"))
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question came to in one checkout."""

    status: int
    out: str
    err: str
    used_s: float  # of a CPU


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--old", metavar="CHECKOUT", type=Path, required=True)
    parser.add_argument("--keep", metavar="DIR", type=Path, help="where the runs are, or are made")
    parser.add_argument("--only", metavar="PATTERN", help="questions with this in them (or glob)")
    parser.add_argument("--full", action="store_true", help="show all of each difference")
    parser.add_argument("--texts", action="store_true", help="texts must be equal, too")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else folder and drivers would stay
    with tempfile.TemporaryDirectory(prefix="same-answers-", ignore_cleanup_errors=True) as folder:
        work = Path(folder).resolve()
        keep = (args.keep or work / "keep").resolve()
        old = args.old.resolve()
        make_runs(old, keep)
        asked = [it for it in questions(keep) if _wanted(it, args.only)]
        begin = time.monotonic()
        if not _ask_both(work, old, keep, asked):
            print("a driver failed: is the code there, and does it import?", file=sys.stderr)
            return 2
        told = Comparison(args.full, args.texts)
        before, after = (_answers(work / side) for side in SIDES)
        for question, *answers in zip(asked, before, after, strict=True):
            told.compare(question, *answers)
        for name in ("runs.db", "other.db", "texts.db", "live.db"):
            tables = (leaves(_tables(work / side, name)) for side in SIDES)
            told.settle("databases", name, *tables)
        statuses = Counter(it.status for it in after).most_common()
        with closing(sqlite3.connect(keep / "runs.db")) as db:
            runs = db.execute("SELECT count(*) FROM run").fetchone()[0]
        print(f"\n{runs} runs, {len(asked)} commands in each checkout", end="; ")
        print(", ".join(f"{count} exited {status}" for status, count in statuses), end="; ")
        print(f"{time.monotonic() - begin:.0f} s, of a CPU {sum(it.used_s for it in after):.0f} s")
        return told.summary()


def _wanted(question: Question, pattern: str | None) -> bool:
    return pattern is None or pattern in question.name or fnmatch.fnmatch(question.name, pattern)


def _ask_both(work: Path, old: Path, keep: Path, asked: list[Question]) -> bool:
    """Ask both checkouts at once; tell whether they got to the end."""
    new = Path(__file__).resolve().parents[1]
    drivers = [
        _begun(work / "old", old, str(old / ".venv/bin/python"), keep, asked),
        _begun(work / "new", new, sys.executable, keep, asked),
    ]
    try:
        return not any([driver.wait() for driver in drivers])
    finally:
        for driver in drivers:
            driver.kill()


def _begun(
    side: Path, code: Path, python: str, keep: Path, asked: list[Question]
) -> subprocess.Popen[bytes]:
    """Start the driver on a copy of the code and of the runs.

    Both checkouts' copies have paths of one length, so that texts wrap alike.
    """
    here = side / "here"
    for folder in (here, side / "answers"):
        folder.mkdir(parents=True)
    for part in CODE:
        shutil.copytree(code / part, side / "code" / part)
    shutil.copy(keep / "runs.db", here)
    shutil.copytree(keep / "cache", here / "cache")
    (side / "questions.json").write_text(json.dumps([it.words for it in asked]))
    command = [python, "-P", "-c", DRIVER, str(SLOWEST_S)]
    env = os.environ | environment(here)
    return subprocess.Popen(command, cwd=here, env=env, stdin=subprocess.DEVNULL)


def _answers(side: Path) -> list[Answer]:
    answers = []
    for number, (status, used_s) in enumerate(json.loads((side / "told.json").read_text())):
        texts = (side / f"answers/{number}.{end}" for end in ("out", "err"))
        out, err = (settled(it.read_text(errors="replace"), side) for it in texts)
        answers.append(Answer(status, out, err, used_s))
    return answers


def settled(text: str, side: Path) -> str:
    """Return a text without what is different in each checkout or at each moment."""
    text = text.replace(str(side), "<side>")
    for pattern, word in VARYING_TEXT:
        text = pattern.sub(word, text)
    return text


def _tables(side: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of a database that is there, those of a table sorted."""
    database = side / "here" / name
    if not database.exists():
        return {}
    varying = LIVE_COLUMNS if name == "live.db" else VARYING_COLUMNS
    with closing(sqlite3.connect(database)) as db:
        names = [it for (it,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {it: _rows(db, it, varying, side) for it in sorted(names)}
    if name == "live.db":
        return {it: rows for it, rows in tables.items() if it not in SAMPLED}
    return tables


def _rows(
    db: sqlite3.Connection, table: str, varying: re.Pattern[str], side: Path
) -> list[dict[str, Any]]:
    found = db.execute(f"SELECT * FROM {table}")
    columns = [it[0] for it in found.description]
    hidden = {it for it in columns if varying.search(f"{table}.{it}")}
    rows = [
        {
            column: "varies" if column in hidden and value is not None else _stored(value, side)
            for column, value in zip(columns, row, strict=True)
        }
        for row in found
    ]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def _stored(value: Any, side: Path) -> Any:
    """Return a value without its checkout, JSON that is stored as text as what it says."""
    if not isinstance(value, str):
        return value
    text = settled(value, side)
    return _document(text) if text.startswith("{") else text


class Comparison:
    """What was compared so far."""

    def __init__(self, full: bool, texts: bool) -> None:
        self._full, self._soft = full, () if texts else ("texts",)
        self._counts: Counter[str] = Counter()

    def compare(self, question: Question, before: Answer, after: Answer) -> None:
        """Compare two answers by the kind of question."""
        name, both = question.name, (before, after)
        self.settle("statuses", name, *([f"exit {it.status}"] for it in both))
        self.settle("outputs", name, *(["something" if it.out else "nothing"] for it in both))
        if question.kind == "run":
            return
        outs = [it.out for it in both]
        if question.kind == "page":
            self.settle(
                "JSON documents", f"{name} (data)", *(leaves(_page_data(it)) for it in outs)
            )
            outs = [_page_text(it) for it in outs]
        if question.kind == "json":
            self.settle("JSON documents", name, *(leaves(_document(it)) for it in outs))
        else:
            what = "data" if question.kind == "data" else "texts"
            self.settle(what, name, *(it.splitlines() for it in outs))
        self.settle("texts", f"{name} (stderr)", *(it.err.splitlines() for it in both))

    def settle(self, what: str, name: str, before: Iterable[str], after: Iterable[str]) -> None:
        """Count two lists of lines as equal or different, and print the difference."""
        lines = [*difflib.unified_diff([*before], [*after], n=0, lineterm="")][2:]
        self._counts[f"{what} {'different' if lines else 'equal'}"] += 1
        if lines:
            more = 0 if self._full else max(0, len(lines) - MOST_SHOWN)
            sign = "--" if what in self._soft else "=="
            print(f"\n{sign} {name}", *lines[: len(lines) - more], sep="\n")
            print(*([f"... and {more} more (--full)"] if more else []), sep="\n", end="")

    def summary(self) -> int:
        """Print counts; return the exit status."""
        for what, count in sorted(self._counts.items()):
            print(f"{count:6}  {what}")
        soft = {f"{it} different" for it in self._soft}
        hard = {it for it in self._counts if it.endswith(" different")} - soft
        print("NOT the same answers" if hard else "the same answers")
        return int(bool(hard))


def leaves(value: Any, path: str = "$") -> Iterator[str]:
    """Yield a line for each value of a JSON document, with its path."""
    if VARYING.search(path):
        yield f"{path}: varies"
    elif value and isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key], f"{path}.{key}")
    elif value and isinstance(value, list):
        for place, one in enumerate(value):
            yield from leaves(one, f"{path}[{place}]")
    else:
        yield f"{path}: {f'{value:.12g}' if isinstance(value, float) else json.dumps(value)}"


def _document(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return {"no JSON": text}


def _page_data(page: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    return _document(found[1].replace("<\\/", "</")) if found else {"no data": page[:200]}


def _page_text(page: str) -> str:
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s*(<[^>]*>\s*)+", "\n", bare))


if __name__ == "__main__":
    sys.exit(main())
