"""Settings of the machine that a value of an option stands for: `--axis pages=0%,64k,2M`.

Pages of 64 KB need `thp.64kB` on and `thp.2048kB` off, those of 2 MB the other way round. A value
of the axis sets what it needs, before each of its runs; the end of the sweep puts all back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from rater.plan.sweep import AxisKind
from rater.settings.tuner import find_setting
from rater.system.errors import InputError
from rater.system.paths import sysroot
from rater.workflow.run.workload import PAGE_CHECKS
from rater.workflow.sweep.request import GridPoint

_PAGES = "pages"


def with_tied_settings(
    points: Iterable[GridPoint], kinds: Mapping[str, AxisKind]
) -> list[GridPoint]:
    """Return points with the kernel settings of their page sizes added.

    A setting of one point has its present value in all others, so that nothing of a run is left
    for the next. A setting that is an axis of its own belongs to the user.
    """
    listed = list(points)
    if kinds.get(_PAGES) is not AxisKind.OPTION:
        return listed
    setting_axes = {
        find_setting(name, sysroot()).name
        for name, kind in kinds.items()
        if kind is AxisKind.SETTING
    }
    tied = [
        {name: value for name, value in _tied(point).items() if name not in setting_axes}
        for point in listed
    ]
    now = {
        name: find_setting(name, sysroot()).read().description
        for name in dict.fromkeys(name for settings in tied for name in settings)
    }
    return [
        replace(point, settings=now | settings | point.settings)
        for point, settings in zip(listed, tied, strict=True)
    ]


def _tied(point: GridPoint) -> dict[str, str]:
    if point.request is None:
        return {}
    try:
        return PAGE_CHECKS().tied_settings(point.request)
    except InputError:  # it is told where the point is resolved
        return {}


def tied_lines(points: Sequence[GridPoint], kinds: Mapping[str, AxisKind]) -> list[str]:
    """Return what the points set of the machine beside their axes, in words; each value once."""
    lines: dict[str, None] = {}
    for point in points:
        settings = [
            f"{name}={value}" for name, value in point.settings.items() if name not in kinds
        ]
        if settings:
            value = dict(point.values)[_PAGES]
            lines[f"pages={value} sets {' '.join(settings)}"] = None
    return list(lines)


def tied_obstacles(points: Sequence[GridPoint], kinds: Mapping[str, AxisKind]) -> list[str]:
    """Return why settings that the points stand for cannot be set here."""
    names = {name for point in points for name in point.settings if name not in kinds}
    problems = ((name, find_setting(name, sysroot()).obstacle()) for name in sorted(names))
    return [f"{name} cannot be set: {problem}" for name, problem in problems if problem]
