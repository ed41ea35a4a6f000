"""What `rater export --format rsf` writes; test_spec_round_trip.py reads it back."""

from __future__ import annotations

from dataclasses import replace

from rater.speccpu.export.rsf_bind import configuration
from rater.speccpu.export.rsf_write import rsf_lines
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
