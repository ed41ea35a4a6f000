"""SPEC CPU's raw files (`.rsf`) of CPU2000, 2006, 2017 and 2026, read; pure."""

from __future__ import annotations

import base64
import binascii
import bz2
import math
import re
import zlib
from collections.abc import Callable, Mapping

from msgspec import Struct

from rater.record.run import MOST_COPIES
from rater.speccpu.config import keys
from rater.speccpu.config.config import SpecConfig, read_config
from rater.speccpu.config.keys import Problems
from rater.speccpu.results.result import (
    LONGEST_FACT,
    LONGEST_S,
    MOST_ERRORS,
    MOST_NUMBER,
    Failure,
    Lines,
    ReportedNumber,
    SpecFile,
    SpecIteration,
    as_text,
)
from rater.text.cpuset import format_list, parse_list

# -- Values of a raw file by their type; a text of another type is a problem with its line ---------

NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.(\d{0,18}))?(?:[eE][+-]?\d{1,3})?$", re.ASCII)
_LATEST_S = 1e11  # since 1970
_SHOWN = 60


class RawValue(Struct):
    """The text behind a key."""

    line: int
    key: str
    text: str
    problems: Problems

    def problem(self, text: str) -> None:
        """Note what is wrong with it."""
        self.problems.add(self.line, text)

    def figure(self) -> ReportedNumber | None:
        """Return a number, None for `--` and nothing."""
        if not self.text.strip("-"):
            return None
        figure = figure_of(self.text, self.line)
        if figure is None:
            self.problem(f"{self.key}: no number: {shorten(self.text)}")
        return figure

    def seconds(self) -> float | None:
        """Return a time that can be one."""
        figure = self.figure()
        if figure is not None and not 0 <= figure.value <= LONGEST_S:
            self.problem(f"{self.key}: no time: {shorten(self.text)}")
            return None
        return figure.value if figure else None

    def moment(self) -> float | None:
        """Return seconds since 1970."""
        return moment_of(self.figure())

    def whole(self) -> int | None:
        """Return a whole number, None for `--` and nothing."""
        if not self.text.strip("-"):
            return None
        if is_whole(self.text, 9):
            return int(self.text)
        self.problem(f"{self.key}: no whole number: {shorten(self.text)}")
        return None


def figure_of(text: str, line: int) -> ReportedNumber | None:
    """Return a number with its decimals; None for a text that is no number."""
    match = NUMBER.match(text)
    if match is None or not math.isfinite(value := float(text)):
        return None
    return ReportedNumber(value, len(match[1] or ""), line)


def moment_of(figure: ReportedNumber | None) -> float | None:
    """Return seconds since 1970 that can be some."""
    return figure.value if figure and 0 < figure.value < _LATEST_S else None


def is_whole(text: str, digits: int) -> bool:
    """Tell whether this is a number of at most so many digits."""
    return text.isascii() and text.isdigit() and len(text) <= digits


def shorten(text: str) -> str:
    """Return text of a file as messages have it."""
    text = text.strip()
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


# -- What a raw file says of the run as a whole: facts, the machine's sysinfo, the configuration ---

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
        self.command_line: tuple[Mapping[str, str] | None, str | None] = (None, None)

    def take(self, value: RawValue) -> None:
        """Take a key with its value; those that are not known are passed over."""
        file, key, text = self._file, value.key, value.text
        indexed = _INDEXED.match(key)
        name = indexed[1] if indexed else None
        kept = text
        if indexed and name == "rawconfig":
            self._config_line = self._config_line or value.line
            if (piece := int(indexed[2])) in self._config or len(self._config) < _MOST_PIECES:
                kept = self._config.setdefault(piece, text)
        elif key in _MEANS:
            figure = figure_of(text, value.line)  # or `Not Run`
            if figure and file.means.setdefault(_MEANS[key], figure).value != figure.value:
                kept = ""
        elif name == "errors":
            if text and len(file.errors) < MOST_ERRORS:
                file.errors.append(text)
        elif name == "notes_plat_sysinfo_":
            self._sysinfo(text)
        elif name in _HARDWARE:
            before = file.facts.get(name)
            file.facts[name] = f"{before} {text}"[:LONGEST_FACT] if before else text
        elif key in _FACTS and text:
            kept = file.facts.setdefault(key, text)
        if kept != text:
            value.problem(f"{key} again, and another: the first is kept")

    def _sysinfo(self, text: str) -> None:
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
        cpus_of_line = (int(word) for word in more.split() if len(word) <= _LONGEST_CPU)
        self._by_numactl |= dict.fromkeys(cpus_of_line, self._node)

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
                file.config = read_config(unpack(self._config), *self.command_line)
                file.notes += _uncertain(file.config)
            except ValueError as error:
                text = f"the configuration inside (rawconfig): {error}"
                file.problems.add(self._config_line, text)


