-- Which runs are stored? `rater list` reads this; :runs narrows it to some
-- (.parameter set :runs "'[7, 8]'").
-- In the sqlite3 shell: .read db/queries/runs.sql
SELECT
  run.id AS run, run.uuid, run.source, run.status, run.reason, run.started_at,
  (SELECT (max(bracket.finish_ns) - min(bracket.start_ns)) / 1e9 FROM bracket
   WHERE bracket.run_id = run.id) AS elapsed_s,
  host.hostname, run.mode, run.run_order AS "order", run.copies, run.iterations, run.discard,
  run.stagger_ms, run.increment, run.suite, run.size, run.tune, run.layout, run.memory,
  run.timeout_s, run.wrap, run.command_line, run.rater_version, run.warmup_s, run.window_s,
  run.directory, run.request, run.suite_path, run.suite_sha256, run.resumed,
  run.pid, run.pid_start, run.boot_id, divot_search.others_cost, divot_search.noise_cost
FROM run
JOIN host ON host.id = run.host_id
LEFT JOIN divot_search ON divot_search.run_id = run.id
WHERE run.id IN (
  SELECT value
  FROM json_each(coalesce(nullif(:runs, ''), (SELECT json_group_array(id) FROM run))))
ORDER BY run.id;
