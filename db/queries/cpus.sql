-- Is one CPU slower than the others, over all benchmarks and iterations? (1.00: like all copies)
-- The last stored run, or :run (.parameter set :run 7).
WITH good AS (
  SELECT
    cpu, core, node,
    elapsed_s / avg(elapsed_s) OVER (PARTITION BY benchmark, tune, iteration) AS slowdown
  FROM copy_time
  WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
    AND counted AND status = 'ok' AND validity <> 'invalid'
)
SELECT
  cpu, core, node,
  count(*) AS copy_runs,
  round(avg(slowdown), 4) AS mean_slowdown,
  round(max(slowdown), 4) AS worst_slowdown
FROM good
GROUP BY cpu, core, node
ORDER BY mean_slowdown DESC, cpu;
