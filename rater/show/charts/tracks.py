"""What the machine did during a phase, as lines below the copies: tracks over time; pure.

A track is one quantity over the intervals of a phase, in the unit in which it is read: the share
of the copies' CPUs that copies had, and others, megabytes a second that copies read. Tracks without
anything to tell are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rater.analysis.results.periods import Period, period_text
from rater.analysis.results.series import CpuGroupTimes, PhaseTimes, Values
from rater.record.stored import RunHead
from rater.show.charts.vega import PlacedChart
from rater.show.results.to_json import period_document
from rater.show.screen.console import Printer
from rater.show.screen.format import sanitize
from rater.text.cpuset import format_list

if TYPE_CHECKING:
    from rater.show.documents.readings import CpuSeriesJson, SeriesDocument

_LEAST_SHARE = 0.01  # of the time: less in every interval is not shown
_LEAST_RATE = 1e5  # bytes a second
_MOST_INTERVALS = 240  # of a picture
_MOST_NODES = 8  # that have a track each
_BAND = 18.0  # pixels of a place in time above the tracks
_ROW = 32.0  # pixels of a track: its name, as far from the track above as it needs, and its bars


class Track(Struct, frozen=True, kw_only=True):
    """One quantity over a phase."""

    name: str
    unit: str
    edges_s: tuple[float, ...]  # from the phase's first release
    values: Values  # one an interval
    most: float  # the largest

    @property
    def most_text(self) -> str:
        """Return the largest value with its unit."""
        digits = 0 if self.most >= 10 else 1 if self.most >= 1 else 2
        return f"{self.most:.{digits}f} {self.unit}"


def phase_tracks(phase: PhaseTimes) -> tuple[Track, ...]:
    """Return the tracks of a phase, the copies' CPUs first."""
    return tuple(_tracks(phase))


def _tracks(phase: PhaseTimes) -> Iterator[Track]:
    used = [cpus for cpus in phase.cpus if cpus.copies] or [*phase.cpus]

    def percent_of_cpus(take: Callable[[CpuGroupTimes], Values]) -> Values:
        return _scaled(_weighted([(take(cpus), len(cpus.cpus)) for cpus in used]), 100.0)

    own = percent_of_cpus(lambda cpus: cpus.own)
    yield from _track(phase, "copies", "%", own, least=0.0)
    yield from _track(
        phase, "others", "%", percent_of_cpus(lambda cpus: cpus.others), least=100 * _LEAST_SHARE
    )
    if len(used) > 1:
        worst = max(used, key=lambda cpus: _most(cpus.others))
        name = f"others, CPU {format_list(worst.cpus)}"
        yield from _track(phase, name, "%", _scaled(worst.others, 100.0), least=10.0)
    for name, take in (("steal", _steal), ("interrupts", _irq)):
        values = percent_of_cpus(take)
        yield from _track(phase, name, "%", values, least=100 * _LEAST_SHARE)
    yield from _track(phase, "clock", "MHz", _mean([cpus.mhz for cpus in used]), least=1.0)
    yield from _track(phase, "throttled", "/s", _total([it.throttles for it in used]), least=0.01)
    yield from _track(phase, "quota kept off", "CPUs", phase.throttled, least=_LEAST_SHARE)
    moved = (("copies read", phase.read_rate()), ("copies wrote", phase.written_rate()))
    for name, values in (*moved, *phase.rates.items()):
        least = _LEAST_RATE / 1e6
        yield from _track(phase, name, "MB/s", _scaled(values, 1e-6), least=least)
    for resource, values in phase.pressure.items():
        name = f"waited for {_RESOURCES[resource]}"
        yield from _track(phase, name, "%", _scaled(values, 100.0), least=5.0)
    for name, values in phase.watts.items():
        yield from _track(phase, name, "W", values, least=0.1)
    for number, values in phase.temperatures_c.items():
        yield from _track(phase, f"package {number}", "°C", values, least=1.0)
    for kind, by_place in phase.traffic.items():
        for place, values in [*by_place.items()][:_MOST_NODES]:
            name = f"node {place} {kind.replace('_', ' ')}"
            yield from _track(phase, name, "GB/s", _scaled(values, 1e-9), least=0.01)


_RESOURCES = {"cpu": "a CPU", "memory": "memory", "io": "a disk"}


def _steal(cpus: CpuGroupTimes) -> Values:
    return cpus.steal


