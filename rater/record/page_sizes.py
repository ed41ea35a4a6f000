"""Page sizes that copies had (`--pages`), as they were seen."""

from __future__ import annotations

from rater.record.frozen import record


@record
class PageRegion:
    """One category of data of a copy: of its largest process, when most of it was there.

    Sizes are in bytes. `extent` counts from the start of the region to its last page.
    """

    category: str  # heap, mmap, static
    split: bool  # blocks of 128 KB and more are of mmap, not of heap
    share_of_bytes: int | None  # what shares of the layout were taken of; None: there were none
    extent_bytes: int
    resident_bytes: int
    planned_bytes: int  # of the extent, what was to lie in pages larger than base pages
    touched_bytes: int  # pages of that with anything in them, as a whole
    huge_bytes: int | None  # of it, what did lie in such pages; None: that cannot be seen
    stray_bytes: int  # in larger pages that were not planned
    page_bytes: tuple[tuple[int, int], ...]  # page size, bytes
    largest_page_bytes: int  # that was planned; base pages where none was
    seen: str  # exit, peak, fork: by the library in the copy; look: from outside while it ran
    processes: int  # of the copy that the library was in
    forks: int  # of the largest process
    note: str | None  # in words, what went wrong


@record
class PagesHad:
    """What page sizes a copy's run had; emitted after its phase."""

    phase: int
    copy: int
    step: int
    regions: tuple[PageRegion, ...]  # none: nothing was seen of it
