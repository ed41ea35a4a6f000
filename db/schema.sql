-- rater's database, schema 9. What changes it later is a step in migrations/ (0010_WHAT.sql, ...).
--
-- One row of `copy` is one benchmark run once by one copy; `bracket` holds what a barrier
-- encloses; the views, a file each in views/, are the place to begin:
--   sqlite3 ~/.local/share/rater/rater.db 'SELECT * FROM run_summary'
-- queries/ has more, one question a file.
--
-- Times ending in _ns are integer nanoseconds counted from the run's first release. CPU and node
-- numbers are the kernel's; core, llc and package are hwloc's logical indexes. Lists of CPUs and
-- nodes are written as the kernel writes them: 0-3,8.

-- 'ratr': tells `file` and rater itself whose database this is.
PRAGMA application_id = 1918989426;

-- A machine as it described itself. The same machine described differently (memory added, another
-- hostname) is another row with the same fingerprint.
CREATE TABLE host (
  id              INTEGER PRIMARY KEY,
  fingerprint     TEXT NOT NULL,  -- of model, topology and microcode; 'import:NAME' for imported runs
  hostname        TEXT,
  machine_id_hash TEXT,           -- tells machines of one model apart
  cpu_model       TEXT,
  microcode       TEXT,
  vendor          TEXT,
  memory_bytes    INTEGER,
  pus             INTEGER,        -- hardware threads, cores, NUMA nodes, packages of the machine
  cores           INTEGER,
  nodes           INTEGER,
  packages        INTEGER,
  architecture    TEXT,           -- as `uname -m`
  product         TEXT            -- vendor and product as the firmware names them
) STRICT;

CREATE INDEX host_fingerprint ON host (fingerprint);

-- One call of `rater run`, or one imported document.
CREATE TABLE run (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, even after `rater rm`
  uuid          TEXT NOT NULL UNIQUE,
  host_id       INTEGER NOT NULL REFERENCES host (id),
  source        TEXT NOT NULL CHECK (source IN ('run', 'import')),
  -- 'running' and its process gone means that rater was killed
  status        TEXT NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'interrupted')),
  reason        TEXT,              -- why it is not complete, in words
  started_at    TEXT,              -- UTC, ISO 8601; NULL: not known (imported)
  stored_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  mode          TEXT NOT NULL,     -- homogeneous, rotated, staggered, steady, ... as asked for
  run_order     TEXT NOT NULL CHECK (run_order IN ('homogeneous', 'rotated')),
  copies        INTEGER NOT NULL CHECK (copies > 0),
  iterations    INTEGER NOT NULL,
  discard       INTEGER NOT NULL,  -- the first iterations that are measured but not counted
  stagger_ms    REAL NOT NULL,     -- between starts of consecutive copies; 0: all at once
  increment     INTEGER NOT NULL,  -- of the ring, rotated order
  suite         TEXT,              -- NULL: a plain command, or imported
  size          TEXT,
  tune          TEXT,              -- build label; imported rows have their own in copy and bracket
  layout        TEXT,              -- NULL: not known (imported); so below
  memory        TEXT,
  timeout_s     REAL,
  wrap          TEXT,              -- what stood in front of every command
  command_line  TEXT,              -- how rater was called
  rater_version TEXT,
  pid           INTEGER,           -- rater's own process: pid, start in clock ticks after boot
  pid_start     INTEGER,           -- (/proc/PID/stat field 22) and boot say whether it still lives
  boot_id       TEXT,
  warmup_s      REAL,              -- steady mode: first release to the window, and the window in
  window_s      REAL,              -- which completions count
  directory     TEXT,              -- where rater was called
  request       TEXT,              -- what was asked for, as JSON: what `rater rerun` asks for again
  suite_path    TEXT,
  suite_sha256  TEXT,              -- of the suite file's text
  resumed       INTEGER NOT NULL DEFAULT 0  -- how many times `rater run --resume` took it up
) STRICT;

CREATE INDEX run_host ON run (host_id);

