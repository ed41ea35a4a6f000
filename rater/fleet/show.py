"""What a fleet shows: nodes, slow hosts, trials, histories: documents, and tables over them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.conditions import setting_label
from rater.analysis.divots.confirm import ConfirmResult, ConfirmVerdict
from rater.analysis.divots.model.finding import Analysis
from rater.analysis.divots.model.formatting import format_slowdown
from rater.analysis.stats.steps import FEWEST_POINTS
from rater.fleet.archive import IndexedRun
from rater.fleet.backends.node_names import compress
from rater.fleet.history import History, Round, Suspect
from rater.fleet.hosts import FleetComparison, KindComparison, SlowHost
from rater.fleet.plan import FILES, AttemptState
from rater.show.results.divots import disturbed_line
from rater.show.results.to_json import evidence_line
from rater.show.screen.document import CHANGE, TEXT, Field, Form, Line, Part, Row, ViewTable
from rater.text.values import (
    JsonFields,
    count,
    group_by_key,
    join_and,
    percent,
    to_dict,
    truncate_list,
)

_MOST_HOSTS = 40
_MOST_NAMED = 4  # benchmarks in a sentence, settings, hosts of a small kind
_MOST_INSIDE = 3
_KIND = JsonFields("cpu_model microcode memory_bytes kernel cpus copies what=workload_text")
_NOISY = 1.5  # times what can be seen in a typical benchmark: a noisier one is told
_LEVEL = 0.4  # of the slowdown of all copies together: a median copy below that is level
SLOWDOWN = Form(
    lambda ratios: [CHANGE.cells([None if ratio is None else ratio - 1])[0] for ratio in ratios]
)


class MissingHost(Struct, frozen=True, kw_only=True):
    """A host of the plan that has no complete run."""

    host: str
    state: str
    reason: str | None
    attempts: int
    has_times: bool  # part of it was published, and stands in the map


def fleet_document(
    fleet: int,
    compared: FleetComparison,
    inside: Mapping[str, Analysis],
    missing: Sequence[MissingHost] = (),
) -> dict[str, Any]:
    """Return a fleet's hosts, kind by kind; slowdowns are time over the others' median.

    `inside`: the divots of single hosts.
    """
    return {
        "fleet": fleet,
        "against": compared.against,
        "verdict": _verdict(compared, missing),
        "hosts": sum(len(kind.hosts) for kind in compared.kinds),
        "without_times": list(compared.without_times),
        "kinds": [
            {
                "kind": _KIND.read(kind.kind),
                "about": _about_kind(kind.kind),
                "apart": list(kind.apart),
                "hosts": list(kind.hosts),
                "cannot_tell": kind.why_not is not None,
                "visible": {
                    "all": kind.visible_whole,
                    "one": kind.visible_one,
                    "worst": kind.visible_worst,
                },
                "slow": [_slow(slow_host, inside.get(slow_host.host)) for slow_host in kind.slow],
                "why_not": kind.why_not,
                "disturbed": list(kind.disturbed),
                "slow_beside": [
                    _slow(slow_host, inside.get(slow_host.host), is_beside=True)
                    for slow_host in kind.beside or ()
                ],
                "odd_settings": {
                    host: [to_dict(setting) for setting in settings]
                    for host, settings in kind.odd_settings.items()
                },
                "slowdowns": [
                    {
                        "host": host,
                        "slowdowns": {
                            name: slowdown and round(slowdown, 5)
                            for name, slowdown in kind.slowdowns[host].items()
                        },
                    }
                    for host in kind.hosts
                ],
                "against": compared.against,
                "reference_hosts": kind.reference_hosts,
                "shift": kind.shift,
                "summary": _visible(kind, compared.against),
            }
            for kind in compared.kinds
        ],
        "missing": [to_dict(missing_host) for missing_host in missing],
    }


def _verdict(compared: FleetComparison, missing: Sequence[MissingHost]) -> str:
    """Return how many hosts are slow, or why nobody can tell."""
    if compared.slow:
        return count(len(compared.slow), "slow host")
    lacking = [it for it in missing if not it.has_times]
    why = [kind.why_not for kind in compared.kinds[:1] if kind.why_not] or (
        [] if compared.kinds else ["no host has times"]
    )
    planned = sum(len(kind.hosts) for kind in compared.kinds) + len(lacking)
    if missing:  # those with times, too: the table below has all of them
        why.append(f"{len(missing)} of {count(planned, 'host')} not complete")
    is_known = compared.kinds and not compared.kinds[0].why_not
    if is_known and missing:
        return f"No slow hosts among those that are complete ({why[-1]})"
    return f"Cannot tell: {'; '.join(why)}" if why else "No slow hosts"


def _slow(slow: SlowHost, inside: Analysis | None, *, is_beside: bool = False) -> dict[str, Any]:
    lines = [f"{slow.host}: {finding_text(slow)}"]
    if is_beside:
        lines.append("compared with hosts of another kernel or microcode, which may be the cause")
    lines += _inside_lines(inside) if inside is not None else part_lines(slow)
    if slow.odd_settings:
        lines.append(odd_text(map(to_dict, slow.odd_settings)))
    return to_dict(slow) | {"text": lines}


def odd_text(settings: Iterable[Row]) -> str:
    """Return what a host has set otherwise than most of its kind."""
    odd = [
        f"{setting_label(setting['name'], '')} is {setting['value'] or 'absent'} (most others: "
        f"{setting['usual'] or 'absent'})"
        for setting in settings
    ]
    return f"differs: {truncate_list(odd, _MOST_NAMED)}"


def _inside_lines(inside: Analysis) -> list[str]:
    """Return the divots of a slow host's own run, the most costly first."""
    if inside.disturbed:
        return [disturbed_line(inside)]
    divots = [finding for finding in inside.findings if not finding.explained]
    lines = [f"inside: {evidence_line(divot)}" for divot in divots[:_MOST_INSIDE]]
    if len(divots) > _MOST_INSIDE:
        lines.append(f"inside: {count(len(divots) - _MOST_INSIDE, 'more divot')}")
    return lines or ["inside: all copies are equally slow; no part stands out"]


