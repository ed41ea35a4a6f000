"""This machine, an hwloc XML file or a description as a `Topology`.

The only module that touches hwloc: it loads, exports version 2 XML into memory,
lets our own reader (`rater.plan.hwloc_xml`) make of it what it makes of any
file, and destroys hwloc's topology at once.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import select
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from msgspec.structs import replace

from rater.plan.hwloc_xml import parse_xml
from rater.plan.topology import (
    EXAMPLE,
    MOST_PUS,
    Details,
    RawDistances,
    RawNode,
    RawPU,
    Topology,
    build_topology,
    shown,
    without_types,
)
from rater.system.errors import InputError
from rater.system.process import pip_install
from rater.text import packed
from rater.text.cpuset import MAX_NUMBER, mask_of, parse_list

THIS_MACHINE = "this machine"
_LARGEST_FILE_BYTES = 24 << 20  # the largest real one known is 0.3 MB, 8192 PUs can take 18
_PIPE_PATIENCE_S = 10.0  # for a pipe whose writer is at work
_PIPE_OPENING_S = 0.5  # for the writer of a named pipe, who cannot open it before we do
_STANDARD_INPUT = Path("-")
_NODES_X_CPUS = re.compile(r"(?:nodes=)?([0-9]{1,6})x([0-9]{1,6})", re.ASCII)


def discover_topology() -> Topology:
    """Return this machine, without CPUs that this process may not use (cpusets, `taskset`).

    Raises `InputError` when hwloc cannot be loaded or cannot read the machine.
    """
    usable = frozenset(os.sched_getaffinity(0))
    xml = _hwloc_xml(None, THIS_MACHINE)
    return parse_xml(xml, THIS_MACHINE, usable=usable, is_this_system=True)


def load_topology(spec: str) -> Topology:
    """Return the machine `--topology` names: an existing path is a file, all else a description."""
    if not spec.strip():
        raise InputError(
            f"an empty topology, expected an hwloc XML file or a description {EXAMPLE}"
        )
    if _exists(spec) or Path(spec) == _STANDARD_INPUT:
        return from_file(Path(spec))
    if "/" in spec or spec.endswith(".xml"):
        raise InputError(
            f"there is no topology file {spec}: expected the path of an hwloc XML file"
        )
    return parse_synthetic(spec)


def from_file(path: Path) -> Topology:
    """Return the machine of a file, or of standard input (`-`).

    It holds hwloc XML (version 2 or 3), or what `numactl -H` or `lscpu` print; gzip, bzip2 and xz
    are unpacked. Raises `InputError` when it cannot be read or is wrong, with the line.
    """
    name = "standard input" if path == _STANDARD_INPUT else str(path)
    if path.is_dir():
        root = path.parent if path.name == "sys" else path
        raise InputError(
            f"{path} is a folder: where it is a copy of /sys, `HWLOC_FSROOT={root} lstopo "
            "machine.xml` makes a file of it that rater reads"
        )
    most = _LARGEST_FILE_BYTES + 1
    try:
        text = _read(Path("/dev/stdin") if path == _STANDARD_INPUT else path, most)
        if kind := packed.kind_of(text):
            text = packed.UnpackedStream(BytesIO(text), kind).read_all(most)
    except (*packed.TORN, OSError) as error:
        why = getattr(error, "strerror", None) or f"it cannot be unpacked ({error})"
        raise InputError(f"cannot read the topology file {name}: {why}") from error
    if len(text) > _LARGEST_FILE_BYTES:
        raise InputError(
            f"the topology file {name} is larger than {_LARGEST_FILE_BYTES >> 20} MiB: "
            "expected hwloc XML, which has well below 1 MiB"
        )
    return parse_printed(text.decode("utf-8", "replace"), name) or parse_xml(text, name)


def _read(path: Path, most: int) -> bytes:
    """Return up to `most` bytes of a file or of a pipe that somebody writes to.

    Raises `OSError`, which for a pipe can mean that nothing comes.
    """
    # Not blocking: to open or read a pipe that nobody writes to would wait for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        ready = select.poll()
        ready.register(handle, select.POLLIN)
        waits = _PIPE_OPENING_S
        parts: list[bytes] = []
        left = most
        while left:
            came = bool(ready.poll(waits * 1000))
            try:
                part = os.read(handle, min(left, 1 << 20))
            except BlockingIOError:  # there is a writer, who has written nothing yet
                if waits == _PIPE_PATIENCE_S and not came:
                    raise OSError(errno.ETIMEDOUT, f"silent for {waits:g} s") from None
                waits = _PIPE_PATIENCE_S
                continue
            if not (part or came):
                raise OSError(errno.ENXIO, "a pipe that nobody writes to")
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(handle)


# -- What `numactl -H` and `lscpu` print of a machine ----------------------------------------------

_NODE_CPUS = re.compile(r"^node (\d{1,5}) cpus:([ \d]*)$", re.MULTILINE | re.ASCII)
_NODE_SIZE = re.compile(r"^node (\d{1,5}) size: (\d{1,9}) MB$", re.MULTILINE | re.ASCII)
_DISTANCES = re.compile(r"^ *(\d{1,5}):((?: +\d{1,5})+) *$", re.MULTILINE | re.ASCII)
_NODE_LIST = re.compile(
    r'NUMA node(\d{1,5}) CPU\(s\):(?:",\s*"data":\s*")? *([\d,-]{1,50000})', re.ASCII
)


def parse_printed(text: str, source: str) -> Topology | None:
    """Return the machine that `numactl -H` or `lscpu` (-e, -p, -J) printed; None: another text."""
    nodes = {int(node): tuple(map(int, cpus.split())) for node, cpus in _NODE_CPUS.findall(text)}
    try:
        nodes = nodes or {int(node): parse_list(cpus) for node, cpus in _NODE_LIST.findall(text)}
        listed = [{"cpu": cpu, "node": node} for node, cpus in nodes.items() for cpu in cpus]
        rows: list[Mapping[str, object]] = [*(listed or _rows(text))]
        at = [{key: int(str(it)) for key, it in row.items() if str(it).isdecimal()} for row in rows]
    except (ValueError, TypeError, AttributeError):
        return None
    offline = {it["cpu"] for it, row in zip(at, rows, strict=True) if row.get("online") in _OFF}
    cpus = {it["cpu"]: it for it in at if "cpu" in it and it["cpu"] not in offline}
    if not cpus or max(cpus) > MAX_NUMBER or max(it.get("node", 0) for it in at) > MAX_NUMBER:
        return None

    def place(cpu: int, *levels: str) -> tuple[int, ...]:
        return tuple(cpus[cpu].get(level, -1) for level in levels)

    order = sorted(cpus, key=lambda cpu: (*place(cpu, "socket", "node", "l3", "l2", "core"), cpu))

    def counted(level: str) -> dict[int, int | None]:
        """Return the index of each CPU's part of a level, counted in order."""
        parts = dict.fromkeys(place(cpu, "socket", level) for cpu in order if level in cpus[cpu])
        index = {part: number for number, part in enumerate(parts)}
        return {cpu: index.get(place(cpu, "socket", level)) for cpu in order}

    core, package, l3, l2 = (counted(level) for level in ("core", "socket", "l3", "l2"))
    members = {node: mask_of(()) for node in nodes}
    for cpu in order:
        node = cpus[cpu].get("node", 0)
        members[node] = members.get(node, 0) | 1 << cpu
    sizes = {int(node): int(mib) << 20 for node, mib in _NODE_SIZE.findall(text)}
    matrix = {int(node): tuple(map(float, row.split())) for node, row in _DISTANCES.findall(text)}
    square = bool(matrix) and all(len(row) == len(matrix) for row in matrix.values())
    everything = mask_of(cpus)
    return build_topology(
        [
            RawPU(os=cpu, core=core[cpu], package=package[cpu], l3=l3[cpu], l2=l2[cpu])
            for cpu in order
        ],
        [RawNode(node, members[node], sizes.get(node, 0), None) for node in sorted(members)],
        usable=everything,
        allowed_nodes=mask_of(members),
        source=source,
        distances=RawDistances(tuple(matrix), tuple(matrix.values())) if square else None,
        details=Details(has_cores=None not in core.values(), offline=tuple(sorted(offline))),
    )


