"""The small parts of a suite file, each read from its table with every mistake noted."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from rater.plan.suite.model import Expected, Metric
from rater.text.document import REQUIRED, TableReader
from rater.text.kinds import FILLED_STRING, STRING, choice, number

RESERVED = ("stdout", "stderr", "setup.out")  # rater's own files in a run directory
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE_SAID = "expected the name of a variable: letters, digits and '_', no digit first"
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_OF_TEXT = ("absolute", "relative", "ignore")  # keys that a comparison of text may have


@dataclass(frozen=True, slots=True)
class Files:
    """The other files of a suite: where they are and how they are looked at."""

    directory: Path  # of the suite file
    problem_with: Callable[[Path], str | None]
    text_of: Callable[[Path], str]  # raises OSError or UnicodeDecodeError

    def several(self, table: TableReader, name: str) -> tuple[Path, ...]:
        """Read a list of paths at `name`, at least one."""
        words = table.strings(name, required=True)
        return tuple(self.one(table, f"{name}[{i}]", word) for i, word in enumerate(words))

    def one(self, table: TableReader, key: str, word: str) -> Path:
        """Return the path of a file of the suite; that it cannot be read is a mistake."""
        path = self.directory / word
        problem = self.problem_with(path)
        if problem:
            table.mistake(problem, key)
        return path

    def text(self, table: TableReader, key: str, word: str) -> str:
        """Return the text of a file of the suite, for comparison."""
        path = self.directory / word
        problem = self.problem_with(path)
        if not problem:
            try:
                return self.text_of(path)
            except UnicodeDecodeError:
                problem = f"{path} is not UTF-8 text: for its exact content write sha256"
            except OSError as error:
                problem = f"{path}: {error.strerror}: for its exact content write sha256"
        table.mistake(problem, key)
        return ""

    def program(self, table: TableReader, key: str, *, required: bool = False) -> tuple[str, ...]:
        """Read a command line, empty when absent; a program with "/" becomes absolute."""
        words = table.strings(key, required=required or key in table)
        if words and not words[0]:
            table.mistake("expected a program, got an empty string", f"{key}[0]")
        if words and "/" in words[0]:
            return (str(self.directory / words[0]), *words[1:])
        return words


def local_name(table: TableReader, key: str, default: str = "", *, required: bool = False) -> str:
    """Read the name of a file, which must stay inside the run directory."""
    name = table.get(key, FILLED_STRING, REQUIRED if required else "")
    if not name:
        return default
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path == PurePosixPath():
        table.mistake(f"expected a path inside the run directory, got {name!r}", key)
    return str(path)


def own_name(table: TableReader, key: str, *, required: bool = False) -> str:
    """Read the name of a file that is not one of rater's own."""
    name = local_name(table, key, required=required)
    if name and PurePosixPath(name).parts[0] in RESERVED:
        table.mistake(f"{name!r} is where rater keeps the copy's own output", key)
    return name


def pattern(table: TableReader, key: str, *, required: bool = False) -> re.Pattern[str] | None:
    """Read a regular expression; None when it is absent or does not compile."""
    text = table.get(key, FILLED_STRING, REQUIRED if required else "")
    if not text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "possible nested set": it means something else
            return re.compile(text, re.MULTILINE)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        message = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        table.mistake(f"expected a regular expression of Python, got {text!r}: {message}", key)
        return None


def environment(table: TableReader) -> tuple[tuple[str, str], ...]:
    """Read variables for the environment of copies."""
    found = []
    for name in table.names(_VARIABLE, _VARIABLE_SAID):
        if name.startswith("RATER_"):
            table.mistake("RATER_... are set by rater: expected another name", name)
        found.append((name, table.get(name, STRING)))
    return tuple(found)


def metrics(table: TableReader) -> tuple[Metric, ...]:
    """Read the numbers that a benchmark reports, in the order of the file."""
    return tuple(_metric(name, part) for name, part in table.named_tables())


def expected(table: TableReader, files: Files) -> tuple[Expected, ...]:
    """Read `expected`: a string for standard output, a table, or a list of tables."""
    absolute = table.get("absolute_tolerance", number(), None)
    relative = table.get("relative_tolerance", number(), None)
    found: list[Expected] = []
    if table.is_a(str, "expected"):
        text = table.get("expected", STRING)
        found.append(Expected("stdout", text, absolute or 0.0, relative or 0.0))
    else:
        for part in table.tables("expected", single=True):
            want = _expected(part, files, absolute or 0.0, relative or 0.0)
            if any(want.file == other.file for other in found):
                part.mistake(f"{want.file!r} is expected twice", "file")
            found.append(want)
    if all(want.sha256 for want in found):
        for key in ("absolute_tolerance", "relative_tolerance"):
            if key in table:
                table.mistake("a tolerance needs an expected text beside it", key)
    return tuple(found)


def _metric(name: str, table: TableReader) -> Metric:
    regex = pattern(table, "pattern", required=True)
    if regex is not None and regex.groups != 1:
        hint = "; write (?:...) for groups that are not the number" if regex.groups else ""
        text = f"expected exactly one group (...), the number, got {regex.groups}{hint}"
        table.mistake(text, "pattern")
    metric = Metric(
        name=name,
        pattern=regex.pattern if regex else "",
        unit=table.get("unit", STRING, ""),
        better=table.get("better", choice(("higher", "lower")), None),
        combine=table.get("combine", choice(("sum", "mean")), "mean"),
        file=local_name(table, "file", "stdout"),
        scale=table.get("scale", number(positive=True), 1.0),
    )
    table.finish()
    return metric


def _expected(table: TableReader, files: Files, absolute: float, relative: float) -> Expected:
    given = [key for key in ("text", "path", "sha256") if key in table]
    if len(given) != 1:
        got = f", got {' and '.join(given)}" if given else ""
        table.mistake(f"expected one of text, path and sha256{got}")
    own_absolute, own_relative = (
        table.get("absolute", number(), None),
        table.get("relative", number(), None),
    )
    ignore = pattern(table, "ignore")
    text, sha256 = table.get("text", STRING, ""), table.get("sha256", STRING, "")
    if "path" in table:
        word = table.get("path", FILLED_STRING)
        text = files.text(table, "path", word) if word else ""
    if "sha256" in table:
        if sha256 and not _SHA256.fullmatch(sha256):
            table.mistake("expected the 64 hexadecimal digits that sha256sum prints", "sha256")
        for key in _OF_TEXT:
            if key in table:
                table.mistake("sha256 is of the exact content: expected no such key beside it", key)
    want = Expected(
        file=local_name(table, "file", "stdout"),
        text=text,
        absolute_tolerance=absolute if own_absolute is None else own_absolute,
        relative_tolerance=relative if own_relative is None else own_relative,
        sha256=sha256.lower() if "sha256" in table else None,
        ignore=ignore.pattern if ignore else None,
    )
    if want.sha256 is not None:
        want = replace(want, absolute_tolerance=0.0, relative_tolerance=0.0)
    table.finish()
    return want
