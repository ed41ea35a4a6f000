"""What holds for all commands."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import rater


def test_every_function_that_a_command_names_is_there() -> None:
    folder = Path(rater.__file__).parent
    named = [
        found
        for file in folder.rglob("*.py")
        for found in re.findall(r'lazy_command\("([\w.]+)", "(\w+)"\)', file.read_text())
    ]
    assert len(named) > 15
    for module, function in named:
        assert callable(getattr(import_module(f"rater.{module}"), function))
