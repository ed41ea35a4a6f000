"""What changes a layout from the command line, and what a layout's options are called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rater.errors import InputError
from rater.plan.placement.layout import MOST_CORES, BindLevel, CpuOrder, Layout, Parts, is_kind
from rater.text import cpuset


def override(
    layout: Layout,
    *,
    bind: str | None = None,
    smt: int | None = None,
    kind: str | None = None,
    reserve: int | None = None,
) -> Layout:
    """Return the layout with what `--bind`, `--smt`, `--kind` and `--reserve` say (None: nothing).

    `bind="none"` makes it one that does not bind. Raises `InputError` for values
    that mean nothing, and for options that do not go together.
    """
    if bind is not None and bind not in list(BindLevel):
        raise InputError(f"--bind {bind}: expected {', '.join(BindLevel)}")
    if smt is not None and smt < 1:
        raise InputError(f"--smt {smt}: expected the number of threads of a core to use, 1 or more")
    if kind is not None and not is_kind(kind):
        raise InputError(f"--kind {kind}: expected fast, slow, or a number (0 is the slowest)")
    if reserve is not None and not 0 <= reserve <= MOST_CORES:
        raise InputError(f"--reserve {reserve}: expected a number of cores, 0 to {MOST_CORES}")
    given: dict[str, Any] = {"smt": smt, "kind": kind, "reserve": reserve}
    changed = replace(layout, **{name: it for name, it in given.items() if it is not None})
    if bind is not None and BindLevel(bind) is BindLevel.NONE:
        changed = replace(changed, order=CpuOrder.NONE, bind=BindLevel.NONE, text="")
    elif bind is not None:
        if layout.order is CpuOrder.NONE:
            raise InputError(
                f"--bind {bind}: layout {layout.name} does not bind copies: use another layout"
            )
        changed = replace(changed, bind=BindLevel(bind))
    idle = options(changed)
    if changed.order is CpuOrder.NONE and idle:
        raise InputError(
            f"layout {layout.name} with {', '.join(idle)}: copies that are not bound run on any "
            "CPU: use a layout that binds, or leave that out"
        )
    return changed


def options(layout: Layout) -> list[str]:
    """Return what narrows the layout, in words: `smt 1`, `reserve 2`, `nodes 0-1`, ..."""
    lines = [f"{name} {cpuset.format_list(numbers)}" for name, numbers in _numbers(layout.only)]
    lines += [
        f"without {name} {cpuset.format_list(numbers)}"
        for name, numbers in _numbers(layout.exclude)
    ]
    lines += [f"reserve {layout.reserve}"] if layout.reserve else []
    lines += [f"kind {layout.kind}"] if layout.kind else []
    lines += [] if layout.smt is None else [f"smt {layout.smt}"]
    if layout.counts is not None:
        shares = [f"{copies} on lgroup {node}" for node, copies in layout.counts.by_node]
        shares += [f"{layout.counts.rest} on each other"] if layout.counts.rest else []
        lines.append(f"copies {', '.join(shares)}")
    return lines


def called(
    name: str,
    *,
    bind: str | None = None,
    smt: int | None = None,
    kind: str | None = None,
    reserve: int | None = None,
) -> str:
    """Return what a run's layout is called: its name and what was changed, `cores, smt 1`."""
    changes = (("bind", bind), ("smt", smt), ("kind", kind), ("reserve", reserve))
    return ", ".join([name, *(f"{what} {value}" for what, value in changes if value is not None)])


def _numbers(parts: Parts) -> list[tuple[str, tuple[int, ...]]]:
    named = [("CPUs", parts.cpus), ("lgroups", parts.nodes), ("cores", parts.cores)]
    return [(name, numbers) for name, numbers in named if numbers]
