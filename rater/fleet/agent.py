"""`rater fleet agent`: what a job does on its node. Not typed by people."""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from rater import __version__
from rater.fleet.plan import (
    ADDED_NOTHING,
    VERDICT_VERSION,
    FleetRequest,
    NodeVerdict,
    VerdictStatus,
    scheduler_job,
)
from rater.fleet.shared_folder import (
    SharedFolder,
    copy_whole,
    node_facts,
    partial_mask,
)
from rater.fleet.store import NodeRun, node_run
from rater.record.run import RunStatus
from rater.run.host.admission import MachineTakenError, default_lock_path, machine_lock
from rater.run.programs.child_process import die_with_parent
from rater.store.store import open_store
from rater.system.errors import RaterError
from rater.system.files import describe_shared_disk, make_private_folder, open_file
from rater.system.process import print_error
from rater.text.values import count, printable
from rater.workflow.run.head import utc_timestamp

# -- `rater fleet agent`: what a job does on its node. Not typed by people -------------------------
#
# Claim the attempt, look at the node, make or resume the run in a database on the node's own disk,
# publish that whole, then report the outcome. Whatever ends it early, it publishes the rest.

_LOOK_S = 0.5  # between two looks whether another rater still holds the node
_START_S = 5.0  # in which `rater run` has the machine, or it is seen for whom it waits
_START_LOOK_S = 0.1
_HOLDER = re.compile(r"\bprocess ([0-9]+)\b")
_SAID = 2000  # characters of what `rater run` said
_ENDED = {RunStatus.COMPLETE: VerdictStatus.COMPLETE, RunStatus.FAILED: VerdictStatus.FAILED}


