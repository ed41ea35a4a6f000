-- What did every copy of a run do? The last stored run, or :run (.parameter set :run 7).
SELECT
  copy.phase, copy.benchmark, coalesce(copy.tune, run.tune) AS tune, copy.iteration, copy.copy,
  copy.step, copy.counted, copy.cpu, copy.core, copy.llc, copy.node, copy.package,
  copy.mem_nodes, copy.planned_start_ns, copy.start_ns, copy.finish_ns, copy.elapsed_ns,
  copy.status, copy.exit_code, copy.signal, copy.validity, copy.validity_detail, copy.cpu_ns,
  copy.user_ns, copy.system_ns, copy.gate_cpu_ns, copy.max_rss_bytes, copy.minor_faults,
  copy.major_faults, copy.voluntary_switches, copy.involuntary_switches, copy.pid, copy.note,
  copy.run_dir, copy.last_cpu, copy.placement, copy.placement_note, copy.gate_cpus, copy.gate_mems,
  copy.late_ns, copy.mean_rss_bytes, copy.peak_rss_bytes, copy.rss_looks, copy.stopped_ns,
  copy.run_delay_ns, copy.run_delay_cpu_ns
FROM copy
JOIN run ON run.id = copy.run_id
WHERE copy.run_id = coalesce(:run, (SELECT max(id) FROM run))
ORDER BY copy.phase, copy.copy, copy.step;
