"""The observations document, the neutral form of per-copy times from any runner, read; pure.

Beside the keys of the contract, `run.stagger_ms`, `run.increment` and an
observation's `counted` (false: a discarded iteration) and, in rotated order,
`step` (position in the copy's queue, from 0) are read where they stand. Mode
`steady` has `run.order`, `run.warmup_s`, `run.window_s` and `run.windows` (one for
each phase whose window closed); its `step` counts a copy's runs from 0. Others are
left alone.
`rater.store.exchange.export` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rater.record.run import BenchmarkUsed, Host, MachinePU
from rater.record.status import CopyStatus, RunStatus
from rater.record.stored import RunHead, StoredBracket, StoredCopy, StoredRun
from rater.store.exchange.observation_rows import read_homogeneous, read_rotated, read_steady
from rater.text.json_object import JsonObject, parse_json

VERSION = 1
_ORDERS = {
    "homogeneous": "homogeneous",
    "staggered": "homogeneous",
    "steady": "homogeneous",
    "rotated": "rotated",
    "heterogeneous": "rotated",
}
_STEADY_ORDERS = {"homogeneous": "homogeneous", "rotated": "rotated"}
SHARED_BY_PU = {"nodes": "node", "cores": "core", "packages": "package"}


def read_observations(data: bytes, file: str) -> StoredRun:
    """Return the run of an observations document; `file` is what errors call it.

    Its number (`head.run`) is 0 until it is stored. Raises `InputError` naming the
    key, such as `observations[3].elapsed_s`, and what was expected.
    """
    root = JsonObject(parse_json(data, file), file)
    if root.whole("rater") != VERSION:
        root.wrong("rater", f"{VERSION}, the version of the format that this rater knows")
    run = root.object("run")
    rotated = _order(run) == "rotated"
    steady = run.text("mode") == "steady"
    pus = _pus(root.object_or_none("topology"))
    copies = run.whole("copies", least=1)
    items = root.objects("observations")  # none at all is a run that ended before its first copy
    if steady:
        rows = read_steady(items, copies, rotated)
        brackets = _with_windows(_brackets(rows, rotated, steady=True), run)
    else:
        rows = read_rotated(items, copies) if rotated else read_homogeneous(items, copies)
        brackets = _brackets(rows, rotated)
    head = _head(run, copies, rows, brackets)
    return StoredRun(
        head=head,
        host=Host(f"import:{head.hostname or ''}", head.hostname, *(None,) * 9),
        settings=(),
        environment=(),
        benchmarks=tuple(
            BenchmarkUsed(name, None, "", None, None, None, None) for name in head.benchmarks
        ),
        placements=(),
        pus=pus,
        brackets=brackets,
        copies=tuple(sorted(rows, key=lambda row: (row.phase, row.copy, row.step))),
        warnings=(),
        notes=_what_is_missing(copies, rows),
    )


def _order(run: JsonObject) -> str:
    order: str = run.choice("mode", _ORDERS)
    if run.text("mode") == "steady" and run.has("order"):
        order = run.choice("order", _STEADY_ORDERS)
    return order


def _with_windows(brackets: Sequence[StoredBracket], run: JsonObject) -> tuple[StoredBracket, ...]:
    """Return the brackets with the windows that the document gives them."""
    found: dict[tuple[str | None, int], tuple[int, int]] = {}
    for window in run.objects("windows") if run.has("windows") else ():
        start_ns, finish_ns = window.nanoseconds("start_s"), window.nanoseconds("finish_s")
        if finish_ns <= start_ns:
            window.wrong("finish_s", "a time after start_s")
        key = (window.text_or_none("benchmark"), window.whole("iteration"))
        found[key] = (start_ns, finish_ns)
    windows = [found.get((b.benchmark, b.iteration or 0), (None, None)) for b in brackets]
    return tuple(
        replace(bracket, window_start_ns=start_ns, window_finish_ns=finish_ns)
        for bracket, (start_ns, finish_ns) in zip(brackets, windows, strict=True)
    )


def _what_is_missing(copies: int, rows: Sequence[StoredCopy]) -> tuple[str, ...]:
    """Return a note where not every copy was observed: the results are of fewer then."""
    observed = len({row.copy for row in rows})
    if observed == copies:
        return ()
    have = (
        "none has" if not observed else "only 1 has" if observed == 1 else f"only {observed} have"
    )
    return (f"{copies} {'copy' if copies == 1 else 'copies'}, {have} observations",)


def _head(
    run: JsonObject,
    copies: int,
    rows: Sequence[StoredCopy],
    brackets: Sequence[StoredBracket],
) -> RunHead:
    mode = run.text("mode")
    status, reason = _how_it_ended(rows)
    iterations = {row.iteration: row.counted for row in rows}
    return RunHead(
        run=0,
        uuid=run.text("uuid"),
        source="import",
        status=status,
        reason=reason,
        started_at=_utc(run),
        elapsed_s=None,
        hostname=run.text_or_none("host"),
        mode=mode,
        order=_order(run),
        copies=copies,
        iterations=len(iterations),
        discard=sum(not counted for counted in iterations.values()),
        stagger_ms=_stagger_ms(run, mode, brackets, copies),
        increment=run.whole("increment") if run.has("increment") else 1,
        suite=None,
        size=None,
        tune=None,
        layout=None,
        memory=None,
        timeout_s=None,
        wrap=None,
        command_line=None,
        rater_version=None,
        benchmarks=tuple(dict.fromkeys(row.benchmark for row in rows)),
        tags=(),
        warmup_s=run.number("warmup_s", "seconds") if run.has("warmup_s") else None,
        window_s=run.number("window_s", "seconds") if run.has("window_s") else None,
    )


def _how_it_ended(rows: Sequence[StoredCopy]) -> tuple[RunStatus, str | None]:
    if not rows:
        return RunStatus.INTERRUPTED, "the document has no observations"
    failed = sum(row.status not in (CopyStatus.OK, CopyStatus.INTERRUPTED) for row in rows)
    stopped = sum(row.status is CopyStatus.INTERRUPTED for row in rows)
    if failed:
        return RunStatus.FAILED, f"{failed} of {len(rows)} copy runs failed"
    if stopped:
        return RunStatus.INTERRUPTED, f"{stopped} of {len(rows)} copy runs were interrupted"
    return RunStatus.COMPLETE, None


def _utc(run: JsonObject) -> str | None:
    text = run.text_or_none("started_at")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        run.wrong("started_at", "null or a time such as 2026-11-20T12:00:00Z")
    return moment.isoformat().replace("+00:00", "Z")


def _stagger_ms(
    run: JsonObject, mode: str, brackets: Sequence[StoredBracket], copies: int
) -> float:
    """Return the stagger as given, else as the starts of a staggered run show it."""
    if run.has("stagger_ms"):
        return run.number("stagger_ms", "milliseconds")
    if mode != "staggered" or copies < 2 or not brackets:
        return 0.0
    first = brackets[0]
    if first.start_ns is None or first.last_start_ns is None:
        return 0.0
    return (first.last_start_ns - first.start_ns) / (copies - 1) / 1e6


def _pus(topology: JsonObject | None) -> tuple[MachinePU, ...]:
    if topology is None:
        return ()
    places: dict[int, dict[str, int]] = {}
    for key, name in SHARED_BY_PU.items():
        groups = topology.object_or_none(key)
        if groups is None:
            continue
        for number in groups.names():
            if not (number.isascii() and number.isdecimal() and len(number) <= 5):
                topology.wrong(key, f"numbers as keys ({name} {number!r} is none)")
            for cpu in groups.places(number):
                place = places.setdefault(cpu, {})
                if place.setdefault(name, int(number)) != int(number):
                    groups.wrong(
                        number, f"no CPU of another {name} (CPU {cpu} is in {place[name]})"
                    )
    return tuple(
        MachinePU(cpu, place.get("core"), None, place.get("node"), place.get("package"))
        for cpu, place in sorted(places.items())
    )


def _brackets(
    rows: Sequence[StoredCopy], rotated: bool, *, steady: bool = False
) -> tuple[StoredBracket, ...]:
    members: dict[int, list[StoredCopy]] = {}
    for row in rows:
        members.setdefault(row.phase, []).append(row)
    brackets = (_bracket(phase, members[phase], rotated) for phase in sorted(members))
    if not (steady and rotated):
        return tuple(brackets)
    # There an iteration is a phase, where a plain rotated run is one as a whole.
    return tuple(replace(b, iteration=members[b.phase][0].iteration) for b in brackets)


def _bracket(phase: int, rows: Sequence[StoredCopy], rotated: bool) -> StoredBracket:
    one = rows[0]
    starts, finishes = _times(rows)
    return StoredBracket(
        phase=phase,
        benchmark=None if rotated else one.benchmark,
        iteration=None if rotated else one.iteration,
        tune=one.tune if len({row.tune for row in rows}) == 1 else None,
        counted=any(row.counted for row in rows),
        start_ns=min(starts.values(), default=None),
        finish_ns=max(finishes.values(), default=None),
        last_start_ns=max(starts.values(), default=None),
        first_finish_ns=min(finishes.values(), default=None),
        complete=all(row.status is not CopyStatus.INTERRUPTED for row in rows),
    )


def _times(rows: Sequence[StoredCopy]) -> tuple[dict[int, int], dict[int, int]]:
    """Return first start and last finish by copy; nothing when not all are known."""
    starts: dict[int, int] = {}
    finishes: dict[int, int] = {}
    for row in rows:
        if row.start_ns is None or row.finish_ns is None:
            return {}, {}
        starts[row.copy] = min(row.start_ns, starts.get(row.copy, row.start_ns))
        finishes[row.copy] = max(row.finish_ns, finishes.get(row.copy, row.finish_ns))
    return starts, finishes
