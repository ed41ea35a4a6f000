-- Which copies were slowest against the mean of their benchmark and iteration, and where?
-- The last stored run, or :run (.parameter set :run 7).
WITH good AS (
  SELECT
    benchmark, tune, iteration, copy, cpu, core, node, package, elapsed_s,
    elapsed_s / avg(elapsed_s) OVER (PARTITION BY benchmark, tune, iteration) AS slowdown
  FROM copy_time
  WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
    AND counted AND status = 'ok' AND validity <> 'invalid'
)
SELECT
  benchmark, tune, iteration, copy, cpu, core, node, package,
  round(elapsed_s, 6) AS elapsed_s, round(slowdown, 4) AS slowdown
FROM good
ORDER BY good.slowdown DESC
LIMIT 20;
