"""The doctor's checks of CPUs and of who else uses them, in the order of the screen; pure."""

from __future__ import annotations

from rater.analysis.doctor.findings import (
    Checks,
    MachineFacts,
    Opinion,
    bad,
    consider,
    good,
    unknown,
)
from rater.text.cpuset import format_list, parse_set
from rater.text.values import count, truncate_list

# Why each matters: Mytkowicz et al., "Producing wrong data without doing anything obviously
# wrong" (ASPLOS 2009, addresses); Barrett et al., "Virtual machine warmup blows hot and cold"
# (OOPSLA 2017, frequency, heat, other work); Documentation/admin-guide of the kernel (numaperf,
# transhuge, hugetlbpage, cpu-isolation).

CHECKS = Checks()
_BUSY_CPUS, _VERY_BUSY_CPUS = 0.1, 1.0
_CPUFREQ = "/sys/devices/system/cpu/cpufreq/policy*"
_SETS_SPEED_ITSELF = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
_HOT_C = 85.0
_QUICK_US = 10  # to wake: C1 and C1E of usual processors
_SAVING = frozenset(["balanced", "balanced-battery", "powersave", "desktop", "spindown-disk"])


@CHECKS.add("other load", "load.1min others.")
def other_load(facts: MachineFacts, value: str) -> Opinion:
    """other processes share CPUs, caches and memory with copies."""
    load = facts.number("load.1min")
    busy, named = facts.number("others.busy_cpus"), facts.text_of("others.named")
    if not facts.now:  # the load before a run is that of the run before it
        return unknown("`rater show RUN` has what disturbed the run")
    if busy is None:
        if load is None:
            return unknown("not known")
        text = f"load {load:g} in the minute before"
        return consider(text, "look at top") if load >= _VERY_BUSY_CPUS else good(text)
    text = f"other processes keep {busy:.1f} CPUs busy{f': {named}' if named else ''}"
    if busy >= _VERY_BUSY_CPUS:
        return bad(text, "end them, or wait: `rater run --until-idle=300 ...`")
    if busy >= _BUSY_CPUS:
        return consider(text, "end them, or wait: `rater run --until-idle=300 ...`")
    return good("no other process is busy")


@CHECKS.add("governor", "cpu.governor cpu.driver")
def governor(facts: MachineFacts, value: str) -> Opinion:
    """a CPU that is slow to come to speed is a slow copy."""
    driver = facts.text_of("cpu.driver")
    if not value:
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


@CHECKS.add("preference", "cpu.energy_preference", absent="this driver has no such preference")
def energy_preference(facts: MachineFacts, value: str) -> Opinion:
    """a CPU that saves power answers load late."""
    if value in ("performance", "0"):
        return good(value)
    command = f"echo performance | tee {_CPUFREQ}/energy_performance_preference"
    if facts.text_of("cpu.governor") == "performance":  # the kernel refuses another one then
        return consider(f"{value}, beside the governor performance", command)
    # The governor performance sets it, and a kernel that has it takes no other preference.
    return consider(f"{value}: slower to come to speed", command, governor="performance")


@CHECKS.add("frequency", "cpu.max_khz cpu.min_khz", absent="no cpufreq here")
def frequency_limits(facts: MachineFacts, value: str) -> Opinion:
    """a capped CPU is measured, not the one you bought."""
    if "(CPUs" in value:
        return consider(
            f"highest frequency differs (kHz): {value}",
            f"echo KHZ | tee {_CPUFREQ}/scaling_max_freq, unless the CPUs are of several kinds",
        )
    hardware, limit = facts.number("cpu.hardware_max_khz"), facts.number("cpu.max_khz")
    is_capped = facts.text_of("cpu.boost") == "0" or facts.text_of("cpu.no_turbo") == "1"
    if hardware and limit and hardware > limit and not is_capped:
        return bad(
            f"{limit / 1e6:.2f} GHz at most, the CPU can {hardware / 1e6:.2f}",
            f"echo {hardware:.0f} | tee {_CPUFREQ}/scaling_max_freq",
        )
    return good(f"{facts.text_of('cpu.min_khz') or '?'} to {value} kHz on all CPUs")


@CHECKS.add("C-states", "cpu.idle_deepest cpu.idle_latency_us cpu.latency_limit_us")
def idle_states(facts: MachineFacts, value: str) -> Opinion:
    """a CPU in a deep sleep wakes late, with cold caches and a low clock."""
    wakes_us, limit_us = (facts.number(f"cpu.{it}_us") for it in ("idle_latency", "latency_limit"))
    if wakes_us is None:
        return unknown("no cpuidle here, or an older rater did not look")
    shown = f"down to {facts.text_of('cpu.idle_deepest')}, {wakes_us:g} us to wake"
    if limit_us is not None and limit_us < wakes_us:
        return good(f"{shown}, but PM QoS asks for {limit_us:g} us at most")
    if wakes_us <= _QUICK_US:
        return good(shown)
    return consider(shown, "cpupower idle-set -D 10, or a process that holds /dev/cpu_dma_latency")


