"""A request: what a user typed for a run; the table of its options, and the request as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from msgspec import Struct

from rater import __version__
from rater.plan.options import (
    BYTES,
    CADENCE,
    COPY_NUMBERS,
    EXIT_CODES,
    FLAG,
    IDLE_POWER,
    METRICS,
    MILLISECONDS,
    NAME,
    NEGATED,
    PAGES,
    PAIRS,
    SHARE,
    STRINGS,
    SWEPT,
    VARIABLES,
    WARMUP,
    WHOLE,
    WORDS,
    CompareAs,
    CopyNumbers,
    Option,
    read_options,
    seconds,
)
from rater.system.errors import InputError
from rater.text.kinds import of_type
from rater.text.values import duration_s, size_bytes, to_dict

# A new option is a field of `Request` and an entry of `_OPTIONS`. Parser, stored JSON, sweeps and
# comparisons are made of these two.

DEFAULT_SUITE = "mini"
DEFAULT_COPIES = "pus"
KIT = "spec:"  # begins a selection of benchmarks in a kit of SPEC CPU, in place of a suite
MOST_ITERATIONS = 50  # of `--until`, where `--iterations` names no others
KIT_COPIES = "file"  # default of `--copies` for a kit: as many as its command files are for
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


class Request(Struct, frozen=True, kw_only=True):
    """What the user typed for a run, each value checked by itself.

    A field is None if nothing was typed and the default depends on other options, the suite or the
    machine. The names of the fields are the keys of stored requests.
    """

    suites: tuple[str, ...] = (DEFAULT_SUITE,)
    command: tuple[str, ...] = ()  # typed behind `--`
    # What runs.
    speccmds: tuple[str, ...] = ()
    called: str | None = None
    copies: str | None = None  # None: as many as the layout counts, else one for each of its PUs
    threads: int = 1  # CPUs of each copy of a command
    metrics: tuple[str, ...] = ()  # numbers that a command reports: texts of `plan.metric`
    count: str | None = None  # what is counted of copies: instructions
    copy_numbers: str | None = None  # those of another run that copies stand for: `CopyNumbers`
    mode: str | None = None
    warmup_s: float | None = None  # steady mode: seconds; else iterations that do not count
    window_s: float | None = None
    order: str | None = None
    stagger_ms: float | None = None
    increment: int = 1
    iterations: int = 1  # with `until` the most of them, where they are more than one
    until: str | None = None  # per cent: how wide the intervals of brackets may be
    discard: int = 0
    # "" for a kit of SPEC CPU where the user gave none: the size, or tune, that its files have.
    size: str = DEFAULT_SIZE
    tune: str = DEFAULT_TUNE
    # Where.
    layout: str = DEFAULT_LAYOUT
    bind: str | None = None
    bind_from_file: bool = False
    smt: int | None = None
    kind: str | None = None
    reserve: int | None = None
    memory: str | None = None
    oversubscribe: bool = True
    preflight: str = PREFLIGHTS[0]
    proof: str = "auto"
    energy: str = "auto"
    idle_power: str | None = None
    series: str = "auto"
    # How.
    counters: str | None = None
    accept_exit: tuple[int, ...] = ()
    timeout_s: float | None = None
    grace_s: float = DEFAULT_GRACE_S
    tags: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    wrap: tuple[str, ...] = ()
    alloc: str | None = None  # a name of `run.programs.allocator`, or the path of a library
    hugepages: str | None = None
    pages: str | None = None
    pages_backing: str | None = None
    pages_heap_bytes: int | None = None
    prepare: str | None = None
    conclude: str | None = None
    cooldown_s: float = 0.0
    until_idle_s: float | None = None  # longest time to wait; None does not wait
    output_limit_bytes: int = size_bytes(DEFAULT_OUTPUT_LIMIT)
    check_limit_s: float = DEFAULT_CHECK_LIMIT_S
    tuned: bool = False
    run_dirs: bool = False
    keep: bool = False
    show_output: bool = False
    force: bool = False
    share: bool = False
    wait_s: float | None = None  # longest time to wait; None does not wait

    @property
    def has_pages(self) -> bool:
        """Tell whether an option about page sizes was given, complete or not."""
        return bool(self.pages or self.pages_backing or self.pages_heap_bytes)

    @property
    def of_kit(self) -> bool:
        """Tell whether benchmarks of an installed SPEC CPU are to run."""
        return bool(self.speccmds) or any(suite.startswith(KIT) for suite in self.suites)


# -- The table of options --------------------------------------------------------------------------


def _optional_seconds(name: str, default_s: float) -> Callable[[str], float]:
    """Return a converter for an option whose value may be left out.

    The word behind such an option may have been meant as a suite: its error says the way out.
    """

    def convert(text: str) -> float:
        try:
            return duration_s(text)
        except ValueError:
            raise ValueError(
                f"expected seconds (or 90s, 5m), got {text!r}; write "
                f"--{name}={default_s:g}, or put --{name} last"
            ) from None

    return convert


_LEAST_S = 0.001  # of limits and windows: one of 0 s would stop or count nothing at all
_KINDS = {
    "whole": WHOLE,
    "milliseconds": MILLISECONDS,
    "bytes": BYTES,
    "name": NAME,
    "exit_codes": EXIT_CODES,
    "copy_numbers": COPY_NUMBERS,
    "words": WORDS,
    "pages": PAGES,
    "cadence": CADENCE,
    "idle_power": IDLE_POWER,
    "flag": FLAG,
    "negated": NEGATED,
    "strings": STRINGS,
    "pairs": PAIRS,
    "metrics": METRICS,
    "variables": VARIABLES,
    "seconds": seconds(0.0),
    "seconds_above_0": seconds(_LEAST_S),
    "warmup": WARMUP,
    "share": SHARE,
    "until_idle": seconds(_LEAST_S, _optional_seconds("until-idle", DEFAULT_UNTIL_IDLE_S)),
    "wait": seconds(0.0, _optional_seconds("wait", DEFAULT_WAIT_S)),
}
_OPTIONS = f"""
what runs:
--speccmds FILE.cmd  command files of SPEC's specinvoke, a benchmark each
    [kind=strings compare_as=recorded_effect]
