"""Every number that the model of a run rests on, with where it comes from."""

from __future__ import annotations

from typing import Final

# How sure: expected false findings of a healthy run are about this, split among all candidates.
# Set by simulation (benchmarks/divot_cases): 1 % of clean runs with an alarm.
ALPHA: Final = 0.01
# Of copies that stand out in a single cell, whose tails are the least well known (simulated with
# normal, gamma, lognormal and t noise of 3 and 5 degrees: at most 1 run in 15 of the heaviest).
ALPHA_SINGLE: Final = 0.0065

# Smallest effects, as ln ratios, beside those of the user's thresholds (note on divots, section 2:
# half of them doubles nothing but the alarms).
EVERYWHERE: Final = 0.010  # a part in nearly all benchmarks
ONCE: Final = 0.025  # a part in one iteration
ITERATION: Final = 0.015  # an iteration in all benchmarks
ITERATION_ONE: Final = 0.020  # in one benchmark
DRIFT: Final = 0.014  # from the first iteration to the last
COPY_ALWAYS: Final = 0.015  # a copy or CPU in nearly all benchmarks

# What parts of a healthy machine differ by (standard deviations of ln time). Published runs of
# healthy servers: 0.2 to 0.4 % between lgroups (note on divots, section 3).
TAU: Final = 0.0025
TAU_FEW: Final = 0.00375  # of fewer than five parts their own spread says too little
MANY_PARTS: Final = 5

# Agreement, as shares. A benchmark or an iteration shows an effect when it has `SHOWS` of it.
SHOWS: Final = 0.35
MOST: Final = 0.7  # of the benchmarks: the part is slow in all
MOST_ITERATIONS: Final = 0.6  # of the iterations: it is slow in all
BALANCED: Final = 0.35  # parts of more of the copies are compared with the rest itself
SAME: Final = 0.8  # of members: a set of copies is that part of the machine

# Tails of times: the shape of a generalised Pareto, 0 of a normal distribution, 1/3 of Student's t
# with three degrees of freedom. Little data says less than this; a run's own is taken from it.
TAIL: Final = 0.16
LEAST_TAIL: Final = 0.09  # no tail is known to be lighter

MOST_FINDINGS: Final = 40  # a run with more is not described by parts of the machine
MOST_SINGLE: Final = 0.20  # of a cell's copies stand out singly; more are two sorts of copies
HALF: Final = 0.4  # of the copies, up to which a part can be fast: of two halves one is slow
BIGGEST: Final = 0.6  # of the copies: what is slow is what fewer copies share
GAP: Final = 0.5  # of their distance, between fast copies and the rest
KEPT: Final = 0.3  # of a part's effect at most is what its copies that kept their speed have
JOINED: Final = 0.6  # of benchmarks in common, and
ALIKE: Final = 1.6  # times the size at most: two parts with one cause
FEW_COPIES: Final = 0.15  # of all: single copies rather than a group of them
SIDE: Final = 0.18  # of all: one of two sorts of copies
SPREAD: Final = 0.012  # standard deviation of what copies always differ by
MOST_FAST: Final = 0.06  # of the copies of a benchmark: more fast ones are a tail, no divot
FAST: Final = 2.0  # times the threshold, and
FAST_ALPHA: Final = 0.03  # as sure: fast copies cost nothing, and times have fast tails
TURNS: Final = 0.010  # standard deviation of lgroups from iteration to iteration
TURNS_SURE: Final = 5.0  # in standard normals
MOST_LUCKY: Final = 0.3  # of the copies, fast ones of a benchmark that does not repeat
LUCKY_SURE: Final = 4.0  # standard deviations of a repeat that they are apart by
LEAST_MODES: Final = 8  # copies that two sorts can be told of
MANY_ONCE: Final = 3  # benchmarks of one iteration: a CPU was slow then, not a copy
DIP: Final = 0.53  # of one cell, that one mode has once in a hundred (module `modes`)
MOST_SHOW: Final = 0.3  # of a part's copies at most are not on the side of its effect
SEVERAL_Z: Final = 4.5  # several copies of a cell at least (note on divots, section 3)
LEAST_RUN: Final = 3  # neighbours are a group from so many on
