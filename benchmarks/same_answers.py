"""Whether this checkout gives the same answers as an older one.

`python -m benchmarks.same_answers --old CHECKOUT [--only PATTERN] [--runs N] [--full] [--texts]`

The old code makes the databases of its golden screens (`tests/support/golden_runs.py`). Old and
new code are asked the same questions about copies of them: every view of runs, of pairs of runs
and of sweeps, as JSON, CSV and text, and all views of machines, suites and layouts. JSON
(numbers to 12 digits), CSV and exit statuses must be equal: exit status 1 where they are not. Texts
may be worded anew unless `--texts` is given: differences are counted and, with `--full`, shown.
Both checkouts need an environment in `.venv`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import encode

NEW = Path(__file__).resolve().parents[1]
SLOWEST_S = 120  # one question; SIGALRM ends it
MOST_SHOWN = 12  # lines of one difference, without --full
# What is of the moment or of the process, not of the question.
VARYING = (
    (re.compile(r"[\d.]+ (.B) (available|free)\b"), r"N \1 \2"),
    (
        re.compile(
            r'"(\w+_available_bytes|(?:free|page_cache|dirty|free_huge_order)_bytes|pid|uuid'
            r'|stored_at|searched_at)": [^,\n]+'
        ),
        r'"\1": "-"',
    ),
    (re.compile(r"process \d+"), "process N"),
    (re.compile(r"(?<=\nmemory now\n)(.+\n)+"), "(varies)\n"),
)
# Runs in each checkout: `main` is called in a fork for each question, so that all is imported once.
DRIVER = """
import gc, importlib, json, os, pkgutil, signal, sys, traceback
from pathlib import Path

folder, code, slowest_s = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.path.insert(0, code)
import rater

assert Path(rater.__file__).is_relative_to(code), rater.__file__
for module in pkgutil.walk_packages(rater.__path__, "rater."):
    if not module.name.endswith(("__main__", "_main", "local_job", "competitor")):
        importlib.import_module(module.name)
cli = sys.modules.get("rater.commands.cli") or sys.modules["rater.cli"]
gc.freeze()
sys.argv = ["rater"]
statuses = []
for number, question in enumerate(json.loads((folder / "questions.json").read_text())):
    child = os.fork()
    if not child:
        signal.alarm(slowest_s)
        os.chdir(folder / question["folder"])
        os.environ.update(question["environment"])
        for descriptor, end in ((1, "out"), (2, "err")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(folder / f"{number}.{end}", flags, 0o644), descriptor)
        try:
            status = cli.main(question["words"])
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
            status = 70
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)
    _, status = os.waitpid(child, 0)
    statuses.append(os.waitstatus_to_exitcode(status))
(folder / "statuses.json").write_text(json.dumps(statuses))
"""
# Runs in the old checkout: the folders that golden screens are of, one a name.
MAKER = """
import sys
from contextlib import chdir
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from tests.support import golden, golden_runs, golden_shapes

for path in sorted(golden.FOLDER.glob("*.txt")):
    folder = Path(sys.argv[1]) / path.stem
    program = folder / "bin" / "rater"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    name = path.stem.replace("-", "_")
    make = getattr(golden_runs, name, None) or getattr(golden_shapes, name)
    with chdir(folder):
        make(folder)
