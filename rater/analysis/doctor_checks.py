"""The doctor's checks of CPUs and memory, and what a finding is; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rater.text.cpuset import format_list, parse_set
from rater.text.values import count


class DoctorVerdict(Enum):
    """How a machine stands in one thing."""

    BAD = "bad"  # it blurs or falsifies what is measured
    CONSIDER = "consider"  # it may; whether it does depends on what is measured
    GOOD = "good"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """What one check found."""

    check: str  # "governor"
    why: str  # it matters, in one line
    seen: str  # here
    verdict: DoctorVerdict
    command: str | None = None  # that mends it, as root types it
    settings: tuple[tuple[str, str], ...] = ()  # that `rater run --tuned` sets, by name


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What is known of a machine, by the names that runs record it with.

    `now`: it was read at this moment, so that readings (load, temperature) tell something.
    """

    values: Mapping[str, str]
    microcode: str | None = None
    nodes: int | None = None
    pus: int | None = None
    now: bool = True

    def text(self, name: str) -> str | None:
        """Return a value as it is, None where it is not known."""
        return self.values.get(name)

    def number(self, name: str) -> float | None:
        """Return a value as a number, None where it is none or not known."""
        try:
            return float(self.values[name])
        except (KeyError, ValueError):
            return None

    def below(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin so, by the rest of their names."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.values.items()
            if name.startswith(prefix)
        }


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a check came to; see `DoctorFinding`."""

    verdict: DoctorVerdict
    seen: str
    command: str | None = None
    settings: tuple[tuple[str, str], ...] = ()


def good(seen: str) -> Opinion:
    """Return that all is well."""
    return Opinion(DoctorVerdict.GOOD, seen)


def consider(seen: str, command: str | None = None, **settings: str) -> Opinion:
    """Return that it may matter, and what changes it."""
    return Opinion(DoctorVerdict.CONSIDER, seen, command, tuple(settings.items()))


def bad(seen: str, command: str | None = None, **settings: str) -> Opinion:
    """Return that it does harm, and what mends it."""
    return Opinion(DoctorVerdict.BAD, seen, command, tuple(settings.items()))


def unknown(seen: str) -> Opinion:
    """Return that nobody can tell, and why."""
    return Opinion(DoctorVerdict.UNKNOWN, seen)


def off_or_absent(facts: MachineFacts, name: str) -> Opinion | None:
    """Return what is to be said of a setting that is 0 or that the kernel lacks, else None."""
    value = facts.text(name)
    if value is None:
        return unknown("this kernel was built without")
    return good("off") if value == "0" else None


# -- Checks of the CPUs: who may use them, how fast they run, what interrupts them -----------------

_CPUFREQ = "/sys/devices/system/cpu/cpufreq/policy*"
_SETS_SPEED_ITSELF = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
_HOT_C = 85.0


def isolation(facts: MachineFacts) -> Opinion:
    """CPUs that the kernel keeps its own and others' work away from."""
    isolated, ticks = _cpus(facts, "cpu.isolated"), _cpus(facts, "cpu.nohz_full")
    if "kernel.cmdline" not in facts.values:
        return unknown("the kernel's command line is not known")
    if not isolated:
        return consider(
            "no CPU is isolated: the scheduler puts others' work beside copies",
            "boot with isolcpus=LIST nohz_full=LIST, or rater run --reserve 1",
        )
    usable = _cpus(facts, "cpu.usable")
    shown = f"CPUs {format_list(isolated)} are isolated"
    if usable and not usable & isolated:
        return bad(
            f"{shown}, and rater may use {format_list(usable)} only",
            f"taskset -c {format_list(isolated)} rater run ...",
        )
    if not isolated <= ticks:
        return consider(
            f"{shown}, but have the timer's tick", f"boot with nohz_full={format_list(isolated)}"
        )
    return good(f"{shown}, without ticks")


def interrupts(facts: MachineFacts) -> Opinion:
    """Interrupts of devices on CPUs of copies."""
    into = facts.number("irq.on_isolated")
    if into:
        return bad(
            f"{count(int(into), 'interrupt')} may go to isolated CPUs",
            "for i in /proc/irq/*/smp_affinity_list; do echo 0 > $i; done",
        )
    balance = facts.text("irqbalance")
    if balance == "running":
        return consider("irqbalance moves interrupts while copies run", "systemctl stop irqbalance")
    if balance is None:
        return unknown("only a look at this moment tells" if facts.now else "not kept with runs")
    return good("irqbalance does not run")


