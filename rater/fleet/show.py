"""Slow hosts of a fleet, their trials and histories, in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from rater.analysis.divots.confirm import ConfirmResult, ConfirmVerdict
from rater.analysis.divots.model.finding import Analysis
from rater.analysis.divots.model.formatting import format_slowdown
from rater.fleet.history import (
    FEWEST_POINTS,
    DatedStep,
    FactChange,
    FleetTrend,
    History,
    HostPair,
    Suspect,
)
from rater.fleet.model import FleetComparison, HostKind, KindComparison, OddSetting, SlowHost
from rater.fleet.plan import AttemptState
from rater.show.console import Printer
from rater.show.results.divots import disturbed_line
from rater.show.results.to_json import evidence_line
from rater.text.values import count, group_by_key, join_and, percent, to_dict, truncate_list

BESIDE = "against hosts with another kernel or microcode, which may be why"
_MOST_HOSTS = 40
_MOST_NAMED = 4  # benchmarks in a sentence, settings, hosts of a small kind
_MOST_INSIDE = 3
_LEVEL = 0.4  # of the slowdown of all copies together: a median copy below that is level


class MissingHost(Struct, frozen=True):
    """A host of the plan that has no complete run."""

    host: str
    state: str
    reason: str | None
    attempts: int
    has_times: bool  # part of it was published, and stands in the map


def print_fleet(
    fleet: int,
    compared: FleetComparison,
    inside: Mapping[str, Analysis],
    printer: Printer,
    missing: Sequence[MissingHost] = (),
) -> None:
    """Print the slow hosts, kind by kind, or that there are none and what would have been seen.

    `inside`: the divots of single hosts, told with them.
    """
    verdict = verdict_text(compared, missing)
    printer.prose(f"Fleet {fleet}: {verdict}. {count(compared.hosts, 'host')} compared.", "bold")
    for kind in compared.kinds:
        _print_kind(kind, inside, len(compared.kinds) > 1, printer)
    if compared.without_times:
        many = count(len(compared.without_times), "host")
        named = truncate_list(compared.without_times, _MOST_NAMED)
        printer.prose(f"Not compared: {many} with no benchmark that ended well ({named}).")


def verdict_text(compared: FleetComparison, missing: Sequence[MissingHost]) -> str:
    """Return what the fleet says in a line: how many hosts are slow, or that nobody can tell."""
    if compared.slow:
        return count(len(compared.slow), "slow host")
    lacking = [it for it in missing if not it.has_times]
    why = [kind.why_not for kind in compared.kinds[:1] if kind.why_not] or (
        [] if compared.kinds else ["no host has times"]
    )
    if lacking:
        planned = compared.hosts + len(lacking)
        why.append(f"{len(lacking)} of {count(planned, 'host')} not complete")
    known = compared.kinds and not compared.kinds[0].cannot_tell
    if known and lacking:
        return f"No slow hosts among those that are complete ({why[-1]})"
    return f"Cannot tell: {'; '.join(why)}" if why else "No slow hosts"


def state_text(state: str) -> str:
    """Return what people read of a state of a host that is missing."""
    return AttemptState.NEVER.text if state == AttemptState.NEVER else state


def print_missing(missing: Sequence[MissingHost], printer: Printer) -> None:
    """Print which hosts are not complete, by state and reason."""
    told = group_by_key(((it.state, it.reason or "not known why"), it.host) for it in missing)
    for (state, reason), hosts in told.items():
        printer.prose(
            f"Not complete: {count(len(hosts), 'host')} {state_text(state)} "
            f"({truncate_list(hosts, _MOST_NAMED)}): "
            f"{reason}",
            "yellow",
        )


def print_next(fleet: int, compared: FleetComparison, printer: Printer) -> None:
    """Print the commands that follow."""
    if compared.slow:
        printer.line(f"next: `rater divots --confirm fleet:{fleet}`   (slow hosts beside others)")
        printer.line(f"next: `rater report fleet:{fleet}`   (a page with all hosts)")


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
    return f"set otherwise: {truncate_list(odd, _MOST_NAMED)}"


def inside_lines(inside: Analysis) -> list[str]:
    """Return the divots of a slow host's own run, the most costly first."""
    if inside.disturbed:
        return [disturbed_line(inside)]
    divots = [one for one in inside.findings if not one.explained]
    lines = [f"inside: {evidence_line(one)}" for one in divots[:_MOST_INSIDE]]
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
    return [
        f"its median copy is at {format_slowdown(typical)}: a part of it is slow, or a few copies "
        "are"
    ]


