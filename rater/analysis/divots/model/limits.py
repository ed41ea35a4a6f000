"""Every number that the model of a run rests on, each with its origin after the semicolon.

- definition: it follows from a distribution, a unit or another number;
- published: what a paper or a manual says;
- N and a section: the note on divots, set there on 1600 made runs, held by their other half;
- S: simulated with benchmarks/divot_cases, on seeds other than those that judge. "flat a to b":
  of the values tried, none from a to b changed a verdict (what is found, what is false, who is
  accused) on 120 made runs and the shared cases.

A share of the rest is written as one less a number of here: what few have, most do not.
"""

from __future__ import annotations

import math
from typing import Final

# -- how sure -------------------------------------------------------------------------------------
# Expected false findings of a healthy run, split among all candidates.
ALPHA: Final = 0.015  # of parts; S: flat 0.010 to 0.015, 3 % of clean runs alarm at most
ALPHA_SINGLE: Final = 0.003  # of single cells' copies; S, 5 % alarm whose noise is t3
FAST_SHARE: Final = 0.25  # of that for fast copies: few are, none costs; S: flat 0.18 to 0.5
SURE: Final = 5.0  # standard errors of what is judged one at a time; N 3

# -- smallest effects, as ln ratios, beside the user's thresholds ---------------------------------
EVERYWHERE: Final = 0.010  # in nearly all benchmarks; N 3 (2), half of it doubles the alarms
OF_MANY: Final = 0.015  # in many, or always; N 3, the default threshold of groups
OF_ONE: Final = 0.020  # in one benchmark, and a ramp; N 3 (3, 5)
FAR: Final = 0.030  # in one iteration; definition: the default threshold of copies
IDLE: Final = 0.05  # share of the time that a CPU did nothing; N 3 (1)

# -- what healthy machines differ by, as standard deviations of ln time ---------------------------
TAU: Final = 0.0025  # lgroups; published, 0.2 to 0.4 % between lgroups of healthy servers (N 3)
TAU_FEW: Final = 1.5 * TAU  # of fewer than five parts their own spread tells too little; N 3 (2)

# -- how many are many ----------------------------------------------------------------------------
SEVERAL: Final = 3  # the fewest that have a middle of their own; definition
MANY_PARTS: Final = 5  # of which one does not move the median to its end; N 3 (2)
MANY: Final = 8  # copies of which half can be told from the others; N 3 (5)
MOST_FINDINGS: Final = 40  # what parts do not describe ends; definition of "too many to read"

# -- agreement, as shares -------------------------------------------------------------------------
SHOWS: Final = 0.35  # of an effect: who has more has it; S: flat 0.25 to 0.35
HALF: Final = 0.5  # of copies, of a distance, of a rank correlation; definition
MOST: Final = 0.7  # of benchmarks, cells or copies; N 3 (3, 4)
SAME: Final = 0.85  # of members: two sets are one, a line is a line; S: flat 0.56 to 0.85
ALIKE: Final = 1.5  # times at most: two sizes of one cause; S: flat 1.5 to 2
BIGGEST: Final = 0.6  # of the copies: what fewer share is at fault; S: flat 0.6 to 0.7
SIDE: Final = 0.20  # of the copies: fewer are single ones, more are a sort; N 3 (5), 18 %

# -- two sorts of copies --------------------------------------------------------------------------
# Hartigan's dip of a uniform distribution, the worst of one mode.
DIPS: Final = (0.53, 0.48, 0.46)  # one cell: 1 % have it; most of two, of three; N 3 (5)
DIP_ONCE: Final = 0.60  # of one of many iterations: 0.1 % have it; N 3 (5)
MODES_SD: Final = 2.0  # inside of each; definition: two normal ones have two modes from there

# -- spreads --------------------------------------------------------------------------------------
FREEDOM: Final = 0.39  # degrees of freedom of a shortest half, each value; S, normal noise
NOBODYS: Final = 2.0  # times the spread of all: a group's median is no copy's; S: flat from 1.4
NOISE_APART: Final = 0.3  # sd of ln of benchmarks' spreads; S: flat 0.2 to 0.3
NOISE_FLOOR: Final = 3e-4  # no repeat agrees better; published, 0.1 % at best (N 9)
NOTHING_KNOWN: Final = 10.0  # ln: times that nothing is told from; definition
COARSEST_S: Final = 1.0  # clock of `time`; definition
COARSE: Final = 1 / math.sqrt(12)  # of a clock's step, the sd of what it hides; definition

# -- tails: a generalised Pareto beyond 90 % ------------------------------------------------------
LEAST_TAIL: Final = 0.05  # shape, 0 is a normal distribution's; S: flat 0.035 to 0.05
MOST_TAIL: Final = 0.40  # of t with two and a half degrees of freedom; definition
TAIL_START: Final = 1.2816  # its 90 %, in standard deviations of a normal one; definition
TAIL_SCALE: Final = 0.5244  # (q95 - q90) / ln 2 of a normal one; definition
TAIL_WIDER: Final = 1.63  # times the shape the scale is more: 0.81 of t3; definition
TAIL_USUAL: Final = 5  # residuals that the usual scale weighs, and that are judged; S: flat 5 to 8
TAIL_POINTS: Final = 200  # stand for all; S: flat 50 to 200
TAIL_STEPS: Final = 12  # of the likelihood's equation, to a thousandth; S: flat 6 to 12
FREEDOM_OF_ONE: Final = 4.0  # of a copy's level in what a part explains; S: flat from 2.8

# -- start-up and layout --------------------------------------------------------------------------
CONVOY_TIMES: Final = 3.0  # as wide as the other iterations; N 3 (1)
CONVOY_SURER: Final = 2.0  # times that of few copies; S, 4 of 900 clean runs without, 1 with
SLOWEST_KIND: Final = math.log(4.0)  # a small core against a large one; definition, a bound
RANGE_TO_SD: Final = 1.69  # mean range of three normal values; definition
