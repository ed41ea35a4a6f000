-- Processes that were none of the run's and used most CPU time while the copies of a phase ran, by
-- the CPUs they ran on. None of a phase: none used much, it was too short, or an older rater.
CREATE TABLE foreign_process (
  run_id      INTEGER NOT NULL,
  phase       INTEGER NOT NULL,
  cpu         INTEGER NOT NULL,
  pid         INTEGER NOT NULL,
  name        TEXT NOT NULL,     -- as the kernel has it, at most 15 characters, printable
  cpu_ns      INTEGER NOT NULL,  -- used between the first look of the phase and the last,
  observed_ns INTEGER NOT NULL,  -- which are so far apart
  PRIMARY KEY (run_id, phase, cpu, pid, name),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
