"""What several subcommands take, declared once."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import FunctionType
from typing import Any

from msgspec import Struct, StructMeta

from rater.commands.command_line import (
    DROPPED,
    NO_TRAITS,
    RENAMED,
    CommandTrait,
    Parser,
    TopLevelParser,
    shown_actions,
)
from rater.plan.options import Option, OptionForm
from rater.plan.request import BY_NAME, DEFAULT_SUITE, KIT, OPTIONS
from rater.system.errors import InputError
from rater.system.files import is_content_trusted, opened, trust_content
from rater.system.paths import user_folder
from rater.text.values import duration_s, size_bytes
from rater.workflow.arguments import Asked

type Subparsers = argparse._SubParsersAction[Parser]

# Words of the tables below that several commands have.
RUN = "a number, the start of a uuid, last, last~1, or tag:K=V"
ONE_RUN = f"{RUN} (where one run has that tag); fleet:N/HOST: a host's run of a fleet"
ALL_RUNS = f"{RUN} (all runs with that tag)"
RESTORE = "runs that were removed (`rater rm`) come back; without it they stay removed"
POINTS = (
    "a point: a run (a number, the start of a uuid, last, last~1), several runs of one point "
    "(7,8,9 or 25-44), all runs with a tag (tag:thp=always), all points of a sweep (sweep:3, "
    "sweep:last), or a host's run of a fleet (fleet:3/n017)"
)
VERBOSE = """
-v, --verbose  every iteration, where the time of copies went, their memory, all remarks
"""
START = "@force\n@share\n@wait\n"  # how a run is started
SWEEP = """
--skip-refused     skip points that cannot run
--stop-on-failure  stop when a copy fails; default: go on
"""


# -- From parsed arguments to the use case of a command --------------------------------------------


def call(function: Callable[..., int], args: argparse.Namespace) -> int:
    """Call a use case with what its parameters name: an argument, or a Struct of several."""
    assert isinstance(function, FunctionType)
    values = {name: tuple(it) if isinstance(it, list) else it for name, it in vars(args).items()}
    given: dict[str, Any] = {}
    for name, of in function.__annotations__.items():
        kind = function.__globals__.get(of)
        if of == "argparse.Namespace":  # it chooses what to call
            given[name] = args
        elif kind is Asked:
            given[name] = Asked.of(vars(args))
        elif isinstance(kind, StructMeta):
            given[name] = kind(
                **{field: values[field] for field in kind.__struct_fields__ if field in values}
            )
        elif name in values:
            given[name] = values[name]
    status: int = function(**given)
    return status


def lazy_command(use_case: str) -> Callable[[argparse.Namespace], int]:
    """Return a command by its use case's name below `rater`, to be imported when it is called."""
    return partial(_call_of, use_case)


def _call_of(use_case: str, args: argparse.Namespace) -> int:
    module, _, function = use_case.rpartition(".")
    return call(getattr(import_module(f"rater.{module}"), function), args)


# -- A command, and its arguments as a table -------------------------------------------------------

_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "duration": duration_s,
    "bytes": size_bytes,
    "path": Path,
}


class Subcommand(Struct, frozen=True, kw_only=True):
    """A command: what it calls, its arguments, and its help."""

    # A use case, or its name below `rater`, to be imported then; None: one of its actions is meant.
    run: str | Callable[..., int] | None
    arguments: str = ""  # as `add_arguments` reads them, with `types` of their own
    tables: bool = False  # it has `--format`
    types: Mapping[str, Callable[[str], Any]] = {}
    actions: Mapping[str, Subcommand] = {}
    traits: CommandTrait = NO_TRAITS
    help: str | None = None
    description: str | None = None
    epilog: str | None = None
    usage: str | None = None
    is_plain: bool = False  # it has neither database nor JSON


