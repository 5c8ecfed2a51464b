"""Questions asked of a table, alone or in a declared study, whatever they are: charge, read, draw, publish, keep.

1. The promise is split over the questions by their weights, for both groups (`hybridp.public.study`).
2. The ledger is charged for trusted people before a row is read, once, by the sum of what the questions spend; where
   the groups' sizes, which are public, decide how a promise is spent, by all of it.
3. Each task's conversation is held with the people of the table (`TablePeople`). Reports on all questions are charged
   when they are read, as one set, before any noise is drawn.
4. The answers and the receipt are kept in the ledger, as one document, before anybody can see one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial, reduce
from importlib.metadata import version
from itertools import accumulate, pairwise
from operator import add
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from hybridp import errors
from hybridp.curator import models as modelling
from hybridp.curator import sums as summing
from hybridp.curator.models import read_reports
from hybridp.curator.sums import Columns, Raw, Rows, TableLike, open_rows
from hybridp.device.files import Asked, write_reports
from hybridp.device.reports import reach_reports, simulated_reports
from hybridp.errors import LABEL, TrustRule, Trusts, drawn_trust, label_column, must
from hybridp.ledger import Charge, Ledger, Spending, together
from hybridp.noise import Randomness, secure, seeded
from hybridp.protocols.reports import load_tally, read_batches, tally_for
from hybridp.protocols.rows import CodePeople, LatticePeople, SummedPeople, report_slots, sum_reports
from hybridp.public import envelope, rounds
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import ApproxDP, Guarantee, PureDP, warned
from hybridp.public.messages import MECHANISM, Invite, OwnEpsilon, SlotReports, VectorBounds, drive, reports_digest
from hybridp.public.randomisers import Ints
from hybridp.public.rounds import Answer, Crowd, Later, Many, Numbers, Products
from hybridp.public.study import ANSWERED, ANSWERED_IN, Declaration
from hybridp.public.synth import MeasuredTable
from hybridp.release.release import ASKED_BEFORE, Release, noted, plain, values_rule
from hybridp.release.synth import SyntheticModel, digest_of
from hybridp.tasks import transcript as transcripts
from hybridp.tasks.distribution import DistributionTask, number_task
from hybridp.tasks.groups import ask_groups
from hybridp.tasks.mean import mean_task
from hybridp.tasks.steered import SteeredTask
from hybridp.tasks.table import Measure, Reported
from hybridp.tasks.task import Batches, answered_once, people_in, published, task_of
from hybridp.tasks.transcript import INVITATION, Tape, Transcript, invitation_to, kept_missing

__all__ = ["ASKED_BEFORE", "TablePeople", "Way", "ask_invited", "ask_table", "charged", "columns_of"]
__all__ += ["must_have_paid", "not_invited", "on_reports", "pay_for", "paying", "record_release", "release"]
__all__ += ["release_study", "trust_rule"]


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
    mixed_beside: Sequence[Columns] = (),
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
    them, answer the map of an invitation (`invite`) that was planned from public numbers. Rows of `mixed` hold reports
    on other questions too, in the columns `mixed_beside`.
    """
    rng = secure() if rng is None else rng
    raw = simulate_local or drawn_trust(columns.trust)
    task = study.prepared(columns)
    named = "must name the column of everybody's own epsilon" if task.personal else "must be left out"
    must((epsilon is not None) == task.personal, "epsilon", f"{named} with a {type(study).__name__}", epsilon)
    if by is not None:
        task = task.prepared_for(by, columns)
        summing.must_be_public(path, "by", by.column)
    if epsilon is not None:
        summing.must_be_public(path, "epsilon-column", epsilon)
    summing.must_read_again(path, 2 if by is not None or (raw and task.reads_again) else 1)
    purpose, digest = task.purpose(columns.names, by) if purpose is None else purpose, None
    sent = None
    text = getattr(task.named(columns.names), "text", "")
    if invite is not None:
        task, text, sent = _mapped(task, columns, invite, reports, tally, assume_mechanism)
        digest = sent.digest
    if tally is not None:
        must(not raw, "simulate_local", "must not join a tally", raw)
        # The tally's digest is that of local reports: batches charged under it would be free from then on.
        must(not mixed, "mixed", "must go without a tally", f"{len(mixed)} batches beside one")
        task.check_tally(tally)
        collection = tally.stands_in(text, collection)
        tally = replace(tally, invite=task.named(columns.names))
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
    how: dict[str, Any] = {"epsilon": epsilon, "assume": assume_mechanism, "beside": mixed_beside}
    batches = read_batches(mixed, *to_mixer, **how) if mixed else Batches()
    prepared, stated = task, columns if epsilon is None else {**plain(columns), "epsilon": epsilon}

    def answer(entries: Spending) -> tuple[Release, Any, Transcript | None]:
        task, unasked, due = prepared, prepared.by_invitation and invite_out is not None, own
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

            rounds_held: list[Any] = []
            people = TablePeople(rows, columns, rng, raw, assume_mechanism, charge, tally, batches, phases, epsilon,
                                 unasked=unasked, cells_told=sent, stack=stack)  # fmt: skip
            crowd = Crowd(columns.names, lambda middle: values_rule(columns.missing, middle), made, steered)
            if by is None:
                result: Release = drive(task.ask(crowd), people, rounds_held)
            else:
                people.rows = summing.grouped(rows, by.column, columns, *_absent(task.invite.encoding, columns))
                result = ask_groups(task, by, people, crowd)
        result = noted(result, rows.notes, text if people.assumed else None, batches.assumed)
        said = None
        if invite_out is not None:
            binned = any(getattr(answer, "binned", None) is not None for _, answer in rounds_held)
            more: dict[str, Any] = {"missing": kept_missing(columns), "simulated": result.simulated}
            more |= {"notes": rows.notes, "first_reports": (digest or people.digest) if binned else None}
            said = Transcript.of(task, columns.names, rounds_held, entries=tuple(entries), **more)
        return result, task.stated(by), said

    trial = rng.simulated or raw
    return Way(first, [] if later else own, answer, purpose, stated, trial, invite_out, digest)


