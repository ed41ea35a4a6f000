"""`python -m benchmarks.pools_guest`: pools of huge pages on a real kernel with two lgroups.

Boots the guest of `numa-guest` (QEMU, no KVM needed; its CPU model has 1 GB pages), 2 and 4 GB a
node and in it, with rater's own commands: what the doctor says the pools can have; sweeps that set
pools of 2 MB and 1 GB per node, whose copies take pages from them and say where these lie; the same
killed with kill -9, and what the next rater puts back; a pool that is to have more than there is in
one piece. Prints what was seen; exits 1 where a claim does not hold. Two minutes; needs root.
"""

from __future__ import annotations

import compileall
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
_LIMIT_S = 1200
_HIDDEN = ("/tmp", "/run", "/mnt", "/media", "/dev")  # the guest has its own there

PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* taker SHIFT PAGES FILE: takes pages of 2^SHIFT bytes from the pool, tells where they lie. */
int main(int argc, char **argv) {
    int shift = atoi(argv[1]), pages = atoi(argv[2]);
    char line[4096];
    size_t size = (size_t)pages << shift;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | shift << MAP_HUGE_SHIFT;
    char *memory = mmap(0, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) { perror("mmap"); return 1; }
    for (int i = 0; i < pages; i++) memory[(size_t)i << shift] = 1;
    FILE *from = fopen("/proc/self/numa_maps", "r"), *to = fopen(argv[3], "a");
    while (fgets(line, sizeof line, from)) if (strstr(line, " huge ")) fputs(line, to);
    fclose(to);
    if (argc > 4) { fclose(fopen(argv[4], "w")); sleep(60); }
    return 0;
}
"""

GROWER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* grower FOLDER: 48 MB of its heap; tells where its huge pages lie, and how large pools are. */
static void copy_of(const char *name, FILE *to, const char *only) {
    char line[4096];
    FILE *from = fopen(name, "r");
    while (from && fgets(line, sizeof line, from)) if (strstr(line, only)) fputs(line, to);
}

int main(int argc, char **argv) {
    char name[4096];
    size_t size = 48 << 20;
    char *memory = malloc(size);
    for (size_t i = 0; i < size; i += 4096) ((volatile char *)memory)[i] = 1;
    snprintf(name, sizeof name, "%s/%s", argv[1], getenv("RATER_COPY") ?: "alone");
    FILE *to = fopen(name, "a");
    copy_of("/proc/self/numa_maps", to, " huge ");
    for (int node = 0; node < 2; node++) {
        snprintf(name, sizeof name, "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/"
                 "nr_hugepages", node);
        copy_of(name, to, "");
    }
    fclose(to);
    return 0;
}
"""

DRIVER = r"""
import json, os, subprocess, sys, time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from rater.cli import main

taker, grower, shared = *sys.argv[1:], Path(os.environ["GUEST_SHARE"])
found = {}

def rater(*words):
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = main([str(word) for word in words])
    return status, out.getvalue(), err.getvalue()

def pools():
    return {
        f"{path.parent.parent.parent.name}.{path.parent.name.removeprefix('hugepages-')}":
        int(path.read_text())
        for path in sorted(Path("/sys/devices/system/node").glob("node*/hugepages/*/nr_hugepages"))
    }

RUN = ("--copies", 1, "--mem", "bind", "--proof", "off", "--energy", "off", "--preflight", "off")

def words(name, node, pages, shift, *more):
    axis = f"hugepages.{(1 << shift) >> 10}kB.node{node}={pages}"
    of_run = ("--layout", f"list:{node}", *RUN, "--quiet")
    copy = ("--", taker, shift, pages, shared / name, *more)
    return [str(it) for it in ("sweep", "--axis", axis, "--rounds", 1, *of_run, *copy)]

def sweep(name, *pool):
    status, _, err = rater(*words(name, *pool))
    seen = shared / name
    return status, err, seen.read_text() if seen.exists() else ""

def killed(name, node, pages, shift):
    # A real rater, killed while its copy holds the pages.
    ready = Path(f"/dev/shm/{name}.ready")
    child = subprocess.Popen(
        [sys.executable, "-m", "rater", *words(name, node, pages, shift, ready)]
    )
    while not ready.exists() and child.poll() is None:
        time.sleep(0.05)
    child.kill()
    child.wait()
    left = pools()
    deadline = time.monotonic() + 30  # the watchdog ends the copy, which has the pages in use
    while time.monotonic() < deadline and pages_free(node, shift) < pages:
        time.sleep(0.1)
    status, _, said = rater("run", *RUN, "--quiet", "--", "true")
    return left, pools(), status, said

def pages_free(node, shift):
    folder = f"/sys/devices/system/node/node{node}/hugepages/hugepages-{(1 << shift) >> 10}kB"
    return int(Path(folder, "free_hugepages").read_text())

found["doctor"] = json.loads(rater("doctor", "--json")[1])["huge_pages"]
found["text"] = rater("doctor", "-v", "pools", "fragmentation")[1]
found["before"] = pools()
for name, node, pages, shift in (("2M", 1, 64, 21), ("1G", 1, 1, 30)):
    found[f"{name} sweep"] = *sweep(name, node, pages, shift), pools()
    found[f"{name} killed"] = killed(f"{name}-killed", node, pages, shift)
# A page layout sets the pools of both lgroups for its copies, behind a point without any.
(shared / "pages").mkdir()
layout = ("--axis", "pages=0%,huge", "--order", "abba", "--pages-backing", "hugetlb")
status, _, err = rater(
    *("sweep", *layout, "--rounds", 2, "--pages-heap", "64M", *RUN[2:], "--copies", 2),
    *("--", grower, shared / "pages"),
)
copies = {path.name: path.read_text() for path in sorted((shared / "pages").iterdir())}
found["pages sweep"] = status, err, copies, pools()
found["too many"] = *sweep("many", 0, 2, 30), pools()
(shared / "found.json").write_text(json.dumps(found))
"""


