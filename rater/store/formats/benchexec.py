"""Results of BenchExec (XML): a benchmark a task, with CPU time, memory and energy; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final
from xml.parsers import expat

from rater.store.formats.document import (
    MOST_OBSERVATIONS,
    ForeignRun,
    document_of,
    moment,
    printable_name,
)
from rater.system.errors import InputError
from rater.text.cpuset import parse_set
from rater.text.values import count

_VALUE = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)(s|B|J)?", re.ASCII)
# Columns of BenchExec, and keys of an observation that have the number in front of the unit.
_NUMBERS: Final = {"walltime": "elapsed_s", "cputime": "cpu_s", "cpuenergy": "joules"}


_CUT: Final = (  # what expat says of a file that ends before its elements do
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION],
    expat.errors.codes[expat.errors.XML_ERROR_PARTIAL_CHAR],
)


def is_xml(data: bytes) -> bool:
    """Tell whether a file begins as XML does."""
    return data[:4000].removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def _is_benchexec(data: bytes) -> bool:
    head = data[:4000]
    return b"BenchExec result" in head or (b"<result" in head and b"toolmodule=" in head)


def read_benchexec(data: bytes, file: str) -> list[ForeignRun]:
    """Return the run of a result file. Raises `InputError` with the place of what is wrong."""
    reader = _Reader(file)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = reader.refuse_entity
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        if error.code in _CUT:
            problem = "the file is cut, it ends here before its last element does"
        where = f"{file}:{error.lineno}:{error.offset + 1}"
        raise InputError(f"{where}: not XML that can be read: {problem}") from None
    if not _is_benchexec(data):
        raise InputError(f"{file}: XML, but not results of BenchExec, the only XML that is read")
    rows = [row for run in reader.runs if (row := _observation(run)) is not None]
    begins = [row["start_s"] for row in rows if "start_s" in row]
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row["benchmark"]] += 1
        row["iteration"] = seen[row["benchmark"]]
        if "start_s" in row:
            row["start_s"] -= min(begins)
    tags = {name: reader.head[name] for name in ("tool", "version") if reader.head.get(name)}
    head = {
        "host": reader.head.get("hostname"),
        "started_at": moment(reader.head.get("starttime")),
        "tags": tags or None,
    }
    left_out = len(reader.runs) - len(rows)
    notes = (f"{count(left_out, 'task')} without a wall time left out",) if left_out else ()
    return [ForeignRun(document_of(data, rows, head), notes)]


class _Reader:
    """Takes the elements: attributes of the result, and the columns of each of its runs."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.head: dict[str, str] = {}
        self.runs: list[dict[str, str]] = []
        self._in_run = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Take the beginning of an element."""
        if tag in ("result", "systeminfo"):
            self.head |= attributes
        elif tag == "run":
            if len(self.runs) >= MOST_OBSERVATIONS:
                raise InputError(f"{self._file}: more than {MOST_OBSERVATIONS} runs")
            self._in_run = True
            names = filter(None, (attributes.get("name"), attributes.get("properties")))
            self.runs.append({"": " ".join(names)})
        elif tag == "column" and self._in_run:
            self.runs[-1][attributes.get("title", "")] = attributes.get("value", "")

    def end(self, tag: str) -> None:
        """Take the end of an element."""
        self._in_run = self._in_run and tag != "run"

    def refuse_entity(self, *_: object) -> None:
        """Refuse what could grow without an end."""
        raise InputError(f"{self._file}: XML with entities of its own; expected BenchExec's file")


def _observation(run: Mapping[str, str]) -> dict[str, Any] | None:
    row: dict[str, Any] = {"benchmark": printable_name(run[""]), "copy": 0}
    for title, key in _NUMBERS.items():
        if match := _VALUE.fullmatch(run.get(title, "")):
            row[key] = float(match[1])
    if match := _VALUE.fullmatch(run.get("memory", "")):
        row["peak_rss_bytes"] = round(float(match[1]))
    with suppress(ValueError):
        row["start_s"] = datetime.fromisoformat(run.get("starttime", "")).timestamp()
    with suppress(ValueError):
        [row["cpu"]] = parse_set(run.get("cpuCores", ""))
    with suppress(ValueError):
        row["mem_nodes"] = sorted(parse_set(run.get("memoryNodes", "")))
    row["status"] = _status(run)
    return row if "elapsed_s" in row else None


def _status(run: Mapping[str, str]) -> str:
    if run.get("terminationreason", "").endswith("time"):
        return "timeout"
    ended_badly = run.get("exitsignal") or run.get("returnvalue", "0") not in ("", "0")
    if ended_badly or run.get("terminationreason") or run.get("category") == "error":
        return "failed"
    return "wrong-output" if run.get("category") == "wrong" else "ok"
