-- Every copy run that was looked at, at its gate or while it ran: what it was allowed, how much of
-- its memory lay on its home lgroup (anonymous memory and huge pages), how large it was.
-- Whether that is what was planned: `rater show`.
CREATE VIEW placement_proof AS
WITH
looked AS (
  SELECT
    run_id, phase, copy, step,
    sum(looks) AS looks,
    max(age_ns) / 1e9 AS last_look_s,
    group_concat(DISTINCT cpus) AS seen_cpus,
    max(migrations) AS migrations,
    sum(rss_bytes * looks) * 1.0 / sum(iif(rss_bytes IS NULL, NULL, looks)) / 1048576.0
      AS rss_mib,
    nullif(max(max(coalesce(peak_bytes, 0), coalesce(rss_bytes, 0))), 0) / 1048576.0
      AS most_rss_mib,
    max(swap_bytes) / 1048576.0 AS most_swap_mib
  FROM sample
  GROUP BY run_id, phase, copy, step
),
lay AS (
  SELECT
    sample.run_id, sample.phase, sample.copy, sample.step,
    sum(of_node.value * sample.looks) AS byte_looks,
    sum(iif(of_node.key = copy.node, of_node.value * sample.looks, 0)) AS home_byte_looks
  FROM sample
  JOIN json_each(sample.node_bytes) AS of_node
  LEFT JOIN copy
    ON copy.run_id = sample.run_id AND copy.phase = sample.phase
    AND copy.copy = sample.copy AND copy.step = sample.step
  GROUP BY sample.run_id, sample.phase, sample.copy, sample.step
)
SELECT
  copy.run_id, copy.phase, copy.benchmark, copy.iteration, copy.copy, copy.step, copy.cpu,
  copy.node, copy.gate_cpus, copy.gate_mems, looked.seen_cpus, copy.last_cpu, copy.placement,
  copy.placement_note, looked.looks, looked.last_look_s,
  iif(copy.node IS NULL, NULL, lay.home_byte_looks * 1.0 / nullif(lay.byte_looks, 0)) AS home_share,
  looked.migrations, looked.rss_mib, looked.most_rss_mib, looked.most_swap_mib
FROM copy
JOIN bracket ON bracket.run_id = copy.run_id AND bracket.phase = copy.phase
LEFT JOIN looked
  ON looked.run_id = copy.run_id AND looked.phase = copy.phase
  AND looked.copy = copy.copy AND looked.step = copy.step
LEFT JOIN lay
  ON lay.run_id = copy.run_id AND lay.phase = copy.phase
  AND lay.copy = copy.copy AND lay.step = copy.step
WHERE NOT bracket.torn AND (copy.gate_cpus IS NOT NULL OR looked.looks IS NOT NULL);
