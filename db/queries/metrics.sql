-- What did every copy of a run report of itself? The last stored run, or :run
-- (.parameter set :run 7). The view metric_result has the sums and means.
SELECT copy_metric.phase, copy_metric.copy, copy_metric.step, copy_metric.name, copy_metric.value
FROM copy_metric
JOIN copy USING (run_id, phase, copy, step)
JOIN metric
  ON metric.run_id = copy.run_id AND metric.benchmark = copy.benchmark
  AND metric.name = copy_metric.name
WHERE copy_metric.run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY copy_metric.phase, copy_metric.copy, copy_metric.step, metric.position;
