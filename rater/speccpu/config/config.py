"""Configuration files of SPEC CPU, preprocessed: `submit`, `bind`, `bindN`, `copies`; pure."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from rater.speccpu.config import keys
from rater.speccpu.config.arithmetic import Grammar, compared, whole_number
from rater.speccpu.config.keys import Problem

_DIRECTIVE = re.compile(
    r"\s*%\s*(if|ifdef|ifndef|elif|else|endif|define|undef|include|warning|error|info)\b(.*)",
    re.IGNORECASE,
)
_MACRO = re.compile(r"%\{([A-Za-z_][\w-]*)\}")
_NAME = r"(?:%\{([A-Za-z_][\w-]*)\}|([A-Za-z_][\w-]*))"
_DEFINED = re.compile(rf"\bdefined(?:\s*\(\s*{_NAME}\s*\)|\s+{_NAME})")
_TOKEN = re.compile(
    r"""("[^"]*"|'[^']*'|%\{[\w-]+\}|\|\||&&|[=!<>]=|[-+*/%()<>!]|[A-Za-z_][\w.+-]*|\d[\w.]*|\.\d+)"""
)
_SUM = re.compile(r"(?=.*?\d[\s)]*[-+*/%])[\d\s()+*/%-]+", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"(\d+)-(\d+)(-\d+)*", re.ASCII)
_LONGEST_SUM = 200
_MOST_TOKENS = 200
_DEEPEST = 50  # brackets and signs before values
_LONGEST_CONDITION = 1000
_ROUNDS = 20  # of macros inside macros
_MACROS_LONGEST = 100_000  # characters that a line may grow to
_MOST_REPLACED = 30_000_000  # characters in all: a macro that doubles itself has no end


class Preprocessor:
    """Feed it every line in order: `keeps` says whether the line counts."""

    def __init__(self, problems: list[Problem], defines: Mapping[str, str]) -> None:
        self._problems = problems
        self._macros = dict(defines)
        # line, whether what is around it holds, holds now, held already
        self._open: list[tuple[int, bool, bool, bool]] = []
        self._left = _MOST_REPLACED
        self._uncertain: list[Problem | None] = []  # of the conditions that are open
        self._outside = False  # the last condition asks for a macro that is not defined

    @property
    def uncertain(self) -> list[Problem]:
        """The conditions around this line that are not understood, or depend on the outside."""
        return [one for one in self._uncertain if one is not None]

    def keeps(self, number: int, line: str) -> bool:
        """Tell whether a line is a part of the configuration (directives are not)."""
        found = _DIRECTIVE.match(line)
        if found is None:
            return self._holds()
        self._directive(number, found[1].lower(), without_comment(found[2]).strip())
        return False

    def define(self, name: str, value: str) -> None:
        """Give a macro its value; sums are worked out."""
        self._macros[name] = _sum(self.replaced(value).strip())[:_MACROS_LONGEST]

    def replaced(self, line: str) -> str:
        """Return the line with its macros; one that is not defined stays unchanged."""
        for _ in range(_ROUNDS):
            if "%{" not in line or self._left <= 0:
                break
            after = _MACRO.sub(lambda found: self._macros.get(found[1], found[0]), line)
            self._left -= len(after)
            if after == line or len(after) > _MACROS_LONGEST:
                break
            line = after
        return line

    def finish(self, last: int) -> None:
        """Name conditions that the file does not end."""
        for number, *_ in self._open:
            self._problems.append(Problem(number, f"%if without %endif (the file ends at {last})"))
        if self._left <= 0:
            self._problems.append(Problem(0, "macros that grow without end: the last are left"))

    def _holds(self) -> bool:
        return not self._open or self._open[-1][2]

    def _directive(self, number: int, name: str, rest: str) -> None:
        if name in ("if", "ifdef", "ifndef"):
            around = self._holds()
            self._uncertain.append(None)
            holds = around and self._condition(number, name, rest)
            self._open.append((number, around, holds, holds))
        elif name in ("elif", "else", "endif"):
            if not self._open:
                self._problems.append(Problem(number, f"%{name} without %if"))
                return
            line, around, _, held = self._open.pop()
            if name == "endif":
                self._uncertain.pop()
            if name == "else":
                self._open.append((line, around, around and not held, True))
            elif name == "elif":
                holds = around and not held and self._condition(number, "if", rest)
                self._open.append((line, around, holds, held or holds))
        elif not self._holds():
            return
        elif name == "define":
            parts = rest.split(None, 1)
            if parts:
                self.define(parts[0], parts[1] if len(parts) > 1 else "")
        elif name == "undef":
            self._macros.pop(rest.strip(), None)
        elif name == "include":
            self._problems.append(Problem(number, f"%include {rest[:60]} is not followed"))

    def _condition(self, number: int, name: str, rest: str) -> bool:
        text = rest if name == "if" else f"{'!' * (name == 'ifndef')}defined({rest.strip()})"
        self._outside, value = False, None
        tokens = self._tokens(text)
        with suppress(ValueError, ZeroDivisionError, IndexError):
            value = _truth(_CONDITIONS.value(tokens))
        if value is None and not (tokens and self._outside):
            problem = Problem(
                number, f"the condition %if {rest[:60]} is not understood: taken as false"
            )
            self._problems.append(problem)
            self._uncertain[-1] = self._uncertain[-1] or problem
            return False
        if self._outside:
            self._uncertain[-1] = self._uncertain[-1] or Problem(
                number,
                f"the condition %{name} {rest[:60]} asks for a macro that is not defined here: "
                f"taken as if it {'holds' if value else 'does not hold: its lines are left out'}",
            )
        return bool(value)

    def _tokens(self, text: str) -> list[str]:

        def defined(match: re.Match[str]) -> str:
            known = next(filter(None, match.groups())) in self._macros
            self._outside = self._outside or not known
            return f" {known:d} "

        if len(text) > _LONGEST_CONDITION:
            return []
        text = self.replaced(_DEFINED.sub(defined, text))
        self._outside = self._outside or "%{" in text
        tokens = _TOKEN.findall(text)
        deep = sum(token in ("(", "!", "-", "+") for token in tokens)
        if _TOKEN.sub("", text).strip() or len(tokens) > _MOST_TOKENS or deep > _DEEPEST:
            return []
        return tokens


