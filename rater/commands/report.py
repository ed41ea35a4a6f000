"""`rater report`: a run, or several beside each other, as one page that a person can send."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rater.commands.common import add_common, existing_store, print_json
from rater.errors import InputError

if TYPE_CHECKING:
    from rater.record import StoredRun
    from rater.show.page_data import Told
    from rater.store.store import Store

_MOST_RUNS = 12  # pages of more are hardly read, and every run has its panels
_HEAD_BYTES = 4096  # of a file that is there: rater's own pages say so before that


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater report`."""
    parser = subparsers.add_parser(
        "report",
        help="a run as one HTML page to send: divots, pictures, tables, settings",
        description="Write one HTML page that tells what ran, what is slow and where, with a "
        "picture of every copy's time, the machine coloured by slowdown, who ran when, and all "
        "tables. It needs no network and no other file.",
    )
    parser.add_argument(
        "which",
        metavar="RUN",
        nargs="*",
        default=[],
        help="a number, the start of a uuid, last, last~1, or tag:K=V; of several the first is "
        "what the others are compared with (default: last)",
    )
    parser.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        help="the page (default: rater-report-RUN.html in the current directory)",
    )
    parser.add_argument(
        "--force", action="store_true", help="write over FILE though rater did not make it"
    )
    add_common(parser)
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> int:
    from rater.run.facts import volatile
    from rater.show.page import page_of
    from rater.show.page_library import library

    with existing_store(args) as store:
        specs = args.which or ["last"]
        numbers = list(dict.fromkeys(n for spec in specs for n in store.find_all(spec)))
        if len(numbers) > _MOST_RUNS:
            raise InputError(
                f"{len(numbers)} runs: a page holds at most {_MOST_RUNS}; name fewer of them"
            )
        path = Path(args.file or f"rater-report-{'-'.join(map(str, numbers))}.html")
        _check(path, force=args.force)
        vega = library()  # before the work: it may not be installed
        told = [_told(store, store.load(number)) for number in numbers]
    _write(path, page_of(told, vega, volatile))
    size = path.stat().st_size
    if args.json:
        print_json({"runs": numbers, "file": str(path), "bytes": size})
    else:
        print(f"{path.resolve()}: a page on {_named(numbers)}, {size / 1e6:.1f} MB")
    return 0


def _named(numbers: list[int]) -> str:
    return f"run {numbers[0]}" if len(numbers) == 1 else f"runs {', '.join(map(str, numbers))}"


def _told(store: Store, run: StoredRun) -> Told:
    from rater.analysis.copies import cells_of
    from rater.analysis.readings import read_back
    from rater.analysis.score import summarise
    from rater.commands.common import run_beside
    from rater.commands.search import analysis_beside_results
    from rater.show.page_data import Told
    from rater.show.plot import picture_of
    from rater.show.plot_words import labels_from

    divots = analysis_beside_results(store, run)
    cells = cells_of(run)
    beside = run_beside(store, run)
    return Told(
        run=run,
        summary=summarise(run),
        cells=cells,
        picture=picture_of(run.head, cells, labels_from(divots.findings if divots else ())),
        divots=divots,
        readings=read_back(run),
        beside=summarise(beside) if beside else None,
    )


def _check(path: Path, *, force: bool) -> None:
    """Raise `InputError` for a place where no page can be written, or another file would go."""
    from rater.show.page import is_page

    if path.is_dir():
        raise InputError(f"-o {path}: is a directory; expected a file in it")
    if not path.parent.is_dir():
        raise InputError(f"-o {path}: there is no directory {path.parent}")
    if path.exists() and not path.is_file():  # a FIFO, /dev/stdout: nothing can take its place
        raise InputError(f"-o {path}: is no regular file; expected the name of a page")
    if not path.exists() or force:
        return
    try:
        with path.open("rb") as there:
            start = there.read(_HEAD_BYTES)
    except OSError as error:
        raise InputError(f"-o {path}: cannot be read ({error.strerror})") from error
    if start and not is_page(start.decode("utf-8", "replace")):
        raise InputError(
            f"-o {path}: is there already, and is no page that rater wrote; name another file, "
            "or --force writes over it"
        )


def _write(path: Path, text: str) -> None:
    """Write the page beside its place, then put it there: nobody sees half of one."""
    part = None
    try:
        real = Path(os.path.realpath(path))  # through a link: the link stays
        with tempfile.NamedTemporaryFile(
            "w",
            encoding="utf-8",
            newline="\n",
            dir=real.parent,
            prefix=".rater-report-",
            delete=False,
        ) as file:
            part = Path(file.name)
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)  # as any other new file: the temporary one is private
        part.replace(real)
    except OSError as error:
        raise InputError(f"-o {path}: cannot be written ({error.strerror})") from error
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink()
