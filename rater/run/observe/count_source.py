"""What counts instructions on this machine: the PMU where there is one, else valgrind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from rater.plan.count import CountSource, pmu_source, valgrind_source
from rater.plan.counter_choice import choose_groups
from rater.record.events import COUNT_GROUP
from rater.run.observe.perf import probe_group, this_processor
from rater.run.programs.child_process import run_tool
from rater.system.errors import InputError
from rater.system.paths import sysroot

_VERSION = re.compile(r"valgrind-(\S{1,40})")


def find_count_source() -> CountSource:
    """Return what counts instructions here. Raises `InputError` where nothing does."""
    processor = this_processor(sysroot())
    choice = choose_groups(COUNT_GROUP, processor)
    probe = probe_group(choice.turns[0][0], root=sysroot())
    if probe.ready is not None:
        return pmu_source(processor.name)
    program = shutil.which("valgrind")
    if program is None:
        raise InputError(
            f"--count: no PMU that counts ({probe.why}), and valgrind is not in PATH: install it "
            "(Debian, Ubuntu: apt install valgrind; Fedora: dnf install valgrind)"
        )
    try:
        text = run_tool([program, "--version"], Path("/")).output
    except OSError as error:
        raise InputError(f"--count: {program}: {error.strerror}") from None
    version = _VERSION.match(text)
    if version is None:
        raise InputError(f"--count: {program} --version says {text[:60]!r}; expected valgrind's")
    return valgrind_source(program, version[1])
