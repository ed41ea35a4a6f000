"""What `rater export --format rsf` writes; test_spec_round_trip.py reads it back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rater.speccpu.export.rsf_bind import configuration
from rater.speccpu.export.rsf_write import rsf_lines
from rater.speccpu.results.own_keys import own_of
from rater.speccpu.results.read import read_spec
from tests.support.spec_runs import observed, planned


def test_masks_and_policies_are_written_as_they_were_planned() -> None:
    assert (configuration(planned(), {None: "base"}, "estimate") or "").splitlines() == [
        "# estimate",
        "submit = $BIND $command",
        "bind0 = numactl --physcpubind=0-1 --localalloc",
        "bind1 = numactl --physcpubind=2-3 --interleave=0-1",
        "bind2 = numactl --physcpubind=4 --preferred=1",
        "bind3 = numactl --physcpubind=5",
        "bind4 = numactl --membind=1",
    ]


def test_a_copy_of_several_threads_is_not_narrowed_to_one_cpu() -> None:
    run = observed([{"copy": 0, "cpu": 0, "node": 1}])
    run = replace(run, benchmarks=tuple(replace(it, threads=4) for it in run.benchmarks))
    assert (configuration(run, {None: "base"}, "estimate") or "").splitlines()[2:] == [
        "bind0 = numactl --cpunodebind=1"
    ]
    assert "spec.cpu2017.results.a.base.000.threads: 4" in rsf_lines(run, {}, {})


def test_what_the_keys_of_spec_cannot_say_is_in_keys_of_our_own(tmp_path: Path) -> None:
    rows = [{"iteration": n, "copy": 0, "counted": n > 1, "start_s": n} for n in (1, 2)]
    run = observed(rows, mode="staggered", stagger_ms=5)
    path = tmp_path / "own.rsf"
    path.write_text("\n".join(rsf_lines(run, {}, {})) + "\n")
    first, second = map(own_of, read_spec(path).iterations)
    assert first is not None and second is not None
    assert (first.counted, second.counted) == (False, True)
    assert (first.tune, first.iteration, first.of(0).start_ns) == (None, 1, 10**9)
    assert first.run.phases[0]["finish_ns"] == 2 * 10**9
    assert first.run.head is not None
    assert (first.run.head["mode"], first.run.head["stagger_ms"]) == ("staggered", 5.0)
    assert (first.run.head["iterations"], first.run.head["discard"]) == (2, 1)
