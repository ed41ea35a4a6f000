"""What a node must be before it takes part in a fleet; reasons in words where it is not."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Set
from pathlib import Path

from rater.process_id import boot_id
from rater.run.host.snapshot import machine_id
from rater.run.host.sysfiles import read_text
from rater.text import cpuset

# Kinds of file systems that other machines write too: SQLite's write-ahead log does not work there.
_SHARED_KINDS = {
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cephfs", "ceph", "cifs", "smb3", "smbfs", "afs"),
    *(
        "9p",
        "virtiofs",
        "glusterfs",
        "pvfs2",
        "orangefs",
        "panfs",
        "gfs",
        "gfs2",
        "ocfs2",
        "wekafs",
    ),
    *("daos", "coda", "ncpfs", "vboxsf", "prl_fs", "acfs", "quobyte", "moosefs"),
}
_OCTAL = re.compile(r"\\([0-7]{3})")


def partial_mask(sys: Path = Path("/sys"), mask: Set[int] | None = None) -> str | None:
    """Say which CPUs of the machine this process may not use, None where it may use all.

    The kernel narrows what is asked for without an error, so it is compared, not tried.
    """
    online = cpuset.parse_set(read_text(sys / "devices/system/cpu/online") or "")
    own = os.sched_getaffinity(0) if mask is None else mask
    missing = set(online) - own
    if not missing:
        return None
    return (
        f"the job may use CPUs {cpuset.format_list(own)} of {cpuset.format_list(online)}: it is "
        "not alone on the node, or its task plugin narrows it (--allow-partial: run all the same)"
    )


def shared_disk(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Say on which file system of several machines a folder lies, None where it is the node's own.

    The deepest mount point above it counts; of two on one place the last one.
    """
    where, best, kind = path.resolve(), -1, ""
    for line in (read_text(mountinfo) or "").splitlines():
        words = line.split(" ")
        if "-" not in words[6:]:
            continue
        point = Path(_OCTAL.sub(lambda it: chr(int(it[1], 8)), words[4]))
        if where.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), words[words.index("-", 6) + 1]
    name = kind.removeprefix("fuse.").removeprefix("fuseblk.")
    if name in _SHARED_KINDS or name in ("sshfs", "s3fs", "juicefs", "gcsfuse", "rclone"):
        return (
            f"{path} is on a file system of several machines ({kind}), where a database can be "
            "damaged: name a folder on the node's own disk with --scratch"
        )
    return None


def node_facts() -> dict[str, str]:
    """Return what the node says of itself, to be stored with the verdict."""
    online = read_text(Path("/sys/devices/system/cpu/online")) or ""
    found = {
        "hostname": read_text(Path("/proc/sys/kernel/hostname")) or platform.node(),
        "machine_id": machine_id() or "",
        "boot_id": boot_id(),
        "kernel": platform.release(),
        "online_cpus": online,
        "usable_cpus": cpuset.format_list(os.sched_getaffinity(0)),
        "clocksource": read_text(
            Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        )
        or "",
    }
    slurm = ("SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_PARTITION")
    return found | {name.lower(): os.environ[name] for name in slurm if name in os.environ}