def _uncertain(config: SpecConfig) -> list[str]:
    """Return what of a configuration may have been read otherwise than SPEC's tools did."""
    others = (problem for problem in config.problems if "is not understood" not in problem.text)
    lines = [
        f"the configuration inside, {problem}" for problem in sorted([*config.uncertain, *others])
    ]
    more = len(lines) - _MOST_UNCERTAIN
    return lines[:_MOST_UNCERTAIN] + ([f"and {more} more such lines"] if more > 0 else [])


# -- SPEC CPU's raw files (`.rsf`): `key: value` lines of CPU2000, 2006, 2017 and 2026 -------------
#
# What the keys mean: SPEC's public documentation, real files of CPU2006 and CPU2017, and
# public notes on CPU2026 (one block per iteration, `ratio_avg`, `time_avg`).

HEAD_BYTES = 1 << 20  # of a file, which tell whether it is a raw file
_HEAD = re.compile(
    rb"^(?:\xef\xbb\xbf)?[ \t]*spec\.cpu\w{1,20}\.[^:\s]{1,200}[ \t]*:",
    re.MULTILINE | re.IGNORECASE,
)
_LINE = re.compile(r"\s*spec\.(cpu\d+|\w+)\.([^:\s]+)\s*:(?: ?(.*))?$", re.IGNORECASE)
_STAT = re.compile(
    r"(?:time|ratio)_(?:avg|mean|min|max|median|cv|sd|sigma|stddev|var|variance|q1|q3|iqr)$"
)
_FIGURES = ("reported_sec", "reported_nsec")
_LONGEST_ERROR = 500
_MOST_SEEN = 500_000  # keys whose repeating is noticed


def _copies(value: RawValue) -> int | None:
    copies = value.whole()
    if copies is not None and copies > MOST_COPIES:
        value.problem(f"{copies} copies are more than can be: not used")
        return None
    return copies or None


def _choice(value: RawValue) -> bool | None:
    return {"0": False, "1": True}.get(value.text)


def _word(value: RawValue) -> str | None:
    return value.text or None


# Of an iteration: what a key is stored as, and how its value is read; None changes nothing.
_FIELDS: dict[str, tuple[str, Callable[[RawValue], object]]] = {
    **dict.fromkeys(("clcopies", "copies", "users"), ("copies", _copies)),  # 2006, 2017, 2000
    "reference": ("reference_s", lambda value: value.seconds() or None),
    "ratio": ("ratio", RawValue.figure),
    "selected": ("selected", _choice),
    "valid": ("valid", lambda value: value.text[:20] or None),
    "dp": ("decimals", lambda value: value.whole() if value.text != "-1" else None),  # -1: all
    "rate_start": ("start_s", RawValue.moment),
    "submit": ("submit", _choice),
    "basepeak": ("basepeak", lambda value: value.text == "1"),
    "rate": ("rate", lambda value: value.text != "0"),
    "runmode": ("runmode", _word),
    "threads": ("threads", RawValue.whole),
    "size": ("size", _word),
    "label": ("label", _word),
    "ext": ("label", _word),
    "mach": ("machine", _word),
}


# How a copy failed, in an error of its iteration.
_FAILED_COPY = re.compile(
    r"copy (\d{1,6}) non-zero return code \(exit code=(-?\d{1,6}), signal=(\d{1,4})\)"
)


def is_raw(head: bytes) -> bool:
    """Tell whether a file that begins so is a raw file."""
    return _HEAD.search(head) is not None


def read_rsf(
    lines: Lines,
    name: str,
    defines: Mapping[str, str] | None = None,
    label: str | None = None,
) -> SpecFile:
    """Read a raw file, whatever state it is in: what cannot be read is a problem with its line.

    `defines` and `label`: for the configuration inside, where they are known.
    """
    reader = _Reader(lines, name)
    reader.head.command_line = (defines, label)
    return reader.read()