def _irq(cpus: CpuGroupTimes) -> Values:
    return cpus.irq


def _track(
    phase: PhaseTimes, name: str, unit: str, values: Values, *, least: float
) -> Iterator[Track]:
    """Yield a track unless it is below `least` throughout, or not known."""
    most = _most(values)
    if most > 0 and most >= least:
        yield Track(name=name, unit=unit, edges_s=phase.seconds, values=values, most=most)


def _most(values: Values) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _scaled(values: Values, factor: float) -> Values:
    return tuple(None if value is None else value * factor for value in values)


def _weighted(rows: Sequence[tuple[Values, int]]) -> Values:
    """Return means over the rows that are known in an interval, by their weights."""
    means: list[float | None] = []
    for column in zip(*(values for values, _ in rows), strict=False):
        weights = [weight for _, weight in rows]
        means.append(_weighted_mean(column, weights))
    return tuple(means)


def _weighted_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the mean of the values that are known, if any is."""
    pairs = [
        (value, weight) for value, weight in zip(values, weights, strict=True) if value is not None
    ]
    whole = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / whole if whole else None


def _mean(rows: Sequence[Values]) -> Values:
    return _weighted([(values, 1) for values in rows])


def _total(rows: Sequence[Values]) -> Values:
    columns = ([it for it in column if it is not None] for column in zip(*rows, strict=False))
    return tuple(sum(known) if known else None for known in columns)


def coarsened(track: Track, most: int = _MOST_INTERVALS) -> Track:
    """Return a track with at most so many intervals, neighbours joined by their mean over time."""
    together = -(-len(track.values) // most)
    if together <= 1:
        return track
    edges, values = [track.edges_s[0]], []
    lengths = [late - early for early, late in zip(track.edges_s, track.edges_s[1:], strict=False)]
    for first in range(0, len(track.values), together):
        last = min(first + together, len(track.values))
        values.append(_weighted_mean(track.values[first:last], lengths[first:last]))
        edges.append(track.edges_s[last])
    return Track(
        name=track.name,
        unit=track.unit,
        edges_s=tuple(edges),
        values=tuple(values),
        most=max(_most(tuple(values)), 1e-12),
    )


def track_values(tracks: Sequence[Track]) -> list[dict[str, Any]]:
    """Return tracks as values of a page: name, unit, edges and values of each."""
    return [
        {
            "name": track.name,
            "unit": track.unit,
            "edges": [round(edge, 3) for edge in track.edges_s],
            "v": [None if value is None else float(f"{value:.4g}") for value in track.values],
            "most": float(f"{track.most:.4g}"),
            "text": track.most_text,
        }
        for track in map(coarsened, tracks)
    ]


def band_values(periods: Sequence[Period], phase: int) -> list[dict[str, Any]]:
    """Return the places in time of a phase as values of a page: where they are, and in words."""
    return [
        {
            "from": round(period.begin_s, 3),
            "to": round(period.end_s, 3),
            "text": period_text(period, is_named=False),
        }
        for joined in periods
        for period in joined.each
        if period.phase == phase
    ]


def tracks_chart(bracket: Mapping[str, Any], most_s: float, width: float) -> PlacedChart:
    """Return tracks and bands of a bracket as a chart whose axis of time ends at `most_s`.

    It is aligned with that of who ran when.
    """
    tracks = bracket["tracks"]
    rows = [
        {"row": row, "from": max(0.0, early), "to": min(late, most_s), "v": value / track["most"]}
        for row, track in enumerate(tracks)
        for early, late, value in zip(track["edges"], track["edges"][1:], track["v"], strict=False)
        if value is not None and late > 0 and early < most_s
    ]
    names = [
        {"row": row, "text": track["name"], "most": track["text"]}
        for row, track in enumerate(tracks)
    ]
    bands = [
        {
            "row": row,
            "from": max(0.0, band["from"]),
            "to": min(band["to"], most_s),
            "text": band["text"],
        }
        for row, band in enumerate(bracket["bands"])
    ]
    chart = {
        "signals": {"tracks": len(tracks), "most": most_s, "bands": len(bands), "worded": True},
        "data": {"steps": rows, "names": names, "bands": bands},
    }
    height = _ROW * len(tracks) + _BAND * len(bands)
    return PlacedChart(kind="tracks", chart=chart, width=width, height=height)


# -- In a terminal, and as JSON --------------------------------------------------------------------

_LEVELS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"  # from nothing to the most, in UTF-8 and in plain ASCII
_NOT_KNOWN = "?"
_LEAST_CELLS = 20
_MOST_PHASES = 40  # that are printed; the JSON document has all


def print_tracks(
    head: RunHead, phases: Sequence[PhaseTimes], periods: Sequence[Period], printer: Printer
) -> None:
    """Print the tracks of each phase below the line of its time, and last the places in time."""
    printer.prose(f"run {head.run}: what the machine did over time", "bold")
    for phase in phases[:_MOST_PHASES]:
        name = sanitize(phase.benchmark or "all benchmarks")
        iteration = "" if phase.iteration is None else f", iteration {phase.iteration}"
        printer.line()
        printer.line(f"{name}{iteration}{'' if phase.counted else ' (not counted)'}", "bold")
        _print_phase(phase_tracks(phase), phase.seconds[-1], printer)
    if len(phases) > _MOST_PHASES:
        left_out = len(phases) - _MOST_PHASES
        printer.prose(
            f"{left_out} more brackets: choose with --benchmark and --iteration, or take --json"
        )
    if periods:
        printer.line()
    for period in periods:
        printer.prose(f"Over time: {period_text(period)}.", "yellow")


def _print_phase(tracks: Sequence[Track], end_s: float, printer: Printer) -> None:
    """Print a line for each track below the ends of the time."""
    if not tracks:
        printer.line("nothing was read that is worth a line")
        return
    left = max(len(track.name) for track in tracks) + 1
    right = max(len(track.most_text) for track in tracks) + 1
    cells = max(_LEAST_CELLS, printer.width - left - right - 1)
    ruler = f"0 s{f'{end_s:.3g} s':>{cells - 3}}"
    printer.line(f"{'':<{left}}{ruler}{'most':>{right}}", "dim")
    for track in tracks:
        signs = _signs(track, end_s, cells, ascii_only=printer.ascii_only)
        printer.line(f"{track.name:<{left}}{signs}{track.most_text:>{right}}")


def _signs(track: Track, end_s: float, cells: int, *, ascii_only: bool) -> str:
    """Return a sign for each piece of the time from 0 to `end_s`: the mean in it, of the most."""
    levels, signs = _LEVELS[ascii_only], []
    for cell in range(cells):
        value = mean_between(track, cell * end_s / cells, (cell + 1) * end_s / cells)
        if value is None:
            signs.append(_NOT_KNOWN)
        else:
            share = min(1.0, max(0.0, value / track.most))
            signs.append(levels[0 if share < 0.02 else max(1, round(share * (len(levels) - 1)))])
    return "".join(signs)


def mean_between(track: Track, begin_s: float, end_s: float) -> float | None:
    """Return a track's mean over a piece of time, if anything is known of it."""
    first = max(0, bisect_right(track.edges_s, begin_s) - 1)
    whole = seconds = 0.0
    for place in range(first, len(track.values)):
        early, late = track.edges_s[place], track.edges_s[place + 1]
        if early >= end_s:
            break
        value = track.values[place]
        length = min(late, end_s) - max(early, begin_s)
        if value is not None and length > 0:
            whole += value * length
            seconds += length
    return whole / seconds if seconds else None


def series_document(
    phases: Sequence[PhaseTimes], periods: Sequence[Period], head: RunHead, file: str | None
) -> SeriesDocument:
    """Return the tracks of phases with all their intervals, the CPUs one by one, and periods."""
    return {
        "run": head.run,
        "file": file,
        "phases": [
            {
                "phase": phase.phase,
                "benchmark": phase.benchmark,
                "iteration": phase.iteration,
                "counted": phase.counted,
                "edges_s": [*phase.seconds],
                "tracks": [
                    {"name": track.name, "unit": track.unit, "values": [*track.values]}
                    for track in phase_tracks(phase)
                ],
                "cpus": [_cpus_document(cpus) for cpus in phase.cpus],
            }
            for phase in phases
        ],
        "periods": [period_document(period) for period in periods],
    }


def _cpus_document(cpus: CpuGroupTimes) -> CpuSeriesJson:
    return {
        "cpus": [*cpus.cpus],
        "copies": [*cpus.copies],
        "own": [*cpus.own],
        "others": [*cpus.others],
        "irq": [*cpus.irq],
        "steal": [*cpus.steal],
        "mhz": [*cpus.mhz],
    }
