"""Readings over a phase, sample by sample, packed into one blob a family; pure.

A family (`cpu`, `machine`, `node`, `copy`) has places, such as CPUs, and columns, such as `user`.
A sample is a row: the time, then for each column a number of each place. The first row holds the
numbers themselves, each later one their growth since they were last known. Counters begin
with 0. So they are small, and much the same from row to row.

The blob is the length of its first part (4 bytes, little-endian), that part, and a second one.
Both are streams of zlib. In the first part each number is a byte: 0 where it is not known, 255
where it is in the second part, else 1 + 2n for n >= 0 and -2n for n < 0. The second part has the
numbers that do not fit, as signed 8 bytes, little-endian, in the same order. Times are in
microseconds since the first row, and of that 0.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import sub
from typing import Protocol, cast

from msgspec import Struct

from rater.record.events import PhaseSeries
from rater.system.errors import InputError

_LENGTH = struct.Struct("<I")
_LARGE = struct.Struct("<q")
_NOT_KNOWN, _ELSEWHERE = 0, 255
_LEAST, _MOST = -127, 126  # numbers that are a byte each
_PIECE_BYTES = 1 << 14
_MOST_NUMBERS = 100_000_000  # of a blob: 512 CPUs with 8 columns for six hours
_ESCAPES = re.compile(rb"\xff")


class _Codes(dict[int, int]):
    """Codes of numbers; those that are no byte lie elsewhere."""

    def __missing__(self, number: int) -> int:
        return _ELSEWHERE


_CODES = _Codes(
    {number: 1 + 2 * number if number >= 0 else -2 * number for number in range(_LEAST, _MOST + 1)}
)
# Of a code of one byte the number; the two codes that stand for none are looked at before.
_NUMBERS = [(code - 1) // 2 if code % 2 else -(code // 2) for code in range(256)]

type Column = Sequence[int | None]  # a number of each place


class _Packer(Protocol):
    """What `zlib.compressobj` returns."""

    def compress(self, data: bytes | bytearray, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Stream:
    """A stream of zlib, which is given content in large pieces: each costs some microseconds.

    A short stream is packed at once: the state of a packer is a quarter of a megabyte.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._packer: _Packer | None = None
        self._parts: list[bytes] = []

    def add(self, content: bytes | bytearray) -> None:
        """Take the next content."""
        self._waiting += content
        if len(self._waiting) >= _PIECE_BYTES:
            self._pack()

    def _pack(self) -> None:
        if self._packer is None:
            self._packer = zlib.compressobj()
        self._parts.append(self._packer.compress(self._waiting))
        self._waiting.clear()

    def finish(self) -> bytes:
        """Return all of it, packed."""
        if self._packer is None:
            return zlib.compress(self._waiting)
        return b"".join((*self._parts, self._packer.compress(self._waiting), self._packer.flush()))


class SeriesPacker:
    """Packs the samples of one family as they come; of many it keeps little that is not packed."""

    def __init__(self, family: str, places: Sequence[int], columns: Sequence[str]) -> None:
        self.family = family
        self.places = tuple(places)
        self.columns = tuple(columns)
        self.samples = 0
        self.first_ns = 0  # when the first sample was, by the clock that `add` was given
        self._last_us = 0
        self._last = [[0] * len(self.places) for _ in self.columns]
        self._small, self._large = _Stream(), _Stream()

    def add(self, at_ns: int, columns: Sequence[Column]) -> None:
        """Add a sample: a number of each place for each column; None is not known."""
        if not self.samples:
            self.first_ns = at_ns
        at_us = (at_ns - self.first_ns) // 1000
        large = [at_us - self._last_us]
        self._last_us = at_us
        small = bytearray((_ELSEWHERE,))
        for last, column in zip(self._last, columns, strict=True):
            small += _encode(last, column, large)
        self._small.add(small)
        self._large.add(struct.pack(f"<{len(large)}q", *large))
        self.samples += 1

    def finish(self, phase: int, origin_ns: int) -> PhaseSeries:
        """Return all samples of a phase; `origin_ns`: time 0 of the run, by the same clock."""
        small, large = self._small.finish(), self._large.finish()
        return PhaseSeries(
            phase=phase,
            family=self.family,
            begin_ns=self.first_ns - origin_ns,
            samples=self.samples,
            places=self.places,
            columns=self.columns,
            packed=_LENGTH.pack(len(small)) + small + large,
        )


