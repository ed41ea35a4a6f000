"""SPEC CPU's logs, of any size, read in one pass, with reference times from their ratios; pure."""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rater.errors import InputError
from rater.record.run import MOST_COPIES
from rater.speccpu.config import keys
from rater.speccpu.config.keys import Problems
from rater.speccpu.results import log_words as words
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
from rater.text.packed import Readable

_STEP = {"cpu2000": 100, "cpu2006": 10}  # seconds


def derive_references(file: SpecFile) -> None:
    """Set the reference times of a log: the one number that all ratios of a benchmark allow.

    Ratios have two decimals. CPU2000 counts reference times in hundreds of seconds,
    CPU2006 in tens, later suites in seconds.
    """
    step = _STEP.get(file.suite or "", 1)
    factor = keys.RATE_FACTOR.get(file.suite or "", 1.0)
    groups: dict[str, list[SpecIteration]] = {}
    for one in file.iterations:
        groups.setdefault(one.benchmark, []).append(one)
    for members in groups.values():
        reference = _reference(members, step, factor)
        if reference:
            for one in members:
                one.reference_s, one.reference_derived = reference, True


def _reference(members: Sequence[SpecIteration], step: int, factor: float) -> float | None:
    first = None
    low, high = 0.0, math.inf
    for one in members:
        if one.ratio is None or not one.reported_s or not one.planned:
            continue
        unit = one.reported_s / (one.planned * factor)
        reach = one.ratio.half_unit * 1.01
        low = max(low, (one.ratio.value - reach) * unit)
        high = min(high, (one.ratio.value + reach) * unit)
        if first is None:
            first = one.ratio.value * unit
    if first is None or low > high:
        return first
    whole = math.ceil(low / step) * step
    return float(whole) if whole <= high < whole + step else (low + high) / 2


# -- The lines of a log, and its records joined from the lines that they were wrapped to -----------

LONGEST_RECORD = 20_000  # characters; a submit line can be long
_MOST_ITERATIONS = 10_000  # of all benchmarks; some hundreds are in the largest
_MOST_JOINED = 40  # lines that make one record
_LONGEST_FOLLOWING = 1000
_CUT = "the file ends inside this line"
type Line = tuple[int, bytes]


