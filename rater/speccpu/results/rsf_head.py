"""What a raw file says of the run as a whole: facts, the machine's sysinfo, the configuration."""

from __future__ import annotations

import re

from rater.speccpu.config.config import SpecConfig, read_config
from rater.speccpu.results import packed
from rater.speccpu.results.result import MOST_ERRORS, SpecFile
from rater.speccpu.results.rsf_values import RawValue, figure_of, moment_of
from rater.text.cpuset import parse_list

ESTIMATE_KEY = "rater_estimate"  # rater's own export has it, and says so in words
ESTIMATE_TEXT = "estimate made by rater: not a result of SPEC's tools and not a SPEC metric"
_INDEXED = re.compile(r"([A-Za-z_]+?)(\d{3,6})$")
# `lscpu` and `numactl --hardware` in the notes of sysinfo; the second may go on in more lines.
_RUNNING_ON = re.compile(r"\s*running on (\S+)")
_NODE_LIST = re.compile(r"NUMA node(\d{1,5}) CPU\(s\):\s*([\d,-]{1,5000})$", re.ASCII)
_NODE_CPUS = re.compile(r"node (\d{1,5}) cpus:([\d ]{0,5000})$", re.ASCII)
_MORE_CPUS = re.compile(r"[\d ]{1,5000}$", re.ASCII)
_LONGEST_CPU = 5  # digits
_MEANS = {"basemean": "base", "peakmean": "peak"}
_HARDWARE = ("hw_cpu_name", "hw_cpu", "hw_model", "hw_vendor")  # their lines may be numbered
_FACTS = frozenset(
    (
        *(*_HARDWARE, "sw_compiler", "sw_compiler000", "metric", "size", "time", "test_date"),
        *("suitever", "runspecver", "runcpuver", "ext", "label", "mach", "rate"),
    )
)
_LONGEST_FACT = 500
_MOST_PIECES = 100_000
_MOST_UNCERTAIN = 5


class Head:
    """Takes the keys that are of no benchmark."""

    def __init__(self, file: SpecFile) -> None:
        self._file = file
        self._config: dict[int, str] = {}  # pieces
        self._config_line = 0
        self._by_lscpu: dict[int, int] = {}  # node by CPU
        self._by_numactl: dict[int, int] = {}
        self._node: int | None = None  # whose CPUs may go on in the next line

    def take(self, value: RawValue) -> None:
        """Take a key with its value; those that are not known are passed over."""
        file, key, text = self._file, value.key, value.text
        indexed = _INDEXED.match(key)
        name = indexed[1] if indexed else None
        known = text
        if indexed and name == "rawconfig":
            self._config_line = self._config_line or value.line
            if (piece := int(indexed[2])) in self._config or len(self._config) < _MOST_PIECES:
                known = self._config.setdefault(piece, text)
        elif key in _MEANS:
            figure = figure_of(text, value.line)  # or `Not Run`
            if figure and file.means.setdefault(_MEANS[key], figure).value != figure.value:
                known = ""
        elif key == ESTIMATE_KEY:
            file.estimate = True
        elif name == "errors":
            if text and text != ESTIMATE_TEXT and len(file.errors) < MOST_ERRORS:
                file.errors.append(text)
        elif name == "notes_plat_sysinfo_":
            self._sysinfo(text)
        elif name in _HARDWARE:
            before = file.facts.get(name)
            file.facts[name] = f"{before} {text}"[:_LONGEST_FACT] if before else text
        elif key in _FACTS and text:
            known = file.facts.setdefault(key, text)
        if known != text:
            value.problem(f"{key} again, and another: the first is kept")

    def _sysinfo(self, text: str) -> None:
        """Take the host, or the CPUs of a node from a line of `lscpu` or `numactl --hardware`."""
        running = _RUNNING_ON.match(text)
        if running and self._file.hostname is None:
            self._file.hostname = running[1]
        listed = _NODE_LIST.match(text)
        if listed:
            try:
                self._by_lscpu |= dict.fromkeys(parse_list(listed[2]), int(listed[1]))
            except ValueError:
                return  # hand-edited; the other program may have it
        cpus = _NODE_CPUS.match(text)
        if cpus:
            self._node = int(cpus[1])
        more = cpus[2] if cpus else text
        if self._node is None or not (cpus or _MORE_CPUS.match(more)):
            self._node = None
            return
        found = (int(word) for word in more.split() if len(word) <= _LONGEST_CPU)
        self._by_numactl |= dict.fromkeys(found, self._node)

    def finish(self) -> None:
        """Write into the file what only all lines together say."""
        file = self._file
        file.metric, file.size = file.facts.get("metric"), file.facts.get("size")
        file.started_s = moment_of(figure_of(file.facts.get("time", ""), 0))
        file.node_of = self._by_numactl or self._by_lscpu
        if any(self._by_lscpu.get(cpu, node) != node for cpu, node in file.node_of.items()):
            file.notes.append("lscpu and numactl of its sysinfo differ in the CPUs of the nodes")
        if self._config:
            try:
                file.config = read_config(packed.unpack(self._config))
                file.notes += _uncertain(file.config)
            except ValueError as error:
                text = f"the configuration inside (rawconfig): {error}"
                file.problems.add(self._config_line, text)


def _uncertain(config: SpecConfig) -> list[str]:
    """Return what of a configuration may have been read otherwise than SPEC's tools did."""
    others = (it for it in config.problems if "is not understood" not in it.text)
    lines = [
        f"the configuration inside, {problem}" for problem in sorted([*config.uncertain, *others])
    ]
    more = len(lines) - _MOST_UNCERTAIN
    return lines[:_MOST_UNCERTAIN] + ([f"and {more} more such lines"] if more > 0 else [])
