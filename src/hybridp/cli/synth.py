"""`hybridp synth`: fit a private synthetic data set, ask it, sample it, and say how good it is.

What is public of a table is stated alike for `synth fit`, `randomise synth` and `plan synth`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from hybridp.cli import app
from hybridp.cli import options as cli_options
from hybridp.cli.app import count, insist_option, note, number, rows_argument, show_release, table
from hybridp.cli.options import Options, command, given, some, telling
from hybridp.cli.releasing import Releasing
from hybridp.errors import Fields, InvalidInput, TrustRule, Trusts, field, must
from hybridp.public.envelope import read_json
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import MISSING, Feature, Schema, Workload, default_workload, listed_workload
from hybridp.public.study import Promise
from hybridp.public.synth import usual_method

__all__ = ["StatedSchema", "answer", "fit", "invite", "report", "sample", "workload_of"]

_model = click.argument("model", type=app.FOLDER_PATH)


# --- what is public ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StatedSchema(Fields):
    """Which columns, and what is public of them: what a fit and its devices are told alike."""

    columns: tuple[str, ...] = field(
        (), help="The columns of the data set; all of the schema's unless given.", option="column"
    )
    schema: Path | None = field(None, help="JSON with the public values or edges of the columns.")
    bins: tuple[str, ...] = field((), help='Public edges of a number, "age=0,18,65"; or how many values, "sex=2".')
    other: str | None = field(
        None,
        help="What is missing or not listed counts as a column's last value, or as a category of its own, unless the "
        "schema says so of the column. A table needs it, or the schema's word.",
        choices=("last", "missing"),
    )

    def features(self, rows: Any = None, *, table: str | None = None) -> tuple[Schema, tuple[str, ...]]:
        """The features, and the names of those whose values were read from the rows, where these may be looked at."""
        binned = {made.name: made for made in map(_binned, self.bins)}
        known = ({} if self.schema is None else _features_of(self.schema)) | binned
        names = list(dict.fromkeys(self.columns)) or list(known)
        must(bool(names), "columns", "must be named, or a schema must list them", "neither")
        for name in binned if self.columns else ():
            must(name in names, "bins", "must be of one of the columns", f"`{name}`")
        read = tuple(name for name in names if name not in known)
        if read and rows is None:
            raise InvalidInput(
                "`columns` must have public values: list them in --schema, cut them by --bins, or, for a fit, declare "
                f"the file's own values public with --domain-from-file. Got `{read[0]}`."
            )
        if read:
            from hybridp.curator.models import read_domain

            known |= read_domain(rows, read, table=table)
        return Schema(tuple(known[name] for name in names)).counting(self.other), read


def _features_of(file: Path) -> dict[str, Feature]:
    """A schema file: {"features": [{"name", "values" or "edges", "missing"}]}, or {name: values} for categories."""
    said = read_json(file, "schema", "must be a readable JSON file", str(file))
    listed: Any = said.get("features", said) if isinstance(said, dict) else None
    if isinstance(listed, Mapping):
        listed = [{"name": name, "values": values} for name, values in listed.items()]
    ok = isinstance(listed, list) and listed and all(isinstance(one, dict) for one in listed)
    must(bool(ok), "schema", "must list features with values or edges", file)
    result = {feature.name: feature for feature in map(_feature, listed)}
    must(len(result) == len(listed), "schema", "must name every feature once", file)
    return result


def _feature(said: Mapping[str, Any]) -> Feature:
    """One column; a number in place of its values, {name: 85}, stands for the whole numbers from 0 to 84."""

    def numeric(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

    name, values, edges, missing = (said.get(key) for key in ("name", "values", "edges", "missing"))
    if isinstance(values, int) and not isinstance(values, bool):
        rule = "must be a list of values, or how many whole numbers from 0 there are: from 2 to 65536"
        must(2 <= values <= 65_536, f"schema of {name}", rule, values)
        values = list(range(values))
    listed: Any = edges or values
    ok = isinstance(name, str) and bool(name) and isinstance(missing, bool | str | None) and isinstance(listed, list)
    ok = ok and all(numeric(one) or (not edges and isinstance(one, str)) for one in listed)
    rule = "must have a name, a list of values or of edges, and perhaps missing: true or one of the values"
    must(ok, "schema", rule, repr(name))
    labels = [str(one) for one in listed]
    if missing is True and labels and labels[-1] == MISSING:  # a saved schema lists it among the values
        labels.pop()
    made = (Feature.binned(str(name), edges, missing=missing is True) if edges
            else Feature.categorical(str(name), labels, missing=missing is True))  # fmt: skip
    return replace(made, absent=missing if isinstance(missing, str) else None)


def _binned(text: str) -> Feature:
    """A column by its edges, age=0,18,65,100, or by how many values it has, sex=2."""
    name, sign, cuts = text.partition("=")
    try:
        edges = [float(cut) for cut in cuts.split(",")]
    except ValueError:
        edges = []
    must(bool(sign and name.strip() and edges), "bins", 'must be written like "age=0,18,65,100"', repr(text))
    sized = len(edges) == 1 and edges[0].is_integer()
    return _feature({"name": name.strip(), **({"values": int(edges[0])} if sized else {"edges": edges})})


def workload_of(schema: Schema, asked: Mapping[str, Any], *, local: bool = False) -> tuple[Workload, str]:
    """The workload that options state, by the names of the fields of a table's question, and how it is usually fitted.

    Where none is stated: all pairs of columns, of which an adaptive fit measures those that matter. `local` people must
    be told the marginals.
    """
    must(bool(asked["marginals"]) or not local, "marginals", "must be given where local people take part", "none")
    if not asked["marginals"]:
        return default_workload(schema), "adaptive"
    workload = listed_workload(schema, asked["marginals"])
    return workload, usual_method(workload)


# --- fit --------------------------------------------------------------------------------------------------------------


@command(
    "fit", rows_argument, cli_options.trust_options(devices=True), insist_option,
    click.option("--domain-from-file", is_flag=True,
                 help="Read the values of other columns from FILE. They are then NOT protected: for public domains and "
                 "rehearsals."),
    click.option("--out", type=app.FOLDER_PATH,
                 help="The model's new folder, FILE's name with -model unless given."),
    stated=StatedSchema,
    question=some("table", later=True),
    stated_promise=some(Promise, "epsilon", "delta", later=True),
    asked=some(Releasing, "simulate_local", "assume_mechanism", "ledger", "seed", "table", "as_json", "full", "invite"),
)  # fmt: skip
def fit(
    file: Any, stated: StatedSchema, domain_from_file: bool, question: Options, trust: Trusts | None,
    stated_promise: Options, asked: Releasing, out: Path | None,
) -> None:  # fmt: skip
    """Fit a synthetic data set to a table, one person a row, with a privacy receipt.

    Everybody trusts the curator unless --trust names the column that says who does. Local rows then hold reports, as
    `hybridp randomise synth` writes them for the same --schema, --marginals and --epsilon; with --invite, those of
    people who were asked about the marginals that a fit to the trusted rows chose.

    Without --marginals, the marginals of all pairs of columns count (of all triples, too, up to 18
    columns), and --method adaptive measures those that matter. Without --delta it is 1/n^2 for the n people in FILE.

    It is whole or nothing: an interrupted fit costs nothing, and leaves nothing.
    """
    from hybridp.curator.sums import count_people
    from hybridp.protocols.invited import fit_file, release_invited
    from hybridp.tasks.table import TableTask
    from hybridp.tasks.transcript import must_be_new, read_invitation, save_model

    if out is None:  # the rows' file's own name, in the folder where the command runs
        must(file.engine == "duckdb", "--out", "must be given for rows that are in no file", "none")
        out = Path(f"{Path(str(file.location)).stem}-model")
    how: dict[str, Any] = {"table": asked.table, "assume_mechanism": asked.assume_mechanism, "ledger": asked.ledger}
    if asked.invite is not None:  # which these rows answer (without `trust`, all of them); no trusted row is read again
        purpose = f"synthetic data of {', '.join(read_invitation(asked.invite, 'synthetic data').names)}"
        cli_options.must_not_join("invite", "column", "schema", "bins", "other", "marginals", "epsilon", "delta",
                      "domain-from-file", "method", "rows", "trial-opt-in", "simulate-local", "seed")  # fmt: skip
        must_be_new(out, "out")
        with asked.working():
            result: Any = release_invited(file, asked.invite, trust=trust, purpose=purpose, **how)
            save_model(result, out)
        return asked.finish(result, spent=False, model=out)
    app.needed("epsilon", stated_promise.values["epsilon"], "--invite, whose invitation states it")
    schema, read = stated.features(file if domain_from_file else None, table=asked.table)
    promise, (workload, usual) = stated_promise(), workload_of(schema, question.values, local=bool(trust))
    chosen: Any = question.values["method"] or usual
    if trust:
        must(not question.values["method"], "method", "must be left out with --trust, which has its own", "one")
        chosen = "mixed"
    elif asked.simulate_local or asked.assume_mechanism:
        raise InvalidInput("`simulate-local` and `assume-mechanism` must go with --trust. Got no column of trust.")
    delta = promise.delta
    if not given("delta"):  # how many people there are is public
        everybody = count_people(file, TrustRule(everyone="trusted"), None, None, answers={}, table=asked.table)
        delta = max(everybody.trusted, 2) ** -2.0
    app.check_delta(delta)
    must(delta > 0, "delta", "must be positive", f"{delta:g}")
    guarantee = ApproxDP(promise.epsilon, delta)
    task = TableTask(workload, guarantee, chosen, read=read, rows=question.values["rows"])
    if read:
        note(f"NOT PROTECTED: which values occur in {', '.join(read)} was read from the file.")
    how |= {"folder": out, "simulate_local": asked.simulate_local, "rng": asked.rng}
    with asked.working(f"measuring and fitting, {len(task.plan)} rounds"):
        how["purpose"] = f"synthetic data of {', '.join(schema.names)}"
        result = fit_file(file, task, trust, **how)
    asked.finish(result, spent=False, model=out)


# --- a saved model ----------------------------------------------------------------------------------------------------


def _load(folder: Path) -> Any:
    from hybridp.tasks.transcript import load_model

    return load_model(folder)


@telling(
    "invite",
    _model,
    click.option("--out", type=app.FILE_PATH, required=True, help="The new file of the invitation."),
)
def invite(model: Path, out: Path) -> Any:
    """Write the invitation for the devices of local people: the marginals that the trusted people's MODEL chose.

    MODEL was fitted by `synth fit --method adaptive` to the trusted rows, which paid for the choice: the invitation is
    free. `hybridp randomise INVITATION.json` answers it, and `synth fit --invite` blends both groups.
    """
    from hybridp.tasks.transcript import write_invitation

    sent = write_invitation(model, out)
    about, (trusted, _) = sent.about, sent.task.people or (0, 0)

    def show() -> None:
        rows = [(", ".join(one["columns"]), f"{one['cells']:,}", f"{100 * one['drawn_by']:.3g} %")
                for one in about["marginals"]]  # fmt: skip
        title = f"{len(rows)} marginals that {trusted:,} trusted people chose; the invitation is in {out}"
        table(title, ["marginal", "cells", "drawn by"], rows)

    return {"invitation": str(out), **about, "simulated": sent.simulated}, show


@command(
    "answer", _model, click.argument("query", required=False),
    click.option("--by", multiple=True, help="A column, or several (A,B): one answer for each of their values."),
    click.option("--column", "of", help="The mean of this column of numbers, in place of the share of people."),
    asked=some(Releasing, "level", "out", "plot", "as_json", "full"),
)  # fmt: skip
def answer(model: Path, query: str | None, by: tuple[str, ...], of: str | None, asked: Releasing) -> None:
    """The share of people for whom QUERY holds, or a mean among them, with its uncertainty. Free: nothing is spent.

    QUERY is made of atoms (sex=Female, age=30..39, race!=White, education=Masters|Doctorate), `and`, `or`, `not`,
    parentheses, and "at least 2 of: ...", "at most ...", "exactly ...". With --by or --column it may be left out.
    """
    if query is None and not by and of is None:
        raise InvalidInput("`query` must be given, or --by, or --column. Got none of them.")
    asked.finish(_load(model).ask(query, by=app.names_of(by), column=of, level=asked.level), spent=False)


@telling(
    "sample",
    _model,
    click.option("--rows", type=count, required=True, help="How many records."),
    click.option("--out", type=app.FILE_PATH, required=True, help="A new .csv or .parquet file."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
                 help="Public: decides the rounding."),
)  # fmt: skip
def sample(model: Path, rows: int, out: Path, seed: int) -> Any:
    """Synthetic records with the original columns and values. Free: nothing is read or spent."""
    if out.suffix not in (".csv", ".parquet") or not out.parent.is_dir() or out.exists():
        raise InvalidInput(f"`out` must be a new .csv or .parquet file in an existing folder. Got {out}.")
    result = _load(model)
    result.write_sample(out, rows, seed=seed)
    document = {"out": str(out), "rows": rows, "columns": list(result.schema.names), "simulated": result.simulated}
    return document, f"{rows:,} synthetic records written to {out}."


@telling("report", _model, plot=True)
def report(model: Path) -> Any:
    """How good the model is, as far as it can be told from what was paid for. Free: nothing is read or spent."""
    result = _load(model)
    utility = result.utility()
    document = result.to_dict() | {"model": str(model)}
    document["questions"]["table"]["synthetic"]["utility"] = utility

    def show(most: int = 12) -> None:
        show_release(result)
        for one in (one for one in utility["marginals"] if len(one["features"]) == 1):
            feature = result.schema.features[result.schema.index(one["features"][0])]
            shares = zip(feature.values, one["measured"], one["synthetic"], strict=True)
            rows = [(label, f"{x:.5f}", f"{y:.5f}") for label, x, y in sorted(shares, key=lambda row: -row[1])]
            title = f"{feature.name} (noise sd {number(one['noise_sd'])})"
            left = f"{len(rows) - most} more in --json." if len(rows) > most else None
            table(title, ["value", "measured", "synthetic"], rows[:most], caption=left)

    return document, show, result.plot
