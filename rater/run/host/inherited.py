"""What copies inherit from this process: its priority, signals, limits and switches of memory.

The launcher gives copies what rater was started with, whatever rater has for itself. Names and
values are stored with a run beside the settings of the machine.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from rater.run.host.procfs import read_text
from rater.system.patterns import compile_later
from rater.text.values import signal_name

_LIMITS = (
    ("stack", resource.RLIMIT_STACK),
    ("address_space", resource.RLIMIT_AS),
    ("data", resource.RLIMIT_DATA),
    ("locked_memory", resource.RLIMIT_MEMLOCK),
    ("open_files", resource.RLIMIT_NOFILE),
    ("processes", resource.RLIMIT_NPROC),
    ("cpu_seconds", resource.RLIMIT_CPU),
    ("file_bytes", resource.RLIMIT_FSIZE),
)
_POLICIES = {
    os.SCHED_OTHER: "other",
    os.SCHED_BATCH: "batch",
    os.SCHED_IDLE: "idle",
    os.SCHED_FIFO: "fifo",
    os.SCHED_RR: "rr",
    6: "deadline",  # which Python has no name for
}
_PR_GET_TIMERSLACK, _PR_GET_THP_DISABLE = 30, 42  # linux/prctl.h
# Answers of PR_GET_THP_DISABLE; the last since Linux 6.18.
_THP_STATES = {0: "on", 1: "off", 3: "off unless advised"}
_STATUS_LINE = compile_later(r"^(\w+):[ \t]*(.*)$", re.MULTILINE)
# A shell hands on each ignored signal, be it from its own parent or from `trap ''`.
_POSIX_SHELLS = frozenset({"sh", "ash", "bash", "busybox", "dash", "ksh", "ksh93", "mksh", "zsh"})
# Python ignores these two for itself, and forgets how it was started.
_OF_PYTHON = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
_USUAL_SIGNALS = 31  # those above are real-time signals, of which glibc keeps some for itself
_CLAMPS = compile_later(r"^uclamp\.(min|max)\s*:\s*(\d+)$", re.MULTILINE)


def process_settings(process: Path = Path("/proc/self")) -> tuple[tuple[str, str], ...]:
    """Return what copies inherit from this process that may change results, as settings.

    `process` is where the kernel describes it. What the kernel does not tell is left out.
    """
    return (
        ("process.nice", str(os.getpriority(os.PRIO_PROCESS, 0))),
        ("process.scheduler", _scheduler()),
        *_memory_and_time(),
        *_described(process),
        *(
            (f"limit.{name}", "unlimited" if soft == resource.RLIM_INFINITY else str(soft))
            for name, number in _LIMITS
            for soft in [resource.getrlimit(number)[0]]
        ),
    )


def _scheduler() -> str:
    """Return the scheduling policy of this thread, with its priority where it is real-time."""
    policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
    name = _POLICIES.get(policy, str(policy))
    priority = os.sched_getparam(0).sched_priority
    return f"{name} {priority}" if priority else name


def _memory_and_time() -> Iterator[tuple[str, str]]:
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    state = _THP_STATES.get(prctl(_PR_GET_THP_DISABLE, 0, 0, 0, 0))
    if state is not None:
        yield "process.thp", state
    slack_ns = prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    if slack_ns >= 0:
        yield "process.timer_slack_ns", str(slack_ns)


def _described(process: Path) -> Iterator[tuple[str, str]]:
    fields = dict(_STATUS_LINE.findall(read_text(process / "status") or ""))
    ignored = _signal_mask(fields, "SigIgn")
    if ignored is not None:
        of_shell = 1 << (signal.SIGPIPE - 1) if pipes_are_ignored() else 0
        yield "process.ignored_signals", _signals(ignored & ~_OF_PYTHON | of_shell)
    blocked = _signal_mask(fields, "SigBlk")
    if blocked is not None:
        yield "process.blocked_signals", _signals(blocked)
    adjustment = read_text(process / "oom_score_adj")
    if adjustment:
        yield "process.oom_score_adj", adjustment
    for name, field in (
        ("process.store_bypass", "Speculation_Store_Bypass"),
        ("process.indirect_branch", "SpeculationIndirectBranch"),
    ):
        if fields.get(field):
            yield name, fields[field]
    personality = read_text(process / "personality")
    if personality:
        yield "process.personality", personality.lstrip("0") or "0"
    for bound, value in _CLAMPS.findall(read_text(process / "sched") or ""):
        yield f"process.uclamp_{bound}", value


def pipes_are_ignored(proc: Path = Path("/proc")) -> bool:
    """Tell whether rater was started with SIGPIPE ignored.

    Python has changed it since then, so the shell that started rater is asked. Parents of other
    kinds may ignore it for themselves alone: then it is taken for usual.
    """
    parent = proc / str(os.getppid())
    try:
        program = (parent / "exe").readlink().name
    except OSError:  # it is another user's, or gone
        return False
    fields = dict(_STATUS_LINE.findall(read_text(parent / "status") or ""))
    is_ignored = (_signal_mask(fields, "SigIgn") or 0) >> (signal.SIGPIPE - 1) & 1
    return program in _POSIX_SHELLS and bool(is_ignored)


def _signal_mask(fields: Mapping[str, str], name: str) -> int | None:
    """Return a mask of signals of a process (`SigIgn`, `SigBlk`), or None if it is not told."""
    text = fields.get(name, "")
    return int(text, 16) if re.fullmatch("[0-9a-f]{1,32}", text) else None


def _signals(mask: int) -> str:
    numbers = range(1, _USUAL_SIGNALS + 1)
    names = [signal_name(number) for number in numbers if mask >> (number - 1) & 1]
    return " ".join(names) or "none"
