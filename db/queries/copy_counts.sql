-- What did the counters of each copy run come to? The last stored run, or :run (.parameter set :run 7).
SELECT phase, copy, step, group_name, event, value, enabled_ns, running_ns
FROM copy_count
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY phase, copy, step, group_name, event;
