"""Every reader of SPEC's files on one input, and what stands behind them.

`python -m tests.support.spec_reading SEED COUNT FOLDER` feeds them broken files.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path

from rater.analysis.results.score import summarise
from rater.run.host.discover import parse_synthetic
from rater.show.results.run_document import summary_document
from rater.show.screen.console import Printer, TextScreen
from rater.show.screen.document import print_parts
from rater.speccpu.config.config import read_config
from rater.speccpu.results.log import read_log
from rater.speccpu.results.read import to_import
from rater.speccpu.results.result import Lines, SpecFile
from rater.speccpu.results.rsf import read_rsf
from rater.speccpu.show import import_document, import_parts
from rater.store.export import full_document
from rater.store.store import Store, open_store
from rater.store.sweeps import remove_sweeps
from rater.system.errors import InputError
from tests.support.printed import parts_of
from tests.support.spec_fuzz import RSF, inputs, originals

MACHINE = parse_synthetic("nodes=2x2")


def read(data: bytes, store: Store) -> None:
    """Feed one input to every reader and to the import behind them, which may raise."""
    for reader in (read_rsf, read_log):
        _use(reader(Lines(data), "fuzzed"), store)
    config = read_config(data.decode("latin-1"))
    for benchmark in ("400.perlbench", "500.perlbench_r"):
        config.submit(benchmark, "base")
        config.binds(benchmark, "peak")
        config.copies(benchmark, "base")
    whole = read_rsf(Lines(RSF.format(config="").encode()), "whole")
    whole.sha256 = hashlib.sha256(data).hexdigest()[::-1]
    whole.config = config
    _use(whole, store)


def _use(file: SpecFile, store: Store) -> None:
    """Import what was read, read it back, and show all of it."""
    try:
        read_run = to_import(file, MACHINE if file.lines % 2 else None)
    except InputError:
        return
    number, added = store.add(read_run.stored, read_run.copies())
    screen = TextScreen(io.StringIO(), width=80)
    print_parts(import_parts(read_run, number, added), Printer(screen))
    json.dumps(import_document(read_run, number, added), allow_nan=False)
    stored = store.load(number)
    assert len(stored.copies) <= max(read_run.copy_runs, 1) or not added
    summary = summarise(stored)
    print_parts(parts_of(summary), Printer(screen))
    json.dumps(summary_document(summary), allow_nan=False)
    json.dumps(full_document(stored), allow_nan=False)
    remove_sweeps(store, (), [number])


def main(seed: int, count: int, folder: str) -> None:
    """Run a campaign; print the slowest input's time."""
    whole = originals(Path(folder))
    slowest = 0.0
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_store(Path(scratch) / "fuzz.db") as store,
    ):
        for number, data in enumerate(inputs(seed, count, whole)):
            began = time.monotonic()
            try:
                read(data, store)
            except BaseException:
                kept = Path(tempfile.gettempdir()) / f"spec-fuzz-{seed}-{number}"
                kept.write_bytes(data)
                print(f"input {number} of seed {seed} is kept: {kept}")
                raise
            slowest = max(slowest, time.monotonic() - began)
    print(f"seed {seed}: {count} inputs, no crash, the slowest took {slowest:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
