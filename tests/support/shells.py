"""The shells that scripts are tried with."""

from __future__ import annotations

from rater.run.programs.script import (
    CommandLine,
)

SHELLS = {
    "dash": ["dash"],
    "bash": ["bash"],
    "bash as sh": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
}


def sh(script: str) -> CommandLine:
    return CommandLine(words=("/bin/sh", "-c", script))