def part_lines(slow: SlowHost) -> list[str]:
    """Return whether only a part of a host is slow, as far as its median copies tell."""
    of_median = max((benchmark.typical_copy for benchmark in slow.benchmarks), default=1.0)
    typical = slow.typical_copy if slow.slowdown > 1 else of_median
    if typical - 1 >= _LEVEL * (slow.worst - 1):
        return []
    return [f"its median copy is at {format_slowdown(typical)}: only a part of it is slow"]


def finding_text(slow: SlowHost) -> str:
    """Return in what a host is slow and by how much, in one sentence."""
    named = [
        f"{benchmark.name} {format_slowdown(benchmark.slowdown)}"
        for benchmark in slow.benchmarks[:_MOST_NAMED]
    ]
    more = len(slow.benchmarks) - len(named)
    parts_named = join_and([*named, *([f"{more} more"] if more else [])])
    if slow.slowdown > 1:
        of = "" if slow.alike == slow.of else f", {slow.alike} of {slow.of} benchmarks"
        beyond = f"; most of all {parts_named}" if parts_named else ""
        every = "all benchmarks" if slow.of > 1 else "its benchmark"
        return f"{format_slowdown(slow.slowdown)} in {every} (median{of}){beyond}"
    others = slow.of - len(slow.benchmarks)
    mean = format_slowdown(slow.mean_slowdown)
    return (
        f"{parts_named}; level in the other {others} (geometric mean {mean})"
        if others
        else parts_named
    )


def _about_kind(kind: IndexedRun) -> str:
    parts = (
        *(kind.cpu_model, kind.cpus_text, kind.memory_text),
        kind.microcode and f"microcode {kind.microcode}",
        kind.kernel and f"kernel {kind.kernel}",
        f"{count(kind.copies, 'copy', 'copies')} of {kind.workload_text}",
    )
    return ", ".join(part for part in parts if part)


def _visible(kind: KindComparison, against: int | None) -> str:
    """Return the slowdown that would be visible on these hosts, or that nobody can tell."""
    if kind.shift is not None and kind.reference_hosts is not None and not kind.why_not:
        reference = count(kind.reference_hosts, "host")
        median_host = f"Median host: {format_slowdown(kind.shift)} against {reference}"
        return f"{median_host} of fleet {against}. {_visible(replace(kind, shift=None), None)}"
    if kind.why_not or kind.visible_whole is None or kind.visible_one is None:
        level = " None is slow against the most common kind." if kind.beside == () else ""
        return f"Cannot tell: {kind.why_not}.{level}"
    noisy = ""
    if kind.visible_worst is not None and kind.visible_worst[1] > _NOISY * kind.visible_one:
        name, worst = kind.visible_worst
        noisy = f" (up to {percent(worst)} % in {name})"
    return (
        f"Smallest detectable slowdown ({count(len(kind.hosts), 'host')}): "
        f"{percent(kind.visible_whole)} % in all benchmarks, {percent(kind.visible_one)} % in one"
        f"{noisy}."
    )


