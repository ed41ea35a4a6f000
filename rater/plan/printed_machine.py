"""A machine as `numactl -H` or `lscpu` print it, in any language and with any line ends; pure."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from rater.plan.topology import (
    TOP_CLOCK,
    CpuKind,
    Details,
    RawDistances,
    RawKind,
    RawNode,
    RawPU,
    Topology,
    build_topology,
    merge_kinds,
)
from rater.system.patterns import compile_later
from rater.text.cpuset import MAX_NUMBER, mask_of, numbers_of, parse_list

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def plain_text(content: bytes) -> str:
    """Return text that editors and other systems saved, without mark, with LF as line ends."""
    encoding, mark = next(
        ((encoding, mark) for mark, encoding in _MARKS.items() if content.startswith(mark)),
        ("utf-8", b""),
    )
    text = content.removeprefix(mark).decode(encoding, "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")


def is_wide(content: bytes) -> bool:
    """Tell whether text has two bytes a character, as PowerShell saves it."""
    return content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


# A row of a CPU by names of columns: cpu, node, socket, core, l2, l3.
type _CpuRow = dict[str, int]
type _TextRow = Mapping[str, object]
# `online` of lscpu, which is written in the language of whoever ran it.
_OFFLINE_WORDS = frozenset({
    "no", "n", "false", "nein", "non", "não", "nao", "nee", "nej", "nei", "nie", "ne", "ei",
    "нет", "ні", "いいえ", "否", "hayır", "óχι", "όχι",
})  # fmt: skip
_PLACES = ("node", "socket", "core")  # columns in which an offline CPU has `-`
_LEVELS = ("socket", "node", "l3", "l2", "core")  # from the largest part to the smallest
_UNKNOWN_PART = -1  # a part that the text does not name


class _PrintedCpus(Struct, frozen=True, kw_only=True):
    """What a text says of each CPU."""

    rows: tuple[_CpuRow, ...]  # its whole numbers
    text_rows: tuple[_TextRow, ...]
    offline: frozenset[int]

    @property
    def online(self) -> dict[int, _CpuRow]:
        """The rows of CPUs that are online."""
        return {
            row["cpu"]: row for row in self.rows if "cpu" in row and row["cpu"] not in self.offline
        }


def parse_printed(text: str, source: str) -> Topology | None:
    """Return the machine that `numactl -H` or `lscpu` (-e, -p, -J) printed; None: another text."""
    try:
        node_cpus = _printed_nodes(text)
        cpus = _printed_cpus(text, node_cpus)
    except (ValueError, TypeError, AttributeError):
        return None
    online = cpus.online
    if not online or max(*online, *(row.get("node", 0) for row in cpus.rows)) > MAX_NUMBER:
        return None
    order = sorted(online, key=lambda cpu: (*_parts_of(online[cpu], *_LEVELS), cpu))
    cores, packages, l3_caches, l2_caches = (
        _count_parts(online, order, level) for level in ("core", "socket", "l3", "l2")
    )
    members = {node: mask_of(()) for node in node_cpus}
    for cpu in order:
        node = online[cpu].get("node", 0)
        members[node] = members.get(node, 0) | 1 << cpu
    node_bytes = {int(node): int(mib) << 20 for node, mib in _NODE_SIZE.findall(text)}
    kinds = _kinds(cpus)
    return build_topology(
        [
            RawPU(
                os=cpu,
                core=cores[cpu],
                package=packages[cpu],
                l3=l3_caches[cpu],
                l2=l2_caches[cpu],
            )
            for cpu in order
        ],
        [RawNode(node, members[node], node_bytes.get(node), None) for node in sorted(members)],
        usable=mask_of(online),
        allowed_nodes=mask_of(members),
        source=source,
        kinds=kinds,
        distances=_printed_distances(text),
        details=Details(
            has_cores=None not in cores.values(),
            has_kinds=bool(kinds),
            kinds=tuple(
                CpuKind(numbers_of(kind.cpus), tuple(kind.infos.items())) for kind in kinds
            ),
            offline=tuple(sorted(cpus.offline)),
        ),
    )


def _printed_cpus(text: str, node_cpus: Mapping[int, tuple[int, ...]]) -> _PrintedCpus:
    listed = [{"cpu": cpu, "node": node} for node, cpus in node_cpus.items() for cpu in cpus]
    text_rows: list[_TextRow] = [*(listed or _lscpu_rows(text))]
    rows = [_whole_numbers(text_row) for text_row in text_rows]
    offline = frozenset(
        row["cpu"]
        for row, text_row in zip(rows, text_rows, strict=True)
        if "cpu" in row and _is_offline(text_row)
    )
    return _PrintedCpus(rows=tuple(rows), text_rows=tuple(text_rows), offline=offline)


# -- Nodes, of `numactl -H` and of lscpu's summary -------------------------------------------------

_NODE_CPUS = compile_later(r"^[ \t]*node (\d{1,5}) cpus:([ \t\d]*)$", re.MULTILINE | re.ASCII)
_NODE_SIZE = compile_later(
    r"^[ \t]*node (\d{1,5}) size: *(\d{1,9}) MB[ \t]*$", re.MULTILINE | re.ASCII
)
_DISTANCES = compile_later(r"^ *(\d{1,5}):((?: +\d{1,5})+) *$", re.MULTILINE | re.ASCII)
_COLON = compile_later("[:\N{FULLWIDTH COLON}]")
_CPU_LIST = compile_later(r"[\d,-]{0,50000}", re.ASCII)


def _printed_nodes(text: str) -> dict[int, tuple[int, ...]]:
    """Return the CPUs of each node as `numactl -H` or plain `lscpu` print them."""
    by_numactl = {
        int(node): tuple(map(int, cpus.split())) for node, cpus in _NODE_CPUS.findall(text)
    }
    return by_numactl or dict(_summary_nodes(text))


def _summary_nodes(text: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield nodes of lscpu's summary.

    Every language writes NUMA and the node's number before the colon, and no other number:
    `NUMA node0 CPU(s):`, `NUMA-Knoten0 CPU(s):`, `CPU(s) de nó0 NUMA:`.
    """
    for label, cpus in _fields(text):
        numbers = re.findall(r"\d{1,5}", label, re.ASCII)
        if "NUMA" in label.upper() and len(numbers) == 1 and _CPU_LIST.fullmatch(cpus):
            yield int(numbers[0]), parse_list(cpus) if cpus else ()


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield labels and values of lscpu's summary, as text or as JSON."""
    if not text.lstrip().startswith("{"):
        for line in text.splitlines():
            label, *rest = _COLON.split(line, maxsplit=1)
            if rest:
                yield label, rest[0].strip()
        return
    entries: list[object] = [json.loads(text).get("lscpu")]
    while entries:
        entry = entries.pop()
        if isinstance(entry, list):
            entries += reversed(entry)
        elif isinstance(entry, dict):
            yield str(entry.get("field", "")), str(entry.get("data") or "").strip()
            entries.append(entry.get("children"))


