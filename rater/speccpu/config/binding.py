"""Where one command binds what it starts: CPUs, nodes, memory; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.topology import Topology
from rater.speccpu.config.arithmetic import SHELL_BITS, split_words
from rater.speccpu.config.shell import LONGEST, commands_of, executed
from rater.text.cpuset import numbers_of, parse_list

# Understood: `numactl`, `taskset`, `dplace`, plain CPU lists, `$BIND`, `$SPECCOPYNUM`, and of
# the shell what such lines use (`rater.speccpu.config.shell`).

# Options of numactl, by letter: the name, and the policy for memory that it is.
_NUMACTL: dict[str, tuple[str, str | None]] = {
    "C": ("physcpubind", None),
    "N": ("cpunodebind", None),
    "c": ("cpunodebind", None),  # of old versions of numactl
    "m": ("membind", "bind"),
    "p": ("preferred", "preferred"),
    "P": ("preferred-many", "preferred"),
    "i": ("interleave", "interleave"),
    "w": ("weighted-interleave", "interleave"),
    "l": ("localalloc", "local"),
    "a": ("all", None),
    "b": ("balancing", None),
    "s": ("show", None),
    "H": ("hardware", None),
}
_POLICIES = dict(_NUMACTL.values())
_ALONE = frozenset({"localalloc", "all", "balancing", "show", "hardware"})
_LIST = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*$", re.ASCII)
# Its own word: `./bind.sh $BIND`, not the `node$BIND` of a name.
_OWN_WORD = re.compile(r"""(?:^|[\s"'=])\$\{?BIND\b\}?(?=$|[\s"';])""")
_REMOTE = re.compile(r"\s*(?:\S{0,200}/)?(?:ssh|rsh)\s")
_DEEPEST = 5  # `sh -c "sh -c ..."`
_PROGRAM = ("$command", "${command}")
# Commands that bind nothing, neither themselves nor the program that they start.
_BINDS_NOTHING = frozenset({
    "[", "[[", ":", "cat", "cd", "chrt", "date", "echo", "env", "eval", "exec", "export", "false",
    "ionice", "let", "mkdir", "nice", "nohup", "printf", "prlimit", "rm", "set", "setarch",
    "sleep", "test", "time", "touch", "true", "ulimit",
})  # fmt: skip
_SHELLS = frozenset({"bash", "dash", "ksh", "sh"})
_WRITTEN = re.compile(r">\s{0,20}([\w./-]{1,100})", re.ASCII)


class Binding(Struct, frozen=True, kw_only=True):
    """Where one copy was bound to; None and empty for what nothing binds."""

    cpus: tuple[int, ...] | None = None  # OS numbers, ascending
    cpu_nodes: tuple[int, ...] = ()  # bound to all CPUs of these nodes
    policy: str | None = None  # "bind", "local", "preferred", "interleave"
    mem_nodes: tuple[int, ...] = ()  # OS numbers that the policy names
    by: str | None = None  # "numactl", "taskset", "dplace" or "list"
    problem: str | None = None  # why what binds it is not understood
    relative: bool = False  # numactl's +N: the CPUs count inside those that may be used
    relative_nodes: bool = False  # likewise those of the policy
    all_nodes: bool = False  # the policy names all nodes, `mem_nodes` none
    is_open: bool = False  # a part of the command that may bind is not understood

    @property
    def is_bound(self) -> bool:
        """Whether it says anything."""
        return bool(self.cpus or self.cpu_nodes or self.policy)

    def counted_on(self, topology: Topology) -> Binding:
        """Return it with the numbers that +N stands for on a machine."""
        cpus, nodes = self.cpus, self.mem_nodes
        if self.relative:
            cpus = _counted(cpus or (), sorted(topology.by_cpu))
        if self.relative_nodes:
            nodes = _counted(nodes, sorted(node.os for node in topology.nodes if node.gives_memory))
        return replace(self, cpus=cpus, mem_nodes=nodes)


UNBOUND = Binding()


def _counted(places: Sequence[int], numbers: Sequence[int]) -> tuple[int, ...]:
    beyond = (numbers[-1] + 1 if numbers else 0) - len(numbers)
    return tuple(numbers[place] if place < len(numbers) else place + beyond for place in places)


def binding_of(submit: str, bind: str | None, copy: int, bits: int | None = SHELL_BITS) -> Binding:
    """Return where a copy goes by its submit command (or any command with `$BIND`).

    `bits` are those of the shell's numbers; None: numbers without end.
    """
    found = _read(commands_of(submit, bind, copy, bits))
    if found.is_bound or found.problem or bind is None or _REMOTE.match(submit):
        return found
    # The command is one's own script: a plain list is taken for what it looks like.
    return _plain(bind) if _OWN_WORD.search(submit) else found


def read_binding(command: str, _depth: int = 0) -> Binding:
    """Return where a command line, nothing left to be replaced in it, binds what it starts."""
    return _read(executed(command[:LONGEST], {}), _depth)


def _read(commands: Iterable[str], depth: int = 0) -> Binding:
    binding = UNBOUND
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
        binding = _merged(binding, one)
    if not binding.is_bound and not binding.problem and len(parts) == 1 and _is_list(parts[0]):
        return _plain(parts[0])
    is_open = binding.is_open or bool(unclear) or _is_open(parts)
    return replace(binding, is_open=True) if is_open else binding


def _is_open(parts: Sequence[str]) -> bool:
    """Return whether a command is of a kind that is not known, or has something left in it."""
    scripts: set[str] = set()  # that the commands write themselves: the program is in them
    for part in parts:
        words = split_words(part)
        name = words[0].rsplit("/", 1)[-1] if words else ""
        scripts.update(_WRITTEN.findall(part))
        if name in _BINDS_NOTHING or name in _PROGRAM or not name:
            continue
        if name in _SHELLS:
            if words[1:2] != ["-c"] and not scripts & set(words[1:2]):
                return True
        elif name not in _TOOLS or any(_is_left(word) for word in _before_program(words)):
            return True
    return False


def _before_program(words: Sequence[str]) -> Sequence[str]:
    places = [place for place, word in enumerate(words) if word in _PROGRAM]
    return words[: places[0]] if places else words


def _is_left(word: str) -> bool:
    return "$" in word or "`" in word


def _command(part: str, depth: int) -> Binding:
    binding = UNBOUND
    words = split_words(part)
    for place, word in enumerate(words):
        reader = _TOOLS.get(word.rsplit("/", 1)[-1])
        if reader is not None:
            binding = _merged(binding, reader(words[place + 1 :]))
        elif depth < _DEEPEST and word != part.strip() and _holds_tool(word):
            binding = _merged(binding, read_binding(word, depth + 1))
    return binding


def _holds_tool(word: str) -> bool:
    return " " in word and any(tool in word for tool in _TOOLS)


def _is_list(text: str) -> bool:
    return _LIST.match(text.strip()) is not None


# -- the tools ------------------------------------------------------------------------------------


def _numactl(words: Sequence[str]) -> Binding:
    binding = UNBOUND
    place = 0
    while place < len(words) and words[place] != "--":
        word = words[place]
        if word.startswith(("$", "`")) and word not in _PROGRAM:
            # A variable that is not known. What options it holds nobody can tell; in their
            # place it is no program, and behind them it is one.
            if place and not any(one.startswith("-") for one in words[place + 1 : place + 2]):
                break
            problem = f"numactl {word[:40]}: not known what it stands for"
            binding = _merged(binding, Binding(by="numactl", problem=problem))
            place += 1
            continue
        if not word.startswith("-"):
            break
        place += 1
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            name = _whole_name(name)
        else:
            name, _ = _NUMACTL.get(word[1:2], ("", None))
            value, sign = word[2:].removeprefix("="), word[2:]
        if name in _ALONE and word[:2] != "--" and value:
            words = [*words[:place], f"-{value}", *words[place:]]  # `-lC0`
            value = ""
        elif name not in _ALONE and name and not sign:
            if place == len(words):
                break
            value = words[place]
            place += 1
        if not name:
            return _merged(binding, Binding(by="numactl", problem=f"numactl {word} is not known"))
        binding = _merged(binding, _numactl_option(name, value))
    return binding


def _whole_name(name: str) -> str:
    name = {"cpubind": "cpunodebind"}.get(name, name)
    if name in _POLICIES:
        return name
    fitting = [one for one in _POLICIES if one.startswith(name)] if len(name) > 1 else []
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
        relative = value.startswith("+") and name in ("membind", "preferred")
        return Binding(
            cpus=None,
            cpu_nodes=(),
            policy=policy,
            mem_nodes=numbers,
            by="numactl",
            problem=problem,
            relative_nodes=relative,
        )
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
        elif not word.startswith("-") or word[1:].isdigit():
            if as_list:
                numbers, problem = _numbers(word, f"taskset -c {word}")
                return Binding(cpus=numbers or None, by="taskset", problem=problem)
            return _mask(word)
    return UNBOUND


def _mask(word: str) -> Binding:
    digits = word.lower().removeprefix("0x").replace(",", "")
    if not re.fullmatch(r"[0-9a-f]{1,16384}", digits):
        return Binding(by="taskset", problem=f"taskset: {word[:40]!r} is no mask of CPUs")
    cpus = numbers_of(int(digits, 16))
    if not cpus:
        return Binding(by="taskset", problem=f"taskset: the mask {word[:40]!r} has no CPU in it")
    return Binding(cpus=cpus, by="taskset")


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


def _numbers(text: str, where: str) -> tuple[tuple[int, ...], str | None]:
    numbers: set[int] = set()
    try:
        for item in text.split(","):
            plain, _, stride = item.partition(":")
            if stride and not re.fullmatch(r"[1-9]\d{0,4}", stride, re.ASCII):
                return (), f"{where[:60]}: no stride: {stride[:20]!r}"
            numbers.update(parse_list(plain)[:: int(stride or 1)])
    except ValueError as error:
        return (), f"{where[:60]}: {error}"
    if not numbers:
        return (), f"{where[:60]}: no number"
    return tuple(sorted(numbers)), None


def _merged(binding: Binding, other: Binding) -> Binding:
    return Binding(
        cpus=other.cpus or binding.cpus,
        cpu_nodes=other.cpu_nodes or binding.cpu_nodes,
        policy=other.policy or binding.policy,
        mem_nodes=other.mem_nodes if other.policy else binding.mem_nodes,
        by=other.by if other.is_bound else binding.by or other.by,
        problem=binding.problem or other.problem,
        relative=other.relative if other.cpus else binding.relative,
        relative_nodes=other.relative_nodes if other.policy else binding.relative_nodes,
        all_nodes=other.all_nodes if other.policy else binding.all_nodes,
        is_open=binding.is_open or other.is_open,
    )
