"""A run as it goes: signals, full disks, a database that is lost; its energy and memory."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks.torture.commands import COMMANDS
from benchmarks.torture.stopping import Stopped
from rater.commands.cli import main
from rater.record.events import CopyEnded, Event, Noted, PhaseEnded, RunEnded
from rater.record.run import CopyStatus, RunStatus
from rater.run.observe import observer
from rater.show.live.lines import View
from rater.store.connection import StoreDamagedError, StoreError, StoreFullError
from rater.store.store import Store, open_store
from rater.system.errors import RunError
from rater.workflow.run import prepare, session
from rater.workflow.run.kept_run import KeptRun
from rater.workflow.run.narrow import NarrowWatch
from rater.workflow.run.sinks import Recorder, Screen
from tests.support.calls import Rater, query_rows
from tests.support.energy_tree import RANGE_UJ, powercap, stand, zone
from tests.support.example_events import ended, over, run_of
from tests.support.stored_runs import begin

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signal_at(
    patch: pytest.MonkeyPatch, owner: Any, name: str, number: int, *, after: bool = False
) -> None:
    """Send us a signal as a function is called, or as it returns."""
    real = getattr(owner, name)

    def call(*args: Any, **more: Any) -> Any:
        if not after:
            os.kill(os.getpid(), number)
        result = real(*args, **more)
        if after:
            os.kill(os.getpid(), number)
        return result

    patch.setattr(owner, name, call)


@pytest.mark.parametrize("number", NUMBERS)
def test_before_the_run_s_row_there_is_none(
    rater: Rater, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    signal_at(monkeypatch, session, "make_ready", number)
    assert rater("run", "--quiet", "--copies", "1", "--", "true") == (128 + number, "", "")
    assert query_rows("SELECT * FROM run") == []


@pytest.mark.parametrize("number", NUMBERS)
def test_as_soon_as_the_row_is_there_the_run_is_interrupted(
    rater: Rater, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    signal_at(monkeypatch, Store, "create_run", number, after=True)
    assert rater("run", "--quiet", "--copies", "1", "--", "true")[0] == 128 + number
    assert query_rows("SELECT status, reason FROM run") == [
        ("interrupted", f"stopped by {number.name}")
    ]
    assert query_rows("SELECT * FROM copy") == []


def test_while_the_database_takes_the_last_rows_it_is_not_closed(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Recorder.close

    def close_signalled(recorder: Recorder) -> None:
        # Rows of before are stored in other transactions where the machine is slow.
        signal_at(monkeypatch, Store, "_checkpoint", signal.SIGTERM)  # in the recorder's thread
        os.kill(os.getpid(), signal.SIGINT)
        close(recorder)

    monkeypatch.setattr(Recorder, "close", close_signalled)
    assert rater("run", "--quiet", "--copies", "1", "--", "true")[0] in (130, 143)
    assert query_rows("SELECT copy.status, run.status FROM copy, run") == [("ok", "complete")]


def test_a_run_that_breaks_is_failed_and_says_why(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(Recorder, "start", broken)
    assert rater("run", "--quiet", "--copies", "1", "--", "true")[0] == 1
    assert query_rows("SELECT status, reason FROM run") == [("failed", "no more threads")]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    [run] = [command for command in COMMANDS if command.name == "run"]
    return Stopped.prepare(run, tmp_path_factory.mktemp("stopped"), dict(os.environ))


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_at_any_moment_a_run_ends_in_order(
    tmp_path: Path, stopped: Stopped, share: float, many: bool
) -> None:
    sent = [(share * stopped.takes_s, NUMBERS[0])]
    sent += [(0.01, number) for number in NUMBERS * 3 if many]
    assert stopped.wrong(tmp_path, sent) is None


def texts(events: tuple[Event, ...]) -> list[str]:
    return [event.text for event in events if isinstance(event, Noted)]


def test_every_event_is_appended_once_and_in_order() -> None:
    stored: list[str] = []
    recorder = Recorder(lambda *events: stored.extend(texts(events)), pytest.fail)
    recorder.start()
    for number in range(1000):
        recorder.put(Noted(str(number)))
    recorder.close()
    assert stored == [str(number) for number in range(1000)]
    assert recorder.unsaved == []


def test_what_could_not_be_stored_is_tried_again_at_the_end() -> None:
    stored: list[str] = []
    full = threading.Event()
    full.set()
    said: list[str] = []

    def append(*events: Event) -> None:
        if full.is_set():
            raise RunError("the disk is full")
        stored.extend(texts(events))

    def trouble(reason: str) -> None:
        said.append(reason)
        full.clear()  # the run stops, its directories go, and there is room again

    recorder = Recorder(append, trouble)
    recorder.start()
    recorder.put(Noted("first"))
    recorder.put(Noted("second"))
    recorder.close()
    assert said == ["the disk is full"]
    assert stored == ["first", "second"]
    assert recorder.unsaved == []


def test_a_full_disk_fails_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append = Store.append

    def full_after_the_head(self: Store, run_id: int, *events: Event) -> None:
        if any(isinstance(event, CopyEnded) for event in events):
            raise StoreFullError("the disk is full")
        append(self, run_id, *events)

    monkeypatch.setattr(Store, "append", full_after_the_head)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--quiet", "--copies", "2", "--", "true"]) == 1
    said = capsys.readouterr().err
    assert "the disk is full" in said
    [rescue] = tmp_path.glob("rater-*.jsonl")
    assert str(rescue) in said
    ended = [json.loads(line) for line in rescue.read_text().splitlines()]
    assert {one["copy"] for one in ended if one["event"] == "CopyEnded"} == {0, 1}


def _damaged_after(
    monkeypatch: pytest.MonkeyPatch, database: Path, phases: int, damage: Sequence[str]
) -> None:
    """Have a command damage the database once so many phases are stored."""
    append, ended = Store.append, 0

    def damaging(self: Store, run_id: int, *events: Event) -> None:
        nonlocal ended
        append(self, run_id, *events)
        ended += sum(isinstance(event, PhaseEnded) for event in events)
        if ended >= phases > 0 and self.path == database:
            ended = -1000
            subprocess.run(damage, check=True)  # a file that we close here loses its locks

    monkeypatch.setattr(Store, "append", damaging)


_ZEROS = ("dd", "if=/dev/zero", "bs=4096", "conv=notrunc", "status=none")


@pytest.mark.parametrize(
    "damage",
    [
        (*_ZEROS, "count=400"),
        (*_ZEROS, "count=400", "seek=1"),
        ("truncate", "-s", "8192"),
        ("truncate", "-s", "0"),
    ],
    ids=["all", "all but the head", "cut off", "empty"],
)
def test_a_database_that_is_damaged_amid_a_run_takes_nothing_of_the_run_with_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: tuple[str, ...],
) -> None:
    database = tmp_path / "kept.db"
    monkeypatch.setenv("RATER_DB", str(database))
    target = f"of={database}" if damage[0] == "dd" else str(database)
    _damaged_after(monkeypatch, database, 2, (*damage, target))
    words = ["run", "--quiet", "--copies", "2", "--iterations", "4", "--", "sleep", "0.1"]
    assert main(words) == 1
    said = capsys.readouterr().err
    [rescued] = tmp_path.glob("kept-rescued-*.db")
    assert f"this run is in {rescued}" in said
    assert "is damaged" in said
    with open_store(rescued) as store:
        run = store.load(1)
    assert run.head.status is RunStatus.COMPLETE
    assert len(run.copies) == 8
    assert [note for note in run.notes if "stored anew" in note]


def test_events_of_a_long_run_are_kept_in_their_order(store: Store) -> None:
    notes = [Noted(f"note {number}") for number in range(10_000)]
    with closing(KeptRun(store, begin(store), run_of(2))) as kept:
        for first in range(0, len(notes), 2500):
            kept.append(*notes[first : first + 2500])
        assert [*kept.events()] == notes
        kept.append(Noted("one more"))
        assert [*kept.events()] == [*notes, Noted("one more")]


def test_a_run_that_no_database_takes_any_more_is_a_file_with_all_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append, ended = Store.append, 0
    put, put_events = Recorder.put, list[Event]()

    def counted(self: Recorder, event: Event) -> None:
        put_events.append(event)
        put(self, event)

    def refusing(self: Store, run_id: int, *events: Event) -> None:
        nonlocal ended
        if ended:
            raise StoreDamagedError("garbage")
        append(self, run_id, *events)
        ended += sum(isinstance(event, PhaseEnded) for event in events)

    monkeypatch.setattr(Store, "append", refusing)
    monkeypatch.setattr(Recorder, "put", counted)
    monkeypatch.chdir(tmp_path)
    words = ["run", "--quiet", "--copies", "2", "--iterations", "3", "--", "sleep", "0.1"]
    assert main(words) == 1
    [rescue] = tmp_path.glob("rater-*.jsonl")
    assert str(rescue) in capsys.readouterr().err
    ended_copies = [line for line in rescue.read_text().splitlines() if "CopyEnded" in line]
    # The run stops as soon as nothing can be stored: before the third iteration, or in it.
    put_copies = sum(isinstance(event, CopyEnded) for event in put_events)
    assert len(ended_copies) == put_copies >= 4


class Scribe(View):
    """A view that notes each call."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.drawn = threading.Event()

    def event(self, event: Event) -> None:
        self.seen.extend(texts((event,)))

    def tick(self, now_ns: int) -> float:
        self.drawn.set()
        return 60.0

    def pause(self) -> None:
        self.seen.append("pause")

    def resume(self) -> None:
        self.seen.append("resume")

    def stop(self) -> None:
        self.seen.append("stop")


