-- What did the machine's counters come to during each phase (pressure, swap, migrated pages)?
-- The last stored run, or :run (.parameter set :run 7).
SELECT phase, name, value
FROM phase_reading
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY phase, name;
