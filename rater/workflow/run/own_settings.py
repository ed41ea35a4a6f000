"""Settings of the machine that a run itself needs: set before it begins, put back behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rater.errors import InputError
from rater.settings.paths import sysroot
from rater.workflow.run.resolve import Resolved


def own_settings(resolved: Resolved) -> dict[str, str]:
    """Return what a run wants of the machine as it is now, by name; empty for most runs.

    Call it with the machine's lock, before anything is set.
    """
    found: dict[str, str] = {}
    if resolved.request.tuned:
        from rater.workflow.doctor.mend import tuned_now

        found |= tuned_now(sysroot())
    return found


def refuse_unsettable(wanted: Mapping[str, str]) -> None:
    """Raise `InputError` that names the settings that this process cannot set; only looks."""
    from rater.settings.catalog import find

    obstacles = {name: find(name, sysroot()).obstacle() for name in wanted}
    refused = [f"{name} cannot be set: {why}" for name, why in obstacles.items() if why]
    if refused:
        raise InputError("\n".join(refused))


def settings_of_points(
    own: Mapping[int, Mapping[str, str]], axes: Sequence[str]
) -> dict[int, dict[str, str]]:
    """Return by point what its runs want set, beside what its axes say.

    What one point wants and another does not, the other has as it is now: points must not differ
    in what the one before them left. `axes` are names of settings that are axes: they stand over
    what runs want.
    """
    from rater.settings.catalog import find

    names = dict.fromkeys(name for wanted in own.values() for name in wanted)
    here = {name: find(name, sysroot()) for name in names}
    swept = {find(name, sysroot()).name for name in axes}
    now = {
        name: present
        for name, setting in here.items()
        # Files that differ are no one value: such a setting is wanted by all points, or by none.
        if len({value for _, value in setting.read().files}) == 1
        for present in [setting.read().text]
    }
    return {
        point: {name: value for name, value in (now | dict(wanted)).items() if name not in swept}
        for point, wanted in own.items()
    }
