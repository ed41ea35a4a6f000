"""What runs were made under and what disturbed them; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.options import CompareAs
from rater.plan.request import OPTIONS
from rater.record.run import BenchmarkUsed, Host, MachinePU, Placement
from rater.record.stored import StoredRun
from rater.settings.known import COMMAND_LINE, LAYOUT_TEXT, WHERE_READ, is_volatile
from rater.system.patterns import compile_later
from rater.text.cpuset import format_list
from rater.text.secrets import Redactor

_VARIABLE = compile_later("^(environment variable|--env) ")
type Facts = dict[str, str | None]  # what, in words, and its value; None: there is none

_DIGEST_SHOWN = 12
_PLACES_SHOWN = 8
# What the kernel keeps for itself, and with it MemTotal, varies from boot to boot.
_SAME_MEMORY = 0.01
_ENVIRONMENT = "env."
_SLOT = "dimm."
_COMMAND_LINE = f"setting {COMMAND_LINE}"
_PATH, _FOLDERS = f"{_ENVIRONMENT}PATH", "folders in PATH"
# Where rater keeps what it compiled: the folder is called after a hash of all that went in.
_IN_CACHE = compile_later(r"(?<!\S)\S*/build/[0-9a-f]{32}/")
# Not "memory", which is what --mem of a head is called: one would hide the other.
_STRUCTURE, _MEMORY = "structure of cores and caches", "installed memory"
_NAMES = {"hostname": "host name", "machine_id_hash": "machine id", "product": "product"}
# All that goes into the fingerprint but the structure of cores and caches.
_IDENTITY = {
    "architecture": "architecture",
    "vendor": "CPU vendor",
    "cpu_model": "CPU model",
    "microcode": "microcode",
    "pus": "hardware threads",
    "cores": "cores",
    "nodes": "NUMA nodes",
    "packages": "packages",
}
_OF_BENCHMARK = {
    "compiler": "compiler",
    "flags": "compiler flags",
    "reference_s": "reference time",
    "category": "category",
    "threads": "threads per copy",
}
# Worth a note: times can still be compared. (Programs are compared by themselves, what a layout
# file changes by the placements.)
_NO_SPEED = ("kernel.perf_event_paranoid", "limit.open_files", "limit.processes")
_MINOR = {
    _FOLDERS,
    "layout file",
    "rater",
    *(f"setting {name}" for name in _NO_SPEED),
    *(option.label for option in OPTIONS if option.compare_as is CompareAs.NOTE),
}


class Conditions(Struct, frozen=True, kw_only=True):
    """What a run was, or would be, made under."""

    host: Host
    settings: tuple[tuple[str, str], ...]
    pus: tuple[MachinePU, ...]
    placements: tuple[Placement, ...]
    benchmarks: tuple[BenchmarkUsed, ...] | None  # None: not known, nothing is built yet
    suite_path: str | None
    suite_sha256: str | None
    rater_version: str | None


class ConditionDifference(Struct, frozen=True):
    """One thing that is not as it was."""

    what: str  # "setting thp.enabled", "program of lu"
    before: str | None  # None: there was none; so `now`
    now: str | None
    significant: bool = True  # False: worth a note, but times can still be compared

    def __str__(self) -> str:
        was = "was not there" if self.before is None else f"was {self.before}"
        return f"{self.what}: {was}, is {'not there' if self.now is None else self.now}"


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


def condition_differences(before: Conditions, now: Conditions) -> tuple[ConditionDifference, ...]:
    """Return what differs, machine first; settings that are mere readings are left out.

    Programs are compared by content: where rater's cache lies makes no difference.
    """
    same_places = before.pus == now.pus and before.placements == now.placements
    return (
        *(_host(before.host, now.host) if before.host != now.host else ()),
        *(() if same_places else _places(before, now)),
        *_settings(before.settings, now.settings),
        *_suite(before, now),
        *_benchmarks(before.benchmarks, now.benchmarks),
        *compare_facts({"rater": before.rater_version}, {"rater": now.rater_version}),
    )


def compare_facts(
    before: Mapping[str, str | None],
    now: Mapping[str, str | None],
    names: Iterable[str] | None = None,
) -> Iterator[ConditionDifference]:
    """Return the facts that differ, in the order of `names`, else as they come; no secrets."""
    if before == now:
        return
    redactor = Redactor()
    for fact in dict.fromkeys((*before, *now)) if names is None else names:
        if before.get(fact) != now.get(fact):
            name = _VARIABLE.sub("", fact)
            was, is_now = (
                value
                and (redactor.redact(value) if name == fact else redactor.redact_value(name, value))
                for value in (before.get(fact), now.get(fact))
            )
            yield ConditionDifference(fact, was, is_now, fact not in _MINOR)


def text_of(value: object) -> str | None:
    """Return a value in the words of a comparison."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _fields(record: object, names: Mapping[str, str]) -> Facts:
    return {name: text_of(getattr(record, field)) for field, name in names.items()}


def _host(before: Host, now: Host) -> Iterator[ConditionDifference]:
    differences = list(compare_facts(*(_host_facts(host) for host in (before, now))))
    known = any(difference.what in _IDENTITY.values() for difference in differences)
    was, is_now = before.memory_bytes or 0, now.memory_bytes or 0
    for difference in differences:
        if difference.what == _STRUCTURE and known:
            continue
        if (
            difference.what == _MEMORY
            and was
            and is_now
            and abs(was - is_now) <= _SAME_MEMORY * was
        ):
            continue
        yield difference


