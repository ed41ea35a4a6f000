"""The picture of the copies' times as a file, drawn with matplotlib.

Nothing but the data has ink: no frames, no box of keys, a line only where one lgroup
ends and the next begins, numbers at the ends of the data instead of a scale of round
ones. Slow parts are red and have their names beside them; everything else is grey,
later iterations darker. Files are the same for the same run: no dates, no random ids.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rater.errors import InputError
from rater.show.charts.panel import FAINT, INK, POINT, PanelDrawing, Sheet, grey_of
from rater.show.charts.picture import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTINGS: dict[Any, Any] = {  # matplotlib has a type of its own for every key
    "svg.fonttype": "none",  # letters stay letters: they can be searched and are small
    "svg.hashsalt": "rater",
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "path.simplify": False,
    "text.parse_math": False,  # a benchmark may have a dollar in its name
}
# No date, and no version of a library: the same run makes the same file.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "rater"},
    "pdf": {"CreationDate": None, "Creator": "rater", "Producer": "rater"},
    "png": {"Software": "rater"},
}


def draw(picture: Picture, path: Path) -> None:
    """Draw the picture into a file; its suffix, `.svg`, `.png` or `.pdf`, tells the format.

    Raises `InputError` where matplotlib is missing or the file cannot be written.
    """
    write_drawing(drawn(picture, path.suffix.lower().removeprefix(".")), path)


def write_drawing(data: bytes, path: Path) -> None:
    """Write what was drawn; raises `InputError` where that cannot be done."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"-o {path}: cannot be written ({error.strerror})") from error


def drawn(picture: Picture, form: str) -> bytes:
    """Return the picture as a file's content; `form` is svg, png or pdf."""
    sheet = _sheet(picture)
    return rendered(
        sheet.size(len(picture.panels)), lambda figure: _draw_page(figure, picture, sheet), form
    )


def rendered(size: tuple[float, float], paint: Callable[[Figure], None], form: str) -> bytes:
    """Return as a file's content what `paint` draws on a page; size in inches.

    Raises `InputError` where matplotlib is missing.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - half a second, only where a file is drawn
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - the same
        from matplotlib.figure import Figure  # noqa: PLC0415 - the same
    except ImportError as error:
        raise InputError(
            f"drawing files needs matplotlib, which is not installed ({error}); "
            "`pip install matplotlib` installs it, or leave out -o: the terminal needs none"
        ) from error

    with mpl.rc_context():
        mpl.rcdefaults()  # not the user's own settings, made for other pictures
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        paint(figure)
        out = io.BytesIO()
        with warnings.catch_warnings():
            # A host's name may have letters that the font lacks: they are drawn as boxes.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(out, format=form, dpi=160, metadata=_METADATA[form])
    return _rounded(out.getvalue()) if form == "svg" else out.getvalue()


def _sheet(picture: Picture) -> Sheet:
    panels = len(picture.panels)
    places = max(1, len(picture.names))
    if panels == 1:
        dot = min(5.0, max(2.4, 480 / places))
        return Sheet(1, 8.6, 4.4, 0.75, 0.85, 0.45, 0.65, 0.42, 9.0, dot)
    columns = 2 if panels <= 4 else 3 if panels <= 36 else 4
    width = {2: 4.2, 3: 2.5, 4: 2.2}[columns]
    height = 2.0 if columns == 2 else 1.05
    dot = min(3.2, max(1.6, 100 * width / places))
    return Sheet(columns, width, height, 0.52, 0.56, 0.42, 0.5, 0.5, 7.0, dot)


def _draw_page(figure: Figure, picture: Picture, sheet: Sheet) -> None:
    width, height = sheet.size(len(picture.panels))
    figure.text(
        sheet.left / width,
        1 - 0.16 / height,
        picture.title,
        fontsize=sheet.letters + (1 if len(picture.panels) == 1 else 2),
        color=INK,
        va="top",
    )
    _draw_key(figure, picture, sheet)
    last = len(picture.panels) - sheet.columns
    for i, panel in enumerate(picture.panels):
        axes = figure.add_axes(sheet.place(i, len(picture.panels)))
        PanelDrawing(axes, panel, picture, sheet).draw(with_axis=i >= last)


def _draw_key(figure: Figure, picture: Picture, sheet: Sheet) -> None:
    """Write at the right of the title how iterations are told apart, each in its own grey."""
    width, height = sheet.size(len(picture.panels))
    letters = sheet.letters
    words = [(str(it), grey_of(picture, it)) for it in reversed(picture.iterations)]
    if len(words) < 2:
        words = []
    else:
        words.append(("iteration", FAINT))
    if picture.repeated:
        words.insert(0, ("dot: median run of a copy, line: all its runs   ", FAINT))
    right = width - sheet.right
    for text, colour in words:
        figure.text(
            right / width,
            1 - 0.18 / height,
            text,
            fontsize=letters,
            color=colour,
            ha="right",
            va="top",
            weight="bold" if text.isdigit() else "normal",
        )
        right -= (len(text) + 1) * letters * 0.62 * POINT


def _rounded(svg: bytes) -> bytes:
    """Return an SVG with its outlines to a hundredth of a point: half the size, the same look."""
    return re.sub(rb'(?<= d=")[^"]*', lambda d: re.sub(rb"(\.\d\d)\d+", rb"\1", d[0]), svg)
