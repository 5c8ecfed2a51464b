"""K-means: all that leaves the curator's room, number by number, has the noise that its share of the budget buys.

Half of the trusted group's budget goes to the map, the other half to the rounds, in equal parts; all of it goes to the
rounds where there is no map. Replacing a point moves two cells of the map by one, and in a round two clusters by a
count of weight w and a deviation no longer than the radius r: ``2 (w + floor(sqrt(d) r))`` in L1 and the larger of
``2 r`` and ``sqrt(2 (w^2 + r^2))`` in L2. Discrete Laplace noise of scale L1/epsilon is epsilon-DP, discrete Gaussian
noise of L2/sqrt(2 rho) is rho-zCDP (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.laws.recording import Draw, Recording, apart, gaussians, laplaces, rho_of, span_of

from hybridp.blend import kmeans as blending
from hybridp.curator.sums import Columns
from hybridp.errors import InvalidInput
from hybridp.ledger import Ledger
from hybridp.public.kmeans import STEPS, Box, round_noise
from hybridp.public.mechanisms import ZCDP, ApproxDP, PureDP
from hybridp.release.release import CURATOR, VIEWER
from hybridp.tasks.kmeans import KMeansTask, Plan
from hybridp_lab.simulate import held_rows
from tests import phases as files

UNIT = Box((0.0, 0.0), (1.0, 1.0))
TRUE = np.array([[0.2, 0.3], [0.75, 0.25], [0.5, 0.8]])
COLUMNS = Columns(("a", "b"), "trust", missing="middle")
EPSILON, DELTA = 2.0, 1e-6
PURE, APPROX = PureDP(EPSILON), ApproxDP(EPSILON, DELTA)


def points(n: int, seed: int = 1) -> np.ndarray:
    """Some of them lie outside the box, and far from every centre."""
    draw = np.random.default_rng(seed)
    return TRUE[draw.integers(0, 3, n)] + np.where(draw.random((n, 1)) < 0.1, 0.4, 0.05) * draw.standard_normal((n, 2))


def levels(x: np.ndarray) -> np.ndarray:
    """Clipped to the box and rounded to whole steps: one row a person."""
    return np.floor(np.clip(x, 0, 1) * STEPS + 0.5).astype(np.int64)


@dataclass(eq=False)
class Messages:
    """What the blend is given: maps with their grid, rounds with the centres that people were assigned to."""

    maps: list[tuple[Any, Any]] = field(default_factory=list)
    rounds: list[tuple[Any, Any]] = field(default_factory=list)
    invites: list[Any] = field(default_factory=list)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Messages:
    found = Messages()
    maps, rounds = blending.blend_map, blending.blend_round

    def blend_map(trusted: Any, local: Any) -> Any:
        found.maps.append((trusted, local))
        found.invites += [local.oracle] if local.people else []
        return maps(trusted, local)

    def blend_round(box: Any, before: Any, added: Any, **more: Any) -> Any:
        found.rounds.append((np.rint(before.centres), added))
        return rounds(box, before, added, **more)

    monkeypatch.setattr(blending, "blend_map", blend_map)
    monkeypatch.setattr(blending, "blend_round", blend_round)
    return found


def cell_counts(x: np.ndarray, per_axis: int) -> np.ndarray:
    cells = levels(x) * per_axis // (STEPS + 1)
    return np.bincount(cells[:, 0] * per_axis + cells[:, 1], minlength=per_axis**2)


def totals(x: np.ndarray, centres: np.ndarray, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """People by nearest centre and their deviations, one by one."""
    counts, sums = np.zeros(len(centres), dtype=np.int64), np.zeros(centres.shape, dtype=np.int64)
    for one in levels(x):
        k = int(((one - centres) ** 2).sum(axis=1).argmin())
        away = one - centres[k].astype(np.int64)
        far = math.hypot(*away)
        if far > radius:
            away = np.trunc(away * (radius * (1 - 1e-9) / far)).astype(np.int64)
        assert math.hypot(*away) <= radius
        counts[k] += 1
        sums[k] += away
    return counts, sums


def sensitivity(weight: int, radius: int) -> tuple[int, float]:
    """In L1 and in L2, for two coordinates."""
    return 2 * (weight + math.isqrt(2 * radius**2)), max(2.0 * radius, math.sqrt(2 * (weight**2 + radius**2)))


def noise_for(promise: PureDP | ApproxDP, share: float, l1: float, l2: float) -> Draw:
    if isinstance(promise, PureDP):
        return laplaces(l1 / (promise.epsilon * share))
    return gaussians(l2 / math.sqrt(2 * rho_of(promise.epsilon, promise.delta) * share))


def check(told: Messages, tape: Recording, x: np.ndarray, promise: PureDP | ApproxDP) -> None:
    """Every number that left the room: the true one, and a draw of its own of the stated noise."""
    spans = []
    mapped = bool(told.maps)
    assert len(told.maps) <= 1
    for counted, _ in told.maps:
        per_axis = math.isqrt(len(counted.counts))
        added = counted.counts - cell_counts(x, per_axis)
        share = 0.5 if told.rounds else 1.0
        spans.append(span_of(tape, added, noise_for(promise, share, 2, math.sqrt(2))))
    for centres, added in told.rounds:
        radius, weight = added.noise.radius, added.noise.weight
        counts, sums = totals(x, centres, radius)
        told_counts = added.counts * weight
        assert np.abs(told_counts - np.rint(told_counts)).max() < 1e-3
        noise = [*(np.rint(told_counts).astype(np.int64) - counts * weight), *(added.sums - sums).ravel()]
        share = (0.5 if mapped else 1.0) / len(told.rounds)
        spans.append(span_of(tape, noise, noise_for(promise, share, *sensitivity(weight, radius))))
    apart(*spans)


@pytest.mark.parametrize("promise", [PURE, APPROX])
@pytest.mark.parametrize("iterations", [None, 1, 3])
def test_the_library(told: Messages, promise: PureDP | ApproxDP, iterations: int | None) -> None:
    x, tape = points(1500), Recording()
    found = files.release_points(KMeansTask(UNIT, 3, promise, iterations), x, None, rng=tape.rng)
    assert bool(told.maps) or len(told.rounds) > 1
    check(told, tape, x, promise)
    budgets = {(p.people, p.against): p.budget for p in found.receipt.promises}
    assert budgets == {("trusted", CURATOR): None, ("trusted", VIEWER): promise}
    assert not found.simulated


@pytest.mark.parametrize("promise", [PURE, APPROX])
def test_rounds_without_a_map_share_the_whole_budget(told: Messages, promise: PureDP | ApproxDP) -> None:
    x, tape = points(60), Recording(2)
    files.release_points(KMeansTask(UNIT, 3, promise, 4), x, None, rng=tape.rng)
    assert not told.maps
    assert len(told.rounds) >= 2
    check(told, tape, x, promise)


def test_control_other_sizes_and_shared_draws_are_noticed(told: Messages) -> None:
    x, tape = points(60), Recording(2)
    files.release_points(KMeansTask(UNIT, 3, APPROX, 4), x, None, rng=tape.rng)
    for wrong in (PureDP(EPSILON), ApproxDP(EPSILON * 1.1, DELTA), ApproxDP(EPSILON * math.sqrt(2), DELTA)):
        with pytest.raises(AssertionError, match="0 stretches"):
            check(told, tape, x, wrong)
    with pytest.raises(AssertionError):
        check(told, tape, x[1:], APPROX)
    with pytest.raises(AssertionError):
        apart((0, 10), (9, 20))


def table(path: Path, x: np.ndarray, label: str = "trusted") -> Path:
    lines = [f"{float(a)!r},{float(b)!r},{label}" for a, b in x]
    path.write_text("\n".join(["a,b,trust", *lines]) + "\n")
    return path


@pytest.mark.parametrize("promise", [PURE, APPROX])
@pytest.mark.parametrize("whole", [EPSILON, 3 * EPSILON])
def test_a_file_with_reports_from_devices(
    told: Messages, tmp_path: Path, promise: PureDP | ApproxDP, whole: float
) -> None:
    """Every local person answers the map, and trusted people pay half for the map and half for one round.

    Where questions are drawn trusted people have a part of what a report has.
    """
    x, tape, study = points(800), Recording(11), KMeansTask(UNIT, 3, promise)
    if whole != EPSILON:
        study = replace(study, guarantee=replace(promise, epsilon=whole), trusted_guarantee=promise)
    invite, reports = tmp_path / "i.json", tmp_path / "r.csv"
    files.plan_map(study, COLUMNS, 800, 3000, invite)
    files.answer(table(tmp_path / "l.csv", points(3000, 2), "local"), invite, COLUMNS, reports)
    ledger = Ledger.create(tmp_path / "l.ledger", {"trusted": promise, "local": PureDP(whole)})
    with tape.as_the_systems():
        place = table(tmp_path / "p.csv", x)
        found = files.release(place, study, COLUMNS, reports=reports, invite=invite, ledger=ledger)
    assert (len(told.maps), len(told.rounds)) == (1, 1)
    check(told, tape, x, promise)
    spent = {e.people: e.budget for e in ledger.history()}
    assert (spent["trusted"].epsilon, spent["trusted"].delta) == (promise.epsilon, promise.delta)
    assert (spent["local"].epsilon, spent["local"].delta) == (whole, 0.0)
    budgets = {(p.people, p.against): p.budget for p in found.receipt.promises}
    assert budgets["local", CURATOR] == budgets["local", VIEWER] == PureDP(whole)
    assert budgets["trusted", VIEWER] == promise


def test_scikit_learns_estimator(told: Messages) -> None:
    pytest.importorskip("sklearn")
    from hybridp.estimators import HybridKMeans

    x, tape = points(700), Recording(4)
    with tape.as_the_systems():
        HybridKMeans(3, epsilon=EPSILON, delta=DELTA, bounds=(0.0, 1.0)).fit(x)
    check(told, tape, x, APPROX)


@pytest.mark.parametrize("promise", [PURE, APPROX])
def test_replacing_a_point_moves_what_is_told_by_the_sensitivity(told: Messages, promise: PureDP | ApproxDP) -> None:
    """The same tape, the same public centres (one round, no map): far points, from one corner to the other."""
    x = points(60)
    plan = Plan(promise, 0, 1, None, PureDP(1.0) if isinstance(promise, PureDP) else ZCDP(0.01))
    moves = []
    for place in itertools.product((-5.0, 0.5, 7.0), (-5.0, 0.5, 7.0)):
        x[0] = place
        told.rounds.clear()
        study = KMeansTask(UNIT, 3, promise)
        files.cluster(study, held_rows(UNIT.levels(x).T), None, plan=plan, rng=Recording(7).rng)
        [(_, added)] = told.rounds
        radius, weight = added.noise.radius, added.noise.weight
        moves.append(np.concatenate([added.counts * weight, added.sums.ravel()]))
    l1, l2 = sensitivity(weight, radius)
    gaps = [a - b for a, b in itertools.combinations(moves, 2)]
    assert max(float(np.abs(g).sum()) for g in gaps) <= l1 + 1e-3
    assert max(float(np.linalg.norm(g)) for g in gaps) <= l2 + 1e-3
    assert max(float(np.linalg.norm(g)) for g in gaps) > 0.9 * math.sqrt(2) * math.hypot(weight, radius)


@pytest.mark.parametrize("radius", [1, 2, 3])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_stated_noise_covers_every_replacement(dims: int, radius: int) -> None:
    """All whole deviations within the radius, in all pairs of clusters: the largest move over the noise's size.

    In fractions: a scale a rounding too small is too small.
    """
    span = range(-radius, radius + 1)
    inside = [u for u in itertools.product(span, repeat=dims) if sum(a * a for a in u) <= radius**2]
    for spend in (PureDP(1.0), PureDP(0.3), ZCDP(0.5), ZCDP(0.3), ZCDP(0.017)):
        noise = round_noise(spend, dims, radius)
        own = [np.array([noise.weight, *u]) for u in inside]
        two = [np.concatenate([a, -b]) for a in own for b in own]  # another cluster
        one = [a - b for a in own for b in own]
        if isinstance(spend, PureDP):
            assert Fraction(noise.size) * Fraction(spend.epsilon) >= max(int(np.abs(v).sum()) for v in [*one, *two])
        else:
            assert 2 * Fraction(noise.size) ** 2 * Fraction(spend.rho) >= max(int(v @ v) for v in [*one, *two])


def test_a_plan_that_spends_more_than_promised_is_refused() -> None:
    rho = rho_of(EPSILON, DELTA)
    close = Plan(APPROX, 4, 2, ZCDP(rho * 0.5), ZCDP(rho * 0.2499999))
    assert isinstance(close.spent, ZCDP)
    assert close.spent.rho == pytest.approx(rho)
    for spends in ((rho * 0.5001, rho * 0.25), (rho * 0.5, rho * 0.2501), (rho, rho * 0.5)):
        with pytest.raises(InvalidInput, match="small enough"):
            Plan(APPROX, 4, 2, *map(ZCDP, spends))
    for spends in ((1.0001, 0.5), (1.0, 0.5001), (2.0, 1.0)):
        with pytest.raises(InvalidInput, match="small enough"):
            Plan(PURE, 4, 2, *map(PureDP, spends))
    with pytest.raises(InvalidInput, match="small enough"):
        Plan(APPROX, 4, 1, PureDP(1.0), ZCDP(rho * 0.1))


# --- local people -----------------------------------------------------------------------------------------------------


def test_files_of_cells_have_the_stated_law(tmp_path: Path) -> None:
    """Everybody is in one cell: told with probability e^eps/(e^eps + cells - 1), every other one equally often."""
    n, study = 30_000, KMeansTask(UNIT, 3, PureDP(1.0))
    cells = files.plan_map(study, COLUMNS, 800, 20_000, tmp_path / "i.json").invite.encoding.cells
    x = table(tmp_path / "l.csv", np.tile([[0.01, 0.99]], (n, 1)), "local")
    with Recording(8).as_the_systems():
        assert files.answer(x, tmp_path / "i.json", COLUMNS, tmp_path / "r.csv") == n
    lines = (tmp_path / "r.csv").read_text().splitlines()[1:]
    assert not any("SIMULATED" in line for line in lines)
    seen = Counter(int(line.split(",")[0]) for line in lines)
    own = math.isqrt(cells) - 1

    def p_value(epsilon: float) -> float:
        e = math.exp(epsilon)
        law = [(e if i == own else 1) / (e + cells - 1) for i in range(cells)]
        return float(stats.chisquare([seen[i] for i in range(cells)], [n * p for p in law]).pvalue)

    assert p_value(1.0) > 1e-6
    assert p_value(1.25) < 1e-6


def test_the_map_asks_for_the_promised_epsilon(told: Messages) -> None:
    """One report a person, so that the whole epsilon goes into it, and not more; whatever trusted people pay."""
    x, tape, part = points(1500), Recording(13), ApproxDP(EPSILON / 2, DELTA / 2)
    study = KMeansTask(UNIT, 3, APPROX, trusted_guarantee=part)
    found = files.release_points(study, x, points(9000, 2), rng=tape.rng)
    check(told, tape, x, part)
    assert {p.budget for p in found.receipt.promises if p.people == "trusted"} == {None, part}
    assert (len(told.maps), len(told.rounds)) == (1, 1)
    [response] = told.invites
    assert (response.guarantee.epsilon, response.guarantee.delta) == (EPSILON, 0.0)
    e = math.exp(EPSILON)
    assert response.truth == pytest.approx(e / (e + response.categories - 1), rel=1e-12)
