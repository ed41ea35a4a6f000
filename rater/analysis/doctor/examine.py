"""All checks of the doctor, in the order in which they are shown; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.doctor import cpus, memory
from rater.analysis.doctor.findings import (
    DoctorFinding,
    DoctorVerdict,
    MachineFacts,
    Opinion,
    bad,
    consider,
    good,
    off_or_absent,
    unknown,
)
from rater.record.stored import StoredRun
from rater.text.values import count, truncate_list

# -- Checks of the system around: other work, addresses, permissions, limits, mitigations ----------

_BUSY_CPUS, _VERY_BUSY_CPUS = 0.1, 1.0
_FILES_OF_RATER, _FILES_A_COPY = 128, 8  # its own gates, a pidfd, counters
_LEAST_TASKS = 256
_LEAST_STACK = 8 << 20
_LEAST_LOCKED = 8 << 20


def other_load(facts: MachineFacts) -> Opinion:
    """What others do with the CPUs."""
    busy, named = facts.number("others.busy_cpus"), facts.text("others.named")
    if not facts.now:  # the load before a run is that of the run before it
        return unknown("`rater show` has what disturbed the run")
    if busy is None:
        return _load(facts)
    text = f"others keep {busy:.1f} CPUs busy{f': {named}' if named else ''}"
    if busy >= _VERY_BUSY_CPUS:
        return bad(text, "end it, or wait: rater run --until-idle=300 ...")
    if busy >= _BUSY_CPUS:
        return consider(text, "end it, or wait: rater run --until-idle=300 ...")
    return good("nobody works here")


def _load(facts: MachineFacts) -> Opinion:
    load = facts.number("load.1min")
    if load is None:
        return unknown("not told")
    text = f"load {load:g} in the minute before"
    return consider(text, "look at top") if load >= _VERY_BUSY_CPUS else good(text)


def aslr(facts: MachineFacts) -> Opinion:
    """Random addresses: each copy has a layout of its own, so their mean stands for all."""
    value = facts.text("kernel.randomize_va_space")
    if value is None:
        return unknown("not told")
    if value == "2":
        return good("all addresses are drawn")
    return consider(
        f"{value}: all copies have one layout, fast or slow by luck",
        "sysctl -w kernel.randomize_va_space=2",
    )


def perf(facts: MachineFacts) -> Opinion:
    """Whether cycles, misses and page walks can be counted."""
    value = facts.number("kernel.perf_event_paranoid")
    command = "sysctl -w kernel.perf_event_paranoid=0"
    if value is None:
        return unknown("this kernel counts no events")
    if facts.text("rater.may_count") == "yes":
        return good("this user may count everything")
    if value <= 0:
        return good(f"paranoid {value:g}: all may be counted")
    if value <= 2:
        return consider(
            f"paranoid {value:g}: no counts of the kernel's part or of whole CPUs", command
        )
    return bad(f"paranoid {value:g}: nothing may be counted", command)


def watchdog(facts: MachineFacts) -> Opinion:
    """The kernel's watchdog takes a counter of every CPU and interrupts it."""
    settled = off_or_absent(facts, "kernel.nmi_watchdog")
    if settled is not None:
        return settled
    return consider(
        "on: one hardware counter fewer, an interrupt now and then",
        "sysctl -w kernel.nmi_watchdog=0",
        nmi_watchdog="0",
    )


