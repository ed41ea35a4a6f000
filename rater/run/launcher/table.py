"""The protocol of rater and its launcher (`native/launcher.h`), packed and unpacked."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

FORMAT = 6  # rises with every change of a structure
_NO_OFFSET = 0xFFFFFFFF  # instead of a mask: the copy has what the launcher was given
REQUEST = struct.Struct("=IIi")
_HEAD = struct.Struct("=II")
# `struct entry` and `struct record` of native/launcher.h, in the order of their members.
_ENTRY = struct.Struct("=4I11I3iq")
RECORD = struct.Struct("=IIiiiiq29q2i")
MOST_RECORDS = 64  # in one message
_TEXT_OFFSET = 32  # of a record: bytes before its figures or text


RequestKind = IntEnum("RequestKind", "START RELEASE ALLOW SIGNAL DISCARD GOODBYE")
RecordKind = IntEnum(
    "RecordKind", "HELLO READY RELEASED STARTED ENDED BROKEN REFUSED REPORT STALLED REPEATED"
)
_WITH_TEXT = frozenset({RecordKind.HELLO, RecordKind.BROKEN, RecordKind.REPORT})
StartStep = IntEnum(
    "StartStep",
    "FORKED GROUP PRIORITY CPUS CPUS_GIVEN MEMORY MEMORY_GIVEN PAGES LIMITS DIRECTORY OUTPUT ERROR "
    "EXECUTE",
)


class ProcessFlag(IntFlag):
    """How the launcher treats one process."""

    REPORTS = 1  # its script has the pipe to report its commands by
    PROOF = 2  # schedstat is read at its gate and at its end
    WELL = 4  # it does not follow a process that failed
    HELD = 8  # it does not follow before ALLOW
    AGAIN = 16  # once it has begun, the launcher starts its entry again: REPEATED


class Record(NamedTuple):
    """A record of the launcher, in the order of its fields there; times are of CLOCK_MONOTONIC."""

    kind: int
    token: int
    pid: int
    status: int  # ENDED: of wait(2); BROKEN: a `StartStep`; REPORT: bytes of text; HELLO: FORMAT
    # REPEATED: the token of the process that it follows
    error: int  # BROKEN: errno; MEMORY_GIVEN: the policy that the kernel set instead
    unused: int
    at_ns: int  # when it happened; STALLED: for how long
    start_ns: int  # 0: it was never released
    planned_ns: int
    seen_ns: int  # the process had not ended at this time; 0: its end was stamped in time
    stalled_ns: int  # the launcher itself had not run for so long
    gate_cpu_ns: int
    gate_delay_ns: int
    gate_peak_bytes: int
    cpu_ns: int  # schedstat of its first thread; -1: not known
    delay_ns: int
    user_ns: int
    system_ns: int
    peak_bytes: int
    minor_faults: int
    major_faults: int
    voluntary: int
    involuntary: int
    read_bytes: int  # of and to disks, with those of children that it waited for
    written_bytes: int
    soft_cpu_s: int  # limits of a process that a signal ended; -1: unlimited, or not read
    hard_cpu_s: int
    soft_file_bytes: int
    hard_file_bytes: int
    looks: int  # at it and the processes below it; 0: it was not seen, and nothing is known
    look_cpu_ns: int  # CPU time of these looks
    mean_bytes: int  # resident memory, each look for the time since the one before; and the most
    most_bytes: int
    stopped_ns: int
    other_cpu_ns: int  # schedstat of all threads but its first, as seen last
    other_delay_ns: int
    last_cpu: int  # -1: not known
    left_group: int  # 1: processes of its group had outlived it, and were killed
    # REPORT: the bytes; BROKEN: the mask that the kernel set instead; HELLO: the digest of the
    # sources that the launcher was made from
    text: bytes = b""


class ProcessEntry(Struct, frozen=True, kw_only=True):
    """One process of a table."""

    token: int  # its name in requests and records, from 1
    copy: int
    argv: Sequence[bytes]
    shared_variables: Mapping[bytes, bytes]  # one object for many processes is packed once
    own_variables: Mapping[bytes, bytes]
    directory: bytes
    output: bytes
    error: bytes
    next_output: bytes = b""  # AGAIN: the files of every second run
    next_error: bytes = b""
    cpus: Sequence[int] | None  # None: those that rater was given
    policy: int = -1  # of memory, in numbers of set_mempolicy(2); -1: unchanged
    nodes: Sequence[int] = ()
    transparent: bool | None = None  # huge pages by the kernel's setting, or none; None: unchanged
    after: int = 0  # token of the process whose end it begins with; 0: it begins with RELEASE
    flags: int = 0  # of `ProcessFlag`
    first_look_ms: int = 0  # from its begin to the first look at it; 0: there are no looks
    offset_ns: int = 0  # from RELEASE
    accepted: Sequence[int] = (0,)  # exit codes that are no failure


# -- The environment. Copies get every byte that rater got: names that are there twice, and entries
# without a name, included.

# Python sets this in its own environment where there is no locale (PEP 538).
_COERCED = (b"LC_CTYPE", (b"C.UTF-8", b"C.utf8", b"UTF-8"))


@cache
def _initial_environment() -> tuple[tuple[bytes, bytes], ...]:
    """Return name and whole entry of each variable that this process was started with, in order.

    The name of an entry without "=" is empty.
    """
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return ()
    entries = block.removesuffix(b"\0").split(b"\0") if block else []
    return tuple((entry.partition(b"=")[0] if b"=" in entry else b"", entry) for entry in entries)


def inherited_environment() -> dict[bytes, bytes]:
    """Return the variables of this process but those that Python itself has added."""
    variables = {name: value for name, value in os.environb.items() if name}
    coerced_name, coerced_values = _COERCED
    was_given = any(name == coerced_name for name, _ in _initial_environment())
    if variables.get(coerced_name) in coerced_values and not was_given:
        del variables[coerced_name]
    return variables


def environment_entries(
    variables: Mapping[bytes, bytes], excluded: Container[bytes]
) -> Iterator[bytes]:
    """Yield NAME=VALUE of all variables but the names in `excluded`.

    Entries that rater was started with, and that did not change, come first and in their order.
    Entries without a name, and later entries of a name, stay among them.
    """
    unchanged: dict[bytes, bool] = {b"": True}
    for name, entry in _initial_environment():
        if name not in unchanged:  # of two entries of a name the first counts
            value = variables.get(name)
            unchanged[name] = value is not None and b"%b=%b" % (name, value) == entry
        if unchanged[name] and name not in excluded:
            yield entry
    for name, value in variables.items():
        if name not in excluded and not unchanged.get(name):
            yield b"%b=%b" % (name, value)


# -- A table, requests and records as bytes --------------------------------------------------------


def _pack_list(texts: Iterable[bytes]) -> bytes:
    words = [*texts]
    data = b"".join([word + b"\0" for word in words])
    if data.count(b"\0") != len(words):  # the launcher would read the begin of one alone
        raise ValueError("embedded null byte")
    return struct.pack("=I", len(words)) + data


class PackedEnvironments:
    """The variables that copies share, as bytes of a table: made once for all tables of a run."""

    def __init__(self) -> None:
        # Variables are kept beside their bytes, so that no other ones get their identity.
        self._packed: dict[object, tuple[Mapping[bytes, bytes], bytes]] = {}

    def pack(self, variables: Mapping[bytes, bytes], excluded: Collection[bytes]) -> bytes:
        """Return the entries of shared variables that are not in `excluded`."""
        key = (id(variables), *excluded)
        if key not in self._packed:
            data = _pack_list(environment_entries(variables, excluded))
            self._packed[key] = (variables, data)
        return self._packed[key][1]


class _Packer:
    """The strings, lists and masks behind the entries of a table; equal ones are packed once."""

    def __init__(self, begin_offset: int) -> None:
        self._parts: list[bytes] = []
        self._offset = begin_offset
        self._strings: dict[bytes, int] = {}
        self._lists: dict[object, int] = {}

    def _append(self, data: bytes) -> int:
        offset = self._offset
        data += b"\0" * (-len(data) % 4)
        self._parts.append(data)
        self._offset += len(data)
        return offset

    def string(self, text: bytes) -> int:
        offset = self._strings.get(text)
        if offset is None:
            if b"\0" in text:  # the launcher would read the begin of it alone
                raise ValueError("embedded null byte")
            offset = self._strings[text] = self._append(text + b"\0")
        return offset

    def list(self, texts: Sequence[bytes]) -> int:
        key = tuple(texts)
        offset = self._lists.get(key)
        if offset is None:
            offset = self._lists[key] = self._append(_pack_list(texts))
        return offset

    def packed(self, data: bytes) -> int:
        """Add what is packed already; it is kept elsewhere, and one object."""
        offset = self._lists.get(id(data))
        if offset is None:
            offset = self._lists[id(data)] = self._append(data)
        return offset

    def mask(self, numbers: Sequence[int] | None) -> int:
        if numbers is None:
            return _NO_OFFSET
        key = ("mask", tuple(numbers))
        offset = self._lists.get(key)
        if offset is None:
            bits = sum(1 << number for number in set(numbers))
            data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
            offset = self._lists[key] = self._append(struct.pack("=I", len(data)) + data)
        return offset

    def packed_bytes(self) -> bytes:
        """Return all that was appended; a table ends with a zero byte."""
        return b"".join((*self._parts, b"\0\0\0\0"))


def pack_table(
    entries: Sequence[ProcessEntry], environments: PackedEnvironments | None = None
) -> bytes:
    """Return a table, as bytes. `environments`: those of earlier tables of the run."""
    environments = PackedEnvironments() if environments is None else environments
    packer = _Packer(_HEAD.size + _ENTRY.size * len(entries))
    heads = [_pack_entry(entry, packer, environments) for entry in entries]
    return b"".join((_HEAD.pack(FORMAT, len(entries)), *heads, packer.packed_bytes()))


def _pack_entry(entry: ProcessEntry, packer: _Packer, environments: PackedEnvironments) -> bytes:
    own_variables = entry.own_variables
    return _ENTRY.pack(
        entry.token,
        entry.after,
        entry.copy,
        entry.flags,
        packer.list(entry.argv),
        packer.packed(environments.pack(entry.shared_variables, own_variables.keys())),
        packer.list([*map(b"=".join, own_variables.items())]),
        packer.string(entry.directory),
        packer.string(entry.output),
        packer.string(entry.error),
        packer.string(entry.next_output),
        packer.string(entry.next_error),
        packer.mask(entry.cpus),
        packer.mask(entry.nodes or None),
        packer.mask(entry.accepted),
        entry.policy,
        -1 if entry.transparent is None else int(entry.transparent),
        entry.first_look_ms,
        entry.offset_ns,
    )


def unpack_records(data: bytes) -> Iterator[Record]:
    """Yield the records of a message, which has whole ones."""
    whole_bytes = len(data) - len(data) % RECORD.size
    for place, fields in enumerate(RECORD.iter_unpack(data[:whole_bytes])):
        record = Record(*fields)
        if record.kind in _WITH_TEXT:
            begin = place * RECORD.size
            end = begin + RECORD.size
            if record.kind == RecordKind.REPORT:
                end = begin + _TEXT_OFFSET + record.status
            record = record._replace(text=data[begin + _TEXT_OFFSET : end])
        yield record
