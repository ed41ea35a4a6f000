"""Fixtures: every test has its own lock and database, and meets no other rater."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rater.commands.cli import main
from rater.run.host.foreign_load import ForeignLoad, ForeignLoadSampler
from rater.store.store import Store, open_store
from rater.system.process import remember_database
from rater.workflow.run import campaign, prepare
from rater.workflow.sweep import execute
from tests.support.browser import Browser, chromium
from tests.support.calls import Rater
from tests.support.places import CHECKOUT, own_places_in
from tests.support.settings_tree import make_tree
from tests.support.wings import ABSENT

TESTS = Path(__file__).parent
collect_ignore = [
    *ABSENT,
    *(f"papers/{wing}" for wing in ABSENT),
    *(["test_wings.py"] if ABSENT else []),
]
# Under nohup and in the background these are ignored, and what tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


# Of these tests many start processes, wait, or search for long.
LONG = (
    *("end_to_end", "commands", "workflow", "fleet", "lab", "test_benchmarks.py"),
    *("run", "show/html", "analysis/divots", "speccpu/test_read.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: at the end each worker has small files to take.

    (With `--no-loadscope-reorder`; else files of few tests come last, however long they take.)
    """
    long = [TESTS / name for name in LONG]

    def turn(item: pytest.Item) -> int:
        here = {item.path, *item.path.parents}
        return next((number for number, it in enumerate(long) if it in here), len(LONG))

    items.sort(key=turn)


def pytest_configure() -> None:
    """Have the launcher as its source is, however tests are called: not compiled by each test.

    The interpreter collects as seldom as that of a command does (`rater.__main__`).
    """
    gc.set_threshold(200_000, 20, 100)
    subprocess.run(
        ["make", "--silent", "rater/run/launcher/rater-launcher"], cwd=CHECKOUT, check=True
    )


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no collection has to look through it for ever.

    Of 25 CPU seconds of quick tests these were three, and each stopped a test for a tenth.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs are compiled and the machine is read once for all tests of a worker, as for a user.

    A cache of its own for each test cost 20 s of CPU more.
    """
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_cache: Path) -> None:
    own_places_in(tmp_path, monkeypatch, shared_cache)
    remember_database(None)  # that a test before it named


@pytest.fixture
def own_cache(own_places: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that RATER_CACHE names, for tests that look into it."""
    monkeypatch.setenv("RATER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class _NobodyElse(ForeignLoadSampler):
    """Looks at no process: tests/run/host has the tests of the real one."""

    def __init__(self) -> None:
        pass

    @property
    def would_wait(self) -> bool:
        return False

    def busy(self, least_share: float = 0.1, *, stale_s: float = 0.0) -> ForeignLoad:
        return ForeignLoad((), 0.0, 0.0)


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look who else works here takes most of a short run in this process, and varies."""
    for module in (prepare, campaign):
        monkeypatch.setattr(module, "ForeignLoadSampler", _NobodyElse)
    monkeypatch.setattr(execute, "RETRIES", 0)  # tests beside it disturb many runs of sweeps


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The one that RATER_DB names."""
    return tmp_path / "rater.db"


@pytest.fixture
def store(database: Path) -> Iterator[Store]:
    """That database, open."""
    with open_store(database) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; for tests that are left out where there is none."""
    program = chromium()
    assert program is not None
    with Browser(program) as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of settings that is not this machine's."""
    root = make_tree(tmp_path / "machine")
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    monkeypatch.setenv("RATER_JOURNAL", str(tmp_path / "settings.json"))
    return root


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp, on the way to which everybody may look."""
    folder = Path(tempfile.mkdtemp(prefix="rater-test-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def rater(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rater:
    """Run `rater ...` on the test's own database, in this process and in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run
