"""The environment of every copy of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rater.plan.placement.place import Placement
from rater.run.copies.watch import MARKER
from rater.run.workplace.program import Program
from rater.text.cpuset import format_list


class CopyEnvironments:
    """What copies inherit, what is `added` for all of a run, and where each copy is."""

    def __init__(
        self, uuid: str, placements: Sequence[Placement], added: Sequence[tuple[str, str]]
    ) -> None:
        self._placements = placements
        self._added = {name.encode(): os.fsencode(value) for name, value in added}
        self._added[MARKER.encode()] = uuid.encode()
        self._added[b"RATER_COPIES"] = b"%d" % len(placements)
        # Of copies that work where we are.
        self._added[b"RATER_RUN_DIR"] = os.fsencode(Path.cwd())
        self._made: dict[object, list[dict[bytes, bytes]]] = {}

    def of(self, program: Program, copy: int) -> dict[bytes, bytes]:
        """Return what a copy of a program finds, but for its run directory; made once."""
        key = (program.environment, program.threads)
        made = self._made.get(key)
        if made is None:
            # A variable without a name can not be handed on by posix_spawn.
            base = {name: value for name, value in os.environb.items() if name}
            base.update((os.fsencode(n), os.fsencode(value)) for n, value in program.environment)
            base |= self._added
            base[b"RATER_THREADS"] = b"%d" % program.threads
            made = [base | _whereabouts(placement) for placement in self._placements]
            self._made[key] = made
        return made[copy]


def _whereabouts(placement: Placement) -> dict[bytes, bytes]:
    return {
        b"RATER_COPY": b"%d" % placement.copy,
        b"RATER_CPUS": format_list(placement.cpus or ()).encode(),
        b"RATER_NODE": b"" if placement.node is None else b"%d" % placement.node,
    }
