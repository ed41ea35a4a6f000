"""The preloaded library: built into the cache as a suite's kernel is."""

from __future__ import annotations

from pathlib import Path

from rater.errors import InputError
from rater.run.programs.compile import Built, compile_program

_SOURCES = Path(__file__).parent / "preload"
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-builtin-malloc")
_LIBRARIES = ("-ldl", "-lpthread")


def build_library(cache: Path, *, split: bool) -> Built:
    """Build the library; `split`: the one that keeps large blocks apart.

    Raises `InputError` with the compiler's message, or the way out.
    """
    sources = tuple(sorted(_SOURCES.glob("*.c")))
    name = "rater-pages.so"
    flags: tuple[str, ...] = _FLAGS
    if split:
        name, flags = "rater-pages-split.so", (*_FLAGS, "-DSPLIT")
    built = compile_program(name, sources, flags, _LIBRARIES, cache)
    if any(sign in str(built.executable) for sign in " :"):
        raise InputError(
            f"--pages: the library lies in {built.executable.parent}, and LD_PRELOAD takes no path "
            "with blanks or colons: set RATER_CACHE to another folder"
        )
    return built