def _host_facts(host: Host) -> Facts:
    held = host.memory_bytes
    return _fields(host, _NAMES | _IDENTITY) | {
        _STRUCTURE: _digest(host.fingerprint),
        _MEMORY: None if held is None else f"{held / 1e9:.1f} GB",
    }


def _digest(sha256: str | None) -> str | None:
    return None if sha256 is None else f"sha256 {sha256[:_DIGEST_SHOWN]}"


def _places(before: Conditions, now: Conditions) -> Iterator[ConditionDifference]:
    sides = (before, now)
    yield from compare_facts(
        *({"usable CPUs": format_list(placement.cpu for placement in side.pus)} for side in sides)
    )
    moved = list(
        compare_facts(
            *(
                {
                    f"place of copy {placement.copy}": _place(placement)
                    for placement in side.placements
                }
                for side in sides
            )
        )
    )
    more, shown = len(moved) - _PLACES_SHOWN, moved[:_PLACES_SHOWN]
    if more > 0:
        shown[-1] = replace(shown[-1], what=f"{shown[-1].what} (and {more} more)")
    yield from shown


def _place(placed: Placement) -> str:
    cpus = "not bound" if placed.cpus is None else f"CPUs {format_list(placed.cpus)}"
    names = {"core": "core", "llc": "LLC", "node": "node", "package": "package"}
    units = [f"{name} {text}" for name, text in _fields(placed, names).items() if text is not None]
    return ", ".join([cpus, *units, memory_of(placed)])


def memory_of(placed: Placement) -> str:
    """Return policy and nodes of a copy's memory: `memory bind 0-1`."""
    return f"memory {placed.memory_policy} {format_list(placed.memory_nodes)}".rstrip()


def _settings(
    settings_before: Sequence[tuple[str, str]], settings_now: Sequence[tuple[str, str]]
) -> Iterator[ConditionDifference]:
    if settings_before == settings_now:
        return
    before, now = dict(settings_before), dict(settings_now)
    both = before.keys() & now.keys()
    names = sorted(
        name
        for name in {name for name, _ in before.items() ^ now.items()}
        if not is_volatile(name) and (name in both or not name.startswith(WHERE_READ))
    )
    for difference in compare_facts(_setting_facts(before, names), _setting_facts(now, names)):
        if difference.what == _FOLDERS:
            was, is_now = (it.get(_PATH, "").split(":") for it in (before, now))
            lost = ":".join(word for word in was if word not in is_now)
            new = ":".join(word for word in is_now if word not in was)
            yield replace(difference, before=lost or None, now=new or None)
        elif difference.what == _COMMAND_LINE and difference.before and difference.now:
            was_text, now_text = own_words([difference.before, difference.now])
            yield replace(difference, before=was_text or None, now=now_text or None)
        else:
            yield difference


def _setting_facts(settings: Mapping[str, str], names: Iterable[str]) -> Facts:
    facts: Facts = {}
    for name in names:
        value = settings.get(name)
        if name == _PATH:  # in whatever order
            facts[_FOLDERS] = ":".join(sorted(set((value or "").split(":"))))
        elif name == LAYOUT_TEXT:
            digest = None if value is None else hashlib.sha256(value.encode()).hexdigest()
            facts["layout file"] = _digest(digest)
        elif name.startswith(_ENVIRONMENT):
            facts[f"environment variable {name.removeprefix(_ENVIRONMENT)}"] = value
        else:
            facts[setting_label(name)] = value
    return facts


def setting_label(setting: str, word: str = "setting ") -> str:
    """Return what a recorded setting is called: a memory slot by its own name."""
    slot = setting.removeprefix(_SLOT)
    return f"{word}{setting}" if slot == setting else f"memory slot {slot}"


def own_words(lines: Sequence[str]) -> list[str]:
    """Return the words of each line that not all lines have; whole lines if all have the same."""
    shared = set.intersection(*(set(line.split()) for line in lines))
    own = [" ".join(word for word in line.split() if word not in shared) for line in lines]
    return own if any(own) else list(lines)


def _suite(before: Conditions, now: Conditions) -> Iterator[ConditionDifference]:
    """Compare the texts of suite files, wherever they lie: one line each of path and hash."""
    was, is_now = (
        dict(
            zip(
                (f"suite file {path}" for path in (conditions.suite_path or "").splitlines()),
                map(_digest, (conditions.suite_sha256 or "").splitlines()),
                strict=False,
            )
        )
        for conditions in (before, now)
    )
    if sorted(map(str, was.values())) != sorted(map(str, is_now.values())):
        yield from compare_facts(was, is_now)


def _benchmarks(
    before: Sequence[BenchmarkUsed] | None, now: Sequence[BenchmarkUsed] | None
) -> Iterator[ConditionDifference]:
    if before is None or now is None or before == now:
        return
    sides = (before, now)
    yield from compare_facts(
        *({"benchmarks": ", ".join(benchmark.name for benchmark in side)} for side in sides)
    )
    known = {used.name: used for used in before}
    for used in now:
        if used.name in known:
            yield from compare_facts(_benchmark_facts(known[used.name]), _benchmark_facts(used))


def _benchmark_facts(used: BenchmarkUsed) -> Facts:
    metrics = [
        f"{metric.name} [{metric.unit}], {metric.better or 'neither'} is better, {metric.combine}"
        for metric in used.metrics
    ]
    facts = {
        "program": _digest(used.binary_sha256),
        "command": _IN_CACHE.sub("", used.command) or None,
        "input files": _digest(used.inputs_sha256),
        **_fields(used, _OF_BENCHMARK),
        "metrics": "; ".join(metrics) or None,
    }
    return {f"{what} of {used.name}": value for what, value in facts.items()}
