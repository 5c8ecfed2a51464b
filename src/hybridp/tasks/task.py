"""What a driver must know of a question, whatever it is: what is decided, and public, before anybody sends anything;
what is charged for it, and how its receipt says that trusted, local and shuffled people are protected."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import chain
from operator import add
from typing import Any, NamedTuple, Self, TypeVar, Unpack, cast

from hybridp.errors import must
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import AddedNoise, ApproxDP, Charge, DiscreteLaplace, Guarantee, PureDP, promised
from hybridp.public.messages import Conversation, ReportsByEpsilon
from hybridp.public.personal import PersonalDP
from hybridp.public.questions import KINDS
from hybridp.public.rounds import Crowd, Later
from hybridp.public.shuffling import LevelMixing, Mixing
from hybridp.public.study import Declaration, Number, Question
from hybridp.release import release as releasing
from hybridp.release.facts import Facts
from hybridp.release.release import COLLUDING, MIXED, GroupEstimate, Made, Promise, Protection, Receipt, Release

__all__ = ["Batches", "Draw", "Task", "charge_all", "declared", "mixed_assumptions"]
__all__ += ["mixed_batches", "mixed_facts", "mixed_levels", "mixed_promises", "noise_level", "on_device"]
__all__ += ["protected", "task_receipt", "told_shuffled", "undecided"]

T = TypeVar("T", bound="Task")


class Task(ABC):
    """A question at its part of the promise. Its conversation (`ask`) sees public facts and released numbers only."""

    called = "mean"
    """What is asked for, in a word."""
    options: tuple[str, ...] = ()
    undecided = False
    """Whether the groups' sizes, which are public, decide what is spent (`decided`)."""
    at: tuple[float, ...] = ()
    """The quantiles around which people may be asked in phases."""
    counted = False
    """Whether the answer is told as a number of people."""
    personal = False
    """Whether everybody brings their own epsilon, which a column holds."""
    by_column = False
    """Whether an invitation names the columns that it is about."""
    of_everybody = ""
    """What it is called, where nobody who has no value can be left out of it."""
    by_group = False
    """Whether it can be answered for each public group."""
    reads_again = False
    """Whether a trial reads raw rows twice."""
    by_invitation = False
    """Whether local people can only answer an invitation: it follows from others' answers, or from public numbers."""
    by_turns = False
    """Whether local people can be asked in any number of phases, each about what those before them said."""
    planned = False
    """Whether that invitation is planned from public numbers, so that rows and reports are released together."""
    people: tuple[int, int] | None = None
    """The groups' sizes, where they were decided by."""
    guarantee: Any = None
    trusted_guarantee: Any = None
    mixing: Any = None
    mixed_invite: Any = None
    invite: Any = None
    level = 0.95

    def __post_init__(self) -> None:
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        self.charges("", None)  # a promise that no mechanism can keep is refused here, before a ledger is made for it

    @property
    def trusted_whole(self) -> Any:
        """What trusted people are promised at most."""
        return self.trusted_guarantee or self.guarantee

    @property
    def report(self) -> str:
        """What the ledger calls a local person's report."""
        return f"{self.invite.name} report"

    @property
    def draws(self) -> Sequence[Draw]:
        """The noise on what trusted people's values add up to, in all rounds."""
        return ()

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for."""
        return charge_all(self, self.draws, purpose, collection)

    @abstractmethod
    def ask(self, crowd: Crowd) -> Conversation:
        """The rounds, and the release that follows from their answers. Post-processing: no rows, no noise."""

    def prepared(self, columns: Any) -> Self:
        """The same for a table's columns; refuses what they cannot answer, before anything is opened."""
        if self.of_everybody:
            columns.must_count(self.of_everybody)
        return self

    def prepared_for(self, by: Grouping, columns: Any) -> Self:
        """The same by group, where it can be told so."""
        must(self.by_group, "by", f"must be left out: {self.called} is not told by a public group", by.column)
        columns.must_count("an answer by group")
        must(by.column not in columns.names, "by", "must be another column than the value's", by.column)
        return self.decided(0, 0)  # no one size speaks for all groups

    def of_group(self, level: float) -> Self:
        """The same of one of several groups, whose intervals hold together at a lower level."""
        return replace(self, level=level)  # type: ignore[type-var]

    def blended(self, answer: Any) -> Any:
        """What a group's answer tells of its error beyond what is published, where groups are compared by that."""
        return None

    def differ(self, key: str, blends: Sequence[Any], pairs: Sequence[tuple[int, int]], joint: bool) -> Any:
        """How far groups are apart in a statistic, pair by pair; None where published numbers say all that there is."""
        return None

    def weighted(self, key: str, blends: Sequence[Any], facts: Sequence[Facts], shares: Sequence[float]) -> Any:
        """The facts of a statistic of a population of whom such a share is in each group; None where the groups' do not
        add up to it."""
        return None

    def doubts(self, blend: Any, facts: Facts) -> list[float] | None:
        """The p-values of trusted and local people of one group being alike, one by one."""
        p = (facts.get("disagreement") or {}).get("p_value")
        every: list[Any] = p if isinstance(p, list) else [p]
        return None if None in every else every

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> Self:
        """The same for groups of so many people, before anything is charged or drawn."""
        return self

    def named(self, names: tuple[str, ...]) -> Any:
        """What goes to every device, about the columns of these names."""
        return self.invite.of(names) if self.by_column else self.invite

    def purpose(self, names: tuple[str, ...], by: Grouping | None) -> str:
        """What the ledger calls it."""
        return self.called if by is None else f"{self.called} of {names[0]} by {by.column}"

    def check_tally(self, tally: Any) -> None:  # noqa: B027
        """Refuse a tally of reports on this question that still cannot stand in for local people's rows; most can."""

    def check_phases(self, phases: Sequence[float], *, trial: bool) -> None:
        """Refuse phases that a trial cannot have."""
        must(not phases, "phases", "must go with quantiles of a study's only question", tuple(phases))

    def check_inviting(self, *, trial: bool) -> None:
        """Refuse an invitation to people who are asked later, in a trial of all phases at once or where none are."""
        rule = "must be for a release in one go: devices do not draw who trusts"
        must(not trial or not self.by_invitation, "simulate-local", rule, "two phases")

    def check_alone(self) -> None:  # noqa: B027
        """Refuse a release of trusted people alone, before local people were invited; most can be made."""

    def check_mixed(self) -> None:  # noqa: B027
        """Refuse a mixer's batches where they cannot be heard; most can be."""

    def stated(self, by: Grouping | None) -> Any:
        """What a receipt says was asked."""
        own = self if self.people is None else replace(self, people=None)  # type: ignore[type-var]
        return own if by is None else {"question": own, "by": by}

    def invited(self) -> Self:
        """The same as an invitation states it: all that decides what people are asked, and how they are protected."""
        return self

    def at_once(self, names: tuple[str, ...]) -> Later | None:
        """What local people are asked before anybody has answered, where it still needs an invitation."""
        return None

    def with_level(self, level: float | None, joint: bool | None = None) -> Self:
        """The same with intervals of another level, or that cover together."""
        given = {name: one for name, one in (("level", level), ("joint", joint)) if one is not None}
        return replace(self, **given)  # type: ignore[type-var]


