"""Where the copies of a file were bound: its submit and bind lines, on a described machine."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.topology import Topology
from rater.record.run import MachinePU
from rater.speccpu.config.config import Variant
from rater.speccpu.config.shell import LONGEST, commands_of, executed
from rater.speccpu.results.result import SpecFile, SpecIteration
from rater.text.cpuset import format_list, numbers_of, parse_list
from rater.text.values import copies_text

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
            nodes = _counted(nodes, sorted(node.os for node in topology.nodes if node.allowed))
        return replace(self, cpus=cpus, mem_nodes=nodes)


UNBOUND = Binding()


def _counted(places: Sequence[int], numbers: Sequence[int]) -> tuple[int, ...]:
    beyond = (numbers[-1] + 1 if numbers else 0) - len(numbers)
    return tuple(numbers[place] if place < len(numbers) else place + beyond for place in places)


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
    return binding


def _command(part: str, depth: int) -> Binding:
    binding = UNBOUND
    words = _split_words(part)
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


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end
        return text.split()


# -- Where the copies of a result file ran: its own submit lines, on a described machine -----------

_BY_COPY = re.compile(r"SPEC(?:COPY|USER)NUM")
_MOST_NOTES = 10  # bindings that are not understood
_MOST_NAMED = 5
_MOST_WORK = 20_000_000  # characters of commands that are worked out for copies, in all
_LONGEST_LIST = 40  # characters


class BoundPlace(Struct, frozen=True, kw_only=True):
    """Of one copy; None and empty for what is not known."""

    cpu: int | None = None
    core: int | None = None
    llc: int | None = None
    node: int | None = None  # OS number of the node of its CPUs
    package: int | None = None
    mem_nodes: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()  # all that it was allowed


NOWHERE = BoundPlace()
# Notes about places, in the order in which they are printed: their subject and their words.
_NOTES = {
    "missing": (
        "CPU",
        "the topology {machine} does not fit: copies were bound to {them}, which it lacks; their "
        "node is unknown",
    ),
    "missing nodes": (
        "node",
        "the topology does not fit: copies were bound to {them}, which it lacks",
    ),
    "far": ("copy", "memory was bound to another node than that of the CPU: {them}"),
    "against": (
        "CPU",
        "the topology and the file's sysinfo have {them} on different nodes: the file holds",
    ),
    "by file": ("", "nodes are those that the file's sysinfo names"),
    "no submit": (
        "",
        "the configuration inside has no submit line for what ran, and the file says that there "
        "was one: its bind lines are taken",
    ),
    "relative": (
        "",
        "numactl counts +N inside the CPUs that it may use: taken for CPU N; --topology supplies "
        "them",
    ),
    "by memory": (
        "",
        "nodes are those that copies' memory was bound to; --topology supplies those of their CPUs",
    ),
    "unknown nodes": (
        "",
        "the file tells copies' CPUs and not their NUMA nodes; --topology supplies them",
    ),
}
_TOO_MUCH = "so many and so long commands that the rest is left out"


class BindingResolver:
    """Answers where copies were, and gathers what is to be said about it."""

    def __init__(self, file: SpecFile, topology: Topology | None) -> None:
        self.file, self.topology = file, topology
        # By OS number, also those that may not be used.
        self._machine = {pu.os: pu for pu in topology.machine_pus} if topology else {}
        self._known: dict[tuple[str, str | None, int, int], BoundPlace] = {}
        self._submits: dict[tuple[str, str, Variant], tuple[str, tuple[str, ...]]] = {}
        # Copies that were bound to one CPU alone, by the bind lines of their bracket: at one time.
        self._users: dict[tuple[str, tuple[str, ...]], dict[int, set[int]]] = {}
        self._work = 0  # characters
        self._unclear = Counter[str]()  # problems of bindings: how many copies
        self._of_copy = defaultdict[int, set[BoundPlace]](set)
        self._by: dict[str, None] = {}
        self._policies: dict[str, None] = {}
        # What is to be said, by a key of `_NOTES`, and of which CPUs, nodes or copies.
        self._said = defaultdict[str, set[int]](set)

    def place_of(self, iteration: SpecIteration, copy: int) -> BoundPlace:
        """Return where a copy of an iteration was."""
        submit, binds = self._command_of(iteration)
        if not submit:
            return NOWHERE
        bind = binds[copy % len(binds)] if binds else None
        number = copy if _BY_COPY.search(submit) or (bind and _BY_COPY.search(bind)) else 0
        key = (submit, bind, number, iteration.threads or 1)
        place = self._known.get(key)
        if place is None:
            self._work += len(submit) + len(bind or "")
            if self._work > _MOST_WORK:
                self._unclear[_TOO_MUCH] += 1
                return NOWHERE
            place = self._known[key] = self._place(
                binding_of(submit, bind, copy), iteration.threads or 1, copy
            )
        if place is not NOWHERE:
            self._of_copy[copy].add(place)
            if place.cpu is not None and len(place.cpus) == 1:
                users = self._users.setdefault((submit, binds), {})
                users.setdefault(place.cpu, set()).add(copy)
            if place.node is not None and place.mem_nodes and place.node not in place.mem_nodes:
                self._said["far"].add(copy)
        return place

    def pus(self) -> tuple[MachinePU, ...]:
        """Return the machine's CPUs: of the topology, else those that copies are known to be on."""
        if self.topology is not None:
            node_by_cpu = self.file.node_of
            return tuple(
                MachinePU(
                    cpu=pu.os,
                    core=pu.core,
                    llc=pu.llc,
                    node=node_by_cpu.get(pu.os, pu.node),
                    package=pu.package,
                )
                for pu in sorted(self.topology.machine_pus, key=lambda pu: pu.os)
            )
        nodes: dict[int, int | None] = dict(self.file.node_of)
        for place in chain.from_iterable(self._of_copy.values()):
            for cpu in place.cpus:
                if nodes.get(cpu) is None:
                    nodes[cpu] = place.node
        return tuple(
            MachinePU(cpu=cpu, core=None, llc=None, node=nodes[cpu], package=None)
            for cpu in sorted(nodes)
        )

    def summary(self) -> str:
        """Say in a line where copies were, as far as is known."""
        if not self._of_copy:
            return "where copies ran is not in the file"
        places = set().union(*self._of_copy.values())
        cpus = {cpu for place in places for cpu in place.cpus}
        nodes = {place.node for place in places if place.node is not None}
        parts = []
        if cpus:
            parts.append(f"on {_named('CPU', cpus)}")
        if nodes:
            parts.append(_named("node", nodes))
        if self._policies:
            memory = {node for place in places for node in place.mem_nodes}
            where = f" on {_named('node', memory)}" if memory else ""
            parts.append(f"memory {', '.join(self._policies)}{where}")
        tools = f" (by {', '.join(self._by)})" if self._by else ""
        return f"{copies_text(len(self._of_copy))} bound: {', '.join(parts)}{tools}"

    def notes(self) -> list[str]:
        """Return what a reader of the results must know about it, a sentence each."""
        notes = [
            f"binding not understood ({_times(times)}): {problem}"
            for problem, times in list(self._unclear.items())[:_MOST_NOTES]
        ]
        known = any(place.node is not None for places in self._of_copy.values() for place in places)
        if self.topology is None and self._of_copy and not known:
            self._said["unknown nodes"] = set()
        machine = self.topology.source if self.topology else ""
        notes += [
            text.format(them=what and _named(what, self._said[kind]), machine=machine)
            for kind, (what, text) in _NOTES.items()
            if kind in self._said
        ]
        return [*notes, *self._shared()]

    def _shared(self) -> list[str]:
        twice = defaultdict[int, set[int]](set)
        for users in self._users.values():
            for cpu, copies in users.items():
                if len(copies) > 1:
                    twice[cpu] |= copies
        if not twice:
            return []
        some = "; ".join(
            f"CPU {cpu} to copies {_list(twice[cpu])}" for cpu in sorted(twice)[:_MOST_NAMED]
        )
        more = f"; and {len(twice) - _MOST_NAMED} more" if len(twice) > _MOST_NAMED else ""
        return [f"several copies were bound to the same CPU: {some}{more}"]

    # -- inside ---------------------------------------------------------------------------------

    def _command_of(self, iteration: SpecIteration) -> tuple[str, tuple[str, ...]]:
        if self.file.format == "log":
            return iteration.command or "", iteration.binds
        config = self.file.config
        if config is None or iteration.submit is False:
            return "", ()
        key = (iteration.benchmark, iteration.tune, Variant(iteration.label, iteration.machine))
        if key not in self._submits:
            submit = config.submit(*key)
            binds = tuple(bind.text for bind in config.binds(*key))
            command = submit[0] if submit else ""
            if not command and binds and iteration.submit:
                # The file says that there was one; what it binds by is in its bind lines.
                command = "$BIND $command"
                self._said["no submit"] = set()
            self._submits[key] = (command, binds)
        return self._submits[key]

    def _place(self, binding: Binding, threads: int, copy: int) -> BoundPlace:
        if binding.problem:
            self._unclear[binding.problem] += 1
        if not binding.is_bound:
            return NOWHERE
        if self.topology is not None:
            binding = binding.counted_on(self.topology)
        if binding.by:
            self._by[binding.by] = None
        if binding.policy:
            self._policies[binding.policy] = None
        cpus = binding.cpus or ()
        single = cpus[0] if cpus and len(cpus) <= max(1, threads) else None
        if self.topology is None:
            if binding.relative:
                self._said["relative"] = set()
            node = binding.cpu_nodes[0] if len(binding.cpu_nodes) == 1 else None
            nodes = {self.file.node_of.get(cpu) for cpu in cpus}
            if cpus and None not in nodes:
                self._said["by file"] = set()
                node = nodes.pop() if len(nodes) == 1 else None
            near = binding.policy in ("bind", "preferred") and len(binding.mem_nodes) == 1
            if near and cpus and not binding.cpu_nodes and not self.file.node_of:
                node = binding.mem_nodes[0]
                self._said["by memory"] = set()
            place = BoundPlace(cpu=single, node=node, cpus=cpus)
        else:
            place = self._on_machine(self.topology, binding, cpus, single)
        mem_nodes = binding.mem_nodes
        if binding.all_nodes:
            known = {it.os for it in self.topology.nodes} if self.topology else None
            mem_nodes = tuple(sorted(known or set(self.file.node_of.values())))
        if binding.policy == "local" and place.node is not None:
            mem_nodes = (place.node,)
        return replace(place, mem_nodes=mem_nodes)

    def _on_machine(
        self, topology: Topology, binding: Binding, cpus: tuple[int, ...], single: int | None
    ) -> BoundPlace:
        machine = self._machine
        named = {*binding.mem_nodes, *binding.cpu_nodes}
        if absent := named - topology.by_node.keys():
            self._said["missing nodes"] |= absent
        if not cpus and binding.cpu_nodes:
            cpus = tuple(cpu for cpu, pu in sorted(machine.items()) if pu.node in binding.cpu_nodes)
        if missing := set(cpus) - machine.keys():
            self._said["missing"] |= missing
        if not cpus or missing:
            return BoundPlace(cpu=single, cpus=cpus)
        pus = [machine[cpu] for cpu in cpus]
        known_nodes = self.file.node_of
        if against := {pu.os for pu in pus if known_nodes.get(pu.os, pu.node) != pu.node}:
            self._said["against"] |= against

        def common(values: set[int | None]) -> int | None:
            return values.pop() if len(values) == 1 else None

        return BoundPlace(
            cpu=single,
            core=common({pu.core for pu in pus}),
            llc=common({pu.llc for pu in pus}),
            node=common({known_nodes.get(pu.os, pu.node) for pu in pus}),
            package=common({pu.package for pu in pus}),
            cpus=cpus,
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _named(noun: str, numbers: set[int]) -> str:
    plural = {"copy": "copies"}.get(noun, f"{noun}s")
    return f"{noun if len(numbers) == 1 else plural} {_list(numbers)}"


def _list(numbers: Iterable[int]) -> str:
    ordered = sorted(set(numbers))
    text = format_list(ordered)
    if len(text) <= _LONGEST_LIST:
        return text
    step = ordered[1] - ordered[0]
    if ordered == list(range(ordered[0], ordered[-1] + 1, step)):
        return f"{ordered[0]}-{ordered[-1]}:{step}"
    first = text[:_LONGEST_LIST].rpartition(",")[0]
    return f"{first},...,{ordered[-1]} ({len(ordered)} in all)"


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
    )
