"""`rater divots` on the command line, the findings it stores, and that all their readers agree."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from rater.analysis.divots.model.finding import Kind
from rater.analysis.results import disturbed
from rater.show.results.divots import visible_line
from tests.support.calls import Rater
from tests.support.divot_runs import Machine, Times, divots, quiet
from tests.support.drawings import needs_vega
from tests.support.printed import in_words
from tests.support.report_runs import Page, written


def document(times: Times, uuid: str = "u", **run: Any) -> dict[str, Any]:
    """An observations document: CPU c for copy c, eight on an lgroup."""
    return {
        "rater": 1,
        "run": {"uuid": uuid, "host": "h", "mode": "homogeneous", "copies": times.shape[2]} | run,
        "topology": {
            "nodes": {str(number): list(range(8 * number, 8 * number + 8)) for number in range(4)}
        },
        "observations": [
            {
                "benchmark": f"b{benchmark}",
                "iteration": iteration,
                "copy": c,
                "cpu": c,
                "core": c,
                "node": c // 8,
                "package": 0,
                "start_s": 0.0,
                "elapsed_s": float(times[benchmark, iteration, c]),
            }
            for benchmark, iteration, c in np.ndindex(*times.shape)
        ],
    }


@pytest.fixture
def store(rater: Rater, tmp_path: Path) -> Callable[[dict[str, Any]], None]:
    def import_document(document: dict[str, Any]) -> None:
        path = tmp_path / "times.json"
        path.write_text(json.dumps(document))
        assert rater("import", path)[0] == 0

    return import_document


def slow_lgroup(node: int = 1, size: float = 1.18, seed: int = 1) -> Times:
    times = quiet(5, 2, 32, seed=seed)
    times[2, :, 8 * node : 8 * node + 8] *= size
    return times


type Store = Callable[[dict[str, Any]], None]


def test_json_is_the_divots_document(rater: Rater, store: Store) -> None:
    store(document(slow_lgroup()))
    status, out, _ = rater("divots", "last", "--json")
    answer = json.loads(out)
    assert (status, answer["run"]) == (0, 1)
    (divot,) = answer["divots"]
    assert divot["kind"] == "slow-lgroup"
    assert (divot["benchmark"], divot["iteration"], divot["copy"], divot["cpu"]) == (
        "b2",
        None,
        None,
        None,
    )
    assert (divot["node"], divot["copies"], divot["cpus"]) == (
        1,
        list(range(8, 16)),
        list(range(8, 16)),
    )
    assert divot["slowdown"] == pytest.approx(1.18, abs=0.01)
    assert 0 < divot["score_lost"] < 0.2
    assert divot["explained"] is False
    assert divot["evidence"].startswith("node 1: b2 +18")
    assert set(answer["visible"]) >= {"group", "group-benchmark", "cpu", "copy-benchmark", "copy"}


def test_copies_of_one_cell_have_an_element_each(rater: Rater, store: Store) -> None:
    times = quiet(5, 2, 32)
    times[3, 1, [4, 21]] *= 1.3
    store(document(times))
    told = json.loads(rater("divots", "--json")[1])["divots"]
    assert [(one["copy"], one["cpu"], one["node"]) for one in told] == [(4, 4, 0), (21, 21, 2)]
    assert {(one["benchmark"], one["iteration"]) for one in told} == {("b3", 1)}
    assert told[0]["together_with"] == [4, 21]


def test_a_run_too_disturbed_to_judge_is_told_everywhere_and_passes_no_gate(
    rater: Rater, store: Store
) -> None:
    why = "times vary so much that noise alone lowered the score by 9"
    store(document(quiet(5, 1, 32, noise=1.5), suite="s"))
    for command in ("divots", "show"):
        _, out, _ = rater(command)
        assert f"Too disturbed to judge: {why}" in out.replace("\n    ", " ")
        assert "No divots" not in out
        told = json.loads(rater(command, "--json")[1])
        assert told["disturbed"][0].startswith(why)
        assert (told["others_cost"], told["noise_cost"] > 0.9) == (None, True)
    assert " disturbed " in rater("list")[1]
    assert json.loads(rater("list", "--json")[1])[0]["disturbed"][0].startswith(why)
    status, _, err = rater("divots", "--fail-on", "any")
    assert (status, "run 1 cannot be judged: times vary" in err) == (3, True)
    # What another run says stands: it has a divot, or not.
    store(document(slow_lgroup(), "u2"))
    assert rater("divots", "1", "2", "--fail-on", "slow-lgroup")[0] == 1
    assert rater("divots", "1", "2", "--fail-on", "drift")[0] == 3
    status, _, err = rater("divots", "2", "--fail-on", "drift")
    assert (status, "run 2: 2 iterations: none can be told from the others" in err) == (3, True)


def test_what_is_found_in_a_disturbed_run_is_shown_where_it_is_asked_for(
    rater: Rater, store: Store
) -> None:
    times = quiet(5, 3, 32, noise=1.5)
    times[:, :, 24:] *= 20
    store(document(times))
    store(document(times, "u2"))
    divots = json.loads(rater("divots", "1", "--json")[1])["divots"]
    assert divots
    plain, every = (in_words(rater("divots", "1", *more)[1]) for more in ((), ("-v",)))
    assert f"{len(divots)} finding" in plain and "`rater divots 1 -v`" in plain
    assert divots[0]["place"] not in plain and divots[0]["place"] in every
    assert "It may have caused" not in plain and "It may have caused" in every
    assert divots[0]["place"] not in rater("divots", "1", "2")[1]


def test_a_run_in_which_every_copy_failed_passes_no_gate(rater: Rater) -> None:
    ran = ("run", "--copies", "2", "--quiet", "--share", "--proof", "off", "--")
    assert rater(*ran, "false")[0] == 1
    status, _, err = rater("divots", "--fail-on", "any:5%")
    assert (status, "--fail-on: every copy of run 1 failed" in err) == (1, True)
    assert rater("divots")[0] == 0


def test_a_list_knows_of_a_disturbed_run_before_it_is_searched(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbed, "foreign_load_cost", lambda *_: 0.5)
    ran = ("run", "--copies", "2", "--quiet", "--share", "--proof", "off", "--", "true")
    assert rater(*ran)[0] == 0
    (listed,) = json.loads(rater("list", "--json")[1])
    assert (listed["others_cost"], listed["divots"]) == (0.5, None)
    assert " disturbed " in rater("list")[1]
    assert json.loads(rater("show", "--json")[1])["divots"] == []
    assert json.loads(rater("list", "--json")[1])[0]["divots"] == 0


def test_what_two_or_three_copies_differ_by_once_is_not_called_noise(
    rater: Rater, store: Store
) -> None:
    times = quiet(1, 1, 3)
    times[0, 0, 2] *= 1.5
    store(document(times))
    _, out, _ = rater("divots")
    assert "Too disturbed" not in out
    assert "too few copies and iterations" in in_words(out)
    assert json.loads(rater("divots", "--json")[1])["noise_cost"] is None


def test_findings_are_stored_and_searched_again_when_asked(
    rater: Rater, store: Store, tmp_path: Path
) -> None:
    store(document(slow_lgroup()))
    first = rater("divots", "--json")[1]
    with closing(sqlite3.connect(tmp_path / "rater.db")) as connection:
        stored = connection.execute(
            "SELECT kind, place, benchmarks, copies, nodes FROM divot"
        ).fetchall()
        assert stored == [("slow-lgroup", "node 1", '["b2"]', "8-15", "1")]
        connection.execute("UPDATE divot SET finding = replace(finding, 'node 1', 'NUMA node X')")
        connection.commit()
    assert "NUMA node X" in rater("divots", "--json")[1]
    assert rater("divots", "--fresh", "--json")[1] == first
    assert rater("divots", "--json")[1] == first


def test_what_hangs_on_a_run_goes_with_it(rater: Rater, store: Store, tmp_path: Path) -> None:
    store(document(slow_lgroup()))
    rater("divots")
    rater("rm", "last")
    with closing(sqlite3.connect(tmp_path / "rater.db")) as connection:
        assert connection.execute("SELECT count(*) FROM divot").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM divot_search").fetchone() == (0,)


def uneven() -> Times:
    """An lgroup slow in one benchmark, hardly in others."""
    times = quiet(5, 3, 32)
    times[2, :, 8:16] *= 1.4
    times[[0, 1, 3], :, 8:16] *= 1.03
    return times


def test_explained_is_shown_apart(rater: Rater, store: Store) -> None:
    times_document = document(quiet(5, 2, 32))
    for observation in times_document["observations"]:
        if observation["copy"] >= 28:  # beside copies 0-3 on their cores
            observation["core"] = observation["copy"] - 28
            observation["elapsed_s"] *= 1.5
        elif observation["copy"] < 4:
            observation["elapsed_s"] *= 1.5
    store(times_document)
    told = json.loads(rater("divots", "--json")[1])["divots"]
    assert told and all(divot["explained"] for divot in told)
    assert all(divot["kind"].startswith("explained") and divot["expectation"] for divot in told)
    out = rater("divots")[1]
    assert "No divots" in out
    assert "Explained, no divots" in out


def test_a_staggered_start_is_no_divot(rater: Rater, store: Store) -> None:
    made = document(quiet(3, 2, 32), mode="staggered", stagger_ms=500.0)
    for observation in made["observations"]:
        observation["start_s"] = 200.0 * observation["iteration"] + 0.5 * observation["copy"]
    store(made)
    assert json.loads(rater("divots", "--json")[1])["divots"] == []


@pytest.mark.parametrize("mode", ["steady", "rotated"])
def test_without_a_barrier_there_is_no_score_to_lose(
    rater: Rater, store: Store, tmp_path: Path, mode: str
) -> None:
    made = document(slow_lgroup(), mode=mode)
    for number, observation in enumerate(made["observations"]):
        observation["start_s"] = 200.0 * number
    store(made)
    (one,) = json.loads(rater("divots", "--json")[1])["divots"]
    assert (one["kind"], one["score_lost"]) == ("slow-lgroup", None)
    assert one["time_lost"] > 0
    out = rater("divots")[1].replace("\n    ", " ")
    assert "of the copies' time" in in_words(out) and "of the score" not in out
    with closing(sqlite3.connect(tmp_path / "rater.db")) as connection:
        assert connection.execute("SELECT score_lost FROM divot").fetchall() == [(None,)]


def test_two_cpus_are_judged_by_how_far_their_difference_repeats() -> None:
    machine = Machine(1, 2)
    times = quiet(3, 4, 2)
    assert divots(times, machine) == []
    times[:, :, 1] *= 1.2
    (one,) = divots(times, machine)
    assert (one.kind, one.place, one.cpus) == (Kind.SLOW_CPU, "CPU 1", (1,))
    assert one.slowdown == pytest.approx(1.2, abs=0.01)
    once = quiet(3, 4, 2)
    once[1, 2, 1] *= 1.5  # a single time of twelve is no CPU
    assert not any(divot.kind is Kind.SLOW_CPU for divot in divots(once, machine))


def test_a_slow_copy_beside_a_good_one_on_its_cpu_is_called_by_its_number() -> None:
    times = quiet(5, 2, 32)
    times[3, 1, 4] *= 1.5
    (one,) = divots(times, Machine(cpu=lambda copy, iteration: copy // 2))
    assert (one.kind, one.place) == (Kind.OUTLIER_COPY, "copy 4 (CPU 2)")


# -- beside the results ---------------------------------------------------------------------------


def test_a_search_that_fails_is_a_line_and_costs_no_result(
    rater: Rater, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    store(document(slow_lgroup()))
    monkeypatch.setattr("rater.analysis.divots.findings.analyse", broken)
    status, out, err = rater("show")
    assert status == 0
    assert "b2" in out
    assert "the search for them failed (ZeroDivisionError: planted)" in err


_LOADED = """
import sys
from rater.commands.cli import main
status = main(sys.argv[1:])
print("numpy" in sys.modules, file=sys.stderr)
sys.exit(status)
"""


def loads_numpy(*words: object) -> bool:
    """Whether a command loads it, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stderr.splitlines()[-1] == "True"


