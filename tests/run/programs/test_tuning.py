"""`--alloc` and `--hugepages`: found, refused, recorded, and in the copies and nowhere else."""

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from rater.plan.request import request_from_json, request_to_json
from rater.record.stored import StoredRun
from rater.run.programs.tuning import (
    CopyTuning,
    Elf,
    find_allocator,
    read_elf,
    tuning_for,
    unreached_reason,
)
from rater.store.store import open_store
from rater.system.errors import InputError
from rater.workflow.run.workload import pages_problem
from tests.support.calls import Rater, query_rows
from tests.support.settings_tree import make_tree

GLIBC = "glibc 2.36"
# Says in a file which process it was loaded into.
MARKING = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
    FILE *file = getenv("MARK") ? fopen(getenv("MARK"), "a") : NULL;
    if (file) { fprintf(file, "%d\\n", getpid()); fclose(file); }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "mark.c").write_text(MARKING)
    made = folder / "libjemalloc.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, folder / "mark.c"], check=True)
    return made


def elf(path: Path, *, machine: int = 62, bits: int = 64, interpreter: str | None = None) -> Path:
    """Write the headers of an executable."""
    name = b"" if interpreter is None else interpreter.encode() + b"\0"
    start = 64 if bits == 64 else 52
    size = 56 if bits == 64 else 32
    count = 0 if interpreter is None else 1
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1, 1]) + bytes(9)
    if bits == 64:
        rest = struct.pack(
            "<HHIQQQIHHHHHH", 2, machine, 1, 0, start, 0, 0, 64, size, count, 0, 0, 0
        )
        header = struct.pack("<IIQQQQQQ", 3, 4, start + size, 0, 0, len(name), len(name), 1)
    else:
        rest = struct.pack(
            "<HHIIIIIHHHHHH", 2, machine, 1, 0, start, 0, 0, 52, size, count, 0, 0, 0
        )
        header = struct.pack("<IIIIIIII", 3, start + size, 0, 0, len(name), len(name), 4, 1)
    path.write_bytes(ident + rest + (header + name if count else b"") + bytes(64))
    return path


def stored(number: int = 1) -> StoredRun:
    with open_store(Path(os.environ["RATER_DB"])) as store:
        return store.load(number)


