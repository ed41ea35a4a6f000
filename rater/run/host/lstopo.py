"""The machine by `lstopo`, where no module of hwloc can be loaded, as with musl or on ppc64le."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from rater.system.errors import InputError

_PROGRAMS: Final = ("lstopo-no-graphics", "lstopo")
_LONGEST_S: Final = 60.0
INSTALL: Final = (
    "install hwloc's lstopo (Debian, Ubuntu: apt install hwloc-nox; Alpine: apk add hwloc)"
)


def lstopo_xml(synthetic: str | None) -> str | None:
    """Return hwloc's XML of this machine or of a description; None: there is no lstopo.

    Raises `InputError` with what lstopo says where it fails.
    """
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        return None
    # Disallowed parts keep their place so that logical indexes are those of the machine.
    wanted = ["--disallowed"] if synthetic is None else ["--input", synthetic]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HWLOC_")}
    try:
        ended = subprocess.run(
            [program, "--of", "xml", *wanted],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{program} cannot read this machine: {error}") from None
    if ended.returncode:
        said = ended.stderr.decode("utf-8", "replace").strip()[-200:]
        raise InputError(f"{program} --of xml ends with {ended.returncode}: {said}")
    return ended.stdout.decode("utf-8", "replace")
