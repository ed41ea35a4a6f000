-- Traced runs (`rater pages`): which pages of 4 KB, 64 KB, 2 MB, 1 GB a program refers to, how soon
-- again, and what a TLB misses. Categories: heap, mmap, static, small static, stack, other.
CREATE TABLE page_trace (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid         TEXT NOT NULL UNIQUE,
  traced_at    TEXT NOT NULL,     -- UTC, ISO 8601
  host         TEXT NOT NULL,
  name         TEXT NOT NULL,
  command      TEXT NOT NULL,     -- words, as JSON
  suite        TEXT,              -- NULL: a plain command
  size         TEXT,
  engine       TEXT NOT NULL,
  tlb          TEXT NOT NULL,     -- as --tlb takes it
  rate         REAL NOT NULL CHECK (rate > 0 AND rate <= 1),  -- of pages in the sample; 1: exact
  elapsed_s    REAL NOT NULL,     -- traced
  native_s     REAL,              -- by itself
  page_changes INTEGER NOT NULL,  -- references to another 4 KB page than the one before
  programs     INTEGER NOT NULL,  -- one behind the other
  processes    INTEGER NOT NULL,  -- started, not traced
  notes        TEXT NOT NULL,     -- as JSON
  costs        TEXT NOT NULL      -- what misses and faults cost there, as JSON, as measured
) STRICT;

CREATE TABLE page_category (
  trace_id INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  category TEXT NOT NULL,
  refs     INTEGER NOT NULL,
  stores   INTEGER NOT NULL,      -- page changes with a store
  PRIMARY KEY (trace_id, category)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_size (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  page_bytes INTEGER NOT NULL,
  error      REAL,                -- standard error of a sample's far references, as a share; NULL:
                                  -- exact, or too few pages
  error_from INTEGER NOT NULL,    -- distance from which on they are far
  PRIMARY KEY (trace_id, page_bytes)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_touched (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  page_bytes INTEGER NOT NULL,
  category   TEXT NOT NULL,
  pages      INTEGER NOT NULL,    -- different ones
  faults     INTEGER NOT NULL,    -- first touches, those after memory was given back too
  PRIMARY KEY (trace_id, page_bytes, category)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_reuse (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  page_bytes INTEGER NOT NULL,
  category   TEXT NOT NULL,
  distance   INTEGER NOT NULL,    -- other pages in between; from 32 on the least of a bin, 16 of
                                  -- which double
  refs       INTEGER NOT NULL,
  PRIMARY KEY (trace_id, page_bytes, category, distance)
) STRICT, WITHOUT ROWID;

-- A page size for each category, and what the TLB misses then; the first has 4 KB pages alone.
CREATE TABLE page_mapping (
  trace_id     INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  heap_bytes   INTEGER NOT NULL,
  mmap_bytes   INTEGER NOT NULL,
  static_bytes INTEGER NOT NULL,
  category     TEXT NOT NULL,     -- whose misses
  l1_misses    INTEGER NOT NULL,  -- of the first level, walks included
  walks        INTEGER NOT NULL,
  position     INTEGER NOT NULL,  -- of the mapping
  PRIMARY KEY (trace_id, heap_bytes, mmap_bytes, static_bytes, category)
) STRICT, WITHOUT ROWID;

-- Misses of 2 MB of addresses, all in 4 KB pages and all in 2 MB pages.
CREATE TABLE page_region_misses (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  category   TEXT NOT NULL,
  region     INTEGER NOT NULL,    -- from the category's start
  l1_base    INTEGER NOT NULL,
  walks_base INTEGER NOT NULL,
  l1_huge    INTEGER NOT NULL,
  walks_huge INTEGER NOT NULL,
  PRIMARY KEY (trace_id, category, region)
) STRICT, WITHOUT ROWID;

-- Runs of `rater pages --check`: one time of one layout.
CREATE TABLE page_check (
  trace_id  INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  layout    TEXT NOT NULL,        -- as --pages takes it
  round     INTEGER NOT NULL,
  elapsed_s REAL NOT NULL,
  PRIMARY KEY (trace_id, layout, round)
) STRICT, WITHOUT ROWID;
