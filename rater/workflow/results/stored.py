"""One stored run: `rater show`, `import`, `export`, `rm`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct

from rater.analysis.results.counters import run_counts
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.placement import RunProof
from rater.analysis.results.result import stored_request
from rater.analysis.results.score import Summary, summarise
from rater.plan.request import options_beyond_defaults
from rater.record.stored import StoredRun, folder_of
from rater.run.programs.compile import cache_root
from rater.run.programs.inputs import remove_run_dir
from rater.show.results.cpu_use import (
    counter_parts,
    counters_document,
    cpu_parts,
    cpus_document,
)
from rater.show.results.disturbed import disturbed_json
from rater.show.results.placement import proof_document
from rater.show.results.run import PAGE_TABLES, ShownRun, head_parts, proof_parts, run_parts
from rater.show.results.run_document import summary_document
from rater.show.results.to_json import divot_rows
from rater.show.screen.document import Part
from rater.store.bundle import bundled_database, is_bundle
from rater.store.connection import default_path, is_database
from rater.store.formats.read import KNOWN_FILES, ReadRun, read_runs
from rater.store.read import TAG
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from rater.system.process import print_error
from rater.text.documents import open_input
from rater.text.values import count, to_json
from rater.wings import Hook
from rater.workflow.arguments import (
    Output,
    open_existing_store,
    open_store_for_reading,
    print_json,
    print_view,
)
from rater.workflow.results.divots import analysis_for_results
from rater.workflow.results.listing import latest_like

if TYPE_CHECKING:
    from rater.analysis.compare.barrier import BarrierComparison
    from rater.show.documents.copies import CopyTimesJson
    from rater.show.documents.run import RunDocument

_MOST_PROOFS = 512  # copy runs listed in JSON unasked, half a kilobyte each


class RunDetails(Struct, frozen=True, kw_only=True):
    """What is shown of a run beside its results."""

    proof: bool = False  # all that was seen of where copies ran
    cpus: bool = False  # what the CPUs did
    counters: bool = False  # what was counted
    copy_times: CopyTimesJson | None = None  # times of all copies
    sort: str | None = None  # column of the table of copies

    @property
    def any(self) -> bool:
        """Whether anything is asked for beside the results, which are then left out."""
        return self.proof or self.cpus or self.counters or self.copy_times is not None


_RESULTS_ALONE = RunDetails()


def print_result(
    output: Output,
    store: Store,
    run: StoredRun,
    *,
    after_run: bool = True,
    details: RunDetails = _RESULTS_ALONE,
    proved: RunProof | None = None,
) -> None:
    """Print a run with its divots, for people or as JSON; `after_run`: with what comes next.

    `proved` is the proof of placements if it was worked out before.
    """
    shown = _shown_run(store, run, details, proved, output)

    def parts(document: RunDocument) -> Iterator[Part]:
        if output.verbose or not details.any:
            yield from run_parts(
                shown, verbose=output.verbose, after_run=after_run, warned=run.warnings
            )
            if run.counted and not details.counters:
                yield f"counters: `rater show {run.head.run} --counters`"
        else:
            yield from head_parts(run.head)
        yield from proof_parts(shown) if details.proof else ()
        yield from cpu_parts(shown.readings) if details.cpus else ()
        yield from (
            counter_parts(shown.counts, every=output.verbose) if shown.counts is not None else ()
        )
        if "copy_times" in document:
            from rater.show.results.copies import copy_parts, copy_rows_parts, copy_run_parts

            yield from copy_parts(document["copy_times"], run.head)
            is_terminal = sys.stdout.isatty() and output.format is None
            yield from copy_rows_parts(document["copy_table"], is_terminal=is_terminal)
            if any(copy.workloads for copy in run.copies):
                yield from copy_run_parts(document["copy_runs"])

    print_view(output, shown.document, parts)


def _shown_run(
    store: Store,
    run: StoredRun,
    details: RunDetails,
    proved: RunProof | None,
    output: Output,
) -> ShownRun:
    """Return what is shown of a run; JSON alone has placements, which take time."""
    summary = summarise(run, proved)
    barrier = run_beside(store, run)
    pair = None if barrier is None else _beside(summary, barrier)
    readings, counts = run_counters(run), run_counts(run) if details.counters else None
    divots = analysis_for_results(store, run)
    # The two keys that a summary lacks follow at once: JSON has them after those of some modes.
    document = cast("RunDocument", summary_document(summary, pair))
    every = details.proof or len(summary.proof.copies) <= _MOST_PROOFS
    document["placement"] = proof_document(summary.proof, every=every) if output.json else None
    document["notable"] = to_json(readings.notable)
    request = stored_request(run.head)
    document["asked"] = None if request is None else options_beyond_defaults(request)
    if kept := [copy.run_dir for copy in run.copies if copy.run_dir]:
        directories = f"directories of {count(len(kept), 'copy run')}"
        document["remarks"].append(f"{directories} are kept: {os.path.commonpath(kept)}")
    if summary.pages is not None:
        document["pages"] = PAGE_TABLES().pages_document(summary.pages, every=details.proof)
    if details.cpus:
        document["readings"] = cpus_document(readings)
    if counts is not None:
        document["counters"] = counters_document(counts)
    if details.copy_times is not None:
        from rater.analysis.results.copy_table import copy_rows
        from rater.show.results.copies import copy_rows_document, copy_runs_document

        document["copy_times"] = details.copy_times
        rows = copy_rows(run, each=output.verbose, counters=readings)
        document["copy_table"] = copy_rows_document(rows, details.sort)
        document["copy_runs"] = copy_runs_document(run)
    if divots is not None:
        document["divots"] = divot_rows(divots.findings, divots.confirm)
        disturbed = disturbed_json(divots)
        document["disturbed"] = disturbed["disturbed"]
        document["others_cost"] = disturbed["others_cost"]
        document["noise_cost"] = disturbed["noise_cost"]
    return ShownRun(
        head=summary.head,
        document=document,
        proof=summary.proof,
        pages=summary.pages,
        divots=divots,
        readings=readings,
        counts=counts,
    )


def _beside(summary: Summary, barrier: StoredRun) -> BarrierComparison:
    from rater.analysis.compare.barrier import compare_with_barrier

    return compare_with_barrier(summary, summarise(barrier))


def run_beside(store: Store, run: StoredRun) -> StoredRun | None:
    """Return the stored run that a steady one is compared with, None for others."""
    if run.head.mode != "steady":
        return None
    from rater.analysis.compare.barrier import find_barrier_run

    number = find_barrier_run(run.head, latest_like(store, run.head))
    return None if number is None else store.load(number)


class CopiesOptions(Struct, frozen=True):
    """Options of copies' times."""

    baseline: str | None  # a run
    baseline_iteration: int | None
    drop: int | None  # the slowest copies


