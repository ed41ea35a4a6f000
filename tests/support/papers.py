"""The papers' inputs as documents: numbers that are printed there, or made to the same sums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.calls import Rater
from tests.support.observations import observed

INTEGER = (
    *("400.perlbench", "401.bzip2", "403.gcc", "429.mcf", "445.gobmk", "456.hmmer"),
    *("458.sjeng", "462.libquantum", "464.h264ref", "471.omnetpp", "473.astar", "483.xalancbmk"),
)
FLOATING = (
    *("410.bwaves", "416.gamess", "433.milc", "434.zeusmp", "435.gromacs", "436.cactusADM"),
    *("437.leslie3d", "444.namd", "447.dealII", "450.soplex", "453.povray", "454.calculix"),
    *("459.GemsFDTD", "465.tonto", "470.lbm", "481.wrf", "482.sphinx3"),
)


def suite_of(folder: Path, names: Sequence[str]) -> Path:
    """Write a suite of these names whose programs do nothing; return its file."""
    text = '[suite]\nformat = 1\nname = "of-names"\ndescription = "an order to look at"\n'
    for name in names:
        text += f'[benchmarks."{name}"]\ncategory = "int"\ncommand = ["true"]\n'
        text += f'[benchmarks."{name}".sizes.train]\nreference_s = 1.0\n'
    path = folder / "of-names.toml"
    path.write_text(text)
    return path


def store_times(
    rater: Rater,
    folder: Path,
    uuid: str,
    rows: Sequence[Mapping[str, Any]],
    topology: Mapping[str, Any] | None = None,
    **head: Any,
) -> None:
    """Import a document of observations that has these rows."""
    document = observed(*map(dict, rows), uuid=uuid, **head)
    if topology is not None:
        document["topology"] = topology
    path = folder / f"{uuid}.json"
    path.write_text(json.dumps(document))
    status, _, err = rater("import", path)
    assert (status, err) == (0, "")


def json_of(rater: Rater, *words: object) -> Any:
    """Return the document that a command prints."""
    status, out, _ = rater(*words, "--json")
    assert status == 0
    return json.loads(out)


def rows_of(text: str) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in text.splitlines()]
