"""`hybridp synth`: fit a private synthetic data set, ask it, sample it, and say how good it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hybridp.cli.common import (
    count,
    insist_option,
    needed,
    note,
    number,
    progress,
    rows_argument,
    show_release,
    table,
    table_option,
    telling,
)
from hybridp.cli.options import Later, Spread, command, given, must_not_join, options_of, some, trust_options, value_of
from hybridp.cli.releasing import Releasing, present
from hybridp.cli.synth_study import SETTLED, StatedSchema, must_have_torch, study_of, workload_of
from hybridp.errors import HybridpError, InvalidInput, PromiseWarning, must
from hybridp.public.study import Declaration, Promise, Table
from hybridp.public.trust import Trusts
from hybridp.release.result import sole

__all__ = ["answer", "evaluate", "fit", "invite", "report", "sample"]

model_argument = click.argument("model", type=click.Path(file_okay=False, path_type=Path))


class Interrupted(HybridpError):
    """A fit was stopped between its rounds, or in one; its folder goes on from there."""

    exit_code = 130


# --- fit --------------------------------------------------------------------------------------------------------------


@command("fit")
@rows_argument
@click.option(
    "--domain-from-file", is_flag=True,
    help="Read the values of other columns from FILE. They are then NOT protected: for public domains and rehearsals.",
)  # fmt: skip
@trust_options(devices=True)
@options_of(
    stated=StatedSchema,
    question=some(Table, later=True),
    stated_promise=some(Promise, "epsilon", "delta", later=True),
    asked=some(Releasing, "simulate_local", "assume_mechanism", "ledger", "seed", "table", "as_json", "full"),
)
@click.option("--invite", type=click.Path(dir_okay=False, path_type=Path),
              help="Phase two: the invitation that the reports in FILE answer. It states the rest.")  # fmt: skip
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where to fit.")
@click.option("--memory", help="About the most to use (1GiB): larger tables give way to those of fewer columns.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path),
    help="The model's folder, FILE's name with -model unless given; an interrupted fit of the same settings goes on.",
)  # fmt: skip
@insist_option
def fit(
    file: Path,
    stated: StatedSchema,
    domain_from_file: bool,
    question: Later,
    trust: Trusts | None,
    stated_promise: Later,
    asked: Releasing,
    invite: Path | None,
    device: str,
    memory: str | None,
    out: Path | None,
) -> None:
    """Fit a synthetic data set to a table, one person a row, with a privacy receipt.

    Everybody trusts the curator unless --trust names the column that says who does. Local rows then hold reports, as
    `hybridp randomise synth` writes them for the same --schema, --marginals and --epsilon. With --invite FILE holds the
    reports of local people who were asked about the marginals that a fit to the trusted rows chose.

    Without --marginals and --thresholds, the marginals of all pairs of columns count (of all triples, too, up to 18
    columns), and --method adaptive measures those that matter. Without --delta it is 1/n^2 for the n people in FILE.

    The ledger is charged round by round. An interrupted fit goes on when the same command is given again, and pays
    only for what is missing.
    """
    must_have_torch()
    out = _beside(file) if out is None else out
    from hybridp.blend.relaxed import usable
    from hybridp.curator.sources import must_not_ask
    from hybridp.protocols.synth import fit_file

    usable(device)
    how: dict[str, Any] = {"table": asked.table, "assume_mechanism": asked.assume_mechanism}
    if invite is not None:
        with _warned() as told:
            found = _second_phase(file, invite, trust, out, asked, how)
        _say_fitted(found, out, told, asked)
        return
    needed("epsilon", stated_promise.values["epsilon"], "--invite, whose invitation states it")
    if asked.ledger is not None and (domain_from_file or not given("delta")):
        instead = "State --delta and --schema, or make a table of its answer first"
        must_not_ask(file, "rows are read before a charge, for the domain or the usual delta", instead)
    schema, read = stated.features(file if domain_from_file else None, table=asked.table)
    mixed = trust is not None
    study = study_of(file, schema, stated_promise(), question, asked, device=device, memory=memory, mixed=mixed)
    study = replace(study, read=read)
    if read:
        note(f"NOT PROTECTED: which values occur in {', '.join(read)} was read from the file.")
    how |= {"folder": out, "ledger": asked.ledger, "simulate_local": asked.simulate_local, "device": device}
    how |= {"purpose": f"synthetic data of {', '.join(schema.names)}", "rng": asked.rng}
    rounds = len(study.plan)
    words = f"measuring and fitting, {rounds} rounds"
    with _warned() as told, _resumable(out, rounds), asked.working(words, rounds + 1) as moved:
        found = fit_file(file, study, trust, **how, progress=lambda done, _: moved(done))
    _say_fitted(found, out, told, asked)


def _second_phase(
    file: Any, invite: Path, trust: Trusts | None, out: Path, asked: Releasing, how: dict[str, Any]
) -> Any:
    """The reports that answer an invitation (every row's without `trust`); no trusted row is read again."""
    from hybridp.protocols.synth import save_model
    from hybridp.protocols.transcript import read_invitation, release_invited

    said = read_invitation(invite, "synthetic data")
    must_not_join("invite", *SETTLED, "epsilon", "delta", "domain-from-file", "method", "rows", "device", "memory",
                  "trial-opt-in", "simulate-local", "seed")  # fmt: skip
    must(not out.exists(), "out", "must be a new folder for both groups' model", out)
    with asked.working():
        how |= {"purpose": f"synthetic data of {', '.join(said.names)}", "ledger": asked.ledger}
        found: Any = release_invited(file, invite, trust=trust, **how)
        return save_model(found, out)


def _say_fitted(found: Any, out: Path, told: list[str], asked: Releasing) -> None:
    document = found.to_dict() | {"model": str(out), "warnings": told}
    if asked.ledger is not None:
        document["ledger"] = str(asked.ledger)

    def show() -> None:
        show_release(found, full=asked.full, ledger=asked.ledger)
        click.echo(f"The model is in {out}.")

    present(
        document, show, f"`hybridp synth report {out}` shows it again, for free", out_file=None, as_json=asked.as_json
    )


def _beside(file: Any) -> Path:
    """The folder of a model where none is named: the rows' file's own name, in the folder where the command runs."""
    if file.engine != "duckdb":
        raise InvalidInput("`--out` must be given for rows that are in no file. Got none.")
    return Path(f"{Path(str(file.location)).stem}-model")


@contextmanager
def _warned() -> Iterator[list[str]]:
    """Warnings become remarks on stderr at once, and a list for programs."""
    from hybridp.protocols.synth import NoSignalWarning

    told: list[str] = []

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        told.append(str(message))
        note(f"hybridp: warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", NoSignalWarning)
        warnings.simplefilter("always", PromiseWarning)
        warnings.showwarning = show
        yield told


@contextmanager
def _resumable(out: Path, rounds: int) -> Iterator[None]:
    """However a fit ends, a sentence says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"The fit was interrupted with {_how_to_go_on(out, rounds)}.") from None
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise InvalidInput(f"The fit stopped ({problem}) with {_how_to_go_on(out, rounds)}.") from None
    except RuntimeError as error:
        if not any(sign in str(error).lower() for sign in ("out of memory", "can't allocate")):
            raise
        rule = "`rows` and the tables must fit in the device's memory"
        raise InvalidInput(f"{rule}. Got {_how_to_go_on(out, rounds)}.") from None


def _how_to_go_on(out: Path, rounds: int) -> str:
    from hybridp.protocols.synth import saved_rounds

    said = f"{saved_rounds(out)} of {rounds} rounds saved in {out}"
    return f"{said}; the same command goes on, and nothing is charged twice"


# --- a saved model ----------------------------------------------------------------------------------------------------


def _load(folder: Path) -> Any:
    must_have_torch()
    from hybridp.protocols.synth import load_model

    return load_model(folder)


def _simulated(found: Any) -> None:
    if found.simulated:
        note("SIMULATED: this is a trial, not a private release.")


def _new_file(help: str) -> Any:
    return click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help=help)


@telling("invite", model_argument, _new_file("The new file of the invitation."))
def invite(model: Path, out: Path) -> Any:
    """Write the invitation for the devices of local people: the marginals that the trusted people's MODEL chose.

    MODEL was fitted by `synth fit --method adaptive` to the trusted rows, which paid for the choice: the invitation is
    free. `randomise synth --invite` answers it, and `synth fit --invite` blends both groups.
    """
    must_have_torch()
    from hybridp.protocols.synth import write_invitation

    sent = write_invitation(model, out)
    about, (trusted, _) = sent.about, sent.task.people or (0, 0)

    def show() -> None:
        _simulated(sent)
        rows = [(", ".join(one["columns"]), f"{one['cells']:,}", f"{100 * one['drawn_by']:.3g} %")
                for one in about["marginals"]]  # fmt: skip
        title = f"{len(rows)} marginals that {trusted:,} trusted people chose; the invitation is in {out}"
        table(title, ["marginal", "cells", "drawn by"], rows)

    return {"invitation": str(out), **about, "simulated": sent.simulated}, show


@command("answer")
@model_argument
@click.argument("query", required=False)
@click.option("--by", multiple=True, help="A column, or several (A,B): one answer for each of their values.")
@click.option("--column", "of", help="The mean of this column of numbers, in place of the share of people.")
@options_of(level=value_of(Declaration, "level"), asked=some(Releasing, "out", "plot", "as_json", "full"))
def answer(
    model: Path, query: str | None, by: tuple[str, ...], of: str | None, level: float, asked: Releasing
) -> None:
    """The share of people for whom QUERY holds, or a mean among them, with its uncertainty. Free: nothing is spent.

    QUERY is made of atoms (sex=Female, age=30..39, race!=White, education=Masters|Doctorate), `and`, `or`, `not`,
    parentheses, and "at least 2 of: ...", "at most ...", "exactly ...". With --by or --column it may be left out.
    """
    if query is None and not by and of is None:
        raise InvalidInput("`query` must be given, or --by, or --column. Got none of them.")
    names = tuple(name.strip() for text in by for name in text.split(","))
    asked.finish(_load(model).ask(query, by=names, column=of, level=level), spent=False)


@telling(
    "sample",
    model_argument,
    click.option("--rows", type=count, required=True, help="How many records."),
    _new_file("A new .csv or .parquet file."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                 help="Public: decides the rounding."),
)  # fmt: skip
def sample(model: Path, rows: int, out: Path, seed: int) -> Any:
    """Synthetic records with the original columns and values. Free: nothing is read or spent."""
    if out.suffix not in (".csv", ".parquet") or not out.parent.is_dir() or out.exists():
        raise InvalidInput(f"`out` must be a new .csv or .parquet file in an existing folder. Got {out}.")
    found = _load(model)
    found.write_sample(out, rows, seed=seed)
    document = {"out": str(out), "rows": rows, "columns": list(found.schema.names), "simulated": found.simulated}
    mark = "SIMULATED: this is a trial. " if found.simulated else ""
    return document, f"{mark}{rows:,} synthetic records written to {out}."


@telling(
    "evaluate",
    model_argument,
    rows_argument,
    options_of(question=some(Table, "thresholds", "marginals", later=True)),
    table_option,
    cls=Spread,
)
def evaluate(model: Path, file: Path, question: Later, table_name: str | None) -> Any:
    """The true errors of a model against the real FILE. NOT PRIVATE: for data that is public or made up.

    Other questions than the model's own may be given, as in fit.
    """
    found = _load(model)
    from hybridp.bench import synth as bench
    from hybridp.curator.marginals import read_codes

    asked = found.workload
    if question.values["thresholds"] or question.values["marginals"]:
        asked, _ = workload_of(found.schema, question.values)
    with progress() as bar:
        bar.add_task("counting and comparing", total=None)
        codes = read_codes(file, found.schema, table=table_name)
        errors = bench.evaluate(found, codes, asked)
        errors["all_zero"] = bench.all_zero(codes, asked).to_dict()
    mark = "NOT PRIVATE: the true rows are in these figures; do not publish them."
    note(mark)
    rows = {"the model's answers": errors["settled"], "synthetic rows alone": errors["synthetic"]}
    rows |= {f"{name} questions": part for name, part in errors["classes"].items()}
    rows["answering 0 to everything"] = errors["all_zero"]
    lines = [
        (
            name,
            f"{part['queries']:,}",
            *(f"{part[k]:.5f}" for k in ("l_inf", "mean_absolute", "root_mean_square")),
            "" if part["total_variation"] is None else f"{part['total_variation']:.4f}",
        )
        for name, part in rows.items()
    ]
    columns = ["answers", "queries", "largest", "mean", "root mean square", "total variation"]
    caption = "total variation: half the sum of a marginal's errors, in the mean over marginals."
    document = {"task": "synthetic-evaluation", "mark": mark, "model": str(model), **errors}
    title = "NOT PRIVATE: true errors, in shares of people"
    return document, lambda: table(title, columns, lines, caption=caption)


@telling("report", model_argument, plot=True)
def report(model: Path) -> Any:
    """How good the model is, as far as it can be told from what was paid for. Free: nothing is read or spent."""
    found = _load(model)
    utility = found.utility()
    document = found.to_dict() | {"model": str(model)}
    sole(document)["utility"] = utility

    def show() -> None:
        show_release(found)
        for one in utility["marginals"]:
            if len(one["features"]) == 1:
                _marginal(found.schema.features[found.schema.index(one["features"][0])], one)

    return document, show, found.plot


def _marginal(feature: Any, one: dict[str, Any], *, most: int = 12) -> None:
    shares = sorted(zip(feature.values, one["measured"], one["synthetic"], strict=True), key=lambda row: -row[1])
    left = len(shares) - most
    table(
        f"{feature.name} (noise sd {number(one['noise_sd'])})",
        ["value", "measured", "synthetic"],
        [(label, f"{measured:.5f}", f"{synthetic:.5f}") for label, measured, synthetic in shares[:most]],
        caption=f"{left} more in --json." if left > 0 else None,
    )
