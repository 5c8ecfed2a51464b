"""What regressions know of their own error: covariances against draws of the model, and coverage with a control."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hybridp.blend.regression import (
    LEAN,
    Score,
    _linear,
    blend_plain,
    clip_for,
    forecast,
    spread_as_told,
    steer,
    widest,
)
from hybridp.device.reports import reach_reports
from hybridp.noise import seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import VectorBounds, VectorReportSums
from hybridp.public.randomisers import column_sums
from hybridp.public.regression import LADDER, Line, OnLine, line_invite

BETA = np.array([0.1, 0.4, -0.3])
SECOND = np.array([[1.0, 0.1, 0.0], [0.1, 0.3, 0.05], [0.0, 0.05, 0.2]])
BOX = VectorBounds.of([-1, -1, -1], [1, 1, 1])


def symmetric(draw: np.random.Generator, variances: np.ndarray) -> np.ndarray:
    upper = np.triu(draw.standard_normal(variances.shape) * np.sqrt(variances))
    return upper + np.triu(upper, 1).T


def said(draw: np.random.Generator, noise: float, people: int = 1000, residual: float = 0.01) -> Score:
    """What trusted people would say: noisy slope and score, and their own sampling error in the score."""
    slope_noise = np.full((3, 3), noise**2)
    slope_noise[0, 0] = 0.0
    luck = draw.multivariate_normal(np.zeros(3), residual * SECOND / people)
    score = SECOND @ BETA + luck + noise * draw.standard_normal(3)
    slope = SECOND + symmetric(draw, slope_noise)
    return Score(people, np.zeros(3), score, slope, np.full(3, noise**2), slope_noise, residual * SECOND, residual)


def told(draw: np.random.Generator, question: OnLine, people: int = 100_000) -> VectorReportSums:
    """Reports of local people about the score at the centre, as their sums: one coordinate each."""
    truth = SECOND @ (BETA - np.array(question.encoding.centre)) / question.encoding.clip
    count = np.full(3, people // 3)
    spread = question.mechanism.cost(0.1) * question.mechanism.share
    mean = truth + draw.standard_normal(3) * np.sqrt(spread / count)
    return VectorReportSums(people, count, count * mean, count * (spread + mean**2), question.mechanism)


def asked(score: Score) -> OnLine:
    return line_invite(Line("linear", "steered", BOX, tuple(score.fit().beta.tolist()), 0.5), PureDP(1.0))


def test_without_noise_the_estimate_is_least_squares() -> None:
    draw = np.random.default_rng(1)
    x = np.column_stack([np.ones(500), draw.uniform(-1, 1, (500, 2))])
    y = x @ BETA + 0.1 * draw.standard_normal(500)
    none = np.zeros((3, 3))
    found = Score(500, np.zeros(3), x.T @ y / 500, x.T @ x / 500, np.zeros(3), none, 0.01 * x.T @ x / 500, 0.01).fit()
    assert found.beta == pytest.approx(np.linalg.lstsq(x, y)[0])
    assert found.covariance == pytest.approx(0.01 * np.linalg.inv(x.T @ x))


def test_residuals_that_spread_with_a_column_are_covered() -> None:
    """1,000 trusted people, residuals that grow with the first column; the control takes them to spread alike."""
    draw, held, control = np.random.default_rng(12), 0, 0
    for _ in range(600):
        x = np.column_stack([np.ones(1_000), draw.uniform(-1, 1, (1_000, 2))])
        y = x @ BETA + 0.15 * np.abs(x[:, 1]) * draw.standard_normal(1_000)
        u = np.column_stack([x, y])
        found = _linear(1_000, u.T @ u / 1_000, np.full((4, 4), 1e-12), sampled=False)
        fit = found.fit()
        away = abs(fit.beta[1] - BETA[1])
        held += away <= 1.96 * math.sqrt(fit.covariance[1, 1])
        alike = replace(found, spread=found.residual * found.stable[0]).fit()
        control += away <= 1.96 * math.sqrt(alike.covariance[1, 1])
    assert held >= 0.91 * 600
    assert control < 0.89 * 600


def test_the_covariance_of_the_noise_in_a_score_is_that_of_draws() -> None:
    draw = np.random.default_rng(2)
    score = said(draw, 0.05)
    a, b = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.3, -0.7])
    drawn = []
    for _ in range(20_000):
        noise, at = symmetric(draw, score.slope_noise), 0.05 * draw.standard_normal(3)
        drawn.append(np.concatenate([at - noise @ a, at - noise @ b]))
    seen = np.cov(np.array(drawn).T)[:3, 3:]
    error = 6 * 0.05**2 * 6 / math.sqrt(20_000)
    assert np.abs(seen - score.cross(a, b)).max() < error
    assert np.abs(seen - score.cross(a, b).T).max() > error, "which coefficient goes with which side matters"


def test_intervals_cover_what_is_left_of_the_pilots_error_and_steering_gains() -> None:
    draw = np.random.default_rng(3)
    hits = {"both": [], "trusted": [], "local": [], "careless": []}
    errors: dict[str, list[float]] = {"both": [], "trusted": [], "local": []}
    apart = []
    for _ in range(700):
        score = said(draw, 0.02)
        question = asked(score)
        sums = told(draw, question)
        both, alone, spread = steer(score, sums, question.encoding)  # type: ignore[misc]
        for name, fit in (("both", both), ("trusted", score.fit()), ("local", alone)):
            away = (fit.beta - BETA) / np.sqrt(np.diag(fit.covariance))
            hits[name] += (np.abs(away) < 1.96).tolist()
            errors[name].append(float(((fit.beta - BETA) ** 2).sum()))
        naive = np.linalg.inv(score.stable[0]) * 0.5 * math.sqrt(question.mechanism.cost(0.1) / 100_000)
        hits["careless"] += (np.abs(both.beta - BETA) < 0.7 * 1.96 * np.sqrt(np.diag(naive @ naive.T))).tolist()
        step = (alone.beta - score.fit().beta) / np.sqrt(np.diag(spread))
        apart += (np.abs(step) < 1.96).tolist()
    share = {name: float(np.mean(some)) for name, some in hits.items()}
    for name in ("both", "trusted", "local"):
        assert 0.93 < share[name] < 0.98, share
    assert share["careless"] < 0.92, "the check can fail"
    assert 0.93 < np.mean(apart) < 0.98, "groups that agree are said to agree"
    mean = {name: float(np.mean(some)) for name, some in errors.items()}
    assert mean["both"] < 0.25 * mean["trusted"]
    assert mean["both"] <= 1.02 * mean["local"]


def test_a_forecast_is_what_comes() -> None:
    draw = np.random.default_rng(4)
    seen, expected, plain = [], [], []
    plain_invite = line_invite(Line("linear", "plain", BOX), PureDP(1.0))
    for _ in range(300):
        score = said(draw, 0.015)
        question = asked(score)
        found = forecast(score, {"steered": question, "plain": plain_invite}, 100_000)
        both, *_ = steer(score, told(draw, question), question.encoding)  # type: ignore[misc]
        seen.append(float(((both.beta - BETA) ** 2).sum()))
        expected.append(found["steered"].mse)
        plain.append(found["plain"].mse)
        assert found["steered"].mse <= found["tcm-only"].mse
    assert np.mean(expected) == pytest.approx(np.mean(seen), rel=0.25)
    assert np.mean(plain) > 2 * np.mean(expected)


def test_nobody_weighs_nothing_and_the_slope_must_stand_out_of_its_noise() -> None:
    draw = np.random.default_rng(5)
    good, bad = said(draw, 0.001), said(draw, 30.0)
    assert blend_plain(good, bad)[1] > 0.999
    assert blend_plain(bad, good)[1] < 0.001
    assert bad.fit().weak
    assert not good.fit().weak
    assert bad.fit().mse == math.inf


def test_a_clip_shifts_exponential_residuals_by_what_intervals_leave_room_for_and_no_more() -> None:
    """With the deviation known, the mean of clipped exponential residuals is off by `LEAN` of the noise, by draws."""
    score = said(np.random.default_rng(6), 0.001)
    drawn = 0.1 * (np.random.default_rng(7).exponential(size=2_000_000) - 1)
    place = next(g for g, distance in enumerate(LADDER) if np.mean(np.abs(drawn) > distance) > 0.05)
    for told in (1e-4, 1e-5):
        clip = clip_for("linear", score, place - 1, told)
        most = LEAN * clip * math.sqrt(told)
        assert 0.3 * most < abs(np.clip(drawn, -clip, clip).mean() - drawn.mean()) <= most
        narrow = clip_for("linear", score, place + 2, told)
        shift = abs(np.clip(drawn, -narrow, narrow).mean() - drawn.mean())
        assert shift > LEAN * narrow * math.sqrt(told), "the check can fail"


def test_a_clip_is_at_least_two_and_a_half_deviations_and_never_exceeds_what_is_possible() -> None:
    score = said(np.random.default_rng(6), 0.001)
    assert clip_for("linear", score, 16, 1.0) == pytest.approx(2.5 * 0.125 / 2, rel=0.01)
    assert clip_for("linear", score, 0, 1e-6) == pytest.approx(1 + np.abs(score.fit().beta).sum(), rel=0.01)
    assert 0.25 <= clip_for("linear", score, None, 1.0) < 0.27  # 2.5 deviations of .1, and the error of the line
    assert clip_for("logistic", score, None, 10) == 1.0
    # Two deviations of what the sums say, .2, and no farther than the next distance beyond.
    assert 0.2 <= LADDER[widest(score)] < 0.27


def test_the_slope_of_a_few_trusted_people_is_not_that_of_everybody() -> None:
    """Local people tell the slope of everybody times the way to the truth: with 200 trusted people and a poor line the
    draw of those people is most of the error, and an interval without it misses."""
    draw = np.random.default_rng(8)
    people, hits, careless = 200, [], []
    for _ in range(600):
        x = np.column_stack([np.ones(people), draw.uniform(-1, 1, (people, 2))])
        score, slope = x.T @ (x @ BETA + 0.1 * draw.standard_normal(people)) / people, x.T @ x / people
        none, everybody = np.zeros((3, 3)), np.diag([1, 1 / 3, 1 / 3])
        noisy = Score(people, np.zeros(3), score + 0.1 * draw.standard_normal(3), slope, np.full(3, 0.01), none,
                      0.01 * everybody, 0.01)  # fmt: skip
        question = asked(noisy)
        n, law = 3_000_000, question.mechanism
        spread = law.cost(0.1) * law.share
        mean = everybody @ (BETA - np.array(question.encoding.centre)) / question.encoding.clip
        mean = mean + draw.standard_normal(3) * np.sqrt(3 * spread / n)
        count = np.full(3, n // 3)
        sums = VectorReportSums(n, count, count * mean, count * (spread + mean**2), law)
        both, *_ = steer(noisy, sums, question.encoding)  # type: ignore[misc]
        hits += (np.abs(both.beta - BETA) < 1.96 * np.sqrt(np.diag(both.covariance))).tolist()
        sure = replace(noisy, people=10**9, spread=10**9 / people * noisy.spread)
        fixed, *_ = steer(sure, sums, question.encoding)  # type: ignore[misc]
        careless += (np.abs(fixed.beta - BETA) < 1.96 * np.sqrt(np.diag(fixed.covariance))).tolist()
    assert 0.93 < np.mean(hits) < 0.985
    assert np.mean(careless) < 0.9, "the check can fail"


def test_residuals_that_grow_with_a_column_spread_as_reports_show_and_noise_shows_nothing() -> None:
    """Reports of scores x r with E (x r)^2 above E x^2 E r^2, drawn by devices; a small epsilon shows nothing."""
    draw = np.random.default_rng(9)
    x = np.column_stack([np.ones(40_000), draw.uniform(-1, 1, (40_000, 2))])
    r = 0.15 * np.abs(x[:, 1]) * draw.standard_normal(40_000)
    alike = np.mean(r**2) * (x.T @ x) / len(x)
    truth = np.diag((x * r[:, None]).T @ (x * r[:, None])) / len(x)
    none = np.zeros((3, 3))
    trusted = Score(1000, np.zeros(3), np.zeros(3), x.T @ x / len(x), np.zeros(3), none, alike, 0.0075)
    for epsilon in (6.0, 0.2):
        question = line_invite(Line("linear", "steered", BOX, (0.0, 0.0, 0.0), 0.6), PureDP(epsilon))
        rows = BOX.steps(np.column_stack([x[:, 1:], r]))
        sent = column_sums(reach_reports(rows, question, rng=seeded(1)))
        sums = VectorReportSums.of(len(x), sent, question.mechanism)
        found = np.diag(spread_as_told(trusted, sums, question.encoding).spread)
        if epsilon > 1:
            assert truth[1] > 1.7 * alike[1, 1], "the check can fail"
            assert found == pytest.approx(truth, rel=0.2)
        else:
            assert found == pytest.approx(np.diag(alike), rel=0.02)


def test_what_is_told_at_a_line_that_nobody_could_place_has_no_bounded_interval() -> None:
    draw = np.random.default_rng(10)
    for _ in range(50):
        score = said(draw, 0.3)
        both, *_ = steer(score, told(draw, asked(score)), asked(score).encoding)  # type: ignore[misc]
        assert both.weak or not score.fit().weak