def cpuset_of_ours(facts: MachineFacts) -> Opinion:
    """CPUs that we may use, of those there are."""
    online, usable = _cpus(facts, "cpu.online"), _cpus(facts, "cpu.usable")
    offline = facts.text("cpu.offline")
    quota = facts.number("cgroup.cpu_quota")
    if quota is not None:
        return bad(
            f"a cgroup gives {quota:g} CPUs of time: copies are stopped when it is used up",
            "run outside of it, or raise its cpu.max",
        )
    if not online or not usable:
        return unknown("the kernel does not tell which CPUs are online")
    lacking = online - usable - _cpus(facts, "cpu.isolated")
    if lacking:
        return consider(
            f"rater may use CPUs {format_list(usable)}; {format_list(lacking)} are others'",
            f"taskset -c {format_list(online)} rater run ..., or widen the cpuset",
        )
    if offline:
        present = f"; {offline} are offline"
        return good(f"all of CPUs {format_list(online)}{present}")
    return good(f"all of CPUs {format_list(online)}")


def governor(facts: MachineFacts) -> Opinion:
    """What chooses the frequency of a CPU."""
    value, driver = facts.text("cpu.governor"), facts.text("cpu.driver")
    if value is None:
        where = _virtual(facts)
        return unknown(f"no cpufreq here{f': {where} decides' if where else ''}")
    command = f"echo performance | tee {_CPUFREQ}/scaling_governor"
    if "(CPUs" in value:
        return bad(f"not the same on all CPUs: {value}", command, governor="performance")
    shown = f"{value}, driver {driver or 'not known'}"
    if value == "performance":
        return good(shown)
    if value == "powersave" and (driver or "").startswith(_SETS_SPEED_ITSELF):
        return consider(f"{shown}: the CPU itself decides", command, governor="performance")
    how = "the lowest frequency" if value == "powersave" else "the frequency follows the load"
    return bad(f"{shown}: {how}", command, governor="performance")


def energy_preference(facts: MachineFacts) -> Opinion:
    """Whether a CPU that decides itself leans to power or to speed."""
    value = facts.text("cpu.energy_preference")
    if value is None:
        return unknown("this driver has no such preference")
    if value in ("performance", "0"):
        return good(value)
    command = f"echo performance | tee {_CPUFREQ}/energy_performance_preference"
    if facts.text("cpu.governor") == "performance":  # the kernel refuses another one then
        return consider(f"{value}, beside the governor performance", command)
    # The governor performance sets it, and a kernel that has it takes no other preference.
    return consider(f"{value}: slower to come to speed", command, governor="performance")


def frequency_limits(facts: MachineFacts) -> Opinion:
    """Limits that somebody set below what the CPU can."""
    most, least = facts.text("cpu.max_khz"), facts.text("cpu.min_khz")
    if most is None:
        return unknown("no cpufreq here")
    if "(CPUs" in most:
        return consider(
            f"highest frequency differs (kHz): {most}",
            f"echo KHZ | tee {_CPUFREQ}/scaling_max_freq, unless the CPUs are of several kinds",
        )
    hardware, limit = facts.number("cpu.hardware_max_khz"), facts.number("cpu.max_khz")
    is_capped = facts.text("cpu.boost") == "0" or facts.text("cpu.no_turbo") == "1"
    if hardware and limit and hardware > limit and not is_capped:
        return bad(
            f"{limit / 1e6:.2f} GHz at most, the CPU can {hardware / 1e6:.2f}",
            f"echo {hardware:.0f} | tee {_CPUFREQ}/scaling_max_freq",
        )
    return good(f"{least or '?'} to {most} kHz on all CPUs")


def turbo(facts: MachineFacts) -> Opinion:
    """Frequencies above the nominal one, which heat and the number of busy cores decide."""
    boost, no_turbo = facts.text("cpu.boost"), facts.text("cpu.no_turbo")
    if boost is None and no_turbo is None:
        return unknown("no switch for it here")
    if boost == "0" or no_turbo == "1":
        return good("off: one frequency, however warm and busy")
    return consider("on: speed depends on heat and busy cores", "rater sweep --axis boost=on,off")


def smt(facts: MachineFacts) -> Opinion:
    """Threads of a core, which share its units."""
    control, active = facts.text("cpu.smt.control"), facts.text("cpu.smt.active")
    if control is None and active is None:
        return unknown("the kernel does not tell")
    if active == "1":
        return consider(
            "on: two copies share a core where both threads are used",
            "rater run --smt 1 ... uses one thread of each core",
        )
    return good(
        {"notsupported": "none here", "notimplemented": "none here"}.get(control or "", "off")
    )