@CHECKS.add("tuned", "tuned.profile", absent="no profile of TuneD is active")
def tuned(facts: MachineFacts, value: str) -> Opinion:
    """a profile sets governor, C-states and memory behind your back, at boot and by load."""
    if _SAVING.isdisjoint(value.split()):
        return good(value)
    return consider(f"{value}: trades speed for power", "tuned-adm profile throughput-performance")


@CHECKS.add("turbo", "cpu.boost cpu.no_turbo")
def turbo(facts: MachineFacts, value: str) -> Opinion:
    """warm and busy machines clock lower: later runs are slower."""
    no_turbo = facts.text_of("cpu.no_turbo")
    if not value and no_turbo is None:
        return unknown("no switch for it here")
    if value == "0" or no_turbo == "1":
        return good("off: the frequency does not depend on heat or load")
    return consider("on: speed depends on heat and busy cores", "`rater sweep --axis boost=on,off`")


@CHECKS.add("heat", "temperature. throttle.")
def heat(facts: MachineFacts, value: str) -> Opinion:
    """a hot CPU slows its clock in the midst of a run."""
    degrees = facts.number("temperature.highest_c")
    core, package = (facts.number(f"throttle.{it}_events") for it in ("core", "package"))
    seen = [] if degrees is None else [f"{degrees:.0f} C at the hottest"]
    if core is not None:
        packages = "" if package is None else f", packages {package:.0f}"
        seen.append(f"throttled: cores {core:.0f} times{packages}")
    if not seen:
        return unknown(
            "no sensor and no counter of throttling" if facts.now else "not kept with runs"
        )
    text = ", ".join(seen)
    if degrees is not None and degrees >= _HOT_C:
        return bad(text, "`rater run --until-idle=300 ...`; look at fans and airflow")
    if core or package:
        return consider(text, "`rater run --cooldown 30 ...`, or boost=off")
    return good(text)


@CHECKS.add("SMT", "cpu.smt.")
def smt(facts: MachineFacts, value: str) -> Opinion:
    """a copy that shares its core has half of it, or less."""
    control, active = facts.text_of("cpu.smt.control"), facts.text_of("cpu.smt.active")
    if control is None and active is None:
        return unknown("the kernel does not report it")
    if active == "1":
        return consider(
            "on: two copies share a core where both threads are used",
            "`rater run --smt 1 ...` uses one thread of each core",
        )
    return good(
        {"notsupported": "none here", "notimplemented": "none here"}.get(control or "", "off")
    )


@CHECKS.add("isolation", "cpu.isolated cpu.nohz_full cgroup.isolated_cpus")
def isolation(facts: MachineFacts, value: str) -> Opinion:
    """other processes and timer ticks interrupt copies."""
    isolated, ticks = _isolated(facts), _cpus(facts, "cpu.nohz_full")
    if "kernel.cmdline" not in facts.values:
        return unknown("the kernel's command line is not known")
    if not isolated:
        return consider(
            "no CPU is isolated: other processes may run on the copies' CPUs",
            "boot with isolcpus=LIST nohz_full=LIST, or `rater run --reserve 1`",
        )
    usable = _cpus(facts, "cpu.usable")
    shown = f"CPUs {format_list(isolated)} are isolated"
    closed = isolated - _cpus(facts, "cpu.isolated") - usable
    if usable and closed:
        return consider(
            f"{shown}; {format_list(closed)} by a partition of cgroups that rater is not in",
            "start rater in that cgroup, where it may use them",
        )
    if usable and not usable & isolated:
        return consider(
            f"{shown}: only layouts that name them put copies there",
            f"`rater run --layout list:{format_list(isolated)} ...`",
        )
    if not isolated <= ticks:
        return consider(
            f"{shown}, but have the timer's tick", f"boot with nohz_full={format_list(isolated)}"
        )
    return good(f"{shown}, without ticks")


@CHECKS.add("CPUs", "cgroup.cpu_quota cpu.offline")
def cpuset_of_ours(facts: MachineFacts, value: str) -> Opinion:
    """copies need the CPUs they are placed on, all the time."""
    online, usable = _cpus(facts, "cpu.online"), _cpus(facts, "cpu.usable")
    offline = facts.text_of("cpu.offline")
    quota = facts.number("cgroup.cpu_quota")
    if quota is not None:
        return bad(
            f"a cgroup gives {quota:g} CPUs of time: copies stop when it is used up",
            "run outside of it, or raise its cpu.max",
        )
    if not online or not usable:
        return unknown("the kernel does not report which CPUs are online")
    lacking = online - usable - _cpus(facts, "cpu.isolated")
    if lacking:
        return consider(
            f"rater may use CPUs {format_list(usable)}; {format_list(lacking)} are others'",
            f"`taskset -c {format_list(online)} rater run ...`, or widen the cpuset",
        )
    present = f"; {offline} are offline" if offline else ""
    return good(f"all of CPUs {format_list(online)}{present}")


