-- Is one lgroup slower than the others, over all benchmarks? (1.00: like all copies)
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  node,
  count(DISTINCT benchmark) AS benchmarks,
  sum(copies) AS copy_runs,
  round(avg(slowdown), 4) AS mean_slowdown,
  round(max(slowdown), 4) AS worst_slowdown
FROM lgroup_time
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run)) AND counted
GROUP BY node
ORDER BY mean_slowdown DESC, node;
