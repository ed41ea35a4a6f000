-- How large was each category of data in the last run of the same program (--pages)? With the same
-- inputs and command: .parameter set :command, :binary, :inputs, and :split 0 or 1.
SELECT region.category, max(region.extent_bytes) AS extent_bytes, region.run_id
FROM page_region AS region
JOIN copy
  ON copy.run_id = region.run_id AND copy.phase = region.phase AND copy.copy = region.copy
  AND copy.step = region.step
WHERE region.split = :split AND copy.status = 'ok' AND region.seen IN ('exit', 'peak', 'fork')
  AND (copy.run_id, copy.benchmark) = (
    SELECT benchmark.run_id, benchmark.name
    FROM benchmark
    WHERE benchmark.command = :command AND benchmark.binary_sha256 = :binary
      AND benchmark.inputs_sha256 IS :inputs
      AND EXISTS (
        SELECT 1 FROM page_region AS before
        JOIN copy AS it
          ON it.run_id = before.run_id AND it.phase = before.phase AND it.copy = before.copy
          AND it.step = before.step
        WHERE before.run_id = benchmark.run_id AND before.split = :split AND it.status = 'ok'
          AND it.benchmark = benchmark.name AND before.seen IN ('exit', 'peak', 'fork')
      )
    ORDER BY benchmark.run_id DESC
    LIMIT 1
  )
GROUP BY region.category;