def finding_text(slow: SlowHost) -> str:
    """Return in what a host is slow and by how much, in one sentence."""
    named = [f"{it.name} {format_slowdown(it.slowdown)}" for it in slow.benchmarks[:_MOST_NAMED]]
    more = len(slow.benchmarks) - len(named)
    told = join_and([*named, *([f"{more} more"] if more else [])])
    if slow.slowdown > 1:
        of = "" if slow.alike == slow.of else f", {slow.alike} of {slow.of} benchmarks"
        beyond = f"; most of all {told}" if told else ""
        every = "all benchmarks" if slow.of > 1 else "its benchmark"
        return f"{format_slowdown(slow.slowdown)} in {every} (median{of}){beyond}"
    others = slow.of - len(slow.benchmarks)
    mean = format_slowdown(slow.mean_slowdown)
    return f"{told}; level in the other {others} (geometric mean {mean})" if others else told


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


def visible_text(kind: KindComparison) -> str:
    """Return what these hosts would have shown, or that nobody can tell."""
    if kind.why_not or kind.visible_whole is None or kind.visible_one is None:
        level = " Against the most common kind none is slow." if kind.beside == () else ""
        return f"Cannot tell: {kind.why_not}.{level}"
    return (
        f"{count(len(kind.hosts), 'host')} can show a host slower by "
        f"{percent(kind.visible_whole)} % or more in all benchmarks, or by "
        f"{percent(kind.visible_one)} % in one."
    )


def _print_kind(
    kind: KindComparison, inside: Mapping[str, Analysis], several: bool, printer: Printer
) -> None:
    printer.line()
    apart = f" (apart: {'; '.join(kind.apart)})" if kind.apart else ""
    printer.prose(f"{count(len(kind.hosts), 'host')}{apart}: {kind_text(kind.kind)}")
    if several and len(kind.hosts) <= _MOST_NAMED:
        printer.prose(f"  {', '.join(kind.hosts)}")
    if kind.slow:
        many = count(len(kind.slow), "slow host")
        printer.line(f"{many}, the slowest first (geometric mean of all benchmarks):", "bold")
    for number, slow in enumerate(kind.slow[:_MOST_HOSTS], 1):
        first, *more = slow_lines(slow, inside.get(slow.host))
        printer.prose(f"  {number}. {first}")
        for text in more:
            printer.prose(f"     {text}", "dim")
    if len(kind.slow) > _MOST_HOSTS:
        printer.line(f"  and {len(kind.slow) - _MOST_HOSTS} more (--json has them all)")
    for slow in kind.beside or ():
        printer.prose(f"  {slow.host}: {finding_text(slow)} {BESIDE}", "bold yellow")
        if slow.host in inside:
            printer.some(inside_lines(inside[slow.host]), "dim", indent="     ")
    if not kind.slow and not kind.cannot_tell:
        printer.line("No slow hosts.", "green")
    if kind.disturbed:
        printer.prose(f"Disturbed by other work: {truncate_list(kind.disturbed, _MOST_NAMED)}")
    named = {it.host for it in kind.slow[:_MOST_HOSTS]}
    odd = [(host, own) for host, own in kind.odd_settings.items() if host not in named]
    printer.some((f"{host}: {odd_text(own)}" for host, own in odd), most=_MOST_HOSTS, indent="  ")
    printer.prose(visible_text(kind), "" if kind.cannot_tell else "dim")