def limits(facts: MachineFacts) -> Opinion:
    """Files, processes, stack and locked memory that copies may have."""
    copies = facts.pus or 1
    seen, short, tight = [], [], []
    for name, what, least in (
        ("open_files_hard", "open files (-Hn)", _FILES_OF_RATER + _FILES_A_COPY * copies),
        ("processes", "processes (-u)", _LEAST_TASKS + 2 * copies),
    ):
        value = facts.number(f"limit.{name}")
        if value is None:
            continue
        seen.append(f"{value:.0f} {what}")
        if value < least and not (name == "processes" and facts.text("rater.root") == "yes"):
            short.append(f"{value:.0f} {what}, {least} wanted for {copies} copies")
    for name, what, least in (
        ("stack", "stack (-s)", _LEAST_STACK),
        ("locked_memory", "locked memory (-l)", _LEAST_LOCKED),
    ):
        value = facts.number(f"limit.{name}")
        if value is None:
            continue
        seen.append(f"{value / 1e6:.3g} MB of {what}")
        if value < least:
            tight.append(f"{value / 1e6:.3g} MB of {what}")
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


def mitigations(facts: MachineFacts) -> Opinion:
    """Defences against leaks between programs: they cost, so runs must have the same."""
    found = facts.below("mitigation.")
    if not found:
        return unknown("the kernel does not tell")
    words = (facts.text("kernel.cmdline") or "").split()
    off = [word for word in words if word in ("mitigations=off", "nopti", "nospectre_v2")]
    if off:
        return consider(
            f"off by {truncate_list(off)}: faster than machines in use", "boot without it"
        )
    on = sorted(name for name, value in found.items() if value.startswith("Mitigation"))
    open_ = sorted(name for name, value in found.items() if value.startswith("Vulnerable"))
    flaws = count(len(on) + len(open_), "flaw")
    has = f"the kernel defends against {len(on)} of this CPU's {flaws}"
    if open_:
        return consider(
            f"{has}, not against {truncate_list(open_, 3)}", "update the microcode and the kernel"
        )
    return good(f"{has}: {truncate_list(on, 3)}" if on else "none needed")