class _Reader:
    def __init__(self, lines: Lines, name: str) -> None:
        self.lines = lines
        self.file = lines.file(name, "rsf")
        self.problems = self.file.problems
        self.head = Head(self.file)
        self.found: dict[tuple[str, str, int], SpecIteration] = {}
        self.last: SpecIteration | None = None
        self.last_key = ("", "", "")
        self.suites: dict[str, int] = {}
        self.seen: dict[tuple[int, str], str] = {}  # by line of a result's first key, and name
        self.numbers: list[tuple[int, SpecIteration, int]] = []  # line, and what `iteration` is

    def read(self) -> SpecFile:
        for number, raw in self.lines:
            self.line(number, as_text(raw), cut=self.lines.cut and number == self.lines.count)
        self.finish()
        return self.file

    def line(self, number: int, text: str, *, cut: bool) -> None:
        if not text.strip() or text.lstrip().startswith("#"):
            return
        match = _LINE.match(text)
        if match is None:
            self.problems.add(number, f"no `key: value` line: {shorten(text)}")
            return
        suite = match[1].lower()
        value = RawValue(number, match[2], (match[3] or "").strip(), self.problems)
        key, parts = value.key, value.key.split(".")
        named = key.endswith(".benchmark") and keys.undotted(value.text) != parts[1]
        if cut and (named or NUMBER.match(value.text)):
            value.problem(f"the file ends inside this line, its value is not used: {key}")
            return
        if self.suites.setdefault(suite, number) == number and len(self.suites) > 1:
            value.problem(f"keys of another suite ({suite}) in the same file")
        if parts[0] != "results" or len(parts) == 1:
            self.head.take(value)
        elif len(parts) == 4 and not parts[3].isdigit():
            _, benchmark, tune, name = parts
            if _STAT.match(name):
                value.key = name
                if figure := value.figure():
                    self.file.rollups[keys.dotted(benchmark), tune, name] = figure
        elif len(parts) != 5:
            value.problem(f"no key of a result: {shorten(key)}")
        else:
            _, benchmark, tune, iteration, value.key = parts
            self.result(benchmark, tune, iteration, value)

    def result(self, benchmark: str, tune: str, iteration: str, value: RawValue) -> None:
        """Take a key of an iteration."""
        if (benchmark, tune, iteration) != self.last_key or self.last is None:
            if not is_whole(iteration, 9):
                value.problem(f"no number of an iteration: {shorten(iteration)}")
                return
            # Keys count from 000; SPEC's reports and logs, and rater, count iterations from 1.
            at = (benchmark, tune, min(int(iteration) + 1, MOST_NUMBER))
            self.last_key = (benchmark, tune, iteration)
            if at not in self.found:
                self.found[at] = SpecIteration(
                    benchmark=keys.dotted(benchmark), tune=tune, iteration=at[2], line=value.line
                )
            self.last = self.found[at]
        measured, name = self.last, value.key
        if name.startswith("copytime"):
            self.copy_time(measured, name[8:], value)
            return
        before = self.seen.get((measured.line, name))
        if before is None:
            if len(self.seen) < _MOST_SEEN:
                self.seen[measured.line, name] = value.text
            self.field(measured, value)
        elif before != value.text:
            value.problem(f"a second {name} of {measured.name}; the first is kept")

    def copy_time(self, iteration: SpecIteration, number: str, value: RawValue) -> None:
        if not is_whole(number, 6) or int(number) >= MOST_COPIES:
            value.problem(f"no number of a copy: copytime{shorten(number)}")
            return
        seconds = value.seconds()
        if seconds is not None and iteration.times_s.setdefault(int(number), seconds) != seconds:
            value.problem(
                f"a second time of copy {int(number)} of {iteration.name}; the first is kept"
            )

    def field(self, iteration: SpecIteration, value: RawValue) -> None:
        name = value.key
        if name in _FIELDS:
            attribute, read = _FIELDS[name]
            content = read(value)
            if content is not None:
                setattr(iteration, attribute, content)
            if name == "runmode":
                iteration.rate = value.text != "speed"
        elif name == "benchmark":
            self.benchmark(iteration, value)
        elif name == "reported_time":
            iteration.reported_s = value.seconds()
            figure = figure_of(value.text, value.line)
            iteration.reported_places = figure.places if figure else 0
        elif name == "iteration":
            number = value.whole() if value.text != "-1" else None  # it never ran
            if number is not None:
                self.numbers.append((value.line, iteration, number))
        elif name.startswith("errors"):
            _add_error(iteration, value.text)
        elif (_STAT.match(name) or name in _FIGURES) and (figure := value.figure()):
            iteration.stats[name] = figure

    def benchmark(self, iteration: SpecIteration, value: RawValue) -> None:
        of_key, name = self.last_key[0], value.text
        if name and keys.undotted(name) != of_key:
            value.problem(
                f"benchmark: {shorten(name)}, but the key says {keys.dotted(of_key)}: the key holds"
            )
        elif name and len(name) < 200:
            iteration.benchmark = name

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        file = self.file
        file.suite = next((suite for suite in self.suites if suite.startswith("cpu")), None)
        file.iterations = list(self.found.values())
        file.size = file.facts.get("size")
        for one in file.iterations:
            self.complete(one)
        for line, one, number in self.numbers:
            of_key = one.iteration - 1
            if not one.is_rotated and number - of_key not in (0, 1):
                self.problems.add(
                    line, f"iteration: {number}, but the key says {of_key:03}: the key holds"
                )
        self.head.finish()

    def complete(self, iteration: SpecIteration) -> None:
        """Fill in what the whole file says of it, and name what contradicts itself."""
        self.reported(iteration)
        facts = self.file.facts
        iteration.size = iteration.size or self.file.size
        iteration.label = iteration.label or facts.get("label") or facts.get("ext")
        iteration.machine = iteration.machine or facts.get("mach") or "default"
        iteration.rate = iteration.rate and facts.get("rate") != "0"
        never = [
            copy
            for copy, s in iteration.times_s.items()
            if s == 0 and copy not in iteration.failures
        ]
        if never and iteration.valid == "S":
            self.add_problem(iteration, f"0 s is no time of a copy: copies {format_list(never)}")
            for copy in never:
                del iteration.times_s[copy]
        beyond = [
            copy
            for copy in iteration.times_s
            if iteration.copies is not None and copy >= iteration.copies
        ]
        if beyond and not iteration.is_rotated:
            self.add_problem(
                iteration, f"a time of copy {min(beyond)}, but {iteration.copies} copies"
            )
        if iteration.valid is None and (iteration.times_s or iteration.reported_s is not None):
            self.add_problem(iteration, "nothing says whether it is valid")

    def reported(self, iteration: SpecIteration) -> None:
        """Hold the time of the bracket against its seconds and nanoseconds."""
        seconds, nanoseconds = (iteration.stats.pop(name, None) for name in _FIGURES)
        if seconds is None:
            return
        exact = seconds.value + (nanoseconds.value / 1e9 if nanoseconds else 0.0)
        places = 9 if nanoseconds else 0
        if iteration.reported_s is None:
            iteration.reported_s, iteration.reported_places = exact, places
            return
        decimals = min(iteration.reported_places, 9)
        if abs(iteration.reported_s - exact) > 1.02 * (10.0**-places + 10.0**-decimals):
            self.problems.add(
                seconds.line,
                f"{iteration.name}: reported_time {iteration.reported_s:.{decimals}f}, "
                f"but reported_sec and reported_nsec are {exact:.{places}f}",
            )

    def add_problem(self, iteration: SpecIteration, text: str) -> None:
        self.problems.add(iteration.line, f"{iteration.name}: {text}")


