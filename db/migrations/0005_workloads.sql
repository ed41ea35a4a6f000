-- The commands that a copy ran in order, where it ran several; ../schema.sql says what all means.

CREATE TABLE workload (
  run_id     INTEGER NOT NULL,
  phase      INTEGER NOT NULL,
  copy       INTEGER NOT NULL,
  step       INTEGER NOT NULL,
  workload   INTEGER NOT NULL,
  start_ns   INTEGER,
  finish_ns  INTEGER,
  elapsed_ns INTEGER NOT NULL CHECK (elapsed_ns >= 0),
  exit_code  INTEGER,
  signal     INTEGER,
  pid        INTEGER,
  PRIMARY KEY (run_id, phase, copy, step, workload),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
