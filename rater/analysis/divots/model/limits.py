"""Every number that the model of a run rests on, with where it comes from.

A statistic's own constant is named by it; (N) is the note on divots, set there on 1600 made runs
and held by their held-out half; (S) was set by simulation with benchmarks/divot_cases, on seeds
other than those that judge; the rest say what they mean.
"""

from __future__ import annotations

import math
from typing import Final

# -- how sure -------------------------------------------------------------------------------------
# Expected false findings of a healthy run, split among all candidates: parts so that at most 3 %
# of clean runs alarm (S), copies of single cells so that 5 % do whose noise is t of three degrees.
ALPHA: Final = 0.015
ALPHA_SINGLE: Final = 0.003
FAST_SHARE: Final = 0.25  # of that for fast copies: few are, and none costs anything
SURE: Final = 5.0  # standard errors of what is judged one at a time (N)
SURE_OF_FEW: Final = 3.0  # over copies squared, more: a spread of few is easily too small (S)
SEVERAL_Z: Final = 4.5  # standard deviations of each of several copies of a cell (N)

# -- smallest effects, as ln ratios, beside the user's thresholds ---------------------------------
# (N): half of them doubles nothing but the alarms.
EVERYWHERE: Final = 0.010  # a part in nearly all benchmarks
ONCE: Final = 0.025  # a part in one iteration
ITERATION: Final = 0.015  # an iteration in all benchmarks
BESIDE: Final = 0.25  # of the benchmarks: if more are slower than it, it has a range
ITERATION_ONE: Final = 0.020  # in one benchmark
DRIFT: Final = 0.014  # from the first iteration to the last
COPY_ALWAYS: Final = 0.015  # a copy or CPU in nearly all benchmarks
SPREAD: Final = 0.012  # standard deviation of what copies always differ by
TURNS: Final = 0.010  # standard deviation of lgroups from iteration to iteration
MODES_APART: Final = 0.02  # two sorts of copies
MODES_ONCE_APART: Final = 0.03  # in one iteration: as a copy of one cell
LATE_START: Final = 0.015  # of the median time, from the first start to the last
RAMP: Final = 0.025  # over the launch order
CONVOY: Final = 0.02  # by which the first iteration is wider
IDLE: Final = 0.05  # of the time, more than in other iterations
IDLE_ELSEWHERE: Final = 0.02  # of a run with one iteration: others that waited for nothing
IDLE_SHARED: Final = 0.2  # of the time, in other iterations: the CPU is shared

# -- what healthy machines differ by --------------------------------------------------------------
# Standard deviations of ln time; published healthy servers: 0.2 to 0.4 % between lgroups (N).
TAU: Final = 0.0025
TAU_FEW: Final = 0.00375  # of fewer than five parts their own spread says too little
PRIOR_TURNS: Final = 2  # iterations that what a kind of part does otherwise weighs as much as

# -- how many are many ----------------------------------------------------------------------------
SEVERAL: Final = 3  # the fewest that have a middle of their own
MANY_PARTS: Final = 5  # whose median is not moved by one of them
MANY_COPIES: Final = 8  # of which half can be told from the others
MANY_BENCHMARKS: Final = 8  # a tenth of which is one
LIKE_FINE: Final = 6  # copies whose median takes little of their noise with it
KIND_COPIES: Final = 4  # of one kind of core
MODES_ONCE_COPIES: Final = 24  # for two sorts without another iteration to bear it out (S)
MOST_FINDINGS: Final = 40  # a run with more is not described by parts of the machine

# -- agreement, as shares -------------------------------------------------------------------------
SHOWS: Final = 0.35  # of an effect: a benchmark, iteration or copy has it (S)
HALF: Final = 0.5
MOST: Final = 0.7  # of the benchmarks or cells: all of them (N)
MOST_ITERATIONS: Final = 0.6  # two of three
MOST_SHOW: Final = 0.3  # of a part's copies at most are not on the side of its effect
SAME: Final = 0.8  # of members: a set of copies is that part of the machine
FOLLOWS: Final = 0.88  # of the copies are on their group's side: the sorts are groups (N)
STAYS: Final = 0.9  # of the iterations, in which a copy is on its own side
JOINED: Final = 0.6  # of benchmarks in common, and
ALIKE: Final = 1.6  # times the size at most: two parts with one cause
SPARED: Final = 0.4  # of a slow iteration, by which a part that kept its speed may differ

# -- which copies are normal, as shares of all ----------------------------------------------------
BIGGEST: Final = 0.6  # what is slow is what fewer copies share
MOST_FAST_PART: Final = 0.4  # up to which a part can be fast: of two halves one is slow
MOST_SINGLE: Final = 0.20  # stand out singly; more are two sorts of copies
MOST_FAST: Final = 0.06  # of a benchmark: more fast ones are a tail (N: one in six, Table 4)
MOST_LUCKY: Final = 0.3  # fast ones of a benchmark that does not repeat
FEW_COPIES: Final = 0.15  # single copies rather than a group of them
SIDE: Final = 0.18  # one of two sorts of copies (N)
MODES_SLOW: Final = 0.78  # slow ones of two sorts; of more the others are a fast minority (N)
GAP: Final = 0.5  # of their distance lies empty between copies and the rest
KEPT: Final = 0.3  # of a part's effect at most is what its copies that kept their speed have

