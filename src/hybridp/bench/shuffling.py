"""What a mixer allows: the local epsilon of a planned batch, and what a person's report is then worth.

>>> plan = plan_shuffle(100_000, ApproxDP(1.0, 1e-6))
>>> round(plan.more["local_epsilon"], 2), plan.more["method"]
(7.07, 'clones of any randomiser, summed exactly')
>>> plan.errors["local"] / plan.errors["shuffled"] > 5
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from hybridp.bench.planning import Mechanisms
from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import counting_noise, discovery
from hybridp.public.oracles import Oracle
from hybridp.public.randomisers import best_randomiser, k_randomised_response
from hybridp.public.shares import CountNoise, mixed_oracle
from hybridp.public.shuffling import MOST_LOCAL, Mixing, largest_local_epsilon
from hybridp.public.vector import HALF
from hybridp.public.vector_randomisers import ScalarReports, VectorReports
from hybridp.release.plan import Plan, planned, predicted

if TYPE_CHECKING:
    from hybridp.protocols.vector import VectorStudy

__all__ = ["ThreeGroups", "parse_randomiser", "plan_groups", "plan_share_groups", "plan_shuffle"]
__all__ += ["plan_record_groups", "plan_vector_groups"]

Floats = NDArray[np.float64]
N = TypeVar("N", float, Floats)


def plan_shuffle(n: int, guarantee: ApproxDP, *, k: int | None = None, cap: float = MOST_LOCAL) -> Plan:
    """The largest local epsilon that keeps the promise for a mixed batch of `n`, and standard errors with it.

    There is one for each kind of trust, everybody choosing it alike: of the mean of a number as a share of its range,
    or of the share of a rare category for k-ary randomised response; the noise alone, without sampling.
    """
    must(guarantee.delta > 0, "delta", "must be positive: a mixed batch has no pure guarantee", guarantee.delta)
    local = largest_local_epsilon(n, guarantee.epsilon, guarantee.delta, k=k, cap=cap)
    errors = _errors(n, guarantee.epsilon, local, k)
    method = "clones of " + ("any randomiser" if k is None else f"{k}-ary response") + ", summed exactly"
    of = "the mean, as a share of the range" if k is None else "the share of a rare category"
    allowed = f"Local epsilon {local:.6g} keeps ({guarantee.epsilon:g}, {guarantee.delta:g}) in a mixed batch of {n:,} "
    assumes = [
        f"mixer and collector do not collude; if they do, only the report's own {local:.6g} is left",
        f"at least {n:,} people send a report of the same kind into one batch; a smaller one is not mixed",
        "nothing else about these reports is published, neither their order nor who sent which",
    ]
    told = {who: {"standard_error": e, "times_trusted": e / errors["trusted"]} for who, e in errors.items()}
    facts = predicted("noise", told, {"estimator": "shuffled"}, assumes=assumes, of=f"standard error of {of}",
                      named="everybody is", remarks=["The noise alone, without sampling."])  # fmt: skip
    more = {
        "n": n,
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "neighbours": guarantee.neighbours.value,
        "randomiser": "any" if k is None else f"k-rr:{k}",
        "local_epsilon": local,
        "cap": cap,
        "method": method,
        "standard_error_of": of,
        "standard_error": errors,
        "assumes": assumes,
    }
    notes = (f"{allowed}people ({method}).",)
    title = f"Standard error of {of}"
    return planned({"batch": {"noise": facts}}, n, 0.0, guarantee, shuffled=n, title=title, notes=notes, more=more)


def _errors(n: int, epsilon: float, local: float, k: int | None) -> dict[str, float]:
    """Standard errors by kind of trust. One trusted sum has Laplace noise of the person's reach over epsilon."""

    def of_reports(e: float) -> float:
        if k is None:
            return math.sqrt(best_randomiser(PureDP(e)).worst_variance / n) / 2  # the unit coordinate is two wide
        return math.sqrt(k_randomised_response(PureDP(e), k).variance(0.0) / n)

    trusted = math.sqrt(2) * (1 if k is None else 2) / (epsilon * n)
    return {"local": of_reports(epsilon), "shuffled": of_reports(local), "trusted": trusted}


@dataclass(frozen=True)
class ThreeGroups(Generic[N]):
    """Trusted, shuffled and local people in one estimate: its error, each group's weight, what a person is worth in it.

    With `by_people` each group counts by its number of people, else by its information, as if all were alike; either
    way `worth` is the information that one more person of a group brings, as so many local people; a move from one
    group to another is worth the difference. Of a mean each is one number, of shares an array with one entry an option.
    """

    people: dict[str, int]
    mixing: Mixing
    rmse: N
    weights: dict[str, N]
    worth: dict[str, N]

    @classmethod
    def of(
        cls, people: dict[str, int], mixing: Mixing, trusted: Callable[[int], N], each: dict[str, N], *,
        by_people: bool = False,
    ) -> Self:  # fmt: skip
        """From the information of so many trusted people together, and of one person in `each` of the other groups."""
        must(people["shuffled"] >= 1, "shuffled", "must leave at least one person who trusts the mixer",
             people["shuffled"])  # fmt: skip
        must(people["local"] >= 0, "shuffled", "must be at most those who do not trust", people["shuffled"])
        k = people["trusted"]
        whole: Any = {"trusted": trusted(k), **{name: people[name] * one for name, one in each.items()}}
        more: Any = {"trusted": trusted(k + 1) - whole["trusted"], **each}
        information, all_of = sum(whole.values()), sum(people.values())
        weights = {name: part / information for name, part in whole.items()}
        if by_people:
            weights = {name: people[name] / all_of + 0 * part for name, part in whole.items()}
        error = sum(weights[name] ** 2 / part for name, part in whole.items() if people[name])
        return cls(
            people,
            mixing,
            error**0.5,
            weights,
            {name: one / each["local"] for name, one in more.items()},
        )

    @property
    def moves(self) -> dict[str, N]:
        return {
            "local to shuffled": self.worth["shuffled"] - self.worth["local"],
            "shuffled to trusted": self.worth["trusted"] - self.worth["shuffled"],
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "people": self.people,
            # The mixer may send as few as the least: how many take part in all promises nobody more than that.
            "batch": self.mixing.to_dict(min(self.people["shuffled"], self.mixing.batch)),
            "rmse_population": _plain(self.rmse),
            "weights": _plain(self.weights),
            "worth_in_local_people": _plain(self.worth),
            "moves_in_local_people": _plain(self.moves),
        }