def fleet_document(
    fleet: int, compared: FleetComparison, inside: Mapping[str, Analysis]
) -> dict[str, object]:
    """Return the same as JSON values: slowdowns are time over the others' median."""
    return {
        "fleet": fleet,
        "hosts": compared.hosts,
        "without_times": list(compared.without_times),
        "kinds": [
            {
                "kind": to_dict(kind.kind),
                "apart": list(kind.apart),
                "hosts": list(kind.hosts),
                "cannot_tell": kind.cannot_tell,
                "visible": {"all": kind.visible_whole, "one": kind.visible_one},
                "slow": [_slow_document(one, inside.get(one.host)) for one in kind.slow],
                "why_not": kind.why_not,
                "disturbed": list(kind.disturbed),
                "slow_beside": [
                    _slow_document(one, inside.get(one.host)) for one in kind.beside or ()
                ],
                "odd_settings": {
                    host: [to_dict(it) for it in own] for host, own in kind.odd_settings.items()
                },
                "slowdowns": _slowdown_rows(kind),
            }
            for kind in compared.kinds
        ],
    }


def _slow_document(slow: SlowHost, inside: Analysis | None) -> dict[str, object]:
    return to_dict(slow) | {"text": slow_lines(slow, inside)}


def _slowdown_rows(kind: KindComparison) -> Sequence[dict[str, object]]:
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


# -- The trial of slow hosts: which run beside which, and what came of it --------------------------

_MEANS = {
    ConfirmVerdict.CONFIRMED: "slow again",
    ConfirmVerdict.SMALLER: "slow again, but less than half as much",
    ConfirmVerdict.NOT_CONFIRMED: "the difference is not there now",
    ConfirmVerdict.OPEN: "inconclusive: too noisy; use more --pairs",
}


class HostConfirmView(Struct, frozen=True):
    """A trial of slow hosts."""

    fleet: int
    suspects: Sequence[Suspect]
    rounds: Sequence[Sequence[HostPair]]
    fleets: Sequence[int] = ()  # numbers of the rounds that were made
    verdicts: Sequence[ConfirmResult | None] = ()  # of the suspects


def print_plan(trial: HostConfirmView, printer: Printer) -> None:
    """Print what runs beside what."""
    printer.line(
        f"Fleet {trial.fleet}: {count(len(trial.suspects), 'slow host')}, each beside "
        f"{count(len(trial.rounds), 'quiet host')} in turn",
        "bold",
    )
    for turn, pairs in enumerate(trial.rounds, 1):
        told = [f"{pair.suspect.host} beside {pair.quiet}" for pair in pairs]
        printer.prose(f"  round {turn}: {truncate_list(told, 12)}")


def print_host_verdicts(trial: HostConfirmView, printer: Printer) -> None:
    """Print what the rounds say of each suspect."""
    for suspect, told in zip(trial.suspects, trial.verdicts, strict=True):
        what = ", ".join(suspect.benchmarks) or "all benchmarks"
        if told is None:
            printer.prose(
                f"{suspect.host}: cannot tell: fewer than two pairs were measured undisturbed"
            )
            continue
        is_slow = told.answer in (ConfirmVerdict.CONFIRMED, ConfirmVerdict.SMALLER)
        printer.prose(
            f"{suspect.host}: {told.answer}: {_MEANS[told.answer]}",
            "bold yellow" if is_slow else "",
        )
        pairs = ", ".join(format_slowdown(one) for one in told.pairs)
        printer.prose(
            f"  {what} {format_slowdown(told.slowdown)}, 95 % interval "
            f"{format_slowdown(told.low)} to "
            f"{format_slowdown(told.high)}; originally {format_slowdown(suspect.slowdown)}; "
            f"pairs: {pairs}"
        )


def host_trial_document(trial: HostConfirmView) -> dict[str, object]:
    """Return the same as JSON values."""
    return {
        "fleet": trial.fleet,
        "rounds": [
            [{"suspect": pair.suspect.host, "quiet": pair.quiet} for pair in pairs]
            for pairs in trial.rounds
        ],
        "fleets": list(trial.fleets),
        "hosts": [
            to_dict(suspect) | {"verdict": told and to_dict(told)}
            for suspect, told in zip(
                trial.suspects, trial.verdicts or [None] * len(trial.suspects), strict=True
            )
        ],
    }


# -- The history of a host or a benchmark: steps in words, and a line of marks to look at ----------