def declared(kind: type[T], study: Declaration, place: int, /, **own: Any) -> T:
    """A task of this kind for the question at this place, at its part of the promise: what they state under the names
    of its fields, beside its `own`."""
    question, part = study.questions[place], study.parts[place]
    known = {one.name: getattr(question, one.name) for one in fields(question)}
    known |= {"guarantee": part.everybody, "trusted_guarantee": part.trusted, "level": study.level}
    known |= {"mixing": study.mixing_of(place), "answering": study.chances[question.name], **own}
    return kind(**{one.name: known[one.name] for one in fields(kind) if one.name in known})  # type: ignore[arg-type]


# --- what is charged, and what a receipt says -------------------------------------------------------------------------


def noise_level(noise: AddedNoise) -> tuple[str, float]:
    """The kind of noise, and its size over the sensitivity."""
    if isinstance(noise, DiscreteLaplace):
        return "laplace", noise.scale / noise.sensitivity
    return "gaussian", noise.sigma / noise.sensitivity


class Draw(NamedTuple):
    """Noise on something that trusted people's values add up to: on one number, or on several at once."""

    what: str
    noise: AddedNoise
    several: bool = False

    def charge(self, purpose: str) -> Charge:
        """What it costs trusted people. A ledger accounts for one draw of each kind tightly: Gaussian noise on several
        numbers is one of its multiplier, Laplace noise on several is charged by its guarantee alone."""
        kind, size = noise_level(self.noise)
        tight = None if self.several and kind == "laplace" else (kind, size, self.noise.sensitivity)
        return Charge("trusted", self.noise.guarantee, f"{kind} noise on {self.what}", purpose, noise=tight)

    @property
    def words(self) -> str:
        kind, size = noise_level(self.noise)
        ball = f"their {'L2' if kind == 'gaussian' else 'L1'}" if self.several else "its"
        return f"{self.what}, {size:.6g} times {ball} sensitivity"


