"""A study's plan: the study as it is declared (`hybridp.public.study`), held to what a collection over the web can do.

A plan has no fields of its own: forms, interface description and study files are made from the declaration. It is
stored as it was accepted and never changes. What a kind of question needs is its part's (`hybridp.service.questions`).

>>> way = {"name": "way", "kind": "number", "lower": 0, "upper": 120}
>>> plan = parse_plan({"title": "Commute", "promise": 1, "questions": [way]})
>>> plan.kind, plan.accounts()["trusted"].epsilon
('number', 1.0)
>>> parse_plan({"title": "Commute", "promise": 1, "questions": [way | {"upper": -1}]})
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `way.upper` must be greater than lower (0). Got -1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any

import numpy as np

from hybridp.errors import must
from hybridp.ledger import DELTA, EPSILON, Charge, together, units
from hybridp.protocols.driver import on_reports
from hybridp.public.mechanisms import ApproxDP, PureDP, promised
from hybridp.public.mixing import from_text
from hybridp.public.questions import Records
from hybridp.public.study import Collection, Declaration, Mixer
from hybridp.release.plan import in_range
from hybridp.service.questions import Part, categories_of, drawable, parts_of
from hybridp.tasks.personal import at_epsilon
from hybridp.tasks.task import answered_once
from hybridp.tasks.transcript import Transcript

__all__ = ["Groups", "Survey", "in_turn", "moment", "parse_plan", "predicted"]


DAY = 86_400
KEPT_DAYS, OPEN_DAYS, MOST_DAYS = 90, 365, 3660
MOST_EPSILON = 1000.0
LEAST_DELTA, MOST_DELTA = 1e-15, 0.1
MOST_MIXED = 200_000
"""People in a batch: one of nearly twice as many, the last of a study, comes in one request (`mixing.MOST_BATCH`)."""
_LAST = 253_370_764_800  # the year 9999: dates can be written, and a day be added to them

Groups = dict[str, PureDP | ApproxDP]


def moment(stated: datetime | str | None) -> int | None:
    """A declared moment, or its text, in Unix seconds, as people's devices are told it; None for what is none."""
    try:
        result = datetime.fromisoformat(stated) if isinstance(stated, str) else stated
        return int(result.timestamp()) if isinstance(result, datetime) else None
    except (ValueError, OverflowError):
        return None


def in_turn(*budgets: PureDP | ApproxDP, times: int = 1) -> PureDP | ApproxDP:
    """Releases of these budgets one after the other, so many times, as the ledger adds them up: each is a whole number
    of units, rounded up.

    >>> in_turn(PureDP(1 / 3), PureDP(2 / 3)).epsilon
    1.000000000001
    >>> in_turn(PureDP(1 / 3), times=3).epsilon
    1.000000000002
    """
    epsilon = times * sum(units(budget.epsilon, EPSILON) for budget in budgets) / EPSILON
    delta = times * sum(units(budget.delta, DELTA) for budget in budgets) / DELTA
    return promised(epsilon, delta)


