"""Members that several JSON documents have.

The modules of this room say which keys each `--json` document has, with type and meaning. Type
checkers read them, and `make schemas` writes `docs/reference/json/` from them; no command imports
them, so they cost no start. The text behind a type is the description of the key in the schema.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

type Benchmark = Annotated[str, "Name of the benchmark."]
type Tune = Annotated[str | None, "SPEC's tune, base or peak; null: the suite has no tunes."]
type Category = Annotated[str | None, "int or fp; null: the suite does not say."]
type Iteration = Annotated[int, "Number of the iteration, from 1."]
type AnyIteration = Annotated[int | None, "Number of the iteration, from 1; null: all of them."]
type Copy = Annotated[int, "Number of the copy, from 0."]
type Cpu = Annotated[int | None, "The kernel's number of the CPU; null: not known, or not bound."]
type Node = Annotated[int | None, "The kernel's number of the NUMA node; null: not known."]
type Core = Annotated[int | None, "Number of the core; null: not known."]
type Package = Annotated[int | None, "Number of the package; null: not known."]
type Phase = Annotated[int, "Number of the phase of the run, from 0."]
type Counted = Annotated[bool, "false: of a discarded iteration, which is no part of the results."]
type Reason = Annotated[str | None, "Why there is no result, in words; null: there is one."]
type RunNumber = Annotated[int, "Number of the run in this database."]
type Uuid = Annotated[str, "UUID of the run, the same in every database."]
type RateUnit = Annotated[str, "Unit of the rates: ratio, copies/hour, reference s/s, typical s/s."]


class DisturbedJson(TypedDict):
    """Whether other work disturbed a run too much to judge it."""

    disturbed: Annotated[list[str], "Why the run is too disturbed to judge; empty: it is not."]
    others_cost: Annotated[
        float | None, "Share of the score that other processes cost, 0 to 1; null: not known."
    ]
    noise_cost: Annotated[
        float | None, "Share of the score that noise alone cost, 0 to 1; null: not known."
    ]


class CopyTimeJson(TypedDict):
    """A copy with its time."""

    copy: Copy
    cpu: Cpu
    node: Node
    elapsed_s: Annotated[float, "Time of the copy."]


class SpreadJson(TypedDict):
    """How numbers of copies are distributed."""

    count: Annotated[int, "Number of copies."]
    mean: Annotated[float, "Arithmetic mean."]
    cv: Annotated[float | None, "Coefficient of variation: standard deviation over mean."]
    minimum: Annotated[float, "Smallest value."]
    lower_quartile: Annotated[float, "First quartile, interpolated."]
    median: Annotated[float, "Median."]
    upper_quartile: Annotated[float, "Third quartile, interpolated."]
    maximum: Annotated[float, "Largest value."]