-- The machine's settings when the run began: kernel, governor, boost, THP, NUMA balancing, ...
CREATE TABLE setting (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

-- What --env added to the copies' environment.
CREATE TABLE environment (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

-- What --tag said.
CREATE TABLE tag (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tag_value ON tag (name, value);

-- What is worth keeping in words, in order of id.
CREATE TABLE note (
  id     INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  kind   TEXT NOT NULL CHECK (kind IN ('warning', 'note')),  -- before the first phase, or since
  text   TEXT NOT NULL
) STRICT;

CREATE INDEX note_run ON note (run_id);

-- The hardware threads of the run's machine. Per run: a cpuset or an offline CPU changes it.
CREATE TABLE pu (
  run_id  INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  cpu     INTEGER NOT NULL,
  core    INTEGER,
  llc     INTEGER,  -- last-level cache
  node    INTEGER,  -- lgroup
  package INTEGER,
  PRIMARY KEY (run_id, cpu)
) STRICT, WITHOUT ROWID;

-- A benchmark as the run used it.
CREATE TABLE benchmark (
  run_id        INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name          TEXT NOT NULL,
  position      INTEGER NOT NULL,  -- in the ring, from 0
  category      TEXT,              -- int, fp, or NULL
  command       TEXT,              -- as a shell would take it; NULL: not known (imported)
  reference_s   REAL,              -- NULL: no ratio, throughput only
  binary_sha256 TEXT,
  compiler      TEXT,
  flags         TEXT,
  inputs_sha256 TEXT,                        -- of the names and contents of its input files
  threads       INTEGER NOT NULL DEFAULT 1,  -- CPUs that one copy uses
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

-- A number that a benchmark reports of itself, as the suite declares it.
CREATE TABLE metric (
  run_id    INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  benchmark TEXT NOT NULL,
  name      TEXT NOT NULL,
  position  INTEGER NOT NULL,                        -- in the suite's order, from 0
  unit      TEXT NOT NULL,
  better    TEXT CHECK (better IN ('higher', 'lower')),  -- NULL: neither
  combine   TEXT NOT NULL CHECK (combine IN ('sum', 'mean')),  -- over copies
  PRIMARY KEY (run_id, benchmark, name),
  FOREIGN KEY (run_id, benchmark) REFERENCES benchmark (run_id, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Where each copy was planned to run. Of imported runs known only where the file is rater's own.
CREATE TABLE placement (
  run_id        INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  copy          INTEGER NOT NULL,
  cpus          TEXT,     -- affinity mask as a list; NULL: not bound
  cpu           INTEGER,  -- the PU it was given, of which the mask may be wider
  core          INTEGER,
  llc           INTEGER,
  node          INTEGER,
  package       INTEGER,
  memory_policy TEXT NOT NULL,  -- none, local, bind, preferred, interleave or weighted
  memory_nodes  TEXT NOT NULL,  -- as a list; '' for none and local
  PRIMARY KEY (run_id, copy)
) STRICT, WITHOUT ROWID;

-- One phase: all copies run one benchmark once (or, in rotated order, their whole queues).
-- The row is made before the release; the times come when the last copy has finished.
CREATE TABLE bracket (
  run_id          INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  phase           INTEGER NOT NULL,  -- from 0 over the whole run
  benchmark       TEXT,              -- NULL: several (rotated order)
  tune            TEXT,              -- NULL: the run's
  iteration       INTEGER,           -- from 1; imported ones as recorded
  counted         INTEGER NOT NULL CHECK (counted IN (0, 1)),  -- 0: all of it is discarded
  start_ns        INTEGER,           -- first release
  finish_ns       INTEGER,           -- last finish
  last_start_ns   INTEGER,           -- release of the last copy
  first_finish_ns INTEGER,           -- end of the first copy that had nothing left to do
  complete        INTEGER NOT NULL CHECK (complete IN (0, 1)),  -- every copy ran to its end
  torn            INTEGER NOT NULL DEFAULT 0 CHECK (torn IN (0, 1)),  -- interrupted, and run again as
                                     -- a whole (`--resume`) as another phase
  window_start_ns  INTEGER,          -- steady mode: the window in which completions count
  window_finish_ns INTEGER,
  PRIMARY KEY (run_id, phase),
  FOREIGN KEY (run_id, benchmark) REFERENCES benchmark (run_id, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- One benchmark run once by one copy: one transaction when it ended.
-- Without rowid: an insert then changes one page of one tree, which is what a commit costs.
CREATE TABLE copy (
  run_id               INTEGER NOT NULL,
  phase                INTEGER NOT NULL,
  copy                 INTEGER NOT NULL,  -- number of the copy, from 0
  step                 INTEGER NOT NULL,  -- position in the copy's queue, from 0
  benchmark            TEXT NOT NULL,
  tune                 TEXT,              -- NULL: the run's
  iteration            INTEGER NOT NULL,
  counted              INTEGER NOT NULL CHECK (counted IN (0, 1)),  -- 0: a discarded iteration
  cpu                  INTEGER,           -- where it was placed; NULL: not bound or not known
  core                 INTEGER,
  llc                  INTEGER,
  node                 INTEGER,
  package              INTEGER,
  mem_nodes            TEXT,              -- nodes of its memory as a list; NULL: not bound or not known
  planned_start_ns     INTEGER,
  start_ns             INTEGER,           -- release; NULL: not known (imported)
  finish_ns            INTEGER,           -- end, seen by the supervisor
  elapsed_ns           INTEGER NOT NULL CHECK (elapsed_ns >= 0),  -- finish - start, or as imported
  status               TEXT NOT NULL
    CHECK (status IN ('ok', 'failed', 'timeout', 'wrong-output', 'interrupted')),
  exit_code            INTEGER,           -- NULL when a signal ended it
  signal               INTEGER,
  validity             TEXT NOT NULL
    CHECK (validity IN ('unchecked', 'no-expectation', 'valid', 'invalid')),
  validity_detail      TEXT,              -- the first difference, in words
  cpu_ns               INTEGER,           -- CPU time of the copy itself: user + system - gate
  user_ns              INTEGER,           -- as the kernel counted it, the gate's included
  system_ns            INTEGER,
  gate_cpu_ns          INTEGER,           -- used by the gate before the release
  max_rss_bytes        INTEGER,
  minor_faults         INTEGER,
  major_faults         INTEGER,
  voluntary_switches   INTEGER,
  involuntary_switches INTEGER,
  pid                  INTEGER,
  note                 TEXT,              -- in words, what was odd
  run_dir              TEXT,              -- where its files were
  gate_cpus            TEXT,              -- the kernel let it use while it waited at its gate, as lists:
  gate_mems            TEXT,              -- CPUs, and nodes; NULL: not looked at
  last_cpu             INTEGER,           -- its first thread ran on at the end; NULL: not looked at
  placement            TEXT               -- as planned, by all that was seen when the run ended?
    CHECK (placement IN ('met', 'not met', 'not known')),
  placement_note       TEXT,              -- why it was not, or is not known, in words
  PRIMARY KEY (run_id, phase, copy, step),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE,
  FOREIGN KEY (run_id, benchmark) REFERENCES benchmark (run_id, name) ON DELETE CASCADE,
  CHECK (start_ns IS NULL OR finish_ns - start_ns = elapsed_ns)
) STRICT, WITHOUT ROWID;

-- The commands that a copy ran in order, where it ran several (or a command file of SPEC's says
-- what it runs). Each begins as the one before it ends, the first with its copy.
CREATE TABLE workload (
  run_id     INTEGER NOT NULL,
  phase      INTEGER NOT NULL,
  copy       INTEGER NOT NULL,
  step       INTEGER NOT NULL,
  workload   INTEGER NOT NULL,  -- from 1; those that never began have no row
  start_ns   INTEGER,           -- NULL: not known (imported)
  finish_ns  INTEGER,
  elapsed_ns INTEGER NOT NULL CHECK (elapsed_ns >= 0),
  exit_code  INTEGER,           -- NULL when a signal ended it
  signal     INTEGER,
  pid        INTEGER,           -- of its own process, where that is told
  PRIMARY KEY (run_id, phase, copy, step, workload),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What one copy run reported of itself.
CREATE TABLE copy_metric (
  run_id INTEGER NOT NULL,
  phase  INTEGER NOT NULL,
  copy   INTEGER NOT NULL,
  step   INTEGER NOT NULL,
  name   TEXT NOT NULL,
  value  REAL NOT NULL,
  PRIMARY KEY (run_id, phase, copy, step, name),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What was seen of a copy while it ran (--proof). Not referring to copy: a look may be stored
-- a moment before the end of its copy, and at one whose end rater did not live to see.
CREATE TABLE sample (
  run_id         INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  phase          INTEGER NOT NULL,
  copy           INTEGER NOT NULL,
  step           INTEGER NOT NULL,
  age_ns         INTEGER NOT NULL,  -- since the copy's release; of several looks the last one's
  looks          INTEGER NOT NULL,  -- it stands for: averages of those (bytes), else their extremes
  processes      INTEGER NOT NULL,  -- of the copy that were looked at
  unread         INTEGER NOT NULL,  -- of them that were not looked at in all parts
  cpus           TEXT NOT NULL,     -- its threads ran on last, as a list
  allowed        TEXT,              -- affinity mask of its first process as a list
  migrations     INTEGER,           -- to another CPU, of threads that still live
  pages_migrated INTEGER,           -- by the kernel's NUMA balancing
  node_bytes     TEXT,              -- anonymous, shared and huge pages by node: {"0": 4096}
  policy         TEXT,              -- of most of it, as the kernel names it: bind:2
  page_bytes     TEXT,              -- the same memory by page size in bytes
  rss_bytes      INTEGER,           -- resident, huge pages included; files too
  peak_bytes     INTEGER,           -- highest since its exec; NULL: not known
  swap_bytes     INTEGER,           -- the most that was swapped out
  read_ns        INTEGER NOT NULL,  -- how long a look took, the longest one
  astray_bytes   TEXT,              -- node_bytes of the look with most away from the plan
  PRIMARY KEY (run_id, phase, copy, step, age_ns)
) STRICT, WITHOUT ROWID;

-- What looking at copies cost; of a resumed run, all attempts together that were not killed.
CREATE TABLE observed (
  run_id         INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  cadence        TEXT NOT NULL,     -- --proof: auto, once, or seconds
  samples        INTEGER NOT NULL,  -- looks at copies
  interval_s     REAL,              -- mean time between two looks at the same copy
  cpu_s          REAL NOT NULL,     -- CPU time all of it took
  share          REAL NOT NULL,     -- of one CPU, while copies ran
  longest_read_s REAL NOT NULL,
  unknown        TEXT NOT NULL      -- what this machine does not show, as a JSON list
) STRICT;

-- What each CPU did during a phase: the difference of two readings of /proc/stat, before the first
-- release and after the last end. The kernel counts in ticks of 10 ms. Rows are there of phases
-- that ended, without `--proof off`.
CREATE TABLE cpu_reading (
  run_id     INTEGER NOT NULL,
  phase      INTEGER NOT NULL,
  cpu        INTEGER NOT NULL,
  user_ns    INTEGER NOT NULL,  -- low priority and guests included
  system_ns  INTEGER NOT NULL,
  iowait_ns  INTEGER NOT NULL,
  irq_ns     INTEGER NOT NULL,  -- interrupts and soft interrupts
  steal_ns   INTEGER NOT NULL,  -- wanted, but given to others by the hypervisor
  idle_ns    INTEGER NOT NULL,
  mean_khz   INTEGER,           -- frequency while copies ran; NULL: not read
  throttles  INTEGER,           -- times that its core or package was too hot; NULL: not told
  interrupts INTEGER,           -- that it took; NULL: not read (more than 128 CPUs)
  filler_ns  INTEGER NOT NULL,  -- CPU time of runs after the window (steady mode), which have no row
                                -- in copy; of copies not bound: with the first CPU
  PRIMARY KEY (run_id, phase, cpu),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What counters of the whole machine came to between the same two readings: elapsed_ns between
-- them, rater_cpu_ns that rater's own process used, pressure_WHAT_some_ns and _full_ns that some or
-- all tasks waited (/proc/pressure), energy_DOMAIN_uj microjoules (package-0, package-0-dram, psys),
-- others as in /proc/vmstat (allocstall over all zones).
CREATE TABLE phase_reading (
  run_id INTEGER NOT NULL,
  phase  INTEGER NOT NULL,
  name   TEXT NOT NULL,
  value  INTEGER NOT NULL,
  PRIMARY KEY (run_id, phase, name),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- The result file of SPEC CPU that an imported run was read from.
CREATE TABLE spec_file (
  run_id        INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  name          TEXT NOT NULL,     -- without its folder
  sha256        TEXT NOT NULL,
  format        TEXT NOT NULL CHECK (format IN ('rsf', 'log')),
  suite         TEXT,              -- cpu2006, cpu2017, ...
  metric        TEXT,              -- as the file says: CINT2006
  base_mean     REAL,              -- geometric means as the file says
  peak_mean     REAL,
  problems      INTEGER NOT NULL,  -- lines that could not be read
  disagreements INTEGER NOT NULL   -- values that the file's own numbers contradict
) STRICT;

-- What such a file says of a bracket, beside what the copies' times come to (bracket_result).
CREATE TABLE spec_result (
  run_id      INTEGER NOT NULL,
  phase       INTEGER NOT NULL,
  copies      INTEGER,  -- that ran, whether or not their times are in the file
  reported_s  REAL,     -- start of the first copy to finish of the last
  reference_s REAL,
  ratio       REAL,
  selected    INTEGER CHECK (selected IN (0, 1)),  -- 1: it stands for the benchmark
  valid       TEXT,     -- S: valid; CE, RE, VE, NR, ...: why not
  errors      TEXT,     -- a line each
  PRIMARY KEY (run_id, phase),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- When a run was searched for divots, and how: a healthy run has this row and none in `divot`.
CREATE TABLE divot_search (
  run_id          INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  version         INTEGER NOT NULL,  -- of the detector; another one searches again
  threshold_group REAL NOT NULL,     -- smallest effects looked for: 0.015 is 1.5 % of a time
  threshold_copy  REAL NOT NULL,
  copy_runs       INTEGER NOT NULL,  -- rows of `copy` then; a resumed run has more
  visible         TEXT NOT NULL,     -- the smallest effects this run could show, as JSON
  failed          INTEGER NOT NULL,  -- copy runs left out because they did not end well
  searched_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- What was found: the most costly first, what the layout explains last.
CREATE TABLE divot (
  run_id     INTEGER NOT NULL REFERENCES divot_search (run_id) ON DELETE CASCADE,
  position   INTEGER NOT NULL,  -- from 0
  kind       TEXT NOT NULL,     -- outlier-copy, slow-lgroup, slow-group, slow-cpu, ...
  explained  INTEGER NOT NULL CHECK (explained IN (0, 1)),  -- by the layout: no divot
  place      TEXT NOT NULL,     -- the smallest part that explains it: 'lgroup 3', 'CPUs 8-15'
  benchmarks TEXT NOT NULL,     -- a JSON list; empty: all of the run
  tune       TEXT,
  iterations TEXT NOT NULL,     -- 1-3; empty: all of the run
  copies     TEXT NOT NULL,     -- all that it covers, 0-7
  cpus       TEXT NOT NULL,
  nodes      TEXT NOT NULL,
  package    INTEGER,
  core       INTEGER,
  slowdown   REAL NOT NULL,     -- time over fair time; below 1: fast
  score_lost REAL,              -- share of the run's score, 0 to 1; NULL: there is none (steady, rotated)
  evidence   TEXT NOT NULL,     -- one line
  finding    TEXT NOT NULL,     -- all of it, as JSON
  PRIMARY KEY (run_id, position)
) STRICT, WITHOUT ROWID;

-- One call of `rater sweep`: runs under all combinations of some values, in blocks.
CREATE TABLE sweep (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid            TEXT NOT NULL UNIQUE,
  -- 'running' and its process gone means that rater was killed
  status          TEXT NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'interrupted')),
  reason          TEXT,              -- why it ended before all its runs were there, in words
  started_at      TEXT NOT NULL,     -- UTC, ISO 8601; so is the next
  ended_at        TEXT,
  rounds          INTEGER NOT NULL CHECK (rounds > 0),  -- blocks: every point once in each
  block_order     TEXT NOT NULL CHECK (block_order IN ('shuffled', 'given', 'abba')),
  seed            INTEGER NOT NULL,  -- of shuffled orders
  until           REAL,              -- margin (0.01: 1 %) at which it may stop early; NULL: never
  stop_on_failure INTEGER NOT NULL CHECK (stop_on_failure IN (0, 1)),
  suite           TEXT,              -- NULL: a plain command
  command_line    TEXT NOT NULL,     -- how rater was called, and where
  rater_version   TEXT NOT NULL,
  directory       TEXT NOT NULL,
  file            TEXT,              -- the TOML file it was read from; NULL: none
  file_sha256     TEXT,
  file_text       TEXT,
  pid             INTEGER NOT NULL,  -- rater's own process, as in `run`
  pid_start       INTEGER NOT NULL,
  boot_id         TEXT NOT NULL,
  resumed         INTEGER NOT NULL DEFAULT 0, -- how many times `rater sweep --resume` took it up
  extended        INTEGER NOT NULL DEFAULT 0  -- how many times `--resume --rounds` added blocks
) STRICT;

-- A tunable of a sweep.
CREATE TABLE sweep_axis (
  sweep_id INTEGER NOT NULL REFERENCES sweep (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,  -- as it was given, from 0
  name     TEXT NOT NULL,     -- copies, thp, env:NAME
  kind     TEXT NOT NULL CHECK (kind IN ('option', 'environment', 'setting')),
  PRIMARY KEY (sweep_id, position),
  UNIQUE (sweep_id, name)
) STRICT, WITHOUT ROWID;

-- One combination of values; number 0 is the baseline.
CREATE TABLE sweep_point (
  sweep_id INTEGER NOT NULL REFERENCES sweep (id) ON DELETE CASCADE,
  point    INTEGER NOT NULL,
  label    TEXT NOT NULL,  -- 'copies=4 thp=always'
  request  TEXT NOT NULL,  -- what its runs are asked for, as JSON; settings of the machine not in it
  left_out TEXT,           -- why it cannot run here; NULL: it can
  PRIMARY KEY (sweep_id, point)
) STRICT, WITHOUT ROWID;

CREATE TABLE sweep_value (
  sweep_id INTEGER NOT NULL,
  point    INTEGER NOT NULL,
  axis     TEXT NOT NULL,
  value    TEXT NOT NULL,  -- '': the option is not given, the variable not set
  PRIMARY KEY (sweep_id, point, axis),
  FOREIGN KEY (sweep_id, point) REFERENCES sweep_point (sweep_id, point) ON DELETE CASCADE,
  FOREIGN KEY (sweep_id, axis) REFERENCES sweep_axis (sweep_id, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Every run that is planned, in the order in which they are made.
CREATE TABLE sweep_slot (
  sweep_id INTEGER NOT NULL,
  block    INTEGER NOT NULL,  -- round, from 1
  position INTEGER NOT NULL,  -- in the block, from 1
  point    INTEGER NOT NULL,
  PRIMARY KEY (sweep_id, block, position),
  UNIQUE (sweep_id, block, point),
  FOREIGN KEY (sweep_id, point) REFERENCES sweep_point (sweep_id, point) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- A run made for a slot: stored in one transaction with the run, so that none is made twice.
CREATE TABLE sweep_run (
  run_id   INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  sweep_id INTEGER NOT NULL,
  block    INTEGER NOT NULL,
  point    INTEGER NOT NULL,
  phases   INTEGER NOT NULL,  -- brackets that it has once all is measured
  replaced INTEGER NOT NULL DEFAULT 0 CHECK (replaced IN (0, 1)),  -- 1: did not get to its end,
                              -- another run was made in its place
  FOREIGN KEY (sweep_id, block, point) REFERENCES sweep_slot (sweep_id, block, point)
    ON DELETE CASCADE
) STRICT;

CREATE UNIQUE INDEX sweep_run_once ON sweep_run (sweep_id, block, point) WHERE replaced = 0;
