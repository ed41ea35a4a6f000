"""`--pages` in runs: pools are filled, the preloaded library lays out and reports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.lab.layout.layout import (
    EVERYTHING,
    Category,
    PageDirective,
    PageWindow,
    backing_of,
    clip_windows,
    page_windows,
    parse_pages,
    pool_pages,
    pool_pages_text,
)
from rater.lab.layout.pools import (
    PoolNeed,
    fill_pools,
    gains_rights,
    limit_problem,
    machine_problems,
    reserves,
)
from rater.lab.layout.preload import (
    build_library,
    latest_reports,
    page_regions,
    parse_report,
    read_reports,
)
from rater.lab.layout.prepare import program_problems
from rater.settings.tuner import SettingsSession
from rater.system.errors import InputError
from rater.workflow.doctor import RunSettings
from tests.support.calls import Rater, query_rows
from tests.support.doctor_tree import NODES, change, make_doctor_tree
from tests.support.settings_tree import values

MORE_THAN_THERE_IS = "mmap=1099511627776 hugetlb strict m21=0+524288"
FREE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
GIANT = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages")
# A child writes what its parent wrote, which then writes it anew.
FORKS = """
import os
data = bytearray(b"1") * (3 << 20)
for _ in range(3):
    child = os.fork()
    if child == 0:
        for at in range(0, len(data), 4096):
            data[at] += 1
        os._exit(data[0] - ord("1"))
    data[0] = ord("1")
    print(os.waitpid(child, 0)[1] >> 8, flush=True)
