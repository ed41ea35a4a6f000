"""Which CPUs and whose memory a copy was given, read from `submit` and `bind` lines.

Understood: `numactl`, `taskset`, `dplace`, plain CPU lists, `$BIND`, `$SPECCOPYNUM`, and of
the shell what such lines use (`rater.speccpu.config.shell`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rater.speccpu.config.shell import LONGEST, commands_of, executed
from rater.text.cpuset import numbers_of, parse_list

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
# Its own word: `./bind.sh $BIND`, not the `node$BIND` of a name.
_OWN_WORD = re.compile(r"""(?:^|[\s"'=])\$\{?BIND\b\}?(?=$|[\s"';])""")
_REMOTE = re.compile(r"\s*(?:\S{0,200}/)?(?:ssh|rsh)\s")
_DEEPEST = 5  # `sh -c "sh -c ..."`
_PROGRAM = ("$command", "${command}")


@dataclass(frozen=True, slots=True)
class Binding:
    """Where one copy was bound to; None and empty for what nothing binds."""

    cpus: tuple[int, ...] | None = None  # OS numbers, ascending
    cpu_nodes: tuple[int, ...] = ()  # bound to all CPUs of these nodes
    policy: str | None = None  # "bind", "local", "preferred", "interleave"
    mem_nodes: tuple[int, ...] = ()  # OS numbers that the policy names
    by: str | None = None  # "numactl", "taskset", "dplace" or "list"
    problem: str | None = None  # why what binds it is not understood
    relative: bool = False  # numactl's +N: the CPUs count inside those that may be used
    all_nodes: bool = False  # the policy names all nodes, `mem_nodes` none

    @property
    def is_bound(self) -> bool:
        """Whether it says anything."""
        return bool(self.cpus or self.cpu_nodes or self.policy)


UNBOUND = Binding()


def binding_of(submit: str, bind: str | None, copy: int) -> Binding:
    """Return where a copy goes by its submit command (or any command with `$BIND`)."""
    found = _read(commands_of(submit, bind, copy))
    if found.is_bound or found.problem or bind is None or _REMOTE.match(submit):
        return found
    # The command is one's own script: a plain list is taken for what it looks like.
    return _plain(bind) if _OWN_WORD.search(submit) else found


def read_binding(command: str, _depth: int = 0) -> Binding:
    """Return where a command line, nothing left to be replaced in it, binds what it starts."""
    return _read(executed(command[:LONGEST], {}), _depth)


def _read(commands: Iterable[str], depth: int = 0) -> Binding:
    found = UNBOUND
    parts = list(commands)
    unclear: list[str] = []  # the conditions around
    for part in parts:
        if part.startswith(("if ", "case ")):
            unclear.append(part)
            continue
        if part == "fi":
            del unclear[-1:]
            continue
        one = _command(part, depth)
        if unclear and one.is_bound:
            shown = " ".join(unclear[0].split())[:60]
            one = Binding(by=one.by, problem=f"a condition of the shell is not understood: {shown}")
        found = _merged(found, one)
    if not found.is_bound and not found.problem and len(parts) == 1 and _is_list(parts[0]):
        return _plain(parts[0])
    return found


def _command(part: str, depth: int) -> Binding:
    """Return what one command binds."""
    found = UNBOUND
    words = _words(part)
    for place, word in enumerate(words):
        reader = _TOOLS.get(word.rsplit("/", 1)[-1])
        if reader is not None:
            found = _merged(found, reader(words[place + 1 :]))
        elif depth < _DEEPEST and word != part.strip() and _holds_tool(word):
            found = _merged(found, read_binding(word, depth + 1))
    return found


def _holds_tool(word: str) -> bool:
    return " " in word and any(tool in word for tool in _TOOLS)


def _is_list(text: str) -> bool:
    return _LIST.match(text.strip()) is not None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end
        return text.split()


# -- the tools ------------------------------------------------------------------------------------


def _numactl(words: Sequence[str]) -> Binding:
    found = UNBOUND
    place = 0
    while place < len(words) and words[place] != "--":
        word = words[place]
        if word.startswith(("$", "`")) and word not in _PROGRAM:
            # A variable that is not known. What options it holds nobody can tell; in their
            # place it is no program, and behind them it is one.
            if place and not any(one.startswith("-") for one in words[place + 1 : place + 2]):
                break
            problem = f"numactl {word[:40]}: not known what it stands for"
            found = _merged(found, Binding(by="numactl", problem=problem))
            place += 1
            continue
        if not word.startswith("-"):
            break
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
    policy = _POLICIES.get(name)
    if policy is None and name not in ("physcpubind", "cpunodebind"):
        return UNBOUND
    if name == "localalloc":
        return Binding(policy="local", by="numactl")
    if value == "all":
        # All CPUs are no binding; a policy over all nodes is one.
        return Binding(policy=policy, by="numactl", all_nodes=policy is not None)
    numbers, problem = _numbers(value.removeprefix("+"), f"numactl --{name}={value}")
    if problem or policy:
        return Binding(policy=policy, mem_nodes=numbers, by="numactl", problem=problem)
    if name == "cpunodebind":
        return Binding(cpu_nodes=numbers, by="numactl")
    return Binding(cpus=numbers, by="numactl", relative=value.startswith("+"))


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
    if not _is_list(text):
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
        relative=other.relative if other.cpus else one.relative,
        all_nodes=other.all_nodes if other.policy else one.all_nodes,
    )
