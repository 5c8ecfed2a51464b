"""The privacy receipt: what each group was promised, against whom, by which mechanism.

>>> promise = Promise("local", "the curator", PureDP(1.0), "dithered bit on the device")
>>> promise.to_dict()["epsilon"]
1.0
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict, TypeVar, Unpack

from hybridp.public.mechanisms import ApproxDP, Neighbours, PureDP, added, hides_little, promised
from hybridp.public.personal import PersonalDP
from hybridp.public.randomisers import missing_each

if TYPE_CHECKING:
    from hybridp.public.rounds import Chance

__all__ = ["ASKED_BEFORE", "COLLUDING", "CURATOR", "MIXED", "VIEWER", "Budget", "Promise", "Protection", "Receipt"]
__all__ += ["assumed_alike", "build_receipt", "choice_unprotected", "noted", "one_receipt", "plain"]
__all__ += ["public_choice", "values_rule"]

CURATOR = "the curator"
MIXED = "whoever sees the mixed batch, the curator too, unless the mixer colludes"
COLLUDING = "the curator and the mixer together"
VIEWER = "whoever sees the release"
Budget = PureDP | ApproxDP | PersonalDP
ASKED_BEFORE = (
    "the answer to an invitation reads, draws and charges nothing of trusted people again: they were asked before"
)


@dataclass(frozen=True, slots=True)
class Promise:
    """One group's guarantee against one kind of adversary; `budget` None means that there is none (trust instead)."""

    people: str
    against: str
    budget: Budget | None
    mechanism: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.people,
            "against": self.against,
            **_levels(self.budget),
            "neighbours": None if self.budget is None else self.budget.neighbours.value,
            "mechanism": self.mechanism,
            "note": self.note,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Promise:
        return cls(told["group"], told["against"], _budget(told), told["mechanism"], told["note"])

    @property
    def little(self) -> str:
        """What is said of a report that hides little."""
        stated = isinstance(self.budget, PureDP | ApproxDP) and self.people != "trusted"
        return hides_little(self.budget.epsilon, self.budget.delta) if stated else ""  # type: ignore[union-attr]

    def __str__(self) -> str:
        level = "no guarantee, by their own choice" if self.budget is None else str(self.budget)
        tail = "".join(f"; {said}" for said in (self.little, self.note) if said)
        return f"{self.people}, against {self.against}: {level}, by {self.mechanism}{tail}"


def _levels(budget: Budget | None) -> dict[str, Any]:
    if budget is None:
        return {"epsilon": None, "delta": None}
    if isinstance(budget, PersonalDP):
        public = sum(n for e, n in budget.levels if math.isinf(e))
        return {
            "epsilon": "personal",
            "delta": 0.0,
            "epsilons": {"least": budget.least, "most": budget.most, "people": budget.people, "public_people": public,
                         "levels": [[e if math.isfinite(e) else "inf", n] for e, n in budget.levels]},
        }  # fmt: skip
    return {"epsilon": budget.epsilon, "delta": budget.delta}


def _budget(told: Mapping[str, Any]) -> Budget | None:
    """The guarantee that `_levels` wrote down."""
    if told["epsilon"] is None:
        return None
    relation = Neighbours(told["neighbours"])
    if told["epsilon"] == "personal":
        return PersonalDP(tuple((float(e), n) for e, n in told["epsilons"]["levels"]), relation)
    return promised(told["epsilon"], told["delta"], relation)


def values_rule(missing: Any = None, middle: Any = None) -> str:
    """How the rows of a table became numbers: a public rule, which no field can break. Never how often it was needed.

    `missing` is what a missing value counts as, and `middle` the bounds' middle, or several columns' bounds.

    >>> values_rule("middle", 40)
    'a value outside the bounds counts as the nearest bound; one that is missing or no number counts as 40'
    """
    middles = [one.centre for one in getattr(middle, "bounds", ())] or [middle] * (middle is not None)
    stated = missing_each(missing, len(middles)) or ("middle",) * len(middles)
    each = (f"{one if isinstance(one, float | int) else middle:g}" for one, middle in zip(stated, middles, strict=True))
    said = "nothing: whoever has none is left out" if missing == "exclude" else ", ".join(each)
    outside = "a value outside the bounds counts as the nearest bound"
    return f"{outside}; one that is missing or no number counts as {said or 'the middle of the bounds'}"


