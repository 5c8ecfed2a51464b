"""`hybridp release`: publish an estimate from a table of trusted values and local reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import insist_option, needed, rows_argument
from hybridp.cli.options import (
    Later,
    command,
    given,
    must_not_join,
    one_question,
    options_of,
    some,
    trust_options,
    value_of,
    who_trusts,
)
from hybridp.cli.releasing import Releasing, present
from hybridp.cli.steered_mean import must_be_stated, release_answered, release_invited, steered_options
from hybridp.errors import InvalidInput
from hybridp.public.study import Declaration, Mixer, Number, People, Points, Promise, Records, Vector
from hybridp.public.trust import Trusts, drawn_trust

__all__ = ["heavy_hitters", "kmeans", "mean", "vector_mean"]

_PATH = click.Path(dir_okay=False, path_type=Path)
_SHOWN = 40
# What phase one of the heavy hitters decides for phase two.
_SETTLED = (
    "person", "trust", "trusted-value", "local-value", "all-trusted", "all-local", "trial-opt-in", "record-key",
    "record-id", "head", "discovery-share", "reuse", "simulate-local", "seed",
)  # fmt: skip


@command("mean")
@rows_argument
@trust_options()
@options_of(
    question=some(Number, later=True),
    people=People,
    promise=some(Promise, later=True),
    mixer=some(Mixer, "batch", "epsilon", "cap", "delta", later=True),
    level=value_of(Declaration, "level"),
    asked=Releasing,
)
@click.option("--mixed", type=_PATH, multiple=True, help="A batch that a mixer handed on; several: one option each.")
@steered_options
@insist_option
def mean(
    file: Path,
    trust: Trusts | None,
    question: Later,
    people: People,
    promise: Later,
    mixer: Later,
    level: float,
    asked: Releasing,
    mixed: tuple[Path, ...],
    steered: bool,
    invite_out: Path | None,
    local_people: int | None,
    invite: Path | None,
) -> None:
    """The mean of a column: estimate, interval, whether the groups agree, and a privacy receipt.

    Trusted rows hold the value, local rows the report that `hybridp randomise mean` wrote. With --tally all rows of
    FILE are trusted. With --by, the mean of every group. With --mixed, people whose reports went through a mixer take
    part too: --batch is the least size of a batch, from which a report's own epsilon follows; where everyone has their
    own (--epsilon-column) it is the fewest people of one epsilon in a batch.

    Steered: --invite-out asks trusted people where people lie, and writes the invitation for local people, who are
    asked later, within that window; `hybridp randomise mean --invite` answers it on the devices, and --invite blends
    their answers with what trusted people said. Where no window pays it is a mean like any other.
    """
    if invite is not None:
        asked.finish(release_answered(file, invite, trust, people.column, question.values["report"], level, asked))
        return
    must_be_stated(question)
    _mean(file, who_trusts(trust), question(), people, promise(), mixer, level, asked, mixed,
          steered=steered or invite_out is not None, invite_out=invite_out, local_people=local_people)  # fmt: skip


def _mean(
    file: Path, rule: Trusts, question: Number, people: People, promise: Promise, mixer: Later, level: float,
    asked: Releasing, mixed: tuple[Path, ...], *, steered: bool, invite_out: Path | None, local_people: int | None,
) -> None:  # fmt: skip
    """The release that the command asks for: steered, by group, of everybody's own epsilon, or plain."""
    from hybridp.protocols.asked import (
        grouping,
        joint_study,
        mean_study,
        must_declare,
        number_columns,
        personal_study,
    )
    from hybridp.protocols.groups import release_groups
    from hybridp.protocols.joint import release_joint
    from hybridp.protocols.mean import release_mean
    from hybridp.protocols.personal import release_personal_mean
    from hybridp.protocols.study import ledger_totals

    if question.joint and question.by is None:
        raise InvalidInput("`joint` must go with by, the column of the groups. Got it alone.")
    study = one_question(question, promise, trust=rule, people=people, level=level, mixer=mixer)
    must_declare(study, file)
    if steered:
        asked.finish(release_invited(file, study, rule, asked, invite_out, local_people))
        return
    must_not_join("a mean in one go", "local-people")
    _check_mixed(mixed, study, asked)
    columns, drawn = number_columns(study, 0, rule), drawn_trust(rule)
    run = {**asked.run, "purpose": f"mean of {question.column}"}
    if promise.epsilon_column is not None:
        own, tally = personal_study(study, 0), asked.tallied("personal-mean")
        run |= {"tally": tally, "mixed": mixed}
        with asked.paying(ledger_totals(study), trial=drawn) as ledger:
            found = release_personal_mean(file, own, columns, promise.epsilon_column, ledger=ledger, **run)
    else:
        usual, tally, groups = mean_study(study, 0), asked.tallied("mean"), grouping(study, 0)
        if groups is not None:
            if tally is not None:
                raise InvalidInput("`tally` must not go with --by: it holds nobody's group. Got both.")
            joint = joint_study(study, 0) if groups.private else None
            with asked.paying({"trusted": study.trusted_guarantee, "local": study.guarantee}, trial=drawn) as ledger:
                if joint is not None:
                    by_group = release_joint(file, joint, columns, ledger=ledger, **asked.run)
                else:
                    by_group = release_groups(file, usual, columns, groups, ledger=ledger, **asked.run)
            asked.finish(by_group)
            return
        with asked.paying(ledger_totals(study), trial=drawn) as ledger:
            found = release_mean(file, usual, columns, tally=tally, mixed=mixed, ledger=ledger, **run)
    asked.finish(found)