def _plain(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _plain(one) for name, one in found.items()}
    return found.tolist() if isinstance(found, np.ndarray) else found


def plan_groups(
    trusted: int, shuffled: int, local: int, mechanisms: Mechanisms, mixing: Mixing, *, sd: float,
    by_people: bool = False,
) -> ThreeGroups[float]:  # fmt: skip
    """Of a mean. A group's information is ``k/(sd^2 + noise/k)``, or ``n/(sd^2 + v)``, every v in the value's own unit.

    Those of a batch below its least size are counted alike: their reports say as much, only less is promised.
    """
    variance = sd * sd
    own = replace(mechanisms, randomiser=best_randomiser(PureDP(mixing.epsilon)))
    each = {"shuffled": 1 / (variance + float(own.report(variance))),
            "local": 1 / (variance + float(mechanisms.report(variance)))}  # fmt: skip

    def of_trusted(k: int) -> float:
        return k * k / (k * variance + mechanisms.per_sum)

    people = {"trusted": trusted, "shuffled": shuffled, "local": local}
    return ThreeGroups.of(people, mixing, of_trusted, each, by_people=by_people)


def plan_share_groups(
    trusted: int, shuffled: int, local: int, shares: Sequence[float], noise: CountNoise, oracle: Oracle,
    mixing: Mixing, *, by_people: bool = False,
) -> ThreeGroups[Floats]:  # fmt: skip
    """Of shares, option by option: a group's information is ``k^2/(k p(1-p) + noise)``, or ``n/v(p)`` with v of one
    report at that share.

    >>> from hybridp.public.shares import count_noise, share_mixing
    >>> from hybridp.public.oracles import share_oracle
    >>> mixing = share_mixing(ApproxDP(1.0, 1e-6), 2, 1000)
    >>> groups = 100, 1000, 9000, [0.3, 0.7], count_noise(PureDP(1.0), 2), share_oracle(PureDP(1.0), 2)
    >>> plan_share_groups(*groups, mixing).rmse.round(4).tolist()
    [0.009, 0.009]
    """
    p = np.asarray(shares, dtype=np.float64)
    each = {
        name: 1 / np.array([report.variance(x) for x in p.tolist()])
        for name, report in (("shuffled", mixed_oracle(mixing, len(p))), ("local", oracle))
    }

    def of_trusted(k: int) -> Floats:
        return np.asarray(k * k / (k * p * (1 - p) + noise.variance))

    people = {"trusted": trusted, "shuffled": shuffled, "local": local}
    return ThreeGroups.of(people, mixing, of_trusted, each, by_people=by_people)


def plan_vector_groups(
    trusted: int, shuffled: int, local: int, study: VectorStudy, sd: Sequence[float], *, by_people: bool = False
) -> ThreeGroups[Floats]:
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
        law = reports.randomiser if isinstance(reports, ScalarReports) else reports
        constant, quadratic = law.variance_terms
        return np.asarray(reports.share / (variance + reach**2 * (constant + quadratic * square)))

    def of_trusted(k: int) -> Floats:
        return np.asarray(k * k / (k * variance + study.sum_noise.variance * (half / HALF) ** 2))

    each = {"shuffled": one(mixed.reports), "local": one(study.invite.reports)}
    people = {"trusted": trusted, "shuffled": shuffled, "local": local}
    return ThreeGroups.of(people, mixing, of_trusted, each, by_people=by_people)


def plan_record_groups(
    trusted: int, shuffled: int, local: int, plan: Plan, mixing: Mixing
) -> ThreeGroups[Floats]:
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

    each = {"shuffled": one(mixing.epsilon), "local": one(study.guarantee.epsilon)}
    people = {"trusted": trusted, "shuffled": shuffled, "local": local}
    return ThreeGroups.of(people, mixing, of_trusted, each)


def parse_randomiser(text: str) -> int | None:
    """`any` or `k-rr:K`, as None or K.

    >>> parse_randomiser("k-rr:12")
    12
    """
    if text == "any":
        return None
    name, _, number = text.partition(":")
    if name != "k-rr" or not number.isascii() or not number.isdigit():
        raise InvalidInput(f"`randomiser` must be any, or k-rr:K with a number of categories. Got {text}.")
    k = int(number)
    must(k >= 2, "randomiser", "must have at least 2 categories", text)
    return k
