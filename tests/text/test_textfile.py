"""Files of suites, layouts and tables."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rater.text.documents import read_text


def test_a_file_that_has_nothing_to_be_read_yet_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    # /proc/kmsg is such a regular file; to read it would take the kernel's messages from others.
    monkeypatch.setattr(stat, "S_ISREG", stat.S_ISFIFO)
    writer = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(OSError, match="Resource temporarily unavailable"):
            read_text(path)
    finally:
        os.close(writer)