def show_run(
    output: Output,
    run_word: str,
    of_copies: CopiesOptions,
    *,
    with_proof: bool,
    with_copies: bool,
    with_cpus: bool,
    with_counters: bool,
    sort: str | None = None,
) -> int:
    """Print the results of a stored run."""
    if sort is not None and not with_copies:
        raise InputError(f"--sort belongs to --copies: `rater show {run_word} --copies ...`")
    if of_copies.drop is not None and of_copies.drop < 0:
        raise InputError(f"--drop {of_copies.drop}: expected a number of copies, 0 or more")
    for option in () if with_copies else CopiesOptions.__struct_fields__:
        if getattr(of_copies, option) is not None:
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"{name} belongs to --copies: `rater show {run_word} --copies ...`")
    word = of_copies.baseline
    with open_store_for_reading(output, [run_word, word]) as store:
        run = store.load(store.find(run_word))
        baseline = None if word is None else store.load(store.find(word))
        if output.format == "openmetrics" and not output.json:
            _print_metrics(store, run, output)
            return 0
        print_result(
            output,
            store,
            run,
            after_run=False,
            details=RunDetails(
                proof=with_proof,
                cpus=with_cpus,
                counters=with_counters,
                copy_times=_copy_times(of_copies, run, baseline) if with_copies else None,
                sort=sort,
            ),
        )
    return 0