class LogLines:
    """Gives line by line; a line that was looked at too early can be put back."""

    def __init__(self, stream: Readable, problems: Problems) -> None:
        self.lines = Lines(stream)
        self._source = iter(self.lines)
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
        return "" if words.begins(line[1]) else as_text(line[1][:_LONGEST_FOLLOWING]).rstrip()

    def match(self, number: int, raw: bytes, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a record, joined with the lines it was wrapped to; None where it stays torn."""
        joined, last = as_text(raw[:LONGEST_RECORD]), number
        taken: list[Line] = []
        while (found := pattern.match(joined.rstrip())) is None and len(taken) < _MOST_JOINED:
            line = self.next()
            if line is None:
                break
            taken.append(line)
            if words.begins(line[1]) or len(joined) > LONGEST_RECORD:
                break
            joined += as_text(line[1][:LONGEST_RECORD])
            last = line[0]
        if found is not None:
            return self._longer(found, joined, pattern, last)
        self._waiting.extend(reversed(taken))
        if self.lines.cut and not taken:
            self._problems.add(number, _CUT)
        elif pattern is not words.BEGAN:  # other programs write the like too, and it is no loss
            start = as_text(raw[:LONGEST_RECORD]).strip()[:70]
            self._problems.add(number, f"not understood: {start!a}")
        return None

    def _longer(
        self, found: re.Match[str], text: str, pattern: re.Pattern[str], last: int
    ) -> re.Match[str] | None:
        """Join a record that is whole without it, and yet goes on in the next line.

        A number that was cut, the number of copies, the code of an error. `last` is the line
        that it ends in; None where the file ends inside its number.
        """
        if pattern is words.RUNNING and not words.COPIES.search(text):
            wanted = words.COPIES
        elif pattern is words.ENDED and found[1] == "Error":
            wanted = words.ERROR_END
        elif text[-1:] in words.NUMERIC and pattern in (words.COPY, words.OLD_COPY, words.REPORTED):
            wanted = words.DIGITS
        else:
            return found
        more = self.following()
        if more and wanted.search(more if wanted is words.DIGITS else text + more):
            longer = pattern.match(text + more)
            if longer is not None:
                self.next()
                found, last = longer, last + 1
        at_end = self.lines.cut and last == self.lines.count
        if at_end and wanted is words.DIGITS and found.string[-1:] in words.NUMERIC:
            self._problems.add(last, f"{_CUT}, its value is not used")
            return None
        return found


# -- SPEC CPU's logs (`CPU2006.001.log`, `CPU2017.001.log`), of any size, read in one pass ---------
#
# The dialects differ in words and dates (see `log_words`); both wrap their lines at
# `log_line_width` wherever that falls. A line that begins like one of the records and is not
# whole is joined with those that follow. Known from a real log of CPU2006 and one of CPU2017
# and from SPEC's public documentation; lines of other kinds are passed over.

_MOST_WORKLOADS = 250_000  # whose times are kept; 512 copies, three iterations: about 100,000
_LONGEST_ERROR = 500
type _Of = tuple[str, str, str]  # benchmark, tune, size


class _Iterations:
    """The iterations of a log; one that is there again (two logs in one file) counts on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: dict[tuple[_Of, int], SpecIteration] = {}
        self.ended: dict[tuple[_Of, int], bool] = {}  # False: left without an end
        self.latest: dict[_Of, int] = {}  # iterations that ended or were left
        self.runs: dict[_Of, int] = {}  # that ended, for the older tools
        self.shift: dict[_Of, int] = {}
        self.repeated = 0

    def known(self, one: SpecIteration) -> bool:
        """Tell whether tune, size and number of a bracket are known."""
        return self.found.get((_of(one), one.iteration)) is one

    def place(
        self, now: SpecIteration, tune: str, size: str, run: int | None, line: int
    ) -> SpecIteration:
        """Return the bracket that a record is of, now that its place is known."""
        if self.known(now):
            if (now.tune, now.size) == (tune, size):
                return now
            now = SpecIteration(now.benchmark, tune, 0, now.line, copies=now.copies)
        now.tune, now.size, now.line = tune, size, now.line or line
        of_it = _of(now)
        shift = self.shift.get(of_it, 0)
        if run is None:  # of older tools: the next one
            run = now.number or self.runs.get(of_it, 0) - shift + 1
        run = min(run, MOST_NUMBER)
        if (of_it, run + shift) in self.ended:
            shift = self.shift[of_it] = self.latest[of_it] + 1 - run
            self.repeated += 1
        now.iteration = run + shift
        if (of_it, now.iteration) not in self.found and len(self.found) >= _MOST_ITERATIONS:
            raise InputError(f"{self.name}: more than {_MOST_ITERATIONS} iterations, no log")
        return self.found.setdefault((of_it, now.iteration), now)

    def end(self, one: SpecIteration, *, left: bool) -> None:
        of_it = _of(one)
        self.ended[of_it, one.iteration] = not left
        self.latest[of_it] = max(one.iteration, self.latest.get(of_it, 0))
        if not left:
            self.runs[of_it] = one.iteration


def _of(one: SpecIteration) -> _Of:
    return one.benchmark, one.tune, one.size or ""


def read_log(stream: Readable, name: str) -> SpecFile:
    """Read a log, whatever state it is in: what cannot be read is a problem with its line."""
    return _Reader(stream, name).read()


class _Reader:
    def __init__(self, stream: Readable, name: str) -> None:
        self.file = SpecFile(name=name, format="log", sha256="")
        self.problems = self.file.problems
        self.lines = LogLines(stream, self.problems)
        self.iterations = _Iterations(name)
        self.now: SpecIteration | None = None
        self.headers: list[int] = []
        self.workloads = 0
        self.binds: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self) -> SpecFile:
        while (line := self.lines.next()) is not None:
            kind = words.kind_of(line[1])
            if kind is words.COMMANDS:
                self.commands()
            elif kind is not None and kind.pattern is not None:
                found = self.lines.match(*line, kind.pattern)
                if found is not None:
                    _ACTIONS[kind.pattern](self, line[0], found)
        self.finish()
        return self.file

    # -- records --------------------------------------------------------------------------------

    def header(self, number: int, found: re.Match[str]) -> None:
        self.headers.append(number)
        if len(self.headers) == 1:
            self.file.facts["tools"] = found[1]
            self.file.hostname = found[3]
        self.leave()

    def running(self, number: int, found: re.Match[str]) -> None:
        if words.FOR_COPY.search(" " + found[3]):
            return  # rolling round-robin rate: the copy's own line, no bracket of all copies
        rest = found[3].split()
        copies = words.COPIES.search(found[3])
        self.leave()
        self.now = SpecIteration(
            found[2],
            next((word for word in rest if word in words.TUNES), ""),
            0,
            number,
            size=next((word for word in rest if words.SIZE.match(word)), None),
            number=int(found[1]) if found[1] else None,
            copies=_copies(copies[1] if copies else None),
        )

    def commands(self) -> None:
        """Take the command file as the log shows it: `-b` and `-C` by copy, then commands."""
        now = self.now or SpecIteration("", "", 0, 0)
        joined, binds = "", list[str]()
        while (line := self.lines.next()) is not None:
            text = as_text(line[1][:LONGEST_RECORD])
            begins = words.DIRECTIVE.match(text)
            if not joined and text.rstrip().endswith(":") and begins is None:
                continue  # the rest of the heading
            if begins is None and (words.begins(line[1]) or not text.strip() or not joined):
                self.lines.put_back(line)
                break
            if begins is not None:
                _take_directive(joined, now, binds)
                joined = text
            elif len(joined) < LONGEST_RECORD:
                joined += text
        _take_directive(joined, now, binds)
        if binds:  # each list once: those of most brackets are equal
            now.binds = self.binds.setdefault(tuple(binds), tuple(binds))

    def workload(self, number: int, found: re.Match[str]) -> None:
        if self.now is not None:
            copy, workload, seconds = int(found[1]), int(found[2]), float(found[3])
            self.now.sums_s[copy] = self.now.sums_s.get(copy, 0.0) + seconds
            of_copy = self.now.running_s.setdefault(copy, array("d"))
            if workload == len(of_copy) + 1 and seconds <= LONGEST_S:
                of_copy.append(seconds)
            elif workload <= len(of_copy):
                self.problems.add(number, f"a second time of workload {workload} of copy {copy}")

    def bracket_of(self, number: int, benchmark: str) -> SpecIteration:
        """Return the open bracket, a new one where the start of this benchmark is torn or away."""
        if self.now is None or self.now.benchmark != benchmark:
            self.now = SpecIteration(benchmark, "", 0, number)
        return self.now

    def copy(self, number: int, found: re.Match[str]) -> None:
        copy, seconds = int(found[1]), float(found[7])
        now = self.bracket_of(number, found[2])
        if copy >= MOST_COPIES or seconds > LONGEST_S:
            self.problems.add(number, f"no copy or no time: copy {copy}, {found[7]} s")
            return
        if now.copies is not None and copy >= now.copies:
            self.problems.add(number, f"copy {copy} of {found[2]}, which runs {now.copies} copies")
        one = self.now = self.iterations.place(now, found[3], found[4], int(found[5]), number)
        if copy in one.times_s:
            self.problems.add(
                number, f"a second time of copy {copy} of {one.name}; the first is kept"
            )
            return
        one.times_s[copy] = seconds
        workloads = one.running_s.pop(copy, None)
        if workloads is not None and len(workloads) > 1:
            self.workloads += len(workloads)
            if self.workloads <= _MOST_WORKLOADS:
                one.workloads_s[copy] = workloads
        total = one.sums_s.pop(copy, None)
        if total is not None and not math.isclose(total, seconds, rel_tol=1e-6, abs_tol=1e-4):
            self.problems.add(
                number,
                f"copy {copy} of {one.name}: {found[7]} s, but its workloads took {total:.6f} s",
            )

    def old_copy(self, number: int, found: re.Match[str]) -> None:
        if self.now is None:
            self.problems.add(number, "the time of a copy, and no benchmark runs")
        elif int(found[1]) < MOST_COPIES and float(found[3]) <= LONGEST_S:
            self.now.old_s.setdefault(int(found[1]), float(found[3]))

    def returned(self, number: int, found: re.Match[str]) -> None:
        copy, code, killed = int(found[2]), int(found[3]), int(found[4])
        if self.now is not None and self.now.benchmark == found[1] and copy < MOST_COPIES:
            # Else it was built or set up.
            self.now.failures[copy] = Failure(None if killed else code, killed or None)

    def miscompare(self, number: int, found: re.Match[str]) -> None:
        if self.now is None:
            return
        text = f"{found.string} {self.lines.following().strip()}"
        for copy, folder in enumerate(self.now.directories):
            if f"/{folder.rsplit('/', 1)[-1]}/" in text:
                self.now.failures.setdefault(copy, Failure(None, None, found[1]))
        if len(self.now.errors) < MOST_ERRORS:
            self.now.errors.append(f"Miscompare of {found[1]}")

    def not_run(self, number: int, found: re.Match[str]) -> None:
        error = found[0][:_LONGEST_ERROR]
        if len(self.file.errors) < MOST_ERRORS and error not in self.file.errors:
            self.file.errors.append(error)

    def reported(self, number: int, found: re.Match[str]) -> None:
        if self.now is None:
            return
        seconds = float(found[3])
        exact = int(found[1]) + int(found[2]) / 1e9
        if not math.isclose(seconds, exact, abs_tol=1e-5, rel_tol=1e-9):
            self.problems.add(number, f"reported {found[3]} s, but {found[1]} s {found[2]} ns")
        if seconds <= LONGEST_S:
            self.now.reported_s, self.now.reported_places = seconds, len(found[4] or "")

    def began(self, number: int, found: re.Match[str]) -> None:
        if self.now is not None:
            self.now.start_s = float(found[1])

    def ended(self, number: int, found: re.Match[str]) -> None:
        now = self.bracket_of(number, found[2])
        tune, size = (found[3], found[4]) if found[3] in words.TUNES else (found[4], found[3])
        if words.SIZE.match(tune):  # a label that is no tune: the order shows it
            tune, size = size, tune
        one = now
        if not self.iterations.known(now):
            one = self.iterations.place(now, tune, size, None, now.line)
        if one.reported_s is None and float(found[7]) <= LONGEST_S:
            one.reported_s, one.reported_places = float(found[7]), len(found[8] or "")
        ratio = float(found[5])
        one.ratio = ReportedNumber(ratio, len(found[6] or ""), number) if ratio > 0 else None
        one.copies = _copies(found[9]) if found[9] else one.copies
        code = words.ERROR_CODE.search(found[10])
        one.valid = "S" if found[1] == "Success" else code[1] if code else None
        if found[1] == "Error" and one.valid in (None, "S"):
            crashed = any(failure.detail is None for failure in one.failures.values())
            one.valid = "VE" if one.errors and not crashed else "RE"
        if not one.times_s:  # older tools, or a log of little detail: sums of the workloads
            one.times_s.update(one.old_s or one.sums_s)
        self.iterations.end(one, left=False)
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
            self.iterations.end(now, left=True)

    # -- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        file, iterations = self.file, self.iterations
        self.lines.lines.finish(file)
        self.leave()
        for key, one in iterations.found.items():
            dirs = one.directories
            one.folders = {c: dirs[c] for c in one.failures if c < len(dirs)}
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
        file.iterations = _timed(list(iterations.found.values()), file.notes)
        file.size = next((one.size for one in file.iterations), None)
        suites = (keys.suite_of(one.benchmark) for one in file.iterations)
        file.suite = next(filter(None, suites), None)
        file.started_s = min((one.start_s for one in file.iterations if one.start_s), default=None)
        derive_references(file)


