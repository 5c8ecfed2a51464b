"""Three groups in one estimate: those who trust, those who trust a mixer, and those who trust nobody.

Each function tells, as plain data, the error of the estimate, each group's weight, and what one more person of a group
is worth: the information that they bring, as so many local people; a move from one group to another is worth the
difference. Of a mean each is one number, of several cells a list. With `by_people` each group counts by its number of
people, else by its information, as if all were alike. Those of a batch below its least size are counted alike: their
reports say as much, only less is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.bench.planning import Mechanisms
from hybridp.errors import must
from hybridp.public.budgets import PureDP
from hybridp.public.heavy import counting_noise, discovery
from hybridp.public.oracles import Oracle
from hybridp.public.randomisers import best_randomiser, k_randomised_response
from hybridp.public.shares import CountNoise, mixed_oracle
from hybridp.public.shuffling import Mixing
from hybridp.public.vector import HALF
from hybridp.public.vector_randomisers import VectorReports
from hybridp.release.plan import Plan

if TYPE_CHECKING:
    from hybridp.tasks.vector import VectorStudy

__all__ = ["plan_groups", "plan_record_groups", "plan_share_groups", "plan_vector_groups"]

Floats = NDArray[np.float64]


def _weighed(
    sizes: tuple[int, int, int], mixing: Mixing, trusted: Callable[[int], Any], each: Iterable[Any],
    by_people: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """From the information of so many trusted people together, and of one shuffled and of one local person."""
    people = dict(zip(("trusted", "shuffled", "local"), sizes, strict=True))
    (k, mixed, rest), (shuffled, local) = sizes, each
    must(mixed >= 1, "shuffled", "must leave at least one person who trusts the mixer", mixed)
    must(rest >= 0, "shuffled", "must be at most those who do not trust", mixed)
    whole = {"trusted": trusted(k), "shuffled": mixed * shuffled, "local": rest * local}
    more = {"trusted": trusted(k + 1) - whole["trusted"], "shuffled": shuffled, "local": local}
    parts = {name: people[name] + 0 * part for name, part in whole.items()} if by_people else whole
    weights = {name: part / sum(parts.values()) for name, part in parts.items()}
    error = sum(weights[name] ** 2 / part for name, part in whole.items() if people[name])
    worth = {name: one / local for name, one in more.items()}
    moves = {
        "local to shuffled": worth["shuffled"] - worth["local"],
        "shuffled to trusted": worth["trusted"] - worth["shuffled"],
    }
    return {
        "people": people,
        # The mixer may send as few as the least: how many take part in all promises nobody more than that.
        "batch": mixing.to_dict(min(mixed, mixing.batch)),
        "rmse_population": _plain(error**0.5),
        "weights": _plain(weights),
        "worth_in_local_people": _plain(worth),
        "moves_in_local_people": _plain(moves),
    }


def _plain(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _plain(one) for name, one in found.items()}
    return found.tolist() if isinstance(found, np.ndarray) else found


def plan_groups(
    trusted: int, shuffled: int, local: int, mechanisms: Mechanisms, mixing: Mixing, *, sd: float,
    by_people: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Of a mean. A group's information is ``k/(sd^2 + noise/k)``, or ``n/(sd^2 + v)``, v in the value's own unit."""
    variance = sd * sd
    own = replace(mechanisms, randomiser=best_randomiser(PureDP(mixing.epsilon)))
    each = (1 / (variance + float(one.report(variance))) for one in (own, mechanisms))

    def of_trusted(k: int) -> float:
        return k * k / (k * variance + mechanisms.per_sum)

    return _weighed((trusted, shuffled, local), mixing, of_trusted, each, by_people=by_people)


def plan_share_groups(
    trusted: int, shuffled: int, local: int, shares: Sequence[float], noise: CountNoise, oracle: Oracle,
    mixing: Mixing, *, by_people: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Of shares, option by option: a group's information is ``k^2/(k p(1-p) + noise)``, or ``n/v(p)`` with v of one
    report at that share.

    >>> from hybridp.public.budgets import ApproxDP
    >>> from hybridp.public.shares import count_noise, share_mixing
    >>> from hybridp.public.oracles import share_oracle
    >>> mixing = share_mixing(ApproxDP(1.0, 1e-6), 2, 1000)
    >>> groups = 100, 1000, 9000, [0.3, 0.7], count_noise(PureDP(1.0), 2), share_oracle(PureDP(1.0), 2)
    >>> [round(error, 4) for error in plan_share_groups(*groups, mixing)["rmse_population"]]
    [0.009, 0.009]
    """
    p = np.asarray(shares, dtype=np.float64)
    each = (1 / np.array([one.variance(x) for x in p.tolist()]) for one in (mixed_oracle(mixing, len(p)), oracle))

    def of_trusted(k: int) -> Floats:
        return np.asarray(k * k / (k * p * (1 - p) + noise.variance))

    return _weighed((trusted, shuffled, local), mixing, of_trusted, each, by_people=by_people)


def plan_vector_groups(
    trusted: int, shuffled: int, local: int, study: VectorStudy, sd: Sequence[float], *, by_people: bool = False
) -> dict[str, Any]:
    """Of a vector mean, column by column: ``k^2/(k sd^2 + noise)``, or ``s n/(sd^2 + v)``, in the column's own unit.

    A share s of a group's people report on a column, each with the noise v of a vector as long as the bounds allow.
    """
    bounds, mixing, mixed = study.bounds, study.mixing, study.mixed_invite
    assert mixing is not None
    assert mixed is not None
    variance, half = np.square(sd), np.array([b.half for b in bounds.bounds])
    reach = half * bounds.reach
    square = np.clip(variance / reach**2, min(1.0, bounds.ratio**2 / bounds.dimensions), 1.0)

    def one(reports: VectorReports) -> Floats:
        constant, quadratic = reports.law.variance_terms
        return np.asarray(reports.share / (variance + reach**2 * (constant + quadratic * square)))

    def of_trusted(k: int) -> Floats:
        return np.asarray(k * k / (k * variance + study.sum_noise.variance * (half / HALF) ** 2))

    each = one(mixed.reports), one(study.invite.reports)
    return _weighed((trusted, shuffled, local), mixing, of_trusted, each, by_people=by_people)


def plan_record_groups(
    trusted: int, shuffled: int, local: int, plan: Plan, mixing: Mixing
) -> dict[str, Any]:
    """Of the most frequent records, rank by rank, as in `plan_heavy`: noisy counts of two parts, and two responses."""
    study, p = plan.setting, np.array(plan.predicted["top"]["share"])
    slots = max(2, round(plan.predicted["head_list_size"]) + 1)
    noises = {study.discovery_share: 2 * discovery(study.trusted_promise).scale ** 2,
              1 - study.discovery_share: counting_noise(study.trusted_promise).variance}  # fmt: skip

    def one(epsilon: float) -> Floats:
        oracle = k_randomised_response(PureDP(epsilon), slots)
        return 1 / np.array([oracle.variance(x) for x in p.tolist()])

    def of_trusted(k: int) -> Floats:
        parts = [1 / (p * (1 - p) / max(k * a, 1) + v / max(k * a, 1) ** 2) for a, v in noises.items()]
        return np.asarray(np.sum(parts, axis=0))

    each = one(mixing.epsilon), one(study.guarantee.epsilon)
    return _weighed((trusted, shuffled, local), mixing, of_trusted, each)
