"""What an option of `rater run` is and takes; pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from enum import Flag, StrEnum, auto
from typing import Any, Protocol, cast

from msgspec import Struct, StructMeta
from msgspec.structs import replace

from rater.system.errors import InputError
from rater.text.cpuset import parse_list
from rater.text.values import duration_ms, duration_s, printable, size_bytes
from rater.wings import Hook

# -- How often running copies are sampled: the value of `--proof` ----------------------------------

LEAST_EVERY_S = 0.05


class Cadence(Struct, frozen=True):
    """How often to sample a copy."""

    once: bool = False
    every_s: float | None = None  # None: as often as costs little

    def __str__(self) -> str:
        """Return it as `--proof` takes it."""
        return "once" if self.once else "auto" if self.every_s is None else f"{self.every_s:g}"


def parse_cadence(text: str) -> Cadence | None:
    """Return what `--proof` asks for: `auto`, `once`, seconds, or `off` (None)."""
    if text in ("off", "auto", "once"):
        return None if text == "off" else Cadence(once=text == "once")
    try:
        every_s = duration_s(text)
    except ValueError:
        every_s = math.nan
    if not (LEAST_EVERY_S <= every_s < math.inf):
        raise InputError(
            f"--proof {text!r}: expected auto, once, off, or seconds between two looks at a copy "
            f"({LEAST_EVERY_S:g} or more)"
        )
    return Cadence(every_s=every_s)


# -- Kinds of arguments that options of `rater run` take -------------------------------------------

LONGEST_NAME = 60  # characters of a benchmark's; up to 4 bytes each, and a file name has 255

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class OptionForm(StrEnum):
    """What an option takes."""

    FLAG = "flag"
    ONE = "one"  # a value
    SEVERAL = "several"  # values, in one go and again: --speccmds A B --speccmds C
    REPEATED = "repeated"  # one value each time: --tag A=1 --tag B=2


class ArgumentKind(Struct, frozen=True):
    """A kind of value: how one is read, and what it is checked and turned into.

    `convert` takes a text, and raises `ValueError` that says what is expected. `check`
    takes the option as it is typed and what was parsed, and returns what a `Request` holds; it
    raises `InputError`.
    """

    convert: Callable[[str], Any] = str
    check: Callable[[str, Any], Any] = lambda _, value: value
    form: OptionForm = OptionForm.ONE


def seconds(least: float, convert: Callable[[str], float] = duration_s) -> ArgumentKind:
    """Return the kind of seconds that are `least` or more."""

    def check(typed: str, value: float) -> float:
        if not (math.isfinite(value) and value >= least):
            raise InputError(f"{typed} {value:g}: expected seconds, {least:g} or more")
        return value

    return ArgumentKind(convert, check)


def _pair(typed: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{typed} {text!r}: expected KEY=VALUE")
    return key.strip(), value


def _variable(typed: str, text: str) -> tuple[str, str]:
    name, value = _pair(typed, text)
    if not _VARIABLE.fullmatch(name):
        raise InputError(f"{typed} {text!r}: {name!r} is no name of an environment variable")
    if "\0" in value:
        raise InputError(f"{typed} {name}: a value can not hold a NUL byte")
    return name, value


def _words(typed: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{typed} {text!r}: {error}; check the quotes") from error


def _name(typed: str, text: str) -> str:
    if not text.strip() or "/" in text or len(text) > LONGEST_NAME or printable(text) != text:
        raise InputError(
            f"{typed} {text!r}: expected 1 to {LONGEST_NAME} printable characters without /"
        )
    return text


def _bytes(typed: str, text: str) -> int:
    try:
        return size_bytes(text)
    except ValueError as error:
        raise InputError(f"{typed}: {error}") from None


def _exit_codes(typed: str, text: str) -> tuple[int, ...]:
    try:
        codes = parse_list(text)
    except ValueError as error:
        raise InputError(f"{typed} {text!r}: {error}") from None
    if not all(0 < code < 256 for code in codes):
        raise InputError(f"{typed} {text!r}: expected exit codes from 1 to 255")
    return codes


def _cadence(_: str, text: str) -> str:
    parse_cadence(text)
    return text


class PageLayouts(Protocol):
    """What a wing has for `--pages`."""

    def parse_pages(self, text: str) -> object:
        """Return a layout, which is text as it was meant. Raises `InputError`."""


_PAGE_LAYOUTS = Hook[PageLayouts]("page layouts")
TEXT = ArgumentKind()
WHOLE = ArgumentKind(int)
MILLISECONDS = ArgumentKind(duration_ms)
BYTES = ArgumentKind(check=_bytes)  # 500M, 2G: powers of 1024
NAME = ArgumentKind(check=_name)
EXIT_CODES = ArgumentKind(check=_exit_codes)
WORDS = ArgumentKind(check=_words)  # as a shell splits them
PAGES = ArgumentKind(check=lambda _, text: str(_PAGE_LAYOUTS().parse_pages(text)))
CADENCE = ArgumentKind(check=_cadence)
FLAG = ArgumentKind(form=OptionForm.FLAG)
NEGATED = ArgumentKind(check=lambda _, value: not value, form=OptionForm.FLAG)  # --no-FIELD
STRINGS = ArgumentKind(check=lambda _, texts: tuple(texts), form=OptionForm.SEVERAL)
PAIRS = ArgumentKind(
    check=lambda typed, texts: tuple(_pair(typed, text) for text in texts), form=OptionForm.REPEATED
)
VARIABLES = ArgumentKind(
    check=lambda typed, texts: tuple(_variable(typed, text) for text in texts),
    form=OptionForm.REPEATED,
)


# -- What an option of `rater run` is: how it is typed, swept and compared -------------------------


class Trait(Flag):
    """What is to be known of an option beside its value."""

    NONE = 0
    SWEPT = auto()  # it may be an axis of a sweep
    IN_HEAD = auto()  # the head of a run has what it came to, in a field of the same name
    MOVES_COPIES = auto()  # where copies are follows from it
    # What it says of two runs that they differ in it. Without one of these: that their times are
    # of different things.
    NO_EFFECT = auto()  # it changes no times
    MINOR = auto()  # worth a note
    RECORDED = auto()  # what it came to is recorded by itself, and compared there


SWEPT, IN_HEAD, MOVES_COPIES = Trait.SWEPT, Trait.IN_HEAD, Trait.MOVES_COPIES
NO_EFFECT, MINOR, RECORDED = Trait.NO_EFFECT, Trait.MINOR, Trait.RECORDED


class Option(Struct, frozen=True, kw_only=True):
    """One option of `rater run`."""

    group: str  # of `--help`
    help: str
    default: Any  # of the field of `Request`
    field: str = ""  # of `Request`: its key in stored JSON
    name: str = ""  # as it is typed, without dashes; default: the field's without its unit
    aliases: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    const: Any = None  # the value where it is given without one; None: it needs one
    kind: ArgumentKind = TEXT
    traits: Trait = Trait.NONE
    label: str = ""  # in differences of runs; default: the field in the head, else `--name`
    neutral: tuple[Any, ...] = ()  # values that mean the default, beside the default itself
    implies: tuple[str, ...] = ()  # labels (or their beginnings) of differences that follow from it

    def named(self, field: str) -> Option:
        """Return it with the names that follow from its field."""
        of_field = field.removesuffix("_s").removesuffix("_bytes").replace("_", "-")
        name = self.name or of_field
        label = self.label or (field if IN_HEAD in self.traits else f"--{name}")
        return replace(self, field=field, name=name, label=label)

    @property
    def typed(self) -> str:
        """The option as a person types it."""
        return f"--{self.name}"

    @property
    def dest(self) -> str:
        """Its name among parsed arguments."""
        return self.name.replace("-", "_")

    def typed_as(self, value: object, where: str) -> Any:
        """Return what `argparse` makes of a Python value, pairs as a mapping; as `parse`."""
        if value is None:
            return value
        if self.kind.form is OptionForm.FLAG:
            if not isinstance(value, bool):
                raise InputError(f"{where} {value!r}: expected True or False")
            return value
        if isinstance(value, Mapping):
            return [f"{name}={one}" for name, one in value.items()]
        if self.kind.form is not OptionForm.ONE:
            return (
                [value]
                if isinstance(value, str)
                else [str(it) for it in cast("Iterable[object]", value)]
            )
        return self.parse(str(value), where)

    def parse(self, text: str, where: str) -> Any:
        """Return what `argparse` makes of one value; raises `InputError`, `where` in front."""
        try:
            value = self.kind.convert(text)
        except ValueError as error:
            expected = "expected a whole number" if self.kind.convert is int else error
            raise InputError(f"{where} {text!r}: {expected}") from None
        if self.choices is not None and value not in self.choices:
            raise InputError(f"{where} {text!r}: expected one of {', '.join(self.choices)}")
        return value


def option(group: str, text: str, default: Any = None, **rest: Any) -> Any:
    """Return an option with this help text and default: a field's value in an `OptionTable`."""
    if rest.get("kind") is FLAG:
        default = False
    return Option(group=group, help=text, default=default, **rest)


class OptionTable(StructMeta):
    """Makes Structs of classes whose fields may be options; keeps these, as `options`."""

    options: tuple[Option, ...]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **how: Any) -> Any:
        """Take the options out of the class, and their defaults into it."""
        options = {field: it.named(field) for field, it in body.items() if isinstance(it, Option)}
        defaults = {field: it.default for field, it in options.items()}
        made = super().__new__(cls, name, bases, body | defaults, **how)
        made.options = tuple(options.values())
        return made


def was_given(value: object) -> bool:
    """Tell whether a parsed argument was given; by identity: 0 is a value, though it is False."""
    return not (value is None or value is False or value == [])
