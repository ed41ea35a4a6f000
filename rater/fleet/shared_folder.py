"""The folder that all nodes see, and what a node must be before it takes part."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
from collections.abc import Set
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from rater.fleet.plan import JOB, FleetRequest, NodeVerdict, verdict_from_json
from rater.run.host.facts import machine_id
from rater.run.host.procfs import read_text
from rater.system.errors import InputError
from rater.system.files import (
    UntrustedError,
    flush,
    make_private_folder,
    open_file,
    replace_file,
    resolve_trusted_folder,
    write_all,
)
from rater.system.process import boot_id
from rater.text import cpuset
from rater.text.kinds import from_json
from rater.text.values import printable, to_dict

# -- The folder that the submit host and all nodes see: the request, and its results ---------------
#
#     spec.json                what every node is to do
#     claim/NODE.ATTEMPT/      made by the job that does it: of two with one name, one runs; in it
#                              `job`, its number, and `waiting`, for which other rater it waits
#     in/NODE.ATTEMPT.SHA.db   a database, whole when it has this name
#     in/NODE.ATTEMPT.json     the verdict: what the attempt came to; written last
#     log/NODE.ATTEMPT.log     what the agent and rater printed
#     aside/                   what was published and is damaged
#     cancelled                no agent begins any more
#
# No SQLite call is ever made on it: databases come as bytes and get their name when they are whole.
# What lies here came from hosts that may be broken or hostile: every file is opened by the door of
# `rater.system.files` (a regular file of ours, no link), read up to a limit, and believed in no
# name.

_BLOCK = 1 << 20
_MOST_TEXT = 1 << 20  # of a verdict or a spec
_MOST_WORD = 1000
_MOST_DATABASE = 1 << 33


class PublishedVerdict(NamedTuple):
    """A verdict that lies in the folder."""

    verdict: NodeVerdict | None
    damaged: str | None = None  # what is wrong with it, or with its database
    absent: bool = False  # its database is not there: not yet, on some file systems


class SharedFolder:
    """The folder of one fleet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inbox = path / "in"

    @property
    def spec_file(self) -> Path:
        """The file in which the nodes read the request."""
        return self.path / "spec.json"

    def log(self, node: str, attempt: int) -> Path:
        """Where a job prints to."""
        return self.path / "log" / f"{node}.{attempt}.log"

    def open_log(self, node: str, attempt: int) -> int:
        """Open it to append: a file of ours, before a scheduler makes one where a link leads.

        Raises `InputError`.
        """
        try:
            return open_file(self.log(node, attempt), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise InputError(f"{error.filename}: no log of a fleet ({error.strerror})") from error

    def last_words(self, node: str, attempt: int) -> str:
        """Return the last line that a job printed, and where the others are."""
        log = self.log(node, attempt)
        try:
            with os.fdopen(open_file(log, os.O_RDONLY), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_WORD))
                lines = file.read(_MOST_WORD).decode(errors="replace").split("\n")
        except OSError as error:
            return f"its log {log} cannot be read ({error.strerror})"
        last = next((line.strip() for line in reversed(lines) if line.strip()), None)
        said = "is empty" if last is None else f"ends: {printable(last, 160)}"
        return f"its log {log} {said}"

    def check(self) -> None:
        """Raise `InputError` for a folder that another user made or may write into."""
        try:
            if resolve_trusted_folder(self.path).stat().st_mode & stat.S_IWOTH:
                raise UntrustedError(self.path, "everybody may write into it")
        except FileNotFoundError:
            return  # nothing of it is read then
        except OSError as error:
            raise InputError(
                f"{error.filename or self.path}: not the folder of a fleet of yours "
                f"({error.strerror})"
            ) from error

    def make(self, spec: FleetRequest) -> None:
        """Make the folder, unless it exists. Raises `InputError`."""
        try:
            resolve_trusted_folder(self.path.parent, make=True)
            for name in ("", "in", "log", "claim", "aside", "jobs"):
                with suppress(FileExistsError):
                    (self.path / name).mkdir(0o700)
                make_private_folder(self.path / name)
            text = json.dumps(to_dict(spec), indent=1)
            replace_file(self.spec_file, text.encode(), mode=0o600)
        except OSError as error:
            raise InputError(
                f"{error.filename or self.path}: cannot make the fleet's folder "
                f"({error.strerror}); name one that you can write and all nodes see with --folder"
            ) from error

    def spec(self) -> FleetRequest:
        """Return the request. Raises `InputError`."""
        try:
            spec: FleetRequest = from_json(FleetRequest, read_ours(self.spec_file).decode())
        except OSError as error:
            raise InputError(
                f"{self.spec_file}: cannot be read here ({error.strerror}): the fleet's folder "
                "must be there on all nodes under this path"
            ) from error
        except ValueError as error:
            raise InputError(f"{self.spec_file}: {error}") from None
        return spec

    # -- one of several jobs ----------------------------------------------------------------------

    def claim(self, node: str, attempt: int, job: str) -> str | None:
        """Take an attempt for a job; return the job that has it already, None when it is ours.

        A job that the scheduler started once more (`17.1` after `17.0`) takes it from itself.
        """
        folder = self.path / "claim" / f"{node}.{attempt}"
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            before = self.claimed_by(node, attempt) or "another job"
            (number, _, again), (same, _, times) = job.rpartition("."), before.rpartition(".")
            started_again = number and same == number and times.isdigit() and again.isdigit()
            if not (started_again and int(again) > int(times)):
                return before
        replace_file(folder / "job", f"{job}\n".encode(), mode=0o600)
        return None

    def claimed_by(self, node: str, attempt: int) -> str | None:
        """Return the job that began an attempt, as the agent was told its id."""
        job = self._line(f"{node}.{attempt}/job")
        return job if job and JOB.fullmatch(job) else None

    def waits_for(self, node: str, attempt: int) -> str | None:
        """Return for which other rater on its node an attempt waits, in its words."""
        return self._line(f"{node}.{attempt}/waiting")

    def mark_waiting(self, node: str, attempt: int, text: str) -> None:
        """Say for whom an attempt waits; an empty text: for nobody any more."""
        file = self.path / "claim" / f"{node}.{attempt}" / "waiting"
        replace_file(file, f"{printable(text)}\n".encode(errors="replace"), mode=0o600)

    def _line(self, claim: str) -> str | None:
        try:
            said = read_ours(self.path / "claim" / claim, _MOST_WORD)
        except OSError:
            return None
        return said.decode(errors="replace").strip() or None

    def mark_cancelled(self, is_so: bool) -> None:
        """Let no agent begin any more, or let them again."""
        if is_so:
            replace_file(self.path / "cancelled", b"", mode=0o600)
        else:
            (self.path / "cancelled").unlink(missing_ok=True)

    @property
    def is_cancelled(self) -> bool:
        """Tell whether `rater fleet cancel` was called."""
        return (self.path / "cancelled").exists()

    # -- publishing -------------------------------------------------------------------------------

    def publish(self, verdict: NodeVerdict, database: Path | None) -> NodeVerdict:
        """Put a database here, then the verdict with its name and checksum; return that.

        Whoever sees the verdict sees the whole of the database. Raises `OSError`.
        """
        if database is not None:
            with database.open("rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
                name = f"{verdict.node}.{verdict.attempt}.{sha256[:12]}.db"
                opened.seek(0)
                copy_whole(opened, self.inbox / name)
                verdict = replace(verdict, database=name, sha256=sha256, bytes=opened.tell())
        text = json.dumps(to_dict(verdict), indent=1)
        replace_file(self._verdict(verdict.node, verdict.attempt), text.encode(), mode=0o600)
        return verdict

    def _verdict(self, node: str, attempt: int) -> Path:
        return self.inbox / f"{node}.{attempt}.json"

    def verdict_files(self) -> dict[tuple[str, int], object]:
        """Return the verdicts that are there by node and attempt, each with a state of its file."""
        files: dict[tuple[str, int], object] = {}
        with suppress(OSError):
            for file in self.inbox.glob("*.json"):
                node, _, attempt = file.stem.rpartition(".")
                if attempt.isdecimal():
                    now = file.lstat()
                    files[node, int(attempt)] = (now.st_mtime_ns, now.st_size, now.st_ino)
        return files

    def published_nodes(self) -> set[str]:
        """Return the nodes of which a database is published."""
        with suppress(OSError):
            return {it.name.rsplit(".", 3)[0] for it in self.inbox.glob("[!.]*.db")}
        return set()

    def looked_up(self, fleet: str, node: str, attempt: int) -> PublishedVerdict | None:
        """Return what was published of an attempt, its database checked; None: nothing yet."""
        try:
            verdict = verdict_from_json(read_ours(self._verdict(node, attempt)).decode())
        except UntrustedError as error:
            return PublishedVerdict(None, f"its verdict is {error.strerror}")
        except OSError:  # not there, ESTALE of NFS, and the like: to be read again
            return None
        except ValueError as error:
            return PublishedVerdict(None, f"its verdict is damaged: {error}")
        if (verdict.fleet, verdict.node, verdict.attempt) != (fleet, node, attempt):
            return PublishedVerdict(None, "its verdict is of another attempt")
        return self.checked(verdict)

    def checked(self, verdict: NodeVerdict) -> PublishedVerdict:
        """Compare a database with its verdict's checksum."""
        name = verdict.database
        if name is None:
            return PublishedVerdict(verdict)
        try:
            with self.opened(verdict) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == verdict.sha256:
                    return PublishedVerdict(verdict)
        except UntrustedError as error:
            return PublishedVerdict(verdict, f"{name} is {error.strerror}")
        except OSError as error:
            problem = "not there" if isinstance(error, FileNotFoundError) else error.strerror
            return PublishedVerdict(verdict, f"{name} is {problem}", absent=True)
        damaged = f"the published database {name} is damaged (another sha256)"
        return PublishedVerdict(verdict, damaged)

    def opened(self, verdict: NodeVerdict) -> BufferedReader:
        """Open a published database. Raises `OSError`."""
        file = self.inbox / (verdict.database or "")
        opened = os.fdopen(open_file(file, os.O_RDONLY), "rb")
        size = os.fstat(opened.fileno()).st_size
        if size > _MOST_DATABASE or size != verdict.bytes:
            opened.close()
            raise UntrustedError(file, f"{size} bytes large, which its verdict does not say")
        return opened

    def set_aside(self, node: str, attempt: int) -> None:
        """Move what was published of an attempt out of the way: it is damaged."""
        for file in self.inbox.glob(f"{node}.{attempt}.*"):
            parts = file.name.removeprefix(f"{node}.{attempt}.").split(".")
            if parts not in (["json"], [parts[0], "db"]):
                continue
            with suppress(OSError):
                file.replace(self.path / "aside" / file.name)


def read_ours(file: Path, most: int = _MOST_TEXT) -> bytes:
    """Return what a file of ours has, its beginning where that is more. Raises `OSError`."""
    with os.fdopen(open_file(file, os.O_RDONLY), "rb") as opened:
        return opened.read(most)


def copy_whole(source: BufferedReader, target: Path) -> None:
    """Copy bytes to a name that is there when all of them are. Raises `OSError`."""
    part = target.with_name(f".{target.name}.part")
    number = open_file(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        while block := source.read(_BLOCK):
            write_all(number, block)
        os.fsync(number)
        part.replace(target)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
    finally:
        os.close(number)
    flush(target.parent)


# -- What a node must be before it takes part in a fleet; reasons in words where it is not ---------


def partial_mask(sys: Path = Path("/sys"), mask: Set[int] | None = None) -> str | None:
    """Say which CPUs of the machine this process may not use; None if it may use all.

    The kernel narrows a wider mask without an error, so masks are compared, not tried.
    """
    online = cpuset.parse_set(read_text(sys / "devices/system/cpu/online") or "")
    own_cpus = os.sched_getaffinity(0) if mask is None else mask
    missing = set(online) - own_cpus
    if not missing:
        return None
    return (
        f"the job may use CPUs {cpuset.format_list(own_cpus)} of {cpuset.format_list(online)}: it "
        "is not alone on the node, or its task plugin narrows it (--allow-partial: run all the "
        "same)"
    )


def node_facts() -> dict[str, str]:
    """Return what the node says of itself, to be stored with the verdict."""
    online = read_text(Path("/sys/devices/system/cpu/online")) or ""
    facts = {
        "hostname": read_text(Path("/proc/sys/kernel/hostname")) or platform.node(),
        "machine_id": machine_id() or "",
        "boot_id": boot_id(),
        "kernel": platform.release(),
        "online_cpus": online,
        "usable_cpus": cpuset.format_list(os.sched_getaffinity(0)),
        "clocksource": read_text(
            Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        )
        or "",
    }
    slurm = ("SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_PARTITION")
    return facts | {name.lower(): os.environ[name] for name in slurm if name in os.environ}
