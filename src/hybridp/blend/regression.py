"""Regression from what both groups said: coefficients, their covariance, and which question to ask local people.

A `Score` is what is known of the mean score as a function of the coefficients beta (unit coordinates):

    g(beta) = score - slope (beta - centre),

in which score and slope carry noise of known variances, and the score the sampling error ``spread/people``. Where g is
zero lies the estimate, ``centre + slope^-1 score``. Its error is slope^-1 times the error of g at the true beta:
exactly, and not to first order, so that noise in the slope is counted too.

*Steered*: local people tell the mean of the score at beta0, the trusted people's estimate, with a small error. Given
that, score and slope are updated as in a linear Gaussian model (their noise at beta0 is now known up to that error),
and the estimate is where the updated g is zero. Its error contains what is left of the noise in the slope, times the
move.

*Plain*: local people tell all products, with errors of their own; both groups' products are averaged with one weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hybridp.public.messages import VectorBounds, VectorReportSums
from hybridp.public.randomisers import Floats
from hybridp.public.regression import LADDER, KindName, Line, NoisyRounds, OnLine, symmetric

__all__ = ["LEAN", "Fit", "Score", "Units", "blend_groups", "blend_plain", "clip_for", "deviation", "forecast"]
__all__ += ["newton", "spread_as_told", "steer", "trusted_score", "widest"]

LEAN = 0.4
"""How far a clip that was found may shift the mean residual, in standard errors of local people's mean score."""
_UNEVEN = 1.6
# A score's sampling variance over that of residuals that spread alike everywhere, which sums do not tell: where they
# spread as a column's distance from its middle it is E x^4/(E x^2)^2, 1.8 for people who are spread evenly over it.


@dataclass(frozen=True, eq=False)
class Fit:
    """Coefficients with their covariance, in unit coordinates; `weak` where the slope cannot be told from noise."""

    beta: Floats
    covariance: Floats
    weak: bool = False

    @property
    def mse(self) -> float:
        return math.inf if self.weak else float(np.trace(self.covariance))


def _product(variances: Floats, moments: Floats) -> Floats:
    """The covariance of Sa with Sb: S symmetric, its entries independent with these variances, and E ba' known."""
    out = variances * moments  # (j, k): the one entry (j, k) of S, times a_k and b_j
    np.fill_diagonal(out, variances @ np.diag(moments))
    return np.asarray(out)


@dataclass(frozen=True, eq=False)
class Score:
    """The mean score around a centre; `residual` is an upper estimate of the residuals' variance.

    A `curved` one, that of a logistic regression, has a slope of its own at every beta.
    """

    people: int
    centre: Floats
    score: Floats
    slope: Floats
    score_noise: Floats
    slope_noise: Floats
    spread: Floats
    residual: float
    curved: bool = False

    def cross(self, beta: Floats, other: Floats) -> Floats:
        """The covariance of the noise in g at beta with that in g at `other`."""
        moments = np.outer(other - self.centre, beta - self.centre)
        return np.asarray(_product(self.slope_noise, moments) + np.diag(self.score_noise))

    @property
    def sampling(self) -> Floats:
        return self.spread / self.people

    @property
    def drawn(self) -> Floats:
        """The variances of the slope of as many people as these, around that of everybody.

        A square within [0, 1] (curved: 1/4) varies by no more than what lies at both ends; other products are taken to
        vary as those of independent columns.
        """
        own = np.diag(self.stable[0])
        out = np.outer(own, own)
        np.fill_diagonal(out, np.maximum((0.25 if self.curved else 1.0) - own, 0.0) * own)
        return np.asarray(out / self.people)

    def bent(self, way: Floats) -> Floats:
        """How much the slope may change along a way, as variances: relatively by at most that of the predictor."""
        if not self.curved:
            return np.zeros_like(self.slope)
        stable = self.stable[0]
        moved = float(way @ stable @ way) / max(float(np.trace(stable)) / len(stable), 1e-9)
        return np.asarray(0.1 * min(moved, 1.0) * stable**2)

    @property
    def stable(self) -> tuple[Floats, bool]:
        """The slope with its eigenvalues kept above the size of its noise, and whether one lay below."""
        value, vector = np.linalg.eigh(self.slope)
        return np.asarray((vector * np.maximum(value, self.least)) @ vector.T), bool(value.min() < self.least)

    @property
    def least(self) -> float:
        """The size of the slope's noise."""
        return max(math.sqrt(float(np.mean(self.slope_noise)) * len(self.slope)), 1e-9)

    def fit(self) -> Fit:
        slope, weak = self.stable
        inverse = np.linalg.inv(slope)
        beta = self.centre + inverse @ self.score
        return Fit(beta, inverse @ (self.cross(beta, beta) + self.sampling) @ inverse, weak)


