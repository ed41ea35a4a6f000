"""The lines of a log, and its records joined from the lines that they were wrapped to."""

from __future__ import annotations

import re

from rater.speccpu.problem import Problems
from rater.speccpu.results import log_words as words
from rater.speccpu.results.lines import Lines, Readable, as_text

LONGEST_RECORD = 20_000  # characters; a submit line can be long
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
