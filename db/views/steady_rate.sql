-- Steady mode: every phase and benchmark with the completions inside the window. `completions`
-- counts a run that crosses an edge of the window by its share inside, `whole` leaves it out.
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
