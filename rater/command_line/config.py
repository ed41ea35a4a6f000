"""Defaults of options from files: `~/.config/rater/config.toml` and `./rater.toml`.

A table is called after a command, its keys after that command's options; `[run]` is for
`rater plan` as well. What is typed goes before `./rater.toml`, and that before the user's own file.
`RATER_CONFIG` names one file to read instead of both, or none where it is empty.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rater.command_line.parser import shown_actions, subparsers_of
from rater.errors import InputError

_LOCAL = Path("rater.toml")
_ALSO = {"plan": "run"}  # a command that takes another's options
_TYPES = (str, int, float)
# What may stand beside these: they take what a stored run was asked for.
_BESIDE = {"--resume": {"db", "json", "quiet", "verbose", "wait"}}


@dataclass(frozen=True, slots=True)
class Default:
    """An option that a file gives: as it would be typed, its name among arguments, and the file."""

    word: str
    dest: str
    file: str


def find_defaults(
    parser: argparse.ArgumentParser, command: str, typed: Sequence[str]
) -> tuple[Default, ...]:
    """Return the defaults of a command that nothing typed replaces.

    Raises `InputError`, naming file and line, for a file that is wrong or another user's.
    """
    commands = subparsers_of(parser)
    taken = {it.dest for it in shown_actions(commands[command]) if not _is_typed(it, typed)}
    taken &= next((_BESIDE[word] for word in typed if word in _BESIDE), taken)
    found: list[Default] = []
    for path in _paths():
        by_command = _read(path, commands)
        # An option that only the other command has (`run`'s for `plan`) is none of this one.
        for name in (command, _ALSO.get(command, "")):
            new = [it for it in by_command.get(name, ()) if it.dest in taken]
            found += new
            taken -= {it.dest for it in new}
    return tuple(found)


def described(defaults: Iterable[Default]) -> list[str]:
    """Return a line for each file that defaults came from."""
    files: dict[str, list[str]] = {}
    for it in defaults:
        files.setdefault(it.file, []).append(it.word)
    return [f"defaults of {file}: {' '.join(words)}" for file, words in files.items()]


def _paths() -> Iterator[Path]:
    named = os.environ.get("RATER_CONFIG")
    if named == "":
        return
    if named:
        if not os.path.exists(named):  # noqa: PTH110 - False for what no path can be
            raise InputError(f"RATER_CONFIG={named}: no such file")
        yield Path(named)
        return
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - no home: as it is, Path raises
    for path in (_LOCAL, Path(home) / "rater" / "config.toml"):
        if os.path.lexists(path):
            yield path


def _read(path: Path, commands: Mapping[str, argparse.ArgumentParser]) -> dict[str, list[Default]]:
    """Return what a file gives, by command; raises `InputError` for all that is wrong in it."""
    # Of some milliseconds, for those who have such a file.
    from rater.text.document import did_you_mean, toml_document
    from rater.text.textfile import read_text
    from rater.trusted_files import other_writer

    try:
        # It can name commands (--prepare): one in a folder like /tmp may be anybody's.
        other = other_writer(path)
        text = read_text(path, "defaults")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); RATER_CONFIG= reads none") from None
    if other is not None:
        raise InputError(
            f"{path}: {other}, and it could have any command run; make it yours alone, or set "
            "RATER_CONFIG= to read no defaults"
        )
    document = toml_document(text, path)
    root = document.root()
    found: dict[str, list[Default]] = {}
    for name, values in document.data.items():
        table = root.table(name)
        if name not in commands:
            root.mistake(f"unknown command; {did_you_mean(name, commands)}", name)
            continue
        actions = _options(commands[name])
        for key, value in values.items() if isinstance(values, dict) else ():
            if key not in actions:
                table.mistake(f"no option of `rater {name}`; {did_you_mean(key, actions)}", key)
                continue
            try:
                words = list(_words(actions[key], key, value))
            except ValueError as error:
                table.mistake(str(error), key)
                continue
            found.setdefault(name, []).extend(
                Default(word, actions[key].dest, str(path)) for word in words
            )
    document.raise_mistakes()
    return found


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        option.removeprefix("--"): action
        for action in shown_actions(parser)
        for option in action.option_strings
        if option.startswith("--") and action.dest != "help"
    }


def _words(action: argparse.Action, key: str, value: Any) -> Iterator[str]:
    """Yield an option as it is typed; raises `ValueError` for a value that it does not take."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {value!r}")
        if value:
            yield f"--{key}"
        return
    several = isinstance(action, argparse._AppendAction | argparse._ExtendAction)
    if isinstance(value, dict) and several:
        value = [f"{name}={text}" for name, text in value.items()]
    for one in value if isinstance(value, list) and several else [value]:
        if isinstance(one, bool) or not isinstance(one, _TYPES):
            kinds = "a text, a number or a list of these" if several else "a text or a number"
            raise ValueError(f"expected {kinds}, got {one!r}")  # noqa: TRY004 - a mistake in a file
        _check(action, str(one))
        yield f"--{key}={one}"


def _check(action: argparse.Action, text: str) -> None:
    convert = action.type if callable(action.type) else str
    try:
        value = convert(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    if action.choices is not None and value not in action.choices:
        raise ValueError(f"expected one of {', '.join(map(str, action.choices))}, got {text!r}")


def _is_typed(action: argparse.Action, typed: Sequence[str]) -> bool:
    names = {word.partition("=")[0] for word in typed if word.startswith("-")}
    # argparse takes the beginning of a long option for it.
    return any(
        option == name or (name.startswith("--") and len(name) > 2 and option.startswith(name))
        for option in action.option_strings
        for name in names
    )