def _sum(text: str) -> str:
    if len(text) > _LONGEST_SUM or not _SUM.fullmatch(text):
        return text
    listed = _RANGE.fullmatch(text)
    if listed and (listed[3] or int(listed[1]) <= int(listed[2])):
        return text
    value = whole_number(text)
    return text if value is None else str(value)


type _Value = str | float  # words and numbers as they are written, sums as numbers


def _truth(value: _Value) -> bool:
    return bool(value and float(value))


def _compared(sign: str) -> Callable[[_Value, _Value], _Value]:
    def compare(first_value: _Value, second_value: _Value) -> float:
        try:
            return compared(float(first_value), sign, float(second_value))
        except ValueError:
            if sign not in ("==", "!="):
                raise
            return compared(str(first_value), sign, str(second_value))

    return compare


def _numbers(combine: Callable[[float, float], float]) -> Callable[[_Value, _Value], _Value]:
    return lambda left, right: combine(float(left), float(right))


def _texts(sign: str) -> Callable[[_Value, _Value], _Value]:
    def describe(value: _Value) -> str:
        return value if isinstance(value, str) else f"{value:g}"

    return lambda left, right: compared(describe(left), sign, describe(right))


def _word(token: str) -> _Value:
    if not (token[0].isalnum() or token[0] in "_.\"'" or token.startswith("%{")):
        raise ValueError("a sign, expected a value")
    return token.strip("\"'")


_WORDS = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}
_CONDITIONS: Grammar[_Value] = Grammar(
    _word,
    (
        {"||": lambda left, right: _truth(left) | _truth(right)},
        {"&&": lambda left, right: _truth(left) & _truth(right)},
        {sign: _compared(sign) for sign in _WORDS.values()}
        | {word: _texts(sign) for word, sign in _WORDS.items()},
        {"+": _numbers(operator.add), "-": _numbers(operator.sub)},
        {
            "*": _numbers(operator.mul),
            "/": _numbers(operator.truediv),
            "%": _numbers(operator.mod),
        },
    ),
    {"!": lambda value: not _truth(value), "-": lambda value: -float(value)},
)


# -- Configuration files of SPEC CPU: `submit`, `bind`, `bindN` and `copies` with their lines ------
#
# What is read (SPEC's config.html of CPU2006 and CPU2017): sections
# `benchmark[,...]=tune[,...]=label[,...]=machine[,...]:`, `name = value` and `+=` with lines
# continued by `\` and `name<<EOT` blocks, comments behind a line (`\#` is none), `$[name]`, and
# the preprocessor's `%define`, `%undef`, `%if`, `%ifdef`, `%ifndef`, `%elif`, `%else`, `%endif`,
# `%{name}`. Conditions that are beyond comparing, sums and `defined` are named and taken as
# false; `%include` is named. `${name}` of a run is left to the shell.