def _add_error(iteration: SpecIteration, text: str) -> None:
    if text and len(iteration.errors) < MOST_ERRORS:
        iteration.errors.append(text[:_LONGEST_ERROR])
    for match in _FAILED_COPY.finditer(text):
        copy, exit_code, signal = map(int, match.groups())
        if copy < MOST_COPIES:
            iteration.failures[copy] = Failure(None if signal else exit_code, signal or None)


# -- Text as SPEC CPU packs it into a raw file (`rawconfig000`, `rawconfig001`, ...) ---------------
#
# The lines joined are a character (`@`, `&`) and base64 of what its first bytes tell: a zlib or a
# bzip2 stream, or a byte 0xf0, the length of the text as four bytes, most significant first, and
# a bzip2 stream (Perl's `Compress::Bzip2`). Found in real files of CPU2006 and CPU2017.

_MOST_BYTES = 16 << 20  # of the text; a real configuration has 20 KB, and a bomb has no end
_HEADER_BYTES = 5


def unpack(pieces: Mapping[int, str]) -> str:
    """Return the text of numbered pieces; raises `ValueError` saying what is wrong with them."""
    missing = [number for number in range(max(pieces, default=-1) + 1) if number not in pieces]
    if missing:
        raise ValueError(f"piece {missing[0]:03} of {max(pieces) + 1} is missing")
    joined = "".join(pieces[number] for number in sorted(pieces)).strip()
    if joined[:1] not in ("@", "&") and not joined[:1].isalnum():
        raise ValueError(f"packed in a way that is not known ({joined[:1]!r})")
    try:
        data = base64.b64decode(joined[joined[0] in "@&" :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"no base64 ({error})") from None
    header = data[:_HEADER_BYTES] if data[_HEADER_BYTES:].startswith(b"BZh") else b""
    try:
        if header or data.startswith(b"BZh"):
            text = bz2.BZ2Decompressor().decompress(data[len(header) :], _MOST_BYTES + 1)
        else:
            text = zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(data, _MOST_BYTES + 1)
    except (zlib.error, OSError, EOFError) as error:
        raise ValueError(f"cannot be unpacked ({error})") from None
    if len(text) > _MOST_BYTES:
        raise ValueError(f"longer than {_MOST_BYTES >> 20} MiB")
    if header and len(text) != int.from_bytes(header[1:], "big"):
        raise ValueError("shorter than it says: it is cut off")
    return as_text(text)
