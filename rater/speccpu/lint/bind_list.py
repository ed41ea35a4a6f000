"""A bind list to be checked: where it stands, its parts, where each copy is bound; pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.topology import Topology
from rater.speccpu.config import keys
from rater.speccpu.config.binding import Binding, binding_of
from rater.speccpu.config.config import (
    Bind,
    ConfigSetting,
    Section,
    SpecConfig,
    read_config,
)
from rater.speccpu.results.read import MOST_BYTES
from rater.speccpu.results.result import Lines
from rater.speccpu.results.rsf import HEAD_BYTES, is_raw, read_rsf
from rater.system.errors import InputError
from rater.text.cpuset import format_list
from rater.text.documents import open_input

# -- A configuration to be checked: a file with what it includes, or what a raw file has packed ----

_MOST_BYTES = 16 << 20
_MOST_INCLUDED = 100  # files; one that includes itself has no end
_INCLUDE = re.compile(r"\s*include\s*:\s*(\S+)\s*(?:#.*)?$", re.IGNORECASE)


type ResultOf = tuple[str, str, int | None]  # benchmark, tune, copies


class Source(Struct, frozen=True, kw_only=True):
    """A configuration, where its lines come from, and what is not there."""

    name: str  # as it was typed
    config: SpecConfig
    packed: bool  # taken from a raw file: lines are those of the configuration in it
    ran: tuple[ResultOf, ...]  # of a raw file
    missing: tuple[str, ...]  # files that are to be included and are not there
    origins: tuple[tuple[str, int], ...]  # file and line of each line; empty: its own

    @property
    def main(self) -> str:
        """The name of the file itself among those of `origins`."""
        return f"{self.name}(config)" if self.packed else self.name

    def where(self, line: int) -> str:
        """Return `FILE:LINE` for a line of the configuration."""
        file, file_line = self.place_of(line)
        return f"{file}:{file_line}"

    def place_of(self, line: int) -> tuple[str, int]:
        """Return the file that holds a line of the configuration, and the line's number in it."""
        return self.origins[line - 1] if 0 < line <= len(self.origins) else (self.main, line)

    def number(self, line: int) -> str:
        """Return `line N`, with its file where that is an included one."""
        file, file_line = self.place_of(line)
        return f"line {file_line}" if file == self.main else f"{file}:{file_line}"


def read_source(
    path: Path, defines: Mapping[str, str] | None = None, label: str | None = None
) -> Source:
    """Read a configuration file or the configuration inside a raw file.

    `defines` and `label` are those of the command line that runs it. Files that it includes
    (`include: FILE`, beside it) are read in their place. Raises `InputError` when there is no
    configuration to be read.
    """
    text = _bytes(path)
    if is_raw(text[:HEAD_BYTES]):
        return _packed(path, text, defines, label)
    if b"\0" in text:
        raise InputError(f"{path}: no text; expected a configuration file (.cfg) or a raw file")
    all_of_it = _Gathered(path, text.decode("latin-1"))
    config = read_config("\n".join(all_of_it.lines), defines, label)
    missing, origins = tuple(all_of_it.missing), tuple(all_of_it.origins)
    return Source(
        name=str(path), config=config, packed=False, ran=(), missing=missing, origins=origins
    )


def _bytes(path: Path) -> bytes:
    with open_input(path, MOST_BYTES, "a configuration file of SPEC CPU or a raw file") as stream:
        text = stream.read(HEAD_BYTES)
        most = MOST_BYTES if is_raw(text) else _MOST_BYTES
        text += stream.read(most + 1 - len(text))
    if len(text) > most:
        raise InputError(f"{path}: larger than {most >> 20} MiB, no configuration file")
    return text.removeprefix(codecs.BOM_UTF8)  # which editors put before it


class _Gathered:
    """A file's lines, with those of the files that it includes in their place."""

    def __init__(self, path: Path, text: str) -> None:
        self.lines: list[str] = []
        self.origins: list[tuple[str, int]] = []
        self.missing: list[str] = []
        self._files = 0
        self._add(path, text)

    def _add(self, path: Path, text: str) -> None:
        self._files += 1
        for number, line in enumerate(text.split("\n"), start=1):
            found = _INCLUDE.match(line)
            if found is None:
                self.lines.append(line)
                self.origins.append((str(path), number))
            else:
                self._include(path, number, found[1])

    def _include(self, path: Path, number: int, name: str) -> None:
        other = path.parent / name
        try:
            text = _bytes(other) if self._files < _MOST_INCLUDED else None
        except InputError:
            text = None
        if text is None:
            self.lines.append("")
            self.origins.append((str(path), number))
            self.missing.append(f"{path}:{number}: include: {name[:80]} is not there to be read")
        else:
            self._add(other, text.decode("latin-1"))