# -- All checks of the doctor, in the order in which they are shown --------------------------------
#
# Why each matters: Mytkowicz et al., "Producing wrong data without doing anything obviously
# wrong" (ASPLOS 2009, addresses); Barrett et al., "Virtual machine warmup blows hot and cold"
# (OOPSLA 2017, frequency, heat, other work); Documentation/admin-guide of the kernel (numaperf,
# transhuge, hugetlbpage, cpu-isolation).


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked at."""

    name: str
    facts: str  # the names it goes by, or their beginnings, between blanks
    why: str
    judge: Callable[[MachineFacts], Opinion]

    def finding(self, facts: MachineFacts) -> DoctorFinding:
        """Return what it says of a machine."""
        it = self.judge(facts)
        return DoctorFinding(self.name, self.why, it.seen, it.verdict, it.command, it.settings)

    def goes_by(self, name: str) -> bool:
        """Tell whether what is recorded under a name changes what it says."""
        return any(
            name == fact or (fact.endswith(".") and name.startswith(fact))
            for fact in self.facts.split()
        )


CHECKS = tuple(
    Check(*row)
    for row in (
        (
            "other load",
            "load.1min others.",
            "copies share CPUs, caches and memory with it",
            other_load,
        ),
        (
            "governor",
            "cpu.governor cpu.driver",
            "a CPU that is slow to come to speed is a slow copy",
            cpus.governor,
        ),
        (
            "preference",
            "cpu.energy_preference",
            "a CPU that saves power answers load late",
            cpus.energy_preference,
        ),
        (
            "frequency",
            "cpu.max_khz cpu.min_khz",
            "a capped CPU is measured, not the one you bought",
            cpus.frequency_limits,
        ),
        (
            "turbo",
            "cpu.boost cpu.no_turbo",
            "warm and busy machines clock lower: later runs are slower",
            cpus.turbo,
        ),
        (
            "heat",
            "temperature. throttle.",
            "a hot CPU slows its clock in the midst of a run",
            cpus.heat,
        ),
        (
            "SMT",
            "cpu.smt.",
            "a copy whose core is shared has half of it, or less",
            cpus.smt,
        ),
        (
            "isolation",
            "cpu.isolated cpu.nohz_full",
            "other work and ticks interrupt copies",
            cpus.isolation,
        ),
        (
            "CPUs",
            "cgroup.cpu_quota cpu.offline",
            "copies need the CPUs they are placed on, all the time",
            cpus.cpuset_of_ours,
        ),
        (
            "interrupts",
            "irq. irqbalance",
            "a CPU that serves devices is a slower CPU",
            cpus.interrupts,
        ),
        (
            "virtualization",
            "virtualization container",
            "what is below decides where vCPUs and memory are",
            cpus.virtualization,
        ),
        ("microcode", "", "an update can cost per cents: compare equals", cpus.microcode),
        (
            "mitigations",
            "mitigation.",
            "the kernel's defences against flaws of CPUs cost per cents: compare machines that "
            "have the same",
            mitigations,
        ),
        (
            "clock source",
            "clocksource",
            "programs that read the time often pay for it",
            cpus.clock_source,
        ),
        (
            "NUMA balancing",
            "kernel.numa_balancing",
            "it faults on pages and moves them under copies",
            memory.numa_balancing,
        ),
        (
            "zone reclaim",
            "vm.zone_reclaim_mode",
            "allocations wait although other memory is free",
            memory.zone_reclaim,
        ),
        (
            "THP",
            "thp.enabled",
            "large pages cost fewer page walks: all copies or none",
            memory.thp,
        ),
        (
            "THP defrag",
            "thp.defrag",
            "a page fault that compacts memory takes milliseconds",
            memory.thp_defrag,
        ),
        (
            "fragmentation",
            "memory.",
            "who comes late gets small pages",
            memory.fragmentation,
        ),
        (
            "pools",
            "hugepages.",
            "memory set aside is lost to all who do not ask",
            memory.pools,
        ),
        (
            "KSM",
            "ksm.run",
            "equal copies' pages are merged, then copied on write",
            memory.ksm,
        ),
        (
            "swap",
            "swap. memory.swap_free_bytes vm.swappiness",
            "a page on a disk is a million cycles away",
            memory.swap,
        ),
        (
            "memory limit",
            "cgroup.memory_limit_bytes",
            "copies beyond it are killed or swapped",
            memory.memory_limit,
        ),
        (
            "ASLR",
            "kernel.randomize_va_space",
            "one layout of addresses can be 10 % off by luck",
            aslr,
        ),
        (
            "perf",
            "kernel.perf_event_paranoid rater.may_count",
            "without counts nobody tells why a copy is slow",
            perf,
        ),
        ("NMI watchdog", "kernel.nmi_watchdog", "it takes a counter of every CPU", watchdog),
        ("limits", "limit.", "copies that cannot start or grow fail", limits),
    )
)


def examine(facts: MachineFacts) -> tuple[DoctorFinding, ...]:
    """Return what every check says, in a fixed order."""
    return tuple(check.finding(facts) for check in CHECKS)


def facts_of_run(run: StoredRun) -> MachineFacts:
    """Return what a stored run tells of its machine; readings of the moment are not kept."""
    host = run.host
    return MachineFacts(dict(run.settings), host.microcode, host.nodes, host.pus, now=False)


def tuned_settings(findings: Sequence[DoctorFinding], here: Sequence[str]) -> dict[str, str]:
    """Return the settings that `--tuned` sets, by name, of those that the machine has.

    Nothing that changes what is measured is among them: turbo, SMT, mitigations and addresses
    stay as they are.
    """
    return {
        name: value
        for finding in findings
        if finding.verdict in (DoctorVerdict.BAD, DoctorVerdict.CONSIDER)
        for name, value in finding.settings
        if name in here
    }


def by_verdict(
    findings: Sequence[DoctorFinding],
) -> Mapping[DoctorVerdict, tuple[DoctorFinding, ...]]:
    """Return the findings of each verdict, the worst first."""
    return {
        verdict: tuple(one for one in findings if one.verdict is verdict)
        for verdict in DoctorVerdict
    }