@dataclass
class Agent:
    """One attempt at one node."""

    folder: SharedFolder
    spec: FleetRequest
    node: str
    attempt: int
    job: str
    signals: JobSignals

    def __post_init__(self) -> None:
        # By user: another one may have a folder of that name there.
        self.home = Path(self.spec.scratch) / f"rater-fleet-{os.geteuid()}"
        self.scratch = self.home / f"{self.spec.uuid[:13]}-{self.node}"
        self.database = self.scratch / "node.db"
        self._notes: list[str] = []
        self._started_at = utc_timestamp()
        self._copies_before = 0  # of the run that an attempt resumes
        self._waited_for: str | None = None  # the rater that `rater run` found on the machine

    def run(self) -> NodeVerdict:
        """Do it, and return what is to be published; the database is, where there is one."""
        refused = self._refused()
        if refused is not None:
            return self.verdict(VerdictStatus.REFUSED, refused)
        if self.folder.is_cancelled:
            return self.verdict(VerdictStatus.CANCELLED, "`rater fleet cancel` before it began")
        try:
            make_private_folder(self.scratch)
        except OSError as error:
            problem = f"{error.filename or self.scratch}: {error.strerror}"
            return self.verdict(VerdictStatus.REFUSED, f"no folder for the database: {problem}")
        # Of this node: of an attempt before, whose process outlived its job; and, of the backend
        # `local`, of the other "nodes" of this machine.
        turn = open_file(self.home / "turn", os.O_RDWR | os.O_CREAT)
        try:
            self._wait(partial(_turn_holder, turn))
            if self.signals.first is not None:
                return self.verdict(VerdictStatus.PARTIAL, "ended while it waited for its turn")
            limit_s = self.spec.busy_limit_s
            limit = f"{limit_s / 60:.0f} min" if limit_s >= 60 else f"{limit_s:g} s"
            lock = Path(self.spec.lock) if self.spec.lock else default_lock_path()
            held = self._wait(partial(_machine_holder, lock), limit_s, f", {limit} at most")
            if held is not None:
                why = f"another rater held the node for {limit}; {held.partition('; ')[2]}"
                return self.verdict(VerdictStatus.REFUSED, why)
            return self._in_turn()
        finally:
            os.close(turn)

    def _wait(
        self, holder: Callable[[], str | None], limit_s: float = math.inf, at_most: str = ""
    ) -> str | None:
        """Wait until nobody holds the node, or a signal comes; return who still does then."""
        since, until_s, last_holder = utc_timestamp(), time.monotonic() + limit_s, ""
        while self.signals.first is None and (who := holder()) is not None:
            if time.monotonic() >= until_s:
                return who
            if who != last_holder:
                last_holder = who
                waits = f"{who}; waits since {since}{at_most}"
                self.folder.mark_waiting(self.node, self.attempt, waits)
            time.sleep(_LOOK_S)
        if last_holder:
            self.folder.mark_waiting(self.node, self.attempt, "")
        return None

    def _refused(self) -> str | None:
        """Return why this node cannot take part, or None."""
        if self.spec.rater_version != __version__:
            return (
                f"rater {__version__} is on this node, {self.spec.rater_version} on the submit host"
            )
        if not Path(self.spec.directory).is_dir():
            return f"the directory {self.spec.directory} is not on this node"
        mask = partial_mask()
        if mask is not None:
            if not self.spec.allow_partial:
                return mask
            self._notes.append(mask)
        scratch = Path(self.spec.scratch)
        if not scratch.is_dir():
            return f"{scratch} is not on this node: name a folder on its own disk with --scratch"
        return describe_shared_disk(scratch, "a folder on the node's own disk with --scratch")

    def _in_turn(self) -> NodeVerdict:
        before = self._published_before()
        if before is not None and before.status is VerdictStatus.COMPLETE:
            refusal_text = f"attempt {before.attempt} has published everything"
            return self.verdict(VerdictStatus.NOT_NEEDED, refusal_text)
        if before is not None and not self.database.exists():  # this node's own file is gone
            with self.folder.opened(before) as published:
                copy_whole(published, self.database)
            self._notes.append(f"goes on with what attempt {before.attempt} published")
        status, said = self._measure()
        with open_store(self.database) as store:
            stored_run = node_run(store)
            snapshot = self.scratch / "published.db"
            snapshot.unlink(missing_ok=True)
            if stored_run is not None:
                store.copy_to(snapshot)
        verdict = self._of_run(stored_run, status, said)
        if stored_run is None:
            return verdict
        verdict = self.folder.publish(verdict, snapshot)
        if verdict.status is VerdictStatus.COMPLETE:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return verdict

    def _published_before(self) -> NodeVerdict | None:
        """Return the last verdict of this node whose database is whole, if there is one.

        Of this attempt too: the scheduler may have started its job once more.
        """
        for attempt in range(self.attempt, 0, -1):
            looked_up = self.folder.looked_up(self.spec.uuid, self.node, attempt)
            if (
                looked_up
                and looked_up.verdict
                and looked_up.verdict.database
                and not looked_up.damaged
            ):
                return looked_up.verdict
        return None

    def _measure(self) -> tuple[int, str]:
        """Make the run or resume it; return the exit status and what it said."""
        stored = self._stored()
        if stored is not None:
            if stored.head.status in (RunStatus.COMPLETE, RunStatus.FAILED):
                return 0, ""  # measured, and killed before it was published
            self._copies_before = stored.copies_done
            self._notes.append(f"resumed: {stored.copies_done} copies were there")
            status, said = self._rater("--resume", str(stored.head.run))
            if status != 2 or self.signals.first is not None:
                return status, said
            self._notes.append(f"not resumed, a new run: {_one_line_output(said)}")
        spec = self.spec
        tags = ("--tag", f"fleet={spec.uuid}", "--tag", f"fleet-node={self.node}")
        behind = () if spec.command is None else ("--", *spec.command)
        return self._rater(*spec.words, *tags, behind=behind)

    def _stored(self) -> NodeRun | None:
        """Return the run that is there already; a database that is damaged is set aside."""
        if not self.database.exists():
            return None
        try:
            with open_store(self.database) as store:
                return node_run(store)
        except RaterError as error:
            self._notes.append(f"set aside, a new run: {printable(str(error), 400)}")
            for end in ("", "-wal", "-shm"):
                file = self.database.with_name(f"{self.database.name}{end}")
                if file.exists():
                    file.replace(file.with_name(f"damaged-{file.name}"))
            return None

    def _rater(self, *words: str, behind: tuple[str, ...] = ()) -> tuple[int, str]:
        """Call `rater run`; return its status (negative: a signal) and what it said.

        It waits where another run has just taken the machine, gets SIGTERM when a signal comes, and
        dies with this process.
        """
        variables = {"RATER_CACHE": str(self.home / "cache"), "RATER_CONFIG": ""}
        if self.spec.lock is not None:
            variables["RATER_LOCK"] = self.spec.lock
        said = self.scratch / "said"
        options = ("--db", str(self.database), "--quiet", f"--wait={self.spec.busy_limit_s:g}")
        with said.open("wb") as file:
            child = self.signals.child = subprocess.Popen(
                [*this_rater(), "run", *options, *words, *behind],
                cwd=self.spec.directory,
                env=dict(os.environ) | variables,
                stdin=subprocess.DEVNULL,
                stderr=file,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it is None in a process with threads
            )
        if self.signals.first is not None:  # it came before there was a child
            child.terminate()
        lock = Path(self.spec.lock) if self.spec.lock else default_lock_path()
        mark_waiting = partial(self.folder.mark_waiting, self.node, self.attempt)
        self._waited_for = _follow_start(child, lock, mark_waiting)
        status = child.wait()
        text = said.read_text(errors="replace").strip()
        if text:
            print(text, file=sys.stderr, flush=True)
        return status, text[-_SAID:]

    def _note_what_was_added(self, stored: NodeRun | None) -> None:
        """Note that an attempt which was ended early measured nothing, and why."""
        before = self._copies_before
        if self.signals.first is None or (stored is not None and stored.copies_done > before):
            return
        because = f": it waited for {self._waited_for}" if self._waited_for else ""
        there = f" to the {count(before, 'copy', 'copies')} that were there" if before else ""
        self._notes.append(f"{ADDED_NOTHING}{there}{because}")

    def _of_run(self, node_run: NodeRun | None, status: int, said: str) -> NodeVerdict:
        """Return what the run came to."""
        self._note_what_was_added(node_run)
        last = _one_line_output(said)
        if node_run is None:
            if self.signals.first is not None:
                return self.verdict(VerdictStatus.PARTIAL, last or "ended before it began")
            status_word = VerdictStatus.REFUSED if status == 2 else VerdictStatus.FAILED
            return self.verdict(status_word, last or f"rater run ended with status {status}")
        came_to = _ENDED.get(node_run.head.status, VerdictStatus.PARTIAL)
        reason = node_run.head.reason
        if came_to is VerdictStatus.PARTIAL and self.signals.first is None:
            reason = last or reason or f"rater run ended with status {status}"
        verdict = self.verdict(came_to, reason)
        return replace(
            verdict,
            run=node_run.head.uuid,
            copies_done=node_run.copies_done,
            copies_planned=node_run.copies_planned,
        )

    def verdict(self, status: VerdictStatus, reason: str | None) -> NodeVerdict:
        """Return what is to be said of this attempt, without a database."""
        early = status in (VerdictStatus.PARTIAL, VerdictStatus.CANCELLED)
        return NodeVerdict(
            rater=VERDICT_VERSION,
            fleet=self.spec.uuid,
            node=self.node,
            attempt=self.attempt,
            job=scheduler_job(self.job),
            status=status,
            reason=reason,
            ended_by=self.signals.first if early else None,
            database=None,
            sha256=None,
            bytes=None,
            run=None,
            copies_done=None,
            copies_planned=None,
            started_at=self._started_at,
            ended_at=utc_timestamp(),
            host=node_facts(),
            notes=tuple(self._notes),
        )


