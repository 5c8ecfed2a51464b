"""What a published front costs the people in the data behind it (the first open problem of Avent 2023, section 3.6).

Two groups pay. People whose rows the mechanism learnt from pay each evaluation's epsilon for each of its runs, on the
front or not, because every one of them steered the search. People on whose rows the utility was measured are
protected only if noise was added to each answer *before* the search saw it (`guarded`): noise added to a finished
front would not hide what chose it. With both in place everything else is post-processing.

Composition is basic, or for delta' > 0 the smaller of that and
``sum e_i^2 / 2 + sqrt(2 ln(1/delta') sum e_i^2)``, which holds although the search chooses its epsilons on the way,
provided the total was fixed beforehand as a cap (Whitehouse, Ramdas, Rogers and Wu 2023, Theorem 1). Read off after
the fact it describes what was spent; as a promise it needs `release_front`, which refuses to start above its budget.

All of it supposes that the mechanism's own noise is secret: a run whose seed is known protects nobody.

For whoever decides there is the final front, and "give me the setting for epsilon <= 1". The best of many noisy
measurements is mostly lucky, so settings are ranked by the models' posterior means and not by what was observed. A
setting that was never measured may be better still: `suggest` minimises the posterior mean over settings whose exact
epsilon is within the bound (the second open problem of Avent 2023, section 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import BudgetExceeded, InvalidInput, must
from hybridp.noise import perturb
from hybridp.pareto.models import Models, fit_models, ln_epsilon
from hybridp.pareto.problem import Evaluation, Problem, pareto_indices
from hybridp.pareto.space import Setting
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.mechanisms import DiscreteLaplace, discrete_laplace
from hybridp.randomness import Randomness, secure, seeded, synthetic_data_generator

__all__ = ["Advice", "Choice", "Cost", "PublishedFront", "compose", "final_front", "guarded", "publishing_cost"]
__all__ += ["release_front", "suggest"]


Floats: TypeAlias = NDArray[np.float64]

LEVEL, _WIDTH = 0.95, 1.96  # of the intervals on the models' scale


@final
@dataclass(frozen=True)
class Choice:
    """A setting with its exact epsilon and its predicted expected error, and what was measured if it was.

    The interval is the model's for the expected error; a single run scatters around it as well.
    """

    setting: Mapping[str, Any]
    epsilon: float
    predicted: float
    low: float
    high: float
    measured: float | None = None


@final
@dataclass(frozen=True)
class Advice:
    """The best measured setting within the bound (if any) and a new one that the models prefer."""

    bound: float
    measured: Choice | None
    suggested: Choice
    level: float = LEVEL


def _inputs(problem: Problem, models: Models, done: Sequence[Evaluation]) -> Floats:
    cube = np.array([problem.space.encode(e.setting) for e in done])
    return models.inputs(cube, np.log([e.epsilon for e in done]))


def _predicted(problem: Problem, models: Models, x: Floats) -> tuple[Floats, Floats, Floats]:
    mean, sd = models.noisy[0].predict(x)
    inverse = problem.measure.inverse
    return inverse(mean), inverse(mean - _WIDTH * sd), inverse(mean + _WIDTH * sd)


def _choices(problem: Problem, done: Sequence[Evaluation], models: Models) -> list[Choice]:
    rows = zip(done, *_predicted(problem, models, _inputs(problem, models, done)), strict=True)
    return [Choice(e.setting, e.epsilon, float(m), float(a), float(b), e.values[0]) for e, m, a, b in rows]


def _fitted(problem: Problem, done: Sequence[Evaluation]) -> Models:
    must(len(done) >= 3, "evaluations", "must hold at least 3 that succeeded", len(done))
    return fit_models(problem, done)


def final_front(problem: Problem, done: Sequence[Evaluation]) -> tuple[Choice, ...]:
    """Measured settings that are non-dominated by posterior mean, in order of epsilon.

    Further objectives enter by their posterior means too.
    """
    models = _fitted(problem, done)
    x = _inputs(problem, models, done)
    means = [m.inverse(s.predict(x)[0]) for m, s in zip(problem.measures, models.noisy, strict=True)]
    points = problem.axes([e.epsilon for e in done], np.column_stack(means))
    choices = _choices(problem, done, models)
    return tuple(choices[i] for i in pareto_indices(points))


def suggest(problem: Problem, done: Sequence[Evaluation], *, epsilon: float) -> Advice:
    """The best measured setting with epsilon within the bound, and the best by the models over the whole space."""
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", "must be positive and finite", epsilon)
    models = _fitted(problem, done)
    within = [c for c in _choices(problem, done, models) if c.epsilon <= epsilon]
    best = min(within, key=lambda c: c.predicted, default=None)
    return Advice(epsilon, best, _searched(problem, done, models, epsilon))


def _searched(problem: Problem, done: Sequence[Evaluation], models: Models, epsilon: float) -> Choice:
    """Uniform candidates and the measured settings, then shrinking moves around the best eight within the bound."""
    rng = synthetic_data_generator(seeded(0))
    dim = problem.space.dim
    known = np.array([problem.space.encode(e.setting) for e in done])
    pool = np.vstack([rng.random((2048, dim)), known])
    kept = np.empty((0, dim))
    value = np.empty(0)
    for shrink in (0.1, 0.05, 0.02, 0.01, 0.003, 0.001):
        settings, x = problem.space.snap(np.clip(pool, 0, 1))
        a = ln_epsilon(problem, models, settings, x)
        allowed = a <= math.log(epsilon)
        if allowed.any():
            kept = np.vstack([kept, x[allowed]])
            value = np.append(value, models.noisy[0].predict(models.inputs(x[allowed], a[allowed]))[0])
            top = np.argsort(value)[:8]
            kept, value = kept[top], value[top]
        start = kept if len(kept) else known
        pool = np.repeat(start, 32, axis=0) + shrink * rng.normal(size=(32 * len(start), dim))
    # A model of epsilon may have let some in: only the oracle's word counts in the end.
    for row in kept[np.argsort(value)]:
        setting = problem.space.decode(row)
        exact = problem.epsilon(setting)
        if exact <= epsilon:
            inputs = models.inputs(row[None], np.log([exact]))
            mean, low, high = _predicted(problem, models, inputs)
            return Choice(setting, exact, float(mean[0]), float(low[0]), float(high[0]))
    raise InvalidInput(f"`epsilon` must be within reach of the mechanism. Got {epsilon}, below every setting tried.")


_STEPS = 2**40  # of a utility in [0, 1]


@final
@dataclass(frozen=True)
class Cost:
    """Budgets spent; `evaluated` is None where exact utilities were used, which no epsilon bounds."""

    trained: ApproxDP
    evaluated: ApproxDP | None
    answers: int

    def __str__(self) -> str:
        other = "no guarantee: exact utilities steered the search" if self.evaluated is None else str(self.evaluated)
        return f"{self.answers} answers; people learnt from: {self.trained}; people evaluated on: {other}"


def compose(epsilons: Sequence[float], *, delta: float = 0.0, slack: float = 0.0) -> ApproxDP:
    """The guarantee of all of them together; `delta` is the sum of their own deltas and `slack` is delta'.

    >>> compose([0.1] * 400).epsilon
    40.0
    >>> round(compose([0.1] * 400, slack=1e-6).epsilon, 2)
    12.51
    """
    must(0 <= slack < 1, "slack", "must lie in [0, 1)", slack)
    must(all(math.isfinite(e) and e > 0 for e in epsilons), "epsilons", "must be positive and finite", list(epsilons))
    total = math.fsum(epsilons)
    if slack > 0:
        squares = math.fsum(e * e for e in epsilons)
        advanced = squares / 2 + math.sqrt(2 * math.log(1 / slack) * squares)
        if advanced < total:
            return ApproxDP(advanced * (1 + 1e-12), min(delta + slack, 1.0))
    return ApproxDP(total, min(delta, 1.0))


def publishing_cost(
    problem: Problem,
    evaluations: Sequence[Evaluation],
    *,
    epsilon_each: float | None = None,
) -> Cost:
    """What all evaluations cost together, failed ones included: pass those too.

    `epsilon_each` is that of `guarded`, if the run's utilities were guarded. A failed evaluation whose epsilon
    is unknown never reached the data, as privacy is asked first; one that failed later is charged in full.
    """
    must(len(evaluations) > 0, "evaluations", "must hold at least one", 0)
    touched = [e for e in evaluations if math.isfinite(e.epsilon)]
    # Runs of a failed evaluation are not on record: every repeat is charged.
    runs = [max(len(e.runs), problem.repeats) for e in touched]
    spent = [e.epsilon for e, r in zip(touched, runs, strict=True) for _ in range(r)]
    count = len(spent)
    trained = compose(spent, delta=count * problem.delta)
    measured = None if epsilon_each is None else compose([epsilon_each] * count)
    return Cost(trained, measured, count)


@final
@dataclass(frozen=True)
class _Guarded:
    """A utility oracle whose every number carries Laplace noise of exact law, from the system's randomness."""

    utility: Any
    epsilon: float
    sensitivity: float

    def __call__(self, setting: Setting, seed: int) -> list[float]:
        return _noisy(self.utility(setting, seed), self.epsilon, self.sensitivity, secure())


