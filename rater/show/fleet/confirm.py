"""The trial of slow hosts: which run beside which, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rater.analysis.divots.confirm import Answer, Told
from rater.analysis.divots.data.words import per_cent
from rater.analysis.fleet.confirm import HostPair, Suspect
from rater.show.console.printer import Printer
from rater.text.words import count, some

_MEANS = {
    Answer.CONFIRMED: "slow again",
    Answer.SMALLER: "slow again, but by less than half of what was found",
    Answer.NOT_CONFIRMED: "the difference is not there now",
    Answer.OPEN: "too noisy to tell; more --pairs would",
}


@dataclass(frozen=True, slots=True)
class HostTrial:
    """A trial of slow hosts."""

    fleet: int
    suspects: Sequence[Suspect]
    rounds: Sequence[Sequence[HostPair]]
    fleets: Sequence[int] = ()  # numbers of the rounds that were made
    verdicts: Sequence[Told | None] = ()  # of the suspects


def print_plan(trial: HostTrial, printer: Printer) -> None:
    """Print what runs beside what."""
    printer.line(
        f"Fleet {trial.fleet}: {count(len(trial.suspects), 'slow host')}, each beside "
        f"{count(len(trial.rounds), 'quiet host')} in turn",
        "bold",
    )
    for turn, pairs in enumerate(trial.rounds, 1):
        told = [f"{pair.suspect.host} beside {pair.quiet}" for pair in pairs]
        printer.prose(f"  round {turn}: {some(told, 12)}")


def print_host_verdicts(trial: HostTrial, printer: Printer) -> None:
    """Print what the rounds say of each suspect."""
    for suspect, told in zip(trial.suspects, trial.verdicts, strict=True):
        what = ", ".join(suspect.benchmarks) or "all benchmarks"
        if told is None:
            printer.prose(f"{suspect.host}: cannot tell: fewer than two pairs were measured")
            continue
        is_slow = told.answer in (Answer.CONFIRMED, Answer.SMALLER)
        printer.prose(
            f"{suspect.host}: {told.answer}: {_MEANS[told.answer]}",
            "bold yellow" if is_slow else "",
        )
        pairs = ", ".join(per_cent(one) for one in told.pairs)
        printer.prose(
            f"  {what} {per_cent(told.slowdown)}, 95 % interval {per_cent(told.low)} to "
            f"{per_cent(told.high)}; originally {per_cent(suspect.slowdown)}; pairs: {pairs}"
        )


def host_trial_document(trial: HostTrial) -> dict[str, object]:
    """Return the same as JSON values."""
    return {
        "fleet": trial.fleet,
        "rounds": [
            [{"suspect": pair.suspect.host, "quiet": pair.quiet} for pair in pairs]
            for pairs in trial.rounds
        ],
        "fleets": list(trial.fleets),
        "hosts": [
            asdict(suspect) | {"verdict": told and asdict(told)}
            for suspect, told in zip(
                trial.suspects, trial.verdicts or [None] * len(trial.suspects), strict=True
            )
        ],
    }
