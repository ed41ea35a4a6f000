"""What the user typed for a run: argument declarations, and a checked, frozen `Request`."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from rater import __version__
from rater.errors import InputError
from rater.plan.sampling import parse_cadence

DEFAULT_SUITE = "mini"
DEFAULT_COPIES = "pus"
KIT = "spec:"  # what a selection begins with that is a kit of SPEC CPU, no suite
KIT_COPIES = "file"  # as many as the kit's command files are for: the default there
DEFAULT_SIZE = "train"
DEFAULT_TUNE = "base"
DEFAULT_LAYOUT = "balanced"
DEFAULT_GRACE_S = 5.0
DEFAULT_OUTPUT_LIMIT = "1G"
DEFAULT_UNTIL_IDLE_S = 300.0
PREFLIGHTS = ("warn", "strict", "off")
PAGE_MODES = ("off", "madvise", "thp", "hugetlb")
DEFAULT_PROOF = "auto"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)(?:i?[bB])?")
_SCALE = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Request:
    """Only what the user typed, each value checked by itself."""

    suites: tuple[str, ...]
    command: tuple[str, ...]
    speccmds: tuple[str, ...]  # command files of specinvoke
    copies: str | None  # None: as many as the layout counts, else as it has PUs
    mode: str | None
    stagger_ms: float | None
    order: str | None
    warmup_s: float | None
    window_s: float | None
    increment: int
    iterations: int
    discard: int
    size: str
    tune: str
    layout: str
    bind: str | None
    bind_from_file: bool
    smt: int | None
    kind: str | None
    reserve: int | None
    memory: str | None
    timeout_s: float | None
    grace_s: float
    tags: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    wrap: tuple[str, ...]
    alloc: str | None  # a name of `run.allocator`, or the path of a library
    hugepages: str | None  # one of PAGE_MODES
    prepare: str | None
    cooldown_s: float
    until_idle_s: float | None  # longest time to wait; None: do not
    output_limit_bytes: int
    oversubscribe: bool
    preflight: str  # one of PREFLIGHTS
    proof: str  # as `plan.evidence.parse_cadence` takes it
    run_dirs: bool
    keep: bool
    speccmds_out: bool
    force: bool
    share: bool

    @property
    def of_kit(self) -> bool:
        """Tell whether benchmarks of an installed SPEC CPU are to run.

        Size and tune are "" then where the user gave none: those that there are.
        """
        return bool(self.speccmds) or any(suite.startswith(KIT) for suite in self.suites)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` (and every command that plans a run) takes.

    What was not given is None, False or an empty list: `request_from` knows the defaults.
    """
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE[/BENCHMARK]",
        help=f"a suite's name or path; default {DEFAULT_SUITE}, unless a command follows `--`; "
        f"{KIT}DIR: run directories that an installed SPEC CPU made (runcpu --action runsetup)",
    )
    what = parser.add_argument_group("what runs")
    what.add_argument(
        "--speccmds",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE.cmd",
        help="command files of SPEC's specinvoke, a benchmark each",
    )
    what.add_argument(
        "--copies",
        metavar="N|pus|cores|nodes",
        help=f"default {DEFAULT_COPIES}: one per PU; {KIT}DIR and --speccmds: as many as the "
        "command files have run directories for",
    )
    what.add_argument(
        "--mode",
        metavar="MODE",
        help="homogeneous (default): all run one benchmark, barrier, next; rotated (or "
        "heterogeneous): copy n starts at benchmark n, no barrier; staggered: homogeneous "
        "with --stagger between starts; steady: copies repeat without barrier, completions "
        "inside --window count",
    )
    what.add_argument(
        "--warmup",
        type=float,
        metavar="S",
        help="steady: seconds before the window; default a tenth of it",
    )
    what.add_argument(
        "--window", type=float, metavar="S", help="steady: seconds in which completions count"
    )
    what.add_argument("--order", metavar="ORDER", help="steady: homogeneous (default) or rotated")
    what.add_argument(
        "--stagger",
        type=float,
        metavar="MS",
        help="milliseconds between the starts of consecutive copies",
    )
    what.add_argument(
        "--increment", type=int, metavar="K", help="step on the ring (rotated order); default 1"
    )
    what.add_argument("--iterations", type=int, metavar="N", help="default 1")
    what.add_argument("--discard", type=int, metavar="N", help="first iterations not counted")
    what.add_argument("--size", help=f"of a suite's benchmarks; default {DEFAULT_SIZE}")
    what.add_argument("--tune", help=f"of a suite's benchmarks; default {DEFAULT_TUNE}")
    where = parser.add_argument_group("where")
    where.add_argument(
        "--layout",
        metavar="NAME|PATH|list:CPUS|expr:...",
        help=f"{DEFAULT_LAYOUT} (default) or another of `rater layouts`, a file of your own, "
        "list:0,8,1,9 or expr:E:N:8",
    )
    where.add_argument(
        "--bind",
        metavar="WHAT",
        help="a copy may use all of the core, llc, node or package it is on; default pu; none: "
        "copies are not bound",
    )
    where.add_argument(
        "--bind-from-file",
        action="store_true",
        help="copies go where the -b lines of the command files put them",
    )
    where.add_argument("--smt", type=int, metavar="K", help="use K threads of each core")
    where.add_argument(
        "--kind", metavar="fast|slow|N", help="use CPUs of one kind (0 is the slowest)"
    )
    where.add_argument(
        "--reserve",
        type=int,
        metavar="N",
        help="keep N cores free of copies; rater itself runs there",
    )
    where.add_argument(
        "--mem",
        "--memory",
        dest="memory",
        metavar="POLICY[:nodes=LIST]",
        help="local (default), bind (strict: out of memory rather than remote), preferred, "
        "interleave, weighted or none; bind:nodes=2,3 names the lgroups, remote ones too",
    )
    where.add_argument(
        "--no-oversubscribe",
        action="store_true",
        help="refuse more copies than the layout has PUs for",
    )
    where.add_argument(
        "--preflight",
        choices=PREFLIGHTS,
        help="lgroups that lack the memory their copies need: warn (default), strict (refuse), off",
    )
    where.add_argument(
        "--proof",
        metavar="auto|once|SECONDS|off",
        help="look at running copies to tell whether they and their memory are where the plan "
        "said: every copy once, then as often as costs less than 1 %% of one CPU (auto, the "
        "default), once, every SECONDS, or not at all",
    )
    how = parser.add_argument_group("how")
    how.add_argument("--timeout", type=float, metavar="S", help="end a copy that runs longer")
    how.add_argument(
        "--grace",
        type=float,
        metavar="S",
        help=f"from SIGTERM to SIGKILL; default {DEFAULT_GRACE_S:g}",
    )
    how.add_argument("--tag", action="append", default=[], metavar="K=V", help="kept with the run")
    how.add_argument("--env", action="append", default=[], metavar="K=V", help="for every copy")
    how.add_argument("--wrap", metavar="PREFIX", help="e.g. 'perf stat -o out', before every copy")
    how.add_argument(
        "--alloc",
        metavar="NAME|PATH",
        help="the memory allocator of copies: system (default), jemalloc, mimalloc, tcmalloc, or "
        "a library to preload",
    )
    how.add_argument(
        "--hugepages",
        choices=PAGE_MODES,
        help="huge pages of copies: off (none, whatever the machine gives), madvise (glibc's "
        "malloc asks for transparent ones), thp (what the kernel gives to all: the machine's "
        "setting thp must be always), hugetlb (glibc's malloc takes them from the pool)",
    )
    how.add_argument("--prepare", metavar="CMD", help="shell command before each phase, not timed")
    how.add_argument("--cooldown", type=float, metavar="S", help="rest between phases")
    how.add_argument(
        "--until-idle",
        type=_idle_seconds,
        nargs="?",
        const=DEFAULT_UNTIL_IDLE_S,
        metavar="MAX_S",
        help="between phases, wait until load, temperature and frequency are back as before the "
        f"first, at most MAX_S; default {DEFAULT_UNTIL_IDLE_S:g}",
    )
    how.add_argument(
        "--output-limit",
        metavar="BYTES",
        help=f"a copy that prints more is stopped; default {DEFAULT_OUTPUT_LIMIT}",
    )
    how.add_argument("--run-dirs", action="store_true", help="a command's copies get directories")
    how.add_argument("--keep", action="store_true", help="keep the run directories")
    how.add_argument(
        "--speccmds-out",
        action="store_true",
        help="leave a speccmds.out as specinvoke does in the run directory of copy 0; one that "
        "rater did not write is kept as speccmds.out.1 (or .2, ...)",
    )
    how.add_argument("--force", action="store_true", help="run though memory or disk may not do")
    how.add_argument("--share", action="store_true", help="run beside another rater")


