"""Expected people: how many trust, what is guessed of their answers, and what they say on average to whatever is asked.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import Bounds
>>> from hybridp.tasks.mean import MeanTask
>>> told = Expected(100, 900, Guesses(mean=2.0, sd=1.0)).held(MeanTask(Bounds(0, 10), PureDP(1.0)))
>>> round(told.release.estimate, 6), told.release.people
(2.0, {'trusted': 100, 'local': 900})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import must
from hybridp.noise import Randomness, synthetic_data_generator
from hybridp.public.distribution import BINS, CELLS, BinnedReports, cell_chances
from hybridp.public.messages import NoisySquares, People, TrustedSummary, VectorReportSums, drive
from hybridp.public.randomisers import WORD, Floats, Randomiser
from hybridp.public.rounds import Answer, Between, Later, Numbers, Options
from hybridp.public.rounds import Crowd as Asked
from hybridp.public.shares import NoisyCounts, ShareReports
from hybridp.release.facts import Facts
from hybridp.release.plan import Plan, planned
from hybridp.release.release import Release
from hybridp.tasks.task import Batches

__all__ = ["Crowd", "Expected", "Guesses", "Held", "salary_like"]


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """What is guessed of people's answers: `sd` may be one for each column, or those of a regression's columns and of
    its residuals; `shares` are those of the options or, of an answer by group, of the groups; `popularity` is that of
    records."""

    mean: float | None = None
    sd: Any = None
    shares: Sequence[float] | None = None
    popularity: ArrayLike | None = None


@dataclass(frozen=True)
class Crowd:
    """So many people, of whom a share trusts; of the others a share `chance` is asked the question."""

    n: float
    opt_in: float
    guess: Guesses = field(default_factory=Guesses)
    question: str = "value"
    columns: tuple[str, ...] = ()
    chance: float = 1.0

    def __post_init__(self) -> None:
        must(1 <= self.n <= 1e15, "n", "must be at least 1 and at most 1e15", self.n)
        must(0 <= self.opt_in <= 1, "opt-in", "must lie between 0 and 1", self.opt_in)

    @property
    def trusted(self) -> int:
        return round(self.n * self.opt_in)

    @property
    def local(self) -> int:
        return round(self.n) - self.trusted

    @property
    def told(self) -> int:
        """How many local people answer, on average."""
        return max(round(self.local * self.chance), min(self.local, 1))

    @property
    def both(self) -> bool:
        return 0 < self.trusted < round(self.n)

    def must_be_both(self) -> None:
        """Refuse numbers of people of whom one group is empty."""
        must(self.n >= 2, "n", "must be at least 2 and at most 1e15", self.n)
        rule = f"must be strictly between 0 and 1 to plan `{self.question}`, which asks both groups"
        must(0 < self.opt_in < 1, "opt-in", rule, self.opt_in)
        rule = f"must leave at least one person in each group of {self.n:,.0f} people"
        must(self.both, "opt-in", rule, self.opt_in)

    @property
    def answering(self) -> Crowd:
        if self.chance == 1:
            return self
        n = self.trusted + self.told
        return replace(self, n=n, opt_in=self.trusted / n, chance=1.0)

    def planned(self, own: Any, facts: Facts, **more: Any) -> Plan:
        """The plan of a task for these people, with the facts of every statistic."""
        trusted = getattr(own, "trusted_guarantee", None)
        return planned({self.question: facts}, self.n, self.opt_in, own.guarantee, trusted, **more)


class Held(NamedTuple):
    """The release that expected people's answers lead to, and the first round with its answer."""

    release: Release
    asked: Any
    answer: Any


