"""`rater versus`: a sweep over commands, compared and gated, with further tries."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from jsonschema import Draft202012Validator

from rater.analysis.compare.compare import compare
from rater.system.errors import InputError
from rater.workflow.arguments import Output, RunArguments
from rater.workflow.sweep import versus as module
from rater.workflow.sweep.versus import VersusOptions, VersusTry, versus
from tests.support.calls import rater
from tests.support.compared_runs import SIX, brackets, point
from tests.support.json_schemas import closed, schema_of

SLOWER = [time_s * 1.1 for time_s in SIX]
NOISY = [time_s * factor for time_s, factor in zip(SIX, [0.8, 1.2, 1, 1.1, 0.9, 1], strict=True)]


def options_of(commands: Sequence[str] = ("old", "new"), **values: object) -> VersusOptions:
    fields: dict[str, object] = {
        "rounds": None,
        "seed": None,
        "until": None,
        "within": None,
        "by": (),
        "fail_on": "worse:2%",
        "retry": 0,
    }
    return VersusOptions(commands=tuple(commands), **{**fields, **values})  # type: ignore[arg-type]


def status_of_tries(
    monkeypatch: pytest.MonkeyPatch, times_of_new: Sequence[Sequence[float]], retry: int
) -> tuple[int, int]:
    """The exit status where the tries come to these times; and how many were made."""
    left = list(times_of_new)

    def make_try(_: Output, __: RunArguments, ___: VersusOptions, tries: list[VersusTry]) -> int:
        new = brackets(7, left.pop(0))
        comparison = compare([point("old", *brackets(1, SIX)), point("new", *new)])
        commands = (("old", "./old -x"), ("new", "./new -x"))
        tries.append(
            VersusTry(sweep=len(tries) + 1, comparison=comparison, commands=commands, without=())
        )
        return 0

    monkeypatch.setattr(module, "_make_try", make_try)
    status = versus(Output(), RunArguments(), options_of(retry=retry))
    return status, len(times_of_new) - len(left)


@pytest.mark.parametrize(
    ("times_of_new", "retry", "expected"),
    [
        ([SIX], 0, (0, 1)),
        ([SLOWER], 0, (1, 1)),
        ([NOISY], 0, (3, 1)),
        ([SIX, SLOWER], 1, (0, 1)),  # what passes is not tried again
        ([SLOWER, SIX], 1, (0, 2)),
        ([SLOWER, SLOWER], 1, (1, 2)),
        ([SLOWER, NOISY], 1, (3, 2)),
        ([NOISY, SIX], 1, (3, 1)),
    ],
)
def test_a_gate_fails_only_where_the_last_try_fails_too(
    monkeypatch: pytest.MonkeyPatch,
    times_of_new: list[list[float]],
    retry: int,
    expected: tuple[int, int],
) -> None:
    assert status_of_tries(monkeypatch, times_of_new, retry) == expected


def test_the_columns_are_what_tells_the_commands_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status_of_tries(monkeypatch, [SLOWER], 0)
    shown = capsys.readouterr()
    assert "old: ./old -x\nnew: ./new -x\n" in shown.out
    assert "worse: a (new)" in shown.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (options_of(["./old"]), "expected two commands or more, each as one word"),
        (options_of(["./a -x", "./a -x"]), "against itself: rater versus './a -x' 'env ./a -x'"),
        (options_of(retry=-1), "--retry -1: expected 0 or more"),
        (options_of(retry=1, fail_on=None), "--retry is of a gate: add --fail-on"),
        (options_of(fail_on="better"), "--fail-on better: expected worse"),
        (options_of(within="x"), "--within x: expected a number of per cent"),
        (options_of(by=("Triad",)), "--by Triad: neither an axis of all points nor a metric"),
        (options_of(by=("cpu", "Triad")), "--by Triad and --by cpu: one measure at a time"),
    ],
)
def test_what_is_typed_wrong_is_refused_before_a_run(options: VersusOptions, words: str) -> None:
    with pytest.raises(InputError) as error:
        versus(Output(), RunArguments(), options)
    assert words in str(error.value)


def test_a_number_without_a_direction_is_refused_before_a_run() -> None:
    arguments = RunArguments(options={"metric": ["x ([0-9])"]})
    with pytest.raises(InputError, match=r"--by x: it is not declared alike .* higher"):
        versus(Output(), arguments, options_of(by=("x",)))


def test_a_refused_command_has_no_way_out_that_the_command_does_not_know() -> None:
    done = rater("versus", "--copies", "1", "true", "./not-there")
    assert done.returncode == 2
    assert "command=./not-there: " in done.stderr
    assert "--skip-refused" not in done.stderr


def test_commands_alternate_and_are_compared_in_one_go() -> None:
    done = rater(
        "versus", "true", "sh -c 'exit 0'", "--copies", 1, "--rounds", 2, "--quiet", "--json"
    )
    document = json.loads(done.stdout)
    assert [*Draft202012Validator(closed(schema_of("versus"))).iter_errors(document)] == []
    assert done.returncode == 0
    assert document["commands"] == [
        {"name": "true", "command": "true"},
        {"name": "sh", "command": "sh -c 'exit 0'"},
    ]
    assert [point["label"] for point in document["points"]] == ["true", "sh"]
    assert [len(point["runs"]) for point in document["points"]] == [2, 2]
    assert (document["sweeps"], document["gate_exit_status"]) == ([1], None)
