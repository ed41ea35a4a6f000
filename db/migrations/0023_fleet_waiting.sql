-- A job whose node another rater holds is `waiting`, for so long at most; and a fleet that runs the
-- slow hosts of another one again says which.
ALTER TABLE fleet ADD COLUMN busy_limit_s REAL NOT NULL DEFAULT 600;
ALTER TABLE fleet ADD COLUMN confirms INTEGER;  -- number of that fleet; NULL: one of its own

CREATE TABLE fleet_attempt_new (
  fleet_id   INTEGER NOT NULL,
  node       TEXT NOT NULL,
  attempt    INTEGER NOT NULL CHECK (attempt > 0),
  state      TEXT NOT NULL CHECK (state IN ('intent', 'submitted', 'pending', 'running', 'waiting',
               'complete', 'failed', 'partial', 'refused', 'lost', 'timeout', 'cancelled', 'never')),
  reason     TEXT,           -- of its state, in words
  job        TEXT,           -- the scheduler's number
  ending     TEXT CHECK (ending IN ('cancelled', 'never', 'not-needed')),  -- why rater ends the job
  ending_s   REAL,           -- since when
  intended_s REAL NOT NULL,  -- when this row was written
  started_s  REAL,           -- when its job was first seen running
  pending_s  REAL,           -- since when it is pending
  gone_s     REAL,           -- since when its job has ended, with nothing published yet
  ended_s    REAL,
  verdict    TEXT,           -- what the node published, JSON
  collected  TEXT,           -- sha256 of its database, once that was collected
  version    INTEGER NOT NULL DEFAULT 0,  -- how often the row was changed
  pid        INTEGER NOT NULL,  -- who submits it
  pid_start  INTEGER,
  boot_id    TEXT NOT NULL,
  PRIMARY KEY (fleet_id, node, attempt),
  FOREIGN KEY (fleet_id, node) REFERENCES fleet_node (fleet_id, node) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

INSERT INTO fleet_attempt_new SELECT * FROM fleet_attempt;
DROP TABLE fleet_attempt;
ALTER TABLE fleet_attempt_new RENAME TO fleet_attempt;
