-- What CPUs, memory and copies did over a phase, sample by sample: one row a family. The blob is
-- documented in docs/how-to/over-time.md; `rater export --format json` and `--format trace`
-- write it unpacked. None of a phase: it was too short, --series off, or an older rater.
CREATE TABLE series (
  run_id   INTEGER NOT NULL,
  phase    INTEGER NOT NULL,
  family   TEXT NOT NULL,     -- cpu, machine, node, package, copy, traffic
  begin_ns INTEGER NOT NULL,  -- of the first sample, from the run's first release
  samples  INTEGER NOT NULL,
  places   TEXT NOT NULL,     -- CPUs, nodes, packages or copies: "0-7"; "0": the whole machine
  columns  TEXT NOT NULL,     -- JSON array of names
  packed   BLOB NOT NULL,
  PRIMARY KEY (run_id, phase, family),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT;
