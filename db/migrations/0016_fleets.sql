-- One call of `rater fleet run`: the same measurement on many nodes. The plan is here before the
-- scheduler hears of it. Times ending in _s are seconds since 1970 by the submit host's clock.
CREATE TABLE fleet (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid            TEXT NOT NULL UNIQUE,
  started_at      TEXT NOT NULL,     -- UTC, ISO 8601
  backend         TEXT NOT NULL,     -- slurm, local
  folder          TEXT NOT NULL,     -- that all nodes see
  scratch         TEXT NOT NULL,     -- on each node's own disk
  directory       TEXT NOT NULL,     -- where it was called, and jobs start
  words           TEXT NOT NULL,     -- behind `rater run` on each node: a JSON list
  command         TEXT,              -- behind `--`: a JSON list; NULL: suites
  command_line    TEXT NOT NULL,     -- how rater was called
  rater_version   TEXT NOT NULL,
  parallel        INTEGER CHECK (parallel > 0),  -- jobs at a time; NULL: any number
  attempts        INTEGER NOT NULL CHECK (attempts > 0),  -- of a node, at most
  minutes         INTEGER CHECK (minutes > 0),   -- time limit of a job; NULL: the scheduler's
  pending_limit_s REAL,              -- a job may be pending; NULL: for ever
  settle_s        REAL NOT NULL,     -- a published file may need to be seen on the submit host
  arguments       TEXT NOT NULL,     -- of the site, for the scheduler: a JSON list
  allow_partial   INTEGER NOT NULL CHECK (allow_partial IN (0, 1)),
  begun           INTEGER NOT NULL DEFAULT 0 CHECK (begun IN (0, 1)),  -- 0: the command that made it
                                     -- was killed, or goes on
  cancelled_at    TEXT,              -- UTC, ISO 8601; NULL: it was not
  pid             INTEGER NOT NULL,  -- of who made it, as in `run`
  pid_start       INTEGER,
  boot_id         TEXT NOT NULL
) STRICT;

CREATE TABLE fleet_node (
  fleet_id INTEGER NOT NULL REFERENCES fleet (id) ON DELETE CASCADE,
  node     TEXT NOT NULL,  -- the key's columns first: quick_check of SQLite 3.40 mistakes others
  position INTEGER NOT NULL,  -- as it was given, from 0
  PRIMARY KEY (fleet_id, node),
  UNIQUE (fleet_id, position)
) STRICT, WITHOUT ROWID;

-- One try at a node: a job. The row is written before the job is submitted.
CREATE TABLE fleet_attempt (
  fleet_id   INTEGER NOT NULL,
  node       TEXT NOT NULL,
  attempt    INTEGER NOT NULL CHECK (attempt > 0),
  state      TEXT NOT NULL CHECK (state IN ('intent', 'submitted', 'pending', 'running', 'complete',
               'failed', 'partial', 'refused', 'lost', 'timeout', 'cancelled', 'never')),
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

-- What became of attempts, one change a row: what is concluded later does not replace it.
CREATE TABLE fleet_change (
  id       INTEGER PRIMARY KEY,
  fleet_id INTEGER NOT NULL,
  node     TEXT NOT NULL,
  attempt  INTEGER NOT NULL,
  at_s     REAL NOT NULL,
  state    TEXT NOT NULL,
  reason   TEXT,
  FOREIGN KEY (fleet_id, node, attempt) REFERENCES fleet_attempt (fleet_id, node, attempt)
    ON DELETE CASCADE
) STRICT;

CREATE INDEX fleet_change_of ON fleet_change (fleet_id, node, attempt);
