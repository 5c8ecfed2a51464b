"""One question asked of a table, whatever the question: charge, read, draw, publish, keep.

1. The ledger is charged for trusted people before any row is read: where the groups' sizes, which are public, decide
   how a promise is spent, all of it.
2. The task's conversation is held with the people of the table (`hybridp.protocols.rows`). Reports are charged when
   they are read, once for each set of them, before any noise is drawn.
3. The release states the answer and the receipt, and is kept in the ledger before anybody can see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from hybridp.curator import sources
from hybridp.curator import sums as summing
from hybridp.curator.models import Codes, read_reports
from hybridp.curator.sources import Columns, Raw, Rows, TableLike, count_rows, open_rows
from hybridp.errors import must
from hybridp.ledger import Ledger, Spending
from hybridp.protocols.paying import ASKED_BEFORE, Way, charged, must_have_paid, on_reports, pay_for, paying
from hybridp.protocols.reports import load_tally, read_batches
from hybridp.protocols.rows import CodePeople, TablePeople, not_invited
from hybridp.public.budgets import PureDP
from hybridp.public.groups import Grouping
from hybridp.public.messages import MECHANISM, SlotReports
from hybridp.public.rounds import Answer, Crowd, drive
from hybridp.public.study import Declaration
from hybridp.public.study.basics import TrustRule, Trusts, drawn_trust, label_column
from hybridp.randomness import Randomness, secure, seeded
from hybridp.release.receipt import noted, plain, values_rule
from hybridp.release.release import Release
from hybridp.release.synth import SyntheticModel
from hybridp.tasks import transcript as transcripts
from hybridp.tasks.groups import ask_groups
from hybridp.tasks.table import TableTask
from hybridp.tasks.task import Batches
from hybridp.tasks.transcript import Place, Tape, Transcript, invitation_to, kept_missing, must_be_new, read_invitation

__all__ = ["ask_invited", "ask_table", "columns_of", "fit_file", "fit_synth", "must_declare", "release"]
__all__ += ["release_invited", "reports_in", "trust_rule"]


def release(
    path: TableLike, study: Any, columns: Any, by: Grouping | None = None, *, ledger: Ledger | None = None, **how: Any
) -> Release:
    """Release the answer to a question from a table of trusted values and local reports (`ask_table`)."""
    return pay_for(ask_table(path, study, columns, by, **how), ledger)


def ask_table(
    path: TableLike,
    study: Any,
    columns: Any,
    by: Grouping | None = None,
    *,
    epsilon: str | None = None,
    table: str | None = None,
    simulate_local: bool = False,
    purpose: str | None = None,
    collection: str | None = None,
    tally: Any = None,
    mixed: Sequence[TableLike] = (),
    phases: Sequence[float] = (),
    invite_out: Path | None = None,
    local_people: int | None = None,
    invite: Path | None = None,
    reports: Path | None = None,
    assume_mechanism: bool = False,
    rng: Randomness | None = None,
) -> Way:
    """How a question is answered from a table of trusted values and local reports; of what may be given,
    `hybridp.Study.release` tells more.

    `columns.trust` is a column that holds `trusted` or `local`, or a `TrustRule` on other words. With `by` the answer
    is told group by group; where the study is one of people's own epsilons, the column `epsilon` holds them.

    Trusted people: the study's guarantee against whoever sees the release, under replacement of one person's data, one
    record a person; of a public group, who is in which stays what it is, as the choice of trust does. Local people: the
    guarantee of their own report, against everyone. With `simulate_local` the local rows are raw and are randomised
    here: a trial, and marked as such. The local reports are charged once, however often these very ones are used;
    `collection` may name the set, and is refused for another one. Reports name their mechanism and column, which must
    be this study's; `assume_mechanism` takes those that name none, and says so on the receipt. `reports`, or a tally of
    them, answer the map of an invitation (`invite`) that was planned from public numbers.
    """
    rng = secure() if rng is None else rng
    raw = simulate_local or drawn_trust(columns.trust)
    task = study.prepared(columns)
    named = "must name the column of everybody's own epsilon" if task.personal else "must be left out"
    must((epsilon is not None) == task.personal, "epsilon", f"{named} with a {type(study).__name__}", epsilon)
    if by is not None:
        task = task.prepared_for(by, columns)
        sources.must_be_public(path, "by", by.column)
    if epsilon is not None:
        sources.must_be_public(path, "epsilon-column", epsilon)
    sources.must_read_again(path, 2 if by is not None or (raw and task.reads_again) else 1)
    purpose, digest = task.purpose(columns.names, by) if purpose is None else purpose, None
    sent = None
    text = getattr(task.named(columns.names), "text", "")
    if invite is not None:
        task, text, sent = _mapped(task, columns, invite, reports, tally, raw, assume_mechanism)
        digest = sent.digest
    if tally is not None:
        must(not raw, "simulate_local", "must not join a tally", raw)
        # The tally's digest is that of local reports: batches charged under it would be free from then on.
        must(not mixed, "mixed", "must go without a tally", f"{len(mixed)} batches beside one")
        task.check_tally(tally, columns.names)
        collection = tally.stands_in(text, collection)
        digest = tally.digest

    alone = task.by_invitation and not raw and digest is None  # local people are asked later, if at all
    charges = [c for c in task.charges(purpose, collection) if mixed or not c.people.startswith("shuffled")]
    charges = [charge for charge in charges if charge.people == "trusted" or not alone]
    if invite is not None:  # which reports local people's are: a collection of that name holds no others
        charges = [replace(c, mechanism=text) if c.people == "local" else c for c in charges]
    first, own = on_reports(charges, trial=raw)
    # Rows are opened to see whether they hold reports.
    later = invite_out is not None and tally is None and not task.by_invitation
    after = [charge for charge in first if later and charge.people != "trusted"]
    first = [charge for charge in first if charge not in after]
    steered = bool(phases) or invite_out is not None
    if phases:
        task.check_phases(phases, trial=raw)
    if invite_out is not None:
        task.check_inviting(trial=raw)
    elif alone:
        task.check_alone()
    if steered and not task.by_invitation:
        must(bool(task.at), "at", "must be given where people are asked around quantiles", "nothing")
    if mixed:
        task.check_mixed()
    to_mixer = (task.mixed_invite, columns, task.mixing) if epsilon is None else (task.invite, columns)
    batches = read_batches(mixed, *to_mixer, epsilon=epsilon, assume=assume_mechanism)
    asked, stated = task, columns if epsilon is None else {**plain(columns), "epsilon": epsilon}

    def answer(entries: Spending) -> tuple[Release, Any, Transcript | None]:
        task, unasked, due = asked, asked.by_invitation and invite_out is not None, own
        if digest is not None:  # of reports that are known already
            entries.charge(own, digest=digest)
            due = []
        with (
            open_rows(path, table=table, trust=columns.trust, person=columns.person, rng=rng) as rows,
            ExitStack() as stack,
        ):
            if later and columns.report not in rows.columns:
                task, unasked, due = replace(task, estimator="tcm-only"), True, []
            elif later:
                entries.charge(after)
            if task.undecided:
                sizes = _sizes(rows, columns, raw)
                local = sizes.local if tally is None else tally.people
                if task.by_invitation:
                    local = _expected(task, columns, sizes, None if raw else local_people, raw, invite_out is not None)
                task = task.decided(sizes.trusted, local, batches.people)

            def charge(group: str, named: str | None) -> None:
                entries.charge([charge for charge in due if charge.people.startswith(group)], digest=named)

            def made() -> dict[str, Any]:
                return {"entries": tuple(entries), "simulated_local": people.simulated and not unasked, "rng": rng}

            heard: list[Any] = []
            people = TablePeople(rows, columns, rng, raw, assume_mechanism, charge, tally, batches, phases, epsilon,
                                 unasked=unasked, cells_told=sent, stack=stack)  # fmt: skip
            crowd = Crowd(columns.names, lambda middle: values_rule(columns.missing, middle), made, steered)
            if by is None:
                result: Release = drive(task.ask(crowd), people, heard)
            else:
                ways, absent = (sources.CHOICES, task.absent) if task.options else (sources.NUMBERS, columns.missing)
                people.rows = sources.grouped(rows, by.column, columns, ways, absent)
                result = ask_groups(task, by, people, crowd)
        result = noted(result, rows.notes, text if people.assumed else None, batches.assumed)
        said = None
        if invite_out is not None:
            told = any(getattr(answer, "binned", None) is not None for _, answer in heard)
            more: dict[str, Any] = {"missing": kept_missing(columns), "simulated": result.simulated}
            more |= {"notes": rows.notes, "first_reports": (digest or people.digest) if told else None}
            said = Transcript.of(task, columns.names, heard, entries=tuple(entries), **more)
        return result, task.stated(by), said

    trial = rng.simulated or raw
    return Way(first, [] if later else own, answer, path, purpose, stated, trial, invite_out)


def _sizes(rows: Rows, columns: Any, raw: bool) -> sources.Counted:
    """How many trusted and local people there are, which is public. What the table lacks is known before a row is read;
    where everybody is local and has reported, nobody's numbers are needed."""
    values = raw or rows.trust is None or rows.trust.everyone != "local"
    for name in columns.names if columns.words and values else ():
        rows.need("columns", name)
    for option, named in columns.reads.items():
        for name in (named,) if isinstance(named, str) else named:
            rows.need(option, name)
            if values:
                rows.need_number(name)
                rows.need_missing(name, columns.absent)
    return count_rows(rows, label_column(columns.trust), columns.person)


