"""One question asked of a table, whatever the question: charge, read, draw, publish, keep.

1. The ledger is charged for trusted people before any row is read: where the groups' sizes, which are public, decide
   how a promise is spent, all of it.
2. The task's conversation is held with the people of the table (`hybridp.protocols.rows`). Reports are charged when
   they are read, once for each set of them, before any noise is drawn.
3. The release states the answer and the receipt, and is kept in the ledger before anybody can see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator.marginals import Codes
from hybridp.curator.sources import (
    CHOICES,
    NUMBERS,
    TABLES,
    Columns,
    Counted,
    Raw,
    Rows,
    Sent,
    TableLike,
    asks,
    count_rows,
    grouped,
    must_be_public,
    must_read_again,
    open_rows,
    read_slots,
    unstated,
)
from hybridp.errors import must
from hybridp.ledger import Ledger
from hybridp.protocols.invited import Draft
from hybridp.protocols.paying import charged, on_reports, paying, record_release
from hybridp.protocols.reports import read_batches
from hybridp.protocols.rows import CodePeople, TablePeople, not_invited
from hybridp.public.budgets import PureDP
from hybridp.public.groups import Grouping
from hybridp.public.messages import MECHANISM, SlotReports
from hybridp.public.rounds import Crowd, drive
from hybridp.public.study import Declaration
from hybridp.public.trust import TrustRule, Trusts, drawn_trust, label_column
from hybridp.randomness import Randomness, secure
from hybridp.release.receipt import noted, plain, values_rule
from hybridp.release.release import Release
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.groups import ask_groups
from hybridp.tasks.table import TableTask
from hybridp.tasks.task import Batches, LevelBatches
from hybridp.tasks.transcript import Place, Transcript, invitation_to, kept_missing, must_be_new, save_model

__all__ = ["columns_of", "fit_file", "fit_synth", "must_declare", "release", "reports_in", "trust_rule"]


def release(
    path: TableLike,
    study: Any,
    columns: Any,
    by: Grouping | None = None,
    *,
    epsilon: str | None = None,
    table: str | None = None,
    simulate_local: bool = False,
    ledger: Ledger | None = None,
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
) -> Release:
    """Release the answer to a question from a table of trusted values and local reports.

    `path` is a file, a URL, a `Source` or a table that Python holds (`hybridp.Source` lists the kinds), and
    `columns.trust` a column that holds `trusted` or `local`, or a `TrustRule` on other words. With `by` the answer is
    told group by group; where the study is one of people's own epsilons, the column `epsilon` holds them.

    Trusted people: the study's guarantee against whoever sees the release, under replacement of one person's data, one
    record a person; of a public group, who is in which stays what it is, as the choice of trust does. Local people: the
    guarantee of their own report, against everyone. With `simulate_local` the local rows are raw and are randomised
    here: a trial, and marked as such. The local reports are charged once, however often these very ones are used;
    `collection` may name the set, and is refused for another one. A `tally` stands in for the local rows: the table
    then holds trusted people only. Reports name their mechanism and column, which must be this study's;
    `assume_mechanism` takes those that name none, and says so on the receipt. `mixed` lists the batches that a mixer
    handed on, each a table of reports, of a study with `mixing`. `phases` are the shares of local people whom a trial
    asks one after another, each within the windows that are known by then; with `invite_out` an invitation for local
    people who are asked later is written to that file: `local_people` of them, or as many as the table has. `reports`,
    or a tally of them, answer the map of an invitation (`invite`) that was planned from public numbers.
    """
    rng = secure() if rng is None else rng
    raw = simulate_local or drawn_trust(columns.trust)
    task = study.prepared(columns)
    named = "must name the column of everybody's own epsilon" if task.personal else "must be left out"
    must((epsilon is not None) == task.personal, "epsilon", f"{named} with a {type(study).__name__}", epsilon)
    if by is not None:
        task = task.prepared_for(by, columns)
        must_be_public(path, "by", by.column)
    if epsilon is not None:
        must_be_public(path, "epsilon-column", epsilon)
    must_read_again(path, 2 if by is not None or (raw and task.reads_again) else 1)
    purpose, digest = task.purpose(columns.names, by) if purpose is None else purpose, None
    sent, draft = None, None if invite_out is None else Draft.checked(invite_out)
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
    first, own = on_reports(charges, trial=raw, digest=digest)
    # Rows are opened to see whether they hold reports.
    later = draft is not None and tally is None and not task.by_invitation
    due = [charge for charge in first if later and charge.people != "trusted"]
    first = [charge for charge in first if charge not in due]
    steered = bool(phases) or draft is not None
    if phases:
        task.check_phases(phases, trial=raw)
    if draft is not None:
        task.check_inviting(trial=raw)
    elif alone:
        task.check_alone()
    if steered and not task.by_invitation:
        must(bool(task.at), "at", "must be given where people are asked around quantiles", "nothing")
    if mixed:
        task.check_mixed()
    to_mixer = (task.mixed_invite, columns, task.mixing) if epsilon is None else (task.invite, columns)
    batches: Batches[Any] = Batches() if epsilon is None else LevelBatches()
    if mixed:
        batches = read_batches(mixed, *to_mixer, epsilon=epsilon, assume=assume_mechanism)
    unasked = task.by_invitation and draft is not None
    with (
        charged(ledger, first, [] if later else own, trial=rng.simulated or raw, path=path) as entries,
        open_rows(path, table=table, trust=columns.trust, person=columns.person, rng=rng) as rows,
    ):
        if later and columns.report not in rows.columns:
            task, unasked, own = task.trusted_only(), True, []
        elif later:
            entries.charge(due)
        if task.undecided:
            sizes = _sizes(rows, columns, raw)
            local = sizes.local if tally is None else tally.people
            if task.by_invitation:
                local = _expected(task, columns, sizes, None if raw else local_people, raw, draft is not None)
            task = task.decided(sizes.trusted, local, batches.people)

        def charge(group: str, named: str | None) -> None:
            entries.charge([charge for charge in own if charge.people.startswith(group)], digest=named)

        def made() -> dict[str, Any]:
            return {"entries": tuple(entries), "simulated_local": people.simulated and not unasked, "rng": rng}

        heard: list[Any] = []
        with ExitStack() as stack:
            people = TablePeople(rows, columns, rng, raw, assume_mechanism, charge, tally, batches, phases, epsilon,
                                 unasked=unasked, cells_told=sent, stack=stack)  # fmt: skip
            crowd = Crowd(columns.names, lambda middle: values_rule(columns.missing, middle), made, steered)
            if by is None:
                result: Release = drive(task.ask(crowd), people, heard)
            else:
                ways, absent = (CHOICES, task.absent) if task.options else (NUMBERS, columns.missing)
                people.rows = grouped(rows, by.column, columns, ways, absent)
                result = ask_groups(task, by, people, crowd)
        result = noted(result, rows.notes, text if people.assumed else None, batches.assumed)
        stated = columns if epsilon is None else {**plain(columns), "epsilon": epsilon}
        if draft is not None:
            told = any(getattr(answer, "binned", None) is not None for _, answer in heard)
            more: dict[str, Any] = {"missing": kept_missing(columns), "simulated": result.simulated}
            more |= {"notes": rows.notes, "first_reports": (digest or people.digest) if told else None}
            draft.hold(Transcript.of(task, columns.names, heard, entries=tuple(entries), **more), ledger)
        result = record_release(result, ledger, entries, purpose=purpose, study=task.stated(by), columns=stated)
    if draft is not None:
        draft.write()
    return result


def _sizes(rows: Rows, columns: Any, raw: bool) -> Counted:
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
) -> tuple[Any, str, Sent]:
    """The task with the map of its invitation, the text beside every answer, and the answers. These are private
    already: they are read before the charge, which names them."""
    must(reports is None or tally is None, "reports", "must not go with a tally of them", reports)
    must(reports is not None or tally is not None, "reports", "must be given together with the invitation", reports)
    must(not raw, "reports", "must not go with simulated local people", reports or "a tally")
    said = invitation_to(task, columns, invite)
    task, text = replace(task, per_axis=said.task.per_axis), said.invite.text  # type: ignore[attr-defined]
    if tally is not None:
        counts = np.array(tally.counts, dtype=np.int64)  # the caller names them, as of any tally
        return task, text, Sent(SlotReports(int(counts.sum()), counts), tally.simulated)
    return task, text, read_slots(reports, text, said.invite.encoding.cells, assume=assume)  # type: ignore[arg-type]


def trust_rule(study: Declaration) -> TrustRule | str:
    """How a table says who trusts: the column's name where it holds `trusted` and `local`, otherwise the rule."""
    rule = study.trust
    return rule.column if rule.column is not None and not rule.trusted else rule


