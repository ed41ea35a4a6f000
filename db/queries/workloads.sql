-- How long did the commands that each copy of a run ran in order take? The last stored run, or :run
-- (.parameter set :run 7).
SELECT phase, copy, step, workload, start_ns, finish_ns, elapsed_ns, exit_code, signal, pid
FROM workload
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY phase, copy, step, workload;
