"""What an option of `rater run` is, which values it takes, and the reader of their table; pure."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from enum import Flag, StrEnum, auto
from typing import Any, Protocol, cast

from msgspec import Struct

from rater.plan.idle_power import IdlePower
from rater.plan.metric import parse_metrics
from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text.cpuset import parse_list
from rater.text.values import duration_ms, duration_s, parse_percent, printable, size_bytes
from rater.wings import Hook

# -- How often running copies are sampled: the value of `--proof` ----------------------------------

LEAST_EVERY_S = 0.05


class Cadence(Struct, frozen=True):
    """How often to sample a copy."""

    once: bool = False
    every_s: float | None = None  # None chooses the interval by the cost of a sample

    def __str__(self) -> str:
        """Return the cadence as a value of `--proof`."""
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

# Characters of a benchmark's name: 4 bytes each at most in UTF-8, and a file name has 255 bytes.
LONGEST_NAME = 60

_VARIABLE = compile_later(r"[A-Za-z_][A-Za-z0-9_]*")


class OptionForm(StrEnum):
    """How many values an option takes."""

    FLAG = "flag"  # none
    ONE = "one"
    SEVERAL = "several"  # one or more each time: --speccmds A B --speccmds C
    REPEATED = "repeated"  # one each time: --tag A=1 --tag B=2


class ArgumentKind(Struct, frozen=True):
    """A kind of value: how a text becomes the value of a field of `Request`, in two steps.

    `convert` takes the text and raises a `ValueError` that says what is expected. `check` takes
    the option (`--copies`) and the result of `convert`, returns the value of the field, and raises
    `InputError`.
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


def _duration_text(text: str) -> str:
    duration_s(text)
    return text


def _check_duration(typed: str, text: str) -> float:
    value = duration_s(text)
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{typed} {text}: expected 0 or more")
    return value


