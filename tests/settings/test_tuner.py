"""Settings are set, read back, journalled and put back as they were."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rater.errors import InputError, RunError
from rater.settings import restore as putback
from rater.settings import tuner as tuner_module
from rater.settings.recover import forget, left_behind, recover
from rater.settings.tuner import TakenError, Tuner
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "machine")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "state/settings.json"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    for module in (tuner_module, putback):
        monkeypatch.setattr(module, "write_value", kernel)
    return kernel


def die_with(root: Path, journal: Path, **values: str) -> None:
    """Set present_settings in a process that ends without putting anything back."""
    pid = os.fork()
    if pid == 0:
        try:
            Tuner(root, journal, "rater sweep mini").set(values)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


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
    root: Path, journal: Path, values: dict[str, str]
) -> None:
    before = contents(root)
    with Tuner(root, journal, "test") as tuner:
        tuner.refuse_unless_settable({name: [value] for name, value in values.items()})
        assert contents(root) == before
        tuner.set(values)
        assert contents(root) != before
        assert journal.exists()
    assert contents(root) == before
    assert not journal.exists()


def test_a_knob_that_is_set_again_goes_back_to_what_was_there_first(
    root: Path, journal: Path, kernel: Kernel
) -> None:
    with Tuner(root, journal, "test") as tuner:
        for value in ("10", "20", "10"):
            tuner.set({"swappiness": value})
    assert kernel.written == [f"swappiness={value}" for value in (10, 20, 10, 60)]


def test_a_value_that_is_there_already_is_not_written(
    root: Path, journal: Path, kernel: Kernel
) -> None:
    with Tuner(root, journal, "test") as tuner:
        tuner.set({"thp": "madvise", "swappiness": "60"})
    assert kernel.written == []


@pytest.mark.usefixtures("kernel")
def test_the_present_values_are_on_disk_before_anything_is_written(
    root: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(_: Path, file: str, value: str) -> None:
        entries = json.loads(journal.read_text())["entries"]
        seen.append([(e["old"], e["ours"]) for e in entries if e["file"] == file] + [value])
        (root / file).write_text(f"{value}\n")

    for module in (tuner_module, putback):
        monkeypatch.setattr(module, "write_value", look)
    with Tuner(root, journal, "test") as tuner:
        tuner.set({"swappiness": "10"})
        tuner.set({"swappiness": "20"})
    assert seen == [
        [("60", ["10"]), "10"],
        [("60", ["10", "20"]), "20"],
        [("60", ["10", "20"]), "60"],
    ]


@pytest.mark.parametrize("failing", ["write", "fsync", "replace"])
def test_nothing_is_changed_when_the_journal_cannot_be_written(
    root: Path,
    journal: Path,
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Tuner(root, journal, "test") as tuner, monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(RunError, match=r"No space left.* none was changed.*RATER_JOURNAL"):
            tuner.set({"swappiness": "10"})
    assert kernel.written == []
    assert not journal.exists()


def test_a_pool_that_gets_fewer_pages_is_an_error_with_both_numbers_and_goes_back(
    root: Path, journal: Path, kernel: Kernel
) -> None:
    kernel.most_pages = 70
    before = contents(root)
    with (
        pytest.raises(RunError, match="asked for 512, the kernel made it 70"),
        Tuner(root, journal, "test") as tuner,
    ):
        tuner.set({"hugepages.2048kB": "512"})
    assert contents(root) == before


def test_a_write_that_the_kernel_refuses_names_file_and_reason_and_the_rest_goes_back(
    root: Path, journal: Path, kernel: Kernel
) -> None:
    kernel.refused[f"{THP}/defrag"] = errno.EINVAL
    before = contents(root)
    with (
        pytest.raises(RunError, match=r"thp.defrag=never: writing .*defrag: refused"),
        Tuner(root, journal, "test") as tuner,
    ):
        tuner.set({"thp": "never", "thp.defrag": "never"})
    assert contents(root) == before


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.EROFS,
            r"writing .*enabled.*read-only here \(a container\?\); run rater on the host",
        ),
        (errno.EACCES, r"writing .*enabled.*needs root; run rater with sudo"),
        (errno.EINVAL, r"thp cannot be set: writing .*enabled: refused$"),
    ],
)
def test_what_is_missing_to_set_a_knob_is_told_before_anything_is_changed(
    root: Path, journal: Path, kernel: Kernel, number: int, said: str
) -> None:
    kernel.refused[f"{THP}/enabled"] = number
    before = contents(root)
    with (
        pytest.raises(InputError, match=said),
        Tuner(root, journal, "test") as tuner,
    ):
        tuner.refuse_unless_settable({"swappiness": ["1"], "thp": ["never"]})
    assert contents(root) == before
    assert not journal.exists()


@pytest.mark.usefixtures("kernel")
def test_all_wrong_values_are_told_at_once(root: Path, journal: Path) -> None:
    with (
        pytest.raises(InputError, match=r"(?s)thp=maybe: .*swappiness=999: "),
        Tuner(root, journal, "test") as tuner,
    ):
        tuner.refuse_unless_settable({"thp": ["never", "maybe"], "swappiness": ["999"]})


@pytest.mark.usefixtures("kernel")
def test_two_knobs_that_are_the_same_thing_are_refused(root: Path, journal: Path) -> None:
    with Tuner(root, journal, "test") as tuner:
        with pytest.raises(InputError, match="set the same thing"):
            tuner.refuse_unless_settable(
                {"hugepages.2048kB": ["1"], "hugepages.2048kB.node0": ["1"]}
            )
        with pytest.raises(InputError, match=r"smt\.control takes away the CPUs that governor"):
            tuner.refuse_unless_settable({"smt.control": ["off"], "governor": ["performance"]})


@pytest.mark.usefixtures("kernel")
def test_a_setting_that_somebody_else_changes_in_between_stops_the_next_set(
    root: Path, journal: Path
) -> None:
    tuner = Tuner(root, journal, "test")
    tuner.set({"swappiness": "10"})
    (root / SWAPPINESS).write_text("33\n")
    with pytest.raises(
        RunError, match=r"somebody else set .*swappiness to 33 while it was to be 10"
    ):
        tuner.set({"swappiness": "20"})
    with pytest.raises(
        RunError, match=r"was 60 and is not put back: somebody set it to 33 \(rater"
    ):
        tuner.restore()
    assert line(root / SWAPPINESS) == "33"
    # What was there first is known still, to this process and in the journal.
    assert [e["old"] for e in json.loads(journal.read_text())["entries"]] == ["60"]
    with pytest.raises(RunError, match=r"somebody else set .*swappiness to 33"):
        tuner.set({"swappiness": "20"})
    assert line(root / SWAPPINESS) == "33"
    with pytest.raises(RunError):
        tuner.__exit__(None, None, None)
    assert recover(root, journal, print, force=True)
    assert line(root / SWAPPINESS) == "60"


def test_what_could_not_be_put_back_is_put_back_later(
    root: Path, journal: Path, kernel: Kernel
) -> None:
    with Tuner(root, journal, "test") as tuner:
        tuner.set({"swappiness": "10"})
        kernel.refused[SWAPPINESS] = errno.EROFS
        with pytest.raises(RunError, match="swappiness was 60 and is not put back: writing"):
            tuner.restore()
        kernel.refused.clear()
        tuner.set({"swappiness": "20"})
        assert [e["old"] for e in json.loads(journal.read_text())["entries"]] == ["60"]
    assert line(root / SWAPPINESS) == "60"
    assert not journal.exists()


def test_what_the_kernel_made_of_our_value_is_put_back_as_ours(
    root: Path, journal: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(root: Path, file: str, value: str) -> None:
        kernel(root, file, "15" if value == "10" else value)

    monkeypatch.setattr(tuner_module, "write_value", other)
    with (
        pytest.raises(RunError, match="asked for 10, the kernel made it 15"),
        Tuner(root, journal, "test") as tuner,
    ):
        tuner.set({"swappiness": "10"})
    assert line(root / SWAPPINESS) == "60"


@pytest.mark.usefixtures("kernel")
def test_a_setting_that_was_changed_since_it_was_set_is_noticed(root: Path, journal: Path) -> None:
    tuner = Tuner(root, journal, "test")
    tuner.set({"swappiness": "10", "thp": "never"})
    tuner.refuse_taken()
    (root / SWAPPINESS).write_text("33\n")
    with pytest.raises(TakenError, match=r"to 33 while it was to be 10"):
        tuner.refuse_taken()


def test_a_second_sweep_is_refused_while_the_first_one_lives(root: Path, journal: Path) -> None:
    with Tuner(root, journal, "rater sweep mini") as first:
        first.set({"swappiness": "10"})
        with pytest.raises(InputError, match=rf"rater sweep mini \(process {os.getpid()}, since"):
            Tuner(root, journal, "second").set({"swappiness": "20"})
        with pytest.raises(InputError, match="changes settings of this machine now"):
            recover(root, journal, print)
        assert left_behind(root, journal) is None
        assert line(root / SWAPPINESS) == "10"


@pytest.mark.usefixtures("kernel")
def test_what_a_dead_process_left_is_put_back_and_said(root: Path, journal: Path) -> None:
    before = contents(root)
    die_with(root, journal, governor="performance", thp="always")
    assert contents(root) != before
    left = left_behind(root, journal)
    assert left is not None
    assert "died and left settings changed: governor was performance" in left.text
    with pytest.raises(InputError, match="put that back first: `rater restore`"):
        Tuner(root, journal, "second").set({"swappiness": "20"})
    said: list[str] = []
    assert recover(root, journal, said.append)
    assert contents(root) == before
    assert "thp madvise (was always)" in said[0]
    assert "governor powersave (was performance)" in said[0]
    assert left_behind(root, journal) is None
    assert not journal.exists()


@pytest.mark.usefixtures("kernel")
def test_after_a_reboot_the_journal_is_closed_and_nothing_written(
    root: Path, journal: Path, kernel: Kernel
) -> None:
    die_with(root, journal, swappiness="10")
    (root / BOOT_ID).write_text("99999999-2222-3333-4444-555555555555\n")
    (root / SWAPPINESS).write_text("70\n")  # the new boot's own
    said: list[str] = []
    assert recover(root, journal, said.append)
    assert line(root / SWAPPINESS) == "70"
    assert kernel.written == []
    assert not journal.exists()
    assert "booted since then" in said[0]


def test_a_process_of_the_same_number_that_began_later_is_not_the_owner(
    root: Path, journal: Path
) -> None:
    die_with(root, journal, swappiness="10")
    document = json.loads(journal.read_text())
    document["owner"] |= {"pid": os.getpid(), "start_ticks": 1}
    journal.write_text(json.dumps(document))
    assert left_behind(root, journal) is not None
    document["owner"]["start_ticks"] = None
    journal.write_text(json.dumps(document))
    assert left_behind(root, journal) is None  # it cannot be told apart: leave it


def test_what_somebody_else_set_since_then_stays_until_force(root: Path, journal: Path) -> None:
    die_with(root, journal, swappiness="10", aslr="0")
    (root / SWAPPINESS).write_text("33\n")
    said: list[str] = []
    assert not recover(root, journal, said.append)
    assert line(root / SWAPPINESS) == "33"
    assert line(root / "proc/sys/kernel/randomize_va_space") == "2"
    assert any(
        "was 60 and is not put back: somebody set it to 33 (rater set 10)" in s for s in said
    )
    assert [e["knob"] for e in json.loads(journal.read_text())["entries"]] == ["swappiness"]
    assert recover(root, journal, said.append, force=True)
    assert line(root / SWAPPINESS) == "60"
    assert not journal.exists()


def test_a_pool_that_was_still_being_filled_when_its_process_died_is_put_back(
    root: Path, journal: Path
) -> None:
    die_with(root, journal, **{"hugepages.2048kB": "500"})
    Kernel()(root, POOL, "77")
    assert recover(root, journal, print)
    pools = [line(root / file) for file in (POOL, node_pool(0), node_pool(1))]
    assert pools == ["12", "10", "2"]


def test_a_file_that_is_gone_is_told_the_rest_put_back_and_the_journal_keeps_it(
    root: Path, journal: Path
) -> None:
    die_with(root, journal, governor="performance", swappiness="1")
    gone = root / policy(2, "scaling_governor")
    gone.unlink()
    said: list[str] = []
    assert not recover(root, journal, said.append)
    assert "No such file or directory (a CPU or node that is offline?)" in "\n".join(said)
    assert line(root / SWAPPINESS) == "60"
    assert line(root / policy(1, "scaling_governor")) == "powersave"
    gone.write_text("performance\n")  # the CPU is back
    assert recover(root, journal, said.append)
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
        ('{"rater": 1, "owner": 7, "entries": []}', "owner: expected an object, got the number 7"),
    ],
)
def test_a_damaged_journal_is_shown_and_nothing_guessed(
    root: Path, journal: Path, text: str, said: str
) -> None:
    journal.parent.mkdir()
    journal.write_text(text)
    before = contents(root)
    left = left_behind(root, journal)
    assert left is not None
    assert said in left.text
    assert str(journal) in left.text
    assert "\x1b" not in left.text
    told: list[str] = []
    assert not recover(root, journal, told.append)
    assert "rater restore --forget" in told[0]
    assert contents(root) == before
    with pytest.raises(InputError, match=r"restore --forget` moves it aside$"):
        Tuner(root, journal, "test").set({"swappiness": "1"})
    assert forget(root, journal) == journal.with_name("settings.json.old")
    assert left_behind(root, journal) is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_a_damaged_journal_and_each_that_is_moved_aside_is_kept(
    root: Path, journal: Path, make: Callable[[Path], None]
) -> None:
    journal.parent.mkdir()
    for place in ("settings.json.old", "settings.json.old2"):
        make(journal)
        left = left_behind(root, journal)
        assert left is not None
        assert "it is no file but" in left.text
        assert forget(root, journal) == journal.with_name(place)
    assert left_behind(root, journal) is None


def test_who_may_not_put_back_is_told_that_the_owner_lives(
    root: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Tuner(root, journal, "rater sweep mini") as tuner:
        tuner.set({"swappiness": "10"})
        monkeypatch.setattr("rater.settings.recover.may_recover", lambda _: False)
        with pytest.raises(InputError, match=r"rater sweep mini .* is alive and changes settings"):
            recover(root, journal, print)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"file": "etc/passwd"}, "rater never sets 'etc/passwd'"),
        ({"file": f"{THP}/../../../../etc/passwd"}, "rater never sets"),
        ({"old": "a b\nc"}, "is no value of"),
        ({"old": 60}, "entries[0].old: expected a string, got the number 60"),
        ({"ours": "10"}, "entries[0].ours: expected a list, got '10'"),
        ({"beside": 1}, "entries[0].beside: expected true or false, got the number 1"),
    ],
)
def test_a_journal_never_makes_rater_write_what_no_knob_is(
    root: Path, journal: Path, change: dict[str, object], said: str
) -> None:
    die_with(root, journal, swappiness="10")
    document = json.loads(journal.read_text())
    document["entries"][0] |= change
    journal.write_text(json.dumps(document))
    before = contents(root)
    told: list[str] = []
    assert not recover(root, journal, told.append)
    assert said in told[0]
    assert contents(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_root_does_not_act_on_another_users_journal(root: Path, journal: Path) -> None:
    die_with(root, journal, swappiness="10")
    os.chown(journal, 12345, 12345)
    told: list[str] = []
    assert not recover(root, journal, told.append)
    assert "user 12345 wrote it, not root" in told[0]
    assert line(root / SWAPPINESS) == "10"


def test_boost_loses_no_limit_that_a_cpu_had(root: Path, journal: Path, kernel: Kernel) -> None:
    with Tuner(root, journal, "test") as tuner:
        tuner.set({"boost": "off"})
        assert line(root / policy(2, "scaling_max_freq")) == "3900000"
    assert line(root / policy(2, "scaling_max_freq")) == "3000002"
    assert line(root / policy(3, "boost")) == "0"
    assert line(root / f"{CPUFREQ}/boost") == "1"
    assert kernel.written.count("boost=1") == 4  # the one of all, and of three policies


@pytest.mark.usefixtures("kernel")
def test_memory_that_the_kernel_keeps_free_is_as_the_administrator_had_it(
    root: Path, journal: Path
) -> None:
    with Tuner(root, journal, "test") as tuner:
        tuner.set({"thp": "never"})
        assert line(root / MIN_FREE) == "20000"
    assert line(root / MIN_FREE) == "90000"
