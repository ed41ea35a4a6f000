-- Which copies did not end well, and how?
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  benchmark, tune, iteration, copy, cpu, node, round(elapsed_ns / 1e9, 6) AS elapsed_s,
  status, exit_code, signal, validity_detail, note, run_dir
FROM copy
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
  AND (status <> 'ok' OR validity = 'invalid')
ORDER BY phase, copy, step;