def plain(value: Any) -> Any:
    """What JSON can hold: dataclasses as objects of what they show, an enumeration's value, null for NaN, infinity."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was asked and spent, and what the promises assume.

    `asked` is what a release answers, all of it public: when, by which version, its purpose, the study, the columns it
    read, and its number in the ledger. A trial has no time: its seed gives it again. `assumed_mechanism` is the text of
    the mechanism that local reports were taken to be made by, on the analyst's word.
    """

    promises: tuple[Promise, ...]
    randomness: str
    simulated: bool
    unit: str
    assumes: tuple[str, ...]
    ledger_entries: tuple[int, ...] = ()
    asked: Mapping[str, Any] | None = None
    assumed_mechanism: str | None = None

    @property
    def amplified(self) -> bool:
        """Whether local people are promised more against readers than their own reports keep."""
        own, read = ([p.budget for p in self.promises if (p.people, p.against) == ("local", who)]
                     for who in (CURATOR, VIEWER))  # fmt: skip
        return bool(own and read) and own != read

    def to_dict(self) -> dict[str, Any]:
        own: dict[str, Any] = plain(replace(self, promises=()))
        return {**own, "promises": [promise.to_dict() for promise in self.promises]}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Receipt:
        """A receipt from its document."""
        lists: dict[str, Any] = {name: tuple(told[name]) for name in ("assumes", "ledger_entries")}
        lists["promises"] = tuple(map(Promise.of, told["promises"]))
        return cls(**{**told, **lists})

    def brief(self, left: Mapping[str, Any] | None = None, rest: str = "") -> tuple[str, ...]:
        """Five lines: who was promised what, and how; what each group has `left`; what is assumed; where the `rest` is.

        >>> from types import SimpleNamespace
        >>> own = Protection(PureDP(1.0), "a report on their own device")
        >>> coin = SimpleNamespace(label="a coin", simulated=False)
        >>> found = build_receipt(None, own, assumes=["they are alike"], rng=coin)
        >>> print(*found.brief({"local": PureDP(0.5)}, "--full shows the rest"), sep="\\n")
        promised: local people 1-DP (replace-one) against the curator and whoever sees the release
        by: local, a report on their own device; a coin
        ledger entries: none, nothing was charged; left: local 0.5-DP (replace-one)
        assumes: they are alike
        --full shows the rest
        """
        who: dict[str, dict[str, list[str]]] = {}
        how: dict[str, dict[str, None]] = {}
        for one in self.promises:
            level = "nothing, by their own choice," if one.budget is None else str(one.budget)
            level += f" ({one.little})" if one.little else ""
            who.setdefault(one.people, {}).setdefault(level, []).append(one.against)
            if one.budget is not None:
                how.setdefault(one.people, {})[one.mechanism] = None
        promised = [
            f"{group} people " + ", ".join(f"{level} against {' and '.join(them)}" for level, them in levels.items())
            for group, levels in who.items()
        ]
        made = [f"{group}, {', '.join(each)}" for group, each in how.items()]
        paid = f"ledger entries: {', '.join(map(str, self.ledger_entries)) or 'none, nothing was charged'}"
        if left is not None:
            paid += "; left: " + "; ".join(f"{group} {budget}" for group, budget in left.items())
        said = [line for line in self.assumes if line.partition(":")[0].isupper()]  # WARNING, SIMULATION and the like
        said = [*said, *self._unchecked] or list(self.assumes[:1])
        more = sum(line not in said for line in self.assumes)
        assumed = "; ".join([*said, *([f"and {more} more"] if more else [])])
        return (f"promised: {'; '.join(promised)}", f"by: {'; '.join((*made, self.randomness))}", paid,
                f"assumes: {assumed or 'nothing'}", rest)  # fmt: skip

    @property
    def _unchecked(self) -> list[str]:
        taken = self.assumed_mechanism
        return [] if taken is None else [f"ASSUMED, NOT CHECKED: local reports were made by {taken}"]

    @property
    def conditions(self) -> list[str]:
        """What is to be said beside the promises, a line each."""
        lines = [f"unit of privacy: {self.unit}; randomness: {self.randomness}"]
        lines += [*(f"assumes: {a}" for a in self.assumes), *self._unchecked]
        if self.ledger_entries:
            lines.append(f"ledger entries: {', '.join(map(str, self.ledger_entries))}")
        if self.asked is not None and self.asked["release"] is not None:
            lines.append(f"kept in the ledger as release {self.asked['release']}")
        return lines

    def __str__(self) -> str:
        return "\n".join([*map(str, self.promises), *self.conditions])