def _expected(task: Any, columns: Any, sizes: Any, given: int | None, raw: bool, inviting: bool) -> int:
    """How many local people an invitation is for; where none is written, rows of people whom nobody asked are refused.

    Who is in which group is public.
    """
    if not inviting and not raw:
        if sizes.local:
            raise not_invited(columns.trust, task.called)
        return 0
    many: int = sizes.local if given is None else given
    if inviting:
        rule = "must say how many will be asked, where the file holds none of them"
        must(many >= 1, "local-people", rule, many)
        must(sizes.trusted >= 1, "trust", "must leave somebody trusted", "nobody")
    return many


def _mapped(
    task: Any, columns: Any, invite: Path, reports: Path | None, tally: Any, raw: bool, assume: bool
) -> tuple[Any, str, Raw]:
    """The task with the map of its invitation, the text beside every answer, and the answers. These are private
    already: they are read before the charge, which names them."""
    must(reports is None or tally is None, "reports", "must not go with a tally of them", reports)
    must(reports is not None or tally is not None, "reports", "must be given together with the invitation", reports)
    must(not raw, "reports", "must not go with simulated local people", reports or "a tally")
    said = invitation_to(task, columns, invite)
    task, text = replace(task, per_axis=said.task.per_axis), said.invite.text  # type: ignore[attr-defined]
    if tally is not None:
        return task, text, _tallied(tally)
    return task, text, sources.read_slots(reports, text, said.invite.encoding.cells, assume=assume)  # type: ignore[arg-type]