def declare(to: Subparsers, name: str, it: Subcommand, about: str | None = None) -> Parser:
    """Declare a command and its actions, with `--db` and `--json` where it runs something."""
    texts: dict[str, Any] = {key: getattr(it, key) for key in ("description", "epilog", "usage")}
    if text := about or it.help:  # without one it is not among the listed
        texts["help"] = text
    parser = to.add_parser(name, traits=it.traits, **texts)
    add_arguments(parser, it.arguments, it.types)
    if it.actions:
        shown = "ACTION" if it.run else "COMMAND"
        actions = parser.add_subparsers(dest="action", metavar=shown, required=it.run is None)
        for action, its in it.actions.items():
            declare(actions, action, its)
    if it.run is None:
        return parser
    use_case = it.run
    run = lazy_command(use_case) if isinstance(use_case, str) else partial(call, use_case)
    parser.set_defaults(run=run)
    if it.is_plain:
        return parser
    # They may also stand before the subcommand; a default here would overwrite that.
    absent: dict[str, Any] = {"default": argparse.SUPPRESS}
    parser.add_argument("--db", metavar="PATH", help="the database (else RATER_DB)", **absent)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout", **absent)
    if it.tables:
        add_arguments(parser, "--format (md|csv)  tables as Markdown, or as CSV without the text")
    return parser


def add_arguments(
    parser: Parser, table: str, types: Mapping[str, Callable[[str], Any]] = {}
) -> None:
    """Declare the arguments of a table: what is typed, two spaces, its help, which may go on below.

    the trial:                a title: what follows is a group of the help
    either:                   of what follows one may be given; `options:` ends that
    -v, --verbose             an option without a value
    --iteration I:int         a value that a function converts, of `types` too
    --tag K=V ...             several times; (!) has to be given
    --law (log|rate) =log     one of these words, and the default
    --run SIZE ?test          the value may be left out, and means this then
    RUN* >which               positional: one, or (?) one at most, (*) any, (+) one at least;
                              among parsed arguments it has another name
    $ rater show last         a command line to copy, at the end of the help
    @force                    an option as `rater run` has it
    @run -wait -share         all of those but two
    """
    to: argparse._ActionsContainer = parser
    for entry in re.split(r"\n(?=\S)", table.strip("\n")):
        typed, _, text = (it.strip() for it in entry.partition("  "))
        if typed.startswith("$"):
            parser.examples += (entry[2:].rstrip(),)
        elif typed.startswith("@run"):
            add_run_arguments(parser, without=[it[1:] for it in typed.split()[1:]])
        elif typed.startswith("@"):
            add_option(to, BY_NAME[typed[1:]])
        elif not typed.startswith("-") and typed.endswith(":"):
            to = parser
            if typed == "either:":
                to = parser.add_mutually_exclusive_group()
            elif typed != "options:":
                to = parser.add_argument_group(typed[:-1])
        elif typed:
            names, given = _argument(typed.split(), {**_CONVERTERS, **types})
            to.add_argument(*names, help=" ".join(text.split()) or argparse.SUPPRESS, **given)


_MARKS: dict[str, dict[str, Any]] = {
    "...": {"action": "append", "default": []},
    "!": {"required": True},
}


def _argument(
    words: Sequence[str], types: Mapping[str, Callable[[str], Any]]
) -> tuple[list[str], dict[str, Any]]:
    """Return an argument's names, and the rest of how it is declared."""
    names = [word.rstrip(",") for word in words if word.startswith("-")]
    given: dict[str, Any] = {}
    convert: Callable[[str], Any] = str
    for word in words[len(names) :]:
        mark, value = word[0], word[1:]
        if word in _MARKS:
            given |= _MARKS[word]
        elif mark == ">":
            given["dest"] = value
        elif mark == "=":
            given["default"] = convert(value)
        elif mark == "?":
            given |= {"nargs": "?", "const": convert(value)}
        else:
            shown, _, kind = word.rpartition(":")
            if kind in types:
                given["type"] = convert = types[kind]
            shown = shown if kind in types else word
            if mark == "(":
                given["choices"] = tuple(map(convert, shown.strip("()").split("|")))
            else:
                given["metavar"] = shown
    if names:
        is_flag = not {"metavar", "choices"} & given.keys()
        return names, given | ({"action": "store_true"} if is_flag else {})
    shown = given.get("metavar", "")
    if shown[-1:] in {"?", "*", "+"}:
        given |= {"metavar": shown[:-1], "nargs": shown[-1]}
    return [given.pop("dest", shown.rstrip("?*+").lower())], given


