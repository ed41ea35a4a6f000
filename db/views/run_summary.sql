-- One line a run. (The note stands inside so that the database itself shows it: `.schema`.)
CREATE VIEW run_summary AS
SELECT
  -- status 'running' also means killed: SQL cannot see whether rater's process is still alive
  -- (run.pid, pid_start, boot_id); `rater list` looks, and says which it is.
  run.id AS run_id, run.uuid, run.source, run.status, run.started_at, host.hostname,
  host.cpu_model, run.mode, run.suite, run.size, run.tune, run.copies, run.iterations, run.layout,
  (SELECT count(*) FROM benchmark WHERE benchmark.run_id = run.id) AS benchmarks,
  (SELECT count(*) FROM copy WHERE copy.run_id = run.id) AS copy_runs,
  (SELECT count(*) FROM copy
   WHERE copy.run_id = run.id AND (copy.status <> 'ok' OR copy.validity = 'invalid')) AS failed,
  (SELECT (max(finish_ns) - min(start_ns)) / 1e9 FROM bracket
   WHERE bracket.run_id = run.id) AS elapsed_s,
  (SELECT group_concat(tag.name || '=' || tag.value, ' ') FROM tag
   WHERE tag.run_id = run.id) AS tags
FROM run
JOIN host ON host.id = run.host_id;
