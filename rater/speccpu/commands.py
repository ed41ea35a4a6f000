"""`rater spec`: the mistakes of a bind list, and result files into the database."""

from __future__ import annotations

import os
import re
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rater.commands.common import Subcommand, output_of
from rater.system.errors import InputError
from rater.system.files import read_file
from rater.system.process import print_error
from rater.text.documents import file_problem
from rater.text.values import count
from rater.workflow.arguments import Output, print_json, print_view

if TYPE_CHECKING:
    from rater.plan.topology import Topology
    from rater.record.stored import StoredRun
    from rater.speccpu.lint.check import LintReport
    from rater.store.store import Store

_THIS = "this"


_COMMAND_LINE = """
--define NAME[=VALUE]:macro ...  a macro of runcpu's command line, which branches of the
                     configuration ask for
--label NAME         its label, where sections name some
"""


def _copies(text: str) -> int:
    from rater.record.run import MOST_COPIES

    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
    if not 1 <= number <= MOST_COPIES:
        raise ValueError(f"{text!r}: expected a number from 1 to {MOST_COPIES}")
    return number


def _macro(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][\w-]*", name, re.ASCII):
        raise ValueError(f"{text!r}: expected NAME or NAME=VALUE of a macro")
    return name, value if equals else "1"


def _kinds(text: str) -> frozenset[str]:
    from rater.speccpu.lint.check import KINDS

    kinds = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise ValueError(f"{unknown[0]!r}: expected some of {', '.join(KINDS)}")
    return kinds


class LintOptions(Struct, frozen=True, kw_only=True):
    """The options of a check of bind lists."""

    config: str
    topology: str | None
    copies: int | None
    section: str | None
    define: tuple[tuple[str, str], ...]
    label: str | None
    ignore: frozenset[str]


def _lint(arguments: Namespace) -> int:
    return lint_binds(
        output_of(arguments),
        LintOptions(
            config=arguments.config,
            topology=arguments.topology,
            copies=arguments.copies,
            section=arguments.section,
            define=tuple(arguments.define),
            label=arguments.label,
            ignore=arguments.ignore,
        ),
    )


def lint_binds(output: Output, request: LintOptions) -> int:
    """Print the mistakes of a bind list; return 1 where there are some, 3 where none can be told.

    Nothing is excluded where copies were not read.
    """
    from rater.analysis.results.gates import gate_status
    from rater.speccpu.lint.bind_list import LintContext, read_source
    from rater.speccpu.lint.check import lint
    from rater.speccpu.show import lint_document, lint_parts

    topology = _machine(request.topology)
    source = read_source(Path(request.config), dict(request.define), request.label)
    report = lint(
        LintContext(
            source=source,
            topology=topology,
            copies=request.copies,
            section=request.section,
            ignore=request.ignore,
        )
    )
    if not report.scopes:
        why = f" for {request.section}" if request.section else ""
        more = f" ({'; '.join(report.unchecked[:3])})" if len(report.unchecked) > 1 else ""
        raise InputError(
            f"{request.config}: no submit, bind or bindN line{why}: nothing to check{more}"
        )
    machine = topology.source if topology else None
    hint = _hint(report, topology)
    print_view(
        output,
        lint_document(report, source, machine),
        lambda _: lint_parts(report, source, machine, hint=hint),
    )
    return gate_status([report.verdict])


def _machine(described: str | None) -> Topology | None:
    if described is None:
        return None
    from rater.run.host import discover as machine

    if described == _THIS and not Path(described).exists():
        return machine.discover_topology()
    return machine.load_topology(described)


def _hint(report: LintReport, topology: Topology | None) -> str:
    if topology is not None:
        return ""
    cpus = {cpu for scope in report.scopes for seat in scope.seats for cpu in seat.cpus}
    if cpus and cpus == os.sched_getaffinity(0):
        return "the list names just the CPUs of this machine: --topology this checks it so"
    return ""


# -- SPEC CPU's result files into the database ----------------------------------------------------

_MOST_RECORD_BYTES = 32_000_000  # of a speccmds.out: more than 100,000 copies
_SAYING_S = 5.0  # between two words on how far the reading is


def _import(arguments: Namespace) -> int:
    return import_spec(
        output_of(arguments),
        files=tuple(arguments.files),
        topology=arguments.topology,
        define=tuple(arguments.define),
        label=arguments.label,
    )