_WAYS = {"choice": CHOICES, "table": TABLES, "": NUMBERS}


def must_declare(study: Declaration, data: Any) -> None:
    """Refuse what is not declared, before anything is opened: that a column is public by whose groups, or own epsilons,
    it is told exactly who holds what; and what a missing field counts as, where no query says that there is none."""
    for asked in study.questions:
        by = asked.groups
        if asks(data) and not asked.says_missing and study.trust.everyone != "local":
            raise unstated(asked.columns_read[0], asked.entry(_WAYS))
        if by is not None and not by.private:
            must_be_public(data, "by", by.column)
    if study.promise.epsilon_column is not None:
        must_be_public(data, "epsilon-column", study.promise.epsilon_column)


def columns_of(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds what the question asks for, and the reports on it. Options say what a missing field is."""
    question, people = study.questions[place], study.people
    question.check_table(study)
    *_, mechanism = study.report_columns(question) or (MECHANISM,)
    way, several = question.entry(_WAYS), getattr(question, "columns", None)
    value = question.columns_read if way is TABLES else several or question.columns_read[0]
    missing = None if way is not NUMBERS else getattr(question, "missing", None)
    report, person = mechanism.removesuffix("_mechanism"), (people.column, people.record_key, people.record_id)
    return Columns(value, trust, report, *person, None if missing == () else missing, words=way is TABLES)


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
    return result if folder is None else save_model(result, folder)


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
