-- Every metric of every phase and lgroup, and over all copies (node_all = 1): sum or mean of what
-- the copies that ended well reported, as the suite says.
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
