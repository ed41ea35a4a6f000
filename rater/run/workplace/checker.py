"""The process that checks outputs of copies, seen from rater's side."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

import rater
from rater.plan.request import DEFAULT_CHECK_LIMIT_S
from rater.record.run import Validity
from rater.run.host.foreign_load import process_cpu_s
from rater.run.launcher.guard import MARKER, Helpers
from rater.run.launcher.limits import KernelKills, limits_at_end, pipe_above_gate_descriptors
from rater.run.workplace import checker_main
from rater.run.workplace.compare_output import CheckRequest, CheckResult, CheckRules, written_bytes

# Patterns and comparisons hold the interpreter for long: in a thread of the
# supervisor they would delay its work for the copies, and nothing could end them.

# CPU time that the output of one copy may take; so much wall time would blame a full machine on it.
LIMIT_S = 60.0
LIMIT_BYTES_PER_S = 1e6  # a slow text comparison is several times faster
AFTER_STOP_S = 1.0  # once the run is to stop, outputs are judged for so long
_POLL_S = 0.1
_START_S = 10.0
_BLOCK = 1 << 16
_LIFE_FD = 3
# The folders of rater and msgspec: the process begins without any package.
_FOLDERS = [
    str(Path(package_file or "").parents[1]) for package_file in (rater.__file__, msgspec.__file__)
]


class Checker:
    """A process for checking, started when needed; not to be used by two threads at a time.

    Its process is entered into `helpers`: it is no leftover of a copy. Once `stopped`
    is true the run is to end, and so does the checking. `wall_s` is what the output of one
    copy may take by the clock, longer for a large one: a process that is stopped, or waits for
    a dead disk, takes no CPU time. Use as a context manager, or `close`.
    """

    def __init__(
        self,
        helpers: Helpers | None = None,
        stopped: Callable[[], bool] = lambda: False,
        wall_s: float = DEFAULT_CHECK_LIMIT_S,
    ) -> None:
        self._helpers = Helpers() if helpers is None else helpers
        self._stopped = stopped
        self._wall_s = wall_s
        self._stopped_s: float | None = None  # time.monotonic() when `stopped` was first seen
        self._process: _Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the process; when it cannot be started, `check` reports that."""
        if self._process is not None:
            return
        with suppress(OSError):
            self._process = _Process(self._helpers)
            deadline_s = time.monotonic() + _START_S
            while not self._process.ready and time.monotonic() < deadline_s and not self.gives_up():
                if self._process.exchange() is None:
                    self.close()
                    return

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def check(self, requests: Sequence[CheckRequest]) -> list[CheckResult]:
        """Check outputs of copies; `Validity.UNCHECKED` for those not checked before the stop.

        An output whose check takes too long is wrong, and the next one is checked.
        """
        to_check = [request for request in requests if request.rules]
        results: list[CheckResult] = []
        while len(results) < len(to_check) and not self.gives_up():
            results += self._check_some(to_check[len(results) :])
        answers = iter(results)
        return [
            next(answers, CheckResult(Validity.UNCHECKED))
            if request.rules
            else CheckResult(Validity.NOT_CHECKED)
            for request in requests
        ]

    def _check_some(self, requests: Sequence[CheckRequest]) -> list[CheckResult]:
        try:
            process = self._process = self._process or _Process(self._helpers)
        except OSError as error:
            detail = f"no process could be started to check it: {error.strerror}"
            return [CheckResult(Validity.INVALID, detail) for _ in requests]
        process.send(requests)
        judged: list[CheckResult] = []
        begin_s, begin_cpu_s = time.monotonic(), process.cpu_s()
        while len(judged) < len(requests):
            answers = process.exchange()
            for answer in answers or ():
                judged.append(_judged(requests[len(judged)].rules, **answer))
                begin_s, begin_cpu_s = time.monotonic(), process.cpu_s()
            if len(judged) == len(requests):
                break
            limit_s = _limit_s(requests[len(judged)])
            wall_s = self._wall_s * limit_s / LIMIT_S
            cpu_s = process.cpu_s() - begin_cpu_s
            if self.gives_up():
                self.close()
                break
            if answers is None:
                detail = f"{process.at} ended the process that did it: {process.how_it_ended()}"
            elif cpu_s > limit_s:
                detail = f"{process.at} took longer than {limit_s:.3g} s of CPU time"
            elif time.monotonic() - begin_s > wall_s:
                detail = (
                    f"{process.at} took longer than {wall_s:.3g} s (--check-limit), {cpu_s:.1f} s "
                    "of it on a CPU: its process was stopped, or waits for a disk or a CPU"
                )
            else:
                continue
            judged.append(CheckResult(Validity.INVALID, detail))
            self.close()
            break
        return judged

    def gives_up(self) -> bool:
        """Tell whether outputs that are not judged by now remain so, as the run is to stop."""
        if self._stopped_s is None:
            if not self._stopped():
                return False
            self._stopped_s = time.monotonic()
        return time.monotonic() - self._stopped_s > AFTER_STOP_S


