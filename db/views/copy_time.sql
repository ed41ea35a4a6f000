-- Every copy run with its time in seconds and its place; torn attempts left out.
CREATE VIEW copy_time AS
SELECT
  copy.run_id, copy.benchmark, coalesce(copy.tune, run.tune) AS tune, copy.iteration, copy.copy,
  copy.step, copy.phase, copy.counted, copy.status, copy.validity,
  copy.cpu, copy.core, copy.llc, copy.node, copy.package,
  copy.start_ns / 1e9 AS start_s,
  copy.elapsed_ns / 1e9 AS elapsed_s,
  copy.cpu_ns / 1e9 AS cpu_s,
  copy.max_rss_bytes / 1048576.0 AS max_rss_mib
FROM copy
JOIN run ON run.id = copy.run_id
JOIN bracket ON bracket.run_id = copy.run_id AND bracket.phase = copy.phase
WHERE NOT bracket.torn;