def _mechanism(epsilon: float, sensitivity: float) -> DiscreteLaplace:
    """The noise of one answer in whole steps; rounding may add one of them to the sensitivity."""
    return discrete_laplace(PureDP(epsilon), math.ceil(sensitivity * _STEPS) + 1)


def _noisy(answer: Any, epsilon: float, sensitivity: float, rng: Randomness) -> list[float]:
    """Every answer is published, whatever it is: a refusal would be one too. What is no number is the worst utility."""
    values = np.clip(np.nan_to_num(np.asarray(answer, dtype=float).reshape(-1), nan=0.0), 0.0, 1.0)
    mechanism = _mechanism(epsilon, sensitivity)
    noisy = [perturb(mechanism, int(v), rng=rng) / _STEPS for v in np.rint(values * _STEPS)]
    return [float(v) for v in np.clip(noisy, 0.0, 1.0)]


def _bounded(problem: Problem) -> float:
    one = problem.sensitivity
    if one is None or problem.others:
        must(one is not None, "sensitivity", "must be declared by the problem to add noise", one)
        must(not problem.others, "others", "must be empty: only the utility's noise is calibrated", len(problem.others))
    assert one is not None
    must(problem.measure.transform == "logit", "measure", "must be a utility in [0, 1] to be guarded", problem.measure)
    return one


