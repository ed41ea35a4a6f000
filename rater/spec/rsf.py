"""SPEC CPU's raw files (`.rsf`): `key: value` lines of CPU2000, 2006, 2017 and 2026.

What the keys mean: SPEC's public documentation, real files of CPU2006 and CPU2017, and
public notes on CPU2026 (one block per iteration, `ratio_avg`, `time_avg`).
"""

from __future__ import annotations

import math
import re
from typing import BinaryIO

from rater.spec import keys, packed
from rater.spec.config import read_config
from rater.spec.lines import LONGEST_LINE, Lines
from rater.spec.result import (
    LONGEST_S,
    MOST_COPIES,
    MOST_NUMBER,
    Failure,
    Figure,
    SpecFile,
    SpecIteration,
)

ESTIMATE_KEY = "rater_estimate"  # rater's own export has it, and says so in words
ESTIMATE_TEXT = "estimate made by rater: not a result of SPEC's tools and not a SPEC metric"
ROTATED_MODE = "rrrate"  # rolling round-robin rate, of CPU2026
_LINE = re.compile(r"\s*spec\.(cpu\d+|\w+)\.([^:\s]+)\s*:(?: ?(.*))?$", re.IGNORECASE)
_INDEXED = re.compile(r"([A-Za-z_]+?)(\d{3,6})$")
_NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.(\d{0,18}))?(?:[eE][+-]?\d{1,3})?$", re.ASCII)
_COPY_FAILED = re.compile(
    r"copy (\d{1,6}) non-zero return code \(exit code=(-?\d{1,6}), signal=(\d{1,4})\)"
)
_COPY_WRONG = re.compile(r"copy (\d{1,6}): output miscompare: (.*)")  # as rater exports it
_STAT = re.compile(
    r"(time|ratio)_(avg|mean|min|max|median|cv|sd|sigma|stddev|var|variance|q1|q3|iqr)$"
)
_COPIES = ("clcopies", "copies", "users")  # CPU2006, 2017; 2000's runs call them users
_ROLLED = frozenset({"basemean", "peakmean"})
_FACTS = frozenset(
    (
        *("hw_cpu_name", "hw_cpu", "hw_model", "hw_vendor", "sw_compiler", "sw_compiler000"),
        *("metric", "size", "time", "test_date", "suitever", "runspecver", "runcpuver"),
        *("ext", "label", "rate"),
    )
)
_SHOWN = 60
_MOST_ERRORS = 50  # of one iteration
_MOST_PIECES = 100_000


def read_rsf(stream: BinaryIO, name: str) -> SpecFile:
    """Read a raw file, whatever state it is in: what cannot be read is a problem with its line."""
    return _Reader(stream, name).read()


class _Reader:
    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.lines = Lines(stream)
        self.file = SpecFile(name=name, format="rsf", sha256="")
        self.problems = self.file.problems
        self.found: dict[tuple[str, str, int], SpecIteration] = {}
        self.config: dict[int, str] = {}
        self.config_line = 0
        self.last: SpecIteration | None = None
        self.last_key = ("", "", "")
        self.suites: dict[str, int] = {}

    def read(self) -> SpecFile:
        held: tuple[int, str] | None = None
        for number, raw in self.lines:
            if held is not None:
                self.line(*held, cut=False)
            held = (number, raw.decode("latin-1"))
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
        if cut and _NUMBER.match(value):
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
            if len(self.config) < _MOST_PIECES:
                self.config.setdefault(int(indexed[2]), value)
        elif key in _ROLLED:
            figure = self.figure(number, key, value, words=True)
            if figure:
                file.means.setdefault(key[:4], figure)
        elif key == ESTIMATE_KEY:
            file.estimate = True
        elif indexed and indexed[1] == "errors":
            if value and value != ESTIMATE_TEXT and len(file.errors) < _MOST_ERRORS:
                file.errors.append(value)
        elif indexed and indexed[1] == "notes_plat_sysinfo_":
            running = re.match(r"\s*running on (\S+)", value)
            if running and file.hostname is None:
                file.hostname = running[1]
        elif key in _FACTS and value:
            file.facts.setdefault(key, value)

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
        else:
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

    def value(self, number: int, one: SpecIteration, name: str, value: str) -> None:  # noqa: PLR0912 - one branch a key
        if name == "benchmark":
            if value and len(value) < 200:
                one.benchmark = value
        elif name in _COPIES:
            one.copies = self.whole(number, name, value) or one.copies
            if one.copies is not None and one.copies > MOST_COPIES:
                self.problems.add(number, f"{one.copies} copies are more than can be: not used")
                one.copies = None
        elif name == "reported_time":
            if one.reported_s is None:
                one.reported_s = self.seconds(number, name, value)
                one.reported_places = _places(value)
        elif name == "reference":
            one.reference_s = self.seconds(number, name, value) or None
        elif name == "ratio":
            one.ratio = self.figure(number, name, value)
        elif name == "selected":
            one.selected = value == "1" if value in ("0", "1") else None
        elif name == "submit":
            one.submit = value == "1" if value in ("0", "1") else None
        elif name == "basepeak":
            one.basepeak = value == "1"
        elif name == "rate":
            one.rate = value != "0"
        elif name == "runmode":
            one.runmode = value or None
            one.rate = value != "speed"
        elif name == "valid":
            one.valid = value[:20] or None
        elif name == "threads":
            one.threads = self.whole(number, name, value)
        elif name == "dp":
            one.decimals = self.whole(number, name, value)
        elif name == "rate_start":
            one.start_s = self.moment(number, name, value)
        elif name == "size":
            one.size = value or None
        elif name.startswith("errors"):
            self.error(one, value)
        elif _STAT.match(name) or name in ("reported_sec", "reported_nsec"):
            figure = self.figure(number, name, value)
            if figure:
                one.stats[name] = figure

    def error(self, one: SpecIteration, text: str) -> None:
        if not text:
            return
        if len(one.errors) < _MOST_ERRORS:
            one.errors.append(text[:500])
        for copy, code, signal in _COPY_FAILED.findall(text):
            if int(copy) < MOST_COPIES:
                killed = int(signal) or None
                one.failures[int(copy)] = Failure(None if killed else int(code), killed)
        wrong = _COPY_WRONG.match(text)
        if wrong and int(wrong[1]) < MOST_COPIES:
            one.failures[int(wrong[1])] = Failure(None, None, wrong[2][:500])

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
        file.iterations = list(self.found.values())
        if self.config:
            try:
                file.config = read_config(packed.unpack(self.config))
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
        if one.reported_s is None and seconds is not None:
            one.reported_s = seconds.value + (nanoseconds.value / 1e9 if nanoseconds else 0.0)
            one.reported_places = 9 if nanoseconds else 0
        one.size = one.size or self.file.size
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
