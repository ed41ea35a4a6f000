"""Configuration files of SPEC CPU, preprocessed: `submit`, `bind`, `bindN`, `copies`; pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rater.speccpu.config import keys
from rater.speccpu.config.keys import Problem
from rater.speccpu.config.shell import compared

_DIRECTIVE = re.compile(r"\s*%\s*(\w+)(.*)")
_MACRO = re.compile(r"%\{([A-Za-z_][\w-]*)\}")
_DEFINED = re.compile(r"(!\s*)?defined\s*\(\s*(?:%\{)?([A-Za-z_][\w-]*)\}?\s*\)$")
_COMPARED = re.compile(
    r"""(?P<left>"[^"]*"|'[^']*'|[\w.+-]+)\s*(?P<sign>==|!=|<=|>=|<|>|eq|ne|lt|gt|le|ge)"""
    r"""\s*(?P<right>"[^"]*"|'[^']*'|[\w.+-]+)$"""
)
_LONGEST_CONDITION = 1000
_ROUNDS = 20  # of macros inside macros
_MACROS_LONGEST = 100_000  # characters that a line may grow to
_MOST_REPLACED = 30_000_000  # characters in all: a macro that doubles itself has no end


class Preprocessor:
    """Feed it every line in order: `keeps` says whether the line counts."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._macros: dict[str, str] = {}
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
        if found is None or line.lstrip().startswith("%{"):
            return self._holds()
        self._directive(number, found[1].lower(), found[2].strip())
        return False

    def replaced(self, line: str) -> str:
        """Return the line with its macros; one that is not defined stays as it is."""
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
                value = parts[1] if len(parts) > 1 else ""
                self._macros[parts[0]] = self.replaced(value)[:_MACROS_LONGEST]
        elif name == "undef":
            self._macros.pop(rest.strip(), None)
        elif name == "include":
            self._problems.append(Problem(number, f"%include {rest[:60]} is not followed"))

    def _condition(self, number: int, name: str, rest: str) -> bool:
        if name != "if":
            known = rest.strip().removeprefix("%{").removesuffix("}") in self._macros
            self._outside = not known
            value: bool | None = known is (name == "ifdef")
        else:
            self._outside = False
            value = self._value(rest) if len(rest) <= _LONGEST_CONDITION else None
        if value is None:
            problem = Problem(
                number, f"the condition %if {rest[:60]} is not understood: taken as false"
            )
            self._problems.append(problem)
            self._uncertain[-1] = self._uncertain[-1] or problem
        elif self._outside:
            self._uncertain[-1] = self._uncertain[-1] or Problem(
                number,
                f"the condition %{name} {rest[:60]} asks for a macro that is not defined here: "
                f"taken as if it {'holds' if value else 'does not hold'}",
            )
        return bool(value)

    def _value(self, text: str) -> bool | None:
        """Return what a condition comes to, None where it is beyond us."""
        text = text.strip()
        for sign, join in (("||", any), ("&&", all)):
            if sign in text:
                values = [self._value(part) for part in text.split(sign)]
                return None if None in values else join(bool(value) for value in values)
        defined = _DEFINED.match(text)
        if defined:
            return (defined[2] in self._macros) is not bool(defined[1])
        text = self.replaced(text)
        self._outside = self._outside or "%{" in text
        if re.fullmatch(r"!?\s*\d{1,18}", text, re.ASCII):
            return bool(int(text.lstrip("! "))) is not text.startswith("!")
        compared = _COMPARED.match(text) if len(text) <= _LONGEST_CONDITION else None
        if compared is None:
            return None
        left, right = (compared[side].strip("\"'") for side in ("left", "right"))
        return _compare(left, compared["sign"], right)


def _compare(left: str, sign: str, right: str) -> bool | None:
    words = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}
    if sign in words:
        return compared(left, words[sign], right)
    try:
        return compared(float(left), sign, float(right))
    except ValueError:
        return compared(left, sign, right) if sign in ("==", "!=") else None


# -- Configuration files of SPEC CPU: `submit`, `bind`, `bindN` and `copies` with their lines ------
#
# What is read (SPEC's config.html of CPU2006 and CPU2017): sections
# `benchmark[,...]=tune[,...]=label[,...]=machine[,...]:`, `name = value` with lines continued
# by `\` and `name<<EOT` blocks, and the preprocessor's `%define`, `%undef`, `%if`, `%ifdef`,
# `%ifndef`, `%elif`, `%else`, `%endif`, `%{name}`. Conditions that are beyond comparing
# and `defined()` are named and taken as false.

_SECTION = re.compile(
    r"((?:[\w.,+\-]+)(?:=[\w.,+\-]*){0,3}):$",
)
_SETTING = re.compile(r"([A-Za-z_][\w.]*)\s*(?:\+?=|<<)\s*(.*)$", re.DOTALL)
_HEREDOC = re.compile(r"([A-Za-z_][\w.]*)\s*(?:=\s*)?<<\s*(\w+)\s*$")
_COMMENT = re.compile(r"\s#")
_PLACES = re.compile(r"\s*(?:submit|bind)\d{0,9}\s*(?:\+?=|<<)", re.ASCII | re.IGNORECASE)
_NUMBERED = re.compile(r"(submit|bind)(\d{1,9})$", re.ASCII)
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
_MOST_SETTINGS = 100_000
_MOST_SECTIONS = 2000
_CONFIG_LONGEST = 20_000  # characters of a value


type _Rank = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """With what label and on what machine it ran; None: not known, any section may be meant."""

    label: str | None = None
    machine: str | None = None


ANY = Variant()


@dataclass(frozen=True, slots=True)
class Section:
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


@dataclass(frozen=True, slots=True)
class ConfigSetting:
    """One line `name = value` of a configuration, macros replaced."""

    line: int  # from 1
    section: Section
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Bind:
    """The value of `$BIND` for one copy."""

    line: int
    position: int  # of the copy
    text: str


@dataclass(slots=True)
class SpecConfig:
    """The settings that say where copies go, and what could not be read."""

    settings: list[ConfigSetting] = field(
        default_factory=list
    )  # submit, bind, copies; in file order
    problems: list[Problem] = field(default_factory=list)
    # Conditions with submit or bind lines in their branches that are not understood, or that
    # a macro from outside decides.
    uncertain: list[Problem] = field(default_factory=list)
    lines: int = 0
    # What holds, by how the sections mean a benchmark and tune: it is the same for most of them.
    _held: dict[tuple[_Rank | None, ...], dict[str, ConfigSetting]] = field(
        default_factory=dict, repr=False
    )

    def holding(self, benchmark: str, tune: str, of: Variant = ANY) -> Mapping[str, ConfigSetting]:
        """Return by name the settings that hold: of the closest section, the last of equals."""
        sections = dict.fromkeys(one.section for one in self.settings)
        ranks = {section: section.rank(benchmark, tune, of) for section in sections}
        key = tuple(ranks.values())
        if key not in self._held:
            best: dict[str, tuple[_Rank, ConfigSetting]] = {}
            for one in self.settings:
                rank = ranks[one.section]
                if rank is not None and (one.name not in best or rank >= best[one.name][0]):
                    best[one.name] = (rank, one)
            self._held[key] = {name: one for name, (_, one) in best.items()}
        return self._held[key]

    def setting(self, name: str, benchmark: str, tune: str) -> ConfigSetting | None:
        """Return the setting of that name that holds for a benchmark and tune."""
        return self.holding(benchmark, tune).get(name)

    def submit(self, benchmark: str, tune: str, of: Variant = ANY) -> tuple[str, int] | None:
        """Return the submit command and its first line; `submit0`, `submit1`, ... are joined."""
        held = self.holding(benchmark, tune, of)
        parts = numbered(held, "submit")
        if "submit" in held:
            parts.insert(0, held["submit"])
        if not parts:
            return None
        return "\n".join(part.value for part in parts), parts[0].line

    def binds(
        self, benchmark: str = "default", tune: str = "default", of: Variant = ANY
    ) -> tuple[Bind, ...]:
        """Return the values of `$BIND` by copy: `bindN`, else the list of `bind`.

        Where both are given the closer section's are taken.

        More copies than values go round again: copy n has value n modulo their number.
        """
        held = self.holding(benchmark, tune, of)
        lines, listed = numbered(held, "bind"), held.get("bind")

        def rank(one: ConfigSetting) -> _Rank:
            return one.section.rank(benchmark, tune, of) or ()

        by_list = listed is not None and all(rank(listed) > rank(one) for one in lines)
        if lines and not by_list:
            return tuple(Bind(one.line, place, one.value) for place, one in enumerate(lines))
        if listed is None:
            return ()
        return tuple(
            Bind(listed.line, place, text.strip())
            for place, text in enumerate(split_list(listed.value))
        )

    def copies(self, benchmark: str = "default", tune: str = "default") -> tuple[int, int] | None:
        """Return the number of copies that the configuration asks for, and its line."""
        found = self.setting("copies", benchmark, tune)
        if found is None or not re.fullmatch(r"\d{1,6}", found.value.strip(), re.ASCII):
            return None
        return int(found.value), found.line


def read_config(text: str) -> SpecConfig:
    """Read a configuration's text; what cannot be read is in `problems`, with its line."""
    config = SpecConfig()
    preprocessor = Preprocessor(config.problems)
    section = Section()
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    config.lines = len(lines)
    sections: dict[Section, Section] = {}
    for number, line in _logical(lines, config.problems):
        if _PLACES.match(line):
            config.uncertain += [it for it in preprocessor.uncertain if it not in config.uncertain]
        if not preprocessor.keeps(number, line):
            continue
        written = preprocessor.replaced(line).strip()
        if not written or written.startswith("#"):
            continue
        comment = _COMMENT.search(written)
        bare = written[: comment.start()] if comment else written
        marker = _SECTION.match(bare.replace(" ", "").rstrip())
        if marker and not written.startswith(("submit", "bind")):
            section = _section(marker[1])
            section = sections.setdefault(section, section)
            if len(sections) > _MOST_SECTIONS:
                config.problems.append(Problem(number, "too many sections: read up to here"))
                break
            continue
        found = _SETTING.match(written)
        if found and _WANTED.match(found[1].lower()) and len(config.settings) < _MOST_SETTINGS:
            value = found[2].strip()[:_CONFIG_LONGEST]
            config.settings.append(ConfigSetting(number, section, found[1].lower(), value))
    preprocessor.finish(len(lines))
    return config


