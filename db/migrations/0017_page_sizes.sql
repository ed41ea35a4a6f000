-- Page sizes that copies had (--pages): a row for each category of data of each copy run, of the
-- copy's largest process, when most of it was there. The layout that was asked for is in run.request.
CREATE TABLE page_region (
  run_id             INTEGER NOT NULL,
  phase              INTEGER NOT NULL,
  copy               INTEGER NOT NULL,
  step               INTEGER NOT NULL,
  category           TEXT NOT NULL,     -- heap, mmap, static
  split              INTEGER NOT NULL CHECK (split IN (0, 1)), -- 1: blocks of 128 KB and more are of mmap
  share_of_bytes     INTEGER,           -- what shares of the layout were taken of; NULL: it had none
  extent_bytes       INTEGER NOT NULL,  -- from the start of the region to its last page
  resident_bytes     INTEGER NOT NULL,
  planned_bytes      INTEGER NOT NULL,  -- of the extent, what was to lie in larger pages
  touched_bytes      INTEGER NOT NULL,  -- pages of that with anything in them, as a whole
  huge_bytes         INTEGER,           -- of it, what did lie in larger pages; NULL: cannot be seen
  stray_bytes        INTEGER NOT NULL,  -- in larger pages that were not planned
  page_bytes         TEXT NOT NULL,     -- JSON: page size, bytes
  largest_page_bytes INTEGER NOT NULL,  -- that was planned
  seen               TEXT NOT NULL,     -- exit, peak, fork: by the library; look: from outside
  processes          INTEGER NOT NULL,  -- of the copy that the library was in
  forks              INTEGER NOT NULL,  -- of the largest process
  note               TEXT,              -- what went wrong, in words
  PRIMARY KEY (run_id, phase, copy, step, category),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