# --- what each group says ---------------------------------------------------------------------------------------------


def _linear(people: int, second: Floats, noise: Floats, *, sampled: bool) -> Score:
    """From the mean of uu' and the variances of its errors; `sampled` where those contain the drawing of people."""
    p = len(second) - 1
    empty = np.zeros((p, p))
    result = Score(people, np.zeros(p), second[:p, p], second[:p, :p], noise[:p, p], noise[:p, :p], empty, 1.0)
    w = np.append(-result.fit().beta, 1.0)
    weight = 2 * np.outer(w, w) ** 2 - np.diag(w**4)  # of the variances: (2 w_i w_j)^2 for a pair, once; w_i^4
    error = math.sqrt(float(np.sum(weight * noise)))
    residual = min(max(max(float(w @ second @ w), 0.0) + 1.645 * error, 1e-8), 1.0)
    own = np.sqrt(np.append(1.0, np.full(p - 1, _UNEVEN)))  # the first coordinate is the intercept's
    spread = empty if sampled else residual * result.stable[0] * np.outer(own, own)
    return replace(result, residual=residual, spread=spread)


def trusted_score(said: NoisyRounds) -> Score:
    """The trusted people's score, from the noisy sums of their (last) round."""
    if said.kind == "linear":
        second, noise = said.second
        return _linear(said.people, second, noise, sampled=False)
    score, score_noise, slope, slope_noise = said.last
    centre = np.array(said.centres[-1])
    result = Score(said.people, centre, score, slope, score_noise, slope_noise, slope, 0.25, curved=True)
    stable = result.stable[0]
    bent = result.bent(np.asarray(np.linalg.solve(stable, score), dtype=np.float64))
    return replace(result, spread=stable, slope_noise=slope_noise + bent)


def newton(said: NoisyRounds) -> tuple[float, ...]:
    """Where the next round stands: a step from the last one, no longer than 4 in any coefficient."""
    centre = np.array(said.centres[-1])
    return tuple(np.clip(trusted_score(said).fit().beta, centre - 4, centre + 4).tolist())


def _means(sums: VectorReportSums, line: Line) -> tuple[Floats, Floats]:
    """Each coordinate's mean over those who reported it, and its variance, from the reports' own spread."""
    count = np.maximum(sums.counts, 1).astype(np.float64)
    mean = sums.totals / count
    seen = np.maximum(sums.squares / count - mean**2, 0.0) * count / np.maximum(count - 1, 1.0)
    spread = np.where(sums.counts < 30, max(sums.reports.law.worst_variance, float(seen.max())), seen)
    middle, half = np.array(line.vector.sides).T
    return middle + half * mean, half**2 * spread / count


def spread_as_told(score: Score, sums: VectorReportSums, line: Line) -> Score:
    """The score with residuals that spread as widely as local people's reports show, coordinate by coordinate.

    Taken to vary alike everywhere, residuals that grow with a column would make its coefficient look too sure. A report
    y has ``E y^2 = constant + (1 + quadratic) z^2``; what stands out of its own error by two counts, where it is more.
    """
    if score.curved or line.form != "steered" or int(sums.counts.min()) < 30:
        return score
    law = sums.reports.law
    constant, quadratic = law.variance_terms
    mean, square = sums.totals / sums.counts, sums.squares / sums.counts
    seen = np.clip((square - constant) / (1 + quadratic), 0.0, 1.0)
    each = [law.square_deviation(float(m), float(s)) for m, s in zip(mean, seen, strict=True)]
    error = np.array(each) / np.sqrt(sums.counts) / (1 + quadratic)
    stated = np.maximum(np.diag(score.spread), 1e-12)
    times = np.sqrt(np.where(seen > 2 * error, np.maximum(line.clip**2 * seen / stated, 1.0), 1.0))
    return replace(score, spread=score.spread * np.outer(times, times))


# --- together ---------------------------------------------------------------------------------------------------------


