"""Slow hosts of a fleet in words, and the same as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rater.analysis.divots.data.finding import Analysis
from rater.analysis.divots.data.words import per_cent
from rater.analysis.fleet.model import FleetCompared, HostKind, KindCompared, OddSetting, SlowHost
from rater.groups import grouped
from rater.show.console.printer import Printer
from rater.show.divots.findings import disturbed_line
from rater.show.divots.to_json import evidence_line
from rater.text.words import count, percent, series, some

_MOST_HOSTS = 40
_MOST_NAMED = 4  # benchmarks in a sentence, settings, hosts of a small kind
_MOST_INSIDE = 3
_LEVEL = 0.4  # of the slowdown of all copies together: a median copy below that is level


@dataclass(frozen=True, slots=True)
class MissingHost:
    """A host of the plan that has no complete run."""

    host: str
    state: str
    reason: str | None
    attempts: int
    has_times: bool  # part of it was published, and stands in the map


def print_fleet(
    fleet: int,
    compared: FleetCompared,
    inside: Mapping[str, Analysis],
    printer: Printer,
) -> None:
    """Print the slow hosts, kind by kind, or that there are none and what would have been seen.

    `inside`: the divots of single hosts, told with them.
    """
    printer.line(f"Fleet {fleet}: {count(compared.hosts, 'host')} compared", "bold")
    for kind in compared.kinds:
        _print_kind(kind, inside, len(compared.kinds) > 1, printer)
    if compared.without_times:
        many = count(len(compared.without_times), "host")
        named = some(compared.without_times, _MOST_NAMED)
        printer.prose(f"Not compared: {many} with no benchmark that ended well ({named}).")


def print_missing(missing: Sequence[MissingHost], printer: Printer) -> None:
    """Print which hosts are not complete, by state and reason."""
    told = grouped(((it.state, it.reason or "not known why"), it.host) for it in missing)
    for (state, reason), hosts in told.items():
        printer.prose(
            f"Not complete: {count(len(hosts), 'host')} {state} ({some(hosts, _MOST_NAMED)}): "
            f"{reason}",
            "yellow",
        )


def print_next(fleet: int, compared: FleetCompared, printer: Printer) -> None:
    """Print the commands that follow."""
    if compared.slow:
        printer.line(f"next: rater divots --confirm fleet:{fleet}   (slow hosts beside quiet ones)")
        printer.line(f"next: rater report fleet:{fleet}   (a page with all hosts)")


def slow_lines(slow: SlowHost, inside: Analysis | None = None) -> list[str]:
    """Return what is said of a slow host: the finding, what is slow inside, what is odd."""
    lines = [f"{slow.host}: {finding_text(slow)}"]
    lines += inside_lines(inside) if inside is not None else part_lines(slow)
    if slow.odd_settings:
        lines.append(odd_text(slow.odd_settings))
    return lines


def odd_text(settings: Sequence[OddSetting]) -> str:
    """Return what a host has set otherwise than most of its kind."""
    odd = [
        f"{it.name} is {it.value or 'not there'} (most others: {it.usual or 'not there'})"
        for it in settings
    ]
    return f"set otherwise: {some(odd, _MOST_NAMED)}"


def inside_lines(inside: Analysis) -> list[str]:
    """Return the divots of a slow host's own run, the most costly first."""
    divots = [one for one in inside.findings if not one.explained]
    lines = [disturbed_line(inside)] if inside.disturbed else []
    lines += [f"inside: {evidence_line(one)}" for one in divots[:_MOST_INSIDE]]
    if len(divots) > _MOST_INSIDE:
        lines.append(f"inside: {count(len(divots) - _MOST_INSIDE, 'more divot')}")
    if not divots:
        lines.append("inside: no copy and no part stands out: all of it is slow alike")
    return lines


def part_lines(slow: SlowHost) -> list[str]:
    """Return whether only a part of a host is slow, as far as its median copies tell."""
    typical = (
        slow.typical_copy
        if slow.slowdown > 1
        else max((it.typical_copy for it in slow.benchmarks), default=1.0)
    )
    if typical - 1 >= _LEVEL * (slow.worst - 1):
        return []
    return [f"its median copy is at {per_cent(typical)}: a part of it is slow, or a few copies are"]


