"""A declared study, run on a table: every question under its part of one promise, one charge, one release.

1. The promise is split over the questions by their weights, for both groups (`hybridp.public.study`).
2. The ledger is charged once for the trusted people, by the sum of what the questions spend, before a row is read.
3. Each question is answered by the protocol of its kind, at its part of the promise.
4. Local people's reports on all questions are charged once, as one set.
5. All answers are kept in the ledger, as one document, before anybody can see one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, cast

from hybridp.curator.sources import asks, check_answers, check_batches, must_read_again, with_public
from hybridp.errors import HybridpError, InvalidInput, UnusablePublicRows, must
from hybridp.ledger import Ledger, Noted, together
from hybridp.protocols.driver import ask_invited, ask_table, columns_of, must_declare, release, reports_in, trust_rule
from hybridp.protocols.paying import Way, charged, must_have_paid, record_release
from hybridp.protocols.reports import tally_for
from hybridp.public import envelope
from hybridp.public.study import ANSWERED, ANSWERED_IN, Declaration
from hybridp.public.study.basics import LABEL, Answering, drawn_trust, keyed, label_column, rule_of
from hybridp.randomness import Randomness, secure
from hybridp.release.release import Release
from hybridp.tasks import transcript as transcripts
from hybridp.tasks.declared import answered_once, people_in, published, task_of
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.kmeans import KMeansTask
from hybridp.tasks.mean import mean_task
from hybridp.tasks.number import number_task
from hybridp.tasks.steered import SteeredTask
from hybridp.tasks.transcript import Transcript, invitation_to, kept_missing, read_invitation

__all__ = ["invite_study", "release_study"]


def release_study(
    study: Declaration,
    data: Any,
    *,
    table: str | None = None,
    trust: Any = None,
    simulate_local: bool = False,
    ledger: Ledger | None = None,
    collection: str | None = None,
    assume_mechanism: bool = False,
    files: Mapping[str, Mapping[str, Path]],
    mixed: Sequence[Any] = (),
    tally: Path | None = None,
    phases: Sequence[float] = (),
    invite_out: Path | None = None,
    local_people: int | None = None,
    rng: Randomness | None = None,
) -> Release:
    """Release the answers to all questions from a table of trusted values and local reports (`hybridp.Study.release`).

    Every person is promised the study's guarantee by all answers together: trusted people against whoever sees them,
    local people against everyone. `trust` stands in for the study's own rule. `files` are, by the question's name, each
    `invite` to answer (records, points, regression), the `reports` that answer it, and the `model` folder of a table.
    """
    rng = secure() if rng is None else rng
    rule = trust_rule(study) if trust is None else trust
    simulate_local = simulate_local or drawn_trust(rule)
    twice = any(question.groups is not None for question in study.questions)
    must_read_again(data, len(study.questions) + twice)
    must_declare(study, data := with_public(data, study.people.public))
    rule_of_mixed = "must go with a study that has a mixer: --batch, or [mixer], says how small a batch may be"
    must(not mixed or study.mixer is not None, "mixed", rule_of_mixed, f"{len(mixed)} without one")
    run: dict[str, Any] = {"table": table, "simulate_local": simulate_local, "assume_mechanism": assume_mechanism}
    run |= {"rng": rng, **({"mixed": mixed} if study.mixer is not None else {})}
    if tally is not None:
        run["tally"] = tally_for(study, tally)
        collection = run["tally"].stands_in(run["tally"].mechanism, collection)
    if phases:
        alone = len(study.questions) == 1
        must(alone, "phases", "must go with quantiles of a study's only question", f"{len(study.questions)} questions")
        run["phases"] = tuple(phases)
    if invite_out is not None:
        run |= {"invite_out": invite_out, "ledger": ledger, "collection": collection, "purpose": study.purpose}
        return _first_phase(study, data, rule, local_people, run)
    must(local_people is None, "local_people", "must go with invite_out", local_people)
    labels: Any = keyed(rule, rng.words(2).tolist()) if drawn_trust(rule) else rule  # one draw for all questions
    for folder in files["model"].values():
        transcripts.must_be_new(folder)
    once = answered_once(study)
    heard = _heard(study, labels, run)
    ways = {q.name: _way(study, i, data, heard[i], files, run) for i, q in enumerate(study.questions)}
    for invite in files["invite"].values():
        must_have_paid(ledger, invite)
    first = together([charge for way in ways.values() for charge in way.first], study.purpose, once=once)
    later = together([charge for way in ways.values() for charge in way.later], study.purpose, collection, once=once)
    must(collection is None or not simulate_local, "collection", "must not name the reports of a trial", collection)
    trial = rng.simulated or simulate_local or any(way.trial for way in ways.values())
    noted, drew, answers = Noted(), None, dict[str, Any]()
    reports: dict[str, tuple[str, ...]] = {}
    with charged(ledger, first, later, trial=trial, path=data) as entries:
        if study.drawn and not simulate_local:
            reports = {q.name: reports_in(study, i) for i, q in enumerate(study.questions)}
            drew = check_answers(data, labels, study.people.column, ANSWERED, reports, table=table)
            for told_in in files["reports"].values():
                check_batches(data, table, ANSWERED_IN, told_in)
        for name, way in ways.items():
            try:
                answers[name] = way.answer(noted)[0]
            except HybridpError as failure:  # where a query was asked for an answer before, no refusal is free any more
                failure.of_rows = True if answers and asks(data) else failure.of_rows
                raise
            if drew is not None and not reports[name]:
                heard_here = people_in(answers[name])[1]
                if heard_here > drew[name]:
                    raise UnusablePublicRows(
                        f"`reports` must hold at most {drew[name]:,}, one for every local row in which `{ANSWERED}` "
                        f"says {name}. Got {heard_here:,}."
                    )
        entries.charge(together(noted.noted, study.purpose, collection, once=once))
        result = published(study, answers, tuple(entries))
        columns = {"trust": rule, "questions": {q.name: list(q.columns_read) for q in study.questions}}
        result = record_release(result, ledger, entries, purpose=study.purpose, study=study.to_dict(), columns=columns)
    for name, folder in files["model"].items():
        transcripts.save_model(result.models[name], folder)
    return result


def _heard(study: Declaration, labels: Any, run: Mapping[str, Any]) -> list[Any]:
    """Who is read for each question: everybody or, of the local people, those whose device drew it."""
    rule = rule_of(labels)
    if not study.drawn or rule is None:
        return [labels] * len(study.questions)
    if not run["simulate_local"]:
        return [replace(rule, answering=Answering(q.name, ANSWERED)) for q in study.questions]
    key = "".join(f"{word:016x}" for word in run["rng"].words(2).tolist())
    ends = [0.0, *accumulate(study.chances.values())]
    ends[-1] = 1.0
    return [
        replace(rule, answering=Answering(q.name, None, key, a, b))
        for q, (a, b) in zip(study.questions, pairwise(ends), strict=True)
    ]


def _way(study: Declaration, i: int, data: Any, trust: Any, files: Any, run: Mapping[str, Any]) -> Way:
    question, mixed = study.questions[i], run.get("mixed", ())
    task, columns, groups = task_of(study, i), columns_of(study, i, trust), question.groups
    told: dict[str, Any] = {"purpose": question.name, "epsilon": study.promise.epsilon_column}
    if task.by_invitation:
        invite, reports = (files[name].get(question.name) for name in ("invite", "reports"))
        both = (invite is None) == (reports is None) or (reports is None and (bool(mixed) or "tally" in run))
        must(both, "reports", f"must be given together with the invitation, for {question.name}", reports)
        must(invite is not None or not mixed, "mixed", "must go with the invitation that its reports answer", "none")
        if invite is not None:
            must(not run["simulate_local"], "simulate_local", "must not join reports that answer an invitation", True)
            if not task.planned:
                only = label_column(trust) == LABEL  # no column says who trusts, and only local people answer
                how: dict[str, Any] = {"trust": None if only else trust, "person": columns.person, "mixed": mixed}
                how |= {"report": columns.report or "report", "tally": run.get("tally"), "purpose": question.name}
                how |= {"level": study.level, "joint": getattr(task, "joint", None)}
                how["assume_mechanism"] = run["assume_mechanism"]
                return ask_invited(invitation_to(task, columns, invite), reports, **how)
            told |= {"invite": invite, "reports": reports}
    return ask_table(data, task, columns, None if groups is None or groups.private else groups, **told, **run)


# --- what goes to the devices first -----------------------------------------------------------------------------------


def invite_study(
    study: Declaration,
    out: str | PathLike[str],
    data: Any = None,
    *,
    question: str | None = None,
    people: tuple[int | None, ...] = (None, None),
    table: str | None = None,
    ledger: Ledger | None = None,
    rng: Randomness | None = None,
) -> dict[str, Any]:
    """Write the invitation to a question that local people can only answer when they have been sent one.

    Records are discovered, and the line of a regression or the window of a mean is found, by the trusted people of
    `data` first, at the question's part of the promise, which is charged now; a map of points is planned from the
    number of trusted and local `people` alone.
    """
    named = [q.name for q in study.questions if q.by_invitation]
    name = question or (named[0] if len(named) == 1 else None)
    rule = f"must be one of {', '.join(named) or 'none in this study'}: questions that need an invitation"
    must(name in named, "question", rule, name or "none")
    i = [q.name for q in study.questions].index(str(name))
    place, (trusted, local) = Path(out), people
    task, columns = task_of(study, i), columns_of(study, i, trust_rule(study))
    if task.planned:
        if trusted is None or local is None:
            raise InvalidInput("`people` must be given for a map of points: how many trusted and local ones. Got none.")
        own = cast(KMeansTask, task.prepared(columns))
        mapped = own.mapped(trusted, round(local * study.chances[str(name)]))
        must(place.parent.is_dir(), "invite", "must lie in an existing folder", place)
        envelope.save(place, Transcript(mapped, columns.names, kept_missing(columns)).document())
    else:
        must(data is not None, "data", "must be given: what local people are asked follows from trusted people", "none")
        must_declare(study, data := with_public(data, study.people.public))
        how: dict[str, Any] = {"table": table, "local_people": local, "ledger": ledger, "rng": rng}
        release(data, task, columns, invite_out=place, purpose=str(name), **how)
    return {"question": name, "invitation": str(place), **read_invitation(place).about}


def _first_phase(
    study: Declaration, data: Any, trust: Any, local_people: int | None, run: Mapping[str, Any]
) -> Release:
    """What is known of a study's only number, and the invitation that follows from it for those who are asked later.

    A mean is told by the trusted people alone, and `local_people` is how many will be asked; quantiles by everybody who
    has been heard. The invitation names what was charged in the ledger.
    """
    question: Any = study.questions[0]
    rule = "must go with the mean or the quantiles of a study's only question"
    alone = len(study.questions) == 1 and question.in_phases
    must(alone and not study.promise.personal and study.mixer is None, "invite-out", rule, "another question")
    columns = columns_of(study, 0, trust)
    if question.statistics == ("mean",):
        rule = "must not join the first phase of a mean: trusted people alone are asked"
        for name in ("tally", "phases", "collection"):
            must(not run.get(name), name, rule, "one")
        many = study.people.local if local_people is None else local_people
        steered = replace(study, questions=(replace(question, form="steered"),))  # which is refused of some means
        return release(data, SteeredTask(mean_task(steered, 0)), columns, local_people=many, **run)
    must(local_people is None, "local-people", "must go with a mean: quantiles are asked around, however many", "it")
    counted = number_task(study, 0)
    must(isinstance(counted, DistributionTask), "invite-out", rule, "both")
    return release(data, counted, columns, **run)