def numbered(settings: Mapping[str, ConfigSetting], name: str) -> list[ConfigSetting]:
    """Return the settings `name0`, `name1`, ... (of `submit` or `bind`), by their numbers."""
    found = [(_NUMBERED.match(one.name), one) for one in settings.values()]
    lines = [(int(match[2]), one) for match, one in found if match and match[1] == name]
    return [one for _, one in sorted(lines, key=lambda line: line[0])]


def split_list(text: str) -> list[str]:
    """Return the values of a `bind = a, b, c` list; quotes keep commas together."""
    values = [""]
    inside = ""  # the quote that is open
    for sign in text:
        if sign == "," and not inside:
            values.append("")
            continue
        if sign in "\"'":
            inside = sign if not inside else "" if inside == sign else inside
        values[-1] += sign
    return [part.strip().strip("\"'") for part in values if part.strip()]


def _logical(lines: list[str], problems: list[Problem]) -> Iterable[tuple[int, str]]:
    """Yield lines with the ones that continue them; `name <<EOT` brings its block along."""
    ends: dict[str, list[int]] = {}
    if any("<<" in line for line in lines):
        for at, line in enumerate(lines):
            ends.setdefault(line.strip(), []).append(at)
    place = 0
    while place < len(lines):
        number, line = place + 1, lines[place]
        place += 1
        heredoc = _HEREDOC.match(line.strip())
        if heredoc:
            known = ends.get(heredoc[2], [])
            later = bisect_left(known, place)
            end = known[later] if later < len(known) else None
            if end is None:
                problems.append(Problem(number, f"<<{heredoc[2]} has no end"))
            else:
                yield number, f"{heredoc[1]} = " + "\n".join(lines[place:end])
                place = end + 1
                continue
        parts = [line]
        while parts[-1].endswith("\\") and not line.lstrip().startswith("#") and place < len(lines):
            parts[-1] = parts[-1][:-1]
            parts.append(lines[place])
            place += 1
        yield number, "".join(parts)


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


def _named(one: str | None, names: tuple[str, ...]) -> int:
    """Return 1 where a section names it, 0 where it names none, -1 where another."""
    if one is not None and one != "default" and one in names:
        return 1
    if "default" in names:
        return 0
    return 1 if one is None else -1
