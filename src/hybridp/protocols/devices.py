"""What local people's devices do, for a table of many: each value becomes a report that is private by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

from hybridp.curator.sums import Columns, batch_names, open_rows, with_public
from hybridp.device.files import Asked, draw_questions, write_reports
from hybridp.device.reports import must_accept
from hybridp.errors import Answering, TrustRule, drawn_trust, must, rule_of
from hybridp.noise import Randomness, secure
from hybridp.protocols.driver import columns_of, trust_rule
from hybridp.protocols.reports import written_levels
from hybridp.public.groups import Joint
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import BATCH
from hybridp.public.questions import KINDS
from hybridp.public.shuffling import Mixing
from hybridp.public.study import ANSWERED, ANSWERED_IN, Declaration, Promise, Question
from hybridp.tasks.records import RecordsTask
from hybridp.tasks.task import task_of
from hybridp.tasks.transcript import Transcript, invitation_to, read_invitation

__all__ = ["Randomised", "answer_invitation", "randomise_study", "written"]


@dataclass(frozen=True, slots=True)
class Randomised:
    """What was written: how many reports on each question, by which mechanism, and the columns that were left out."""

    out: str
    reports: Mapping[str, int]
    mechanisms: Mapping[str, str]
    left_out: tuple[str, ...]
    simulated: bool
    randomness: str
    mixing: Mixing | None = None
    levels: Mapping[str, Any] | None = None
    promise: PureDP | ApproxDP | None = None
    """What every report keeps by itself; None where everyone has their own epsilon, or questions differ."""
    windows: Mapping[str, Any] = field(default_factory=dict)
    """Where an invitation asks within."""

    def _told(self) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Of the file, and of the batch that a mixer hands on."""
        file = {"out": self.out, "left_out": [*self.left_out], "simulated": self.simulated}
        batch = {} if self.mixing is None else self.mixing.to_dict(max(self.reports.values()))
        return {**file, "randomness": self.randomness}, batch if self.levels is None else self.levels

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        file, batch = self._told()
        each = {name: {"randomised": sent, "mechanism": self.mechanisms[name]} for name, sent in self.reports.items()}
        return {"schema": 1, "questions": each, **file, **({"batch": dict(batch)} if batch else {})}

    def alone(self, stated: Promise | None = None) -> dict[str, Any]:
        """The same of one question alone; `stated` is what the study promises, None where an invitation says it."""
        (file, batch), ((name, sent),) = self._told(), self.reports.items()
        said: Any = self.promise if stated is None or stated.personal else stated
        promised = ("personal", 0.0) if said is None else (said.epsilon, said.delta)
        budget = dict(zip(("epsilon", "delta"), promised, strict=True))
        return {**file, "randomised": sent, "mechanism": self.mechanisms[name], **budget, **self.windows, **batch}


def written(questions: Mapping[str, Asked], data: Any, out: Any, *, rng: Randomness, **how: Any) -> Randomised:
    """The reports of a table's people on questions, by their names (`hybridp.device.files.write_reports`)."""
    asked = [*questions.values()]
    sent, left_out = write_reports(data, asked, out, rng=rng, **how)
    counts, texts = dict(zip(questions, sent, strict=True)), {n: one.invite.text for n, one in questions.items()}
    simulated, promise = rng.simulated or drawn_trust(asked[0].columns.trust), asked[-1].invite.promise
    return Randomised(str(out), counts, texts, tuple(left_out), simulated, rng.label, promise=promise)


