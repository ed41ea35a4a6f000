"""The picture of the copies' times with the signs of a terminal.

Braille signs hold 2 x 4 dots, ASCII ones two heights. Dotted lines stand
between lgroups, and what a slow part is above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from rater.show.charts.panels import failed_text, label_text, outside_text, ticks, time_text
from rater.show.charts.picture import Dot, Label, Panel, Picture
from rater.show.console import Printer
from rater.show.format import crop, sanitize

_LEAST_WIDTH = 30
_MOST_STACKED = 12  # iterations of one benchmark that have a panel each
_HEIGHTS = 3, 16  # lines of dots in a panel, least and most
_ALL_LINES = 10  # of dots, where nothing says how high the screen is
_AROUND = 6  # lines that are no panel's: title, axis, the shell's prompt before and after
_BESIDE_DOTS = 3  # lines of a panel that are not dots: blank, title, names of the slow
_WITH_PERCENT = 56  # lines as wide as this have per cent at the right
_PERCENT = 9  # cells for it
_WIDEST_DOT = 4  # columns; a single one of eight copies would be lost
_LABEL_LINES = 3
_TIE = 1e-6  # of a row: what lies between two is in the upper one
_COPY_CELLS = 4  # for a copy's number
_BRAILLE = 0x2800
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, then row
_ASCII_SIGNS = " '.:"  # upper half 1, lower half 2
_SLOW = Style(color="red", bold=True)
_EXPLAINED = Style(color="blue", bold=True)
_GRID = Style(dim=True)
_TITLE = Style(bold=True)
# Grey on grey, so that both dark and light grounds show them; that of the latest first.
_SHADES = ("default", "grey58", "grey50", "grey42")


class _PlotArea(Struct, frozen=True):
    """Where things lie in a line, in cells of the terminal."""

    left: int
    plot: int
    right: int
    places: int
    ascii_only: bool

    @property
    def fine(self) -> tuple[int, int]:
        """Columns and rows of dots in one cell."""
        return (1, 2) if self.ascii_only else (2, 4)

    def column(self, place: float) -> float:
        """Return the column of dots, from 0, in which the middle of a place lies."""
        return (place + 0.5) * self.plot * self.fine[0] / max(1, self.places)

    def cell(self, place: float) -> int:
        """Return the cell in which it lies."""
        return min(self.plot - 1, int(self.column(place)) // self.fine[0])

    def text(self, left: str, plot: Text | str, right: str = "") -> Text:
        """Return a line: what stands before the dots, among them, and behind them."""
        line = Text(f"{left:>{self.left - 1}} ")
        line.append(plot)
        if self.right and right:
            line.append(" " * (self.left + self.plot - line.cell_len) + f" {right}")
        line.rstrip()
        return line


class _Canvas:
    """Dots in cells, each cell with the style of what matters most in it."""

    def __init__(self, room: _PlotArea, height: int) -> None:
        self.room = room
        self.height = height
        self._bits = [[0] * room.plot for _ in range(height)]
        self._signs: dict[tuple[int, int], str] = {}
        self._styles: dict[tuple[int, int], tuple[int, Style]] = {}

    def dot(self, column: int, row: int, rank: int, style: Style) -> None:
        """Set one dot; of several styles in a cell the one of the highest rank stays."""
        wide, high = self.room.fine
        x, y = column // wide, row // high
        if self.room.ascii_only:
            self._bits[y][x] |= 1 << row % high
        else:
            self._bits[y][x] |= _BITS[column % wide][row % high]
        self._style(x, y, rank, style)

    def sign(self, x: int, y: int, sign: str, rank: int, style: Style) -> None:
        """Put a sign into a cell instead of its dots."""
        self._signs[x, y] = sign
        self._style(x, y, rank, style)

    def line(self, y: int, boundaries: frozenset[int]) -> Text:
        """Return a row of cells with the grid where there is no dot."""
        text = Text()
        for x, bits in enumerate(self._bits[y]):
            sign = self._signs.get((x, y))
            if sign is None and bits:
                sign = _ASCII_SIGNS[bits] if self.room.ascii_only else chr(_BRAILLE | bits)
            if sign is not None:
                text.append(sign, self._styles[x, y][1])
            elif x in boundaries:
                text.append("|" if self.room.ascii_only else "┊", _GRID)
            else:
                text.append(" ")
        return text

    def _style(self, x: int, y: int, rank: int, style: Style) -> None:
        if rank >= self._styles.get((x, y), (-1, style))[0]:
            self._styles[x, y] = (rank, style)


def print_picture(picture: Picture, printer: Printer) -> None:
    """Print the panels one below the other, and the axis of copies at the end."""
    panels = _stacked(picture)
    width = max(_LEAST_WIDTH, printer.width)
    seconds = [text for panel in panels for _, text, _ in ticks(panel)]
    left = max(map(cell_len, ("lgroup", *seconds))) + 1
    right = _PERCENT if width >= _WITH_PERCENT else 0
    room = _PlotArea(left, width - left - right, right, len(picture.names), printer.ascii_only)
    height = _height(len(panels), printer.console.height if printer.console.is_terminal else None)

    printer.prose(picture.title, "bold")
    if picture.repeated:
        printer.prose("copies ran several times: the median run of each")
    lines = (
        line for panel in panels for line in (Text(), *_panel_lines(panel, picture, room, height))
    )
    for line in (*lines, *_axis_lines(picture, room)):
        # Signs beyond ASCII are in names of benchmarks only, and those the printer cleans.
        printer.console.print(line, soft_wrap=True, highlight=False)


def _height(panels: int, lines: int | None) -> int:
    """Return the lines of dots of each panel; `lines`: of the terminal, None where it is none."""
    least, most = _HEIGHTS
    room = _ALL_LINES if lines is None else lines - _AROUND - _BESIDE_DOTS * panels
    return max(least, min(most, room // max(1, panels)))


def _stacked(picture: Picture) -> tuple[Panel, ...]:
    """Return the panels; the only one as one for each iteration, which no colour tells apart."""
    if len(picture.panels) != 1 or not 1 < len(picture.iterations) <= _MOST_STACKED:
        return picture.panels
    (panel,) = picture.panels
    return tuple(
        replace(
            panel,
            title=f"{panel.title}, iteration {iteration}",
            dots=tuple(dot for dot in panel.dots if dot.iteration == iteration),
            failed=tuple(one for one in panel.failed if one[1].iteration == iteration),
            labels=tuple(
                replace(label, iterations=())
                for label in panel.labels
                if not label.iterations or iteration in label.iterations
            ),
        )
        for iteration in picture.iterations
    )


def _panel_lines(panel: Panel, picture: Picture, room: _PlotArea, height: int) -> Iterator[Text]:
    yield _title_line(panel, room)
    if not panel.dots:
        yield room.text("", "no copy ran well" if panel.failed else "no copy ran")
        return
    yield from _label_lines(panel, room)
    canvas = _Canvas(room, height)
    named = {dot: _style(label) for label, dots in reversed(panel.parts()) for dot in dots}
    for dot in sorted(panel.dots, key=lambda dot: dot.iteration):
        _draw(canvas, dot, panel, picture, named.get(dot))
    # Of two ticks in one row the one nearer the median stays.
    by_distance = sorted(ticks(panel), key=lambda tick: -abs(tick[0] - (panel.median_s or 0)))
    rows = {_row(panel, at, canvas) // room.fine[1]: texts for at, *texts in by_distance}
    boundaries = _boundaries(picture, room)
    for y in range(height):
        seconds, share = rows.get(y, ("", ""))
        yield room.text(seconds, canvas.line(y, boundaries), share)
    if panel.failed:
        marks = _Canvas(room, 1)
        for place, _ in panel.failed:
            marks.sign(room.cell(place), 0, "x" if room.ascii_only else "×", 1, _SLOW)
        yield room.text("failed", marks.line(0, boundaries))


def _title_line(panel: Panel, room: _PlotArea) -> Text:
    line = Text(sanitize(panel.title, ascii_only=room.ascii_only), _TITLE)
    if panel.median_s is not None:
        line.append(f"  median {_plain(time_text(panel.median_s), room)}", Style(bold=False))
    for label in panel.overall():
        line.append(f"  {_plain(label_text(label, panel), room)}", _style(label))
    failed = failed_text(panel)
    if failed:
        line.append(f"  {failed}", _SLOW)
    line.truncate(room.left + room.plot + room.right, overflow="crop")
    return line


def _label_lines(panel: Panel, room: _PlotArea) -> list[Text]:
    """Return lines with the names of the slow parts, each above its part as far as it fits."""
    wanted: list[tuple[int, str, Style]] = []
    for label, dots in panel.parts():
        cells = {room.cell(dot.place) for dot in dots}
        wanted.append((sum(cells) // len(cells), label_text(label, panel), _style(label)))
    for above in (True, False):
        beyond = panel.outside(above=above)
        if beyond:
            wanted.append((room.cell(beyond[0].place), outside_text(beyond), _SLOW))
    lines: list[Text] = []
    left_over = 0
    for middle, words, style in sorted(wanted, key=lambda item: item[0]):
        text = crop(_plain(words, room), room.plot, ascii_only=room.ascii_only)
        begin = max(0, min(middle - cell_len(text) // 2, room.plot - cell_len(text)))
        line = next((line for line in lines if line.cell_len + 2 <= begin or not line), None)
        if line is None:
            if len(lines) == _LABEL_LINES:
                left_over += 1
                continue
            line = Text()
            lines.append(line)
        line.append(" " * (begin - line.cell_len)).append(text, style)
    if left_over:
        lines.append(Text(f"and {left_over} more", _SLOW))
    # The first taken line is the lowest: the names stay near what they name.
    return [room.text("", line) for line in reversed(lines)]


def _draw(canvas: _Canvas, dot: Dot, panel: Panel, picture: Picture, named: Style | None) -> None:
    """Draw one dot; `named`: the style of the label that names it."""
    room = canvas.room
    rank = picture.iterations.index(dot.iteration)
    style = Style(color=_SHADES[picture.shade(dot.iteration)])
    if named is not None:
        rank += (1 if named is _EXPLAINED else 2) * len(picture.iterations)
        style = named
    if not panel.is_inside(dot):
        above = dot.elapsed_s > panel.high_s
        signs = "^v" if room.ascii_only else "▲▼"
        y = 0 if above else canvas.height - 1
        canvas.sign(room.cell(dot.place), y, signs[0 if above else 1], 10**6, _SLOW)
        return
    row = _row(panel, dot.elapsed_s, canvas)
    columns = room.plot * room.fine[0]
    width = max(1, min(_WIDEST_DOT * room.fine[0] // 2, columns // max(1, room.places) - 1))
    begin = (
        int(room.column(dot.place) - width / 2 + 0.5) if width > 1 else int(room.column(dot.place))
    )
    for column in range(begin, begin + width):
        canvas.dot(min(columns - 1, max(0, column)), row, rank, style)


def _row(panel: Panel, seconds: float, canvas: _Canvas) -> int:
    """Return the row of dots of a time, from 0 at the top."""
    share = (panel.high_s - seconds) / (panel.high_s - panel.low_s)
    rows = canvas.height * canvas.room.fine[1]
    return min(rows - 1, max(0, int(share * rows - _TIE)))


def _style(label: Label) -> Style:
    return _EXPLAINED if label.explained else _SLOW


def _axis_lines(picture: Picture, room: _PlotArea) -> Iterator[Text]:
    """Yield the numbers of the lgroups below their places, and of the copies."""
    if picture.groups:
        names = [(room.cell(g.first + (g.size - 1) / 2), g.name) for g in picture.groups]
        yield room.text("lgroup", _spaced(names, room.plot))
    places: Sequence[int] = range(len(picture.names))
    if len(places) > room.plot // _COPY_CELLS:
        if not picture.ascending:
            return  # a few of many numbers in no order say nothing
        places = picture.marks()
    marks = [(room.cell(place), str(picture.names[place])) for place in places]
    yield room.text(picture.axis, _spaced(marks, room.plot))


def _spaced(marks: Sequence[tuple[int, str]], width: int) -> str:
    """Return as many of the marks as fit, evenly chosen, each in the middle of its cell."""
    step = 1
    while True:
        line = ""
        for middle, text in marks[::step]:
            begin = max(0, min(middle - (len(text) - 1) // 2, width - len(text)))
            if line and begin <= len(line):
                break
            line += " " * (begin - len(line)) + text
        else:
            return line
        step += 1


def _boundaries(picture: Picture, room: _PlotArea) -> frozenset[int]:
    """Return the cells in which one lgroup ends and another begins; none where they are many."""
    if len(picture.groups) > room.plot // 3:
        return frozenset()
    return frozenset(
        int(group.first * room.plot / room.places) for group in picture.groups[1:] if group.first
    )


def _plain(text: str, room: _PlotArea) -> str:
    return sanitize(text.replace("µ", "u"), ascii_only=True) if room.ascii_only else sanitize(text)