def guarded(problem: Problem, *, epsilon_each: float) -> Problem:
    """The problem with noise on every utility before anyone sees it: epsilon_each for an evaluated person, an answer.

    Scale: sensitivity / epsilon_each (Laplace, exact sampler). Clipping to [0, 1] is post-processing.
    """
    one = _bounded(problem)
    must(math.isfinite(epsilon_each) and epsilon_each > 0, "epsilon_each", "must be positive and finite", epsilon_each)
    noisy = _Guarded(problem.utility, epsilon_each, one)
    return replace(problem, utility=noisy, version=f"{problem.version}+guarded({epsilon_each:g})")


@final
@dataclass(frozen=True)
class PublishedFront:
    """Settings with epsilon and one noisy error each, and what everyone paid."""

    settings: tuple[Setting, ...]
    epsilons: tuple[float, ...]
    errors: tuple[float, ...]
    trained: ApproxDP
    evaluated: ApproxDP
    simulated: bool


def release_front(
    problem: Problem,
    settings: Sequence[Setting],
    *,
    trained: PureDP | ApproxDP,
    evaluated: PureDP,
    rng: Randomness,
) -> PublishedFront:
    """Evaluate settings afresh, one run each, and publish noisy errors within two stated budgets.

    The settings must come from somewhere public: theory, made-up data, or a guarded run already paid for. `trained`
    must cover the sum of their epsilons and deltas, or nothing is run; `evaluated` is split evenly over the settings.
    """
    one = _bounded(problem)
    must(len(settings) > 0, "settings", "must name at least one setting", 0)
    checked = [problem.space.check(s) for s in settings]
    epsilons = [problem.epsilon(s) for s in checked]
    need = compose(epsilons, delta=len(checked) * problem.delta)
    limit = trained.delta if isinstance(trained, ApproxDP) else 0.0
    if need.epsilon > trained.epsilon or need.delta > limit:
        raise BudgetExceeded(f"The front needs {need} of the people learnt from; {trained} is left.")
    share = evaluated.epsilon / len(checked)
    errors = []
    for setting in checked:
        # The oracle's generator is seeded from `rng` and the seed is not kept.
        runs = np.asarray(problem.utility(setting, int(rng.words(1)[0] >> np.uint64(1))), dtype=float).reshape(-1)
        must(len(runs) == 1, "utility", "must make one run a call to be published", f"{len(runs)} runs")
        errors.append(1.0 - _noisy(runs, share, one, rng)[0])
    return PublishedFront(
        tuple(checked), tuple(epsilons), tuple(errors), need, ApproxDP(evaluated.epsilon, 0.0), rng.simulated
    )