class Survey:
    """What the service must know of a study: one question, or several under one promise. Times are Unix seconds.

    Local people answer all, with the parts of a split promise, or the one that their device draws, with the whole.
    Where one of the questions waits, they come second: what trusted people say of it is released first, at its part of
    the promise, and what these answered to all the other questions together with the reports.
    """

    def __init__(self, declared: Declaration, asked: tuple[Part, ...]) -> None:
        self.declared, self.asked = declared, asked
        self.collection = stated = declared.collection or Collection()
        self.opens, self.closes, self.delete_by = map(moment, (stated.opens, stated.closes, stated.delete_by))
        self.kind = declared.questions[0].kind if len(declared.questions) == 1 else "questions"
        self.choices = asked[0].choices  # the epsilons that people choose from, where everybody has their own
        # What local people report on, and their public groups; what trusted people give: private groups too.
        self.parts = tuple(part for one in asked for part in one.reported)
        self.categories = categories_of(asked)
        self.packed = (*self.parts, *self.categories)
        self.entrusted = tuple(given for one in (*asked, *self.categories) for given in one.fields)
        self.mixed = tuple(part for one in asked for part in [one.mixed] if part is not None)
        # Whether trusted people come first, whether local ones answer in turn, and whether trusted answers come last.
        self.phased, self.answers_last = any(one.waits for one in asked), any(not one.waits for one in asked)
        self.by_turns = any(one.by_turns for one in asked)
        # Lots of parts, of each of which a local person's device draws one, with their chances; it answers all others.
        self.lots = [dict(enumerate(declared.chances.values()))] if declared.drawn else []
        places = iter(range(len(self.parts)))
        for one in asked if not declared.drawn else ():
            own = [next(places) for _ in one.reported]
            self.lots += [dict.fromkeys(own, 1 / len(own))] if one.drawn else []
        groups = {group for one in asked for group in one.hears}
        groups |= {"shuffled"} if declared.mixer is not None and "local" in groups else set()
        self.uses = tuple(group for group in ("trusted", "local", "shuffled") if group in groups)

    def check(self) -> None:
        """The rules of a collection over the web, beside those of the declaration."""
        stated, collection = self.declared, self.collection
        must(0.5 <= stated.level <= 0.999, "level", "must be at least 0.5 and at most 0.999", stated.level)
        must(stated.trust.everyone is None, "trust.everyone", "must be left out: people choose", stated.trust.everyone)
        for name, at in (("opens", self.opens), ("closes", self.closes), ("delete_by", self.delete_by)):
            must(at is None or 0 <= at <= _LAST, f"collection.{name}", "must lie in the years 1970 to 9998", "another")
        last = self.closes if self.closes is not None else self.opens
        if last is not None and self.delete_by is not None:
            rule = "must be after the study's last moment"
            must(self.delete_by > last, "collection.delete_by", rule, str(collection.delete_by))
        if not stated.promise.personal:
            self._check_levels()
        for names in ([one.name for one in self.packed], [given.name for given in self.entrusted]):
            rule = "must be asked for once: a table's column, or marginal, and another question share a name"
            must(len(set(names)) == len(names), "questions", rule, "the same name twice")
        if any(one.once for one in self.asked):
            rule = f"must be 1 for a question of this kind ({self.kind})"
            must(self.collection.releases == 1, "collection.releases", rule, self.collection.releases)
        if self.declared.mixer is not None:
            self._check_mixer(self.declared.mixer)
        _ = self.accounts()

    def _check_levels(self) -> None:
        stated = self.declared.promise
        for name, epsilon in (("epsilon", stated.epsilon), ("trusted_epsilon", stated.trusted_epsilon)):
            if epsilon is not None:
                must(0.001 <= epsilon <= 30, f"promise.{name}", "must be at least 0.001 and at most 30", epsilon)
                most = MOST_EPSILON / epsilon
                rule = f"must be at most {most:.0f}: together they may spend an epsilon of {MOST_EPSILON:g}"
                must(self.collection.releases <= most, "collection.releases", rule, self.collection.releases)
        ok = stated.delta == 0 or (stated.delta >= LEAST_DELTA and stated.delta * self.collection.releases < MOST_DELTA)
        rule = f"must be 0, or at least {LEAST_DELTA:g} and, over all releases together, below {MOST_DELTA:g}"
        must(ok, "promise.delta", rule, stated.delta)

    def _check_mixer(self, mixer: Mixer) -> None:
        """People's browsers must find the mixer, and the collector know its signature."""
        for one in self.asked:
            got = f"a mixer and a question of kind {one.question.kind}"
            got += " where everyone has their own epsilon" if self.choices else ""
            ways = ("number", "option")  # of which a page and a program write the same letters
            mixes = one.mixed is not None and one.grouping is None and one.invite.way in ways
            rule = "must go with means and choices: page and program write other reports in letters of their own"
            must(mixes, "mixer", rule, got)
        mixer.must(mixer.url is not None, "url", "must be given: people's devices send their reports there", "nothing")
        from_text(mixer.key or "", 32, "mixer.key")
        rule = f"must be at most {MOST_MIXED:,} in a study of the service"
        mixer.must(mixer.batch <= MOST_MIXED, "batch", rule, mixer.batch)

    def check_asker(self) -> None:
        """Who asks, why, and where to reach them: participants read it first. Only of a study that is opened now."""
        stated, rule = self.collection, "must be given before people are asked: they read it first"
        for name, text, such_as in (
            ("asked_by", self.declared.asked_by, "the town council"),
            ("collection.purpose", stated.purpose, "to plan the bus lines"),
            ("collection.contact", stated.contact, "survey@town.example"),
        ):
            must(bool(text), name, f'{rule} (such as {name.rpartition(".")[2]} = "{such_as}")', "nothing")

    def dated(self, now: int) -> Survey:
        """The same plan with the day on which trusted answers go at the latest. Where it states none: 90 days after the
        closing, rounded up to a whole day; a study that is closed by hand is taken to be open for a year."""
        last = self.closes if self.closes is not None else max(now, self.opens or 0) + OPEN_DAYS * DAY
        if self.delete_by is None:
            at = datetime.fromtimestamp(-(-(last + KEPT_DAYS * DAY) // DAY) * DAY, UTC)
            stated = replace(self.collection, delete_by=at)
            return Survey(replace(self.declared, collection=stated), self.asked)
        name, given = "collection.delete_by", str(self.collection.delete_by)
        must(self.delete_by > now, name, "must lie in the future", given)
        rule = f"must be at most {MOST_DAYS:,} days after the study's last moment: answers do not stay for ever"
        must(self.delete_by <= last + MOST_DAYS * DAY, name, rule, given)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The declaration with everything that it states, defaults too: what is stored and shown."""
        return self.declared.to_dict(everything=True)

    def within(self, head: dict[str, Any]) -> Survey:
        """The same as local people are asked by the stored release of the phase before."""
        said = {name: Transcript.opened(stated) for name, stated in head["invitations"].items()}
        asked = (replace(one, said=said[one.name], invite=said[one.name].invite) if one.waits else one
                 for one in self.asked)  # fmt: skip
        return Survey(self.declared, tuple(asked))

    @property
    def local_promise(self) -> PureDP | ApproxDP:
        """Of a local person's whole report: the largest of the questions that are drawn, or all parts together."""
        own = [Charge("local", one.promise, "", one.name) for one in self.asked]
        return together(own, "", once=answered_once(self.declared))[0].budget

    @property
    def each_release(self) -> PureDP | ApproxDP:
        """What is charged: a question that listens to local people alone spends nothing of its part."""
        charges = [*(self.discovery_charges() if self.phased else ()), *self.charges("")]
        spent = [charge.budget for charge in charges if charge.people == "trusted"] or [self.declared.trusted_guarantee]
        return spent[0] if len(spent) == 1 else in_turn(*spent)

    def accounts(self) -> Groups:
        """The totals of the study's ledger: as many releases as planned, and not one more."""
        if self.choices:  # 1 stands for everybody's own epsilon, spent once
            return {charge.people: PureDP(1.0) for charge in self.charges("")}
        trusted = in_turn(self.each_release, times=self.collection.releases)
        mixing = self.declared.mixing
        mixed = {} if mixing is None else {"shuffled": PureDP(mixing.epsilon)}
        return {"trusted": trusted, "local": self.local_promise, **mixed}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        """What the final release charges: the trusted for every release, the reports once, under the collection's name;
        of two phases the second's. Of a study's only question for so many people in each group."""
        sizes = people if len(self.asked) == 1 else None
        spent = [(one.waits, charge) for one in self.asked for charge in one.charges(self._sizes(sizes))]
        later = [charge for waits, charge in spent if not waits or not charge.people.startswith("trusted")]
        first, sent = on_reports(later, trial=False)
        reports = together(sent, self.declared.title, collection, once=answered_once(self.declared))
        return together(first, self.declared.title) + reports

    def discovery_charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """What the release of the first phase of so many people charges, where there is one."""
        spent = [charge for one in self.asked if one.waits for charge in one.charges(self._sizes(people))]
        return together([charge for charge in spent if charge.people == "trusted"], self.declared.title)

    def _sizes(self, people: dict[str, int] | None) -> dict[str, int] | None:
        return None if people is None else {**people, "expected": int(self.declared.people.local or 0)}

    @property
    def expected(self) -> dict[str, int] | None:
        people = self.declared.people
        if people.trusted is None and people.local is None:
            return None
        mixed = {} if self.declared.mixer is None else {"shuffled": people.shuffled or 0}
        return {"trusted": people.trusted or 0, "local": people.local or 0, **mixed}


def parse_plan(given: Mapping[str, Any] | str | Declaration) -> Survey:
    """A checked plan from a declaration, its plain data, or its JSON text. What only a table needs may be left out: the
    columns that tell groups, and people, apart."""
    if not isinstance(given, Declaration):
        stated = {"trust": {"column": "trust"}, **(json.loads(given) if isinstance(given, str) else given)}
        questions, people = stated.get("questions") or stated.get("question"), stated.get("people", {})
        asked = questions if isinstance(questions, list | tuple) else ()
        if any(isinstance(q, Mapping) and q.get("kind") == Records.kind for q in asked) and isinstance(people, Mapping):
            stated["people"] = {"column": "person", **people}
        given = Declaration.of(stated)
    declared = drawable(given)
    declared = replace(declared, title=declared.purpose, collection=declared.collection or Collection())
    plan = Survey(declared, parts_of(declared))
    plan.check()
    return plan


# --- how good will it be ----------------------------------------------------------------------------------------------


_UNITS = {"number": "in the unit of the answer", "vector": "in half-ranges of a column"}
_UNITS |= dict.fromkeys(("choice", "count", "records"), "share of people")
_FREQUENT = {"records": "that records are as frequent as 1/rank, of which the 20th is meant"}


def predicted(plan: Survey, people: Mapping[str, int]) -> dict[str, Any] | None:
    """Root mean squared error and half-width of the interval, from group sizes and public numbers alone, as a plan of
    the same declaration has it; None where nobody, or too few, take part, where no law is known or numbers give up, and
    by group: nobody knows yet how many people each is about.

    >>> asked = {"name": "way", "kind": "number", "lower": 0, "upper": 100, "sd": 10, "local": "dithered"}
    >>> plan = parse_plan({"title": "t", "promise": 1, "questions": [asked]})
    >>> round(predicted(plan, {"trusted": 1000, "local": 9000})["rmse"], 2)
    0.46
    """
    from hybridp.bench.study import plan_study  # not needed to serve

    (one, *others), study = plan.asked, plan.declared
    asked, kind = one.question, one.question.kind
    mean = one.about.get("statistics", ["mean"]) == ["mean"] and one.about.get("form") != "steered"
    if others or asked.groups is not None or kind not in _UNITS or not mean:
        return None
    if plan.choices:  # whose estimators know of everybody's own
        plainly = {} if asked.by_levels else {"estimator": None}
        study = at_epsilon(study, 0, min(plan.choices), **plainly)
    try:
        trusted, local, shuffled = (people.get(g, 0) * (g in plan.uses) for g in ("trusted", "local", "shuffled"))
        facts = plan_study(study, trusted=trusted, local=local, shuffled=shuffled).facts
        part = in_range(facts)
    except (ArithmeticError, ValueError):
        return None
    scale = facts["range"] if kind == "number" else 2.0 if kind == "vector" else 1.0
    rmse = facts["predicted"]["top"]["standard_error"][-1] if part is None else scale * part
    stated = ", ".join(f"{sd:g}" for sd in np.atleast_1d(getattr(asked, "sd", None) or ()))
    assumes = f"a standard deviation of {stated}" if stated else "the largest spread that the bounds allow"
    if _UNITS[kind] == "share of people":
        assumes = _FREQUENT.get(kind, "that all options are as frequent")
    assumes += " and that everybody asks for the smallest epsilon" if plan.choices else ""
    half_width, wide = NormalDist().inv_cdf((1 + plan.declared.level) / 2) * rmse, facts["predicted"].get("default", {})
    if "half_width" in wide and getattr(asked, "estimator", None) in (None, "everyone") and not asked.as_count:
        half_width = float(np.max(wide["half_width"]))  # of the interval, whose middle is not what is moved
    groups = ("trusted", "local", *(("shuffled",) if people.get("shuffled") else ()))
    told = {"people": {group: people[group] for group in groups}, "rmse": rmse, "half_width": half_width}
    return {**told, "unit": asked.unit or _UNITS[kind], "assumes": assumes}
