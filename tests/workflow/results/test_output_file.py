"""The file of `-o`: there whole or not at all, and nothing of it is left in its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rater.workflow.results import points
from rater.workflow.results.points import write_output


@pytest.mark.parametrize("nameless", [True, False], ids=["as it is", "without O_TMPFILE"])
def test_a_file_has_no_name_until_it_is_whole_where_the_file_system_lets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    found: list[list[str]] = []
    real = points._give_mode

    def look(*args: Any) -> None:
        real(*args)
        found.append([path.name[:7] for path in tmp_path.iterdir()])

    monkeypatch.setattr(points, "_give_mode", look)
    if not nameless:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # with O_WRONLY: EISDIR, as NFS says
    for text in (b"first", b"second"):
        write_output(tmp_path / "page.html", text)
        assert (tmp_path / "page.html").read_bytes() == text
    of_nobody = [] if nameless else [".rater-"]
    assert [sorted(names) for names in found] == [of_nobody, sorted([*of_nobody, "page.ht"])]
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