def _printed_distances(text: str) -> RawDistances | None:
    matrix = {int(node): tuple(map(float, row.split())) for node, row in _DISTANCES.findall(text)}
    is_square = bool(matrix) and all(len(row) == len(matrix) for row in matrix.values())
    return RawDistances(tuple(matrix), tuple(matrix.values())) if is_square else None


# -- CPUs, of lscpu's tables -----------------------------------------------------------------------


def _lscpu_rows(text: str) -> list[dict[str, object]]:
    """Return a row a CPU of `lscpu -e`, `-p` or `-J -e`: names of columns are in lower case."""
    if text.lstrip().startswith("{"):
        rows = json.loads(text).get("cpus", [])
    else:
        lines = text.splitlines()
        cpu_lines = [line for line in lines if re.match(r" *\d", line)]
        # The name of a processor may have "CPU" in it as well.
        heading = [line for line in lines if "cpu" in line.lower() and line not in cpu_lines][-1:]
        separator = "," if "," in "".join(heading) else None
        columns = [name.strip() for name in "".join(heading).lstrip("# ").lower().split(separator)]
        if columns[:1] != ["cpu"]:
            return []
        rows = [
            dict(zip(columns, _cells(line, columns, separator), strict=False)) for line in cpu_lines
        ]
    return [_split_columns(row) for row in rows]


