-- The one number of a run as lists show it, worked out from its rows once; a run that has other rows
-- since is worked out again.
CREATE TABLE run_score (
  run_id    INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  value     REAL,              -- NULL: not every benchmark has a valid result
  unit      TEXT,              -- ratio, or copies/h
  copy_runs INTEGER NOT NULL,  -- rows of `copy` then
  version   INTEGER NOT NULL   -- of the formula
) STRICT;

-- What lists are narrowed by; tags and hosts of runs have theirs.
CREATE INDEX run_suite ON run (suite);
CREATE INDEX run_started ON run (coalesce(started_at, stored_at));
CREATE INDEX host_hostname ON host (hostname);
