r"""Words behind `--`: several programs, placeholders, and short names for commands; pure.

`./a : ./b -x` are two programs: a word `:` alone divides them, and `\:` is an argument `:`. So is
a last `:`, behind which no program stands (`sh -c :`).
`{copy}` and the other names of `COPY_PLACEHOLDERS` in braces become the copy's own values, and
`{{copy}}` is the text `{copy}`. Nothing else in braces changes: JSON, awk, `find {}`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from rater.system.patterns import compile_later

DIVIDER = ":"
_ESCAPED_DIVIDER = compile_later(r"\\+:")

COPY_PLACEHOLDERS = ("copy", "cpu", "cpus", "node", "iteration")


def programs_of(command: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    r"""Return the programs behind `--`, each with its arguments; `\:` as the argument `:`.

    A part without a word, as in `./a : : ./b`, is an empty program.
    """
    programs: list[list[str]] = [[]]
    for place, word in enumerate(command, 1):
        if word == DIVIDER and place < len(command):
            programs.append([])
        else:
            is_escaped = _ESCAPED_DIVIDER.fullmatch(word) is not None
            programs[-1].append(word[1:] if is_escaped else word)
    return tuple(map(tuple, programs))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of placeholders; `{{name}}` becomes the text `{name}`.

    Names that have no value stay untouched.
    """

    def value_of(match: re.Match[str]) -> str:
        literal, name = match["literal"], match["name"]
        if (literal or name) not in values:
            return match[0]
        return values[name] if name else f"{{{literal}}}"

    return _BRACES.sub(value_of, text)


_BRACES = compile_later(r"\{\{(?P<literal>[^{}]+)\}\}|\{(?P<name>[^{}]+)\}")


def fill_all(words: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return words with the values of placeholders."""
    return tuple(fill(word, values) for word in words)


def placeholders_in(words: Iterable[str], names: Collection[str]) -> set[str]:
    """Return those names that words have as placeholders, the escaped ones too."""
    return {
        name
        for word in words
        for match in _BRACES.finditer(word)
        if (name := match["literal"] or match["name"]) in names
    }


# -- The shortest names that tell commands apart ---------------------------------------------------


def distinct_names(commands: Sequence[Sequence[str]], most: int) -> tuple[str, ...]:
    """Return a name for each command, as short as they differ, of up to `most` characters.

    First the file names of the programs; then as much of their folders as differs (`O1/bench`);
    then the words in which they differ (`bench -x`). Commands that are alike are numbered.
    """
    for names in (_file_names(commands), _paths(commands), _different_words(commands)):
        cropped = [name[:most] for name in names]
        if all(cropped) and len(set(cropped)) == len(commands):
            return tuple(cropped)
    return tuple(
        f"{name[: most - 4]} {number}" for number, name in enumerate(_file_names(commands), 1)
    )


def _file_names(commands: Sequence[Sequence[str]]) -> list[str]:
    return [PurePosixPath(command[0]).name or command[0] for command in commands]


def _paths(commands: Sequence[Sequence[str]]) -> list[str]:
    """Return the programs with as many folders in front as it takes to tell them apart."""
    parts = [PurePosixPath(command[0]).parts for command in commands]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(of_one[-length:]) for of_one in parts]
        if len(set(names)) == len(names):
            return names
    return []


def _different_words(commands: Sequence[Sequence[str]]) -> list[str]:
    """Return each command without the words that all have: `-x` and `-y`, or `a` and `a -x`."""
    common = set.intersection(*map(set, commands)) if commands else set()
    different = [" ".join(word for word in command if word not in common) for command in commands]
    if all(different):
        return different
    names = _file_names(commands)
    return [f"{name} {words}".rstrip() for name, words in zip(names, different, strict=True)]