def _take_directive(text: str, now: SpecIteration, binds: list[str]) -> None:
    """Take a line of the command file."""
    found = words.DIRECTIVE.match(text)
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


def _copies(text: str | None) -> int | None:
    copies = int(text or 0)
    return copies if 0 < copies <= MOST_COPIES else None


def _timed(every: list[SpecIteration], notes: list[str]) -> list[SpecIteration]:
    timed = [one for one in every if (one.size or "").startswith("ref")]
    if not timed or len(timed) == len(every):
        return every
    notes.append(
        f"{len(every) - len(timed)} runs of sizes test and train are left out: they are not timed"
    )
    return timed


_ACTIONS: dict[re.Pattern[str], Callable[[_Reader, int, re.Match[str]], None]] = {
    words.WORKLOAD: _Reader.workload,
    words.COPY: _Reader.copy,
    words.OLD_COPY: _Reader.old_copy,
    words.RUNNING: _Reader.running,
    words.ENDED: _Reader.ended,
    words.REPORTED: _Reader.reported,
    words.BEGAN: _Reader.began,
    words.MISCOMPARE: _Reader.miscompare,
    words.RETURNED: _Reader.returned,
    words.NOT_RUN: _Reader.not_run,
    words.HEADER: _Reader.header,
}


# -- The table of results in a CSV report: no times of copies, and no reference times --------------

