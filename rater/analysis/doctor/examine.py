"""All checks of the doctor, in the order in which they are shown; pure.

Why each matters: Mytkowicz et al., "Producing wrong data without doing anything obviously
wrong" (ASPLOS 2009, addresses); Barrett et al., "Virtual machine warmup blows hot and cold"
(OOPSLA 2017, frequency, heat, other work); Documentation/admin-guide of the kernel (numaperf,
transhuge, hugetlbpage, cpu-isolation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.doctor import cpus, memory, system
from rater.analysis.doctor.model import DoctorFinding, DoctorVerdict, MachineFacts, Opinion
from rater.record.stored import StoredRun


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
            system.other_load,
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
        ("SMT", "cpu.smt.", "a copy whose core is shared has half of it, or less", cpus.smt),
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
            system.mitigations,
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
        ("THP", "thp.enabled", "large pages cost fewer page walks: all copies or none", memory.thp),
        (
            "THP defrag",
            "thp.defrag",
            "a page fault that compacts memory takes milliseconds",
            memory.thp_defrag,
        ),
        ("fragmentation", "memory.", "who comes late gets small pages", memory.fragmentation),
        ("pools", "hugepages.", "memory set aside is lost to all who do not ask", memory.pools),
        ("KSM", "ksm.run", "equal copies' pages are merged, then copied on write", memory.ksm),
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
            system.aslr,
        ),
        (
            "perf",
            "kernel.perf_event_paranoid rater.may_count",
            "without counts nobody tells why a copy is slow",
            system.perf,
        ),
        ("NMI watchdog", "kernel.nmi_watchdog", "it takes a counter of every CPU", system.watchdog),
        ("limits", "limit.", "copies that cannot start or grow fail", system.limits),
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
