"""Every reader of text that others wrote, fed broken texts: the value, or words on what is wrong.

Broken are whole texts of each kind, by the hand of `tests.support.spec_fuzz.broken`; the same seed
makes the same ones. With `--share 1` they are a million. Hypothesis has the readers' grammars
in the tests.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.torture.table import Row, scaled_number
from rater.plan.hwloc_xml import parse_xml
from rater.plan.placement.expression import parse_cpus, parse_expression
from rater.plan.placement.layout import parse_layout
from rater.plan.request import request_from_json
from rater.plan.sweep import parse_sweep
from rater.plan.topology import without_types
from rater.store.observations import read_observations
from rater.store.store import open_store
from rater.system.errors import InputError
from rater.system.paths import data_folder
from rater.text.cpuset import parse_bitmap, parse_list
from tests.support.machines import machine_xml
from tests.support.observations import observed
from tests.support.spec_fuzz import broken, originals
from tests.support.suite_text import parse_suite
from tests.support.wings import ABSENT

_LONGEST_S = 10.0  # that one input may take
_PIECES = 20  # of each reader's inputs, dealt to the CPUs
_SWEEP = """\
[sweep]
format = 1
rounds = 2
[axes]
copies = [1, 2]
thp = ["never", "always"]
"env:WORD" = ["", "a"]
"""
type _Use = Callable[[bytes], object]


def _decoded(use: Callable[[str], object]) -> _Use:
    return lambda data: use(data.decode("utf-8", "replace"))


def _refusing(use: Callable[[str], object]) -> Callable[[str], object]:
    def call(text: str) -> object:
        try:
            return use(text)
        except ValueError as error:
            raise InputError(str(error)) from error

    return call


def _files(folder: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(data_folder(folder).glob("*.toml"))]


@contextmanager
def _spec() -> Iterator[_Use]:
    from tests.support.spec_reading import read  # noqa: PLC0415 - that wing may be absent

    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "fuzz.db") as store:
        yield lambda data: read(data, store)


@contextmanager
def _as_it_is(use: _Use) -> Iterator[_Use]:
    yield use


def readers() -> dict[str, tuple[int, Any, list[bytes]]]:
    """Return how many inputs each reader gets, what makes it, and whole inputs."""
    path = Path("fuzzed.toml")

    def of_text(count: int, use: Callable[[str], object], *whole: bytes) -> Any:
        return count, lambda: _as_it_is(_decoded(use)), list(whole)

    return {
        # Of these two the callers, who know where the text is from, make an InputError.
        "CPU lists": of_text(300_000, _refusing(parse_list), b"0-3,8,10-11", b"", b" 0 - 4095 , 7"),
        "bitmaps": of_text(260_000, _refusing(parse_bitmap), b"0x0000ffff,0xffffffff", b"0xf...f"),
        "list:": of_text(130_000, parse_cpus, b"0,8,1,9", b"0-31:2"),
        "expr:": of_text(
            130_000, parse_expression, b"N:0-3@E:S0:4:1:2@M1", b"S:scatter:9@L:C0:0,2-4"
        ),
        "descriptions of machines": of_text(
            140_000, without_types, b"pack:2 numa:4 l3:2(size=32MB) core:8 pu:2(indexes=core:pack)"
        ),
        "suites": of_text(8_000, lambda it: parse_suite(it, path), *_files("suites")),
        "layouts": of_text(20_000, lambda it: parse_layout(it, path), *_files("layouts")),
        "sweeps": of_text(20_000, lambda it: parse_sweep(it, path), _SWEEP.encode()),
        "stored requests": of_text(
            20_000,
            lambda it: request_from_json(it, "run 1"),
            b'{"copies": "2", "suites": ["mini"]}',
        ),
        "machines in XML": of_text(
            5_000,
            lambda it: parse_xml(it, "fuzzed"),
            *(machine_xml(number).encode() for number in range(4)),
        ),
        "observations": (
            10_000,
            lambda: _as_it_is(lambda data: read_observations(data, "fuzzed")),
            [json.dumps(observed({}, {"copy": 1})).encode()],
        ),
        **({} if "speccpu" in ABSENT else {"results of SPEC CPU": (2_500, _spec, originals())}),
    }


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Feed a million broken texts to a dozen readers."""
    pieces = [
        (name, f"{seed}:{piece}", scaled_number(share, count) // _PIECES + 1)
        for name, (count, _, _) in readers().items()
        for piece in range(_PIECES)
    ]
    tried: dict[str, int] = {}
    lost: dict[str, list[str]] = {}
    with multiprocessing.get_context("spawn").Pool() as pool:
        for name, count, wrong in pool.starmap(feed, pieces, chunksize=1):
            tried[name] = tried.get(name, 0) + count
            lost.setdefault(name, []).extend(wrong)
    return [
        Row(f"reader of {name}", tried[name], len(lost[name]), (lost[name] or [""])[0])
        for name in tried
    ]


def feed(name: str, seed: str, count: int) -> tuple[str, int, list[str]]:
    """Feed `count` broken texts to one reader; return what was wrong, each with its input."""
    _, make, whole = readers()[name]
    wrong = []
    with make() as use:
        for number in range(count):
            chance = random.Random(f"{name}:{seed}:{number}")
            data = broken(chance.choice(whole), chance)
            began_s = time.monotonic()
            try:
                use(data)
            except InputError:
                pass
            except Exception as error:
                wrong.append(f"{error!r} of {data[:200]!r}")
            if time.monotonic() - began_s > _LONGEST_S:
                wrong.append(f"{time.monotonic() - began_s:.0f} s for {data[:200]!r}")
    return name, count, wrong
