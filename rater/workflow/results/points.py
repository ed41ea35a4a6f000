"""Words that stand for what is compared: `7`, `last~1`, `7,8,9`, `tag:thp=always`, `sweep:3`."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.results.points import Point, PointRun
from rater.errors import InputError
from rater.record.fleet import is_fleet_word
from rater.record.stored import StoredRun
from rater.store.store import Store
from rater.store.sweeps import PREFIX, find_sweep, load_sweep, looks_at
from rater.text.words import some

NOT_DONE = "no run is done"
_TAG = "tag:"
_BLOCK, _SWEEP = "block", "sweep"


def points_from(store: Store, words: Sequence[str]) -> tuple[Point, ...]:
    """Return the points that words mean, in their order; of a sweep, several for one word.

    Runs with a tag are of one block where they have the same tag `block` (and `sweep`, where
    they have one). Raises `InputError` for what means nothing. A run may be in several points:
    see `refuse_twice`.
    """
    found: list[Point] = []
    blocks: dict[tuple[str, str], int] = {}
    for word in words:
        if word.startswith("sweep:"):
            found += _of_sweep(store, word, blocks)
            continue
        runs = [store.load(number) for number in _numbers(store, word)]
        keys = [_block(run) if word.startswith(_TAG) else None for run in runs]
        members = [
            PointRun(run, None if key is None else blocks.setdefault(key, len(blocks)))
            for run, key in zip(runs, keys, strict=True)
        ]
        found.append(Point(_label(word, runs), _values(word), tuple(members)))
    return tuple(found)


def looks_of(store: Store, points: Sequence[Point]) -> int:
    """Return how often a comparison was looked at before the runs it is of were enough.

    1, but for runs of sweeps with `--until`, or to which rounds were added, however the runs
    are named.
    """
    return looks_at(store, [number for point in points for number in point.numbers])


def points_without_runs(store: Store, words: Sequence[str]) -> tuple[str, ...]:
    """Return the points of sweeps that have nothing to be compared, and why, in words."""
    told = []
    for word in words:
        if word.startswith(PREFIX):
            sweep = load_sweep(store, find_sweep(store, word))
            done = {it.slot.point for it in sweep.slots if it.done}
            told += [
                f"sweep {sweep.number}: {point.label}: {point.left_out or NOT_DONE}"
                for point in sweep.points
                if point.point not in done
            ]
    return tuple(told)


def _of_sweep(store: Store, word: str, blocks: dict[tuple[str, str], int]) -> list[Point]:
    sweep = load_sweep(store, find_sweep(store, word))
    runs: dict[int, list[PointRun]] = {}
    for it in sweep.slots:
        if it.done and it.run is not None:
            # The tags that the runs have say the same: `sweep:3` beside `tag:thp=always`.
            key = (str(sweep.number), str(it.slot.block))
            block = blocks.setdefault(key, len(blocks))
            runs.setdefault(it.slot.point, []).append(PointRun(store.load(it.run), block))
    if not runs:
        raise InputError(f"{word}: no run of this sweep is done; `rater sweep --resume` goes on")
    return [
        Point(point.label, point.values, tuple(runs[point.point]))
        for point in sweep.points
        if point.point in runs
    ]


def _numbers(store: Store, word: str) -> list[int]:
    if word.startswith(_TAG):  # its value may have commas
        return list(store.find_all(word))
    parts = [part.strip() for part in word.split(",")]
    if not all(parts):
        raise InputError(f"{word!r}: expected runs separated by commas, as in 7,8,9")
    return list(dict.fromkeys(number for part in parts for number in store.find_all(part)))


def _block(run: StoredRun) -> tuple[str, str] | None:
    tags = dict(run.head.tags)
    return (tags.get(_SWEEP, ""), tags[_BLOCK]) if _BLOCK in tags else None


def _label(word: str, runs: Sequence[StoredRun]) -> str:
    if word.startswith(_TAG):
        return word.removeprefix(_TAG)
    if is_fleet_word(word):
        return word
    numbers = some([str(run.head.run) for run in runs], 6)
    return f"run {numbers}" if len(runs) == 1 else f"runs {numbers}"


def _values(word: str) -> tuple[tuple[str, str], ...]:
    if not word.startswith(_TAG):
        return ()
    name, _, value = word.removeprefix(_TAG).partition("=")
    return ((name.strip(), value),)


def refuse_twice(points: Sequence[Point]) -> None:
    """Raise `InputError` for a run that would be compared with itself."""
    owner: dict[int, Point] = {}
    for point in points:
        for number in point.numbers:
            if number in owner:
                first = owner[number]
                where = (
                    f"two points ({first.label}; {point.label})"
                    if first.label != point.label
                    else f"two points, both {point.label}"
                )
                raise InputError(
                    f"run {number} is in {where}: a run cannot be compared with itself; name other "
                    "runs, by number, or `sweep:N` with --by AXIS"
                )
            owner[number] = point
