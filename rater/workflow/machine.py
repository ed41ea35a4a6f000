"""What a machine is, counts, can be set to and lacks: `topo`, `counters`, `settings`, ..."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rater.plan.counter_choice import (
    TableGroup,
    choose_groups,
)
from rater.plan.counter_tables import CounterTable, EventSource
from rater.plan.placement.layout import (
    EXPLICIT,
    layout_names,
    layout_path,
    layout_text,
    load_layout,
    parse_layout,
)
from rater.plan.suite import Benchmark, Suite
from rater.plan.suite_find import suite_file_text
from rater.run.host import discover as machine
from rater.run.host.admission import default_lock_path, machine_lock
from rater.run.host.facts import host_facts, settings_snapshot
from rater.run.host.hardware import hardware_facts
from rater.run.host.memory import read_node_memory
from rater.run.host.procfs import list_folder
from rater.run.launcher.processor import processor_facts
from rater.run.observe.energy import energy_sources
from rater.run.observe.perf import (
    GroupProbe,
    probe_group,
    this_processor,
)
from rater.run.programs.compile import CACHED, cache_root, compile_program, find_command
from rater.run.programs.inputs import remove_run_dir
from rater.settings.known import COMMAND_LINE
from rater.settings.restore import forget_leftovers, restore_leftovers
from rater.settings.tuner import available_settings, find_setting, missing_settings
from rater.show.plans.hardware import hardware_document, hardware_parts
from rater.show.plans.machine import (
    counters_document,
    counters_parts,
    layout_document,
    layouts_parts,
    settings_document,
    settings_parts,
    written_text,
)
from rater.show.plans.topology import TopoView, topo_document, topo_parts
from rater.show.screen.document import Line
from rater.system.errors import InputError
from rater.system.paths import exists, journal_paths, sysroot
from rater.system.process import print_error
from rater.text.documents import Key, find_line, key_lines
from rater.text.secrets import Redactor
from rater.workflow.arguments import Output, open_store_for_reading, print_json, print_view
from rater.workflow.counters import estimate_text

if TYPE_CHECKING:
    from rater.show.documents.plan import LayoutJson


def topo(output: Output, described: str | None) -> int:
    """Print this machine, or one from a file or a description."""
    if described is None:
        view = TopoView(machine.discover_topology(), read_node_memory())
    else:
        view = TopoView(machine.load_topology(described))
    print_view(output, topo_document(view), topo_parts)
    return 0


def hardware(output: Output, run_of: str | None) -> int:
    """Print facts of this machine that no setting changes, or those recorded with a run."""
    if run_of is None:
        topology = machine.discover_topology()
        settings = dict(settings_snapshot()) | dict(hardware_facts()) | dict(processor_facts())
        if COMMAND_LINE in settings:  # the facts are pasted into reports of bugs
            settings[COMMAND_LINE] = Redactor().redact(settings[COMMAND_LINE])
        document = hardware_document("this machine", host_facts(topology), settings)
    else:
        with open_store_for_reading(output, [run_of]) as store:
            run = store.load(store.find(run_of))
        document = hardware_document(
            f"the machine of run {run.head.run}", run.host, dict(run.settings)
        )
    print_view(output, document, hardware_parts)
    return 0


# -- Hardware counters: what this machine gives, `rater doctor counters` ---------------------------


def counters(output: Output, groups: tuple[str, ...]) -> int:
    """Show what this machine can count, each group tried."""
    root = sysroot()
    processor = this_processor(root)
    choices = [choose_groups(word, processor) for word in groups or ("all,software",)]
    of_tables: dict[TableGroup, None] = dict.fromkeys(
        group for choice in choices for turn in choice.turns for group in turn
    )
    rows = [_group_row(probe) for probe in map(partial(probe_group, root=root), of_tables)]
    energy = None if groups else [*_energy_rows(root)]
    notes = tuple(
        dict.fromkeys(
            note
            for choice in choices
            for note in (
                *choice.notes,
                *map(_origin_text, choice.tables),
                *map(estimate_text, choice.tables),
            )
            if note
        )
    )
    document = counters_document(processor, rows, energy, notes)
    print_view(output, document, counters_parts)
    return 0


def _energy_rows(root: Path) -> Iterator[dict[str, object]]:
    """Yield what counts energy here, which is closed again."""
    for source in energy_sources(root):
        source.close()
        domains = [domain.name for domain in source.domains]
        yield {"source": source.name, "domains": domains, "refused": source.refused}


def _origin_text(table: CounterTable) -> str | None:
    """Say whether counts of a table were ever looked at; None for the kernel's own events."""
    if table.source is not EventSource.RAW:
        return None
    if table.seen_on is not None:
        return f"{table.name}: its counts were looked at on {table.seen_on}"
    return f"{table.name}: codes of the maker's lists; nobody has looked at its counts on silicon"


