"""The runs of each copy in a phase: the next one is made ready while the one before goes on."""

from __future__ import annotations

from collections.abc import Iterable

import trio
from msgspec.structs import replace

from rater.plan.schedule import Phase
from rater.run.launcher.child_state import Move
from rater.run.launcher.copies import Child, Copy, CopySpec
from rater.run.launcher.entries import interleave_by_cpus, make_entry
from rater.run.launcher.table import ProcessFlag, RequestKind
from rater.run.supervise.job import PhaseRecord, RunState
from rater.system.errors import RaterError


class PhaseCopies:
    """Has the next run of each copy waiting at its gate, or being made; on the trio thread.

    The launcher begins that run with the end of the one before. In steady mode, a benchmark with
    a set-up command is an exception: its next run is made after that end, as the command is not
    to run beside a run of the same copy.
    """

    def __init__(
        self,
        state: RunState,
        phase: Phase,
        specs: dict[tuple[int, int], CopySpec],
        record: PhaseRecord,
        *,
        first_flags: int,
        later_flags: int,
    ) -> None:
        """`specs` by copy and position in its queue; `ProcessFlag`s of first and of later runs."""
        self.copies = record.copies
        self.children: dict[int, Child] = {}  # by token: the runs that are not over
        queues_are_longer = any(len(queue.steps) > 1 for queue in phase.queues)
        self.has_followers = bool(phase.window) or queues_are_longer
        self.until_over = trio.CancelScope()  # cancelled with the end of the last run
        self.all_at_gates = trio.Event()  # all runs that begin with the release
        self._state = state
        self._phase = phase.number
        self._specs = specs
        self._programs = state.job.workplace.programs
        self._record = record
        self._first_flags = first_flags
        self._later_flags = later_flags
        self._offsets_ns = {queue.copy: queue.offset_ns for queue in phase.queues}
        self._unfinished = set(self.copies)
        self._to_make: list[Copy] = []  # copies whose next runs are to be made
        self._requested = trio.Event()

    async def fork_first(self) -> None:
        """Have the first run of every copy forked."""
        first_runs = [self._make_child(copy) for copy in self.copies.values()]
        for child in first_runs:
            child.offset_ns = self._offsets_ns[child.copy]
        await self._fork(first_runs)

    async def make_next(self) -> None:
        """Make the next runs of copies, as many at a time as are asked for, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested = trio.Event()
            copies, self._to_make = self._to_make, []
            if any(self._takes_long_to_make(copy) for copy in copies):
                results = await trio.to_thread.run_sync(self._try_to_make, copies)
            else:
                results = self._try_to_make(copies)
            await self._fork_made(copies, results)

    async def _fork_made(self, copies: list[Copy], results: list[Child | RaterError]) -> None:
        # First the errors: they end the run, and then nothing that was made is to begin.
        for copy, result in zip(copies, results, strict=True):
            copy.is_being_made = False
            if isinstance(result, RaterError):
                self._state.stop(None, str(result))
        to_fork = []
        for copy, result in zip(copies, results, strict=True):
            if isinstance(result, Child) and not self.begins_no_more(copy):
                to_fork.append(result)
                continue
            if isinstance(result, Child):
                self._record.keep_uncounted(result)
            self.continue_copy(copy)
        if to_fork:
            await self._fork(to_fork)

    def _try_to_make(self, copies: Iterable[Copy]) -> list[Child | RaterError]:
        results: list[Child | RaterError] = []
        for copy in copies:
            try:
                results.append(self._make_child(copy))
            except RaterError as error:
                results.append(error)
        return results

    def _make_child(self, copy: Copy) -> Child:
        """Return the next run of a copy, with its directory and files; may be in a thread."""
        spec, next_spec = self._find_specs(copy)
        position = copy.next_position
        return Child(
            launcher=self._state.guard.launcher,
            copy=copy.number,
            position=position,
            step=copy.next_step,
            spec=spec,
            next_spec=next_spec,
            phase=self._phase,
            repeats=position >= len(copy.steps),
            after=0 if copy.latest is None else copy.latest.token,
        )

    def _find_specs(self, copy: Copy) -> tuple[CopySpec, CopySpec | None]:
        """Return the spec of a run, and that of the next where both serve in turn from now on.

        Runs do not differ then, and nobody reads the files of one when the next but one writes.
        """
        if copy.latest is not None and copy.latest.next_spec is not None:
            return copy.latest.next_spec, copy.latest.spec
        position, step, job = copy.next_position, copy.next_step, self._state.job
        spec = self._specs.get((copy.number, position))
        if spec is None:
            is_stopped = self._state.stop_flag.is_set
            spec = job.workplace.spec(copy.number, position, step, is_stopped)
        if not copy.repeats:
            return spec, None
        program = self._programs[step.benchmark]
        is_held = self._later_flags & ProcessFlag.HELD or job.pages is not None
        is_read = program.is_judged or job.workplace.keeps
        has_own = spec.output.endswith("/") or program.setup or len(copy.steps) > 1
        if is_held or is_read or has_own:
            return spec, None
        spec = replace(spec, has_lasting_files=True)
        return spec, replace(spec, output=f"{spec.output[:-1]}-next.")

    def add_repeated(self, token: int, before: int) -> Child | None:
        """Return a run that the launcher has started by itself to follow the run `before`.

        There is no such run any more where that one was given up.
        """
        child = self.children.get(before)
        if child is None or child.next_spec is None:
            self._state.guard.launcher.ask(RequestKind.DISCARD, token)
            return None
        copy = self.copies[child.copy]
        coming = copy.coming = self.children[token] = Child(
            launcher=child.launcher,
            token=token,
            copy=child.copy,
            position=child.position + 1,
            step=child.step,
            spec=child.next_spec,
            next_spec=child.spec,
            phase=self._phase,
            repeats=True,
            after=before,
        )
        coming.move(Move.SEND)
        if self.begins_no_more(copy):
            child.launcher.ask(RequestKind.DISCARD, token)
        return coming

    def _takes_long_to_make(self, copy: Copy) -> bool:
        return self._runs_setup(copy) or (copy.repeats and copy.has_own_directory)

    def _runs_setup(self, copy: Copy) -> bool:
        """Tell whether a command is run before each run of a copy that is repeated."""
        return copy.repeats and bool(self._programs[copy.next_step.benchmark].setup)

    async def _fork(self, children: Iterable[Child]) -> None:
        launcher, placements = self._state.guard.launcher, self._state.job.placements
        observer = self._state.observer
        first_look_ms = 0 if observer is None else observer.first_look_ms
        table = []
        for child in interleave_by_cpus(children, placements):
            child.token = next(launcher.tokens)
            child.move(Move.SEND)
            self.children[child.token] = self.copies[child.copy].coming = child
            flags = self._later_flags if child.after else self._first_flags
            place = placements[child.copy]
            table.append(make_entry(child, place, flags, first_look_ms=first_look_ms))
        await launcher.start(table)

    def begins_no_more(self, copy: Copy) -> bool:
        """Tell whether no further run of a copy is to begin."""
        return copy.is_last or copy.is_through or self._state.stop_flag.is_set()

    def continue_copy(self, copy: Copy) -> None:
        """Have the next run of a copy made, or take note that the copy is over."""
        if copy.coming is not None or copy.is_being_made:
            return
        if self.begins_no_more(copy):
            if copy.child is None:
                self._unfinished.discard(copy.number)
                if not self._unfinished:
                    self.until_over.cancel()
        elif copy.child is None or not self._runs_setup(copy):
            copy.is_being_made = True
            self._to_make.append(copy)
            self._requested.set()

    def end_repeating(self, child: Child) -> None:
        """Begin no further run of a copy that is repeated."""
        copy = self.copies[child.copy]
        copy.is_last |= copy.repeats
        if copy.is_last and copy.coming is not None:
            child.launcher.ask(RequestKind.DISCARD, copy.coming.token)

    def remove(self, child: Child) -> Copy:
        """Forget a run that is over or given up, return its copy; `continue_copy` is to follow."""
        del self.children[child.token]
        copy = self.copies[child.copy]
        if copy.child is child:
            copy.child = None
        else:
            copy.coming = None
        return copy