_SECTION = re.compile(
    r"((?:[\w.,+\-]+)(?:=[\w.,+\-]*){0,3}):$",
)
_SETTING = re.compile(r"([A-Za-z_][\w.]*)\s*(?:(\+?)=|<<)\s*(.*)$", re.DOTALL)
_HEREDOC = re.compile(r"([A-Za-z_][\w.]*)\s*(?:=\s*)?<<\s*(\w+)\s*$")
_BEFORE_COMMENT = re.compile(r"""(?:[^#"'\\${]|\\.|"[^"]*"|'[^']*'|[${]\#?|["'\\])*+""", re.DOTALL)
_SQUARE = re.compile(r"\$\[([A-Za-z_][\w.]*)\]")
_PLACES = re.compile(
    r"\s*(?:(?:submit|bind|copies)\d{0,9}\s*(?:\+?=|<<)|%\s*define\s+([\w-]+))",
    re.ASCII | re.IGNORECASE,
)
_WITH_NUMBER = re.compile(r"(submit|bind)(\d{1,9})$", re.ASCII)
_WANTED = re.compile(r"(?:submit|bind)(?:\d{1,9})?$|copies$", re.ASCII)
_SETS = {
    "int": ("int", None),
    "fp": ("fp", None),
    "intrate": ("int", "_r"),
    "fprate": ("fp", "_r"),
    "intspeed": ("int", "_s"),
    "fpspeed": ("fp", "_s"),
    "specrate": (None, "_r"),
    "specspeed": (None, "_s"),
}
_UNSET = "%undef%"  # as a value: what other sections gave the name does not hold here
_MOST_SETTINGS = 100_000
_MOST_SECTIONS = 2000
_CONFIG_LONGEST = 20_000  # characters of a value
_MOST_COPIES = 1_000_000


type _Rank = tuple[int, ...]


class Variant(Struct, frozen=True):
    """With what label and on what machine it ran; None: not known, any section may be meant."""

    label: str | None = None
    machine: str | None = None


ANY = Variant()


class Section(Struct, frozen=True):
    """Where settings hold: names as written, `default` where nothing was."""

    benchmarks: tuple[str, ...] = ("default",)
    tunes: tuple[str, ...] = ("default",)
    labels: tuple[str, ...] = ("default",)
    machines: tuple[str, ...] = ("default",)

    def rank(self, benchmark: str, tune: str, of: Variant = ANY) -> _Rank | None:
        """Return how closely this section means a benchmark and tune, None: not at all.

        SPEC's order: the benchmark, its set, then tune, label, machine.
        """
        rank = (
            max((_meant(name, benchmark) for name in self.benchmarks), default=-1),
            1 if tune in self.tunes else 0 if "default" in self.tunes else -1,
            _named(of.label, self.labels),
            _named(of.machine, self.machines),
        )
        return None if min(rank) < 0 else rank


class ConfigSetting(Struct, frozen=True):
    """One line `name = value` of a configuration, macros replaced."""

    line: int  # from 1
    section: Section
    name: str
    value: str


class Bind(Struct, frozen=True):
    """A value of `$BIND`."""

    setting: ConfigSetting
    name: str  # "bind3", "entry 3 of bind"
    text: str


