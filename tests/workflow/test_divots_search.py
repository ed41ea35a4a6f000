"""The search for divots of a stored run: how much of it is loaded."""

from pathlib import Path

import pytest

from rater.analysis.divots.model.finding import Thresholds
from rater.record.stored import StoredRun
from rater.store.store import Store, open_store
from rater.workflow.results.divots import load_or_analyse
from tests.support.observations import observed, read


def slow_lgroup(cpu_s: float | None) -> StoredRun:
    """Sixteen copies on two lgroups, the second one a fifth slower."""
    return read(
        observed(
            *(
                {"benchmark": name, "copy": copy, "cpu": copy, "core": copy, "node": copy // 8}
                | {"elapsed_s": 10 + 2 * (copy // 8) + copy / 1000, "cpu_s": cpu_s}
                for name in "abc"
                for copy in range(16)
            ),
            copies=16,
        )
    )


@pytest.mark.parametrize(("cpu_s", "loaded"), [(None, []), (9.0, [1])])
def test_an_import_is_loaded_whole_only_where_it_has_cpu_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu_s: float | None, loaded: list[int]
) -> None:
    calls: list[int] = []
    load = Store.load

    def counted(store: Store, run: int) -> StoredRun:
        calls.append(run)
        return load(store, run)

    monkeypatch.setattr(Store, "load", counted)
    with open_store(tmp_path / "rater.db") as store:
        store.add(slow_lgroup(cpu_s))
        (head,) = store.runs()
        found = load_or_analyse(store, head, Thresholds(), fresh=True)
        assert [one.place for one in found.findings if not one.explained] == ["lgroup 1"]
        assert calls == loaded
        row = store.times(1).chunks[0][0]
        assert (row.elapsed_ns, row.cpu_ns, row.good) == (10 * 10**9, cpu_s and 9 * 10**9, 1)