def agent(spec: str, node: str, attempt: int, job: str) -> int:
    """Do one attempt; the exit status is for the scheduler's eyes only."""
    folder = SharedFolder(Path(spec).parent)
    request = folder.spec()
    with ending_signals() as signals:
        taken = folder.claim(node, attempt, job)
        if taken is not None:
            print_error(f"{node}, attempt {attempt}: job {taken} does it already")
            return 0
        running_agent = Agent(
            folder=folder,
            spec=request,
            node=node,
            attempt=attempt,
            job=job,
            signals=signals,
        )
        try:
            verdict = running_agent.run()
        except (RaterError, OSError) as error:
            # Its database stays on the node's disk: the next attempt goes on with it.
            verdict = running_agent.verdict(VerdictStatus.PARTIAL, printable(str(error), 400))
        if verdict.database is None:
            folder.publish(verdict, None)
    text = f"{verdict.node}, attempt {verdict.attempt}: {verdict.status}"
    print_error(text if verdict.reason is None else f"{text}: {verdict.reason}")
    return 0 if verdict.status in (VerdictStatus.COMPLETE, VerdictStatus.NOT_NEEDED) else 1


def _turn_holder(turn: int) -> str | None:
    """Take the turn of this machine's agents; return its other holder, or None on success."""
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another job of a fleet is on this machine"
    return None


