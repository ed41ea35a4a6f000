-- What did each phase draw, by domain (`dram` is counted apart from its package, `core` within it)?
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  bracket.phase, bracket.benchmark, bracket.iteration,
  substr(drawn.name, 8, length(drawn.name) - 10) AS domain,
  drawn.value / 1e6 AS joules,
  drawn.value * 1e3 / elapsed.value AS watts
FROM phase_reading AS drawn
JOIN phase_reading AS elapsed
  ON elapsed.run_id = drawn.run_id AND elapsed.phase = drawn.phase AND elapsed.name = 'elapsed_ns'
JOIN bracket ON bracket.run_id = drawn.run_id AND bracket.phase = drawn.phase
WHERE drawn.run_id = coalesce(:run, (SELECT max(id) FROM run)) AND drawn.name GLOB 'energy_*_uj'
  AND NOT bracket.torn
ORDER BY bracket.phase, domain;