_MARKS = "▁▂▃▄▅▆▇█"
_ASCII_MARKS = "_.-=+*%#"
_MOST_STEPS = 20
_MOST_CHANGES = 6
_LEAST_SPAN = 0.02  # ln, of a line of marks: noise of less is flat


def print_history(history: History, printer: Printer) -> None:
    """Print the steps and the course of it all."""
    what = "of a host against the others of its kind" if _is_of_host(history) else "of a benchmark"
    many = count(history.points, "fleet")
    printer.prose(f"{history.name} in {history.program}: history {what}, {many}", "bold")
    if history.alone:
        printer.prose(f"{count(history.alone, 'more fleet')} had fewer than 3 others of its kind.")
    for this_series in history.series[:1]:
        _print_course(this_series, printer)
    if history.too_short:
        printer.prose(
            f"Cannot tell of steps: {count(history.points, 'fleet')}, expected {FEWEST_POINTS} "
            "or more."
        )
        return
    if not history.steps:
        printer.line("No steps.", "green")
    for step in history.steps[:_MOST_STEPS]:
        printer.prose(step_text(step), "bold" if step.ratio > 1 else "")
        for text in changes_lines(step.changes):
            printer.prose(f"  {text}")
    if len(history.steps) > _MOST_STEPS:
        printer.line(f"and {len(history.steps) - _MOST_STEPS} more (--json has them all)")


def step_text(step: DatedStep) -> str:
    """Return when a step was, how large, and where it left the level."""
    where = step.benchmark or "all benchmarks"
    who = f"{step.host}: " if step.host and step.benchmark else ""
    now = "the others" if step.host else "at first"
    level = format_slowdown(step.level)
    return (
        f"{_day(step.started_at)} (fleet {step.fleet}): {who}{where} "
        f"{format_slowdown(step.ratio)}, "
        f"since then {level} against {now} over {count(step.fleets_since, 'fleet')}"
        f" (last before: {_day(step.last_before)})"
    )


def changes_lines(changes: Sequence[FactChange]) -> list[str]:
    """Return what changed at a step."""
    if not changes:
        return ["nothing that is recorded changed then: no setting, kernel, microcode or machine"]
    own = [_change(it) for it in changes if not it.others_too]
    too = [_change(it) for it in changes if it.others_too]
    lines = [f"changed then: {truncate_list(own, _MOST_CHANGES)}"] if own else []
    if too:
        lines.append(
            f"changed then, and on most others as well: {truncate_list(too, _MOST_CHANGES)}"
        )
    return lines


def history_document(histories: Sequence[History]) -> dict[str, object]:
    """Return all of it as JSON values: the first one, and those of other programs."""
    return to_dict(histories[0]) | {"others": [to_dict(it) for it in histories[1:]]}


def _is_of_host(history: History) -> bool:
    return history.series[0].name == "" if history.series else True


def _change(change: FactChange) -> str:
    names = {"machine_id_hash": "machine (another machine-id)", "cpu_model": "CPU"}
    name = names.get(change.name, change.name)
    if change.name == "machine_id_hash":
        return name
    return f"{name} {change.before or 'not there'} -> {change.after or 'not there'}"


def _day(date: str | None) -> str:
    return "date not known" if date is None else date[:10]


def _print_course(series: FleetTrend, printer: Printer) -> None:
    if not series.ratios:
        return
    logs = [math.log(it) for it in series.ratios][-max(20, printer.width - 30) :]
    low, high = min(logs), max(logs)
    span = max(high - low, _LEAST_SPAN)
    marks = _ASCII_MARKS if printer.ascii_only else _MARKS
    middle = (low + high) / 2
    line = "".join(
        marks[min(len(marks) - 1, max(0, int((it - middle + span / 2) / span * len(marks))))]
        for it in logs
    )
    ends = f"{format_slowdown(math.exp(low))} to {format_slowdown(math.exp(high))}"
    printer.line(f"{line}  {ends}")
    first, last = series.dates[-len(logs)], series.dates[-1]
    printer.line(f"{_day(first)} to {_day(last)}; higher is slower", "dim")