class SpecConfig(Struct, kw_only=True):
    """The settings that say where copies go, and what could not be read."""

    settings: list[ConfigSetting] = field(
        default_factory=list
    )  # submit, bind, copies; in file order
    problems: list[Problem] = field(default_factory=list)
    # Conditions with submit or bind lines in their branches that are not understood, or that
    # a macro from outside decides.
    uncertain: list[Problem] = field(default_factory=list)
    lines: int = 0
    ran_as: Variant = ANY  # with the label that it sets
    # What holds, by how the sections mean a benchmark and tune: it is the same for most of them.
    _held: dict[tuple[_Rank | None, ...], dict[str, ConfigSetting]] = field(default_factory=dict)

    def holding(
        self, benchmark: str, tune: str, of: Variant | None = None
    ) -> Mapping[str, ConfigSetting]:
        """Return by name the settings that hold: of the closest section, the last of equals."""
        of = of or self.ran_as
        sections = dict.fromkeys(setting.section for setting in self.settings)
        ranks = {section: section.rank(benchmark, tune, of) for section in sections}
        key = tuple(ranks.values())
        if key not in self._held:
            best: dict[str, tuple[_Rank, ConfigSetting]] = {}
            for one in self.settings:
                rank = ranks[one.section]
                if rank is not None and (one.name not in best or rank >= best[one.name][0]):
                    best[one.name] = (rank, one)
            held = {name: one for name, (_, one) in best.items()}
            self._held[key] = {name: one for name, one in held.items() if one.value != _UNSET}
        return self._held[key]

    def setting(self, name: str, benchmark: str, tune: str) -> ConfigSetting | None:
        """Return the setting of that name that holds for a benchmark and tune."""
        return self.holding(benchmark, tune).get(name)

    def submit(
        self, benchmark: str, tune: str, of: Variant | None = None
    ) -> tuple[str, int] | None:
        """Return the submit command and its first line; `submit0`, `submit1`, ... are joined."""
        held = self.holding(benchmark, tune, of)
        parts = _numbered(held, "submit")
        if "submit" in held:
            parts.insert(0, held["submit"])
        if not parts:
            return None
        return "\n".join(part.value for part in parts), parts[0].line

    def binds(
        self,
        benchmark: str = "default",
        tune: str = "default",
        of: Variant | None = None,
        *,
        list_last: bool = False,
    ) -> tuple[Bind, ...]:
        """Return the values of `$BIND` by copy: `bindN`, else the list of `bind`.

        Where both are given the closer section's are taken, with `list_last` never the list.

        More copies than values go round again: copy n has value n modulo their number.
        """
        held = self.holding(benchmark, tune, of)
        lines, listed = _numbered(held, "bind"), held.get("bind")

        def rank(setting: ConfigSetting) -> _Rank:
            return setting.section.rank(benchmark, tune, of or self.ran_as) or ()

        nearer = listed is not None and all(rank(listed) > rank(line) for line in lines)
        if lines and (list_last or not nearer):
            return tuple(Bind(line, line.name, line.value) for line in lines)
        if listed is None:
            return ()
        return tuple(
            Bind(listed, f"entry {place} of bind", text.strip())
            for place, text in enumerate(split_list(listed.value), start=1)
        )

    def copies(self, benchmark: str = "default", tune: str = "default") -> tuple[int, int] | None:
        """Return the number of copies that the configuration asks for, and its line."""
        found = self.setting("copies", benchmark, tune)
        copies = whole_number(found.value) if found else None
        return (copies, found.line) if found and copies and 0 < copies < _MOST_COPIES else None


def read_config(
    text: str, defines: Mapping[str, str] | None = None, label: str | None = None
) -> SpecConfig:
    """Read a configuration's text; what cannot be read is in `problems`, with its line.

    `defines` and `label` are those of the command line that runs it.
    """
    config = SpecConfig()
    given = dict(defines or {}) | ({"label": label} if label else {})
    preprocessor = Preprocessor(config.problems, given)
    default = section = Section()
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    config.lines = len(lines)
    sections: dict[Section, Section] = {}
    values: dict[tuple[Section, str], str] = {}
    for number, line in _logical(list(_kept(lines, preprocessor, config)), config.problems):
        marker = _SECTION.match(line.replace(" ", ""))
        if marker and not line.startswith(("submit", "bind")):
            section = _section(marker[1])
            section = sections.setdefault(section, section)
            if len(sections) > _MOST_SECTIONS:
                config.problems.append(Problem(number, "too many sections: read up to here"))
                break
            continue
        setting_match = _SETTING.match(line)
        if setting_match is None or len(values) >= _MOST_SETTINGS:
            continue
        name, value = setting_match[1].lower(), setting_match[3].strip()
        if setting_match[2]:
            value = f"{values.get((section, name), values.get((default, name), ''))} {value}"
        values[section, name] = value = value[:_CONFIG_LONGEST].strip()
        if _WANTED.match(name) and len(config.settings) < _MOST_SETTINGS:
            config.settings.append(ConfigSetting(number, section, name, value))
    preprocessor.finish(len(lines))

    def filled(setting: ConfigSetting) -> ConfigSetting:
        value = setting.value
        for _ in range(_ROUNDS if "$[" in value else 0):
            value = _SQUARE.sub(
                lambda match: value_of(setting.section, match[1], otherwise=match[0]), value
            )
            value = value[:_CONFIG_LONGEST]
        return setting if value == setting.value else replace(setting, value=value)

    def value_of(section: Section, name: str, otherwise: str) -> str:
        key = name.lower()
        return values.get((section, key), values.get((default, key), otherwise))

    config.settings = [filled(setting) for setting in config.settings]
    used_label = label or values.get((default, "label")) or values.get((default, "ext"))
    config.ran_as = Variant(used_label) if used_label and "%{" not in used_label else ANY
    return config


