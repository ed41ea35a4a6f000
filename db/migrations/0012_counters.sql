-- What the hardware (and the kernel) counted of each copy run (--counters): of all its processes and
-- threads, from its exec on. What a group's events mean says its table, which is kept with the run's
-- settings as rater.counters.TABLE.
CREATE TABLE copy_count (
  run_id     INTEGER NOT NULL,
  phase      INTEGER NOT NULL,
  copy       INTEGER NOT NULL,
  step       INTEGER NOT NULL,
  group_name TEXT NOT NULL,     -- events counted at the same time, with their table: intel-skx:numa
  event      TEXT NOT NULL,
  value      INTEGER,           -- as it was counted; NULL: it had no counter
  enabled_ns INTEGER NOT NULL,  -- CPU time while it was to be counted, of all threads together
  running_ns INTEGER NOT NULL,  -- and while it was: less where others had the counters (scale by it)
  PRIMARY KEY (run_id, phase, copy, step, group_name, event),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What counting the copies of a phase cost: CPU time of rater outside of their times, all together.
CREATE TABLE counted (
  run_id    INTEGER NOT NULL,
  phase     INTEGER NOT NULL,
  user_only INTEGER NOT NULL CHECK (user_only IN (0, 1)),  -- 1: without what the kernel did for them
  copies    INTEGER NOT NULL,  -- runs of copies
  open_ns   INTEGER NOT NULL,
  read_ns   INTEGER NOT NULL,
  close_ns  INTEGER NOT NULL,
  PRIMARY KEY (run_id, phase),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
