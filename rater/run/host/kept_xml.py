"""What hwloc says of this machine, kept in a file for as long as nothing of it changes.

To load hwloc and to let it read the machine takes 50 ms, an eighth of a short `rater run`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rater import __version__
from rater.run.host.admission import limiting_groups
from rater.run.host.procfs import list_folder, meminfo, read_text, status_of
from rater.system.files import make_private_folder, open_file, replace_file
from rater.system.process import boot_id

_NAME = "machine.xml"
# What hwloc reads and an administrator can change without a new boot: CPUs and nodes that are
# plugged or switched off, and the highest frequency, by which kinds of CPUs are told apart.
_CHANGEABLE = (
    "cpu/online",
    "cpu/present",
    "node/online",
    "cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "cpu/cpufreq/boost",
    "cpu/intel_pstate/no_turbo",
)
_OF_CPUSET = ("cpuset.cpus.effective", "cpuset.effective_cpus")  # cgroups of version 2 and 1


def kept_xml(folder: Path, read_machine: Callable[[], str], root: Path = Path("/")) -> str:
    """Return what hwloc said of this machine; where it changed since, read it and keep that.

    Where `folder` cannot be used the machine is read each time.
    """
    digest = hashlib.sha256("\n".join(_state(root)).encode()).hexdigest()
    with suppress(OSError, ValueError):
        # A file of somebody else could name any machine: only a trusted user's is opened.
        with os.fdopen(open_file(folder / _NAME, os.O_RDONLY), encoding="utf-8") as file:
            head, _, kept = file.read().partition("\n")
        if head == _head(digest, kept):
            return kept
    xml = read_machine()
    with suppress(OSError):
        content = f"{_head(digest, xml)}\n{xml}".encode()
        replace_file(make_private_folder(folder) / _NAME, content, mode=0o600)
    return xml


def _head(digest: str, xml: str) -> str:
    """Return the first line of the file: of which state it is, and that it is whole."""
    return f"{digest} {hashlib.sha256(xml.encode()).hexdigest()}"


def _state(root: Path) -> Iterator[str]:
    """Yield what tells this machine from one of which hwloc would say something else."""
    yield from (boot_id(), __version__, str(os.geteuid()))
    with suppress(ImportError, ValueError, OSError):  # another hwloc may say more
        module = find_spec("pyhwloc")
        yield str(module and module.origin and Path(module.origin).stat().st_mtime_ns)
    system = root / "sys/devices/system"
    yield from (str(read_text(system / name)) for name in _CHANGEABLE)
    for path in (root / "proc", *list_folder(system / "node", "node[0-9]*")):
        yield f"{path.name} {meminfo(path / 'meminfo').get('MemTotal')}"
    status = status_of(os.getpid())
    yield f"{status.cpus} {status.mems}"
    for group in limiting_groups(root, "cpuset"):
        yield from (str(read_text(group.folder / name)) for name in _OF_CPUSET)
