"""SPEC CPU's logs, of any size, read in one pass, with reference times from their ratios; pure."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Sequence

from rater.record.run import MOST_COPIES
from rater.speccpu.config import keys
from rater.speccpu.config.keys import Problems
from rater.speccpu.results.result import (
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
from rater.system.errors import InputError

_STEP = {"cpu2000": 100, "cpu2006": 10}  # seconds
_QUOTIENT = 0.5e-6  # half a unit of reference / time, which SPEC's tools round to six decimals


def derive_references(file: SpecFile) -> None:
    """Set the reference times of a log: the one number that all ratios of a benchmark allow.

    Ratios have two decimals. CPU2000 counts reference times in hundreds of seconds,
    CPU2006 in tens, later suites in seconds.
    """
    step = _STEP.get(file.suite or "", 1)
    factor = keys.RATE_FACTOR.get(file.suite or "", 1.0)
    groups: dict[str, list[SpecIteration]] = {}
    for iteration in file.iterations:
        groups.setdefault(iteration.benchmark, []).append(iteration)
    for members in groups.values():
        reference = _reference(members, step, factor)
        if reference:
            for iteration in members:
                iteration.reference_s, iteration.reference_derived = reference, True


def _reference(members: Sequence[SpecIteration], step: int, factor: float) -> float | None:
    """Return the reference time in seconds, None if no iteration has a ratio and a time.

    A ratio is a quotient of six decimals, multiplied by the copies and rounded again: with many
    copies the first rounding weighs more than the last.
    """
    bounds: list[tuple[float, float]] = []  # lowest and highest reference time of an iteration
    for iteration in members:
        if iteration.ratio is None or not iteration.reported_s or not iteration.planned:
            continue
        unit = iteration.reported_s / (iteration.planned * factor)
        reach = 1.01 * (iteration.ratio.half_unit * unit + _QUOTIENT * iteration.reported_s)
        middle = iteration.ratio.value * unit
        bounds.append((middle - reach, middle + reach))
    if not bounds:
        return None
    # An iteration whose ratio is wrong must not decide on the others.
    whole = Counter(
        whole_s
        for low, high in bounds
        for whole_s in [math.ceil(low / step) * step]
        if whole_s <= high < whole_s + step
    )
    if whole:
        return float(whole.most_common(1)[0][0])
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    return (low + high) / 2 if low <= high else sum(bounds[0]) / 2


# -- The lines that SPEC's tools write into a log: how they begin, and all they say ----------------
#
# In both dialects: CPU2006 counts copies and workloads as `(2:1)`, CPU2017 as `(copy 2 workload
# 1)`; dates are those of ctime and of ISO 8601.

_SECONDS = r"(\d{1,12}(?:\.(\d{0,12}))?)"
# By the name of the method that takes a record, how it begins.
_BEGINNINGS = {
    "workload": rb"Workload elapsed time \(",
    "copy": rb"(?:[ \t]\s*)?Copy \d",
    "old_copy": rb"copy \d",
    "running": rb"[ \t]\s*Running (?:\d|\(#)",
    "ended": rb"[ \t]\s*(?:Success|Error|Run) \d",
    "reported": rb"[ \t]\s*(?:Run )?Reported:",
    "began": rb"[ \t]\s*(?:Rate )?Start:",
    "miscompare": rb"\*\*\* Miscompare",
    "returned": rb"\d{3}.{0,100}?: copy ",
    "header": rb"run(?:spec|cpu) .{0,41}\bstarted at ",
    "not_run": rb"(?:Build errors for |Setup errors: )(?!.*None\s*$)",
    "commands": rb"Commands to run",
    "other": rb"Benchmark Times|Specinvoke:",  # from which nothing is read
}
_BEGINNING = re.compile(
    b"|".join(b"(?P<%s>%s)" % (name.encode(), text) for name, text in _BEGINNINGS.items()),
    re.DOTALL,
)
RECORDS = {
    "workload": re.compile(
        r"Workload elapsed time \((?:copy )?(\d{1,6})(?::| workload )(\d{1,6})\) = "
        + _SECONDS
        + r" seconds$"
    ),
    "copy": re.compile(
        r"Copy (\d{1,6}) of (\S{1,100}) \((\w{1,40}) (\w{1,40})\) run (\d{1,9}) finished at "
        r".{1,40}?\.  Total elapsed time: " + _SECONDS + "$"
    ),
    "old_copy": re.compile(
        r"copy (\d{1,6}) finished @ .{1,40}?\.  Total elapsed time: " + _SECONDS + "$"
    ),
    "running": re.compile(r"Running (?:\(#(\d{1,9})\) )?(\d{3}\.\S{1,100}) (.*)$"),
    "ended": re.compile(
        r"(Success|Error|Run) (\d{3}\.\S{1,100}) (\w{1,40}) (\w{1,40}) "
        r"ratio=(-?\d{1,15}(?:\.(\d{1,12}))?), runtime="
        + _SECONDS
        + r", (?:copies=(\d{1,6}), )?(.{0,300})$"
    ),
    "reported": re.compile(
        r"(?:Run )?Reported:\s+(?:\d+:\d\d:\d\d )?\(?(\d{1,10}) (\d{1,10}) " + _SECONDS + r"\)?$"
    ),
    "began": re.compile(r"(?:Rate )?Start:\s+.{1,60}\((\d{9,11}(?:\.\d{1,9})?)\)$"),
    "miscompare": re.compile(r"\*{3} Miscompare of ([^\s;]{1,200})"),
    "returned": re.compile(
        r"(\d{3}\.\S{1,100}): copy (\d{1,6}) non-zero return code "
        r"\(exit code=(-?\d{1,6}), signal=(\d{1,4})\)$"
    ),
    "header": re.compile(r'run(?:spec|cpu) v?(\S{1,20}) started at .{1,60} on "([^"]{1,200})"$'),
    "not_run": re.compile(r"(?:Build errors for|Setup errors)\b.{0,40}?: (?!None$)(?:.{1,2000})$"),
}
_COPIES = re.compile(r"\((\d{1,6}) cop(?:y|ies)\b")
_FOR_COPY = re.compile(r" for copy (\d{1,6})\b")
_ERROR_END = re.compile(r"errorcode=[A-Z]{2}$")
_ERROR_CODE = re.compile(r"errorcode=([A-Z]{2})\b")
_SIZE = re.compile(r"(?:test|train|ref)(?:rate|speed)?$")
_DIRECTIVE = re.compile(r"\s{2,}-([A-Za-z])(?: (.*))?$", re.DOTALL)
_DIGITS = re.compile(r"^\d{0,12}(?:\.\d{1,12})?\)?$", re.ASCII)
TUNES = ("base", "peak")
_NUMERIC = tuple("0123456789.")


def _kind_of(raw: bytes) -> str | None:
    """Return what kind of record a line begins, None for most lines."""
    found = _BEGINNING.match(raw)
    return found and found.lastgroup


def _begins(raw: bytes) -> bool:
    """Tell whether a line begins a record of its own: nothing to join to the one before."""
    return raw.startswith(b"-----") or _kind_of(raw) is not None


# -- The lines of a log, and its records joined from the lines that they were wrapped to -----------

_LONGEST_RECORD = 20_000  # characters; a submit line can be long
_MOST_ITERATIONS = 10_000  # of all benchmarks; some hundreds are in the largest
_MOST_JOINED = 40  # lines that make one record
_LONGEST_FOLLOWING = 1000
_CUT = "the file ends inside this line"
type Line = tuple[int, bytes]


class _LogLines:
    """Gives line by line; a line that was looked at too early can be put back."""

    def __init__(self, lines: Lines, problems: Problems) -> None:
        self._lines = lines
        self._source = iter(lines)
        self._waiting: list[Line] = []  # the next one last
        self._problems = problems

    def next(self) -> Line | None:
        """Return the next line with its number, None at the end."""
        return self._waiting.pop() if self._waiting else next(self._source, None)

    def put_back(self, line: Line) -> None:
        """Make this line the next one."""
        self._waiting.append(line)

    def following(self) -> str:
        """Return the text of the next line, which stays the next; empty where it begins anew."""
        line = self.next()
        if line is None:
            return ""
        self.put_back(line)
        return "" if _begins(line[1]) else as_text(line[1][:_LONGEST_FOLLOWING]).rstrip()

    def match(self, number: int, raw: bytes, kind: str) -> re.Match[str] | None:
        """Match a record, joined with the lines it was wrapped to; None if it stays torn."""
        joined, last = as_text(raw[:_LONGEST_RECORD]), number
        taken: list[Line] = []
        pattern = RECORDS[kind]
        while (matched := pattern.match(joined.strip())) is None and len(taken) < _MOST_JOINED:
            line = self.next()
            if line is None:
                break
            taken.append(line)
            if _begins(line[1]) or len(joined) > _LONGEST_RECORD:
                break
            joined += as_text(line[1][:_LONGEST_RECORD])
            last = line[0]
        if matched is not None:
            return self._longer(matched, joined, kind, last)
        self._waiting.extend(reversed(taken))
        if self._lines.cut and not taken:
            self._problems.add(number, _CUT)
        elif kind != "began":  # other programs write the like too, and it is no loss
            start = as_text(raw[:_LONGEST_RECORD]).strip()[:70]
            self._problems.add(number, f"not understood: {start!a}")
        return None

    def _longer(
        self, match: re.Match[str], text: str, kind: str, last: int
    ) -> re.Match[str] | None:
        """Join a record that is whole without it, and yet goes on in the next line.

        The next line has the end of a number, the number of copies or the code of an error.
        `last` is the number of the record's last line. Returns no record when the file ends
        inside the record's number: that number may lack digits.
        """
        if kind == "running" and not _COPIES.search(text):
            wanted = _COPIES
        elif kind == "ended" and match[1] == "Error":
            wanted = _ERROR_END
        elif text[-1:] in _NUMERIC and kind in ("copy", "old_copy", "reported"):
            wanted = _DIGITS
        else:
            return match
        more = self.following()
        if more and wanted.search(more if wanted is _DIGITS else text + more):
            longer = RECORDS[kind].match((text + more).lstrip())
            if longer is not None:
                self.next()
                match, last = longer, last + 1
        at_end = self._lines.cut and last == self._lines.count
        if at_end and wanted is _DIGITS and match.string[-1:] in _NUMERIC:
            self._problems.add(last, f"{_CUT}, its value is not used")
            return None
        return match


# -- SPEC CPU's logs (`CPU2006.001.log`, `CPU2017.001.log`), of any size, read in one pass ---------
#
# Both dialects wrap their lines at `log_line_width` wherever that falls. A line that begins like
# one of the records and is not whole is joined with those that follow. Known from a real log of
# CPU2006 and one of CPU2017 and from SPEC's public documentation; lines of other kinds are passed
# over.

_MOST_WORKLOADS = 250_000  # whose times are kept; 512 copies, three iterations: about 100,000
_LONGEST_ERROR = 500
type _BenchmarkKey = tuple[str, str, str]  # benchmark, tune, size


class _Iterations:
    """The iterations of a log; one that is there again (two logs in one file) counts on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[tuple[_BenchmarkKey, int], SpecIteration] = {}
        self.ended: dict[tuple[_BenchmarkKey, int], bool] = {}  # False: left without an end
        self.latest: dict[_BenchmarkKey, int] = {}  # iterations that ended or were left
        self.runs: dict[_BenchmarkKey, int] = {}  # that ended, for the older tools
        self.shift: dict[_BenchmarkKey, int] = {}
        self.repeated = 0

    def known(self, iteration: SpecIteration) -> bool:
        """Tell whether tune, size and number of a bracket are known."""
        return self.found.get((_benchmark_key(iteration), iteration.iteration)) is iteration

    def place(
        self, now: SpecIteration, tune: str, size: str, run: int | None, line: int
    ) -> SpecIteration:
        """Return the bracket that a record is of, now that its place is known."""
        if self.known(now):
            if (now.tune, now.size) == (tune, size):
                return now
            now = SpecIteration(
                benchmark=now.benchmark, tune=tune, iteration=0, line=now.line, copies=now.copies
            )
        now.tune, now.size, now.line = tune, size, now.line or line
        key = _benchmark_key(now)
        shift = self.shift.get(key, 0)
        if run is None:  # of older tools: the next one
            run = now.number or self.runs.get(key, 0) - shift + 1
        run = min(run, MOST_NUMBER)
        if (key, run + shift) in self.ended:
            shift = self.shift[key] = self.latest[key] + 1 - run
            self.repeated += 1
        now.iteration = run + shift
        if (key, now.iteration) not in self.found and len(self.found) >= _MOST_ITERATIONS:
            raise InputError(f"{self.name}: more than {_MOST_ITERATIONS} iterations, no log")
        return self.found.setdefault((key, now.iteration), now)

    def end(self, iteration: SpecIteration, *, unfinished: bool) -> None:
        key = _benchmark_key(iteration)
        self.ended[key, iteration.iteration] = not unfinished
        self.latest[key] = max(iteration.iteration, self.latest.get(key, 0))
        if not unfinished:
            self.runs[key] = iteration.iteration