# --- building one -----------------------------------------------------------------------------------------------------


class Protection(NamedTuple):
    """How a group is protected against whoever sees the release: the guarantee, the mechanism, and a remark on it.

    `on_device` is what a local person's report guarantees against the curator, where the release adds to it.
    """

    budget: Budget
    mechanism: str
    note: str = ""
    on_device: Budget | None = None


class Made(TypedDict, total=False):
    """How answers came about: where the noise came from, what was charged, and whether local reports are a trial's."""

    rng: Required[Chance]
    entries: tuple[int, ...]
    simulated_local: bool


def build_receipt(
    trusted: Protection | None,
    local: Protection | None,
    *,
    assumes: Iterable[str],
    mixed: Iterable[Promise] = (),
    reads: str = "values",
    unit: str = "one person, one record",
    **made: Unpack[Made],
) -> Receipt:
    """The receipt of a release in which these groups took part (None: nobody, or nothing of theirs was used).

    `mixed` are the promises to people whose reports went through a mixer. `reads` is what the curator sees of trusted
    people. A trial says so, and which of the promises nobody was given: noise from a seed, or simulated reports.

    >>> from hybridp.noise import seeded
    >>> own = Protection(PureDP(1.0), "a report on their own device")
    >>> found = build_receipt(None, own, assumes=[], rng=seeded(1))
    >>> [promise.against for promise in found.promises], found.simulated
    (['the curator', 'whoever sees the release'], True)
    """
    seeded, simulated_local = made["rng"].simulated, made.get("simulated_local", False)
    promises: list[Promise] = []
    if trusted is not None:
        promises.append(Promise("trusted", CURATOR, None, f"trust: the curator reads their {reads}"))
        promises.append(Promise("trusted", VIEWER, trusted.budget, trusted.mechanism, trusted.note))
    if local is not None:
        on_device = local.budget if local.on_device is None else local.on_device
        promises.append(Promise("local", CURATOR, on_device, local.mechanism))
        promises.append(Promise("local", VIEWER, local.budget, local.mechanism, local.note))
    promises.extend(mixed)
    said = [line for line in assumes if line]
    if seeded:
        said.append("SIMULATION: the noise came from a seeded generator; whoever knows the seed can take it off again")
    if simulated_local:
        said.append(
            "SIMULATION: local reports were drawn for a trial, from raw values or from a seed; nobody was protected"
        )
    return Receipt(
        promises=tuple(promises),
        randomness=made["rng"].label + ("; local reports simulated" if simulated_local else ""),
        simulated=seeded or simulated_local,
        unit=unit,
        assumes=tuple(said),
        ledger_entries=made.get("entries", ()),
    )


def public_choice(data: str = "data is", choice: str = "how many") -> str:
    plural = "choices" if choice != "how many" else "choice"
    return f"who is in which group, and {choice}, is public; a person's {data} replaced, not their {plural}"


_WEIGHED = {
    "fixed": "the trusted count by a stated weight, whatever their number",
    "pwh": "each group counts by its noise",
    "skew-aware": "the groups count by their errors, and by a difference between them that is stated or seen",
    "steered": "trusted people say where local people are asked, and what lies elsewhere",
    "tcm-only": "those who trust are heard alone",
    "lm-only": "local people are heard alone",
    "unified": "each person counts by their own epsilon",
    "adpm": "those who trust are heard alone, each by their own epsilon",
}