def fleet_parts(document: Row) -> Iterator[Part]:
    """Yield the slow hosts kind by kind, visible slowdowns, missing hosts and the next command."""
    fleet, kinds = document["fleet"], document["kinds"]
    hosts = count(document["hosts"], "host")
    yield Line(f"Fleet {fleet}: {document['verdict']}. {hosts} compared.", "bold")
    for kind in kinds:
        yield from _kind_parts(kind, several=len(kinds) > 1)
    if without := document["without_times"]:
        named = truncate_list(without, _MOST_NAMED)
        yield f"Not compared: {count(len(without), 'host')}, no benchmark ended well ({named})."
    yield from missing_parts(document["missing"])
    for line in retry_lines(document):
        yield Line(f"next: {line}", whole=True)
    if any(kind["slow"] or kind["slow_beside"] for kind in kinds):
        if document.get("backend") != FILES:
            confirm = f"rater divots --confirm fleet:{fleet}"
            yield Line(f"next: `{confirm}`   (run the slow hosts again)", whole=True)
        yield Line(f"next: `rater report fleet:{fleet}`   (a report of all hosts)", whole=True)
        if drain := _drain_line(document):
            yield Line(f"next: `{drain}`   (no more jobs there)", whole=True)


def _kind_parts(kind: Row, *, several: bool) -> Iterator[Part]:
    hosts, slow = kind["hosts"], [*kind["slow"], *kind["slow_beside"]]
    apart = f" (apart: {'; '.join(kind['apart'])})" if kind["apart"] else ""
    names = f" ({', '.join(hosts)})" if several and len(hosts) <= _MOST_NAMED else ""
    against = kind.get("against")
    others = "the others of its kind" if against is None else f"the hosts of fleet {against}"
    yield ""
    yield f"{count(len(hosts), 'host')}{names}{apart}: {kind['about']}"
    fields = (
        Field(heading="slow host", value="host", form=TEXT),
        Field(heading="mean|%", value="mean_slowdown", form=SLOWDOWN),
        Field(heading=f"slower than {others}", value=_without_host, wrap=True),
    )
    yield ViewTable(title="", rows=slow, fields=fields, most=_MOST_HOSTS)
    if not slow and not kind["cannot_tell"]:
        yield Line("No slow hosts.", "green")
    yield from odd_parts(kind)
    yield Line(kind["summary"], "" if kind["cannot_tell"] else "dim")


def odd_parts(kind: Row) -> Iterator[Part]:
    """Yield which hosts others disturbed, and settings that hosts have otherwise than most.

    Of slow hosts the settings stand beside their names.
    """
    if disturbed := kind["disturbed"]:
        yield f"Disturbed by other processes: {truncate_list(disturbed, _MOST_NAMED)}."
    slow = [*kind["slow"], *kind["slow_beside"]]
    named = {it["host"] for it in slow[:_MOST_HOSTS]}
    odd = [
        {"host": host, "odd": odd_text(own)}
        for host, own in kind["odd_settings"].items()
        if host not in named
    ]
    columns = (
        Field(heading="host", value="host", form=TEXT),
        Field(heading="settings", value="odd", wrap=True),
    )
    yield ViewTable(title="", rows=odd, fields=columns, most=_MOST_HOSTS)


def _without_host(row: Row) -> list[str]:
    first, *more = row["text"]
    return [first.removeprefix(f"{row['host']}: "), *more]


def state_text(state: str) -> str:
    """Return what people read of a state of a host that is missing."""
    return AttemptState.NEVER.shown if state == AttemptState.NEVER else state


def missing_parts(missing: Sequence[Row]) -> Iterator[Part]:
    """Yield which hosts are not complete, by state and reason."""
    by_reason = group_by_key(((it["state"], it["reason"] or "unknown"), it) for it in missing)
    rows = [
        {
            "hosts": truncate_list([it["host"] for it in them], _MOST_NAMED),
            "state": state_text(state),
            "reason": reason,
        }
        for (state, reason), them in by_reason.items()
    ]
    fields = (
        Field(heading="not complete", value="hosts", form=TEXT, flexible=True),
        Field(heading="state", value="state", form=TEXT),
        Field(heading="reason", value="reason", wrap=True),
    )
    yield ViewTable(title="", rows=rows, fields=fields, style=lambda _: "yellow")


