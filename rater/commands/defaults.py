"""Defaults of options from files: `~/.config/rater/config.toml` and `./rater.toml`.

A table is called after a command, its keys after that command's options; `[run]` is for `rater
plan` as well. What is typed goes before `./rater.toml`, and that before the user's own file.
`RATER_CONFIG` names one file to read instead of both; where it is empty none is read.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.commands.command_line import DROPPED, RENAMED, TopLevelParser, shown_actions
from rater.system.errors import InputError
from rater.system.files import inspect_file, is_content_trusted, trust_content
from rater.system.paths import user_folder

TRUST = "trust"  # the command that lets `./rater.toml` give every option
LOCAL = Path("rater.toml")
# `./rater.toml` may have come with the folder. Until `rater trust` it may give numbers, words of a
# choice, and these options. Absent are all that run a program, name a file or a database, hide
# messages or force.
_HARMLESS = frozenset(
    """
    copies mode order size tune layout bind bind-from-file kind mem memory proof counters name tag
    pages pages-heap output-limit no-oversubscribe keep run-dirs verbose host suite since by csv
    """.split()  # noqa: SIM905 - a list to read
)
_OTHER_TABLE = {"plan": "run"}  # a command, and the command whose table counts for it as well
_VALUE_TYPES = (str, int, float)
# A stored run that goes on has its options; files may only add to these of the command line.
_DEFAULTS_BESIDE = {"--resume": {"db", "json", "quiet", "verbose", "wait"}}


class ConfigDefault(Struct, frozen=True):
    """An option that a file gives."""

    word: str  # as it would be typed: --name=value
    dest: str  # its name among parsed arguments
    file: Path
    is_harmless: bool


def find_defaults(
    parser: TopLevelParser, command: str, typed: Sequence[str]
) -> tuple[ConfigDefault, ...]:
    """Return the defaults of a command that nothing typed replaces.

    Raises `InputError`, naming file and line, for a file that is wrong, that another user may
    write, or that gives an option for which it is not trusted.
    """
    commands = parser.commands
    if command == TRUST:  # no file may keep the user from calling it
        return ()
    open_dests = {
        action.dest for action in shown_actions(commands[command]) if not _is_typed(action, typed)
    }
    for word, dests in _DEFAULTS_BESIDE.items():
        if word in typed:
            open_dests &= dests
    defaults: list[ConfigDefault] = []
    for path in _default_files():
        by_command, is_trusted = read_defaults(path, commands)
        # Of the other command's table, options that this command has not got do not count.
        for name in (command, _OTHER_TABLE.get(command, "")):
            added = [default for default in by_command.get(name, ()) if default.dest in open_dests]
            doubted = " ".join(
                default.word for default in added if not (is_trusted or default.is_harmless)
            )
            if doubted:
                raise InputError(
                    f"{path}: not trusted to give {doubted}: `rater {TRUST}` takes the file as it "
                    "is now, RATER_CONFIG= reads none"
                )
            defaults += added
            open_dests -= {default.dest for default in added}
    return tuple(defaults)


def describe_defaults(defaults: Iterable[ConfigDefault], *, quiet: bool) -> list[str]:
    """Return a line for each file that defaults came from; `quiet`: for `./rater.toml` alone."""
    words_by_file: dict[Path, list[str]] = {}
    for default in defaults:
        if default.file == LOCAL or not quiet:
            words_by_file.setdefault(default.file, []).append(default.word)
    return [f"defaults of {file}: {' '.join(words)}" for file, words in words_by_file.items()]


def _default_files() -> Iterator[Path]:
    named = os.environ.get("RATER_CONFIG")
    if named == "":
        return
    if named:
        if not os.path.exists(named):  # noqa: PTH110 - False for what no path can be
            raise InputError(f"RATER_CONFIG={named}: no such file")
        yield Path(named).absolute() if Path(named) == LOCAL else Path(named)
        return
    folder = user_folder("CONFIG")
    for path in (LOCAL, folder and folder / "config.toml"):
        if path and os.path.lexists(path):
            yield path


def read_defaults(
    path: Path, commands: Mapping[str, argparse.ArgumentParser], *, trust: bool = False
) -> tuple[dict[str, list[ConfigDefault]], bool]:
    """Return the defaults of a file by command, and whether it may give every option.

    `trust`: from now on the file may give every option, as long as its text stays the same.
    Raises `InputError` for all mistakes in it.
    """
    from rater.text.documents import toml_document

    text, data, is_trusted = _read_default_file(path, trust=trust)
    document = toml_document(text, path)
    root = document.root()
    by_command: dict[str, list[ConfigDefault]] = {}
    for written_name, values in document.data.items():
        table = root.table(written_name)
        name = RENAMED.get(written_name, written_name)
        if name not in commands:
            root.mistake(f"unknown command; {_did_you_mean(name, commands)}", written_name)
            continue
        actions = _option_actions(commands[name])
        for key, value in values.items() if isinstance(values, dict) else ():
            try:
                defaults = _defaults_of_key(path, name, actions, key, value)
            except ValueError as error:
                table.mistake(str(error), key)
                continue
            by_command.setdefault(name, []).extend(defaults)
    document.raise_mistakes()
    if trust:
        trust_content(path, data)
    return by_command, is_trusted or path != LOCAL


def _read_default_file(path: Path, *, trust: bool) -> tuple[str, bytes, bool]:
    """Return text and bytes of a file, and whether the user trusts this text of `./rater.toml`.

    Raises `InputError` where it cannot be read, or where others may write it and it is not trusted.
    """
    from rater.text.documents import MOST_BYTES, decode_text

    try:
        # It can name commands (--prepare): one in a folder like /tmp may be anybody's.
        with inspect_file(path) as file:
            data, other_writer = file.read(MOST_BYTES + 1), file.writer
        text = decode_text(data, path, "defaults")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); RATER_CONFIG= reads none") from None
    is_trusted = trust or (path == LOCAL and is_content_trusted(path, data))
    if other_writer is not None and not is_trusted:
        way = f"`rater {TRUST}` takes it as it is now" if path == LOCAL else "make it yours alone"
        raise InputError(
            f"{path}: {other_writer}, and it could have any command run; {way}, or set "
            "RATER_CONFIG= to read no defaults"
        )
    return text, data, is_trusted


def _defaults_of_key(
    path: Path, command: str, actions: Mapping[str, argparse.Action], key: str, value: Any
) -> list[ConfigDefault]:
    """Return the words that a key of a command's table stands for.

    Raises `ValueError` for a key that is no option, and a value that the option does not take.
    """
    if key not in actions:
        near = DROPPED.get(f"rater {command} --{key}") or _did_you_mean(key, actions)
        raise ValueError(f"no option of `rater {command}`; {near}")
    action = actions[key]
    is_number = action.type not in (None, str)
    is_harmless = is_number or action.choices is not None or key in _HARMLESS
    return [
        ConfigDefault(word=word, dest=action.dest, file=path, is_harmless=is_harmless)
        for word in _typed_words(action, key, value)
    ]


def _did_you_mean(word: str, choices: Iterable[str]) -> str:
    from rater.text.documents import did_you_mean

    return did_you_mean(word, choices)


def _option_actions(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the long options of a command by name, without their dashes."""
    return {
        option.removeprefix("--"): action
        for action in shown_actions(parser)
        for option in action.option_strings
        if option.startswith("--") and action.dest != "help"
    }


def _typed_words(action: argparse.Action, key: str, value: Any) -> Iterator[str]:
    """Yield the words to type for a value; raises `ValueError` for one that it does not take."""
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {value!r}")
        if value:
            yield f"--{key}"
        return
    takes_several = isinstance(action, argparse._AppendAction | argparse._ExtendAction)
    if isinstance(value, dict) and takes_several:
        value = [f"{name}={text}" for name, text in value.items()]
    for item in value if isinstance(value, list) and takes_several else [value]:
        if isinstance(item, bool) or not isinstance(item, _VALUE_TYPES):
            kinds = "a text, a number or a list of these" if takes_several else "a text or a number"
            raise ValueError(f"expected {kinds}, got {item!r}")  # noqa: TRY004 - a mistake in a file
        _check_value(action, str(item))
        yield f"--{key}={item}"


def _check_value(action: argparse.Action, text: str) -> None:
    """Raise `ValueError` for a value that the option does not take."""
    convert = action.type if callable(action.type) else str
    value = convert(text)
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