def test_a_quiet_run_and_one_too_small_to_search_load_no_numpy(rater: Rater) -> None:
    small = ("run", "--copies", "1", "--share", "--proof", "off")
    assert not loads_numpy(*small, "--iterations", "3", "--quiet", "--", "true")
    assert not loads_numpy(*small, "--", "true")
    assert (
        "Cannot tell whether a part is slow: too few copies and iterations."
        in rater("show", "last")[1]
    )
    assert loads_numpy("show", "last~1")  # searched now, and kept
    assert not loads_numpy("show", "last~1")


# -- several runs ---------------------------------------------------------------------------------


def test_what_is_always_there_recurs(rater: Rater, store: Store) -> None:
    for seed in (1, 2, 3):
        store(document(slow_lgroup(seed=seed), uuid=f"u{seed}"))
    told = json.loads(rater("divots", "1", "2", "3", "--json")[1])
    assert [run["run"] for run in told["runs"]] == [1, 2, 3]
    (one,) = told["between"]
    assert (one["kind"], one["of"], one["nodes"]) == ("recurring", "slow-lgroup", [1])
    assert [(run["run"], run["there"]) for run in one["runs"]] == [
        (1, "yes"),
        (2, "yes"),
        (3, "yes"),
    ]
    out = rater("divots", "1", "2", "3")[1]
    assert "recurring  node 1: b2 +18" in out
    assert "it comes back" in out.replace("\n    ", " ")