def _split_pair(typed: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{typed} {text!r}: expected KEY=VALUE")
    return key.strip(), value


def _split_variable(typed: str, text: str) -> tuple[str, str]:
    name, value = _split_pair(typed, text)
    if not _VARIABLE.fullmatch(name):
        raise InputError(f"{typed} {text!r}: {name!r} is no name of an environment variable")
    if "\0" in value:
        raise InputError(f"{typed} {name}: a value can not hold a NUL byte")
    return name, value


def _split_words(typed: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{typed} {text!r}: {error}; check the quotes") from error


def _check_name(typed: str, text: str) -> str:
    if not text.strip() or "/" in text or len(text) > LONGEST_NAME or printable(text) != text:
        raise InputError(
            f"{typed} {text!r}: expected 1 to {LONGEST_NAME} printable characters without /"
        )
    return text


def _parse_bytes(typed: str, text: str) -> int:
    try:
        return size_bytes(text)
    except ValueError as error:
        raise InputError(f"{typed}: {error}") from None


def _parse_exit_codes(typed: str, text: str) -> tuple[int, ...]:
    codes = _parsed(parse_list, typed, text)
    if not all(0 < code < 256 for code in codes):
        raise InputError(f"{typed} {text!r}: expected exit codes from 1 to 255")
    return codes


def _check_share(typed: str, text: str) -> str:
    if not parse_percent(text):
        raise InputError(f"{typed} {text!r}: expected a number of per cent above 0, as in 2%")
    return text


def _check_metrics(typed: str, texts: Iterable[str]) -> tuple[str, ...]:
    texts = tuple(texts)
    try:
        parse_metrics(texts)
    except ValueError as error:
        raise InputError(f"{typed}: {error}") from None
    return texts


class CopyNumbers(Struct, frozen=True):
    """Which copies of a run with more of them are to run: their numbers, and of how many."""

    numbers: tuple[int, ...]
    of: int

    @classmethod
    def parse(cls, text: str) -> CopyNumbers:
        """Return the numbers that `3/8` or `0-2,5/8` names, in its order; raises `ValueError`."""
        listed, slash, total = text.partition("/")
        numbers = parse_list(listed)
        if not numbers or len(set(numbers)) < len(numbers):
            raise ValueError("expected one number or more, each once, as in 3/8 or 0-2,5/8")
        of = int(total) if slash and total.isdecimal() else max(numbers) + 1
        if (slash and not total.isdecimal()) or max(numbers) >= of:
            raise ValueError("expected numbers below their total, as in 3/8 or 0-2,5/8")
        return cls(numbers, of)


def _parsed[Value](parse: Callable[[str], Value], typed: str, text: str) -> Value:
    """Return the value of a text; what `parse` refuses is an `InputError` with the option."""
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"{typed} {text!r}: {error}") from None


def _text_for(parse: Callable[[str], object]) -> Callable[[str, str], str]:
    """Return the check of an option that keeps its text, which `parse` takes."""

    def check(typed: str, text: str) -> str:
        _parsed(parse, typed, text)
        return text

    return check


def _check_cadence(_: str, text: str) -> str:
    parse_cadence(text)
    return text


class PageLayouts(Protocol):
    """What the wing of page layouts does for `--pages`."""

    def parse_pages(self, text: str) -> object:
        """Return a layout; `str` of it is its canonical text. Raises `InputError`."""


_PAGE_LAYOUTS = Hook[PageLayouts]("page layouts")
TEXT = ArgumentKind()
WHOLE = ArgumentKind(int)
MILLISECONDS = ArgumentKind(duration_ms)
BYTES = ArgumentKind(check=_parse_bytes)  # 500M, 2G: powers of 1024
NAME = ArgumentKind(check=_check_name)
EXIT_CODES = ArgumentKind(check=_parse_exit_codes)
COPY_NUMBERS = ArgumentKind(check=_text_for(CopyNumbers.parse))
WORDS = ArgumentKind(check=_split_words)  # split as a shell does
PAGES = ArgumentKind(check=lambda _, text: str(_PAGE_LAYOUTS().parse_pages(text)))
CADENCE = ArgumentKind(check=_check_cadence)
IDLE_POWER = ArgumentKind(check=_text_for(IdlePower.parse))
WARMUP = ArgumentKind(_duration_text, _check_duration)  # iterations, or seconds in steady mode
SHARE = ArgumentKind(check=_check_share)
FLAG = ArgumentKind(form=OptionForm.FLAG)
NEGATED = ArgumentKind(check=lambda _, value: not value, form=OptionForm.FLAG)  # --no-...
STRINGS = ArgumentKind(check=lambda _, texts: tuple(texts), form=OptionForm.SEVERAL)
PAIRS = ArgumentKind(
    check=lambda typed, texts: tuple(_split_pair(typed, text) for text in texts),
    form=OptionForm.REPEATED,
)
METRICS = ArgumentKind(check=_check_metrics, form=OptionForm.REPEATED)
VARIABLES = ArgumentKind(
    check=lambda typed, texts: tuple(_split_variable(typed, text) for text in texts),
    form=OptionForm.REPEATED,
)


# -- What an option of `rater run` is: how it is typed, swept and compared -------------------------


class Trait(Flag):
    """Properties of an option beside its value."""

    NONE = 0
    SWEPT = auto()  # it may be an axis of a sweep
    # `RunHead` has a field of the same name with the value that the run used (`--copies pus` is a
    # number there). Comparisons read that value, not the option.
    IN_HEAD = auto()
    MOVES_COPIES = auto()  # the places of copies follow from it
    COMMON = auto()  # most people come for it: the short help has it


SWEPT, IN_HEAD, MOVES_COPIES = Trait.SWEPT, Trait.IN_HEAD, Trait.MOVES_COPIES


class CompareAs(StrEnum):
    """How a comparison takes two runs that differ in an option."""

    DIFFERENT_WORK = "different_work"  # their times are of different things: it says so, loudly
    NOTE = "note"  # it says so, and compares the times
    NOTHING = "nothing"  # it passes over the option, which changes no times
    RECORDED_EFFECT = "recorded_effect"  # it compares the effect that both runs recorded instead


class Option(Struct, frozen=True, kw_only=True):
    """One option of `rater run`."""

    field: str  # of `Request`: the key in stored JSON
    name: str  # typed behind two dashes
    group: str  # title of its group in `--help`
    help: str
    default: Any  # of the field
    label: str  # in differences between runs
    aliases: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    const: Any = None  # the value where it is typed without one; None for options that need one
    kind: ArgumentKind = TEXT
    traits: Trait = Trait.NONE
    compare_as: CompareAs = CompareAs.DIFFERENT_WORK
    neutral: tuple[Any, ...] = ()  # values that mean the same as the default
    # Labels of other differences that this one causes, or their beginnings: a comparison that
    # names this option leaves them out.
    implies: tuple[str, ...] = ()

    @property
    def typed(self) -> str:
        """The option as a person types it."""
        return f"--{self.name}"

    @property
    def dest(self) -> str:
        """Its name among parsed arguments."""
        return self.name.replace("-", "_")

    def typed_as(self, value: object, where: str) -> Any:
        """Return a Python value as `argparse` would give it: pairs as a list of `KEY=VALUE`.

        Raises `InputError`, which begins with `where`.
        """
        if value is None:
            return value
        if self.kind.form is OptionForm.FLAG:
            if not isinstance(value, bool):
                raise InputError(f"{where} {value!r}: expected True or False")
            return value
        if isinstance(value, Mapping):
            return [f"{key}={text}" for key, text in value.items()]
        if self.kind.form is OptionForm.ONE:
            return self.parse(str(value), where)
        if isinstance(value, str):
            return [value]
        return [str(item) for item in cast("Iterable[object]", value)]

    def parse(self, text: str, where: str) -> Any:
        """Return one value as `argparse` would; raises `InputError`, which begins with `where`."""
        try:
            value = self.kind.convert(text)
        except ValueError as error:
            expected = "expected a whole number" if self.kind.convert is int else error
            raise InputError(f"{where} {text!r}: {expected}") from None
        if self.choices is not None and value not in self.choices:
            raise InputError(f"{where} {text!r}: expected one of {', '.join(self.choices)}")
        return value


def was_given(value: object) -> bool:
    """Tell whether a parsed argument was given; by identity: 0 is a value, though it is False."""
    return not (value is None or value is False or value == [])


# -- The table of options as text ------------------------------------------------------------------

_PROPERTY = compile_later(r'(?<!\w)(\w+)=(?:"([^"]*)"|(\S+))')
_PROPERTIES = {"field", "kind", "traits", "compare_as", "label", "neutral", "implies"}


def read_options(
    table: str, kinds: Mapping[str, ArgumentKind], defaults: Mapping[str, object]
) -> tuple[Option, ...]:
    """Return the options of a table; `defaults` of the fields of `Request`, by name.

    Each begins with what is typed, two spaces and its help, which goes on below, as in the tables
    of commands. Then come its properties, in brackets on a line of their own:

    how:                      a title: what follows is in this group of `--help`
    --stagger MS              the option, and the word for its value in the help
    --mem, --memory POLICY    another name that is understood
    --energy (auto|off)       these values and no other
    --wait MAX_S ?86400       the value may be left out, and is this then

    field=wait_s              the field of `Request`; without it the name of the option with `_`
    kind=whole                one of `kinds`; without it text
    traits=swept,in_head      of `Trait`
    compare_as=note           of `CompareAs`; without it different work
    label="ms between starts" in differences between runs; without it the field of an option that
                              the head of a run has, else `--name`
    neutral=pu                a value that means the default
    implies="a, b of "        labels, or beginnings of labels, of differences that follow from it
    """
    options = []
    group = ""
    for entry in re.split(r"\n(?=\S)", table.strip("\n")):
        if entry.startswith("-"):
            options.append(_read_option(entry, group, kinds, defaults))
        else:
            group = entry.strip().removesuffix(":")
    return tuple(options)


def _read_option(
    entry: str, group: str, kinds: Mapping[str, ArgumentKind], defaults: Mapping[str, object]
) -> Option:
    described, _, bracketed = entry.rstrip().partition("\n    [")
    typed, _, text = described.partition("  ")
    words = typed.split()
    names = [word.strip("-,") for word in words if word.startswith("-")]
    value: dict[str, Any] = {}
    for word in words[len(names) :]:
        if word.startswith("("):
            value["choices"] = tuple(word.strip("()").split("|"))
        elif word.startswith("?"):
            value["const"] = word[1:]
        else:
            value["metavar"] = word
    # A property that goes on in the next line is indented there by five blanks.
    one_line = " ".join(bracketed.removesuffix("]").split("\n     "))
    properties = {key: quoted or word for key, quoted, word in _PROPERTY.findall(one_line)}
    assert properties.keys() <= _PROPERTIES, entry
    field = properties.get("field", names[0].replace("-", "_"))
    kind = kinds[properties["kind"]] if "kind" in properties else TEXT
    if "const" in value:
        value["const"] = kind.convert(value["const"])
    traits = Trait.NONE
    for trait in _split_list(properties.get("traits", "")):
        traits |= Trait[trait.upper()]
    return Option(
        field=field,
        name=names[0],
        group=group,
        help=" ".join(text.split()),
        default=defaults[field],
        label=properties.get("label", field if IN_HEAD in traits else f"--{names[0]}"),
        aliases=tuple(names[1:]),
        kind=kind,
        traits=traits,
        compare_as=CompareAs(properties.get("compare_as", CompareAs.DIFFERENT_WORK)),
        neutral=_split_list(properties.get("neutral", "")),
        implies=_split_list(properties.get("implies", "")),
        **value,
    )


def _split_list(text: str) -> tuple[str, ...]:
    """Split at commas, without the blanks behind them.

    A blank before a comma stays: `command of , mode` has all labels that begin with `command of `.
    """
    return tuple(word.lstrip() for word in text.split(",")) if text else ()