def _packed(
    path: Path, text: bytes, defines: Mapping[str, str] | None, label: str | None
) -> Source:
    file = read_rsf(Lines(text), path.name, defines, label)
    if file.config is None:
        why = next(
            (f" ({problem})" for problem in file.problems if "rawconfig" in problem.text), ""
        )
        raise InputError(
            f"{path}: a raw file without a readable configuration in it{why}: "
            "give the configuration file itself"
        )
    ran = dict.fromkeys(
        (iteration.benchmark, iteration.tune, iteration.planned)
        for iteration in file.iterations
        if iteration.rate and iteration.submit is not False
    )
    return Source(
        name=str(path), config=file.config, packed=True, ran=tuple(ran), missing=(), origins=()
    )


# -- The parts of a configuration that bind copies differently, and where each copy is bound -------

BIND = re.compile(r"\$\{?BIND\b")
BY_COPY = re.compile(r"\$\{?SPEC(?:COPY|USER)NUM\b\}?")
# Any benchmark of a set that has no section of its own stands for the set.
_EXAMPLES = {
    "int": ("400.x", "401.x", "403.x"),
    "fp": ("410.x", "416.x", "433.x"),
    "intrate": ("500.x_r", "502.x_r", "505.x_r"),
    "fprate": ("503.x_r", "507.x_r", "508.x_r"),
}
_WIDER = {"specrate": ("intrate", "fprate")}
_SPEED = ("intspeed", "fpspeed", "specspeed")
_MOST_NAMED = 3
MOST_SEATS = 8192  # as many CPUs as Linux can have: copies beyond these share CPUs anyhow


class BoundCopy(Struct, frozen=True, kw_only=True):
    """Where one copy is bound; CPUs are OS numbers."""

    line: int
    copy: int
    name: str  # "bind3", "entry 3 of bind", "copy 3"
    text: str  # of its `$BIND`, "" without
    binding: Binding
    cpus: tuple[int, ...]  # of its CPUs and of the nodes it is bound to
    wide: bool  # bound to nodes, not to CPUs

    @property
    def is_read(self) -> bool:
        """Whether its command was understood as far as it binds CPUs."""
        beyond = any(sign in (self.binding.problem or "") for sign in "`$(")
        if beyond:
            return False
        return bool(self.cpus or self.binding.cpu_nodes or self.binding.problem) or (
            not self.binding.is_open
        )

    def finding(
        self, kind: str, text: str, cpus: Iterable[int] = (), *others: BoundCopy
    ) -> LintFinding:
        """Return a finding about this copy, and others before it."""
        copies = tuple(seat.copy for seat in (*others, self))
        return LintFinding(
            line=self.line, kind=kind, text=f"{self.name}{text}", copies=copies, cpus=tuple(cpus)
        )


class LintContext(Struct, frozen=True, kw_only=True):
    """What is checked, on which machine, and how it was asked for."""

    source: Source
    topology: Topology | None = None  # None: only what no machine can make right is found
    copies: int | None = None  # that will run, whatever the file says
    section: str | None = None  # the only one wanted: `429.mcf` or `intrate=peak`
    ignore: frozenset[str] = frozenset()  # kinds that are left out

    @property
    def machine(self) -> Topology:
        """The machine, for what is checked where there is one."""
        assert self.topology is not None
        return self.topology

    def bound(self, line: int, copy: int, name: str, text: str, binding: Binding) -> BoundCopy:
        """Return a copy with all its CPUs; `numactl`'s +N counts inside those it may use."""
        topology = self.topology
        binding = binding if topology is None else binding.counted_on(topology)
        cpus = binding.cpus or ()
        nodes = () if cpus else binding.cpu_nodes
        if topology is not None and nodes:
            there = (topology.by_node[node].cpus for node in nodes if node in topology.by_node)
            cpus = tuple(sorted(topology.by_cpu.keys() & {cpu for them in there for cpu in them}))
        return BoundCopy(
            line=line, copy=copy, name=name, text=text, binding=binding, cpus=cpus, wide=bool(nodes)
        )


