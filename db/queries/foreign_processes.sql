-- Which other processes used the CPUs while copies ran, and how much of each?
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  process.phase, bracket.benchmark, bracket.iteration, process.cpu, process.pid, process.name,
  round(process.cpu_ns / 1e9, 3) AS cpu_s,
  round(100.0 * process.cpu_ns / process.observed_ns, 1) AS percent
FROM foreign_process AS process
JOIN bracket ON bracket.run_id = process.run_id AND bracket.phase = process.phase
WHERE process.run_id = coalesce(:run, (SELECT max(id) FROM run)) AND NOT bracket.torn
ORDER BY process.phase, process.cpu_ns DESC, process.cpu, process.pid;