def _print_metrics(store: Store, run: StoredRun, output: Output) -> None:
    from rater.analysis.results.metrics import metric_results
    from rater.show.results.ci import openmetrics_text
    from rater.show.results.run_metrics import run_families

    shown = _shown_run(store, run, _RESULTS_ALONE, None, output)
    families = run_families(run.head, shown.document, metric_results(run))
    sys.stdout.write(openmetrics_text(families))


def _copy_times(
    options: CopiesOptions, run: StoredRun, baseline: StoredRun | None
) -> CopyTimesJson:
    from rater.analysis.results.copies import (
        group_cells,
        median_copy_times,
        normalise,
        ratio_pairs,
    )
    from rater.show.results.copies import copies_document

    cells = group_cells(run)
    theirs = cells if baseline is None else group_cells(baseline)
    head = run.head if baseline is None else baseline.head
    iterations = sorted({cell.iteration for cell in theirs})
    if options.baseline_iteration is not None and options.baseline_iteration not in iterations:
        expected = ", ".join(map(str, iterations)) or "none"
        raise InputError(
            f"--baseline-iteration {options.baseline_iteration}: run {head.run} has not this "
            f"iteration; expected one of its own: {expected}"
        )
    drop, iteration = options.drop or 0, options.baseline_iteration
    return copies_document(
        run.head,
        normalise(cells, median_copy_times(theirs, iteration), drop),
        head,
        ratio_pairs(summarise(run), summarise(baseline)) if baseline else (),
        iteration=iteration,
        drop=drop,
    )


# -- Files of any runner, and whole databases, into the database: `rater import FILE...` --------


class MergedFile(Protocol):
    """What became of one database."""

    def document(self) -> dict[str, Any]:
        """Return what `--json` has of it."""


class Merge(Protocol):
    """How a wing takes in the databases of other machines."""

    def merge_all(
        self,
        store: Store,
        sources: Sequence[Path],
        output: Output,
        *,
        restore: bool,
        bundle: Path | None = None,
    ) -> tuple[Sequence[MergedFile], list[str]]:
        """Merge each, and say what became of it; return that, and why others cannot be merged."""


_MERGE = Hook[Merge]("merge")
_STDIN = ("-", "/dev/stdin")
_MOST_BYTES = 128_000_000  # a document of 600,000 copy runs: half a minute, 1 GB of memory


class ImportOptions(Struct, frozen=True):
    """How files are read."""

    restore: bool  # of a database: runs that were removed come back
    columns: Mapping[str, str] | None  # of a table by their words; None for other files
    tags: Mapping[str, str]  # of every run


def import_documents(output: Output, files: tuple[str, ...], options: ImportOptions) -> int:
    """Store the runs of each file; one that cannot be read does not keep the others out."""
    documents = []
    merged: list[MergedFile] = []
    errors: list[str] = []
    for file in files:
        if file not in _STDIN and (is_database(Path(file)) or is_bundle(Path(file))):
            with open_store(default_path(output.db)) as store, _database_of(Path(file)) as source:
                taken, refused = _MERGE().merge_all(
                    store,
                    [source],
                    output,
                    restore=options.restore,
                    bundle=Path(file) if source != Path(file) else None,
                )
            merged += taken
            errors += refused
            continue
        try:
            name = "standard input" if file in _STDIN else file
            runs = read_runs(
                _bytes_of(file),
                name,
                columns=options.columns,
                tags=options.tags,
                most_bytes=_MOST_BYTES,
            )
        except InputError as error:
            if len(files) == 1:
                raise
            errors.append(str(error))
            print_error(str(error))
        else:
            documents += [_add(output, run) for run in runs]
    if output.json:
        several = {"runs": documents, "errors": errors}
        if merged:
            several["files"] = [it.document() for it in merged]
        print_json(documents[0] if len(files) == len(documents) == 1 else several)
    return InputError.exit_status if errors else 0


