"""Reports made with everyone's own epsilon, added up as they come: one set of exact sums for each distinct epsilon.

>>> both = PersonalTally.empty(Bounds(0, 10)).add([7.5, 4.0, 5.0], epsilons=[1.0, 2.0, 0.0])
>>> both.people, both.silent, [epsilon for epsilon, _ in both.groups]
(3, 1, [1.0, 2.0])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tally_origin import Origin, bounds_in
from hybridp.blend.tally_sums import NOTHING, Sums, check_reach, exact_sums, numbers
from hybridp.errors import must
from hybridp.public.bounds import Bounds
from hybridp.public.heterogeneous import local_terms
from hybridp.public.messages import ReportsByEpsilon, own_epsilon_text

__all__ = ["PersonalTally"]

Numbers = Sequence[float] | NDArray[np.float64]
_SLACK = 1e-4  # the device's probabilities are whole cells, which moves a reach by a few millionths


@dataclass(frozen=True, slots=True)
class PersonalTally:
    """Reports on one number, each made with its person's own epsilon: sums for each distinct epsilon, ascending.

    The state grows with the number of distinct epsilons, so let people choose among a few. `silent` people asked for
    epsilon 0: they are counted, and whatever stands beside them is not looked at.
    """

    origin: Origin
    bounds: Bounds
    silent: int = 0
    groups: tuple[tuple[float, Sums], ...] = ()

    kind = "personal-mean"

    def __post_init__(self) -> None:
        epsilons = [e for e, _ in self.groups]
        ok = all(e > 0 for e in epsilons) and epsilons == sorted(set(epsilons))
        must(ok, "epsilons", "must be positive, each once and ascending", "others")
        must(self.silent >= 0 and all(s.people for _, s in self.groups), "people", "must not be negative", self.silent)
        reaches = local_terms(np.array(epsilons)).reach * self.bounds.half * (1 + _SLACK)
        for (_, sums), reach in zip(self.groups, reaches.tolist(), strict=True):
            check_reach(sums, self.bounds.centre, reach)

    @classmethod
    def empty(cls, bounds: Bounds, collection: str | None = None, *, question: tuple[str, ...] = ()) -> PersonalTally:
        return cls(Origin(own_epsilon_text(bounds, question), collection), bounds)

    @property
    def people(self) -> int:
        return self.silent + sum(s.people for _, s in self.groups)

    def add(
        self, reports: Numbers, epsilons: Numbers, *, batch: str | None = None, simulated: bool = False
    ) -> PersonalTally:
        """With these reports too, in the value's own unit, and the epsilons that they were made with."""
        x, asked = numbers("reports", reports), numbers("epsilons", epsilons)
        must(len(x) == len(asked), "epsilons", f"must be as many as the reports ({len(x)})", len(asked))
        must(bool((asked >= 0).all()), "epsilons", "must be 0 or more for everybody", "others")
        order = np.argsort(asked, kind="stable")
        quiet = int(np.count_nonzero(asked == 0))
        levels, starts = np.unique(asked[order][quiet:], return_index=True)
        found = exact_sums(x[order][quiet:], starts) if len(levels) else []
        return replace(
            self,
            origin=self.origin.adding(batch, simulated=simulated),
            silent=self.silent + quiet,
            groups=_joined(self.groups, tuple(zip(levels.tolist(), found, strict=True))),
        )

    def __add__(self, other: PersonalTally) -> PersonalTally:
        return replace(
            self,
            origin=self.origin + other.origin,
            silent=self.silent + other.silent,
            groups=_joined(self.groups, other.groups),
        )

    def summary(self) -> ReportsByEpsilon:
        """What the blend reads, in the unit coordinate: exact sums, rounded once."""
        rows = [(0.0, self.silent, 0.0, 0.0)] if self.silent else []
        rows += [(e, s.people, *s.moved(self.bounds.centre, self.bounds.half)) for e, s in self.groups]
        epsilons, people, totals, squares = (np.array([row[i] for row in rows], dtype=np.float64) for i in range(4))
        return ReportsByEpsilon(epsilons, people.astype(np.int64), totals, squares)

    def to_dict(self) -> dict[str, Any]:
        # JSON has no infinity: epsilons are texts, each the shortest that identifies its double.
        return self.origin.document(
            self.kind, self.people, silent=self.silent, groups={repr(e): s.to_dict() for e, s in self.groups}
        )

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> PersonalTally:
        groups = tuple((float(text), Sums.from_dict(part)) for text, part in stated["groups"].items())
        ok = [repr(e) for e, _ in groups] == list(stated["groups"]) and type(stated["silent"]) is int
        must(ok, "tally", "must state its epsilons and who is silent", "others")
        return cls(origin, bounds_in(origin.mechanism), stated["silent"], groups)


def _joined(a: tuple[tuple[float, Sums], ...], b: tuple[tuple[float, Sums], ...]) -> tuple[tuple[float, Sums], ...]:
    found = dict(a)
    for epsilon, sums in b:
        found[epsilon] = found.get(epsilon, NOTHING) + sums
    return tuple(sorted(found.items()))
