"""The settings of a machine that rater knows how to set and to put back.

Names are short where people say them so (`thp`, `governor`, `aslr`); the names that runs are
recorded with (`thp.enabled`, `cpu.governor`, see `host.snapshot`) are taken too. Files and
values: Documentation/admin-guide/mm/transhuge.rst, mm/hugetlbpage.rst, mm/numaperf.rst,
pm/cpufreq.rst, pm/intel_pstate.rst, sysctl/vm.rst and sysctl/kernel.rst of the kernel.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.settings.setting import Knob, choices_of, read_value, there
from rater.text.cpuset import format_list, parse_set

_CPUS = "sys/devices/system/cpu"
_CPUFREQ = f"{_CPUS}/cpufreq"
_THP = "sys/kernel/mm/transparent_hugepage"
_KHUGEPAGED = f"{_THP}/khugepaged"
_POOLS = "sys/kernel/mm/hugepages"
_NODES = "sys/devices/system/node"
_VM, _KERNEL = "proc/sys/vm", "proc/sys/kernel"
# The kernel sets it anew whenever the last size of huge pages goes off or the first one comes on
# (mm/khugepaged.c: set_recommended_min_free_kbytes), and what the administrator had set is lost.
_MIN_FREE = f"{_VM}/min_free_kbytes"

_ON_OFF = (("on", "1"), ("off", "0"))
_ANY = ("always", "madvise", "never")
_DEFRAG = ("always", "defer", "defer+madvise", "madvise", "never")
_SHMEM = ("always", "within_size", "advise", "never", "deny", "force")
_OF_SIZE = ("always", "inherit", "madvise", "never")
_SHMEM_OF_SIZE = ("always", "inherit", "within_size", "advise", "never")
PAGES, POOLS, MEMORY, CPUS, KERNEL = (
    "transparent huge pages",
    "huge page pools",
    "memory",
    "CPUs",
    "kernel",
)
# Names, and what makes them exist: for the line that tells what a machine lacks.
_CPUFREQ_KNOBS = ("governor", "boost", "energy_preference", "max_khz", "min_khz")
# Everything a journal may name. Root puts back what stands in one: nothing else may be written.
_KNOWN = re.compile(
    rf"{_THP}/(enabled|defrag|shmem_enabled|khugepaged/\w+|hugepages-\d+kB/(shmem_)?enabled)|"
    rf"{_POOLS}/hugepages-\d+kB/nr_(overcommit_)?hugepages|"
    rf"{_NODES}/node\d+/hugepages/hugepages-\d+kB/nr_hugepages|"
    rf"{_CPUFREQ}/(policy\d+/)?(boost|scaling_governor|scaling_(max|min)_freq|"
    rf"energy_performance_preference)|{_CPUS}/intel_pstate/no_turbo|{_CPUS}/smt/control|"
    rf"{_VM}/(swappiness|zone_reclaim_mode|overcommit_memory|compaction_proactiveness|"
    rf"min_free_kbytes)|{_KERNEL}/(numa_balancing|randomize_va_space|nmi_watchdog)"
)


@dataclass(frozen=True, slots=True)
class Lacking:
    """Knobs that this machine does not have."""

    names: tuple[str, ...]
    why: str


def is_known_file(file: str) -> bool:
    """Tell whether a file, relative to the root, is one that a knob may set or put back."""
    return _KNOWN.fullmatch(file) is not None


def knobs(root: Path = Path("/")) -> tuple[Knob, ...]:
    """Return the knobs that this machine has, in the order in which several are set."""
    return (*_of_cpus(root), *_transparent(root), *_pools(root), *_numbers(root))


def lacking(root: Path = Path("/")) -> tuple[Lacking, ...]:
    """Return what this machine does not have, by reason."""
    names = {knob.name for knob in knobs(root)}
    found = []
    cpufreq = tuple(name for name in _CPUFREQ_KNOBS if name not in names)
    if cpufreq:
        none_at_all = not _policies(root)
        found.append(Lacking(cpufreq, "no cpufreq" if none_at_all else "not with this driver"))
    if "smt.control" not in names:
        found.append(Lacking(("smt.control",), _smt_state(root) or "no SMT control"))
    rest = tuple(
        name
        for name in ("thp", "numa_balancing", "zone_reclaim", "compaction_proactiveness")
        if name not in names
    )
    if rest:
        found.append(Lacking(rest, "this kernel was built without"))
    return tuple(found)


def find(name: str, root: Path = Path("/")) -> Knob:
    """Return the knob of that name. Raises `InputError` that names what there is."""
    here = knobs(root)
    for knob in here:
        if name in (knob.name, knob.also):
            return knob
    for gone in lacking(root):
        if name in gone.names:
            raise InputError(f"{name}: this machine does not have it ({gone.why})")
    every = [knob.name for knob in here]
    known = [*every, *(knob.also for knob in here)]
    below = [one for one in every if one.startswith(f"{name}.")][:3]
    close = below or difflib.get_close_matches(name, known, n=3)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    raise InputError(f"{name}: no setting that rater knows{meant} (`rater settings` has them all)")


def _of_cpus(root: Path) -> Iterator[Knob]:
    control = f"{_CPUS}/smt/control"
    if _smt_state(root) is None and (root / control).exists():
        yield Knob(
            name="smt.control",  # `smt` is an option of a run
            also="cpu.smt.control",
            group=CPUS,
            what="threads of a core; changes the machine's CPUs",
            root=root,
            files=(control,),
            choices=("on", "off"),
            changes_cpus=True,
            # `on` brings back every CPU, also those that somebody took offline one by one.
            blocked=_offline_by_hand(root),
        )
    policies = _policies(root)
    governors = tuple(there(root, *(f"{policy}/scaling_governor" for policy in policies)))
    preferences = tuple(
        there(root, *(f"{policy}/energy_performance_preference" for policy in policies))
    )
    if governors:
        yield Knob(
            name="governor",
            also="cpu.governor",
            group=CPUS,
            what="how a CPU chooses its frequency",
            root=root,
            files=governors,
            choices=_common(root, governors, "scaling_available_governors"),
            # With intel_pstate and amd-pstate the governor `performance` sets it.
            beside=preferences,
        )
    yield from _boost(root, policies)
    for name, file, what in (
        ("max_khz", "scaling_max_freq", "highest frequency, kHz"),
        ("min_khz", "scaling_min_freq", "lowest frequency, kHz"),
    ):
        files = tuple(there(root, *(f"{policy}/{file}" for policy in policies)))
        if files:
            yield Knob(
                name=name,
                also=f"cpu.{name}",
                group=CPUS,
                what=what,
                root=root,
                files=files,
                least=1,
                approximate=True,
            )
    if preferences:
        known = _common(root, preferences, "energy_performance_available_preferences")
        yield Knob(
            name="energy_preference",
            also="cpu.energy_preference",
            group=CPUS,
            what="the CPU's own leaning to speed or to power",
            root=root,
            files=preferences,
            # `default` is read back as the word that it stands for.
            choices=tuple(word for word in known if word != "default"),
        )


def _boost(root: Path, policies: tuple[str, ...]) -> Iterator[Knob]:
    """Yield the switch of turbo or boost frequencies, through whichever interface there is."""
    limits = tuple(
        there(
            root,
            *(f"{policy}/scaling_{end}_freq" for end in ("max", "min") for policy in policies),
        )
    )
    for file, also, words in (
        (f"{_CPUFREQ}/boost", "cpu.boost", _ON_OFF),
        (f"{_CPUS}/intel_pstate/no_turbo", "cpu.no_turbo", (("on", "0"), ("off", "1"))),
    ):
        if not (root / file).exists():
            continue
        parts = tuple(there(root, *(f"{policy}/boost" for policy in policies)))
        yield Knob(
            name="boost",
            also=also,
            group=CPUS,
            what="frequencies above the nominal one",
            root=root,
            files=(file,),
            choices=("on", "off"),
            words=words,
            # The switch of all sets those of the policies, and their limits (cpufreq.c).
            kept=(file, *parts) if file.endswith("/boost") else (),
            beside=limits,
        )
        return


def _transparent(root: Path) -> Iterator[Knob]:
    for name, file, what, known in (
        ("thp", "enabled", "who gets transparent huge pages", _ANY),
        ("thp.defrag", "defrag", "who waits for memory to be compacted", _DEFRAG),
        ("thp.shmem", "shmem_enabled", "huge pages in shared memory", _SHMEM),
    ):
        if (root / _THP / file).exists():
            yield Knob(
                name=name,
                also=f"thp.{file}",
                group=PAGES,
                what=what,
                root=root,
                files=(f"{_THP}/{file}",),
                choices=choices_of(root, f"{_THP}/{file}") or known,
                beside=tuple(there(root, _MIN_FREE)) if name == "thp" else (),
            )
    for folder in sorted((root / _THP).glob("hugepages-*kB"), key=_kilobytes):
        size = folder.name.removeprefix("hugepages-")
        for name, file, what, kinds in (
            (f"thp.{size}", "enabled", f"who gets pages of {size}", _OF_SIZE),
            (f"thp.{size}.shmem", "shmem_enabled", "the same in shared memory", _SHMEM_OF_SIZE),
        ):
            path = f"{_THP}/{folder.name}/{file}"
            if (root / path).exists():
                yield Knob(
                    name=name,
                    also=f"thp.{size}.{file}",
                    group=PAGES,
                    what=what,
                    root=root,
                    files=(path,),
                    choices=choices_of(root, path) or kinds,
                    beside=tuple(there(root, _MIN_FREE)) if file == "enabled" else (),
                )
    for name, file, what, least, most in (
        ("defrag", "defrag", "khugepaged waits for compaction (1 yes)", 0, 1),
        ("pages", "pages_to_scan", "pages khugepaged looks at in a round", 1, 1 << 32),
        ("sleep_ms", "scan_sleep_millisecs", "ms between its rounds", 0, 1 << 32),
        ("retry_ms", "alloc_sleep_millisecs", "ms after it found no huge page", 0, 1 << 32),
        ("max_empty", "max_ptes_none", "empty pages it fills up for a huge one", 0, 1 << 16),
    ):
        if (root / _KHUGEPAGED / file).exists():
            yield Knob(
                name=f"khugepaged.{name}",
                also=f"thp.khugepaged_{file}",
                group=PAGES,
                what=what,
                root=root,
                files=(f"{_KHUGEPAGED}/{file}",),
                least=least,
                most=most,
            )


def _pools(root: Path) -> Iterator[Knob]:
    nodes = sorted(
        (root / _NODES).glob("node[0-9]*"), key=lambda it: int(it.name.removeprefix("node"))
    )
    for folder in sorted((root / _POOLS).glob("hugepages-*kB"), key=_kilobytes):
        size = folder.name.removeprefix("hugepages-")
        parts = tuple(
            there(
                root,
                *(f"{_NODES}/{node.name}/hugepages/{folder.name}/nr_hugepages" for node in nodes),
            )
        )
        yield Knob(
            name=f"hugepages.{size}",
            group=POOLS,
            what="kept for those who ask, on all nodes",
            root=root,
            files=(f"{_POOLS}/{folder.name}/nr_hugepages",),
            most=1 << 40,
            # The total alone would not tell where they were.
            kept=(f"{_POOLS}/{folder.name}/nr_hugepages", *parts),
            approximate=True,
        )
        for part in parts:
            node = part.split("/")[4]
            yield Knob(
                name=f"hugepages.{size}.{node}",
                also=f"hugepages.{node}.{size}.total",
                group=POOLS,
                what=f"the same on {node}",
                root=root,
                files=(part,),
                most=1 << 40,
                approximate=True,
            )
        overcommit = f"{_POOLS}/{folder.name}/nr_overcommit_hugepages"
        # Pages of more than the buddy allocator has cannot come later: their file takes nothing.
        if (root / overcommit).exists():
            yield Knob(
                name=f"hugepages.{size}.overcommit",
                also=f"hugepages.{size}.overcommit",
                group=POOLS,
                what="so many more may be made on demand",
                root=root,
                files=(overcommit,),
                most=1 << 40,
            )


def _numbers(root: Path) -> Iterator[Knob]:
    for group, name, file, what, most in (
        (
            MEMORY,
            "numa_balancing",
            f"{_KERNEL}/numa_balancing",
            "pages follow their user (0 off)",
            3,
        ),
        (MEMORY, "zone_reclaim", f"{_VM}/zone_reclaim_mode", "reclaim before going far (0 no)", 7),
        (MEMORY, "swappiness", f"{_VM}/swappiness", "swap out (high) or drop cache (0)", 200),
        (
            *(MEMORY, "compaction_proactiveness", f"{_VM}/compaction_proactiveness"),
            *("compaction ahead of need (0 off)", 100),
        ),
        (
            MEMORY,
            "overcommit",
            f"{_VM}/overcommit_memory",
            "promise memory (0 guess, 1 yes, 2 no)",
            2,
        ),
        (KERNEL, "aslr", f"{_KERNEL}/randomize_va_space", "random addresses (0 off, 2 all)", 2),
        (
            KERNEL,
            "nmi_watchdog",
            f"{_KERNEL}/nmi_watchdog",
            "takes a counter of each CPU (0 off)",
            1,
        ),
    ):
        if (root / file).exists():
            family = "vm" if file.startswith(_VM) else "kernel"
            yield Knob(
                name=name,
                also=f"{family}.{Path(file).name}",
                group=group,
                what=what,
                root=root,
                files=(file,),
                most=most,
            )


def _policies(root: Path) -> tuple[str, ...]:
    found = [
        folder.name
        for folder in (root / _CPUFREQ).glob("policy*")
        if folder.name.removeprefix("policy").isdecimal()
    ]
    return tuple(
        f"{_CPUFREQ}/{name}"
        for name in sorted(found, key=lambda name: int(name.removeprefix("policy")))
    )


def _common(root: Path, files: tuple[str, ...], list_name: str) -> tuple[str, ...]:
    """Return the words that every policy takes, in the order of the first."""
    lists = []
    for file in files:
        try:
            lists.append((root / file).with_name(list_name).read_text().split())
        except OSError:  # a driver without a list takes the word it has
            lists.append([_word(root, file)])
    return tuple(word for word in lists[0] if all(word in other for other in lists))


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
    if _word(root, f"{_CPUS}/smt/control") != "on":
        return ""
    try:
        offline = parse_set(_word(root, f"{_CPUS}/offline"))
        offline &= parse_set(_word(root, f"{_CPUS}/present"))
    except ValueError as error:
        return f"{root / _CPUS}: {error}"
    return f"CPUs {format_list(offline)} are offline and would come back" if offline else ""


def _kilobytes(folder: Path) -> int:
    digits = folder.name.removeprefix("hugepages-").removesuffix("kB")
    return int(digits) if digits.isdecimal() else 0