def test_the_screen_shows_everything_before_it_stops() -> None:
    scribe = Scribe()
    screen = Screen(scribe)
    screen.start()
    assert scribe.drawn.wait(10)
    screen.put(Noted("a"))
    screen.close()
    assert scribe.seen == ["a", "stop"]


def test_nothing_is_drawn_between_pause_and_resume() -> None:
    scribe = Scribe()
    screen = Screen(scribe)
    screen.start()
    assert scribe.drawn.wait(10)
    screen.pause()
    scribe.drawn.clear()
    screen.put(Noted("while stopped"))
    assert not scribe.drawn.wait(0.4)
    screen.resume()
    assert scribe.drawn.wait(10)
    screen.close()
    assert scribe.seen == ["pause", "resume", "while stopped", "stop"]


RUN = ("run", "--copies", 2, "--iterations", 2, "--quiet", "--", "sh", "-c")


@pytest.mark.parametrize(
    ("order", "became"),
    [
        ("rm -f $RATER_DB*", "was removed or moved"),
        ("rm -f $RATER_DB", "was removed or moved"),
        ("mkdir old && mv $RATER_DB* old && : > $RATER_DB", "was replaced"),
        ("cp $RATER_DB x && mv x $RATER_DB", "was replaced"),
        ("mv db elsewhere", "was removed or moved"),
    ],
)
def test_a_run_whose_database_is_lost_goes_on_in_a_copy_and_exits_1(
    order: str, became: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    place = tmp_path / "db"
    place.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("RATER_DB", str(place / "rater.db"))
    assert rater("run", "--quiet", "--", "true")[0] == 0
    status, out, said = rater(*RUN, f"{order}; true")
    assert (status, out) == (1, "")
    (rescued,) = tmp_path.rglob("rater-rescued-*.db")
    assert f"the database {became.split(',', maxsplit=1)[0]}" in said
    assert f"is in {rescued}: `rater --db {rescued} list` shows it" in said
    with open_store(rescued) as store:
        run = store.load(2)
        assert [head.run for head in store.runs()] == [1, 2]
        assert (run.head.status, run.head.reason, len(run.copies)) == (RunStatus.COMPLETE, None, 4)
        assert any(became in note for note in run.notes)
        assert rescued.stat().st_mode & 0o777 == 0o600
        assert len(store.load(1).copies) == 2
    if "puts it back" in said:
        words = said.partition("shows it; `")[2].partition("`")[0]
        place.mkdir(exist_ok=True)
        subprocess.run(["sh", "-c", words], check=True)
        assert rater("show", 2)[0] == 0


def test_a_run_whose_lock_file_is_removed_has_a_note_of_it_and_exits_1(rater: Rater) -> None:
    status, out, said = rater("run", "--copies", 1, "--", "sh", "-c", "rm $RATER_LOCK")
    assert (status, " ".join(out.split()).count("was removed or replaced during the run")) == (1, 1)
    assert "was removed or replaced" in said
    words = ("--axis", "copies=1,2", "--", "sh", "-c", "rm -f $RATER_LOCK")
    status, _, said = rater("sweep", *words)
    assert (status, said.count("was removed or replaced")) == (1, 1)


END = RunEnded(RunStatus.COMPLETE, None)


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Store]:
    """A store of one run, whose file and folder are gone."""
    place = tmp_path / "db"
    store = open_store(place / "rater.db")
    begin(store)
    shutil.rmtree(place)
    yield store
    with pytest.raises(StoreError):
        store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that has room for 40 kB."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=40k", "rater-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("needs root that may mount: a disk that is full has to be tried")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_where_there_is_no_room_beside_it_the_next_place_takes_the_copy(
    lost: Store, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    monkeypatch.setenv("HOME", str(tmp_path))
    lost.append(1, END)
    assert (lost.path.parent, lost.path.name[:14]) == (tmp_path, "rater-rescued-")
    assert [head.status for head in lost.runs()] == [RunStatus.COMPLETE]
    assert list(small_disk.iterdir()) == []


