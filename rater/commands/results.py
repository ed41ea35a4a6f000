"""`rater list`, `show`, `export`, `import`, `rm`: what is stored, in and out."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rater.commands.common import add_common
from rater.workflow.common import existing_store, print_json
from rater.workflow.results.show_run import print_result, run_beside

if TYPE_CHECKING:
    from rater.record.stored import StoredRun
    from rater.show.results.copies import CopiesView

_RUN_HELP = "a number, the start of a uuid, last, last~1, or tag:K=V (where one run has that tag)"
_RUNS_HELP = "a number, the start of a uuid, last, last~1, or tag:K=V (all runs with that tag)"
_STDIN = ("-", "/dev/stdin")
_PASSED = "/dev/fd/"  # what a shell makes of <(command): a pipe that is open already
_MOST_BYTES = 10**9  # a document of five million copy runs
_PIECE_BYTES = 1 << 20
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommands that read and change what is stored."""
    listing = subparsers.add_parser("list", help="the runs that are stored")
    listing.set_defaults(run=_list)

    show = subparsers.add_parser("show", help="the results of a run")
    show.add_argument(
        "which", metavar="RUN", nargs="?", default="last", help=f"{_RUN_HELP} (default: last)"
    )
    show.add_argument(
        "--with",
        dest="beside",
        metavar="RUN2",
        help="of a steady run: the run in homogeneous (or rotated) mode to compare it with; "
        "default: the latest of the same copies",
    )
    show.add_argument(
        "--proof",
        dest="with_proof",
        action="store_true",
        help="with the memory of every benchmark (resident, page sizes, share on the lgroups "
        "planned) and every copy that was not placed as planned",
    )
    show.add_argument(
        "--copies",
        dest="with_copies",
        action="store_true",
        help="with the times of the copies over the median copy: median, mean, standard "
        "deviation and maximum of each benchmark and iteration, the slowest copies, and of several "
        "commands (SPEC: workloads) each one's time",
    )
    show.add_argument(
        "--baseline",
        metavar="RUN",
        help="of --copies: the run whose median copies are 1, and whose ratios stand beside "
        "this one's (default: the run itself)",
    )
    show.add_argument(
        "--baseline-iteration",
        metavar="N",
        type=int,
        help="of --copies: the median copies of this iteration alone (default: of all that count)",
    )
    show.add_argument(
        "--drop",
        metavar="K",
        type=int,
        help="of --copies: the statistics also without the K slowest copies of each iteration",
    )
    show.add_argument(
        "--cpus",
        dest="with_cpus",
        action="store_true",
        help="with what the CPUs did while copies ran: busy, work of others, time the hypervisor "
        "took, interrupts and frequency by lgroup, and the worst CPUs",
    )
    show.set_defaults(run=_show)

    export = subparsers.add_parser("export", help="a run as text for other programs, on stdout")
    export.add_argument("which", metavar="RUN", help=_RUN_HELP)
    export.add_argument(
        "--format",
        choices=("observations", "csv", "json", "rsf"),
        default="observations",
        help="observations: times and places as `rater import` takes them (default); "
        "csv: a line per copy; json: everything that is stored; rsf: `key: value` lines as in "
        "SPEC CPU's raw files, marked as an estimate",
    )
    export.set_defaults(run=_export)

    importing = subparsers.add_parser(
        "import",
        help="store runs from an observations document or SPEC CPU's result files",
        usage="rater import FILE\n       rater import spec FILE... [--topology MACHINE]",
        description="Store a run from an observations document, or with the word `spec` a run "
        "from each raw result file (.rsf) or log of SPEC CPU: every copy's time, where it was "
        "bound, and what the file reports beside what its times come to. What is stored already "
        "is not added again.",
    )
    importing.add_argument(
        "words",
        metavar="FILE",
        nargs=argparse.REMAINDER,  # options may stand between the files: parsed by `_import`
        help="the document, - for standard input; behind `spec` raw files and logs",
    )
    _topology(importing)
    importing.set_defaults(run=_import)

    remove = subparsers.add_parser("rm", help="remove runs and sweeps from the database")
    remove.add_argument(
        "which",
        metavar="RUN|SWEEP",
        nargs="+",
        help=f"{_RUNS_HELP}; sweep:3 or sweep:last: a sweep with all its runs",
    )
    remove.set_defaults(run=_remove)

    for parser in (listing, show, export, importing, remove):
        add_common(parser)