@CHECKS.add("interrupts", "irq. irqbalance cpu.isolated cgroup.isolated_cpus")
def interrupts(facts: MachineFacts, value: str) -> Opinion:
    """a CPU that serves devices is a slower CPU."""
    into = facts.number("irq.on_isolated")
    if into:
        rest = format_list(_cpus(facts, "cpu.online") - _isolated(facts))
        return bad(
            f"{count(int(into), 'interrupt')} may go to isolated CPUs",
            f"for i in /proc/irq/*/smp_affinity_list; do echo {rest or 'CPUS'} > $i; done",
        )
    balance = facts.text_of("irqbalance")
    if balance == "running":
        return consider("irqbalance moves interrupts while copies run", "systemctl stop irqbalance")
    if balance is None:
        return unknown("irqbalance was not looked for" if facts.now else "not kept with runs")
    return good("irqbalance does not run")


@CHECKS.add(
    "virtualization",
    "virtualization container",
    absent="neither the CPU nor the firmware reports it",
)
def virtualization(facts: MachineFacts, value: str) -> Opinion:
    """the hypervisor decides where vCPUs and memory are."""
    stolen = facts.number("others.stolen_share")
    if stolen is not None and stolen >= 0.01:
        return bad(
            f"{'the host' if value == 'none' else value} gave {stolen:.0%} of the CPUs' time away",
            "another host, or pinned vCPUs",
        )
    if facts.text_of("virtualization.free_memory") == "reported":
        where = "a hypervisor" if value == "none" else value
        return consider(
            f"{where}: the guest returns free memory to the host, so first touches may stall; "
            "`rater lab model SWEEP --y user` excludes kernel time"
        )
    if value != "none":
        return consider(f"{value}: it places vCPUs and memory; the topology may not be real")
    if facts.text_of("container") == "yes":
        return good("none; in a container, which shares the kernel")
    return good("none")


@CHECKS.add("microcode")
def microcode(facts: MachineFacts, value: str) -> Opinion:
    """an update can cost some per cent: compare machines with the same one."""
    value = facts.microcode or ""
    if not value:
        return unknown("the kernel does not report it")
    if " + " in value:
        return bad(
            f"CPUs differ: {value}", "update microcode at boot (intel-microcode, amd64-microcode)"
        )
    below = _virtual(facts)
    if below is not None:
        return unknown(f"{value} is what {below} shows")
    return good(value)


@CHECKS.add("mitigations", "mitigation.")
def mitigations(facts: MachineFacts, value: str) -> Opinion:
    """defences against flaws of CPUs cost some per cent: compare machines with the same ones."""
    by_flaw = facts.below("mitigation.")
    if not by_flaw:
        return unknown("the kernel does not report it")
    words = (facts.text_of("kernel.cmdline") or "").split()
    off = [word for word in words if word in ("mitigations=off", "nopti", "nospectre_v2")]
    if off:
        return consider(
            f"off by {truncate_list(off)}: faster than machines in use", "boot without it"
        )
    on = sorted(name for name, value in by_flaw.items() if value.startswith("Mitigation"))
    open_ = sorted(name for name, value in by_flaw.items() if value.startswith("Vulnerable"))
    flaws = count(len(on) + len(open_), "flaw")
    has = f"the kernel defends against {len(on)} of this CPU's {flaws}"
    if open_:
        return consider(
            f"{has}, not against {truncate_list(open_, 3)}", "update the microcode and the kernel"
        )
    return good(f"{has}: {truncate_list(on, 3)}" if on else "none needed")


@CHECKS.add("clock source", "clocksource", absent="the kernel does not report it")
def clock_source(facts: MachineFacts, value: str) -> Opinion:
    """programs that read the time often pay for it."""
    if value in ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"):
        there = (facts.text_of("clocksource.available") or "").split()
        command = (
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"
            if "tsc" in there
            else "dmesg | grep -i tsc tells why the kernel gave it up"
        )
        return bad(f"{value}: a microsecond and a system call a reading", command)
    return good(value)


def _virtual(facts: MachineFacts) -> str | None:
    value = facts.text_of("virtualization")
    return None if value in (None, "none") else value


def _isolated(facts: MachineFacts) -> frozenset[int]:
    """Return the CPUs that were isolated at boot, or since then by a partition of cgroups."""
    return _cpus(facts, "cpu.isolated") | _cpus(facts, "cgroup.isolated_cpus")


def _cpus(facts: MachineFacts, name: str) -> frozenset[int]:
    try:
        return parse_set(facts.text_of(name) or "")
    except ValueError:
        return frozenset()
