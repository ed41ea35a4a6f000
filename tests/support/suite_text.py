"""The text of a suite file as a `Suite`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rater.plan.suite import Suite, read_suite
from rater.text.documents import MistakesError


def parse_suite(
    text: str,
    path: Path,
    problem_with: Callable[[Path], str | None] = lambda _path: None,
    text_of: Callable[[Path], str] = lambda _path: "",
) -> Suite:
    """Turn the text of a suite file into a `Suite`.

    `path` names the file in messages, and relative paths start at its folder;
    `problem_with` says what is wrong with a file that the suite names, `text_of`
    reads one (`file_problem` and `read_text` look at the disk, the defaults
    believe). Raises `MistakesError` with all mistakes together.
    """
    suite, mistakes = read_suite(text, path, problem_with, text_of)
    if mistakes:
        raise MistakesError(mistakes)
    return suite


SUM = """\
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  double sum = 0;
  for (int i = 1; i <= atoi(argv[1]); i++) sum += 1.0 / i;
  printf("sum %.9f\\n", sum);
  return argc > 2 ? atoi(argv[2]) : 0;
}
"""
OWN = """\
[suite]
format = 1
name = "own"
description = "sums"
[benchmarks.sum]
category = "fp"
description = "harmonic sum"
sources = ["sum.c"]
[benchmarks.sum.sizes.test]
args = ["4"]
reference_s = 0.25
memory_mb = 2
expected = "sum 2.0833333\\n"
relative_tolerance = 1e-6
[benchmarks.echo]
category = "int"
command = ["echo", "hello"]
[benchmarks.echo.sizes.train]
args = ["you"]
expected = "hello you\\n"
"""
# All that a suite can state.
BEYOND = """\
[suite]
format = 1
name = "beyond"
setup = ["./prepare.sh", "a b"]
environment = { LC_ALL = "C" }
leave_out = ["unfit"]
[benchmarks.solve]
category = "fp"
description = "solves"
command = ["./solve.sh"]
threads = 4
setup = ["sh", "-c", "date > now"]
environment = { OMP_NUM_THREADS = "4" }
metrics.rate = { pattern = "rate (.*)", unit = "GB/s", better = "higher", combine = "sum" }
metrics.wait = { pattern = "wait (.*)" }
[benchmarks.solve.sizes.train]
commands = [
  { args = ["1"], stdin = "a.txt", stdout = "a.out", stderr = "a err" },
  { command = ["cmp", "a.out", "b.txt"] },
]
environment = { MODE = "x y" }
memory_total_mb = 2048
reference_s = 1
disk_mb = 2
inputs = [
  { name = "a.txt", path = "first.txt", copy = true },
  { name = "b.txt", made = "b" },
]
expected = [
  { file = "a.out", sha256 = "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff" },
  { text = "1\\n2\\n", absolute = 0.5, ignore = "^time" },
]
"""