--name NAME  name of the command in results (default: its file). Give two builds one name to
    compare them
    [field=called kind=name compare_as=recorded_effect]
--copies N|pus|cores|nodes  default {DEFAULT_COPIES}: one per PU; {KIT}DIR and --speccmds: one
    per run directory in the command files
    [traits=common,swept,in_head,moves_copies]
--threads N  threads of each copy of a command, which gets a CPU for each; default 1 (in a suite
    each benchmark has its own)
    [kind=whole traits=common,swept,moves_copies implies="threads per copy of "]
--metric PATTERN|HEAD:PATTERN  a number that the command prints, for all tables, comparisons and
    gates: a regular expression with the number in (...), as in 'Triad: ([0-9.]+) MB/s', or with
    name, unit and direction in front of a colon: 'bandwidth MB/s higher: ([0-9.]+)'; several
    times. A copy that prints none has failed
    [traits=common field=metrics kind=metrics compare_as=recorded_effect]
--count (instructions)  user instructions of each copy by PMU or valgrind
    [traits=swept,common]
--copy-numbers LIST/TOTAL  run these copies of TOTAL alone, such as 3/8: copies have these
    numbers in RATER_COPY, and TOTAL in RATER_COPIES (`divots --confirm` does so)
    [kind=copy_numbers compare_as=recorded_effect]
--mode homogeneous|rotated|staggered|steady  homogeneous (default): all run one benchmark,
    barrier, next; rotated (or heterogeneous): copy n starts at benchmark n, no barrier;
    staggered: homogeneous with --stagger between starts; steady: copies repeat without barrier,
    completions inside --window count
    [traits=common,swept,in_head
     implies="order, ms between starts, --increment, --warmup, --window"]
--warmup K|S  K iterations more, which come first and do not count; steady: seconds before the
    window, by default a tenth of it, or more: until every copy has run once, and half as much again
    [field=warmup_s kind=warmup traits=common,swept,in_head label=--warmup]
--window S  steady: seconds in which completions count
    [field=window_s kind=seconds_above_0 traits=swept,in_head label=--window]
--order homogeneous|rotated  order of benchmarks in steady mode; default homogeneous
    [traits=swept,in_head,moves_copies]
--stagger MS  time between the starts of consecutive copies: milliseconds, or with a unit (6s)
    [field=stagger_ms kind=milliseconds traits=swept,in_head label="ms between starts"
     implies="ms between starts, mode"]
--increment K  rotated order: a copy goes on K benchmarks after each one; default 1
    [kind=whole traits=swept,in_head label=--increment]
--iterations N  repeats; default 1
    [kind=whole traits=common,swept,in_head compare_as=note]
--until P%  go on with iterations until the 95 %% interval of each benchmark's bracket is P %% wide:
    five at least, --iterations at most (default {MOST_ITERATIONS})
    [kind=share compare_as=nothing]
--discard N  do not count the first N iterations
    [kind=whole traits=in_head compare_as=note label="discarded iterations"]