def _cells(line: str, columns: Sequence[str], separator: str | None) -> list[str]:
    """Return the cells of a row; the name of a processor has blanks in it."""
    cells = [cell.strip() for cell in line.split(separator)]
    more = len(cells) - len(columns)
    if separator is not None or more <= 0 or "modelname" not in columns:
        return cells
    place = columns.index("modelname")
    return [*cells[:place], " ".join(cells[place : place + more + 1]), *cells[place + more + 1 :]]


def _split_columns(row: _TextRow) -> dict[str, object]:
    """Return a row with `L1d:L1i:L2:L3` and its value `0:0:0:0` as columns of their own."""
    return {
        name.lower(): part
        for column, value in row.items()
        for name, part in zip(
            column.split(":"), str(value).split(":") if ":" in column else [value], strict=False
        )
    }


def _whole_numbers(text_row: _TextRow) -> _CpuRow:
    texts = {column: str(value) for column, value in text_row.items()}
    return {column: int(text) for column, text in texts.items() if text.isdecimal()}


def _is_offline(row: _TextRow) -> bool:
    if str(row.get("online", "")).casefold() in _OFFLINE_WORDS:
        return True
    places = [str(row[column]) for column in _PLACES if column in row]
    return bool(places) and set(places) <= {"-", "None"}


def _parts_of(row: _CpuRow, *levels: str) -> tuple[int, ...]:
    return tuple(row.get(level, _UNKNOWN_PART) for level in levels)


def _count_parts(
    rows: Mapping[int, _CpuRow], order: Iterable[int], level: str
) -> dict[int, int | None]:
    """Return by CPU the index of its part of a level; parts are counted in the order of CPUs.

    A part is known by its package too: numbers of cores may begin anew in each.
    """
    order = tuple(order)
    parts = dict.fromkeys(
        _parts_of(rows[cpu], "socket", level) for cpu in order if level in rows[cpu]
    )
    index = {part: number for number, part in enumerate(parts)}
    return {cpu: index.get(_parts_of(rows[cpu], "socket", level)) for cpu in order}


# -- Kinds of CPUs ---------------------------------------------------------------------------------

_CLOCK = compile_later(
    r"(\d{1,6})(?:[.,]\d{1,6})?", re.ASCII
)  # MHz, with the point of any language


def _kinds(cpus: _PrintedCpus) -> list[RawKind]:
    """Return the kinds by model and highest clock, or nothing if the text does not tell all."""
    cpus_of: dict[tuple[str, str], set[int]] = {}
    online = cpus.online
    for row, text_row in zip(cpus.rows, cpus.text_rows, strict=True):
        if row.get("cpu") not in online:
            continue
        clock = _CLOCK.fullmatch(str(text_row.get("maxmhz", "")))
        model = str(text_row.get("modelname") or "-")
        if clock is None and model == "-":
            return []
        cpus_of.setdefault((model, clock[1] if clock else ""), set()).add(row["cpu"])
    infos = (
        ({} if model == "-" else {"CoreType": model}) | ({TOP_CLOCK: clock} if clock else {})
        for model, clock in cpus_of
    )
    kinds = zip(cpus_of.values(), infos, strict=True)
    return merge_kinds([RawKind(mask_of(members), -1, info) for members, info in kinds])