def heat(facts: MachineFacts) -> Opinion:
    """Temperature, and clocks that heat has slowed since the boot."""
    degrees = facts.number("temperature.highest_c")
    core, package = (facts.number(f"throttle.{it}_events") for it in ("core", "package"))
    seen = [] if degrees is None else [f"{degrees:.0f} C at the hottest sensor"]
    if core is not None:
        events = int(core + (package or 0))
        seen.append(f"throttled {count(events, 'time')} since the boot")
    if not seen:
        return unknown(
            "no sensor and no counter of throttling" if facts.now else "not kept with runs"
        )
    text = ", ".join(seen)
    if degrees is not None and degrees >= _HOT_C:
        return bad(text, "rater run --until-idle=300 ...; look at fans and airflow")
    if core or package:
        return consider(text, "rater run --cooldown 30 ..., or boost=off")
    return good(text)


def microcode(facts: MachineFacts) -> Opinion:
    """The processor's own program: another one is another machine."""
    value = facts.microcode
    if value is None:
        return unknown("the kernel does not tell")
    if " + " in value:
        return bad(
            f"CPUs differ: {value}", "update microcode at boot (intel-microcode, amd64-microcode)"
        )
    below = _virtual(facts)
    if below is not None:
        return unknown(f"{value} is what {below} shows")
    return good(value)


def _virtual(facts: MachineFacts) -> str | None:
    value = facts.text("virtualization")
    return None if value in (None, "none") else value


def virtualization(facts: MachineFacts) -> Opinion:
    """Whether the CPUs are somebody else's to give."""
    value = facts.text("virtualization")
    stolen = facts.number("others.stolen_share")
    if value is None:
        return unknown("neither the CPU nor the firmware tells")
    if stolen is not None and stolen >= 0.01:
        return bad(
            f"{'the host' if value == 'none' else value} gave {stolen:.0%} of the CPUs' time away",
            "another host, or pinned vCPUs",
        )
    if facts.text("virtualization.free_memory") == "reported":
        where = "a hypervisor" if value == "none" else value
        return consider(
            f"{where}: free memory goes back to the host, and its first touch may wait for it: "
            "rater model --y user leaves the kernel's part out"
        )
    if value != "none":
        return consider(f"{value}: it places vCPUs and memory, and shows what it likes")
    if facts.text("container") == "yes":
        return good("none; in a container, which shares the kernel")
    return good("none")


def clock_source(facts: MachineFacts) -> Opinion:
    """What reading the time costs, and whether it is steady."""
    value = facts.text("clocksource")
    if value is None:
        return unknown("the kernel does not tell")
    if value in ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"):
        there = (facts.text("clocksource.available") or "").split()
        command = (
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"
            if "tsc" in there
            else "dmesg | grep -i tsc tells why the kernel gave it up"
        )
        return bad(f"{value}: a microsecond and a system call a reading", command)
    return good(value)


def _cpus(facts: MachineFacts, name: str) -> frozenset[int]:
    try:
        return frozenset(parse_set(facts.text(name) or ""))
    except ValueError:
        return frozenset()


# -- Checks of memory: pages, pools, what moves, merges or swaps them ------------------------------

_THP = "/sys/kernel/mm/transparent_hugepage"
_BROKEN, _LITTLE = 0.5, 0.1  # of the free memory lies in blocks of a huge page
_STUCK = 0.3  # of all blocks cannot be compacted
_POOL = re.compile(r"(node\d+)\.(\d+)kB\.(total|free)")
_MUCH_SWAPPED_BYTES = 64 << 20


def thp(facts: MachineFacts) -> Opinion:
    """Who gets transparent huge pages."""
    value = facts.text("thp.enabled")
    if value is None:
        return unknown("this kernel has none")
    if value == "always":
        return consider(
            "always: copies get them as far as memory is in one piece, so not all alike",
            f"echo madvise > {_THP}/enabled, then --hugepages madvise for who wants them",
        )
    if value == "never":
        return consider("never: no copy can have them", f"echo madvise > {_THP}/enabled")
    return good(f"{value}: those who ask")


def thp_defrag(facts: MachineFacts) -> Opinion:
    """Who waits while memory is compacted for a huge page."""
    value = facts.text("thp.defrag")
    if value is None:
        return unknown("this kernel has no transparent huge pages")
    if value == "always":
        return bad(
            "always: a page fault may wait for compaction",
            f"echo madvise > {_THP}/defrag",
            **{"thp.defrag": "madvise"},
        )
    return good(value)


