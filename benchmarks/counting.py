"""What counting costs: rater's CPU time a copy run, and what it does to starts and brackets."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench, Ran, in_turn, median

SIZES = (1, 4, 6)  # events in a group
COPIES = (128, 1024)
_EVENTS = {
    "task_clock_ns": 1,
    "minor_faults": 5,
    "major_faults": 6,
    "page_faults": 2,
    "context_switches": 3,
    "migrations": 4,
}


def _table(folder: Path) -> str:
    """Write a table with a group of each size; software events are on every machine."""
    lines = ["[pmu]", 'name = "sizes"', 'source = "software"', "counters = 6", "[events]"]
    lines += [f"{name} = {{ config = {code} }}" for name, code in _EVENTS.items()]
    lines.append("[groups]")
    lines += [f"of{size} = {list(_EVENTS)[:size]}".replace("'", '"') for size in SIZES]
    file = folder / "sizes.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file)


def cost_of_counters(bench: Bench) -> None:
    """1, 4 and 6 events of 128 and 1024 copies against none: their cost, starts, brackets."""
    table = _table(bench.folder)
    for copies in COPIES:
        ways = {"none": (), **{f"{n} events": ("--counters", f"{table}:of{n}") for n in SIZES}}

        def ran(options: tuple[str, ...], many: int = copies) -> Ran:
            return bench.by_rater(many, "0", *options)

        results = in_turn(
            {name: lambda options=options: ran(options) for name, options in ways.items()},  # type: ignore[misc]
            runs=5,
        )
        without = results["none"]
        print(f"{copies} copies, medians of {len(without)}; us of CPU a copy run")
        print(
            f"{'':10}{'open':>7}{'read':>7}{'close':>7}{'rater CPU':>11}{'skew':>8}{'bracket':>9}"
        )
        for name, runs in results.items():
            costs = _costs(bench, copies, name) if name != "none" else (0.0, 0.0, 0.0)
            extra = median([a.cpu_s - b.cpu_s for a, b in zip(runs, without, strict=True)])
            ratios = [
                median([getattr(it, what) for it in runs])
                / median([getattr(it, what) for it in without])
                for what in ("skew_ms", "elapsed_ms")
            ]
            print(
                f"{name:10}{costs[0]:7.1f}{costs[1]:7.1f}{costs[2]:7.1f}"
                f"{extra / copies * 1e6:11.1f}{ratios[0]:8.3f}{ratios[1]:9.3f}",
                flush=True,
            )
    print("goal: at most 60 us a copy run; skew and bracket as without (1.00)")


def _costs(bench: Bench, copies: int, name: str) -> tuple[float, ...]:
    """Return medians of what opening, reading and closing took, us a copy run."""
    number = name.partition(" ")[0]
    return tuple(
        median(
            [
                float(ns)
                for ns in bench.query(
                    f"SELECT {what}_ns / 1e3 / counted.copies FROM counted "
                    "JOIN run ON run.id = run_id "
                    f"WHERE counted.copies = {copies} AND command_line LIKE '%:of{number} %'"
                )
            ]
        )
        for what in ("open", "read", "close")
    )