def import_spec(
    output: Output,
    files: tuple[str, ...],
    topology: str | None,
    define: tuple[tuple[str, str], ...],
    label: str | None,
) -> int:
    """Import result files, one run each; what one of them lacks does not keep the others out."""
    from rater.speccpu.results.read import read_spec, to_import
    from rater.speccpu.show import import_document, import_parts
    from rater.store.connection import default_path
    from rater.store.store import open_store

    where = _machine(topology)
    documents = []
    errors: list[str] = []
    store = None
    try:
        for place, name in enumerate(files):
            try:
                record = _command_record(Path(name))
                if record is not None:
                    store = store or open_store(default_path(output.db))
                    documents.append(_add_record(store, record, name, output))
                    continue
                file = read_spec(Path(name), _progress(name), dict(define), label)
                imported = to_import(file, where)
            except InputError as error:
                errors.append(str(error))
                print_error(error)
                continue
            store = store or open_store(default_path(output.db))
            number, added = store.add(imported.stored, imported.copies())
            if output.json:
                documents.append(import_document(imported, number, added))
                continue
            if place:
                print()
            asked = where or define or label
            again = f" (to read it so: `rater rm {number}` first)" if asked else ""
            print_view(
                output, imported, partial(import_parts, run=number, added=added, again=again)
            )
    finally:
        if store is not None:
            store.close()
    if output.json:
        print_json({"runs": documents, "errors": errors})
    return InputError.exit_status if errors else 0


def _command_record(path: Path) -> StoredRun | None:
    """Return the run of a `speccmds.out`, None for any other file."""
    from rater.speccpu.results.command_record import is_command_record, read_command_record

    if file_problem(path) is not None:  # the other readers say what is wrong, or read a pipe
        return None
    try:
        data = read_file(path, _MOST_RECORD_BYTES + 1)
    except OSError:
        return None
    is_record = len(data) <= _MOST_RECORD_BYTES and is_command_record(data[:65536])
    return read_command_record(data, path) if is_record else None


def _add_record(store: Store, record: StoredRun, name: str, output: Output) -> dict[str, Any]:
    number, added = store.add(record)
    copies = count(len(record.copies), "copy run")
    if not output.json:
        told = f"{name} (speccmds.out, {', '.join(record.head.benchmarks)}, {copies}) imported"
        print(f"run {number}: {told if added else f'{name} is stored already, nothing was added'}")
    return {
        "run": number,
        "uuid": record.head.uuid,
        "added": added,
        "observations": len(record.copies),
        "notes": record.notes,
    }


def _progress(name: str) -> Callable[[int], None]:
    last_s = time.monotonic()

    def print_progress(read_bytes: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > _SAYING_S:
            last_s = time.monotonic()
            print_error(f"{name}: {read_bytes // 10**6} MB read")

    return print_progress


_ACTIONS = {
    "import": Subcommand(
        run=_import,
        arguments=f"""
FILE+ >files         a raw file (.rsf), a log or a speccmds.out; - for standard input
--topology MACHINE   the machine it was measured on, which tells the NUMA nodes of the copies' CPUs:
                     an hwloc XML file, a description, or nodes=4x16
{_COMMAND_LINE}
""",
        types={"macro": _macro},
        help="a run from each raw result file or log",
        description="Store a run from each raw result file (.rsf), log or speccmds.out (of "
        "specinvoke, the record of one benchmark) of SPEC CPU: every "
        "copy's time, where it was bound, and what the file reports beside what its times come "
        "to. What is stored already is not added again. A file that cannot be read is named and "
        "does not keep the others out; the exit status is then 2.",
    ),
    "lint-bind": Subcommand(
        run=_lint,
        arguments=f"""
CONFIG               configuration file (.cfg) or raw file
--topology MACHINE   the machine the file is for: an hwloc XML file, a description such as 'pack:2
                     numa:1 core:10 pu:2', nodes=4x16, or `this` for this machine (default: only
                     what can be told without a machine is checked)
--copies N:copies    the copies that will run (default: what the file says, else one a bind)
--section NAME[=TUNE]  only what holds for this benchmark or set: 429.mcf, intrate=peak
{_COMMAND_LINE}
--ignore KIND[,KIND]:kinds =  leave out findings of these kinds (the word in brackets at the end of
                     each)
""",
        types={"macro": _macro, "copies": _copies, "kinds": _kinds},
        help="mistakes in SPEC binds",
        description="Check the submit, bind and bindN lines of a SPEC CPU configuration, or of "
        "the one packed in a raw file (.rsf): CPUs bound twice, names given twice, CPUs and nodes "
        "that the machine lacks, memory of another node, idle CPUs, more copies than binds or "
        "fewer, shared cores while others are free. One line each: FILE:LINE: what, and the way "
        "out. Nothing is changed.",
        epilog="Exit status: 0 nothing found; 1 something found; 2 there is no such file, no bind "
        "list in it, or the machine cannot be read; 3 nothing found, and not all copies were "
        "read. What is meant as it is can be left out: "
        "--ignore idle,many-binds.",
    ),
}
COMMANDS = {
    "spec": Subcommand(
        run=None,
        arguments="""
$ rater spec import result/CPU2017.*.rsf
$ rater spec lint-bind my.cfg --topology nodes=2x20
""",
        description="Files of SPEC CPU: results into the database, mistakes in bind lists.",
        actions=_ACTIONS,
    )
}
