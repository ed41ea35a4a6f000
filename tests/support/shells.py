"""The shells that scripts are tried with."""

from __future__ import annotations

from rater.run.programs.script import (
    Line,
)

SHELLS = {
    "dash": ["dash"],
    "bash": ["bash"],
    "bash as sh": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
}


def sh(script: str) -> Line:
    return Line(("/bin/sh", "-c", script))
