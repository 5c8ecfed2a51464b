"""A command on one question: a study that is declared on the command line, then released or randomised.

What it does is what a declared study does (`Study.release`, `Study.randomise`, `Study.invite`); an invitation that says
the rest is answered and released as it says. `hybridp.cli.tasks` lists the commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import click

from hybridp.cli.common import insist_option, progress, rows_argument
from hybridp.cli.options import (
    Later,
    Some,
    all_given,
    command,
    given,
    must_not_join,
    number_or_word,
    one_question,
    options_of,
    some,
    trust_options,
    value_of,
    who_trusts,
)
from hybridp.cli.releasing import Releasing, Writing, release_study, said_randomised
from hybridp.errors import InvalidInput
from hybridp.public.study import Declaration, Mixer, People, Promise, Question
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["TRUST", "Device", "Task", "randomise_command", "release_command"]

Option = Callable[[Any], Any]
_MIXER = some(Mixer, "batch", "delta", later=True)
_SHUFFLED = ("batch", "shuffled-delta")
_RELEASED = ("ledger", "collection", "simulate_local", "assume_mechanism", "seed", "table", "out", "plot", "as_json",
             "full")  # fmt: skip
TRUST = ("trust", "trusted-value", "local-value", "everyone", "trial-opt-in")
# What may stand beside any invitation that says the rest: on where rows are, who pays, and where the answer goes.
_WHERE = ("invite", "ledger", "assume-mechanism", "table", "out", "json", "engine", "query", "decimal", "public",
          "insist", "level", "plot", "full")  # fmt: skip
_ANSWERED = (*_WHERE, *TRUST, "epsilon", "delta", "missing", "person", "keep", "seed")


@dataclass(frozen=True, kw_only=True)
class Device:
    """What devices are told of a task: these fields of the question, of people and of the promise, and what else.

    `invited` is what an invitation is to; without `question` fields to declare, there is no other way to answer.
    """

    text: str
    fields: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    people: tuple[str, ...] = ("column",)
    promise: tuple[str, ...] = ("epsilon", "delta")
    mixer: bool = False
    invited: str = ""
    only_invited: bool = False
    more: tuple[Option, ...] = ()
    declare: Callable[..., Any] = lambda question: question()


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question as a release asks it: which of its fields are options (all unless named), and what else it is told.

    `invited` is what an invitation that says the rest is to, and `beside` names the options that may stand beside it.
    """

    question: type[Question]
    text: str
    fields: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    people: tuple[str, ...] = ("column",)
    promise: tuple[str, ...] = ("epsilon", "delta", "trusted_epsilon")
    promised: tuple[str, ...] = ("epsilon",)
    asked: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    mixer: bool = False
    invited: str = ""
    beside: tuple[str, ...] = ()
    more: tuple[Option, ...] = ()
    declare: Callable[..., Any] = lambda question: question()
    device: Device


def _command(name: str, run: Callable[..., None], text: str, groups: dict[str, Some], *options: Option) -> Any:
    """A command with these groups of options; a group without a field is none."""
    run.__doc__ = text
    for option in reversed((rows_argument, *options, options_of(**groups), insist_option)):
        run = option(run)
    return command(name)(run)


def _groups(**groups: Some | None) -> dict[str, Some]:
    return {name: group for name, group in groups.items() if group is not None}


def _people(file: Any, people: Later | None) -> tuple[Any, People]:
    """The rows, and whose they are: which columns are public (--public) is for the study to say."""
    known = People() if people is None else people()
    return replace(file, public=()), replace(known, public=file.public)


# --- release ----------------------------------------------------------------------------------------------------------


def release_command(name: str, task: Task) -> Any:
    def run(
        file: Any, trust: Trusts | None, question: Later, promise: Later, asked: Releasing, people: Later | None = None,
        mixer: Later | None = None, level: float = 0.95, **more: Any,
    ) -> None:  # fmt: skip
        _check_phase(task, file, asked)
        if asked.invite is not None and task.invited:
            _combine(task, file, trust, question, promise, people, level, asked)
            return
        stated = task.invited in ("heavy hitters", "regression")
        rule = who_trusts(trust, ", or --invite, whose invitation states it" if stated else "")
        if asked.invite_out is not None and task.invited == "mean":
            question.values["form"] = "steered"
        file, known = _people(file, people)
        declared = task.declare(question, **more)
        study = one_question(declared, promise(), trust=rule, people=known, level=level, mixer=mixer)
        release_study(study, file, asked, trial_opt_in=rule.trial_opt_in if drawn_trust(rule) else None)

    told = [one for one in (*_RELEASED, *task.asked, *(["mixed"] if task.mixer else [])) if one not in task.without]
    groups = _groups(
        question=some(task.question, *task.fields, needed=task.needed, later=True),
        people=some(People, *task.people, later=True) if task.people else None,
        promise=some(Promise, *task.promise, needed=task.promised, later=True),
        mixer=_MIXER if task.mixer else None,
        level=None if "level" in task.without else value_of(Declaration, "level"),
        asked=some(Releasing, *told),
    )
    made = _command(name, run, task.text, groups, trust_options(), *task.more)
    if task.invited == "heavy hitters":  # its second phase may read a tally in place of a file
        next(one for one in made.params if one.name == "file").required = False
    return made


