"""Document of `rater checkup --json`."""

from __future__ import annotations

from typing import Annotated, TypedDict


class CheckupCellJson(TypedDict):
    """What was measured of one place."""

    place: Annotated[list[int], "Nodes of CPUs and memory; node and load from 1; or a CPU."]
    value: Annotated[float, "Median over rounds."]
    worse: Annotated[float | None, "How much worse than its peers, a share; null: it has none."]
    slow: Annotated[
        bool, "true: it, or its whole row or column, is worse in every round, beyond chance."
    ]


class CheckupSectionJson(TypedDict):
    """One section of a checkup."""

    name: Annotated[str, "What it is about."]
    verdict: Annotated[str, "PASS, LOOK HERE, CANNOT TELL, or - where nothing can be compared."]
    said: Annotated[list[str], "Why, in words."]
    unit: Annotated[str | None, "Unit of the values; null: there are none."]
    visible: Annotated[float | None, "Smallest difference that would be seen, a share."]
    cells: Annotated[list[CheckupCellJson], "What was measured of each place."]


class CheckupDocument(TypedDict):
    """A checkup of this machine."""

    checkup: Annotated[str, "Its name, which is the value of the tag `checkup` of its runs."]
    status: Annotated[int, "Exit status: 0 all pass, 1 look here, 3 cannot tell."]
    took_s: Annotated[float, "Seconds that it took."]
    runs: Annotated[list[int], "Its runs."]
    sections: Annotated[list[CheckupSectionJson], "Its sections."]
    left_out: Annotated[list[str], "What it did not look at: doctor, facts, memory, cores, mix."]
