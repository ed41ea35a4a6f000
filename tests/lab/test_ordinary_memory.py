"""Memory under a layout behaves as ordinary memory, whatever pages it lies in."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.lab.layout.layout import Category, PageDirective, PageWindow, parse_pages
from rater.lab.layout.pools import machine_problems
from rater.lab.layout.preload import (
    PageSetup,
    build_library,
    latest_reports,
    look_at,
    read_reports,
)
from tests.support.places import CHECKOUT

SOURCES = CHECKOUT / "tests/support"
POOLS = Path("/sys/kernel/mm/hugepages")
MB = 1 << 20
RESERVES = "heap=268435456 mmap=268435456 strict process=0000000000"
EVERY_SECOND = "m21=" + ",".join(f"{page}+1" for page in range(0, 32, 2))
# What the library is told; pages of which pool that takes, and how many.
LAYOUTS = {
    "base": (RESERVES, 0, 0),
    "huge": (f"{RESERVES} h21=0+128 m21=0+128", 0, 0),
    "half": (f"{RESERVES} h21=0+2,4+2 {EVERY_SECOND}", 0, 0),
    "pool": (f"{RESERVES} hugetlb h21=0+16 m21=0+30", 2048, 46),
    "half of pool": (f"{RESERVES} hugetlb h21=0+2,4+2 {EVERY_SECOND}", 2048, 20),
    "1 GB": (
        "heap=1073741824 mmap=1073741824 strict process=0000000000 h30=0+1 m30=0+1",
        1 << 20,
        2,
    ),
}
GIANT = pytest.param("1 GB", True, marks=pytest.mark.slow)  # clears and copies whole pages
_NONE = machine_problems(parse_pages("2M"), pooled=False, root=Path("/"), planned={})


@contextmanager
def pages_of_pool(kilobytes: int, pages: int) -> Iterator[None]:
    """Skip where a pool has not so many pages free; one test at a time takes them.

    Pools are the machine's: a test that set them would change what runs of other tests, and of
    other people, are made under.
    """
    pool = POOLS / f"hugepages-{kilobytes}kB"
    with Path("/tmp/rater-tests-pools.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if pages and not (pool.is_dir() and int((pool / "free_hugepages").read_text()) >= pages):
            pytest.skip(f"{pages} free pages are needed: echo {pages} > {pool}/nr_hugepages")
        yield


@pytest.fixture(scope="module", name="place")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("programs")
    compiled("-shared", "-fPIC", SOURCES / "other_malloc.c", "-o", place / "libother.so")
    compiled(SOURCES / "ordinary_memory.c", "-o", place / "plain", "-lpthread")
    other = ("-L", place, "-lother", f"-Wl,-rpath,{place}")
    compiled(SOURCES / "ordinary_memory.c", "-o", place / "other", "-lpthread", *other)
    return place


@pytest.fixture(scope="module", name="libraries")
def _libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    cache = tmp_path_factory.mktemp("cache")
    return {split: build_library(cache, split=split).executable for split in (False, True)}


def compiled(*words: object) -> bool:
    done = subprocess.run(
        ["cc", "-O1", *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.returncode == 0


def under(program: Path, library: Path, words: str, *arguments: str) -> tuple[str, str]:
    """Return what a program prints, and what the library says went wrong."""
    reports = program.parent / "reports"
    reports.mkdir(exist_ok=True)
    (reports / "none").unlink(missing_ok=True)
    done = subprocess.run(
        [program, *arguments],
        env={"LD_PRELOAD": str(library), "RATER_PAGES": f"{words} report={reports}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    told = [
        report.troubles
        for report in latest_reports(read_reports(reports / "none"))
        if not report.forked
    ]
    return done.stdout, " ".join(told)


@cache
def by_itself(program: Path, *arguments: str) -> str:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=True, env={}
    ).stdout


@pytest.mark.parametrize(
    ("layout", "split"),
    [*((it, False) for it in LAYOUTS if it != "1 GB"), ("half", True), ("pool", True), GIANT],
)
def test_a_program_sees_no_difference_whatever_pages_its_memory_lies_in(
    place: Path, libraries: dict[bool, Path], layout: str, split: bool
) -> None:
    words, size, pages = LAYOUTS[layout]
    if "21=" in words and not pages and _NONE:
        pytest.skip(f"no huge pages here: {_NONE}")
    words += " large=131072" if split else ""
    with pages_of_pool(size, pages):
        found, told = under(place / "plain", libraries[split], words)
    assert found == by_itself(place / "plain")
    assert ("mprotect:_huge_pages_of_the_pool" in told) == bool(pages), told
    assert ("turned_transparent_huge_pages_off" in told) == ("21=" in words and not pages), told


@pytest.mark.parametrize(
    ("layout", "split"), [("base", True), ("pool", False), ("pool", True), GIANT]
)
def test_a_program_linked_with_another_malloc_keeps_its_blocks(
    place: Path, libraries: dict[bool, Path], layout: str, split: bool
) -> None:
    words, size, pages = LAYOUTS[layout]
    words += " large=131072" if split else ""
    with pages_of_pool(size, pages):
        found, _ = under(place / "other", libraries[split], words)
    assert found == by_itself(place / "other")


@pytest.mark.parametrize(
    "linked",
    [
        "-ljemalloc",
        "-Wl,--whole-archive -l:libjemalloc.a -Wl,--no-whole-archive -lm -lstdc++",
        "-ltcmalloc_minimal",
        "-lmimalloc",
    ],
)
def test_mallocs_that_people_have_give_zeros_from_the_pool(
    place: Path, libraries: dict[bool, Path], linked: str
) -> None:
    program = place / f"linked{abs(hash(linked))}"
    if not compiled(SOURCES / "ordinary_memory.c", "-o", program, "-lpthread", *linked.split()):
        pytest.skip(f"cannot be linked here: {linked}")
    for layout in ("base", "pool"):
        words, size, pages = LAYOUTS[layout]
        with pages_of_pool(size, pages):
            found, _ = under(program, libraries[True], f"{words} large=131072", "zeros")
        assert found == by_itself(program, "zeros"), layout


@pytest.mark.slow
@pytest.mark.parametrize("linked", ["", "-ljemalloc", "-ltcmalloc_minimal"])
def test_every_byte_is_kept_beside_threads_and_forks(
    place: Path, libraries: dict[bool, Path], linked: str
) -> None:
    program = place / f"stress{linked}"
    words = f"-lpthread {linked}"
    if not compiled(SOURCES / "stress.c", "-o", program, *words.split()):
        pytest.skip(f"cannot be linked here: {linked}")
    for layout, split in (("base", True), ("half of pool", False), ("pool", True)):
        words, size, pages = LAYOUTS[layout]
        with pages_of_pool(size, pages):
            words += " large=131072" if split else ""
            assert under(program, libraries[split], words, "4", "800", "3")[0] == "ok\n", layout


FORKS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int wrong = 0;
    char *block = malloc(100000);
    memset(block, 1, 100000);
    for (int i = 0, status; i < 40; i++) {
        if (fork() == 0) _exit(block[50000] != 1);
        wait(&status);
        wrong += status != 0;
        block[0] = 1;
    }
    printf("%d\n", wrong);
    return 0;
}
"""


