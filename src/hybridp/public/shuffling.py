"""Shuffling: what a mixer that keeps quiet adds to reports that are private by themselves.

n people send a report of the same `local_epsilon`-DP randomiser to a mixer, who hands the batch on in random order. If
mixer and collector do not collude, whoever sees the mixed batch learns about one person only what is left when that
person's report hides among the others'. If they do collude, `local_epsilon` is what remains: it must be a promise that
stands alone.

Why others help: any other person's report is, with a probability that their data cannot change, a draw that says
nothing about their own data and is as likely to come from the first as from the second of two values that the person
in question may have (a clone: Feldman, McMillan and Talwar 2021, Theorem 3.1 and its proof).

- Any randomiser (`k=None`): a clone with probability ``e^-e0``, and the person's own report tells the two apart with
  probability ``e^e0/(e^e0 + 1)``.
- k-ary randomised response: with q = ``1/(e^e0 + k - 1)`` every value is named with probability q at least, whatever
  the data. So another person's report is, with probability ``kq``, an even draw of all k values (the blanket of Balle,
  Bell, Gascon and Nissim 2019), and else their own value. Tell the adversary who drew evenly and what the others say:
  the mixed batch is a function of that and of the histogram of the even draws and the person's own report, so that its
  divergence is at most theirs (data processing). What was told has the same law in both cases, so that delta is the
  mean, over the number b of even draws, of the divergence with b of them; one more even draw cannot raise it. All of
  this holds whatever the others' data are. The bound of any randomiser holds too: the smaller one counts.

A row that holds a person's reports on several questions is one report of any randomiser: its parts were drawn
independently, so that it keeps the sum of their epsilons by itself.

Given t reports of the two values, the likelihood ratio of the two cases rises with the number h of the first value, so
the divergence is a difference of two binomial tails; summed over t that is the whole of delta. t is binomial too: all
but 2e-18 of its probability lies in a window of some tens of standard deviations, and what lies outside is added to
delta, as is more than the rounding of the sum. The answer is therefore never too small, and takes a fraction of a
second for a hundred million people.

>>> round(largest_local_epsilon(1_000, 1.0, 1e-6), 2)
2.72
>>> round(central_epsilon(10_000, 4.79, 1e-6), 2)
1.0
>>> mixed_delta(1, 2.0, 1.0) > 0.3  # nobody to hide among
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from hybridp.errors import Check, Fields, at_least, field, must, named, positive, short
from hybridp.public.mechanisms import ApproxDP, PureDP, turning_point
from hybridp.public.personal import LOCAL_LEAST
from hybridp.public.randomisers import Floats

__all__ = ["MOST_LEVELS", "MOST_LOCAL", "LevelMixing", "Mixer", "Mixing", "central_epsilon", "largest_local_epsilon"]
__all__ += ["mixed_delta"]

MOST_LOCAL = 16.0
"""The largest local epsilon that is ever planned with: beyond it a report alone protects nobody."""

MOST_LEVELS = 64
"""Different epsilons of people in mixed batches: who may choose among more hides among hardly anybody."""

_OUTSIDE = 1e-18  # probability of a count of clones beyond the window on either side; it is added to delta
_GROUPS = 64  # of numbers of even draws; each counts as its smallest number, at which least is hidden
_NEAR = 1e-7  # relative, of an epsilon that is sought
_ROUNDING = 1e-9  # relative, of every term: far above that of the tails (about 1e-13) and of the weights (1e-10)


def mixed_delta(n: int, local_epsilon: float, epsilon: float, *, k: int | None = None) -> float:
    """An upper bound on delta at `epsilon`, for one person among n in a mixed batch (replace-one).

    Against whoever sees the batch and nothing else about these reports, whatever the others' data. `k` is the number of
    categories of k-ary randomised response; None stands for any randomiser with this guarantee.
    """
    must(n >= 1, "n", "must be at least 1", n)
    must(n <= 10**9, "n", "must be at most 1,000,000,000", n)
    must(k is None or k >= 2, "k", "must be at least 2", k)
    e0 = local_epsilon
    must(math.isfinite(e0) and 0 < e0 <= MOST_LOCAL, "local_epsilon", f"must be above 0, at most {MOST_LOCAL:g}", e0)
    must(epsilon >= 0, "epsilon", "must not be negative", epsilon)
    if epsilon >= e0:
        return 0.0
    result = [1.0, _among_clones(n - 1, math.exp(-e0), e0, epsilon)]
    if k == 2:  # an even draw of all values is a clone
        result.append(_among_clones(n - 1, 2 / (math.exp(e0) + 1), e0, epsilon))
    elif k is not None:
        result.append(_among_even(n - 1, k, e0, epsilon))
    return min(result)


def _among_clones(others: int, clone: float, e0: float, epsilon: float) -> float:
    """sum over h of (P - e^epsilon Q)_+, where h counts the first value among the clones and the person's own report.

    With t of them in all and ``b(h; t)`` the fair binomial, ``b(h-1; t-1) = (2h/t) b(h; t)`` and ``b(h; t-1) =
    (2(t-h)/t) b(h; t)``, so that ``P/b`` and ``Q/b`` are straight lines in h, and the positive part is the tail above
    one h.
    """
    from scipy import special

    first, clones = _binomial(others, clone)
    t = first + 1 + np.arange(len(clones), dtype=np.float64)
    grown = math.exp(epsilon)
    right, wrong = special.expit(e0), special.expit(-e0)  # the person's own report: the right value, the other one
    least = np.ceil(t * (grown * right - wrong) / ((1 + grown) * (right - wrong)))
    up, down = _fair_tail(least - 1, t - 1), _fair_tail(least, t - 1)
    p, q = right * up + wrong * down, wrong * up + right * down
    return float(clones @ _above(p, q, grown)) + 2 * _OUTSIDE


def _among_even(others: int, k: int, e0: float, epsilon: float) -> float:
    """The same for k-ary responses: the mean over the number of even draws, each group of numbers by its smallest."""
    first, weights = _binomial(others, k / (math.exp(e0) + k - 1))
    groups = _GROUPS if others <= 10**6 else _GROUPS // 8  # of very many people the numbers hardly differ
    starts = np.unique(np.linspace(0, len(weights), groups, endpoint=False).astype(np.int64))
    result = [_with_even(first + int(start), k, e0, epsilon) for start in starts]
    return float(np.add.reduceat(weights, starts) @ result) + 2 * _OUTSIDE


def _with_even(even: int, k: int, e0: float, epsilon: float) -> float:
    """sum of (P - e^epsilon Q)_+ over the histograms of `even` draws of all k values and the person's own report.

    Of m = even + 1 even draws, t name one of the two values and h the first with probability ``M(t) b(h; t)``. With the
    person's report among them that is multiplied by ``k/m ((p-q) h + q m)`` in one case and by ``k/m ((p-q)(t-h) + q
    m)`` in the other, p and q the chances of the right and of any other value: lines in h again.
    """
    first, weights = _binomial(even + 1, 2 / k)
    t = first + np.arange(len(weights), dtype=np.float64)
    grown, m = math.exp(epsilon), even + 1
    q = 1 / (math.exp(e0) + k - 1)
    rise, flat = math.expm1(e0) * q, q * m
    least = np.ceil((grown * rise * t + (grown - 1) * flat) / (rise * (1 + grown)))
    above, firsts = _fair_tail(least, t), t / 2 * _fair_tail(least - 1, t - 1)
    p, other = rise * firsts + flat * above, rise * (t * above - firsts) + flat * above
    return float(weights @ _above(p, other, grown)) * k / m + 2 * _OUTSIDE


def _above(p: Floats, q: Floats, grown: float) -> Floats:
    return np.asarray(np.maximum(0.0, p * (1 + _ROUNDING) - grown * q * (1 - _ROUNDING)))


def _fair_tail(h: Floats, t: Floats) -> Floats:
    """P(H >= h) for H ~ Bin(t, 1/2); 1 for h <= 0 and 0 for h > t or t < 0."""
    from scipy import special

    inside = (h > 0) & (h <= t)
    tail = special.betainc(np.where(inside, h, 1.0), np.where(inside, t - h + 1, 1.0), 0.5)
    return np.where(inside, tail, ((h <= 0) & (t >= 0)).astype(np.float64))


def _binomial(n: int, p: float) -> tuple[int, Floats]:
    """The first count of a window and Bin(n, p) from there on: all but 2 _OUTSIDE, by Bernstein's inequality.

    Ratios of neighbours, added up in logarithms from the first count on and scaled to a sum of 1: no factorials, whose
    logarithms lose digits for a large n.
    """
    log = -math.log(_OUTSIDE)
    reach = math.sqrt(2 * log * n * p * (1 - p)) + 2 * log / 3 + 1
    first, last = max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach))
    count = np.arange(first, last, dtype=np.float64)
    steps = np.log((n - count) / (count + 1) * (p / (1 - p)))
    logs = np.append(0.0, np.cumsum(steps))
    weights = np.exp(logs - logs.max())
    return first, weights / weights.sum()


@lru_cache(maxsize=1024, typed=True)
def central_epsilon(n: int, local_epsilon: float, delta: float, *, k: int | None = None) -> float:
    """The smallest epsilon, rounded up, that a batch of n keeps at this delta; never above `local_epsilon`."""
    _check_delta(delta)
    if mixed_delta(n, local_epsilon, 0.0, k=k) <= delta:
        return 0.0
    own = float(local_epsilon)
    return turning_point(0.0, own, lambda epsilon: mixed_delta(n, own, epsilon, k=k) <= delta, near=_NEAR)[1]


@lru_cache(maxsize=1024, typed=True)
def largest_local_epsilon(
    n: int, epsilon: float, delta: float, *, k: int | None = None, cap: float = MOST_LOCAL
) -> float:
    """The largest local epsilon, rounded down, whose mixed batch of n is (epsilon, delta)-DP; at most `cap`.

    At least `epsilon` itself, which needs no mixer.
    """
    _check_delta(delta)
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", "must be positive and finite", epsilon)
    must(0 < cap <= MOST_LOCAL, "cap", f"must be above 0 and at most {MOST_LOCAL:g}", cap)
    if epsilon >= cap or mixed_delta(n, cap, epsilon, k=k) <= delta:
        return float(cap)
    return turning_point(float(epsilon), float(cap), lambda e: mixed_delta(n, e, epsilon, k=k) > delta, near=_NEAR)[0]


@dataclass(frozen=True, slots=True)
class Mixing:
    """Reports that go through a mixer: what each keeps by itself, the fewest in a batch, and the batch's delta.

    >>> mixing = Mixing.planned(ApproxDP(1.0, 1e-6), batch=1000)
    >>> round(mixing.epsilon, 2), str(mixing.promise(1000)), str(mixing.promise(999))
    (2.72, '(0.999944, 1e-06)-DP (replace-one)', '2.7241-DP (replace-one)')
    """

    epsilon: float
    batch: int
    delta: float
    k: int | None = None
    whole: float | None = None
    """What all reports of a person keep by themselves, where this is one of several that one batch carries: each row
    of it is then one report of that epsilon."""

    @property
    def together(self) -> float:
        return self.whole or self.epsilon

    @classmethod
    def planned(
        cls, promise: ApproxDP, batch: int, *, epsilon: float | None = None, cap: float = 8.0, k: int | None = None
    ) -> Mixing:
        """The largest local epsilon, at most `cap`, with which a batch keeps the promise; or the stated one."""
        most = largest_local_epsilon(batch, promise.epsilon, promise.delta, k=k, cap=min(cap, MOST_LOCAL))
        if most < cap:  # everybody reads it: four decimals, rounded down
            most = max(math.floor(most * 1e4) / 1e4, promise.epsilon)
        stated = most if epsilon is None else epsilon
        rule = f"must be at most {most:.6g}: in a batch of {batch:,} more would not keep the promise, or pass the cap"
        must(0 < stated <= most, "mixer.epsilon", rule, stated)
        return cls(stated, batch, promise.delta, k)

    def promise(self, people: int) -> PureDP | ApproxDP:
        """What a batch of so many keeps against whoever sees it and nothing else about these reports.

        One that is smaller than was promised counts as not mixed: only the report's own guarantee is left.
        """
        own = PureDP(self.together)
        if people < self.batch:
            return own
        central = central_epsilon(people, self.together, self.delta, k=self.k)
        return own if central >= self.together else ApproxDP(central, self.delta)

    def with_fakes(self, people: int) -> dict[int, float]:
        """The epsilon left at this delta if a tenth, a half or nine tenths of a batch are fakes, who hide nobody.

        >>> {fakes: round(left, 2) for fakes, left in Mixing(2.72, 1000, 1e-6).with_fakes(1000).items()}
        {100: 1.07, 500: 1.68, 900: 2.72}
        """
        fakes = [people * tenths // 10 for tenths in (1, 5, 9)]
        return {few: central_epsilon(people - few, self.together, self.delta, k=self.k) for few in fakes}

    def to_dict(self, people: int) -> dict[str, Any]:
        """What a batch of so many keeps, as plain data."""
        promise = self.promise(max(people, 1))
        return {"least": self.batch, "local_epsilon": self.epsilon, "epsilon": promise.epsilon, "delta": promise.delta}


@dataclass(frozen=True, slots=True)
class LevelMixing:
    """Reports through a mixer where everyone chose an epsilon of their own, which stands beside their report.

    Choices are public and do not depend on data that is protected, so that all is said given everybody's choice. What
    is seen of a batch is then one mixed set of reports for each epsilon, a level, drawn independently of one another. A
    person's data has to do with one of them, in which all reports are of one randomiser: the bound of clones holds
    there, with as many people as the level has in this batch. Those of other levels hide nobody, however many
    they are. `batch` is the fewest people of one level: where there are fewer, only a report's own epsilon holds.
    """

    batch: int
    delta: float

    def __post_init__(self) -> None:
        must(self.batch >= 2, "batch", "must be at least 2", self.batch)
        _check_delta(self.delta)

    def level(self, epsilon: float) -> Mixing | None:
        """The people of one epsilon; None where a device says nothing, or more than a mixer is counted for."""
        return Mixing(epsilon, self.batch, self.delta) if LOCAL_LEAST <= epsilon <= MOST_LOCAL else None


def _check_delta(delta: float) -> None:
    must(1e-15 <= delta < 1, "delta", "must be at least 1e-15 and below 1", delta)


# --- how a study declares it ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mixer(Fields):
    """A third kind of trust: reports go through a mixer, who does not collude with whoever collects them."""

    _label: ClassVar[str] = "mixer."

    batch: int = field(
        help="The fewest reports of a batch. Public: in a smaller one only a report's own epsilon holds.",
        check=at_least(2, 1e8),
    )
    epsilon: float | None = field(
        None,
        help="What a report keeps by itself. Default: the most with which a batch keeps the promise.",
        check=positive,
        option="",
    )
    cap: float = field(
        8.0,
        help="The most that epsilon may be: what is left to people if mixer and collector collude.",
        check=Check("must be above 0 and at most 16", lambda x: 0 < x <= 16),
        option="",
    )
    delta: float | None = field(
        None,
        help="Of a mixed batch's promise. Default: that of the promise.",
        check=Check("must be at least 1e-15 and less than 0.1", lambda x: 1e-15 <= x < 0.1),
        option="shuffled-delta",
    )
    url: str | None = field(
        None,
        help="Where the mixer is reached by people's devices, such as https://mixer.example.",
        check=named,
        option="",
    )
    key: str | None = field(
        None, help="The mixer's public key, as `hybridp mix key` prints it.", check=named, option=""
    )
    run_by: str = field(
        "", help="Who runs the mixer, as participants read it: not those who ask.", check=short(200), option=""
    )

    def check(self) -> None:
        if self.url is not None:
            parts = urlsplit(self.url)
            plain = parts.scheme in ("http", "https") and parts.netloc and not (parts.query or parts.fragment)
            quiet = not any(letter in self.url for letter in " ;,'\"<>\\") and "@" not in parts.netloc
            self.must(bool(plain and quiet), "url", "must be an http or https address, such as https://mixer.example",
                      "something else")  # fmt: skip