def test_where_no_place_takes_a_copy_each_is_named_and_nothing_is_written_into_the_void(
    lost: Store, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    monkeypatch.setenv("HOME", "/proc/none")
    with pytest.raises(StoreError, match=f"no place took a copy: .*{small_disk}: .*full.*; /proc"):
        lost.append(1, END)
    assert [head.status for head in lost.runs()] == [RunStatus.RUNNING]


# Copy 0 sets the counters, once it has run long enough for joules to be told.
DRAW = """
sleep 0.15
[ $RATER_COPY = 0 ] || exit 0
echo {package} > {zones}/intel-rapl:0/energy_uj
echo {memory} > {zones}/intel-rapl:0:0/energy_uj
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both CPUs are of package 0."""
    root = powercap(tmp_path / "machine", packages=(0, 0))
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    return root


def drawing(tree: Path, package: int, memory: int) -> tuple[str, ...]:
    zones = zone(tree, "intel-rapl").parent.parent
    return "--", "sh", "-c", DRAW.format(package=package, memory=memory, zones=zones)


def test_joules_are_those_that_the_counters_were_driven_to(
    tree: Path, rater: Rater, store: Store
) -> None:
    """20 J below the end of its range, the package's counter wraps around and goes on to 11 J."""
    stand(tree, "intel-rapl:0", RANGE_UJ - 20_000_000)
    copies = drawing(tree, 11_000_000, 5_500_000)
    assert rater("run", "--quiet", "--copies", 2, "--idle-power", "20W", *copies)[0] == 0
    shown = rater("show", "last")[1]
    assert "J above idle: idle power was given: 20 W" in shown
    table = shown.splitlines()
    place = next(number for number, line in enumerate(table) if line.startswith("energy"))
    assert table[place + 2].split()[:4] == ["sh", "1", "35.5", "17.8"]
    energy = json.loads(rater("show", "last", "--json")[1])["energy"]
    assert energy["suite_joules"] == 35.5
    (phase,) = energy["phases"]
    assert phase["joules_per_copy"] == 17.75
    assert phase["watts"] == pytest.approx(35.5 / phase["elapsed_s"])
    assert phase["above_idle_joules"] == pytest.approx(35.5 - 20 * phase["elapsed_s"])
    assert (energy["idle_power"], phase["idle_watts"]) == ("given: 20 W", 20.0)
    assert phase["domains"]["package-0"] == 31
    assert phase["domains"]["package-0-dram"] == 4.5
    exported = json.loads(rater("export", "last", "--format", "json")[1])
    assert exported["phase_readings"][0]["energy_package-0_uj"] == 31_000_000
    file = tree.parent / "observations.json"
    file.write_text(rater("export", "last", "--format", "observations")[1])
    file.write_text(file.read_text().replace(store.load(1).head.uuid, "another"))
    assert rater("import", file)[0] == 0
    (imported,) = json.loads(rater("show", "last", "--json")[1])["energy"]["phases"]
    assert imported == phase | {"idle_watts": None, "above_idle_joules": None}
    slowest = json.loads(rater("show", 1, "--copies", "--json")[1])["copy_times"]["slowest"]
    assert sum(it["joules_estimate"] for it in slowest) == pytest.approx(35.5)
    assert not any("energy" in note for note in store.load(1).notes)


@pytest.mark.parametrize("option", ["--energy", "--proof"])
def test_energy_is_not_read_where_it_is_not_wanted(
    tree: Path, rater: Rater, store: Store, option: str
) -> None:
    assert rater("run", "--quiet", "--copies", 1, option, "off", *drawing(tree, 9, 9))[0] == 0
    assert "energy" not in json.loads(rater("show", "last", "--json")[1])
    assert not any("energy" in str(reading.values) for reading in store.load(1).machine_readings)


@pytest.mark.usefixtures("nobody_else")
def test_a_zone_that_vanishes_while_copies_run_is_noted_once(
    tree: Path, rater: Rater, store: Store
) -> None:
    """The first iteration has no joules of memory to its end, the second none at all."""
    zones = zone(tree, "intel-rapl").parent.parent
    script = (
        f"cd {zones}; sleep 0.15; rm -f intel-rapl:0:0/energy_uj; "
        "read drawn < intel-rapl:0/energy_uj; "
        "echo $((drawn + 2000000)) > intel-rapl:0/energy_uj"
    )
    words = ("--copies", 1, "--iterations", 2, "--", "sh", "-c", script)
    assert rater("run", "--quiet", *words)[0] == 0
    phases = json.loads(rater("show", "last", "--json")[1])["energy"]["phases"]
    assert [(phase["joules"], phase["reason"]) for phase in phases] == [(2, None), (2, None)]
    assert not any("package-0-dram" in phase["domains"] for phase in phases)
    notes = [note for note in store.load(1).notes if "energy" in note]
    assert [note.partition(":")[0] for note in notes] == [
        "energy of package-0-dram is not known from here on"
    ]


MB = 1 << 20
# Touches so many MB, and lives on for as long again and half a second: there is a look by then.
PROGRAM = """
import sys, time
x = bytearray(b'1') * (int(sys.argv[1]) << 20)
ticks = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
time.sleep(0.5 + time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / 100)
"""


@pytest.mark.usefixtures("nobody_else")
def test_average_and_most_memory_are_what_programs_allocated(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 and 64 MB beside what Python has, the second in a child of a shell."""
    monkeypatch.setattr(observer, "FIRST_LOOK_MS", 100)
    python = [sys.executable, "-c", PROGRAM]
    shell = ["sh", "-c", f"{shlex.join([*python, '64'])}; true"]
    for command in ([*python, "16"], shell):
        assert rater("run", "--quiet", "--copies", 2, "--", *command)[0] == 0
    document = json.loads(rater("compare", 1, 2, "--memory", "--json")[1])
    first, then = (row["points"][place] for place, row in enumerate(document["memory"]))
    assert (first["label"], then["label"]) == ("run 1", "run 2")
    for cell, allocated in ((first, 16), (then, 64)):
        assert cell["copy_runs"] == 2
        assert cell["looks"] >= 2
        assert 0 < cell["average_bytes"] <= cell["max_bytes"]
        assert allocated * MB < cell["max_bytes"] < (allocated + 20) * MB
    rows = list(csv.reader(io.StringIO(rater("compare", 1, 2, "--memory", "--csv")[1])))
    assert rows[0][2:4] == ["run 1 average (bytes)", "run 1 max (bytes)"]
    assert rows[1][2:] == [str(round(first["average_bytes"])), str(first["max_bytes"]), "", ""]
    table = rater("compare", 1, 2, "--memory")[1].splitlines()
    assert table[0].split() == ["MB", "a", "copy", *["run", "1"] * 2, *["run", "2"] * 2]
    assert float(table[2].split()[1]) == pytest.approx(first["average_bytes"] / 1e6, abs=0.06)


def test_memory_is_no_comparison_and_csv_is_of_memory(rater: Rater) -> None:
    status, _, err = rater("compare", 1, 2, "--memory", "--by", "thp", "--fail-on", "worse")
    assert (status, err) == (2, "rater: --memory compares nothing: leave out --by, --fail-on\n")
    assert rater("compare", 1, 2, "--csv")[0] == 2


# -- what the host will not let copies have -------------------------------------------------------


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of settings whose cgroup, `cg`, has no limits yet."""
    root = tmp_path / "limited"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("0::/\n")
    (root / "proc/self/mountinfo").write_text("35 1 0:30 / /cg rw - cgroup2 cgroup2 rw\n")
    (root / "cg").mkdir()
    (root / "sys/devices/system/cpu").mkdir(parents=True)
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    return root


@pytest.mark.usefixtures("nobody_else")
@pytest.mark.parametrize(("quota", "warned"), [(50_000, True), (200_000, False), ("max", False)])
def test_a_quota_below_what_copies_keep_busy_is_warned_of(
    limited: Path, rater: Rater, quota: int | str, *, warned: bool
) -> None:
    (limited / "cg/cpu.max").write_text(f"{quota} 100000\n")
    status, _, said = rater("run", "--copies", 2, "--", "true")
    assert status == 0
    assert ("a cgroup's CPU quota is 0.5 CPUs" in said) == warned


@pytest.mark.usefixtures("nobody_else")
def test_copies_that_isolated_cpus_would_keep_on_one_are_refused(
    limited: Path, rater: Rater
) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU: nothing to share")
    isolated = ",".join(map(str, cpus))
    (limited / "sys/devices/system/cpu/isolated").write_text(f"{isolated}\n")
    both = ("run", "--copies", 2, "--bind", "package")
    status, _, said = rater(*both, "--", "true")
    assert (status, "are isolated" in said, "--bind pu" in said) == (2, True, True)
    assert "are isolated" in rater(*both, "--dry-run", "--", "true")[1]
    for allowed, warned in ((both + ("--force",), True), (both[:3], False)):
        status, _, said = rater(*allowed, "--", "true")
        assert (status, "are isolated" in said) == (0, warned)


@pytest.mark.usefixtures("nobody_else")
def test_a_database_on_a_disk_of_several_machines_is_warned_of(
    rater: Rater, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        prepare,
        "describe_shared_disk",
        lambda path, way: f"{path} is on a file system of several machines (nfs4)",
    )
    said = rater("run", "--copies", 1, "--", "true")[2]
    assert f"{database} is on a file system of several machines (nfs4)" in " ".join(said.split())


REPLACED = """#!/bin/sh
[ $RATER_COPY = 0 ] || exit 0
cp "$0" "$0.new" && mv "$0.new" "$0"
"""


@pytest.mark.usefixtures("nobody_else")
def test_a_program_that_is_replaced_while_the_run_goes_on_is_said(
    rater: Rater, tmp_path: Path
) -> None:
    program = tmp_path / "prog"
    for text, replaced in ((REPLACED, True), ("#!/bin/sh\n:\n", False)):
        program.write_text(text)
        program.chmod(0o755)
        out = rater("run", "--copies", 2, "--iterations", 2, "--", program)[1]
        said = f"{program} was replaced while the run went on: from prog (iteration 2) on"
        assert (said in " ".join(out.split())) == replaced


def test_iterations_are_enough_once_the_interval_of_each_bracket_is_narrow() -> None:
    watch = NarrowWatch(0.02, ["gups", "lu"])
    ends: list[bool] = []
    for iteration, tenths in enumerate([0, 1, 0, 1, 0, 1], start=1):
        watch.put(over(0.0, 10.0, name="gups", iteration=iteration))
        ends.append(watch.is_over())  # amid an iteration it never is
        watch.put(over(0.0, 10.0 + tenths / 10, name="lu", iteration=iteration))
        ends.append(watch.is_over())
    # By hand, of six: sd .00545, error .00222, t 2.571: width 2 sinh(.00572) = 1.14 %; of five
    # with three 10 s: error .00244, t 2.776: 1.35 %. Four are too few.
    assert ends == [False] * 9 + [True, False, True]
    assert watch.remark() == "--until: after 6 iterations every bracket is known within 2.0 %"
    assert (
        NarrowWatch(0.01, ["gups"])
        .remark()
        .endswith("the interval of gups is not known, not 1.0 %")
    )


def test_a_copy_that_failed_ends_the_iterations() -> None:
    watch = NarrowWatch(0.02, ["gups"])
    watch.put(replace(ended(0, 1.0), status=CopyStatus.FAILED))
    watch.put(over(0.0, 1.0))
    assert watch.is_over()
    assert "as a copy failed" in watch.remark()
