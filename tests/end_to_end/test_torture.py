"""A short form of `make torture`: bad disks, failing writes, bad copies, helpers that stop."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from benchmarks.torture import cpus, disks, faults, hostile, stops
from benchmarks.torture.table import Row, row_of, table
from tests.support.strangers import needs_root

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.mark.parametrize(("at", "ever"), [(70, True), (75, False)])
def test_a_write_of_the_database_that_fails_loses_no_finished_copy(
    tmp_path: Path, at: int, ever: bool
) -> None:
    library = faults.compiled(tmp_path)
    environment = dict(os.environ)
    assert faults.one(tmp_path, environment, library, at, errno.EIO, ever=ever) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_disk_without_room_for_the_database_is_told(tmp_path: Path) -> None:
    assert disks.one(tmp_path, dict(os.environ), "db", "size=64k", "") is None


@pytest.mark.parametrize("name", ["stops its group", "closes its descriptors"])
def test_a_run_of_copies_that_misbehave_ends_in_order(tmp_path: Path, name: str) -> None:
    assert hostile.one(tmp_path, dict(os.environ), name) is None


@needs_root
def test_what_another_user_put_in_the_place_of_the_journal_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):  # pytest's are for its own user only
        folder.chmod(0o711)
    (tmp_path / "open").mkdir()
    name = "makes the journal a link"
    assert hostile.after_stranger(tmp_path / "open", dict(os.environ), name) is None


@pytest.mark.parametrize("name", ["the watchdog", "the checker"])
def test_a_run_whose_helper_is_stopped_ends(tmp_path: Path, name: str) -> None:
    assert stops.one(tmp_path, dict(os.environ), name, 0.1) is None


def test_a_run_whose_affinity_shrinks_ends(tmp_path: Path) -> None:
    assert cpus.one(tmp_path, dict(os.environ), cpus.shrink_affinity) is None


def test_the_table_counts_what_was_lost_and_says_what_first() -> None:
    rows = [row_of("a", [None, "gone", "away"]), Row("longer", 0, 0, "left out: no disk")]
    assert table(rows) == (
        "campaign     tried  survived   lost\n"
        "a              3         1      2  gone\n"
        "longer         0         0      0  left out: no disk"
    )
