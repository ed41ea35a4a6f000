"""Settings are set, read back, journalled and put back as they were."""

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rater.settings import restore as putback
from rater.settings import tuner as tuner_module
from rater.settings.known import write_value
from rater.settings.restore import find_leftovers, forget_leftovers, restore_leftovers
from rater.settings.tuner import SettingChangedError, SettingsSession
from rater.system.errors import InputError, RunError
from rater.system.process import StoppedBySignal
from tests.support.settings_tree import (
    BOOT_ID,
    CPUFREQ,
    MIN_FREE,
    POOL,
    THP,
    Kernel,
    contents,
    line,
    make_tree,
    node_pool,
    policy,
)

SWAPPINESS = "proc/sys/vm/swappiness"


class Box:
    """A machine's tree of settings, and the journal of rater there."""

    def __init__(self, folder: Path) -> None:
        self.root, self.journal = make_tree(folder / "machine"), folder / "state/settings.json"

    def tuner(self) -> SettingsSession:
        return SettingsSession(self.root, self.journal, "rater sweep mini")

    def die_with(self, **values: str) -> None:
        """Set them in a process that ends without putting anything back."""
        pid = os.fork()
        if pid == 0:
            try:
                self.tuner().set(values)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def recover(self, *, force: bool = False) -> tuple[bool, str]:
        """Whether all was put back, and what was said of it."""
        said: list[str] = []
        return restore_leftovers(self.root, self.journal, said.append, force=force), "\n".join(said)

    def left(self) -> str | None:
        found = find_leftovers(self.root, self.journal)
        return found.summary if found else None

    def contents(self) -> dict[str, str]:
        return contents(self.root)

    def line(self, file: str) -> str:
        return line(self.root / file)

    def write(self, file: str, text: str) -> None:
        (self.root / file).write_text(f"{text}\n")

    def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.journal.read_text())["entries"]
        return found


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    for module in (tuner_module, putback):
        monkeypatch.setattr(module, "write_value", kernel)
    return kernel


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "values",
    [
        {"thp": "never"},
        {"thp": "always", "thp.2048kB": "madvise", "thp.defrag": "defer+madvise"},
        {"governor": "performance"},
        {"governor": "powersave", "energy_preference": "power"},
        {"boost": "off"},
        {"boost": "off", "max_khz": "2000000"},
        {"hugepages.2048kB": "100"},
        {"hugepages.2048kB": "0"},
        {"hugepages.2048kB.node1": "7"},
        {"aslr": "0", "swappiness": "1", "numa_balancing": "0", "zone_reclaim": "1"},
    ],
    ids=str,
)
def test_everything_is_put_back_exactly_what_the_kernel_changed_along_with_it_too(
    box: Box, values: dict[str, str]
) -> None:
    before = box.contents()
    with box.tuner() as tuner:
        tuner.refuse_unless_settable({name: [value] for name, value in values.items()})
        assert box.contents() == before
        tuner.set(values)
        assert box.contents() != before
        assert box.journal.exists()
    assert box.contents() == before
    assert not box.journal.exists()


def test_a_knob_goes_back_to_what_was_there_first_and_is_written_only_where_it_differs(
    box: Box, kernel: Kernel
) -> None:
    with box.tuner() as tuner:
        for value in ("10", "20", "10"):
            tuner.set({"swappiness": value})
        tuner.set({"thp": "madvise"})  # it is there already
    assert kernel.written == [f"swappiness={value}" for value in (10, 20, 10, 60)]


