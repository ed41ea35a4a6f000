"""Series packed and unpacked: what goes in comes out, and a damaged blob is refused."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from msgspec.structs import replace

from rater.record.events import PhaseSeries
from rater.record.series import SeriesPacker, unpack

S = 10**9


def packed_two_cpus() -> PhaseSeries:
    packer = SeriesPacker("cpu", (4, 7), ("user", "mhz"))
    packer.add(100 * S, [[0, 0], [3000, None]])
    packer.add(101 * S, [[100, 7], [None, 2400]])
    packer.add(103 * S, [[300, 7], [2900, 2399]])
    return packer.finish(phase=5, origin_ns=100 * S)


def test_numbers_come_out_as_they_went_in_with_those_that_are_not_known() -> None:
    series = unpack(packed_two_cpus())
    assert (series.phase, series.family, series.places) == (5, "cpu", (4, 7))
    assert series.times_ns == (0, 1 * S, 3 * S)
    assert series.values_of("user", 4) == (0, 100, 300)
    assert series.values_of("user", 7) == (0, 7, 7)
    assert series.values_of("mhz", 4) == (3000, None, 2900)
    assert series.values_of("mhz", 7) == (None, 2400, 2399)
    assert series.values_of("watts", 4) == ()


def test_the_blob_is_as_documented() -> None:
    packed = packed_two_cpus()
    (length,) = struct.unpack_from("<I", packed.packed)
    first = zlib.decompress(packed.packed[4 : 4 + length])
    # Time; user of CPUs 4 and 7; MHz of both. 100 is 201, 7 is 15, -1 is 2, -100 is 200.
    assert list(first) == [255, 1, 1, 255, 0, 255, 201, 15, 0, 255, 255, 255, 1, 200, 2]
    second = zlib.decompress(packed.packed[4 + length :])
    assert [number for (number,) in struct.iter_unpack("<q", second)] == [
        *(0, 3000, 1_000_000, 2400, 2_000_000, 200),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_any_numbers_come_out_as_they_went_in(seed: int) -> None:
    chance = random.Random(seed)
    numbers = (0, 1, -1, 126, 127, -127, -128, 2**40, -(2**40), None)
    rows = [[[chance.choice(numbers) for _ in range(5)] for _ in range(3)] for _ in range(20)]
    packer = SeriesPacker("copy", range(5), ("a", "b", "c"))
    for second, row in enumerate(rows):
        packer.add(second * S, row)
    series = unpack(packer.finish(0, 0))
    for place_of_column, column in enumerate("abc"):
        for place in range(5):
            expected = tuple(row[place_of_column][place] for row in rows)
            assert series.values_of(column, place) == expected


def test_512_cpus_take_less_than_30_bytes_each_a_second() -> None:
    chance = random.Random(1)
    columns = ("user", "system", "idle", "iowait", "irq", "steal", "mhz", "throttles")
    packer = SeriesPacker("cpu", range(512), columns)
    ticks = [[0] * 512 for _ in columns]
    for second in range(20):
        for cpu in range(512):
            user = chance.randint(90, 100)
            ticks[0][cpu] += user
            ticks[2][cpu] += 100 - user
            ticks[6][cpu] = chance.randint(2900, 3100)
        packer.add(second * S, ticks)
    assert len(packer.finish(0, 0).packed) < 30 * 512 * 20 / 4


def test_a_damaged_blob_is_refused_and_never_unpacked_beyond_what_it_says() -> None:
    packed = packed_two_cpus()
    bomb = zlib.compress(bytes(10**7))
    for damaged in (
        replace(packed, packed=b""),
        replace(packed, packed=packed.packed[:9]),
        replace(packed, packed=struct.pack("<I", 9) + b"no stream" + packed.packed),
        replace(packed, packed=struct.pack("<I", len(bomb)) + bomb),
        replace(packed, samples=0),
        replace(packed, samples=2),
        replace(packed, samples=10**12),
        replace(packed, places=(1, 2, 3)),
    ):
        with pytest.raises(ValueError, match=r"samples|numbers|early|incorrect|invalid"):
            unpack(damaged)
