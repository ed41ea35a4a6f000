"""Which CPUs and whose memory a copy was given, read from `submit` and `bind` lines.

Understood: `numactl`, `taskset`, `dplace`, plain CPU lists, `$BIND`, `$SPECCOPYNUM`, and of
the shell what such lines use: `NAME=value ;`, `let "N=..."`, `$((...))`, `printf '0x%x'`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rater.plan.cpuset import MAX_NUMBER, numbers_of, parse_list

_LONGEST = 20_000  # characters of a command that are looked at
_SHORT = {
    "C": "physcpubind",
    "N": "cpunodebind",
    "c": "cpunodebind",  # of old versions of numactl
    "m": "membind",
    "p": "preferred",
    "P": "preferred-many",
    "i": "interleave",
    "w": "weighted-interleave",
    "l": "localalloc",
    "a": "all",
    "b": "balancing",
    "s": "show",
    "H": "hardware",
}
_ALONE = frozenset({"localalloc", "all", "balancing", "show", "hardware"})
_POLICIES = {
    "membind": "bind",
    "preferred": "preferred",
    "preferred-many": "preferred",
    "interleave": "interleave",
    "weighted-interleave": "interleave",
    "localalloc": "local",
}
_LIST = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*$", re.ASCII)
_ASSIGNED = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_LET = re.compile(r"""\s*let\s+["']?([A-Za-z_]\w*)\s*=\s*([^"']*)["']?\s*$""")
_PRINTED = re.compile(r"""[`(]?\s*printf\s+["']?(0x)?%0?\d*[xX]["']?\s+(\d{1,9})\s*[`)]?""")
_ARITHMETIC = re.compile(r"\$\(\(([^()$`]{1,80}(?:\([^()]{1,60}\)[^()$`]{0,60}){0,4})\)\)")
_TOKEN = re.compile(r"\s*(\d{1,9}|<<|>>|[-+*/%()])")


@dataclass(frozen=True, slots=True)
class Binding:
    """Where one copy was told to run; None and empty for what it was not told."""

    cpus: tuple[int, ...] | None = None  # OS numbers, ascending
    cpu_nodes: tuple[int, ...] = ()  # bound to all CPUs of these nodes
    policy: str | None = None  # "bind", "local", "preferred", "interleave"
    mem_nodes: tuple[int, ...] = ()  # OS numbers that the policy names
    by: str | None = None  # "numactl", "taskset", "dplace" or "list"
    problem: str | None = None  # why what it was told is not understood

    @property
    def is_bound(self) -> bool:
        """Whether it says anything."""
        return bool(self.cpus or self.cpu_nodes or self.policy)


UNBOUND = Binding()


def binding_of(submit: str, bind: str | None, copy: int) -> Binding:
    """Return where a copy goes by its submit command (or any command with `$BIND`)."""
    uses_bind = bool(re.search(r"\$\{?BIND\b", submit))
    found = read_binding(expanded(submit, bind, copy))
    if found.is_bound or found.problem or bind is None or not uses_bind:
        return found
    # The command is one's own script: a plain list is taken for what it looks like.
    return _plain(bind)


def read_binding(command: str) -> Binding:
    """Return where a command line, nothing left to be replaced in it, binds what it starts."""
    found = UNBOUND
    for part in _parts(command[:_LONGEST]):
        words = _words(part)
        for place, word in enumerate(words):
            reader = _TOOLS.get(word.rsplit("/", 1)[-1])
            if reader is not None:
                found = _merged(found, reader(words[place + 1 :]))
            elif " " in word and any(tool in word for tool in _TOOLS) and word != part.strip():
                found = _merged(found, read_binding(word))
    if not found.is_bound and not found.problem and _LIST.match(command.strip()):
        return _plain(command)
    return found


def expanded(submit: str, bind: str | None, copy: int) -> str:
    """Return a submit command as the shell of one copy sees it, as far as placement needs it."""
    text = submit[:_LONGEST].replace("\\$", "$").replace("\\`", "`")
    values = {"SPECCOPYNUM": str(copy), "SPECUSERNUM": str(copy)}
    if bind is not None:
        values["BIND"] = bind
        text = _with(text, {"BIND": bind})
        text = text.replace("\\$", "$")
    done = []
    for part in _parts(text):
        said = _with(part, values)
        let = _LET.match(said)
        if let:
            value = _evaluate(let[2])
            if value is not None:
                values[let[1]] = str(value)
            continue
        said = _computed(said)
        assigned = _ASSIGNED.match(said)
        if assigned and not re.search(r"\s\S", assigned[2].strip(" `\"'")):
            values[assigned[1]] = assigned[2].strip(" `\"'")
            continue
        done.append(said)
    return " ; ".join(done)


# -- the shell ------------------------------------------------------------------------------------


def _with(text: str, values: dict[str, str]) -> str:
    """Return the text with the variables that have a value."""
    return re.sub(
        r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))",
        lambda found: values.get(found[1] or found[2], found[0]),
        text,
    )[: 4 * _LONGEST]


def _computed(text: str) -> str:
    def arithmetic(found: re.Match[str]) -> str:
        value = _evaluate(found[1])
        return found[0] if value is None else str(value)

    text = _ARITHMETIC.sub(arithmetic, text)
    text = text.replace("$(printf", "(printf")
    return _PRINTED.sub(lambda found: f"0x{int(found[2]):x}", text)


def _evaluate(text: str) -> int | None:
    """Return what shell arithmetic of whole numbers comes to, None where it is beyond us."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text) or len(tokens) > 60:
        return None
    try:
        value, rest = _expression(tokens, 0)
    except (ValueError, ZeroDivisionError, IndexError):
        return None
    return None if rest else value


