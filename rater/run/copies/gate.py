"""The gate that every copy waits at: a shell that exists, bound and blocked, before time starts.

It closes descriptor 4 to say that it is ready, and reads a line from descriptor 3:

- own pipe (staggered copies, later steps of a queue): the supervisor writes a line;
- one pipe shared by all copies: the supervisor closes it, which releases every
  copy in one system call. A supervisor that was killed closes it too, so the gate
  then needs the phase's go file, and without one ends with status 125.
"""

from __future__ import annotations

from functools import cache

GATE_NAME = b"rater-gate"  # how the gate's shell calls itself
GATE_SHELL = "/bin/sh"
NOT_RELEASED = 125  # exit code of a gate whose supervisor died
_NO_DIRECTORY = 126


@cache
def gate_script(late: int) -> str:
    """Return the gate's script.

    $1: the soft limit of open files rater itself was given, $2: go file, $3: directory, then
    `late` variables as NAME=VALUE that only the copy is to have, then the copy's words.
    """
    export = "".join(f'export "${number}"; ' for number in range(4, 4 + late))
    return (
        f'ulimit -Sn "$1"; cd -- "$3" || exit {_NO_DIRECTORY}; exec 4>&-; {export}'
        f'read -r rater_gate <&3 || [ -e "$2" ] || exit {NOT_RELEASED}; '
        f'shift {3 + late}; exec "$@" 3<&-'
    )
