"""What hyperfine exports (`--export-json`): a benchmark a command, an iteration a run; pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rater.store.formats.document import ForeignRun, document_of, printable_name
from rater.text.documents import Document, TableReader
from rater.text.kinds import STRING, ValueKind, is_number, whole
from rater.text.values import count

_TIME: ValueKind[float] = ValueKind(
    "a number of seconds", lambda value: float(value) if is_number(value) else None, 0.0
)
_CODE: ValueKind[int | None] = ValueKind(
    "an exit code or null", lambda value: -1 if value is None else _whole(value), 0
)
_BYTES = whole(0, 2**60)


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def is_hyperfine(data: Any) -> bool:
    """Tell whether parsed JSON is an export of hyperfine."""
    results = data.get("results") if isinstance(data, dict) else None
    return isinstance(results, list) and any(
        isinstance(result, dict) and "command" in result and "times" in result for result in results
    )


def read_hyperfine(data: bytes, document: Document) -> list[ForeignRun]:
    """Return the run of an export: every command a benchmark, every time an iteration.

    Commands of one name are told apart by their parameters.
    """
    results = document.root().tables("results")
    names = _names(results)
    observations: list[dict[str, Any]] = []
    without_times = []
    for name, result in zip(names, results, strict=True):
        times = result.items("times", _TIME, "a list of seconds")
        codes = result.items("exit_codes", _CODE, "a list of exit codes")
        memory = result.items("memory_usage_byte", _BYTES, "a list of bytes")
        if not times:
            without_times.append(name)
        for place, elapsed_s in enumerate(times):
            row = {"benchmark": name, "iteration": place + 1, "copy": 0, "elapsed_s": elapsed_s}
            if place < len(codes):
                row["status"] = "ok" if codes[place] == 0 else "failed"
            if place < len(memory):
                row["peak_rss_bytes"] = memory[place]
            observations.append(row)
    document.raise_mistakes()
    notes = []
    if without_times:
        notes.append(f"{count(len(without_times), 'command')} without times left out")
    if any("user" in result for result in results):
        notes.append("CPU times are left out: hyperfine has means over runs alone")
    return [ForeignRun(document_of(data, observations, {}), tuple(notes))]


def _names(results: list[TableReader]) -> list[str]:
    """Return a name for each result, with its parameters where the command alone is not one."""
    commands = [printable_name(result.get("command", STRING)) for result in results]
    many = Counter(commands)
    names = []
    for command, result in zip(commands, results, strict=True):
        parameters = result.table("parameters")
        values = [f"{name}={parameters.get(name, STRING)}" for name in parameters.key_names()]
        told = many[command] > 1 and values
        names.append(printable_name(f"{command} ({', '.join(values)})") if told else command)
    return _numbered(names)


def _numbered(names: list[str]) -> list[str]:
    """Return names of which no two are equal: the second of a name has its number."""
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return numbered