_OFF = ("no", "n", "N", False)


def _rows(text: str) -> list[dict[str, object]]:
    """Return a row a CPU of `lscpu -e`, `-p` or `-J -e`: names of columns are in lower case."""
    if text.lstrip().startswith("{"):
        found = json.loads(text).get("cpus", [])
    else:
        heading, *lines = [line for line in text.splitlines() if "cpu" in line.lower()][-1:] + [
            line for line in text.splitlines() if re.match(r" *\d", line)
        ]
        comma = "," if "," in heading else None
        names = [name.strip() for name in heading.lstrip("# ").lower().split(comma)]
        if names[0] != "cpu":
            return []
        found = [dict(zip(names, line.split(comma), strict=False)) for line in lines]
    return [
        {
            name.lower(): part
            for key, value in row.items()
            for name, part in zip(
                key.split(":"), str(value).split(":") if ":" in key else [value], strict=False
            )
        }
        for row in found
    ]


def parse_synthetic(text: str) -> Topology:
    """Return a machine described as hwloc's synthetic string or as NODESxCPUS.

    `nodes=4x24` has 4 nodes of 24 one-thread cores, CPUs numbered node by node,
    with packages and caches unknown. Raises `InputError` when it describes no machine.
    """
    found = _NODES_X_CPUS.fullmatch(text.strip())
    if found:
        return _nodes_x_cpus(text.strip(), int(found[1]), int(found[2]))
    described = without_types(text)
    topology = parse_xml(_hwloc_xml(described, f"the description {shown(text)}"), text.strip())
    if "memory=" in text:
        return topology
    # hwloc makes up 1 GiB for each node that is said to have none.
    return replace(topology, nodes=tuple(replace(n, memory_bytes=0) for n in topology.nodes))


