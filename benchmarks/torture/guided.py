"""The readers' inputs guided by coverage (atheris): an extra, `pip install atheris` has it.

`python -m benchmarks.torture.guided READER RUNS` is one reader in a process of its own, as the
fuzzer ends its process.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.readers import readers
from benchmarks.torture.table import Row, of
from rater.errors import InputError

_LONGEST_S = 10  # that one input may take


def campaign(bench: Bench, share: float = 1.0) -> list[Row]:
    """Give each reader a tenth as many guided inputs as it has broken ones."""
    if importlib.util.find_spec("atheris") is None:
        return [Row("readers, guided by coverage", 0, 0, "left out: atheris is not installed")]
    rows = []
    for name, (count, _, _) in readers().items():
        runs = of(share, count // 10)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.torture.guided", name, str(runs)],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stderr.splitlines() if "rror" in line]
        rows.append(
            Row(f"reader of {name}, guided", runs, int(done.returncode != 0), "; ".join(lines[:1]))
        )
    return rows


def main(name: str, runs: str) -> None:
    """Fuzz one reader; the process ends with what the fuzzer ends with."""
    import atheris  # noqa: PLC0415 - an extra

    _, make, whole = readers()[name]
    with tempfile.TemporaryDirectory() as folder, make() as use:
        for number, data in enumerate(whole):
            (Path(folder) / str(number)).write_bytes(data)

        def one(data: bytes) -> None:
            with suppress(InputError):
                use(data)

        atheris.instrument_all()
        atheris.Setup([sys.argv[0], f"-runs={runs}", f"-timeout={_LONGEST_S}", folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
