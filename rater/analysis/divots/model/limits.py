"""Every number that the model of a run rests on, with where it comes from."""

from __future__ import annotations

from typing import Final

# How sure: expected false findings of a healthy run are about this, split among all candidates.
# Set by simulation (benchmarks/divot_cases): 1 % of clean runs with an alarm.
ALPHA: Final = 0.002

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

# Tails of times: Student's t. A healthy run has 5 to 8; a run's own are taken from it.
TAIL: Final = 6.0
TAILS: Final = (2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 30.0)

MOST_FINDINGS: Final = 40  # a run with more is not described by parts of the machine
MOST_SINGLE: Final = 0.25  # of a cell's copies stand out singly; more are two sorts of copies
HALF: Final = 0.4  # of the copies, up to which a part can be fast: of two halves one is slow
BIGGEST: Final = 0.6  # of the copies: what is slow is what fewer copies share
GAP: Final = 0.5  # of their distance, between fast copies and the rest
JOINED: Final = 0.6  # of benchmarks in common, and
ALIKE: Final = 1.6  # times the size at most: two parts with one cause
FEW_COPIES: Final = 0.15  # of all: single copies rather than a group of them
SIDE: Final = 0.18  # of all: one of two sorts of copies
SPREAD: Final = 0.012  # standard deviation of what copies always differ by
MOST_FAST: Final = 0.06  # of the copies of a benchmark: more fast ones are a tail, no divot