@pytest.mark.usefixtures("kernel")
def test_the_present_values_are_on_disk_before_anything_is_written(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def note_and_write(_: Path, file: str, value: str) -> None:
        seen.append(
            [(entry["old"], entry["ours"]) for entry in box.entries() if entry["file"] == file]
            + [value]
        )
        box.write(file, value)

    for module in (tuner_module, putback):
        monkeypatch.setattr(module, "write_value", note_and_write)
    with box.tuner() as tuner:
        tuner.set({"swappiness": "10"})
        tuner.set({"swappiness": "20"})
    assert seen == [
        [("60", ["10"]), "10"],
        [("60", ["10", "20"]), "20"],
        [("60", ["10", "20"]), "60"],
    ]


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_nothing_is_changed_when_the_journal_cannot_be_written(
    box: Box,
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with box.tuner() as tuner, monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(RunError, match=r"No space left.* none was changed.*RATER_JOURNAL"):
            tuner.set({"swappiness": "10"})
    assert kernel.written == []
    assert not box.journal.exists()


def test_a_pool_that_gets_fewer_pages_is_an_error_with_both_numbers_and_goes_back(
    box: Box, kernel: Kernel
) -> None:
    kernel.most_pages = 70
    before = box.contents()
    with (
        pytest.raises(RunError, match="asked for 512, the kernel made it 70"),
        box.tuner() as tuner,
    ):
        tuner.set({"hugepages.2048kB": "512"})
    assert box.contents() == before


def test_a_pool_that_gets_fewer_pages_says_what_makes_room_and_what_reserves_it(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = node_pool(1)
    taken = "sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory"

    def takes_half(root: Path, file: str, value: str) -> None:
        (root / file).write_text(f"{int(value) // 2}\n")

    monkeypatch.setattr(tuner_module, "write_value", takes_half)
    with pytest.raises(RunError) as raised, box.tuner() as tuner:
        tuner.set({"hugepages.2048kB.node1": "100"})
    assert f"asked for 100, the kernel made it 50 ({box.root / file})" in str(raised.value)
    assert taken in str(raised.value)
    assert "hugepagesz=2M hugepages=1:100 reserves them" in str(raised.value)


def test_a_write_that_the_kernel_refuses_names_file_and_reason_and_the_rest_goes_back(
    box: Box, kernel: Kernel
) -> None:
    kernel.refused[f"{THP}/defrag"] = errno.EINVAL
    before = box.contents()
    with (
        pytest.raises(RunError, match=r"thp.defrag=never: writing .*defrag: refused"),
        box.tuner() as tuner,
    ):
        tuner.set({"thp": "never", "thp.defrag": "never"})
    assert box.contents() == before


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.EROFS,
            r"writing .*enabled.*mounted read-only here; run rater on the host",
        ),
        (errno.EACCES, r"writing .*enabled.*needs root; run rater with sudo"),
        (errno.EINVAL, r"thp cannot be set: writing .*enabled: refused$"),
    ],
)
def test_what_is_missing_to_set_a_knob_is_told_before_anything_is_changed(
    box: Box, kernel: Kernel, number: int, said: str
) -> None:
    kernel.refused[f"{THP}/enabled"] = number
    before = box.contents()
    with pytest.raises(InputError, match=said), box.tuner() as tuner:
        tuner.refuse_unless_settable({"swappiness": ["1"], "thp": ["never"]})
    assert box.contents() == before
    assert not box.journal.exists()


@pytest.mark.usefixtures("kernel")
def test_all_wrong_values_are_told_at_once(box: Box) -> None:
    with (
        pytest.raises(InputError, match=r"(?s)thp=maybe: .*swappiness=999: "),
        box.tuner() as tuner,
    ):
        tuner.refuse_unless_settable({"thp": ["never", "maybe"], "swappiness": ["999"]})


@pytest.mark.usefixtures("kernel")
def test_two_knobs_that_are_the_same_thing_are_refused(box: Box) -> None:
    with box.tuner() as tuner:
        with pytest.raises(InputError, match="set the same thing"):
            tuner.refuse_unless_settable(
                {"hugepages.2048kB": ["1"], "hugepages.2048kB.node0": ["1"]}
            )
        with pytest.raises(InputError, match=r"smt\.control takes away the CPUs that governor"):
            tuner.refuse_unless_settable({"smt.control": ["off"], "governor": ["performance"]})


