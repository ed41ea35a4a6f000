"""What an option of `rater run` is: how it is typed, swept and compared; pure."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Any

from rater.errors import InputError
from rater.plan.request.argument import FLAG, TEXT, ArgumentKind, Form


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
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

    @property
    def absent(self) -> Any:
        """What parsed arguments hold where it was not given."""
        return {Form.FLAG: False, Form.ONE: None}.get(self.kind.form, [])

    def given(self, args: argparse.Namespace) -> bool:
        """Tell whether parsed arguments have it."""
        return was_given(getattr(args, self.dest))

    def parse(self, text: str, where: str) -> Any:
        """Return what `argparse` makes of one value; raises `InputError`, `where` in front."""
        try:
            value = self.kind.convert(text)
        except argparse.ArgumentTypeError as error:
            raise InputError(f"{where} {text!r}: {error}") from None
        except ValueError:
            expected = "a whole number" if self.kind.convert is int else "a number"
            raise InputError(f"{where} {text!r}: expected {expected}") from None
        if self.choices is not None and value not in self.choices:
            raise InputError(f"{where} {text!r}: expected one of {', '.join(self.choices)}")
        return value


def option(group: str, text: str, default: Any = None, **rest: Any) -> Any:
    """Return a dataclass field that is an option with this help text and default."""
    if rest.get("kind") is FLAG:
        default = False
    entry = Option(group=group, help=text, default=default, **rest)
    return field(default=default, metadata={"option": entry})


def was_given(value: object) -> bool:
    """Tell whether a parsed argument was given; by identity: 0 is a value, though it is False."""
    return not (value is None or value is False or value == [])