def _sizes(rows: Rows, columns: Any, raw: bool) -> summing.Counted:
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
    return summing.count_rows(rows, columns.trust_column, columns.person)


def _expected(task: Any, columns: Any, sizes: Any, given: int | None, raw: bool, inviting: bool) -> int:
    """How many local people an invitation is for; where none is written, rows of people whom nobody asked are refused.

    Who is in which group is public.
    """
    if not inviting and not raw:
        if sizes.local:
            raise not_invited(columns.trust)
        return 0
    many: int = sizes.local if given is None else given
    if inviting:
        rule = "must say how many will be asked, where the file holds none of them"
        must(many >= 1, "local-people", rule, many)
        must(sizes.trusted >= 1, "trust", "must leave somebody trusted", "nobody")
    return many


def _mapped(
    task: Any, columns: Any, invite: Path, reports: Path | None, tally: Any, assume: bool
) -> tuple[Any, str, Raw]:
    """The task with the map of its invitation, the text beside every answer, and the answers. These are private
    already: they are read before the charge, which names them."""
    must(reports is None or tally is None, "reports", "must not go with a tally of them", reports)
    said = invitation_to(task, columns, invite)
    task, text = replace(task, per_axis=said.task.per_axis), said.invite.text  # type: ignore[attr-defined]
    if tally is not None:
        return task, text, _tallied(tally)
    return task, text, summing.read_slots(reports, text, said.invite.encoding.cells, assume=assume)  # type: ignore[arg-type]


def trust_rule(study: Declaration) -> TrustRule | str:
    """How a table says who trusts: the column's name where it holds `trusted` and `local`, otherwise the rule."""
    rule = study.trust
    return rule.column if rule.column is not None and not rule.trusted else rule


_WAYS = {"choice": summing.CHOICES, "table": summing.TABLES, "": summing.NUMBERS}


def _absent(encoding: Any, columns: Columns) -> tuple[str, Any]:
    """In which ways one may say what is missing, and what is said of it."""
    if encoding.way != "option":
        return summing.NUMBERS, columns.missing
    return summing.CHOICES, encoding.absent or encoding.missing or encoding.most > 0 or None


