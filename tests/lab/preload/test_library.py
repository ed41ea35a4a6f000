"""Processes that a copy starts, under a layout of the pool of huge pages: the library itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rater.lab.preload import build_library

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
