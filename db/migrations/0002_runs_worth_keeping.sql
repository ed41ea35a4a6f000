-- Steady mode, runs that can be repeated and resumed, metrics; ../schema.sql says what all means.

ALTER TABLE run ADD COLUMN warmup_s REAL;
ALTER TABLE run ADD COLUMN window_s REAL;
ALTER TABLE run ADD COLUMN directory TEXT;
ALTER TABLE run ADD COLUMN request TEXT;
ALTER TABLE run ADD COLUMN suite_path TEXT;
ALTER TABLE run ADD COLUMN suite_sha256 TEXT;
ALTER TABLE run ADD COLUMN resumed INTEGER NOT NULL DEFAULT 0;

ALTER TABLE benchmark ADD COLUMN inputs_sha256 TEXT;
ALTER TABLE benchmark ADD COLUMN threads INTEGER NOT NULL DEFAULT 1;

ALTER TABLE bracket ADD COLUMN torn INTEGER NOT NULL DEFAULT 0 CHECK (torn IN (0, 1));
ALTER TABLE bracket ADD COLUMN window_start_ns INTEGER;
ALTER TABLE bracket ADD COLUMN window_finish_ns INTEGER;

CREATE TABLE metric (
  run_id    INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  benchmark TEXT NOT NULL,
  name      TEXT NOT NULL,
  position  INTEGER NOT NULL,
  unit      TEXT NOT NULL,
  better    TEXT CHECK (better IN ('higher', 'lower')),
  combine   TEXT NOT NULL CHECK (combine IN ('sum', 'mean')),
  PRIMARY KEY (run_id, benchmark, name),
  FOREIGN KEY (run_id, benchmark) REFERENCES benchmark (run_id, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE copy_metric (
  run_id INTEGER NOT NULL,
  phase  INTEGER NOT NULL,
  copy   INTEGER NOT NULL,
  step   INTEGER NOT NULL,
  name   TEXT NOT NULL,
  value  REAL NOT NULL,
  PRIMARY KEY (run_id, phase, copy, step, name),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

DROP VIEW lgroup_time;
DROP VIEW bracket_result;
DROP VIEW copy_time;

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
JOIN run ON run.id = copy.run_id
JOIN bracket ON bracket.run_id = copy.run_id AND bracket.phase = copy.phase
WHERE NOT bracket.torn;

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
  WHERE bracket.benchmark IS NOT NULL AND NOT bracket.torn AND run.window_s IS NULL
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

CREATE VIEW steady_rate AS
WITH inside AS (
  SELECT
    copy.run_id, copy.phase, copy.benchmark, coalesce(copy.tune, run.tune) AS tune,
    bracket.iteration, bracket.counted, copy.copy, copy.elapsed_ns, run.copies, bracket.complete,
    bracket.window_start_ns, bracket.window_finish_ns,
    (bracket.window_finish_ns - bracket.window_start_ns) / 1e9 AS window_s,
    max(
      0,
      min(copy.finish_ns, bracket.window_finish_ns) - max(copy.start_ns, bracket.window_start_ns)
    ) AS inside_ns,
    copy.start_ns >= bracket.window_start_ns AND copy.finish_ns <= bracket.window_finish_ns AS whole
  FROM copy
  JOIN bracket ON bracket.run_id = copy.run_id AND bracket.phase = copy.phase
  JOIN run ON run.id = copy.run_id
  WHERE bracket.window_finish_ns IS NOT NULL AND NOT bracket.torn
    AND copy.status = 'ok' AND copy.validity <> 'invalid'
),
summed AS (
  SELECT
    run_id, phase, benchmark, tune, iteration, counted, window_s,
    sum(inside_ns * 1.0 / elapsed_ns) AS completions,
    sum(whole) AS whole,
    -- 1, or NULL where a run of the phase that reaches into the window is no good one (or was not
    -- looked at, as rater died first), or a copy has none
    iif(
      complete
      AND copies = (
        SELECT count(DISTINCT one.copy)
        FROM copy AS one
        WHERE one.run_id = inside.run_id AND one.phase = inside.phase
          AND one.start_ns < window_finish_ns AND one.finish_ns > window_start_ns
      )
      AND NOT EXISTS (
        SELECT 1
        FROM copy AS one
        WHERE one.run_id = inside.run_id AND one.phase = inside.phase
          AND one.start_ns < window_finish_ns AND one.finish_ns > window_start_ns
          AND (one.status <> 'ok' OR one.validity IN ('invalid', 'unchecked'))
      ),
      1, NULL
    ) AS valid
  FROM inside
  GROUP BY run_id, phase, benchmark, tune
)
SELECT
  summed.run_id, summed.phase, summed.benchmark, summed.tune, iteration, counted, window_s,
  completions, whole,
  valid * completions / window_s * 3600 AS per_hour,
  valid * completions / window_s * benchmark.reference_s AS ratio
FROM summed
JOIN benchmark ON benchmark.run_id = summed.run_id AND benchmark.name = summed.benchmark;

CREATE VIEW metric_result AS
WITH
reported AS (
  SELECT
    copy.run_id, copy.phase, copy.benchmark, bracket.iteration, copy.counted, copy.copy, copy.node,
    copy_metric.name, copy_metric.value, metric.unit, metric.better, metric.combine,
    iif(
      bracket.window_finish_ns IS NULL,
      1.0,
      max(
        0,
        min(copy.finish_ns, bracket.window_finish_ns) - max(copy.start_ns, bracket.window_start_ns)
      ) * 1.0 / copy.elapsed_ns
    ) AS weight
  FROM copy
  JOIN copy_metric
    ON copy_metric.run_id = copy.run_id AND copy_metric.phase = copy.phase
    AND copy_metric.copy = copy.copy AND copy_metric.step = copy.step
  JOIN bracket ON bracket.run_id = copy.run_id AND bracket.phase = copy.phase
  JOIN metric
    ON metric.run_id = copy.run_id AND metric.benchmark = copy.benchmark
    AND metric.name = copy_metric.name
  WHERE NOT bracket.torn AND copy.status = 'ok' AND copy.validity <> 'invalid'
),
-- A copy stands for the mean over its runs: the one of a bracket, the counted rounds of rotated
-- order, in steady mode those in the window, weighted by their share inside.
per_copy AS (
  SELECT
    *,
    sum(value * weight) OVER runs / sum(weight) OVER runs AS mean,
    row_number() OVER runs AS place
  FROM reported
  WHERE weight > 0
  WINDOW runs AS (PARTITION BY run_id, phase, benchmark, counted, name, copy)
),
grouped AS (
  SELECT per_copy.*, scope.node_all, iif(scope.node_all, NULL, node) AS of_node
  FROM per_copy
  JOIN (SELECT 1 AS node_all UNION ALL SELECT 0) AS scope
  WHERE place = 1
),
combined AS (
  SELECT
    run_id, phase, benchmark, iteration, counted, name, unit, better, combine, node_all,
    of_node AS node,
    count(*) OVER members AS copies,
    iif(combine = 'sum', sum(mean) OVER members, avg(mean) OVER members) AS value,
    min(mean) OVER members AS lowest,
    max(mean) OVER members AS highest,
    row_number() OVER members AS row
  FROM grouped
  WINDOW members AS (PARTITION BY run_id, phase, benchmark, counted, name, node_all, of_node)
)
SELECT
  run_id, phase, benchmark, iteration, counted, name, unit, better, combine, node_all, node,
  copies, value, lowest, highest
FROM combined
WHERE row = 1;

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
