"""`rater checkup` on this machine, as short as it can be."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from rater.plan.checkup import QUICK, CheckupPoint, CheckupProbe, checkup_points
from rater.system.process import StoppedBySignal
from rater.workflow.run import checkup
from tests.support.calls import query_rows, rater
from tests.support.json_schemas import closed, schema_of


def few_points(*machine: Any) -> tuple[CheckupPoint, ...]:
    """Return a run for memory and one for cores, on little memory: setting it up is most of it."""
    few = (CheckupProbe.LATENCY, CheckupProbe.CORE)
    points = [point for point in checkup_points(*machine) if point.probe in few]
    return tuple(replace(point, bytes=4 << 20) for point in points)


def test_a_checkup_of_memory_alone_says_what_it_left_out_and_one_round_cannot_tell(
    monkeypatch: pytest.MonkeyPatch, database: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkup, "QUICK", replace(QUICK, total_s=0.01))  # one run takes longer
    monkeypatch.setattr(checkup, "checkup_points", few_points)
    page = tmp_path / "page.html"
    done = rater("checkup", "--quick", "--only", "memory", "--json", "--page", page)
    document = json.loads(done.stdout)
    assert [*Draft202012Validator(closed(schema_of("checkup"))).iter_errors(document)] == []
    sections = {section["name"]: section for section in document["sections"]}
    assert [*sections] == ["latency of memory, one CPU", "bandwidth, one CPU", "runs"]
    [ended] = sections["runs"]["said"]
    assert re.fullmatch(r"ended after \d+ s: 2 runs to go, where other work .+", ended)
    assert document["left_out"] == ["doctor", "facts", "cores", "mix"]
    latency = sections["latency of memory, one CPU"]
    assert done.returncode == document["status"] != 0
    assert latency["verdict"] == "CANNOT TELL"
    assert "fewer than 3 rounds were measured of each place" in latency["said"]
    assert [cell["value"] > 0 for cell in latency["cells"]] == [True] * len(latency["cells"])
    tags = query_rows("SELECT DISTINCT value FROM tag WHERE name = 'checkup'")
    assert tags == [(document["checkup"],)]
    notes = query_rows("SELECT text FROM note WHERE text LIKE 'checkup %' ORDER BY rowid")
    said = "; ".join(latency["said"])
    assert notes[0] == (f"checkup {document['checkup']}: {latency['name']}: CANNOT TELL: {said}",)
    assert len(notes) == 3, "a verdict each"
    text = page.read_text()
    assert text.count("<main>") == 1
    assert 0 < text.index("latency of memory, one CPU: ") < text.index("CPUs of node, memory of")
    assert "Not looked at: doctor, facts, cores, mix." in text


def test_a_checkup_that_a_signal_ends_tells_what_it_knows(
    monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    def stop(*_: object) -> None:
        raise StoppedBySignal(signal.SIGINT)

    monkeypatch.setattr(checkup, "QUICK", replace(QUICK, total_s=0.5))
    monkeypatch.setattr(checkup, "checkup_points", few_points)
    monkeypatch.setattr(checkup, "readings_of", stop)  # with the first run that was made
    done = rater("checkup", "--quick", "--only", "doctor,memory", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == document["status"] == 130
    assert [section["name"] for section in document["sections"]] == ["doctor", "runs"]
    assert document["sections"][1]["said"] == [
        "stopped by SIGINT: 1 of 3 runs were made and stay; the same command begins anew"
    ]
    assert query_rows("SELECT id FROM run") == [(run,) for run in document["runs"]]


def test_a_checkup_without_runs_holds_nothing_from_others(database: Path) -> None:
    done = rater("checkup", "--only", "facts", "--json")
    document = json.loads(done.stdout)
    assert [section["name"] for section in document["sections"]] == ["facts of the machine"]
    assert (document["runs"], database.exists()) == ([], False)


def test_memory_that_could_not_be_measured_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    mix = CheckupPoint(probe=CheckupProbe.MIX)
    monkeypatch.setattr(checkup, "checkup_points", lambda *_: (mix,))
    done = rater("checkup", "--only", "memory", "--json")
    [section] = json.loads(done.stdout)["sections"]
    assert (done.returncode, section["name"], section["verdict"]) == (3, "memory", "CANNOT TELL")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--only", "memory,ram"),
            "--only ram: is no section of a checkup; expected one of doctor",
        ),
        (("--only", "mix", "--mix", "none"), "--only mix: --mix none leaves it out"),
    ],
)
def test_a_section_that_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    done = rater("checkup", *words)
    assert (done.returncode, said in done.stderr) == (2, True)


def test_a_page_that_is_no_page_of_rater_is_not_written_over(tmp_path: Path) -> None:
    page = tmp_path / "mine.html"
    page.write_text("mine")
    done = rater("checkup", "--quick", "--page", page)
    assert (done.returncode, page.read_text()) == (2, "mine")