"""


class Question(Struct, frozen=True):
    """A command line, and the folder of made runs that it is about."""

    folder: str
    words: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.folder}: rater {' '.join(self.words)}"

    @property
    def is_data(self) -> bool:
        """Whether programs read the answer: it must be equal."""
        return "--json" in self.words or "csv" in self.words or "export" in self.words


type Chooser = Callable[[Path], list[Question]]


class Answer(Struct, frozen=True):
    """The answer of one checkout to one question."""

    status: int
    out: str
    err: str


def environment(folder: Path) -> dict[str, str]:
    """Return variables with which a rater meets nothing but the made runs of a folder."""
    places = {
        "RATER_DB": folder / "rater.db",
        "RATER_LOCK": folder / "rater.lock",
        "RATER_CACHE": folder / "cache",
        "RATER_JOURNAL": folder / "settings.json",
        "XDG_CACHE_HOME": folder / "cache",
        "XDG_STATE_HOME": folder / "state",
        "XDG_CONFIG_HOME": folder / "config",
        "XDG_DATA_HOME": folder / "data",
    }
    shown = {"TERM": "dumb", "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    variables = shown | {name: str(path) for name, path in places.items()}
    if (folder / "machine").exists():
        variables["RATER_SYSROOT"] = str(folder / "machine")
    return variables


def _numbers(database: Path, table: str) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        try:
            rows = connection.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()
        except sqlite3.OperationalError:  # not a database of ours, on purpose
            return []
    return [int(number) for (number,) in rows]


def questions_about(runs: Sequence[int], sweeps: Sequence[int]) -> Iterator[str]:
    """Yield command lines about runs and sweeps of a database, without `rater`."""
    for run in runs:
        yield from (f"show {run} --json", f"show {run}", f"show {run} -v", f"divots {run} --json")
        yield from (f"divots {run} -v", f"export {run}", f"export {run} --format csv")
        yield from (
            f"show plot {run} --json",
            f"show {run} --format csv",
            f"show {run} --format md",
        )
        yield from (f"divots {run} --fail-on any:2%", f"rerun {run} --dry-run", f"lab pages {run}")
    for first, second in pairwise(runs):
        yield from (f"compare {first} {second} --json", f"compare {first} {second} -v")
        yield from (f"divots {first} {second} --json", f"scale {first} {second} --json")
        yield f"compare {first} {second} --fail-on worse:2%"
    for sweep in sweeps:
        for command in ("compare", "scale", "divots", "show"):
            yield from (f"{command} sweep:{sweep} --json", f"{command} sweep:{sweep} -v")
    yield from ("list --json", "list", "list --sweeps --json", "scale --json", "divots --json")
    yield from ("fleet status --json", "divots fleet:1 --json", "fleet history --json", "lab model")
    yield from ("settings --json", "topo --json", "suites --json", "suites", "doctor nothing")


# Of no database: what is planned for machines, and what is written of suites and layouts.
PLANNED = """
    plan mini --copies 2 --json
    plan mini --copies 4 --order spread --json
    plan layouts --json
    plan mini --copies 128 --mode staggered --stagger 6000 --json
    plan mini --copies 7 --mode rotated --iterations 3 --json
    plan mini --mode steady --window 5 --json
    plan stream --copies 2 --bind core --mem bind --json
    plan mini --copies 99999
    run mini --copies 2 --dry-run --json
    run mini --copies 2 --hugepages off --alloc system --dry-run
    sweep mini --axis copies=1,2 --axis hugepages=off,on --rounds 3 --seed 7 --dry-run --json
    sweep mini --axis copies=1,0 --dry-run
    run --mode steady --dry-run
    run nothing --dry-run
    suites show mini --json
    suites check mini
    help
    run --help
    sweep --help
    plan --help
    divots --help
    compare --help
    list --bogus
    lsit
"""


def spread(numbers: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the numbers, from the first to the last."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[place * (len(numbers) - 1) // (most - 1)] for place in range(most)]


def made_questions(folder: Path, only: str | None, most_runs: int) -> list[Question]:
    """Return the questions about the made runs below a folder."""
    questions = []
    for run_folder in sorted(folder.iterdir()):
        variables = environment(run_folder)
        runs, sweeps = (_numbers(run_folder / "rater.db", table) for table in ("run", "sweep"))
        lines = [*questions_about(spread(runs, most_runs), spread(sweeps, most_runs))]
        if run_folder.name in ("empty", "machines"):
            lines += PLANNED.strip().splitlines()
        for line in lines:
            question = Question(run_folder.name, tuple(line.split()), variables)
            if only is None or only in question.name:
                questions.append(question)
    return questions


def ask(code: Path, made_folder: Path, folder: Path, choose: Chooser) -> subprocess.Popen[bytes]:
    """Begin to ask one checkout about a copy of the made runs in `folder`."""
    shutil.copytree(made_folder, folder / "made")
    answers = folder / "answers"
    answers.mkdir()
    for name in (folder / "made").iterdir():
        (answers / name.name).symlink_to(name)
    (answers / "questions.json").write_bytes(encode(choose(folder / "made")))
    python = str(code / ".venv" / "bin" / "python")
    words = [python, "-c", DRIVER, str(answers), str(code), str(SLOWEST_S)]
    return subprocess.Popen(words, cwd=answers)


def answers_in(folder: Path, code: Path) -> list[Answer]:
    """Return the answers of a checkout that was asked in `folder`, without their places."""
    statuses = json.loads((folder / "answers" / "statuses.json").read_text())

    def settled(number: int, end: str) -> str:
        text = (folder / "answers" / f"{number}.{end}").read_text(errors="replace")
        for place, instead in ((code, "CHECKOUT"), (folder, "FOLDER")):
            text = text.replace(str(place), instead)
        for pattern, instead in VARYING:
            text = pattern.sub(instead, text)
        return text

    return [
        Answer(status, settled(number, "out"), settled(number, "err"))
        for number, status in enumerate(statuses)
    ]


def leaves(document: Any, path: str = "$") -> Iterator[str]:
    """Yield each value of a JSON document with its path; numbers to 12 digits."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from leaves(value, f"{path}.{key}")
        yield f"{path}: keys {' '.join(document)}"
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from leaves(value, f"{path}[{number}]")
    else:
        shown = f"{document:.12g}" if isinstance(document, float) else json.dumps(document)
        yield f"{path} = {shown}"


