"""A powercap tree of plain files: two packages with their memory, and the twins beside them.

The kernel numbers the packages 1 and 0 where hwloc has 0 and 1: by their first CPU.
"""

from __future__ import annotations

from pathlib import Path

RANGE_UJ = 262_143_328_850
CPUS = "sys/devices/system/cpu"
ZONES = {
    "intel-rapl": None,
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "dram",
    "intel-rapl:0:1": "core",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio": None,
    "intel-rapl-mmio:0": "package-0",
}


def zone(root: Path, name: str) -> Path:
    """The counter of a zone."""
    return root / "sys/class/powercap" / name / "energy_uj"


def package_of(root: Path, cpu: int, package: int) -> None:
    folder = root / CPUS / f"cpu{cpu}/topology"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "physical_package_id").write_text(f"{package}\n")


def powercap(root: Path, packages: tuple[int, ...] = (1, 1, 0, 0)) -> Path:
    """Make the tree; `packages` by CPU."""
    for name, label in ZONES.items():
        file = zone(root, name)
        file.parent.mkdir(parents=True)
        if label is not None:
            (file.parent / "name").write_text(f"{label}\n")
            (file.parent / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            file.write_text("1000000\n")
    for cpu, package in enumerate(packages):
        package_of(root, cpu, package)
    return root


def stand(root: Path, name: str, microjoules: int) -> None:
    """Let a counter stand at a value, as at once as the kernel's."""
    file = zone(root, name)
    new = file.with_name("new")
    new.write_text(f"{microjoules}\n")
    new.replace(file)
