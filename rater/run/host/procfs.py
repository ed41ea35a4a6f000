"""/proc and /sys: small files, processes by open directory, their texts as numbers."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rater.record.events import GateFacts
from rater.system.patterns import compile_later
from rater.system.process import stat_fields
from rater.text.cpuset import parse_list

# -- Reading the small files of /proc and /sys: what is not there is None, never an error ----------

_MEMINFO = compile_later(r"^(?:Node +\d+ +)?([\w()]+): +(\d+)( kB)?$", re.MULTILINE)


def read_text(path: str | Path) -> str | None:
    """Return what a file says without white space around it, None when that is nothing."""
    try:
        return read_file(path).decode("utf-8", "replace").strip() or None
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """Return the whole number a file holds, None when it holds none."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def counted(path: Path, name: str) -> int | None:
    """Return the number beside a name in a file of lines `NAME NUMBER`; None without that name."""
    return find_count(read_if_there(path), name.encode())


def find_count(text: bytes, name: bytes) -> int | None:
    """Return the number beside a name in lines `NAME NUMBER`; None without that name.

    A search by a pattern takes ten times as long in /proc/vmstat.
    """
    mark = name + b" "
    begin = 0 if text.startswith(mark) else text.find(b"\n" + mark) + 1
    if not begin and not text.startswith(mark):
        return None
    begin += len(mark)
    end = text.find(b"\n", begin)
    digits = text[begin : end if end >= 0 else None]
    return int(digits) if digits.isdigit() else None


_ZONES = (b"dma", b"dma32", b"normal", b"movable", b"device")  # of memory, in /proc/vmstat
# Linux counts this for each zone since 4.10.
_STALLS = (b"allocstall", *(b"allocstall_" + zone for zone in _ZONES))


def stalls_of(vmstat: bytes) -> int | None:
    """Return how often the machine had to free memory before it gave any; None: not counted."""
    counts = [count for name in _STALLS if (count := find_count(vmstat, name)) is not None]
    return sum(counts) if counts else None


COUNTING = 1 << 38 | 1 << 21  # CAP_PERFMON, CAP_SYS_ADMIN: whatever kernel settings say


def capabilities(root: Path = Path("/")) -> int:
    """Return the effective capabilities of this process as bits; 0 also when they are unknown."""
    status = read_text(root / "proc/self/status") or ""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(match[1], 16) if match else 0


def list_folder(folder: Path, pattern: str = "*") -> list[Path]:
    """Return what lies in a folder, sorted by name; nothing when there is no folder."""
    return sorted(folder.glob(pattern))


def meminfo(path: Path) -> dict[str, int]:
    """Return the entries of /proc/meminfo or a node's meminfo: bytes, or numbers of pages."""
    return {
        key: int(value) * (1024 if unit else 1)
        for key, value, unit in _MEMINFO.findall(read_text(path) or "")
    }


# -- The texts of /proc/PID as numbers: numa_maps, smaps_rollup, stat, status, sched ---------------
#
# Pages are counted with the size that the kernel gives for their mapping
# (`kernelpagesize_kB`): a line of numa_maps counts a 1 GB huge page as 1, but a
# transparent one as 512 pages of 4 KB.

# The last fields of a line of numa_maps: pages by node, and their size.
_NODES = compile_later(rb"((?: N\d+=\d+)+) kernelpagesize_kB=(\d+)$")
# The kernel writes blanks and `=` in file names as \040 and \075: this matches no part of a name.
_ANON = compile_later(rb" anon=(\d+)(?= |$)")
_POLICY = compile_later(rb" (.+?)(?: (?:file=|heap|stack|huge|anon=|dirty=|mapped=)|$)")
# Shared memory without a file (MAP_SHARED | MAP_ANONYMOUS, memfd_create, shmget) is the copy's own
# as its anonymous memory is; numa_maps counts no `anon` pages there. What lies in /dev/shm may be
# somebody's input.
_SHARED = compile_later(rb" file=/(?:dev/zero\\040\(deleted\)|memfd:|SYSV)")
_SIZE = compile_later(rb"^(\w+):\s+(\d+) kB$", re.MULTILINE)
_STATUS = compile_later(
    rb"\n(State|TracerPid|VmHWM|VmSwap|Cpus_allowed_list|Mems_allowed_list):[ \t]*([^\n]*)"
)
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of the kernel's sched.h
_MIGRATIONS = compile_later(rb"nr_migrations\s*:\s*(\d+)\n")
_PAGES_MIGRATED = compile_later(rb"numa_pages_migrated\s*:\s*(\d+)\n")


class NumaMaps(NamedTuple):
    """Memory of one process by /proc/PID/numa_maps."""

    node_bytes: dict[int, int]  # anonymous and shared memory and huge pages by node
    page_bytes: dict[int, int]  # anonymous and shared by page size, transparent huge as small
    huge_bytes: dict[int, int]  # hugetlb pages by their size, private or shared
    policy_bytes: dict[str, int]  # all of them by the policy of their mapping
    resident_bytes: int  # all pages present, files included


