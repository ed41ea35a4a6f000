"""One cache for all tests here: the programs are compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def page_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
