"""The options of `rater run`: the one table, and a request as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from rater import __version__
from rater.plan.options import (
    BYTES,
    CADENCE,
    EXIT_CODES,
    FLAG,
    IN_HEAD,
    MILLISECONDS,
    MINOR,
    MOVES_COPIES,
    NAME,
    NEGATED,
    NO_EFFECT,
    PAGES,
    PAIRS,
    RECORDED,
    STRINGS,
    SWEPT,
    VARIABLES,
    WHOLE,
    WORDS,
    Option,
    OptionTable,
    option,
    seconds,
)
from rater.system.errors import InputError
from rater.text.kinds import of_type
from rater.text.values import duration_s, to_dict

# Parser, stored JSON, sweeps and comparisons are made of one table, whose entries are the fields of
# `Request` that are an `option(...)`: a new option is one field more.

DEFAULT_SUITE = "mini"
DEFAULT_COPIES = "pus"
KIT = "spec:"  # what a selection begins with that is a kit of SPEC CPU, no suite
KIT_COPIES = "file"  # as many as the kit's command files are for: the default there
DEFAULT_SIZE = "train"
DEFAULT_TUNE = "base"
DEFAULT_LAYOUT = "balanced"
DEFAULT_GRACE_S = 5.0
DEFAULT_CHECK_LIMIT_S = 600.0
DEFAULT_OUTPUT_LIMIT = "1G"
DEFAULT_UNTIL_IDLE_S = 300.0
DEFAULT_WAIT_S = 86400.0
PREFLIGHTS = ("warn", "strict", "off")
PAGE_BACKINGS = ("thp", "hugetlb")
PAGE_MODES = ("off", "madvise", "thp", "hugetlb")
_what, _where, _how = (partial(option, group) for group in ("what runs", "where", "how"))
_switch = partial(_where, choices=("auto", "off"), default="auto", traits=NO_EFFECT)


def _seconds_or_none(name: str, default_s: float) -> Callable[[str], float]:
    """Return what reads an option whose value may be left out: a word behind it may be a suite."""

    def convert(text: str) -> float:
        try:
            return duration_s(text)
        except ValueError:
            raise ValueError(
                f"expected seconds (or 90s, 5m), got {text!r}; write "
                f"--{name}={default_s:g}, or put --{name} last"
            ) from None

    return convert


class Request(Struct, frozen=True, metaclass=OptionTable):
    """What the user typed for a run, each value checked by itself."""

    suites: tuple[str, ...] = (DEFAULT_SUITE,)
    command: tuple[str, ...] = ()
    speccmds: tuple[str, ...] = _what(
        "command files of SPEC's specinvoke, a benchmark each",
        metavar="FILE.cmd",
        kind=STRINGS,
        traits=RECORDED,
        default=(),
    )
    called: str | None = _what(
        "name of the command in results (default: its file). Give two builds one name to compare "
        "them",
        name="name",
        metavar="NAME",
        kind=NAME,
        traits=RECORDED,
    )
    copies: str | None = _what(  # None: as many as the layout counts, else as it has PUs
        f"default {DEFAULT_COPIES}: one per PU; {KIT}DIR and --speccmds: one per "
        "run directory in the command files",
        metavar="N|pus|cores|nodes",
        traits=SWEPT | IN_HEAD | MOVES_COPIES,
    )
    mode: str | None = _what(
        "homogeneous (default): all run one benchmark, barrier, next; rotated (or "
        "heterogeneous): copy n starts at benchmark n, no barrier; staggered: homogeneous "
        "with --stagger between starts; steady: copies repeat without barrier, completions "
        "inside --window count",
        metavar="homogeneous|rotated|staggered|steady",
        implies=("order", "ms between starts", "--increment", "--warmup", "--window"),
        traits=SWEPT | IN_HEAD,
    )
    warmup_s: float | None = _what(
        "steady: seconds before the window; default a tenth of it, or more: until every copy has "
        "run once, and half as much again",
        metavar="S",
        kind=seconds(0.0),
        label="--warmup",
        traits=SWEPT | IN_HEAD,
    )
    window_s: float | None = _what(
        "steady: seconds in which completions count",
        metavar="S",
        kind=seconds(0.001),
        label="--window",
        traits=SWEPT | IN_HEAD,
    )
    order: str | None = _what(
        "order of benchmarks in steady mode; default homogeneous",
        metavar="homogeneous|rotated",
        traits=SWEPT | IN_HEAD | MOVES_COPIES,
    )
    stagger_ms: float | None = _what(
        "time between the starts of consecutive copies: milliseconds, or with a unit (6s)",
        name="stagger",
        metavar="MS",
        kind=MILLISECONDS,
        label="ms between starts",
        implies=("ms between starts", "mode"),
        traits=SWEPT | IN_HEAD,
    )
    increment: int = _what(
        "rotated order: a copy goes on K benchmarks after each one; default 1",
        metavar="K",
        kind=WHOLE,
        label="--increment",
        traits=SWEPT | IN_HEAD,
        default=1,
    )
    iterations: int = _what(
        "repeats; default 1", metavar="N", kind=WHOLE, traits=SWEPT | MINOR | IN_HEAD, default=1
    )
    discard: int = _what(
        "do not count the first N iterations",
        metavar="N",
        kind=WHOLE,
        label="discarded iterations",
        traits=MINOR | IN_HEAD,
        default=0,
    )
    size: str = _what(  # "" (as the tune) of a kit where the user gave none: those that there are
        f"input size of the benchmarks; default {DEFAULT_SIZE}",
        implies=("command of ", "input files of ", "reference time of ", "program of "),
        traits=SWEPT | IN_HEAD,
        default=DEFAULT_SIZE,
    )
    tune: str = _what(
        f"compiler flags (base, peak); default {DEFAULT_TUNE}",
        implies=(
            *("program of ", "command of ", "compiler of ", "compiler flags of "),
            "input files of ",
        ),
        traits=SWEPT | IN_HEAD,
        default=DEFAULT_TUNE,
    )
    layout: str = _where(
        f"{DEFAULT_LAYOUT} (default) or another of `rater plan layouts`, a file of your own, "
        "list:0,8,1,9 or expr:E:N:8",
        metavar="NAME|PATH|list:CPUS|expr:...",
        traits=SWEPT | IN_HEAD | MOVES_COPIES,
        default=DEFAULT_LAYOUT,
    )
    bind: str | None = _where(
        "a copy may use all of the core, llc, node or package it is on; default pu; none: "
        "copies are not bound",
        metavar="pu|core|llc|node|package|none",
        neutral=("pu",),
        traits=SWEPT | MOVES_COPIES,
    )
    bind_from_file: bool = _where(
        "copies go where the -b lines of the command files put them", kind=FLAG, traits=MOVES_COPIES
    )
    smt: int | None = _where(
        "use K threads of each core",
        metavar="K",
        kind=WHOLE,
        implies=("setting cpu.smt.", "hardware threads", "usable CPUs"),
        traits=SWEPT | MOVES_COPIES,
    )
    kind: str | None = _where(
        "use CPUs of one kind (0 is the slowest)",
        metavar="fast|slow|N",
        traits=SWEPT | MOVES_COPIES,
    )
    reserve: int | None = _where(
        "keep N cores free of copies; rater itself runs there",
        metavar="N",
        kind=WHOLE,
        traits=SWEPT | MOVES_COPIES,
    )
    memory: str | None = _where(
        "local (default), bind (strict: out of memory rather than remote), preferred, "
        "interleave, weighted or none; bind:nodes=2,3 names the NUMA nodes, remote ones too, "
        "bind:hbm the HBM near each copy",
        name="mem",
        aliases=("memory",),
        metavar="POLICY[:nodes=LIST]",
        implies=("memory",),
        traits=SWEPT | IN_HEAD | MOVES_COPIES,
    )
    oversubscribe: bool = _where(
        "refuse more copies than the layout has PUs for",
        name="no-oversubscribe",
        kind=NEGATED,
        traits=NO_EFFECT,
        default=True,
    )
    preflight: str = _where(
        "check free memory per NUMA node: warn (default), strict (refuse the run), off",
        choices=PREFLIGHTS,
        traits=NO_EFFECT,
        default=PREFLIGHTS[0],
    )
    proof: str = _where(
        "sample running copies to check that they and their memory are where the plan put them: "
        "every copy of 2 s once, then as often as costs less than 1 %% of one CPU (auto, the "
        "default), each once, every SECONDS, or not at all",
        metavar="auto|once|SECONDS|off",
        kind=CADENCE,
        traits=SWEPT | MINOR,
        default="auto",
    )
    energy: str = _switch("joules of phases, if the machine counts them: auto (default), off")
    counters: str | None = _how(
        "groups to count (`rater doctor counters`)", metavar="GROUP,...", traits=SWEPT | MINOR
    )
    accept_exit: tuple[int, ...] = _how(
        "exit codes that count as success beside 0 (for grep, diff, solvers, timeout)",
        metavar="CODE,...",
        kind=EXIT_CODES,
        traits=MINOR,
        default=(),
    )
    timeout_s: float | None = _how(
        "end a copy that runs longer",
        metavar="S",
        kind=seconds(0.001),
        traits=NO_EFFECT,
    )
    grace_s: float = _how(
        f"seconds from SIGTERM to SIGKILL; default {DEFAULT_GRACE_S:g}",
        metavar="S",
        kind=seconds(0.0),
        traits=NO_EFFECT,
        default=DEFAULT_GRACE_S,
    )
    tags: tuple[tuple[str, str], ...] = _how(
        "kept with the run", name="tag", metavar="K=V", kind=PAIRS, traits=NO_EFFECT, default=()
    )
    environment: tuple[tuple[str, str], ...] = _how(
        "set in every copy", name="env", metavar="K=V", kind=VARIABLES, traits=RECORDED, default=()
    )
    wrap: tuple[str, ...] = _how(
        "e.g. 'perf stat -o out', before every copy",
        metavar="PREFIX",
        kind=WORDS,
        label="--wrap",
        traits=SWEPT | IN_HEAD,
        default=(),
    )
    alloc: str | None = _how(  # a name of `run.build.allocator`, or the path of a library
        "the memory allocator of copies: system (default), jemalloc, mimalloc, tcmalloc, or "
        "a library to preload",
        metavar="system|jemalloc|mimalloc|tcmalloc|PATH",
        neutral=("system",),
        implies=("environment variable LD_PRELOAD", "--env LD_PRELOAD"),
        traits=SWEPT,
    )
    hugepages: str | None = _how(
        "huge pages of copies: off (none, whatever the machine gives), madvise (glibc's "
        "malloc asks for transparent ones), thp (what the kernel gives to all: the machine's "
        "setting thp must be always), hugetlb (glibc's malloc takes them from the pool)",
        choices=PAGE_MODES,
        implies=("environment variable GLIBC_TUNABLES", "--env GLIBC_TUNABLES"),
        traits=SWEPT,
    )
    pages: str | None = _how(
        "page sizes of copies' data: 0%% (all small: what others are compared with), 50%%, "
        "spread:50%%, random:50%%:SEED, 2M@64M-128M, huge, 1G, or by category "
        "(heap:huge;mmap:base;static:huge); append :best to run with what is available",
        metavar="LAYOUT",
        kind=PAGES,
        implies=("setting hugepages.node",),
        traits=SWEPT,
    )
    pages_backing: str | None = _how(
        "kind of large pages for --pages: thp (default: transparent), hugetlb (from the pool)",
        choices=PAGE_BACKINGS,
        neutral=("thp",),
        implies=("setting hugepages.node",),
        traits=SWEPT,
    )
    pages_heap_bytes: int | None = _how(
        "heap size to which percentages of --pages refer; default: measured in an earlier run or "
        "with one copy",
        metavar="SIZE",
        kind=BYTES,
        traits=SWEPT,
    )
    prepare: str | None = _how(
        "shell command before each phase, not timed", metavar="CMD", traits=SWEPT
    )
    cooldown_s: float = _how(
        "rest between phases",
        metavar="S",
        kind=seconds(0.0),
        traits=SWEPT | MINOR,
        default=0.0,
    )
    until_idle_s: float | None = _how(  # longest time to wait; None: do not
        "between phases, wait up to MAX_S until load, temperature and frequency return to their "
        f"first values; default {DEFAULT_UNTIL_IDLE_S:g}",
        metavar="MAX_S",
        const=DEFAULT_UNTIL_IDLE_S,
        kind=seconds(0.001, _seconds_or_none("until-idle", DEFAULT_UNTIL_IDLE_S)),
        traits=MINOR,
    )
    output_limit_bytes: int = _how(
        f"a copy that prints more is stopped; default {DEFAULT_OUTPUT_LIMIT}",
        metavar="BYTES",
        kind=BYTES,
        traits=NO_EFFECT,
        default=BYTES.check("", DEFAULT_OUTPUT_LIMIT),
    )
    check_limit_s: float = _how(
        "longest that checking the output of one copy may take, longer for outputs of many MB; "
        f"default {DEFAULT_CHECK_LIMIT_S:g}",
        metavar="S",
        kind=seconds(0.001),
        traits=NO_EFFECT,
        default=DEFAULT_CHECK_LIMIT_S,
    )
    tuned: bool = _how(
        "apply the settings that `rater doctor` recommends (governor, NUMA balancing, KSM, ...), "
        "restore them after the run; needs root",
        kind=FLAG,
        traits=RECORDED,
    )
    run_dirs: bool = _how(
        "each copy of a command works in a directory of its own, below RATER_CACHE/work",
        kind=FLAG,
    )
    keep: bool = _how(
        "keep the run directories; the result names them",
        kind=FLAG,
        traits=NO_EFFECT,
    )
    force: bool = _how(
        "run even if memory or disk may be insufficient", kind=FLAG, traits=NO_EFFECT
    )
    share: bool = _how("run beside another rater", kind=FLAG, traits=NO_EFFECT)
    wait_s: float | None = _how(  # None: do not
        "wait up to MAX_S for another rater that uses this machine; default "
        f"{DEFAULT_WAIT_S:g} (a day)",
        metavar="MAX_S",
        const=DEFAULT_WAIT_S,
        kind=seconds(0.0, _seconds_or_none("wait", DEFAULT_WAIT_S)),
        traits=NO_EFFECT,
    )

    @property
    def has_pages(self) -> bool:
        """Tell whether page sizes of copies are chosen, or half so."""
        return bool(self.pages or self.pages_backing or self.pages_heap_bytes)

    @property
    def of_kit(self) -> bool:
        """Tell whether benchmarks of an installed SPEC CPU are to run."""
        return bool(self.speccmds) or any(suite.startswith(KIT) for suite in self.suites)


OPTIONS = Request.options
# What follows `--` is typed as no option, but is an axis like one: `--axis command='./a -x,./b'`.
COMMAND: Option = option(
    "what runs",
    "",
    default=(),
    kind=WORDS,
    implies=("command of ", "program of "),
    traits=SWEPT | RECORDED,
).named("command")
BY_NAME = {one.name: one for one in (*OPTIONS, COMMAND)}


# -- A request as JSON, as it is kept with its run: enough to ask for the same again ---------------


def request_to_json(request: Request) -> str:
    """Return a request as JSON text."""
    return json.dumps(to_dict(request))


MERGED_FROM = "merged_from"  # a file that another user may have written, and who


def request_from_json(text: str, where: str) -> Request:
    """Return the request that `request_to_json` made `text` of; `where` names the run in errors.

    What an older rater did not know has its default. Raises `InputError` for what
    this one does not know.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: what it was asked for is not JSON ({error})") from error
    if type(values) is not dict:
        raise InputError(f"{where}: what it was asked for is no JSON object")
    values.pop("speccmds_out", None)  # no longer an option, and without effect on the run
    values.pop(MERGED_FROM, None)
    unknown = sorted(values.keys() - {*Request.__struct_fields__})
    if unknown:
        raise InputError(
            f"{where} was made by a newer rater: it was asked for with {', '.join(unknown)}, "
            f"which rater {__version__} does not know; upgrade rater"
        )
    try:
        request: Request = of_type(Request).read(values)
    except ValueError as error:
        raise InputError(f"{where}: what it was asked for is damaged: {error}") from None
    return request
