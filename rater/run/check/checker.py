"""The process that checks what copies wrote, seen from rater's side.

Patterns and comparisons hold the interpreter for long: in a thread of the
supervisor they would delay what it does for the copies, and nothing could end them.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rater.plan.suite.model import Expected, Metric
from rater.run.check import checker_main as judge_program
from rater.run.copies.gate import high_pipe
from rater.run.copies.guard import MARKER, Helpers
from rater.run.host.cpu_time import process_cpu_s

# CPU time that the output of one copy may take; wall time would blame it for a full machine.
LIMIT_S = 60.0
LIMIT_BYTES_PER_S = 1e6  # a slow text comparison is several times faster
AFTER_STOP_S = 1.0  # once the run is to stop, what is quick is still judged
_LOOK_S = 0.1
_START_S = 10.0
_BLOCK = 1 << 16
_LIFE_FD = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """What a benchmark's copies are held to."""

    expected: tuple[Expected, ...]
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class Paper:
    """What one copy handed in."""

    rules: Rules
    directory: str
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with it, in words, or else what it reports (name and value)."""

    detail: str | None
    metrics: tuple[tuple[str, float], ...] = ()


class Checker:
    """A process for checking, started when needed; not to be used by two threads at a time.

    Its process is entered into `helpers`: it is no leftover of a copy. Where `stopped`
    tells that the run is to end, so does the checking. Use as a context manager, or `close`.
    """

    def __init__(
        self, helpers: Helpers | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._helpers = Helpers() if helpers is None else helpers
        self._stopped = stopped
        self._stopped_s: float | None = None  # time.monotonic() when `stopped` was first seen
        self._process: _Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Have the process there and waiting; where it cannot be, `check` will say so."""
        if self._process is not None:
            return
        with suppress(OSError):
            self._process = _Process(self._helpers)
            deadline = time.monotonic() + _START_S
            while not self._process.ready and time.monotonic() < deadline and not self.gives_up():
                if not self._process.exchange():
                    self.close()
                    return

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def check(self, papers: Sequence[Paper]) -> list[Finding | None]:
        """Look through what copies handed in; None: not before the run was stopped.

        What takes too long is found wrong for that, and the next is looked at.
        """
        work = [paper for paper in papers if paper.rules.expected or paper.rules.metrics]
        found: list[Finding] = []
        while len(found) < len(work) and not self.gives_up():
            found += self._check_some(work[len(found) :])
        looked_at = iter(found)
        return [
            next(looked_at, None) if paper.rules.expected or paper.rules.metrics else Finding(None)
            for paper in papers
        ]

    def _check_some(self, papers: Sequence[Paper]) -> list[Finding]:
        """Check as many as the process lives for, or until the run is stopped."""
        try:
            process = self._process = self._process or _Process(self._helpers)
        except OSError as error:
            said = f"no process could be started to check it: {error.strerror}"
            return [Finding(said) for _ in papers]
        process.hand_in(papers)
        found: list[Finding] = []
        begin_s, limit_s = process.cpu_s(), _limit_s(papers[0])
        while True:
            alive = process.exchange()
            for finding in process.take():
                found.append(finding)
                if len(found) == len(papers):
                    return found
                begin_s, limit_s = process.cpu_s(), _limit_s(papers[len(found)])
            if self.gives_up():
                self.close()
                return found
            if not alive:
                said = "ended the process that did it (out of memory?)"
            elif process.cpu_s() - begin_s > limit_s:
                said = f"took longer than {limit_s:.3g} s of CPU time"
            else:
                continue
            found.append(Finding(f"{process.at} {said}"))
            self.close()
            return found

    def gives_up(self) -> bool:
        """Tell whether what is not judged by now stays so: the run is to stop."""
        if self._stopped_s is None:
            if not self._stopped():
                return False
            self._stopped_s = time.monotonic()
        return time.monotonic() - self._stopped_s > AFTER_STOP_S