class Stat(NamedTuple):
    """One process or thread by its stat file; times in ticks."""

    name: str  # at most 15 bytes
    state: str
    parent: int
    kernel: bool  # a thread of the kernel
    own: int  # user and system time of all its threads
    children: int  # the same of children that ended and were waited for
    threads: int
    started: int  # since boot; with the pid it tells a process from a later one
    rss_pages: int
    cpu: int  # it ran on last

    @property
    def dead(self) -> bool:
        """It has ended, waited for or not."""
        return self.state in "ZXx"


class Status(NamedTuple):
    """What is used of a status file; None: not in it."""

    state: str = ""  # `T (stopped)`
    tracer: int = 0  # process that traces it; 0: none does
    cpus: tuple[int, ...] | None = None  # Cpus_allowed_list
    mems: tuple[int, ...] | None = None  # Mems_allowed_list
    peak_bytes: int | None = None  # VmHWM, of this program only: exec begins anew
    swap_bytes: int | None = None


def parse_numa_maps(text: bytes) -> NumaMaps:
    """Return the sums over all mappings.

    A private mapping of a file can hold pages of the file and anonymous ones in
    one line, counted together by node. Where these lie on several nodes, only
    so many are taken for anonymous as the file's pages can not be.
    """
    bytes_by_node: dict[int, int] = {}
    bytes_by_page_size: dict[int, int] = {}
    huge_bytes: dict[int, int] = {}
    bytes_by_policy: dict[str, int] = {}
    resident_bytes = 0
    for line in text.split(b"\n"):
        # The address before the policy is left out: it differs between copies, which otherwise have
        # the same mappings, so that the cache of parsed lines serves them all.
        mapping = _mapping(line[line.find(b" ") :])
        if mapping is None:
            continue
        resident_bytes += mapping.resident_bytes
        own_bytes = mapping.own_bytes
        if not own_bytes:  # of a file, as most are
            continue
        for node, count in mapping.nodes:
            bytes_by_node[node] = bytes_by_node.get(node, 0) + count
        table = huge_bytes if mapping.huge else bytes_by_page_size
        table[mapping.page_bytes] = table.get(mapping.page_bytes, 0) + own_bytes
        if mapping.policy is not None:
            bytes_by_policy[mapping.policy] = bytes_by_policy.get(mapping.policy, 0) + own_bytes
    return NumaMaps(
        node_bytes=bytes_by_node,
        page_bytes=bytes_by_page_size,
        huge_bytes=huge_bytes,
        policy_bytes=bytes_by_policy,
        resident_bytes=resident_bytes,
    )


class _Mapping(NamedTuple):
    """One line of numa_maps; `own_bytes` are anonymous, shared or huge."""

    page_bytes: int
    resident_bytes: int
    own_bytes: int = 0
    huge: bool = False
    nodes: tuple[tuple[int, int], ...] = ()  # number, bytes of its own
    policy: str | None = None


@lru_cache(4096)
def _mapping(line: bytes) -> _Mapping | None:
    nodes_and_size = _NODES.match(line, max(0, line.find(b" N")))
    if nodes_and_size is None:
        return None
    page_bytes = int(nodes_and_size[2]) * 1024
    counts = (field[1:].split(b"=") for field in nodes_and_size[1].split())
    pages_by_node = {int(node): int(count) for node, count in counts}
    all_pages = sum(pages_by_node.values())
    anonymous_match = _ANON.search(line)
    is_huge = b" huge " in line
    own_pages = int(anonymous_match[1]) if anonymous_match else 0
    if is_huge or (not own_pages and _SHARED.search(line)):
        own_pages = all_pages
    if not own_pages or not page_bytes:
        return _Mapping(page_bytes, all_pages * page_bytes)
    file_pages = all_pages - own_pages
    if file_pages > 0:
        pages_by_node = (
            dict.fromkeys(pages_by_node, own_pages)
            if len(pages_by_node) == 1
            else {node: max(0, count - file_pages) for node, count in pages_by_node.items()}
        )
    policy_match = _POLICY.match(line)
    return _Mapping(
        page_bytes=page_bytes,
        resident_bytes=all_pages * page_bytes,
        own_bytes=own_pages * page_bytes,
        huge=is_huge,
        nodes=tuple((node, count * page_bytes) for node, count in pages_by_node.items()),
        policy=policy_match[1].decode("ascii", "replace") if policy_match else None,
    )


def parse_sizes(text: bytes) -> dict[str, int]:
    """Return the sizes that smaps_rollup names, in bytes."""
    return {key.decode(): int(size) * 1024 for key, size in _SIZE.findall(text)}


def parse_stat(text: bytes) -> Stat | None:
    """Return what a stat file says (proc_pid_stat(5) counts its fields from 1), None if cut off."""
    fields = stat_fields(text, 39)
    try:
        return Stat(
            name=fields[2].decode("utf-8", "replace"),
            state=fields[3].decode(),
            parent=int(fields[4]),
            kernel=bool(int(fields[9]) & _KERNEL_THREAD),
            own=int(fields[14]) + int(fields[15]),
            children=int(fields[16]) + int(fields[17]),
            threads=int(fields[20]),
            started=int(fields[22]),
            rss_pages=int(fields[24]),
            cpu=int(fields[39]),
        )
    except (IndexError, ValueError):
        return None


