-- From which CPUs did the hypervisor take time?
-- (More than 1 %, and more than five of the kernel's ticks.)
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  bracket.phase, bracket.benchmark, bracket.iteration, reading.cpu, pu.node,
  round(reading.steal_ns / 1e9, 3) AS steal_s,
  round(100.0 * reading.steal_ns / elapsed.value, 2) AS steal_percent
FROM cpu_reading AS reading
JOIN bracket ON bracket.run_id = reading.run_id AND bracket.phase = reading.phase
JOIN phase_reading AS elapsed
  ON elapsed.run_id = reading.run_id AND elapsed.phase = reading.phase
  AND elapsed.name = 'elapsed_ns'
LEFT JOIN pu ON pu.run_id = reading.run_id AND pu.cpu = reading.cpu
WHERE reading.run_id = coalesce(:run, (SELECT max(id) FROM run)) AND NOT bracket.torn
  AND reading.steal_ns > max(0.01 * elapsed.value, 50000000)
ORDER BY steal_percent DESC, bracket.phase, reading.cpu;