# -- The table of options as arguments -------------------------------------------------------------


def add_run_arguments(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """Declare what `run` (and every command that plans a run) takes, but the options `without`.

    What was not given is None, False or an empty list: `Request` knows the defaults.
    """
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE[/BENCHMARK]",
        help=f"a suite's name or path; default {DEFAULT_SUITE}, unless a command follows `--`; "
        f"{KIT}DIR: run directories that an installed SPEC CPU made (runcpu --action runsetup)",
    )
    for title, options in groupby(OPTIONS, key=lambda it: it.group):
        group = parser.add_argument_group(title)
        for option in options:
            if option.name not in without:
                add_option(group, option)


def add_option(parser: argparse._ActionsContainer, option: Option, text: str | None = None) -> None:
    """Declare one option of a run; `text`: what it means for another command."""
    rest: dict[str, Any] = {"help": text or option.help, "dest": option.dest}
    form, convert = option.kind.form, option.kind.convert
    if form is OptionForm.FLAG:
        rest["action"] = "store_true"
    else:
        rest |= {"metavar": option.metavar, "choices": option.choices, "type": convert}
    if form in (OptionForm.SEVERAL, OptionForm.REPEATED):
        rest |= {"action": "append", "default": []}
    if form is OptionForm.SEVERAL:
        rest |= {"action": "extend", "nargs": "+"}
    if option.const is not None:
        rest |= {"nargs": "?", "const": option.const}
    parser.add_argument(option.typed, *(f"--{name}" for name in option.aliases), **rest)


# -- Defaults of options from files: `~/.config/rater/config.toml` and `./rater.toml` --------------
#
# A table is called after a command, its keys after that command's options; `[run]` is for `rater
# plan` as well. What is typed goes before `./rater.toml`, and that before the user's own file.
# `RATER_CONFIG` names one file to read instead of both, or none where it is empty.
#
# `./rater.toml` may have come with the folder. Until `rater trust` gives it no more than numbers,
# words of a choice, and these: what runs, names a file or database, hides or forces is not here.

TRUST = "trust"
LOCAL = Path("rater.toml")
_HARMLESS = frozenset(
    """
    copies mode order size tune layout bind bind-from-file kind mem memory proof counters name tag
    pages pages-heap output-limit no-oversubscribe keep run-dirs verbose host suite since by csv
    """.split()  # noqa: SIM905 - a list to read
)
_ALSO = {"plan": "run"}  # a command that takes another's options
_TYPES = (str, int, float)
# What may stand beside these: they take what a stored run was asked for.
_BESIDE = {"--resume": {"db", "json", "quiet", "verbose", "wait"}}


class ConfigDefault(Struct, frozen=True):
    """An option that a file gives: as it would be typed, its name among arguments, and the file."""

    word: str
    dest: str
    file: Path
    is_harmless: bool


def find_defaults(
    parser: TopLevelParser, command: str, typed: Sequence[str]
) -> tuple[ConfigDefault, ...]:
    """Return the defaults of a command that nothing typed replaces.

    Raises `InputError`, naming file and line, for a file that is wrong, another user's, or not
    trusted to give what it gives.
    """
    commands = parser.commands
    if command == TRUST:  # which a file must not keep from being called
        return ()
    taken = {
        action.dest for action in shown_actions(commands[command]) if not _is_typed(action, typed)
    }
    taken &= next((_BESIDE[word] for word in typed if word in _BESIDE), taken)
    found: list[ConfigDefault] = []
    for path in _paths():
        by_command, is_trusted = read_defaults(path, commands)
        # An option that only the other command has (`run`'s for `plan`) is none of this one.
        for name in (command, _ALSO.get(command, "")):
            new = [it for it in by_command.get(name, ()) if it.dest in taken]
            doubted = " ".join(it.word for it in new if not (is_trusted or it.is_harmless))
            if doubted:
                raise InputError(
                    f"{path}: not trusted to give {doubted}: `rater {TRUST}` takes the file as it "
                    "is now, RATER_CONFIG= reads none"
                )
            found += new
            taken -= {it.dest for it in new}
    return tuple(found)


