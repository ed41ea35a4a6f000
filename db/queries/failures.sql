-- Which copies did not end well, and how? Torn attempts, which were run again, left out.
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  copy.benchmark, copy.tune, copy.iteration, copy.copy, copy.cpu, copy.node,
  round(copy.elapsed_ns / 1e9, 6) AS elapsed_s, copy.status, copy.exit_code, copy.signal,
  copy.validity_detail, copy.note, copy.run_dir
FROM copy
JOIN bracket USING (run_id, phase)
WHERE copy.run_id = coalesce(:run, (SELECT max(id) FROM run))
  AND NOT bracket.torn
  AND (copy.status <> 'ok' OR copy.validity = 'invalid')
ORDER BY copy.phase, copy.copy, copy.step;
