"""Files of output that serve again: they are empty, ours alone, and gone in the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rater.plan.schedule import Phase, make_plan
from rater.record.run import CopyStatus
from rater.run.launcher.copies import CopySpec
from rater.run.workplace.run_dirs import Program, RunFolders
from tests.support.rig import Rig, on_one_cpu


@pytest.fixture
def folders(tmp_path: Path) -> RunFolders:
    program = Program(
        name="p", argv=("true",), inputs=(), expected=(), directory=str(tmp_path), metrics=()
    )
    return RunFolders(tmp_path, "u", {"p": program}, on_one_cpu(1), (), keep=False)


def phases() -> tuple[Phase, ...]:
    return make_plan(["p"], 1, iterations=2).phases


def spec_with_outputs(folders: RunFolders, phase: Phase, text: str) -> CopySpec:
    spec = folders.specs(phase)[0, 0]
    for path in (spec.stdout, spec.stderr):
        Path(path).write_text(text)
    return spec


def test_outputs_of_a_good_copy_serve_the_next_iteration_empty_and_under_its_name(
    folders: RunFolders, tmp_path: Path
) -> None:
    first_phase, next_phase = phases()
    spec = spec_with_outputs(folders, first_phase, "many words\n")
    number = Path(spec.stdout).stat().st_ino
    folders.clear(spec, may_reuse=True)
    again = folders.specs(next_phase)[0, 0]
    status = Path(again.stdout).stat()
    assert (status.st_ino, status.st_size) == (number, 0)
    assert ".i2." in again.output
    assert sorted(map(str, tmp_path.iterdir())) == sorted([again.stdout, again.stderr])
    folders.clear(again, may_reuse=True)
    folders.spare_outputs.close()
    assert [*tmp_path.iterdir()] == []


def test_an_output_that_somebody_keeps_by_a_link_does_not_serve_again(
    folders: RunFolders, tmp_path: Path
) -> None:
    first_phase, next_phase = phases()
    spec = spec_with_outputs(folders, first_phase, "kept\n")
    os.link(spec.stdout, tmp_path / "kept")
    folders.clear(spec, may_reuse=True)
    spec = folders.specs(next_phase)[0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept\n"


def test_an_output_that_became_a_link_or_read_only_does_not_serve_again(
    folders: RunFolders, tmp_path: Path
) -> None:
    first_phase, next_phase = phases()
    spec = spec_with_outputs(folders, first_phase, "")
    target = tmp_path / "target"
    target.write_text("of somebody")
    Path(spec.stdout).unlink()
    Path(spec.stdout).symlink_to(target)
    folders.clear(spec, may_reuse=True)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    spec = spec_with_outputs(folders, next_phase, "")
    Path(spec.stdout).chmod(0o400)
    folders.clear(spec, may_reuse=True)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert target.read_text() == "of somebody"


def test_files_of_a_copy_that_failed_stay_as_they_are_under_the_name_of_their_iteration(
    tmp_path: Path,
) -> None:
    count = f"{tmp_path}/count"
    script = f"echo run >> {count}; wc -l < {count}; [ $(wc -l < {count}) -ne 2 ]"
    plan = make_plan(["p"], 1, iterations=3)
    rig = Rig(tmp_path, directory=str(tmp_path))
    seen = rig.run({"p": script}, 1, plan)
    failed = [event for event in seen.ended if event.status is CopyStatus.FAILED]
    assert [event.iteration for event in failed] == [2]
    kept = [path for path in rig.work.rglob("*stdout")]
    assert [path.read_text() for path in kept] == ["2\n"]
    assert ".i2." in str(kept[0])
