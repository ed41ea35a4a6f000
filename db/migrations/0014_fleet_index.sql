-- The index of a fleet: what lists, comparisons and histories of many hosts ask for. The databases
-- that nodes published stay whole in the archive beside this database (NAME.archive/, by SHA-256).

-- Settings of machines as a JSON object: those of a fleet's hosts are mostly the same ones.
CREATE TABLE fleet_setting (
  id       INTEGER PRIMARY KEY,
  sha256   TEXT NOT NULL UNIQUE,
  settings TEXT NOT NULL
) STRICT;

-- A run in a published database. Lists by fleet and host go by its key.
CREATE TABLE fleet_run (
  fleet           INTEGER NOT NULL,  -- number of the fleet
  host            TEXT NOT NULL,     -- the node, as the scheduler calls it
  attempt         INTEGER NOT NULL,  -- of that node, from 1
  run             INTEGER NOT NULL,  -- its number in the published database
  uuid            TEXT NOT NULL,
  hostname        TEXT,              -- as the machine calls itself
  machine_id_hash TEXT,
  status          TEXT NOT NULL,
  reason          TEXT,
  started_at      TEXT,              -- by the host's clock
  suite           TEXT,
  size            TEXT,
  tune            TEXT,
  mode            TEXT NOT NULL,
  copies          INTEGER NOT NULL,
  cpu_model       TEXT,
  microcode       TEXT,
  memory_bytes    INTEGER,
  kernel          TEXT,
  cpus            INTEGER NOT NULL,  -- that it could use
  setting         INTEGER NOT NULL REFERENCES fleet_setting (id),
  copy_runs       INTEGER NOT NULL,  -- stored, and of them those that did not end well
  failed          INTEGER NOT NULL,
  sha256          TEXT NOT NULL,     -- of the published database, which the archive has by this name
  bytes           INTEGER NOT NULL,  -- before compression
  PRIMARY KEY (fleet, host, attempt, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX fleet_run_started ON fleet_run (started_at);
CREATE INDEX fleet_run_host ON fleet_run (host, started_at);
CREATE INDEX fleet_run_archived ON fleet_run (sha256);

-- Times of a host in one benchmark, in this order because all hosts are compared in one benchmark.
CREATE TABLE result (
  fleet     INTEGER NOT NULL,
  benchmark TEXT NOT NULL,
  host      TEXT NOT NULL,
  attempt   INTEGER NOT NULL,
  run       INTEGER NOT NULL,
  bracket_s TEXT,           -- of each counted iteration that is valid, as JSON; NULL: there are none
  copy_s    TEXT NOT NULL,  -- the median copy's time in the same iterations
  PRIMARY KEY (fleet, benchmark, host, attempt, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX result_host ON result (host, benchmark);
