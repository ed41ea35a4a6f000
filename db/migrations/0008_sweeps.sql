-- Sweeps: runs that belong together; ../schema.sql says what all means.

CREATE TABLE sweep (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid            TEXT NOT NULL UNIQUE,
  status          TEXT NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'interrupted')),
  reason          TEXT,
  started_at      TEXT NOT NULL,
  ended_at        TEXT,
  rounds          INTEGER NOT NULL CHECK (rounds > 0),
  block_order     TEXT NOT NULL CHECK (block_order IN ('shuffled', 'given', 'abba')),
  seed            INTEGER NOT NULL,
  until           REAL,
  stop_on_failure INTEGER NOT NULL CHECK (stop_on_failure IN (0, 1)),
  suite           TEXT,
  command_line    TEXT NOT NULL,
  rater_version   TEXT NOT NULL,
  directory       TEXT NOT NULL,
  file            TEXT,
  file_sha256     TEXT,
  file_text       TEXT,
  pid             INTEGER NOT NULL,
  pid_start       INTEGER NOT NULL,
  boot_id         TEXT NOT NULL,
  resumed         INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE sweep_axis (
  sweep_id INTEGER NOT NULL REFERENCES sweep (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  name     TEXT NOT NULL,
  kind     TEXT NOT NULL CHECK (kind IN ('option', 'environment', 'setting')),
  PRIMARY KEY (sweep_id, position),
  UNIQUE (sweep_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE sweep_point (
  sweep_id INTEGER NOT NULL REFERENCES sweep (id) ON DELETE CASCADE,
  point    INTEGER NOT NULL,
  label    TEXT NOT NULL,
  request  TEXT NOT NULL,
  left_out TEXT,
  PRIMARY KEY (sweep_id, point)
) STRICT, WITHOUT ROWID;

CREATE TABLE sweep_value (
  sweep_id INTEGER NOT NULL,
  point    INTEGER NOT NULL,
  axis     TEXT NOT NULL,
  value    TEXT NOT NULL,
  PRIMARY KEY (sweep_id, point, axis),
  FOREIGN KEY (sweep_id, point) REFERENCES sweep_point (sweep_id, point) ON DELETE CASCADE,
  FOREIGN KEY (sweep_id, axis) REFERENCES sweep_axis (sweep_id, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE sweep_slot (
  sweep_id INTEGER NOT NULL,
  block    INTEGER NOT NULL,
  position INTEGER NOT NULL,
  point    INTEGER NOT NULL,
  PRIMARY KEY (sweep_id, block, position),
  UNIQUE (sweep_id, block, point),
  FOREIGN KEY (sweep_id, point) REFERENCES sweep_point (sweep_id, point) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE sweep_run (
  run_id   INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  sweep_id INTEGER NOT NULL,
  block    INTEGER NOT NULL,
  point    INTEGER NOT NULL,
  phases   INTEGER NOT NULL,
  replaced INTEGER NOT NULL DEFAULT 0 CHECK (replaced IN (0, 1)),
  FOREIGN KEY (sweep_id, block, point) REFERENCES sweep_slot (sweep_id, block, point)
    ON DELETE CASCADE
) STRICT;

CREATE UNIQUE INDEX sweep_run_once ON sweep_run (sweep_id, block, point) WHERE replaced = 0;

-- Every run that a sweep planned, and what there is of it.
CREATE VIEW sweep_progress AS
SELECT
  slot.sweep_id, slot.block, slot.position, slot.point, point.label,
  sweep_run.run_id, run.status,
  coalesce(
    run.status = 'complete'
    OR run.status = 'failed' AND sweep_run.phases = (
      SELECT count(*) FROM bracket
      WHERE bracket.run_id = run.id AND bracket.complete AND NOT bracket.torn
    ),
    0
  ) AS done,
  (SELECT (max(finish_ns) - min(start_ns)) / 1e9 FROM bracket
   WHERE bracket.run_id = run.id) AS elapsed_s
FROM sweep_slot AS slot
JOIN sweep_point AS point ON point.sweep_id = slot.sweep_id AND point.point = slot.point
LEFT JOIN sweep_run
  ON sweep_run.sweep_id = slot.sweep_id AND sweep_run.block = slot.block
  AND sweep_run.point = slot.point AND NOT sweep_run.replaced
LEFT JOIN run ON run.id = sweep_run.run_id;