_TABLE = re.compile(rb'^"?Benchmark"?,.*Base', re.MULTILINE)
_ROW = re.compile(r"\d{3}\.\w[\w.-]*")
_COLUMN = re.compile(
    r"(?:Est\. )?(Base|Peak) (# Copies|# Threads|Run Time|Rate|Ratio|Selected|Status)"
)
_DESCRIBED = re.compile(r"(?<!\w)(\w+)\(\w+\) iteration #(\d{1,9})")


def is_table(head: bytes) -> bool:
    """Tell whether a file that begins so is a CSV report."""
    return _TABLE.search(head) is not None and words.HEADER.search(as_text(head[:200])) is None


def read_table(stream: Readable, name: str) -> SpecFile:
    """Read the full table of results of a CSV report: a row an iteration, base beside peak."""
    file = SpecFile(name=name, format="csv", sha256="")
    lines = Lines(stream)
    columns: list[tuple[str, str] | None] = []
    found: dict[tuple[str, str, int], SpecIteration] = {}
    seen: Counter[tuple[str, str]] = Counter()
    closed = False  # the tables behind the full one repeat what was selected
    for number, raw in lines:
        cells = next(csv.reader([as_text(raw)]), [])
        if not closed and cells and cells[0] == "Benchmark":
            named = (_COLUMN.match(cell) for cell in cells)
            columns = [(it[1].lower(), it[2]) if it else None for it in named]
        elif columns and cells and _ROW.fullmatch(cells[0]):
            size, of_row = _described(cells)
            for tune in words.TUNES:
                cells_of = zip(columns, cells, strict=False)
                values = {at[1]: cell for at, cell in cells_of if at and cell and at[0] == tune}
                if not values:
                    continue
                seen[cells[0], tune] += 1
                key = (cells[0], tune, of_row or seen[cells[0], tune])
                one = SpecIteration(*key, number, size=size)
                _take(values, one, number)
                if not closed and found.setdefault(key, one) is not one:
                    file.problems.add(number, f"a second row of {one.name}; the first is kept")
        elif columns and not cells:
            closed = bool(found)
    file.iterations = _timed(list(found.values()), file.notes)
    file.suite = next(filter(None, (keys.suite_of(it.benchmark) for it in file.iterations)), None)
    file.size = next((it.size for it in file.iterations), None)
    lines.finish(file)
    derive_references(file)
    return file


