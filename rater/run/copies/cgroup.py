"""The cgroup of a run, where one can be made: killing it kills all that is in it at once."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from rater.run.copies.orphans import children, reap_dead

_PAUSE_S = 0.005


class Cgroup:
    """A cgroup v2 of the run; the supervisor lives in it while it runs, so copies inherit it."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.home = home

    @classmethod
    def make(
        cls,
        name: str,
        mountinfo: Path = Path("/proc/self/mountinfo"),
        membership: Path = Path("/proc/self/cgroup"),
    ) -> Cgroup | None:
        """Make a cgroup below our own, or return None where that is not allowed."""
        home = _own_cgroup(mountinfo, membership)
        if home is None:
            return None
        _sweep(home)
        path = home / f"rater-{os.getpid()}-{name}"
        try:
            path.mkdir()
        except OSError:
            return None
        if not (path / "cgroup.kill").exists():  # before Linux 5.14
            with suppress(OSError):
                path.rmdir()
            return None
        return cls(path, home)

    def enter(self) -> bool:
        """Move the supervisor in; return False, and remove the cgroup, when that is refused."""
        try:
            (self.path / "cgroup.procs").write_text("0")
        except OSError:
            with suppress(OSError):
                self.path.rmdir()
            return False
        return True

    def leave(self) -> None:
        """Move the supervisor back, kill what is left, remove the cgroup."""
        with suppress(OSError):
            (self.home / "cgroup.procs").write_text("0")
            (self.path / "cgroup.kill").write_text("1")
        for _ in range(100):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                reap_dead(children())
                time.sleep(_PAUSE_S)
            else:
                return


def _own_cgroup(mountinfo: Path, membership: Path) -> Path | None:
    """Return our cgroup's directory in the cgroup2 mount, which may be a hybrid one."""
    try:
        mounts = [line.split() for line in mountinfo.read_text().splitlines()]
        member = [line for line in membership.read_text().splitlines() if line.startswith("0::")]
    except OSError:
        return None
    for fields in mounts:
        if "-" in fields and fields[fields.index("-") + 1] == "cgroup2" and member:
            root, mount_point = fields[3], Path(fields[4])
            path = member[0][3:]
            if root != "/":
                path = path.removeprefix(root)
            home = mount_point / path.lstrip("/")
            return home if home.is_dir() else None
    return None


def _sweep(home: Path) -> None:
    """Remove empty cgroups of dead supervisors."""
    for stale in home.glob("rater-*-*"):
        pid = stale.name.split("-")[1]
        if not Path("/proc", pid).exists():
            with suppress(OSError):
                stale.rmdir()
