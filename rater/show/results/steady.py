"""Windows of steady mode: a verdict on each, and a run with a barrier beside one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rater.analysis.results.score import Summary
from rater.analysis.results.steadiness import DriftVerdict, Steadiness
from rater.analysis.results.steady import ENOUGH, SteadyMix, SteadyPhase
from rater.show.console import (
    Column,
    Columns,
    Printer,
    Rows,
    benchmark_names,
    iteration_marks,
    names_with_tunes,
    not_met_columns,
    seconds_columns,
)
from rater.show.format import format_duration, format_number, needed_decimals, or_dash, place_texts
from rater.text.values import count, percent, signed_percent

if TYPE_CHECKING:
    from rater.analysis.compare.barrier import BarrierComparison

_WORTH_NAMING = 0.02  # an lgroup that much slower than all copies
_LGROUPS_SHOWN = 16


def print_windows(rows: Rows, summary: Summary, printer: Printer) -> None:
    """Print the table of a steady run in homogeneous order."""
    _warn_of_warmup(summary, printer)
    windows = [it.steady for _, it in rows]
    rates = [window.benchmarks[0] if window else None for window in windows]
    (medians,) = seconds_columns([rate.median_run_s if rate else None for rate in rates])
    by_ratio = any(it.ratio is not None or b.reference_s for b, it in rows)
    several = any(len(benchmark.iterations) > 1 for benchmark, _ in rows)
    of, of_rate, of_window = Columns([it for _, it in rows]), Columns(rates), Columns(windows)
    columns = [
        Column("benchmark", benchmark_names(rows), right=False, flexible=True),
        *([Column("iter", iteration_marks(rows))] if several else []),
        of.numbers("ratio", lambda it: it.ratio)
        if by_ratio
        else of.numbers("copies|/hour", lambda it: it.per_hour),
        of_rate.numbers("runs in|window", lambda rate: rate.completions, 1),
        of_rate.right("whole|runs", lambda rate: rate.whole, optional=2),
        Column("median|run s", medians),
        of_window.percent("copies|CV %", lambda w: w.rates.cv if w.rates else None, optional=1),
        of_window.right("slowest|copy %", _behind),
        of_window.place(lambda w: w.slowest),
        of_window.change("2nd|half %", lambda w: w.halves.difference if w.halves else None),
        *not_met_columns(rows, summary.proof.not_met()),
    ]
    printer.table(columns, ["red" if it.reason else "" if it.counted else "dim" for _, it in rows])
    printer.prose(
        "runs that cross an edge of the window count by their share inside; slowest copy: against "
        "the median copy; 2nd half: against the first"
    )


def print_mix(mix: SteadyMix, summary: Summary, printer: Printer) -> None:
    """Print the table of a steady run in rotated order and what its copies did."""
    _warn_of_warmup(summary, printer)
    phase = mix.selected or (mix.phases[-1] if mix.phases else None)
    if phase is None:
        printer.prose(f"no result: {mix.reason}", "bold yellow")
        return
    (medians,) = seconds_columns([rate.median_run_s for rate in phase.benchmarks])
    with_ratio = phase.ratio is not None
    of = Columns(phase.benchmarks)
    shown_ratio = of.numbers("ratio|in mix", lambda rate: rate.ratio, optional=1)
    printer.table(
        [
            of.left("benchmark", lambda rate: rate.benchmark, flexible=True),
            of.numbers("runs in|window", lambda rate: rate.completions, 1),
            of.right("whole|runs", lambda rate: rate.whole),
            of.numbers("copies|/hour", lambda rate: rate.per_hour),
            Column("median|run s", medians),
            *([shown_ratio] if with_ratio else []),
        ]
    )
    if len(mix.phases) > 1:
        which = f"iteration {phase.iteration} of {len(mix.phases)}"
        printer.prose(f"{which}, which stands for the run" if mix.selected else which)
    printer.prose("runs that cross an edge of the window count by their share inside")
    if mix.reason:
        printer.prose(mix.reason, "yellow")
    printer.line()
    if phase.reason is None and mix.selected is not None:
        per_hour = f"{format_number(phase.per_hour)} copies/hour in all"
        text = (
            f"mix ratio {format_number(phase.ratio)}: reference seconds of work per second, "
            f"{per_hour}"
        )
        printer.prose(text if with_ratio else per_hour, "bold")
    if phase.rates is not None and phase.slowest is not None and len(phase.copies) > 1:
        found = place_texts(phase.slowest.cpu, phase.slowest.node)
        where = f" ({', '.join(found)})" if found else ""
        printer.prose(
            f"copies' rates: CV {percent(phase.rates.cv)} %, the slowest is copy "
            f"{phase.slowest.copy}{where}: {_behind(phase)} % against the median copy"
        )


def print_verdicts(summary: Summary, printer: Printer) -> None:
    """Print what can be said of each counted window: one line where all were steady."""
    windows = _windows(summary)
    if len(windows) == 1:
        _, halves, _ = windows[0]
        style = "" if halves.verdict is DriftVerdict.STEADY else "yellow"
        printer.prose(f"the window: {_verdict(halves)}", style)
    elif windows:
        steady = [halves for _, halves, _ in windows if halves.verdict is DriftVerdict.STEADY]
        worst = max((abs(halves.difference or 0.0) for halves in steady), default=0.0)
        same = f": halves within {percent(worst)} %" if steady else ""
        all_of_them = len(steady) == len(windows)
        which = f"all {len(windows)}" if all_of_them else f"{len(steady)} of {len(windows)}"
        printer.prose(f"{which} windows were steady{same}")
        printer.some(_doubts(windows), "yellow")
    _print_occupied(windows, printer, of_suite=summary.head.suite is not None)
    wanted = [(h.needed_s, name, h.verdict) for name, h, _ in windows if h.needed_s is not None]
    if wanted:
        needed_s, name, verdict = max(wanted)
        unknown = verdict is DriftVerdict.UNKNOWN
        why = "should be long enough to tell" if unknown else "holds ten runs of the slowest copy"
        why += f" ({name} needs it most)" * (len(windows) > 1)
        printer.prose(f"--window {needed_s:g} {why}", "yellow")
    _print_lgroups(windows, printer)


def _warn_of_warmup(summary: Summary, printer: Printer) -> None:
    """Warn of windows that opened in the first runs, by the benchmark that needs most."""
    windows = _windows(summary)
    short = [(w.needed_warmup_s, name, w.warmup_s) for name, _, w in windows if w.needed_warmup_s]
    for needed_s, name, warmup_s in sorted(short)[-1:]:
        printer.prose(
            f"The warm-up of {warmup_s:.3g} s was shorter than the longest run"
            f"{f' ({name})' if len(windows) > 1 else ''}: the copies still ran in step and rates "
            f"are too high, by 1 to 8 % as a rule; run it with --warmup {needed_s:g}",
            "bold yellow",
        )


type _Windows = Sequence[tuple[str, Steadiness, SteadyPhase]]


def _windows(summary: Summary) -> _Windows:
    """Return the counted windows that have a result, with what to call them."""
    if summary.mix is not None:
        named = [(f"iteration {phase.iteration}", phase) for phase in summary.mix.phases]
    else:
        named = [
            (_name(b.benchmark, it.iteration, len(b.iterations)), it.steady)
            for b in summary.benchmarks
            for it in b.iterations
            if it.steady is not None
        ]
    return [
        (name, phase.halves, phase)
        for name, phase in named
        if phase.counted and phase.reason is None and phase.halves is not None
    ]


def _name(benchmark: str, iteration: int, iterations: int) -> str:
    return f"{benchmark}, iteration {iteration}" if iterations > 1 else benchmark


def _doubts(windows: _Windows) -> list[str]:
    """Return a line for each window that was not steady; those with too few runs share one."""
    warnings = []
    few = []
    for name, halves, _ in windows:
        if halves.difference is None:
            few.append(name)
        elif halves.verdict is not DriftVerdict.STEADY:
            warnings.append(f"{name}: {_verdict(halves)}")
    if few:
        warnings.append(
            f"{DriftVerdict.UNKNOWN} whether {'; '.join(few)} ran steadily: some copy has fewer "
            "than 2 whole runs in a half of the window"
        )
    return warnings


def _verdict(halves: Steadiness) -> str:
    """Return `drifting: the second half was 2.3 % slower (95 % interval -2.9 to -1.7 %)`."""
    words = halves.verdict.value
    if halves.difference is None:
        copy = "" if halves.fewest_copy is None else f" of copy {halves.fewest_copy}"
        return f"{words} whether it was steady: fewer than 2 whole runs{copy} in a half of it"
    change = f"the second half was {percent(abs(halves.difference))} % "
    change += "slower" if halves.difference < 0 else "faster"
    if percent(abs(halves.difference)) == percent(0.0):
        change = "the halves do not differ"
    if halves.verdict is DriftVerdict.UNKNOWN:
        words += " whether it was steady"
    if halves.interval is None:
        return f"{words}: {change}, and {count(halves.fewest, 'run')} in a half are too few to tell"
    low, high = halves.interval
    return f"{words}: {change} (95 % interval {signed_percent(low)} to {signed_percent(high)})"


def _print_occupied(windows: _Windows, printer: Printer, *, of_suite: bool) -> None:
    """Say how much of the window the copies ran; of several windows, where it was the least."""
    known = [(w.occupied, name, w, h) for name, h, w in windows if w.occupied is not None]
    if not known:
        return
    share, name, window, halves = min(known, key=lambda one: one[0])
    if len(known) > 1:
        text = f"copies ran at least {percent(share)} % of each window (least: {name}"
        end = ")"
    else:
        text, end = f"copies ran {percent(share)} % of the window", ""
    if window.gap_s is not None:
        text += f"; {format_duration(window.gap_s)} (median) between two runs of a copy"
    text += end
    if share >= ENOUGH:
        printer.prose(text)
        return
    drift = (
        ", and its halves can differ by that too" if halves.verdict is DriftVerdict.DRIFTING else ""
    )
    printer.prose(
        f"{text}: the rate is lower by rater's own start of the next run and by set-ups{drift}: "
        f"take longer runs{' (a larger --size)' if of_suite else ''}",
        "yellow",
    )


def _print_lgroups(windows: _Windows, printer: Printer) -> None:
    """Print the lgroups of one window as a table, of several only those that stand out."""
    with_lgroups = [window for _, _, window in windows if len(window.lgroups) > 1]
    if len(windows) == 1 and with_lgroups and len(with_lgroups[0].lgroups) <= _LGROUPS_SHOWN:
        _print_lgroup_table(with_lgroups[0], printer)
        return
    slower: dict[int | None, list[float]] = {}
    for window in with_lgroups:
        for group in window.lgroups:
            if group.slowdown is not None and group.slowdown > 1 + _WORTH_NAMING:
                slower.setdefault(group.node, []).append(1 - 1 / group.slowdown)
    texts = []
    for node, shares in sorted(slower.items(), key=lambda item: -max(item[1])):
        low, high = percent(min(shares)), percent(max(shares))
        much = low if low == high else f"{low} to {high}"
        where = f" in {len(shares)} of {len(windows)} windows" if len(windows) > 1 else ""
        texts.append(
            f"copies of node {or_dash(node)}: their rates are {much} % below the mean of all"
            + where
        )
    printer.some(texts)


def _print_lgroup_table(window: SteadyPhase, printer: Printer) -> None:
    unit = "/hour" if window.unit == "copies/hour" else window.unit
    of = Columns(window.lgroups)
    printer.line()
    printer.table(
        [
            of.right("lgroup", lambda group: group.node),
            of.right("copies", lambda group: group.copies),
            of.numbers((unit, "together"), lambda group: group.rate),
            of.numbers((unit, "a copy"), lambda group: group.per_copy),
            of.numbers("slowdown", lambda group: group.slowdown, 3),
        ]
    )


def _behind(window: SteadyPhase) -> str:
    """Return how the slowest copy's rate lies against the median copy's: `-12.3`."""
    if window.slowest is None or not window.rates or not window.rates.median:
        return "-"
    behind = round((window.slowest.rate / window.rates.median - 1) * 100, 1)
    return f"{behind + 0.0:.1f}"


# -- A steady run and one with a barrier, as one table and what it means ---------------------------

_EQUAL = 0.0005  # less than what is shown


def print_beside(beside: BarrierComparison, printer: Printer) -> None:
    """Print both runs side by side."""
    printer.line()
    runs = f"run {beside.steady}, steady, beside run {beside.other}, {beside.other_mode}:"
    printer.prose(runs, "bold")
    if beside.differences:
        differ = ", ".join(beside.differences)
        printer.prose(
            f"they differ in more than the mode: run {beside.other} has {differ}", "yellow"
        )
    if beside.order == "rotated":
        _print_mixes(beside, printer)
    elif any(side.difference is not None for side in beside.sides):
        _print_brackets(beside, printer)
    printer.some(
        (f"{side.benchmark}: not compared: {side.reason}" for side in beside.sides if side.reason),
        "yellow",
    )


def _print_brackets(beside: BarrierComparison, printer: Printer) -> None:
    sides = beside.sides
    by_ratio = all(s.steady_ratio is not None for s in sides if s.difference is not None)
    here = [side.steady_ratio if by_ratio else side.steady_per_hour for side in sides]
    there = [side.other_ratio if by_ratio else side.other_per_hour for side in sides]
    lost = [side.score_lost for side in sides]
    steady_s, other_s = seconds_columns(
        [side.steady_run_s for side in sides], [side.other_run_s for side in sides]
    )
    changes = [side.difference for side in sides]
    rows = names_with_tunes(sides)
    if by_ratio and len(sides) > 1 and beside.steady_ratio is not None:
        rows.append("all")
        here.append(beside.steady_ratio)
        there.append(beside.other_ratio)
        changes.append(beside.difference)
        lost.append(beside.score_lost)
        steady_s.append("")
        other_s.append("")
    unit = "ratio" if by_ratio else "/hour"
    places = needed_decimals([*here, *there])
    printer.table(
        [
            Column("benchmark", rows, right=False, flexible=True),
            Column(("steady", unit), [format_number(value, places) for value in here]),
            Column((beside.other_mode, unit), [format_number(value, places) for value in there]),
            Column("steady|is %", [signed_percent(change) for change in changes]),
            Column("score|lost %", [percent(share) for share in lost]),
            Column("steady|run s", steady_s, optional=1),
            Column((beside.other_mode, "copy s"), other_s, optional=1),
        ]
    )
    compared = sum(side.difference is not None for side in sides)
    if beside.difference is None or not compared:
        return
    over = f" (geometric mean over {count(compared, 'benchmark')})" if compared > 1 else ""
    texts = [
        f"Steady completed {_more(beside.difference)} per hour than {beside.other_mode}{over}.",
        *_not_run(beside),
    ]
    if beside.score_lost is not None:
        worth = 1 / (1 - beside.score_lost) - 1
        texts.append(
            f"Waiting for the slowest copy cost {beside.other_mode} "
            f"{percent(beside.score_lost)} % of its score; without that wait, at the same pace, it "
            f"would have completed {percent(worth)} % more."
        )
    if beside.longer is not None:
        texts.append(f"A run took {_longer(beside.longer)} in steady mode (medians).")
    printer.prose(" ".join(texts))


def _print_mixes(beside: BarrierComparison, printer: Printer) -> None:
    sides = beside.sides
    steady_s, other_s = seconds_columns(
        [side.steady_run_s for side in sides], [side.other_run_s for side in sides]
    )
    printer.table(
        [
            Column("benchmark", names_with_tunes(sides), right=False, flexible=True),
            Column("steady|run s", steady_s),
            Column("rotated|run s", other_s),
            Column("steady|takes %", [signed_percent(side.longer) for side in sides]),
        ]
    )
    if beside.difference is None:
        return
    text = f"Steady completed {_more(beside.difference)} of the mix's work per second than rotated"
    if beside.steady_ratio is not None and beside.other_ratio is not None:
        places = needed_decimals([beside.steady_ratio, beside.other_ratio])
        text += (
            f" ({format_number(beside.steady_ratio, places)} against "
            f"{format_number(beside.other_ratio, places)} reference seconds per second)"
        )
    text = " ".join([f"{text}.", *_not_run(beside)])
    if beside.idle_share is not None:
        text += (
            f" In rotated mode copies that were done early waited for "
            f"{percent(beside.idle_share)} % of the copies' time."
        )
    if beside.longer is not None:
        text += f" A run took {_longer(beside.longer)} in steady mode (medians)."
    printer.prose(text)


def _not_run(beside: BarrierComparison) -> list[str]:
    """Return a sentence on what steady mode itself lost in its window, if that is worth one."""
    if beside.steady_occupied is None or beside.steady_occupied >= ENOUGH:
        return []
    lost = f"{percent(1 - beside.steady_occupied)} % of the copies' time in its window"
    least = [
        side.benchmark
        for side in beside.sides
        if side.difference is not None and side.steady_occupied == beside.steady_occupied
    ]
    if sum(side.difference is not None for side in beside.sides) > 1:
        lost = f"up to {lost} ({least[0]})"
    return [
        f"In {lost} nothing ran: rater's own start of the next run and set-ups, not the program, "
        "lowered steady's rate."
    ]


def _more(change: float) -> str:
    if abs(change) < _EQUAL:
        return "no more and no less"
    return _by(change)


def _longer(change: float) -> str:
    return "the same time" if abs(change) < _EQUAL else f"{_by(change)} time"


def _by(change: float) -> str:
    return f"{percent(abs(change))} % {'more' if change > 0 else 'less'}"