def _described(cells: Sequence[str]) -> tuple[str | None, int | None]:
    found = next(filter(None, map(_DESCRIBED.search, cells)), None)
    return (found[1], int(found[2])) if found else (None, None)


def _take(values: Mapping[str, str], one: SpecIteration, number: int) -> None:

    def figure(*columns: str) -> ReportedNumber | None:
        text = next((values[it] for it in columns if it in values), "")
        found = re.fullmatch(r"\d{1,12}(?:\.(\d{1,12}))?", text)
        return ReportedNumber(float(text), len(found[1] or ""), number) if found else None

    seconds, ratio = figure("Run Time"), figure("Rate", "Ratio")
    if seconds is not None and 0 < seconds.value <= LONGEST_S:
        one.reported_s, one.reported_places = seconds.value, seconds.places
    one.ratio = ratio if ratio and ratio.value > 0 else None
    threads, copies = figure("# Threads"), values.get("# Copies", "1")
    one.threads = int(threads.value) if threads else None
    one.rate = not one.benchmark.endswith("_s")
    one.copies = _copies(copies if re.fullmatch(r"\d{1,9}", copies, re.ASCII) else None)
    one.selected = values["Selected"] in ("1", "*") if "Selected" in values else None
    one.valid = values.get("Status", "S" if one.ratio else "NR")[:20]
