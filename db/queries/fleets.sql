-- Which fleets are stored, and how far did each come? A node counts as its last attempt, or as
-- complete where any attempt was.
SELECT
  fleet.id AS fleet, fleet.uuid, fleet.started_at, fleet.backend, fleet.words, fleet.command,
  fleet.cancelled_at,
  (SELECT count(*) FROM fleet_node WHERE fleet_id = fleet.id) AS nodes,
  (SELECT count(DISTINCT node) FROM fleet_attempt
   WHERE fleet_id = fleet.id AND state = 'complete') AS complete,
  (SELECT count(*) FROM fleet_attempt
   WHERE fleet_id = fleet.id AND state IN ('intent', 'submitted', 'pending', 'running', 'waiting')) AS live,
  (SELECT count(*) FROM fleet_attempt WHERE fleet_id = fleet.id) AS attempts
FROM fleet
ORDER BY fleet.id;
