"""A result file of SPEC CPU of either kind, read."""

from __future__ import annotations

import re
from pathlib import Path

from rater.errors import InputError
from rater.plan.textfile import file_problem
from rater.spec.log import read_log
from rater.spec.result import SpecFile
from rater.spec.rsf import read_rsf

_HEAD_BYTES = 1 << 20
_RAW = re.compile(rb"^[ \t]*spec\.cpu\w{1,20}\.[^:\s]{1,200}[ \t]*:", re.MULTILINE | re.IGNORECASE)
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}


def read_spec(path: Path) -> SpecFile:
    """Read a raw file or a log, what of it can be read; `problems` names the rest by line.

    Raises `InputError` when there is no file, or no result of SPEC CPU in it.
    """
    problem = file_problem(path)
    if problem is not None:
        raise InputError(problem)
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        stream.seek(0)
        file = read_rsf(stream, path.name) if _RAW.search(head) else read_log(stream, path.name)
    if not file.iterations:
        raise InputError(_nothing(path, head, file))
    return file


def _nothing(path: Path, head: bytes, file: SpecFile) -> str:
    wanted = "expected a raw file (.rsf) or a log of runspec or runcpu"
    for magic, kind in _PACKED.items():
        if head.startswith(magic):
            return f"{path}: packed with {kind}; unpack it first ({wanted})"
    if file.format == "rsf":
        return f"{path}: a raw file without a result of any benchmark; nothing to import"
    if b"runspec" in head or b"runcpu" in head:
        return (
            f"{path}: a log in which no benchmark was run to its end; nothing to import "
            "(the times of copies are in logs of verbosity 5 and more)"
        )
    return f"{path}: no results of SPEC CPU in it; {wanted}"
