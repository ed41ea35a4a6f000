-- Runs and sweeps that `rater rm` removed here: `rater merge` and `import` leave them out, so that
-- collecting again does not bring them back. Holds for this database alone; merging does not carry it.
CREATE TABLE removed (
  uuid       TEXT PRIMARY KEY,
  kind       TEXT NOT NULL CHECK (kind IN ('run', 'sweep')),
  removed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT, WITHOUT ROWID;

-- Databases that were merged into this one whole: the same bytes have nothing to add.
CREATE TABLE merged_file (
  sha256    TEXT PRIMARY KEY,  -- of the file and, where it has one, its write-ahead log
  name      TEXT NOT NULL,     -- as it was named
  merged_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT, WITHOUT ROWID;
