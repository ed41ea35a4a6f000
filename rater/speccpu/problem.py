"""What is wrong with a file of SPEC's, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_MOST_PROBLEMS = 1000  # kept with their line; of more only the number is


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something of a file that could not be read, or cannot be so."""

    line: int  # from 1; 0: the file as a whole
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(slots=True)
class Problems:
    """The problems of one file: the first thousand, and how many there were."""

    kept: list[Problem] = field(default_factory=list)
    count: int = 0

    def add(self, line: int, text: str) -> None:
        """Note a problem; of a flood only the number is kept."""
        self.count += 1
        if len(self.kept) < _MOST_PROBLEMS:
            self.kept.append(Problem(line, text))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.kept)