print(os.system("exit 3") >> 8)
"""


@pytest.fixture(scope="module", name="library")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("cache"), split=False).executable


def under(library: Path, pages: str, *command: str) -> tuple[int, str]:
    done = subprocess.run(
        command,
        env={"LD_PRELOAD": str(library), "RATER_PAGES": pages},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_only_the_process_a_copy_begins_as_needs_the_pool_which_it_is_after_exec_too(
    library: Path,
) -> None:
    shell = "/bin/sh", "-c", "echo there"
    status, text = under(library, f"{MORE_THAN_THERE_IS} process=0000000000", *shell)
    assert (status, "this copy does not run" in text) == (125, True)
    assert under(library, f"{MORE_THAN_THERE_IS} process=0000000001", *shell) == (0, "there\n")
    # An empty pool of mappings can be had: then exec, and a child.
    words = "heap=8388608 mmap=8388608 hugetlb strict process=0000000000"
    told = "/bin/sh", "-c", "env | grep -o process=.*; exec env | grep -o process=.*"
    status, text = under(library, words, *told)
    assert (status, len(set(text.split())), "=0000000000" in text) == (0, 1, False)


@pytest.mark.skipif(
    not FREE.exists() or int(FREE.read_text()) < 10,
    reason="the pool of 2 MB pages has fewer than 10 free: echo 10 > /proc/sys/vm/nr_hugepages",
)
def test_children_of_forks_need_no_pages_of_the_pool(library: Path) -> None:
    pages = int(FREE.read_text())  # all of them
    words = f"heap={pages << 21} mmap=0 hugetlb strict h21=0+{pages} process=0000000000"
    assert under(library, words, sys.executable, "-c", FORKS) == (0, "1\n1\n1\n3\n")


@pytest.mark.skipif(
    not GIANT.exists() or GIANT.read_text() != "0\n", reason="not an empty pool of 1 GB"
)
def test_static_data_begins_where_a_page_of_1_gb_can(library: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "bss.c", tmp_path / "bss"
    source.write_text("static char data[3ul << 30]; int main(void) { return data[1ul << 30]; }\n")
    subprocess.run(
        ["cc", "-fno-pie", "-no-pie", "-mcmodel=large", str(source), "-o", str(program)], check=True
    )
    words = "heap=0 mmap=0 strict s30=0+1 process=0000000000"
    status, text = under(library, words, str(program))
    # Of an empty pool; where no page can begin it is "Invalid argument".
    assert (status, "Cannot allocate memory" in text) == (125, True), text


MB = 1 << 20
HUGE = 2 * MB
GB = 1 << 30
LINE = (
    "2 exit 12 11 500 30 0 2 0 0 - heap=200000,8200000,6291456,6291456,4194304,4194304,0,0 "
    "mmap=40000000,80000000,0,0,0,0,0,0 static=0,0,0,0,0,0,0,0 "
    "rest=9000000,0,2000000,6000000,500000"
)


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def order(text: str, extent: int = 6 * MB, *, pooled: bool = False) -> PageDirective:
    windows = page_windows(parse_pages(text), {Category.HEAP: extent}, HUGE)
    return PageDirective(
        windows=windows,
        heap_bytes=128 * MB,
        mmap_bytes=1 << 30,
        split=False,
        pooled=pooled,
        strict=True,
    )


def test_a_report_says_what_the_regions_of_a_process_have() -> None:
    report = parse_report(LINE)
    assert report is not None
    assert (report.event, report.pid, report.group, report.began_ns, report.forks) == (
        *("exit", 12, 11, 500),
        2,
    )
    heap, mmap, rest = page_regions([report], order("heap:2M@0-4M"), HUGE)
    assert (heap.category, heap.planned_bytes, heap.huge_bytes) == ("heap", 4 * MB, 4 * MB)
    assert heap.page_bytes == ((4096, 2 * MB), (HUGE, 4 * MB))
    assert (mmap.category, mmap.planned_bytes, mmap.resident_bytes) == ("mmap", 0, 0)
    assert (rest.category, rest.resident_bytes, rest.stray_bytes) == ("rest", 9000000, 0)
    assert rest.note == (
        "files 2 MB, shared 6 MB, stacks, reserves 1 MB; "
        "of the heap 0.5 MB were free and kept at the end"
    )
    assert page_regions([], order("50%"), HUGE) == ()


@pytest.mark.parametrize(
    ("known_extent", "extent"), [(5 * MB, 5 * MB), (None, 1 << 30), (2 << 30, 1 << 30)]
)
def test_data_in_a_page_of_1_gb_goes_as_far_as_it_was_known_to(
    known_extent: int | None, extent: int
) -> None:
    windows = (PageWindow(Category.HEAP, 0, GB, GB),)
    extents = () if known_extent is None else ((Category.HEAP, known_extent),)
    giant = replace(order("0%"), windows=windows, extents=extents)
    found = parse_report(LINE)
    assert found is not None
    region = replace(
        found.regions[0], extent=1 << 30, there=1 << 30, end=found.regions[0].base + (1 << 30)
    )
    heap = page_regions([replace(found, regions=(region, *found.regions[1:]))], giant, HUGE)[0]
    assert (heap.extent_bytes, heap.planned_bytes) == (extent, GB)


def test_what_a_program_did_to_its_pages_is_told_without_an_error_that_was_none() -> None:
    told = "mprotect:_huge_pages_of_the_pool:0,address_space_for_the_heap:12"
    found = parse_report(LINE.replace(" - heap", f" {told} heap"))
    assert found is not None
    assert page_regions([found], order("0%"), HUGE)[0].note == (
        "mprotect: huge pages of the pool; address space for the heap: Cannot allocate memory"
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        LINE.replace("2 exit", "1 exit", 1),
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
    assert [report.event for report in latest_reports(read_reports(file))] == ["exit"]
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "none"):
        assert list(read_reports(tmp_path / name)) == []


def test_the_library_is_told_windows_in_pages_of_their_size() -> None:
    words = order("heap:2M@2M-8M+1G@1G-2G").library_text("/x")
    reserved = "heap=134217728 mmap=1073741824"
    assert words == f"{reserved} strict process=0000000000 h21=1+3 h30=1+1 report=/x"


def test_windows_of_a_pool_end_where_the_data_does() -> None:
    everything = (PageWindow(Category.HEAP, 0, EVERYTHING, HUGE),)
    assert [window.end for window in clip_windows(everything, {Category.HEAP: 5 * MB}, HUGE)] == [
        6 * MB
    ]
    assert list(clip_windows(everything, {Category.HEAP: 0}, HUGE)) == []


def test_a_small_program_takes_a_page_of_1_gb_for_its_heap_and_one_for_its_mappings() -> None:
    giant = [PageWindow(category, 0, EVERYTHING, GB) for category in Category]
    windows = list(clip_windows(giant, dict.fromkeys(Category, 32 * MB), HUGE))
    assert [(window.category, window.pages) for window in windows] == [
        (Category.HEAP, 1),
        (Category.MMAP, 1),
    ]
    assert pool_pages(windows, HUGE, pooled=False) == {GB: 2}
    assert pool_pages_text(windows, HUGE, pooled=False) == "heap 1, mmap 1"
    assert pool_pages_text(windows[:1], HUGE, pooled=False) == ""
    large_bss = list(clip_windows(giant, dict.fromkeys(Category, GB + 32 * MB), HUGE))
    assert [it.pages for it in large_bss] == [2, 2, 1]


def test_static_data_in_pages_of_the_usual_size_has_the_one_it_ends_in() -> None:
    static = [PageWindow(Category.STATIC, 0, EVERYTHING, HUGE)]
    assert [window.pages for window in clip_windows(static, {Category.STATIC: 3 * MB}, HUGE)] == [2]


@pytest.mark.parametrize(
    ("layout", "pooled", "backing"),
    [
        ("2M", False, "thp"),
        ("0%", False, "thp"),
        ("50%", True, "hugetlb"),
        ("1G:best", False, "hugetlb"),
        ("heap:2M;mmap:1G", False, "hugetlb, thp"),
    ],
)
def test_pages_of_1_gb_are_of_the_pool_whatever_others_are(
    layout: str, pooled: bool, backing: str
) -> None:
    assert backing_of(parse_pages(layout), pooled=pooled, huge_bytes=HUGE) == backing


def test_a_program_whose_sanitizer_has_to_be_loaded_first_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int main(void) { return 0; }")
    words = ["gcc", "-fsanitize=address", str(tmp_path / "a.c"), "-o", str(tmp_path / "a")]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no gcc here with the library of AddressSanitizer")
    library = build_library(tmp_path / "cache", split=False).executable
    assert program_problems([tmp_path / "a", Path("/bin/true")], library) == [
        f"{tmp_path / 'a'} is built with AddressSanitizer, whose library has to be the first"
    ]


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
            "thp.64kB is never; as root: `rater sweep --axis pages=0%,64k`, or echo madvise",
        ),
        (
            "64k",
            False,
            {"hugepages-64kB/enabled": "always inherit [madvise] never"},
            "rather than 64k; as root: `rater sweep --axis pages=0%,64k`, or echo never",
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


NEEDS = [PoolNeed(0, HUGE, 10), PoolNeed(1, HUGE, 20)]


def pool(node: int, kind: str = "nr") -> str:
    return f"{NODES}/node{node}/hugepages/hugepages-2048kB/{kind}_hugepages"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_doctor_tree(tmp_path / "machine")
    change(root, {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0"})
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    return root


def taken(root: Path, pages_by_file: Mapping[str, str], most: int = 1000) -> None:
    """As the kernel does: what is set is free at once, as far as there is memory in one piece."""
    for name, pages in pages_by_file.items():
        node = int(name[-1])
        got = str(min(int(pages), most))
        change(root, {pool(node): got, pool(node, "free"): got})


def test_pools_are_set_to_what_each_lgroup_lacks(root: Path) -> None:
    taken(root, {"hugepages.2048kB.node0": "10"})
    asked: list[Mapping[str, str]] = []

    def fill(pages_by_file: Mapping[str, str]) -> None:
        asked.append(pages_by_file)
        taken(root, pages_by_file)

    assert fill_pools(NEEDS, fill, root) == ((("hugepages.node1.2048kB.total", "20"),), [])
    assert asked == [{"hugepages.2048kB.node1": "20"}]
    assert fill_pools(NEEDS, fill, root) == ((), [])  # nothing to be done
    assert len(asked) == 1


def test_what_the_kernel_did_not_give_is_lacking(root: Path) -> None:
    now, lacking = fill_pools(NEEDS, lambda wanted: taken(root, wanted, most=15), root)
    assert dict(now)["hugepages.node1.2048kB.total"] == "15"
    assert lacking == [
        "the pool of 2M pages on node 1 has 15 free, copies need 20; as root: echo 20 > "
        "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    ]


def test_a_pool_that_cannot_be_set_or_that_there_is_no_memory_for_is_left(root: Path) -> None:
    def refuse(_: Mapping[str, str]) -> None:
        raise InputError("it cannot be set: needs root")

    _, (text,) = fill_pools(NEEDS, refuse, root)
    assert text.endswith("(it cannot be set: needs root)")
    too_many = [*NEEDS, PoolNeed(1, HUGE, 10**6)]
    before = values(root)
    now, (text,) = fill_pools(too_many, lambda wanted: taken(root, wanted), root)
    assert (now, values(root)) == ((), before)
    assert "at most)" in text


def test_what_one_run_of_a_sweep_set_for_itself_is_put_back_before_the_next(
    root: Path, tmp_path: Path
) -> None:
    before, said = values(root), list[str]()
    with SettingsSession(root, tmp_path / "journal.json", "a sweep") as tuner:
        tuner.set({"ksm": "1"})  # an axis
        with RunSettings(tuner, said.append) as settings:
            settings.set({"hugepages.2048kB.node1": "20"})
            settings.set({"hugepages.2048kB.node1": "30", "hugepages.2048kB.node0": "5"})
            assert (values(root)[pool(0)], values(root)[pool(1)]) == ("5", "30")
        assert (values(root)[pool(0)], values(root)[pool(1)]) == ("0", "0")
        assert values(root)["sys/kernel/mm/ksm/run"] == "1"
    assert values(root) == before
    assert said[0] == (
        "changed for this run, restored at its end: hugepages.2048kB.node1=20 (was 0)"
    )


# Touches so many MB of one block.
PROGRAM = "import sys; x = bytearray(b'1') * (int(sys.argv[1]) << 20)"
_NONE = machine_problems(parse_pages("2M"), pooled=False, root=Path("/"), planned={})
huge_pages = pytest.mark.skipif(bool(_NONE), reason=f"no huge pages here: {_NONE}")


def had(run: int) -> dict[tuple[int, str], tuple[int, int, int, int]]:
    """Extent, planned, touched and huge bytes by copy and category."""
    found = query_rows(
        "SELECT copy, category, extent_bytes, planned_bytes, touched_bytes, huge_bytes "
        f"FROM page_region WHERE run_id = {run}"
    )
    return {(copy, category): tuple(rest) for copy, category, *rest in found}


@huge_pages
@pytest.mark.usefixtures("nobody_else", "own_cache")
def test_half_of_the_heap_lies_in_huge_pages_where_that_was_asked_for(rater: Rater) -> None:
    """The first run learns how large the heap becomes, the second knows it from there."""
    command = ("--copies", 2, "--", sys.executable, "-c", PROGRAM, "32")
    status, _, err = rater("run", "--pages", "50%", *command)
    assert (status, "one copy of python" in err) == (0, True)
    status, _, err = rater("run", "--pages", "0%", *command)
    assert (status, "one copy of" in err) == (0, False)
    for copy in (0, 1):
        extent, planned, touched, huge = had(1)[copy, "heap"]
        assert 32 * MB < extent < 64 * MB
        assert abs(planned - extent / 2) <= HUGE
        assert abs(touched - planned) <= HUGE
        assert abs(huge - planned) <= HUGE
        assert had(2)[copy, "heap"][1:] == (0, 0, 0)
    assert list((Path(os.environ["RATER_CACHE"]) / "work").iterdir()) == []


@huge_pages
@pytest.mark.usefixtures("nobody_else")
def test_large_blocks_are_of_the_mappings_where_categories_are_named(rater: Rater) -> None:
    command = ("--copies", 1, "--", sys.executable, "-c", PROGRAM, "32")
    status, _, err = rater("run", "--quiet", "--pages", "mmap:huge", *command)
    assert status == 0, err
    heap, mmap = had(1)[0, "heap"], had(1)[0, "mmap"]
    assert heap[3] == 0
    assert heap[0] < 16 * MB
    assert mmap[3] >= 32 * MB


def test_what_cannot_have_a_layout_is_refused_before_it_runs(rater: Rater, tmp_path: Path) -> None:
    static = tmp_path / "static"
    head = bytearray(64)
    head[:7] = b"\x7fELF\x02\x01\x01"
    head[16], head[18], head[54] = 2, 62, 56  # a program, x86-64, of no segments
    static.write_bytes(head)
    static.chmod(0o755)
    status, _, err = rater("run", "--pages", "0%", "--copies", 1, "--", static)
    assert (status, "is statically linked" in err) == (2, True)
    for words, why in (
        (("--pages", "0%", "--hugepages", "off"), "gives copies no huge pages at all"),
        (("--pages", "0%", "--alloc", "jemalloc"), "which --alloc replaces"),
        (("--pages-heap", "1G"), "--pages-heap says something of --pages LAYOUT"),
        (("--pages", "50"), "expected base, huge, a size (2M), 50%"),
        (("--pages", "8k", "--pages-backing", "hugetlb"), "no pool of pages of 8k"),
    ):
        status, _, err = rater("run", "--copies", 1, *words, "--", "true")
        assert status == 2, (words, err)
        assert why in " ".join(err.split()), err
