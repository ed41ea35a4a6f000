"""The mistakes a user can make and the ways a run can fail.

Every message says what is wrong, where, and the way out; `rater.commands.cli` prints it
on stderr without a traceback and exits with the status of its class.
"""

from __future__ import annotations


class RaterError(Exception):
    """Base of everything a user can cause or can do something about."""

    exit_status = 1


class InputError(RaterError):
    """The user's input is wrong, or the run was refused before it began."""

    exit_status = 2


class RunError(RaterError):
    """A run that had begun could not go on (the disk filled, a set-up command failed)."""

    exit_status = 1
