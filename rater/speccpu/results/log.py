"""SPEC CPU's logs (`CPU2006.001.log`, `CPU2017.001.log`), of any size, read in one pass.

The dialects differ in words and dates (see `_RECORDS`); both wrap their lines at
`log_line_width` wherever that falls. A line that begins like one of the records and is not
whole is joined with those that follow. Known from a real log of CPU2006 and one of CPU2017
and from SPEC's public documentation; lines of other kinds are passed over.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rater.plan.placement.counts import MOST_COPIES
from rater.speccpu import keys
from rater.speccpu.results import log_words as words
from rater.speccpu.results.lines import LONGEST_LINE, Lines, Readable, as_text
from rater.speccpu.results.references import derive_references
from rater.speccpu.results.result import (
    LONGEST_S,
    MOST_NUMBER,
    Failure,
    Figure,
    SpecFile,
    SpecIteration,
)

_MOST_JOINED = 40  # lines that make one record
_LONGEST_RECORD = 20_000  # characters; a submit line can be long
_MOST_WORKLOADS = 250_000  # whose times are kept; 512 copies, three iterations: about 100,000
_MOST_ERRORS = 50  # of one iteration
_CUT = "the file ends inside this line"
type _Line = tuple[int, bytes]


@dataclass(slots=True)
class _Bracket:
    """What is known of the benchmark that runs, before its iteration is."""

    line: int
    benchmark: str
    tune: str | None = None
    size: str | None = None
    number: int | None = None  # from `(#1)`
    copies: int | None = None
    sums_s: dict[int, float] = field(default_factory=dict)  # of workloads, by copy
    workloads_s: dict[int, array[float]] = field(default_factory=dict)  # by copy, in order
    old_s: dict[int, float] = field(default_factory=dict)  # of `copy N finished @`
    failures: dict[int, Failure] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    reported_s: float | None = None
    reported_places: int = 6
    start_s: float | None = None
    binds: list[str] = field(default_factory=list)
    command: str | None = None  # the first, or the first with $BIND in it
    command_told: bool = False
    folders: list[str] = field(default_factory=list)
    parts: list[SpecIteration] = field(default_factory=list)  # iterations it has copies of


def read_log(stream: Readable, name: str) -> SpecFile:
    """Read a log, whatever state it is in: what cannot be read is a problem with its line."""
    return _Reader(stream, name).read()


class _Reader:
    def __init__(self, stream: Readable, name: str) -> None:
        self.lines = Lines(stream)
        self.source: Iterator[_Line] = iter(self.lines)
        self.waiting: list[_Line] = []  # looked at too early, the next one last
        self.file = SpecFile(name=name, format="log", sha256="")
        self.problems = self.file.problems
        self.found: dict[tuple[str, str, str, int], SpecIteration] = {}
        self.ended: set[tuple[str, str, str, int]] = set()
        self.left: set[tuple[str, str, str, int]] = set()  # without an end: another one began
        self.latest: dict[tuple[str, str, str], int] = {}  # iterations that ended or were left
        self.runs: dict[tuple[str, str, str], int] = {}  # brackets that ended, for the older tools
        self.shift: dict[tuple[str, str, str], int] = {}
        self.now: _Bracket | None = None
        self.headers: list[int] = []
        self.repeated = 0
        self.workloads = 0
        self.binds: dict[tuple[str, ...], tuple[str, ...]] = {}  # each once: alike in all brackets

    def read(self) -> SpecFile:
        while (line := self._next()) is not None:
            number, raw = line
            if raw.startswith(words.BEGINNINGS):
                self._record(number, raw)
            elif raw.startswith((b" ", b"\t")):
                if raw.lstrip().startswith(words.INDENTED):
                    self._record(number, raw)
            elif words.FAILED in raw[:110] and raw[:3].isdigit():
                self._record(number, raw)
        for number in self.lines.too_long:
            self.problems.add(number, f"longer than {LONGEST_LINE >> 20} MiB, not read")
        return self._finish()

    # -- lines ----------------------------------------------------------------------------------

    def _next(self) -> _Line | None:
        return self.waiting.pop() if self.waiting else next(self.source, None)

    def _whole(self, number: int, raw: bytes, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match a record, joined with the lines it was wrapped to; None where it stays torn."""
        joined = as_text(raw[:_LONGEST_RECORD])
        found = pattern.match(joined.rstrip())
        if found is not None:
            return self._longer(found, joined, pattern, number)
        taken: list[_Line] = []
        for _ in range(_MOST_JOINED):
            following = self._next()
            if following is None:
                break
            taken.append(following)
            if words.begins(following[1]) or len(joined) > _LONGEST_RECORD:
                break
            joined += as_text(following[1][:_LONGEST_RECORD])
            found = pattern.match(joined.rstrip())
            if found is not None:
                return self._longer(found, joined, pattern, following[0])
        self.waiting.extend(reversed(taken))
        if self.lines.cut and not taken:
            self.problems.add(number, _CUT)
        elif (
            pattern is not words.BEGAN
        ):  # when it began is good to have, and other programs say so too
            said = as_text(raw[:_LONGEST_RECORD]).strip()[:70]
            self.problems.add(number, f"not understood: {said!a}")
        return None

    def _following(self) -> str:
        """Return the text of the next line, which stays the next; empty where it begins anew."""
        following = self._next()
        if following is None:
            return ""
        self.waiting.append(following)
        return "" if words.begins(following[1]) else as_text(following[1][:1000]).rstrip()

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
        more = self._following()
        if more and wanted.search(more if wanted is words.DIGITS else text + more):
            longer = pattern.match(text + more)
            if longer is not None:
                self._next()
                found, last = longer, last + 1
        at_end = self.lines.cut and last == self.lines.count
        if at_end and wanted is words.DIGITS and found.string[-1:] in words.NUMERIC:
            self.problems.add(last, f"{_CUT}, its value is not used")
            return None
        return found

    # -- records --------------------------------------------------------------------------------

    def _record(self, number: int, raw: bytes) -> None:
        stripped = raw.lstrip()
        for beginning, pattern, action in _RECORDS:
            if stripped.startswith(beginning):
                if pattern is None:
                    action(self, number, None)
                    return
                if not words.is_record(stripped, beginning):
                    return
                found = self._whole(number, raw, pattern)
                if found is not None:
                    action(self, number, found)
                return
        if raw[:3].isdigit():
            found = self._whole(number, raw, words.RETURNED)
            if found is not None:
                self._returned(number, found)

    def _header(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        self.headers.append(number)
        if len(self.headers) == 1:
            self.file.facts["tools"] = found[1]
            self.file.hostname = found[3]
        self._leave()

    def _running(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        said = found[3].split()
        if words.FOR_COPY.search(" " + found[3]):
            return  # rolling round-robin rate: the copy's own line, no bracket of all copies
        copies = words.COPIES.search(found[3])
        self._leave()
        self.now = _Bracket(
            number,
            found[2],
            tune=next((word for word in said if word in words.TUNES), None),
            size=next((word for word in said if words.SIZE.match(word)), None),
            number=int(found[1]) if found[1] else None,
            copies=int(copies[1]) if copies and 0 < int(copies[1]) <= MOST_COPIES else None,
        )

    def _commands(self, number: int, found: re.Match[str] | None) -> None:
        """Take the command file as the log shows it: `-b` and `-C` by copy, then commands."""
        now = self.now
        joined = ""
        while (line := self._next()) is not None:
            text = as_text(line[1][:_LONGEST_RECORD])
            begins = words.DIRECTIVE.match(text)
            if not joined and text.rstrip().endswith(":") and begins is None:
                continue  # the rest of the heading
            if begins is None and (words.begins(line[1]) or not text.strip() or not joined):
                self.waiting.append(line)
                break
            if begins is not None:
                self._directive(now, joined)
                joined = text
            elif len(joined) < _LONGEST_RECORD:
                joined += text
        self._directive(now, joined)

    def _directive(self, now: _Bracket | None, text: str) -> None:
        found = words.DIRECTIVE.match(text)
        if found is None or now is None:
            return
        kind, value = found[1], (found[2] or "").strip()
        if kind == "b" and len(now.binds) < MOST_COPIES:
            now.binds.append(value)
        elif kind == "C" and len(now.folders) < MOST_COPIES:
            now.folders.append(value)
        elif kind in "oier":
            told = "$BIND" in value or "$SPECCOPY" in value
            if now.command is None or (told and not now.command_told):
                now.command, now.command_told = value, told

    def _workload(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        if self.now is not None:
            copy, workload, seconds = int(found[1]), int(found[2]), float(found[3])
            self.now.sums_s[copy] = self.now.sums_s.get(copy, 0.0) + seconds
            of_copy = self.now.workloads_s.setdefault(copy, array("d"))
            if workload == len(of_copy) + 1 and seconds <= LONGEST_S:
                of_copy.append(seconds)
            elif workload <= len(of_copy):
                self.problems.add(number, f"a second time of workload {workload} of copy {copy}")

    def _copy(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        copy, seconds = int(found[1]), float(found[7])
        now = self.now
        if now is None or now.benchmark != found[2]:
            # The start of its benchmark is not in the file, or is torn.
            self._told(now)
            now = self.now = _Bracket(number, found[2])
        if copy >= MOST_COPIES or seconds > LONGEST_S:
            self.problems.add(number, f"no copy or no time: copy {copy}, {found[7]} s")
            return
        if now.copies is not None and copy >= now.copies:
            self.problems.add(number, f"copy {copy} of {found[2]}, which runs {now.copies} copies")
        one = self._iteration(now, found[3], found[4], int(found[5]), number)
        if copy in one.times_s:
            self.problems.add(
                number, f"a second time of copy {copy} of {one.name}; the first is kept"
            )
            return
        one.times_s[copy] = seconds
        workloads = now.workloads_s.pop(copy, None)
        if workloads is not None and len(workloads) > 1:
            self.workloads += len(workloads)
            if self.workloads <= _MOST_WORKLOADS:
                one.workloads_s[copy] = workloads
        total = now.sums_s.pop(copy, None)
        if total is not None and not math.isclose(total, seconds, rel_tol=1e-6, abs_tol=1e-4):
            self.problems.add(
                number,
                f"copy {copy} of {one.name}: {found[7]} s, but its workloads took {total:.6f} s",
            )

    def _old_copy(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        if self.now is None:
            self.problems.add(number, "the time of a copy, and no benchmark runs")
        elif int(found[1]) < MOST_COPIES and float(found[3]) <= LONGEST_S:
            self.now.old_s.setdefault(int(found[1]), float(found[3]))

    def _returned(self, number: int, found: re.Match[str]) -> None:
        copy, code, killed = int(found[2]), int(found[3]), int(found[4])
        if self.now is None or self.now.benchmark != found[1] or copy >= MOST_COPIES:
            return  # while it was built or set up
        self.now.failures[copy] = Failure(None if killed else code, killed or None)

    def _miscompare(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        if self.now is None:
            return
        text = found.string
        text += " " + self._following().strip()
        for copy, folder in enumerate(self.now.folders):
            if f"/{folder.rsplit('/', 1)[-1]}/" in text:
                self.now.failures.setdefault(copy, Failure(None, None, found[1]))
        if len(self.now.errors) < _MOST_ERRORS:
            self.now.errors.append(f"Miscompare of {found[1]}")

    def _not_run(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        if len(self.file.errors) < _MOST_ERRORS and found[0][:500] not in self.file.errors:
            self.file.errors.append(found[0][:500])

    def _reported(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        if self.now is None:
            return
        seconds = float(found[3])
        exact = int(found[1]) + int(found[2]) / 1e9
        if not math.isclose(seconds, exact, abs_tol=1e-5, rel_tol=1e-9):
            self.problems.add(number, f"reported {found[3]} s, but {found[1]} s {found[2]} ns")
        if seconds <= LONGEST_S:
            self.now.reported_s, self.now.reported_places = seconds, len(found[4] or "")

    def _began(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        if self.now is not None:
            self.now.start_s = float(found[1])

    def _ended(self, number: int, found: re.Match[str] | None) -> None:
        assert found is not None
        now = self.now
        if now is None or now.benchmark != found[2]:
            self._told(now)
            now = _Bracket(number, found[2])
        tune, size = (found[3], found[4]) if found[3] in words.TUNES else (found[4], found[3])
        if words.SIZE.match(tune):  # a label that is no tune: the order tells
            tune, size = size, tune
        if not now.parts:
            key = (now.benchmark, tune, size)
            run = now.number or self.runs.get(key, 0) - self.shift.get(key, 0) + 1
            self._iteration(now, tune, size, run, now.line)
        one = now.parts[-1]
        self.runs[one.benchmark, one.tune, one.size or ""] = one.iteration
        if now.reported_s is None and float(found[7]) <= LONGEST_S:
            now.reported_s, now.reported_places = float(found[7]), len(found[8] or "")
        ratio = float(found[5])
        one.ratio = Figure(ratio, len(found[6] or ""), number) if ratio > 0 else None
        copies = int(found[9]) if found[9] else now.copies
        one.copies = copies if copies and copies <= MOST_COPIES else None
        code = words.ERROR_CODE.search(found[10])
        one.valid = "S" if found[1] == "Success" else code[1] if code else None
        if found[1] == "Error" and one.valid in (None, "S"):
            crashed = any(failure.detail is None for failure in now.failures.values())
            one.valid = "VE" if now.errors and not crashed else "RE"
        self._told(now)
        if not one.times_s:  # older tools, or a log of little detail: sums of the workloads
            one.times_s.update(now.old_s or now.sums_s)
        of_it = (one.benchmark, one.tune, one.size or "")
        self.ended.add((*of_it, one.iteration))
        self.latest[of_it] = max(one.iteration, self.latest.get(of_it, 0))
        self.now = None

    def _told(self, now: _Bracket | None) -> None:
        """Hand to its iteration what a bracket was told, whether its end was read or not."""
        if now is None or not now.parts:
            return
        one = now.parts[-1]
        if now.reported_s is not None:
            one.reported_s, one.reported_places = now.reported_s, now.reported_places
        one.start_s = now.start_s if now.start_s is not None else one.start_s
        one.copies = one.copies or now.copies
        one.failures |= now.failures
        one.errors += now.errors
        one.command = now.command or one.command
        if now.binds:
            one.binds = self.binds.setdefault(tuple(now.binds), tuple(now.binds))
        one.folders |= {c: now.folders[c] for c in one.failures if c < len(now.folders)}
        now.errors = []

    def _leave(self) -> None:
        """Leave the bracket that is open: another one begins, and its end is not in the file."""
        now, self.now = self.now, None
        if now is None:
            return
        if not now.parts and now.old_s and now.tune and now.size:
            of_it = (now.benchmark, now.tune, now.size)
            run = now.number or self.runs.get(of_it, 0) - self.shift.get(of_it, 0) + 1
            one = self._iteration(now, now.tune, now.size, run, now.line)
            one.times_s.update(now.old_s)
        self._told(now)
        for one in now.parts:
            of_it = (one.benchmark, one.tune, one.size or "")
            self.left.add((*of_it, one.iteration))
            self.latest[of_it] = max(one.iteration, self.latest.get(of_it, 0))

    def _iteration(
        self, now: _Bracket, tune: str, size: str, run: int, number: int
    ) -> SpecIteration:
        """Return the iteration that a bracket's record belongs to.

        A log that holds the same one again (two logs in one file) goes on counting.
        """
        for one in now.parts:
            if one.tune == tune and one.size == size:
                return one
        of_it = (now.benchmark, tune, size)
        run = min(run, MOST_NUMBER)
        key = (*of_it, run + self.shift.get(of_it, 0))
        if key in self.ended or key in self.left:
            self.shift[of_it] = self.latest[of_it] + 1 - run
            key = (*of_it, run + self.shift[of_it])
            self.repeated += 1
        if key not in self.found:
            self.found[key] = SpecIteration(
                now.benchmark, tune, key[3], now.line or number, size=size
            )
        now.parts.append(self.found[key])
        return self.found[key]

    # -- the end --------------------------------------------------------------------------------

    def _finish(self) -> SpecFile:
        file = self.file
        file.sha256 = self.lines.digest
        file.lines = self.lines.count
        self._leave()
        every = list(self.found.values())
        for one in every:
            key = (one.benchmark, one.tune, one.size or "", one.iteration)
            if key not in self.ended:
                self.problems.add(one.line, f"{one.name}: its end is not in the file")
        if len(self.headers) > 1:
            file.notes.append(
                f"the file holds {len(self.headers)} logs; the second begins at line "
                f"{self.headers[1]}"
            )
        if self.repeated:
            file.notes.append(
                f"{self.repeated} brackets have the number of an iteration that was there before; "
                "they were counted on"
            )
        if self.workloads > _MOST_WORKLOADS:
            file.notes.append(
                f"times of single workloads are left out behind the first {_MOST_WORKLOADS}"
            )
        file.iterations = _timed(every, file.notes)
        file.size = next((one.size for one in file.iterations), None)
        file.suite = next(
            (suite for one in file.iterations if (suite := keys.suite_of(one.benchmark))), None
        )
        starts = [one.start_s for one in file.iterations if one.start_s]
        file.started_s = min(starts, default=None)
        derive_references(file)
        return file


def _timed(every: list[SpecIteration], notes: list[str]) -> list[SpecIteration]:
    """Leave out the small inputs that a reportable run does before what is timed."""
    timed = [one for one in every if (one.size or "").startswith("ref")]
    if not timed or len(timed) == len(every):
        return every
    notes.append(
        f"{len(every) - len(timed)} runs of sizes test and train are left out: they are not timed"
    )
    return timed


type _Action = Callable[[_Reader, int, re.Match[str] | None], None]
# In the order in which beginnings are tried; no pattern: the line itself is all there is.
_RECORDS: tuple[tuple[bytes, re.Pattern[str] | None, _Action], ...] = (
    (b"Workload elapsed time (", words.WORKLOAD, _Reader._workload),
    (b"Copy ", words.COPY, _Reader._copy),
    (b"copy ", words.OLD_COPY, _Reader._old_copy),
    (b"Running ", words.RUNNING, _Reader._running),
    (b"Success ", words.ENDED, _Reader._ended),
    (b"Error ", words.ENDED, _Reader._ended),
    (b"Run Reported:", words.REPORTED, _Reader._reported),
    (b"Reported:", words.REPORTED, _Reader._reported),
    (b"Run ", words.ENDED, _Reader._ended),
    (b"Rate Start:", words.BEGAN, _Reader._began),
    (b"Start:", words.BEGAN, _Reader._began),
    (b"Commands to run", None, _Reader._commands),
    (b"*** Miscompare", words.MISCOMPARE, _Reader._miscompare),
    (b"Build errors for ", words.NOT_RUN, _Reader._not_run),
    (b"Setup errors: ", words.NOT_RUN, _Reader._not_run),
    (b"runspec ", words.HEADER, _Reader._header),
    (b"runcpu ", words.HEADER, _Reader._header),
)
