"""Gates of a comparison or of divots as CI systems read them: `--format junit` and others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rater.analysis.results.gates import GateCase
from rater.system.errors import InputError
from rater.workflow.arguments import Output

if TYPE_CHECKING:
    from rater.show.screen.document import Part

CI_FORMATS: Final = ("junit", "github", "openmetrics")
_SUMMARY: Final = "GITHUB_STEP_SUMMARY"  # a file that GitHub shows as the summary of a job's step


def print_gates(
    output: Output, title: str, cases: Sequence[GateCase], parts: Iterable[Part]
) -> None:
    """Print cases in the output's format, one of `CI_FORMATS`.

    For GitHub `parts` follow as Markdown, in the summary of the step where there is one. Raises
    `InputError` where that file cannot be written.
    """
    from rater.show.results.ci import (
        gate_family,
        github_lines,
        junit_text,
        openmetrics_text,
        value_families,
    )

    if output.format == "junit":
        sys.stdout.write(junit_text(title, cases))
    elif output.format == "openmetrics":
        sys.stdout.write(openmetrics_text([gate_family(cases), *value_families(cases)]))
    else:
        for line in github_lines(cases):
            print(line)
        _write_summary(title, parts)


def _write_summary(title: str, parts: Iterable[Part]) -> None:
    from rater.show.screen.document import MarkdownPrinter, print_parts

    path = os.environ.get(_SUMMARY)
    try:
        with Path(path).open("a", encoding="utf-8") if path else nullcontext(sys.stdout) as out:
            out.write(f"## {title}\n\n")
            print_parts(parts, MarkdownPrinter(out))
    except OSError as error:
        raise InputError(f"{_SUMMARY}={path}: cannot be written ({error.strerror})") from None