def _topology(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topology",
        metavar="MACHINE",
        default=argparse.SUPPRESS,
        help="with `spec`: the machine it was measured on, which tells the lgroups of the copies' "
        "CPUs: an hwloc XML file, a description, or nodes=4x16",
    )


def _list(args: argparse.Namespace) -> int:
    from rater.store.connection import default_path, is_there
    from rater.store.exchange.export import head_document
    from rater.store.store import open_store

    path = default_path(args.db)
    if is_there(path):
        with open_store(path) as store:
            heads = store.runs()
    else:
        # Looking makes no database: a mistyped --db would leave an empty one behind.
        print(f"rater: there is no database {path} yet", file=sys.stderr)
        heads = ()
    if args.json:
        print_json([head_document(head) for head in heads])
        return 0
    from rich.console import Console

    from rater.show.results.run import print_list

    print_list(heads, Console())
    return 0


def _show(args: argparse.Namespace) -> int:
    from rater.workflow.results.divots import analysis_beside_results

    _check_copies_options(args)
    with existing_store(args) as store:
        run = store.load(store.find(args.which))
        if args.beside is None:
            beside = run_beside(store, run)
        else:
            run, beside = _pair(run, store.load(store.find(args.beside)))
        baseline = None if args.baseline is None else store.load(store.find(args.baseline))
        divots = analysis_beside_results(store, run)
    print_result(
        args,
        run,
        after_run=False,
        beside=beside,
        proof=args.with_proof,
        copies=_copies_view(args, run, baseline) if args.with_copies else None,
        cpus=args.with_cpus,
        divots=divots,
    )
    return 0


def _check_copies_options(args: argparse.Namespace) -> None:
    from rater.errors import InputError

    if args.drop is not None and args.drop < 0:
        raise InputError(f"--drop {args.drop}: expected a number of copies, 0 or more")
    for option in ("baseline", "baseline_iteration", "drop"):
        if getattr(args, option) is not None and not args.with_copies:
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"{name} belongs to --copies: `rater show {args.which} --copies ...`")


def _copies_view(
    args: argparse.Namespace, run: StoredRun, baseline: StoredRun | None
) -> CopiesView:
    from rater.analysis.results.copies import cells_of, normalise, ratio_pairs, yardsticks
    from rater.analysis.results.score import summarise
    from rater.errors import InputError
    from rater.show.results.copies import CopiesView

    cells = cells_of(run)
    theirs = cells if baseline is None else cells_of(baseline)
    head = run.head if baseline is None else baseline.head
    there = sorted({cell.iteration for cell in theirs})
    if args.baseline_iteration is not None and args.baseline_iteration not in there:
        known = ", ".join(map(str, there)) or "none"
        raise InputError(
            f"--baseline-iteration {args.baseline_iteration}: run {head.run} has not this "
            f"iteration; expected one of its own: {known}"
        )
    drop = args.drop or 0
    return CopiesView(
        head=run.head,
        baseline=head,
        baseline_iteration=args.baseline_iteration,
        drop=drop,
        times=normalise(cells, yardsticks(theirs, args.baseline_iteration), drop),
        pairs=ratio_pairs(summarise(run), summarise(baseline)) if baseline else (),
    )


def _pair(run: StoredRun, other: StoredRun) -> tuple[StoredRun, StoredRun]:
    """Return the steady one of two runs first; raises `InputError` where they are no such pair."""
    from rater.analysis.compare.barrier import can_stand_beside
    from rater.errors import InputError

    for steady, barrier in ((run, other), (other, run)):
        if can_stand_beside(steady.head, barrier.head):
            return steady, barrier
    modes = " and ".join(
        f"run {one.head.run} is {one.head.mode}"
        + (" in rotated order" if one.head.mode == "steady" and one.head.order == "rotated" else "")
        for one in (run, other)
    )
    raise InputError(
        f"--with {other.head.run}: {modes}; expected a steady run and one in homogeneous mode "
        "(or rotated, where the steady one is in rotated order)"
    )


def _export(args: argparse.Namespace) -> int:
    from rater.errors import InputError
    from rater.store.exchange.export import (
        full_document,
        observations_document,
        write_csv,
        write_document,
    )

    if args.json and args.format in ("csv", "rsf"):
        raise InputError(
            f"--format {args.format} is no JSON document: leave out --json, or --format "
            f"{args.format}"
        )
    with existing_store(args) as store:
        stored = store.load(store.find(args.which))
    if args.format == "csv":
        write_csv(stored, sys.stdout)
    elif args.format == "rsf":
        from rater.workflow.speccpu.import_results import write_rsf

        write_rsf(stored, sys.stdout)
    else:
        make = full_document if args.format == "json" else observations_document
        write_document(make(stored), sys.stdout)
    return 0


