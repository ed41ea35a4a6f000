"""What a result is made of beside programs and settings: all that must not change within a run."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rater.plan.suite.model import Size
from rater.run.programs.compile import key_of, sha256_of
from rater.run.programs.inputs import ReadyInput, digest_of
from rater.run.programs.script import Line

_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|lua|bash|dash|ksh|zsh|sh|awk|gawk)[\d.]*")
_LIMITS = (
    ("stack", resource.RLIMIT_STACK),
    ("address_space", resource.RLIMIT_AS),
    ("locked_memory", resource.RLIMIT_MEMLOCK),
    ("open_files", resource.RLIMIT_NOFILE),
    ("processes", resource.RLIMIT_NPROC),
)


def digest_of_workload(
    size: Size,
    lines: Sequence[Line],
    inputs: Sequence[ReadyInput],
    others: Iterable[Sequence[str]] = (),
) -> str | None:
    """Return a SHA-256 over what a benchmark reads and is judged by; None for nothing.

    Input files, expected outputs, scripts that its commands name, and programs and
    scripts of `others` (set-ups, a prefix). Data files that are plain arguments are
    left out: they may as well be what it writes.
    """
    parts: list[str] = []
    made = digest_of(inputs)
    if made is not None:
        parts += ["inputs", made]
    for want in size.expected:
        parts += ["expected", repr(want)]
    for words in (*(line.words for line in lines), *others):
        for file in _scripts(words):
            parts += ["script", file.name, sha256_of(file)]
    for words in others:
        if words and os.access(words[0], os.R_OK) and Path(words[0]).is_file():
            parts += ["program", sha256_of(Path(words[0]))]
    return key_of(*parts) if parts else None


def _scripts(words: Sequence[str]) -> Iterator[Path]:
    """Yield the files among a command's arguments that are programs themselves."""
    script_due = bool(words) and _INTERPRETER.fullmatch(Path(words[0]).name) is not None
    for word in words[1:]:
        file = Path(word)
        if word.startswith("-") or not _readable(file):
            continue
        if script_due or os.access(file, os.X_OK) or _begins_as_script(file):
            yield file
        script_due = False


def _readable(file: Path) -> bool:
    try:
        return file.is_file() and os.access(file, os.R_OK)
    except (OSError, ValueError):  # too long for a path, or a NUL in it
        return False


def _begins_as_script(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(2) == b"#!"


def process_settings() -> tuple[tuple[str, str], ...]:
    """Return what copies inherit from this process that may change results, as settings."""
    limits = ((name, resource.getrlimit(number)[0]) for name, number in _LIMITS)
    return (
        ("process.nice", str(os.getpriority(os.PRIO_PROCESS, 0))),
        *(
            (f"limit.{name}", "unlimited" if soft == resource.RLIM_INFINITY else str(soft))
            for name, soft in limits
        ),
    )
