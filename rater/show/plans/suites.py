"""The list of suites and what a check of one found, as text and as values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.plan.suite.model import Suite
from rater.show.console.format import aligned, crop, plain, wrapped
from rater.show.console.page import Page
from rater.show.plans.suite import size_names
from rater.text.to_json import Members, to_json

_LEAST_DESCRIPTION = 20  # characters of a line


@dataclass(frozen=True, slots=True)
class ListedSuite:
    """A line of the list of suites: one that reads, or why it does not."""

    name: str
    path: Path
    suite: Suite | None
    trouble: str | None
    folder: Path | None = None  # None: it comes with rater
    instead: Path | None = None  # the file that the name stands for, when it is another one


def suites_text(suites: Sequence[ListedSuite], page: Page) -> str:
    """Return the table of all suites by folder, descriptions broken between words.

    On a page too narrow for that they are cut.
    """
    meant = [listed for listed in suites if listed.instead is None]
    table = aligned(
        [("suite", "benchmarks", "sizes", "description"), *map(_row, meant)],
        (False, True, False, False),
    )
    margin = table[0].index("description")
    lines = [table[0]]
    place = None
    for listed, line in zip(meant, table[1:], strict=True):
        if listed.folder is not None and listed.folder != place:
            place = listed.folder
            lines += ["", f"in {place}"]
        fits = page.width - margin >= _LEAST_DESCRIPTION
        lines += page.beside(line[:margin], margin, [line[margin:]]) if fits else [line]
    lines = [crop(line, page.width, ascii_only=page.ascii_only) for line in lines]
    for hidden in suites:
        if hidden.instead is not None:
            built_in = _is_built_in(hidden, suites)
            first = "the suite that comes with rater" if built_in else str(hidden.instead)
            text = f"the name {hidden.name} means {first}, not {hidden.path}"
            lines += ["", *wrapped(text, max(1, page.width))]
    more = ["more: rater suites show SUITE", "run one: rater run SUITE"]
    lines += ["", *page.prose("    ".join(more)), "begin your own: rater suites new NAME"]
    return page.joined(lines)


_LISTED = Members(
    "name path folder instead suite.description",
    {
        "benchmarks": lambda it: [b.name for b in it.suite.benchmarks] if it.suite else [],
        "sizes": lambda it: size_names(it.suite) if it.suite else [],
    },
    "error=trouble",
)


def suites_json(suites: Sequence[ListedSuite]) -> list[dict[str, object]]:
    """Return the list of suites for JSON."""
    return [to_json(_LISTED.of(listed)) for listed in suites]


def trial_text(
    name: str,
    page: Page,
    *,
    error: str | None,
    left_out: str | None,
    is_built: bool,
    executable: str | None,
    size: str | None,
    elapsed_s: float | None,
    max_rss_bytes: int | None,
    checked: bool,
    run_dir: str | None,
    remarks: Sequence[str],
) -> str:
    """Return what a trial of one benchmark showed: a line, and one more for each remark.

    `name` is as wide as its column; `left_out` says why a run goes on without the benchmark.
    """
    more: list[str] = []
    if error is not None:
        first, *more = error.splitlines()
        facts = f"FAILED  {first}"
        if run_dir is not None:
            more.append(f"its files are in {run_dir}")
    elif left_out is not None:
        facts = f"left out of a run: {left_out}"
    elif elapsed_s is None:
        facts = f"{'built' if is_built else 'found'}   {executable}"
    else:
        rss = "" if max_rss_bytes is None else f"{max_rss_bytes / 1e6:8.0f} MB"
        answer = "answer right" if checked else "answer not checked"
        facts = f"ok      {size} {elapsed_s:8.2f} s{rss}  {answer}"
    width = max(1, page.width)
    lines = [*wrapped(f"{name}  {facts}", width), *(f"    {line}" for line in more)]
    for remark in remarks:
        lines += wrapped(f"    note: {remark}", width, " " * 10)
    return page.joined(lines)


def suite_warnings_text(suite_warnings: Sequence[str], page: Page) -> str:
    """Return what is allowed but probably not meant, a paragraph each."""
    return page.joined(
        [line for warning in suite_warnings for line in page.prose(f"warning: {warning}")]
    )


def _row(listed: ListedSuite) -> tuple[str, str, str, str]:
    if listed.suite is None:
        return listed.name, "-", "-", f"broken: see rater suites check {listed.name}"
    sizes = ",".join(size_names(listed.suite))
    benchmarks = str(len(listed.suite.benchmarks))
    return listed.name, benchmarks, sizes, plain(listed.suite.description)


def _is_built_in(hidden: ListedSuite, suites: Sequence[ListedSuite]) -> bool:
    return any(other.path == hidden.instead and other.folder is None for other in suites)
