"""Kinds of arguments that options of `rater run` take; pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rater.errors import InputError
from rater.plan.pages.layout import parse_pages
from rater.plan.request.sampling import parse_cadence
from rater.text.units import duration_ms, duration_s, size_bytes
from rater.text.words import printable

LONGEST_NAME = 60  # characters of a benchmark's; up to 4 bytes each, and a file name has 255

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Form(StrEnum):
    """What an option takes."""

    FLAG = "flag"
    ONE = "one"  # a value
    SEVERAL = "several"  # values, in one go and again: --speccmds A B --speccmds C
    REPEATED = "repeated"  # one value each time: --tag A=1 --tag B=2


def _as_it_is(_: str, value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """A kind of value: how one is read, and what it is checked and turned into.

    `convert` takes a text, and raises ValueError or ArgumentTypeError as argparse wants it. `check`
    takes the option as it is typed and what was parsed, and returns what a `Request` holds; it
    raises `InputError`.
    """

    convert: Callable[[str], Any] = str
    check: Callable[[str, Any], Any] = _as_it_is
    form: Form = Form.ONE


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
    """Return a benchmark's name, which is a part of names of files as well."""
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


def _cadence(_: str, text: str) -> str:
    parse_cadence(text)
    return text


TEXT = ArgumentKind()
WHOLE = ArgumentKind(int)
MILLISECONDS = ArgumentKind(duration_ms)
BYTES = ArgumentKind(check=_bytes)  # 500M, 2G: powers of 1024
NAME = ArgumentKind(check=_name)
WORDS = ArgumentKind(check=_words)  # as a shell splits them
PAGES = ArgumentKind(check=lambda _, text: str(parse_pages(text)))
CADENCE = ArgumentKind(check=_cadence)
FLAG = ArgumentKind(form=Form.FLAG)
NEGATED = ArgumentKind(check=lambda _, value: not value, form=Form.FLAG)  # --no-FIELD
STRINGS = ArgumentKind(check=lambda _, texts: tuple(texts), form=Form.SEVERAL)
PAIRS = ArgumentKind(
    check=lambda typed, texts: tuple(_pair(typed, it) for it in texts), form=Form.REPEATED
)
VARIABLES = ArgumentKind(
    check=lambda typed, texts: tuple(_variable(typed, it) for it in texts), form=Form.REPEATED
)