def _updated(score: Score, beta0: Floats, told: Floats, covariance: Floats) -> Fit:
    """The estimate when local people say what the mean score at beta0 is, up to this error.

    Their mean score is the slope of everybody, along the way to the truth, times that way; the trusted people's slope
    is that of a draw, at its start. Both count as errors of what is told, for the way that the first pass finds.
    """
    first = _update(score, beta0, told, covariance)
    way = first.beta - beta0
    moments = np.outer(way, way) + first.covariance
    fit = _update(score, beta0, told, covariance + _product(score.drawn + score.bent(way), moments))
    # The noise left in the slope meets a way that is itself known up to an error.
    inverse = np.linalg.inv(score.stable[0])
    total = fit.covariance + inverse @ _product(score.slope_noise, fit.covariance) @ inverse
    # A curve's slope that is so near its noise is mostly one that noise has made larger: by benchmarks/regression.py.
    faint = score.curved and float(np.linalg.eigvalsh(score.slope).min()) < 1.5 * score.least
    return replace(fit, covariance=1.5 * total if faint else total)


def _update(score: Score, beta0: Floats, told: Floats, covariance: Floats) -> Fit:
    known = score.cross(beta0, beta0) + score.sampling
    gain = np.linalg.inv(known + covariance)
    here = score.score - score.slope @ (beta0 - score.centre)
    w, away = gain @ (told - here), beta0 - score.centre
    moved = score.slope_noise * (np.outer(w, away) + np.outer(away, w))
    np.fill_diagonal(moved, np.diag(score.slope_noise) * w * away)
    slope = score.slope - moved
    at = score.score + score.score_noise * w + score.sampling @ w
    after, weak = replace(score, slope=slope).stable
    inverse = np.linalg.inv(after)
    beta = score.centre + inverse @ at
    shared = score.cross(beta, beta0) + score.sampling
    left = score.cross(beta, beta) + score.sampling - shared @ gain @ shared.T
    # What is told at a line that nobody could place does not place it.
    return Fit(beta, inverse @ left @ inverse, weak or score.stable[1])


def steer(score: Score, sums: VectorReportSums, line: Line, lean: float = 0.0) -> tuple[Fit, Fit, Floats] | None:
    """Both groups, steered; local people alone, by one step from the centre; and the covariance of that step where the
    groups agree. None where some coordinate has fewer than two reports.

    `lean` is `LEAN` where the clip was found, and 0 where it was stated (a promise that nobody lies beyond it): a
    residual that is off by some number moves the score by the slope's first column, and so the intercept alone.
    """
    if int(sums.counts.min()) < 2:
        return None
    mean, variance = _means(sums, line)
    # Who reports several coordinates brings the same drawing of people to each of them.
    d, k = len(sums.counts), sums.reports.reported
    together = k * (k - 1) / (d * (d - 1)) / (k / d) ** 2 if d > 1 else 0.0
    beta0, (slope, weak) = np.array(line.centre), score.stable
    covariance = np.diag(variance) + together * (score.spread - np.diag(np.diag(score.spread))) / sums.people
    covariance = covariance + lean**2 * float(variance[0]) * np.outer(slope[:, 0], slope[:, 0])
    both, inverse = _updated(score, beta0, mean, covariance), np.linalg.inv(slope)
    step = inverse @ mean
    moments = np.outer(step, step)
    covariance = covariance + _product(score.drawn + score.bent(step), moments)
    alone = Fit(beta0 + step, inverse @ (covariance + _product(score.slope_noise, moments)) @ inverse, weak)
    return both, alone, inverse @ (covariance + score.cross(beta0, beta0) + score.sampling) @ inverse


def blend_groups(
    score: Score | None, line: Line | None, sums: VectorReportSums | None, lean: float
) -> tuple[Fit | None, Fit | None, Floats | None]:
    """Both groups, the local one alone, and the covariance of the difference of the two."""
    own = None if score is None else score.fit()
    if line is None or sums is None:
        return own, None, None
    if line.form == "steered":
        assert score is not None
        return steer(score, sums, line, lean) or (own, None, None)
    if int(sums.counts.min()) < 2:  # reports on some product
        return own, None, None
    (mean, variance), size = _means(sums, line), line.bounds.dimensions + 1
    theirs = _linear(sums.people, symmetric(mean, size, 1.0), symmetric(variance, size, 0.0), sampled=True)
    local = theirs.fit()
    if score is None or own is None:
        return local, local, None
    return blend_plain(score, theirs)[0], local, own.covariance + local.covariance


def blend_plain(trusted: Score, local: Score) -> tuple[Fit, float]:
    """Both groups' scores with one weight for all, of the least mean squared error; and the trusted one's weight."""
    weight = 0.5
    for _ in range(3):
        both = _mixed(trusted, local, weight)
        beta = both.fit().beta
        inverse = np.linalg.inv(both.stable[0])
        own, theirs = (
            float(np.trace(inverse @ (part.cross(beta, beta) + part.sampling) @ inverse)) for part in (trusted, local)
        )
        weight = theirs / (own + theirs)
    return _mixed(trusted, local, weight).fit(), weight