def protected(whole: Guarantee, first: Draw, *more: Draw, beside: str = "") -> Protection:
    """How these draws protect trusted people: by the noise of the only one, or by a promise that they share.

    `beside` is another use of their values, in words."""
    text, own = f"discrete {first.noise.name} noise on {first.words}", first.noise.guarantee
    if not more and not beside:
        return Protection(own, text)
    for part in (f"on {one.words} (epsilon {one.noise.guarantee.epsilon:g})" for one in more):
        beside += f", and {part}"
    return Protection(_spending(whole, own.delta), f"{text} (epsilon {own.epsilon:g}){beside}")


def _spending(whole: Guarantee, delta: float) -> Guarantee:
    """A promise with no more delta than is spent."""
    return replace(whole, delta=delta) if isinstance(whole, ApproxDP) and delta else PureDP(whole.epsilon)


def on_device(invite: Any, more: str = "") -> Protection:
    return Protection(invite.promise, f"{invite.name} report on their own device{more}", "no amplification is claimed")


def charge_all(task: Any, draws: Iterable[Draw | Charge], purpose: str, collection: str | None) -> list[Charge]:
    """What a task charges: trusted people's part, and every report once, as far as its estimator hears them."""
    trusted = [one.charge(purpose) if isinstance(one, Draw) else one for one in draws]
    reports = [Charge("local", task.invite.promise, task.report, purpose, collection=collection)]
    if (mixed := task.mixed_invite) is not None:  # whatever mixer and curator do, no more than this
        text = f"{mixed.name} report, mixed"
        reports.append(Charge("shuffled", mixed.promise, text, purpose, collection=collection))
    return reports if task.estimator == "lm-only" else [*trusted, *reports] if task.estimator != "tcm-only" else trusted


def undecided(promise: Guarantee, ways: Sequence[list[Charge]], purpose: str, text: str | None = None) -> list[Charge]:
    """The charges before it is known which of these ways is taken: for trusted people, the promise that covers each."""
    sums = [[charge for charge in way if charge.people == "trusted"] for way in ways]
    delta = max(charge.budget.delta for charge in chain(*sums))
    text = text or f"{sums[0][0].mechanism}, and on its spread where the estimator is anchored"
    own = Charge("trusted", _spending(promise, delta), text, purpose)
    return [own, *(one for one in ways[0] if one.people != "trusted")]


def task_receipt(
    trusted: Protection | None,
    local: Protection | None,
    estimator: str,
    *assumes: str,
    blindly: str = "the bounds",
    moves: str = "the local mean",
    choice: tuple[str, ...] = (releasing.public_choice(), releasing.choice_unprotected()),
    rows: Iterable[str] = (),
    shuffled: GroupEstimate | None = None,
    unit: str = "one person, one record",
    **made: Unpack[Made],
) -> Receipt:
    """The receipt of a task: what every one of them assumes, its public rules on `rows`, and what it adds."""
    return releasing.build_receipt(
        trusted,
        local,
        mixed=mixed_promises(shuffled),
        assumes=(
            *choice,
            f"{blindly} were chosen without looking at the data",
            f"devices randomise as stated; a dishonest one shifts {moves} by one report's reach over their number",
            *mixed_assumptions(shuffled),
            *rows,
            releasing.assumed_alike(estimator),
            *assumes,
        ),
        unit=unit,
        **made,
    )


