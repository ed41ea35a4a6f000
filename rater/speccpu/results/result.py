"""What a result file of SPEC CPU says, and the lines of a file of any size; pure."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rater.speccpu.config.keys import Problems

if TYPE_CHECKING:
    from rater.speccpu.config.config import SpecConfig


MOST_NUMBER = 2**31 - 1  # of iterations
MOST_ERRORS = 50  # of one iteration, or of the file
LONGEST_FACT = 500  # characters of what a file says of the machine or the tools
LONGEST_S = 1e9  # about 30 years; keeps nanoseconds in 64 bits


class Failure(Struct, frozen=True):
    """How a copy failed that a file names."""

    exit_code: int | None  # None: a signal, or the output was wrong
    signal: int | None
    detail: str | None = None  # of wrong output


class ReportedNumber(Struct, frozen=True):
    """A number of a file as it was written there: its last place says how exact it is."""

    value: float
    places: int  # decimals
    line: int

    @property
    def half_unit(self) -> float:
        """Half a unit of the last place."""
        return 0.5 * 10.0**-self.places


class SpecIteration(Struct, kw_only=True):
    """One benchmark run once by its copies, as the file reports it."""

    benchmark: str  # "400.perlbench"
    tune: str  # "base" or "peak"
    iteration: int  # as recorded
    line: int  # where the file first speaks of it
    size: str | None = None
    copies: int | None = None
    times_s: dict[int, float] = field(default_factory=dict)  # by copy
    workloads_s: dict[int, array[float]] = field(default_factory=dict)  # log: by copy, in order
    failures: dict[int, Failure] = field(default_factory=dict)  # by copy
    reported_s: float | None = None  # start of the first copy to end of the last
    reported_places: int = 6
    reference_s: float | None = None
    reference_derived: bool = False  # from ratio and time: a log has no reference times
    ratio: ReportedNumber | None = None
    selected: bool | None = None
    valid: str | None = None  # S, or CE, RE, VE, NR, ...
    errors: list[str] = field(default_factory=list)
    start_s: float | None = None  # seconds since 1970
    submit: bool | None = None  # whether a submit command was used
    basepeak: bool = False  # peak: the copy of a base result
    label: str | None = None  # that sections of the configuration name; 2006: the extension
    machine: str | None = None  # likewise
    rate: bool = True  # False: a speed run
    runmode: str | None = None
    threads: int | None = None
    decimals: int | None = None  # to which SPEC's tools round reference / time
    stats: dict[str, ReportedNumber] = field(default_factory=dict)  # ratio_avg, time_avg, ...
    binds: tuple[str, ...] = ()  # log: -b by copy
    command: str | None = None  # log: a command, with its $BIND
    folders: dict[int, str] = field(default_factory=dict)  # log: run directory of failed copies
    # While a log is read, in which the tune, size and number come last:
    number: int | None = None  # from `(#1)`
    sums_s: dict[int, float] = field(default_factory=dict)  # of workloads, by copy
    running_s: dict[int, array[float]] = field(default_factory=dict)  # workloads, by copy
    old_s: dict[int, float] = field(default_factory=dict)  # of `copy N finished @`
    directories: list[str] = field(default_factory=list)  # by copy
    command_binds: bool = False  # `command` has $BIND in it

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.benchmark} {self.tune}, iteration {self.iteration}"

    @property
    def good(self) -> bool:
        """Whether the file calls it valid and names no failed copy."""
        return self.valid == "S" and not self.failures

    @property
    def is_rotated(self) -> bool:
        """Whether it is a record of CPU2026's rolling round-robin rate."""
        mode = (self.runmode or "").lower().replace("_", "")
        return mode.startswith("rrr") or "roundrobin" in mode or "round-robin" in mode

    @property
    def planned(self) -> int | None:
        """The copies that should have run, as far as the file says or shows."""
        return self.copies or len(self.times_s) or None


class SpecFile(Struct, kw_only=True):
    """A raw result file or a log."""

    name: str  # of the file, without its folder
    format: str  # "rsf", "log" or "csv"
    sha256: str
    suite: str | None = None  # "cpu2000", "cpu2006", "cpu2017", "cpu2026"
    metric: str | None = None  # "CINT2006"
    size: str | None = None
    hostname: str | None = None
    started_s: float | None = None  # seconds since 1970
    facts: dict[str, str] = field(default_factory=dict)  # of machine and tools, by SPEC's key
    means: dict[str, ReportedNumber] = field(default_factory=dict)  # by tune
    rollups: dict[tuple[str, str, str], ReportedNumber] = field(
        default_factory=dict
    )  # benchmark, tune, key
    iterations: list[SpecIteration] = field(default_factory=list)
    config: SpecConfig | None = None
    node_of: dict[int, int] = field(default_factory=dict)  # by CPU, as its sysinfo has them
    errors: list[str] = field(default_factory=list)  # of the result as a whole
    notes: list[str] = field(default_factory=list)  # what a reader must know of the import
    problems: Problems = field(default_factory=Problems)
    lines: int = 0


# -- The lines of a file, with its SHA-256 ---------------------------------------------------------

LONGEST_LINE = 1 << 20  # bytes; packed configurations have 78, logs wrap at a few hundred
_MARK = b"\xef\xbb\xbf"  # of byte order, which editors put before UTF-8
_TOLD_LINES = 10_000


def as_text(raw: bytes) -> str:
    """Return a line as text: UTF-8 where it is that, else Latin-1, which everything is."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class Lines:
    """Iterate over (number, line without its end); `told` is called with the bytes so far.

    Line ends are LF and CR LF, mixed as hand-edited files have them, and a lone CR is none.
    """

    def __init__(self, data: bytes, on_bytes: Callable[[int], object] = id) -> None:
        self._data, self._told = data, on_bytes
        self._problems = Problems()
        self.cut = bool(data) and not data.endswith(b"\n")  # the last line has no end
        self.count = data.count(b"\n") + self.cut

    def file(self, name: str, kind: str) -> SpecFile:
        """Return what nothing is read of yet; lines that are too long become its problems."""
        sha256 = hashlib.sha256(self._data).hexdigest()
        return SpecFile(
            name=name, format=kind, sha256=sha256, problems=self._problems, lines=self.count
        )

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        read_bytes = 0
        for number, line in enumerate(BytesIO(self._data.removeprefix(_MARK)), start=1):
            read_bytes += len(line)
            if number % _TOLD_LINES == 0:
                self._told(read_bytes)
            plain = line.removesuffix(b"\n")
            if len(plain) <= LONGEST_LINE:
                yield number, plain.removesuffix(b"\r")
            else:
                self._problems.add(number, f"longer than {LONGEST_LINE >> 20} MiB, not read")