def _check_mixed(mixed: tuple[Path, ...], study: Declaration, asked: Releasing) -> None:
    if mixed and (study.mixer is None or asked.tally is not None):
        got = "both" if asked.tally is not None else "no --batch"
        raise InvalidInput(f"`mixed` must go with --batch, the least size of a batch, and without --tally. Got {got}.")


@command("vector-mean")
@rows_argument
@trust_options()
@options_of(
    question=Vector,
    people=some(People, "column"),
    promise=some(Promise, "epsilon", "delta", "trusted_epsilon", needed=("epsilon",)),
    mixer=some(Mixer, "batch", "epsilon", "cap", "delta", later=True),
    level=value_of(Declaration, "level"),
    asked=Releasing,
)
@click.option("--mixed", type=_PATH, multiple=True, help="A batch that a mixer handed on; several: one option each.")
@insist_option
def vector_mean(
    file: Path,
    trust: Trusts | None,
    question: Vector,
    people: People,
    promise: Promise,
    mixer: Later,
    level: float,
    asked: Releasing,
    mixed: tuple[Path, ...],
) -> None:
    """The mean of several columns at once: estimates, intervals, where the groups disagree, and a privacy receipt.

    Trusted rows hold the values, local rows the reports that `hybridp randomise vector-mean` wrote (NAME_report). With
    --tally all rows of FILE are trusted. The promise covers a person's whole row. With --mixed, people whose reports
    went through a mixer take part too: --batch is the least size of a batch.
    """
    from hybridp.protocols.asked import vector_columns, vector_study
    from hybridp.protocols.study import ledger_totals
    from hybridp.protocols.vector import release_vector_mean

    rule = who_trusts(trust)
    study = one_question(question, promise, trust=rule, people=people, level=level, mixer=mixer)
    _check_mixed(mixed, study, asked)
    own, columns, tally = vector_study(study, 0), vector_columns(study, 0, rule), asked.tallied("vector-mean")
    d = len(question.columns)
    run: dict[str, Any] = {"purpose": f"mean of {d} columns", "mixed": mixed, **asked.run}
    with asked.paying(ledger_totals(study), trial=drawn_trust(rule)) as ledger:
        found = release_vector_mean(file, own, columns, tally=tally, ledger=ledger, **run)
    asked.finish(found)


# --- heavy hitters ----------------------------------------------------------------------------------------------------


@command("heavy-hitters")
@rows_argument
@trust_options()
@options_of(
    question=some(Records, later=True),
    people=some(People, later=True),
    promise=some(Promise, "epsilon", "delta", later=True),
    mixer=some(Mixer, "batch", "epsilon", "cap", "delta", later=True),
    level=value_of(Declaration, "level"),
    asked=some(Releasing, "ledger", "simulate_local", "tally", "assume_mechanism", "seed", "table", "out", "plot",
               "as_json"),
)  # fmt: skip
@click.option("--invite-out", type=_PATH, help="Phase one: discover, and write the invitation for the devices.")
@click.option("--invite", type=_PATH, help="Phase two: the invitation that the reports in FILE answer.")
@click.option("--mixed", type=_PATH, multiple=True, help="Phase two: a batch that a mixer handed on; one option each.")
@insist_option
def heavy_hitters(
    file: Path | None,
    trust: Trusts | None,
    question: Later,
    people: Later,
    promise: Later,
    mixer: Later,
    level: float,
    asked: Releasing,
    invite_out: Path | None,
    invite: Path | None,
    mixed: tuple[Path, ...],
) -> None:
    """Heavy hitters: discovered by those who trust, counted by everyone.

    One record a person counts. In one go (--simulate-local, or nobody local); or in two phases: --invite-out discovers
    with the trusted people and writes the invitation, `hybridp randomise heavy-hitters` makes the reports on the
    devices, and --invite combines them: those in FILE, or without FILE those of a --tally. The invitation then says
    the rest. With --batch it states a mixer, and --mixed are the batches of people who trust it.
    """
    from hybridp.protocols import heavy_files as protocol
    from hybridp.protocols.asked import heavy_study, record_columns
    from hybridp.protocols.study import ledger_totals

    record, epsilon = question.values["columns"], promise.values["epsilon"]
    delta = promise.values["delta"] if given("delta") else None
    if len(record) > 2:
        raise InvalidInput(f"`record` must name one or two columns. Got {len(record)}.")
    if invite is not None and invite_out is not None:
        raise InvalidInput("`invite` must not join `invite-out`: they are two phases. Got both.")
    alone = file is None and asked.tally is None and not mixed
    if alone or (asked.tally is not None and file is not None) or (file is None and invite is None):
        raise InvalidInput("`file` must be given, or --invite and --tally in its place. Got another set of them.")
    if invite is not None:
        must_not_join("invite", *_SETTLED, "batch", "shuffled-epsilon", "shuffled-cap", "shuffled-delta")
        stated = {"epsilon": epsilon, "delta": delta, "record": len(record) or None}
        _combine(file, invite, stated, level, asked, mixed)
        return
    must_not_join("a first phase or a trial", "mixed")
    if invite_out is None:
        must_not_join("a release in one go", "batch", "shuffled-epsilon", "shuffled-cap", "shuffled-delta")
    assert file is not None
    for name, value in (("person", people.values["column"]), ("record", record or None), ("epsilon", epsilon),
                        ("delta", delta)):  # fmt: skip
        needed(name, value, "--invite, whose invitation states it")
    rule = who_trusts(trust, ", or --invite, whose invitation states it")
    study = one_question(question(), promise(), trust=rule, people=people(), level=level, mixer=mixer)
    own, columns = heavy_study(study, 0), record_columns(study, 0, rule)
    must_not_join("a first phase or a trial", "assume-mechanism")
    if invite_out is not None:
        must_not_join("invite-out", "simulate-local", "trial-opt-in", "plot", "out")
    with asked.paying(ledger_totals(study), trial=drawn_trust(rule)) as ledger:
        shared: dict[str, Any] = {"table": asked.table, "ledger": ledger, "rng": asked.rng}
        if invite_out is not None:
            _say_invited(protocol.write_invitation(file, own, columns, invite_out, **shared), invite_out, asked.as_json)
            return
        found = protocol.release_heavy_hitters(file, own, columns, simulate_local=asked.simulate_local, **shared)
    asked.finish(found)