def pools(facts: MachineFacts) -> Opinion:
    """Huge pages set aside (hugetlb): only who asks for them gets that memory."""
    found = [
        (node, int(size) << 10, what, int(value))
        for name, value in facts.below("hugepages.").items()
        if (at := _POOL.fullmatch(name)) and value.isdecimal()
        for node, size, what in [at.groups()]
    ]
    if not found:
        return unknown("this kernel has no pools of huge pages")
    total = sum(size * pages for _, size, what, pages in found if what == "total")
    free = sum(size * pages for _, size, what, pages in found if what == "free")
    if free:
        return consider(
            f"{_gb(free)} of {_gb(total)} set aside and free: other memory is short by that",
            "echo 0 | tee /sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages",
        )
    return good(f"{_gb(total)}, all in use" if total else "none set aside")


def fragmentation(facts: MachineFacts) -> Opinion:
    """Whether free memory is in pieces of a huge page."""
    shares: dict[str, float] = {}
    for name in facts.below("memory.node"):
        node = name.partition(".")[0]
        pieces = facts.number(f"memory.node{node}.free_huge_order_bytes")
        free = facts.number(f"memory.node{node}.free_bytes")
        if pieces is not None and free:
            shares[node] = min(1.0, pieces / free)
    if not shares:
        return unknown("the kernel does not tell (/proc/buddyinfo)")
    fixed = {
        node: share
        for node in shares
        if (share := facts.number(f"memory.node{node}.unmovable_share")) is not None
    }
    node, worst = min(shares.items(), key=lambda it: it[1])
    text = f"{worst:.0%} of lgroup {node}'s free memory is in pieces of a huge page"
    command = "sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory"
    if worst < _LITTLE:
        return bad(text, command)
    if worst < _BROKEN:
        return consider(text, command)
    stuck, share = max(fixed.items(), key=lambda it: it[1], default=("", 0.0))
    if share >= _STUCK:
        return consider(
            f"{share:.0%} of lgroup {stuck}'s blocks hold what the kernel cannot move",
            "reserve pools at boot: hugepagesz=1G hugepages=N",
        )
    return good(text)


def numa_balancing(facts: MachineFacts) -> Opinion:
    """The kernel unmaps pages to see who uses them, and moves them."""
    settled = off_or_absent(facts, "kernel.numa_balancing")
    if settled is not None:
        return settled
    if facts.nodes == 1:
        return good("on, with one lgroup: nothing to move")
    return bad(
        f"{facts.text('kernel.numa_balancing')}: pages move and fault while copies run",
        "sysctl -w kernel.numa_balancing=0",
        numa_balancing="0",
    )


def zone_reclaim(facts: MachineFacts) -> Opinion:
    """Whether page cache is dropped before another lgroup's memory is taken."""
    settled = off_or_absent(facts, "vm.zone_reclaim_mode")
    if settled is not None:
        return settled
    return consider(
        f"{facts.text('vm.zone_reclaim_mode')}: allocations may wait while an lgroup is emptied",
        "sysctl -w vm.zone_reclaim_mode=0",
        zone_reclaim="0",
    )


def ksm(facts: MachineFacts) -> Opinion:
    """Equal pages of copies merged into one."""
    value = facts.text("ksm.run")
    if value is None:
        return unknown("this kernel was built without, or an older rater did not look")
    if value == "1":
        return bad(
            "on: copies are equal, so their pages are merged and parted again",
            "echo 0 > /sys/kernel/mm/ksm/run",
            ksm="0",
        )
    return good("off")


def swap(facts: MachineFacts) -> Opinion:
    """Memory of copies on a disk."""
    total, free = facts.number("swap.total_bytes"), facts.number("memory.swap_free_bytes")
    if total is None:
        return unknown("not told")
    if not total:
        return good("none")
    used = 0 if free is None else total - free
    if used > _MUCH_SWAPPED_BYTES:
        return bad(f"{_gb(used)} of {_gb(total)} in use", "swapoff -a", swappiness="0")
    if facts.text("vm.swappiness") == "0":
        return good(f"{_gb(total)}, swappiness 0")
    return consider(
        f"{_gb(total)}, swappiness {facts.text('vm.swappiness') or 'not known'}",
        "swapoff -a, or sysctl -w vm.swappiness=0",
        swappiness="0",
    )


def memory_limit(facts: MachineFacts) -> Opinion:
    """A cgroup that has less memory than the machine."""
    limit = facts.number("cgroup.memory_limit_bytes")
    if limit is None:
        return good("no cgroup limits it") if facts.now else unknown("not kept with this run")
    return consider(
        f"a cgroup gives {_gb(limit)}: copies beyond are killed, page cache counts",
        "run outside of it, or raise its memory.max",
    )


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e8 or not count else f"{count / 1e6:.3g} MB"