def without_comment(line: str) -> str:
    """Return a line up to its comment; `\\#`, `$#` and what stands in quotes are none."""
    found = _BEFORE_COMMENT.match(line)
    return (line[: found.end()] if found else line).replace("\\#", "#").rstrip()


def _kept(
    lines: Sequence[str], preprocessor: Preprocessor, config: SpecConfig
) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        place = _PLACES.match(line)
        if place:
            # `%ifndef name` around `%define name` only gives it the value that it has without the
            # outside.
            own = re.compile(rf"(?<![\w-]){place[1]}(?![\w-])" if place[1] else r"\Z\A.")
            config.uncertain += [
                doubt
                for doubt in preprocessor.uncertain
                if doubt not in config.uncertain and not own.search(doubt.text)
            ]
        if preprocessor.keeps(number, line):
            yield number, preprocessor.replaced(line)


def _numbered(settings: Mapping[str, ConfigSetting], name: str) -> list[ConfigSetting]:
    """Return the settings `name0`, `name1`, ... (of `submit` or `bind`), by their numbers."""
    found = [(_WITH_NUMBER.match(setting.name), setting) for setting in settings.values()]
    lines = [(int(match[2]), one) for match, one in found if match and match[1] == name]
    return [one for _, one in sorted(lines, key=lambda line: line[0])]


def split_list(text: str) -> list[str]:
    """Return the values of a `bind = a, b c` list; quotes keep blanks and commas together."""
    values = [""]
    inside = ""  # the quote that is open
    for sign in text:
        if not inside and (sign == "," or sign.isspace()):
            values.append("")
            continue
        if sign in "\"'":
            inside = sign if not inside else "" if inside == sign else inside
        values[-1] += sign
    return [part.strip("\"'") for part in values if part]


def _logical(
    lines: Sequence[tuple[int, str]], problems: list[Problem]
) -> Iterator[tuple[int, str]]:
    """Yield lines with the ones that continue them, comments left out.

    `name <<EOT` brings its block along, in which `#` is a comment only of a bind list.
    """
    ends: dict[str, list[int]] = {}
    if any("<<" in line for _, line in lines):
        for at, (_, line) in enumerate(lines):
            ends.setdefault(line.strip(), []).append(at)
    place = 0
    while place < len(lines):
        number, line = lines[place]
        place += 1
        heredoc = _HEREDOC.match(without_comment(line).strip())
        if heredoc:
            known = ends.get(heredoc[2], [])
            later = bisect_left(known, place)
            end = known[later] if later < len(known) else None
            if end is None:
                problems.append(Problem(number, f"<<{heredoc[2]} has no end"))
            else:
                block = [text for _, text in lines[place:end]]
                if heredoc[1].lower().startswith("bind"):
                    block = [without_comment(text) for text in block]
                yield number, f"{heredoc[1]} = " + "\n".join(block)
                place = end + 1
                continue
        parts = [line]
        while parts[-1].endswith("\\") and not line.lstrip().startswith("#") and place < len(lines):
            parts[-1] = parts[-1][:-1]
            parts.append(lines[place][1])
            place += 1
        written = without_comment("".join(parts)).strip()
        if written:
            yield number, written


def _section(text: str) -> Section:
    parts = [tuple(name for name in part.split(",") if name) for part in text.split("=")]
    parts += [("default",)] * (4 - len(parts))
    return Section(*(part or ("default",) for part in parts))


def _meant(name: str, benchmark: str) -> int:
    """Return how closely a section's name means a benchmark: 2 itself, 1 its set, 0 all, -1."""
    if name == benchmark or (name.isdigit() and benchmark.startswith(f"{name}.")):
        return 2
    if name == "default":
        return 0
    if name in _SETS:
        kind, ending = _SETS[name]
        suite = keys.suite_of(benchmark)
        fits = kind is None or keys.category(benchmark, suite) == kind
        return 1 if fits and (ending is None or benchmark.endswith(ending)) else -1
    return -1


def _named(section: str | None, names: tuple[str, ...]) -> int:
    if section is not None and section != "default" and section in names:
        return 1
    if "default" in names:
        return 0
    return 1 if section is None else -1
