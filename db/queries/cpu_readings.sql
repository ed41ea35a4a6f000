-- What did each CPU do during each phase? The last stored run, or :run (.parameter set :run 7).
SELECT
  phase, cpu, user_ns, system_ns, iowait_ns, irq_ns, steal_ns, idle_ns, mean_khz, throttles,
  interrupts, filler_ns
FROM cpu_reading
WHERE run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY phase, cpu;
