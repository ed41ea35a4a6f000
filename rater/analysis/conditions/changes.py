"""What differs between the conditions of two runs: machine, settings, programs, suite; pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rater.record.run import BenchmarkUsed, Host, MachinePU, PlacedCopy, Run
from rater.record.settings import LAYOUT_TEXT
from rater.record.stored import StoredRun
from rater.text.cpuset import format_list

_DIGEST_SHOWN = 12
_PLACES_SHOWN = 8
# What the kernel keeps for itself, and with it MemTotal, varies from boot to boot.
_SAME_MEMORY = 0.01
_ENVIRONMENT = "env."
_PATH = f"{_ENVIRONMENT}PATH"
# Where rater keeps what it compiled: the folder is called after a hash of all that went in.
_IN_CACHE = re.compile(r"\S*/build/[0-9a-f]{32}/")
# All that goes into the fingerprint but the structure of cores and caches.
_IDENTITY = (
    ("architecture", "architecture"),
    ("vendor", "CPU vendor"),
    ("cpu_model", "CPU model"),
    ("microcode", "microcode"),
    ("pus", "hardware threads"),
    ("cores", "cores"),
    ("nodes", "NUMA nodes"),
    ("packages", "packages"),
)
_NAMES = (("hostname", "host name"), ("machine_id_hash", "machine id"), ("product", "product"))
_OF_BENCHMARK = (
    ("compiler", "compiler"),
    ("flags", "compiler flags"),
    ("reference_s", "reference time"),
    ("category", "category"),
    ("threads", "threads per copy"),
)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run was, or would be, made under."""

    host: Host
    settings: tuple[tuple[str, str], ...]
    pus: tuple[MachinePU, ...]
    placements: tuple[PlacedCopy, ...]
    benchmarks: tuple[BenchmarkUsed, ...] | None  # None: not known, nothing is built yet
    suite_path: str | None
    suite_sha256: str | None
    rater_version: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

    what: str  # "setting thp.enabled", "program of lu"
    before: str | None  # None: there was none; so `now`
    now: str | None
    weighs: bool = True  # False: worth a note, but times can still be compared

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.what}: was not there, is {self.now}"
        if self.now is None:
            return f"{self.what}: was {self.before}, is not there"
        return f"{self.what}: was {self.before}, is {self.now}"


def stored_conditions(run: StoredRun) -> Conditions:
    """Return the conditions of a stored run."""
    head = run.head
    return Conditions(
        host=run.host,
        settings=run.settings,
        pus=run.pus,
        placements=run.placements,
        benchmarks=run.benchmarks,
        suite_path=head.suite_path,
        suite_sha256=head.suite_sha256,
        rater_version=head.rater_version,
    )


def present_conditions(
    run: Run, host: Host, settings: Sequence[tuple[str, str]], pus: Sequence[MachinePU]
) -> Conditions:
    """Return the conditions of a run that is about to begin."""
    return Conditions(
        host=host,
        settings=tuple(settings),
        pus=tuple(pus),
        placements=run.placements,
        benchmarks=run.benchmarks,
        suite_path=run.suite_path,
        suite_sha256=run.suite_sha256,
        rater_version=run.rater_version,
    )


def differences(
    before: Conditions, now: Conditions, volatile: Callable[[str], bool]
) -> tuple[Difference, ...]:
    """Return what differs, machine first; `volatile` names settings that are mere readings.

    Programs are compared by content: where rater's cache lies makes no difference.
    """
    return tuple(
        [
            *_host(before.host, now.host),
            *_places(before, now),
            *_settings(dict(before.settings), dict(now.settings), volatile),
            *_suite(before, now),
            *_benchmarks(before.benchmarks, now.benchmarks),
            *_compared("rater", before.rater_version, now.rater_version, weighs=False),
        ]
    )


def _compared(
    what: str, before: object, now: object, *, weighs: bool = True
) -> Iterator[Difference]:
    if before != now:
        yield Difference(what, _text(before), _text(now), weighs)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else str(value)


def _host(before: Host, now: Host) -> Iterator[Difference]:
    for field, name in _NAMES:
        yield from _compared(name, getattr(before, field), getattr(now, field))
    found = [
        difference
        for field, name in _IDENTITY
        for difference in _compared(name, getattr(before, field), getattr(now, field))
    ]
    yield from found
    if before.fingerprint != now.fingerprint and not found:
        yield Difference(
            "structure of cores and caches", _digest(before.fingerprint), _digest(now.fingerprint)
        )
    was, is_now = before.memory_bytes, now.memory_bytes
    if was is None or is_now is None or abs(was - is_now) > _SAME_MEMORY * was:
        yield from _compared("memory", _gigabytes(was), _gigabytes(is_now))


def _gigabytes(byte_count: int | None) -> str | None:
    return None if byte_count is None else f"{byte_count / 1e9:.1f} GB"