def _limit_s(paper: Paper) -> float:
    size = 0
    own = {"stdout": paper.stdout, "stderr": paper.stderr}
    names = [want.file for want in paper.rules.expected]
    names += [metric.file for metric in paper.rules.metrics]
    for name in names:
        with suppress(OSError):
            size += Path(own.get(name) or f"{paper.directory}/{name}").stat().st_size
    return LIMIT_S + size / LIMIT_BYTES_PER_S


class _Process:
    """One life of the process: pipes that never block, and what it said."""

    def __init__(self, helpers: Helpers) -> None:
        self.ready = False
        self.at = "checking its output"  # what it is busy with, in words
        self._helpers = helpers
        self._rules: dict[Rules, int] = {}  # what it knows, with its number there
        self._out = b""
        self._in = b""
        self._found: list[Finding] = []
        read_end, self._to = high_pipe()
        self._from, write_end = high_pipe()
        life, self._life = high_pipe()
        package_folder = Path(judge_program.__file__).parents[3]
        argv = [
            *(sys.executable, "-I", "-S", "-B", "-X", f"utf8={sys.flags.utf8_mode}"),
            *(judge_program.__file__, str(package_folder), str(_LIFE_FD)),
        ]
        # The marker is for what has to die: this process ends by itself, and may outlive a phase.
        environment = {name: value for name, value in os.environ.items() if name and name != MARKER}
        try:
            with helpers.lock:
                self._pid = os.posix_spawn(
                    sys.executable,
                    argv,
                    environment,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, read_end, 0),
                        (os.POSIX_SPAWN_DUP2, write_end, 1),
                        (os.POSIX_SPAWN_DUP2, life, _LIFE_FD),
                        (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
                    ],
                    # Ctrl-C and Ctrl-Z at the terminal are not for it. No session of its own:
                    # the kernel may give a session as much as all copies together (autogroups).
                    setpgroup=0,
                    setsigmask=(),
                )
                helpers.pids.add(self._pid)
        except BaseException:
            for end in (self._to, self._from, self._life):
                os.close(end)
            raise
        finally:
            for end in (read_end, write_end, life):
                os.close(end)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)

    def hand_in(self, papers: Sequence[Paper]) -> None:
        """Queue what is to be checked, behind rules that were not heard of before."""
        lines: list[dict[str, object]] = []
        for paper in papers:
            key = self._rules.get(paper.rules)
            if key is None:
                key = self._rules[paper.rules] = len(self._rules)
                expected = [astuple(want) for want in paper.rules.expected]
                metrics = [astuple(metric) for metric in paper.rules.metrics]
                lines.append({"rules": key, "expected": expected, "metrics": metrics})
            where = {"directory": paper.directory, "stdout": paper.stdout, "stderr": paper.stderr}
            lines.append({"rules": key, **where})
        self._out += "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    def exchange(self) -> bool:
        """Wait a moment for news and take them in; return False when the process is gone."""
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        if self._out:
            poll.register(self._to, select.POLLOUT)
        for end, _ in poll.poll(_LOOK_S * 1000):
            if end == self._to:
                try:
                    self._out = self._out[os.write(end, self._out[:_BLOCK]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    self._out = b""  # what it said before it ended is still to be read
            else:
                block = os.read(end, _BLOCK)
                if not block:
                    return False
                *lines, self._in = (self._in + block).split(b"\n")
                for line in lines:
                    self._heard(line)
        return True

    def _heard(self, line: bytes) -> None:
        said = json.loads(line)
        if "at" in said:
            self.at = said["at"]
        elif "ready" in said:
            self.ready = True
        else:
            metrics = tuple((name, value) for name, value in said["metrics"])
            self._found.append(Finding(said["detail"], metrics))

    def take(self) -> list[Finding]:
        """Return what was found since the last call."""
        taken, self._found = self._found, []
        return taken

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used so far."""
        return process_cpu_s(self._pid)

    def end(self) -> None:
        """Kill and reap it."""
        for end in (self._to, self._from, self._life):
            os.close(end)
        self._helpers.end(self._pid)