@dataclass
class Expected(People):
    """People whose every sum is what it would be on average, with the noise that it would have said beside it.

    So many trust, and so many reports come from others, or through a mixer. Numbers have the guessed mean and standard
    deviation in their own unit, options the guessed shares. Without a mean it is the middle, or the one for which
    reports are worst.
    """

    trusted: int
    local: int
    guess: Guesses
    mixed: int = 0
    luck: float = 0.0
    """By how many standard errors the squares of reports on numbers are larger than on average."""
    phases: Sequence[float] = ()
    """The shares of local people who are asked one after another, each within the windows that are known by then."""
    _invite: Any = None

    def crowd(self, names: tuple[str, ...] = ("value",)) -> Asked:
        # No noise is drawn: sums are what they are on average.
        made = {"rng": SimpleNamespace(label="no randomness", simulated=True), "simulated_local": True}
        return Asked(names, lambda middle: "", lambda: made, phased=bool(self.phases))

    def held(self, task: Any, names: tuple[str, ...] = ("value",)) -> Held:
        answers: list[Any] = []
        self._invite = task.mixed_invite if self.mixed else None
        return Held(drive(task.ask(self.crowd(names)), self, answers), *answers[0])

    def _said(self, asked: Any, trusted: Callable[[], Any], report: Callable[[Any, int], Any]) -> Answer:
        """What the groups say to a round, of those that it hears: a sum, and so many reports by a mechanism."""
        local = report(asked.invite.mechanism, self.local) if asked.heard and self.local else None
        mixed = None
        if asked.heard and self.mixed:
            mixed = Batches(report(self._invite.mechanism, self.mixed), (self.mixed,))
        return Answer(self.trusted, trusted() if asked.noise is not None and self.trusted else None, local, mixed)

    # --- numbers ------------------------------------------------------------------------------------------------------

    def _moments(self, asked: Any, side: tuple[float, float], sd: float, square: float) -> tuple[float, float]:
        """Mean and variance in the unit coordinate. Where noise grows with values it is worst at this mean `square`."""
        variance = min((sd / side[1]) ** 2, 1.0)
        if self.guess.mean is not None:
            return (self.guess.mean - side[0]) / side[1], variance
        sent = [invite.mechanism for invite in (asked.invite, self._invite) if invite is not None]
        grows = any(one.law.variance_terms[1] > 0 for one in sent)
        return math.sqrt(max(square - variance, 0.0)) if grows else 0.0, variance

    def numbers(self, asked: Numbers) -> Answer:
        if asked.bins:
            told = asked.heard and self.local and not self.phases
            return Answer(self.trusted, binned=self._binned(asked) if told else None)
        bounds = asked.invite.encoding
        square, sds = min(1.0, bounds.ratio**2 / bounds.dimensions), np.atleast_1d(self.guess.sd).tolist()
        own = [self._moments(asked, side, sd, square) for side, sd in zip(bounds.sides, sds, strict=True)]

        def trusted() -> list[TrustedSummary]:
            reach, noise, extra, result = bounds.reach_steps, asked.noise, asked.squares, []
            assert noise is not None
            for one in own:
                square: Any = self.trusted * bounds.square_steps**2 * (one[0] ** 2 + one[1])
                squares = None if extra is None else NoisySquares(self.trusted, square, extra, bounds.square_steps)
                total: Any = self.trusted * (one[0] - bounds.start) * reach
                result.append(TrustedSummary(self.trusted, total, noise, squares, reach, bounds.start))
            return result

        def reports(sent: Any, n: int) -> VectorReportSums:
            each = max(round(n * sent.share), 1)
            totals, squares = np.array([_reports(sent.law, each, *one, self.luck) for one in own]).T
            return VectorReportSums(n, np.full(len(own), each), totals, squares, sent)

        return self._said(asked, trusted, reports)

    def _below(self, asked: Any, places: Any) -> Floats:
        """The share of people, whose numbers are normal, at or below places between 0 and 1 of the range."""
        from scipy.special import ndtr

        bounds, ends = asked.invite.encoding, np.linspace(0, 1, CELLS + 1)
        shares = ndtr((bounds.lower + bounds.width * ends - self.guess.mean) / self.guess.sd)
        return np.asarray(np.interp(places, ends, np.append(shares[:-1], 1.0)))

    def _binned(self, asked: Numbers) -> BinnedReports:
        law, upper = asked.invite.mechanism, np.linspace(0, 1, CELLS + 1)[1:]
        counts = self.local * (cell_chances(law, CELLS) @ np.diff(self._below(asked, upper), prepend=0.0))
        return BinnedReports(np.rint(counts).astype(np.int64), law)

    def between(self, asked: Between) -> NoisyCounts:
        shares = np.diff([0.0, *self._below(asked, asked.places), 1.0])
        counts = np.rint(self.trusted * asked.noise.steps * shares).astype(np.int64)
        return NoisyCounts(self.trusted, tuple(counts[: asked.noise.draws].tolist()), asked.noise)

    def later(self, asked: Later) -> Answer | None:
        if not self.phases:
            return None
        part, *self.phases = self.phases
        law, windows, told = asked.invite.mechanism, asked.invite.windows, []
        q, many = law.flips / WORD, max(part * self.local / len(windows) / BINS, 1.0)
        for window in windows:
            edges = np.linspace(*window, BINS + 1)
            below = self._below(asked, (edges[1:] + edges[:-1]) / 2)
            above = np.rint(many * (q + (1 - 2 * q) * (1 - below))).astype(np.int64)
            told.append(BinnedReports(np.concatenate([round(many) - above, above]), law, window))
        return Answer(local=tuple(told))

    # --- options ------------------------------------------------------------------------------------------------------

    def options(self, asked: Options) -> Answer:
        """Of several that may be ticked each is a yes or no, by the people who drew it."""
        question, p = asked.invite.encoding, np.asarray(self.guess.shares)

        def trusted() -> Any:
            assert asked.noise is not None
            told: Any = (p * self.trusted * asked.noise.steps).tolist()
            return NoisyCounts(self.trusted, tuple(told[: asked.noise.draws]), asked.noise)

        def reports(oracle: Any, n: int) -> ShareReports:
            share = np.stack([p, 1 - p], axis=1).ravel() / len(p) if question.most else p
            other = oracle.other / len(p) if question.most else oracle.other
            seen = other + (oracle.truth - oracle.other) * share
            return ShareReports(n, np.rint(n * seen).astype(np.int64), oracle)

        return self._said(asked, trusted, reports)


def _reports(law: Randomiser, n: int, mean: float, variance: float, luck: float) -> tuple[float, float]:
    """The sum of so many reports, and of their squares, whose sample variance is the reports' own but for `luck`."""
    constant, quadratic = law.variance_terms
    each = variance + constant + quadratic * min(variance + mean**2, 1.0)
    each = max(each + luck * law.square_deviation(mean, variance) / math.sqrt(n), 0.0) if luck else each
    return n * mean, n * mean**2 + (n - 1) * each


# --- made-up people, for trials ---------------------------------------------------------------------------------------


def salary_like(n: int, *, rng: Randomness) -> NDArray[np.float64]:
    """Made-up yearly pay: many part-time and ordinary salaries, a long tail, everything below 2.4 million.

    A mixture of three log-normal groups whose mean and spread resemble a large public university's payroll (mean near
    40,000, standard deviation near 53,000).
    """
    draw = synthetic_data_generator(rng)
    kind = draw.choice(3, size=n, p=[0.42, 0.5, 0.08])
    median = np.array([7_000.0, 45_000.0, 125_000.0])[kind]
    sigma = np.array([1.1, 0.5, 0.55])[kind]
    pay = median * np.exp(sigma * draw.standard_normal(n))
    return np.minimum(np.round(pay, 2), 2_349_033.0)
