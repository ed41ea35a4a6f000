"""Checks of the system around: other work, addresses, permissions, limits, mitigations; pure."""

from __future__ import annotations

from rater.analysis.doctor.model import (
    MachineFacts,
    Opinion,
    bad,
    consider,
    good,
    off_or_absent,
    unknown,
)
from rater.text.words import count, some

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
        return consider(f"off by {some(off)}: faster than machines in use", "boot without it")
    on = sorted(name for name, value in found.items() if value.startswith("Mitigation"))
    open_ = sorted(name for name, value in found.items() if value.startswith("Vulnerable"))
    flaws = count(len(on) + len(open_), "flaw")
    has = f"the kernel defends against {len(on)} of this CPU's {flaws}"
    if open_:
        return consider(
            f"{has}, not against {some(open_, 3)}", "update the microcode and the kernel"
        )
    return good(f"{has}: {some(on, 3)}" if on else "none needed")