def trust_rule(study: Declaration) -> TrustRule | str:
    """How a table says who trusts: the column's name where it holds `trusted` and `local`, otherwise the rule."""
    rule = study.trust
    return rule.column if rule.column is not None and not rule.trusted else rule


_WAYS = {"choice": sources.CHOICES, "table": sources.TABLES, "": sources.NUMBERS}


def must_declare(study: Declaration, data: Any) -> None:
    """Refuse what is not declared, before anything is opened: that a column is public by whose groups, or own epsilons,
    it is told exactly who holds what; and what a missing field counts as, where no query says that there is none."""
    for asked in study.questions:
        by = asked.groups
        if sources.asks(data) and not asked.says_missing and study.trust.everyone != "local":
            raise sources.unstated(asked.columns_read[0], asked.entry(_WAYS))
        if by is not None and not by.private:
            sources.must_be_public(data, "by", by.column)
    if study.promise.epsilon_column is not None:
        sources.must_be_public(data, "epsilon-column", study.promise.epsilon_column)


def columns_of(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds what the question asks for, and the reports on it. Options say what a missing field is."""
    question, people = study.questions[place], study.people
    question.check_table(study)
    *_, mechanism = study.report_columns(question) or (MECHANISM,)
    way, several = question.entry(_WAYS), getattr(question, "columns", None)
    value = question.columns_read if way is sources.TABLES else several or question.columns_read[0]
    missing = None if way is not sources.NUMBERS else getattr(question, "missing", None)
    report, person = mechanism.removesuffix("_mechanism"), (people.column, people.record_key, people.record_id)
    return Columns(value, trust, report, *person, None if missing == () else missing, words=way is sources.TABLES)


def reports_in(study: Declaration, place: int) -> tuple[str, ...]:
    """The columns of a table of which one at least is filled where a person reported; none answer an invitation."""
    question = study.questions[place]
    return study.report_columns(question)[: len(getattr(question, "columns", ("one",)))]


# --- a synthetic table, whose model is kept in a folder ---------------------------------------------------------------


def fit_file(
    path: TableLike,
    study: TableTask,
    trust: Trusts | None = None,
    *,
    folder: Place | None = None,
    simulate_local: bool = False,
    ledger: Ledger | Place | None = None,
    purpose: str = "synthetic data",
    rng: Randomness | None = None,
    **how: Any,
) -> SyntheticModel:
    """Fit a synthetic data set to a table; where `trust` says who trusts, to trusted rows and local reports ("mixed").

    Trusted people: the study's (epsilon, delta) against whoever sees the model, under replacement of their record, one
    record a person, by zCDP over all rounds; the number of people is public. Local people: the epsilon of their own
    report, against everyone. No row is refused: the schema declares what a field counts as that it does not list. With
    `simulate_local` local rows are raw and randomised here: a trial, and marked as such. The model is saved in a new
    `folder`. `how` names a `table`, or lets `assume_mechanism`, as in `release`.
    """
    rng = secure() if rng is None else rng
    columns = Columns(study.workload.schema.names, trust or TrustRule(everyone="trusted"), words=True)
    totals: dict[str, Any] = {"trusted": study.guarantee}
    if trust is not None or study.method == "adaptive":  # which may invite local people, charged in the same ledger
        totals["local"] = PureDP(study.guarantee.epsilon)
    trial = rng.simulated or simulate_local or drawn_trust(trust)
    must_be_new(None if folder is None else Path(folder), "out")
    with paying(ledger, totals, trial=trial) as books:
        how |= {"simulate_local": simulate_local, "ledger": books, "rng": rng}
        result: Any = release(path, study, columns, purpose=purpose, **how)
    return result if folder is None else transcripts.save_model(result, folder)


def fit_synth(
    people: Codes | Raw, study: TableTask, *, ledger: Ledger | None = None, purpose: str = "synthetic data",
    rng: Randomness | None = None,
) -> SyntheticModel:  # fmt: skip
    """The same of people whose codes, or reports, Python holds; nothing is saved, nor kept in the ledger."""
    groups = people if isinstance(people, Raw) else Raw(people.people, people)
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    rng, task = secure() if rng is None else rng, study.decided(groups.trusted_people, groups.local_people)
    with charged(ledger, task.charges(purpose, None), trial=rng.simulated or groups.simulated_reports) as entries:
        made: dict[str, Any] = {"entries": tuple(entries), "simulated_local": groups.simulated_reports, "rng": rng}
        crowd = Crowd(study.workload.schema.names, lambda middle: "", lambda: made)
        result: SyntheticModel = drive(task.ask(crowd), CodePeople(groups, rng))
        return result


# --- answers to an invitation -----------------------------------------------------------------------------------------


_Read = tuple[Raw, Batches]


def _in_rows(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Read:
    """Reports on a number, or on marginals, in a table; nobody's value is read."""
    invite, several = said.invite, said.invite.way == "marginal"
    if several:
        sources.must_not_ask(path)
    trust = how["trust"] or TrustRule(everyone="local")  # only local people answer an invitation
    must(not drawn_trust(trust), "trial-opt-in", "must be for a trial in one go", "an invitation")
    person, value = (None, said.names) if several else (how["person"], said.names[0])
    rows = stack.enter_context(open_rows(path, table=how["table"], trust=trust, person=person, rng=secure()))
    columns = Columns(value, trust, how["report"], person, missing=None if several else "middle", words=several)
    totals = summing.read(rows, columns, invite, assume=how["assume"])
    many = totals.local.people
    must(many >= 1, "people", "must be at least 1 among those who answer", 0)
    told = summing.binned(rows, columns, invite, many) if said.asked.bins else totals.local
    known = getattr(rows.trust, "rule", None) if several else None  # who trusts was asked before this file
    notes = tuple(note for note in rows.notes if note != known)
    return replace(totals, local=told, notes=notes), Batches()


def _line(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Read:
    return read_reports(path, said.invite, table=how["table"], assume=how["assume"]), Batches()


def _slots(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Read:
    invite, tally, mixed, study = said.invite, how["tally"], how["mixed"], said.task
    slots, nobody = len(invite.encoding), "must be left out with a tally, and only then"
    if mixed:  # the tally's digest is that of local reports: batches charged under it would be free from then on
        must(tally is None, "mixed", "must go without a tally", f"{len(mixed)} batches beside one")
        rule = "must answer an invitation that states a mixer (--batch)"
        must(study.mixing is not None, "mixed", rule, f"{len(mixed)} batches")
    else:
        must((path is None) == (tally is not None), "file", nobody, path)
    told = Raw(0, None, SlotReports(0, np.zeros(slots, dtype=np.int64)))
    if tally is not None:
        tally = cast(Any, load_tally(tally)) if isinstance(tally, str | PathLike) else tally
        must(tally.kind == "slots", "tally", "must be of the kind slots for this release", tally.kind)
        tally.stands_in(invite.text, None)
        must(len(tally.counts) == slots, "tally", f"must count the {slots} slots", len(tally.counts))
        told = _tallied(tally)
    elif path is not None:
        told = sources.read_slots(path, invite.text, slots, table=how["table"], assume=how["assume"])
    asked: Any = study.mixed_of(invite) or invite  # type: ignore[attr-defined]
    return told, read_batches(mixed, asked, None, study.mixing, assume=how["assume"])


def _tallied(tally: Any) -> Raw:
    """The reports of a tally, which its document names."""
    return Raw(0, None, tally.summary(), tally.simulated, digest=tally.digest)


_READ = {"number": _in_rows, "line": _line, "marginal": _in_rows, "slot": _slots}


def release_invited(
    data: Any,
    invite: Path,
    what: str | None = None,
    *,
    ledger: Ledger | str | PathLike[str] | None = None,
    asked: Mapping[str, float] | None = None,
    **how: Any,
) -> Release:
    """Answers to an invitation, blended with all that it holds. No noise is drawn and no raw value is read.

    The answers are charged once, however often they are used; others to the same invitation again, and those of a later
    phase, which other people gave, not. A ledger that is made for it holds no promise to trusted people, who have spent
    theirs. `asked` (epsilon, delta, record) is refused where the invitation states something else. `how` is as in
    `ask_invited`.
    """
    said = read_invitation(invite, what)
    promise: Any = said.task.guarantee
    states = {"epsilon": promise.epsilon, "delta": promise.delta, "record": len(said.names)}
    for name, wanted in (asked or {}).items():
        must(states[name] == wanted, name, f"must be {states[name]:g}, as in the invitation", wanted)
    mixing, way = said.task.mixing, ask_invited(said, data, **how)
    totals = {"local": promise} | ({} if mixing is None else {"shuffled": PureDP(mixing.epsilon)})
    with paying(ledger, totals, trial=said.simulated) as books:
        must_have_paid(books, invite)
        return pay_for(way, books)


def ask_invited(
    said: Transcript,
    data: Any,
    *,
    table: str | None = None,
    trust: Trusts | None = None,
    person: str | None = None,
    report: str = "report",
    tally: Any = None,
    mixed: Sequence[Any] = (),
    purpose: str | None = None,
    collection: str | None = None,
    level: float | None = None,
    joint: bool | None = None,
    assume_mechanism: bool = False,
    invite_out: Path | None = None,
) -> Way:
    """How the people of a table, or of a file of reports, answer what was said.

    They name the invitation, which must be this one; `assume_mechanism` takes those that name none, and says so on the
    receipt. A `tally` stands in for a file of answers about records, and `mixed` are batches that the invitation's
    mixer handed on. With `invite_out` the next invitation is written to that file, where there is one.
    """
    task = said.task.with_level(level, joint)
    how = {"table": table, "trust": trust, "person": person, "report": report, "tally": tally, "mixed": mixed}
    later = said.charges(purpose, collection, mixed=transcripts.NO_BATCHES if mixed else None)
    purpose = later[0].purpose

    def answer(entries: Spending) -> tuple[Release, Any, Transcript | None]:
        with ExitStack() as stack:
            sent, batches = _READ[said.invite.way](said, data, stack, {**how, "assume": assume_mechanism})
            due = said.charges(purpose, collection, sent.digest, mixed=batches if mixed else None)
            entries.charge(due if sent.digest is not None else due[1:])
            heard, rng = list[Any](), seeded(0) if said.simulated else secure()
            marked = sent.simulated_reports or batches.simulated
            crowd = said.crowd(rng, tuple(entries), simulated_local=lambda: marked)
            told = Answer(local=sent.local, mixed=batches)
            result: Release = drive(task.ask(crowd), Tape(said, told), heard)
        text = said.invite.text if sent.assumed else None
        result = noted(result, (*said.notes, *sent.notes, ASKED_BEFORE), text, batches.assumed)
        made, first = None, said.first_reports or sent.digest
        if invite_out is not None:
            more = {"entries": (*said.entries, *entries), "notes": sent.notes, "simulated": said.simulated}
            made = Transcript.of(said.task, said.names, heard, first_reports=first, **more)
        return result, task.stated(None), made

    due = later if data is not None or tally is not None else later[1:]
    return Way([], due, answer, data, purpose, {"columns": said.names}, said.simulated, invite_out)
