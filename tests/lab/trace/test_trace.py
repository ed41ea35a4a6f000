"""A real program under the tracer: data of known size, referred to in a known order."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rater.errors import InputError, RunError
from rater.lab.preload import build_library
from rater.lab.trace import (
    TraceAnalysis,
    TraceRun,
    build_tools,
    find_valgrind,
    read_trace,
    run_traced,
)
from rater.run.copies.launch import CopySpec
from rater.run.programs.child_process import Limits

HEAP, MMAP, STATIC = 0, 1, 2
MB = 1 << 20
PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static char table[8 << 20];
int main(int argc, char **argv)
{
    volatile char *array = malloc(12 << 20);          /* a large block: 6 huge pages, or 7 */
    for (int round = 0; round < 3; round++)
        for (int at = 0; at < 12 << 20; at += 4096) array[at]++;
    char *blocks[2000];
    for (int i = 0; i < 2000; i++) { blocks[i] = malloc(1000); blocks[i][0] = 1; }
    for (int at = 0; at < 8 << 20; at += 4096) table[at] = 1;
    if (fork() == 0) { memset((void *)array, 1, 12 << 20); _exit(0); }
    wait(NULL);
    return argc > 1 ? atoi(argv[1]) : blocks[7][0] + table[4096] - 2;
}
"""

pytestmark = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind, which traces, is not installed"
)


def traced(tmp_path: Path, cache: Path, *words: str, time_s: float = 100) -> TraceRun:
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-o", tmp_path / "program", source], check=True)
    spec = CopySpec((), {b"PATH": os.fsencode(os.environ["PATH"])}, str(tmp_path), f"{tmp_path}/")

    def running(wrap: tuple[str, ...], doing: Any) -> TraceRun:
        argv = (*wrap, str(tmp_path / "program"), *words)
        found: TraceRun = doing(CopySpec(argv, spec.environment, spec.directory, spec.output))
        return found

    tools = build_tools(find_valgrind(), cache)
    library = build_library(cache, split=True).executable
    mappings = ("12,12,12,12,12,12", "21,21,21,12,12,12")
    analysis = TraceAnalysis(("1:15:64:4", "2:7:1536:12"), mappings, threads=2)
    return run_traced(tools, running, analysis, Limits(time_s, None), library)


def test_data_is_told_apart_and_counted_page_by_page(tmp_path: Path, page_cache: Path) -> None:
    found = traced(tmp_path, page_cache, "3")
    assert found.status == 3
    trace = read_trace(
        found.document,
        huge_bytes=2 * MB,
        told=True,
        elapsed_s=found.elapsed_s,
        native_s=None,
        tlb="",
        engine="",
        name="program",
        command=(),
        suite=None,
        size=None,
    )
    base, huge = trace.of_size(4096), trace.of_size(2 * MB)
    assert base.pages[MMAP] == base.faults[MMAP] == 3072
    assert huge.pages[MMAP] == 6
    # Twice more around, with all the others in between: beyond 1536, where a bin begins.
    far = sum(count for distance, count in base.histogram[MMAP] if distance >= 1536)
    assert far == 2 * 3072
    # 2000 blocks of 1008 bytes, of which some fit into what was free before the range began
    assert 440 <= base.pages[HEAP] <= 500, base
    assert huge.pages[HEAP] == 1
    # .bss begins anywhere: 3 whole huge pages lie in it, the rest is small
    assert base.pages[STATIC] == 3 * 512
    assert sum(base.pages[STATIC : STATIC + 2]) >= 2048
    assert trace.references[MMAP] == 3 * 2 * 3072  # a load and a store
    assert (trace.programs, trace.processes) == (1, 1)  # its child is not traced
    walks = [it.walks_base for it in trace.regions if it.category == "mmap"]
    assert walks == [3 * 512] * 6


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path, page_cache: Path) -> None:
    with pytest.raises(RunError, match="--timeout"):
        traced(tmp_path, page_cache, time_s=0.05)


def a_valgrind(folder: Path, version: str) -> dict[str, str]:
    program = folder / "bin" / "valgrind"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return {"PATH": str(program.parent)}


def test_a_missing_old_or_headless_valgrind_is_refused_with_the_package(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not in PATH: install valgrind with its headers"):
        find_valgrind({"PATH": str(tmp_path)})
    environment = a_valgrind(tmp_path / "old", "valgrind-3.14.0")
    with pytest.raises(InputError, match=r"wants valgrind 3\.15 on"):
        find_valgrind(environment, tmp_path)
    environment = a_valgrind(tmp_path / "bare", "valgrind-3.19.0")
    with pytest.raises(InputError, match=r"headers for tools not: .*valgrind-devel"):
        find_valgrind(environment, tmp_path)


def test_a_valgrind_of_another_prefix_is_found_whole(tmp_path: Path) -> None:
    environment = a_valgrind(tmp_path, "valgrind-3.22.0")
    for name in (
        "include/valgrind/pub_tool_tooliface.h",
        "lib64/valgrind/libcoregrind-amd64-linux.a",
        "lib64/valgrind/libcoregrind-arm64-linux.a",
        "libexec/valgrind/none-amd64-linux",
        "libexec/valgrind/none-arm64-linux",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = find_valgrind(environment, tmp_path)
    assert (found.version, found.parts) == ("3.22.0", tmp_path / "libexec/valgrind")
    assert found.libraries == tmp_path / "lib64/valgrind"
