-- Every benchmark, iteration and lgroup: how its copies that ended well compare with all of them.
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