def finding_text(slow: SlowHost) -> str:
    """Return in what a host is slow and by how much, in one sentence."""
    named = [f"{it.name} {per_cent(it.slowdown)}" for it in slow.benchmarks[:_MOST_NAMED]]
    more = len(slow.benchmarks) - len(named)
    told = series([*named, *([f"{more} more"] if more else [])])
    if slow.slowdown > 1:
        of = "" if slow.alike == slow.of else f", {slow.alike} of {slow.of} benchmarks"
        beyond = f"; most of all {told}" if told else ""
        every = "all benchmarks" if slow.of > 1 else "its benchmark"
        return f"{per_cent(slow.slowdown)} in {every} (median{of}){beyond}"
    others = slow.of - len(slow.benchmarks)
    return f"{told}; level in the other {others}" if others else told


def kind_text(kind: HostKind) -> str:
    """Return what hosts of a kind are, in a line."""
    memory = None if kind.memory_bytes is None else f"{kind.memory_bytes / 2**30:.0f} GiB"
    parts = (
        *(kind.cpu_model, count(kind.cpus, "CPU"), memory),
        kind.microcode and f"microcode {kind.microcode}",
        kind.kernel and f"kernel {kind.kernel}",
        f"{count(kind.copies, 'copy', 'copies')} of {kind.what}",
    )
    return ", ".join(part for part in parts if part)


def visible_text(kind: KindCompared) -> str:
    """Return what these hosts would have shown, or that nobody can tell."""
    if kind.visible_whole is None or kind.visible_one is None:
        one = "one host alone" if len(kind.hosts) == 1 else f"{len(kind.hosts)} hosts"
        return f"Cannot tell: {one} of this kind, and fewer than 4 do not show what is usual."
    return (
        f"{count(len(kind.hosts), 'host')} can show a host slower by "
        f"{percent(kind.visible_whole)} % or more in all benchmarks, or by "
        f"{percent(kind.visible_one)} % in one."
    )


def _print_kind(
    kind: KindCompared, inside: Mapping[str, Analysis], several: bool, printer: Printer
) -> None:
    printer.line()
    apart = f" (apart: {'; '.join(kind.apart)})" if kind.apart else ""
    printer.prose(f"{count(len(kind.hosts), 'host')}{apart}: {kind_text(kind.kind)}")
    if several and len(kind.hosts) <= _MOST_NAMED:
        printer.prose(f"  {', '.join(kind.hosts)}")
    if kind.slow:
        printer.line(f"{count(len(kind.slow), 'slow host')}, the slowest first:", "bold")
    for number, slow in enumerate(kind.slow[:_MOST_HOSTS], 1):
        first, *more = slow_lines(slow, inside.get(slow.host))
        printer.prose(f"  {number}. {first}")
        for text in more:
            printer.prose(f"     {text}", "dim")
    if len(kind.slow) > _MOST_HOSTS:
        printer.line(f"  and {len(kind.slow) - _MOST_HOSTS} more (--json has them all)")
    if not kind.slow and not kind.cannot_tell:
        printer.line("No slow hosts.", "green")
    printer.prose(visible_text(kind), "" if kind.cannot_tell else "dim")


def fleet_document(
    fleet: int, compared: FleetCompared, inside: Mapping[str, Analysis]
) -> dict[str, object]:
    """Return the same as JSON values: slowdowns are time over the others' median."""
    return {
        "fleet": fleet,
        "hosts": compared.hosts,
        "without_times": list(compared.without_times),
        "kinds": [
            {
                "kind": asdict(kind.kind),
                "apart": list(kind.apart),
                "hosts": list(kind.hosts),
                "cannot_tell": kind.cannot_tell,
                "visible": {"all": kind.visible_whole, "one": kind.visible_one},
                "slow": [_slow_document(one, inside.get(one.host)) for one in kind.slow],
                "slowdowns": _slowdown_rows(kind),
            }
            for kind in compared.kinds
        ],
    }


def _slow_document(slow: SlowHost, inside: Analysis | None) -> dict[str, object]:
    return asdict(slow) | {"text": slow_lines(slow, inside)}


def _slowdown_rows(kind: KindCompared) -> Sequence[dict[str, object]]:
    return [
        {
            "host": host,
            "slowdowns": {
                name: None if it is None else round(it, 5)
                for name, it in zip(kind.benchmarks, kind.slowdowns[host], strict=True)
            },
        }
        for host in kind.hosts
    ]