def described(defaults: Iterable[ConfigDefault], *, quiet: bool) -> list[str]:
    """Return a line for each file that defaults came from; `quiet`: for `./rater.toml` alone."""
    files: dict[Path, list[str]] = {}
    for it in defaults:
        if it.file == LOCAL or not quiet:
            files.setdefault(it.file, []).append(it.word)
    return [f"defaults of {file}: {' '.join(words)}" for file, words in files.items()]


def _paths() -> Iterator[Path]:
    named = os.environ.get("RATER_CONFIG")
    if named == "":
        return
    if named:
        if not os.path.exists(named):  # noqa: PTH110 - False for what no path can be
            raise InputError(f"RATER_CONFIG={named}: no such file")
        yield Path(named).absolute() if Path(named) == LOCAL else Path(named)
        return
    own = user_folder("CONFIG")
    for path in (LOCAL, own and own / "config.toml"):
        if path and os.path.lexists(path):
            yield path


def read_defaults(
    path: Path, commands: Mapping[str, argparse.ArgumentParser], *, trust: bool = False
) -> tuple[dict[str, list[ConfigDefault]], bool]:
    """Return what a file gives, by command, and whether it may give anything.

    `trust`: from now on it may, as it is. Raises `InputError` for all that is wrong in it.
    """
    from rater.text.documents import MOST_BYTES, did_you_mean, text_of, toml_document

    try:
        # It can name commands (--prepare): one in a folder like /tmp may be anybody's.
        with opened(path) as file:
            data, other = file.read(MOST_BYTES + 1), file.writer
        text = text_of(data, path, "defaults")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); RATER_CONFIG= reads none") from None
    is_trusted = trust or (path == LOCAL and is_content_trusted(path, data))
    if other is not None and not is_trusted:
        way = f"`rater {TRUST}` takes it as it is now" if path == LOCAL else "make it yours alone"
        raise InputError(
            f"{path}: {other}, and it could have any command run; {way}, or set RATER_CONFIG= to "
            "read no defaults"
        )
    document = toml_document(text, path)
    root = document.root()
    found: dict[str, list[ConfigDefault]] = {}
    for written, values in document.data.items():
        table = root.table(written)
        name = RENAMED.get(written, written)
        if name not in commands:
            root.mistake(f"unknown command; {did_you_mean(name, commands)}", written)
            continue
        actions = _options(commands[name])
        for key, value in values.items() if isinstance(values, dict) else ():
            if key not in actions:
                near = DROPPED.get(f"rater {name} --{key}") or did_you_mean(key, actions)
                table.mistake(f"no option of `rater {name}`; {near}", key)
                continue
            try:
                words = list(_words(actions[key], key, value))
            except ValueError as error:
                table.mistake(str(error), key)
                continue
            found.setdefault(name, []).extend(
                ConfigDefault(word, actions[key].dest, path, _is_harmless(key, actions[key]))
                for word in words
            )
    document.raise_mistakes()
    if trust:
        trust_content(path, data)
    return found, is_trusted or path != LOCAL


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        option.removeprefix("--"): action
        for action in shown_actions(parser)
        for option in action.option_strings
        if option.startswith("--") and action.dest != "help"
    }


def _is_harmless(key: str, action: argparse.Action) -> bool:
    is_number = action.type not in (None, str)
    return is_number or action.choices is not None or key in _HARMLESS


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
    except ValueError as error:
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
