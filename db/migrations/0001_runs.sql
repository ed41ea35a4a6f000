-- The first tables and views; ../schema.sql says what everything means.

PRAGMA application_id = 1918989426;

CREATE TABLE host (
  id INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  hostname TEXT,
  machine_id_hash TEXT,
  cpu_model TEXT,
  microcode TEXT,
  vendor TEXT,
  memory_bytes INTEGER,
  pus INTEGER,
  cores INTEGER,
  nodes INTEGER,
  packages INTEGER,
  architecture TEXT,
  product TEXT
) STRICT;

CREATE INDEX host_fingerprint ON host (fingerprint);

CREATE TABLE run (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid TEXT NOT NULL UNIQUE,
  host_id INTEGER NOT NULL REFERENCES host (id),
  source TEXT NOT NULL CHECK (source IN ('run', 'import')),
  status TEXT NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'interrupted')),
  reason TEXT,
  started_at TEXT,
  stored_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  mode TEXT NOT NULL,
  run_order TEXT NOT NULL CHECK (run_order IN ('homogeneous', 'rotated')),
  copies INTEGER NOT NULL CHECK (copies > 0),
  iterations INTEGER NOT NULL,
  discard INTEGER NOT NULL,
  stagger_ms REAL NOT NULL,
  increment INTEGER NOT NULL,
  suite TEXT,
  size TEXT,
  tune TEXT,
  layout TEXT,
  memory TEXT,
  timeout_s REAL,
  wrap TEXT,
  command_line TEXT,
  rater_version TEXT,
  pid INTEGER,
  pid_start INTEGER,
  boot_id TEXT
) STRICT;

CREATE INDEX run_host ON run (host_id);