COPIES, NAMES = 32, ("a", "b", "c", "d")
_PER_CENT = re.compile(
    r"([+-]\d+(?:\.\d+)?)(?: to ([+-]\d+(?:\.\d+)?))? %|(\d+\.\d) % (faster|slower)"
)

type Plant = tuple[Any, Any, Any, Any]  # benchmarks, iterations, copies, factor


def made_times(*plants: Plant) -> Times:
    """Four benchmarks, three iterations, 32 copies on four lgroups of 16 cores of two threads."""
    times = quiet(len(NAMES), 3, COPIES, noise=0.002)
    for benchmarks, iterations, copies, factor in plants:
        times[benchmarks, iterations, copies] *= factor
    return times


def timed_document(times: Times, uuid: str) -> dict[str, Any]:
    rows = [
        {
            "benchmark": NAMES[benchmark],
            "iteration": iteration + 1,
            "copy": copy,
            "cpu": copy,
            "core": copy // 2,
            "node": copy // 8,
            "package": 0,
            "start_s": 200.0 * (len(NAMES) * iteration + benchmark),
            "elapsed_s": float(times[benchmark, iteration, copy]),
        }
        for benchmark, iteration, copy in np.ndindex(*times.shape)
    ]
    nodes = {str(number): [*range(8 * number, 8 * number + 8)] for number in range(4)}
    cores = {str(number): [2 * number, 2 * number + 1] for number in range(16)}
    run = {"uuid": uuid, "host": "h", "mode": "homogeneous", "copies": COPIES}
    topology = {"nodes": nodes, "cores": cores, "packages": {"0": [*range(COPIES)]}}
    run["started_at"] = "2026-11-20T12:00:00Z"
    return {"rater": 1, "run": run, "topology": topology, "observations": rows}


