-- What times do results stand on? The last stored run, or :run (.parameter set :run 7).
-- Discarded iterations, torn phases and runs outside of a steady window are left out.
SELECT
  copy.benchmark, coalesce(copy.tune, run.tune) AS tune, copy.iteration, copy.copy, copy.step,
  copy.cpu, copy.core, copy.llc, copy.node, copy.package,
  iif(copy.mem_nodes GLOB '*[,-]*', -2, CAST(copy.mem_nodes AS INTEGER)) AS memory,
  copy.start_ns, copy.elapsed_ns, copy.cpu_ns,
  copy.status = 'ok' AND copy.validity <> 'invalid' AS good
FROM copy
JOIN run ON run.id = copy.run_id
JOIN bracket ON bracket.run_id = copy.run_id AND bracket.phase = copy.phase
WHERE copy.run_id = coalesce(:run, (SELECT max(id) FROM run))
  AND copy.counted AND NOT bracket.torn
  AND (
    bracket.window_finish_ns IS NULL
    OR (copy.start_ns >= bracket.window_start_ns AND copy.finish_ns <= bracket.window_finish_ns)
  )
ORDER BY copy.phase, copy.copy, copy.step;
