"""The configuration that an exported raw file carries: `bind` lines that say where copies were.

For the programs that read such lines; rater itself takes places from its own keys. A copy
of which it is not known where it was has an empty line, and what is not known of its
memory is not said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rater.record.run import PlacedCopy
from rater.record.stored import StoredCopy, StoredRun
from rater.text.cpuset import format_list

_POLICIES = {
    "bind": "membind",
    "preferred": "preferred-many",  # of a single node `preferred`, which every numactl has
    "interleave": "interleave",
    "weighted": "weighted-interleave",
}
_SECTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*$", re.ASCII)

type _Key = tuple[str, str | None]  # benchmark, tune


def configuration(stored: StoredRun, tunes: Mapping[str | None, str], heading: str) -> str | None:
    """Return the configuration, in ASCII; None where nothing is known of any copy's place.

    A benchmark whose copies were elsewhere than those of the first one has a section of its
    own (`429.mcf=peak:`), if its name can stand there.
    """
    plans = {plan.copy: plan for plan in stored.placements}
    threads = {used.name: used.threads for used in stored.benchmarks}
    by_key: dict[_Key, dict[int, StoredCopy]] = {}
    for one in stored.copies:
        by_key.setdefault((one.benchmark, one.tune), {}).setdefault(one.copy, one)
    words = {
        key: {
            copy: _numactl(one, plans.get(copy), threads.get(one.benchmark, 1))
            for copy, one in places.items()
        }
        for key, places in by_key.items()
    }
    if not any(any(them.values()) for them in words.values()):
        return None
    usual: dict[int, str] = {}
    for them in words.values():
        for copy, text in them.items():
            usual.setdefault(copy, text)
    lines = [f"# {heading}", "submit = $BIND $command", *_binds(usual)]
    for (benchmark, tune), them in words.items():
        if all(usual[copy] == text for copy, text in them.items()):
            continue
        if _SECTION.match(benchmark):
            lines += ["", f"{benchmark}={tunes[tune]}:", *_binds(usual | them)]
        else:
            lines.append("# the copies of another benchmark, which cannot be named here, differ")
    return "\n".join(lines) + "\n"


def _binds(words: Mapping[int, str]) -> list[str]:
    # The values are used in a circle: every copy up to the last needs its own.
    return [f"bind{copy} = {words.get(copy, '')}".rstrip() for copy in range(max(words) + 1)]


def _numactl(copy: StoredCopy, plan: PlacedCopy | None, threads: int) -> str:
    """Return the command that puts a copy where it was, '' where that is not known."""
    words = []
    # A resumed run may have rows that were elsewhere than the plan of its last attempt.
    planned = plan is not None and plan.cpu == copy.cpu and plan.node == copy.node
    if planned and plan is not None and plan.cpus:
        words.append(f"--physcpubind={format_list(plan.cpus)}")
    elif copy.cpu is not None and threads == 1:
        words.append(f"--physcpubind={copy.cpu}")
    elif copy.node is not None:
        words.append(f"--cpunodebind={copy.node}")
    if planned and plan is not None:
        words += _memory(plan)
    return " ".join(("numactl", *words)) if words else ""


def _memory(plan: PlacedCopy) -> list[str]:
    if plan.memory_policy == "local":
        return ["--localalloc"]
    option = _POLICIES.get(plan.memory_policy)
    if option is None or not plan.memory_nodes:
        return []
    if plan.memory_policy == "preferred" and len(plan.memory_nodes) == 1:
        option = "preferred"
    return [f"--{option}={format_list(plan.memory_nodes)}"]
