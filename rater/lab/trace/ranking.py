"""Which data deserves large pages: reuse, predicted misses, predictions checked; pure."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import Floats
from rater.lab.layout.layout import Category, PageLayout, PageWindow, page_windows, parse_pages
from rater.lab.trace.costs import Loads, PageCosts, misses_ns
from rater.lab.trace.tlb import (
    BASE_PAGE,
    CATEGORIES,
    CHOSEN,
    REGION_BYTES,
    PageMapping,
    PageReuse,
    PageTrace,
    RegionMisses,
)
from rater.plan.tlb import Tlb

# -- Reuse distances summed up: what a TLB of some entries misses, working sets, memory ------------


def distances(reuse: PageReuse, categories: Sequence[int] | None = None) -> list[tuple[int, int]]:
    """Return (distance, references) of some categories together (None: all), ascending."""
    total: Counter[int] = Counter()
    for category in range(len(CATEGORIES)) if categories is None else categories:
        for distance, count in reuse.histogram[category]:
            total[distance] += count
    return sorted(total.items())


def far_references(reuse: PageReuse, entries: int, category: int | None = None) -> int:
    """Return how many references an LRU set of `entries` pages misses, first touches included.

    Exact where `entries` begins a bin: up to 32, and all of 16 places between powers of two.
    """
    chosen = range(len(CATEGORIES)) if category is None else (category,)
    far = sum(
        count
        for category_index in chosen
        for distance, count in reuse.histogram[category_index]
        if distance >= entries
    )
    return far + sum(reuse.pages[category_index] for category_index in chosen)


def working_set(reuse: PageReuse, share: float) -> int:
    """Return the fewest pages, kept by least recent use, that answer a share of all references.

    First touches are never answered; all pages where the share is not to be had.
    """
    rows = distances(reuse)
    wanted = share * (sum(count for _, count in rows) + sum(reuse.pages))
    answered = 0
    for distance, count in rows:
        answered += count
        if answered >= wanted:
            return distance + 1
    return sum(reuse.pages)


def tlb_coverage(tlb: Tlb, reuse: PageReuse) -> tuple[int, float | None]:
    """Return the bytes that the last level of a TLB holds in pages of a size, and their share.

    The share is of the memory that was touched, 1 at most; None: nothing was.
    """
    covered_bytes = tlb.entries(reuse.page_bytes)[1] * reuse.page_bytes
    touched_bytes = sum(reuse.pages) * reuse.page_bytes
    return covered_bytes, min(1.0, covered_bytes / touched_bytes) if touched_bytes else None


# -- What a TLB would miss with any page layout, from one trace ------------------------------------


class PredictedMisses(Struct, frozen=True):
    """Misses of a whole run."""

    l1_misses: float
    walks: float


def predicted_misses(trace: PageTrace, layout: str | PageLayout) -> PredictedMisses:
    """Return the misses of a traced program with a layout of `--pages`.

    Each 2 MiB of addresses misses what it missed with all in base pages, or with all in huge
    pages, by its share in larger pages. An estimate: entries that one region frees for others are
    not seen; exact for all in base pages and all in huge pages. What has no choice of a page size
    (stack, files, small static data) misses as in base pages.
    """
    chosen = parse_pages(layout) if isinstance(layout, str) else layout
    windows = page_windows(chosen, extents(trace), REGION_BYTES)
    windows_by_category: defaultdict[str, list[PageWindow]] = defaultdict(list)
    for window in windows:
        windows_by_category[window.category].append(window)
    base = trace.mappings[0]
    l1_misses: float = sum(base.l1_misses[len(CHOSEN) :])
    walks: float = sum(base.walks[len(CHOSEN) :])
    for region in trace.regions:
        share = _share(region, windows_by_category[region.category])
        l1_misses += region.l1_base + share * (region.l1_huge - region.l1_base)
        walks += region.walks_base + share * (region.walks_huge - region.walks_base)
    return PredictedMisses(l1_misses, walks)


def extents(trace: PageTrace) -> dict[Category, int]:
    """Return how far each category reaches from its start, in bytes: what shares are of."""
    extent_by_category = dict.fromkeys(Category, 0)
    for region in trace.regions:
        category = Category(region.category)
        extent_by_category[category] = max(
            extent_by_category[category], (region.region + 1) * REGION_BYTES
        )
    return extent_by_category


def _share(region: RegionMisses, windows: Sequence[PageWindow]) -> float:
    start = region.region * REGION_BYTES
    end = start + REGION_BYTES
    covered_bytes = sum(
        max(0, min(window.end, end) - max(window.start, start)) for window in windows
    )
    return min(1.0, covered_bytes / REGION_BYTES)


# -- Which data deserves large pages: each mapping of categories to page sizes, by what it saves ---


class RankedMapping(Struct, frozen=True, kw_only=True):
    """A mapping against all in base pages; times in ns, by how loads depend on each other."""

    mapping: PageMapping
    large_pages: int  # that it needs, of all sizes above base pages
    large_bytes: int
    walks_saved: int
    l1_misses_saved: int
    misses_saved_ns: dict[Loads, float]
    faults_saved_ns: float

    def saved_ns(self, loads: Loads, *, faults: bool = True) -> float:
        """Return what the mapping saves, less than 0 where it costs; `faults`: with those."""
        return self.misses_saved_ns[loads] + (self.faults_saved_ns if faults else 0.0)


def rank_mappings(trace: PageTrace, costs: PageCosts) -> tuple[RankedMapping, ...]:
    """Return all mappings in the order of the trace, the first being all in base pages.

    What a mapping saves is misses x cost + faults x cost.
    """
    base = trace.mappings[0]
    base_ns = {loads: misses_ns(trace, base, costs, loads) for loads in Loads}
    ranked = []
    for mapping in trace.mappings:
        pages, large_bytes = _large(trace, mapping)
        ranked.append(
            RankedMapping(
                mapping=mapping,
                large_pages=pages,
                large_bytes=large_bytes,
                walks_saved=sum(base.walks) - sum(mapping.walks),
                l1_misses_saved=sum(base.l1_misses) - sum(mapping.l1_misses),
                misses_saved_ns={
                    loads: base_ns[loads] - misses_ns(trace, mapping, costs, loads)
                    for loads in Loads
                },
                faults_saved_ns=_faults_saved_ns(trace, mapping, costs),
            )
        )
    return tuple(ranked)


def by_saving(ranked: Sequence[RankedMapping], loads: Loads) -> list[RankedMapping]:
    """Return mappings, what saves most first; of what saves the same, the fewest large pages."""
    return sorted(ranked, key=lambda mapping: (-mapping.saved_ns(loads), mapping.large_bytes))


def saved_ranges_ns(
    trace: PageTrace, every_costs: Sequence[PageCosts], *, faults: bool
) -> list[tuple[float, float]]:
    """Return between what each mapping saves, in the order of the trace.

    However loads depend on each other, and by all costs that were measured. `faults`: those too.
    """
    saved_ns = [
        [mapping.saved_ns(loads, faults=faults) for mapping in ranked]
        for ranked in (rank_mappings(trace, costs) for costs in every_costs)
        for loads in Loads
    ]
    return [(min(of_mapping), max(of_mapping)) for of_mapping in zip(*saved_ns, strict=True)]


def benefits(ranked: Sequence[RankedMapping], loads: Loads) -> list[float]:
    """Return what each saves as a share of what the best one does; 0 where none saves."""
    best = max(mapping.saved_ns(loads) for mapping in ranked)
    return [mapping.saved_ns(loads) / best if best > 0 else 0.0 for mapping in ranked]


def best_within(ranked: Sequence[RankedMapping], pages: int, loads: Loads) -> RankedMapping:
    """Return the mapping that saves most with at most so many large pages."""
    return by_saving([mapping for mapping in ranked if mapping.large_pages <= pages], loads)[0]


def different_mappings(trace: PageTrace, ranked: Sequence[RankedMapping]) -> list[int]:
    """Return the places of mappings that differ, the first of those that are alike.

    Mappings are alike where they differ only in data of which the program has none.
    """

    def sizes(mapping: RankedMapping) -> tuple[int, ...]:
        chosen = enumerate(mapping.mapping.sizes)
        return tuple(size if trace.references[place] else 0 for place, size in chosen)

    place_by_sizes: dict[tuple[int, ...], int] = {}
    for place, mapping in enumerate(ranked):
        place_by_sizes.setdefault(sizes(mapping), place)
    return list(place_by_sizes.values())


def _faults_saved_ns(trace: PageTrace, mapping: PageMapping, costs: PageCosts) -> float:
    def cost(category: int, size: int) -> float:
        return trace.of_size(size).faults[category] * costs.fault_ns(size)

    return sum(
        cost(category, BASE_PAGE) - cost(category, size)
        for category, size in enumerate(mapping.sizes)
    )


def _large(trace: PageTrace, mapping: PageMapping) -> tuple[int, int]:
    pages = [
        (trace.of_size(size).pages[category], size)
        for category, size in enumerate(mapping.sizes)
        if size != BASE_PAGE
    ]
    return sum(count for count, _ in pages), sum(count * size for count, size in pages)


def shown_categories(trace: PageTrace) -> list[int]:
    """Return the categories that were referred to, by their place in CATEGORIES."""
    return [place for place in range(len(CATEGORIES)) if trace.references[place]]


# -- Predicted against measured benefits of mappings: the error in per cent of the most ------------
#
# As IBM's CPO gives it: 100 x |predicted benefit - measured benefit|, each a share of the largest
# benefit of its kind.

_DRAWS = 1000
_SEED = 20
_LEAST_MAPPINGS = 3  # with different predictions, for errors in per cent of the most
_SAME_PREDICTION = 0.01  # mappings whose predictions differ by less tell nothing of each other
# Of a mapping's prediction: what saves less is more noise than slope (1.8 s of 98 ms, once).
_LEAST_OF_OWN = 0.2
_CHECK_SURE = 3.0  # standard errors that the largest benefit has to be above nothing


class CheckedMapping(Struct, frozen=True, kw_only=True):
    """One mapping, as predicted and as it ran."""

    name: str
    times_s: tuple[float, ...]
    median_s: float
    predicted_s: float  # that it saves
    least_s: float | None = None  # if loads wait for each other as little as can be; None: not said
    most_s: float | None = None  # or as much as can be, by the dearest costs that were measured
    saved_s: float  # as measured
    noise_s: float | None  # standard error of `saved_s`; None: one round tells none
    predicted: float  # benefit as a share of the largest
    measured: float
    noise: float | None  # standard error of `measured`, by bootstrap over rounds
    # Seconds that the other mappings saved for each that was predicted of them; None: none saves.
    own_slope: float | None = None

    @property
    def by_own_slope_s(self) -> float | None:
        """What it saves by the slope of the program's other mappings; None: not known."""
        return None if self.own_slope is None else self.predicted_s * self.own_slope

    @property
    def own_ratio(self) -> float | None:
        """The saving by the own slope over the measured one; None: not known, or nothing saved."""
        by_slope_s = self.by_own_slope_s
        return None if by_slope_s is None or self.saved_s <= 0 else by_slope_s / self.saved_s

    @property
    def ratio(self) -> float | None:
        """The predicted over the measured saving; None: nothing was saved."""
        return self.predicted_s / self.saved_s if self.saved_s > 0 else None

    @property
    def error(self) -> float:
        """Prediction less measurement, as a share of the maximum benefit."""
        return self.predicted - self.measured


