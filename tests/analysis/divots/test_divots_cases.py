"""The shared cases with a known truth, and real servers' results, where they lie."""

import re
from typing import Any

import pytest

from benchmarks.divot_cases.direct import (
    findings_in,
    for_scorer,
    scorer,
    shared_cases,
    table_of,
)
from rater.analysis.divots.model.finding import Finding, Kind
from rater.show.results.to_json import divot_rows
from tests.support.places import DIVOT_CASES, SAMPLES, needs_cases, needs_samples


def findings(document: dict[str, Any]) -> list[Finding]:
    return list(findings_in(table_of(document)))


@pytest.mark.slow
@needs_cases
def test_the_shared_cases_are_told_as_they_are() -> None:
    """At the scorer's floors: precision .95, recall .93, .05 false alarms a healthy case."""
    score = scorer()
    told = []
    for name, table in shared_cases():
        told += for_scorer(name, divot_rows(findings_in(table)))
    result = score.score(score.load_truths(DIVOT_CASES / "truth"), told)
    found, truths, false = (
        sum(kind[what] for kind in result["kinds"].values())
        for what in ("found", "truths", "false")
    )
    assert found / (found + false) >= 0.95
    assert found / truths >= 0.93
    assert result["clean"]["alarms"] <= 0.05 * result["clean"]["cases"]


@needs_samples
def test_64_copies_of_a_real_server_show_what_their_times_show() -> None:
    pattern = re.compile(
        r"spec\.cpu2006\.results\.(\w+)\.base\.(\d+)\.copytime(\d+): ([0-9.]+)", re.ASCII
    )
    observations = []
    for line in (SAMPLES / "CINT2006-64copies.rsf").read_text().splitlines():
        match = pattern.match(line)
        if match:
            cpu = int(match[3])  # bindN: numactl -m N/16 --physcpubind=N
            place = {"cpu": cpu, "core": None, "node": cpu // 16, "package": None}
            observations.append(
                {
                    "benchmark": match[1].replace("_", ".", 1),
                    "iteration": int(match[2]),
                    "copy": cpu,
                    "memory": cpu // 16,
                    "elapsed_s": float(match[4]),
                }
                | place
            )
    found = findings({"observations": observations})
    told = {(one.kind, one.place, one.benchmarks, one.iterations) for one in found}
    assert (Kind.SLOW_ITERATION, "all copies", ("400.perlbench",), (1,)) in told
    perlbench = next(one for one in found if one.benchmark == "400.perlbench")
    assert 0 not in perlbench.copies and len(perlbench.copies) == 63
    # 462.libquantum is 1.3 % slower on lgroup 0, but lgroups differ by up to 1.1 % there anyway.
    assert not any(one.kind is Kind.SLOW_LGROUP for one in found)
    assert (Kind.WANDERING, "all copies", ("403.gcc",), ()) in told
    # The upper halves of all lgroups are 0.1 to 0.9 % slower: under what counts as a divot.
    assert not any(one.kind is Kind.OUTLIER_COPY for one in found)
    assert len(found) == 3


@needs_samples
def test_the_fast_copy_of_ten_is_all_that_the_power8_shows() -> None:
    text = (SAMPLES / "CPU2006-10copies-power8.log").read_text()
    died = set(re.findall(r"(\S+): copy (\d+) non-zero return code", text))
    pattern = re.compile(
        r"Copy (\d+) of (\S+) \(peak\s+ref\) run 1 finished at [^.]+\.\s+"
        r"Total\s+elapsed\s+time:\s*([0-9.]+)"
    )
    observations = [
        {"benchmark": name, "iteration": 1, "copy": int(copy), "elapsed_s": float(seconds)}
        | dict.fromkeys(("cpu", "core", "node", "package"))
        | {"status": "failed" if (name, copy) in died else "ok"}
        for copy, name, seconds in pattern.findall(text)
    ]
    assert len(observations) == 290
    (one,) = findings({"observations": observations})
    assert (one.kind, one.benchmark, one.copies) == (Kind.OUTLIER_COPY, "429.mcf", (9,))
    assert one.slowdown == pytest.approx(0.4153, abs=0.0005)  # 161.4 of 388.7 s, the middle of nine