@pytest.mark.usefixtures("kernel")
def test_a_value_that_a_signal_kept_from_being_read_back_is_still_ours(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuner = box.tuner()
    tuner.set({"swappiness": "10"})

    def write_and_stop(root: Path, file: str, content: str) -> None:
        write_value(root, file, content)
        raise StoppedBySignal(signal.SIGTERM)

    with monkeypatch.context() as patched, pytest.raises(StoppedBySignal):
        patched.setattr("rater.settings.tuner.write_value", write_and_stop)
        tuner.set({"swappiness": "20"})
    tuner.set({"swappiness": "60"})  # as what ran puts back what was before it
    tuner.restore()
    assert (box.line(SWAPPINESS), box.journal.exists()) == ("60", False)


@pytest.mark.usefixtures("kernel")
def test_a_setting_that_somebody_else_changes_in_between_stops_the_next_set(box: Box) -> None:
    tuner = box.tuner()
    tuner.set({"swappiness": "10"})
    box.write(SWAPPINESS, "33")
    with pytest.raises(
        RunError, match=r"somebody else set .*swappiness to 33 while it was to be 10"
    ):
        tuner.set({"swappiness": "20"})
    with pytest.raises(
        RunError, match=r"was 60 and is not put back: somebody set it to 33 \(rater"
    ):
        tuner.restore()
    assert box.line(SWAPPINESS) == "33"
    # The first value is still known to this process and in the journal.
    assert [entry["old"] for entry in box.entries()] == ["60"]
    with pytest.raises(RunError, match=r"somebody else set .*swappiness to 33"):
        tuner.set({"swappiness": "20"})
    assert box.line(SWAPPINESS) == "33"
    with pytest.raises(RunError):
        tuner.__exit__(None, None, None)
    assert box.recover(force=True)[0]
    assert box.line(SWAPPINESS) == "60"


def test_what_could_not_be_put_back_is_put_back_later(box: Box, kernel: Kernel) -> None:
    with box.tuner() as tuner:
        tuner.set({"swappiness": "10"})
        kernel.refused[SWAPPINESS] = errno.EROFS
        with pytest.raises(RunError, match="swappiness was 60 and is not put back: writing"):
            tuner.restore()
        kernel.refused.clear()
        tuner.set({"swappiness": "20"})
        assert [entry["old"] for entry in box.entries()] == ["60"]
    assert box.line(SWAPPINESS) == "60"
    assert not box.journal.exists()


def test_what_the_kernel_made_of_our_value_is_put_back_as_ours(
    box: Box, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(root: Path, file: str, value: str) -> None:
        kernel(root, file, "15" if value == "10" else value)

    monkeypatch.setattr(tuner_module, "write_value", other)
    with pytest.raises(RunError, match="asked for 10, the kernel made it 15"), box.tuner() as tuner:
        tuner.set({"swappiness": "10"})
    assert box.line(SWAPPINESS) == "60"


@pytest.mark.usefixtures("kernel")
def test_a_setting_that_was_changed_since_it_was_set_is_noticed(box: Box) -> None:
    tuner = box.tuner()
    tuner.set({"swappiness": "10", "thp": "never"})
    tuner.refuse_taken()
    box.write(SWAPPINESS, "33")
    with pytest.raises(SettingChangedError, match=r"to 33 while it was to be 10"):
        tuner.refuse_taken()


def test_a_second_sweep_is_refused_while_the_first_one_lives(box: Box) -> None:
    with box.tuner() as first:
        first.set({"swappiness": "10"})
        with pytest.raises(InputError, match=rf"rater sweep mini \(process {os.getpid()}, since"):
            box.tuner().set({"swappiness": "20"})
        with pytest.raises(InputError, match="changes settings of this machine now"):
            box.recover()
        assert box.left() is None
        assert box.line(SWAPPINESS) == "10"


@pytest.mark.usefixtures("kernel")
def test_what_a_dead_process_left_is_put_back_and_said(box: Box) -> None:
    before = box.contents()
    box.die_with(governor="performance", thp="always")
    assert box.contents() != before
    left = box.left() or ""
    assert "died and left settings changed: governor was performance" in left
    with pytest.raises(InputError, match="put that back first: `rater settings restore`"):
        box.tuner().set({"swappiness": "20"})
    done, said = box.recover()
    assert done
    assert box.contents() == before
    assert "thp madvise (was always)" in said
    assert "governor powersave (was performance)" in said
    assert box.left() is None
    assert not box.journal.exists()


@pytest.mark.usefixtures("kernel")
def test_after_a_reboot_the_journal_is_closed_and_nothing_written(box: Box, kernel: Kernel) -> None:
    box.die_with(swappiness="10")
    box.write(BOOT_ID, "99999999-2222-3333-4444-555555555555")
    box.write(SWAPPINESS, "70")  # the new boot's own
    done, said = box.recover()
    assert done
    assert box.line(SWAPPINESS) == "70"
    assert kernel.written == []
    assert not box.journal.exists()
    assert "booted since then" in said


def test_a_process_of_the_same_number_that_began_later_is_not_the_owner(box: Box) -> None:
    box.die_with(swappiness="10")
    document = json.loads(box.journal.read_text())
    document["owner"] |= {"pid": os.getpid(), "start_ticks": 1}
    box.journal.write_text(json.dumps(document))
    assert box.left() is not None
    document["owner"]["start_ticks"] = None
    box.journal.write_text(json.dumps(document))
    assert box.left() is None  # it cannot be told apart: leave it


def test_what_somebody_else_set_since_then_stays_until_force(box: Box) -> None:
    box.die_with(swappiness="10", aslr="0")
    box.write(SWAPPINESS, "33")
    done, said = box.recover()
    assert not done
    assert box.line(SWAPPINESS) == "33"
    assert box.line("proc/sys/kernel/randomize_va_space") == "2"
    assert "was 60 and is not put back: somebody set it to 33 (rater set 10)" in said
    assert [entry["knob"] for entry in box.entries()] == ["swappiness"]
    assert box.recover(force=True)[0]
    assert box.line(SWAPPINESS) == "60"
    assert not box.journal.exists()


def test_a_pool_that_was_still_being_filled_when_its_process_died_is_put_back(box: Box) -> None:
    box.die_with(**{"hugepages.2048kB": "500"})
    Kernel()(box.root, POOL, "77")
    assert box.recover()[0]
    pools = [box.line(file) for file in (POOL, node_pool(0), node_pool(1))]
    assert pools == ["12", "10", "2"]


def test_a_file_that_is_gone_is_told_the_rest_put_back_and_the_journal_keeps_it(box: Box) -> None:
    box.die_with(governor="performance", swappiness="1")
    gone = box.root / policy(2, "scaling_governor")
    gone.unlink()
    done, said = box.recover()
    assert not done
    assert "No such file or directory (a CPU or node that is offline?)" in said
    assert box.line(SWAPPINESS) == "60"
    assert box.line(policy(1, "scaling_governor")) == "powersave"
    gone.write_text("performance\n")  # the CPU is back
    assert box.recover()[0]
    assert line(gone) == "powersave"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it begins with: nothing"),
        ('{"rater": 1, "owner": {"pid": 7', "it begins with: {"),
        ("\x00\xff\x1b[2J", "it begins with: "),
        ('{"rater": 9}', "not a journal that this rater knows"),
        ("[]", "not a journal that this rater knows"),
        ("[" * 100_000, "it is no JSON; it begins with: [[["),
        (
            '{"rater": 1, "owner": 7, "entries": []}',
            "owner: expected an object, got a whole number",
        ),
    ],
)
def test_a_damaged_journal_is_shown_and_nothing_guessed(box: Box, text: str, said: str) -> None:
    box.journal.parent.mkdir()
    box.journal.write_text(text)
    before = box.contents()
    left = box.left() or ""
    assert said in left
    assert str(box.journal) in left
    assert "\x1b" not in left
    done, text = box.recover()
    assert not done
    assert "rater settings restore --forget" in text
    assert box.contents() == before
    with pytest.raises(InputError, match=r"restore --forget` moves it aside$"):
        box.tuner().set({"swappiness": "1"})
    assert forget_leftovers(box.root, box.journal) == box.journal.with_name("settings.json.old")
    assert box.left() is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_a_damaged_journal_and_each_that_is_moved_aside_is_kept(
    box: Box, make: Callable[[Path], None]
) -> None:
    box.journal.parent.mkdir()
    for place in ("settings.json.old", "settings.json.old2"):
        make(box.journal)
        assert "not a regular file but" in (box.left() or "")
        assert forget_leftovers(box.root, box.journal) == box.journal.with_name(place)
    assert box.left() is None