_LEVELS = (("<<", ">>"), ("+", "-"), ("*", "/", "%"))


def _expression(tokens: list[str], level: int) -> tuple[int, list[str]]:
    if level == len(_LEVELS):
        if tokens[0] == "(":
            value, rest = _expression(tokens[1:], 0)
            if rest[0] != ")":
                raise ValueError("no )")
            return value, rest[1:]
        return int(tokens[0]), tokens[1:]
    value, rest = _expression(tokens, level + 1)
    while rest and rest[0] in _LEVELS[level]:
        sign = rest[0]
        other, rest = _expression(rest[1:], level + 1)
        value = _apply(value, sign, other)
    return value, rest


def _apply(value: int, sign: str, other: int) -> int:
    if sign == "<<":
        if other > MAX_NUMBER:
            raise ValueError("beyond any CPU")
        return value << other
    if sign == ">>":
        return value >> other
    if sign == "+":
        return value + other
    if sign == "-":
        return value - other
    if sign == "*":
        return value * other
    return value // other if sign == "/" else value % other


def _parts(text: str) -> list[str]:
    """Return the commands of a line: what quotes enclose stays together."""
    parts = [""]
    for piece in re.findall(
        r"""\$\(\([^;\n]*?\)\)|"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[;\n]|&&|\|\|?|.""", text
    ):
        if piece in (";", "\n", "&&", "|", "||"):
            parts.append("")
        else:
            parts[-1] += piece
    return [part for part in parts if part.strip()]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end
        return text.split()


# -- the tools ------------------------------------------------------------------------------------


def _numactl(words: Sequence[str]) -> Binding:
    found = UNBOUND
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        word = words[place]
        place += 1
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            name = _whole_name(name)
        else:
            name, value, sign = _SHORT.get(word[1:2], ""), word[2:].removeprefix("="), word[2:]
        if name in _ALONE and word[:2] != "--" and value:
            words = [*words[:place], f"-{value}", *words[place:]]  # `-lC0`
            value = ""
        elif name not in _ALONE and name and not sign:
            if place == len(words):
                break
            value = words[place]
            place += 1
        if not name:
            return _merged(found, Binding(by="numactl", problem=f"numactl {word} is not known"))
        found = _merged(found, _numactl_option(name, value))
    return found