def ticks_of_children(text: bytes) -> int:
    """Return the CPU time of children that were waited for, by a stat file; 0 if it is cut off."""
    fields = text[text.rfind(b")") + 2 :].split(None, 15)  # from the third on
    return int(fields[13]) + int(fields[14]) if len(fields) > 14 else 0


def parse_status(text: bytes) -> Status:
    """Return what is used of a status file."""
    text_by_key = dict(_STATUS.findall(text))
    bytes_by_key = {
        key: int(size_text[:-3]) << 10
        for key, size_text in text_by_key.items()
        if size_text.endswith(b" kB")
    }
    return Status(
        state=text_by_key.get(b"State", b"").decode(),
        tracer=int(text_by_key.get(b"TracerPid", 0)),
        cpus=_numbers(text_by_key.get(b"Cpus_allowed_list")),
        mems=_numbers(text_by_key.get(b"Mems_allowed_list")),
        peak_bytes=bytes_by_key.get(b"VmHWM"),
        swap_bytes=bytes_by_key.get(b"VmSwap"),
    )


@lru_cache(4096)
def _numbers(text: bytes | None) -> tuple[int, ...] | None:
    return None if text is None else parse_list(text.decode())


def parse_sched(text: bytes) -> tuple[int | None, int | None]:
    """Return moves to other CPUs and pages that balancing moved, None for what is not there."""
    moves, pages = _MIGRATIONS.search(text), _PAGES_MIGRATED.search(text)
    return int(moves[1]) if moves else None, int(pages[1]) if pages else None


# -- The open directory of a process in /proc, and what is read through it -------------------------
#
# A descriptor of /proc/PID belongs to that process as a pidfd does: once the
# process is gone it reads nothing, and never a later process of the same number.
# It must be opened while the process can not be reaped by somebody else.

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CHUNK = 1 << 16
_TRANSPARENT = Path("/sys/kernel/mm/transparent_hugepage")


def open_process(pid: int) -> int:
    """Return a descriptor of /proc/PID; raises `FileNotFoundError` when there is none."""
    return os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)


def read_file(name: str | Path, directory: int | None = None) -> bytes:
    """Return all of a file, in half the system calls of an open stream.

    `directory`: the descriptor of the folder it is in. Raises `OSError` when it is gone or hidden.
    """
    descriptor = os.open(name, os.O_RDONLY, dir_fd=directory)
    try:
        content = b""
        while chunk := os.read(descriptor, _CHUNK):
            content += chunk
        return content
    finally:
        os.close(descriptor)


def read_if_there(path: Path) -> bytes:
    """Return all of a file; nothing where it is gone or hidden."""
    with suppress(OSError):
        return read_file(path)
    return b""


class KeptFile:
    """A file of the kernel that is read time and again; it stays open from the first reading on."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._lock = threading.Lock()  # nothing is read by a number that was closed

    def read(self) -> bytes:
        """Return all that it says now; nothing where it is not there, or hidden."""
        with self._lock, suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY)
            content = b""
            while chunk := os.pread(self._descriptor, _CHUNK, len(content)):
                content += chunk
            return content
        return b""

    def close(self) -> None:
        """Close it."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None


def read_piece(name: str, directory: int | None = None) -> bytes:
    """Return a file that the kernel hands out in one piece: stat, status, sched."""
    descriptor = os.open(name, os.O_RDONLY, dir_fd=directory)
    try:
        return os.read(descriptor, _CHUNK)
    finally:
        os.close(descriptor)


def threads(directory: int) -> list[int]:
    """Return the threads of the process."""
    folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    try:
        names = os.listdir(folder)  # noqa: PTH208 (a descriptor, not a path)
    finally:
        os.close(folder)
    return [int(name) for name in names]


def status_of(pid: int) -> Status:
    """Return the status of a process; an empty one when the process is gone or hidden."""
    try:
        return parse_status(read_piece(f"/proc/{pid}/status"))
    except OSError:
        return Status()


def gate_facts(pid: int) -> GateFacts:
    """Return what the kernel allows a copy that waits at its gate; it must not be reaped yet."""
    status = status_of(pid)
    return GateFacts(status.cpus, status.mems)


def transparent_huge_page_bytes() -> int | None:
    """Return the size of transparent huge pages; None when the kernel gives out none.

    Since Linux 6.8 a size of its own setting can be on while the general one is off.
    """
    page_bytes = read_number(_TRANSPARENT / "hpage_pmd_size")
    if page_bytes is None:
        return None
    own_setting = read_text(_TRANSPARENT / f"hugepages-{page_bytes // 1024}kB/enabled")
    general_setting = read_text(_TRANSPARENT / "enabled")
    is_off = re.search(r"\[never\]", general_setting or "") and not re.search(
        r"\[(always|madvise)\]", own_setting or ""
    )
    return None if is_off else page_bytes
