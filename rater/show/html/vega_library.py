"""Vega as one script that asks for nothing: what vl-convert has inside, once more as text."""

from __future__ import annotations

from functools import cache

from rater.errors import InputError

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def library() -> str:
    """Return a script that makes `window.vegaEmbed`; about 900 kB, a second or two to make.

    Raises `InputError` where the extra `rater[report]` is not installed.
    """
    try:
        import vl_convert  # noqa: PLC0415 - 80 MB, only where a page is written
    except ImportError as error:
        raise InputError(
            f"a report needs vl-convert-python, which is not installed ({error}); "
            "`pip install 'rater[report]'` installs it"
        ) from error
    script: str = vl_convert.javascript_bundle(_SNIPPET)
    return f"(function () {{{script}}})();"  # its hundreds of short names stay its own