def _whole_name(name: str) -> str:
    """Return an option's whole name: getopt takes what is short and clear."""
    name = {"cpubind": "cpunodebind"}.get(name, name)
    names = set(_SHORT.values())
    if name in names:
        return name
    fitting = [one for one in names if one.startswith(name)] if len(name) > 1 else []
    return fitting[0] if len(fitting) == 1 else ""


def _numactl_option(name: str, value: str) -> Binding:
    if name not in _POLICIES and name not in ("physcpubind", "cpunodebind"):
        return UNBOUND
    if name == "localalloc":
        return Binding(policy="local", by="numactl")
    numbers, problem = _numbers(value.removeprefix("+"), f"numactl --{name}={value}")
    if problem:
        return Binding(policy=_POLICIES.get(name), by="numactl", problem=problem)
    if name == "physcpubind":
        return Binding(cpus=numbers, by="numactl")
    if name == "cpunodebind":
        return Binding(cpu_nodes=numbers, by="numactl")
    return Binding(policy=_POLICIES[name], mem_nodes=numbers, by="numactl")


def _taskset(words: Sequence[str]) -> Binding:
    as_list = False
    for word in words:
        if word in ("-c", "--cpu-list"):
            as_list = True
        elif word in ("-p", "--pid"):
            return UNBOUND
        elif re.fullmatch(r"-[ac]{1,2}", word):
            as_list = "c" in word
        elif not word.startswith("-"):
            if as_list:
                numbers, problem = _numbers(word, f"taskset -c {word}")
                return Binding(cpus=numbers or None, by="taskset", problem=problem)
            return _mask(word)
    return UNBOUND


def _mask(word: str) -> Binding:
    digits = word.lower().removeprefix("0x").replace(",", "")
    if not re.fullmatch(r"[0-9a-f]{1,16384}", digits):
        return Binding(by="taskset", problem=f"taskset: {word[:40]!r} is no mask of CPUs")
    return Binding(cpus=numbers_of(int(digits, 16)) or None, by="taskset")


def _dplace(words: Sequence[str]) -> Binding:
    for place, word in enumerate(words):
        if word.startswith("-c"):
            value = word[2:] or (words[place + 1] if place + 1 < len(words) else "")
            numbers, problem = _numbers(value, f"dplace -c {value}")
            return Binding(cpus=numbers or None, by="dplace", problem=problem)
    return UNBOUND


_TOOLS = {"numactl": _numactl, "taskset": _taskset, "dplace": _dplace}


def _plain(text: str) -> Binding:
    if not _LIST.match(text.strip()):
        return UNBOUND
    numbers, problem = _numbers(text.strip(), text.strip())
    return Binding(cpus=numbers or None, by="list", problem=problem)


def _numbers(text: str, what: str) -> tuple[tuple[int, ...], str | None]:
    """Return a list of numbers, `0-31:4` with strides too, and what is wrong with it."""
    numbers: set[int] = set()
    try:
        for item in text.split(","):
            plain, _, stride = item.partition(":")
            if stride and not re.fullmatch(r"[1-9]\d{0,4}", stride, re.ASCII):
                return (), f"{what[:60]}: no stride: {stride[:20]!r}"
            numbers.update(parse_list(plain)[:: int(stride or 1)])
    except ValueError as error:
        return (), f"{what[:60]}: {error}"
    if not numbers:
        return (), f"{what[:60]}: no number"
    return tuple(sorted(numbers)), None


def _merged(one: Binding, other: Binding) -> Binding:
    """Return both together; what the later one says holds."""
    return Binding(
        cpus=other.cpus or one.cpus,
        cpu_nodes=other.cpu_nodes or one.cpu_nodes,
        policy=other.policy or one.policy,
        mem_nodes=other.mem_nodes if other.policy else one.mem_nodes,
        by=other.by if other.is_bound else one.by or other.by,
        problem=one.problem or other.problem,
    )
