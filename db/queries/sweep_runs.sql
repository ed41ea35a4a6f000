-- Which runs did a sweep plan, in order, and what is there of each? The last sweep, or :sweep
-- (.parameter set :sweep 3).
SELECT block, position, point, label, run_id, status, done, elapsed_s
FROM sweep_progress
WHERE sweep_id = coalesce(:sweep, (SELECT max(id) FROM sweep))
ORDER BY block, position;