# --- people whose reports were mixed ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Batches:
    """The sums of all reports that came through a mixer, and how many of them each of its batches held: where everyone
    has their own epsilon, of each epsilon, among which alone they hide.

    `digest` is a name for the set of them, `simulated` whether some say that they protect nobody, and `assumed` the
    mechanism that some do not name, and that they are taken to be made by.
    """

    summary: Any = None
    sizes: Any = ()
    digest: str | None = None
    simulated: bool = False
    assumed: str | None = None

    def __post_init__(self) -> None:
        held = getattr(self.summary, "count", getattr(self.summary, "people", 0))
        must(self.people == held, "batches", f"must hold the {held} reports", self.people)

    @classmethod
    def of(cls, parts: Sequence[Any], **marks: Any) -> Batches:
        """The reports of each batch."""
        if not isinstance(parts[0], ReportsByEpsilon):
            return cls(reduce(add, parts), tuple(part.people for part in parts), **marks)
        sizes: dict[float, tuple[int, ...]] = {}
        for part in parts:
            for epsilon, people in zip(part.epsilons.tolist(), part.people.tolist(), strict=True):
                sizes[epsilon] = (*sizes.get(epsilon, ()), people)
        return cls(ReportsByEpsilon.pooled(parts), dict(sorted(sizes.items())), **marks)

    @property
    def people(self) -> int:
        return sum(map(sum, self.sizes.values())) if isinstance(self.sizes, dict) else sum(self.sizes)


def mixed_batches(mixing: Mixing, batches: tuple[int, ...]) -> list[dict[str, Any]]:
    """The batches by their size, the smallest first, each with what it keeps; of many sizes the smallest stand for all.

    A larger batch keeps at least what a smaller one does, unless that is too small to count as mixed. With the smallest
    that hides its people stands the epsilon that is left if so many of them are fakes.
    """
    sizes = sorted(Counter(batches).items())
    few = [one for one in sizes if one[0] < mixing.batch]
    whole = [one for one in sizes if one[0] >= mixing.batch]
    if len(whole) > _SIZES:
        whole = [(whole[0][0], sum(many for _, many in whole))]
    result: list[dict[str, Any]] = []
    for size, many in few + whole:
        promise = mixing.promise(size)
        result.append({"people": size, "batches": many, "epsilon": promise.epsilon, "delta": promise.delta})
    if whole and result[len(few)]["delta"]:
        left = mixing.with_fakes(whole[0][0]).items()
        result[len(few)]["with_fakes"] = [{"fakes": fakes, "epsilon": epsilon} for fakes, epsilon in left]
    return result


_SIZES = 8


def mixed_facts(mixing: Mixing, batches: tuple[int, ...], randomiser: str, **weight: Any) -> dict[str, Any]:
    """What is published of people who all have one epsilon and whose reports came through a mixer."""
    facts = {"local_epsilon": mixing.epsilon, "least": mixing.batch, "batches": mixed_batches(mixing, batches)}
    return {"randomiser": randomiser, **weight, **facts, **({"together": mixing.whole} if mixing.whole else {})}


def told_shuffled(study: Any, mixed: Batches, group: GroupEstimate, weight: Any) -> GroupEstimate:
    return replace(group, mixing=mixed_facts(study.mixing, mixed.sizes, study.mixed_invite.name, weight=weight))


_ALONE = "as long as nothing else about these reports is published"


