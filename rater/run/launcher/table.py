"""What rater and its launcher say to each other: `native/launcher.h`, packed and unpacked."""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

FORMAT = 2  # rises with every change of a structure
_NO_OFFSET = 0xFFFFFFFF
REQUEST = struct.Struct("=IIi")
_HEAD = struct.Struct("=II")
_ENTRY = struct.Struct("=4I9I3iq")
RECORD = struct.Struct("=IIiiiiq20q2i")
MOST_RECORDS = 64  # in one message
_TEXT_OFFSET = 32  # bytes before the figures


# What rater asks for; what a record is about; what a process could not do before it began.
RequestKind = IntEnum("RequestKind", "START RELEASE ALLOW SIGNAL DISCARD GOODBYE")
RecordKind = IntEnum(
    "RecordKind", "HELLO READY RELEASED STARTED ENDED BROKEN REFUSED REPORT STALLED"
)
StartStep = IntEnum(
    "StartStep",
    "FORKED GROUP CPUS CPUS_GIVEN MEMORY MEMORY_GIVEN PAGES LIMITS DIRECTORY OUTPUT ERROR EXECUTE",
)


class ProcessFlag(IntFlag):
    """Of one process."""

    REPORTS = 1  # its script has the pipe to report its commands by
    PROOF = 2  # it is looked at when it has ended
    WELL = 4  # it does not follow one that failed
    HELD = 8  # it does not begin before ALLOW either


class Record(NamedTuple):
    """What happened; times are of CLOCK_MONOTONIC."""

    kind: int
    token: int
    pid: int
    status: int  # ENDED: as wait(2) has it; BROKEN: a `StartStep`
    error: int
    unused: int
    at_ns: int
    start_ns: int  # 0: never released
    planned_ns: int
    seen_ns: int  # it had not ended then; 0: its end is stamped right
    stalled_ns: int  # for so long the launcher itself did not run
    gate_cpu_ns: int
    gate_delay_ns: int
    gate_peak_bytes: int
    cpu_ns: int  # of its first thread; -1: not known
    delay_ns: int
    user_ns: int
    system_ns: int
    peak_bytes: int
    minor_faults: int
    major_faults: int
    voluntary: int
    involuntary: int
    soft_cpu_s: int  # limits of one that a signal ended; -1: unlimited, or not read
    hard_cpu_s: int
    soft_file_bytes: int
    hard_file_bytes: int
    last_cpu: int  # -1: not known
    left_group: int  # processes of its group were there, and were killed
    text: bytes = b""  # REPORT: what was written; BROKEN: the mask that the kernel gave


class ProcessEntry(Struct, frozen=True, kw_only=True):
    """One process of a table."""

    token: int
    copy: int
    argv: Sequence[bytes]
    shared_variables: Mapping[bytes, bytes]  # variables; the same object for many is packed once
    own_variables: Mapping[bytes, bytes]
    directory: bytes
    output: bytes
    error: bytes
    cpus: Sequence[int] | None  # None: those that rater was given
    policy: int = -1  # of memory, as set_mempolicy(2) has it; -1: as it is
    nodes: Sequence[int] = ()
    transparent: bool | None = None  # huge pages of the kernel's own accord; None: as it is
    after: int = 0  # token of the process whose end it begins with; 0: with RELEASE
    flags: int = 0  # of `ProcessFlag`
    offset_ns: int = 0  # from RELEASE
    accepted: Sequence[int] = (0,)  # exit codes that are no failure


# -- The environment: byte for byte, twice the same name and entries without one included ---------

# What Python sets in its own environment where there is no locale (PEP 538).
_COERCED = (b"LC_CTYPE", (b"C.UTF-8", b"C.utf8", b"UTF-8"))


