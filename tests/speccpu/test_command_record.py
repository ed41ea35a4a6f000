"""What specinvoke leaves (`speccmds.out`) as a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rater.record.run import CopyStatus, RunStatus
from rater.speccpu.results.command_record import is_command_record, read_command_record
from rater.system.errors import InputError
from tests.support.calls import Rater
from tests.support.raw_files import RECORD


def test_commands_of_a_copy_are_one_time_and_a_status_that_is_not_0_is_a_failure() -> None:
    text = """\
runs started at 100, 0, Wed
run 1 started at 100, 0, Wed
child started: 0, 100, 0, 7, '../x/gcc_r_peak.m64 a'
child finished: 0, 101, 0, 1, 0, 7, 0
child started: 0, 101, 500000000, 8, '../x/gcc_r_peak.m64 b'
child finished: 0, 103, 0, 1, 500000000, 8, 32512
run 2 started at 200, 0, Wed
child started: 0, 200, 0, 9, '../x/gcc_r_peak.m64 a'
child started: 1, 200, 1000, 10, '../x/gcc_r_peak.m64 a'
child finished: 0, 204, 0, 4, 0, 9, 0
"""
    run = read_command_record(text.encode(), Path("record"))
    rows = [(row.benchmark, row.iteration, row.elapsed_s, row.status) for row in run.copies]
    assert rows == [("gcc_r", 1, 3.0, CopyStatus.FAILED), ("gcc_r", 2, 4.0, CopyStatus.OK)]
    assert run.head.status is RunStatus.INTERRUPTED
    assert run.head.reason == "1 copy runs have no end"


def test_a_log_with_such_a_record_in_it_is_a_log() -> None:
    assert is_command_record(RECORD.encode())
    assert not is_command_record(b"runspec v1\nContents of speccmds.out\n" + RECORD.encode())


def test_a_record_without_an_end_is_refused() -> None:
    begun = "\n".join(line for line in RECORD.splitlines() if "finished" not in line)
    with pytest.raises(InputError, match="no copy has an end"):
        read_command_record(begun.encode(), Path("speccmds.out"))


def test_the_record_is_imported_once(rater: Rater, tmp_path: Path) -> None:
    (tmp_path / "speccmds.out").write_text(RECORD)
    status, out, _ = rater("spec", "import", tmp_path / "speccmds.out")
    assert status == 0
    assert "(speccmds.out, perlbench, 2 copy runs) imported" in out
    assert "stored already" in rater("spec", "import", tmp_path / "speccmds.out")[1]
