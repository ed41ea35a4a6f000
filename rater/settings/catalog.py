"""The settings that this machine has: the known ones whose files are there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path

from rater.errors import InputError
from rater.settings.known import SETTABLE, KnownSetting, fill, matcher
from rater.settings.setting import KernelSetting, choices_of, read_value
from rater.text.cpuset import format_list, parse_set

_CPUS = "sys/devices/system/cpu"
# Names, and what makes them exist: for the line that names what a machine lacks.
_OF_CPUFREQ = ("governor", "boost", "energy_preference", "max_khz", "min_khz")
_OF_KERNEL = ("thp", "numa_balancing", "zone_reclaim", "compaction_proactiveness")


@dataclass(frozen=True, slots=True)
class Lacking:
    """Settings that this machine does not have."""

    names: tuple[str, ...]
    why: str


def expand(root: Path, pattern: str) -> list[tuple[str, dict[str, str]]]:
    """Return the files that fit a pattern, with what its placeholders stand for, by number."""
    found: list[tuple[str, dict[str, str]]] = [("", {})]
    for part in pattern.split("/"):
        if "{" not in part:
            found = [(f"{above}/{part}", values) for above, values in found]
            continue
        found = [
            (f"{above}/{name}", values | match.groupdict())
            for above, values in found
            for name in _listed(root / above.lstrip("/"))
            if (match := matcher(fill(part, values)).fullmatch(name))
        ]
    return [(file[1:], values) for file, values in found if (root / file[1:]).exists()]


def present_settings(root: Path = Path("/")) -> tuple[KernelSetting, ...]:
    """Return the settings that this machine has, in the order in which several are set."""
    found: dict[str, KernelSetting] = {}
    for _, rows in groupby(SETTABLE, _by_size):
        several = [one for row in rows for one in _of(row, root)]
        for _, one in sorted(several, key=lambda it: _by_number(it[0])):
            found.setdefault(one.name, one)  # the first way to switch boost
    return tuple(found.values())


def lacking(root: Path = Path("/")) -> tuple[Lacking, ...]:
    """Return what this machine does not have, by reason."""
    names = {one.name for one in present_settings(root)}
    cpufreq = expand(root, f"{_CPUS}/cpufreq/{{policy}}")
    reasons = (
        (_OF_CPUFREQ, "not with this driver" if cpufreq else "no cpufreq"),
        (("smt.control",), _smt_state(root) or "no SMT control"),
        (_OF_KERNEL, "this kernel was built without"),
    )
    gone = ((tuple(name for name in of if name not in names), why) for of, why in reasons)
    return tuple(Lacking(missing, why) for missing, why in gone if missing)


def find(name: str, root: Path = Path("/")) -> KernelSetting:
    """Return the setting of that name. Raises `InputError` that names what there is."""
    here = present_settings(root)
    for one in here:
        if name in (one.name, one.also):
            return one
    for gone in lacking(root):
        if name in gone.names:
            raise InputError(f"{name}: this machine does not have it ({gone.why})")
    every = [one.name for one in here]
    known = [*every, *(one.also for one in here)]
    below = [one for one in every if one.startswith(f"{name}.")][:3]
    close = below or difflib.get_close_matches(name, known, n=3)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    raise InputError(f"{name}: no setting that rater knows{meant} (`rater settings` has them all)")


def _of(row: KnownSetting, root: Path) -> Iterator[tuple[str, KernelSetting]]:
    """Yield what a machine has of a row, with its size of pages: one setting for all policies."""
    groups: dict[tuple[str, ...], list[tuple[str, dict[str, str]]]] = {}
    for file, values in expand(root, row.files[0]):
        key = tuple(it for name, it in values.items() if name != "policy")
        groups.setdefault(key, []).append((file, values))
    if row.changes_cpus and _smt_state(root):
        return
    for members in groups.values():
        values = {name: it for name, it in members[0][1].items() if name != "policy"}
        files = tuple(file for file, _ in members)
        filled = {name: fill(getattr(row, name), values) for name in ("name", "also", "what")}
        several = {
            name: tuple(
                file
                for pattern in getattr(row, name)
                for file, _ in expand(root, fill(pattern, values))
            )
            for name in ("kept", "follows")
        }
        choices = _common(root, files, row.choices_in) if row.choices_in else row.choices
        if choices and not row.words:
            choices = choices_of(root, files[0]) or choices
        same = {it.name: getattr(row, it.name) for it in fields(row)}
        changes = filled | several | {"files": files, "choices": choices}
        blocked = _offline_by_hand(root) if row.changes_cpus else ""
        yield values.get("size", ""), KernelSetting(**same | changes, root=root, blocked=blocked)


def _by_size(row: KnownSetting) -> str:
    """Return what the rows have in common whose settings stand together for each size of pages."""
    return row.group if "{size}" in row.files[0] else row.name


def _listed(folder: Path) -> list[str]:
    """Return what lies in a folder, `node2` before `node10`."""
    try:
        return sorted((it.name for it in folder.iterdir()), key=_by_number)
    except OSError:
        return []


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _common(root: Path, files: tuple[str, ...], list_name: str) -> tuple[str, ...]:
    """Return the words that every policy takes, in the order of the first."""
    lists = []
    for file in files:
        try:
            lists.append((root / file).with_name(list_name).read_text().split())
        except OSError:  # a driver without a list takes the word it has
            lists.append([_word(root, file)])
    # `default` is read back as the word that it stands for.
    known = (word for word in lists[0] if word != "default")
    return tuple(word for word in known if all(word in other for other in lists))


def _word(root: Path, file: str) -> str:
    try:
        return read_value(root, file)
    except OSError:
        return ""


def _smt_state(root: Path) -> str | None:
    """Return why SMT cannot be switched, None when it can."""
    state = _word(root, f"{_CPUS}/smt/control")
    return None if state in ("on", "off") else state or "no SMT control"


def _offline_by_hand(root: Path) -> str:
    """Return why SMT is not to be switched on: that brings back every CPU, also one by one."""
    if _word(root, f"{_CPUS}/smt/control") != "on":
        return ""
    try:
        offline = parse_set(_word(root, f"{_CPUS}/offline"))
        offline &= parse_set(_word(root, f"{_CPUS}/present"))
    except ValueError as error:
        return f"{root / _CPUS}: {error}"
    return f"CPUs {format_list(offline)} are offline and would come back" if offline else ""