--size  input size of the benchmarks; default {DEFAULT_SIZE}
    [traits=swept,in_head implies="command of , input files of , reference time of , program of "]
--tune  compiler flags (base, peak); default {DEFAULT_TUNE}
    [traits=swept,in_head
     implies="program of , command of , compiler of , compiler flags of , input files of "]

where:
--layout NAME|PATH|list:CPUS|expr:...  {DEFAULT_LAYOUT} (default) or another of `rater plan
    layouts`, a file of your own, list:0,8,1,9 or expr:E:N:8
    [traits=common,swept,in_head,moves_copies]
--bind pu|core|llc|node|package|none  a copy may use all of the core, llc, node or package it is
    on; default pu; none: copies are not bound
    [neutral=pu traits=common,swept,moves_copies]
--bind-from-file  copies go where the -b lines of the command files put them
    [kind=flag traits=moves_copies]
--smt K  use K threads of each core
    [kind=whole traits=swept,moves_copies implies="setting cpu.smt., hardware threads, usable CPUs"]
--kind fast|slow|N  use CPUs of one kind (0 is the slowest)
    [traits=swept,moves_copies]
--reserve N  keep N cores free of copies; rater itself runs there
    [kind=whole traits=swept,moves_copies]
--mem, --memory POLICY[:nodes=LIST]  local (default), bind (strict: out of memory rather than
    remote), preferred, interleave, weighted or none; bind:nodes=2,3 names NUMA nodes,
    each=2,3 one in turn for copies on one CPU, bind:hbm the HBM nearby
    [field=memory traits=common,swept,in_head,moves_copies implies=memory]
--no-oversubscribe  refuse more copies than the layout has PUs for
    [field=oversubscribe kind=negated compare_as=nothing]
--preflight ({"|".join(PREFLIGHTS)})  check free memory per NUMA node: warn (default),
    strict (refuse the run), off
    [compare_as=nothing]
--proof auto|once|SECONDS|off  sample running copies to check that they and their memory are where
    the plan put them: every copy of 2 s once, then as often as costs less than 1 %% of one CPU
    (auto, the default), each once, every SECONDS, or not at all
    [kind=cadence traits=swept compare_as=note]
--energy (auto|off)  joules of phases, if the machine counts them: auto (default), off
    [compare_as=nothing]
--idle-power WATTS|S  what the packages with copies draw while they idle, such as 95W, or how long
    to measure that before the first phase, such as 10s: energy is told above it, too
    [kind=idle_power compare_as=note]
--series (auto|off)  keep what CPUs, memory and copies did over time, a sample a second: auto
    (default; phases of more than a second, unless --proof is off), off
    [compare_as=nothing]

how:
--counters GROUP,...  groups to count (`rater doctor counters`)
    [traits=common,swept compare_as=note]
--accept-exit CODE,...  exit codes that count as success beside 0 (for grep, diff, solvers,
    timeout)
    [kind=exit_codes compare_as=note]
--timeout S  end a copy that runs longer
    [traits=common field=timeout_s kind=seconds_above_0 compare_as=nothing]
--grace S  seconds from SIGTERM to SIGKILL; default {DEFAULT_GRACE_S:g}
    [field=grace_s kind=seconds compare_as=nothing]
--tag K=V  kept with the run
    [traits=common field=tags kind=pairs compare_as=nothing]
--env K=V  set in every copy
    [traits=common field=environment kind=variables compare_as=recorded_effect]
--wrap PREFIX  e.g. 'perf stat -o out', before every copy
    [kind=words traits=swept,in_head label=--wrap]
--alloc system|jemalloc|mimalloc|tcmalloc|PATH  the memory allocator of copies: system (default),
    jemalloc, mimalloc, tcmalloc, or a library to preload
    [neutral=system traits=swept implies="environment variable LD_PRELOAD, --env LD_PRELOAD"]
--hugepages ({"|".join(PAGE_MODES)})  huge pages of copies: off (none, whatever the machine
    gives), madvise (glibc's malloc asks for transparent ones), thp (what the kernel gives to all:
    the machine's setting thp must be always), hugetlb (glibc's malloc takes them from the pool)
    [traits=swept implies="environment variable GLIBC_TUNABLES, --env GLIBC_TUNABLES"]
--pages LAYOUT  page sizes of copies' data: 0%% (all small: what others are compared with), 50%%,
    spread:50%%, random:50%%:SEED, 2M@64M-128M, huge, 1G, or by category
    (heap:huge;mmap:base;static:huge); append :best to run with what is available
    [kind=pages traits=swept implies="setting hugepages.node"]