ALL, ONE = slice(None), slice(8, 16)
RUNS: dict[str, tuple[Times, dict[str, tuple[list[str], list[int], float]]]] = {
    # What is planted, and by kind: benchmarks, iterations, size.
    "lgroup": (made_times((1, ALL, ONE, 1.18)), {"slow-lgroup": (["b"], [1, 2, 3], 1.18)}),
    "varied": (
        made_times((ALL, ALL, ONE, np.array([1.1, 1.14, 1.2, 1.3])[:, None, None])),
        {"slow-lgroup": ([*NAMES], [1, 2, 3], 1.17)},
    ),
    "uneven": (
        made_times((2, ALL, ONE, np.array([1.438, 1.432, 1.288])[:, None])),
        {"slow-lgroup": (["c"], [1, 2, 3], 1.432)},
    ),
    "cpu": (made_times((ALL, ALL, 5, 1.3)), {"slow-cpu": ([*NAMES], [1, 2, 3], 1.3)}),
    "copies": (
        made_times((3, 1, [4, 17], np.array([1.3, 1.36]))),
        {"outlier-copy": (["d"], [2], 1.33)},
    ),
    "fast": (made_times((0, ALL, 9, 0.5)), {"outlier-copy": (["a"], [1, 2, 3], 0.5)}),
    "iteration": (made_times((ALL, 2, ALL, 1.05)), {"slow-iteration": ([*NAMES], [3], 1.05)}),
    "modes": (
        made_times((1, ALL, np.random.default_rng(5).random(COPIES) < 0.4, 1.12)),
        {"bimodal": (["b"], [1, 2, 3], 1.12)},
    ),
    "several": (
        made_times((1, ALL, ONE, 1.18), (ALL, ALL, 30, 1.3), (2, 0, 3, 1.5)),
        {
            "slow-lgroup": (["b"], [1, 2, 3], 1.18),
            "slow-cpu": ([*NAMES], [1, 2, 3], 1.3),
            "outlier-copy": (["c"], [1], 1.5),
        },
    ),
}


