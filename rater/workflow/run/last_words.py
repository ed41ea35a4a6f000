"""What a program that failed said of it itself."""

from __future__ import annotations

from rater.analysis.results.copy_outcome import is_good
from rater.record.stored import StoredRun
from rater.run.workplace.stderr_tail import stderr_tail


def last_words(run: StoredRun) -> str:
    """Return the last lines of a failed copy's standard error, "" where there are none."""
    failed = [copy.run_dir for copy in run.copies if copy.run_dir and not is_good(copy)]
    lines = stderr_tail(failed[0]) if failed else []
    return "\n".join(["end of its standard error:", *(f"  {it}" for it in lines)]) if lines else ""