def _check_phase(task: Task, file: Any, asked: Releasing) -> None:
    """Refuse options that would be passed over in silence, and phases that do not go together."""
    if asked.invite is not None and asked.invite_out is not None and task.invited != "distribution":
        raise InvalidInput("`invite` must not join `invite-out`: they are two phases. Got both.")
    second, mean = asked.invite is not None and bool(task.invited), task.invited == "mean"
    records = task.invited == "heavy hitters"
    instead = second and (asked.tally is not None or bool(asked.mixed))
    if (file is None and not instead) or (records and file is not None and asked.tally is not None):
        raise InvalidInput("`file` must be given, or --invite and --tally in its place. Got another set of them.")
    if second:
        must_not_join("invite", *(one for one in all_given() if one not in (*_WHERE, *task.beside)))
        return
    if task.invited and not mean and task.invited != "distribution":
        must_not_join("a first phase or a trial", "assume-mechanism", "mixed", "tally")
    if asked.invite_out is None:
        must_not_join("a release in one go", "n", *(_SHUFFLED if records else ()))
    elif task.invited != "distribution":
        alone = ("form", "by", "tally", "mixed", "batch") if mean else ("plot", "out", "joint")
        must_not_join("invite-out", "simulate-local", "trial-opt-in", "collection", *alone)


def _combine(
    task: Task, file: Any, trust: Trusts | None, question: Later, promise: Later, people: Later | None, level: float,
    asked: Releasing,
) -> None:  # fmt: skip
    """Phase two: reports that answer an invitation, which says the rest."""
    from hybridp.protocols.transcript import release_invited

    assert asked.invite is not None
    stated = {**promise.values, "record": len(question.values.get("columns", ())) or None}
    own = {name: one for name, one in stated.items() if one is not None and name in ("epsilon", "delta", "record")}
    with asked.working():
        found = release_invited(
            file,
            asked.invite,
            task.invited,
            table=asked.table,
            trust=trust,
            person=None if people is None else people.values["column"],
            report=question.values.get("report") or "report",
            tally=asked.tally,
            mixed=asked.batches,
            ledger=asked.ledger,
            collection=asked.collection,
            level=level if given("level") else None,
            joint=question.values.get("joint") or None,
            asked=own if task.invited == "heavy hitters" else None,
            assume_mechanism=asked.assume_mechanism,
            invite_out=asked.invite_out,
        )
    asked.finish(found)


# --- devices ----------------------------------------------------------------------------------------------------------


def randomise_command(name: str, task: Task) -> Any:
    device = task.device

    def run(
        file: Any, trust: Trusts | None, promise: Later, asked: Writing, question: Later | None = None,
        people: Later | None = None, mixer: Later | None = None, **more: Any,
    ) -> None:  # fmt: skip
        if asked.invite is not None or device.only_invited:
            _answer(device, file, trust, question, people, promise, asked)
            return
        (file, known), stated = _people(file, people), promise()
        study = one_question(device.declare(question, **more), stated, trust=trust, people=known, mixer=mixer)
        drawn = trust.trial_opt_in if drawn_trust(trust) else None
        with progress() as bar:
            bar.add_task("randomising", total=None)
            how = {"mixed": study.mixer is not None, "trial_opt_in": drawn, **asked.run}
            found = study.randomise(file, asked.out, keep=asked.kept, **how)
        said_randomised(found, asked, found.alone(stated), found.promise, drawn=drawn is not None)

    told = ["out", "seed", "table", "as_json", *([] if device.only_invited else ["keep"])]
    told += [*(["invite"] if device.invited else []), *(["mixed"] if device.invited == "heavy hitters" else [])]
    own = "epsilon_column" in device.promise or (device.invited and not device.only_invited)
    groups = _groups(
        question=some(task.question, *device.fields, needed=device.needed, later=True) if device.fields else None,
        people=some(People, *device.people, later=True) if device.people else None,
        promise=some(Promise, *device.promise, needed=() if own else ("epsilon",), later=True),
        mixer=_MIXER if device.mixer else None,
        asked=some(Writing, *told),
    )
    trusts = trust_options(devices=True, draws=not device.only_invited)
    return _command(name, run, device.text, groups, trusts, *device.more)


def _answer(
    device: Device, file: Any, trust: Trusts | None, question: Later | None, people: Later | None, promise: Later,
    asked: Writing,
) -> None:  # fmt: skip
    """What devices do with an invitation, which says the rest but for what people accept."""
    from hybridp.protocols.devices import answer_invitation

    if asked.invite is None:
        raise click.UsageError("Missing option '--invite'.")
    if not device.only_invited:
        must_not_join("invite", *(one for one in all_given() if one not in _ANSWERED))
    values = {} if question is None else question.values
    told: dict[str, Any] = {} if people is None else {**people.values}
    told |= {"trust": trust, "person": told.pop("column", None), "kept": asked.kept, "mixed": asked.mixed, **asked.run}
    told |= {"record": tuple(values.get("columns", ())), "missing": number_or_word(values.get("missing"))}
    accepts = promise.values["epsilon"], promise.values.get("delta") or 0.0
    with progress() as bar:
        bar.add_task("randomising", total=None)
        found = answer_invitation(device.invited, file, asked.out, asked.invite, accepts=accepts, **told)
    document = found.alone(told="reports" if device.only_invited else "randomised")
    said_randomised(found, asked, document, found.promise)
