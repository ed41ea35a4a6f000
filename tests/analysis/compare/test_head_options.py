"""Options in the head of a run are compared, and part curves; axes in a command are axes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rater.analysis.compare.differences import HEAD_FIELDS, point_differences
from rater.analysis.compare.scaling_samples import samples_of
from rater.analysis.results.copies import Point, PointRun
from rater.plan.options import IN_HEAD, Option
from rater.plan.request import BY_NAME, OPTIONS
from rater.record.stored import RunHead
from tests.support.example_runs import copy_row, stored

STORED_IN_HEAD = [option for option in OPTIONS if IN_HEAD in option.traits]
# Runs that differ in these are on one curve of scaling: its axis, and how long was measured.
NO_CONDITION_OF_A_CURVE = {"copies", "warmup_s", "window_s", "iterations", "discard"}


def test_each_option_in_the_head_is_compared() -> None:
    assert {option.name for option in STORED_IN_HEAD} <= {*HEAD_FIELDS}
    fields = {BY_NAME[name].field if name in BY_NAME else name for name in HEAD_FIELDS}
    assert fields <= {*RunHead.__struct_fields__}


@pytest.mark.parametrize("option", STORED_IN_HEAD, ids=lambda option: option.name)
def test_an_option_in_the_head_makes_a_curve_of_its_own_unless_it_is_named(option: Option) -> None:
    stored_run = replace(stored([copy_row(0, 10.0)]))
    values = {str: "other", int: 7, float: 7.0, type(None): "other"}
    usual = getattr(stored_run.head, option.field)
    steady = {"mode": "steady"} if option.field == "order" else {}
    heads = [replace(stored_run.head, **steady), replace(stored_run.head, **steady)]
    heads[1] = replace(heads[1], **{option.field: values[type(usual)]})
    runs = [
        replace(stored_run, head=replace(head, run=number)) for number, head in enumerate(heads, 1)
    ]
    point = Point(label="", values=(), runs=tuple(PointRun(run=run, block=None) for run in runs))
    keys = {sample.key for sample in samples_of([point])}
    assert (len(keys) == 1) == (option.field in NO_CONDITION_OF_A_CURVE)


def of_sweep(label: str, number: int, command: str, **values: str) -> Point:
    """A point with one run, of the first round of a sweep."""
    one = stored([copy_row(0, 10.0)], copies=1, run=number, uuid=f"u-{number}")
    used = tuple(replace(benchmark, command=command) for benchmark in one.benchmarks)
    return Point(label, tuple(values.items()), (PointRun(replace(one, benchmarks=used), 1),))


@pytest.mark.parametrize(
    ("commands", "labels"),
    [
        (("./a1 1 in1.txt", "./a1 2 in2.txt"), []),  # ./a1 {n} in{n}.txt
        (("./a 10 1", "./a 2 1"), []),  # 1 is of the command, though 10 begins with it
        (("./a 1 -x", "./a 2 -y"), ["command of a"]),
        (("./a 1", "./a 2 3"), ["command of a"]),
    ],
)
def test_a_command_that_differs_by_an_axis_alone_is_that_axis(
    commands: tuple[str, str], labels: list[str]
) -> None:
    numbers = [command.split()[1] for command in commands]
    points = [
        of_sweep(f"n={number}", place, command, n=number)
        for place, (number, command) in enumerate(zip(numbers, commands, strict=True), 1)
    ]
    assert [one.what for one in point_differences(points)] == labels
