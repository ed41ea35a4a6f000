"""The doctor's checks of memory and of the kernel, and what all checks say of a machine; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rater.analysis.doctor import cpus
from rater.analysis.doctor.findings import (
    Checks,
    DoctorFinding,
    DoctorVerdict,
    MachineFacts,
    Opinion,
    bad,
    consider,
    good,
    unknown,
)
from rater.analysis.doctor.inherited import has_fixed_addresses, inherited_states
from rater.record.stored import StoredRun
from rater.system.patterns import compile_later

_CHECKS = Checks()
_NOT_BUILT = "this kernel was built without"
_THP = "/sys/kernel/mm/transparent_hugepage"
_BROKEN, _LITTLE = 0.5, 0.1  # of the free memory lies in blocks of a huge page
_STUCK = 0.3  # of all blocks cannot be compacted
_MTHP = compile_later(r"(\d{1,7})kB\.enabled", re.ASCII)
_POOL = compile_later(r"(node\d+)\.(\d+)kB\.(total|free)")
_MUCH_SWAPPED_BYTES = 64 << 20
_FILES_OF_RATER, _FILES_A_COPY = 128, 8  # its own gates, a pidfd, counters
_LEAST_TASKS = 256
_LEAST_STACK = _LEAST_LOCKED = 8 << 20


@_CHECKS.add("NUMA balancing", "kernel.numa_balancing", absent=_NOT_BUILT, fine="0")
def numa_balancing(facts: MachineFacts, value: str) -> Opinion:
    """the kernel unmaps and moves pages while copies run."""
    if facts.nodes == 1:
        return good("on, but there is only one NUMA node")
    return bad(
        f"{value}: pages move and fault while copies run",
        "sysctl -w kernel.numa_balancing=0",
        numa_balancing="0",
    )


@_CHECKS.add("zone reclaim", "vm.zone_reclaim_mode", absent=_NOT_BUILT, fine="0")
def zone_reclaim(facts: MachineFacts, value: str) -> Opinion:
    """allocations wait although other memory is free."""
    return consider(
        f"{value}: allocations may wait for reclaim on a NUMA node",
        "sysctl -w vm.zone_reclaim_mode=0",
        zone_reclaim="0",
    )


@_CHECKS.add("THP", "thp.enabled process.thp", absent="this kernel has none")
def thp(facts: MachineFacts, value: str) -> Opinion:
    """huge pages cost fewer page walks: all copies should have them, or none."""
    if value != "never" and facts.text_of("process.thp") == "off":
        return consider(
            f"{value}, but switched off for rater and all it starts (prctl PR_SET_THP_DISABLE)",
            "start rater without MemoryTHP= of systemd, or `rater run --hugepages thp ...`",
        )
    if value == "always":
        return consider(
            "always: copies get huge pages while contiguous memory lasts, so not all alike",
            f"echo madvise > {_THP}/enabled, then `rater run --hugepages madvise ...`",
        )
    if value == "never":
        return consider("never: no copy can have huge pages", f"echo madvise > {_THP}/enabled")
    return good(f"{value}: only programs that ask get huge pages")


@_CHECKS.add("THP defrag", "thp.defrag", absent="this kernel has no transparent huge pages")
def thp_defrag(facts: MachineFacts, value: str) -> Opinion:
    """a page fault that compacts memory takes milliseconds."""
    if value == "always":
        return bad(
            "always: a page fault may wait for compaction",
            f"echo madvise > {_THP}/defrag",
            **{"thp.defrag": "madvise"},
        )
    return good(value)


@_CHECKS.add("mTHP", "thp.")
def medium_pages(facts: MachineFacts, value: str) -> Opinion:
    """pages between small and huge depend on free memory, so copies may differ."""
    sizes = {
        int(match[1]): value
        for name, value in facts.below("thp.").items()
        if (match := _MTHP.fullmatch(name))
    }
    if len(sizes) < 2:
        return unknown("this kernel has huge pages of one size")
    always = {"always"} | ({"inherit"} if facts.text_of("thp.enabled") == "always" else set())
    on = [size for size in sorted(sizes)[:-1] if sizes[size] in always]
    if not on:
        return good("only programs that ask get them, if any")
    shown = ", ".join(map(str, on))
    return consider(
        f"{shown} kB: always, while memory has pieces of that size",
        f"echo never | tee {_THP}/hugepages-{{{','.join(map(str, on))}}}kB/enabled",
    )


@_CHECKS.add("khugepaged", "thp.enabled thp.khugepaged_")
def khugepaged(facts: MachineFacts, value: str) -> Opinion:
    """it stops a running copy to make one huge page of many small ones."""
    pages, sleep_ms = (
        facts.number(f"thp.khugepaged_{name}") for name in ("pages_to_scan", "scan_sleep_millisecs")
    )
    if pages is None or sleep_ms is None:
        return unknown("this kernel has none, or an older rater did not look")
    if facts.text_of("thp.enabled") == "never":
        return good("nothing to do: THP is off")
    shown = f"scans {pages:g} pages every {sleep_ms / 1e3:g} s"
    if facts.text_of("thp.khugepaged_defrag") == "0":
        return good(f"{shown}, and does not compact memory")
    return consider(f"{shown}, and compacts memory", f"echo 0 > {_THP}/khugepaged/defrag")


@_CHECKS.add("fragmentation", "memory.")
def fragmentation(facts: MachineFacts, value: str) -> Opinion:
    """copies that start late get small pages."""
    shares: dict[str, float] = {}
    for name in facts.below("memory.node"):
        node = name.partition(".")[0]
        pieces = facts.number(f"memory.node{node}.free_huge_order_bytes")
        free = facts.number(f"memory.node{node}.free_bytes")
        if pieces is not None and free:
            shares[node] = min(1.0, pieces / free)
    if not shares:
        return unknown("the kernel does not report it (/proc/buddyinfo)")
    fixed = {
        node: share
        for node in shares
        if (share := facts.number(f"memory.node{node}.unmovable_share")) is not None
    }
    node, worst = min(shares.items(), key=lambda it: it[1])
    text = f"{worst:.0%} of NUMA node {node}'s free memory is contiguous enough for huge pages"
    command = "sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory"
    if worst < _LITTLE:
        return bad(text, command)
    if worst < _BROKEN:
        return consider(text, command)
    stuck, share = max(fixed.items(), key=lambda it: it[1], default=("", 0.0))
    if share >= _STUCK:
        return consider(
            f"{share:.0%} of NUMA node {stuck}'s blocks hold memory that the kernel cannot move",
            "reserve pools at boot: hugepagesz=1G hugepages=N",
        )
    return good(text)


@_CHECKS.add("pools", "hugepages.")
def pools(facts: MachineFacts, value: str) -> Opinion:
    """only programs that ask for huge pages can use reserved memory."""
    reserved = [
        (node, int(size) << 10, state, int(value))
        for name, value in facts.below("hugepages.").items()
        if (at := _POOL.fullmatch(name)) and value.isdecimal()
        for node, size, state in [at.groups()]
    ]
    if not reserved:
        return unknown("this kernel has no pools of huge pages")
    total = sum(size * pages for _, size, state, pages in reserved if state == "total")
    free = sum(size * pages for _, size, state, pages in reserved if state == "free")
    if free:
        return consider(
            f"{_gb(free)} of {_gb(total)} reserved but unused: other programs cannot use it",
            "echo 0 | tee /sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages",
        )
    return good(f"{_gb(total)}, all in use" if total else "none reserved")


@_CHECKS.add("KSM", "ksm.run", absent=f"{_NOT_BUILT}, or an older rater did not look")
def ksm(facts: MachineFacts, value: str) -> Opinion:
    """it merges equal pages of copies, which a write copies again."""
    if value == "1":
        return bad(
            "on: it merges equal pages of copies, and a write parts them again",
            "echo 0 > /sys/kernel/mm/ksm/run",
            ksm="0",
        )
    return good("off")


@_CHECKS.add("swap", "swap. memory.swap_free_bytes vm.swappiness")
def swap(facts: MachineFacts, value: str) -> Opinion:
    """a page on a disk is a million cycles away."""
    total, free = facts.number("swap.total_bytes"), facts.number("memory.swap_free_bytes")
    if total is None:
        return unknown("not known")
    if not total:
        return good("none")
    used = 0 if free is None else total - free
    if used > _MUCH_SWAPPED_BYTES:
        return bad(f"{_gb(used)} of {_gb(total)} in use", "swapoff -a", swappiness="0")
    if facts.text_of("vm.swappiness") == "0":
        return good(f"{_gb(total)}, swappiness 0")
    return consider(
        f"{_gb(total)}, swappiness {facts.text_of('vm.swappiness') or 'not known'}",
        "swapoff -a, or sysctl -w vm.swappiness=0",
        swappiness="0",
    )


@_CHECKS.add("memory limit", "cgroup.memory_limit_bytes cgroup.memory_oom_group")
def memory_limit(facts: MachineFacts, value: str) -> Opinion:
    """copies beyond it are killed or swapped."""
    limit = facts.number("cgroup.memory_limit_bytes")
    if limit is None:
        return good("no cgroup limits it") if facts.now else unknown("not kept with this run")
    together = facts.text_of("cgroup.memory_oom_group") == "yes"
    too = ", and rater with them (memory.oom.group)" if together else ""
    return consider(
        f"a cgroup allows {_gb(limit)}, page cache included; copies beyond that are killed{too}",
        "run outside of it, or raise its memory.max",
    )


@_CHECKS.add("ASLR", "kernel.randomize_va_space process.personality", absent="not known")
def aslr(facts: MachineFacts, value: str) -> Opinion:
    """a fixed address layout can be 10 % faster or slower by chance."""
    if has_fixed_addresses(facts.values):
        return consider(
            "off for rater and all it starts: all copies have the same layout, fast or slow by "
            "chance",
            "start rater without setarch -R",
        )
    if value == "2":
        return good("all addresses are random")
    return consider(
        f"{value}: all copies have the same layout, fast or slow by chance",
        "sysctl -w kernel.randomize_va_space=2",
    )


@_CHECKS.add("perf", "kernel.perf_event_paranoid rater.may_count")
def perf(facts: MachineFacts, value: str) -> Opinion:
    """without counters the cause of a slow copy stays unknown."""
    level, refused = facts.number("kernel.perf_event_paranoid"), facts.text_of("rater.perf_refused")
    command = "sysctl -w kernel.perf_event_paranoid=0"
    if refused is not None or level is None:
        return bad(*refused.split("\n", 1)) if refused else unknown("this kernel counts no events")
    if facts.text_of("cpu.counters") == "no":
        return consider(
            "no hardware counters (PMU) here: only page faults and switches are counted",
            "a virtual PMU from the host (KVM: <pmu state='on'/>), or a bare-metal machine",
        )
    if facts.text_of("rater.may_count") == "yes" or level <= 0:
        return good(f"paranoid {level:g}: this user may count everything")
    if level > 2:
        return bad(f"paranoid {level:g}: nothing may be counted", command)
    return consider(f"paranoid {level:g}: no counts of the kernel or of whole CPUs", command)


@_CHECKS.add("NMI watchdog", "kernel.nmi_watchdog", absent=_NOT_BUILT, fine="0")
def watchdog(facts: MachineFacts, value: str) -> Opinion:
    """it uses one hardware counter of every CPU."""
    return consider(
        "on: one hardware counter fewer, an interrupt now and then",
        "sysctl -w kernel.nmi_watchdog=0",
        nmi_watchdog="0",
    )


@_CHECKS.add("limits", "limit.")
def limits(facts: MachineFacts, value: str) -> Opinion:
    """copies that cannot start or grow fail."""
    copies = facts.pus or 1
    seen, short, tight = [], [], []
    for name, description, unit, least in (
        ("open_files_hard", "open files (-Hn)", 1, _FILES_OF_RATER + _FILES_A_COPY * copies),
        ("processes", "processes (-u)", 1, _LEAST_TASKS + 2 * copies),
        ("stack", "MB of stack (-s)", 1e6, _LEAST_STACK),
        ("locked_memory", "MB of locked memory (-l)", 1e6, _LEAST_LOCKED),
    ):
        has = facts.number(f"limit.{name}")
        if has is None:
            continue
        seen.append(
            f"{has / unit:.{0 if unit == 1 else 3}{'f' if unit == 1 else 'g'}} {description}"
        )
        is_short = has < least and not (
            name == "processes" and facts.text_of("rater.root") == "yes"
        )
        if is_short and unit == 1:
            short.append(f"{seen[-1]}, {least} wanted for {copies} copies")
        elif is_short:
            tight.append(seen[-1])
    if short:
        return bad("; ".join(short), "ulimit -Hn, ulimit -u; /etc/security/limits.conf")
    if tight:
        return consider(
            f"{', '.join(tight)}: programs with large frames or locked buffers fail",
            "ulimit -s unlimited; ulimit -l unlimited",
        )
    if not facts.below("limit."):
        return unknown("not kept with this run")
    return good(", ".join(seen) or "none")


@_CHECKS.add("inherited", "process. limit.")
def inherited(facts: MachineFacts, value: str) -> Opinion:
    """copies have the priority, signals and limits of whoever started rater."""
    if facts.text_of("process.scheduler") is None:
        return unknown("an older rater did not look")
    unusual = [*inherited_states(facts.values)]
    if not unusual:
        return good("as usual: priority, timers, signals and limits")
    text = "; ".join(state.text for state in unusual)
    way_out = "; ".join(dict.fromkeys(state.way_out for state in unusual))
    return (bad if any(state.is_harmful for state in unusual) else consider)(text, way_out)


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e8 or not count else f"{count / 1e6:.3g} MB"


# -- What all of them say, in the order in which they are shown ------------------------------------

CHECKS = (*cpus.CHECKS, *_CHECKS)


def examine(facts: MachineFacts) -> tuple[DoctorFinding, ...]:
    """Return what every check says, in a fixed order."""
    return tuple(check.finding(facts) for check in CHECKS)


def facts_of_run(run: StoredRun) -> MachineFacts:
    """Return what a stored run tells of its machine; readings of the moment are not kept."""
    host = run.host
    return MachineFacts(
        values=dict(run.settings),
        microcode=host.microcode,
        nodes=host.nodes,
        pus=host.pus,
        now=False,
    )


def tuned_settings(findings: Sequence[DoctorFinding], available: Sequence[str]) -> dict[str, str]:
    """Return the settings that `--tuned` sets, by name, of those that the machine has.

    Nothing that changes what is measured is among them: turbo, SMT, mitigations and addresses
    stay as they are.
    """
    return {
        name: value
        for finding in findings
        if finding.verdict in (DoctorVerdict.BAD, DoctorVerdict.CONSIDER)
        for name, value in finding.settings
        if name in available
    }
