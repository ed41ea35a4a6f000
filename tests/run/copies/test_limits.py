"""Limits of the process (`ulimit`) that are too small are told before a run begins."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = """
import os, resource
from rater.run.copies.limits import refuse_small_limits
resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))
os.setuid(54321)
refuse_small_limits()
"""


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("NOFILE", 12, "12 files may be open (`ulimit -n`), rater itself needs 32"),
        ("NOFILE", 64, "2 copies need "),
        ("AS", 60_000 << 10, "no 128 MB of memory are to be had (`ulimit -v`, `ulimit -d`)"),
        ("FSIZE", 65536, "a file may have 65536 bytes (`ulimit -f`), the database needs 16 MB"),
        ("FSIZE", 0, None),  # its words are a file too
    ],
)
def test_a_run_under_too_small_a_limit_is_refused_with_nothing_stored(
    tmp_path: Path, database: Path, limit: str, value: int, said: str | None
) -> None:
    number = getattr(resource, f"RLIMIT_{limit}")
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "rater", "run", "--copies", "2", "--", "true"],
            stderr=file,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(number, (value, value)),
            check=False,
        )
    assert done.returncode == 2, errors.read_text()
    if said is not None:
        assert f"rater: limits are too small: {said}" in errors.read_text()
    assert not database.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be tried by root only")
def test_another_user_who_may_have_no_more_processes_is_told_how_many_there_are() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TASKS], capture_output=True, text=True, check=False
    )
    assert (
        "limits are too small: this user may have 4 processes and threads (`ulimit -u`) and has "
        "1; 7 more are needed" in done.stderr
    )
