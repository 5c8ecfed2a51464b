"""The study as an object: declared once, then planned, randomised and released.

>>> study = Study(
...     title="Pay in our town",
...     questions=[{"name": "salary", "kind": "number", "lower": 0, "upper": 200_000}],
...     promise={"epsilon": 1.0},
...     trust={"column": "consent", "trusted": ["yes"], "local": ["no"]},
... )
>>> study.parts[0].everybody
PureDP(epsilon=1.0, neighbours=<Neighbours.REPLACE_ONE: 'replace-one'>)

One question in one line is a study of that question alone, released:

>>> from hybridp import seeded
>>> frame = {"age": [30.0, 50.0] * 500, "consent": ["trusted", "local"] * 500}
>>> terms = {"epsilon": 1.0, "trust": "consent", "simulate_local": True, "rng": seeded(1)}
>>> release = mean(frame, "age", bounds=(0, 120), missing="middle", **terms)
>>> release.simulated, 20 < release.estimate < 60
(True, True)

Every such function takes the table first, then columns and what is public about them. `trust` is the column that says
`trusted` or `local`, or a rule on other words (`TrustRule`). All else is by name (`Terms`). A `Study` asks several
questions under one promise, is planned and randomised too, and is written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from hybridp.errors import TrustRule, must
from hybridp.public.study import Collection, Declaration, Mixer, People, Promise, Question

if TYPE_CHECKING:
    from hybridp.curator.sums import TableLike
    from hybridp.ledger import Ledger
    from hybridp.noise import Randomness
    from hybridp.protocols.devices import Randomised
    from hybridp.release.plan import Plan
    from hybridp.release.release import Release

__all__ = ["Study", "Terms", "count", "heavy_hitters", "kmeans", "mean", "quantiles", "regression", "shares", "total"]
__all__ += ["vector_mean"]

Place = str | PathLike[str]


@dataclass(frozen=True, kw_only=True)
class Study(Declaration):
    """Everything that is decided, and public, before anybody sends anything; and what can be done with it.

    Give questions, promise and trust as plain data, with the fields of a study file (`Study.read`, `Study.write`). What
    is wrong is refused here, in one sentence that names the field, the rule and the value.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            questions: Sequence[Question | Mapping[str, object]],
            promise: Promise | float | Mapping[str, object],
            trust: TrustRule | str | Mapping[str, object],
            people: People | Mapping[str, object] = ...,
            collection: Collection | Mapping[str, object] | None = ...,
            mixer: Mixer | Mapping[str, object] | None = ...,
            title: str = ...,
            asked_by: str = ...,
            level: float = ...,
        ) -> None: ...

    def plan(
        self,
        data: TableLike | None = None,
        *,
        table: str | None = None,
        trusted: int | None = None,
        local: int | None = None,
        shuffled: int | None = None,
    ) -> Plan:
        """What error each question will have, from public numbers: nothing is charged.

        How many people trust is taken from here, from the study's `people`, or counted in `data`, where only the column
        of trust is read (and that of own epsilons): both are public. That the questions' columns are there is checked.
        How many trust the study's mixer (`shuffled`) is never counted: they are in no table.
        """
        from hybridp.bench.study import plan_study

        return plan_study(self, data, table=table, trusted=trusted, local=local, shuffled=shuffled)

    def randomise(
        self,
        data: TableLike,
        out: Place,
        *,
        table: str | None = None,
        invite: Place | None = None,
        reports: Place | None = None,
        keep: tuple[str, ...] = (),
        mixed: bool = False,
        trial_opt_in: float | None = None,
        overwrite: bool = False,
        rng: Randomness | None = None,
    ) -> Randomised:
        """What devices do: a copy of the table in which local people's values are replaced by private reports.

        With an `invite` the one question that it is to is answered, in a file of its own: `out`, or `reports` where
        every local person answers one drawn question. With `mixed` the table is of people who trust the study's mixer,
        and what it would hand on is written: their reports alone, with the larger epsilon that a batch allows, sorted,
        so that their order tells nothing. With `trial_opt_in` this share of people is drawn as trusting: a trial.
        """
        from hybridp.protocols.devices import randomise_study

        return randomise_study(
            self, self._rows(data), out, table=table, invite=_path(invite), reports=_path(reports), kept=keep,
            mixed=mixed, overwrite=overwrite, trust=_drawn(trial_opt_in), rng=rng,
        )  # fmt: skip

    def release(
        self,
        data: TableLike,
        *,
        ledger: Ledger | Place | None = None,
        table: str | None = None,
        simulate_local: bool = False,
        trial_opt_in: float | None = None,
        collection: str | None = None,
        assume_mechanism: bool = False,
        invite: Place | Mapping[str, Place] | None = None,
        reports: Place | Mapping[str, Place] | None = None,
        model: Place | Mapping[str, Place] | None = None,
        mixed: Sequence[TableLike] = (),
        tally: Place | None = None,
        phases: Sequence[float] = (),
        invite_out: Place | None = None,
        local_people: int | None = None,
        rng: Randomness | None = None,
    ) -> Release:
        """The answers to all questions, under one promise, charged once and kept in the ledger before they are shown.

        `ledger` may be a path: a file that is missing is made, with the study's promise as total. With `simulate_local`
        local rows are raw, with `trial_opt_in` all rows are, and this share of people is drawn as trusting: both are
        trials, marked as such, and protect nobody. `invite` and `reports` are for questions that need an invitation,
        `model` is the folder of a synthetic table: one path, or one for each question's name. `mixed` are the batches
        that the study's mixer handed on, each a table of reports and nothing else. Of a study's only question, a
        `tally` of reports stands in for local rows, `phases` are the shares of local people who are asked about
        quantiles one after another in a trial, and `invite_out` is a new file of the invitation to a number that those
        answer who are asked later: `local_people`, or as many as the table has.
        """
        from hybridp.protocols.driver import release_study

        drawn, given = _drawn(trial_opt_in), {"invite": invite, "reports": reports, "model": model}
        files = {name: self._named(name, place) for name, place in given.items()}
        trial = simulate_local or drawn is not None or (rng is not None and rng.simulated)
        run: dict[str, Any] = {"table": table, "trust": drawn, "simulate_local": simulate_local, "rng": rng}
        run |= {"collection": collection, "assume_mechanism": assume_mechanism, "phases": phases}
        run |= {"tally": _path(tally), "invite_out": _path(invite_out), "local_people": local_people}
        with self._paying(ledger, trial=trial) as paying:
            return release_study(self, self._rows(data), files=files, mixed=mixed, ledger=paying, **run)

    def invite(
        self,
        out: Place,
        data: TableLike | None = None,
        *,
        question: str | None = None,
        trusted: int | None = None,
        local: int | None = None,
        ledger: Ledger | Place | None = None,
        table: str | None = None,
        rng: Randomness | None = None,
    ) -> dict[str, Any]:
        """Write the invitation to a question that local people can answer only when they have been sent one."""
        from hybridp.protocols.invited import invite_study

        groups = (trusted, self.people.trusted), (local, self.people.local)
        counted = tuple(known if given is None else given for given, known in groups)
        with self._paying(ledger, trial=rng is not None and rng.simulated) as paying:
            run: dict[str, Any] = {"question": question, "people": counted, "table": table, "rng": rng}
            return invite_study(self, out, self._rows(data), ledger=paying, **run)

    def _rows(self, data: Any) -> Any:
        """The table, whose numbers in text have the study's decimal sign."""
        from hybridp.curator.sums import read_as

        return read_as(data, self.people.decimal)

    def _paying(self, ledger: Ledger | Place | None, *, trial: bool) -> AbstractContextManager[Ledger | None]:
        """The ledger; a new one has the study's promise as total."""
        from hybridp.protocols.driver import paying
        from hybridp.tasks.task import ledger_totals

        return paying(ledger, ledger_totals(self), trial=trial)

    def _named(self, name: str, given: Place | Mapping[str, Place] | None) -> dict[str, Path]:
        """Paths by the question that they belong to; one alone belongs to the only question that needs one."""
        known = [one.name for one in self.questions if (one.has_model if name == "model" else one.by_invitation)]
        if given is None:
            return {}
        if isinstance(given, Mapping):
            rule = f"must be for one of {', '.join(known) or 'no question of this study'}"
            for one in given:
                must(one in known, name, rule, repr(one))
            return {one: Path(path) for one, path in given.items()}
        rule = "must be given by question's name unless exactly one question needs it"
        must(len(known) == 1, name, rule, f"one path for {len(known)} questions")
        return {known[0]: Path(given)}


