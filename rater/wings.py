"""The wings of the house, by name: the one place through which the core reaches them.

A wing (`speccpu`, `lab`, `fleet`) stands on the core and imports what it needs of it. The core
imports no wing, and no wing another. What a wing adds to the core is a line here: a command, or a
module with what a Protocol of the core says, which is imported when the core asks for it. For
mypy, `tests/test_wings.py` holds the modules against these Protocols.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

WINGS = ("speccpu", "lab", "fleet")

# Commands by name: a few words for the help of `rater`, and the function that declares them.
COMMANDS = {
    "lab": ("studies of page sizes", "lab.commands.register"),
    "spec": ("files of SPEC CPU", "speccpu.commands.register"),
    "fleet": ("one run on many nodes", "fleet.commands.register"),
}

# What the core asks for by name, one for each of its floors, and the module that has it.
HOOKS = {
    "fleet words": "fleet.slow_hosts",  # for commands: `rater divots fleet:3`
    "kits": "speccpu.kit.run",  # for workflow.run: benchmarks of an installed kit
    "kit outputs": "speccpu.kit.outputs",  # for run.workplace: what the kit's own tool compares
    "page layouts": "lab.layout.layout",  # for plan: what `--pages` takes
    "page setup": "lab.layout.prepare",  # for workflow.run: page sizes of copies made ready
    "page proofs": "lab.layout.proof",  # for analysis: what copies had of them
    "page tables": "lab.layout.table",  # for show
    "merge": "fleet.merge",  # for workflow.results: databases of other machines
    "fleet archive": "fleet.archive",  # for workflow: `rater show fleet:3/n017`
}


class Hook[T]:
    """What a wing has for the core: a module as `T` describes it, imported when it is called."""

    def __init__(self, name: str) -> None:
        self._module = f"rater.{HOOKS[name]}"

    def __call__(self) -> T:
        """Return the module."""
        return cast("T", import_module(self._module))