# -- two sorts of copies --------------------------------------------------------------------------
# Hartigan's dip under a uniform distribution: of one cell that one mode has once in a hundred, and
# as seldom most of two and of three cells or more; of one of many iterations once in a thousand.
DIPS: Final = (0.53, 0.48, 0.46)
DIP_ONCE: Final = 0.60
MODES_SD: Final = 2.2  # standard deviations inside: less is one broad mode (two normal ones: 2)

# -- spreads --------------------------------------------------------------------------------------
FREEDOM: Final = 0.39  # degrees of freedom of a shortest half for each value (simulated)
FREEDOM_OF_MOST: Final = 0.38  # of what holds four in five (simulated: t of three 0.36, normal 0.6)
NOBODYS: Final = 2.0  # times the spread of all copies: that of groups about no copy's level
NOISE_APART: Final = 0.3  # that benchmarks' spreads differ by, as standard deviation of their ln
NOISE_FLOOR: Final = 3e-4  # a repeat of a benchmark never agrees better (N: 0.1 % at best)
NOTHING_KNOWN: Final = 10.0  # ln: nothing is told from it
COARSEST_S: Final = 1.0  # no clock of `time` is coarser
COARSE: Final = 0.45  # of a clock's step, the floor of a spread: uniform 0.29, and its neighbours

# -- tails ----------------------------------------------------------------------------------------
# The shape of a generalised Pareto: 0 of a normal distribution, 1/5 and 1/3 of Student's t with
# five and three degrees of freedom; how likely each is before a run is seen.
TAIL: Final = 0.16
TAIL_APART: Final = 0.10
LEAST_TAIL: Final = 0.05  # no tail is known to be lighter
MOST_TAIL: Final = 0.40  # nor heavier than of two and a half degrees
TAIL_START: Final = 1.2816  # of a normal distribution: its 90 %, and
TAIL_SCALE: Final = 0.5244  # (q95 - q90) / ln 2
TAIL_WIDER: Final = 1.63  # times the shape: of t with three degrees it is 0.81
TAIL_WEIGHT: Final = 300  # so many residuals know their 90 % as well as that
TAIL_USUAL: Final = 5  # residuals beyond 90 % that the usual scale weighs as much as
TAIL_LEFT: Final = 6  # the farthest are only counted: they are judged by it
TAIL_RATIO: Final = 1.5  # of the next, beyond which values are no tail
TAIL_POINTS: Final = 200  # stand for all beyond 90 %
TAIL_STEPS: Final = 12  # of the likelihood's equation, to a thousandth
FREEDOM_OF_ONE: Final = 4.0  # of a single copy's level in what a part explains

# -- drift ----------------------------------------------------------------------------------------
DRIFT_FIT: Final = 0.8  # R squared (N), and of the whole rise at most
DRIFT_BACK: Final = 0.1  # in one step back (N),
DRIFT_ON: Final = 0.85  # in one step on: else it is a slow iteration (N)
DRIFT_OF_THREE: Final = 1.5  # of three times one in six rises by chance

# -- start-up -------------------------------------------------------------------------------------
RAMP_RHO: Final = 0.6  # Spearman's rank correlation with the order of starts (N)
RAMP_OF_LGROUPS: Final = 0.85  # of lgroups' medians (N), or
RAMP_WITHIN: Final = 0.5  # inside of groups: else a slow last group is no ramp (N)
LEANING_RHO: Final = 0.35  # too little for a ramp, enough to make what started last look slow (S)
LEANING_SURE: Final = 3.5
LEANING_INSIDE: Final = 0.15
DRAWN_IN: Final = 4.0  # MAD, to which copies far out are drawn in beside a step
CONVOY_TIMES: Final = 3.0  # as wide as the other iterations (N)
CONVOY_SURER: Final = 2.0  # times that of few copies: a width is easily too small
CONVOY_UP: Final = 0.3  # of the width, by which the middle is slower (N)
CONVOY_BULK: Final = 0.25  # of the width, that the middle half of copies has

# -- layout ---------------------------------------------------------------------------------------
LAYOUT_SLACK: Final = 0.01  # ln, beyond the physical bound (N)
LAYOUT_TOLD: Final = 0.005  # less is not worth a line
LAYOUT_TOLD_OF_ONE: Final = 0.03  # in one benchmark
LAYOUT_AGAINST: Final = 0.015  # as much slower with fewer neighbours speaks against the load
LAYOUT_MOST_AGAINST: Final = 0.2  # of the benchmarks
LAYOUT_PLACES: Final = (0.2, 0.5, 0.8)  # quantiles that a layout moves alike
LAYOUT_APART: Final = 0.03  # by which they may differ
LOAD_ALIKE: Final = 0.6  # of the usual slope in nine of ten benchmarks: no load is so even
SLOWEST_KIND: Final = math.log(4.0)  # a small core against a large one
RANGE_TO_SD: Final = 1.69  # the range of three normal values, in standard deviations
