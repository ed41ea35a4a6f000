"""Gates and results in the forms of CI systems: JUnit, GitHub, OpenMetrics."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rater.analysis.results.gates import GateAnswer, GateCase
from rater.show.results.ci import MetricFamily, github_lines, junit_text, openmetrics_text
from tests.support.calls import Rater
from tests.support.made_runs import make
from tests.support.observations import observed

OLD = [(time_s - 0.01, time_s) for time_s in (10.0, 10.05, 9.95, 10.02, 9.98)]
NEW = [(time_s * 1.2 - 0.01, time_s * 1.2) for time_s in (10.0, 10.05, 9.95, 10.02, 9.98)]


def case(answer: GateAnswer, reason: str = "") -> GateCase:
    return GateCase(gate="worse:2%", name="lu", place="new", answer=answer, reason=reason)


# -- the forms themselves -------------------------------------------------------------------------


def test_junit_has_a_failure_and_what_cannot_be_judged_is_skipped_with_its_reason() -> None:
    cases = [
        case(GateAnswer.FOUND, 'speedup 0.833 <"&\x00'),
        case(GateAnswer.OPEN, "6 of 6 runs disturbed"),
        case(GateAnswer.EXCLUDED),
    ]
    root = ElementTree.fromstring(junit_text("rater compare 1 2", cases))
    [suite] = root
    assert suite.attrib == {"name": "rater compare 1 2"} | {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    failed, skipped, passed = suite
    assert failed.attrib == {"classname": "rater.worse:2%", "name": "lu (new)"}
    assert failed[0].attrib == {"message": 'speedup 0.833 <"&?', "type": "worse:2%"}
    assert (skipped[0].tag, skipped[0].get("message")) == ("skipped", "6 of 6 runs disturbed")
    assert len(passed) == 0


def test_an_annotation_of_github_stays_one_line_whatever_the_names_are() -> None:
    evil = GateCase(
        gate="worse",
        name="a,b:c\n::error::x",
        place="p",
        answer=GateAnswer.FOUND,
        reason="50 %\nslower",
    )
    assert [*github_lines([evil, case(GateAnswer.OPEN, "noise"), case(GateAnswer.EXCLUDED)])] == [
        "::error title=worse%3A a%2Cb%3Ac%0A%3A%3Aerror%3A%3Ax (p)::50 %25%0Aslower",
        "::warning title=worse%3A2%25%3A lu (new)::noise",
        "::notice title=rater::1 of 3 gates passed",
    ]


def test_openmetrics_leaves_out_what_is_not_known_and_ends_as_it_must() -> None:
    family = MetricFamily(
        name="rater_bracket_seconds",
        unit="seconds",
        help="Time.",
        samples=[({"run": 7, "host": None, "tag_a": 'x"\\'}, 1.5), ({"run": 8}, None)],
    )
    nothing = MetricFamily(name="rater_none", help="", samples=[({}, None)])
    assert openmetrics_text([family, nothing]).splitlines() == [
        "# TYPE rater_bracket_seconds gauge",
        "# UNIT rater_bracket_seconds seconds",
        "# HELP rater_bracket_seconds Time.",
        'rater_bracket_seconds{run="7",tag_a="x\\"\\\\"} 1.5',
        "# EOF",
    ]


# -- of a comparison, of divots, of a run ----------------------------------------------------------


@pytest.fixture
def two_builds(database: Path) -> None:
    make(database, OLD, {"build": "old"}, {})
    make(database, NEW, {"build": "new"}, {})


GATE = ("compare", "tag:build=old", "tag:build=new", "--fail-on", "worse:2%")


@pytest.mark.usefixtures("two_builds")
def test_a_comparison_that_is_worse_is_a_failed_case_with_its_numbers(rater: Rater) -> None:
    status, out, err = rater(*GATE, "--format", "junit")
    assert (status, "worse: gups (build=new)" in err) == (1, True)
    [[element]] = ElementTree.fromstring(out)
    assert element.get("name") == "gups (build=new)"
    numbers = {item.get("name"): float(item.get("value", "")) for item in element[0]}
    assert numbers["speedup"] == pytest.approx(1 / 1.2, abs=0.01)
    failure = element[1]
    assert failure.tag == "failure"
    assert failure.get("message", "").startswith("speedup 0.833 (0.8")


@pytest.mark.usefixtures("two_builds")
def test_github_gets_annotations_and_the_tables_in_the_summary_of_the_step(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    status, out, _ = rater(*GATE, "--format", "github")
    assert status == 1
    assert out.startswith("::error title=worse%3A2%25%3A gups (build=new)::speedup 0.833")
    assert "|" not in out
    text = summary.read_text()
    assert text.startswith("before\n## rater compare tag:build=old tag:build=new\n")
    assert "| gups |" in text


@pytest.mark.usefixtures("two_builds")
def test_a_summary_that_cannot_be_written_is_named(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    status, _, err = rater(*GATE, "--format", "github")
    assert (status, "GITHUB_STEP_SUMMARY" in err) == (2, True)


@pytest.mark.usefixtures("two_builds")
def test_a_comparison_and_a_run_are_gauges(rater: Rater) -> None:
    _, out, _ = rater(*GATE, "--format", "openmetrics")
    assert 'rater_gate{gate="worse:2%",benchmark="gups",point="build=new"} 1.0\n' in out
    assert 'rater_speedup{benchmark="gups",point="build=new"} 0.8' in out
    status, out, _ = rater("show", "1", "--format", "openmetrics")
    assert status == 0
    assert 'rater_bracket_seconds{run="1",' in out
    assert 'tag_build="old",benchmark="gups"' in out
    assert out.endswith("# EOF\n")


def test_divots_of_a_run_that_cannot_be_judged_are_skipped(rater: Rater, tmp_path: Path) -> None:
    rows = [{"iteration": i, "elapsed_s": 1.0 + 0.2 * (i % 2)} for i in range(1, 5)]
    (tmp_path / "few.json").write_text(json.dumps(observed(*rows, copies=1)))
    rater("import", tmp_path / "few.json")
    status, out, _ = rater("divots", "1", "--fail-on", "slow-lgroup:2%", "--format", "junit")
    [[element]] = ElementTree.fromstring(out)
    assert status == 3
    assert element.get("name") == "slow-lgroup:2% (run 1)"
    assert element[0].tag == "skipped"
    assert element[0].get("message")
