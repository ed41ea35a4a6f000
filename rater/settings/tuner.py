"""Set the settings that this machine has, and put them back in every way a process can end."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import asdict, replace

from rater.settings import journal as journals
from rater.settings.journal import Entry, Journal, JournalOwner
from rater.settings.known import (
    SETTABLE,
    KernelSetting,
    KnownSetting,
    choices_of,
    expand_pattern,
    matcher,
    read_value,
    same_value,
    write_value,
)
from rater.settings.restore import (
    close_journal,
    describe_kept,
    read_leftovers,
    restore_hint,
    write_values_back,
)
from rater.system.errors import InputError, RaterError, RunError
from rater.system.process import block_stop_signals
from rater.text.cpuset import format_list, parse_set

_CPUS = "sys/devices/system/cpu"
# Names, and what makes them exist: for the line that names what a machine lacks.
_OF_CPUFREQ = ("governor", "boost", "energy_preference", "max_khz", "min_khz")
_OF_KERNEL = ("thp", "numa_balancing", "zone_reclaim", "compaction_proactiveness")


class MissingSettings(Struct, frozen=True):
    """Settings that this machine does not have."""

    names: tuple[str, ...]
    why: str


def expand_files(root: Path, pattern: str) -> list[tuple[str, dict[str, str]]]:
    """Return the files that fit a pattern, with what its placeholders stand for, by number."""
    # As text: hundreds of files are read with every run, and a `Path` of each costs more than that.
    begin = str(root).rstrip("/")
    files: list[tuple[str, dict[str, str]]] = [("", {})]
    for part in pattern.split("/"):
        if "{" not in part:
            files = [(f"{above}/{part}", values) for above, values in files]
            continue
        files = [
            (f"{above}/{name}", values | match.groupdict())
            for above, values in files
            for name in _list_names(f"{begin}{above}")
            if (match := matcher(expand_pattern(part, values)).fullmatch(name))
        ]
    there = [found for found in files if os.path.exists(f"{begin}{found[0]}")]  # noqa: PTH110
    return [(file[1:], values) for file, values in there]


def available_settings(root: Path = Path("/")) -> tuple[KernelSetting, ...]:
    """Return the settings that this machine has, in the order in which several are set."""
    settings: dict[str, KernelSetting] = {}
    for _, rows in groupby(SETTABLE, _by_size):
        sized = [pair for row in rows for pair in _settings_of_row(row, root)]
        for _, setting in sorted(sized, key=lambda pair: _by_number(pair[0])):
            settings.setdefault(setting.name, setting)  # the first way to switch boost
    return tuple(settings.values())


def missing_settings(root: Path = Path("/")) -> tuple[MissingSettings, ...]:
    """Return what this machine does not have, by reason."""
    names = {setting.name for setting in available_settings(root)}
    cpufreq = expand_files(root, f"{_CPUS}/cpufreq/{{policy}}")
    reasons = (
        (_OF_CPUFREQ, "not with this driver" if cpufreq else "no cpufreq"),
        (("smt.control",), _smt_state(root) or "no SMT control"),
        (_OF_KERNEL, "this kernel was built without"),
    )
    missing_names = ((tuple(name for name in of if name not in names), why) for of, why in reasons)
    return tuple(MissingSettings(missing, why) for missing, why in missing_names if missing)


def find_setting(name: str, root: Path = Path("/")) -> KernelSetting:
    """Return the setting of that name. Raises `InputError` that names what there is."""
    available = available_settings(root)
    for setting in available:
        if name in (setting.name, setting.also):
            return setting
    for missing in missing_settings(root):
        if name in missing.names:
            raise InputError(f"{name}: this machine does not have it ({missing.why})")
    names = [setting.name for setting in available]
    known = [*names, *(setting.also for setting in available)]
    below = [longer_name for longer_name in names if longer_name.startswith(f"{name}.")][:3]
    from difflib import get_close_matches  # noqa: PLC0415 - for a misspelt name alone

    close = below or get_close_matches(name, known, n=3)
    suggestion = f"; did you mean {' or '.join(close)}?" if close else ""
    raise InputError(
        f"{name}: no setting that rater knows{suggestion} (`rater settings` has them all)"
    )


def _settings_of_row(row: KnownSetting, root: Path) -> Iterator[tuple[str, KernelSetting]]:
    groups: dict[tuple[str, ...], list[tuple[str, dict[str, str]]]] = {}
    for file, values in expand_files(root, row.files[0]):
        key = tuple(value for name, value in values.items() if name != "policy")
        groups.setdefault(key, []).append((file, values))
    if row.changes_cpus and _smt_state(root):
        return
    for members in groups.values():
        values = {name: value for name, value in members[0][1].items() if name != "policy"}
        files = tuple(file for file, _ in members)
        texts = {
            name: expand_pattern(getattr(row, name), values) for name in ("name", "also", "what")
        }
        file_lists = {
            name: tuple(
                file
                for pattern in getattr(row, name)
                for file, _ in expand_files(root, expand_pattern(pattern, values))
            )
            for name in ("kept", "follows")
        }
        choices = _common_choices(root, files, row.choices_in) if row.choices_in else row.choices
        if choices and not row.words:
            choices = choices_of(root, files[0]) or choices
        row_fields = asdict(row)
        changes = texts | file_lists | {"files": files, "choices": choices}
        blocked = _offline_by_hand(root) if row.changes_cpus else ""
        yield (
            values.get("size", ""),
            KernelSetting(**row_fields | changes, root=root, blocked=blocked),
        )


def _by_size(row: KnownSetting) -> str:
    return row.group if "{size}" in row.files[0] else row.name


def _list_names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder), key=_by_number)  # noqa: PTH208 - text, as above
    except OSError:
        return []


def _by_number(name: str) -> tuple[int, str]:
    return len(name), name


def _common_choices(root: Path, files: tuple[str, ...], list_name: str) -> tuple[str, ...]:
    lists = []
    for file in files:
        try:
            lists.append((root / file).with_name(list_name).read_text().split())
        except OSError:  # a driver without a list takes the word it has
            lists.append([_read_word(root, file)])
    # `default` is read back as the word that it stands for.
    offered = (word for word in lists[0] if word != "default")
    return tuple(word for word in offered if all(word in other for other in lists))


def _read_word(root: Path, file: str) -> str:
    try:
        return read_value(root, file)
    except OSError:
        return ""


def _smt_state(root: Path) -> str | None:
    state = _read_word(root, f"{_CPUS}/smt/control")
    return None if state in ("on", "off") else state or "no SMT control"


def _offline_by_hand(root: Path) -> str:
    """Return why SMT is not to be switched on: that brings back every CPU, also one by one."""
    if _read_word(root, f"{_CPUS}/smt/control") != "on":
        return ""
    try:
        offline = parse_set(_read_word(root, f"{_CPUS}/offline"))
        offline &= parse_set(_read_word(root, f"{_CPUS}/present"))
    except ValueError as error:
        return f"{root / _CPUS}: {error}"
    return f"CPUs {format_list(offline)} are offline and would come back" if offline else ""


# -- Set settings of the machine and put them back: exactly, in every way a process can end --------
#
# The order of every step is what makes it safe. Before a file is written for the first
# time, what it holds is in the journal and on disk (`rater.settings.journal`); before a
# value is written, so is that value. So a process that is killed between any two system
# calls leaves either nothing changed or a journal with the old value and ours. The sweep
# that changed a setting and the next rater put it back in the same way: files that have
# the old value already are not touched, so putting back can be broken off and begun
# again. After a reboot the kernel has its own defaults: then the journal is closed and
# nothing is written.
#
# A value that is neither the old one nor ours was set by somebody else in the meantime,
# on purpose: an administrator who changes a setting while a sweep runs, or after it
# died, does not expect it to be undone hours later by somebody's next benchmark. The
# value stays, the user is told both, the journal keeps the entry, and
# `rater settings restore --force` writes the old value, `--forget` drops the entry. (The other
# choice, always to write the old value, would be simpler and would sometimes undo a
# repair that nobody connects with rater.) Files that the kernel changes by itself along
# with ours have no such rule: nobody can tell its changes from a person's.


class SettingChangedError(RunError):
    """Somebody else set what this process had set: nothing may write over that."""


class SettingsSession:
    """Sets settings for one process and puts everything back at the end; a context manager.

    Nothing is touched before the first `refuse_unless_settable` or `set`, which take the
    journal's lock. Raises `InputError` while another process has it, or has left settings.
    """

    def __init__(self, root: Path, journal_path: Path, activity: str) -> None:
        """Take nothing yet; `activity` tells people who changes settings: `rater sweep mini`."""
        self._root = root
        self._path = journal_path
        self._what = activity
        self._stack = ExitStack()
        self._owner: JournalOwner | None = None
        self._entries: dict[str, Entry] = {}
        self._last: dict[str, str] = {}  # by file: what it held after we had set it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.restore()
        except RunError as restore_error:
            if isinstance(error, RaterError):
                raise RunError(f"{error}\n{restore_error}") from error
            raise
        finally:
            self._stack.close()
            self._owner = None

    def refuse_unless_settable(self, values_by_name: Mapping[str, Sequence[str]]) -> None:
        """Try everything that can be tried before the first run, and change nothing.

        `values_by_name` has all values that each setting will be set to. They are compared with
        those that it takes, and the present value of every file is written into it once and read
        back, unless that alone brings CPUs or takes them. Raises `InputError` with all problems.
        """
        settings = [
            (find_setting(name, self._root), values) for name, values in values_by_name.items()
        ]
        refuse_together({name: find_setting(name, self._root) for name in values_by_name})
        problems = []
        for setting, values in settings:
            for value in values:
                try:
                    setting.accept(value)
                except InputError as error:
                    problems.append(str(error))
            obstacle = setting.obstacle()
            if obstacle:
                problems.append(f"{setting.name} cannot be set: {_with_remedy(obstacle)}")
        if problems:
            raise InputError("\n".join(problems))
        self._take_journal()
        present = self._journal_values({setting: None for setting, _ in settings})
        try:
            for setting, _ in settings:
                for file in () if setting.changes_cpus else setting.files:
                    self._try_file(setting, file, present[file])
        finally:
            self.restore()

    def set(self, values: Mapping[str, str]) -> None:
        """Set settings and read them back; those that are not named stay as they are.

        The present values are journalled before the first of them is written. Raises
        `RunError` when the kernel refused or took something else; then call `restore`. Raises
        `SettingChangedError` when somebody else changed what we had set, `InputError` for unknown
        names and values.
        """
        order = {
            setting.name: place for place, setting in enumerate(available_settings(self._root))
        }
        refuse_together({name: find_setting(name, self._root) for name in values})
        typed_values = {find_setting(name, self._root): value for name, value in values.items()}
        contents = {
            setting: setting.accept(typed_values[setting])
            for setting in sorted(typed_values, key=lambda setting: order[setting.name])
        }
        self._take_journal()
        present = self._journal_values(contents)
        for setting, content in contents.items():
            for file in setting.files:
                if not same_value(content, present[file]):
                    # A signal may come before it is read back; then it holds any value of ours.
                    self._last.pop(file, None)
                    try:
                        write_value(self._root, file, content)
                    except OSError as error:
                        typed_value = values.get(setting.name) or values[setting.also]
                        raise RunError(
                            f"{setting.name}={typed_value}: writing {error.filename}: "
                            f"{error.strerror}"
                        ) from error
        # Not one by one: some have their value only when another one is set as well.
        for setting, content in contents.items():
            for file in setting.files:
                self._last[file] = self._read(setting, file)
                if not same_value(content, self._last[file]):
                    self._adopt_value(file)
                    raise RunError(_describe_refusal(setting, file, content, self._last[file]))

    def refuse_taken(self) -> None:
        """Raise `SettingChangedError` when somebody changed what was set: runs since then had
        that.
        """
        for entry in self._entries.values():
            if entry.file in self._last:
                try:
                    value = read_value(self._root, entry.file)
                except OSError as error:
                    raise SettingChangedError(
                        f"{entry.knob}: reading {error.filename}: {error.strerror}"
                    ) from error
                self._refuse_changed(entry, value)

    def restore(self) -> None:
        """Put back everything that was set, the last first, and close the journal.

        Raises `RunError` that names what could not be put back. The journal keeps these entries
        with their first values, and so does this session: the next `set` or `restore` has them.
        """
        if self._owner is None or not self._entries:
            return
        with block_stop_signals():
            kept = write_values_back(self._root, tuple(self._entries.values()), force=False)
            entries_left = {file: entry for file, entry in self._entries.items() if entry in kept}
            close_journal(self._path, Journal(self._owner, tuple(entries_left.values())))
            self._entries = entries_left
            self._last.clear()
        if kept:
            text = "\n".join(describe_kept(self._root, kept))
            raise RunError(
                f"not all settings could be put back:\n{text}\n{restore_hint(self._path)}"
            )

    def _take_journal(self) -> None:
        if self._owner is not None:
            return
        self._stack.enter_context(journals.lock_journal(self._path, self._root))
        leftovers = read_leftovers(self._root, self._path)
        if leftovers is not None:
            self._stack.close()
            remedy = (
                "put that back first: `rater settings restore` (--force writes what was there over "
                "others' changes, --forget leaves all as it is)"
            )
            raise InputError(
                f"{leftovers.summary}; {remedy if leftovers.journal else leftovers.remedy}"
            )
        self._owner = journals.this_owner(self._root, self._what)

    def _journal_values(self, contents: Mapping[KernelSetting, str | None]) -> dict[str, str]:
        """Journal what the files of these settings hold and are to hold; return the former.

        None: nothing new.
        """
        present: dict[str, str] = {}
        entries = dict(self._entries)
        for setting, content in contents.items():
            for file in (*setting.files, *setting.stored, *setting.follows):
                if file not in present:
                    present[file] = self._read(setting, file)
                # The kernel spreads a total over its parts as it sees fit.
                is_beside = file not in setting.files
                earlier = entries.get(file)
                entry = earlier or Entry(
                    knob=setting.name,
                    file=file,
                    old=present[file],
                    ours=(),
                    approximate=setting.approximate,
                    beside=is_beside,
                )
                if earlier and not is_beside:
                    self._refuse_changed(entry, present[file])
                entry = replace(entry, beside=entry.beside or is_beside)
                if content is not None and not is_beside:
                    ours = tuple(dict.fromkeys((*entry.ours, content)))
                    entry = replace(entry, ours=ours)
                entries[file] = entry
        if entries != self._entries:
            assert self._owner is not None
            # First, so that whatever interrupts what follows, `restore` closes the journal.
            self._entries = entries
            try:
                journals.save(self._path, Journal(self._owner, tuple(entries.values())))
            except OSError as error:
                raise RunError(
                    f"{self._path}: {error.strerror}: what settings were could not be kept, so "
                    "none was changed; make room, or name another file with RATER_JOURNAL"
                ) from error
        return present

    def _refuse_changed(self, entry: Entry, value: str) -> None:
        last_value = self._last.get(entry.file)
        if last_value is None or entry.approximate:  # what one write made of it, another may change
            is_ours = entry.is_ours(value)
        else:
            is_ours = entry.beside or same_value(last_value, value)
        if not is_ours:
            expected = last_value or " or ".join(dict.fromkeys((entry.old, *entry.ours)))
            raise SettingChangedError(
                f"{entry.knob}: somebody else set {self._root / entry.file} to {value} while it "
                f"was to be {expected}: what ran since then did not run with that"
            )

    def _adopt_value(self, file: str) -> None:
        """Take what the kernel made of our write for ours, so that it is put back."""
        entry = self._entries[file]
        self._entries[file] = replace(entry, ours=(*entry.ours, self._last[file]))

    def _read(self, setting: KernelSetting, file: str) -> str:
        try:
            value = read_value(self._root, file)
        except OSError as error:
            raise RunError(f"{setting.name}: reading {error.filename}: {error.strerror}") from error
        if not journals.is_value(file, value):
            raise RunError(
                f"{setting.name}: {self._root / file} holds {value[:40]!r}, which could not be put "
                "back: leave this setting out"
            )
        return value

    def _try_file(self, setting: KernelSetting, file: str, value: str) -> None:
        try:
            write_value(self._root, file, value)
            value_after = read_value(self._root, file)
        except OSError as error:
            reason = _with_remedy(_PRIVILEGES.get(error.errno or 0, f"{error.strerror}"))
            raise InputError(
                f"{setting.name} cannot be set: writing {error.filename}: {error.strerror}"
                + (f": {reason}" if reason != error.strerror else "")
            ) from error
        if not same_value(value, value_after):
            raise InputError(
                f"{setting.name} cannot be set: {self._root / file} was {value}, and is "
                f"{value_after} after {value} was written"
            )


_PRIVILEGES = {
    errno.EACCES: "needs root",
    errno.EPERM: "needs root",
    errno.EROFS: "mounted read-only here",
}


def _with_remedy(obstacle: str) -> str:
    remedies = {
        "needs root": "; run rater with sudo",
        "mounted read-only here": "; run rater on the host, or with a writable /sys",
    }
    return obstacle + remedies.get(obstacle, "")


def refuse_together(settings: Mapping[str, KernelSetting]) -> None:
    """Refuse settings, by the names asked for, that are the same files, or lose them."""
    owners: dict[str, str] = {}
    for name, setting in settings.items():
        for file in setting.stored:
            other = owners.setdefault(file, name)
            if other != name:
                raise InputError(f"{other} and {name} set the same thing: leave one out")
    for setting_of_cpus in settings.values():
        of_cpus = [
            other.name
            for other in settings.values()
            if other.group == setting_of_cpus.group and other is not setting_of_cpus
        ]
        if setting_of_cpus.changes_cpus and of_cpus:
            raise InputError(
                f"{setting_of_cpus.name} takes away the CPUs that {of_cpus[0]} is to be set for: "
                "leave one out"
            )


def _describe_refusal(setting: KernelSetting, file: str, requested: str, value: str) -> str:
    text = (
        f"{setting.name}: asked for {requested}, the kernel made it {value} ({setting.root / file})"
    )
    if setting.approximate and file.endswith("nr_hugepages"):
        return (
            f"{text}: it had no more memory in one piece, or the pages are in use; `sync; echo 3 > "
            "/proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory` makes room, `rater "
            f"doctor -v` tells how many there can be, {_boot_parameters(file, requested)} reserves "
            "them"
        )
    return text


def _boot_parameters(file: str, pages: str) -> str:
    size = re.search(r"hugepages-(\d+)kB", file)
    node = re.search(r"/node(\d+)/", file)
    kilobytes = int(size[1]) if size else 0
    page_size = f"{kilobytes >> 20}G" if kilobytes >= 1 << 20 else f"{kilobytes >> 10}M"
    return f"booting with hugepagesz={page_size} hugepages={f'{node[1]}:' if node else ''}{pages}"
