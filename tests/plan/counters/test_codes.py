"""Codes of counter tables against libpfm4, where it is installed, and against the vendors' files.

Those are named by RATER_VENDOR_EVENTS: a folder with checkouts (or bare repositories) of
intel/perfmon, ARM-software/data and wcohen/libpfm4 as OWNER+NAME/repo.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from rater.plan.counter_tables import EventCode, load_table

# The libpfm4 of an architecture has the events of that one only.
PMUS = {
    "intel-skx": ("skx", "clx"),
    "intel-icx": ("icx",),
    "intel-spr": ("spr",),
    "amd-zen2": ("amd64_fam17h_zen2",),
    "amd-zen3": ("amd64_fam19h_zen3",),
    "amd-zen4": ("amd64_fam19h_zen4",),
    "amd-zen5": ("amd64_fam1ah_zen5",),
    "arm-neoverse-n1": ("arm_n1",),
    "arm-neoverse-n2": ("arm_n2",),
    "arm-neoverse-v1": ("arm_v1",),
    "arm-neoverse-v2": ("arm_v2",),
}
# Bits that libpfm4 adds: user, system, interrupt, enable; Arm: exclusion of levels.
ADDED = 0x0000_0000_0053_0000
INTEL = {
    "intel-skx": ("SKX/events/skylakex_core", "CLX/events/cascadelakex_core"),
    "intel-icx": ("ICX/events/icelakex_core",),
    "intel-spr": (
        "SPR/events/sapphirerapids_core",
        "EMR/events/emeraldrapids_core",
        "GNR/events/graniterapids_core",
    ),
}
VENDORS = os.environ.get("RATER_VENDOR_EVENTS", "")


class PerfArgument(ctypes.Structure):
    """`pfm_pmu_encode_arg_t` of perfmon/pfmlib.h."""

    _fields_ = (
        ("codes", ctypes.POINTER(ctypes.c_uint64)),
        ("fstr", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("count", ctypes.c_int),
        ("idx", ctypes.c_int),
    )


# Read when the library begins, so by a process of its own.
ENCODE = f"""
import ctypes, json, sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.plan.counters.test_codes import encode_all
print(json.dumps(encode_all(json.loads(sys.stdin.read()))))
"""


def encode_all(names: list[str]) -> dict[str, int | None]:
    library = ctypes.CDLL("libpfm.so.4")
    library.pfm_initialize()
    found: dict[str, int | None] = {}
    for name in names:
        argument = PerfArgument(None, None, ctypes.sizeof(PerfArgument), 0, 0)
        wrong = library.pfm_get_os_event_encoding(name.encode(), 8, 0, ctypes.byref(argument))
        found[name] = None if wrong or argument.count != 1 else argument.codes[0]
    return found


def events(table: str) -> Iterator[EventCode]:
    yield from {it.name: it for group in load_table(table).groups for it in group.events}.values()


def test_codes_are_those_of_libpfm4() -> None:
    try:
        ctypes.CDLL("libpfm.so.4")
    except OSError:
        pytest.skip("libpfm.so.4 is not installed (apt install libpfm4)")
    wanted = {
        f"{pmu}::{event.vendor.replace('.', ':')}": event.config
        for table, pmus in PMUS.items()
        for pmu in pmus
        for event in events(table)
    }
    encoded = json.loads(
        subprocess.run(
            [sys.executable, "-c", ENCODE],
            input=json.dumps(list(wanted)),
            env={**os.environ, "LIBPFM_ENCODE_INACTIVE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    known = {name: code & ~ADDED for name, code in encoded.items() if code is not None}
    assert {name: hex(code) for name, code in known.items()} == {
        name: hex(wanted[name]) for name in known
    }
    absent = {name.split("::")[0] for name in wanted.keys() - known}
    complete = {name.split("::")[0] for name in known} - absent
    assert complete, "it knows all events of at least one processor"


@cache
def stored(repository: str, path: str) -> str:
    folder = Path(VENDORS) / repository / "repo"
    if not VENDORS or not folder.exists():
        pytest.skip(f"RATER_VENDOR_EVENTS names no folder with {repository}")
    return subprocess.run(
        ["git", "-C", str(folder), "show", f"HEAD:{path}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def intel(path: str) -> dict[str, int]:
    return {
        it["EventName"]: int(it["EventCode"].split(",")[0], 16)
        | int(it["UMask"], 16) << 8
        | int(it["EdgeDetect"]) << 18
        | int(it["Invert"]) << 23
        | int(it["CounterMask"], 0) << 24
        for it in json.loads(stored("intel+perfmon", f"{path}.json"))["Events"]
    }


def arm(core: str) -> dict[str, int]:
    text = stored("ARM-software+data", f"pmu/neoverse-{core}.json")
    return {it["name"]: it["code"] for it in json.loads(text)["events"]}


def power(number: str) -> dict[str, int]:
    text = stored("wcohen+libpfm4", f"lib/events/power{number}_events.h")
    pairs = re.findall(r'pme_name = "(\w+)",\s*\.pme_code = (0x\w+)', text)
    # Counters 6 and 5 have codes of their own: power9-events-list.h of the kernel.
    twins = {"PM_RUN_CYC": 0x600F4, "PM_RUN_INST_CMPL": 0x500FA}
    return {name: int(code, 16) for name, code in pairs} | twins


FILES: dict[str, list[Callable[[], dict[str, int]]]] = {
    **{name: [lambda it=it: intel(it) for it in paths] for name, paths in INTEL.items()},  # type: ignore[misc]
    **{f"arm-neoverse-{it}": [lambda it=it: arm(it)] for it in ("n1", "n2", "v1", "v2")},  # type: ignore[misc]
    **{f"ibm-power{it}": [lambda it=it: power(it)] for it in ("9", "10")},  # type: ignore[misc]
}


@pytest.mark.parametrize("table", FILES)
def test_codes_are_those_of_the_vendors_file(table: str) -> None:
    for read in FILES[table]:
        known = read()
        found = {it.vendor: known.get(it.vendor) for it in events(table)}
        assert found == {it.vendor: it.config for it in events(table)}


ZEN5_UNIT = re.compile(r'\.uname\s*= "(\w+)",.*?\.ucode\s*= (0x\w+)', re.DOTALL)


def test_codes_of_zen_5_are_those_of_libpfm4s_source() -> None:
    text = stored("wcohen+libpfm4", "lib/events/amd64_events_fam1ah_zen5.h")
    masks = {
        name: {unit: int(code, 16) for unit, code in ZEN5_UNIT.findall(body)}
        for name, body in re.findall(r"amd64_umask_t (\w+)\[\]=\{(.*?)\n\};", text, re.DOTALL)
    }
    entries = re.findall(
        r'\.name\s*= "(\w+)",.*?\.code\s*= (0x\w+),.*?(?:\.umasks = (\w+),|\n  \})', text, re.DOTALL
    )
    known = {name: (int(code, 16), masks.get(units, {})) for name, code, units in entries}
    for event in events("amd-zen5"):
        name, *units = event.vendor.split(".")
        code, of = known[name]
        mask = sum(of[unit] for unit in units)
        assert event.config == (code & 0xFF | mask << 8 | (code & 0xF00) << 24), event.name
