-- Walks of base pages by how many walks came since the last one of the same page: what a walk costs
-- follows from it. A sample has none.
CREATE TABLE page_walk (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  position   INTEGER NOT NULL,      -- of the mapping
  walk_order INTEGER NOT NULL,      -- 0 anyhow, 1 beside one of the latest, 2 in its line of the page table
  octave     INTEGER NOT NULL,      -- of the number of walks; 0: the page's first
  loads      INTEGER NOT NULL,
  stores     INTEGER NOT NULL,
  PRIMARY KEY (trace_id, position, walk_order, octave)
) STRICT, WITHOUT ROWID;

-- User time of the run, where a check is of it; NULL: the check is of CPU time, which elapsed_s has.
ALTER TABLE page_check ADD COLUMN user_s REAL;
