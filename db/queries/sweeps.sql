-- Which sweeps are stored, and how far did each come?
SELECT
  sweep.id AS sweep, sweep.started_at, sweep.suite,
  (SELECT group_concat(axis.name, ' ')
   FROM (SELECT name FROM sweep_axis WHERE sweep_id = sweep.id ORDER BY position) AS axis) AS axes,
  (SELECT count(*) FROM sweep_point
   WHERE sweep_id = sweep.id AND left_out IS NULL) AS points,
  sweep.rounds,
  (SELECT count(*) FROM sweep_slot WHERE sweep_id = sweep.id) AS runs,
  (SELECT coalesce(sum(done), 0) FROM sweep_progress WHERE sweep_id = sweep.id) AS runs_done,
  sweep.status  -- 'running' also means killed, as in run_summary
FROM sweep
ORDER BY sweep.id;