class Scope(Struct, frozen=True, kw_only=True):
    """Benchmarks and tunes for which the same lines hold."""

    context: LintContext
    label: str
    submit: str
    submit_line: int  # 0: none
    form: str  # "bindN", "bind", or "copy": worked out from the number of the copy
    uses_bind: bool
    binds: tuple[ConfigSetting, ...]  # the lines of its list
    values: int  # of `$BIND` in them
    unused_list: ConfigSetting | None  # a `bind = ...` list where bindN lines hold as well
    copies: int | None
    copies_line: int  # 0: not of a line
    deliberate: bool  # its own number of copies, and a list made for all benchmarks
    seats: tuple[BoundCopy, ...]

    @property
    def used(self) -> tuple[BoundCopy, ...]:
        """The seats that a copy takes."""
        return self.seats if self.copies is None else self.seats[: self.copies]

    @property
    def unread(self) -> int:
        """The copies that run whose command was not understood."""
        unread = sum(not seat.is_read for seat in self.used)
        beyond = (self.copies or 0) - MOST_SEATS
        return unread + (max(0, beyond) if self.form == "copy" else 0)

    @property
    def lacks_copies(self) -> bool:
        """Whether one copy alone was looked at, because nothing says how many there are."""
        return self.form == "copy" and self.copies is None and bool(self.seats)

    @property
    def goes_round(self) -> bool:
        """Whether there are more copies than binds, and copies share CPUs by that."""
        if not self.uses_bind or not 0 < self.values < self.running:
            return False
        beyond = self.seats[self.values : self.values + 1]
        return not beyond or beyond[0].cpus == self.seats[0].cpus

    @property
    def running(self) -> int:
        """The copies that run, as far as is known or the list shows."""
        return self.copies if self.copies is not None else len(self.seats)


# What to call it, a benchmark, a tune, and its copies where a result has them.
type _Candidate = tuple[str, str, str, int | None]


def scopes_of(context: LintContext) -> list[Scope]:
    """Return the scopes that have a submit command or binds."""
    config = context.source.config
    groups: dict[tuple[object, ...], list[_Candidate]] = {}
    for candidate in _candidates(config, context.source.ran, context.section):
        _, benchmark, tune, of_run = candidate
        lines = sorted(f"{one.name} {one.line}" for one in config.holding(benchmark, tune).values())
        groups.setdefault((of_run, *lines), []).append(candidate)
    scopes = (_scope(context, members) for members in groups.values())
    found = [scope for scope in scopes if scope is not None]
    whole = len(found) == 1 and context.section is None
    return [replace(found[0], label="")] if whole else found


