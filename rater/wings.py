"""The wings of the house: the one table through which the core reaches them.

A wing (`speccpu`, `lab`, `fleet`) stands on the core and imports what it needs of it. The core
imports no wing, and no wing another. What a wing adds to the core is here: its command, and its
modules, each of which follows a Protocol of the core and is imported when the core asks for it.
For mypy, `tests/test_wings.py` holds the modules against these Protocols. A wing may be absent:
its folder is removed, and the core runs without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from rater.system.errors import InputError


class Wing(NamedTuple):
    """What a wing brings: a command, and modules by the names that the core asks for."""

    command: str
    about: str  # a few words for the help of `rater`
    hooks: Mapping[str, str]


WINGS = {
    "lab": Wing(
        "lab",
        "studies of page sizes",
        {
            "page layouts": "layout.layout",  # for plan: what `--pages` takes
            "page setup": "layout.prepare",  # for workflow.run: page sizes of copies made ready
            "page proofs": "layout.proof",  # for analysis: what copies had of them
            "page tables": "layout.table",  # for show
            "miss costs": "trace.machine",  # for workflow: what a TLB miss costs on this machine
        },
    ),
    "speccpu": Wing(
        "spec",
        "files of SPEC CPU",
        {
            "kits": "kit.run",  # for workflow.run: benchmarks of an installed kit
            "kit outputs": "kit.outputs",  # for run.workplace: what the kit's own tool compares
        },
    ),
    "fleet": Wing(
        "fleet",
        "one run on many nodes",
        {
            "fleet words": "slow_hosts",  # for commands: `rater divots fleet:3`
            "fleet archive": "archive",  # for workflow: `rater show fleet:3/n017`
            "merge": "merge",  # for workflow.results: databases of other machines
        },
    ),
}
HOOKS = {
    hook: f"{name}.{module}" for name, wing in WINGS.items() for hook, module in wing.hooks.items()
}
# Commands by name: their words of help, and the module that has them.
COMMANDS = {
    wing.command: (wing.about, f"{name}.commands")
    for name, wing in WINGS.items()
    if Path(__file__).with_name(name).is_dir()
}
# Functions that the core calls for every run, with their results when the wing is absent.
_WITHOUT: dict[str, object] = {
    **dict.fromkeys(("prove_pages", "base_side", "pages_document", "miss_cycles"), None),
    **dict.fromkeys(("layout_warnings", "page_parts", "fleet_words"), ()),
}


class Hook[T]:
    """What a wing has for the core: a module as `T` describes it, imported when it is called."""

    def __init__(self, name: str) -> None:
        self._module = HOOKS[name]
        # It is called for every run, and `import_module` takes 20 times as long as this look.
        self._imported: T | None = None

    def __call__(self) -> T:
        """Return the module; for an absent wing a stand-in, whose functions raise `InputError`."""
        if self._imported is not None:
            return self._imported
        wing = self._module.partition(".")[0]
        try:
            self._imported = cast("T", import_module(f"rater.{self._module}"))
        except ModuleNotFoundError as error:
            if error.name not in (f"rater.{wing}", f"rater.{self._module}"):
                raise
            return cast("T", _Absent(wing))
        return self._imported


class _Absent:
    def __init__(self, wing: str) -> None:
        self._wing = wing

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _WITHOUT:
            raise InputError(f"this rater has no {self._wing}: install the whole of it")
        return lambda *_, **__: _WITHOUT[name]
