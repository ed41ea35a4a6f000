"""Codes of events as the vendors' own files have them: `make counters VENDORS=DIR` puts them in.

DIR has checkouts (or bare repositories) of intel/perfmon, ARM-software/data and wcohen/libpfm4 as
OWNER+NAME/repo. Nothing of them is copied but the codes, which are facts. AMD has no such file: its
tables are held against libpfm4 by the tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

TABLES = Path(__file__).parents[1] / "rater" / "plan" / "tables"
# Of each Intel table the files whose processors it is for: they have to agree.
INTEL = {
    "intel-skx": ("SKX/events/skylakex_core", "CLX/events/cascadelakex_core"),
    "intel-icx": ("ICX/events/icelakex_core",),
    "intel-spr": (
        "SPR/events/sapphirerapids_core",
        "EMR/events/emeraldrapids_core",
        "GNR/events/graniterapids_core",
    ),
}
ARM = {f"arm-neoverse-{core}": core for core in ("n1", "n2", "v1", "v2")}
ARM |= {"arm-neoverse-n2-r0p0": "n2"}
POWER = {"ibm-power9": "9", "ibm-power10": "10"}
KNOWN = (*INTEL, *ARM, *POWER)
# Counters 6 and 5 have codes of their own: power9-events-list.h of the kernel.
_TWINS = {"PM_RUN_CYC": 0x600F4, "PM_RUN_INST_CMPL": 0x500FA}
_EVENT = re.compile(r'(?m)^(\w+ = \{ config = )(0x[0-9a-f]+)(, vendor = "([^"]+)".*)$')

type Codes = Mapping[str, int]


def stored(vendors: Path, repository: str, path: str) -> str:
    """Return a file of a repository; raises `FileNotFoundError` where there is no such folder."""
    folder = vendors / repository / "repo"
    if not folder.exists():
        raise FileNotFoundError(f"{vendors} has no {repository}/repo")
    command = ["git", "-C", str(folder), "show", f"HEAD:{path}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def vendor_codes(vendors: Path, table: str) -> Iterator[Codes]:
    """Yield codes by the vendor's name of an event, of each file that tells of a table."""
    for path in INTEL.get(table, ()):
        yield _intel(stored(vendors, "intel+perfmon", f"{path}.json"))
    if table in ARM:
        text = stored(vendors, "ARM-software+data", f"pmu/neoverse-{ARM[table]}.json")
        yield {event["name"]: event["code"] for event in json.loads(text)["events"]}
    if table in POWER:
        path = f"lib/events/power{POWER[table]}_events.h"
        text = stored(vendors, "wcohen+libpfm4", path)
        pairs = re.findall(r'pme_name = "(\w+)",\s*\.pme_code = (0x\w+)', text)
        yield {name: int(code, 16) for name, code in pairs} | _TWINS


def _intel(text: str) -> Codes:
    return {
        event["EventName"]: int(event["EventCode"].split(",")[0], 16)
        | int(event["UMask"], 16) << 8
        | int(event["EdgeDetect"]) << 18
        | int(event["Invert"]) << 23
        | int(event["CounterMask"], 0) << 24
        for event in json.loads(text)["Events"]
    }


def with_codes(text: str, codes: Codes) -> str:
    """Return a table with each event's code as the vendor has it; its other lines stay.

    Raises `KeyError` with the vendor's name of an event that the file does not have.
    """

    def line(event: re.Match[str]) -> str:
        code, written = codes[event[4]], event[2]
        return f"{event[1]}{written if int(written, 16) == code else hex(code)}{event[3]}"

    return _EVENT.sub(line, text)


def main(vendors: Path) -> None:
    """Rewrite the tables that the vendors' files tell of, and say what changed."""
    for table in KNOWN:
        path = TABLES / f"{table}.toml"
        before = path.read_text(encoding="utf-8")
        try:
            files = [*vendor_codes(vendors, table)]
        except FileNotFoundError as error:
            print(f"{table}: left as it is: {error}")
            continue
        after = {with_codes(before, codes) for codes in files}
        if len(after) != 1:
            sys.exit(f"{table}: the files of its processors have different codes")
        [text] = after
        path.write_text(text, encoding="utf-8")
        print(f"{table}: {'as it was' if text == before else 'changed'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
