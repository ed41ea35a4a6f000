"""The readers' inputs guided by coverage (atheris): an extra, `pip install atheris` has it.

Each reader has a process of its own, as the fuzzer ends its process.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import attempts
from benchmarks.torture.readers import readers
from benchmarks.torture.table import Row, of, row_of
from rater.errors import InputError

_LONGEST_S = 10  # that one input may take
_SHARE = 0.1  # of the inputs that a reader has unguided
# What is imported here is what coverage is taken of: all that Python has takes a quarter minute.
_CHILD = """
import sys, atheris
with atheris.instrument_imports(include=["rater"]):
    from benchmarks.torture.guided import fuzz
fuzz(*sys.argv[1:])
"""


def campaign(bench: Bench, share: float = 1.0) -> list[Row]:
    """Give each reader a tenth as many guided inputs as it has broken ones."""
    if importlib.util.find_spec("atheris") is None:
        return [Row("readers, guided by coverage", 0, 0, "skipped: no atheris (extra `fuzz`)")]
    counts = {name: of(share * _SHARE, count) for name, (count, _, _) in readers().items()}

    def one(_: Path, name: str) -> str | None:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, name, str(counts[name])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # What was raised, and the input that did it.
        said = [it for it in done.stdout.splitlines() if re.match(r"Base64:|\w+Error\b", it)]
        return f"{name}: {'; '.join(said)}" if done.returncode else None

    found = attempts(bench, one, counts)
    lost = row_of("", found)
    return [Row("readers, guided by coverage", sum(counts.values()), lost.lost, lost.note)]


def fuzz(name: str, runs: str) -> None:
    """Fuzz one reader; the process ends with what the fuzzer ends with."""
    import atheris  # noqa: PLC0415 - an extra

    _, make, whole = readers()[name]
    with tempfile.TemporaryDirectory() as folder, make() as use:
        for number, data in enumerate(whole):
            (Path(folder) / str(number)).write_bytes(data)

        def one(data: bytes) -> None:
            with suppress(InputError):
                use(data)

        # -artifact_prefix: an input that breaks a reader is printed, not left here.
        options = [f"-runs={runs}", f"-timeout={_LONGEST_S}", f"-artifact_prefix={folder}/"]
        atheris.Setup([sys.argv[0], *options, folder], one)
        atheris.Fuzz()