--pages-backing ({"|".join(PAGE_BACKINGS)})  kind of large pages for --pages: thp (default:
    transparent), hugetlb (from the pool)
    [neutral=thp traits=swept implies="setting hugepages.node"]
--pages-heap SIZE  heap size to which percentages of --pages refer; default: measured in an
    earlier run or with one copy
    [field=pages_heap_bytes kind=bytes traits=swept]
--prepare CMD  shell command before each phase, not timed
    [traits=swept]
--conclude CMD  shell command after each phase that was made to its end, not timed
    [compare_as=note]
--cooldown S  rest between phases
    [field=cooldown_s kind=seconds traits=swept compare_as=note]
--until-idle MAX_S ?{DEFAULT_UNTIL_IDLE_S:g}  between phases, wait up to MAX_S until load,
    temperature and frequency return to their first values; default {DEFAULT_UNTIL_IDLE_S:g}
    [field=until_idle_s kind=until_idle compare_as=note]
--output-limit BYTES  a copy that prints more is stopped; default {DEFAULT_OUTPUT_LIMIT}
    [field=output_limit_bytes kind=bytes compare_as=nothing]
--check-limit S  longest that checking the output of one copy may take, longer for outputs of many
    MB; default {DEFAULT_CHECK_LIMIT_S:g}
    [field=check_limit_s kind=seconds_above_0 compare_as=nothing]
--tuned  apply the settings that `rater doctor` recommends (governor, NUMA balancing, KSM, ...),
    restore them after the run; needs root
    [kind=flag compare_as=recorded_effect]
--run-dirs  each copy of a command works in a directory of its own, below RATER_CACHE/work
    [kind=flag]
--keep  keep the run directories; the result names them
    [traits=common kind=flag compare_as=nothing]
--show-output  what copies print is shown after each phase, in place of the live view; each line
    with its copy's number where there are several
    [kind=flag compare_as=nothing]
--force  run even if memory or disk may be insufficient
    [kind=flag compare_as=nothing]
--share  run beside another rater
    [kind=flag compare_as=nothing]
--wait MAX_S ?{DEFAULT_WAIT_S:g}  wait up to MAX_S for another rater that uses this machine; default
    {DEFAULT_WAIT_S:g} (a day)
    [field=wait_s kind=wait compare_as=nothing]
"""
_DEFAULTS = dict(zip(Request.__struct_fields__, Request.__struct_defaults__, strict=True))
OPTIONS = read_options(_OPTIONS, _KINDS, _DEFAULTS)
# A command is typed behind `--`, by no option, but is an axis like one:
# `--axis command='./a -x,./b'`.
COMMAND = Option(
    field="command",
    name="command",
    group="what runs",
    help="",
    default=(),
    label="--command",
    kind=WORDS,
    traits=SWEPT,
    compare_as=CompareAs.RECORDED_EFFECT,
    implies=("command of ", "program of "),
)
BY_NAME = {option.name: option for option in (*OPTIONS, COMMAND)}


def iterations_of(request: Request) -> int:
    """Return how many iterations are planned that count: with `--until` the most of them."""
    return MOST_ITERATIONS if request.until and request.iterations == 1 else request.iterations


def copy_numbers_of(request: Request) -> CopyNumbers | None:
    """Return the numbers that copies stand for; None: their own."""
    return None if request.copy_numbers is None else CopyNumbers.parse(request.copy_numbers)


def options_beyond_defaults(request: Mapping[str, object]) -> dict[str, str]:
    """Return the options of a stored request that are not the default, by name, as typed.

    An option without a value has the text `yes`; of one that was given several times the values
    stand with blanks between them.
    """
    options = {}
    for option in OPTIONS:
        value = request.get(option.field, option.default)
        default = [*option.default] if isinstance(option.default, tuple) else option.default
        if value in (None, default, option.default):
            continue
        if isinstance(value, bool):  # `oversubscribe` is typed as --no-oversubscribe
            options[option.name] = "yes"
        elif isinstance(value, list):
            options[option.name] = " ".join(
                "=".join(map(str, member)) if isinstance(member, list) else str(member)
                for member in value
            )
        else:
            options[option.name] = f"{value:g}" if isinstance(value, float) else str(value)
    return options


# -- A request as JSON: kept with its run, enough to ask for the same again ------------------------


def request_to_json(request: Request) -> str:
    """Return a request as JSON text."""
    return json.dumps(to_dict(request))


MERGED_FROM = "merged_from"  # a file that another user may have written, and who


def request_from_json(text: str, where: str) -> Request:
    """Return the request that `request_to_json` made `text` of; `where` names the run in errors.

    A field that an older rater did not have gets its default. Raises `InputError` for a field of a
    newer rater.
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
