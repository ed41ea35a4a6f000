"""Reports of the preloaded library, and regions measured from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.lab.layout import (
    EVERYTHING,
    Category,
    PageDirective,
    PageWindow,
    clip_windows,
    page_windows,
    parse_pages,
    pool_pages,
    pool_pages_text,
)
from rater.lab.pools import gains_rights, limit_problem, machine_problems, reserves
from rater.lab.preload import latest_reports, measured, page_regions, parse_report, read_reports

MB = 1 << 20
HUGE = 2 * MB
GB = 1 << 30
LINE = (
    "1 exit 12 11 500 30 0 2 0 0 - heap=200000,8200000,6291456,6291456,4194304,4194304,0,0 "
    "mmap=40000000,80000000,0,0,0,0,0,0 static=0,0,0,0,0,0,0,0"
)


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def order(text: str, extent: int = 6 * MB, *, pooled: bool = False) -> PageDirective:
    windows = page_windows(parse_pages(text), {Category.HEAP: extent}, HUGE)
    return PageDirective(windows, 128 * MB, 1 << 30, split=False, pooled=pooled, strict=True)


def test_a_report_says_what_the_regions_of_a_process_have() -> None:
    found = parse_report(LINE)
    assert found is not None
    assert (found.event, found.pid, found.group, found.began_ns, found.forks) == (
        *("exit", 12, 11, 500),
        2,
    )
    heap, mmap = page_regions([found], order("heap:2M@0-4M"), HUGE)
    assert (heap.category, heap.planned_bytes, heap.huge_bytes) == ("heap", 4 * MB, 4 * MB)
    assert heap.page_bytes == ((4096, 2 * MB), (HUGE, 4 * MB))
    assert (mmap.category, mmap.planned_bytes, mmap.resident_bytes) == ("mmap", 0, 0)
    assert page_regions([], order("50%"), HUGE) == ()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        LINE.replace("1 exit", "2 exit", 1),
        LINE + " more=1",
        LINE.replace("heap=", "peah="),
        LINE.replace("6291456", "-1", 1),
        LINE.replace("6291456", "9" * 30, 1),
        LINE.replace(" 12 ", " 1_2 ", 1),
    ],
)
def test_what_a_copy_wrote_that_is_no_report_is_passed_by(line: str) -> None:
    assert parse_report(line) is None


def test_reports_are_read_of_regular_files_only(tmp_path: Path) -> None:
    file = tmp_path / "0"
    file.write_text(f"{LINE.replace('exit', 'begin')}\nnonsense\n{LINE}\n")
    assert [it.event for it in latest_reports(read_reports(file))] == ["exit"]
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "none"):
        assert list(read_reports(tmp_path / name)) == []


def test_regions_are_measured_by_runs_of_pages_and_windows() -> None:
    windows = order("heap:2M@0-4M").of(Category.HEAP)
    base = 0x200000
    runs = ((base, base + HUGE, True), (base + HUGE, base + HUGE + 4096, False))
    seen = measured(
        (*runs, (base + 8 * MB, base + 10 * MB, True)), base, base + 64 * MB, windows, HUGE
    )
    assert (seen.extent, seen.there) == (10 * MB, 4 * MB + 4096)
    assert (seen.touched, seen.large, seen.stray) == (4 * MB, HUGE, HUGE)


def test_the_library_is_told_windows_in_pages_of_their_size() -> None:
    words = order("heap:2M@2M-8M+1G@1G-2G").words("/x")
    reserved = "heap=134217728 mmap=1073741824"
    assert words == f"{reserved} strict process=0000000000 h21=1+3 h30=1+1 report=/x"


def test_windows_of_a_pool_end_where_the_data_does() -> None:
    everything = (PageWindow(Category.HEAP, 0, EVERYTHING, HUGE),)
    assert [it.end for it in clip_windows(everything, {Category.HEAP: 5 * MB}, HUGE)] == [6 * MB]
    assert list(clip_windows(everything, {Category.HEAP: 0}, HUGE)) == []


def test_a_small_program_takes_a_page_of_1_gb_for_its_heap_and_one_for_its_mappings() -> None:
    giant = [PageWindow(it, 0, EVERYTHING, GB) for it in Category]
    windows = list(clip_windows(giant, dict.fromkeys(Category, 32 * MB), HUGE))
    assert [(it.category, it.pages) for it in windows] == [(Category.HEAP, 1), (Category.MMAP, 1)]
    assert pool_pages(windows, HUGE, pooled=False) == {GB: 2}
    assert pool_pages_text(windows, HUGE, pooled=False) == "heap 1, mmap 1"
    assert pool_pages_text(windows[:1], HUGE, pooled=False) == ""
    large_bss = list(clip_windows(giant, dict.fromkeys(Category, GB + 32 * MB), HUGE))
    assert [it.pages for it in large_bss] == [2, 2, 1]


def test_static_data_in_pages_of_the_usual_size_has_the_one_it_ends_in() -> None:
    static = [PageWindow(Category.STATIC, 0, EVERYTHING, HUGE)]
    assert [it.pages for it in clip_windows(static, {Category.STATIC: 3 * MB}, HUGE)] == [2]


POOL = "sys/kernel/mm/hugepages/hugepages-2048kB"
THP = "sys/kernel/mm/transparent_hugepage"


@pytest.mark.parametrize(
    ("layout", "pooled", "changes", "why"),
    [
        ("0%", False, {"enabled": "always madvise [never]"}, None),
        ("50%", False, {}, None),
        ("50%", False, {"enabled": "always madvise [never]"}, "setting thp is never"),
        (
            "2M",
            False,
            {"hugepages-2048kB/enabled": "always inherit madvise [never]"},
            "thp.2048kB is",
        ),
        (
            "64k",
            False,
            {},
            "thp.64kB is never; as root: rater sweep --axis thp.64kB=madvise",
        ),
        (
            "64k",
            False,
            {"hugepages-64kB/enabled": "always inherit [madvise] never"},
            "transparent pages of 2M are on",
        ),
        ("32k", False, {}, "no transparent pages of 32k (it has: 64k, 2M)"),
        ("2M@0-2M+64k@2M-4M", False, {}, "pages of 64k and 2M at once"),
        ("1G", False, {}, "no pool of pages of 1G (it has: 2M); add hugepagesz=1G"),
        ("50%", True, {}, None),
    ],
)
def test_a_machine_that_does_not_give_the_pages_says_why(
    tmp_path: Path, layout: str, pooled: bool, changes: dict[str, str], why: str | None
) -> None:
    files = {
        "enabled": "always [madvise] never",
        "hpage_pmd_size": str(HUGE),
        "hugepages-64kB/enabled": "always inherit madvise [never]",
        "hugepages-2048kB/enabled": "always [inherit] madvise never",
    } | changes
    write_tree(tmp_path, {f"{THP}/{name}": text for name, text in files.items()})
    write_tree(tmp_path, {f"{POOL}/nr_hugepages": "0"})
    found = machine_problems(parse_pages(layout), pooled=pooled, root=tmp_path, planned={})
    assert ("; ".join(found) == "") if why is None else (why in "; ".join(found))


def test_reserves_follow_memory_or_what_the_user_says(tmp_path: Path) -> None:
    write_tree(
        tmp_path, {"proc/meminfo": "MemTotal: 8388608 kB\n", f"{THP}/hpage_pmd_size": str(HUGE)}
    )
    assert reserves(None, {}, tmp_path) == (6 << 30, 12 << 30)
    assert reserves(256 * MB, {}, tmp_path)[0] == 384 * MB


def test_limits_and_rights_that_are_in_the_way_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert limit_problem(1 << 30, 1 << 30) is None
    monkeypatch.setattr("resource.getrlimit", lambda _: (2 << 30, -1))
    assert "ulimit -v" in (limit_problem(1 << 30, 1 << 30) or "")
    program = tmp_path / "program"
    program.write_bytes(b"")
    assert gains_rights(program) is None
    program.chmod(0o4755)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert gains_rights(program) == "is setuid"


def test_layouts_of_shares_need_sizes() -> None:
    with pytest.raises(InputError):
        parse_pages("heap:")
