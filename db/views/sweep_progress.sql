-- Every run that a sweep planned, and what there is of it: done when all was measured, well or not.
CREATE VIEW sweep_progress AS
SELECT
  slot.sweep_id, slot.block, slot.position, slot.point, point.label,
  sweep_run.run_id, run.status,
  coalesce(
    run.status = 'complete'
    OR run.status = 'failed' AND sweep_run.phases = (
      SELECT count(*) FROM bracket
      WHERE bracket.run_id = run.id AND bracket.complete AND NOT bracket.torn
    ),
    0
  ) AS done,
  (SELECT (max(finish_ns) - min(start_ns)) / 1e9 FROM bracket
   WHERE bracket.run_id = run.id) AS elapsed_s
FROM sweep_slot AS slot
JOIN sweep_point AS point ON point.sweep_id = slot.sweep_id AND point.point = slot.point
LEFT JOIN sweep_run
  ON sweep_run.sweep_id = slot.sweep_id AND sweep_run.block = slot.block
  AND sweep_run.point = slot.point AND NOT sweep_run.replaced
LEFT JOIN run ON run.id = sweep_run.run_id;
