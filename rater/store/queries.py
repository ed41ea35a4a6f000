"""The questions of `db/queries`: of one run as they stand there, and of many runs at once."""

from __future__ import annotations

from functools import cache

from rater.system.paths import data_folder

AMONG_RUNS = "IN (SELECT value FROM json_each(:runs))"  # those that are read together
_OF_ONE_RUN = "= coalesce(:run, (SELECT max(id) FROM run))"


@cache
def named_query(query: str) -> str:
    """Return the text of `db/queries/QUERY.sql`."""
    return (data_folder("db") / "queries" / f"{query}.sql").read_text(encoding="utf-8")


@cache
def query_of_runs(query: str) -> str:
    """Return the text of a named query of one run as one of all `:runs`, with their `run_id`."""
    lines = named_query(query).splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    head, condition, _ = text.partition(_OF_ONE_RUN)
    if not condition:
        raise RuntimeError(f"{query}.sql: expected a condition {_OF_ONE_RUN}")
    column = head.split()[-1]
    text = text.replace(_OF_ONE_RUN, AMONG_RUNS)
    text = text.replace("SELECT", f"SELECT {column} AS run_id,", 1)
    return text.replace("ORDER BY", f"ORDER BY {column},", 1)


def query_of_phase_readings() -> str:
    """Return the text of `phase_readings.sql` of all `:runs`, a row a phase with lists in JSON."""
    return (
        "SELECT run_id, phase, json_group_array(name), json_group_array(value) "
        f"FROM ({query_of_runs('phase_readings').rstrip().removesuffix(';')}) "
        "GROUP BY run_id, phase"
    )