# States that `fleet retry` takes up by itself, and those whose nodes have to be named.
_RETRIED = (AttemptState.LOST, AttemptState.TIMEOUT, AttemptState.PARTIAL, AttemptState.NEVER)
_NAMED = (AttemptState.FAILED, AttemptState.REFUSED, AttemptState.CANCELLED)


def retry_lines(document: Row) -> Iterator[str]:
    """Yield the commands that measure what is missing, each with its effect."""
    if document.get("backend") == FILES:
        return
    fleet, missing = document["fleet"], document["missing"]
    if any(host["state"] in _RETRIED for host in missing):
        yield f"`rater fleet retry {fleet}` runs what is missing"
    if named := [host["host"] for host in missing if host["state"] in _NAMED]:
        nodes = shlex.quote(compress(named))
        yield f"`rater fleet retry {fleet} --nodes {nodes}` runs these again, once they are mended"


def _drain_line(document: Row) -> str | None:
    """Return the command that takes slow hosts out of Slurm; rater itself does not run it."""
    slow = [host for kind in document["kinds"] for host in (*kind["slow"], *kind["slow_beside"])]
    if document.get("backend") != "slurm" or not slow:
        return None
    names = compress([host["host"] for host in slow])
    slowdowns = sorted(host["mean_slowdown"] for host in slow)
    sizes = " to ".join(dict.fromkeys(map(format_slowdown, (slowdowns[0], slowdowns[-1]))))
    reason = shlex.quote(f"rater fleet {document['fleet']}: {sizes}")
    return f"scontrol update nodename={shlex.quote(names)} state=drain reason={reason}"


# -- The trial of slow hosts: which run beside which, and what came of it --------------------------

_MEANS = {
    ConfirmVerdict.CONFIRMED: "slow again",
    ConfirmVerdict.SMALLER: "slow again, but less than half as much",
    ConfirmVerdict.NOT_CONFIRMED: "the difference is not there now",
    ConfirmVerdict.OPEN: "inconclusive: too noisy; use more --pairs",
}


def trial_document(
    fleet: int,
    suspects: Sequence[Suspect],
    rounds: Sequence[Round],
    fleets: Sequence[int] = (),
    verdicts: Sequence[ConfirmResult | None] = (),
) -> dict[str, Any]:
    """Return which hosts run beside which, and what the rounds say of each suspect.

    `fleets` are numbers of the rounds that were made, `verdicts` are of the suspects.
    """
    return {
        "fleet": fleet,
        "rounds": [
            [{"suspect": suspect, "quiet": quiet} for suspect, quiet in pairs.items()]
            for pairs in rounds
        ],
        "fleets": list(fleets),
        "hosts": [
            to_dict(suspect) | {"verdict": told and to_dict(told)}
            for suspect, told in zip_longest(suspects, verdicts)
        ],
    }


def trial_plan_parts(document: Row) -> Iterator[Part]:
    """Yield what runs beside what."""
    suspects, rounds = document["hosts"], document["rounds"]
    hosts = count(len(suspects), "slow host")
    trial = f"{hosts}, each beside {count(len(rounds), 'quiet host')} in turn"
    pairs = [
        {"round": turn, "suspect": pair["suspect"], "quiet": pair["quiet"]}
        for turn, of in enumerate(rounds, 1)
        for pair in of
    ]
    columns = (
        Field(heading="round", value="round"),
        Field(heading="slow host", value="suspect", form=TEXT),
        Field(heading="beside", value="quiet", form=TEXT),
    )
    yield ViewTable(
        title=f"Fleet {document['fleet']}: {trial}", rows=pairs, fields=columns, most=_MOST_HOSTS
    )


