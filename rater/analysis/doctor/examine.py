"""All checks of the doctor, in the order in which they are shown; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rater.analysis.doctor import cpus, memory
from rater.analysis.doctor.findings import (
    DoctorFinding,
    DoctorVerdict,
    MachineFacts,
    Opinion,
    bad,
    check,
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


@check("other load", "load.1min others.")
def other_load(facts: MachineFacts) -> Opinion:
    """other processes share CPUs, caches and memory with copies."""
    busy, named = facts.number("others.busy_cpus"), facts.text("others.named")
    if not facts.now:  # the load before a run is that of the run before it
        return unknown("`rater show RUN` has what disturbed the run")
    if busy is None:
        return _load(facts)
    text = f"other processes keep {busy:.1f} CPUs busy{f': {named}' if named else ''}"
    if busy >= _VERY_BUSY_CPUS:
        return bad(text, "end them, or wait: `rater run --until-idle=300 ...`")
    if busy >= _BUSY_CPUS:
        return consider(text, "end them, or wait: `rater run --until-idle=300 ...`")
    return good("no other process is busy")


def _load(facts: MachineFacts) -> Opinion:
    load = facts.number("load.1min")
    if load is None:
        return unknown("not known")
    text = f"load {load:g} in the minute before"
    return consider(text, "look at top") if load >= _VERY_BUSY_CPUS else good(text)


@check("ASLR", "kernel.randomize_va_space")
def aslr(facts: MachineFacts) -> Opinion:
    """a fixed address layout can be 10 % faster or slower by chance."""
    value = facts.text("kernel.randomize_va_space")
    if value is None:
        return unknown("not known")
    if value == "2":
        return good("all addresses are random")
    return consider(
        f"{value}: all copies have the same layout, fast or slow by chance",
        "sysctl -w kernel.randomize_va_space=2",
    )


@check("perf", "kernel.perf_event_paranoid rater.may_count")
def perf(facts: MachineFacts) -> Opinion:
    """without counters the cause of a slow copy stays unknown."""
    value, refused = facts.number("kernel.perf_event_paranoid"), facts.text("rater.perf_refused")
    command = "sysctl -w kernel.perf_event_paranoid=0"
    if refused is not None or value is None:
        return bad(*refused.split("\n", 1)) if refused else unknown("this kernel counts no events")
    if facts.text("cpu.counters") == "no":
        return consider(
            "no hardware counters (PMU) here: only page faults and switches are counted",
            "a virtual PMU from the host (KVM: <pmu state='on'/>), or a bare-metal machine",
        )
    if facts.text("rater.may_count") == "yes" or value <= 0:
        return good(f"paranoid {value:g}: this user may count everything")
    if value > 2:
        return bad(f"paranoid {value:g}: nothing may be counted", command)
    return consider(f"paranoid {value:g}: no counts of the kernel or of whole CPUs", command)


@check("NMI watchdog", "kernel.nmi_watchdog")
def watchdog(facts: MachineFacts) -> Opinion:
    """it uses one hardware counter of every CPU."""
    return off_or_absent(facts, "kernel.nmi_watchdog") or consider(
        "on: one hardware counter fewer, an interrupt now and then",
        "sysctl -w kernel.nmi_watchdog=0",
        nmi_watchdog="0",
    )


@check("limits", "limit.")
def limits(facts: MachineFacts) -> Opinion:
    """copies that cannot start or grow fail."""
    copies = facts.pus or 1
    seen, short, tight = [], [], []
    for name, what, unit, least in (
        ("open_files_hard", "open files (-Hn)", 1, _FILES_OF_RATER + _FILES_A_COPY * copies),
        ("processes", "processes (-u)", 1, _LEAST_TASKS + 2 * copies),
        ("stack", "MB of stack (-s)", 1e6, _LEAST_STACK),
        ("locked_memory", "MB of locked memory (-l)", 1e6, _LEAST_LOCKED),
    ):
        value = facts.number(f"limit.{name}")
        if value is None:
            continue
        seen.append(f"{value / unit:.{0 if unit == 1 else 3}{'f' if unit == 1 else 'g'}} {what}")
        is_short = value < least and not (name == "processes" and facts.text("rater.root") == "yes")
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


@check("mitigations", "mitigation.")
def mitigations(facts: MachineFacts) -> Opinion:
    """defences against flaws of CPUs cost some per cent: compare machines with the same ones."""
    found = facts.below("mitigation.")
    if not found:
        return unknown("the kernel does not report it")
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


CHECKS = (
    other_load,
    cpus.governor,
    cpus.energy_preference,
    cpus.frequency_limits,
    cpus.idle_states,
    cpus.tuned,
    cpus.turbo,
    cpus.heat,
    cpus.smt,
    cpus.isolation,
    cpus.cpuset_of_ours,
    cpus.interrupts,
    cpus.virtualization,
    cpus.microcode,
    mitigations,
    cpus.clock_source,
    memory.numa_balancing,
    memory.zone_reclaim,
    memory.thp,
    memory.thp_defrag,
    memory.medium_pages,
    memory.khugepaged,
    memory.fragmentation,
    memory.pools,
    memory.ksm,
    memory.swap,
    memory.memory_limit,
    aslr,
    perf,
    watchdog,
    limits,
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