def test_who_may_not_put_back_is_told_that_the_owner_lives(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    with box.tuner() as tuner:
        tuner.set({"swappiness": "10"})
        monkeypatch.setattr("rater.settings.restore.may_recover", lambda _: False)
        with pytest.raises(InputError, match=r"rater sweep mini .* is alive and changes settings"):
            box.recover()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"file": "etc/passwd"}, "rater never sets 'etc/passwd'"),
        ({"file": f"{THP}/../../../../etc/passwd"}, "rater never sets"),
        ({"old": "a b\nc"}, "is no value of"),
        ({"old": "always"}, "'always' is no value of"),
        ({"old": 60}, "entries[0].old: expected a string, got a whole number"),
        ({"ours": "10"}, "entries[0].ours: expected a list, got a string"),
        ({"beside": 1}, "entries[0].beside: expected true or false, got a whole number"),
    ],
)
def test_a_journal_never_makes_rater_write_what_no_knob_is(
    box: Box, change: dict[str, object], said: str
) -> None:
    box.die_with(swappiness="10")
    document = json.loads(box.journal.read_text())
    document["entries"][0] |= change
    box.journal.write_text(json.dumps(document))
    before = box.contents()
    done, text = box.recover()
    assert not done
    assert said in text
    assert box.contents() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_root_does_not_act_on_another_users_journal(box: Box) -> None:
    box.die_with(swappiness="10")
    os.chown(box.journal, 12345, 12345)
    done, said = box.recover()
    assert not done
    assert "a file of user 12345" in said
    assert box.line(SWAPPINESS) == "10"


def test_what_the_kernel_changes_along_with_a_knob_is_as_the_administrator_had_it(
    box: Box, kernel: Kernel
) -> None:
    with box.tuner() as tuner:
        tuner.set({"boost": "off"})
        assert box.line(policy(2, "scaling_max_freq")) == "3900000"
    assert box.line(policy(2, "scaling_max_freq")) == "3000002"
    assert box.line(policy(3, "boost")) == "0"
    assert box.line(f"{CPUFREQ}/boost") == "1"
    assert kernel.written.count("boost=1") == 4  # the one of all, and of three policies
    with box.tuner() as tuner:
        tuner.set({"thp": "never"})
        assert box.line(MIN_FREE) == "20000"
    assert box.line(MIN_FREE) == "90000"