# -- libraries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 64])
def test_the_headers_of_a_program_tell_who_loads_it(tmp_path: Path, bits: int) -> None:
    loader = "/lib/ld-musl-x86_64.so.1"
    found = read_elf(elf(tmp_path / "program", bits=bits, interpreter=loader))
    assert found == Elf(bits=bits, machine=62, interpreter=loader, is_library=False)
    assert read_elf(elf(tmp_path / "static", bits=bits)) == Elf(
        bits=bits, machine=62, interpreter=None, is_library=False
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"#!/bin/sh\n",
        b"\x7fELF\x02\x01" + b"\xff" * 60,
        b"\x7fELF\x02\x01" + bytes(50) + b"\0\0\1\0" + bytes(10),
    ],
    ids=["nothing", "script", "headers beyond the end", "headers of no size"],
)
def test_what_is_no_program_of_this_kind_has_no_headers(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    assert read_elf(tmp_path / "file") is None


def test_an_allocator_is_found_in_the_loaders_cache_then_in_folders(
    tmp_path: Path, library: Path
) -> None:
    other = shutil.copy(library, tmp_path / "libjemalloc.so.2")
    cached = f"1 libs found\n\tlibjemalloc.so.2 (libc6,x86-64) => {library}\n"
    assert find_allocator("jemalloc", [tmp_path], cached) == library
    assert find_allocator("jemalloc", [tmp_path], "") == Path(other)
    assert find_allocator("system") is None
    assert find_allocator(str(library)) == library


def test_a_library_for_another_kind_of_program_is_passed_over(
    tmp_path: Path, library: Path
) -> None:
    old = elf(tmp_path / "libjemalloc.so.2", bits=32, machine=3)
    cached = (
        f"\tlibjemalloc.so.2 (libc6) => {old}\n\tlibjemalloc.so.2 (libc6,x86-64) => {library}\n"
    )
    assert find_allocator("jemalloc", [], cached) == library
    with pytest.raises(InputError, match="is a program, no shared library"):
        find_allocator(str(old))


def test_a_missing_allocator_is_told_with_what_was_looked_for_and_its_package(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=r"libtcmalloc.so.4, .*install libtcmalloc-minimal4 \(Deb"):
        find_allocator("tcmalloc", [tmp_path], "")
    with pytest.raises(InputError, match="expected system, jemalloc, mimalloc, tcmalloc, or the"):
        find_allocator("hoard")
    with pytest.raises(InputError, match=r"there is no file /nowhere/lib.so"):
        find_allocator("/nowhere/lib.so")


# -- what copies get ----------------------------------------------------------------------------


def test_what_the_user_preloads_and_tunes_stays_in_front() -> None:
    tuning = CopyTuning("/l/x.so", "glibc.malloc.hugetlb=1")
    assert tuning.added({}) == {
        b"LD_PRELOAD": b"/l/x.so",
        b"GLIBC_TUNABLES": b"glibc.malloc.hugetlb=1",
    }
    assert tuning.added({b"LD_PRELOAD": b"/u.so", b"GLIBC_TUNABLES": b"glibc.rtld.nns=8"}) == {
        b"LD_PRELOAD": b"/u.so:/l/x.so",
        b"GLIBC_TUNABLES": b"glibc.rtld.nns=8:glibc.malloc.hugetlb=1",
    }


@pytest.mark.parametrize(
    ("pages", "tuning"),
    [
        (None, CopyTuning()),
        ("off", CopyTuning(transparent=False)),
        ("thp", CopyTuning(transparent=True)),
        ("madvise", CopyTuning(tunable="glibc.malloc.hugetlb=1", transparent=True)),
        ("hugetlb", CopyTuning(tunable="glibc.malloc.hugetlb=2")),
    ],
)
def test_each_kind_of_page_is_one_thing_that_copies_find(
    pages: str | None, tuning: CopyTuning
) -> None:
    assert tuning_for(None, pages, {}, GLIBC) == tuning


@pytest.mark.parametrize(
    ("library", "pages", "environment", "libc", "said"),
    [
        ("/l/libjemalloc.so.2", "madvise", {}, GLIBC, "which --alloc libjemalloc.so.2 replaces"),
        ("/my libs/x.so", None, {}, GLIBC, "no path with blanks or colons"),
        (None, "madvise", {}, "glibc 2.34", "needs glibc 2.35 or later, here is glibc 2.34"),
        (None, "hugetlb", {}, None, "here is another C library"),
        (
            *(None, "madvise", {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}, GLIBC),
            "so does GLIBC_TUNABLES=glibc.malloc.hugetlb=2: leave one out",
        ),
    ],
)
def test_what_contradicts_itself_or_cannot_work_is_refused(
    library: str | None, pages: str | None, environment: dict[str, str], libc: str | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        tuning_for(None if library is None else Path(library), pages, environment, libc)


def test_programs_that_do_not_see_it_are_known(tmp_path: Path, library: Path) -> None:
    preload, tunable = CopyTuning(str(library)), CopyTuning(tunable="glibc.malloc.hugetlb=1")
    machine = read_elf(library)
    assert machine is not None
    static = elf(tmp_path / "static", machine=machine.machine)
    musl = elf(tmp_path / "musl", machine=machine.machine, interpreter="/lib/ld-musl-x86_64.so.1")
    small = elf(tmp_path / "small", bits=32, interpreter="/lib/ld-linux.so.2")
    script = tmp_path / "script"
    script.write_text(f"#!{static} -x\n")
    assert unreached_reason(preload, static) == "is statically linked"
    assert unreached_reason(preload, script) == "is statically linked"
    assert unreached_reason(tunable, static) is None  # glibc reads them there too
    assert unreached_reason(tunable, musl) == "uses musl, not glibc"
    assert unreached_reason(preload, small) == "is for another kind of machine than the library"
    assert unreached_reason(preload, Path("/bin/sh")) is None


# -- what pages need of the machine -------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "planned", "said"),
    [
        ("off", {}, None),
        ("madvise", {}, None),
        ("madvise", {"thp": "never"}, "setting thp is never, and this takes always or madvise"),
        ("madvise", {"thp.2048kB": "never"}, "setting thp.2048kB is never"),
        ("thp", {}, "setting thp is madvise, and this takes always; as root: `rater sweep --axis"),
        ("thp", {"thp": "always"}, None),
        ("thp", {"thp": "always", "thp.2048kB": "madvise"}, "setting thp.2048kB is madvise"),
        ("hugetlb", {}, None),
        (
            *("hugetlb", dict.fromkeys(("hugepages.2048kB.node0", "hugepages.2048kB.node1"), "0")),
            None,  # the total is still there
        ),
    ],
)
def test_what_the_machine_lacks_for_a_kind_of_page_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    planned: dict[str, str],
    said: str | None,
) -> None:
    root = make_tree(tmp_path / "machine")
    (root / "proc/meminfo").write_text("Hugepagesize:       2048 kB\n")
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    found = pages_problem(mode, planned)
    assert found is None if said is None else said in (found or "")


