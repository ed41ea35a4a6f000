"""Energy through a whole run: a tree of counters that copies drive, and what is shown of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rater.store.store import Store
from tests.support.calls import Rater
from tests.support.energy_tree import RANGE_UJ, powercap, stand, zone

# Copy 0 sets the counters, once it has run long enough for joules to be told.
DRAW = """
sleep 0.15
[ $RATER_COPY = 0 ] || exit 0
echo {package} > {zones}/intel-rapl:0/energy_uj
echo {memory} > {zones}/intel-rapl:0:0/energy_uj
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both CPUs are of package 0."""
    root = powercap(tmp_path / "machine", packages=(0, 0))
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    return root


def drawing(tree: Path, package: int, memory: int) -> tuple[str, ...]:
    zones = zone(tree, "intel-rapl").parent.parent
    return "--", "sh", "-c", DRAW.format(package=package, memory=memory, zones=zones)


def test_joules_are_those_that_the_counters_were_driven_to(
    tree: Path, rater: Rater, store: Store
) -> None:
    """20 J below the end of its range, the package's counter wraps around and goes on to 11 J."""
    stand(tree, "intel-rapl:0", RANGE_UJ - 20_000_000)
    copies = drawing(tree, 11_000_000, 5_500_000)
    assert rater("run", "--quiet", "--copies", 2, *copies)[0] == 0
    table = rater("show", "last")[1].splitlines()
    place = next(i for i, line in enumerate(table) if line.startswith("energy"))
    assert table[place + 2].split()[:4] == ["sh", "1", "35.5", "17.8"]
    energy = json.loads(rater("show", "last", "--json")[1])["energy"]
    assert energy["suite_joules"] == 35.5
    (phase,) = energy["phases"]
    assert phase["joules_per_copy"] == 17.75
    assert phase["watts"] == pytest.approx(35.5 / phase["elapsed_s"])
    assert phase["domains"]["package-0"] == 31
    assert phase["domains"]["package-0-dram"] == 4.5
    exported = json.loads(rater("export", "last", "--format", "json")[1])
    assert exported["phase_readings"][0]["energy_package-0_uj"] == 31_000_000
    file = tree.parent / "observations.json"
    file.write_text(rater("export", "last", "--format", "observations")[1])
    file.write_text(file.read_text().replace(store.load(1).head.uuid, "another"))
    assert rater("import", file)[0] == 0
    (imported,) = json.loads(rater("show", "last", "--json")[1])["energy"]["phases"]
    assert imported == phase
    slowest = json.loads(rater("show", 1, "--copies", "--json")[1])["copy_times"]["slowest"]
    assert sum(it["joules_estimate"] for it in slowest) == pytest.approx(35.5)
    assert not any("energy" in note for note in store.load(1).notes)


@pytest.mark.parametrize("option", ["--energy", "--proof"])
def test_energy_is_not_read_where_it_is_not_wanted(
    tree: Path, rater: Rater, store: Store, option: str
) -> None:
    assert rater("run", "--quiet", "--copies", 1, option, "off", *drawing(tree, 9, 9))[0] == 0
    assert "energy" not in json.loads(rater("show", "last", "--json")[1])
    assert not any("energy" in str(it.values) for it in store.load(1).machine_readings)


@pytest.mark.usefixtures("nobody_else")
def test_a_zone_that_vanishes_while_copies_run_is_noted_once(
    tree: Path, rater: Rater, store: Store
) -> None:
    """The first iteration has no joules of memory to its end, the second none at all."""
    zones = zone(tree, "intel-rapl").parent.parent
    script = (
        f"cd {zones}; sleep 0.15; rm -f intel-rapl:0:0/energy_uj; "
        "read drawn < intel-rapl:0/energy_uj; "
        "echo $((drawn + 2000000)) > intel-rapl:0/energy_uj"
    )
    words = ("--copies", 1, "--iterations", 2, "--", "sh", "-c", script)
    assert rater("run", "--quiet", *words)[0] == 0
    phases = json.loads(rater("show", "last", "--json")[1])["energy"]["phases"]
    assert [(it["joules"], it["reason"]) for it in phases] == [(2, None), (2, None)]
    assert not any("package-0-dram" in it["domains"] for it in phases)
    notes = [note for note in store.load(1).notes if "energy" in note]
    assert [note.partition(":")[0] for note in notes] == [
        "energy of package-0-dram is not known from here on"
    ]