def columns_of(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds what the question asks for, and the reports on it. Options say what a missing field is."""
    question, people = study.questions[place], study.people
    known = not study.promise.personal or study.promise.epsilon_column is not None
    study.promise.must(known, "epsilon_column", "must name the column of everyone's own epsilon", "nothing")
    question.check_table(study)
    *_, mechanism = study.report_columns(question) or (MECHANISM,)
    way, several = question.entry(_WAYS), getattr(question, "columns", None)
    value = question.columns_read if way is summing.TABLES else several or question.columns_read[0]
    missing = None if way is not summing.NUMBERS else getattr(question, "missing", None)
    report, person = mechanism.removesuffix("_mechanism"), (people.column, people.record_key)
    return Columns(value, trust, report, *person, None if missing == () else missing, words=way is summing.TABLES)


# --- answers to an invitation -----------------------------------------------------------------------------------------


_Read = tuple[Raw, Batches]


def _in_rows(said: Transcript, path: Any, stack: ExitStack, how: Mapping[str, Any]) -> _Read:
    """Reports on a number, or on marginals, in a table; nobody's value is read."""
    invite, several = said.invite, said.invite.way == "marginal"
    trust = how["trust"] or TrustRule(everyone="local")  # only local people answer an invitation
    must(not drawn_trust(trust), "trial-opt-in", "must be for a trial in one go", "an invitation")
    person, value = (None, said.names) if several else (how["person"], said.names[0])
    rows = stack.enter_context(open_rows(path, table=how["table"], trust=trust, person=person, rng=secure()))
    columns = Columns(value, trust, how["report"], person, missing=None if several else "middle", words=several)
    totals = summing.read(rows, columns, invite, assume=how["assume"])
    many = totals.local.people
    must(many >= 1, "people", "must be at least 1 among those who answer", 0)
    reports = summing.binned(rows, columns, invite, many) if said.asked.bins else totals.local
    known = getattr(rows.trust, "rule", None) if several else None  # who trusts was asked before this file
    notes = tuple(note for note in rows.notes if note != known)
    return replace(totals, local=reports, notes=notes), Batches()


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
    sent = Raw(0, None, SlotReports(0, np.zeros(slots, dtype=np.int64)))
    if tally is not None:
        tally = cast(Any, load_tally(tally)) if isinstance(tally, str | PathLike) else tally
        must(tally.kind == "slots", "tally", "must be of the kind slots for this release", tally.kind)
        tally.stands_in(invite.text, None)
        must(len(tally.counts) == slots, "tally", f"must count the {slots} slots", len(tally.counts))
        sent = _tallied(tally)
    elif path is not None:
        sent = summing.read_slots(path, invite.text, slots, table=how["table"], assume=how["assume"])
    answered: Any = study.mixed_of(invite) or invite  # type: ignore[attr-defined]
    return sent, read_batches(mixed, answered, None, study.mixing, assume=how["assume"])


def _tallied(tally: Any) -> Raw:
    """The reports of a tally, which its document names."""
    return Raw(0, None, tally.summary(), tally.simulated, digest=tally.digest)


_READ = {"number": _in_rows, "line": _line, "marginal": _in_rows, "slot": _slots}


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
    later = said.charges(purpose, collection, mixed=Batches() if mixed else None)
    purpose = later[0].purpose

    def answer(entries: Spending) -> tuple[Release, Any, Transcript | None]:
        with ExitStack() as stack:
            sent, batches = _READ[said.invite.way](said, data, stack, {**how, "assume": assume_mechanism})
            due = said.charges(purpose, collection, sent.digest, mixed=batches if mixed else None)
            entries.charge(due if sent.digest is not None else due[1:])
            rounds_held, rng = list[Any](), seeded(0) if said.simulated else secure()
            marked = sent.simulated_reports or batches.simulated
            crowd = said.crowd(rng, tuple(entries), simulated_local=marked)
            last = Answer(local=sent.local, mixed=batches)
            result: Release = drive(task.ask(crowd), Tape(said, last), rounds_held)
        text = said.invite.text if sent.assumed else None
        result = noted(result, (*said.notes, *sent.notes, ASKED_BEFORE), text, batches.assumed)
        made, first = None, said.first_reports or sent.digest
        if invite_out is not None:
            more = {"entries": (*said.entries, *entries), "notes": sent.notes, "simulated": said.simulated}
            made = Transcript.of(said.task, said.names, rounds_held, first_reports=first, **more)
        return result, task.stated(None), made

    due = later if data is not None or tally is not None else later[1:]
    return Way([], due, answer, purpose, {"columns": said.names}, said.simulated, invite_out)


# --- the ledger: charge, then read, then keep what is released before anybody can see it ------------------------------


R = TypeVar("R", Release, SyntheticModel)


@contextmanager
def paying(
    ledger: Ledger | str | PathLike[str] | None, totals: Mapping[str, Guarantee], *, trial: bool
) -> Iterator[Ledger | None]:
    """The ledger; a missing file is made with these totals, and goes again if nothing was charged.

    A release that is refused must not decide what people are promised.
    """
    if ledger is None or isinstance(ledger, Ledger):
        yield ledger
        return
    place = Path(ledger)
    if place.exists():
        yield Ledger.open(place)
        return
    made = Ledger.create(place, totals, trial=trial)
    try:
        yield made
    except BaseException:
        if all(entry.state == "void" for entry in made.history()):
            place.unlink(missing_ok=True)
        raise


def charged(
    ledger: Ledger | None, charges: list[Charge], later: Sequence[Charge] = (), *, trial: bool
) -> AbstractContextManager[Spending]:
    """Charge the ledger, if there is one, around the body that reads the rows and keeps what is released.

    `later` are the charges for reports, which the body makes when it has read them.
    """
    return nullcontext(Spending()) if ledger is None else ledger.spending(charges, later, trial=trial)


def must_have_paid(ledger: Ledger | None, invite: Path) -> None:
    """Refuse a second phase in another ledger than the first: nobody would add up what both told of these people.

    The ledger that paid for an invitation keeps it, or the model whose rounds it tells. One that no ledger paid for
    belongs to none.
    """
    if ledger is None:
        return
    document = json.loads(invite.read_text())
    named = document["digest"], digest_of(document["answers"])
    same = not document.get("ledger_entries") or ledger.keeps(*named)
    must(same, "ledger", "must be the one that paid for the invitation when it was made", ledger.path)


def record_release(made: R, ledger: Ledger | None, entries: list[int], *, purpose: str, study: Any, columns: Any) -> R:
    """The release with what was asked on its receipt, and in the ledger's file before anybody can see it.

    Called inside `charged`. What is kept is the document that is published, and nothing else. Promises that protect
    hardly anybody among so many people are told as warnings, and on the receipt.
    """
    budgets = (promise.budget for promise in made.receipt.promises)
    people: Any = made.people
    people_heard = sum(people.values()) if isinstance(people, Mapping) else people
    notes = warned((b for b in budgets if isinstance(b, PureDP | ApproxDP)), people_heard)
    made = replace(made, receipt=replace(made.receipt, assumes=made.receipt.assumes + notes))
    at = None if made.receipt.simulated else datetime.now(UTC).isoformat(timespec="seconds")

    def numbered(number: int | None) -> R:
        about = {"release": number, "at": at, "version": version("hybridp"), "purpose": purpose}
        about |= {"study": study, "columns": columns}
        return replace(made, receipt=replace(made.receipt, asked=about))

    if ledger is None:
        return numbered(None)
    return numbered(ledger.keep(purpose, entries, lambda number: plain(numbered(number).to_dict())))


def on_reports(charges: list[Charge], *, trial: bool) -> tuple[list[Charge], list[Charge]]:
    """The charges to make before a row is read, and those for reports, which are named by their digest when read.

    A trial draws new reports every time, so that all of it is charged first, every time.
    """
    if trial:
        must(all(c.collection is None for c in charges), "collection", "must not name the reports of a trial", "a name")
        return charges, []
    sent = [c for c in charges if c.people.startswith(("local", "shuffled"))]
    return [c for c in charges if c not in sent], sent


# --- one question -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How one question is answered: what is charged before a row is read (`first`) and when reports are
    (`later`), and the conversation, which charges them. Reports that are known already have a `digest`: they are
    charged with what comes first, so that a refusal of them writes nothing.

    `answer` gives the release, what it states was asked, and all that was said where that is an invitation to others,
    for the new file `invite_out`.
    """

    first: list[Charge]
    later: list[Charge]
    answer: Callable[[Spending], tuple[Any, Any, Transcript | None]]
    purpose: str
    columns: Any
    trial: bool
    invite_out: Path | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        if self.invite_out is not None:
            must(not self.invite_out.exists(), "invite-out", "must name a new file", f"{self.invite_out}, which exists")
            must(self.invite_out.parent.is_dir(), "invite-out", "must lie in an existing folder", self.invite_out)


def pay_for(way: Way, ledger: Ledger | None) -> Release:
    """The release of one question: charged, answered, kept, and then shown."""
    invitation: dict[str, Any] = {}
    again = "it was kept nowhere: give a ledger for that"
    known = [replace(charge, digest=way.digest) for charge in way.later] if way.digest else []
    with charged(ledger, way.first + known, () if known else way.later, trial=way.trial) as entries:
        answer, study, said = way.answer(entries)
        if said is not None:
            invitation = said.document()
            if ledger is not None:
                number = ledger.keep(f"{INVITATION} to {said.task.called}", said.entries, lambda _: invitation)
                again = f"`hybridp ledger show {ledger.path} --release {number} --json` prints it again, for free"
        result: Release = record_release(answer, ledger, entries, purpose=way.purpose, study=study, columns=way.columns)
    if way.invite_out is not None:  # outside of what is paid for: a failure while it is written may have shown it
        try:
            envelope.save(way.invite_out, invitation, new=True)
        except OSError as error:
            raise errors.NotShown(
                f"The invitation was made, but `invite-out` {way.invite_out} could not be written ({error.strerror}); "
                f"{again}."
            ) from None
    return result


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
    summing.must_read_again(data, len(study.questions) + twice)
    data = summing.with_public(data, study.people.public)
    rule_of_mixed = "must go with a study that has a mixer: --batch, or [mixer], says how small a batch may be"
    must(not mixed or study.mixer is not None, "mixed", rule_of_mixed, f"{len(mixed)} without one")
    run: dict[str, Any] = {"table": table, "simulate_local": simulate_local, "assume_mechanism": assume_mechanism}
    run |= {"rng": rng, **({"mixed": mixed} if study.mixer is not None else {})}
    if tally is not None:
        run["tally"] = tally_for(study, tally)
        collection = run["tally"].stands_in(run["tally"].mechanism, collection)
    if phases:
        alone = len(study.questions) == 1 and study.questions[0].groups is None
        everybody = "must go with quantiles of a study's only question, for everybody"
        must(alone, "phases", everybody, f"{len(study.questions)} questions, or groups")
        run["phases"] = tuple(phases)
    if invite_out is not None:
        run |= {"invite_out": invite_out, "ledger": ledger, "collection": collection, "purpose": study.purpose}
        return _first_phase(study, data, rule, local_people, run)
    must(local_people is None, "local_people", "must go with invite_out", local_people)
    labels: Any = errors.keyed(rule, rng.words(2).tolist()) if drawn_trust(rule) else rule  # one draw for all questions
    for folder in files["model"].values():
        transcripts.must_be_new(folder)
    once = answered_once(study)
    trust_of = _heard(study, labels, run)
    ways = {q.name: _way(study, i, data, trust_of[i], files, run) for i, q in enumerate(study.questions)}
    for invite in files["invite"].values():
        must_have_paid(ledger, invite)
    first = together([charge for way in ways.values() for charge in way.first], study.purpose, once=once)
    later = together([charge for way in ways.values() for charge in way.later], study.purpose, collection, once=once)
    must(collection is None or not simulate_local, "collection", "must not name the reports of a trial", collection)
    trial = rng.simulated or simulate_local or any(way.trial for way in ways.values())
    noted, drew, answers = Spending(), None, dict[str, Any]()
    reports: dict[str, tuple[str, ...]] = {}
    with charged(ledger, first, later, trial=trial) as entries:
        if study.drawn and not simulate_local:
            for q in study.questions:  # the columns of which one at least is filled; none answer an invitation
                reports[q.name] = study.report_columns(q)[: len(getattr(q, "columns", ("one",)))]
            drew = summing.check_answers(data, labels, study.people.column, ANSWERED, reports, table=table)
            for told_in in files["reports"].values():
                summing.check_batches(data, table, ANSWERED_IN, told_in)
        for name, way in ways.items():
            answers[name] = way.answer(noted)[0]
            if drew is not None and not reports[name]:
                heard_here = people_in(answers[name])[1]
                if heard_here > drew[name]:
                    raise errors.UnusablePublicRows(
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
    rule = errors.rule_of(labels)
    if not study.drawn or rule is None:
        return [labels] * len(study.questions)
    if not run["simulate_local"]:
        return [replace(rule, answering=errors.Answering(q.name, ANSWERED)) for q in study.questions]
    key = "".join(f"{word:016x}" for word in run["rng"].words(2).tolist())
    ends = [0.0, *accumulate(study.chances.values())]
    ends[-1] = 1.0
    return [
        replace(rule, answering=errors.Answering(q.name, None, key, a, b))
        for q, (a, b) in zip(study.questions, pairwise(ends), strict=True)
    ]


def _way(study: Declaration, i: int, data: Any, trust: Any, files: Any, run: Mapping[str, Any]) -> Way:
    question, mixed = study.questions[i], run.get("mixed", ())
    task, columns, groups = task_of(study, i), columns_of(study, i, trust), question.groups
    given: dict[str, Any] = {"purpose": question.name, "epsilon": study.promise.epsilon_column}
    given["mixed_beside"] = [columns_of(study, j, None) for j in range(len(study.questions)) if mixed and j != i]
    if task.by_invitation:
        invite, reports = (files[name].get(question.name) for name in ("invite", "reports"))
        both = (invite is None) == (reports is None) or (reports is None and (bool(mixed) or "tally" in run))
        must(both, "reports", f"must be given together with the invitation, for {question.name}", reports)
        must(invite is not None or not mixed, "mixed", "must go with the invitation that its reports answer", "none")
        if invite is not None:
            must(not run["simulate_local"], "simulate_local", "must not join reports that answer an invitation", True)
            if not task.planned:
                only = columns.trust_column == LABEL  # no column says who trusts, and only local people answer
                how: dict[str, Any] = {"trust": None if only else trust, "person": columns.person, "mixed": mixed}
                how |= {"report": columns.report or "report", "tally": run.get("tally"), "purpose": question.name}
                how |= {"level": study.level, "joint": getattr(task, "joint", None)}
                how["assume_mechanism"] = run["assume_mechanism"]
                return ask_invited(invitation_to(task, columns, invite), reports, **how)
            given |= {"invite": invite, "reports": reports}
    return ask_table(data, task, columns, None if groups is None or groups.private else groups, **given, **run)


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


# --- the people of a table --------------------------------------------------------------------------------------------


_UNASKED = (
    ", and nobody asked them: make an invitation with --invite-out and reports with `hybridp randomise INVITATION.json`"
)
_UNHEARD = ": give their --reports with the --invite that they answer (`hybridp randomise INVITATION.json`)"


def not_invited(trust: Trusts | None, instead: str = _UNASKED) -> errors.UnusablePublicRows:
    """Rows of local people whom nobody asked, or whose answers are not there."""
    rows = summing.local_rows(LABEL if trust is None else label_column(trust))
    return errors.UnusablePublicRows(f"{rows}{instead}, or add --simulate-local for a trial on raw rows.")


def _paid(group: str, digest: str | None) -> None:
    """Nothing is due."""


@dataclass
class TablePeople(SummedPeople):
    """RAW: a table's trusted values, and its local reports; where local rows are `raw`, a trial draws reports here.

    Reports are paid for by `charge(group, digest)` when they are read, before anything is drawn. A `tally` stands in
    for the local rows. `phases` are the shares of local people whom a trial asks one after another.
    """

    rows: Rows
    columns: Any
    rng: Randomness
    raw: bool = False
    assume: bool = False
    charge: Callable[[str, str | None], None] = _paid
    tally: Any = None
    batches: Batches = field(default_factory=Batches)
    phases: Sequence[float] = ()
    epsilon: str | None = None
    assumed: bool = False
    simulated: bool = False
    digest: str | None = None
    says_so: str = ""
    """The line beside reports, where it is not the invitation's own."""
    unasked: bool = False
    """Whether local rows hold no report, and are not heard: local people are asked later."""
    cells_told: Raw | None = None
    """Answers to a map, which local people gave in a file of their own."""
    stack: ExitStack = field(default_factory=ExitStack)
    _kept: Any = None
    _phase: int = 0

    @property
    def _no_reports(self) -> bool:
        return self.raw or self.unasked

    def read(self, asked: Any) -> Any:
        """RAW: both groups' totals in one scan."""
        how: dict[str, Any] = {"local_raw": self._no_reports, "assume": self.assume, "says_so": self.says_so}
        if asked.invite.way == "option":
            how["joint"] = asked.joint
        else:
            how |= {"count_clipped": asked.clipped is not None, "sum_squares": asked.squares is not None}
        return summing.read(self.rows, self.columns, asked.invite, **how)

    def pay(self, totals: Any) -> Any:
        """Charge for the reports that were read."""
        self._heard(totals.local.people, totals)
        return totals

    def sizes(self, by: Grouping) -> dict[str, tuple[int, int]]:
        """How many trusted and local people each public group has."""
        return by.sized(summing.sizes_of(self.rows, by.column, self.columns.label, self.columns.person))

    def of(self, members: tuple[str, ...]) -> TablePeople:
        """The people of some groups, whose reports were paid for."""
        return replace(self, rows=summing.rows_of(self.rows, members), charge=_paid)

    def _heard(self, people: int, totals: Raw) -> None:
        self.assumed, self.digest = self.assumed or totals.assumed, totals.digest
        self.simulated = self.simulated or totals.simulated_reports or self.batches.simulated
        if people:
            self.charge("local", totals.digest)
        if self.batches.people:
            self.charge("shuffled", self.batches.digest)
        if self.tally is not None:
            self.tally.stands_in(self.tally.mechanism, self.tally.collection, local_rows=people)
            self.simulated = self.simulated or self.tally.simulated

    def numbers(self, asked: Numbers) -> Answer:
        totals, invite, binned = self.pay(self.read(asked)), asked.invite, None
        self._kept = totals, invite
        if asked.excluding and asked.heard and totals.local.people:
            raise errors.cannot_exclude()
        local = totals.local if self.tally is None else self.tally.summary()
        if self.raw and asked.heard and not (asked.bins and self.phases):
            local, binned = self._simulated(invite, bins=asked.bins)
        elif asked.bins and asked.heard and self.tally is not None:
            binned = self.tally.distribution()
        elif asked.bins and asked.heard and local.people and not self.raw:
            binned = summing.binned(self.rows, self.columns, invite, local.people)
        if asked.all_report and totals.trusted_people:
            own = summing.levels(self.rows, self.columns, invite, local_raw=self.raw)
            local = local + self._drawn(own, invite)[0]
        said = self._said(asked, totals, local, binned=binned)
        if said.trusted is None or asked.clipped is None:
            return said
        return replace(said, clipped=summing.release_clipped(totals, asked.clipped, rng=self.rng))

    def _said(self, asked: Any, totals: Any, local: Any, **more: Any) -> Answer:
        trusted = summing.release_totals(totals, asked, rng=self.rng)
        mixed = self.batches if asked.heard and self.batches.people else None
        return Answer(totals.trusted_people, trusted, local if asked.heard else None, mixed, **more)

    def between(self, asked: rounds.Between) -> Any:
        if self._kept is None:  # the rules on people and their labels: who counts takes them as kept
            self._kept = self.read(Numbers(asked.invite)), asked.invite
        totals, invite = self._kept
        return summing.count_between(
            self.rows, self.columns, invite, asked.places, asked.noise, totals.trusted_people,
            local_raw=self._no_reports, rng=self.rng,
        )  # fmt: skip

    def within(self, asked: rounds.Within) -> tuple[int, int, int]:
        levels = summing.levels(self.rows, self.columns, asked.invite, local_raw=self._no_reports)
        return summing.release_window(levels, asked.window, asked.noise, rng=self.rng)

    def _simulated(self, invite: Any, *, bins: bool = False) -> tuple[Any, Any]:
        """For a trial only: local people's raw values, randomised here instead of on their devices."""
        return self._drawn(summing.levels(self.rows, self.columns, invite, "local", chunk=2**16), invite, bins=bins)

    def _drawn(self, steps: Iterable[Ints], invite: Any, *, bins: bool = False) -> tuple[Any, Any]:
        return sum_reports(steps, partial(reach_reports, invite=invite, rng=self.rng), invite, bins=bins)

    @cached_property
    def _lots(self) -> Callable[[int, int], Any]:
        return summing.lots(self.phases, rng=self.rng)

    def later(self, asked: Later) -> Answer | None:
        """What a trial asks of people who can only be asked now; elsewhere nobody is there yet."""
        return getattr(self, f"_later_{asked.invite.way}")(asked) if self.raw else None

    def _later_number(self, asked: Later) -> Answer | None:
        invite: Any = asked.invite
        self.simulated = True
        if not asked.bins:
            return Answer(local=self._simulated(invite)[0])
        phase = self._phase
        if phase >= len(self.phases):
            return None
        self._phase += 1
        parts = enumerate(summing.levels(self.rows, self.columns, invite, "local"))
        own = (part[self._lots(chunk, len(part)) == phase] for chunk, part in parts)
        return Answer(local=self._drawn(own, invite, bins=True)[1])

    def _later_line(self, asked: Later) -> Answer:
        people = self._lattice(asked.invite.encoding.bounds)
        self.simulated = people.local.people > 0
        return people.later(asked)

    def _later_slot(self, asked: Later) -> Answer:
        """Every chunk's reports, added up; each has randomness of its own."""
        invite: Any = asked.invite
        chunks = modelling.local_slots(self._kept, invite.encoding)
        result = [report_slots(chunk, invite, rng=own) for chunk in chunks for own in self.rng.spawn(1)]
        return Answer(local=reduce(add, result) if result else None)

    # --- several numbers, records, points -----------------------------------------------------------------------------

    def _lattice(self, bounds: VectorBounds) -> LatticePeople:
        if self._kept is None:
            groups = modelling.table_rows(self.rows, self.columns, bounds, local_raw=self.raw)
            self._kept = LatticePeople(*groups, self.rng)
        result: LatticePeople = self._kept
        return result

    def products(self, asked: Products) -> tuple[int, ...]:
        return self._lattice(asked.bounds).products(asked)

    def discover(self, asked: rounds.Discover) -> Any:
        people = self._kept = modelling.sample(self.rows, self.columns, asked.share, rng=self.rng)
        rule = "must leave somebody trusted: only they can discover records"
        must(people.trusted_people > 0, "trust", rule, "nobody")
        if people.local_people and not self._no_reports:
            raise not_invited(self.columns.trust)
        self.simulated = self.raw
        records, noisy = modelling.found_records(people, asked.mechanism, rng=self.rng)
        return records, noisy.tolist(), people.discovery_people, people.estimation_people

    def slots(self, asked: rounds.Slots) -> Any:
        return list(modelling.slots_among(self._kept, asked.head, asked.noise, rng=self.rng))

    def many(self, asked: Many) -> tuple[int, int]:
        columns, raw, local = self.columns, self.raw, self.cells_told
        how: dict[str, Any] = {"local_raw": raw, "ordered": False, "dtype": np.float64}
        trusted, others = modelling.table_rows(self.rows, columns, asked.box, **how)
        if others.people and not raw and local is None:
            raise not_invited(columns.trust, _UNHEARD)
        self.simulated = self.simulated or (raw and (others.people > 0 or drawn_trust(columns.trust)))
        if local is not None:
            self.simulated, self.assumed = local.simulated_reports, local.assumed
        counts = None if local is None else local.local.counts
        people = self._kept = LatticePeople(trusted, others, self.rng, counts)
        return people.many(asked)

    def _coded(self, asked: Measure | Reported) -> CodePeople:
        if self._kept is None:
            how: dict[str, Any] = {"local_raw": self.raw, "assume": self.assume}
            groups = modelling.groups_of(self.rows, asked.schema, self.columns, asked.invite, **how)
            self._heard(groups.local_people, groups)
            self._kept = CodePeople(groups, self.rng)
        result: CodePeople = self._kept
        return result

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        return self._coded(asked).measure(asked)

    def reported(self, asked: Reported) -> Answer | None:
        return None if self.unasked else self._coded(asked).reported(asked)

    def options(self, asked: rounds.Options) -> Answer:
        totals, invite = self.pay(self.read(asked)), asked.invite
        local = totals.local
        if self.raw and asked.heard:
            held, values = totals.held, None
            if invite.encoding.excludes and np.any(held):
                raise errors.cannot_exclude()
            if held is None and asked.joint is not None:
                held = summing.rounded_cells(self.rows, self.columns, invite, asked.joint, rng=self.rng)
            if invite.encoding.most:
                values, held = held
            local = simulated_reports(held, invite, values, rng=self.rng)
        return self._said(asked, totals, local)

    # --- everybody's own epsilon --------------------------------------------------------------------------------------

    def levels(self, asked: rounds.Levels) -> dict[float, tuple[int, int]]:
        """How many people count as each epsilon. The reports of all are paid for as one set."""
        columns, each, says_so = self.columns, asked.invite.each, asked.invite.text
        names, stated = {repr(epsilon): epsilon for epsilon, _ in each}, _absent(asked.invite.encoding, columns)
        rows = summing.grouped(self.rows, str(self.epsilon), columns, *stated, tuple(names.values()))
        sizes = summing.sizes_of(rows, str(self.epsilon), columns.label, columns.person)
        self._kept = {
            epsilon: replace(self, rows=summing.rows_of(rows, (name,)), charge=_paid, says_so=says_so)
            for name, epsilon in names.items()
        }
        how: dict[str, Any] = {"local_raw": self.raw, "assume": self.assume, "says_so": says_so}
        read = [summing.read(self._kept[epsilon].rows, columns, invite, **how) for epsilon, invite in each]
        marks: Any = {name: any(getattr(one, name) for one in read) for name in ("simulated_reports", "assumed")}
        digest = None if self.raw else reports_digest(says_so, *(one.digest for one in read))
        self._heard(sum(one.local.people for one in read), Raw(0, None, digest=digest, **marks))
        return {epsilon: sizes.get(name, (0, 0)) for name, epsilon in names.items()}

    def epsilons(self, asked: rounds.Epsilons) -> Any:
        """How many trusted people have each epsilon, these times the share, and the reports by epsilon."""
        rows, columns, bounds, epsilon = self.rows, self.columns, asked.bounds, str(self.epsilon)
        if self.raw:  # a copy of the table holds the reports that devices would send, marked SIMULATED
            folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="hybridp-"))
            copy = Path(folder, "trial.parquet")
            keys = (columns.person, columns.record_key)
            devices = [Asked(Invite(bounds, OwnEpsilon(), columns.names), replace(columns, person=None))]
            columns_kept = tuple(name for name in keys if name is not None)
            write_reports(rows, devices, copy, epsilon=epsilon, kept=columns_kept, trial=True, rng=self.rng)
            trust = label_column(columns.trust) if drawn_trust(columns.trust) else columns.trust
            rows = self.stack.enter_context(open_rows(copy, trust=trust))
            columns = replace(columns, trust=trust)
        invite = Invite(bounds, OwnEpsilon(), columns.names)
        totals = self._kept = summing.read(rows, columns, invite, assume=self.assume, epsilon=epsilon)
        self._heard(totals.local.count, totals)
        reports = totals.local if self.tally is None else self.tally.summary()
        return totals.epsilons * asked.share, totals.trusted_people, reports, self.batches
