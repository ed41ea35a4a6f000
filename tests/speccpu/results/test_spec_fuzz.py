"""Broken result files and configurations: read, stored and shown without a crash or a hang.

`RATER_FUZZ=20000` tries so many; `python -m tests.support.spec_fuzz SEED COUNT FOLDER` runs a
campaign and keeps an input that breaks something.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from rater.speccpu.config import read_config
from rater.speccpu.log import read_log
from rater.speccpu.places import read_binding
from rater.speccpu.rsf import read_rsf
from rater.store.store import open_store
from tests.support.places import SAMPLES
from tests.support.spec_fuzz import inputs, originals, read

INPUTS = int(os.environ.get("RATER_FUZZ", "300"))


@pytest.mark.slow
def test_no_broken_file_breaks_the_readers(tmp_path: Path) -> None:
    with open_store(tmp_path / "fuzz.db") as store:
        for data in inputs(1, INPUTS, originals(SAMPLES)):
            read(data, store)
        assert store.runs() == ()


def test_the_whole_files_that_are_broken_are_good_ones(tmp_path: Path) -> None:
    with open_store(tmp_path / "fuzz.db") as store:
        for data in originals():
            read(data, store)
    file = read_rsf(io.BytesIO(originals()[0]), "whole")
    assert file.config is not None and len(file.iterations) == 2
    assert len(read_log(io.BytesIO(originals()[1]), "whole").iterations) == 2


@pytest.mark.slow
def test_files_made_to_take_long_do_not() -> None:
    """What is quadratic in them would take minutes."""
    read_config("a <<EOT\n" * 50_000)
    read_config("%if 1\n" * 20_000)
    read_config("".join(f"a{n}=b:\nbind{n} = {n}\n" for n in range(20_000)))
    for line in (b"Copy 1 of\n", b"Workload elapsed time (", b"  Running 400.a \n    -b x\n"):
        read_log(io.BytesIO(line * 100_000), "log")
    read_rsf(io.BytesIO(b"spec.cpu2006.results.a.base.000.copytime001: 1\n" * 100_000), "rsf")
    read_binding('"' * 20_000)
    read_binding("$((" * 5_000)
    read_binding("numactl -l" + "l" * 5_000)