def request_from(args: argparse.Namespace) -> Request:
    """Check each value by itself; raises `InputError` naming the option."""
    if args.command is not None and args.suites:
        raise InputError(
            f"both a suite ({' '.join(args.suites)}) and a command behind `--`: "
            "one run rates one or the other"
        )
    if args.command is not None and not args.command:
        raise InputError("nothing behind `--`; expected a command, as in `rater run -- ./bench`")
    _check_belonging(args)
    of_kit = _check_kit(args)
    try:
        wrap = tuple(shlex.split(args.wrap or ""))
    except ValueError as error:
        raise InputError(f"--wrap {args.wrap!r}: {error}; check the quotes") from error
    grace_s = _seconds("--grace", args.grace, least=0.0)
    limit = DEFAULT_OUTPUT_LIMIT if args.output_limit is None else args.output_limit
    return Request(
        suites=tuple(args.suites) or (() if args.command or of_kit else (DEFAULT_SUITE,)),
        command=tuple(args.command or ()),
        speccmds=tuple(args.speccmds),
        copies=KIT_COPIES if args.copies is None and of_kit else args.copies,
        mode=args.mode,
        stagger_ms=args.stagger,
        order=args.order,
        warmup_s=_seconds("--warmup", args.warmup, least=0.0),
        window_s=_seconds("--window", args.window, least=0.001),
        increment=1 if args.increment is None else args.increment,
        iterations=1 if args.iterations is None else args.iterations,
        discard=args.discard or 0,
        size=args.size or ("" if of_kit else DEFAULT_SIZE),
        tune=args.tune or ("" if of_kit else DEFAULT_TUNE),
        layout=DEFAULT_LAYOUT if args.layout is None else args.layout,
        bind=args.bind,
        bind_from_file=args.bind_from_file,
        smt=args.smt,
        kind=args.kind,
        reserve=args.reserve,
        memory=args.memory,
        timeout_s=_seconds("--timeout", args.timeout, least=0.001),
        grace_s=DEFAULT_GRACE_S if grace_s is None else grace_s,
        tags=tags_from(args),
        environment=tuple(_variable(text) for text in args.env),
        wrap=wrap,
        alloc=args.alloc,
        hugepages=args.hugepages,
        prepare=args.prepare,
        cooldown_s=_seconds("--cooldown", args.cooldown, least=0.0) or 0.0,
        until_idle_s=_seconds("--until-idle", args.until_idle, least=0.001),
        output_limit_bytes=_bytes("--output-limit", limit),
        oversubscribe=not args.no_oversubscribe,
        preflight=args.preflight or PREFLIGHTS[0],
        proof=_proof(args.proof),
        run_dirs=args.run_dirs,
        keep=args.keep,
        speccmds_out=args.speccmds_out,
        force=args.force,
        share=args.share,
    )


