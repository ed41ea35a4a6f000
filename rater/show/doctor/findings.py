"""What the doctor found, as text for a terminal and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.doctor.examine import by_verdict
from rater.analysis.doctor.model import DoctorFinding, DoctorVerdict
from rater.plan.topology.lgroup_memory import PoolRoom
from rater.show.console.page import Page
from rater.text.to_json import Members, to_json

_INDENT = "  "
_MOST_LINES = 12  # of a summary that is to fit on a screen of 24 lines
_WAY_TO_DETAILS = "`rater doctor -v` explains each and gives the command that improves it."


@dataclass(frozen=True, slots=True)
class DoctorView:
    """All that is shown."""

    findings: tuple[DoctorFinding, ...]
    rooms: tuple[PoolRoom, ...]  # empty of a stored run
    tuned: Mapping[str, str]  # what `rater run --tuned` would set
    of: str  # "this machine", or "the machine of run 7"


def doctor_text(view: DoctorView, page: Page, *, detailed: bool) -> str:
    """Return a summary that fits a page, or with `detailed` all that there is to say."""
    lines = page.prose(_headline(view))
    found = by_verdict(view.findings)
    if detailed:
        for members in found.values():
            for one in members:
                lines += ["", *_details(one, page)]
    else:
        to_mend = (*found[DoctorVerdict.BAD], *found[DoctorVerdict.CONSIDER])
        shown = list(_that_fit(to_mend, page))
        for one in shown:
            lines += _row(one, page)
        if len(shown) < len(to_mend):
            more = ", ".join(
                f"{one.check} (BAD)" if one.verdict is DoctorVerdict.BAD else one.check
                for one in to_mend[len(shown) :]
            )
            lines += page.prose(f"and to consider: {more}")
        for verdict in (DoctorVerdict.GOOD, DoctorVerdict.UNKNOWN):
            names = ", ".join(one.check for one in found[verdict])
            lines += page.prose(f"{verdict.value}: {names}") if names else []
    if view.rooms:
        lines += [""] if detailed else []
        lines += _rooms(view.rooms, page, detailed=detailed)
    if view.tuned:
        words = ", ".join(f"{name}={value}" for name, value in view.tuned.items())
        lines += page.prose(f"`rater run --tuned` sets for a run: {words}.")
    if not detailed:
        lines += page.prose(_WAY_TO_DETAILS)
    return page.joined(lines)


def _headline(view: DoctorView) -> str:
    found = by_verdict(view.findings)
    told = [f"{len(members)} {verdict.value}" for verdict, members in found.items() if members]
    return f"{view.of}: {', '.join(told)}".replace("consider", "to consider (?)", 1)


def _that_fit(members: Sequence[DoctorFinding], page: Page) -> Iterator[DoctorFinding]:
    """Yield as many as have room, the first at any rate."""
    taken = 0
    for one in members:
        taken += len(_row(one, page))
        if taken > max(_MOST_LINES, len(_row(members[0], page))):
            return
        yield one


def _row(one: DoctorFinding, page: Page) -> list[str]:
    """Return verdict, check and what was seen, broken between words."""
    mark = "BAD" if one.verdict is DoctorVerdict.BAD else "?"
    begin = f"{mark:<4}{one.check:<15} "
    return page.beside(begin, len(begin), [one.seen])


def _details(one: DoctorFinding, page: Page) -> list[str]:
    lines = page.beside(f"{one.check}", 16, [f"{one.verdict.value.upper()}: {one.seen}"])
    lines += page.beside(f"{_INDENT}why", 16, [one.why])
    if one.command and one.verdict is not DoctorVerdict.GOOD:
        # Whole, however long: it is to be copied.
        lines.append(f"{_INDENT}{'mend':<14}{one.command}")
    return lines


def _rooms(rooms: Sequence[PoolRoom], page: Page, *, detailed: bool) -> Iterator[str]:
    """Yield what pools could have now, and with `detailed` the command."""
    if not detailed:
        by_size: dict[int, list[PoolRoom]] = {}
        for room in rooms:
            by_size.setdefault(room.size_bytes, []).append(room)
        words = [_range_words(size, own) for size, own in sorted(by_size.items())]
        yield from page.prose(f"huge pages to be had now on each lgroup: {'; '.join(words)}")
        return
    yield "huge pages to be had now, beside those in the pools"
    for room in rooms:
        yield from page.beside(
            f"{_INDENT}lgroup {room.node}",
            16,
            [
                f"{_room_words(room)} ({room.total} in the pool, {room.free} of them free)"
                + ("" if room.ready is None else f"; {room.most} at most, after compaction")
            ],
        )
        more = room.most if room.ready is None else room.ready
        yield f"{_INDENT}{'':14}echo {room.total + more} > {room.path}"
        if room.ready is None:
            yield from page.beside(
                "",
                16,
                [
                    "no count tells how many lie in one piece: read back what it became, or boot "
                    f"with hugepagesz={room.size_bytes >> 30}G hugepages=N"
                ],
            )


def _range_words(size_bytes: int, rooms: Sequence[PoolRoom]) -> str:
    """Return `2 MB: 5860 (lgroup 0) to 14000 (lgroup 1)`."""

    def pages(room: PoolRoom) -> int:
        return room.most if room.ready is None else room.ready

    fewest, most = min(rooms, key=pages), max(rooms, key=pages)
    up_to = "at most " if fewest.ready is None else ""
    begin = f"{_size(size_bytes)} {up_to}{pages(fewest)}"
    if pages(fewest) == pages(most):
        return begin
    return f"{begin} (lgroup {fewest.node}) to {pages(most)} (lgroup {most.node})"


def _room_words(room: PoolRoom) -> str:
    size = _size(room.size_bytes)
    if room.ready is None:
        return f"at most {room.most} of {size}"
    return f"{room.ready} of {size}"


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB")):
        if size_bytes >= unit:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes >> 10} kB"


TABLE = {
    DoctorFinding: Members("check verdict seen why command settings{}"),
    PoolRoom: Members(
        "lgroup=node size_bytes total_pages=total free_pages=free more_now=ready more_at_most=most"
        " file=path setting"
    ),
}


def doctor_document(view: DoctorView) -> dict[str, object]:
    """Return all of it for JSON; `more_now` null: the kernel does not tell."""
    found = by_verdict(view.findings)
    return {
        "of": view.of,
        "counts": {verdict.value: len(members) for verdict, members in found.items()},
        "findings": to_json(view.findings, TABLE),
        "huge_pages": to_json(view.rooms, TABLE),
        "tuned": dict(view.tuned),
    }
