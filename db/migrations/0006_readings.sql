-- What CPUs and the machine's counters did during each phase; ../schema.sql says what all means.

CREATE TABLE cpu_reading (
  run_id     INTEGER NOT NULL,
  phase      INTEGER NOT NULL,
  cpu        INTEGER NOT NULL,
  user_ns    INTEGER NOT NULL,
  system_ns  INTEGER NOT NULL,
  iowait_ns  INTEGER NOT NULL,
  irq_ns     INTEGER NOT NULL,
  steal_ns   INTEGER NOT NULL,
  idle_ns    INTEGER NOT NULL,
  mean_khz   INTEGER,
  throttles  INTEGER,
  interrupts INTEGER,
  filler_ns  INTEGER NOT NULL,
  PRIMARY KEY (run_id, phase, cpu),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE phase_reading (
  run_id INTEGER NOT NULL,
  phase  INTEGER NOT NULL,
  name   TEXT NOT NULL,
  value  INTEGER NOT NULL,
  PRIMARY KEY (run_id, phase, name),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