# Phase two may read a tally in place of a file.
next(parameter for parameter in heavy_hitters.params if parameter.name == "file").required = False


def _combine(
    file: Path | None, invite: Path, stated: dict[str, Any], level: float, asked: Releasing, mixed: tuple[Path, ...]
) -> None:
    """Phase two: reports that answer an invitation."""
    from hybridp.protocols import heavy_files as protocol
    from hybridp.public.budgets import PureDP

    study = protocol.invited_study(invite)
    tally = asked.tallied("slots")
    totals: dict[str, Any] = {"local": study.guarantee}  # the trusted people have spent theirs
    if study.mixing is not None:
        totals["shuffled"] = PureDP(study.mixing.epsilon)
    with asked.paying(totals, trial=protocol.is_simulated(invite)) as ledger:
        found = protocol.combine_reports(
            file,
            invite,
            table=asked.table,
            tally=tally,
            mixed=mixed,
            ledger=ledger,
            level=level if given("level") else None,
            asked={name: value for name, value in stated.items() if value is not None},
            assume_mechanism=asked.assume_mechanism,
        )
    asked.finish(found)


def _say_invited(sent: Any, file: Path, as_json: bool) -> None:
    document = {
        "invitation": str(file),
        "slots": len(sent.head),
        "queries": len(sent.head.queries) - 1,
        "mechanism": sent.mechanism.name,
    }
    said = f"{document['queries']} queries discovered; the invitation for the devices is in {file}."
    present(document, lambda: click.echo(said), f"the invitation is in {file}", out_file=None, as_json=as_json)


# --- K-means ----------------------------------------------------------------------------------------------------------


@command("kmeans")
@rows_argument
@trust_options()
@options_of(
    question=Points,
    promise=some(Promise, "epsilon", "delta", needed=("epsilon",)),
    asked=Releasing,
)
@click.option("--reports", type=_PATH, help="Reports that answer --invite.")
@click.option("--invite", type=_PATH, help="The invitation that they answer.")
@insist_option
def kmeans(
    file: Path,
    trust: Trusts | None,
    question: Points,
    promise: Promise,
    asked: Releasing,
    reports: Path | None,
    invite: Path | None,
) -> None:
    """Centres of K clusters with noisy sizes and a privacy receipt; nobody's label.

    Trusted rows hold points. Local people's reports come in a file of their own (`hybridp randomise kmeans`), or their
    raw points are randomised here for a trial. Points outside the bounds are clipped.
    """
    from hybridp.protocols.asked import kmeans_study, point_columns
    from hybridp.protocols.kmeans_files import release_kmeans

    rule = who_trusts(trust)
    study = one_question(question, promise, trust=rule)
    own, columns, tally = kmeans_study(study, 0), point_columns(study, 0, rule), asked.tallied("slots")
    with asked.paying({"trusted": own.guarantee, "local": own.guarantee}, trial=drawn_trust(rule)) as ledger:
        found = release_kmeans(
            file,
            own,
            columns,
            reports=reports,
            invite=invite,
            tally=tally,
            ledger=ledger,
            purpose=f"kmeans of {', '.join(question.columns)}",
            **asked.run,
        )
    asked.finish(found)
