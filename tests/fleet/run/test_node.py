"""What a node is refused for, and the folder that all nodes see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rater.fleet.plan import NodeVerdict, VerdictStatus
from rater.fleet.shared_folder import (
    SPEC_VERSION,
    FleetSpec,
    SharedFolder,
    node_facts,
    partial_mask,
    shared_disk,
)

VERDICT = NodeVerdict(
    *(1, "f", "n1", 1, "17", VerdictStatus.COMPLETE, None, None, None, None, None, "u", 2, 2),
    *("2026-11-23T08:00:00Z", "2026-11-23T08:01:00Z", {"hostname": "n1"}),
)
MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:1 - nfs4 server:/home rw
31 22 0:41 / /scratch rw - lustre mgs@tcp:/scratch rw
32 31 8:2 / /scratch/local rw - xfs /dev/sdb1 rw
33 22 0:42 / /my\\040share rw - fuse.sshfs host:/ rw
"""


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    it = SharedFolder(tmp_path / "fleet")
    it.make(FleetSpec(SPEC_VERSION, "f", "0.1", ("mini",), None, "/", "/tmp", False, None))
    return it


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/home/me", "nfs4"),
        ("/scratch/me", "lustre"),
        ("/my share/x", "fuse.sshfs"),
        ("/scratch/local/x", None),
        ("/var/tmp", None),
        ("/homes", None),
    ],
)
def test_a_disk_of_several_machines_is_told_by_the_deepest_mount(
    tmp_path: Path, place: str, kind: str | None
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS)
    said = shared_disk(Path(place), mountinfo)
    assert (said is None) == (kind is None)
    assert kind is None or f"({kind})" in str(said)


def test_a_narrow_mask_is_told_with_both_lists(tmp_path: Path) -> None:
    cpus = tmp_path / "devices/system/cpu"
    cpus.mkdir(parents=True)
    (cpus / "online").write_text("0-7\n")
    assert partial_mask(tmp_path, set(range(8))) is None
    assert "CPUs 0-3 of 0-7" in str(partial_mask(tmp_path, {0, 1, 2, 3}))
    assert {"hostname", "boot_id", "kernel", "usable_cpus"} <= node_facts().keys()


def test_one_job_does_an_attempt_and_another_is_told_which(folder: SharedFolder) -> None:
    assert folder.claim("n1", 1, "17.0") is None
    assert folder.claim("n1", 1, "18.0") == "17.0"
    assert folder.claim("n1", 2, "18.0") is None
    assert folder.claimed_by("n1", 1) == "17.0"
    assert folder.claimed_by("n2", 1) is None


def test_a_job_that_the_scheduler_starts_again_goes_on_with_its_attempt(
    folder: SharedFolder,
) -> None:
    assert folder.claim("n1", 1, "17.0") is None
    assert folder.claim("n1", 1, "17.0") == "17.0"
    assert folder.claim("n1", 1, "17.1") is None
    assert folder.claim("n1", 1, "17.0") == "17.1"
    assert folder.claim("n2", 1, "rater-f-n2.1.jabc") is None
    assert folder.claim("n2", 1, "rater-f-n2.1.jabd") == "rater-f-n2.1.jabc"


def test_what_is_published_is_read_back_with_its_database(
    folder: SharedFolder, tmp_path: Path
) -> None:
    assert folder.looked_up("f", "n1", 1) is None
    database = tmp_path / "node.db"
    database.write_bytes(b"x" * 3_000_000)
    put = folder.publish(VERDICT, database)
    assert put.bytes == 3_000_000
    found = folder.looked_up("f", "n1", 1)
    assert found is not None
    assert (found.verdict, found.damaged) == (put, None)
    assert folder.verdict_files().keys() == {("n1", 1)}
    assert [it.name for it in folder.inbox.iterdir() if it.name.startswith(".")] == []


def test_a_database_that_was_cut_changed_or_removed_is_told(
    folder: SharedFolder, tmp_path: Path
) -> None:
    database = tmp_path / "node.db"
    database.write_bytes(b"x" * 100)
    put = folder.publish(VERDICT, database)
    file = folder.inbox / str(put.database)
    for content in (b"x" * 99, b"x" * 99 + b"y"):
        file.write_bytes(content)
        found = folder.checked(put)
        assert "another sha256" in str(found.damaged)
        assert not found.absent
    file.unlink()
    assert folder.checked(put).absent
    folder.set_aside("n1", 1)
    assert folder.looked_up("f", "n1", 1) is None


def test_setting_aside_takes_the_files_of_one_attempt_alone(
    folder: SharedFolder, tmp_path: Path
) -> None:
    database = tmp_path / "node.db"
    database.write_bytes(b"x")
    for node, attempt in (("n1", 1), ("n1", 11), ("n1.1", 1)):
        folder.publish(replace(VERDICT, node=node, attempt=attempt), database)
    folder.set_aside("n1", 1)
    assert folder.verdict_files().keys() == {("n1", 11), ("n1.1", 1)}
    assert len(list((folder.path / "aside").iterdir())) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"complete"', '"perfect"', "status"),
        ('"rater": 1', '"rater": 2', "version 2"),
        ('"node": "n1"', '"node": "n2"', "another attempt"),
        ('"database": null', '"database": "../../etc/passwd"', "no name of a file"),
        ("{", "[", "damaged"),
    ],
)
def test_a_verdict_that_is_none_is_told(
    folder: SharedFolder, old: str, new: str, said: str
) -> None:
    folder.publish(VERDICT, None)
    file = folder.inbox / "n1.1.json"
    text = file.read_text().replace(old, new, 1)
    if "passwd" in new:
        text = text.replace('"sha256": null', '"sha256": "ab"')
    file.write_text(text)
    found = folder.looked_up("f", "n1", 1)
    assert found is not None
    assert found.verdict is None
    assert said in str(found.damaged)


def test_a_cancelled_fleet_is_seen_by_its_nodes(folder: SharedFolder) -> None:
    before = folder.is_cancelled
    folder.mark_cancelled()
    assert (before, folder.is_cancelled) == (False, True)
    assert folder.spec().words == ("mini",)
