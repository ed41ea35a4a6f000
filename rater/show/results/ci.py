"""Gates and numbers in the forms that CI systems and monitors read: JUnit, GitHub, OpenMetrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

from msgspec import Struct

from rater.analysis.results.gates import GateAnswer, GateCase

# -- JUnit: a case a benchmark and gate ------------------------------------------------------------

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(title: str, cases: Sequence[GateCase]) -> str:
    """Return cases as the XML of JUnit: found is a failure; what cannot be judged is skipped."""
    counts = {
        "tests": str(len(cases)),
        "failures": str(_count(cases, GateAnswer.FOUND)),
        "errors": "0",
        "skipped": str(_count(cases, GateAnswer.OPEN)),
    }
    root = ElementTree.Element("testsuites", {"name": "rater", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _xml(title), **counts})
    for case in cases:
        names = {
            "classname": _xml(f"rater.{case.gate}"),
            "name": _xml(f"{case.name} ({case.place})"),
        }
        element = ElementTree.SubElement(suite, "testcase", names)
        if case.values:
            properties = ElementTree.SubElement(element, "properties")
            for name, value in case.values:
                ElementTree.SubElement(
                    properties, "property", {"name": name, "value": f"{value!r}"}
                )
        if case.answer is GateAnswer.FOUND:
            message = {"message": _xml(case.reason), "type": _xml(case.gate)}
            ElementTree.SubElement(element, "failure", message).text = _xml(case.reason)
        elif case.answer is GateAnswer.OPEN:
            ElementTree.SubElement(element, "skipped", {"message": _xml(case.reason)})
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, "unicode")}\n'


def _count(cases: Iterable[GateCase], answer: GateAnswer) -> int:
    return sum(case.answer is answer for case in cases)


def _xml(text: str) -> str:
    """Return text without the characters that XML cannot have at all."""
    return _NOT_XML.sub("?", text)


# -- GitHub: annotations beside the job ------------------------------------------------------------

_COMMANDS: Final = {GateAnswer.FOUND: "error", GateAnswer.OPEN: "warning"}


def github_lines(cases: Sequence[GateCase]) -> Iterator[str]:
    """Yield an annotation for each case that is not excluded, and one for all that are."""
    for case in cases:
        if command := _COMMANDS.get(case.answer):
            title = _escape(f"{case.gate}: {case.name} ({case.place})", in_property=True)
            yield f"::{command} title={title}::{_escape(case.reason or case.answer)}"
    passed = _count(cases, GateAnswer.EXCLUDED)
    if passed:
        yield f"::notice title=rater::{passed} of {len(cases)} gates passed"


def _escape(text: str, *, in_property: bool = False) -> str:
    """Return text as a workflow command has it: GitHub ends a command at a line's end."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escaped.replace(":", "%3A").replace(",", "%2C") if in_property else escaped


# -- OpenMetrics -----------------------------------------------------------------------------------


class MetricFamily(Struct, frozen=True, kw_only=True):
    """A gauge with its samples."""

    name: str
    help: str
    unit: str = ""  # the name ends with it
    samples: Sequence[tuple[Mapping[str, object], float | None]]  # labels, value; None: not known


def openmetrics_text(families: Iterable[MetricFamily]) -> str:
    """Return gauges in OpenMetrics 1.0; a value that is not known has no sample."""
    lines = []
    for family in families:
        samples = [(labels, value) for labels, value in family.samples if value is not None]
        if not samples:
            continue
        lines.append(f"# TYPE {family.name} gauge")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_quoted(family.help)}")
        lines += [f"{family.name}{_labels(labels)} {value!r}" for labels, value in samples]
    return "\n".join([*lines, "# EOF\n"])


def label_name(text: str) -> str:
    """Return a name as a label may be called."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return f"_{name}" if name[:1].isdigit() else name


def _labels(labels: Mapping[str, object]) -> str:
    known = (
        f'{name}="{_quoted(str(value))}"' for name, value in labels.items() if value is not None
    )
    text = ",".join(known)
    return f"{{{text}}}" if text else ""


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def gate_family(cases: Sequence[GateCase]) -> MetricFamily:
    """Return the answers of gates as exit statuses: 0 excluded, 1 found, 3 cannot be judged."""
    status = {GateAnswer.EXCLUDED: 0.0, GateAnswer.FOUND: 1.0, GateAnswer.OPEN: 3.0}
    return MetricFamily(
        name="rater_gate",
        help="Answer of a gate: 0 excluded, 1 found, 3 cannot be judged.",
        samples=[
            ({"gate": case.gate, "benchmark": case.name, "point": case.place}, status[case.answer])
            for case in cases
        ],
    )


def value_families(cases: Sequence[GateCase]) -> list[MetricFamily]:
    """Return a family for each number that cases have."""
    names = dict.fromkeys(name for case in cases for name, _ in case.values)
    return [
        MetricFamily(
            name=f"rater_{name}",
            help=f"The {name.replace('_', ' ')} of a point.",
            samples=[
                ({"benchmark": case.name, "point": case.place}, dict(case.values).get(name))
                for case in cases
            ],
        )
        for name in names
    ]