def randomise_study(
    study: Declaration,
    data: Any,
    out: str | PathLike[str],
    *,
    table: str | None = None,
    invite: Path | None = None,
    reports: Path | None = None,
    overwrite: bool = False,
    kept: tuple[str, ...] = (),
    mixed: bool = False,
    trust: TrustRule | None = None,
    rng: Randomness | None = None,
) -> Randomised:
    """Replace every local person's answers by reports, each at its question's part of the promise (`Study.randomise`).

    Where every local person answers one drawn question, its name stands in the column `answered`; those who drew the
    one with an `invite` answer it in the file `reports`, since both must know which. `trust` stands in for the study's
    own rule.
    """
    rng = secure() if rng is None else rng
    data = with_public(data, study.people.public)
    if mixed:
        return _write_batch(study, data, out, invite, kept, {"table": table, "overwrite": overwrite}, rng)
    rule = trust_rule(study) if trust is None else trust
    beside_table = study.drawn and any(q.by_invitation for q in study.questions)
    if beside_table:
        rule_of_both = "must be given together with `reports`: every local person answers one drawn question, and the "
        rule_of_both += "reports on the invitation go to a file of their own"
        must(bool(invite and reports), "invite", rule_of_both, "one" if invite or reports else "neither")
    else:
        must(reports is None, "reports", "must go with an invitation to one of several drawn questions", reports)
    if invite is not None and not beside_table:
        return _answer_invitation(study, data, Path(out), invite, rule, table, rng)
    places = [i for i, q in enumerate(study.questions) if q.has_reports(study)]
    alone = study.questions[0]
    ok = bool(places) or not alone.reported
    must(ok, "trust.everyone", f"must be local, or a column, for reports on {alone.name}", "trusted")
    needed_for = f"must be given for `{alone.name}`, a question of kind {alone.kind}: its reports answer an invitation"
    must(bool(places), "invite", needed_for, "none")
    read = {name for i in places for name in study.questions[i].columns_read}
    # Trusted people's records and points are of use to the release; local people tell theirs elsewhere, if at all.
    elsewhere = {name for q in study.questions for name in q.columns_read} - read
    public = (q.groups.column for q in study.questions if q.groups is not None and not q.groups.private)
    kept = tuple(dict.fromkeys(name for name in (*kept, *public) if name not in elsewhere))
    own, answered, source, left_out = study.promise.epsilon_column, None, data, list[str]()
    with ExitStack() as undo, tempfile.TemporaryDirectory(prefix="hybridp-") as folder:
        beside = None
        if study.drawn:
            source = Path(folder, "drawn.parquet")
            needed = [study.people.column, own, *sorted(read), *kept, *sorted(elsewhere)]
            needed += [study.people.record_key] if beside_table else []
            left_out = draw_questions(
                data, source, column=ANSWERED, chances=study.chances, trust=rule, person=study.people.column,
                kept=tuple(dict.fromkeys(name for name in needed if name)), table=table, rng=rng,
            )  # fmt: skip
            kept, table = (*kept, ANSWERED), None
        if beside_table and invite is not None and reports is not None:
            own_rule = rule_of(rule)
            assert own_rule is not None
            invited = _invited(study)[1].name
            drew = replace(own_rule, answering=Answering(invited, ANSWERED))
            place = undo.enter_context(_unless(reports, Path(out)))
            answered = _answer_invitation(study, source, place, invite, drew, None, rng)
            with open_rows(place) as rows:  # nobody may be in it
                beside = next(((ANSWERED_IN, name, ANSWERED, invited) for name in batch_names(rows, BATCH)), None)
        asked_of = {study.questions[i].name: _asked(study, i, columns_of(study, i, rule)) for i in places}
        result = written(
            asked_of, source, out, epsilon=own, kept=kept, emptied=tuple(sorted(elsewhere)), beside=beside, table=table,
            overwrite=overwrite, rng=rng,
        )  # fmt: skip
    result = replace(result, left_out=tuple(left_out)) if study.drawn else result
    if answered is None:
        return result
    reports_of, texts = {**answered.reports, **result.reports}, {**answered.mechanisms, **result.mechanisms}
    return replace(result, reports=reports_of, mechanisms=texts)


def _asked(study: Declaration, place: int, columns: Any, *, mixed: bool = False) -> Asked:
    """A question as devices answer it, about its columns; by the word that names it where each draws one."""
    task: Any = task_of(study, place)
    invite = ((task.mixed_invite if mixed else None) or task.invite).of(columns.names)
    joint = task.joint if isinstance(getattr(task, "joint", None), Joint) else None
    return Asked(invite, columns, joint, (ANSWERED, study.questions[place].name) if study.drawn else None)


def _write_batch(
    study: Declaration, data: Any, out: str | PathLike[str], invite_file: Path | None, kept: tuple[str, ...],
    where: Mapping[str, Any], rng: Randomness,
) -> Randomised:  # fmt: skip
    """What the mixer hands on of people who trust it: the reports of a table of theirs."""
    question, levels = study.questions[0], None
    must(study.mixer is not None, "mixed", "must go with a study that has a mixer ([mixer])", "none")
    must(not kept, "keep", "must be left out of a batch: beside a mixed report it may tell whose it is", "some")
    label = study.trust.column
    if label is not None:
        with open_rows(data, table=where["table"]) as rows:
            rule = f"must hold people who trust the mixer alone, without the column `{label}` of who trusts the curator"
            must(label not in rows.columns, "data", rule, "that column")
    if question.by_invitation:
        must(invite_file is not None, "invite", f"must be given for `{question.name}`, to which reports answer", "none")
        everybody = TrustRule(everyone="local")
        return _answer_invitation(study, data, Path(out), invite_file, everybody, where["table"], rng, mixed=True)
    own = study.promise.epsilon_column
    asked = {q.name: _asked(study, i, columns_of(study, i, None), mixed=True) for i, q in enumerate(study.questions)}
    result = written(asked, data, out, mixed=True, epsilon=own, **where, rng=rng)
    if study.level_mixing is not None and own is not None:
        levels = written_levels(study.level_mixing, out, own)
    promise = None if study.mixing is None else PureDP(study.mixing.epsilon)
    return replace(result, left_out=(), mixing=study.mixing, levels=levels, promise=promise)


