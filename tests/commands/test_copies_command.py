"""`rater show --copies`: its tables, its JSON and its mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import Rater


@pytest.fixture
def two_runs(tmp_path: Path, rater: Rater) -> None:
    """Run 1: four copies of 10, 10, 10 and 14 s; run 2: of 10, 10, 10 and 20 s."""
    for uuid, last_s in (("first", 14.0), ("second", 20.0)):
        document = {
            "rater": 1,
            "run": {"uuid": uuid, "host": "h", "mode": "homogeneous", "copies": 4},
            "topology": {"nodes": {"0": [0, 1], "1": [2, 3]}, "cores": {"7": [3]}},
            "observations": [
                {
                    "benchmark": "429.mcf",
                    "iteration": 0,
                    "copy": copy,
                    "cpu": copy,
                    "core": 7 if copy == 3 else None,
                    "node": copy // 2,
                    "package": None,
                    "start_s": 0.0,
                    "elapsed_s": last_s if copy == 3 else 10.0,
                }
                for copy in range(4)
            ],
        }
        (tmp_path / "one.json").write_text(json.dumps(document))
        assert rater("import", tmp_path / "one.json")[0] == 0


COPIES = """\
benchmark  iter  copies   1 =     all     all     all     all
                            s  median    mean    s.d.     max
429.mcf       0       4  10.0  1.0000  1.2500  0.5000  2.0000
s.d.: of the sample (n - 1)

the slowest of 4:
benchmark  iter  copy  CPU  core  lgroup  time  over the
                                             s    median
429.mcf       0     3    3     7       1  20.0    2.0000
429.mcf       0     0    0     -       0  10.0    1.0000
429.mcf       0     1    1     -       0  10.0    1.0000
429.mcf       0     2    2     -       1  10.0    1.0000
"""


@pytest.mark.usefixtures("two_runs")
def test_the_statistics_follow_the_results(rater: Rater) -> None:
    status, out, _ = rater("show", "--copies")
    assert status == 0
    plain_show = rater("show")[1]
    assert out.startswith(plain_show)
    lines = out[len(plain_show) :]
    assert lines.startswith("\ntimes of the copies over the median copy of this run ")
    assert lines.partition(":\n")[2] == COPIES


@pytest.mark.usefixtures("two_runs")
def test_a_baseline_puts_results_side_by_side(rater: Rater) -> None:
    _, out, _ = rater("show", 2, "--copies", "--baseline", 1, "--drop", 1)
    rows = [line.split() for line in out.splitlines()]
    # Copies an hour: 4 x 3600 / 14 and 4 x 3600 / 20.
    assert ["429.mcf", "1028.6", "720.0", "-30.0"] in rows
    assert "over the median copy of run 1" in out
    assert "without the slowest copy" in out
    shapes = next(row for row in rows if row[:2] == ["429.mcf", "0"] and "0.0000" in row)
    assert shapes[-4:] == ["1.0000", "1.0000", "0.0000", "1.0000"]


@pytest.mark.usefixtures("two_runs")
def test_the_json_has_them_under_a_key_of_their_own(rater: Rater) -> None:
    before: dict[str, Any] = json.loads(rater("show", "--json")[1])
    words = ("show", "--copies", "--baseline", 1, "--drop", 1, "--json")
    found: dict[str, Any] = json.loads(rater(*words)[1])
    times = found.pop("copy_times")
    assert len(found.pop("copy_runs")) == 4
    assert found == before
    assert (times["baseline"], times["drop"]) == (1, 1)
    (cell,) = times["cells"]
    assert (cell["benchmark"], cell["iteration"], cell["baseline_median_s"]) == ("429.mcf", 0, 10.0)
    assert cell["all"] == {"count": 4, "median": 1.0, "mean": 1.25, "sd": 0.5, "maximum": 2.0}
    assert cell["kept"] == {"count": 3, "median": 1.0, "mean": 1.0, "sd": 0.0, "maximum": 1.0}
    (dropped,) = cell["dropped"]
    place = {key: dropped[key] for key in ("copy", "cpu", "core", "node", "normalised")}
    assert place == {"copy": 3, "cpu": 3, "core": 7, "node": 1, "normalised": 2.0}
    assert times["slowest"][0]["copy"] == 3
    assert times["ratios"][0]["change"] == pytest.approx(-0.3)


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--drop", 2), "--drop belongs to --copies"),
        (("--baseline", 1), "--baseline belongs to --copies"),
        (("--copies", "--drop", -1), "--drop -1: expected a number of copies, 0 or more"),
        (("--copies", "--baseline-iteration", 4), "expected one of its own: 0"),
        (("--copies", "--baseline", 9), "no such run"),
    ],
)
def test_mistakes_are_named(rater: Rater, words: tuple[object, ...], message: str) -> None:
    status, out, err = rater("show", *words)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.usefixtures("two_runs")
def test_nothing_is_wider_than_the_terminal(rater: Rater) -> None:
    _, out, _ = rater("show", "--copies", "--drop", 1, "--baseline", 1)
    assert max(map(len, out.splitlines())) <= 80
