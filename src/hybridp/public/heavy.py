"""Heavy hitters: what everyone may know. The head list and the discovery threshold.

A record is a tuple of one or two texts (a value; or a query and a url). A head list holds records and, for each query
and for everything else, a wildcard slot written with None; its order is alphabetical, so that it tells nothing. Both
groups map a record to its slot the same way: the record itself, else its query's wildcard, else that of everything.

>>> head = HeadList.of([("news", "a.org"), ("news", "b.org"), ("maps", "m.org")])
>>> head.slots
(('maps', 'm.org'), ('maps', None), ('news', 'a.org'), ('news', 'b.org'), ('news', None), (None, None))
>>> head.slot_of(("news", "c.org")), head.slot_of(("weather", "w.org"))
(4, 5)
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.mechanisms import ApproxDP, DiscreteLaplace, PureDP, discrete_laplace
from hybridp.public.randomisers import Ints, Oracle, k_randomised_response

__all__ = ["TEXT_RULE", "Discovery", "HeadList", "OneSlot", "Record", "counting_noise", "discovery", "normalised"]
__all__ += ["slot_response"]

Record = tuple[str | None, ...]


TEXT_RULE = (
    "Unicode NFKC; lower case, upper case and lower case again, which makes spellings equal that differ in case only; "
    "NFKC; every run of spaces and control characters becomes one space, and none is left at either end"
)
"""The public rule by which two texts count as the same."""

_SPACES = re.compile("[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def normalised(text: str) -> str:
    """A text by `TEXT_RULE`. A browser has the same functions (it has no case folding) and gets the same result.

    >>> normalised("  Straße\\t 7 "), normalised("STRASSE 7"), normalised("Ｗeather")
    ('strasse 7', 'strasse 7', 'weather')
    """
    folded = unicodedata.normalize("NFKC", text).lower().upper().lower()
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", folded)).strip(" ")


@dataclass(frozen=True)
class HeadList:
    """The slots that everybody counts in; the slots of a query lie together, its wildcard last."""

    way: ClassVar[str] = "slot"
    depth: int
    slots: tuple[Record, ...]

    def __post_init__(self) -> None:
        must(self.depth in (1, 2), "record", "must have one or two columns", self.depth)
        records = [slot for slot in self.slots if None not in slot]
        ok = all(len(r) == self.depth and all(isinstance(field, str) for field in r) for r in records)
        ok = ok and self.slots == _arranged(cast("list[tuple[str, ...]]", records), self.depth)
        must(ok, "slots", "must be records in alphabetical order with their wildcards", "others")

    @classmethod
    def of(cls, records: list[tuple[str, ...]], depth: int | None = None) -> HeadList:
        """From the records found; an empty list leaves the wildcard alone."""
        depth = depth or (len(records[0]) if records else 2)
        return cls(depth, _arranged(records, depth))

    def made(self, invite: Any) -> str:
        g, mark = invite.promise, "mixed," if invite.mixed else ""
        return f"k-rr(slots={len(self)},epsilon={g.epsilon!r},delta={g.delta!r},{mark}invite={invite.answers})"

    @property
    def categories(self) -> int:
        return len(self)

    def __len__(self) -> int:
        return len(self.slots)

    @cached_property
    def _index(self) -> dict[Record, int]:
        return {slot: i for i, slot in enumerate(self.slots)}

    def slot_of(self, record: tuple[str, ...]) -> int:
        wildcard = self._index.get((record[0], *(None,) * (self.depth - 1)), len(self) - 1)
        return self._index.get(record, wildcard)

    @cached_property
    def queries(self) -> tuple[str | None, ...]:
        """Distinct queries in the order of their slots; None, for everything else, is the last."""
        return tuple(dict.fromkeys(slot[0] for slot in self.slots))

    @cached_property
    def query_of(self) -> Ints:
        number = {q: i for i, q in enumerate(self.queries)}
        return np.array([number[slot[0]] for slot in self.slots], dtype=np.int64)

    @cached_property
    def is_record(self) -> NDArray[np.bool_]:
        """Slots that stand for one record, not for a wildcard."""
        return np.array([None not in slot for slot in self.slots])

    def trimmed(self, keep: set[str]) -> HeadList:
        return HeadList.of([tuple(map(str, s)) for s in self.slots if None not in s and s[0] in keep], self.depth)

    def fold(self, into: HeadList) -> Ints:
        """For each slot here, its slot in a trimmed list."""
        return np.array([into._index.get(slot, len(into) - 1) for slot in self.slots], dtype=np.int64)


def _arranged(records: list[tuple[str, ...]], depth: int) -> tuple[Record, ...]:
    """Alphabetically, each query's wildcard behind its records, and that of everything last."""
    wildcards = {(record[0], *(None,) * (depth - 1)) for record in records}  # of one column the records themselves
    slots: set[Record] = {*records, *wildcards}
    return (*sorted(slots, key=lambda slot: (slot[0], None in slot, slot)), (None,) * depth)


