"""The text of a suite file as a `Suite`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rater.plan.suite import Suite, read_suite
from rater.text.documents import MistakesError


def parse_suite(
    text: str,
    path: Path,
    problem_with: Callable[[Path], str | None] = lambda _path: None,
    text_of: Callable[[Path], str] = lambda _path: "",
) -> Suite:
    """Turn the text of a suite file into a `Suite`.

    `path` names the file in messages, and relative paths start at its folder;
    `problem_with` says what is wrong with a file that the suite names, `text_of`
    reads one (`file_problem` and `read_text` look at the disk, the defaults
    believe). Raises `MistakesError` with all mistakes together.
    """
    suite, mistakes = read_suite(text, path, problem_with, text_of)
    if mistakes:
        raise MistakesError(mistakes)
    return suite
