"""Wings may be absent (their folders removed): the tests of the core leave out what is theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

import rater
from rater.wings import WINGS

ABSENT = frozenset(it for it in WINGS if not Path(rater.__file__).with_name(it).is_dir())
_COMMANDS = {WINGS[it].command for it in ABSENT}


def needs_wing(wing: str) -> pytest.MarkDecorator:
    """Leave a test out where the wing is absent."""
    return pytest.mark.skipif(wing in ABSENT, reason=f"this rater has no {wing}")


def is_command(words: str) -> bool:
    """Tell whether what is typed behind `rater` is no command of a wing that is absent."""
    return words.split(maxsplit=1)[0] not in _COMMANDS
