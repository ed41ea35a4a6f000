"""Copies that live until they were looked at, however long that takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rater.record.events import Sampled
from rater.record.samples import Samples
from rater.run.supervise import job


def until_looked_at(folder: Path, patch: pytest.MonkeyPatch, copies: int) -> str:
    """Let each copy that reads the pipe `go.COPY` go on once it was sampled.

    Returns how a shell does that. For samples that are made once a run of a copy.
    """

    class Opening(Samples):
        def take(self, sample: Sampled) -> None:
            super().take(sample)
            (folder / f"go.{sample.copy}").write_text("go on\n")

    patch.setattr(job, "Samples", Opening)
    for copy in range(copies):
        os.mkfifo(folder / f"go.{copy}")
    # The next run may open the pipe before the writer of this one has closed it: it is at its end.
    return f"until read line < {folder}/go.$RATER_COPY; do :; done"
