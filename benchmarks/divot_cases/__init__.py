"""An independent judge of `rater divots`: made runs of known truth, and a scorer of its answers.

`python -m benchmarks.divot_cases --runs 1000 --seed S [--report FILE.json]`. Nothing of the
detector is read here but its JSON (`rater divots RUN --json`), and of that, in every element:

- `kind` (`explained...` is no alarm), `explained`, `note` (true: no alarm), `finding` (elements
  with one number are one finding), `benchmark` / `benchmarks`, `iteration` / `iterations` (as
  recorded: from 1), `copies`, `cpus`, `nodes`; what is absent or empty is "all";
- `slowdown` (below 1: faster), `score_lost` (rotated order: `time_lost`);
- "which half is normal cannot be told": `ambiguous` is true, or the kind or the evidence says so
  (`ambig`, `cannot be told`).

Half of the runs are healthy. Others have one to three plants. A run is a field of log times,
benchmark x iteration x copy: level + layout (shared CPUs and cores, load of an lgroup) + nature
(lgroups and CPUs that differ a little, iterations that swing) + plants + noise. What the layout
or nature really does is neither demanded nor false; the layout told as a divot is counted apart.

A plant is *demanded* when an oracle that knows its cells, and the noise, sees it at z >= 6, when
it is larger than the smallest effect (part of the machine 1.5 %, copy 3 %) by two of the oracle's
standard errors and the clock's step, when one who has to learn the noise from the run's own copies
would believe it (Student's t), when copies outside share CPUs and cores as those inside do, and,
for single copies, when noise alone would make less than 0.001 like it in that run.
"""
