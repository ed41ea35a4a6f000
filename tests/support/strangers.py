"""Another user of the machine, with a shell; only root can be one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

STRANGER = 1234
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def stranger_does(script: str, folder: Path) -> None:
    """Let the other user run a shell script in a folder."""
    subprocess.run(
        ["/bin/sh", "-ec", script],
        cwd=folder,
        user=STRANGER,
        group=STRANGER,
        extra_groups=(),
        check=True,
        timeout=10,
    )


@contextmanager
def stranger_keeps(script: str, folder: Path) -> Iterator[None]:
    """Let the other user do the same again and again, as fast as it goes."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"while :; do {script}; echo; done"],
        cwd=folder,
        user=STRANGER,
        group=STRANGER,
        extra_groups=(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()  # once it was done
    drain = Thread(target=process.stdout.read)
    drain.start()
    try:
        yield
    finally:
        process.kill()
        process.wait()
        drain.join()
        process.stdout.close()


@contextmanager
def stranger_holds(file: Path) -> Iterator[None]:
    """Let the other user hold a shared lock on a file, as far as it may be opened."""
    process = subprocess.Popen(
        ["flock", "--shared", str(file), "sh", "-c", "echo held; read end"],
        user=STRANGER,
        group=STRANGER,
        extra_groups=(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    process.stdout.readline()  # "held", or why not
    try:
        yield
    finally:
        process.communicate(b"\n", timeout=10)


def give(path: Path) -> None:
    """Make something the other user's, a symbolic link itself and not what it names."""
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
