-- Which CPUs worked for others than the copies placed on them?
-- (More than 2 % of the time, and more than five of the kernel's ticks. Only of runs whose copies
-- have a CPU each, and not where a copy was ended or left processes behind: not all of its CPU time
-- is known.) The last stored run, or :run (.parameter set :run 7).
WITH
own AS (
  SELECT
    phase, cpu, count(*) AS runs,
    -- its gate's CPU time is no part of the phase where the gate came before it
    sum(iif(step = 0, cpu_ns, user_ns + system_ns)) AS ns,
    max(status IN ('timeout', 'interrupted') OR signal IS NOT NULL OR note IS NOT NULL) AS unknown
  FROM copy
  WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
  GROUP BY phase, cpu
),
used AS (
  SELECT
    bracket.phase, bracket.benchmark, bracket.iteration, reading.cpu, pu.node,
    coalesce(own.runs, 0) AS copy_runs,
    elapsed.value AS elapsed_ns,
    reading.user_ns + reading.system_ns AS worked_ns,
    reading.user_ns + reading.system_ns - reading.filler_ns - coalesce(own.ns, 0) AS foreign_ns
  FROM cpu_reading AS reading
  JOIN bracket ON bracket.run_id = reading.run_id AND bracket.phase = reading.phase
  JOIN phase_reading AS elapsed
    ON elapsed.run_id = reading.run_id AND elapsed.phase = reading.phase
    AND elapsed.name = 'elapsed_ns'
  LEFT JOIN pu ON pu.run_id = reading.run_id AND pu.cpu = reading.cpu
  LEFT JOIN own ON own.phase = reading.phase AND own.cpu = reading.cpu
  WHERE reading.run_id = coalesce(:run, (SELECT max(id) FROM run)) AND NOT bracket.torn
    AND coalesce(own.unknown, 0) = 0
    AND NOT EXISTS (
      SELECT 1 FROM placement
      WHERE placement.run_id = reading.run_id
        AND (placement.cpus IS NULL OR placement.cpus <> CAST(placement.cpu AS TEXT))
    )
)
SELECT
  phase, benchmark, iteration, cpu, node, copy_runs,
  round(elapsed_ns / 1e9, 3) AS elapsed_s,
  round(100.0 * worked_ns / elapsed_ns, 1) AS worked_percent,
  round(100.0 * foreign_ns / elapsed_ns, 1) AS foreign_percent
FROM used
WHERE foreign_ns > max(0.02 * elapsed_ns, 50000000)
ORDER BY foreign_ns * 1.0 / elapsed_ns DESC, phase, cpu;
