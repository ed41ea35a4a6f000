-- What was found slow, kept with the run; ../schema.sql says what all means.

CREATE TABLE divot_search (
  run_id          INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  version         INTEGER NOT NULL,
  threshold_group REAL NOT NULL,
  threshold_copy  REAL NOT NULL,
  copy_runs       INTEGER NOT NULL,
  visible         TEXT NOT NULL,
  failed          INTEGER NOT NULL,
  searched_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

CREATE TABLE divot (
  run_id     INTEGER NOT NULL REFERENCES divot_search (run_id) ON DELETE CASCADE,
  position   INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  explained  INTEGER NOT NULL CHECK (explained IN (0, 1)),
  place      TEXT NOT NULL,
  benchmarks TEXT NOT NULL,
  tune       TEXT,
  iterations TEXT NOT NULL,
  copies     TEXT NOT NULL,
  cpus       TEXT NOT NULL,
  nodes      TEXT NOT NULL,
  package    INTEGER,
  core       INTEGER,
  slowdown   REAL NOT NULL,
  score_lost REAL,
  evidence   TEXT NOT NULL,
  finding    TEXT NOT NULL,
  PRIMARY KEY (run_id, position)
) STRICT, WITHOUT ROWID;