def sizes_in(text: str) -> list[float]:
    """The sizes that words tell, as slowdowns with their signs."""
    found = []
    for low, high, plain, which in _PER_CENT.findall(text):
        ends = [low, high] if low else [plain if which == "slower" else f"-{plain}"]
        found += [1 + float(end) / 100 for end in ends if end]
    return found


@needs_vega
@pytest.mark.parametrize("name", RUNS)
def test_a_size_is_the_same_number_everywhere(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    times, planted = RUNS[name]
    rater("import", written(tmp_path, timed_document(times, name)))
    rows = json.loads(rater("divots", "--json")[1])["divots"]
    assert {row["kind"] for row in rows} == planted.keys()
    text = in_words(rater("divots")[1])
    shown = in_words(rater("show")[1])
    assert json.loads(rater("show", "--json")[1])["divots"] == rows
    plot = rater("show", "plot")[1]
    rater("report", "-o", tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    labels = [
        (panel["benchmark"], label["text"])
        for panel in page.data["runs"][0]["panels"]
        for label in panel["labels"]
    ]
    for row in rows:
        benchmarks, iterations, size = planted[row["kind"]]
        together = [other for other in rows if other["finding"] == row["finding"]]
        for what, wanted in (("benchmark", benchmarks), ("iteration", iterations)):
            assert sorted({name for other in together for name in other[f"{what}s"]}) == wanted
            (alone, *others) = row[f"{what}s"]
            assert row[what] == (None if others else alone)
        typical = median([other["slowdown"] for other in together])
        assert math.log(typical) == pytest.approx(math.log(size), abs=0.01)
        # Every sentence is the same one, and begins with the size that JSON has.
        number = f"{row['finding']}. {row['evidence']}"
        assert number in text and number in shown
        assert "".join(row["evidence"].split()) in "".join(page.visible_text.split())
        summary = row["evidence"].partition("; costs")[0]
        sizes = sizes_in(summary)
        if len(together) == 1:
            assert sizes[0] == pytest.approx(row["slowdown"], abs=0.00051)
        # Every name in a picture has a size that the sentence has, or one within its range.
        for benchmark in benchmarks:
            drawn_sizes = [
                size for of, label in labels if of == benchmark for size in sizes_in(label)
            ]
            near = [
                size for size in drawn_sizes if min(sizes) - 0.006 <= size <= max(sizes) + 0.006
            ]
            assert near, (drawn_sizes, summary)
            assert len(benchmarks) > 1 or {*sizes} & {*drawn_sizes}
        for of, label in labels:
            assert label in plot, (of, plot)


def test_what_differs_from_iteration_to_iteration_is_told_with_its_range(
    rater: Rater, tmp_path: Path
) -> None:
    rater("import", written(tmp_path, timed_document(RUNS["uneven"][0], "u")))
    (row,) = json.loads(rater("divots", "--json")[1])["divots"]
    assert row["evidence"].startswith("node 1: c +43.1 % (+29 to +44 %) (8 of 8 copies, 3 of 3")


def test_of_a_run_whose_preparation_failed_it_is_said_that_nothing_ran(rater: Rater) -> None:
    out = rater("run", "--copies", 2, "--iterations", 3, "--prepare", "false", "--", "true")[1]
    for shown in (out, rater("divots", "last")[1]):
        assert "Nothing ran, so there is nothing to judge." in shown
        assert "No divots" not in shown


@pytest.mark.parametrize(
    ("visible", "sizes"),
    [
        (
            {"group": 0.01, "group-benchmark": 0.016, "copy-benchmark": 0.038, "copy": 0.05},
            "a node 1.0 % in all benchmarks, 1.6 % in one benchmark; "
            "a copy 3.8 % in one benchmark, 5.0 % in one iteration.",
        ),
        # Of one benchmark: the same twice.
        ({"group": 0.016, "group-benchmark": 0.016, "copy": 0.05}, None),
        (
            {"group": 0.016},
            "a node 1.6 % in all benchmarks. Noise would hide a single slow copy.",
        ),
        ({"iteration": 0.05}, "an iteration 5.0 % in all benchmarks."),  # of one copy
    ],
)
def test_what_a_run_can_see_is_a_line_by_scope(
    visible: dict[str, float], sizes: str | None
) -> None:
    sizes = sizes or "a node 1.6 % in all benchmarks; a copy 5.0 % in one iteration."
    assert visible_line(visible) == f"Smallest detectable slowdown: {sizes}"