def _benchmark_key(iteration: SpecIteration) -> _BenchmarkKey:
    return iteration.benchmark, iteration.tune, iteration.size or ""


def read_log(lines: Lines, name: str) -> SpecFile:
    """Read a log, whatever state it is in: what cannot be read is a problem with its line."""
    return _Reader(lines, name).read()


class _Reader:
    def __init__(self, lines: Lines, name: str) -> None:
        self.file = lines.file(name, "log")
        self.problems = self.file.problems
        self.lines = _LogLines(lines, self.problems)
        self.iterations = _Iterations(name)
        self.now: SpecIteration | None = None
        self.headers: list[int] = []
        self.workloads = 0
        self.binds: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self) -> SpecFile:
        while (line := self.lines.next()) is not None:
            kind = _kind_of(line[1])
            if kind == "commands":
                self.commands()
            elif kind in RECORDS and (found := self.lines.match(*line, kind)) is not None:
                getattr(self, kind)(line[0], found)
        self.finish()
        return self.file

    # -- records --------------------------------------------------------------------------------

    def header(self, number: int, match: re.Match[str]) -> None:
        self.headers.append(number)
        if len(self.headers) == 1:
            self.file.facts["tools"] = match[1]
            self.file.hostname = match[2]
        self.leave()

    def running(self, number: int, match: re.Match[str]) -> None:
        if _FOR_COPY.search(" " + match[3]):
            return  # rolling round-robin rate: the copy's own line, no bracket of all copies
        rest = match[3].split()
        copies = _COPIES.search(match[3])
        self.leave()
        self.now = SpecIteration(
            benchmark=match[2],
            tune=next((word for word in rest if word in TUNES), ""),
            iteration=0,
            line=number,
            size=next((word for word in rest if _SIZE.match(word)), None),
            number=int(match[1]) if match[1] else None,
            copies=copies_of(copies[1] if copies else None),
        )

    def commands(self) -> None:
        """Take the command file as the log shows it: `-b` and `-C` by copy, then commands."""
        now = self.now or SpecIteration(benchmark="", tune="", iteration=0, line=0)
        joined, binds = "", list[str]()
        while (line := self.lines.next()) is not None:
            text = as_text(line[1][:_LONGEST_RECORD])
            begins = _DIRECTIVE.match(text)
            if not joined and text.rstrip().endswith(":") and begins is None:
                continue  # the rest of the heading
            if begins is None and (_begins(line[1]) or not text.strip() or not joined):
                self.lines.put_back(line)
                break
            if begins is not None:
                _take_directive(joined, now, binds)
                joined = text
            elif len(joined) < _LONGEST_RECORD:
                joined += text
        _take_directive(joined, now, binds)
        if binds:  # each list once: those of most brackets are equal
            now.binds = self.binds.setdefault(tuple(binds), tuple(binds))

    def workload(self, number: int, match: re.Match[str]) -> None:
        if self.now is not None:
            copy, workload, seconds = int(match[1]), int(match[2]), float(match[3])
            self.now.sums_s[copy] = self.now.sums_s.get(copy, 0.0) + seconds
            of_copy = self.now.running_s.setdefault(copy, array("d"))
            if workload == len(of_copy) + 1 and seconds <= LONGEST_S:
                of_copy.append(seconds)
            elif workload <= len(of_copy):
                self.problems.add(number, f"a second time of workload {workload} of copy {copy}")

    def bracket_of(self, number: int, benchmark: str) -> SpecIteration:
        """Return the open bracket, a new one where the start of this benchmark is torn or away."""
        if self.now is None or self.now.benchmark != benchmark:
            self.now = SpecIteration(benchmark=benchmark, tune="", iteration=0, line=number)
        return self.now

    def copy(self, number: int, match: re.Match[str]) -> None:
        copy, seconds = int(match[1]), float(match[6])
        now = self.bracket_of(number, match[2])
        if copy >= MOST_COPIES or seconds > LONGEST_S:
            self.problems.add(number, f"no copy or no time: copy {copy}, {match[6]} s")
            return
        if now.copies is not None and copy >= now.copies:
            self.problems.add(number, f"copy {copy} of {match[2]}, which runs {now.copies} copies")
        iteration = self.now = self.iterations.place(now, match[3], match[4], int(match[5]), number)
        if copy in iteration.times_s:
            self.problems.add(
                number, f"a second time of copy {copy} of {iteration.name}; the first is kept"
            )
            return
        iteration.times_s[copy] = seconds
        workloads = iteration.running_s.pop(copy, None)
        if workloads is not None and len(workloads) > 1:
            self.workloads += len(workloads)
            if self.workloads <= _MOST_WORKLOADS:
                iteration.workloads_s[copy] = workloads
        total = iteration.sums_s.pop(copy, None)
        if total is not None and not math.isclose(total, seconds, rel_tol=1e-6, abs_tol=1e-4):
            self.problems.add(
                number,
                f"copy {copy} of {iteration.name}: {match[6]} s, but its workloads took "
                f"{total:.6f} s",
            )

    def old_copy(self, number: int, match: re.Match[str]) -> None:
        if self.now is None:
            self.problems.add(number, "the time of a copy, and no benchmark runs")
        elif int(match[1]) < MOST_COPIES and float(match[2]) <= LONGEST_S:
            self.now.old_s.setdefault(int(match[1]), float(match[2]))

    def returned(self, number: int, match: re.Match[str]) -> None:
        copy, code, killed = int(match[2]), int(match[3]), int(match[4])
        if self.now is not None and self.now.benchmark == match[1] and copy < MOST_COPIES:
            # Else it was built or set up.
            self.now.failures[copy] = Failure(None if killed else code, killed or None)

    def miscompare(self, number: int, match: re.Match[str]) -> None:
        if self.now is None:
            return
        text = f"{match.string} {self.lines.following().strip()}"
        for copy, folder in enumerate(self.now.directories):
            if f"/{folder.rsplit('/', 1)[-1]}/" in text:
                self.now.failures.setdefault(copy, Failure(None, None, match[1]))
        if len(self.now.errors) < MOST_ERRORS:
            self.now.errors.append(f"Miscompare of {match[1]}")

    def not_run(self, number: int, match: re.Match[str]) -> None:
        error = match[0][:_LONGEST_ERROR]
        if len(self.file.errors) < MOST_ERRORS and error not in self.file.errors:
            self.file.errors.append(error)

    def reported(self, number: int, match: re.Match[str]) -> None:
        if self.now is None:
            return
        seconds = float(match[3])
        exact = int(match[1]) + int(match[2]) / 1e9
        if not math.isclose(seconds, exact, abs_tol=1e-5, rel_tol=1e-9):
            self.problems.add(number, f"reported {match[3]} s, but {match[1]} s {match[2]} ns")
        if seconds <= LONGEST_S:
            self.now.reported_s, self.now.reported_places = seconds, len(match[4] or "")

    def began(self, number: int, match: re.Match[str]) -> None:
        if self.now is not None:
            self.now.start_s = float(match[1])

    def ended(self, number: int, match: re.Match[str]) -> None:
        now = self.bracket_of(number, match[2])
        tune, size = (match[3], match[4]) if match[3] in TUNES else (match[4], match[3])
        if _SIZE.match(tune):  # a label that is no tune: the order shows it
            tune, size = size, tune
        iteration = now
        if not self.iterations.known(now):
            iteration = self.iterations.place(now, tune, size, None, now.line)
        if iteration.reported_s is None and float(match[7]) <= LONGEST_S:
            iteration.reported_s, iteration.reported_places = float(match[7]), len(match[8] or "")
        ratio = float(match[5])
        iteration.ratio = ReportedNumber(ratio, len(match[6] or ""), number) if ratio > 0 else None
        iteration.copies = copies_of(match[9]) if match[9] else iteration.copies
        code = _ERROR_CODE.search(match[10])
        iteration.valid = "S" if match[1] == "Success" else code[1] if code else None
        if match[1] == "Error" and iteration.valid in (None, "S"):
            crashed = any(failure.detail is None for failure in iteration.failures.values())
            iteration.valid = "VE" if iteration.errors and not crashed else "RE"
        if not iteration.times_s:  # older tools, or a log of little detail: sums of the workloads
            iteration.times_s.update(iteration.old_s or iteration.sums_s)
        self.iterations.end(iteration, unfinished=False)
        self.now = None

    def leave(self) -> None:
        """Leave the bracket that is open: another one begins, and its end is not in the file."""
        now, self.now = self.now, None
        if now is None:
            return
        if now.old_s and now.tune and now.size and not self.iterations.known(now):
            now = self.iterations.place(now, now.tune, now.size, None, now.line)
            now.times_s.update(now.old_s)
        if self.iterations.known(now):
            self.iterations.end(now, unfinished=True)

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        file, iterations = self.file, self.iterations
        self.leave()
        for key, one in iterations.found.items():
            dirs = one.directories
            one.folders = {copy: dirs[copy] for copy in one.failures if copy < len(dirs)}
            if not iterations.ended.get(key):
                self.problems.add(one.line, f"{one.name}: its end is not in the file")
        if len(self.headers) > 1:
            file.notes.append(
                f"the file holds {len(self.headers)} logs; the second begins at line "
                f"{self.headers[1]}"
            )
        if iterations.repeated:
            file.notes.append(
                f"{iterations.repeated} brackets have the number of an iteration that was there "
                "before; they were counted on"
            )
        if self.workloads > _MOST_WORKLOADS:
            file.notes.append(
                f"times of single workloads are left out behind the first {_MOST_WORKLOADS}"
            )
        file.iterations = timed_only(list(iterations.found.values()), file.notes)
        file.size = next((iteration.size for iteration in file.iterations), None)
        suites = (keys.suite_of(iteration.benchmark) for iteration in file.iterations)
        file.suite = next(filter(None, suites), None)
        file.started_s = min(
            (iteration.start_s for iteration in file.iterations if iteration.start_s), default=None
        )
        derive_references(file)


def _take_directive(text: str, now: SpecIteration, binds: list[str]) -> None:
    """Take a line of the command file."""
    found = _DIRECTIVE.match(text)
    if found is None:
        return
    kind, value = found[1], (found[2] or "").strip()
    if kind == "b" and len(binds) < MOST_COPIES:
        binds.append(value)
    elif kind == "C" and len(now.directories) < MOST_COPIES:
        now.directories.append(value)
    elif kind in "oier":
        has_bind = "$BIND" in value or "$SPECCOPY" in value
        if now.command is None or (has_bind and not now.command_binds):
            now.command, now.command_binds = value, has_bind


def copies_of(text: str | None) -> int | None:
    """Return a number of copies that can be one."""
    copies = int(text or 0)
    return copies if 0 < copies <= MOST_COPIES else None


def timed_only(every: list[SpecIteration], notes: list[str]) -> list[SpecIteration]:
    """Leave out sizes test and train, with a note, where others were run."""
    timed = [one for one in every if (one.size or "").startswith("ref")]
    if not timed or len(timed) == len(every):
        return every
    notes.append(
        f"{len(every) - len(timed)} runs of sizes test and train are left out: they are not timed"
    )
    return timed
