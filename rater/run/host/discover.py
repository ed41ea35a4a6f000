"""This machine, an hwloc XML file or a description as a `Topology`.

The only module that touches hwloc: it loads, exports version 2 XML into memory,
lets our own reader (`rater.plan.hwloc_xml`) make of it what it makes of any
file, and destroys hwloc's topology at once.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from msgspec.structs import replace

from rater.plan.hwloc_xml import parse_xml
from rater.plan.printed_machine import is_wide, parse_printed, plain_text
from rater.plan.topology import (
    EXAMPLE,
    MOST_PUS,
    Details,
    RawNode,
    RawPU,
    Topology,
    build_topology,
    shown,
    without_types,
)
from rater.run.host.kept_xml import kept_xml
from rater.run.host.lstopo import INSTALL, lstopo_xml
from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.system.process import pip_install
from rater.text import packed

THIS_MACHINE = "this machine"
_LARGEST_FILE_BYTES = 24 << 20  # the largest real one known is 0.3 MB, 8192 PUs can take 18
_PIPE_PATIENCE_S = 10.0  # for a pipe whose writer is at work
_PIPE_OPENING_S = 0.5  # for the writer of a named pipe, who cannot open it before we do
_STANDARD_INPUT = Path("-")
_NODES_X_CPUS = compile_later(r"(?:nodes=)?([0-9]{1,6})x([0-9]{1,6})", re.ASCII)


def discover_topology(kept: Path | None = None) -> Topology:
    """Return this machine, without CPUs that this process may not use (cpusets, `taskset`).

    `kept`: a folder for what hwloc said before, while nothing of the machine changes. Raises
    `InputError` when hwloc cannot be loaded or cannot read the machine.
    """
    usable = frozenset(os.sched_getaffinity(0))
    xml = this_machine_xml() if kept is None else kept_xml(kept, this_machine_xml)
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
    source_name = "standard input" if path == _STANDARD_INPUT else str(path)
    if path.is_dir():
        root = path.parent if path.name == "sys" else path
        raise InputError(
            f"{path} is a folder: where it is a copy of /sys, `HWLOC_FSROOT={root} lstopo "
            "machine.xml` makes a file of it that rater reads"
        )
    most_bytes = _LARGEST_FILE_BYTES + 1
    try:
        content = _read(Path("/dev/stdin") if path == _STANDARD_INPUT else path, most_bytes)
        if packing := packed.detect_packing(content):
            content = packed.UnpackedStream(BytesIO(content), packing).read_all(most_bytes)
    except (*packed.TORN, OSError) as error:
        reason = getattr(error, "strerror", None) or f"it cannot be unpacked ({error})"
        raise InputError(f"cannot read the topology file {source_name}: {reason}") from error
    if len(content) > _LARGEST_FILE_BYTES:
        raise InputError(
            f"the topology file {source_name} is larger than {_LARGEST_FILE_BYTES >> 20} MiB: "
            "expected hwloc XML, which has well below 1 MiB"
        )
    text = plain_text(content)
    return parse_printed(text, source_name) or parse_xml(
        text if is_wide(content) else content, source_name
    )


def _read(path: Path, most_bytes: int) -> bytes:
    """Return up to `most` bytes of a file or of a pipe that somebody writes to.

    Raises `OSError`, which for a pipe can mean that nothing comes.
    """
    # Not blocking: to open or read a pipe that nobody writes to would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        readable = select.poll()
        readable.register(descriptor, select.POLLIN)
        patience_s = _PIPE_OPENING_S
        chunks: list[bytes] = []
        bytes_left = most_bytes
        while bytes_left:
            is_ready = bool(readable.poll(patience_s * 1000))
            try:
                chunk = os.read(descriptor, min(bytes_left, 1 << 20))
            except BlockingIOError:  # there is a writer, who has written nothing yet
                if patience_s == _PIPE_PATIENCE_S and not is_ready:
                    raise OSError(errno.ETIMEDOUT, f"silent for {patience_s:g} s") from None
                patience_s = _PIPE_PATIENCE_S
                continue
            if not (chunk or is_ready):
                raise OSError(errno.ENXIO, "a pipe that nobody writes to")
            if not chunk:
                break
            chunks.append(chunk)
            bytes_left -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def parse_synthetic(text: str) -> Topology:
    """Return a machine described as hwloc's synthetic string or as NODESxCPUS.

    `nodes=4x24` has 4 nodes of 24 one-thread cores, CPUs numbered node by node,
    with packages and caches unknown. Raises `InputError` when it describes no machine.
    """
    nodes_x_cpus = _NODES_X_CPUS.fullmatch(text.strip())
    if nodes_x_cpus:
        return _nodes_x_cpus(text.strip(), int(nodes_x_cpus[1]), int(nodes_x_cpus[2]))
    described = without_types(text)
    topology = parse_xml(_hwloc_xml(described, f"the description {shown(text)}"), text.strip())
    if "memory=" in text:
        return topology
    # hwloc makes up 1 GiB for each node that is said to have none.
    return replace(
        topology, nodes=tuple(replace(node, memory_bytes=None) for node in topology.nodes)
    )


def _nodes_x_cpus(text: str, nodes: int, cpus: int) -> Topology:
    if not 1 <= nodes * cpus <= MOST_PUS:
        raise InputError(f"{text[:40]} is {nodes * cpus} CPUs, expected 1 to {MOST_PUS}")
    block = (1 << cpus) - 1
    everything = (1 << nodes * cpus) - 1
    return build_topology(
        [RawPU(os=cpu, core=None, package=None, l3=None, l2=None) for cpu in range(nodes * cpus)],
        [RawNode(node, block << node * cpus, None, None) for node in range(nodes)],
        usable=everything,
        allowed_nodes=everything,
        source=text,
        details=Details(has_kinds=True),
    )


def this_machine_xml() -> str:
    """Return this machine as hwloc's XML, version 2. Raises `InputError` without hwloc."""
    return _hwloc_xml(None, THIS_MACHINE)


def _hwloc_xml(synthetic: str | None, machine_name: str) -> str:
    with own_environment(), _without_warnings():
        try:
            import pyhwloc  # noqa: PLC0415 - 50 ms, and it changes the environment
            from pyhwloc.topology import (  # noqa: PLC0415 - as above
                ExportXmlFlags,
                TopologyFlags,
            )
        except (ImportError, OSError, AttributeError) as error:
            if xml_of_program := lstopo_xml(synthetic):
                return xml_of_program
            raise InputError(
                f"hwloc cannot be loaded to read {machine_name}: {error}. Install it beside rater "
                f"with `{pip_install('pyhwloc>=3.0.1')}` (x86-64 or ARM64, glibc 2.34 or newer), "
                f"or {INSTALL}"
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
        except Exception as error:  # which classes the wheel raises is not documented
            problem = f"{type(error).__name__}: {error}"
        else:
            return str(xml)
    if synthetic is None:
        raise InputError(f"hwloc cannot read this machine ({problem}): see what `lstopo` says")
    raise InputError(f"hwloc makes no machine of {machine_name}: expected one {EXAMPLE}")


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
    import logging  # noqa: PLC0415 - as pyhwloc, which is why it is needed

    disabled_before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled_before)


def _exists(spec: str) -> bool:
    try:
        return Path(spec).exists()
    except (OSError, ValueError):  # longer than any path, or a NUL in it
        return False