def _group_row(probe: GroupProbe) -> dict[str, object]:
    state = "works"
    if probe.ready is None:
        state = "not counted"
    elif probe.ready.user_only:
        state = "user mode only"
    elif probe.missing:
        state = "in part"
    table, group = probe.of.table, probe.of.group
    return {
        "table": table.name,
        "group": group.name,
        "state": state,
        "events": [event.name for event in group.events],
        "missing": probe.missing,
        "why": probe.why,
        "remedy": probe.remedy,
        "in_stack": group in table.stack_groups(),
    }


# -- What the machine can be set to, and putting it back -------------------------------------------


def show_settings(output: Output, names: tuple[str, ...]) -> int:
    """Print the settings that a sweep can set, and their values now."""
    root = sysroot()
    settings = available_settings(root)
    if names:
        wanted = [find_setting(name, root).name for name in names]
        settings = tuple(
            setting
            for setting in settings
            if any(setting.name == name or setting.name.startswith(f"{name}.") for name in wanted)
        )
    document = settings_document(
        settings, root, () if names else missing_settings(root), journal_paths()
    )
    print_view(output, document, partial(settings_parts, detailed=bool(names)))
    return 0


def restore(output: Output, force: bool, forget: bool) -> int:
    """Put back what a killed sweep left changed; 1 where something could not be."""
    root = sysroot()
    messages: list[str] = []
    is_restored = True
    journals = [path for path in journal_paths() if exists(path)]
    for path in journals:
        if forget:
            kept = forget_leftovers(root, path)
            messages.append(f"Nothing was changed. The previous values are in {kept}")
        else:
            is_restored = (
                restore_leftovers(root, path, messages.append, force=force) and is_restored
            )
    if not journals:
        messages.append("nothing to put back: no sweep left settings changed")
    if output.json:
        paths = [str(path) for path in journal_paths()]
        print_json({"journals": paths, "restored": is_restored, "said": messages})
    else:
        print("\n".join(messages))
    return 0 if is_restored else 1


# -- `rater suites clean`: the cache trimmed by age and size ---------------------------------------

_UNUSED_S = 30 * 86400.0


class _Cached(NamedTuple):
    used_s: float  # when somebody read it or linked to it
    path: Path
    bytes: int


def _used_s(path: Path) -> float:
    status = path.lstat()
    return max(status.st_atime, status.st_mtime, status.st_ctime)


def _list_cached(cache: Path) -> Iterator[_Cached]:
    """Yield what can be made again; run directories are of runs, and go with them."""
    for entry in (folder_entry for name in CACHED for folder_entry in list_folder(cache / name)):
        parts = (entry, *entry.rglob("*"))
        blocks = sum(part.lstat().st_blocks for part in parts)
        yield _Cached(max(map(_used_s, parts)), entry, blocks * 512)


def _remove_entry(path: Path) -> str | None:
    """Remove it; return why it cannot be."""
    if path.is_dir():
        return remove_run_dir(path)
    path.unlink(missing_ok=True)
    return None


