"""The settings of a machine that rater knows, and one of them: its files, read and set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text.cpuset import format_list

# Names are short where people say them so (`thp`, `governor`, `aslr`); the names that runs are
# recorded with (`thp.enabled`, `cpu.governor`) are taken too. Files and values:
# Documentation/admin-guide/mm/transhuge.rst, mm/hugetlbpage.rst, mm/numaperf.rst, pm/cpufreq.rst,
# pm/intel_pstate.rst, sysctl/vm.rst and sysctl/kernel.rst of the kernel.

# Stand for folders in files and for the same words in names.
_PLACEHOLDERS = {
    "policy": r"policy\d+",
    "size": r"\d+kB",
    "node": r"node\d+",
    "vulnerability": r"\w+",
}
_PLACEHOLDER = compile_later(r"\{(\w+)\}")
LAYOUT_TEXT = "layout.text"  # recorded with a run: the user's own layout file as it was
NO_LIMIT = 1 << 62  # more than any setting of the kernel takes
_READINGS = ("load.", "memory.", "rater.", "unread.")
# Facts that no setting changes: `rater.run.host.hardware`.
HARDWARE = ("firmware.", "dimms.", "dimm.", "hmat.", "cache.", "tlb.", "cpu.nodes_per_package")
# What no setting of a running machine changes, either.
COMMAND_LINE = "kernel.cmdline"
FIXED = (*HARDWARE, "kernel.page_bytes", COMMAND_LINE)
# Earlier raters did not record these, and some only root can read: compared where both runs have
# them.
WHERE_READ = (
    *(*HARDWARE, "tuned.", "kernel.page_bytes", "cpu.idle_", "cpu.latency_"),
    *("process.", "limit.", "cgroup.isolated_cpus", "cgroup.memory_oom_group"),
)
_HUGE_PAGES_IN_USE = ("free", "reserved", "surplus")

_CPUS = "sys/devices/system/cpu"
_POLICY = f"{_CPUS}/cpufreq/{{policy}}"
_THP = "sys/kernel/mm/transparent_hugepage"
_THP_GROUP = "transparent huge pages"
_POOL = "sys/kernel/mm/hugepages/hugepages-{size}"
_NODE_POOL = "sys/devices/system/node/{node}/hugepages/hugepages-{size}"
# The kernel sets it anew whenever the last size of huge pages goes off or the first one comes on
# (mm/khugepaged.c: set_recommended_min_free_kbytes), and what the administrator had set is lost.
_MIN_FREE = "proc/sys/vm/min_free_kbytes"
_LIMITS = (f"{_POLICY}/scaling_max_freq", f"{_POLICY}/scaling_min_freq")
_MOST_PAGES = 1 << 40  # more than any machine has


class KnownSetting(Struct, frozen=True, kw_only=True):
    """One setting; files are relative to the root and may have placeholders, `{size}`."""

    name: str = ""  # as users set it; "": it is only recorded
    also: str = ""  # as runs record it; "": they do not
    files: tuple[str, ...]  # each is written when it is set
    group: str = ""  # words above its rows in a table
    what: str = ""  # in few words
    choices: tuple[str, ...] | None = None  # None: numbers
    choices_in: str = ""  # a file beside `files` that lists them
    least: int = 0
    most: int = NO_LIMIT
    words: tuple[tuple[str, str], ...] = ()  # what a user types, what the file has for it
    kept: tuple[str, ...] = ()  # read and put back instead of `files`: a total and its parts
    follows: tuple[str, ...] = ()  # the kernel changes them by itself with it: put back as well
    approximate: bool = False  # the kernel takes the nearest it can, and may stop half way
    changes_cpus: bool = False  # CPUs come and go with it


def _cpu_settings() -> Iterator[KnownSetting]:
    group = "CPUs"
    yield KnownSetting(
        name="smt.control",  # `smt` is an option of a run
        also="cpu.smt.control",
        files=(f"{_CPUS}/smt/control",),
        group=group,
        what="threads of a core; changes the machine's CPUs",
        choices=("on", "off"),
        changes_cpus=True,
    )
    yield KnownSetting(
        name="governor",
        also="cpu.governor",
        files=(f"{_POLICY}/scaling_governor",),
        group=group,
        what="how a CPU chooses its frequency",
        choices_in="scaling_available_governors",
        # With intel_pstate and amd-pstate the governor `performance` sets it.
        follows=(f"{_POLICY}/energy_performance_preference",),
    )
    for also, file, on_content, off_content, parts in (
        # The switch of all sets those of the policies, and their limits (cpufreq.c).
        ("cpu.boost", f"{_CPUS}/cpufreq/boost", "1", "0", (f"{_POLICY}/boost",)),
        ("cpu.no_turbo", f"{_CPUS}/intel_pstate/no_turbo", "0", "1", ()),
    ):
        yield KnownSetting(
            name="boost",
            also=also,
            files=(file,),
            group=group,
            what="frequencies above the nominal one",
            choices=("on", "off"),
            words=(("on", on_content), ("off", off_content)),
            kept=(file, *parts),
            follows=_LIMITS,
        )
    for limit, superlative, file in zip(
        ("max", "min"), ("highest", "lowest"), _LIMITS, strict=True
    ):
        yield KnownSetting(
            name=f"{limit}_khz",
            also=f"cpu.{limit}_khz",
            files=(file,),
            group=group,
            what=f"{superlative} frequency, kHz",
            least=1,
            approximate=True,
        )
    yield KnownSetting(
        name="energy_preference",
        also="cpu.energy_preference",
        files=(f"{_POLICY}/energy_performance_preference",),
        group=group,
        what="the CPU's own leaning to speed or to power",
        choices_in="energy_performance_available_preferences",
    )


def _huge_page_switch(
    name: str, file: str, about: str, choices: tuple[str, ...], also: str = "thp"
) -> KnownSetting:
    file_name = file.rpartition("/")[2]
    return KnownSetting(
        name=name,
        also=f"{also}.{file_name}",
        files=(f"{_THP}/{file}",),
        group=_THP_GROUP,
        what=about,
        choices=choices,
        follows=(_MIN_FREE,) if file_name == "enabled" else (),
    )


def _transparent_huge_pages() -> Iterator[KnownSetting]:
    yield _huge_page_switch(
        "thp",
        "enabled",
        "who gets transparent huge pages",
        choices=("always", "madvise", "never"),
    )
    yield _huge_page_switch(
        "thp.defrag",
        "defrag",
        "who waits for memory to be compacted",
        choices=("always", "defer", "defer+madvise", "madvise", "never"),
    )
    yield _huge_page_switch(
        "thp.shmem",
        "shmem_enabled",
        "huge pages in shared memory",
        choices=("always", "within_size", "advise", "never", "deny", "force"),
    )
    yield _huge_page_switch(
        "thp.{size}",
        "hugepages-{size}/enabled",
        "who gets pages of {size}",
        choices=("always", "inherit", "madvise", "never"),
        also="thp.{size}",
    )
    yield _huge_page_switch(
        "thp.{size}.shmem",
        "hugepages-{size}/shmem_enabled",
        "the same in shared memory",
        choices=("always", "inherit", "within_size", "advise", "never"),
        also="thp.{size}",
    )
    for name, file, about, least, most in (
        ("defrag", "defrag", "khugepaged waits for compaction (1 yes)", 0, 1),
        ("pages", "pages_to_scan", "pages khugepaged looks at in a round", 1, 1 << 32),
        ("sleep_ms", "scan_sleep_millisecs", "ms between its rounds", 0, 1 << 32),
        ("retry_ms", "alloc_sleep_millisecs", "ms after it found no huge page", 0, 1 << 32),
        ("max_empty", "max_ptes_none", "empty pages it fills up for a huge one", 0, 1 << 16),
    ):
        yield KnownSetting(
            name=f"khugepaged.{name}",
            also=f"thp.khugepaged_{file}",
            files=(f"{_THP}/khugepaged/{file}",),
            group=_THP_GROUP,
            what=about,
            least=least,
            most=most,
        )


def _huge_page_pools() -> Iterator[KnownSetting]:
    group = "huge page pools"
    total, of_node = f"{_POOL}/nr_hugepages", f"{_NODE_POOL}/nr_hugepages"
    yield KnownSetting(
        name="hugepages.{size}",
        files=(total,),
        group=group,
        what="pages reserved for explicit requests, on all nodes",
        most=_MOST_PAGES,
        kept=(total, of_node),  # the total alone would not tell on which nodes they were
        approximate=True,
    )
    yield KnownSetting(
        name="hugepages.{size}.{node}",
        also="hugepages.{node}.{size}.total",
        files=(of_node,),
        group=group,
        what="the same on {node}",
        most=_MOST_PAGES,
        approximate=True,
    )
    yield KnownSetting(
        name="hugepages.{size}.overcommit",
        also="hugepages.{size}.overcommit",
        files=(f"{_POOL}/nr_overcommit_hugepages",),
        group=group,
        what="maximum extra pages on demand",
        most=_MOST_PAGES,
    )


def _sysctls() -> Iterator[KnownSetting]:
    for name, also, about, most in (
        ("numa_balancing", "kernel.numa_balancing", "pages follow their user (0 off)", 3),
        ("zone_reclaim", "vm.zone_reclaim_mode", "reclaim before going far (0 no)", 7),
        ("swappiness", "vm.swappiness", "swap out (high) or drop cache (0)", 200),
        (
            "compaction_proactiveness",
            "vm.compaction_proactiveness",
            "compaction ahead of need (0 off)",
            100,
        ),
        ("overcommit", "vm.overcommit_memory", "promise memory (0 guess, 1 yes, 2 no)", 2),
        ("aslr", "kernel.randomize_va_space", "random addresses (0 off, 2 all)", 2),
        ("nmi_watchdog", "kernel.nmi_watchdog", "takes a counter of each CPU (0 off)", 1),
    ):
        yield KnownSetting(
            name=name,
            also=also,
            files=(f"proc/sys/{also.replace('.', '/')}",),
            group="kernel" if name in ("aslr", "nmi_watchdog") else "memory",
            what=about,
            most=most,
        )
    yield KnownSetting(
        name="ksm",
        also="ksm.run",
        files=("sys/kernel/mm/ksm/run",),
        group="memory",
        what="merges equal pages (0 off, 1 on, 2 parts them)",
        most=2,
    )


# In the order in which several are set.
SETTABLE = (*_cpu_settings(), *_transparent_huge_pages(), *_huge_page_pools(), *_sysctls())
KNOWN = SETTABLE + tuple(
    KnownSetting(also=also, files=(file,))
    for also, file in (
        ("kernel.release", "proc/sys/kernel/osrelease"),
        ("kernel.version", "proc/sys/kernel/version"),
        ("kernel.cmdline", "proc/cmdline"),
        ("vm.min_free_kbytes", _MIN_FREE),
        ("cpu.driver", f"{_POLICY}/scaling_driver"),
        ("cpu.idle_driver", f"{_CPUS}/cpuidle/current_driver"),
        ("cpu.smt.active", f"{_CPUS}/smt/active"),
        ("cpu.isolated", f"{_CPUS}/isolated"),
        ("cpu.nohz_full", f"{_CPUS}/nohz_full"),
        ("cpu.offline", f"{_CPUS}/offline"),
        ("mitigation.{vulnerability}", f"{_CPUS}/vulnerabilities/{{vulnerability}}"),
        ("hugepages.{node}.{size}.free", f"{_NODE_POOL}/free_hugepages"),
        ("clocksource", "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ("kernel.perf_event_paranoid", "proc/sys/kernel/perf_event_paranoid"),
        ("irq.default_affinity", "proc/irq/default_smp_affinity"),
        ("firmware.version", "sys/class/dmi/id/bios_version"),
        ("firmware.date", "sys/class/dmi/id/bios_date"),
        ("tuned.profile", "etc/tuned/active_profile"),
    )
)


def expand_pattern(pattern: str, values: Mapping[str, str]) -> str:
    """Return a pattern with those of its placeholders that have a value replaced by it."""
    return _PLACEHOLDER.sub(lambda placeholder: values.get(placeholder[1], placeholder[0]), pattern)


@cache
def matcher(pattern: str) -> re.Pattern[str]:
    """Return what matches a pattern with placeholders, each a group of its name."""
    pieces = _PLACEHOLDER.split(pattern)  # every second piece is the word of a placeholder
    parts = (
        f"(?P<{piece}>{_PLACEHOLDERS[piece]})" if position % 2 else re.escape(piece)
        for position, piece in enumerate(pieces)
    )
    return re.compile("".join(parts))


def is_known_file(file: str) -> bool:
    """Tell whether a file, relative to the root, is one that may be set or put back.

    Root puts back what stands in a journal: nothing else may be written.
    """
    patterns = (
        pattern
        for setting in SETTABLE
        for pattern in (*setting.files, *setting.kept, *setting.follows)
    )
    return any(matcher(pattern).fullmatch(file) for pattern in patterns)


def is_number_file(file: str) -> bool:
    """Tell whether a file of a setting holds a number, and never a word."""
    patterns = (
        pattern
        for setting in SETTABLE
        if (setting.choices or setting.choices_in) and not setting.words
        for pattern in setting.files
    )
    return not any(matcher(pattern).fullmatch(file) for pattern in patterns)


def changes_with(setting: str, recorded: str) -> bool:
    """Tell whether a recorded setting is the one that is called `setting`, or follows from it."""
    for settable in SETTABLE:
        files = {*settable.files, *settable.kept, *settable.follows}
        for name in (settable.name, settable.also):
            match = matcher(name).fullmatch(setting)
            if match and any(
                matcher(expand_pattern(other.also, match.groupdict())).fullmatch(recorded)
                for other in KNOWN
                if other is settable or files.intersection(other.files)
            ):
                return True
    return False


def is_volatile(name: str) -> bool:
    """Tell whether a recorded setting is a reading that differs between any two runs."""
    family, _, last = name.rpartition(".")
    if family.partition(".")[0] == "hugepages":
        return last in _HUGE_PAGES_IN_USE
    return name.startswith(_READINGS)


# -- One setting of the machine: the files it is, the values it takes, how it is read and written --

_CHOSEN = compile_later(r"\[([^\[\]]+)\]")
_UNIT = compile_later(r"/(?:policy|node)(\d+)/")
_MOST_BYTES = 4096  # of a file of /sys: a page
_SWITCH = {"1": "on", "0": "off"}


class CurrentValue(Struct, frozen=True):
    """What a setting's files say now; `files` are pairs of file and value, in its order."""

    files: tuple[tuple[str, str], ...]
    words: tuple[tuple[str, str], ...] = ()  # as `KernelSetting.words`

    @property
    def description(self) -> str:
        """The one value of all files, or `performance (0-3), powersave (4-7)` by CPU or node."""
        meaning = {content: word for word, content in self.words}
        groups: dict[str, list[int]] = {}
        for file, value in self.files:
            unit = _UNIT.search(f"/{file}")
            groups.setdefault(meaning.get(value, value), []).append(int(unit[1]) if unit else 0)
        if len(groups) == 1:
            return next(iter(groups))
        return ", ".join(f"{value} ({format_list(groups[value])})" for value in sorted(groups))