def test_children_of_forks_have_what_their_parent_has_in_pages_of_1_gb(
    libraries: dict[bool, Path], tmp_path: Path
) -> None:
    (tmp_path / "forks.c").write_text(FORKS)
    assert compiled(tmp_path / "forks.c", "-o", tmp_path / "forks")
    words = "heap=1073741824 mmap=0 strict process=0000000000 h30=0+1"
    with pages_of_pool(1 << 20, 1):
        found, told = under(tmp_path / "forks", libraries[False], words)
    assert found == "0\n"
    assert "fork_of_pages_of_1_GB" in told


REST = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    memset(mmap(0, 24 << 20, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 1, 24 << 20);
    char *volatile block = malloc(8 << 20);
    memset(block, 1, 8 << 20);
    write(1, "x", 1);
    read(0, block, 1);
    free(block);
    memset(malloc(1 << 20), 1, 1 << 20);
    return 0;
}
"""


def test_what_the_layout_does_not_reach_is_measured_from_inside_and_from_outside(
    libraries: dict[bool, Path], tmp_path: Path
) -> None:
    (tmp_path / "rest.c").write_text(REST)
    assert compiled(tmp_path / "rest.c", "-o", tmp_path / "rest")
    windows = () if _NONE else (PageWindow(Category.HEAP, 2 * MB, 6 * MB, 2 * MB),)
    order = PageDirective(
        windows=windows,
        heap_bytes=256 * MB,
        mmap_bytes=256 * MB,
        split=False,
        pooled=False,
        strict=True,
    )
    setup = PageSetup({}, 2 * MB, tmp_path, libraries[False])
    with subprocess.Popen(
        [tmp_path / "rest"],
        env={"LD_PRELOAD": str(setup.library), "RATER_PAGES": order.library_text(str(tmp_path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        [begun] = latest_reports(read_reports(tmp_path / "none"))
        looked = look_at(begun, order, setup)
        child.communicate(b"x")
    [ended] = latest_reports(read_reports(tmp_path / "none"))
    assert (begun.there, ended.event) == (0, "exit")
    assert looked is not None
    for seen in (looked, ended):
        heap = seen.regions[0]
        assert 8 * MB < heap.there < 9 * MB
        assert (heap.touched, heap.large) == ((0, 0) if _NONE else (4 * MB, 4 * MB))
        assert seen.rest.shared == 24 * MB
        assert 100_000 < seen.rest.files < 8 * MB
        assert 24 * MB < seen.rest.there < 36 * MB
    assert 6 * MB < ended.rest.kept < 9 * MB
    ended_pid = replace(begun, pid=child.pid)
    assert look_at(ended_pid, order, setup) is None
