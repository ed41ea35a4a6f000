"""The tracer of `rater pages` against another engine: page reuse distances of small kernels.

    python -m benchmarks.page_engines [KERNEL ...]

valgrind's own tool lackey prints every reference as text (--trace-mem=yes); a list with the newest
page in front gives distances of these, slowly. The same kernels, with arguments small enough for
that, go through `rater pages`' tracer and analyser. What lackey cannot see is what system calls
read and write. Prints both counts of references, first touches and references by distance for 4 KB
and 2 MB pages, and the largest difference in per cent of all references; ends with 1 where that is
above 0.5 %.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rater.files import folder
from rater.lab.trace import TOOL, TraceTools, build_tools, find_valgrind
from rater.run.programs.compile import cache_root, compile_program

_KERNELS = {
    "gups": ("gups.c", ("13", "20000")),
    "triad": ("triad.c", ("4000", "3")),
    "sort": ("sort.c", ("4000", "1")),
    "stencil": ("stencil.c", ("24", "2")),
    "sparse": ("sparse.c", ("matrix.bin", "1")),
}
_LINE = re.compile(rb"^ ([LSM]) ([0-9a-f]+),\d+$", re.MULTILINE)
_ROWS = ((0, 0), (1, 7), (8, 63), (64, 1 << 40))
_MOST = 0.005


def main(names: Sequence[str]) -> int:
    """Print all kernels; return 1 where engines differ."""
    tools = build_tools(find_valgrind(), cache_root())
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        subprocess.run([_program("gen_sparse", "gen_sparse.c"), "8", "matrix.bin"], check=True)
        for name in names or _KERNELS:
            source, args = _KERNELS[name]
            worst = max(worst, _compared(name, [_program(name, source), *args], tools))
    print(f"largest difference: {100 * worst:.3f} % of all references")
    return 1 if worst > _MOST else 0


def _program(name: str, source: str) -> str:
    path = folder("suites") / "mini" / source
    built = compile_program(name, [path], ("-O2",), ("-lm",), cache_root())
    return str(built.executable)


def _compared(name: str, argv: Sequence[str], tools: TraceTools) -> float:
    pages = list(_of_lackey(argv, tools))
    own = _of_rater(argv, tools)
    worst = 0.0
    for place, shift in ((0, 12), (2, 21)):
        first, slow = _distances(pages, shift - 12)
        size = own["sizes"][place]
        ours: Counter[int] = Counter({0: sum(size["near"])})
        for rows in size["histogram"].values():
            ours.update(dict(rows))
        whole = len(pages)
        told = [f"first touches {first} / {sum(size['cold'])}"]
        for low, high in _ROWS:
            a, b = (sum(n for d, n in of.items() if low <= d <= high) for of in (slow, ours))
            worst = max(worst, abs(a - b) / whole)
            told.append(f"{low}-{high if high < 1 << 40 else ''}: {a} / {b}")
        count = sum(ours.values()) + sum(size["cold"])
        print(f"{name}, {1 << shift >> 10} KB: {whole} / {count} references; {', '.join(told)}")
    return worst


def _of_lackey(argv: Sequence[str], tools: TraceTools) -> Iterator[int]:
    """Yield the 4 KB page of each reference; M is a load and a store."""
    words = [str(tools.valgrind.program), "--tool=lackey", "--trace-mem=yes", "--log-fd=9"]
    with tempfile.NamedTemporaryFile() as file:
        line = " ".join(["exec", *words, *argv, f"9>{file.name}", ">/dev/null"])
        subprocess.run(["bash", "-c", line], check=True)
        text = Path(file.name).read_bytes()
    for kind, address in _LINE.findall(text):
        page = int(address, 16) >> 12
        yield page
        if kind == b"M":
            yield page


def _of_rater(argv: Sequence[str], tools: TraceTools) -> dict[str, Any]:
    reading, writing = os.pipe()
    with (
        tools.library_folder() as libraries,
        subprocess.Popen([tools.analyser], stdin=reading, stdout=subprocess.PIPE) as analyser,
    ):
        os.close(reading)
        inode = os.fstat(writing).st_ino
        subprocess.run(
            [
                *(str(tools.valgrind.program), "-q", f"--tool={TOOL}"),
                *(f"--page-fd={writing}", f"--page-inode={inode}", *argv),
            ],
            env={**os.environ, "VALGRIND_LIB": str(libraries)},
            pass_fds=(writing,),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        os.close(writing)
        found: dict[str, Any] = json.loads(analyser.communicate()[0])
    return found


def _distances(pages: Sequence[int], down: int) -> tuple[int, Counter[int]]:
    stack: list[int] = []
    found: Counter[int] = Counter()
    for small in pages:
        page = small >> down
        if stack and stack[0] == page:
            found[0] += 1
            continue
        if page in stack:
            at = stack.index(page)
            found[at] += 1
            del stack[at]
        stack.insert(0, page)
    return len(stack), found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
