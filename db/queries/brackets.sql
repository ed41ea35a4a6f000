-- Which phases did a run have, and when? The last stored run, or :run (.parameter set :run 7).
SELECT
  bracket.phase, bracket.benchmark, bracket.iteration, coalesce(bracket.tune, run.tune) AS tune,
  bracket.counted, bracket.start_ns, bracket.finish_ns, bracket.last_start_ns,
  bracket.first_finish_ns, bracket.complete, bracket.torn, bracket.window_start_ns,
  bracket.window_finish_ns
FROM bracket
JOIN run ON run.id = bracket.run_id
WHERE bracket.run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY bracket.phase;