def mixed_promises(shuffled: GroupEstimate | None) -> list[Promise]:
    """A line for every size of a batch, if mixer and curator keep apart; and one for all of them, if they do not.

    Where everyone has an epsilon of their own: for every epsilon and size of its crowd, and for those who have none.
    """
    if shuffled is None:
        return []
    result, facts, least = [], shuffled.mixing, shuffled.mixing["least"]
    if "levels" not in facts:
        device = f"{facts['randomiser']} report on their own device"
        for batch in facts["batches"]:
            few = f"fewer than the {least:,} that were promised: only the report's own epsilon holds"
            note = few if batch["people"] < least else _ALONE
            crowd = "a batch" if batch["batches"] == 1 else f"{batch['batches']:,} batches"
            text = f"{device}, in {crowd} of {batch['people']:,}"
            result.append(Promise("shuffled", MIXED, promised(batch["epsilon"], batch["delta"]), text, note))
        return [*result, Promise("shuffled", COLLUDING, PureDP(facts["local_epsilon"]), device)]
    device = "the best report for their own epsilon, on their own device"
    people: dict[float, int] = {}
    alone: dict[float, int] = {}
    for level in facts["levels"]:
        epsilon = float(level["local_epsilon"])
        people[epsilon] = level["people"]
        alone |= {epsilon: level["unhidden"]} if level["unhidden"] else {}
        for batch in level["batches"]:
            crowd = "in a batch" if batch["batches"] == 1 else f"in each of {batch['batches']:,} batches"
            text = f"{device} (epsilon {epsilon:g}), among {batch['people']:,} of the same epsilon {crowd}"
            result.append(Promise("shuffled", MIXED, promised(batch["epsilon"], batch["delta"]), text, _ALONE))
    if alone:
        few = f"fewer of the same epsilon in their batch than the {least:,} that were promised"
        note = f"{few}, or too few to hide among: only a report's own epsilon holds"
        result.append(Promise("shuffled", MIXED, PersonalDP.of([*alone], [*alone.values()]), device, note))
    return [*result, Promise("shuffled", COLLUDING, PersonalDP.of([*people], [*people.values()]), device)]


def mixed_levels(mixing: LevelMixing, sizes: Mapping[float, tuple[int, ...]]) -> list[dict[str, Any]]:
    """What people of each epsilon keep, where every batch holds so many of them (`sizes`): they alone hide one another.

    A larger crowd keeps at least what a smaller one does. Those are `unhidden` of whom there are too few in a batch to
    keep more than their report does by itself.
    """
    result = []
    for epsilon, many in sizes.items():
        level = mixing.level(epsilon)
        hidden = [] if level is None else [batch for batch in mixed_batches(level, many) if batch["delta"]]
        least = min((batch["people"] for batch in hidden), default=None)
        unhidden = sum(n for n in many if least is None or n < least)
        own = epsilon if math.isfinite(epsilon) else "inf"
        result.append({"local_epsilon": own, "people": sum(many), "unhidden": unhidden, "batches": hidden})
    return result


def mixed_assumptions(shuffled: GroupEstimate | None) -> tuple[str, ...]:
    if shuffled is None:
        return ()
    facts, left, given = shuffled.mixing, "a report's own epsilon", ""
    if "levels" not in facts:
        left += f" {facts.get('together', facts['local_epsilon']):.6g}"
    else:
        given = (
            "everybody's choice of an epsilon stands beside their report and tells nothing of their data: given the "
            "choices, shuffled people hide among those of the same epsilon in the same batch, and nobody else"
        )
    return (
        "shuffled people's reports reached the curator in random order, with nothing beside them that tells who sent "
        f"which, from a mixer that does not collude; if it does, {left} is left",
        given,
        "everybody shuffled sent one report, in one batch: who sent several keeps less, and was charged for one",
        "a batch hides a person among honest others: those in it who lie, or tell what they sent, do not count",
        _fakes(chain.from_iterable(one["batches"] for one in facts.get("levels", [facts]))),
    )


def _fakes(batches: Iterable[Facts]) -> str:
    """What a batch keeps that is partly made up, and who could make it up."""
    who = "whoever signs the tickets, or hands reports to the mixer, can fill a batch with fakes alone"
    batch = next((batch for batch in batches if "with_fakes" in batch), None)
    if batch is None:
        return who
    costs = ", ".join(f"{one['fakes']:,} fakes leave epsilon {one['epsilon']:.3g}" for one in batch["with_fakes"])
    return f"{who}: in a batch of {batch['people']:,} {costs}, at the same delta"


# --- from a declared question to its task -----------------------------------------------------------------------------

Builder = Callable[[Declaration, int], Task]
BUILDERS: dict[str, Builder] = {}

"""What makes the task of a declared question, by its kind; each file of `hybridp.tasks` adds its own."""


