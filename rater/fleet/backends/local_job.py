"""Start a job of the backends `local` and `ssh` and look at its end; a program without rater.

`python -I -S -B local_job.py FOLDER SECONDS|- NOTICE_S COMMAND...` returns when the job runs; the
process that stays behind writes FOLDER/end: a word of Slurm's and how the command ended. Before,
FOLDER/process has the pids and starts of both, the command's first, and FOLDER/boot of which boot.

`local_job.py --alive FOLDER` prints whether one of the two lives; `--signal USR1 FOLDER` signals
the command. Both are for other machines: a process is looked at where it is.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

AFTER_LIMIT_S = 5.0  # from SIGTERM to SIGKILL


def put(file: Path, text: str) -> None:
    """Write a file that is seen whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def start_of(pid: int) -> str:
    """Return when a process started, in clock ticks after boot."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def boot() -> str:
    """Return what tells this boot of the machine from others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def living(folder: Path) -> list[int]:
    """Return which processes of a job live here, the command's first; others have other starts."""
    pids = []
    if (folder / "boot").read_text().strip() == boot():
        for line in (folder / "process").read_text().splitlines():
            pid, start = line.split()
            try:
                if start_of(int(pid)) == start:
                    pids.append(int(pid))
            except OSError:  # it has ended
                pass
    return pids


def waited(pidfd: int, seconds: float | None) -> bool:
    """Tell whether the process ends within so many seconds."""
    return bool(select.select([pidfd], [], [], seconds)[0])


def end_of(pid: int, limit_s: float | None, notice_s: float) -> str:
    """Wait for a command, tell it before its limit, end it then; return how it ended."""
    pidfd, word = os.pidfd_open(pid), ""
    if limit_s is not None and not waited(pidfd, max(0.0, limit_s - notice_s)):
        os.kill(pid, signal.SIGUSR1)
        if not waited(pidfd, min(limit_s, notice_s)):
            word = "TIMEOUT"
            os.kill(pid, signal.SIGTERM)
            if not waited(pidfd, AFTER_LIMIT_S):
                os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"{word or ('CANCELLED' if number == signal.SIGTERM else 'FAILED')} signal {number}"
    code = os.WEXITSTATUS(status)
    return f"{word or ('FAILED' if code else 'COMPLETED')} exit status {code}"


def main(folder: Path, limit: str, notice_s: float, command: list[str]) -> None:
    """Be the job's first process, and the one that waits for it."""
    ready, ready_pipe = os.pipe()
    if os.fork():
        os.close(ready_pipe)
        os.read(ready, 1)  # the end of it as well: nothing runs then
        return
    os.setsid()
    pid = os.fork()
    if not pid:
        try:
            os.execv(command[0], command)
        finally:
            os._exit(127)
    put(folder / "boot", boot())
    put(folder / "process", f"{pid} {start_of(pid)}\n{os.getpid()} {start_of(os.getpid())}\n")
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    os.close(ready_pipe)
    put(folder / "end", end_of(pid, None if limit == "-" else float(limit), notice_s))


if __name__ == "__main__" and sys.argv[1] == "--alive":
    print("alive" if living(Path(sys.argv[2])) else "gone")
elif __name__ == "__main__" and sys.argv[1] == "--signal":
    for pid in living(Path(sys.argv[3]))[:1]:
        os.kill(pid, signal.Signals[f"SIG{sys.argv[2]}"])
elif __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:])
