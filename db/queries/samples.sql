-- What was seen of copies while they ran? The last stored run, or :run (.parameter set :run 7).
SELECT
  phase, copy, step, age_ns, processes, unread, cpus, allowed, migrations, pages_migrated,
  node_bytes, policy, page_bytes, rss_bytes, peak_bytes, swap_bytes, read_ns, looks, astray_bytes
FROM sample
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY phase, copy, step, age_ns;