def clean(output: Output, older: float | None, size: int | None) -> int:
    """Remove what was not used for long, then what was not used longest; 1 where it cannot be."""
    cache, removed, troubles = cache_root(), [], []
    older_s = _UNUSED_S if older is None and size is None else older
    with machine_lock(default_lock_path(), f"rater suites clean, process {os.getpid()}"):
        entries = sorted(_list_cached(cache))
        kept_bytes = sum(entry.bytes for entry in entries)
        for entry in entries:
            is_old = older_s is not None and time.time() - entry.used_s > older_s
            if is_old or (size is not None and kept_bytes > size):
                trouble = None if output.dry_run else _remove_entry(entry.path)
                troubles += [trouble] if trouble else []
                removed += [] if trouble else [entry]
                kept_bytes -= 0 if trouble else entry.bytes
    freed_bytes = sum(entry.bytes for entry in removed)
    if output.json:
        print_json(
            {
                "cache": str(cache),
                "removed": len(removed),
                "bytes": freed_bytes,
                "left_bytes": kept_bytes,
            }
        )
    else:
        would = "would go" if output.dry_run else "removed"
        print(
            f"{cache}: {would}: {len(removed)} of {len(entries)}, {freed_bytes / 1e6:.3g} MB",
            end="",
        )
        print(f"; {kept_bytes / 1e6:.3g} MB stay")
    for trouble in troubles:
        print_error(trouble)
    return 1 if troubles else 0


# -- `rater plan layouts`: the built-in ones, and one as its file ----------------------------------


def list_layouts(output: Output) -> int:
    """Print the built-in layouts, and what is wrong with those that do not read."""
    documents: list[LayoutJson] = []
    for name in layout_names():
        path = layout_path(name)
        try:
            documents.append(layout_document(load_layout(name), path))
        except InputError as error:
            documents.append({"name": name, "path": str(path), "error": str(error)})
    print_view(output, documents, layouts_parts)
    return 0


def show_layout(output: Output, layout: str) -> int:
    """Print a layout's file, which is TOML again; one that does not read is an error."""
    if layout.partition(":")[0] in EXPLICIT and ":" in layout:
        parsed, path = load_layout(layout), None
        lines = written_text(parsed).splitlines()
    else:
        path = layout_path(layout)
        text = layout_text(path)
        parsed = parse_layout(text, path)
        lines = [f"# {path}", *text.expandtabs(4).rstrip().splitlines()]
    print_view(
        output, layout_document(parsed, path), lambda _: [Line(line, whole=True) for line in lines]
    )
    return 0


# -- The programs that a suite needs: which of them are not there, which cannot be built -----------

OF_SUITE = "[suite]"  # no benchmark can be called so


def missing_programs(suite: Suite) -> dict[str, list[str]]:
    """Return what is wrong with the programs that must exist, by benchmark and `OF_SUITE`.

    One line for each program, with the file's line where it is first named.
    """
    lines = key_lines(suite_file_text(suite.path))

    def wrong(commands: Iterator[tuple[Key, str]]) -> list[str]:
        mistakes: dict[str, str] = {}
        for key, program in commands:
            if program in mistakes:
                continue
            line = find_line(lines, key)
            try:
                find_command(program, f"{suite.path.name}:{line}: {'.'.join(key)}")
            except InputError as error:
                mistakes[program] = str(error)
        return list(mistakes.values())

    mistakes_by_benchmark = {
        OF_SUITE: wrong((("suite", "setup"), word) for word in suite.setup[:1])
    }
    for benchmark in suite.benchmarks:
        mistakes_by_benchmark[benchmark.name] = wrong(_programs(benchmark))
    return mistakes_by_benchmark


def generator_failures(benchmark: Benchmark, cache: Path) -> list[str]:
    """Compile the programs that make a benchmark's inputs; return what the compiler says."""
    failures: dict[str, None] = {}
    for size in benchmark.sizes.values():
        for wanted in size.inputs:
            if wanted.generator is None:
                continue
            try:  # as for a run, so that it finds the result in the cache
                compile_program("generator", wanted.generator.sources, ("-O2",), ("-lm",), cache)
            except InputError as error:
                failures[f"input {wanted.name}: {error}"] = None
    return list(failures)


def _programs(benchmark: Benchmark) -> Iterator[tuple[Key, str]]:
    """Yield every program of a benchmark that is not compiled, and where it is named."""
    benchmark_key = ("benchmarks", benchmark.name)
    yield from (((*benchmark_key, "command"), word) for word in benchmark.command[:1])
    yield from (((*benchmark_key, "setup"), word) for word in benchmark.setup[:1])
    for size in benchmark.sizes.values():
        for position, command in enumerate(size.commands):
            command_key = (f"commands[{position}]",) if len(size.commands) > 1 else ()
            key = (*benchmark_key, "sizes", size.name, *command_key, "command")
            yield from ((key, word) for word in command.program[:1])
