"""Text as SPEC CPU packs it into a raw file (`rawconfig000`, `rawconfig001`, ...).

The lines joined are one character and base64. `@`: a zlib stream. `&`: a byte 0xf0, the
length of the text as four bytes, most significant first, and a bzip2 stream (Perl's
`Compress::Bzip2`). Found in the real files of CPU2006 and CPU2017.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import textwrap
import zlib
from collections.abc import Mapping

from rater.speccpu.results.lines import as_text

_MOST_BYTES = 16 << 20  # of the text; a real configuration has 20 KB, and a bomb has no end
_HEADER_BYTES = 5
_WIDTH = 76


def unpack(pieces: Mapping[int, str]) -> str:
    """Return the text of numbered pieces; raises `ValueError` saying what is wrong with them."""
    missing = [number for number in range(max(pieces, default=-1) + 1) if number not in pieces]
    if missing:
        raise ValueError(f"piece {missing[0]:03} of {max(pieces) + 1} is missing")
    joined = "".join(pieces[number] for number in sorted(pieces)).strip()
    kind, coded = joined[:1], joined[1:]
    if kind not in ("@", "&"):
        raise ValueError(f"packed in a way that is not known ({kind!r})")
    try:
        data = base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"no base64 ({error})") from None
    try:
        if kind == "@":
            text = zlib.decompressobj().decompress(data, _MOST_BYTES + 1)
        else:
            text = bz2.BZ2Decompressor().decompress(data[_HEADER_BYTES:], _MOST_BYTES + 1)
    except (zlib.error, OSError, EOFError) as error:
        raise ValueError(f"cannot be unpacked ({error})") from None
    if len(text) > _MOST_BYTES:
        raise ValueError(f"longer than {_MOST_BYTES >> 20} MiB")
    if kind == "&" and len(text) != int.from_bytes(data[1:_HEADER_BYTES], "big"):
        raise ValueError("shorter than it says: it is cut off")
    return as_text(text)


def pack(text: str) -> list[str]:
    """Return the pieces, in order, of a text packed with zlib: what `unpack` takes back."""
    data = zlib.compress(text.encode("utf-8", "replace"), 9)
    return textwrap.wrap("@" + base64.b64encode(data).decode("ascii"), _WIDTH)
