"""Fixtures: every test has its own lock, database and cache, and meets no other rater."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATER_LOCK", str(tmp_path / "rater.lock"))
    monkeypatch.setenv("RATER_DB", str(tmp_path / "rater.db"))
    monkeypatch.setenv("RATER_CACHE", str(tmp_path / "cache"))