def _mixed(trusted: Score, local: Score, w: float) -> Score:
    v = 1 - w
    return replace(
        trusted,
        score=w * trusted.score + v * local.score,
        slope=w * trusted.slope + v * local.slope,
        score_noise=w**2 * trusted.score_noise + v**2 * local.score_noise,
        slope_noise=w**2 * trusted.slope_noise + v**2 * local.slope_noise,
        spread=trusted.people * (w**2 * trusted.sampling + v**2 * local.sampling),
        residual=min(trusted.residual, local.residual),
    )


@dataclass(frozen=True, eq=False)
class Units:
    """From unit coordinates to those of the columns; a logistic regression's target has none."""

    target: float
    start: float
    change: Floats

    @classmethod
    def of(cls, bounds: VectorBounds, kind: KindName) -> Units:
        *on, last = bounds.bounds
        linear = kind == "linear"
        target, start = (last.half, last.centre) if linear else (1.0, 0.0)
        half, middle = np.array([b.half for b in on]), np.array([b.centre for b in on])
        change = np.diag(np.append(1.0, 1 / half))
        change[0, 1:] = -middle / half
        return cls(target, start, change * target)

    def fit(self, estimate: Fit) -> tuple[Floats, Floats]:
        """Coefficients and standard errors; infinite ones where the slope cannot be told from noise."""
        beta = self.change @ estimate.beta
        beta[0] += self.start
        errors = np.sqrt(np.maximum(np.diag(self.change @ estimate.covariance @ self.change.T), 0.0))
        return beta, np.full(len(beta), np.inf) if estimate.weak else errors


# --- before local people are asked ------------------------------------------------------------------------------------


def deviation(score: Score) -> float:
    """An upper estimate of how far people lie from the line, from the sums alone; with the error of the line."""
    return math.sqrt(score.residual + max(float(np.trace(score.stable[0] @ score.fit().covariance)), 0.0))


def widest(score: Score) -> int:
    """The first distance of the ladder that may be the one sought: two deviations, by the upper estimate."""
    return sum(distance > 2 * deviation(score) for distance in LADDER[1:])


def clip_for(kind: KindName, score: Score, place: int | None, told: float) -> float:
    """How far residuals from the trusted people's line may go before they are clipped, in unit coordinates.

    Local people's mean score has the variance ``told clip^2``. A clip at t deviations shifts the mean of exponential
    residuals by ``e^-(1+t)`` deviations; t is where that is `LEAN` of the noise, ``t sqrt(told)``, and intervals leave
    room for it: a wider clip costs every coefficient more noise than it saves the intercept in bias, and lighter or
    even tails are hardly shifted at all. Below 2.5 too many would be clipped to say how far the line moves. The
    deviation is half of the distance that a twentieth of the trusted people exceed, or else an upper estimate from
    their sums; either contains the error of the line. Nothing can lie farther away than the line itself reaches.
    """
    if kind == "logistic":
        return 1.0
    from scipy.special import lambertw

    times = max(float(lambertw(1 / (LEAN * math.e * math.sqrt(told))).real), 2.5)
    wide = deviation(score) if place is None else LADDER[place] / 2
    reach = 1.0 + float(np.abs(score.fit().beta).sum())
    return float(f"{min(times * wide, reach):.3g}")


def forecast(score: Score, questions: Mapping[str, OnLine], local_people: int) -> dict[str, Fit]:
    """What to expect of the trusted people alone, and of each question to local people: from the release alone."""
    alone = score.fit()
    result, p = {"tcm-only": alone}, len(score.score)
    for form, asked in questions.items() if local_people else ():
        line, cost = asked.encoding, asked.mechanism.cost
        if form == "plain":
            half = np.array(line.vector.sides)[:, 1]
            noise = symmetric(half**2 * cost(1 / 3) / local_people, p + 1, 0.0)
            local = replace(score, people=local_people, score_noise=noise[:p, p], slope_noise=noise[:p, :p],
                            spread=0 * score.slope)  # fmt: skip
            result[form] = blend_plain(score, local)[0]
            continue
        second = np.clip(np.diag(score.spread) / line.clip**2, 0.0, 1.0)
        # The move from the centre is not known yet: its expected squares stand for it.
        way = np.maximum(np.diag(alone.covariance), 0.0)
        theirs = line.clip**2 * np.array([cost(float(s)) for s in second]) / local_people
        here = score.score - score.slope @ (alone.beta - score.centre)
        result[form] = _update(score, alone.beta, here, np.diag(theirs + (score.slope_noise + score.drawn) @ way))
    return result
