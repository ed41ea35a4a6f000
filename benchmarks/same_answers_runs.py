"""The runs that `benchmarks.same_answers` asks about: real small ones and imported ones."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sysconfig
import time
from contextlib import closing, suppress
from pathlib import Path

# Data of others: RATER_TEST_DATA, else where it lies beside the checkout.
CHECKOUT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("RATER_TEST_DATA", CHECKOUT.parent / "shared")).resolve()
FEWEST = 20

SUITE = r"""
[suite]
format = 1
name = "own"

[benchmarks.told]
category = "int"
command = ["sh", "-c", "echo speed $((100 + RATER_COPY)).5 MB/s; echo done"]
[benchmarks.told.metrics.speed]
pattern = '^speed ([0-9.]+) MB/s$'
unit = "MB/s"
better = "higher"
[benchmarks.told.sizes.train]
reference_s = 0.5
memory_mb = 1
expected = { text = "done\n", ignore = '^speed ' }

[benchmarks.wrong]
category = "fp"
command = ["sh", "-c", "echo $RATER_COPY"]
[benchmarks.wrong.sizes.train]
reference_s = 1.0
memory_mb = 1
expected = "0\n"

[benchmarks.several]
command = ["sh"]
[benchmarks.several.sizes.train]
commands = [{ args = ["-c", "sleep 0.01; echo one"] }, { args = ["-c", "sleep 0.02; echo two"] }]
reference_s = 1.0
memory_mb = 1
expected = "one\ntwo\n"
"""

# Any library will do where rater only preloads it.
ALLOCATOR = f"/lib/{sysconfig.get_config_var('MULTIARCH')}/libm.so.6"
TWO = "mini/gametree,vm --size test --copies 2"
SHORT = "sh -c 'sleep 0.0$((RATER_COPY + 1))'"
RUNS = (
    f"run {TWO} --iterations 3 --discard 1 --tag kind=plain",
    f"run {TWO} --iterations 3",
    f"run {TWO} --iterations 3 --mode rotated",
    "run mini/gametree,vm,rays --size test --copies 3 --iterations 3 --mode rotated --increment 2",
    f"run {TWO} --iterations 2 --mode staggered --stagger 30",
    "run mini/vm --size test --copies 2 --mode steady --window 2 --warmup 0.4 --iterations 2",
    f"run {TWO} --mode steady --order rotated --window 2",
    "run memory/latency-l2,lu --size test --copies 2 --iterations 2 --layout scatter",
    "run mini/vm,rays --size test --tune peak --copies 4 --layout compact --proof off",
    "run mini/rays --size test --copies 2 --layout list:1,0 --mem interleave --proof 0.05",
    "run mini/rays --size test --copies 1 --layout none --mem none",
    "run own.toml --copies 3 --iterations 3",
    "run own.toml/told,several --copies 2 --iterations 3 --run-dirs --keep",
    f"run --copies 4 --iterations 3 --tag build=a --env X=1 -- {SHORT}",
    f"run --copies 4 --iterations 3 --tag build=a --env X=1 -- {SHORT}",
    f"run --copies 4 --iterations 3 --tag build=a --env X=1 -- {SHORT}",
    "run --copies 4 --iterations 3 --tag build=b --env X=2 -- sh -c 'sleep 0.03'",
    "run --copies 4 --iterations 3 --tag build=b --env X=2 -- sh -c 'sleep 0.03'",
    "run --copies 4 --iterations 3 --tag build=b --env X=2 -- sh -c 'sleep 0.03'",
    "run --copies 3 --iterations 2 --wrap 'env Y=3' --prepare 'sleep 0.01' -- sleep 0.01",
    "run --copies 3 --iterations 2 -- sh -c 'exit $RATER_COPY'",
    "run --copies 2 --timeout 0.2 --grace 0.2 -- sh -c 'sleep 0.0$((RATER_COPY * 9))$RATER_COPY; "
    "test $RATER_COPY = 0 || exec sleep 9'",
    "run --copies 2 -- sh -c 'kill -9 $$'",
    "run --copies 2 --output-limit 1000 -- yes",
    "run --speccmds kit/429.mcf.cmd --iterations 2",
    "rerun 14 --tag again=yes",
    "sweep mini/vm --size test --axis copies=1,2 --axis layout=compact,scatter --rounds 3",
    f"sweep --axis copies=1,2,4 --axis env:X=,1 --rounds 3 -- {SHORT}",
    "sweep --axis copies=1,2 --rounds 2 --block-order abba -- sh -c 'exit $RATER_COPY'",
    # What some machines refuse stands last: the numbers above are asked for.
    f"run mini/events --size test --copies 2 --alloc {ALLOCATOR} --bind core",
    "run mini/events --size test --copies 2 --hugepages madvise --layout expr:E:N:2 --bind llc",
)
INTERRUPTED = "run --copies 2 --iterations 6 -- sleep 0.3"
CASES = ("paper-*.json", "s7-00[0134][0369].json")


def environment(folder: Path) -> dict[str, str]:
    """Return the variables with which rater leaves no trace outside of a folder."""
    return {
        "RATER_DB": str(folder / "runs.db"),
        "RATER_LOCK": str(folder / "lock"),
        "RATER_CACHE": str(folder / "cache"),
        "RATER_JOURNAL": str(folder / "settings.json"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TZ": "UTC",
    }


def make_runs(checkout: Path, keep: Path) -> None:
    """Make the database of runs with the old code, unless `keep` has it."""
    made = keep / "made"
    if made.exists():
        return
    shutil.rmtree(keep, ignore_errors=True)
    _write_files(keep)
    begin = time.monotonic()
    rater = _Rater(checkout, keep)
    for line in RUNS:
        rater(line)
    for resumed in (True, False):
        rater.interrupted(INTERRUPTED)
        if resumed:
            rater("run --resume last --force")
    samples = SHARED / "spec-samples"
    cases = [it for name in CASES for it in sorted((SHARED / "divot-cases/cases").glob(name))]
    for sample in sorted([*samples.glob("*.rsf"), *samples.glob("*.log")]):
        rater(f"import spec {sample}")
    for case in cases:
        rater(f"import {case}")
    if not samples.is_dir() or not cases:
        print(f"left out, as {SHARED} lacks them: SPEC's result files or cases of divots")
    with closing(sqlite3.connect(keep / "runs.db")) as db:
        runs = db.execute("SELECT count(*) FROM run").fetchone()[0]
    if runs < FEWEST:
        raise SystemExit(f"only {runs} runs could be made")
    print(f"{runs} runs made in {time.monotonic() - begin:.0f} s: {keep}", flush=True)
    made.touch()


def _write_files(keep: Path) -> None:
    for copy in range(2):
        (keep / f"kit/run.000{copy}").mkdir(parents=True)
    (keep / "own.toml").write_text(SUITE)
    (keep / "kit/429.mcf.cmd").write_text(
        "".join(
            f"-C {keep}/kit/run.000{copy}\n"
            + "".join(f"-o {it}.out -e {it}.err /bin/sleep 0.0{it}\n" for it in (1, 2))
            for copy in range(2)
        )
    )


class _Rater:
    """The old code, to be called in one folder."""

    def __init__(self, checkout: Path, keep: Path) -> None:
        self._start = [str(checkout / ".venv/bin/python"), "-m", "rater"]
        self._keep = keep
        self._environment = os.environ | environment(keep)

    def __call__(self, line: str) -> None:
        """Call rater; what a run came to is no matter, that it began is."""
        done = self._begun(line)
        said = done.communicate()[1].decode()
        if done.returncode not in (0, 1):
            print(f"not made: rater {line}: {said.strip()}", flush=True)

    def interrupted(self, line: str) -> None:
        """Call rater and interrupt it when some of the run is stored."""
        child = self._begun(line)
        while child.poll() is None and not self._some_is_stored():
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        child.communicate()

    def _begun(self, line: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._start, *shlex.split(line)],
            cwd=self._keep,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def _some_is_stored(self) -> bool:
        query = (
            "SELECT count(*) FROM run JOIN copy ON run_id = run.id "
            "WHERE run.status = 'running' AND run.id = (SELECT max(id) FROM run)"
        )
        with closing(sqlite3.connect(self._keep / "runs.db")) as db:
            return bool(db.execute(query).fetchone()[0])
