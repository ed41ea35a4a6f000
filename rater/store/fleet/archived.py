"""Archived runs of fleets as a store of their own: `fleet:3/n017` wherever runs are only read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rater.errors import InputError
from rater.record.fleet import is_fleet_word
from rater.store.connection import connect
from rater.store.fleet.archive import unpack
from rater.store.fleet.index import find_archived
from rater.store.merge.merge import merge_database
from rater.store.store import Store


class ArchivedStore(Store):
    """Copies of archived runs in a database that goes when it is closed; their words find them."""

    def __init__(self, store: Store, words: Sequence[str]) -> None:
        """Unpack what `words` mean; `store` has the index, and is not needed afterwards.

        Raises `InputError` for words that mean nothing, `RunError` for a damaged archive.
        """
        self._scratch = Path(tempfile.mkdtemp(prefix="rater-archived-"))
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, self._scratch)
            path = self._scratch / "archived.db"
            super().__init__(connect(path), path)
            undo.callback(super().close)
            self.numbers: dict[str, int] = {}
            for word in dict.fromkeys(words):
                self._add(store, word)
            undo.pop_all()

    def _add(self, store: Store, word: str) -> None:
        with store.reading() as connection:
            run = find_archived(connection, word)
            file = unpack(connection, run.sha256, run.bytes, self._scratch)
        merge_database(self, file)
        file.unlink()
        self.numbers[word] = super().find(run.uuid)

    def find(self, spec: str) -> int:
        """Return the number of a word that was unpacked."""
        return self._number(spec)

    def find_all(self, spec: str) -> tuple[int, ...]:
        """Return the same as the only one."""
        return (self._number(spec),)

    def _number(self, spec: str) -> int:
        if spec not in self.numbers:
            raise InputError(
                f"{spec}: runs of a fleet's archive are compared with each other, not with those "
                "of this database; `rater merge` brings a host's published database in"
            )
        return self.numbers[spec]

    def close(self) -> None:
        """Close the database and remove it."""
        try:
            super().close()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)


def fleet_words(words: Sequence[str | None]) -> list[str]:
    """Return those words, and parts of lists `A,B`, that name archived runs."""
    parts = [part.strip() for word in words if word for part in word.split(",")]
    return [part for part in parts if is_fleet_word(part)]
