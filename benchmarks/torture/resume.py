"""kill -9 at random moments and `--resume`, killed too at times: each phase is there once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.torture.attempt import Rig, two_at_a_time
from benchmarks.torture.table import Row, row_of, scaled_number

COPIES = 3
NAMES = ("early", "middle", "late")
# Short programs whose output is judged, so that a kill can fall between end and verdict too.
SUITE = "[suite]\nformat = 1\n" + "".join(
    f"""
[benchmarks.{name}]
command = ["sh", "-c", "sleep 0.0$((RATER_COPY + {place})); echo {name}"]
[benchmarks.{name}.sizes.train]
reference_s = 1.0
memory_mb = 1
expected = "{name}\\n"
"""
    for place, name in enumerate(NAMES, 3)
)
MODES = {
    "homogeneous": ("--iterations", "3"),
    "rotated": ("--mode", "rotated", "--iterations", "6"),
    "staggered": ("--stagger", "20", "--iterations", "2"),
    "steady": ("--mode", "steady", "--window", "0.1", "--iterations", "2"),
}
_KILL_AFTER_S = (0.0, 0.9)  # from when there is a run to about its end
_KILL_AGAIN_AFTER_S = (0.1, 1.5)  # from the start of the process: before it has looked around, too
_AGAIN = 0.4  # share of resumes that are killed too
_MOST_KILLS = 4
_BRACKET = "benchmark, iteration, phase, complete, start_ns, finish_ns, last_start_ns"


@dataclass
class Told:
    """What one run went through."""

    kills: int = 0  # of the first attempt and of resumes
    done: int = 0  # phases done when it was killed last, and rows that were there then
    rows: int = 0
    torn: int = 0  # attempts that are marked at the end
    wrong: list[str] = field(default_factory=list)


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Kill and resume 16 runs; count what is not exactly as it should be."""
    modes = list(islice(cycle(MODES), scaled_number(share, 16)))

    def resume_once(folder: Path, number: int) -> Told:
        moments = random.Random(f"{seed}:{number}")
        return one_resume(folder, dict(bench.environment), modes[number], moments)

    results = two_at_a_time(bench, resume_once, range(len(modes)))
    for mode, result in zip(modes, results, strict=True):
        for wrong in result.wrong:
            print(f"{mode}: {wrong}", flush=True)
    print(
        f"killed {sum(result.kills for result in results)} times; "
        f"{sum(result.done for result in results)} phases were done and not run again, "
        f"{sum(result.torn for result in results)} torn attempts kept and marked, "
        f"{sum(result.rows for result in results)} stored rows unchanged"
    )
    return [
        row_of(
            "kill -9 of a run, resumed exactly",
            [next(iter(result.wrong), None) for result in results],
        )
    ]


def one_resume(
    folder: Path, environment: dict[str, str], mode: str, moments: random.Random
) -> Told:
    """Kill a run of `mode`, resume it until it ends, and look at every row."""
    (folder / "own.toml").write_text(SUITE)
    rig = _Rig(folder, environment)
    result = Told()
    first = ["run", "own.toml", "--copies", str(COPIES), *MODES[mode], "--quiet"]
    resume = ["run", "--resume", "last", "--quiet"]
    while not rig.killed(first, moments.uniform(*_KILL_AFTER_S), once_begun=True):
        rig.forget()  # it had ended before
    result.kills = 1
    before = rig.snapshot()
    while result.kills < _MOST_KILLS and moments.random() < _AGAIN:
        if not rig.killed(resume, moments.uniform(*_KILL_AGAIN_AFTER_S)):
            break
        result.kills += 1
        result.wrong += before.changed_in(rig.snapshot())
        before = rig.snapshot()
    result.wrong += rig.ended(resume)
    after = rig.snapshot()
    result.wrong += before.changed_in(after) + rig.problems(mode, after)
    result.done = sum(after.brackets[phase] == before.brackets[phase] for phase in before.whole())
    result.torn = len(after.torn)
    result.rows = len(before.copies) + len(before.brackets)
    return result


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All rows of all phases; whether a bracket is torn stands apart, as it may change."""

    brackets: dict[int, tuple[Any, ...]]
    copies: dict[tuple[int, int, int], tuple[Any, ...]]
    torn: frozenset[int]

    def whole(self) -> list[int]:
        """Phases that are done: complete, not torn, every copy judged well."""
        open_phases = {phase for (phase, _, _), row in self.copies.items() if "unchecked" in row}
        return [
            phase
            for phase, row in self.brackets.items()
            if row[3] and phase not in self.torn and phase not in open_phases
        ]

    def changed_in(self, later: _Snapshot) -> list[str]:
        """Say which rows are not as they were."""
        whole = self.whole()
        wrong = [f"phase {it} was done and is torn" for it in whole if it in later.torn]
        wrong += [f"phase {it} is no longer torn" for it in self.torn - later.torn]
        wrong += [
            f"bracket of phase {it} changed"
            for it, row in self.brackets.items()
            if later.brackets.get(it) != row
        ]
        wrong += [
            f"copy row {key} changed"
            for key, row in self.copies.items()
            if later.copies[key] != row
        ]
        return wrong


class _Rig(Rig):
    def snapshot(self) -> _Snapshot:
        return _Snapshot(
            {row[2]: row for row in self.query_rows(f"SELECT {_BRACKET} FROM bracket")},
            {row[:3]: row for row in self._measured()},
            frozenset(
                phase for (phase,) in self.query_rows("SELECT phase FROM bracket WHERE torn")
            ),
        )

    def _measured(self) -> list[tuple[Any, ...]]:
        """Return the rows of copies without the verdict on placement, given when a run ends."""
        names = [name for (name,) in self.query_rows("SELECT name FROM pragma_table_info('copy')")]
        kept = [name for name in names if name not in {"placement", "placement_note"}]
        return self.query_rows(f"SELECT {', '.join(['phase, copy, step', *kept])} FROM copy")

    def problems(self, mode: str, after: _Snapshot) -> list[str]:
        """Say what is wrong with a run that should be complete."""
        wrong = []
        states = self.query_rows("SELECT status, reason FROM run")
        if states != [("complete", None)]:
            wrong.append(f"status {states}")
        iterations = range(1, int(MODES[mode][-1]) + 1)
        planned: Counter[tuple[str | None, int | None]] = Counter(
            (name, iteration) for iteration in iterations for name in NAMES
        )
        if mode == "rotated":
            planned = Counter({(None, None): 1})
        kept = [row for phase, row in after.brackets.items() if phase not in after.torn]
        if Counter(row[:2] for row in kept) != planned:
            wrong.append(f"phases {sorted(Counter(row[:2] for row in kept) - planned)}")
        if not all(row[3] for row in kept):
            return [*wrong, "a bracket is not complete"]
        spans = sorted((row[4], row[5]) for row in kept)
        if any(begin < end for (_, end), (begin, _) in pairwise(spans)):
            wrong.append("brackets overlap")
        steps = len(NAMES) * len(iterations) if mode == "rotated" else 1
        for row in kept:
            own = {key[1:]: copy for key, copy in after.copies.items() if key[0] == row[2]}
            wanted = {(copy, step) for copy in range(COPIES) for step in range(steps)}
            if not (wanted <= own.keys() if mode == "steady" else wanted == own.keys()):
                wrong.append(f"phase {row[2]} has copy runs {sorted(own)}")
            if not all("ok" in copy and "valid" in copy for copy in own.values()):
                wrong.append(f"phase {row[2]} has a copy that is not valid")
        return wrong