class KernelSetting(KnownSetting, frozen=True, kw_only=True):
    """A setting that this machine has. Below another root a tree of plain files will do."""

    root: Path
    blocked: str = ""  # why it must not be set as things are

    @property
    def stored(self) -> tuple[str, ...]:
        """The files whose values are kept, and all put back at the end."""
        return self.kept or self.files

    def read(self) -> CurrentValue:
        """Return the present values. Raises `InputError` for what cannot be read."""
        try:
            contents = tuple((file, read_value(self.root, file)) for file in self.files)
        except OSError as error:
            raise InputError(f"{self.name}: reading {error.filename}: {error.strerror}") from error
        return CurrentValue(contents, self.words)

    def accept(self, value: str) -> str:
        """Return what is written into the files for a value that a user typed.

        Raises `InputError` that names the values there are.
        """
        word = value.strip()
        if self.words:
            word = _SWITCH.get(word, word)
        if self.choices is not None:
            if word not in self.choices:
                choices = ", ".join(self.choices)
                raise InputError(f"{self.name}={value}: expected one of {choices}")
            return dict(self.words).get(word, word)
        if not re.fullmatch(r"-?\d{1,18}", word) or not self.least <= int(word) <= self.most:
            bounds = f"{self.least} to {self.most}" if self.most < NO_LIMIT else f"{self.least} up"
            raise InputError(f"{self.name}={value}: expected a whole number, {bounds}")
        return str(int(word))

    def obstacle(self) -> str | None:
        """Return why this process cannot set it, None when it should be able to; only looks."""
        if self.blocked:
            return self.blocked
        for file in self.files:
            path = self.root / file
            try:
                state = path.stat()
                mount = os.statvfs(path)
            except OSError as error:
                return f"{path}: {error.strerror}"
            if mount.f_flag & os.ST_RDONLY:
                return "mounted read-only here"
            if not state.st_mode & 0o222:
                return "the kernel only tells it"
            if not os.access(path, os.W_OK):
                return "needs root"
        return None