@cache
def _initial_environment() -> tuple[tuple[bytes, bytes], ...]:
    """Return name and whole entry of all that this process was started with, in order."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return ()
    entries = block.removesuffix(b"\0").split(b"\0") if block else []
    return tuple((entry.partition(b"=")[0] if b"=" in entry else b"", entry) for entry in entries)


def inherited_environment() -> dict[bytes, bytes]:
    """Return the variables of this process but those that Python itself has added."""
    found = {name: value for name, value in os.environb.items() if name}
    name, values = _COERCED
    if found.get(name) in values and all(name != given for given, _ in _initial_environment()):
        del found[name]
    return found


def environment_entries(wanted: Mapping[bytes, bytes], but: Container[bytes]) -> Iterator[bytes]:
    """Yield NAME=VALUE of what is wanted `but` these; what is as it was given stays where it was.

    So do entries that are no variables, and later ones of the same name.
    """
    same: dict[bytes, bool] = {b"": True}
    for name, entry in _initial_environment():
        if name not in same:  # of two the first counts
            value = wanted.get(name)
            same[name] = value is not None and b"%b=%b" % (name, value) == entry
        if same[name] and name not in but:
            yield entry
    for name, value in wanted.items():
        if name not in but and not same.get(name):
            yield b"%b=%b" % (name, value)


# -- A table, requests and records as bytes --------------------------------------------------------


class _Packer:
    """The strings, lists and masks behind the entries of a table; the same ones lie there once."""

    def __init__(self, begin: int) -> None:
        self._parts: list[bytes] = []
        self._offset = begin
        self._strings: dict[bytes, int] = {}
        self._lists: dict[object, int] = {}

    def _append(self, data: bytes) -> int:
        at = self._offset
        data += b"\0" * (-len(data) % 4)
        self._parts.append(data)
        self._offset += len(data)
        return at

    def string(self, text: bytes) -> int:
        at = self._strings.get(text)
        if at is None:
            if b"\0" in text:  # it would end early without a word
                raise ValueError("embedded null byte")
            at = self._strings[text] = self._append(text + b"\0")
        return at

    def list(self, texts: Iterable[bytes], key: object) -> int:
        at = self._lists.get(key)
        if at is None:
            words = [*texts]
            data = b"".join(word + b"\0" for word in words)
            if data.count(b"\0") != len(words):  # one would end early without a word
                raise ValueError("embedded null byte")
            at = self._lists[key] = self._append(struct.pack("=I", len(words)) + data)
        return at

    def mask(self, numbers: Sequence[int] | None) -> int:
        if numbers is None:
            return _NO_OFFSET
        key = ("mask", tuple(numbers))
        at = self._lists.get(key)
        if at is None:
            bits = sum(1 << number for number in set(numbers))
            data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
            at = self._lists[key] = self._append(struct.pack("=I", len(data)) + data)
        return at

    def packed_bytes(self) -> bytes:
        """Return all of it; a table ends with a zero byte."""
        return b"".join((*self._parts, b"\0\0\0\0"))


def pack_table(entries: Sequence[ProcessEntry]) -> bytes:
    """Return a table; variables that are as rater was given them are byte for byte so."""
    packer = _Packer(_HEAD.size + _ENTRY.size * len(entries))
    heads = []
    for it in entries:
        own = it.own_variables
        key = (id(it.shared_variables), *own)
        heads.append(
            _ENTRY.pack(
                *(it.token, it.after, it.copy, it.flags),
                packer.list(it.argv, (b"argv", *it.argv)),
                packer.list(environment_entries(it.shared_variables, own), key),
                packer.list(map(b"=".join, own.items()), tuple(own.items())),
                *map(packer.string, (it.directory, it.output, it.error)),
                *(packer.mask(it.cpus), packer.mask(it.nodes or None)),
                packer.mask(it.accepted),
                *(it.policy, -1 if it.transparent is None else int(it.transparent), 0),
                it.offset_ns,
            )
        )
    return b"".join((_HEAD.pack(FORMAT, len(entries)), *heads, packer.packed_bytes()))


def unpack_records(data: bytes) -> Iterator[Record]:
    """Yield the records of whole ones."""
    for at in range(0, len(data) - RECORD.size + 1, RECORD.size):
        record = Record(*RECORD.unpack_from(data, at))
        if record.kind == RecordKind.REPORT:
            begin = at + _TEXT_OFFSET
            record = record._replace(text=data[begin : begin + record.status])
        elif record.kind == RecordKind.BROKEN:
            record = record._replace(text=data[at + _TEXT_OFFSET : at + RECORD.size])
        yield record