def test_a_pool_without_pages_is_refused_as_glibc_would_quietly_take_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("Hugepagesize:       2048 kB\n")
    monkeypatch.setenv("RATER_SYSROOT", str(tmp_path))
    assert "the pool of 2 MB pages is empty" in (pages_problem("hugetlb", {}) or "")
    assert pages_problem("hugetlb", {"hugepages.2048kB": "64"}) is None
    assert "no transparent huge pages" in (pages_problem("thp", {}) or "")
    status, out, _ = rater(
        "run", "--copies", "1", "--hugepages", "hugetlb", "--dry-run", "--", "true"
    )
    assert status == 0
    assert "REFUSED" in out
    status, _, err = rater("run", "--copies", "1", "--hugepages", "hugetlb", "--", "true")
    assert (status, "as root: `rater sweep --axis hugepages.2048kB=N" in err) == (2, True)


# -- runs ---------------------------------------------------------------------------------------


def test_an_allocator_is_in_every_copy_and_not_in_the_gate(
    rater: Rater, tmp_path: Path, library: Path
) -> None:
    mark = tmp_path / "mark"
    words = ("--copies", "3", "--quiet", "--alloc", library, "--env", f"MARK={mark}")
    assert rater("run", *words, "--", "/bin/sh", "-c", ":")[0] == 0
    pids = mark.read_text().split()
    assert len(pids) == 3  # a gate is the copy's process before: it would have written too
    recorded = dict(stored().settings)["copies.alloc"]
    assert recorded.startswith(f"{library}: {library} (sha256 ")


def test_a_program_that_no_library_reaches_is_refused(
    rater: Rater, tmp_path: Path, library: Path
) -> None:
    machine = read_elf(library)
    assert machine is not None
    static = elf(tmp_path / "static", machine=machine.machine)
    static.chmod(0o755)
    status, _, err = rater("run", "--copies", "1", "--alloc", library, "--", static)
    assert status == 2
    assert f"--alloc would change nothing: {static} is statically linked" in err


@pytest.mark.skipif(
    "THP_enabled" not in Path("/proc/self/status").read_text(), reason="Linux 5.0 tells it"
)
def test_copies_without_huge_pages_have_none_and_rater_is_as_before(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = _thp_enabled()
    script = "grep THP_enabled /proc/self/status > seen.$RATER_COPY"
    words = ("--copies", "2", "--quiet", "--hugepages", "off", "--", "/bin/sh", "-c", script)
    assert rater("run", *words)[0] == 0
    assert [(tmp_path / f"seen.{copy}").read_text().split()[1] for copy in (0, 1)] == ["0", "0"]
    assert _thp_enabled() == before
    assert dict(stored().settings)["copies.hugepages"] == "off"


def _thp_enabled() -> str:
    return Path("/proc/self/status").read_text().partition("THP_enabled:")[2].split()[0]


def test_copies_that_start_again_find_the_same(
    rater: Rater, tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = 'echo "$LD_PRELOAD" >> seen'
    words = ("--copies", "1", "--quiet", "--mode", "steady", "--window", "0.3")
    status, _, err = rater("run", *words, "--alloc", library, "--", "/bin/sh", "-c", script)
    assert status == 0, err
    seen = (tmp_path / "seen").read_text().splitlines()
    assert len(seen) > 1
    assert set(seen) == {str(library)}


def test_a_library_that_is_preloaded_before_the_allocator_is_warned_of(
    rater: Rater, tmp_path: Path, library: Path
) -> None:
    other = tmp_path / "other.so"
    other.write_bytes(library.read_bytes())
    words = ("--copies", "1", "--quiet", "--alloc", library, "--env", f"LD_PRELOAD={other}")
    assert rater("run", *words, "--", "/bin/sh", "-c", ":")[0] == 0
    assert any(f"LD_PRELOAD is {other}, which comes before" in text for text in stored().warnings)


def test_what_was_asked_for_is_kept_and_asked_for_again(rater: Rater, library: Path) -> None:
    words = ("--copies", "1", "--quiet", "--hugepages", "off", "--alloc", library)
    assert rater("run", *words, "--", "/bin/sh", "-c", ":")[0] == 0
    ((text,),) = query_rows("SELECT request FROM run")
    request = request_from_json(text, "run 1")
    assert (request.alloc, request.hugepages) == (str(library), "off")
    assert request_to_json(request) == text
    assert rater("rerun", "last", "--quiet")[0] == 0
    settings = [dict(stored(number).settings) for number in (1, 2)]
    assert settings[0]["copies.alloc"] == settings[1]["copies.alloc"]
    older = json.loads(text)
    del older["alloc"], older["hugepages"]
    assert request_from_json(json.dumps(older), "run 1").alloc is None
