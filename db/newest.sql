-- schema 28
-- Of schema.sql and migrations/, by `make freeze`.

PRAGMA application_id = 1918989426;

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

CREATE TABLE setting (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE environment (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tag (
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  name   TEXT NOT NULL,
  value  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tag_value ON tag (name, value);

CREATE TABLE note (
  id     INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  kind   TEXT NOT NULL CHECK (kind IN ('warning', 'note')),  -- before the first phase, or since
  text   TEXT NOT NULL
) STRICT;

CREATE INDEX note_run ON note (run_id);

CREATE TABLE pu (
  run_id  INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  cpu     INTEGER NOT NULL,
  core    INTEGER,
  llc     INTEGER,  -- last-level cache
  node    INTEGER,  -- lgroup
  package INTEGER,
  PRIMARY KEY (run_id, cpu)
) STRICT, WITHOUT ROWID;

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
  placement_note       TEXT, late_ns INTEGER, mean_rss_bytes INTEGER, peak_rss_bytes INTEGER, rss_looks INTEGER, run_delay_ns INTEGER, run_delay_cpu_ns INTEGER, stopped_ns INTEGER,              -- why it was not, or is not known, in words
  PRIMARY KEY (run_id, phase, copy, step),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE,
  FOREIGN KEY (run_id, benchmark) REFERENCES benchmark (run_id, name) ON DELETE CASCADE,
  CHECK (start_ns IS NULL OR finish_ns - start_ns = elapsed_ns)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE phase_reading (
  run_id INTEGER NOT NULL,
  phase  INTEGER NOT NULL,
  name   TEXT NOT NULL,
  value  INTEGER NOT NULL,
  PRIMARY KEY (run_id, phase, name),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

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

CREATE TABLE divot_search (
  run_id          INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  version         INTEGER NOT NULL,  -- of the detector; another one searches again
  threshold_group REAL NOT NULL,     -- smallest effects looked for: 0.015 is 1.5 % of a time
  threshold_copy  REAL NOT NULL,
  copy_runs       INTEGER NOT NULL,  -- rows of `copy` then; a resumed run has more
  visible         TEXT NOT NULL,     -- the smallest effects this run could show, as JSON
  failed          INTEGER NOT NULL,  -- copy runs left out because they did not end well
  searched_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
, others_cost REAL, noise_cost REAL, cpu_others_took REAL, cpu_noise_cost REAL, not_by_cpu TEXT) STRICT;

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
, until_of TEXT NOT NULL DEFAULT 'time'
  CHECK (until_of IN ('time', 'energy'))) STRICT;

CREATE TABLE sweep_axis (
  sweep_id INTEGER NOT NULL REFERENCES sweep (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,  -- as it was given, from 0
  name     TEXT NOT NULL,     -- copies, thp, env:NAME
  kind     TEXT NOT NULL CHECK (kind IN ('option', 'environment', 'setting')),
  PRIMARY KEY (sweep_id, position),
  UNIQUE (sweep_id, name)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE sweep_slot (
  sweep_id INTEGER NOT NULL,
  block    INTEGER NOT NULL,  -- round, from 1
  position INTEGER NOT NULL,  -- in the block, from 1
  point    INTEGER NOT NULL,
  PRIMARY KEY (sweep_id, block, position),
  UNIQUE (sweep_id, block, point),
  FOREIGN KEY (sweep_id, point) REFERENCES sweep_point (sweep_id, point) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

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

CREATE TABLE copy_count (
  run_id     INTEGER NOT NULL,
  phase      INTEGER NOT NULL,
  copy       INTEGER NOT NULL,
  step       INTEGER NOT NULL,
  group_name TEXT NOT NULL,     -- events counted at the same time, with their table: intel-skx:numa
  event      TEXT NOT NULL,
  value      INTEGER,           -- as it was counted; NULL: it had no counter
  enabled_ns INTEGER NOT NULL,  -- CPU time while it was to be counted, of all threads together
  running_ns INTEGER NOT NULL,  -- and while it was: less where others had the counters (scale by it)
  PRIMARY KEY (run_id, phase, copy, step, group_name, event),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE counted (
  run_id    INTEGER NOT NULL,
  phase     INTEGER NOT NULL,
  user_only INTEGER NOT NULL CHECK (user_only IN (0, 1)),  -- 1: without what the kernel did for them
  copies    INTEGER NOT NULL,  -- runs of copies
  open_ns   INTEGER NOT NULL,
  read_ns   INTEGER NOT NULL,
  close_ns  INTEGER NOT NULL,
  PRIMARY KEY (run_id, phase),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE fleet_setting (
  id       INTEGER PRIMARY KEY,
  sha256   TEXT NOT NULL UNIQUE,
  settings TEXT NOT NULL
) STRICT;

CREATE TABLE fleet_run (
  fleet           INTEGER NOT NULL,  -- number of the fleet
  host            TEXT NOT NULL,     -- the node, as the scheduler calls it
  attempt         INTEGER NOT NULL,  -- of that node, from 1
  run             INTEGER NOT NULL,  -- its number in the published database
  uuid            TEXT NOT NULL,
  hostname        TEXT,              -- as the machine calls itself
  machine_id_hash TEXT,
  status          TEXT NOT NULL,
  reason          TEXT,
  started_at      TEXT,              -- by the host's clock
  suite           TEXT,
  size            TEXT,
  tune            TEXT,
  mode            TEXT NOT NULL,
  copies          INTEGER NOT NULL,
  cpu_model       TEXT,
  microcode       TEXT,
  memory_bytes    INTEGER,
  kernel          TEXT,
  cpus            INTEGER NOT NULL,  -- that it could use
  setting         INTEGER NOT NULL REFERENCES fleet_setting (id),
  copy_runs       INTEGER NOT NULL,  -- stored, and of them those that did not end well
  failed          INTEGER NOT NULL,
  sha256          TEXT NOT NULL,     -- of the published database, which the archive has by this name
  bytes           INTEGER NOT NULL, others_cost REAL,  -- before compression
  PRIMARY KEY (fleet, host, attempt, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX fleet_run_started ON fleet_run (started_at);

CREATE INDEX fleet_run_host ON fleet_run (host, started_at);

CREATE INDEX fleet_run_archived ON fleet_run (sha256);

CREATE TABLE result (
  fleet     INTEGER NOT NULL,
  benchmark TEXT NOT NULL,
  host      TEXT NOT NULL,
  attempt   INTEGER NOT NULL,
  run       INTEGER NOT NULL,
  bracket_s TEXT,           -- of each counted iteration that is valid, as JSON; NULL: there are none
  copy_s    TEXT NOT NULL,  -- the median copy's time in the same iterations
  PRIMARY KEY (fleet, benchmark, host, attempt, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX result_host ON result (host, benchmark);

CREATE TABLE removed (
  uuid       TEXT PRIMARY KEY,
  kind       TEXT NOT NULL CHECK (kind IN ('run', 'sweep')),
  removed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT, WITHOUT ROWID;

CREATE TABLE merged_file (
  sha256    TEXT PRIMARY KEY,  -- of the file and, where it has one, its write-ahead log
  name      TEXT NOT NULL,     -- as it was named
  merged_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT, WITHOUT ROWID;

CREATE TABLE fleet (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid            TEXT NOT NULL UNIQUE,
  started_at      TEXT NOT NULL,     -- UTC, ISO 8601
  backend         TEXT NOT NULL,     -- slurm, local
  folder          TEXT NOT NULL,     -- that all nodes see
  scratch         TEXT NOT NULL,     -- on each node's own disk
  directory       TEXT NOT NULL,     -- where it was called, and jobs start
  words           TEXT NOT NULL,     -- behind `rater run` on each node: a JSON list
  command         TEXT,              -- behind `--`: a JSON list; NULL: suites
  command_line    TEXT NOT NULL,     -- how rater was called
  rater_version   TEXT NOT NULL,
  parallel        INTEGER CHECK (parallel > 0),  -- jobs at a time; NULL: any number
  attempts        INTEGER NOT NULL CHECK (attempts > 0),  -- of a node, at most
  minutes         INTEGER CHECK (minutes > 0),   -- time limit of a job; NULL: the scheduler's
  pending_limit_s REAL,              -- a job may be pending; NULL: for ever
  settle_s        REAL NOT NULL,     -- a published file may need to be seen on the submit host
  arguments       TEXT NOT NULL,     -- of the site, for the scheduler: a JSON list
  allow_partial   INTEGER NOT NULL CHECK (allow_partial IN (0, 1)),
  begun           INTEGER NOT NULL DEFAULT 0 CHECK (begun IN (0, 1)),  -- 0: the command that made it
                                     -- was killed, or goes on
  cancelled_at    TEXT,              -- UTC, ISO 8601; NULL: it was not
  pid             INTEGER NOT NULL,  -- of who made it, as in `run`
  pid_start       INTEGER,
  boot_id         TEXT NOT NULL
, busy_limit_s REAL NOT NULL DEFAULT 600, confirms INTEGER) STRICT;

CREATE TABLE fleet_node (
  fleet_id INTEGER NOT NULL REFERENCES fleet (id) ON DELETE CASCADE,
  node     TEXT NOT NULL,  -- the key's columns first: quick_check of SQLite 3.40 mistakes others
  position INTEGER NOT NULL,  -- as it was given, from 0
  PRIMARY KEY (fleet_id, node),
  UNIQUE (fleet_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE fleet_change (
  id       INTEGER PRIMARY KEY,
  fleet_id INTEGER NOT NULL,
  node     TEXT NOT NULL,
  attempt  INTEGER NOT NULL,
  at_s     REAL NOT NULL,
  state    TEXT NOT NULL,
  reason   TEXT,
  FOREIGN KEY (fleet_id, node, attempt) REFERENCES fleet_attempt (fleet_id, node, attempt)
    ON DELETE CASCADE
) STRICT;

CREATE INDEX fleet_change_of ON fleet_change (fleet_id, node, attempt);

CREATE TABLE page_region (
  run_id             INTEGER NOT NULL,
  phase              INTEGER NOT NULL,
  copy               INTEGER NOT NULL,
  step               INTEGER NOT NULL,
  category           TEXT NOT NULL,     -- heap, mmap, static
  split              INTEGER NOT NULL CHECK (split IN (0, 1)), -- 1: blocks of 128 KB and more are of mmap
  share_of_bytes     INTEGER,           -- what shares of the layout were taken of; NULL: it had none
  extent_bytes       INTEGER NOT NULL,  -- from the start of the region to its last page
  resident_bytes     INTEGER NOT NULL,
  planned_bytes      INTEGER NOT NULL,  -- of the extent, what was to lie in larger pages
  touched_bytes      INTEGER NOT NULL,  -- pages of that with anything in them, as a whole
  huge_bytes         INTEGER,           -- of it, what did lie in larger pages; NULL: cannot be seen
  stray_bytes        INTEGER NOT NULL,  -- in larger pages that were not planned
  page_bytes         TEXT NOT NULL,     -- JSON: page size, bytes
  largest_page_bytes INTEGER NOT NULL,  -- that was planned
  seen               TEXT NOT NULL,     -- exit, peak, fork: by the library; look: from outside
  processes          INTEGER NOT NULL,  -- of the copy that the library was in
  forks              INTEGER NOT NULL,  -- of the largest process
  note               TEXT,              -- what went wrong, in words
  PRIMARY KEY (run_id, phase, copy, step, category),
  FOREIGN KEY (run_id, phase, copy, step) REFERENCES copy (run_id, phase, copy, step)
    ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE page_trace (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid         TEXT NOT NULL UNIQUE,
  traced_at    TEXT NOT NULL,     -- UTC, ISO 8601
  host         TEXT NOT NULL,
  name         TEXT NOT NULL,
  command      TEXT NOT NULL,     -- words, as JSON
  suite        TEXT,              -- NULL: a plain command
  size         TEXT,
  engine       TEXT NOT NULL,
  tlb          TEXT NOT NULL,     -- as --tlb takes it
  rate         REAL NOT NULL CHECK (rate > 0 AND rate <= 1),  -- of pages in the sample; 1: exact
  elapsed_s    REAL NOT NULL,     -- traced
  native_s     REAL,              -- by itself
  page_changes INTEGER NOT NULL,  -- references to another 4 KB page than the one before
  programs     INTEGER NOT NULL,  -- one behind the other
  processes    INTEGER NOT NULL,  -- started, not traced
  notes        TEXT NOT NULL,     -- as JSON
  costs        TEXT NOT NULL      -- what misses and faults cost there, as JSON, as measured
, native_cpu_s REAL) STRICT;

CREATE TABLE page_category (
  trace_id INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  category TEXT NOT NULL,
  refs     INTEGER NOT NULL,
  stores   INTEGER NOT NULL,      -- page changes with a store
  PRIMARY KEY (trace_id, category)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_size (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  page_bytes INTEGER NOT NULL,
  error      REAL,                -- standard error of a sample's far references, as a share; NULL:
                                  -- exact, or too few pages
  error_from INTEGER NOT NULL,    -- distance from which on they are far
  PRIMARY KEY (trace_id, page_bytes)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_touched (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  page_bytes INTEGER NOT NULL,
  category   TEXT NOT NULL,
  pages      INTEGER NOT NULL,    -- different ones
  faults     INTEGER NOT NULL,    -- first touches, those after memory was given back too
  PRIMARY KEY (trace_id, page_bytes, category)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_reuse (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  page_bytes INTEGER NOT NULL,
  category   TEXT NOT NULL,
  distance   INTEGER NOT NULL,    -- other pages in between; from 32 on the least of a bin, 16 of
                                  -- which double
  refs       INTEGER NOT NULL,
  PRIMARY KEY (trace_id, page_bytes, category, distance)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_mapping (
  trace_id     INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  heap_bytes   INTEGER NOT NULL,
  mmap_bytes   INTEGER NOT NULL,
  static_bytes INTEGER NOT NULL,
  category     TEXT NOT NULL,     -- whose misses
  l1_misses    INTEGER NOT NULL,  -- of the first level, walks included
  walks        INTEGER NOT NULL,
  position     INTEGER NOT NULL, store_l1_misses INTEGER, store_walks INTEGER,  -- of the mapping
  PRIMARY KEY (trace_id, heap_bytes, mmap_bytes, static_bytes, category)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_region_misses (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  category   TEXT NOT NULL,
  region     INTEGER NOT NULL,    -- from the category's start
  l1_base    INTEGER NOT NULL,
  walks_base INTEGER NOT NULL,
  l1_huge    INTEGER NOT NULL,
  walks_huge INTEGER NOT NULL,
  PRIMARY KEY (trace_id, category, region)
) STRICT, WITHOUT ROWID;

CREATE TABLE page_check (
  trace_id  INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  layout    TEXT NOT NULL,        -- as --pages takes it
  round     INTEGER NOT NULL,
  elapsed_s REAL NOT NULL, user_s REAL,
  PRIMARY KEY (trace_id, layout, round)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_score (
  run_id    INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
  value     REAL,              -- NULL: not every benchmark has a valid result
  unit      TEXT,              -- ratio, or copies/h
  copy_runs INTEGER NOT NULL,  -- rows of `copy` then
  version   INTEGER NOT NULL   -- of the formula
) STRICT;

CREATE INDEX run_suite ON run (suite);

CREATE INDEX run_started ON run (coalesce(started_at, stored_at));

CREATE INDEX host_hostname ON host (hostname);

CREATE TABLE "fleet_attempt" (
  fleet_id   INTEGER NOT NULL,
  node       TEXT NOT NULL,
  attempt    INTEGER NOT NULL CHECK (attempt > 0),
  state      TEXT NOT NULL CHECK (state IN ('intent', 'submitted', 'pending', 'running', 'waiting',
               'complete', 'failed', 'partial', 'refused', 'lost', 'timeout', 'cancelled', 'never')),
  reason     TEXT,           -- of its state, in words
  job        TEXT,           -- the scheduler's number
  ending     TEXT CHECK (ending IN ('cancelled', 'never', 'not-needed')),  -- why rater ends the job
  ending_s   REAL,           -- since when
  intended_s REAL NOT NULL,  -- when this row was written
  started_s  REAL,           -- when its job was first seen running
  pending_s  REAL,           -- since when it is pending
  gone_s     REAL,           -- since when its job has ended, with nothing published yet
  ended_s    REAL,
  verdict    TEXT,           -- what the node published, JSON
  collected  TEXT,           -- sha256 of its database, once that was collected
  version    INTEGER NOT NULL DEFAULT 0,  -- how often the row was changed
  pid        INTEGER NOT NULL,  -- who submits it
  pid_start  INTEGER,
  boot_id    TEXT NOT NULL,
  PRIMARY KEY (fleet_id, node, attempt),
  FOREIGN KEY (fleet_id, node) REFERENCES fleet_node (fleet_id, node) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE foreign_process (
  run_id      INTEGER NOT NULL,
  phase       INTEGER NOT NULL,
  cpu         INTEGER NOT NULL,
  pid         INTEGER NOT NULL,
  name        TEXT NOT NULL,     -- as the kernel has it, at most 15 characters, printable
  cpu_ns      INTEGER NOT NULL,  -- used between the first look of the phase and the last,
  observed_ns INTEGER NOT NULL,  -- which are so far apart
  PRIMARY KEY (run_id, phase, cpu, pid, name),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE series (
  run_id   INTEGER NOT NULL,
  phase    INTEGER NOT NULL,
  family   TEXT NOT NULL,     -- cpu, machine, node, package, copy, traffic
  begin_ns INTEGER NOT NULL,  -- of the first sample, from the run's first release
  samples  INTEGER NOT NULL,
  places   TEXT NOT NULL,     -- CPUs, nodes, packages or copies: "0-7"; "0": the whole machine
  columns  TEXT NOT NULL,     -- JSON array of names
  packed   BLOB NOT NULL,
  PRIMARY KEY (run_id, phase, family),
  FOREIGN KEY (run_id, phase) REFERENCES bracket (run_id, phase) ON DELETE CASCADE
) STRICT;

CREATE TABLE page_walk (
  trace_id   INTEGER NOT NULL REFERENCES page_trace (id) ON DELETE CASCADE,
  position   INTEGER NOT NULL,      -- of the mapping
  walk_order INTEGER NOT NULL,      -- 0 anyhow, 1 beside one of the latest, 2 in its line of the page table
  octave     INTEGER NOT NULL,      -- of the number of walks; 0: the page's first
  loads      INTEGER NOT NULL,
  stores     INTEGER NOT NULL,
  PRIMARY KEY (trace_id, position, walk_order, octave)
) STRICT, WITHOUT ROWID;