class BenefitCheck(Struct, frozen=True, kw_only=True):
    """All mappings that ran."""

    mappings: tuple[CheckedMapping, ...]
    rounds: int
    predicted_s: float  # that the best one saves
    most_saved_s: float  # by the best one measured
    most_saved_noise_s: float | None  # standard error; None: one round
    told: bool  # the benefit stands out of the noise

    @property
    def best(self) -> CheckedMapping:
        """The mapping that is predicted to save most."""
        return max(self.mappings, key=lambda mapping: mapping.predicted_s)

    @property
    def _errors(self) -> list[float]:
        """Sizes of the errors; of two mappings the one is 0 whatever was predicted."""
        if len({mapping.predicted_s for mapping in self.mappings}) < _LEAST_MAPPINGS:
            return []
        return [abs(mapping.error) for mapping in self.mappings[1:]]

    @property
    def mean_error(self) -> float | None:
        """Mean of absolute errors over mappings but the base, as a share; None: too few."""
        return statistics.fmean(self._errors) if self._errors else None

    @property
    def max_error(self) -> float | None:
        """Largest absolute error, as a share; None: too few mappings."""
        return max(self._errors, default=None)


def check_benefits(
    names: Sequence[str],
    saved_ns: Sequence[float],
    times_s: Sequence[Sequence[float]],
    ranges_ns: Sequence[tuple[float, float]] | None = None,
) -> BenefitCheck:
    """Hold predicted savings of mappings, the base first, against times of runs by round.

    `ranges_ns`: between what the prediction of each lies.
    A mapping saves the median over rounds of (base - it) in the same round, which slow drift of
    the machine hits alike; its noise is the spread of that over bootstrap samples of rounds.
    """
    rounds = min(len(round_times) for round_times in times_s)
    times = np.array([list(round_times[:rounds]) for round_times in times_s])
    differences = times[0] - times
    saved_s = np.median(differences, axis=1)
    most_s, best = float(saved_s.max()), int(saved_s.argmax())
    random = np.random.default_rng(_SEED)
    drawn = random.integers(0, rounds, (_DRAWS, rounds))
    resampled = np.median(differences[:, drawn], axis=2)  # mappings x draws
    each_noise_s = np.std(resampled, axis=1)
    noise_s = float(each_noise_s[best]) if best else float(each_noise_s[1:].mean())
    spread = np.std(resampled / most_s, axis=1) if most_s > 0 else np.zeros(len(times))
    largest = max(*saved_ns, 0.0)
    has_noise = rounds > 1
    own_slopes = _own_slopes(np.array(saved_ns) * 1e-9, saved_s)
    return BenefitCheck(
        mappings=tuple(
            CheckedMapping(
                name=name,
                times_s=tuple(map(float, times[place])),
                median_s=float(np.median(times[place])),
                predicted_s=saved_ns[place] * 1e-9,
                least_s=ranges_ns[place][0] * 1e-9 if ranges_ns else None,
                most_s=ranges_ns[place][1] * 1e-9 if ranges_ns else None,
                saved_s=float(saved_s[place]),
                noise_s=float(each_noise_s[place]) if has_noise else None,
                predicted=saved_ns[place] / largest if largest > 0 else 0.0,
                measured=float(saved_s[place] / most_s) if most_s > 0 else 0.0,
                noise=float(spread[place]) if has_noise else None,
                own_slope=own_slopes[place],
            )
            for place, name in enumerate(names)
        ),
        rounds=rounds,
        predicted_s=largest * 1e-9,
        most_saved_s=most_s,
        most_saved_noise_s=noise_s if has_noise else None,
        told=has_noise and most_s > _CHECK_SURE * noise_s,
    )


