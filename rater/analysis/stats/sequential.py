"""Looking at a comparison again and again until it is decided, without fooling oneself; pure.

Who tests two equal things at 5 % after every round, and stops when there is a difference,
finds one far more often than 5 % of the time. With the same stricter level at every look
all of them together err in 5 % (S. J. Pocock, Biometrika 64, 1977; his constants for equally
spaced looks at normal values, here computed by the recursion of Armitage, McPherson and
Rowe, JRSS A 132, 1969; they are those of table 2.1 of Jennison and Turnbull, Group
Sequential Methods, 2000). Student's t is used at the same level, as Pocock proposes. That
errs a little more than 5 %, looks that begin after the third round a little less: with the
level of one look more it is below 5 % for all series of 4 to 52 rounds that were simulated
(`benchmarks/comparing.py`).
"""

from __future__ import annotations

from rater.analysis.stats.ratio_interval import CONFIDENCE

# Number of looks, and the level of each at which all err in 5 % (constant 2.178 for two).
_LEVELS = (
    *((2, 0.02938), (3, 0.02205), (4, 0.01821), (5, 0.01581), (6, 0.01416)),
    *((7, 0.01294), (8, 0.01199), (9, 0.01124), (10, 0.01062), (12, 0.00965), (15, 0.00864)),
    *((18, 0.00792), (20, 0.00754), (30, 0.00631), (50, 0.00516), (100, 0.00404)),
    *((200, 0.00327), (500, 0.00257), (1000, 0.00219)),
)


def confidence_of_each(looks: int) -> float:
    """Return the confidence of the interval at each of so many looks: 0.95 for one.

    Between the tabulated numbers of looks that of the next one; beyond them 5 % is
    divided by their number (Bonferroni). Raises `ValueError` for none.
    """
    if looks < 1:
        raise ValueError(f"{looks} looks")
    if looks == 1:
        return CONFIDENCE
    level = next((level for many, level in _LEVELS if many > looks), (1 - CONFIDENCE) / looks)
    return 1 - level