def _judged(rules: CheckRules, detail: str | None, metrics: Sequence[Sequence[Any]]) -> CheckResult:
    if detail is not None:
        return CheckResult(Validity.INVALID, detail)
    validity = Validity.VALID if rules.expected else Validity.NOT_CHECKED
    return CheckResult(validity, None, tuple((name, value) for name, value in metrics))


def _limit_s(request: CheckRequest) -> float:
    size_bytes = 0
    file_names = [expected.file for expected in request.rules.expected]
    for file_name in (*file_names, *(metric.file for metric in request.rules.metrics)):
        with suppress(OSError):
            size_bytes += written_bytes(request.path_of(file_name).stat())
    return LIMIT_S + size_bytes / LIMIT_BYTES_PER_S


class _Process:
    """One life of the process, with pipes that never block."""

    def __init__(self, helpers: Helpers) -> None:
        self.ready = False
        self.at = "checking its output"  # its present work, for messages
        self._helpers = helpers
        self._kills = KernelKills()
        self._rules: dict[CheckRules, int] = {}  # that it has, with their number there
        self._out = b""
        self._in = b""
        read_end, self._to = pipe_above_gate_descriptors()
        self._from, write_end = pipe_above_gate_descriptors()
        life, self._life = pipe_above_gate_descriptors()
        argv = [
            *(sys.executable, "-I", "-S", "-B", "-X", f"utf8={sys.flags.utf8_mode}"),
            *(checker_main.__file__, str(_LIFE_FD), *_FOLDERS),
        ]
        # The marker is for what has to die: this process ends by itself, and may outlive a phase.
        environment = {name: value for name, value in os.environ.items() if name and name != MARKER}
        try:
            self._pid = helpers.spawn(
                argv, environment, {0: read_end, 1: write_end, _LIFE_FD: life}
            )
        except BaseException:
            for end in (self._to, self._from, self._life):
                os.close(end)
            raise
        finally:
            for end in (read_end, write_end, life):
                os.close(end)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)

    def send(self, requests: Sequence[CheckRequest]) -> None:
        """Queue requests, a JSON object a line; rules go with the first request that has them."""
        for request in requests:
            rules = request.rules
            is_new = rules not in self._rules
            message = {
                "number": self._rules.setdefault(rules, len(self._rules)),
                "rules": msgspec.to_builtins(rules) if is_new else None,
                "directory": request.directory,
                "stdout": request.stdout,
                "stderr": request.stderr,
            }
            self._out += f"{json.dumps(message)}\n".encode()

    def exchange(self) -> list[dict[str, Any]] | None:
        """Wait a moment for results; return them, or None when the process is gone."""
        pipes = select.poll()
        pipes.register(self._from, select.POLLIN)
        if self._out:
            pipes.register(self._to, select.POLLOUT)
        answers = []
        for end, _ in pipes.poll(_POLL_S * 1000):
            if end == self._to:
                try:
                    self._out = self._out[os.write(end, self._out[:_BLOCK]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    self._out = b""  # the process has ended: its last answers are still to be read
            else:
                block = os.read(end, _BLOCK)
                if not block:
                    return None
                *lines, self._in = (self._in + block).split(b"\n")
                for answer in map(json.loads, lines):
                    if "at" in answer:
                        self.ready, self.at = True, answer["at"]
                    else:
                        answers.append(answer)
        return answers

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used so far."""
        return process_cpu_s(self._pid)

    def how_it_ended(self) -> str:
        """Describe how the process ended by itself."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        if ended.si_code == os.CLD_EXITED:
            return f"exit code {ended.si_status}"
        number, limits = ended.si_status, limits_at_end(self._pid)
        cause = self._kills.cause(number, self.cpu_s(), limits)
        return f"signal {number}" + (f" ({cause})" if cause else "")

    def end(self) -> None:
        """Kill and reap the process."""
        for end in (self._to, self._from, self._life):
            os.close(end)
        self._helpers.end(self._pid)