def _encode(last: list[int], column: Column, large: list[int]) -> bytes:
    """Return the codes of a column, whose values become the last ones known."""
    if None not in column:  # nearly all of them
        growths = list(map(sub, column, last))
        last[:] = cast("Sequence[int]", column)
        if min(growths) < _LEAST or max(growths) > _MOST:
            large += [growth for growth in growths if not _LEAST <= growth <= _MOST]
        return bytes(map(_CODES.__getitem__, growths))
    if column.count(None) == len(column):
        return bytes(len(column))
    codes = bytearray(len(column))  # nothing is known, but for
    known = [(place, value) for place, value in enumerate(column) if value is not None]
    for place, value in known:
        growth = value - last[place]
        last[place] = value
        codes[place] = _CODES[growth]
        if codes[place] == _ELSEWHERE:
            large.append(growth)
    return bytes(codes)


class UnpackedSeries(Struct, frozen=True, kw_only=True):
    """The samples of one family in one phase, unpacked."""

    phase: int
    family: str
    times_ns: tuple[int, ...]  # of the samples, in the run's time
    places: tuple[int, ...]  # CPUs, nodes or copies; a single 0: the whole machine
    values: dict[str, dict[int, tuple[int | None, ...]]]  # by column and place, one a sample

    def values_of(self, column: str, place: int = 0) -> tuple[int | None, ...]:
        """Return the values of a column at a place; empty where there is no such series."""
        return self.values.get(column, {}).get(place, ())


def unpack(packed: PhaseSeries) -> UnpackedSeries:
    """Return the samples of a family. Raises `ValueError` where the blob is damaged."""
    width = 1 + len(packed.places) * len(packed.columns)
    numbers = packed.samples * width
    if not 0 < numbers <= _MOST_NUMBERS:
        raise ValueError(f"{packed.samples} samples of {width} numbers")
    if len(packed.packed) < _LENGTH.size:
        raise ValueError("it ends early")
    (length,) = _LENGTH.unpack_from(packed.packed)
    codes = _inflate(packed.packed[_LENGTH.size : _LENGTH.size + length], numbers)
    if len(codes) != numbers:
        raise ValueError(f"{len(codes)} numbers, expected {numbers}")
    escapes = [match.start() for match in _ESCAPES.finditer(codes)]
    large = _inflate(packed.packed[_LENGTH.size + length :], len(escapes) * _LARGE.size)
    if len(large) != len(escapes) * _LARGE.size:
        raise ValueError(f"{len(large)} bytes of large numbers, expected {len(escapes)} numbers")
    large_by_code = dict(
        zip(escapes, (number for (number,) in _LARGE.iter_unpack(large)), strict=True)
    )
    rows = [*_series(codes, width, 0, large_by_code)]
    values: dict[str, dict[int, tuple[int | None, ...]]] = {}
    offset = 1
    for column in packed.columns:
        by_place = values.setdefault(column, {})
        for place in packed.places:
            by_place[place] = tuple(_series(codes, width, offset, large_by_code))
            offset += 1
    return UnpackedSeries(
        phase=packed.phase,
        family=packed.family,
        times_ns=tuple(packed.begin_ns + (at_us or 0) * 1000 for at_us in rows),
        places=packed.places,
        values=values,
    )


def unpack_stored(packed: PhaseSeries, run: int) -> UnpackedSeries:
    """Return the samples of a family of a run. Raises `InputError` where they are damaged."""
    try:
        return unpack(packed)
    except ValueError as error:
        raise InputError(
            f"run {run}: the series {packed.family} of phase {packed.phase} is damaged ({error}); "
            "remove the run with `rater rm`, or the row of the table series"
        ) from error


def _inflate(stream: bytes, most_bytes: int) -> bytes:
    """Return the content of a stream; one byte more than `most_bytes` is enough to refuse it."""
    try:
        return zlib.decompressobj().decompress(stream, most_bytes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _series(
    codes: bytes, width: int, offset: int, large_by_code: dict[int, int]
) -> Iterator[int | None]:
    """Return one number of each row, added up."""
    column = codes[offset::width]
    if _NOT_KNOWN not in column and _ELSEWHERE not in column:
        return accumulate(map(_NUMBERS.__getitem__, column))
    return _slow_series(column, width, offset, large_by_code)


def _slow_series(
    column: bytes, width: int, offset: int, large_by_code: dict[int, int]
) -> Iterator[int | None]:
    total = 0
    for row, code in enumerate(column):
        if code == _NOT_KNOWN:
            yield None
            continue
        total += large_by_code[row * width + offset] if code == _ELSEWHERE else _NUMBERS[code]
        yield total
