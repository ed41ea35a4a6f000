-- Which page sizes did the data of each copy run have (--pages)?
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  phase, copy, step, category, split, share_of_bytes, extent_bytes, resident_bytes, planned_bytes,
  touched_bytes, huge_bytes, stray_bytes, page_bytes, largest_page_bytes, seen, processes, forks, note
FROM page_region
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY phase, copy, step, category;
