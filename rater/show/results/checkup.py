"""A checkup as a document, on a screen and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rater.analysis.divots.cells import PlaceValue
from rater.analysis.divots.checkup import CheckupSection, CheckupVerdict
from rater.plan.checkup import TAG
from rater.show.screen.document import NUMBER, TEXT, Field, Part, Row, ViewTable, facts
from rater.text.cpuset import format_list
from rater.text.values import JsonFields, to_json

if TYPE_CHECKING:
    from rater.show.documents.checkup import CheckupDocument

_MOST_IN_MATRIX = 16  # nodes
_STYLES: dict[str, str] = {CheckupVerdict.LOOK: "red", CheckupVerdict.UNKNOWN: "yellow"}
_ROW = "row"
_TABLE = {
    CheckupSection: JsonFields(
        "name verdict said=lines unit? visible=cells.visible cells=cells.cells"
    ),
    PlaceValue: JsonFields("place value worse:6 slow=is_slow"),
}


def checkup_document(
    name: str,
    sections: Sequence[CheckupSection],
    runs: Sequence[int],
    *,
    status: int,
    took_s: float,
    left_out: Sequence[str],
) -> CheckupDocument:
    """Return a checkup for JSON and its screen."""
    return {
        "checkup": name,
        "status": status,
        "took_s": round(took_s, 1),
        "runs": [*runs],
        "sections": to_json(sections, _TABLE),
        "left_out": [*left_out],
    }


def checkup_parts(document: CheckupDocument) -> Iterator[Part]:
    """Yield the matrices, and at the end, where people look first, the verdicts."""
    yield from _matrices(document)
    yield ViewTable(
        title=checkup_title(document),
        rows=document["sections"],
        fields=(
            Field(heading="section", value="name", form=TEXT),
            Field(heading="verdict", value="verdict", form=TEXT),
            Field(heading="", value="said", wrap=True),
        ),
        style=lambda row: _STYLES.get(row["verdict"], ""),
    )
    yield from _left_out(document)
    if document["runs"]:
        yield f"Its runs: {format_list(document['runs'])}, and `rater list` has their tags."


def checkup_page_parts(document: CheckupDocument) -> Iterator[Part]:
    """Yield the verdicts, in two columns that a phone has room for, and the matrices."""
    yield facts(
        (
            section["verdict"],
            f"{section['name']}: {'; '.join(section['said'])}",
            _STYLES.get(section["verdict"], ""),
        )
        for section in document["sections"]
    )
    yield from _left_out(document)
    yield from _matrices(document)


def checkup_title(document: CheckupDocument) -> str:
    """Return what the checkup is called, and how long it took."""
    return f"Checkup {document['checkup']}: {document['took_s']:.0f} s"


def verdict_notes(document: CheckupDocument) -> Iterator[str]:
    """Yield the verdicts as notes of a run, which go with it wherever it goes."""
    for section in document["sections"]:
        said = "; ".join(section["said"])
        verdict = f"{section['verdict']}: {said}" if said else section["verdict"]
        yield f"{TAG} {document['checkup']}: {section['name']}: {verdict}"


def _left_out(document: CheckupDocument) -> Iterator[str]:
    if document["left_out"]:
        yield f"Not looked at: {', '.join(document['left_out'])}."


def _matrices(document: CheckupDocument) -> Iterator[ViewTable]:
    for section in document["sections"]:
        if any(len(cell["place"]) > 1 for cell in section["cells"]):
            yield _matrix(section)


def _matrix(section: Row) -> ViewTable:
    """Return values by node of the CPUs, and by node of the memory or by load; `!`: look here."""
    cells = sorted(section["cells"], key=lambda cell: cell["place"])
    rows: dict[int, dict[str, str]] = {}
    for cell, text in zip(cells, NUMBER.cells([cell["value"] for cell in cells]), strict=True):
        row, column = cell["place"]
        rows.setdefault(row, {_ROW: str(row)})[str(column)] = f"{text}{'!' * cell['slow']}"
    columns = dict.fromkeys(name for row in rows.values() for name in row if name != _ROW)
    what = "load" if "loads" in section["name"] else "memory of node"
    return ViewTable(
        title=f"{section['name']}, {section['unit']}",
        rows=[*rows.values()][:_MOST_IN_MATRIX],
        fields=(
            Field(heading=f"CPUs of node, {what}", value=_ROW),
            *(Field(heading=name, value=name) for name in [*columns][:_MOST_IN_MATRIX]),
        ),
        repeated=1,
    )