def _nodes_x_cpus(text: str, nodes: int, cpus: int) -> Topology:
    if not 1 <= nodes * cpus <= MOST_PUS:
        raise InputError(f"{text[:40]} is {nodes * cpus} CPUs, expected 1 to {MOST_PUS}")
    block = (1 << cpus) - 1
    everything = (1 << nodes * cpus) - 1
    return build_topology(
        [RawPU(os=cpu, core=None, package=None, l3=None, l2=None) for cpu in range(nodes * cpus)],
        [RawNode(node, block << node * cpus, 0, None) for node in range(nodes)],
        usable=everything,
        allowed_nodes=everything,
        source=text,
    )


def _hwloc_xml(synthetic: str | None, what: str) -> str:
    with own_environment(), _without_warnings():
        try:
            import pyhwloc  # noqa: PLC0415 - 50 ms, and it changes the environment
            from pyhwloc.topology import (  # noqa: PLC0415 - as above
                ExportXmlFlags,
                TopologyFlags,
            )
        except (ImportError, OSError, AttributeError) as error:
            raise InputError(
                f"hwloc cannot be loaded to read {what}: {error}. Install it beside rater with "
                f"`{pip_install('pyhwloc>=3.0.1')}` (x86-64 or ARM64, glibc 2.34 or newer)"
            ) from error
        try:
            topology = (
                pyhwloc.from_this_system()
                if synthetic is None
                else pyhwloc.from_synthetic(synthetic)
            )
            # Disallowed parts keep their place so that logical indexes are those of the machine.
            with topology.set_flags([TopologyFlags.INCLUDE_DISALLOWED]) as loaded:
                xml = loaded.export_xml_buffer([ExportXmlFlags.V2])
        except Exception as error:  # of hwloc's own, OSError, ValueError: as the wheel likes
            problem = f"{type(error).__name__}: {error}"
        else:
            return str(xml)
    if synthetic is None:
        raise InputError(f"hwloc cannot read this machine ({problem}): see what `lstopo` says")
    raise InputError(f"hwloc makes no machine of {what}: expected one {EXAMPLE}")


@contextmanager
def own_environment() -> Iterator[None]:
    """Hide the user's HWLOC_* variables, and take back what importing pyhwloc sets.

    HWLOC_XMLFILE, HWLOC_SYNTHETIC or HWLOC_FSROOT would put another machine in the
    place of this one; a left-over HWLOC_PLUGINS_PATH would reach the copies.
    """
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("HWLOC_")}
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("HWLOC_")]:
            del os.environ[name]
        os.environ.update(hidden)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep pyhwloc from logging "Topology is not loaded" when a load failed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _exists(spec: str) -> bool:
    try:
        return Path(spec).exists()
    except (OSError, ValueError):  # longer than any path, or a NUL in it
        return False