def _sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def _digest(sha256: str | None) -> str | None:
    return None if sha256 is None else f"sha256 {sha256[:_DIGEST_SHOWN]}"


def _places(before: Conditions, now: Conditions) -> Iterator[Difference]:
    yield from _compared(
        "usable CPUs",
        format_list(pu.cpu for pu in before.pus),
        format_list(pu.cpu for pu in now.pus),
    )
    was = {placed.copy: placed for placed in before.placements}
    is_now = {placed.copy: placed for placed in now.placements}
    moved = [
        copy for copy in sorted(was.keys() | is_now.keys()) if was.get(copy) != is_now.get(copy)
    ]
    for copy in moved[:_PLACES_SHOWN]:
        more = len(moved) - _PLACES_SHOWN
        others = f" (and {more} more)" if more > 0 and copy == moved[_PLACES_SHOWN - 1] else ""
        yield Difference(
            f"place of copy {copy}{others}", _place(was.get(copy)), _place(is_now.get(copy))
        )


def _place(placed: PlacedCopy | None) -> str | None:
    if placed is None:
        return None
    cpus = "not bound" if placed.cpus is None else f"CPUs {format_list(placed.cpus)}"
    units = [
        f"{name} {number}"
        for name, number in (
            ("core", placed.core),
            ("LLC", placed.llc),
            ("lgroup", placed.node),
            ("package", placed.package),
        )
        if number is not None
    ]
    memory = f"memory {placed.memory_policy} {format_list(placed.memory_nodes)}".rstrip()
    return ", ".join([cpus, *units, memory])


def _settings(
    before: dict[str, str], now: dict[str, str], volatile: Callable[[str], bool]
) -> Iterator[Difference]:
    for name in sorted(before.keys() | now.keys()):
        if not volatile(name):
            if name == _PATH:
                yield from _path(before.get(name, ""), now.get(name, ""))
                continue
            if name == LAYOUT_TEXT:  # what it changes is told by the placements
                texts = [_digest(_sha256(it.get(name))) for it in (before, now)]
                yield from _compared("layout file", *texts, weighs=False)
                continue
            variable = name.removeprefix(_ENVIRONMENT)
            what = f"setting {name}" if variable == name else f"environment variable {variable}"
            yield from _compared(what, before.get(name), now.get(name))


def _path(before: str, now: str) -> Iterator[Difference]:
    """Compare the folders of PATH; programs are compared by themselves, so it does not weigh."""
    was, is_now = before.split(":"), now.split(":")
    if set(was) != set(is_now):
        lost = ":".join(word for word in was if word not in is_now)
        new = ":".join(word for word in is_now if word not in was)
        yield Difference("folders in PATH", lost or None, new or None, weighs=False)


def _suite(before: Conditions, now: Conditions) -> Iterator[Difference]:
    """Compare the texts of suite files: one line each of path and hash."""
    was = _by_path(before.suite_path, before.suite_sha256)
    is_now = _by_path(now.suite_path, now.suite_sha256)
    if sorted(was.values()) == sorted(is_now.values()):
        return  # the same files, wherever they lie
    for path in dict.fromkeys((*was, *is_now)):
        yield from _compared(
            f"suite file {path}", _digest(was.get(path)), _digest(is_now.get(path))
        )


def _by_path(paths: str | None, digests: str | None) -> dict[str, str]:
    return dict(zip((paths or "").splitlines(), (digests or "").splitlines(), strict=False))


def _benchmarks(
    before: tuple[BenchmarkUsed, ...] | None, now: tuple[BenchmarkUsed, ...] | None
) -> Iterator[Difference]:
    if before is None or now is None:
        return
    yield from _compared(
        "benchmarks", ", ".join(used.name for used in before), ", ".join(used.name for used in now)
    )
    known = {used.name: used for used in before}
    for used in now:
        if used.name in known:
            yield from _benchmark(known[used.name], used)


def _benchmark(before: BenchmarkUsed, now: BenchmarkUsed) -> Iterator[Difference]:
    name = now.name
    yield from _compared(
        f"program of {name}", _digest(before.binary_sha256), _digest(now.binary_sha256)
    )
    yield from _compared(
        f"command of {name}",
        _IN_CACHE.sub("", before.command) or None,
        _IN_CACHE.sub("", now.command) or None,
    )
    yield from _compared(
        f"input files of {name}", _digest(before.inputs_sha256), _digest(now.inputs_sha256)
    )
    for field, said in _OF_BENCHMARK:
        yield from _compared(f"{said} of {name}", getattr(before, field), getattr(now, field))
    yield from _compared(f"metrics of {name}", _metrics(before), _metrics(now))


def _metrics(used: BenchmarkUsed) -> str | None:
    said = [
        f"{metric.name} [{metric.unit}], {metric.better or 'neither'} is better, {metric.combine}"
        for metric in used.metrics
    ]
    return "; ".join(said) or None