def tags_from(args: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return what --tag was given; raises `InputError` for what is no KEY=VALUE."""
    return tuple(_pair("--tag", text) for text in args.tag)


def options_given(args: argparse.Namespace, but: Iterable[str]) -> list[str]:
    """Return the arguments that were given, as a user types them, but those called `but`."""
    given: list[str] = []
    for name, value in vars(args).items():
        # By identity: 0 is a value, though it equals False.
        absent = value is None or value is False or value == []
        if not absent and name not in but:
            given += value if name == "suites" else [f"--{name.replace('_', '-')}"]
    return given


# -- kept with the run ------------------------------------------------------------------------


def request_to_json(request: Request) -> str:
    """Return a request as it is kept with its run: enough to ask for the same again."""
    return json.dumps(asdict(request))


def request_from_json(text: str, where: str) -> Request:
    """Return the request that `request_to_json` made `text` of; `where` names the run in errors.

    What an older rater did not know has its default. Raises `InputError` for what
    this one does not know.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InputError(f"{where}: what it was asked for is not JSON ({error})") from error
    if type(values) is not dict:
        raise InputError(f"{where}: what it was asked for is no JSON object")
    kinds = {field.name: str(field.type) for field in fields(Request)}
    unknown = sorted(values.keys() - kinds.keys())
    if unknown:
        raise InputError(
            f"{where} was made by a newer rater: it was asked for with {', '.join(unknown)}, "
            f"which rater {__version__} does not know; upgrade rater"
        )
    for name, value in values.items():
        if not _KINDS[kinds[name]](value):
            raise InputError(f"{where}: what it was asked for is damaged: {name} is {value!r}")
    parser = argparse.ArgumentParser()
    add_run_arguments(parser)
    defaults = request_from(parser.parse_args([], argparse.Namespace(command=None)))
    return replace(defaults, **{name: _frozen(value) for name, value in values.items()})


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_words(value: Any) -> bool:
    return type(value) is list and all(type(word) is str for word in value)


def _is_pairs(value: Any) -> bool:
    return type(value) is list and all(_is_words(pair) and len(pair) == 2 for pair in value)


# What JSON may hold for a field, by the field's type as it is written above.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "str | None": lambda value: value is None or type(value) is str,
    "int": lambda value: type(value) is int,
    "int | None": lambda value: value is None or type(value) is int,
    "float": _is_number,
    "float | None": lambda value: value is None or _is_number(value),
    "bool": lambda value: type(value) is bool,
    "tuple[str, ...]": _is_words,
    "tuple[tuple[str, str], ...]": _is_pairs,
}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if type(value) is list else value