def task_of(study: Declaration, place: int) -> Task:
    """The question at this place, at its part of the promise.

    >>> pay = {"name": "pay", "kind": "number", "lower": 0, "upper": 10}
    >>> task_of(Declaration(promise=1.0, trust="trust", questions=[pay]), 0).guarantee.epsilon
    1.0
    """
    question = study.questions[place]
    if question.groups is not None and question.groups.private:
        return BUILDERS["private groups"](study, place)
    if study.promise.personal and question.by_levels:
        return BUILDERS["levels of epsilon"](study, place)
    return question.entry(BUILDERS)(study, place)


def register(kind: type[Question], builder: Builder) -> None:
    """Let studies ask a kind of question: how it is declared, and the task that a declared one becomes."""
    KINDS[kind.kind], BUILDERS[kind.kind] = kind, builder


def _number(study: Declaration, place: int) -> Task:
    return BUILDERS[cast(Number, study.questions[place]).wanted(study)](study, place)


BUILDERS["number"] = _number


# --- all questions together ------------------------------------------------------------------------------------------


def ledger_totals(study: Declaration) -> dict[str, PureDP | ApproxDP]:
    """The totals of a ledger that pays for the study once."""
    if study.promise.personal:
        return {**task_of(study, 0).accounts}  # type: ignore[attr-defined]
    mixed: dict[str, PureDP | ApproxDP] = {}
    if study.mixing is not None:  # whatever mixer and curator do, no more than a report's own epsilon
        mixed["shuffled"] = PureDP(study.mixing.epsilon)
    return {"trusted": study.trusted_guarantee, "local": study.guarantee, **mixed}


def published(study: Declaration, answers: Mapping[str, Any], entries: tuple[int, ...]) -> Release:
    """The answers under one receipt. Post-processing: no rows, no noise."""
    if study.drawn:  # a sum or a count is about everybody, whichever question they answered
        people = [people_in(answer) for answer in answers.values()]
        everyone = max(trusted for trusted, _ in people) + sum(local for _, local in people)
        answers = {n: releasing.about(a, everyone) if isinstance(a, Release) else a for n, a in answers.items()}
    each = {name: answer.receipt for name, answer in answers.items()}
    receipt = releasing.one_receipt(each, _split(study), once=(*answered_once(study), MIXED))
    # What an invitation cost was charged when it was made.
    paid = tuple(dict.fromkeys((*receipt.ledger_entries, *entries)))
    receipt = replace(receipt, assumes=receipt.assumes + _guessed(study), ledger_entries=paid)
    facts = {name: next(iter(answer.questions.values())) for name, answer in answers.items()}
    models = {name: answer for name, answer in answers.items() if not isinstance(answer, Release)}
    level = study.level if models or len(answers) > 1 else next(iter(answers.values())).level
    return Release(facts, level, receipt, study.title, joined=True, models=models)


def answered_once(study: Declaration) -> tuple[str, ...]:
    """The groups of which nobody answers more than one question: they spend the promise on it, and no more."""
    return ("local",) if study.drawn else ()


def _split(study: Declaration) -> str:
    parts = [f"{part.question.name} {part.everybody}" for part in study.parts if part.everybody is not None]
    own = [f"{part.question.name} {part.trusted}" for part in study.parts if part.trusted is not None]
    if study.drawn:
        likely = ", ".join(f"{name} {chance:.4g}" for name, chance in study.chances.items())
        return (
            "every local person answers one question with the whole promise, drawn by their device whatever their "
            f"data, with these chances: {likely}; that of the trusted, who answer all, is split: {', '.join(own)}"
        )
    said = f"the promise is split over the questions by their weights: {', '.join(parts)}"
    return f"{said}; of the trusted: {', '.join(own)}" if own else said


def _guessed(study: Declaration) -> tuple[str, ...]:
    names = [q.name for q in study.questions if q.guessed]
    return (f"the bounds of {', '.join(names)} were guessed from names, and nobody has chosen them",) if names else ()


def people_in(answer: Any) -> tuple[int, int]:
    """Trusted people of an answer, and those who sent reports."""
    people = answer.people
    if not isinstance(people, Mapping):
        return people, 0
    return people["trusted"], sum(people.values()) - people["trusted"]
