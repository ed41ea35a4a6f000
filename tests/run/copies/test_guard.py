"""What copies leave behind is killed, and named by what it is."""

from __future__ import annotations

import os

import pytest

from rater.run.copies.guard import Leftover, guard


def test_a_process_killed_amid_its_exec_is_named_all_the_same() -> None:
    # posix_spawn returns when the child gives up our memory: it has no arguments yet.
    with guard("exec", 1, use_cgroup=False) as keeper:
        for _ in range(40):
            pid = os.posix_spawn("/bin/sleep", ["sleep", "300"], {"RATER_COPY": "7"})
            [left] = keeper.kill_leftovers()
            assert (left.pid, left.command, left.copy) == (pid, "sleep 300", "7")


def test_a_process_without_a_command_line_is_named_by_its_program() -> None:
    with guard("bare", 1, use_cgroup=False) as keeper:
        first = os.posix_spawn("/bin/sleep", [" ", "300"], {}, setsid=True)
        keeper.kill_strays()
        read_end, write_end = os.pipe()
        second = os.posix_spawn(
            "/bin/cat", [" "], {}, file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)], setsid=True
        )
        keeper.kill_strays()
        assert keeper.kill_leftovers() == [
            Leftover(first, "300", None),
            Leftover(second, "[cat]", None),
        ]
        os.close(read_end)
        os.close(write_end)


def test_orphans_are_known_by_their_group_or_by_the_copy_s_number_in_their_environment() -> None:
    with guard("orphans", 2, use_cgroup=False) as keeper:
        one, two = (
            os.posix_spawn("/bin/sleep", ["sleep", "300"], {}, setpgroup=0) for _ in range(2)
        )
        keeper.hold(0, one)
        keeper.hold(1, two)
        grouped = os.posix_spawn("/bin/sleep", ["sleep", "300"], {}, setpgroup=two)
        own = {"RATER_COPY": "0"}
        alone = os.posix_spawn("/bin/sleep", ["sleep", "300"], own, setsid=True)
        os.posix_spawn("/bin/sleep", ["sleep", "300"], {"RATER_COPY": "x"}, setsid=True)
        assert keeper.orphans({one: 0, two: 1}) == {0: [alone], 1: [grouped]}


def test_a_stray_that_takes_long_to_die_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with guard("slow", 1, use_cgroup=False) as keeper, monkeypatch.context() as patch:
        patch.setattr("rater.run.copies.guard.reap_dead", lambda pids: None)
        patch.setattr(
            "rater.run.copies.guard.describe_process", lambda pid: Leftover(pid, "big", None)
        )
        pid = os.posix_spawn("/bin/sleep", ["sleep", "300"], {}, setsid=True)
        keeper.kill_strays()
        keeper.kill_strays()
        patch.undo()
        assert [it.pid for it in keeper.kill_leftovers()] == [pid]
        assert keeper.kill_leftovers() == []
