"""A finding, and the words that findings have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rater.text.cpuset import format_list

_WHOLE_LIST = 1 << 30


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One mistake; `copies` and `cpus` are those it is about."""

    line: int  # of the configuration, from 1
    kind: str
    text: str  # what, with numbers, and the way out
    copies: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    scopes: tuple[str, ...] = ()  # benchmarks and tunes it holds for; empty: all

    @property
    def order(self) -> tuple[int, str]:
        """What sorts findings of one line: those of the whole list behind those of a copy."""
        return (min(self.copies, default=_WHOLE_LIST), self.kind)


def named(numbers: Iterable[int]) -> str:
    """Return `0-3,8`, or `none`."""
    return format_list(numbers) or "none"


def cpus_text(cpus: Iterable[int]) -> str:
    """Return `CPU 3` or `CPUs 3-5`."""
    return _called("CPU", cpus)


def nodes_text(nodes: Iterable[int]) -> str:
    """Return `node 1` or `nodes 0-1`."""
    return _called("node", nodes)


def _called(what: str, numbers: Iterable[int]) -> str:
    each = set(numbers)
    text = format_list(each)
    if len(text) > 60:  # of lists with holes a part is enough to find them
        text = text[:60].rpartition(",")[0] + f",... ({len(each)})"
    return f"{what if len(each) == 1 else what + 's'} {text}"
