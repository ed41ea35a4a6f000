"""The machine's settings as text and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rater.show.console.format import wrapped
from rater.show.console.page import Page, with_margin
from rater.text.to_json import Members, objects, to_json

_UNBOUNDED = 1 << 30
_INDENT = "  "
_WIDEST = 20  # characters of a value that has its own column
_MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    name: str
    also: str  # the name that runs record it by; "" for none
    group: str
    what: str
    now: str
    choices: tuple[str, ...] | None  # None: numbers from `least` to `most`
    least: int
    most: int
    obstacle: str | None  # why it cannot be set now
    files: tuple[tuple[str, str], ...]  # path, value

    @property
    def takes(self) -> str:
        """The values it takes, for people."""
        if self.choices is not None:
            return ", ".join(self.choices)
        if self.most >= _UNBOUNDED:
            return f"{self.least}.."
        return f"{self.least}..{self.most}"


def settings_text(
    rows: Sequence[SettingRow],
    absent: Sequence[tuple[tuple[str, ...], str]],
    page: Page,
    *,
    detailed: bool,
) -> str:
    """Return settings by group; `absent` are names and why the machine lacks them.

    Neighbours that differ in a page size only share a row, unless `detailed`, which adds the
    files and the names by which runs record them.
    """
    obstacles = {row.obstacle for row in rows}
    common = next(iter(obstacles)) if len(obstacles) == 1 else None
    shown = list(rows) if detailed else list(_merged(rows))
    lines: list[str] = []
    for group, members in groupby(shown, key=lambda row: row.group):
        lines += [*([""] if lines else []), group, *_group(list(members), common, page, detailed)]
    lines += _remarks(absent, common, page, any_rows=bool(rows))
    return page.joined(lines)


def _group(
    rows: Sequence[SettingRow], common: str | None, page: Page, detailed: bool
) -> Iterator[str]:
    name_width = max(len(row.name) for row in rows)
    now_width = max((len(row.now) for row in rows if len(row.now) <= _WIDEST), default=len(_MIXED))
    margin = len(_INDENT) + name_width + 2 + now_width + 2
    room = page.room(margin)
    for row in rows:
        text = f"{row.what}: {row.takes}"
        if row.obstacle and row.obstacle != common:
            text += f" (not now: {row.obstacle})"
        texts, now = wrapped(text, room, indent=""), row.now
        if len(now) > _WIDEST:  # differs from CPU to CPU
            texts, now = [*texts, *wrapped(f"now {now}", room, indent="")], _MIXED
        if detailed:
            texts += _details(row)
        yield from with_margin(f"{_INDENT}{row.name:<{name_width}}  {now}", margin, texts)


def _details(row: SettingRow) -> list[str]:
    """Return the files of a setting, of many the first and how many there are."""
    first = row.files[0][0]
    more = f" and {len(row.files) - 1} more" if len(row.files) > 1 else ""
    return [*([f"recorded as {row.also}"] if row.also else []), f"{first}{more}"]


def _remarks(
    absent: Sequence[tuple[tuple[str, ...], str]],
    common: str | None,
    page: Page,
    *,
    any_rows: bool,
) -> Iterator[str]:
    yield ""
    if absent:
        text = "; ".join(f"{', '.join(names)} ({why})" for names, why in absent)
        yield from wrapped(f"unavailable here: {text}", page.width)
    if common and any_rows:
        yield from wrapped(f"none of them can be set now: {common}", page.width)
    yield from wrapped(
        "set by `rater sweep --axis NAME=VALUE,...`, which puts back what was there", page.width
    )


def _merged(rows: Sequence[SettingRow]) -> Iterator[SettingRow]:
    """Join rows of page sizes that have one value and one use."""

    def family(row: SettingRow) -> tuple[str, ...]:
        parts = row.name.split(".")
        if len(parts) > 1 and parts[1].endswith("kB") and parts[0] == "thp":
            return ("thp", *parts[2:], row.now, row.obstacle or "")
        return (row.name,)

    rest = list(rows)
    while rest:
        first = rest[0]
        same = [row for row in rest if family(row) == family(first)]
        rest = [row for row in rest if row not in same]
        if len(same) == 1:
            yield first
            continue
        least, most = (row.name.split(".")[1] for row in (same[0], same[-1]))
        number = least.removesuffix("kB")
        yield replace(
            first,
            name=first.name.replace(least, f"{number}-{most}"),
            what=first.what.replace(least, "these sizes"),
        )


_SETTING = Members(
    "name recorded_as=also? group what value=now choices",
    {
        "least": lambda row: row.least if row.choices is None else None,
        "most": lambda row: row.most if row.choices is None and row.most < _UNBOUNDED else None,
        "settable": lambda row: row.obstacle is None,
    },
    "obstacle files{}",
)


def settings_document(
    rows: Sequence[SettingRow],
    absent: Sequence[tuple[tuple[str, ...], str]],
    journals: Sequence[str],
) -> dict[str, object]:
    """Return settings for JSON; null for what is unbounded, unknown or no hindrance."""
    return {
        "settings": to_json(rows, {SettingRow: _SETTING}),
        "lacking": objects("names why", absent),
        "journals": [*journals],
    }
