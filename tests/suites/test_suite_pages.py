"""Suite `pages`: what it shares stays the same, and what a machine lacks is left out."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rater.plan.suite import Benchmark, Suite
from rater.plan.suite_find import load_suite
from tests.support.calls import Rater

PAGES, MEMORY, MINI = load_suite("pages"), load_suite("memory"), load_suite("mini")
CHASE = "chase"
SHARED = [("memory", name) for name in ("gups-2g", "gups-8g", "gups-32g", "lu")]
SHARED += [("memory", f"stream-{kernel}") for kernel in ("copy", "scale", "add", "triad")]
SHARED += [("memory", CHASE), ("mini", "sparse"), ("mini", "sort")]


def named(suite: Suite, name: str) -> Benchmark:
    return next(one for one in suite.benchmarks if one.name == name)


@pytest.mark.parametrize(("suite", "name"), SHARED)
def test_sizes_train_and_ref_are_those_of_the_suite_that_has_the_program(
    suite: str, name: str
) -> None:
    theirs = named({"memory": MEMORY, "mini": MINI}[suite], "latency" if name == CHASE else name)
    ours = named(PAGES, name)
    assert ours.sources == theirs.sources
    for size in ("train", "ref"):
        here, there = (replace(it.sizes[size], reference_s=1.0) for it in (ours, theirs))
        assert here == there


def test_tables_of_test_are_beyond_the_reach_of_a_tlb_with_small_pages() -> None:
    mib = [
        int(named(PAGES, name).sizes["test"].commands[0].args[0])
        for name in ("gups-2g", "gups-8g", "gups-32g")
    ]
    assert mib == [64, 128, 512]  # 2048 entries of 4 kB reach 8 MiB


def test_without_java_its_benchmarks_are_left_out_with_the_reason(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("cc", "gcc", "sh", "as", "ld", "collect2"):
        found = shutil.which(program)
        if found:
            (tmp_path / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    status, out, err = rater("run", "pages", "--size", "test", "--copies", 1, "--dry-run")
    assert status == 0
    assert re.search(r"java.*java", out + err)
    assert "left out" in out + err
