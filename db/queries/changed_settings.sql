-- Which settings of the machine differ from the run before on the same machine?
-- Without load.*, memory.*, rater.* and free huge pages: readings that differ between any two.
-- The last stored run, or :run (.parameter set :run 7).
WITH
now AS (
  SELECT run.id, host.fingerprint
  FROM run JOIN host ON host.id = run.host_id
  WHERE run.id = coalesce(:run, (SELECT max(id) FROM run))
),
before AS (
  SELECT max(run.id) AS id
  FROM run JOIN host ON host.id = run.host_id, now
  WHERE run.id < now.id AND host.fingerprint = now.fingerprint
),
both AS (
  SELECT setting.name, setting.value, 'now' AS moment
  FROM setting JOIN now ON setting.run_id = now.id
  UNION ALL
  SELECT setting.name, setting.value, 'before'
  FROM setting JOIN before ON setting.run_id = before.id
),
side_by_side AS (
  SELECT
    name,
    max(value) FILTER (WHERE moment = 'before') AS before,
    max(value) FILTER (WHERE moment = 'now') AS now
  FROM both
  GROUP BY name
)
SELECT name, before, now
FROM side_by_side
WHERE before IS NOT now
  AND name NOT GLOB 'load.*' AND name NOT GLOB 'memory.*' AND name NOT GLOB 'rater.*'
  AND name NOT GLOB 'hugepages.*free' AND name NOT GLOB 'hugepages.*reserved'
  AND name NOT GLOB 'hugepages.*surplus'
  AND (SELECT id FROM before) IS NOT NULL
ORDER BY name;