def trial_verdict_parts(document: Row) -> Iterator[Part]:
    """Yield what the rounds say of each suspect."""

    def value_of_key(name: str) -> Any:
        return lambda row: row["verdict"] and row["verdict"][name]

    def means(row: Row) -> str:
        verdict = row["verdict"]
        return _MEANS[verdict["answer"]] if verdict else "cannot tell: under two undisturbed pairs"

    again = (ConfirmVerdict.CONFIRMED, ConfirmVerdict.SMALLER)
    fields = (
        Field(heading="host", value="host", form=TEXT),
        Field(heading="now|%", value=value_of_key("slowdown"), form=SLOWDOWN),
        Field(heading=("95 % interval", "from"), value=value_of_key("low"), form=SLOWDOWN),
        Field(heading="to|%", value=value_of_key("high"), form=SLOWDOWN),
        Field(heading="found|%", value="slowdown", form=SLOWDOWN),
        Field(
            heading="in",
            value=lambda it: it["benchmarks"] or "all benchmarks",
            form=TEXT,
            flexible=True,
        ),
        Field(heading="verdict", value=means, wrap=True),
    )
    yield ViewTable(
        title="",
        rows=document["hosts"],
        fields=fields,
        style=lambda it: "bold yellow" if value_of_key("answer")(it) in again else "",
    )


# -- The history of a host or a benchmark: its steps, and its course fleet by fleet ----------------

_MOST_STEPS = 20
_MOST_CHANGES = 6
_NOTHING = "nothing that is recorded changed: no setting, kernel, microcode or machine"


def history_document(histories: Sequence[History]) -> dict[str, Any]:
    """Return the first history, and those of other programs."""
    return to_dict(histories[0]) | {"others": [to_dict(history) for history in histories[1:]]}


def histories_parts(document: Row) -> Iterator[Part]:
    """Yield each history: the steps, then the course, the last fleet first."""
    for history in (document, *document["others"]):
        of_host = not history["series"] or history["series"][0]["name"] == ""
        subject = "of a host against the others of its kind" if of_host else "of a benchmark"
        many = count(history["points"], "fleet")
        yield Line(f"{history['name']} in {history['program']}: history {subject}, {many}", "bold")
        if alone := history["alone"]:
            yield f"{count(alone, 'more fleet')} had fewer than 3 others of its kind."
        if history["points"] < FEWEST_POINTS:  # to show a step
            yield f"Too short for steps: {many}; at least {FEWEST_POINTS} are needed."
        elif not history["steps"]:
            yield Line("No steps.", "green")
        yield _steps_table(history["steps"])
        for series in history["series"][:1]:
            keys = ("fleet", "date", "ratio")
            course = zip(series["fleets"], series["dates"], series["ratios"], strict=True)
            rows = [dict(zip(keys, row, strict=True)) for row in course]
            columns = (
                Field(heading="fleet", value="fleet"),
                Field(heading="date", value=lambda it: (it["date"] or "")[:10] or None, form=TEXT),
                Field(
                    heading="time %" if not of_host else "against|others %",
                    value="ratio",
                    form=SLOWDOWN,
                ),
            )
            yield ViewTable(title="", rows=rows[::-1], fields=columns, most=_MOST_STEPS)


def _steps_table(steps: Sequence[Row]) -> ViewTable:
    """Return when each step was, how large, where it left the level, and what changed then."""
    fields = (
        Field(heading="step at|fleet", value="fleet"),
        Field(heading="date", value=lambda it: (it["started_at"] or "")[:10] or None, form=TEXT),
        Field(heading="host", value=lambda it: it["host"] if it["benchmark"] else None, form=TEXT),
        Field(
            heading="benchmark", value=lambda it: it["benchmark"] or "all", form=TEXT, flexible=True
        ),
        Field(heading="step|%", value="ratio", form=SLOWDOWN),
        Field(heading="since|%", value="level", form=SLOWDOWN),
        Field(heading="fleets", value="fleets_since", optional=1),
        Field(heading="changed then", value=lambda it: changes_lines(it["changes"]), wrap=True),
    )
    return ViewTable(
        title="",
        rows=steps,
        fields=fields,
        style=lambda it: "bold" if it["ratio"] > 1 else "",
        most=_MOST_STEPS,
    )


def changes_lines(changes: Sequence[Row]) -> list[str]:
    """Return what changed at a step."""
    own_changes = [_change(change) for change in changes if not change["others_too"]]
    too = [_change(change) for change in changes if change["others_too"]]
    lines = [truncate_list(own_changes, _MOST_CHANGES)] if own_changes else []
    if too:
        lines.append(f"on most others as well: {truncate_list(too, _MOST_CHANGES)}")
    return lines or [_NOTHING]


def _change(change: Row) -> str:
    if change["name"] == "machine_id_hash":
        return "machine (another machine-id)"
    name = "CPU" if change["name"] == "cpu_model" else change["name"]
    return f"{name} {change['before'] or 'absent'} -> {change['after'] or 'absent'}"
