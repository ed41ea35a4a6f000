-- Every benchmark and iteration: bracket, ratio = copies x reference / bracket, and the score lost
-- to slow copies = 1 - median / bracket (staggered: 1 - median / slowest). No ratio and no score
-- lost where a copy failed, is missing, or was not checked because rater died first; nothing for
-- rotated order and steady mode, which have no bracket per benchmark, and for torn attempts. The bracket of a phase that rater did not live
-- to close comes from its copies when all of the plan are there. Of a result file the time it
-- reports is the bracket, and it may call the bracket not valid; imported otherwise without start
-- times, the slowest copy stands for it.
-- One window function a level, over the run's number, and no GROUP BY: SQLite then carries a
-- `WHERE run_id = 7` from outside down to the table, and reads no other run.
CREATE VIEW bracket_result AS
WITH
flagged AS (
  SELECT
    run_id, phase, copy, cpu, node, elapsed_ns,
    status = 'ok' AND validity <> 'invalid' AS good,
    validity = 'unchecked' AS unchecked
  FROM copy
),
placed AS (  -- the good copies of a phase have places from 1 to their number
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
    iif(run.source = 'run', run.copies, coalesce(spec_result.copies, listed_copies)) AS copies,
    CASE run.source
      WHEN 'run' THEN iif(good_copies = run.copies AND unchecked_copies = 0, 1, NULL)
      ELSE iif(
        good_copies = listed_copies
          AND good_copies >= coalesce(spec_result.copies, listed_copies)
          AND coalesce(spec_result.valid, 'S') = 'S',
        1, NULL
      )
    END AS valid,
    coalesce(
      spec_result.reported_s,
      (bracket.finish_ns - bracket.start_ns) / 1e9,
      -- never closed, as rater was killed, but every copy is there
      (SELECT
         iif(
           count(copy.finish_ns - copy.start_ns)
             >= iif(run.source = 'run', run.copies, listed_copies),
           (max(copy.finish_ns) - min(copy.start_ns)) / 1e9,
           NULL
         )
       FROM copy
       WHERE copy.run_id = typical.run_id AND copy.phase = typical.phase),
      iif(
        run.source = 'import' AND good_copies = listed_copies
          AND coalesce(spec_result.valid, 'S') = 'S',
        slowest_s, NULL
      )
    ) AS bracket_s
  FROM typical
  JOIN bracket ON bracket.run_id = typical.run_id AND bracket.phase = typical.phase
  JOIN run ON run.id = typical.run_id
  LEFT JOIN spec_result
    ON spec_result.run_id = typical.run_id AND spec_result.phase = typical.phase
  WHERE bracket.benchmark IS NOT NULL AND NOT bracket.torn AND run.window_s IS NULL
    AND place = max(good_copies, 1)  -- the row of the slowest good copy
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