# --- the trusted group ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Discovery:
    """The stability-thresholded histogram (Korolova et al. 2009; dissertation, Alg. 2.2), one record a person.

    Each record that somebody has gets discrete Laplace noise of scale 2/epsilon on its count and is shown, with its
    noisy count, when that reaches `threshold`. Replacing one person's record lowers one count by 1 and raises another:
    where both data sets have the record the noise pays epsilon/2 for each; a record that only one of them has is shown
    with probability ``P(1 + Y >= threshold) <= delta``. The noisy counts of the shown records are part of the guarantee
    (`docs/heavy-hitters.md` has the proof), so that using them again costs nothing.
    """

    guarantee: ApproxDP
    scale: float
    threshold: int

    def __post_init__(self) -> None:
        ok = self.threshold >= 2 and self.leak <= self.guarantee.delta
        must(ok, "threshold", f"must be large enough for {self.guarantee}", self.threshold)

    @cached_property
    def noise(self) -> DiscreteLaplace:
        """On the counts, of which two move by one; its scale is refused where it is too small."""
        return DiscreteLaplace(PureDP(self.guarantee.epsilon), 2, self.scale)

    @property
    def leak(self) -> float:
        """The probability that a record held by one person is shown: the exact delta."""
        return self.shown(1)

    def shown(self, count: float) -> float:
        """The probability that a record with this count is shown: noise is as likely above 0 as below."""
        return self.noise.cdf(count - self.threshold)


def discovery(guarantee: ApproxDP | PureDP) -> Discovery:
    """The lowest threshold for the guarantee, at or below ``1 + (2/epsilon) ln(1/(2 delta))`` rounded up.

    >>> found = discovery(ApproxDP(4.0, 1e-5))
    >>> found.threshold, found.leak <= 1e-5
    (7, True)
    """
    must(isinstance(guarantee, ApproxDP) and guarantee.delta > 0, "delta", "must be positive to discover records", 0)
    assert isinstance(guarantee, ApproxDP)
    must(guarantee.epsilon > 0, "epsilon", "must be positive", guarantee.epsilon)
    scale = math.nextafter(2 / guarantee.epsilon, math.inf)
    threshold = max(2, math.floor(scale * math.log(1 / (guarantee.delta * (1 + math.exp(-1 / scale))))))
    noise = DiscreteLaplace(PureDP(guarantee.epsilon), 2, scale)
    while noise.cdf(1 - threshold) > guarantee.delta:
        threshold += 1
    return Discovery(guarantee, scale, threshold)


def counting_noise(guarantee: ApproxDP | PureDP) -> DiscreteLaplace:
    """Noise for the counts of known slots: replacing a record moves two of them by one (Alg. 2.3 with b_T).

    The (epsilon, delta)-Laplace of Thm 1.1.5 at an l1 sensitivity of 2.
    """
    return discrete_laplace(guarantee, 2)


# --- the local group --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneSlot:
    """The report on a list without records: the same whatever one holds, so that it tells nothing."""

    guarantee: PureDP | None = None

    name = "one-slot"


def slot_response(guarantee: PureDP, slots: int) -> OneSlot | Oracle:
    """The report on a list; on one without records it is the same whatever one holds."""
    return OneSlot(guarantee) if slots < 2 else k_randomised_response(guarantee, slots)
