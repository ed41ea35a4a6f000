"""README and `docs/`: their commands are accepted, and their links and paths exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest

from rater.commands.cli import build_parser
from rater.commands.command_line import Parser
from tests.support.places import CHECKOUT
from tests.support.wings import is_command

PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(CHECKOUT)) for page in PAGES]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def commands(text: str) -> Iterator[str]:
    """Yield the command lines of rater in blocks: alone on a line, or after `$ `."""
    for language, block in _FENCE.findall(text):
        if language in ("text", "toml", "sql"):
            continue
        for typed in block.replace("\\\n", " ").splitlines():
            line = typed.removeprefix("$ ")
            if line.startswith("rater ") and is_command(line.removeprefix("rater ")):
                yield line


def split_command(line: str) -> list[str]:
    """Return what the parser gets of a command line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    found = []
    for word in lexer:
        if word == "--" or set(word) <= set("|>;&"):
            break
        found.append(word)
    return found[1:]


@pytest.fixture(scope="module")
def parser() -> Parser:
    return build_parser()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_of_a_page_is_taken_by_the_parser(page: Path, parser: Parser) -> None:
    wrong = []
    for line in commands(page.read_text()):
        try:
            with redirect_stderr(StringIO()) as said:
                parser.parse_args(split_command(line))
        except SystemExit:
            wrong.append(f"{line}: {said.getvalue()}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = [it for it in _LINK.findall(page.read_text()) if "://" not in it]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_read_in_one_go() -> None:
    assert len((CHECKOUT / "README.md").read_text().splitlines()) <= 220


def test_promises_are_read_in_a_minute_and_each_test_that_holds_one_is_there() -> None:
    assert len((CHECKOUT / "SECURITY.md").read_text().splitlines()) <= 60
    page = (CHECKOUT / "docs/explanation/security.md").read_text()
    tests = "".join(path.read_text() for path in (CHECKOUT / "tests").rglob("*.py"))
    names = set(re.findall(r"def (test_\w+)\(", tests))
    promises = re.findall(r"\n: (.*?)(?=\n\n)", page + "\n\n", re.S)
    assert len(promises) > 20
    assert [
        promise for promise in promises if not re.search(r"`test_\w+`\Z", promise.strip())
    ] == []
    assert set(re.findall(r"`(test_\w+)`", page)) - names == set()


def test_every_environment_variable_is_documented() -> None:
    documented = set(
        re.findall(r"RATER_[A-Z_]+", (CHECKOUT / "docs/reference/environment.md").read_text())
    )
    used = {
        name
        for path in (CHECKOUT / "rater").rglob("*.py")
        for name in re.findall(r"\bRATER_[A-Z_]*[A-Z]\b", path.read_text())
    }
    assert used - documented == set()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_first_sentence_of_a_page_says_for_whom_it_is_and_what_for(page: Path) -> None:
    first = " ".join(page.read_text().split("\n\n")[1].split())
    assert re.match(r"For [^:]+: \S", first), f"{page.name} begins with {first[:60]!r}"


# What a translator writes, and nobody who speaks English (see `docs/develop/contributing.md`).
_DIALECT = re.compile(r"\b(?:is|are) (?:told|said)\b|\bstands?\b(?! out)|\bputs? back\b|\bmends?\b")
_LONG = 49  # sentences of more than 25 words in all pages: a number that only sinks


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page's prose, code as one word; no tables, headings or blocks."""
    prose = _FENCE.sub("", re.sub(r"<!--.*?-->", "", text))
    for part in re.split(r"\n\s*\n|\n(?=[-*:|#] |    |\d\. )", prose):
        if not part.startswith(("|", "#", "!", "    ")):
            flat = re.sub(r"`[^`]*`", "X", " ".join(part.split()))
            yield from re.split(r"(?<=[.?!:;])\s+(?=\S)", re.sub(r"\]\([^)]*\)", "]", flat))


def test_pages_are_written_in_plain_short_sentences() -> None:
    every = [(page.name, sentence) for page in PAGES for sentence in sentences(page.read_text())]
    assert [one for one in every if _DIALECT.search(one[1])] == []
    long = [one for one in every if len(re.findall(r"[\w'%-]+", one[1])) > 25]
    assert len(long) <= _LONG, long[-5:]
    assert len(every) > 800
