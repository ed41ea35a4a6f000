"""What commands about results are given: words for points, and the file of `-o`, checked first."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rater.analysis.results.copies import Point, PointRun
from rater.record.run import is_fleet_word
from rater.record.stored import StoredRun
from rater.show.charts.vega import rendered, vega
from rater.store.read import Recurring, RunFilter
from rater.store.store import Store
from rater.store.sweeps import PREFIX, count_looks, find_sweep, load_sweep
from rater.system.errors import InputError
from rater.system.files import UntrustedError, is_caller, is_trusted, resolve_target
from rater.text.values import truncate_list

# -- The file of `-o`, checked before anything is computed -----------------------------------------

_FORMATS = ("svg", "png", "pdf")


def checked_path(path: Path) -> Path:
    """Return a path where a file can be; raises `InputError` that names `-o`."""
    try:
        is_directory, has_folder, _ = path.is_dir(), path.parent.is_dir(), path.exists()
    except OSError as error:  # a name too long for a file, a folder that lets nobody in
        raise InputError(f"-o {path}: cannot be written ({error.strerror})") from error
    if is_directory:
        raise InputError(f"-o {path}: is a directory; expected a file in it")
    if not has_folder:
        raise InputError(f"-o {path}: there is no directory {path.parent}")
    return path


def drawing_file(name: str | None) -> Path | None:
    """Return where to draw, None: nowhere; raises `InputError` where nothing could be drawn."""
    if name is None:
        return None
    if Path(name).suffix.lower().removeprefix(".") not in _FORMATS:
        raise InputError(f"-o {name}: expected a name that ends in .svg, .png or .pdf")
    path = checked_path(Path(name))
    vega()  # before the work: it may not be installed
    return path


def write_drawing(svg: str, path: Path) -> None:
    """Write an SVG as what the file's name says: .svg, .png or .pdf.

    Raises `InputError` where it cannot be written, or vl-convert is missing.
    """
    write_output(path, rendered(svg, path.suffix.lower().removeprefix(".")))


def write_output(path: Path, data: bytes) -> None:
    """Write a file beside its place, then put it there: nobody sees half of one.

    A file that is replaced passes on its mode: the same people may read the new one. Raises
    `InputError`.
    """
    part = None
    try:
        real = resolve_target(path)  # through a link: the link stays
        if real.exists() and not real.is_file():  # a device: nothing can take its place
            _write_device(real, data)
            return
        number, name = tempfile.mkstemp(dir=real.parent, prefix=".rater-")
        part = Path(name)
        with os.fdopen(number, "wb") as file:
            file.write(data)
            _give_mode(number, real)
        part.replace(real)
        part = None
    except OSError as error:
        raise InputError(f"-o {path}: cannot be written ({error.strerror})") from error
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink()


def _write_device(path: Path, data: bytes) -> None:
    """Write into what is no file: judged by its descriptor, made and emptied by nobody here."""
    if not is_trusted(path.lstat().st_uid):  # a pipe, opened for ever
        raise UntrustedError(path, "a pipe or a device of another user")
    number = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(number, "wb") as device:
        if stat.S_ISREG(os.fstat(number).st_mode):  # put there since we looked
            raise UntrustedError(path, "somebody puts something else there all the time")
        device.write(data)


def _give_mode(part: int, real: Path) -> None:
    """Give the private new file the owner and mode of that whose place it takes.

    Where there is none yet, or another user's (who would get root's page by having put a file
    there): the mode of any other new file. By descriptor, whatever is in its place by now.
    """
    modes = real.lstat() if real.exists() else None
    if modes is None or not is_trusted(modes.st_uid):
        os.umask(umask := os.umask(0))
        os.fchmod(part, 0o666 & ~umask)
        if is_caller((owner := real.parent.stat()).st_uid):
            os.fchown(part, owner.st_uid, owner.st_gid)
        return
    with suppress(OSError):  # only root may; root must not lock the owner out of a private page
        os.fchown(part, modes.st_uid, modes.st_gid)
    os.fchmod(part, stat.S_IMODE(modes.st_mode) & 0o777)


# -- Words that stand for what is compared: `7`, `last~1`, `7,8,9`, `tag:thp=always`, `sweep:3` ----

METRIC = "metric:"  # in `--by`, before the name of a metric that is called like an axis
NOT_DONE = "no run is done"
_TAG = "tag:"
_BLOCK, _SWEEP = "block", "sweep"
_BETWEEN = re.compile(r"([0-9]{1,7})-([0-9]{1,7})", re.ASCII)  # a uuid has 8 digits before its dash


def load_points(store: Store, words: Sequence[str]) -> tuple[Point, ...]:
    """Return the points that words mean, in their order; of a sweep, several for one word.

    Runs with a tag are of one block where they have the same tag `block` (and `sweep`, where
    they have one). Raises `InputError` for what means nothing. A run may be in several points:
    see `check_distinct`.
    """
    points: list[Point] = []
    blocks: dict[tuple[str, str], int] = {}
    recurring = Recurring()
    for word in words:
        if word.startswith("sweep:"):
            points += _of_sweep(store, word, blocks, recurring)
            continue
        runs = list(store.load_all(_numbers(store, word), recurring))
        keys = [_block(run) if word.startswith(_TAG) else None for run in runs]
        members = [
            PointRun(run, None if key is None else blocks.setdefault(key, len(blocks)))
            for run, key in zip(runs, keys, strict=True)
        ]
        points.append(Point(_label(word, runs), _values(word), tuple(members)))
    return tuple(points)


def count_interim_looks(store: Store, points: Sequence[Point]) -> int:
    """Return how often a comparison was looked at before its runs were enough.

    1, but for runs of sweeps with `--until`, or to which rounds were added, however the runs
    are named.
    """
    return count_looks(store, [number for point in points for number in point.numbers])


def missing_points(store: Store, words: Sequence[str]) -> tuple[str, ...]:
    """Return the points of sweeps that have nothing to be compared, and why, in words."""
    reasons = []
    for word in words:
        if word.startswith(PREFIX):
            sweep = load_sweep(store, find_sweep(store, word))
            done = {slot.slot.point for slot in sweep.slots if slot.done}
            reasons += [
                f"sweep {sweep.number}: {point.label}: {point.left_out or NOT_DONE}"
                for point in sweep.points
                if point.point not in done
            ]
    return tuple(reasons)


def _of_sweep(
    store: Store, word: str, blocks: dict[tuple[str, str], int], recurring: Recurring
) -> list[Point]:
    sweep = load_sweep(store, find_sweep(store, word))
    done = [(slot.slot, slot.run) for slot in sweep.slots if slot.done and slot.run is not None]
    runs: dict[int, list[PointRun]] = {}
    stored_runs = store.load_all([number for _, number in done], recurring)
    for (slot, _), run in zip(done, stored_runs, strict=True):
        # The tags that the runs have say the same: `sweep:3` beside `tag:thp=always`.
        key = (str(sweep.number), str(slot.block))
        block = blocks.setdefault(key, len(blocks))
        runs.setdefault(slot.point, []).append(PointRun(run, block))
    if not runs:
        goes_on = f"`rater sweep --resume {sweep.number}` goes on"
        raise InputError(f"{word}: no run of this sweep is done; {goes_on}")
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
    return list(dict.fromkeys(number for part in parts for number in _runs_of(store, part)))


def _runs_of(store: Store, word: str) -> Sequence[int]:
    between = _BETWEEN.fullmatch(word)
    if between is None:
        return store.find_all(word)
    first, last = map(int, between.groups())
    numbers = [number for number in store.matching(RunFilter(), None)[0] if first <= number <= last]
    if not numbers:
        raise InputError(f"{word}: no run has a number from {first} to {last}")
    return numbers


def _block(run: StoredRun) -> tuple[str, str] | None:
    tags = dict(run.head.tags)
    return (tags.get(_SWEEP, ""), tags[_BLOCK]) if _BLOCK in tags else None


def _label(word: str, runs: Sequence[StoredRun]) -> str:
    if word.startswith(_TAG):
        return word.removeprefix(_TAG)
    if is_fleet_word(word):
        return word
    numbers = truncate_list([str(run.head.run) for run in runs], 6)
    return f"run {numbers}" if len(runs) == 1 else f"runs {numbers}"


def _values(word: str) -> tuple[tuple[str, str], ...]:
    if not word.startswith(_TAG):
        return ()
    name, _, value = word.removeprefix(_TAG).partition("=")
    return ((name.strip(), value),)


def check_distinct(points: Sequence[Point]) -> None:
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