def _machine_holder(lock: Path) -> str | None:
    """Return which other rater has the machine now."""
    try:
        with machine_lock(lock, f"rater fleet agent, process {os.getpid()}"):
            return None
    except MachineTakenError as error:
        return f"another rater holds it; {error.first}"
    except RaterError:
        return None  # `rater run` says what is wrong


def _follow_start(
    child: subprocess.Popen[bytes], lock: Path, mark_waiting: Callable[[str], None]
) -> str | None:
    """Say for whom `rater run` waits until it has the machine; nothing wakes the agent after that.

    Two agents that begin at one time both see the machine free, and one of them waits there.
    Returns the rater that the run waited for until its end; None: the run had the machine.
    """
    until_s, waited_for = time.monotonic() + _START_S, None
    while child.poll() is None and (waited_for or time.monotonic() < until_s):
        holder = _lock_text(lock)
        holder_pid = _holder_pid(holder)
        if holder_pid == child.pid:
            break
        is_there = holder_pid is not None and Path(f"/proc/{holder_pid}").exists()
        if is_there and holder_pid != os.getpid() and waited_for is None:
            waited_for = holder
            mark_waiting(f"another rater holds it; {holder}; waits since {utc_timestamp()}")
        time.sleep(_START_LOOK_S)
    if waited_for is None:
        return None
    mark_waiting("")
    return None if _holder_pid(_lock_text(lock)) == child.pid else waited_for


def _lock_text(lock: Path) -> str:
    """Return what the last holder of a lock wrote into it."""
    with suppress(OSError):
        return printable(lock.read_text(errors="replace").strip(), 400)
    return ""


def _holder_pid(text: str) -> int | None:
    """Return the process that a lock names."""
    named = _HOLDER.search(text)
    return int(named[1]) if named else None


def this_rater() -> tuple[str, ...]:
    """Return how rater is started as it was now: nothing is looked for in the directory."""
    return (sys.executable, "-P", "-m", "rater")


def _one_line_output(text: str) -> str | None:
    """Return what `rater run` said, in one line, without its warnings."""
    lines = [line.strip().removeprefix("rater: ") for line in text.splitlines()]
    messages = [line for line in lines if line and not line.startswith("warning:")]
    return printable(" ".join(messages or lines), 400) or None


# -- Signals that end the agent: held, told to its one child, so that it publishes what there is ---

_ENDING = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class JobSignals:
    """The first signal that came, and the child that is told of it."""

    def __init__(self) -> None:
        self.first: str | None = None  # USR1, TERM
        self.child: subprocess.Popen[bytes] | None = None

    def take(self, number: int, _: FrameType | None) -> None:
        """Keep a signal: a handler."""
        self.first = self.first or signal.Signals(number).name.removeprefix("SIG")
        if self.child is not None:
            self.child.terminate()


@contextmanager
def ending_signals() -> Iterator[JobSignals]:
    """Hold SIGUSR1, SIGTERM, SIGINT and SIGHUP."""
    signals = JobSignals()
    before = {it: signal.signal(it, signals.take) for it in _ENDING}
    try:
        yield signals
    finally:
        for it, old in before.items():
            signal.signal(it, old)