def _import(args: argparse.Namespace) -> int:
    from rater.errors import InputError
    from rater.store.connection import default_path
    from rater.store.exchange.read_observations import read_observations
    from rater.store.store import open_store

    words: list[str] = args.words
    spec = words[:1] == ["spec"] and (len(words) > 1 or not Path("spec").exists())
    parser = argparse.ArgumentParser(prog="rater import spec" if spec else "rater import")
    if spec:
        parser.add_argument("file", metavar="FILE", nargs="+", help="a raw file (.rsf) or a log")
    else:
        parser.add_argument("file", metavar="FILE", help="the document; - for standard input")
    _topology(parser)
    add_common(parser)
    parser.parse_intermixed_args(words[1:] if spec else words, args)
    if spec:
        from rater.workflow.speccpu.import_results import import_spec

        return import_spec(args, args.file)
    if hasattr(args, "topology"):
        raise InputError(
            "--topology belongs to `rater import spec FILE...`: a document has its own"
        )
    file = args.file
    name = "standard input" if file in _STDIN else file
    stored = read_observations(_bytes_of(file), name)
    with open_store(default_path(args.db)) as store:
        number, added = store.add(stored)
    if args.json:
        print_json(
            {
                "run": number,
                "uuid": stored.head.uuid,
                "added": added,
                "observations": len(stored.copies),
            }
        )
    elif added:
        print(f"run {number}: {len(stored.copies)} observations of {stored.head.uuid} imported")
    else:
        print(f"run {number}: {stored.head.uuid} is stored already, nothing was added")
    return 0


def _remove(args: argparse.Namespace) -> int:
    import shutil

    from rater.run.programs.compile import cache_root
    from rater.store.sweeps import PREFIX, find_sweep, remove_sweeps

    with existing_store(args) as store:
        # All are found before the first goes: `last last~1` means two runs as they stand now.
        of_sweeps = [which for which in args.which if which.startswith(PREFIX)]
        sweeps = list(dict.fromkeys(find_sweep(store, which) for which in of_sweeps))
        words = [which for which in args.which if which not in of_sweeps]
        named = list(dict.fromkeys(n for which in words for n in store.find_all(which)))
        identities = {head.run: head.uuid for head in store.runs()}
        numbers = remove_sweeps(store, sweeps, named)
    for number in numbers:
        # What its failed copies left goes with it; a uuid from a document is no path.
        identity = identities.get(number, "")
        if _UUID.fullmatch(identity):
            shutil.rmtree(cache_root() / "work" / identity, ignore_errors=True)
    if args.json:
        print_json({"removed": [*numbers], **({"sweeps": sweeps} if sweeps else {})})
    else:
        for number in numbers:
            print(f"run {number} removed")
        for number in sweeps:
            print(f"sweep {number} removed")
    return 0


def _bytes_of(file: str) -> bytes:
    """Return what is in a file or comes from standard input, at most `_MOST_BYTES`."""
    from rater.errors import InputError

    path = Path(file)
    try:
        if file in _STDIN:
            if sys.stdin is None:  # closed: `rater import - <&-`
                raise InputError(f"{file}: standard input is closed; expected a document there")
            return _limited(sys.stdin.buffer, file)
        if path.exists() and not (path.is_file() or path.is_dir() or file.startswith(_PASSED)):
            # Opening a FIFO waits for a writer, and a device may never end.
            raise InputError(
                f"{file}: not a regular file; expected a file, or - for standard input"
            )
        with path.open("rb") as opened:
            return _limited(opened, file)
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); expected a file, or - for stdin"
        ) from error


def _limited(stream: BinaryIO, file: str) -> bytes:
    """Read a stream to its end, in pieces: a read of the limit at once would ask for its memory."""
    from rater.errors import InputError

    data = bytearray()
    while piece := stream.read(_PIECE_BYTES):
        data += piece
        if len(data) > _MOST_BYTES:
            raise InputError(
                f"{file}: more than {_MOST_BYTES} bytes; expected an observations document, "
                "about 200 bytes for each copy run"
            )
    return bytes(data)
