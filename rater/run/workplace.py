"""The run directories of a run: made before a phase, judged and removed after it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rater.errors import RunError
from rater.plan.cpuset import format_list
from rater.plan.place import Placement
from rater.plan.schedule import Phase, Step
from rater.plan.suite import Expected
from rater.record import Validity
from rater.run.guard import MARKER
from rater.run.job import Judged
from rater.run.launch import CopySpec
from rater.run.output import check_output
from rater.run.prepare import ReadyInput, make_run_dir, remove_run_dir, run_dir_name


@dataclass(frozen=True, slots=True)
class Program:
    """One benchmark, ready to be started."""

    name: str
    argv: tuple[str, ...]  # the wrap prefix included
    inputs: tuple[ReadyInput, ...]
    expected: tuple[Expected, ...]
    directory: str | None  # where all copies work; None: each in a run directory of its own


class RunFolders:
    """Makes, judges and clears the run directories below one folder of this run."""

    def __init__(
        self,
        work: Path,
        uuid: str,
        programs: Mapping[str, Program],
        placements: Sequence[Placement],
        added: Sequence[tuple[str, str]],
        *,
        keep: bool,
    ) -> None:
        self._work = work
        self._programs = programs
        self.keeps = keep
        self._notices: list[str] = []
        self._noticed: set[str] = set()
        # A variable without a name can not be handed on by posix_spawn.
        base = {name: value for name, value in os.environb.items() if name}
        base.update((name.encode(), os.fsencode(value)) for name, value in added)
        base[MARKER.encode()] = uuid.encode()
        base[b"RATER_RUN_DIR"] = os.fsencode(os.getcwd())  # of copies that work where we are
        self._environments = [_environment(base, placement) for placement in placements]

    def specs(self, phase: Phase) -> dict[tuple[int, int], CopySpec]:
        """Make a run directory for every step of every copy of the phase."""
        made = {}
        for queue in phase.queues:
            # With a window queues have no end: what comes after the first run is made in its time.
            steps = queue.steps[:1] if phase.window is not None else queue.steps
            for position, step in enumerate(steps):
                made[queue.copy, position] = self._spec(queue.copy, position, step)
        return made

    def spec(self, copy: int, position: int, step: Step) -> CopySpec:
        """Make what a later run of a copy needs, of a phase with a window."""
        return self._spec(copy, position, step)

    def expects(self, benchmark: str) -> bool:
        """Tell whether a benchmark's copies are judged: output or shared inputs to look at."""
        program = self._programs[benchmark]
        return bool(program.expected or program.inputs)

    def judge(self, step: Step, spec: CopySpec) -> Judged:
        """Compare a copy's output with what is expected, and see that shared inputs are whole."""
        program = self._programs[step.benchmark]
        for shared in program.inputs:
            if shared.damaged():
                self._notice(
                    f"a copy of {program.name} wrote into its input {shared.name}, which all "
                    "copies share: the results since then are not trustworthy"
                )
                return Judged(Validity.INVALID, f"input {shared.name} was changed while copies ran")
        if not program.expected:
            return Judged(Validity.NOT_CHECKED)
        difference = check_output(Path(spec.directory), Path(spec.stdout), program.expected)
        if difference is not None:
            return Judged(Validity.INVALID, str(difference))
        return Judged(Validity.VALID)

    def clear(self, spec: CopySpec) -> None:
        """Remove a copy's output and run directory, unless all are to be kept."""
        if self.keeps:
            return
        for name in (spec.stdout, spec.stderr):
            with suppress(OSError):
                os.unlink(name)
        if not spec.output.endswith("/"):
            return
        try:
            os.rmdir(spec.files)
        except OSError:  # the copy or its inputs left files: the thorough way
            trouble = remove_run_dir(Path(spec.files))
            if trouble:
                self._notice(trouble)

    def take_notices(self) -> list[str]:
        """Return what has come up since the last call, each thing once a run."""
        taken, self._notices = self._notices, []
        return taken

    def _notice(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notices.append(text)

    def _spec(self, copy: int, position: int, step: Step) -> CopySpec:
        program = self._programs[step.benchmark]
        name = run_dir_name(step.benchmark, step.iteration, copy, position)
        environment = self._environments[copy]
        if program.directory is not None:
            # No directory for output alone: making one can cost more than all the rest.
            return CopySpec(program.argv, environment, program.directory, f"{self._work}/{name}.")
        if program.inputs:
            made = make_run_dir(self._work, name, program.inputs)
            for notice in made.notices:
                self._notice(notice)
            path = str(made.path)
        else:
            path = f"{self._work}/{name}"
            try:
                os.mkdir(path)
            except OSError as error:
                raise RunError(
                    f"the run directory {path} cannot be made: {error.strerror}; "
                    "make room or set RATER_CACHE to another folder"
                ) from error
        environment = environment | {b"RATER_RUN_DIR": os.fsencode(path)}
        return CopySpec(program.argv, environment, path, f"{path}/")


def _environment(base: Mapping[bytes, bytes], placement: Placement) -> dict[bytes, bytes]:
    environment = dict(base)
    environment[b"RATER_COPY"] = b"%d" % placement.copy
    environment[b"RATER_CPUS"] = format_list(placement.cpus or ()).encode()
    environment[b"RATER_NODE"] = b"" if placement.node is None else b"%d" % placement.node
    return environment