def _path(place: Place | None) -> Path | None:
    return None if place is None else Path(place)


def _drawn(share: float | None) -> TrustRule | None:
    """For a trial: this share of people is drawn as trusting."""
    return None if share is None else TrustRule(trial_opt_in=share)


Pair = tuple[float, float]
Missing = float | str


class Terms(TypedDict, total=False):
    """What may be said of any question. Whatever is left out is as in a study file that leaves it out."""

    epsilon: float
    delta: float
    trusted_epsilon: float
    epsilon_column: str
    """The column of everyone's own epsilon, in place of epsilon."""
    person: str
    """The column that identifies a person; else every row is one."""
    public: Sequence[str]
    """Columns that everybody may know."""
    level: float
    estimator: str
    noise: str
    ledger: Ledger | str | PathLike[str]
    table: str
    batch: int
    """The fewest reports of a mixer's batch, where there is a mixer."""
    mixed: Sequence[TableLike]
    simulate_local: bool
    trial_opt_in: float
    collection: str
    assume_mechanism: bool
    rng: Randomness


class Groups(Terms, total=False):
    """What may be said of a question that may be answered by group."""

    by: str
    by_private: bool
    categories: Sequence[str]
    least: int
    compare: str
    joint: bool
    population: Sequence[float]
    """How many people of a population are in each of the categories: its own answer is given too."""