CREATE TABLE setting (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE environment (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tag (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tag_value ON tag (name, value);

CREATE TABLE note (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  kind TEXT NOT NULL CHECK (kind IN ('warning', 'note')),
  text TEXT NOT NULL
) STRICT;

CREATE INDEX note_run ON note (run_id);

CREATE TABLE pu (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  cpu INTEGER NOT NULL,
  core INTEGER,
  llc INTEGER,
  node INTEGER,
  package INTEGER,
  PRIMARY KEY (run_id, cpu)
) STRICT, WITHOUT ROWID;

CREATE TABLE benchmark (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  category TEXT,
  command TEXT,
  reference_s REAL,
  binary_sha256 TEXT,
  compiler TEXT,
  flags TEXT,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE placement (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  copy INTEGER NOT NULL,
  cpus TEXT,
  cpu INTEGER,
  core INTEGER,
  llc INTEGER,
  node INTEGER,
  package INTEGER,
  memory_policy TEXT NOT NULL,
  memory_nodes TEXT NOT NULL,
  PRIMARY KEY (run_id, copy)
) STRICT, WITHOUT ROWID;

CREATE TABLE bracket (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  phase INTEGER NOT NULL,
  benchmark TEXT,
  tune TEXT,
  iteration INTEGER,
  counted INTEGER NOT NULL CHECK (counted IN (0, 1)),
  start_ns INTEGER,
  finish_ns INTEGER,
  last_start_ns INTEGER,
  first_finish_ns INTEGER,
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  PRIMARY KEY (run_id, phase),
  FOREIGN KEY (run_id, benchmark) REFERENCES benchmark (run_id, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE copy (
  run_id INTEGER NOT NULL,
  phase INTEGER NOT NULL,
  copy INTEGER NOT NULL,
  step INTEGER NOT NULL,
  benchmark TEXT NOT NULL,
  tune TEXT,
  iteration INTEGER NOT NULL,
  counted INTEGER NOT NULL CHECK (counted IN (0, 1)),
  cpu INTEGER,
  core INTEGER,
  llc INTEGER,
  node INTEGER,
  package INTEGER,
  mem_nodes TEXT,
  planned_start_ns INTEGER,
  start_ns INTEGER,
  finish_ns INTEGER,
  elapsed_ns INTEGER NOT NULL CHECK (elapsed_ns >= 0),
  status TEXT NOT NULL
    CHECK (status IN ('ok', 'failed', 'timeout', 'wrong-output', 'interrupted')),
  exit_code INTEGER,
  signal INTEGER,
  validity TEXT NOT NULL
    CHECK (validity IN ('unchecked', 'no-expectation', 'valid', 'invalid')),
  validity_detail TEXT,
  cpu_ns INTEGER,
  user_ns INTEGER,
  system_ns INTEGER,
  gate_cpu_ns INTEGER,
  max_rss_bytes INTEGER,
  minor_faults INTEGER,
  major_faults INTEGER,
  voluntary_switches INTEGER,
  involuntary_switches INTEGER,
  pid INTEGER,
  note TEXT,
  run_dir TEXT,
  PRIMARY KEY (run_id, phase, copy, step),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE,
  FOREIGN KEY (run_id, benchmark) REFERENCES benchmark (run_id, name) ON DELETE CASCADE,
  CHECK (start_ns IS NULL OR finish_ns - start_ns = elapsed_ns)
) STRICT, WITHOUT ROWID;

CREATE VIEW copy_time AS
SELECT
  copy.run_id, copy.benchmark, coalesce(copy.tune, run.tune) AS tune, copy.iteration, copy.copy,
  copy.step, copy.phase, copy.counted, copy.status, copy.validity,
  copy.cpu, copy.core, copy.llc, copy.node, copy.package,
  copy.start_ns / 1e9 AS start_s,
  copy.elapsed_ns / 1e9 AS elapsed_s,
  copy.cpu_ns / 1e9 AS cpu_s,
  copy.max_rss_bytes / 1048576.0 AS max_rss_mib
FROM copy
JOIN run ON run.id = copy.run_id;

CREATE VIEW bracket_result AS
WITH
flagged AS (
  SELECT
    run_id, phase, copy, cpu, node, elapsed_ns,
    status = 'ok' AND validity <> 'invalid' AS good,
    validity = 'unchecked' AS unchecked
  FROM copy
),
placed AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY run_id, phase ORDER BY good DESC, elapsed_ns, copy DESC
    ) AS place
  FROM flagged
),
sized AS (
  SELECT *, sum(good) OVER (PARTITION BY run_id, phase) AS good_copies
  FROM placed
),
listed AS (
  SELECT *, count(*) OVER (PARTITION BY run_id, phase) AS listed_copies
  FROM sized
),
doubted AS (
  SELECT *, sum(unchecked) OVER (PARTITION BY run_id, phase) AS unchecked_copies
  FROM listed
),
typical AS (
  SELECT
    *,
    avg(iif(place IN ((good_copies + 1) / 2, (good_copies + 2) / 2), elapsed_ns, NULL))
      OVER (PARTITION BY run_id, phase) / 1e9 AS median_s,
    elapsed_ns / 1e9 AS slowest_s
  FROM doubted
),
judged AS (
  SELECT
    typical.*, bracket.benchmark, coalesce(bracket.tune, run.tune) AS tune, bracket.iteration,
    bracket.counted, run.mode, run.stagger_ms,
    iif(run.source = 'run', run.copies, listed_copies) AS copies,
    CASE run.source
      WHEN 'run' THEN iif(good_copies = run.copies AND unchecked_copies = 0, 1, NULL)
      ELSE iif(good_copies = listed_copies, 1, NULL)
    END AS valid,
    coalesce(
      (bracket.finish_ns - bracket.start_ns) / 1e9,
      (SELECT
         iif(
           count(copy.finish_ns - copy.start_ns)
             >= iif(run.source = 'run', run.copies, listed_copies),
           (max(copy.finish_ns) - min(copy.start_ns)) / 1e9,
           NULL
         )
       FROM copy
       WHERE copy.run_id = typical.run_id AND copy.phase = typical.phase),
      iif(run.source = 'import' AND good_copies = listed_copies, slowest_s, NULL)
    ) AS bracket_s
  FROM typical
  JOIN bracket ON bracket.run_id = typical.run_id AND bracket.phase = typical.phase
  JOIN run ON run.id = typical.run_id
  WHERE bracket.benchmark IS NOT NULL
    AND place = max(good_copies, 1)
)
SELECT
  judged.run_id, judged.benchmark, tune, iteration, phase, counted, copies, good_copies,
  bracket_s, benchmark.reference_s,
  valid * copies * benchmark.reference_s / bracket_s AS ratio,
  valid * copies * 3600.0 / bracket_s AS copies_per_hour,
  iif(good_copies > 0, median_s, NULL) AS median_copy_s,
  iif(good_copies > 0, slowest_s, NULL) AS slowest_copy_s,
  iif(good_copies > 0, copy, NULL) AS slowest_copy,
  iif(good_copies > 0, cpu, NULL) AS slowest_cpu,
  iif(good_copies > 0, node, NULL) AS slowest_node,
  CASE
    WHEN mode IN ('rotated', 'heterogeneous', 'steady') THEN NULL
    WHEN stagger_ms > 0 THEN valid * (1 - median_s / slowest_s)
    ELSE valid * (1 - median_s / bracket_s)
  END AS score_lost
FROM judged
JOIN benchmark ON benchmark.run_id = judged.run_id AND benchmark.name = judged.benchmark;

CREATE VIEW lgroup_time AS
SELECT
  grouped.run_id, grouped.benchmark, grouped.tune, grouped.iteration, grouped.counted,
  grouped.node, grouped.copies, grouped.mean_s, grouped.fastest_s, grouped.slowest_s,
  grouped.mean_s / (sum(grouped.sum_s) OVER cell / sum(grouped.copies) OVER cell) AS slowdown
FROM (
  SELECT
    run_id, benchmark, tune, iteration, counted, node,
    count(*) AS copies, sum(elapsed_s) AS sum_s, avg(elapsed_s) AS mean_s,
    min(elapsed_s) AS fastest_s, max(elapsed_s) AS slowest_s
  FROM copy_time
  WHERE status = 'ok' AND validity <> 'invalid'
  GROUP BY run_id, benchmark, tune, iteration, node
) AS grouped
WINDOW cell AS (PARTITION BY grouped.run_id, grouped.benchmark, grouped.tune, grouped.iteration);

CREATE VIEW run_summary AS
SELECT
  -- status 'running' also means killed: SQL cannot see whether rater's process is still alive
  -- (run.pid, pid_start, boot_id); `rater list` looks, and says which it is.
  run.id AS run_id, run.uuid, run.source, run.status, run.started_at, host.hostname,
  host.cpu_model, run.mode, run.suite, run.size, run.tune, run.copies, run.iterations, run.layout,
  (SELECT count(*) FROM benchmark WHERE benchmark.run_id = run.id) AS benchmarks,
  (SELECT count(*) FROM copy WHERE copy.run_id = run.id) AS copy_runs,
  (SELECT count(*) FROM copy
   WHERE copy.run_id = run.id AND (copy.status <> 'ok' OR copy.validity = 'invalid')) AS failed,
  (SELECT (max(finish_ns) - min(start_ns)) / 1e9 FROM bracket
   WHERE bracket.run_id = run.id) AS elapsed_s,
  (SELECT group_concat(tag.name || '=' || tag.value, ' ') FROM tag
   WHERE tag.run_id = run.id) AS tags
FROM run
JOIN host ON host.id = run.host_id;
