"""One finding has one size, with one sign, wherever it is read."""

import json
import math
import re
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from tests.support.calls import Rater
from tests.support.divot_runs import Times, quiet
from tests.support.drawings import needs_vega
from tests.support.printed import in_words
from tests.support.report_runs import Page, written

COPIES, NAMES = 32, ("a", "b", "c", "d")
_PER_CENT = re.compile(
    r"([+-]\d+(?:\.\d+)?)(?: to ([+-]\d+(?:\.\d+)?))? %|(\d+\.\d) % (faster|slower)"
)

type Plant = tuple[Any, Any, Any, Any]  # benchmarks, iterations, copies, factor


def made(*plants: Plant) -> Times:
    """Four benchmarks, three iterations, 32 copies on four lgroups of 16 cores of two threads."""
    times = quiet(len(NAMES), 3, COPIES, noise=0.002)
    for benchmarks, iterations, copies, factor in plants:
        times[benchmarks, iterations, copies] *= factor
    return times


def document(times: Times, uuid: str) -> dict[str, Any]:
    rows = [
        {
            "benchmark": NAMES[b],
            "iteration": i + 1,
            "copy": c,
            "cpu": c,
            "core": c // 2,
            "node": c // 8,
            "package": 0,
            "start_s": 200.0 * (len(NAMES) * i + b),
            "elapsed_s": float(times[b, i, c]),
        }
        for b, i, c in np.ndindex(*times.shape)
    ]
    nodes = {str(n): [*range(8 * n, 8 * n + 8)] for n in range(4)}
    cores = {str(n): [2 * n, 2 * n + 1] for n in range(16)}
    run = {"uuid": uuid, "host": "h", "mode": "homogeneous", "copies": COPIES}
    topology = {"nodes": nodes, "cores": cores, "packages": {"0": [*range(COPIES)]}}
    run["started_at"] = "2026-11-20T12:00:00Z"
    return {"rater": 1, "run": run, "topology": topology, "observations": rows}


ALL, ONE = slice(None), slice(8, 16)
RUNS: dict[str, tuple[Times, dict[str, tuple[list[str], list[int], float]]]] = {
    # What is planted, and by kind: benchmarks, iterations, size.
    "lgroup": (made((1, ALL, ONE, 1.18)), {"slow-lgroup": (["b"], [1, 2, 3], 1.18)}),
    "varied": (
        made((ALL, ALL, ONE, np.array([1.1, 1.14, 1.2, 1.3])[:, None, None])),
        {"slow-lgroup": ([*NAMES], [1, 2, 3], 1.17)},
    ),
    "uneven": (
        made((2, ALL, ONE, np.array([1.438, 1.432, 1.288])[:, None])),
        {"slow-lgroup": (["c"], [1, 2, 3], 1.432)},
    ),
    "cpu": (made((ALL, ALL, 5, 1.3)), {"slow-cpu": ([*NAMES], [1, 2, 3], 1.3)}),
    "copies": (made((3, 1, [4, 17], np.array([1.25, 1.4]))), {"outlier-copy": (["d"], [2], 1.32)}),
    "fast": (made((0, ALL, 9, 0.5)), {"outlier-copy": (["a"], [1, 2, 3], 0.5)}),
    "iteration": (made((ALL, 2, ALL, 1.05)), {"slow-iteration": ([*NAMES], [3], 1.05)}),
    "rising": (
        made((ALL, ALL, ALL, np.array([1, 1.2, 1.38])[:, None])),
        {"drift": ([*NAMES], [1, 2, 3], 1.38)},
    ),
    "falling": (
        made((ALL, ALL, ALL, np.array([1, 0.75, 0.53])[:, None])),
        {"drift": ([*NAMES], [1, 2, 3], 0.53)},
    ),
    "modes": (
        made((1, ALL, np.random.default_rng(5).random(COPIES) < 0.4, 1.12)),
        {"bimodal": (["b"], [1, 2, 3], 1.12)},
    ),
    "several": (
        made((1, ALL, ONE, 1.18), (ALL, ALL, 30, 1.3), (2, 0, 3, 1.5)),
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
    rater("import", written(tmp_path, document(times, name)))
    rows = json.loads(rater("divots", "--json")[1])["divots"]
    assert {row["kind"] for row in rows} == planted.keys()
    text = in_words(rater("divots")[1])
    shown = in_words(rater("show")[1])
    assert json.loads(rater("show", "--json")[1])["divots"] == rows
    plot = rater("plot")[1]
    rater("report", "-o", tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    labels = [
        (panel["benchmark"], label["text"])
        for panel in page.data["runs"][0]["panels"]
        for label in panel["labels"]
    ]
    for row in rows:
        benchmarks, iterations, size = planted[row["kind"]]
        together = [it for it in rows if it["finding"] == row["finding"]]
        for what, wanted in (("benchmark", benchmarks), ("iteration", iterations)):
            assert sorted({one for it in together for one in it[f"{what}s"]}) == wanted
            (alone, *others) = row[f"{what}s"]
            assert row[what] == (None if others else alone)
        typical = median([it["slowdown"] for it in together])
        assert math.log(typical) == pytest.approx(math.log(size), abs=0.01)
        # Every sentence is the same one, and begins with the size that JSON has.
        number = f"{row['finding']}. {row['evidence']}"
        assert number in text and number in shown
        assert "".join(row["evidence"].split()) in "".join(page.text.split())
        summary = row["evidence"].partition("; costs")[0]
        told = sizes_in(summary)
        if len(together) == 1:
            assert told[0] == pytest.approx(row["slowdown"], abs=0.00051)
        # Every name in a picture has a size that the sentence has, or one within its range.
        for benchmark in benchmarks:
            own = [size for of, label in labels if of == benchmark for size in sizes_in(label)]
            near = [it for it in own if min(told) - 0.006 <= it <= max(told) + 0.006]
            assert near, (own, summary)
            assert len(benchmarks) > 1 or told[0] in own
        for of, label in labels:
            assert label in plot, (of, plot)


def test_what_differs_from_iteration_to_iteration_is_told_with_its_range(
    rater: Rater, tmp_path: Path
) -> None:
    rater("import", written(tmp_path, document(RUNS["uneven"][0], "u")))
    (row,) = json.loads(rater("divots", "--json")[1])["divots"]
    assert row["evidence"].startswith("lgroup 1: c +43.1 % (+29 to +44 %) (8 of 8 copies, 3 of 3")
