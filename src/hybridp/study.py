"""The study as an object: declared once, then planned, randomised and released.

>>> study = Study(
...     title="Pay in our town",
...     questions=[{"name": "salary", "kind": "number", "lower": 0, "upper": 200_000}],
...     promise={"epsilon": 1.0},
...     trust={"column": "consent", "trusted": ["yes"], "local": ["no"]},
... )
>>> study.parts[0].everybody
PureDP(epsilon=1.0, neighbours=<Neighbours.REPLACE_ONE: 'replace-one'>)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridp.errors import InvalidInput, must
from hybridp.public.study import Collection, Declaration, Mixer, People, Promise, Question, Trust

if TYPE_CHECKING:
    from hybridp.curator.sources import TableLike
    from hybridp.ledger import Ledger
    from hybridp.protocols.devices import Randomised
    from hybridp.randomness import Randomness
    from hybridp.release.plan import Plan
    from hybridp.release.release import Release

__all__ = ["Study"]

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
            trust: Trust | str | Mapping[str, object],
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
        and what it would hand on is written: their
        reports alone, with the larger epsilon that a batch allows, sorted, so that their order tells nothing. With
        `trial_opt_in` this share of people is drawn as trusting: a trial.
        """
        from hybridp.protocols.devices import randomise_study
        from hybridp.public.trust import TrustRule

        asked, told = (None if place is None else Path(place) for place in (invite, reports))
        run: dict[str, Any] = {"table": table, "overwrite": overwrite, "rng": rng}
        run["trust"] = None if trial_opt_in is None else TrustRule(trial_opt_in=trial_opt_in)
        return randomise_study(self, self._rows(data), out, invite=asked, reports=told, kept=keep, mixed=mixed, **run)

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
        from hybridp.protocols.study import Files, first_phase, release_study
        from hybridp.public.trust import TrustRule

        drawn = None if trial_opt_in is None else TrustRule(trial_opt_in=trial_opt_in)
        files = Files(
            self._named("invite", invite, lambda question: question.by_invitation),
            self._named("reports", reports, lambda question: question.by_invitation),
            self._named("model", model, lambda question: question.has_model),
        )
        trial = simulate_local or drawn is not None or (rng is not None and rng.simulated)
        run: dict[str, Any] = {"table": table, "trust": drawn, "simulate_local": simulate_local, "rng": rng}
        run |= {"collection": collection, "assume_mechanism": assume_mechanism, "phases": phases}
        run["tally"] = None if tally is None else Path(tally)
        with self._paying(ledger, trial=trial) as paying:
            if invite_out is not None:
                place = Path(invite_out)
                return first_phase(self, self._rows(data), place, local_people=local_people, ledger=paying, **run)
            must(local_people is None, "local_people", "must go with invite_out", local_people)
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
        from hybridp.protocols.study import invite_study

        groups = (trusted, self.people.trusted), (local, self.people.local)
        counted = tuple(known if given is None else given for given, known in groups)
        with self._paying(ledger, trial=rng is not None and rng.simulated) as paying:
            run: dict[str, Any] = {"question": question, "people": counted, "table": table, "rng": rng}
            return invite_study(self, out, self._rows(data), ledger=paying, **run)

    def _rows(self, data: Any) -> Any:
        """The table, whose numbers in text have the study's decimal sign."""
        from hybridp.curator.sources import read_as

        return read_as(data, self.people.decimal)

    def _paying(self, ledger: Ledger | Place | None, *, trial: bool) -> AbstractContextManager[Ledger | None]:
        """The ledger; a new one has the study's promise as total."""
        from hybridp.protocols.paying import paying
        from hybridp.protocols.study import ledger_totals

        return paying(ledger, ledger_totals(self), trial=trial)

    def _named(
        self, name: str, given: Place | Mapping[str, Place] | None, needs: Callable[[Question], bool]
    ) -> dict[str, Path]:
        """Paths by the question that they belong to; one alone belongs to the only question that needs one."""
        known = [question.name for question in self.questions if needs(question)]
        if given is None:
            return {}
        if isinstance(given, Mapping):
            for one in given:
                rule = f"must be for one of {', '.join(known) or 'no question of this study'}"
                must(one in known, name, rule, repr(one))
            return {one: Path(path) for one, path in given.items()}
        if len(known) != 1:
            raise InvalidInput(
                f"`{name}` must be given by question's name unless exactly one question needs it. "
                f"Got one path for {len(known)} questions."
            )
        return {known[0]: Path(given)}
