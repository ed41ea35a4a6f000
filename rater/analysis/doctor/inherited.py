"""What is unusual about the state that copies inherit from the process that started rater; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from rater.text.values import truncate_list

_USUAL_SLACK_NS = 50_000  # of every process that nobody gave another
_ALL_OF_A_CPU = 1024  # of uclamp
_FIXED_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE, linux/personality.h
# A shell ignores these for jobs in the background and for nohup: no program waits for them.
_OF_JOBS = frozenset({"SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU"})
_LIMITS = {
    "cpu_seconds": "seconds of CPU time (ulimit -t)",
    "address_space": "bytes of address space (ulimit -v)",
    "data": "bytes of data (ulimit -d)",
    "file_bytes": "bytes of a file (ulimit -f)",
}


class InheritedState(Struct, frozen=True, kw_only=True):
    """Something that copies inherit and other processes of the machine do not have."""

    text: str
    way_out: str
    is_harmful: bool = False  # for every program; else for some
    is_asked: bool = False  # as `nice` does it on purpose: no run has to say so


def inherited_states(values: Mapping[str, str]) -> Iterator[InheritedState]:
    """Yield what is unusual in the settings of a process; what is not known is passed over."""
    yield from _scheduling(values)
    yield from _memory(values)
    yield from _signals_and_limits(values)


def has_fixed_addresses(values: Mapping[str, str]) -> bool:
    """Tell whether the addresses of a process and of all that it starts are not random."""
    try:
        return bool(int(values.get("process.personality", "0"), 16) & _FIXED_ADDRESSES)
    except ValueError:  # whatever another wrote into a database
        return False


def _scheduling(values: Mapping[str, str]) -> Iterator[InheritedState]:
    policy = values.get("process.scheduler", "other")
    if policy == "idle":
        yield InheritedState(
            text="scheduling policy idle: copies run only where nobody else wants the CPU",
            way_out="chrt --other 0 rater ...",
            is_harmful=True,
        )
    elif policy == "batch":
        yield InheritedState(
            text="scheduling policy batch: copies that wake up wait longer for a CPU",
            way_out="chrt --other 0 rater ...",
        )
    elif policy != "other":
        yield InheritedState(
            text=f"real-time scheduling ({policy}): nothing else runs on the copies' CPUs",
            way_out="chrt --other 0 rater ...",
        )
    nice = values.get("process.nice", "0")
    if nice != "0":
        more_or_less = "less" if nice.lstrip("-") == nice else "more"
        yield InheritedState(
            text=f"nice {nice}: copies get {more_or_less} of a CPU that they share",
            way_out="start rater without nice",
            is_asked=True,
        )
    slack = values.get("process.timer_slack_ns", "0")
    if slack.isdecimal() and int(slack) > _USUAL_SLACK_NS:
        yield InheritedState(
            text=f"timer slack {int(slack) / 1e3:g} us: sleeps of copies end up to so much later",
            way_out="start rater from a process with the usual 50 us (TimerSlackNSec= of systemd)",
        )
    clamp = values.get("process.uclamp_max", str(_ALL_OF_A_CPU))
    if clamp.isdecimal() and int(clamp) < _ALL_OF_A_CPU:
        yield InheritedState(
            text=f"uclamp.max {clamp} of {_ALL_OF_A_CPU}: CPUs of copies stay below their speed",
            way_out=f"uclampset -M {_ALL_OF_A_CPU} rater ...",
            is_harmful=True,
        )


def _memory(values: Mapping[str, str]) -> Iterator[InheritedState]:
    state = values.get("process.thp", "on")
    if state != "on" and values.get("thp.enabled", "never") != "never":
        advised = " but for memory that asks for them" if "unless" in state else ""
        yield InheritedState(
            text=f"transparent huge pages are switched off{advised} (prctl PR_SET_THP_DISABLE)",
            way_out="start rater without MemoryTHP= of systemd, or the wrapper that does it",
        )
    adjustment = values.get("process.oom_score_adj", "0")
    if adjustment not in {"0", ""}:
        is_spared = adjustment.startswith("-")
        yield InheritedState(
            text=f"oom_score_adj {adjustment}: where memory is short, the kernel kills "
            f"{'other processes before the copies' if is_spared else 'the copies first'}",
            way_out="choom -n 0 -- rater ...",
            is_asked=not is_spared,  # every session of a desktop has 100 or more
        )
    if has_fixed_addresses(values):
        yield InheritedState(
            text="addresses are not random (setarch -R): layouts are fast or slow by chance",
            way_out="start rater without setarch -R",
        )
    for name, flaw in (("store_bypass", "store bypass"), ("indirect_branch", "indirect branches")):
        value = values.get(f"process.{name}", "")
        if "mitigated" in value and "thread" in value:
            yield InheritedState(
                text=f"the kernel slows copies down against {flaw} ({value}), as it does for "
                "programs under a seccomp filter",
                way_out="start rater outside of the sandbox that set it",
            )


def _signals_and_limits(values: Mapping[str, str]) -> Iterator[InheritedState]:
    names = values.get("process.ignored_signals", "").split()
    ignored = [name for name in names if name.startswith("SIG") and name not in _OF_JOBS]
    if ignored:
        yield InheritedState(
            text=f"{truncate_list(ignored)} ignored: programs that wait for it behave otherwise",
            way_out="start rater from a shell without `trap ''` for it",
        )
    blocked = values.get("process.blocked_signals", "none")
    if blocked.startswith("SIG"):
        yield InheritedState(
            text=f"{truncate_list(blocked.split())} blocked: copies do not get it",
            way_out="start rater from a program that unblocks its signals (sigprocmask)",
        )
    for name, words in _LIMITS.items():
        value = values.get(f"limit.{name}", "unlimited")
        if value.isdecimal():
            yield InheritedState(
                text=f"a limit of {value} {words}", way_out="raise it, or start from another shell"
            )
