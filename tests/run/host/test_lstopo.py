"""The machine by lstopo, where no module of hwloc is: it is hidden, and lstopo is a script."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rater.run.host.discover import discover_topology, load_topology, this_machine_xml
from rater.system.errors import InputError


@pytest.fixture
def without_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is all of PATH, where no pyhwloc can be imported."""
    monkeypatch.setitem(sys.modules, "pyhwloc", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put_lstopo(folder: Path, script: str) -> None:
    program = folder / "lstopo"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_machine_is_the_one_that_lstopo_prints(
    without_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as unhidden:
        unhidden.delitem(sys.modules, "pyhwloc")
        xml, with_module = this_machine_xml(), discover_topology()
    (without_module / "machine.xml").write_text(xml)
    put_lstopo(
        without_module,
        'test "$*" = "--of xml --disallowed" || exit 9\n'
        'test -z "$HWLOC_SYNTHETIC" || exit 8\n'
        f'while read -r line; do echo "$line"; done < {without_module}/machine.xml',
    )
    monkeypatch.setenv("HWLOC_SYNTHETIC", "pu:7")  # which would put another machine in its place
    assert discover_topology() == with_module


def test_a_description_is_given_to_lstopo(without_module: Path) -> None:
    put_lstopo(without_module, 'echo "$@" >&2; exit 3')
    with pytest.raises(InputError, match=r"ends with 3: --of xml --input .*core:2 pu:2"):
        load_topology("numa:1 core:2 pu:2")


def test_without_module_and_lstopo_both_ways_out_are_named(without_module: Path) -> None:
    assert not list(without_module.iterdir())
    with pytest.raises(InputError, match=r"pip install .*pyhwloc.* or install hwloc's lstopo"):
        this_machine_xml()
