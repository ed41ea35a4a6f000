"""What the doctor knows of a machine, and what a finding is; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from msgspec import Struct


class DoctorVerdict(Enum):
    """How a machine stands in one thing."""

    BAD = "bad"  # it blurs or falsifies what is measured
    CONSIDER = "consider"  # it may; whether it does depends on what is measured
    GOOD = "good"
    UNKNOWN = "cannot tell"


class DoctorFinding(Struct, frozen=True, kw_only=True):
    """What one check found."""

    check: str  # "governor"
    why: str  # it matters, in one line
    seen: str  # here
    verdict: DoctorVerdict
    command: str | None = None  # that mends it, as root types it
    settings: tuple[tuple[str, str], ...] = ()  # that `rater run --tuned` sets, by name


class MachineFacts(Struct, frozen=True, kw_only=True):
    """Facts of a machine, by the names under which runs record them.

    `now`: it was read at this moment, so that readings (load, temperature) tell something.
    """

    values: Mapping[str, str]
    microcode: str | None = None
    nodes: int | None = None
    pus: int | None = None
    now: bool = True

    def text_of(self, name: str) -> str | None:
        """Return the text of a value; None: not known."""
        return self.values.get(name)

    def number(self, name: str) -> float | None:
        """Return a value as a number; None: not known, or no number."""
        try:
            return float(self.values[name])
        except (KeyError, ValueError):
            return None

    def below(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin so, by the rest of their names."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.values.items()
            if name.startswith(prefix)
        }


class Opinion(Struct, frozen=True):
    """What a check came to; see `DoctorFinding`."""

    verdict: DoctorVerdict
    seen: str
    command: str | None = None
    settings: tuple[tuple[str, str], ...] = ()


def good(seen: str) -> Opinion:
    """Return that all is well."""
    return Opinion(DoctorVerdict.GOOD, seen)


def consider(seen: str, command: str | None = None, **settings: str) -> Opinion:
    """Return that it may matter, and what changes it."""
    return Opinion(DoctorVerdict.CONSIDER, seen, command, tuple(settings.items()))


def bad(seen: str, command: str | None = None, **settings: str) -> Opinion:
    """Return that it does harm, and what mends it."""
    return Opinion(DoctorVerdict.BAD, seen, command, tuple(settings.items()))


def unknown(seen: str) -> Opinion:
    """Return that nobody can tell, and why."""
    return Opinion(DoctorVerdict.UNKNOWN, seen)


# -- A check: what it looks at, why that matters, and what is said of it ---------------------------


class Check(Struct, frozen=True, kw_only=True):
    """One thing that is looked at."""

    name: str
    facts: str  # the names it goes by, or their beginnings, between blanks
    absent: str  # what is said where the first of the names is not known; "": its judge says it
    fine: str  # the first value that needs no judge: it is off
    judge: Callable[[MachineFacts, str], Opinion]  # of a machine and the first value

    @property
    def why(self) -> str:
        """The docstring of its judge: why it matters."""
        return " ".join((self.judge.__doc__ or "").split()).rstrip(".")

    def finding(self, facts: MachineFacts) -> DoctorFinding:
        """Return the finding of this check on a machine."""
        value = facts.text_of(self.facts.partition(" ")[0])
        if value is None and self.absent:
            opinion = unknown(self.absent)
        else:
            opinion = (
                good("off") if value and value == self.fine else self.judge(facts, value or "")
            )
        return DoctorFinding(
            check=self.name,
            why=self.why,
            seen=opinion.seen,
            verdict=opinion.verdict,
            command=opinion.command,
            settings=opinion.settings,
        )

    def goes_by(self, name: str) -> bool:
        """Tell whether the check looks at the value recorded under a name."""
        return any(
            name == fact or (fact.endswith((".", "_")) and name.startswith(fact))
            for fact in self.facts.split()
        )


class Checks(list[Check]):
    """Checks in their order."""

    def add[J: Callable[[MachineFacts, str], Opinion]](
        self, name: str, facts: str = "", absent: str = "", fine: str = ""
    ) -> Callable[[J], J]:
        """Add what judges."""

        def add(judge: J) -> J:
            self.append(Check(name=name, facts=facts, absent=absent, fine=fine, judge=judge))
            return judge

        return add
