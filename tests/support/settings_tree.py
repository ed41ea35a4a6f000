"""A tree of plain files with the settings of a machine of four CPUs and two nodes.

`Kernel` writes it as Linux does: choices keep their brackets, totals are spread over nodes, and
some files change others.
"""

from __future__ import annotations

import errno
from pathlib import Path

from rater.settings.known import read_value

THP = "sys/kernel/mm/transparent_hugepage"
CPUS = "sys/devices/system/cpu"
CPUFREQ = f"{CPUS}/cpufreq"
POOL = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
MIN_FREE = "proc/sys/vm/min_free_kbytes"
BOOT_ID = "proc/sys/kernel/random/boot_id"
GOVERNORS = ("performance", "powersave", "powersave", "performance")


def node_pool(node: int) -> str:
    return f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"


def policy(number: int, file: str) -> str:
    return f"{CPUFREQ}/policy{number}/{file}"


def make_tree(root: Path) -> Path:
    files = {
        BOOT_ID: "11111111-2222-3333-4444-555555555555",
        f"{THP}/enabled": "always [madvise] never",
        f"{THP}/defrag": "always defer defer+madvise [madvise] never",
        f"{THP}/hugepages-64kB/enabled": "always inherit madvise [never]",
        f"{THP}/hugepages-2048kB/enabled": "always [inherit] madvise never",
        f"{THP}/khugepaged/pages_to_scan": "4096",
        POOL: "12",
        node_pool(0): "10",
        node_pool(1): "2",
        MIN_FREE: "90000",
        "proc/sys/vm/swappiness": "60",
        "proc/sys/vm/zone_reclaim_mode": "0",
        "proc/sys/kernel/randomize_va_space": "2",
        "proc/sys/kernel/numa_balancing": "1",
        f"{CPUS}/smt/control": "on",
        f"{CPUS}/present": "0-3",
        f"{CPUS}/offline": "4-7",
        f"{CPUFREQ}/boost": "1",
    }
    for number, governor in enumerate(GOVERNORS):
        files |= {
            policy(number, "scaling_governor"): governor,
            policy(number, "scaling_available_governors"): "performance powersave",
            policy(number, "scaling_max_freq"): f"{3000000 + number}",
            policy(number, "scaling_min_freq"): "800000",
            policy(number, "energy_performance_preference"): "balance_power",
            policy(number, "energy_performance_available_preferences"): "default performance "
            "balance_performance balance_power power",
            policy(number, "boost"): "0" if number == 3 else "1",
        }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def contents(root: Path) -> dict[str, str]:
    """The first line of every file, by its path below the root.

    What is written over a longer text leaves the rest of it: the kernel has no such thing.
    """
    return {
        str(path.relative_to(root)): line(path)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def values(root: Path) -> dict[str, str]:
    """The value of every file: plain files that were written show no other choices any more."""
    return {file: read_value(root, file) for file in contents(root)}


def line(path: Path) -> str:
    return path.read_text().splitlines()[0]


class Kernel:
    """Put it in the place of `write_value`."""

    def __init__(self, *, most_pages: int = 1000) -> None:
        self.most_pages = most_pages
        self.written: list[str] = []
        self.refused: dict[str, int] = {}  # file -> errno

    def __call__(self, root: Path, file: str, value: str) -> None:
        self.written.append(f"{Path(file).name}={value}")
        number = self.refused.get(file)
        if number is None and not (root / file).exists():
            number = errno.ENOENT
        if number is not None:
            raise OSError(number, "refused" if number != errno.ENOENT else "gone", str(root / file))
        text = (root / file).read_text()
        if "[" in text:
            words = text.replace("[", "").replace("]", "").split()
            value = " ".join(f"[{word}]" if word == value else word for word in words)
        elif file == POOL:
            pages = min(int(value), self.most_pages)
            self.put(root, node_pool(0), str(pages - pages // 2))
            self.put(root, node_pool(1), str(pages // 2))
            value = str(pages)
        self.put(root, file, value)
        self.follow(root, file, value)

    def follow(self, root: Path, file: str, value: str) -> None:
        if file in (node_pool(0), node_pool(1)):
            total = sum(int((root / node_pool(node)).read_text()) for node in (0, 1))
            self.put(root, POOL, str(total))
        if file == f"{THP}/enabled":
            self.put(root, MIN_FREE, "20000" if "[never]" in value else "67584")
        if file == f"{CPUFREQ}/boost":
            for number in range(4):
                self.put(root, policy(number, "boost"), value)
                self.put(root, policy(number, "scaling_max_freq"), "3900000")
        if file.endswith("scaling_governor") and value == "performance":
            preference = file.replace("scaling_governor", "energy_performance_preference")
            self.put(root, preference, "performance")

    @staticmethod
    def put(root: Path, file: str, value: str) -> None:
        (root / file).write_text(value + "\n")
