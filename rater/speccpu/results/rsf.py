"""SPEC CPU's raw files (`.rsf`): `key: value` lines of CPU2000, 2006, 2017 and 2026.

What the keys mean: SPEC's public documentation, real files of CPU2006 and CPU2017, and
public notes on CPU2026 (one block per iteration, `ratio_avg`, `time_avg`).
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from rater.plan.placement.counts import MOST_COPIES
from rater.record.status import CopyStatus
from rater.speccpu import keys
from rater.speccpu.config.config import SpecConfig, read_config
from rater.speccpu.results import packed
from rater.speccpu.results.lines import LONGEST_LINE, Lines, Readable, as_text
from rater.speccpu.results.result import (
    LONGEST_S,
    MOST_NUMBER,
    Failure,
    Figure,
    SpecFile,
    SpecIteration,
)
from rater.text.cpuset import format_list, parse_list

ESTIMATE_KEY = "rater_estimate"  # rater's own export has it, and says so in words
ESTIMATE_TEXT = "estimate made by rater: not a result of SPEC's tools and not a SPEC metric"
ROTATED_MODE = "rrrate"  # rolling round-robin rate, of CPU2026
HEAD_BYTES = 1 << 20  # of a file, which tell whether it is a raw file
_HEAD = re.compile(
    rb"^(?:\xef\xbb\xbf)?[ \t]*spec\.cpu\w{1,20}\.[^:\s]{1,200}[ \t]*:",
    re.MULTILINE | re.IGNORECASE,
)
_LINE = re.compile(r"\s*spec\.(cpu\d+|\w+)\.([^:\s]+)\s*:(?: ?(.*))?$", re.IGNORECASE)
_INDEXED = re.compile(r"([A-Za-z_]+?)(\d{3,6})$")
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.(\d{0,18}))?(?:[eE][+-]?\d{1,3})?$", re.ASCII)
_COPY_FAILED = re.compile(
    r"copy (\d{1,6}) non-zero return code \(exit code=(-?\d{1,6}), signal=(\d{1,4})\)"
)
# As rater exports them.
_COPY_WRONG = re.compile(r"copy (\d{1,6}): output miscompare:\s*(.*)", re.ASCII)
_COPY_ENDED = re.compile(r"copy (\d{1,6}): (failed|timeout|interrupted)$", re.ASCII)
# `lscpu` and `numactl --hardware` in the notes of sysinfo; the second may go on in more lines.
_NODE_LIST = re.compile(r"NUMA node(\d{1,5}) CPU\(s\):\s*([\d,-]{1,5000})$", re.ASCII)
_NODE_CPUS = re.compile(r"node (\d{1,5}) cpus:([\d ]{0,5000})$", re.ASCII)
_MORE_CPUS = re.compile(r"[\d ]{1,5000}$", re.ASCII)
_IN_LINES = frozenset(  # numbered
    {"errors", "notes_plat_sysinfo_", "hw_cpu_name", "hw_cpu", "hw_model", "hw_vendor"}
)
_STAT = re.compile(
    r"(time|ratio)_(avg|mean|min|max|median|cv|sd|sigma|stddev|var|variance|q1|q3|iqr)$"
)
_COPIES = ("clcopies", "copies", "users")  # CPU2006, 2017; 2000's runs call them users
_ROLLED = frozenset({"basemean", "peakmean"})
_FACTS = frozenset(
    (
        *("hw_cpu_name", "hw_cpu", "hw_model", "hw_vendor", "sw_compiler", "sw_compiler000"),
        *("metric", "size", "time", "test_date", "suitever", "runspecver", "runcpuver"),
        *("ext", "label", "mach", "rate"),
    )
)
_SHOWN = 60
_MOST_DOUBTS = 5
_MOST_ERRORS = 50  # of one iteration
_LONGEST_CPU = 5  # digits
_MOST_PIECES = 100_000
_MOST_SEEN = 500_000  # keys whose repeating is noticed


def is_raw(head: bytes) -> bool:
    """Tell whether a file that begins so is a raw file."""
    return _HEAD.search(head) is not None


def read_rsf(stream: Readable, name: str) -> SpecFile:
    """Read a raw file, whatever state it is in: what cannot be read is a problem with its line."""
    return _Reader(stream, name).read()


class _Reader:
    def __init__(self, stream: Readable, name: str) -> None:
        self.lines = Lines(stream)
        self.file = SpecFile(name=name, format="rsf", sha256="")
        self.problems = self.file.problems
        self.found: dict[tuple[str, str, int], SpecIteration] = {}
        self.config: dict[int, str] = {}
        self.config_line = 0
        self.last: SpecIteration | None = None
        self.last_key = ("", "", "")
        self.suites: dict[str, int] = {}
        self.seen: dict[tuple[int, str], str] = {}  # by line of a result's first key, and name
        self.numbers: list[tuple[int, SpecIteration, int]] = []  # line, and what `iteration` says
        self.by_lscpu: dict[int, int] = {}  # node by CPU
        self.by_numactl: dict[int, int] = {}
        self.node: int | None = None  # whose CPUs may go on in the next line

    def read(self) -> SpecFile:
        held: tuple[int, str] | None = None
        for number, raw in self.lines:
            if held is not None:
                self.line(*held, cut=False)
            held = (number, as_text(raw))
        if held is not None:
            self.line(*held, cut=self.lines.cut)
        for number in self.lines.too_long:
            self.problems.add(number, f"longer than {LONGEST_LINE >> 20} MiB, not read")
        return self.finish()

    def line(self, number: int, text: str, *, cut: bool) -> None:
        if not text.strip() or text.lstrip().startswith("#"):
            return
        found = _LINE.match(text)
        if found is None:
            what = _shown(text)
            self.problems.add(number, f"no `key: value` line: {what}")
            return
        suite, key, value = found[1].lower(), found[2], (found[3] or "").strip()
        named = key.endswith(".benchmark") and keys.undotted(value) != key.split(".")[1]
        if cut and (named or _NUMBER.match(value)):
            self.problems.add(
                number, f"the file ends inside this line, its value is not used: {key}"
            )
            return
        if suite not in self.suites:
            self.suites[suite] = number
            if len(self.suites) > 1:
                self.problems.add(number, f"keys of another suite ({suite}) in the same file")
        if key.startswith("results."):
            self.result(number, key, value)
        else:
            self.fact(number, key, value)

    # -- of the file ----------------------------------------------------------------------------

    def fact(self, number: int, key: str, value: str) -> None:
        file = self.file
        indexed = _INDEXED.match(key)
        if indexed and indexed[1] == "rawconfig":
            self.config_line = self.config_line or number
            piece = int(indexed[2])
            if self.config.get(piece, value) != value:
                self.problems.add(number, f"{key} again, and another: the first is kept")
            elif len(self.config) < _MOST_PIECES:
                self.config[piece] = value
        elif key in _ROLLED:
            figure = self.figure(number, key, value, words=True)
            if figure and file.means.setdefault(key[:4], figure).value != figure.value:
                self.problems.add(number, f"{key} again, and another: the first is kept")
        elif key == ESTIMATE_KEY:
            file.estimate = True
        elif indexed and indexed[1] in _IN_LINES:
            self.one_of_several(indexed[1], value)
        elif key in _FACTS and value and file.facts.setdefault(key, value) != value:
            self.problems.add(number, f"{key} again, and another: the first is kept")

    def one_of_several(self, name: str, value: str) -> None:
        """Take a line of what has several, numbered."""
        file = self.file
        if name == "errors":
            if value and value != ESTIMATE_TEXT and len(file.errors) < _MOST_ERRORS:
                file.errors.append(value)
        elif name == "notes_plat_sysinfo_":
            running = re.match(r"\s*running on (\S+)", value)
            if running and file.hostname is None:
                file.hostname = running[1]
            self.sysinfo(value)
        else:
            known = file.facts.get(name)
            file.facts[name] = f"{known} {value}"[:500] if known else value

    def sysinfo(self, text: str) -> None:
        """Take the CPUs of a node from a line of `lscpu` or of `numactl --hardware`."""
        listed = _NODE_LIST.match(text)
        if listed:
            try:
                self.by_lscpu |= dict.fromkeys(parse_list(listed[2]), int(listed[1]))
            except ValueError:
                return  # hand-edited; the other program may tell
        cpus = _NODE_CPUS.match(text)
        if cpus:
            self.node = int(cpus[1])
        more = cpus[2] if cpus else text
        if self.node is None or not (cpus or _MORE_CPUS.match(more)):
            self.node = None
            return
        found = (int(word) for word in more.split() if len(word) <= _LONGEST_CPU)
        self.by_numactl |= dict.fromkeys(found, self.node)

    # -- of one benchmark -----------------------------------------------------------------------

    def result(self, number: int, key: str, value: str) -> None:
        parts = key.split(".")
        if len(parts) == 4 and not parts[3].isdigit():
            self.rollup(number, parts, value)
            return
        if len(parts) != 5:
            self.problems.add(number, f"no key of a result: {_shown(key)}")
            return
        _, benchmark, tune, text, name = parts
        if (benchmark, tune, text) != self.last_key or self.last is None:
            if not (text.isascii() and text.isdigit()) or len(text) > 9:
                self.problems.add(number, f"no number of an iteration: {_shown(text)}")
                return
            at = (benchmark, tune, min(int(text), MOST_NUMBER))
            self.last_key = (benchmark, tune, text)
            if at not in self.found:
                self.found[at] = SpecIteration(keys.dotted(benchmark), tune, at[2], number)
            self.last = self.found[at]
        one = self.last
        if name.startswith("copytime"):
            self.copy_time(number, one, name[8:], value)
            return
        before = self.seen.get((one.line, name))
        if before is None and len(self.seen) < _MOST_SEEN:
            self.seen[one.line, name] = value
        if before is not None and before != value:
            self.problems.add(number, f"a second {name} of {one.name}; the first is kept")
        elif before is None:
            self.value(number, one, name, value)

    def copy_time(self, number: int, one: SpecIteration, text: str, value: str) -> None:
        if not (text.isascii() and text.isdigit()) or len(text) > 6 or int(text) >= MOST_COPIES:
            self.problems.add(number, f"no number of a copy: copytime{_shown(text)}")
            return
        seconds = self.seconds(number, f"copytime{text}", value)
        if seconds is None:
            return
        copy = int(text)
        if one.times_s.setdefault(copy, seconds) != seconds:
            self.problems.add(
                number, f"a second time of copy {copy} of {one.name}; the first is kept"
            )

    def value(self, number: int, one: SpecIteration, name: str, value: str) -> None:
        """Take what was measured."""
        if name in _COPIES:
            one.copies = self.copies(number, name, value) or one.copies
        elif name == "reported_time":
            one.reported_s, one.reported_places = (
                self.seconds(number, name, value),
                _places(value),
            )
        elif name == "reference":
            one.reference_s = self.seconds(number, name, value) or None
        elif name == "ratio":
            one.ratio = self.figure(number, name, value)
        elif name == "selected":
            one.selected = value == "1" if value in ("0", "1") else None
        elif name == "valid":
            one.valid = value[:20] or None
        elif name == "dp":
            one.decimals = self.whole(number, name, value)
        elif name == "rate_start":
            one.start_s = self.moment(number, name, value)
        elif name.startswith("errors"):
            self.error(one, value)
        elif _STAT.match(name) or name in ("reported_sec", "reported_nsec"):
            if figure := self.figure(number, name, value):
                one.stats[name] = figure
        else:
            self.setup(number, one, name, value)

    def copies(self, number: int, name: str, value: str) -> int | None:
        copies = self.whole(number, name, value)
        if copies is not None and copies > MOST_COPIES:
            self.problems.add(number, f"{copies} copies are more than can be: not used")
            return None
        return copies

    def benchmark(self, number: int, one: SpecIteration, value: str) -> None:
        of_key = self.last_key[0]
        if value and not self.file.estimate and keys.undotted(value) != of_key:
            said = f"benchmark: {_shown(value)}, but the key says {keys.dotted(of_key)}"
            self.problems.add(number, f"{said}: the key holds")
        elif value and len(value) < 200:
            one.benchmark = value

    def setup(self, number: int, one: SpecIteration, name: str, value: str) -> None:
        """Take what was asked for."""
        if name == "benchmark":
            self.benchmark(number, one, value)
        elif name == "submit":
            one.submit = value == "1" if value in ("0", "1") else None
        elif name == "basepeak":
            one.basepeak = value == "1"
        elif name == "rate":
            one.rate = value != "0"
        elif name == "runmode":
            one.runmode = value or None
            one.rate = value != "speed"
        elif name == "threads":
            one.threads = self.whole(number, name, value)
        elif name == "size":
            one.size = value or None
        elif name == "iteration":
            counted = self.whole(number, name, value) if value != "-1" else None  # it never ran
            if counted is not None:
                self.numbers.append((number, one, counted))
        elif name in ("label", "ext"):
            one.label = value or one.label
        elif name == "mach":
            one.machine = value or None

    def error(self, one: SpecIteration, text: str) -> None:
        if not text:
            return
        if len(one.errors) < _MOST_ERRORS:
            one.errors.append(text[:500])
        for copy, code, signal in _COPY_FAILED.findall(text):
            if int(copy) < MOST_COPIES:
                killed = int(signal) or None
                known = one.failures.get(int(copy), Failure(None, None))
                one.failures[int(copy)] = replace(
                    known, exit_code=None if killed else int(code), signal=killed
                )
        wrong = _COPY_WRONG.match(text)
        if wrong and int(wrong[1]) < MOST_COPIES:
            one.failures[int(wrong[1])] = Failure(None, None, wrong[2][:500])
        ended = _COPY_ENDED.match(text)
        if ended and int(ended[1]) < MOST_COPIES:
            known = one.failures.get(int(ended[1]), Failure(None, None))
            one.failures[int(ended[1])] = replace(known, status=CopyStatus(ended[2]))

    def rollup(self, number: int, parts: list[str], value: str) -> None:
        _, benchmark, tune, name = parts
        if _STAT.match(name):
            figure = self.figure(number, name, value)
            if figure:
                self.file.rollups[keys.dotted(benchmark), tune, name] = figure

    # -- values ---------------------------------------------------------------------------------

    def figure(self, number: int, key: str, value: str, *, words: bool = False) -> Figure | None:
        """Return a number; None for `--` and nothing, with `words` for `Not Run` as well."""
        if not value or value.strip("-") == "":
            return None
        if _NUMBER.match(value) and math.isfinite(float(value)):
            return Figure(float(value), _places(value), number)
        if not words:
            self.problems.add(number, f"{key}: no number: {_shown(value)}")
        return None

    def seconds(self, number: int, key: str, value: str) -> float | None:
        figure = self.figure(number, key, value)
        if figure is None:
            return None
        if not 0 <= figure.value <= LONGEST_S:
            self.problems.add(number, f"{key}: no time: {_shown(value)}")
            return None
        return figure.value

    def moment(self, number: int, key: str, value: str) -> float | None:
        figure = self.figure(number, key, value)
        return figure.value if figure and 0 < figure.value < 1e11 else None

    def whole(self, number: int, key: str, value: str) -> int | None:
        if not value or value.strip("-") == "":
            return None
        if value.isascii() and value.isdigit() and len(value) <= 9:
            return int(value)
        self.problems.add(number, f"{key}: no whole number: {_shown(value)}")
        return None

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> SpecFile:
        file = self.file
        file.sha256 = self.lines.digest
        file.lines = self.lines.count
        file.suite = next((suite for suite in self.suites if suite.startswith("cpu")), None)
        file.metric = file.facts.get("metric")
        file.size = file.facts.get("size")
        started = file.facts.get("time", "")
        if _NUMBER.match(started) and 0 < float(started) < 1e11:
            file.started_s = float(started)
        for one in self.found.values():
            self.complete(one)
        for number, one, counted in self.numbers:
            if not is_rotated(one) and counted - one.iteration not in (0, 1):
                self.problems.add(
                    number,
                    f"iteration: {counted}, but the key says {one.iteration:03}: the key holds",
                )
        file.node_of = self.by_numactl or self.by_lscpu
        if any(self.by_lscpu.get(cpu, node) != node for cpu, node in file.node_of.items()):
            file.notes.append("lscpu and numactl of its sysinfo differ in the CPUs of the nodes")
        file.iterations = list(self.found.values())
        if self.config:
            try:
                file.config = read_config(packed.unpack(self.config))
                file.notes += _doubts(file.config)
            except ValueError as error:
                self.problems.add(
                    self.config_line, f"the configuration inside (rawconfig): {error}"
                )
        return file

    def complete(self, one: SpecIteration) -> None:
        seconds, nanoseconds = (
            one.stats.pop("reported_sec", None),
            one.stats.pop("reported_nsec", None),
        )
        if seconds is not None:
            exact = seconds.value + (nanoseconds.value / 1e9 if nanoseconds else 0.0)
            places = 9 if nanoseconds else 0
            if one.reported_s is None:
                one.reported_s, one.reported_places = exact, places
            elif abs(one.reported_s - exact) > 1.02 * (
                10.0**-places + 10.0 ** -min(one.reported_places, 9)
            ):
                self.problems.add(
                    seconds.line,
                    f"{one.name}: reported_time {one.reported_s:.{min(one.reported_places, 9)}f}, "
                    f"but reported_sec and reported_nsec are {exact:.{places}f}",
                )
        facts = self.file.facts
        one.size = one.size or self.file.size
        one.label = one.label or facts.get("label") or facts.get("ext")
        one.machine = one.machine or facts.get("mach") or "default"
        never = [copy for copy, s in one.times_s.items() if s == 0 and copy not in one.failures]
        if never and one.valid == "S" and not self.file.estimate:
            self.problems.add(
                one.line, f"{one.name}: 0 s is no time of a copy: copies {format_list(never)}"
            )
            for copy in never:
                del one.times_s[copy]
        if self.file.facts.get("rate") == "0":
            one.rate = False
        if one.copies is not None:
            beyond = [copy for copy in one.times_s if copy >= one.copies]
            if beyond and not is_rotated(one):
                self.problems.add(
                    one.line, f"{one.name}: a time of copy {min(beyond)}, but {one.copies} copies"
                )
        if one.valid is None and (one.times_s or one.reported_s is not None):
            self.problems.add(one.line, f"{one.name}: nothing says whether it is valid")


def _doubts(config: SpecConfig) -> list[str]:
    """Return what of a configuration may have been read otherwise than SPEC's tools did."""
    found = [*config.doubts, *(it for it in config.problems if "is not understood" not in it.text)]
    told = [f"the configuration inside, {problem}" for problem in sorted(found)]
    more = [f"and {len(told) - _MOST_DOUBTS} more such lines"] if len(told) > _MOST_DOUBTS else []
    return told[:_MOST_DOUBTS] + more


def is_rotated(one: SpecIteration) -> bool:
    """Tell whether the file says that this is a record of CPU2026's rolling round-robin rate."""
    mode = (one.runmode or "").lower().replace("_", "")
    return mode.startswith("rrr") or "roundrobin" in mode or "round-robin" in mode


def _places(value: str) -> int:
    found = _NUMBER.match(value)
    return len(found[1] or "") if found else 0


def _shown(text: str) -> str:
    text = text.strip()
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