def same_value(expected: str, got: str) -> bool:
    """Tell whether two values of a file mean the same: numbers by value, words as they are."""
    return got == expected or (is_number(expected) and is_number(got) and int(expected) == int(got))


def is_number(text: str) -> bool:
    """Tell whether a file's value is a whole number."""
    return re.fullmatch(r"-?\d+", text) is not None


def read_value(root: Path, file: str) -> str:
    """Return a file's value: of a choice like `always [madvise] never` the chosen word.

    Only the first line counts. Raises `OSError`, with the file's name.
    """
    path = root / file
    try:
        with path.open("rb") as opened:
            content = opened.read(_MOST_BYTES)
    except OSError as error:  # raised by a read, it has no name
        raise OSError(error.errno, error.strerror, str(path)) from error
    lines = content.decode("utf-8", "replace").splitlines()
    line = lines[0].strip() if lines else ""
    chosen = _CHOSEN.search(line)
    return chosen[1] if chosen else line


def write_value(root: Path, file: str, value: str) -> None:
    """Write a value as `echo` does, in one system call. Raises `OSError`, with the file's name."""
    path = root / file
    try:
        number = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(number, f"{value}\n".encode())
        finally:
            os.close(number)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def choices_of(root: Path, file: str) -> tuple[str, ...]:
    """Return the words of a file that shows its choices; nothing where it shows none."""
    try:
        line = (root / file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(line.replace("[", "").replace("]", "").split()) if _CHOSEN.search(line) else ()