def _hidden(paths: set[Path]) -> Iterator[str]:
    """Yield what the guest sees of this machine only when told to: `--bind` for each such path."""
    for path in sorted(paths):
        if any(path.is_relative_to(it) for it in _HIDDEN) or (
            path.stat().st_dev != Path("/").stat().st_dev
        ):
            yield from ("--bind", str(path))


def main() -> int:
    """Boot, run, judge; return the exit status."""
    guest = CHECKOUT.parent / "shared/numa-guest/guest.sh"
    if not guest.is_file():
        print(f"no {guest}: nothing to boot", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "taker.c").write_text(PROGRAM)
        (folder / "grower.c").write_text(GROWER)
        (folder / "driver.py").write_text(DRIVER)
        programs, shared = (folder / "taker", folder / "grower"), folder / "shared"
        for program in programs:
            subprocess.run(["cc", "-O1", "-o", program, f"{program}.c"], check=True)
        compileall.compile_dir(CHECKOUT / "rater", quiet=1)
        here = {CHECKOUT, folder, Path(sys.prefix), Path(sys.base_prefix)}
        kept = {f"RATER_{it}": f"/dev/shm/rater-{it}" for it in ("DB", "LOCK", "CACHE", "JOURNAL")}
        variables = {"PYTHONPATH": str(CHECKOUT)} | kept
        done = subprocess.run(
            [
                *(str(guest), "-v", "--timeout", str(_LIMIT_S), "--cwd", "/", *_hidden(here)),
                *("--nodes", "2", "--cpus-per-node", "1", "--mem-per-node", "2048,4096"),
                *("--share", str(shared)),
                *(word for pair in variables.items() for word in ("--env", "=".join(pair))),
                *("--", sys.executable, str(folder / "driver.py"), *map(str, programs)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stderr.strip())
        if done.returncode:
            return 1
        return judged(json.loads((shared / "found.json").read_text()))


def judged(found: dict[str, Any]) -> int:
    """Print what was seen, and what does not hold."""
    print(json.dumps(found, indent=1).replace("\\n", "\n    "))
    wrong = []
    for name, node in (("2M", 1), ("1G", 1)):
        status, said, maps, after = found[f"{name} sweep"]
        if status or said or f" N{node}=" not in maps or after != found["before"]:
            wrong.append(f"{name} sweep")
        left, back, ended, told = found[f"{name} killed"]
        if left == found["before"] or back != found["before"] or ended or "put back" not in told:
            wrong.append(f"{name} killed")
    status, said, copies, after = found["pages sweep"]
    for copy in ("0", "1"):  # on the lgroup of its number; runs with a pool and without, in turn
        lines = copies[copy].splitlines()
        huge = [line for line in lines if " huge " in line]
        # 48 MB in 2 MB pages in two of four runs; no page on the other lgroup.
        pages = sum(int(it) for line in huge for it in re.findall(rf" N{copy}=(\d+)", line))
        if pages < 48 or any(f" N{1 - int(copy)}=" in line for line in huge):
            wrong.append(f"pages sweep, copy {copy}")
        pools = {line for line in lines if " huge " not in line}
        if "0" not in pools or len(pools) < 2:
            wrong.append(f"pages sweep, pools that copy {copy} saw")
    if status or after != found["before"]:
        wrong.append("pages sweep")
    status, said, _, after = found["too many"]
    if not status or "the kernel made it" not in said or after != found["before"]:
        wrong.append("too many")
    print(f"DOES NOT HOLD: {', '.join(wrong)}" if wrong else "all holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