def comparable(question: Question, answer: Answer) -> list[str]:
    """Return an answer as lines: a JSON document by its values."""
    if "--json" in question.words:
        try:
            return list(leaves(json.loads(answer.out)))
        except ValueError:
            pass
    return answer.out.splitlines()


def main() -> int:
    """Ask both checkouts, compare, print; return 1 where data or statuses differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--old", metavar="CHECKOUT", type=Path, required=True)
    parser.add_argument("--only", metavar="PATTERN", help="questions with this in them")
    parser.add_argument(
        "--runs", metavar="N", type=int, default=5, help="of a database (%(default)s)"
    )
    parser.add_argument("--full", action="store_true", help="show all of each difference")
    parser.add_argument("--texts", action="store_true", help="texts must be equal, too")
    asked = parser.parse_args()
    begin = time.monotonic()
    old = asked.old.absolute()
    with tempfile.TemporaryDirectory(prefix="same-answers-") as name:
        made_folder = Path(name) / "made"
        made_folder.mkdir()
        maker = [str(old / ".venv/bin/python"), "-c", MAKER, str(made_folder), str(old)]
        subprocess.run(maker, cwd=old, check=True, env=os.environ | environment(made_folder / "x"))
        choose = partial(made_questions, only=asked.only, most_runs=asked.runs)
        # Names of one length: lines of text break at the same places.
        sides = {Path(name) / "old": old, Path(name) / "new": NEW}
        drivers = [ask(code, made_folder, folder, choose) for folder, code in sides.items()]
        if any([driver.wait() for driver in drivers]):
            sys.exit("a driver failed: is the code there, and does it import?")
        before, after = (answers_in(folder, code) for folder, code in sides.items())
        questions = choose(made_folder)
    different: Counter[str] = Counter()
    for question, first, second in zip(questions, before, after, strict=True):
        kinds = _differences(question, first, second, texts=asked.texts)
        different.update(kinds)
        if kinds and (asked.full or kinds != ["text"]):
            print(f"== {question.name}: {', '.join(kinds)} ({first.status}, {second.status})")
            lines = _shown(question, first, second)
            print("\n".join(lines if asked.full else lines[:MOST_SHOWN]))
    statuses = Counter(answer.status for answer in after)
    ended = ", ".join(f"{count} exited {status}" for status, count in sorted(statuses.items()))
    print(f"{len(questions)} questions to each checkout; {ended}; {time.monotonic() - begin:.0f} s")
    print(f"different: {dict(different) or 'none'}")
    return int(any(kind != "text" for kind in different))


def _differences(question: Question, first: Answer, second: Answer, *, texts: bool) -> list[str]:
    kinds = ["status"] if first.status != second.status else []
    if comparable(question, first) != comparable(question, second):
        kinds.append("data" if question.is_data or texts else "text")
    elif first.err != second.err:
        kinds.append("data" if texts else "text")
    return kinds


def _shown(question: Question, first: Answer, second: Answer) -> list[str]:
    before, after = (
        comparable(question, answer) + answer.err.splitlines() for answer in (first, second)
    )
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


if __name__ == "__main__":
    sys.exit(main())
