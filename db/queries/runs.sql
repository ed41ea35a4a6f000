-- Which runs are stored? `rater list` reads this; :run narrows it to one. (A range, as an OR would
-- read all runs for one.)
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
WHERE run.id BETWEEN coalesce(:run, 0) AND coalesce(:run, 9223372036854775807)
ORDER BY run.id;