def assumed_alike(estimator: str) -> str:
    """What an estimator takes for granted of the two groups; nothing where each counts by its number of people.

    >>> assumed_alike("everyone"), assumed_alike("kvh")[:71]
    ('', 'assumes that people who trust and people who do not are alike: with kvh')
    """
    if estimator in ("everyone", "full-lm"):
        return ""
    how = _WEIGHED.get(estimator, "the groups count by their errors, whatever their numbers of people")
    return f"assumes that people who trust and people who do not are alike: with {estimator} {how}"


def choice_unprotected(data: str = "data") -> str:
    return f"the trust choice itself is not protected: where it goes with the {data}, it tells something by itself"


# --- of several answers -----------------------------------------------------------------------------------------------


def one_receipt(receipts: Mapping[str, Receipt], split: str = "", *, once: tuple[str, ...] = ()) -> Receipt:
    """The receipt of all questions: each group's promises added up, and every assumption once.

    `split` says how the promise was divided; the sums are by basic composition, as the same people answer everything.
    People of the groups in `once` sent one report each, whichever of the receipts it is told in: theirs are not added.
    """
    if len(receipts) == 1:
        return next(iter(receipts.values()))
    promises: dict[tuple[str, str], list[tuple[str, Promise]]] = {}
    for name, receipt in receipts.items():
        for promise in receipt.promises:
            promises.setdefault((promise.people, promise.against), []).append((name, promise))
    every = list(receipts.values())
    assumes = [*([split] if split else []), *(line for receipt in every for line in receipt.assumes)]
    made = [receipt.assumed_mechanism for receipt in every if receipt.assumed_mechanism is not None]
    return replace(
        every[0],
        promises=tuple(_added(who, against, said, who in once) for (who, against), said in promises.items()),
        randomness=max((receipt.randomness for receipt in every), key=len),
        simulated=any(receipt.simulated for receipt in every),
        unit=" / ".join(dict.fromkeys(receipt.unit for receipt in every)),
        assumes=tuple(dict.fromkeys(assumes)),
        ledger_entries=tuple(dict.fromkeys(entry for receipt in every for entry in receipt.ledger_entries)),
        assumed_mechanism="; ".join(dict.fromkeys(made)) or None,
    )


def _added(people: str, against: str, said: Sequence[tuple[str, Promise]], once: bool) -> Promise:
    known = [one.budget for _, one in said if isinstance(one.budget, (PureDP, ApproxDP))]
    notes = "; ".join(dict.fromkeys(one.note for _, one in said if one.note))
    trust = len(known) < len(said)  # in place of a guarantee
    if trust or once:
        most = None if trust else max(known, key=lambda budget: (budget.epsilon, budget.delta))
        return Promise(people, against, most, "; ".join(dict.fromkeys(one.mechanism for _, one in said)), notes)
    mechanism = "; ".join(f"{name}: {one.mechanism}{_level(one)}" for name, one in said)
    return Promise(people, against, added(known), mechanism, notes)


def _level(promise: Promise) -> str:
    budget = promise.budget
    if not isinstance(budget, (PureDP, ApproxDP)):
        return ""
    delta = f", delta {budget.delta:g}" if budget.delta else ""
    level = f"epsilon {budget.epsilon:.12g}{delta}"
    if promise.mechanism.endswith(f"({level})"):
        return ""
    return f", in all {level}" if "(epsilon " in promise.mechanism else f" ({level})"


# --- a release with it ------------------------------------------------------------------------------------------------

R = TypeVar("R", bound=Any)


def noted(release: R, notes: tuple[str, ...], *mechanisms: str | None) -> R:
    """The release with what it assumes on its receipt: of its rows (a query that made them, words of trust), and that
    local and mixed reports were made by these mechanisms."""
    own, taken = release.receipt, "; ".join(text for text in mechanisms if text is not None)
    said = tuple(dict.fromkeys(own.assumes + notes))  # two phases say the same of their rows
    stated: R = replace(release, receipt=replace(own, assumes=said, assumed_mechanism=taken or own.assumed_mechanism))
    return stated