def _invited(study: Declaration) -> tuple[int, Question]:
    """The one question that an invitation is to."""
    named = [(i, q) for i, q in enumerate(study.questions) if q.by_invitation]
    kinds = ", ".join(name for name, one in KINDS.items() if not one.reported)
    rule = f"must be one of kind {kinds}, or a steered mean, and the only one, to answer an invitation"
    must(len(named) == 1, "questions", rule, f"{len(named)} of them")
    return named[0]


@contextmanager
def _unless(reports: Path, out: Path) -> Iterator[Path]:
    """A file that goes again where the copy that it belongs to is not written; never that copy itself."""
    new = reports.suffix.lower() == ".csv" and reports.parent.is_dir() and not reports.exists()
    must(new, "reports", "must name a new .csv file in an existing folder", reports)
    must(reports.resolve() != out.resolve(), "reports", "must be another file than the copy of the table", reports)
    try:
        yield reports
    except BaseException:
        reports.unlink(missing_ok=True)
        raise


def _answer_invitation(
    study: Declaration, data: Any, out: Path, invite: Any, trust: Any, table: str | None, rng: Randomness, *,
    mixed: bool = False,
) -> Randomised:  # fmt: skip
    """The answers to an invitation, which must be to the study's own question."""
    i, question = _invited(study)
    columns = columns_of(study, i, trust)
    said = invitation_to(task_of(study, i), columns, invite)
    return _write_answers(said, data, out, columns, {"table": table, "rng": rng}, name=question.name, mixed=mixed)


_TAKEN = {"number": ("person", "missing", "keep"), "marginal": ("keep",), "line": ("person",),
          "slot": ("person", "column", "record-key", "mixed")}  # fmt: skip
"""What may be told of the people who answer an invitation; nothing of others."""


def answer_invitation(
    data: Any,
    out: Path,
    invite: Path,
    *,
    accepts: tuple[float | None, float] | None = None,
    trust: Any = None,
    person: str | None = None,
    record: tuple[str, ...] = (),
    record_key: str | None = None,
    missing: float | str | None = None,
    kept: tuple[str, ...] = (),
    mixed: bool = False,
    table: str | None = None,
    rng: Randomness | None = None,
) -> Randomised:
    """Local people's answers to an invitation, which says the rest.

    `accepts` is the most that people accept, epsilon and delta: an invitation that asks for more is refused. Without
    `trust` all rows are local. With `mixed` people trust the mixer that an invitation to records states.
    """
    said = read_invitation(invite)
    given = {"person": person, "column": record, "record-key": record_key, "missing": missing, "keep": kept}
    refusal = f"must be left out: an answer to this invitation, to {said.task.called}, has no use for it"
    for name, value in (*given.items(), ("mixed", mixed)):
        unsaid = value is None or value is False or value == ()
        must(unsaid or name in _TAKEN.get(said.invite.way, ()), name, refusal, value)
    where: dict[str, Any] = {"table": table, "rng": secure() if rng is None else rng}
    columns = Columns(said.names, trust, person=person, missing=said.missing)
    if said.invite.way in ("number", "marginal"):
        columns = Columns(said.names[0], trust, person=person, missing=missing)
        where["kept"] = kept
    elif said.invite.way == "slot":
        must(person is not None, "person", "must be given: one record a person is reported", "nothing")
        rule = TrustRule(everyone="local") if trust is None else trust
        depth = len(said.names)
        must(len(record) == depth, "record", f"must name as many columns as the invitation, {depth}", len(record))
        columns = Columns(record, rule, None, person, record_key)
    return _write_answers(said, data, out, columns, where, mixed=mixed, accepts=accepts)


def _write_answers(
    said: Transcript, data: Any, out: Path, columns: Any, where: Mapping[str, Any], *, name: str = "",
    mixed: bool = False, accepts: tuple[float | None, float] | None = None,
) -> Randomised:  # fmt: skip
    """One report for each local person. Beside it stands the invitation that it answers, so that it cannot be taken for
    an answer to another one."""
    drawn = drawn_trust(columns.trust)
    must(not drawn, "trial-opt-in", "must be for a release: devices do not draw who trusts", "a trial")
    asked_of, mixing = said.invite, said.task.mixing if mixed else None
    if mixed:
        must(mixing is not None, "mixed", "must go with an invitation that states a mixer (--batch)", "one without")
        asked_of = cast(RecordsTask, said.task).mixed_of(asked_of)
    if accepts is not None:
        must_accept(asked_of.promise, *accepts)
    if asked_of.way not in ("number", "marginal"):
        new = out.suffix.lower() == ".csv" and out.parent.is_dir() and not out.exists()
        must(new, "out", "must name a new .csv file in an existing folder", out)
    result = written({name or said.task.called: Asked(asked_of, columns)}, data, out, **where)
    windows = {key: value for key, value in said.about.items() if key in ("window", "windows")}
    return replace(result, mixing=mixing, windows=windows)