def _database_of(path: Path) -> AbstractContextManager[Path]:
    """Return the database that a file is, or that a bundle has."""
    return bundled_database(path) if is_bundle(path) else nullcontext(path)


def _add(output: Output, run: ReadRun) -> dict[str, Any]:
    stored = run.stored
    of_program = f" ({run.program})" if run.program else ""
    with open_store(default_path(output.db)) as store:
        number, added = store.add(stored)
    uuid, observations = stored.head.uuid, len(stored.copies)
    if not output.json and added:
        print(f"run {number}: {observations} observations of {uuid} imported{of_program}")
        for note in stored.notes:
            print(f"  note: {note}")
    elif not output.json:
        print(f"run {number}: {uuid} is stored already, nothing was added")
    return {
        "run": number,
        "uuid": uuid,
        "added": added,
        "observations": observations,
        "notes": stored.notes,
    }


def _bytes_of(file: str) -> bytes:
    if file in _STDIN:
        if sys.stdin is None:  # closed: `rater import - <&-`
            raise InputError(f"{file}: standard input is closed; expected a document there")
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    else:
        expected = "a file, or - for standard input"
        with open_input(Path(file), _MOST_BYTES + 1, expected) as stream:
            data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise InputError(
            f"{file}: more than {_MOST_BYTES} bytes; expected an observations document, "
            f"about 200 bytes for each copy run; or {KNOWN_FILES}"
        )
    return data


# -- What is stored: `rater rm` -----------------------------------------------------------------


def _ask(several: Sequence[str], sweeps: Sequence[int], runs: Sequence[int]) -> None:
    if not sweeps and (not several or len(runs) < 2):
        return
    removed = " and ".join(
        [count(len(sweeps), "sweep") + " with all its runs"] * bool(sweeps)
        + [count(len(runs), "run")] * bool(runs)
    )
    if not sys.stdin.isatty():
        raise InputError(f"{' '.join(several)}: this removes {removed}; add --yes to do so")
    print(f"Remove {removed} for good? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("nothing was removed")


def remove(output: Output, run_words: tuple[str, ...], yes: bool) -> int:
    """Remove runs and sweeps, with what failed copies left of them."""
    from rater.store.sweeps import PREFIX, find_sweep, remove_sweeps

    with open_existing_store(output) as store:
        # One of somebody else's may name folders of our own runs.
        ours = store.writer is None
        # All are found before the first goes: `last last~1` means two runs as they stand now.
        of_sweeps = [word for word in run_words if word.startswith(PREFIX)]
        sweeps = list(dict.fromkeys(find_sweep(store, sweep) for sweep in of_sweeps))
        words = [word for word in run_words if word not in of_sweeps]
        named = list(dict.fromkeys(number for word in words for number in store.find_all(word)))
        if not yes:
            _ask([*of_sweeps, *(word for word in words if word.startswith(TAG))], sweeps, named)
        numbers = remove_sweeps(store, sweeps, named)
    for uuid in numbers.values():
        folder = folder_of(uuid) if ours else None
        trouble = remove_run_dir(cache_root() / "work" / folder) if folder else None
        if trouble:
            print_error(trouble)
    if output.json:
        print_json({"removed": [*numbers], **({"sweeps": sweeps} if sweeps else {})})
    else:
        for number in numbers:
            print(f"run {number} removed")
        for number in sweeps:
            print(f"sweep {number} removed")
    return 0
