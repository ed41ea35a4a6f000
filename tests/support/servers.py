"""Made trees of servers: nodes, packages, PMUs, and counters with the values they are given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

INTEL = {"format__event": "config:0-7", "format__umask": "config:8-15"}


class Server:
    """A tree with PMUs, nodes and packages, and counters that stand where they are set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.opened: list[tuple[int, int, int]] = []  # type, config, CPU
        self._ends: list[tuple[int, tuple[int, int, int]]] = []

    def cpus(self, *nodes: str, packages: Sequence[str]) -> None:
        """`nodes` and `packages` are lists of CPUs."""
        for node, cpus in enumerate(nodes):
            self.write(f"sys/devices/system/node/node{node}/cpulist", cpus)
        for package, cpus in enumerate(packages):
            first, _, last = cpus.partition("-")
            for cpu in range(int(first), int(last or first) + 1):
                topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
                self.write(f"{topology}/physical_package_id", str(package))

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def pmu(self, name: str, number: int, cpumask: str, **files: str) -> None:
        folder = f"sys/bus/event_source/devices/{name}"
        self.write(f"{folder}/type", str(number))
        self.write(f"{folder}/cpumask", cpumask)
        for file, text in files.items():
            self.write(f"{folder}/{file.replace('__', '/')}", text)

    def open_event(self, pmu_type: int, config: int, cpu: int) -> int:
        self.opened.append((pmu_type, config, cpu))
        reader, writer = os.pipe()
        self._ends.append((writer, self.opened[-1]))
        return reader

    def stand(self, value_by_config: dict[int, int]) -> None:
        """Let each counter have the value of its config, which one reading takes."""
        for writer, (_, config, _) in self._ends:
            os.write(writer, value_by_config[config].to_bytes(8, "little"))

    def close(self) -> None:
        for writer, _ in self._ends:
            os.close(writer)