def _own_slopes(predicted_s: Floats, saved_s: Floats) -> list[float | None]:
    """Return of each mapping what the others saved for each second that was predicted of them.

    The line through the origin by least squares, sum of p s over sum of p^2, of mappings with
    another prediction p, no small part of its own, and the measured saving s. It has what costs of
    the machine lack, as which of this program's loads wait for each other.
    """
    slopes: list[float | None] = []
    for own_s in predicted_s:
        is_other = np.abs(predicted_s - own_s) > _SAME_PREDICTION * own_s
        is_other &= predicted_s > _LEAST_OF_OWN * own_s
        predicted, saved = predicted_s[is_other], saved_s[is_other]
        is_known = own_s > 0 and predicted.size > 0
        slopes.append(float(predicted @ saved / (predicted @ predicted)) if is_known else None)
    return slopes


def mappings_to_check(
    trace: PageTrace, ranked: Sequence[RankedMapping], saved_ns: Sequence[float], *, every: bool
) -> list[int]:
    """Return places of the mappings to run, that in base pages first.

    `every` one that differs, or the predicted best and worst and the largest pages for all.
    """
    different = different_mappings(trace, ranked)
    if every:
        return different
    in_order = sorted(different, key=lambda place: saved_ns[place])
    largest = max(different, key=lambda place: ranked[place].large_bytes)
    return sorted({0, in_order[0], in_order[-1], largest})
