"""`rater bundle`: runs in one file to send, without secrets; and such a file taken in."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.request import Request, request_to_json
from rater.record.events import Noted
from rater.store.store import open_store
from tests.support.calls import rater
from tests.support.example_events import run_of, with_head
from tests.support.stored_runs import GONE, begin
from tests.support.wings import needs_wing

SECRETS = [f"planted-secret-{number:02}" for number in range(20)]


def store_run(database: Path, uuid: str, secrets: list[str]) -> int:
    """Store a run that has each secret at another place, under a name that tells."""
    places = iter(secrets)
    environment = tuple((name, next(places)) for name in ("DB_PASSWORD", "API_KEY", "MY_TOKEN"))
    settings = (
        ("env.GITHUB_TOKEN", next(places)),
        ("env.LD_PRELOAD_SECRET", next(places)),
        ("kernel.cmdline", f"root=/dev/vda password={next(places)} quiet"),
        ("layout.text", f'api_key = "{next(places)}"'),
        ("firmware.version", f"token={next(places)}"),
    )
    tags = (("env:SECRET", next(places)), ("note", f"secret={next(places)}"))
    request = Request(
        command=("./bench", "--password", next(places)),
        environment=(("AUTH_TOKEN", next(places)),),
        prepare=f"curl -H 'Authorization: Bearer {next(places)}' x",
        suites=(),
    )
    with open_store(database) as store:
        run = with_head(
            run_of(2),
            uuid=uuid,
            command_line=f"rater run -- ./bench --password {next(places)}",
            wrap=f"env PGPASSWORD={next(places)}",
            reason=f"secret: {next(places)}",
            directory=str(database.parent),
            tags=tags,
            request=request_to_json(request),
        )
        benchmark = replace(run.benchmarks[0], command=f"./bench --token={next(places)}")
        run = replace(run, environment=environment, benchmarks=(benchmark,))
        number = begin(store, run, GONE)
        store.append(
            number,
            Noted(f"https://user:{next(places)}@host/x"),
            Noted(f"mysql -p{next(places)}"),
            Noted(f"x-api-key={next(places)}"),
            Noted("checkup 1f3a90c2: latency of memory, one CPU: PASS"),
        )
        with store.writing("settings") as connection:
            for name, value in settings:
                connection.execute("INSERT INTO setting VALUES (?, ?, ?)", (number, name, value))
    assert next(places, None) is None
    return number


UUIDS = ["uuid-of-the-first", "uuid-of-the-second"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of the second of two runs: its page takes half a second to draw."""
    folder = tmp_path_factory.mktemp("bundle")
    for uuid in UUIDS:
        store_run(folder / "rater.db", uuid, SECRETS)
    done = rater("--db", folder / "rater.db", "bundle", "2", "-o", folder / "b.zip")
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "b.zip"


def test_none_of_twenty_secrets_is_in_a_bundle(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        names = set(archive.namelist())
        texts = b"".join(archive.read(name) for name in names)
    assert {"rater.db", "run-2.json", "facts-2.json", "page.html", "AGAIN.txt"} <= names
    assert "topology.xml" not in names  # it was made on another machine than this one
    assert [secret for secret in SECRETS if secret.encode() in texts] == []
    assert b"[redacted" in texts


def test_a_colleague_reads_the_verdicts_of_a_checkup_in_its_bundle(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        verdicts = archive.read("checkup.txt").decode()
    assert verdicts == "checkup 1f3a90c2: latency of memory, one CPU: PASS\n"


def test_a_bundle_has_its_run_and_no_other(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["sha256"].keys() == set(archive.namelist()) - {"manifest.json"}
        stored = archive.read("rater.db")
    assert [uuid.encode() in stored for uuid in UUIDS] == [False, True]


@needs_wing("fleet")
def test_a_bundle_is_taken_in_elsewhere_and_tells_what_differs_there(
    bundle: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "other.db"
    done = rater("--db", elsewhere, "import", bundle)
    assert done.returncode == 0
    assert done.stdout == f"{bundle}: run 1 added\n"
    shown = rater("--db", elsewhere, "rerun", "1", "--dry-run")
    assert shown.returncode == 0
    assert "differs from run 1" in shown.stdout
    # Whoever made a bundle may have written any command into it.
    assert rater("--db", elsewhere, "rerun", "1").returncode == 2
    with closing(sqlite3.connect(elsewhere)) as database:
        ((request,),) = database.execute("SELECT request FROM run").fetchall()
        database.execute("UPDATE run SET directory = '/not/there'")
        database.commit()
    assert json.loads(request)["merged_from"] == f"{bundle}, whoever made that bundle"
    # What differs is told where the run could not even be planned, too.
    shown = rater("--db", elsewhere, "rerun", "1", "--dry-run")
    assert shown.returncode == 2
    assert "run 1 was made in /not/there, which cannot be entered" in shown.stderr
    assert "\ndiffers from run 1:\n  host name: was " in shown.stderr


def test_a_file_that_is_there_is_not_written_over(bundle: Path) -> None:
    before = bundle.read_bytes()
    done = rater("--db", bundle.with_name("rater.db"), "bundle", "2", "-o", bundle)
    assert (done.returncode, bundle.read_bytes()) == (2, before)
    assert "--force" in done.stderr


def write_zip(path: Path, *entries: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return path


@needs_wing("fleet")
@pytest.mark.parametrize(
    "entries",
    [
        [],
        [("page.html", b"x")],
        [("../rater.db", b"x")],
        [("/tmp/rater.db", b"x")],
        [("rater.db", b"no database")],
        [(f"f{number}", b"") for number in range(1001)] + [("rater.db", b"x")],
    ],
)
def test_what_is_no_bundle_is_refused_and_nothing_is_written(
    entries: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = write_zip(folder / "b.zip", *entries)
    if not entries:
        path.write_bytes(b"PK\x03\x04" + bytes(40))
    done = rater("--db", tmp_path / "x.db", "import", path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(path) in done.stderr
    assert "scratch" not in done.stderr
    assert list(folder.iterdir()) == [path]


@needs_wing("fleet")
def test_a_bundle_that_is_cut_is_refused(bundle: Path, tmp_path: Path) -> None:
    data = bundle.read_bytes()
    cut = tmp_path / "cut.zip"
    for end in (len(data) // 3, len(data) - 30):
        cut.write_bytes(data[:end])
        assert rater("--db", tmp_path / "x.db", "import", cut).returncode == 2
    bent = bytearray(data)
    bent[len(data) // 4] ^= 0xFF
    cut.write_bytes(bent)
    assert rater("--db", tmp_path / "x.db", "import", cut).returncode in (0, 2)


@needs_wing("fleet")
def test_a_bomb_is_unpacked_no_further_than_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.store.bundle._MOST_DATABASE_BYTES", 1 << 20)
    path = write_zip(tmp_path / "b.zip", ("rater.db", bytes(4 << 20)))
    done = rater("--db", tmp_path / "x.db", "import", path)
    assert done.returncode == 2
    assert "too large" in done.stderr
