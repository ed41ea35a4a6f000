-- Where copies ran and their memory lay, as it was seen; ../schema.sql says what all means.

ALTER TABLE copy ADD COLUMN gate_cpus TEXT;
ALTER TABLE copy ADD COLUMN gate_mems TEXT;
ALTER TABLE copy ADD COLUMN last_cpu INTEGER;
ALTER TABLE copy ADD COLUMN placement TEXT
  CHECK (placement IN ('met', 'not met', 'not known'));
ALTER TABLE copy ADD COLUMN placement_note TEXT;

CREATE TABLE sample (
  run_id         INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  phase          INTEGER NOT NULL,
  copy           INTEGER NOT NULL,
  step           INTEGER NOT NULL,
  age_ns         INTEGER NOT NULL,
  looks          INTEGER NOT NULL,
  processes      INTEGER NOT NULL,
  unread         INTEGER NOT NULL,
  cpus           TEXT NOT NULL,
  allowed        TEXT,
  migrations     INTEGER,
  pages_migrated INTEGER,
  node_bytes     TEXT,
  policy         TEXT,
  page_bytes     TEXT,
  rss_bytes      INTEGER,
  peak_bytes     INTEGER,
  swap_bytes     INTEGER,
  read_ns        INTEGER NOT NULL,
  astray_bytes   TEXT,
  PRIMARY KEY (run_id, phase, copy, step, age_ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE observed (
  run_id         INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  cadence        TEXT NOT NULL,
  samples        INTEGER NOT NULL,
  interval_s     REAL,
  cpu_s          REAL NOT NULL,
  share          REAL NOT NULL,
  longest_read_s REAL NOT NULL,
  unknown        TEXT NOT NULL
) STRICT;

CREATE VIEW placement_proof AS
WITH
looked AS (
  SELECT
    run_id, phase, copy, step,
    sum(looks) AS looks,
    max(age_ns) / 1e9 AS last_look_s,
    group_concat(DISTINCT cpus) AS seen_cpus,
    max(migrations) AS migrations,
    sum(rss_bytes * looks) * 1.0 / sum(iif(rss_bytes IS NULL, NULL, looks)) / 1048576.0
      AS rss_mib,
    nullif(max(max(coalesce(peak_bytes, 0), coalesce(rss_bytes, 0))), 0) / 1048576.0
      AS most_rss_mib,
    max(swap_bytes) / 1048576.0 AS most_swap_mib
  FROM sample
  GROUP BY run_id, phase, copy, step
),
lay AS (
  SELECT
    sample.run_id, sample.phase, sample.copy, sample.step,
    sum(of_node.value * sample.looks) AS byte_looks,
    sum(iif(of_node.key = copy.node, of_node.value * sample.looks, 0)) AS home_byte_looks
  FROM sample
  JOIN json_each(sample.node_bytes) AS of_node
  LEFT JOIN copy
    ON copy.run_id = sample.run_id AND copy.phase = sample.phase
    AND copy.copy = sample.copy AND copy.step = sample.step
  GROUP BY sample.run_id, sample.phase, sample.copy, sample.step
)
SELECT
  copy.run_id, copy.phase, copy.benchmark, copy.iteration, copy.copy, copy.step, copy.cpu,
  copy.node, copy.gate_cpus, copy.gate_mems, looked.seen_cpus, copy.last_cpu, copy.placement,
  copy.placement_note, looked.looks, looked.last_look_s,
  iif(copy.node IS NULL, NULL, lay.home_byte_looks * 1.0 / nullif(lay.byte_looks, 0)) AS home_share,
  looked.migrations, looked.rss_mib, looked.most_rss_mib, looked.most_swap_mib
FROM copy
JOIN bracket ON bracket.run_id = copy.run_id AND bracket.phase = copy.phase
LEFT JOIN looked
  ON looked.run_id = copy.run_id AND looked.phase = copy.phase
  AND looked.copy = copy.copy AND looked.step = copy.step
LEFT JOIN lay
  ON lay.run_id = copy.run_id AND lay.phase = copy.phase
  AND lay.copy = copy.copy AND lay.step = copy.step
WHERE NOT bracket.torn AND (copy.gate_cpus IS NOT NULL OR looked.looks IS NOT NULL);
