-- Which copies did not run, or had their memory, where they were planned, and which may not have?
-- The last stored run, or :run (.parameter set :run 7).
SELECT
  proof.benchmark, proof.iteration, proof.copy, proof.step, proof.placement, proof.placement_note,
  placement.cpus AS planned_cpus, proof.gate_cpus, proof.seen_cpus, proof.last_cpu,
  proof.gate_mems, placement.memory_policy, placement.memory_nodes, proof.node,
  round(proof.home_share, 4) AS home_share, proof.migrations,
  round(proof.rss_mib, 1) AS rss_mib, round(proof.most_rss_mib, 1) AS most_rss_mib
FROM placement_proof AS proof
JOIN placement ON placement.run_id = proof.run_id AND placement.copy = proof.copy
WHERE proof.run_id = coalesce(:run, (SELECT max(id) FROM run))
  AND proof.placement <> 'met'
ORDER BY proof.placement DESC, proof.phase, proof.copy, proof.step;
