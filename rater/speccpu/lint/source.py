"""A configuration to be checked: a file with what it includes, or what a raw file has packed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.speccpu.config.config import SpecConfig, read_config
from rater.speccpu.results.rsf import HEAD_BYTES, is_raw, read_rsf
from rater.text.textfile import file_problem

_MOST_BYTES = 16 << 20
_MOST_INCLUDED = 100  # files; one that includes itself has no end
_INCLUDE = re.compile(r"\s*include\s*:\s*(\S+)\s*(?:#.*)?$", re.IGNORECASE)


type ResultOf = tuple[str, str, int | None]  # benchmark, tune, copies


@dataclass(frozen=True, slots=True)
class Source:
    """A configuration, where its lines come from, and what is not there."""

    name: str  # as it was typed
    config: SpecConfig
    packed: bool  # taken from a raw file: lines are those of the configuration in it
    ran: tuple[ResultOf, ...]  # of a raw file
    missing: tuple[str, ...]  # files that are to be included and are not there
    origins: tuple[tuple[str, int], ...]  # file and line of each line; empty: its own

    @property
    def main(self) -> str:
        """The name of the file itself among those of `origins`."""
        return f"{self.name}(config)" if self.packed else self.name

    def where(self, line: int) -> str:
        """Return `FILE:LINE` for a line of the configuration."""
        file, own = self.own(line)
        return f"{file}:{own}"

    def own(self, line: int) -> tuple[str, int]:
        """Return file and line there of a line of the configuration."""
        return self.origins[line - 1] if 0 < line <= len(self.origins) else (self.main, line)

    def number(self, line: int) -> str:
        """Return `line N`, with its file where that is an included one."""
        file, own = self.own(line)
        return f"line {own}" if file == self.main else f"{file}:{own}"


def read_source(path: Path) -> Source:
    """Read a configuration file or the configuration inside a raw file.

    Files that it includes (`include: FILE`, beside it) are read in their place. Raises
    `InputError` when there is no configuration to be read.
    """
    text = _bytes(path)
    if is_raw(text[:HEAD_BYTES]):
        return _packed(path)
    if b"\0" in text:
        raise InputError(f"{path}: no text; expected a configuration file (.cfg) or a raw file")
    all_of_it = _Gathered(path, text.decode("latin-1"))
    config = read_config("\n".join(all_of_it.lines))
    missing, origins = tuple(all_of_it.missing), tuple(all_of_it.origins)
    return Source(str(path), config, False, (), missing, origins)


def _bytes(path: Path) -> bytes:
    problem = file_problem(path)
    if problem is not None:
        raise InputError(f"{problem}; expected a configuration file of SPEC CPU or a raw file")
    with path.open("rb") as stream:
        text = stream.read(HEAD_BYTES)
        if not is_raw(text):
            text += stream.read(_MOST_BYTES + 1 - len(text))
    if len(text) > _MOST_BYTES:
        raise InputError(f"{path}: larger than {_MOST_BYTES >> 20} MiB, no configuration file")
    return text


class _Gathered:
    """A file's lines, with those of the files that it includes in their place."""

    def __init__(self, path: Path, text: str) -> None:
        self.lines: list[str] = []
        self.origins: list[tuple[str, int]] = []
        self.missing: list[str] = []
        self._files = 0
        self._add(path, text)

    def _add(self, path: Path, text: str) -> None:
        self._files += 1
        for number, line in enumerate(text.split("\n"), start=1):
            found = _INCLUDE.match(line)
            if found is None:
                self.lines.append(line)
                self.origins.append((str(path), number))
            else:
                self._include(path, number, found[1])

    def _include(self, path: Path, number: int, name: str) -> None:
        other = path.parent / name
        try:
            text = _bytes(other) if self._files < _MOST_INCLUDED else None
        except InputError:
            text = None
        if text is None:
            self.lines.append("")
            self.origins.append((str(path), number))
            self.missing.append(f"{path}:{number}: include: {name[:80]} is not there to be read")
        else:
            self._add(other, text.decode("latin-1"))


def _packed(path: Path) -> Source:
    with path.open("rb") as stream:
        file = read_rsf(stream, path.name)
    if file.config is None:
        why = next((f" ({one})" for one in file.problems if "rawconfig" in one.text), "")
        raise InputError(
            f"{path}: a raw file without a readable configuration in it{why}: "
            "give the configuration file itself"
        )
    ran = dict.fromkeys(
        (one.benchmark, one.tune, one.planned)
        for one in file.iterations
        if one.rate and one.submit is not False
    )
    return Source(str(path), file.config, True, tuple(ran), (), ())
