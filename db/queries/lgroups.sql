-- Is one lgroup slower than the others, over all benchmarks? (1.00: like all copies)
-- The last stored run, or :run (.parameter set :run 7). (As the view lgroup_time has it, of one run:
-- SQLite works that view out for all runs where the number of one is not written in the query.)
WITH
grouped AS (
  SELECT
    benchmark, tune, iteration, counted, node,
    count(*) AS copies, sum(elapsed_s) AS sum_s, avg(elapsed_s) AS mean_s
  FROM copy_time
  WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
    AND status = 'ok' AND validity <> 'invalid'
  GROUP BY benchmark, tune, iteration, node
),
compared AS (
  SELECT
    *,
    mean_s / (sum(sum_s) OVER cell / sum(copies) OVER cell) AS slowdown
  FROM grouped
  WINDOW cell AS (PARTITION BY benchmark, tune, iteration)
)
SELECT
  node,
  count(DISTINCT benchmark) AS benchmarks,
  sum(copies) AS copy_runs,
  round(avg(slowdown), 4) AS mean_slowdown,
  round(max(slowdown), 4) AS worst_slowdown
FROM compared
WHERE counted
GROUP BY node
ORDER BY mean_slowdown DESC, node;