# -- single values ----------------------------------------------------------------------------


def _check_belonging(args: argparse.Namespace) -> None:
    """An option that would change nothing is a misunderstanding, not a wish."""
    for option, value in (("--size", args.size), ("--tune", args.tune)):
        if args.command is not None and value is not None:
            raise InputError(f"{option} {value} is for suites, a command has none: leave it out")
    rotated = ("rotated", "heterogeneous")
    if args.increment is not None and args.mode not in rotated and args.order not in rotated:
        raise InputError(
            f"--increment {args.increment} is the step of rotated order: add --mode rotated, "
            "or leave it out"
        )


def _check_kit(args: argparse.Namespace) -> bool:
    """Tell whether benchmarks of a kit are asked for; raises `InputError` for what does not fit."""
    kits = [suite for suite in args.suites if suite.startswith(KIT)]
    others = [suite for suite in args.suites if not suite.startswith(KIT)]
    of_kit = bool(kits or args.speccmds)
    if of_kit and (others or args.command is not None):
        what = others[0] if others else "a command behind `--`"
        named = kits[0] if kits else f"--speccmds {args.speccmds[0]}"
        raise InputError(f"both {named} and {what}: one run rates one or the other")
    for option, given in (
        ("--bind-from-file", args.bind_from_file),
        ("--speccmds-out", args.speccmds_out),
    ):
        if given and not of_kit:
            raise InputError(f"{option} is for {KIT}DIR and --speccmds FILE.cmd: leave it out")
    if args.bind_from_file:
        options = ("layout", "bind", "smt", "kind", "reserve")
        clashing = [f"--{name}" for name in options if getattr(args, name) is not None]
        if clashing:
            raise InputError(
                f"--bind-from-file places copies as the command file says: leave out {clashing[0]}"
            )
    for option, value in (("--size", args.size), ("--tune", args.tune)):
        if of_kit and not kits and value is not None:
            raise InputError(
                f"{option} {value} chooses among the run directories of {KIT}DIR, and a command "
                "file is of one: leave it out"
            )
    if of_kit and args.run_dirs:
        raise InputError("--run-dirs: copies of a kit work in its run directories: leave it out")
    return of_kit


def _idle_seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # its value may be left out, so it takes a suite behind it for one
        raise argparse.ArgumentTypeError(
            f"expected seconds, got {text!r}; write --until-idle={DEFAULT_UNTIL_IDLE_S:g}, or put "
            "--until-idle last"
        ) from None


def _proof(text: str | None) -> str:
    """Return what --proof asks for; raises `InputError` when it is no such thing."""
    if text is None:
        return DEFAULT_PROOF
    parse_cadence(text)
    return text


def _seconds(option: str, value: float | None, *, least: float) -> float | None:
    if value is not None and not (math.isfinite(value) and value >= least):
        raise InputError(f"{option} {value:g}: expected seconds, {least:g} or more")
    return value


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{option} {text!r}: expected KEY=VALUE")
    return key.strip(), value


def _variable(text: str) -> tuple[str, str]:
    name, value = _pair("--env", text)
    if not _NAME.fullmatch(name):
        raise InputError(f"--env {text!r}: {name!r} is no name of an environment variable")
    if "\0" in value:
        raise InputError(f"--env {name}: a value can not hold a NUL byte")
    return name, value


def _bytes(option: str, text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{option} {text!r}: expected bytes, as in 500M or 2G")
    scale: int = 1024 ** _SCALE[match[2].lower()]
    return int(float(match[1]) * scale)