def mean(
    data: TableLike, column: str, *, bounds: Pair, trust: str | TrustRule, missing: Missing | None = None,
    gap: float | None = None, lies: float = 0.0, **terms: Unpack[Groups],
) -> Release:  # fmt: skip
    """The mean of a number within public bounds; `missing` is what a missing one counts as (a number, or "middle").

    The means of people who trust and of the others differ by at most `gap`, if that is known, and at most a share of
    local people `lies`: the interval is the shortest that holds whatever these allow.
    """
    fields = {**_between(bounds), "missing": missing, "statistics": ("mean",), "gap": gap, "lies": lies}
    return _release(data, "number", column, trust, fields, terms)


def total(
    data: TableLike, column: str, *, bounds: Pair, trust: str | TrustRule, missing: Missing | None = None,
    **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """The sum of a number within public bounds: its mean times the number of people, which is public."""
    fields = {**_between(bounds), "missing": missing, "statistics": ("sum",)}
    return _release(data, "number", column, trust, fields, terms)


def quantiles(
    data: TableLike, column: str, *, bounds: Pair, trust: str | TrustRule, at: Sequence[float] = (0.5,),
    missing: Missing | None = None, **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """The values below which these shares of people lie: the median unless others are asked for."""
    fields = {**_between(bounds), "missing": missing, "statistics": ("quantiles",), "at": at}
    return _release(data, "number", column, trust, fields, terms)


def shares(
    data: TableLike, column: str, *, trust: str | TrustRule, options: Sequence[str] = (), edges: Sequence[float] = (),
    several: int | None = None, other: str | None = None, missing: str | None = None, **terms: Unpack[Groups],
) -> Release:  # fmt: skip
    """The share of people with each of several public options, or with a number between public edges.

    With `several` a person may tick up to so many options, written A;B. `other` is one more option, for whatever is not
    listed; `missing` the option as which a missing field counts.
    """
    fields = {"options": options, "edges": edges, "several": several, "other": other, "missing": missing}
    return _release(data, "choice", column, trust, fields, terms)


def count(
    data: TableLike, column: str, *, value: str, trust: str | TrustRule, **terms: Unpack[Groups]
) -> Release:  # fmt: skip
    """How many people have one public value in a column."""
    return _release(data, "count", column, trust, {"value": value}, terms)


def vector_mean(
    data: TableLike, *, bounds: Mapping[str, Pair], trust: str | TrustRule, norm: str | None = None,
    radius: float | None = None, missing: Missing | Sequence[Missing] = (), joint: bool = False,
    **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """The means of several columns, each within its own bounds; one promise covers a person's whole row."""
    fields = {**_box(bounds), "norm": norm, "radius": radius, "missing": missing, "joint": joint}
    return _release(data, "vector", "mean", trust, fields, terms)


def kmeans(
    data: TableLike, *, clusters: int, bounds: Mapping[str, Pair], trust: str | TrustRule,
    missing: Missing | Sequence[Missing] = (), **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """So many centres of points whose coordinates are columns, each within its own bounds."""
    return _release(data, "points", "centres", trust, {**_box(bounds), "clusters": clusters, "missing": missing}, terms)


def regression(
    data: TableLike, target: str, on: Sequence[str], *, bounds: Mapping[str, Pair], trust: str | TrustRule,
    model: str = "linear", clip: float | None = None, missing: Missing | Sequence[Missing] = (), joint: bool = False,
    **terms: Unpack[Terms],
) -> Release:  # fmt: skip
    """A target explained by several columns, each within its own bounds. The last of `missing` is the target's."""
    for name in (*on, target):
        there = isinstance(bounds, Mapping) and name in bounds
        must(there, "bounds", f"must have a pair for every column, `{name}` too", "none for it")
    sides = _box({name: bounds[name] for name in (*on, target)})
    del sides["columns"]
    fields = {"target": target, "on": on, **sides, "model": model, "clip": clip, "missing": missing, "joint": joint}
    return _release(data, "regression", target, trust, fields, terms)


def heavy_hitters(
    data: TableLike, record: str | Sequence[str], *, trust: str | TrustRule, head: int = 50, **terms: Unpack[Terms]
) -> Release:  # fmt: skip
    """The most frequent records, of one column or of two, with their shares; one record of each `person` counts."""
    columns = (record,) if isinstance(record, str) else tuple(record)
    return _release(data, "records", columns[0], trust, {"columns": columns, "head": head}, terms)


def _box(bounds: Mapping[str, Pair]) -> dict[str, object]:
    must(isinstance(bounds, Mapping), "bounds", 'must have a pair for every column, {"a": (0, 1)}', "none by name")
    sides = [_between(one) for one in bounds.values()]
    return {"columns": (*bounds,), **{end: [side[end] for side in sides] for end in ("lower", "upper")}}


def _between(bounds: Pair) -> dict[str, object]:
    ok = isinstance(bounds, Sequence) and not isinstance(bounds, str) and len(bounds) == 2
    must(ok, "bounds", "must be a pair of numbers, such as (0, 120)", repr(bounds)[:60])
    return dict(zip(("lower", "upper"), bounds, strict=True))


_PROMISE = ("epsilon", "delta", "trusted_epsilon", "epsilon_column")
_RUN = ("ledger", "table", "mixed", "simulate_local", "trial_opt_in", "collection", "assume_mechanism", "rng")


def _release(
    data: TableLike, kind: str, name: str, trust: str | TrustRule, fields: Mapping[str, object],
    terms: Mapping[str, Any],
) -> Release:  # fmt: skip
    """The release of a study of one question, whose fields are those of a study file."""
    rest = {key: value for key, value in terms.items() if value is not None}
    promise, run = ({key: rest.pop(key) for key in keys if key in rest} for keys in (_PROMISE, _RUN))
    stated: dict[str, Any] = {"promise": promise, "trust": _trust(trust, run)}
    stated["people"] = {"column": rest.pop("person", None), "public": tuple(rest.pop("public", ()))}
    if "level" in rest:
        stated["level"] = rest.pop("level")
    if "batch" in rest:
        stated["mixer"] = {"batch": rest.pop("batch")}
    question = {key: value for key, value in fields.items() if value is not None}
    return Study(**stated, questions=[{"name": name, "kind": kind, **question, **rest}]).release(data, **run)


def _trust(trust: str | TrustRule, run: dict[str, Any]) -> str | TrustRule:
    """The rule as a study states it; the share of a trial is said of the release."""
    if isinstance(trust, str) or trust.trial_opt_in is None:
        return trust
    run["trial_opt_in"] = trust.trial_opt_in
    return TrustRule(everyone="local")
