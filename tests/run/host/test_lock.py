"""One run at a time on a machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from rater.errors import InputError, RunError
from rater.run.host.admission import default_lock_path, lost_lock_warning, machine_lock


def test_the_second_run_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        machine_lock(path, "run 7 of anna"),
        pytest.raises(InputError, match=r"run 7 of anna.*--share"),
        machine_lock(path, "run 8"),
    ):
        pass


def test_the_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with machine_lock(path, "first"):
        pass
    with machine_lock(path, "second"):
        assert path.read_text() == "second\n"


def test_share_goes_on_beside_another_run(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with machine_lock(path, "first"), machine_lock(path, "second", share=True):
        assert path.read_text() == "first\n"


@pytest.mark.parametrize("put_there", [None, "another"])
def test_a_lock_file_that_is_removed_or_replaced_lets_no_second_run_begin_and_is_noticed(
    tmp_path: Path, put_there: str | None
) -> None:
    path = tmp_path / "lock"
    with (
        pytest.raises(RunError, match="was removed or replaced during the run"),
        machine_lock(path, "first"),
    ):
        assert lost_lock_warning() is None
        path.unlink()
        if put_there is not None:
            path.write_text(put_there)
        refused = rf"process {os.getpid()} of user .*, whose lock file was removed .*--share"
        with pytest.raises(InputError, match=refused), machine_lock(path, "second"):
            pass
        assert f"{path} was removed or replaced" in (lost_lock_warning() or "")
        with machine_lock(path, "beside", share=True):
            pass
    assert lost_lock_warning() is None
    with machine_lock(path, "third"):
        assert path.read_text() == "third\n"


def test_who_shares_the_machine_loses_nothing_with_the_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with machine_lock(path, "first", share=True):
        path.unlink()
        assert lost_lock_warning() is None


def test_the_kernel_frees_the_lock_of_a_killed_rater(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import os, sys, subprocess\n"
        "from pathlib import Path\n"
        "from rater.run.host.admission import machine_lock\n"
        "with machine_lock(Path(sys.argv[1]), 'doomed'):\n"
        # A child that lives on must not hold the lock.
        "    child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    child = int(process.stdout.readline())
    try:
        with pytest.raises(InputError, match="doomed"), machine_lock(path, "second"):
            pass
        process.kill()
        process.wait()
        with machine_lock(path, "third"):
            assert path.read_text() == "third\n"
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
        process.stdin.close()


def test_a_lock_that_can_not_be_opened_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"RATER_LOCK.*--share"),
        machine_lock(tmp_path / "file" / "lock", "first"),
    ):
        pass


def test_rater_lock_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATER_LOCK", "/somewhere/else")
    assert default_lock_path() == Path("/somewhere/else")


def test_who_waits_is_told_for_whom_once_and_goes_on_when_the_first_ends(tmp_path: Path) -> None:
    path, first, told = tmp_path / "lock", ExitStack(), list[str]()
    first.enter_context(machine_lock(path, "rater run 1"))

    def end_the_first(text: str) -> None:
        told.append(text)
        first.close()

    with machine_lock(path, "rater run 2", wait_s=60.0, report=end_the_first):
        assert path.read_text() == "rater run 2\n"
    assert told == ["waiting up to 60 s for rater run 1"]


def test_who_waited_long_enough_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        machine_lock(path, "rater run 1"),
        pytest.raises(InputError, match="--wait waits for it"),
        machine_lock(path, "rater run 2", wait_s=0.01),
    ):
        pass