def _candidates(
    config: SpecConfig, ran: Sequence[ResultOf], section_word: str | None
) -> Iterable[_Candidate]:
    sections = list(dict.fromkeys(setting.section for setting in config.settings))
    tunes = {tune for section in sections for tune in section.tunes} - {"default"}
    tunes |= {"base", "peak"}
    if section_word is not None:
        name, _, tune = section_word.strip().rstrip(":").partition("=")
        tunes = {tune.partition("=")[0]} if tune and tune != "default" else tunes
        names = [name or "default"]
    elif ran:
        yield from ((benchmark, benchmark, tune, copies) for benchmark, tune, copies in ran)
        return
    else:
        names = ["default", *(name for section in sections for name in section.benchmarks)]
    taken = {name for section in sections for name in section.benchmarks}
    # A benchmark's own section is nearer than that of its set; names stand in the file's order.
    for name in dict.fromkeys(part for given in names for part in _WIDER.get(given, (given,))):
        number = keys.number_of(f"{name}.") or 0
        if section_word is None and (name in _SPEED or number // 100 in (6, 8)):
            continue
        for tune in sorted(tunes):
            yield name, _example(name, taken), tune, None


def _example(name: str, used: set[str]) -> str:
    if name in _EXAMPLES:
        free = [one for one in _EXAMPLES[name] if one[:3] not in used]
        return free[0] if free else _EXAMPLES[name][0]
    if name.isdigit():
        suite = keys.suite_of(f"{name}.")
        return f"{name}.x" if suite in ("cpu2000", "cpu2006") else f"{name}.x_r"
    return name


def _label(members: Sequence[_Candidate]) -> str:
    tunes: dict[str, list[str]] = {}
    for shown, _, tune, _ in members:
        tunes.setdefault(shown, []).append(tune)
    if "default" in tunes:
        tunes = {"default": tunes["default"]}
    everywhere = {tune for _, _, tune, _ in members}
    names = [
        name if {"base", "peak"} <= set(of) else " ".join((name, *of)) for name, of in tunes.items()
    ]
    if len(names) > _MOST_NAMED:
        one = "" if len(everywhere) > 1 else f" {everywhere.pop()}"
        return f"{len(names)} benchmarks{one}"
    return ", ".join(names)


def _scope(context: LintContext, members: Sequence[_Candidate]) -> Scope | None:
    config = context.source.config
    _, benchmark, tune, of_run = members[0]
    held = config.holding(benchmark, tune)
    submit = config.submit(benchmark, tune)
    listed = config.binds(benchmark, tune, list_last=True)
    form = "bindN" if listed and listed[0].setting.name != "bind" else "bind"
    if submit is None and not listed:
        return None
    command, line = submit or ("", 0)
    uses_bind = bool(BIND.search(command))
    copies, copies_line = (context.copies if context.copies is not None else of_run), 0
    if copies is None:
        copies, copies_line = config.copies(benchmark, tune) or (None, 0)
    if uses_bind:
        seats = _listed_seats(context, command, listed, copies)
    else:
        seats = _command_seats(context, command, line, copies)
    return Scope(
        context=context,
        label=_label(members),
        submit=command,
        submit_line=line,
        form=form if uses_bind else "copy",
        uses_bind=uses_bind,
        binds=tuple(dict.fromkeys(bind.setting for bind in listed)),
        values=len(listed),
        unused_list=held.get("bind") if form == "bindN" else None,
        copies=copies,
        copies_line=copies_line,
        deliberate=(
            copies_line > 0
            and bool(listed)
            and _is_special(held["copies"].section)
            and not _is_special(listed[0].setting.section)
        ),
        seats=tuple(seats),
    )


def _command_seats(
    context: LintContext, command: str, line: int, copies: int | None
) -> list[BoundCopy]:
    """Return what each copy is bound to by the submit command alone.

    Without a number of copies the first one alone shows how they are bound.
    """
    seat_count = (1 if copies is None else min(copies, MOST_SEATS)) if command else 0
    return [
        context.bound(line, copy, f"copy {copy}", "", binding_of(command, None, copy))
        for copy in range(seat_count)
    ]


def _listed_seats(
    context: LintContext, command: str, listed: Sequence[Bind], copies: int | None
) -> list[BoundCopy]:
    """Return what each copy is bound to by a list that the submit command uses.

    A list that depends on the number of the copy goes round for all copies.
    """
    by_copy = any(BY_COPY.search(text) for text in (command, *(bind.text for bind in listed)))
    seat_count = len(listed)
    if by_copy and listed:
        seat_count = max(seat_count, min(copies or 0, MOST_SEATS))
    return [
        context.bound(
            bind.setting.line, copy, bind.name, bind.text, binding_of(command, bind.text, copy)
        )
        for copy, bind in zip(range(seat_count), cycle(listed), strict=False)
    ]


def _is_special(section: Section) -> bool:
    general = {"default", "int", "fp", *_EXAMPLES, *_WIDER}
    return not general & set(section.benchmarks)


# -- A finding, and the words that findings have in common -----------------------------------------

_WHOLE_LIST = 1 << 30


class LintFinding(Struct, frozen=True, kw_only=True):
    """One mistake; `copies` and `cpus` are those it is about."""

    line: int  # of the configuration, from 1
    kind: str
    text: str  # what, with numbers, and the way out
    copies: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    scopes: tuple[str, ...] = ()  # benchmarks and tunes it holds for; empty: all

    @property
    def order(self) -> tuple[int, str]:
        """What sorts findings of one line: those of the whole list behind those of a copy."""
        return (min(self.copies, default=_WHOLE_LIST), self.kind)


def named(numbers: Iterable[int]) -> str:
    """Return `0-3,8`, or `none`."""
    return format_list(numbers) or "none"


def cpus_text(cpus: Iterable[int]) -> str:
    """Return `CPU 3` or `CPUs 3-5`."""
    return _called("CPU", cpus)


def nodes_text(nodes: Iterable[int]) -> str:
    """Return `node 1` or `nodes 0-1`."""
    return _called("node", nodes)


def _called(name: str, numbers: Iterable[int]) -> str:
    each = set(numbers)
    text = format_list(each)
    if len(text) > 60:  # of lists with holes a part is enough to find them
        text = text[:60].rpartition(",")[0] + f",... ({len(each)})"
    return f"{name if len(each) == 1 else name + 's'} {text}"
