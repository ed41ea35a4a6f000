"""Around the launcher: programs, workplaces, supervision, samples; called, it makes a run.

`rater.run("mini", copies=4)` is `rater.api.run`, though this folder has the same name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("rater.api").run(*args, **options)


sys.modules[__name__].__class__ = _Callable
