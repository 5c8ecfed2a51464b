"""The public schema that `hybridp synth fit` and `hybridp plan synth` are told, and that plan."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import count, note, show_plan
from hybridp.cli.options import Later, command, options_of, some
from hybridp.cli.releasing import Releasing
from hybridp.errors import InvalidInput, must
from hybridp.public.study import Promise, Table

if TYPE_CHECKING:
    from hybridp.public.queries import Feature, Schema, Workload

__all__ = ["features_of", "must_have_torch", "plan", "public_schema", "schema_options", "study_of"]
__all__ += ["workload_of"]


def schema_options(function: Any) -> Any:
    """Which columns, and their public values: what a fit and the devices that report to it are told alike."""
    for option in (
        click.option(
            "--other", type=click.Choice(["last", "missing"]),
            help="What is missing or not listed counts as a column's last value, or as a category of its own, unless "
            "the schema says so of the column. A table needs it, or the schema's word.",
        ),
        click.option(
            "--bins", multiple=True, help='Public edges of a number, "age=0,18,65"; or how many values, "sex=2".'
        ),
        click.option(
            "--schema", "schema_file", type=click.Path(dir_okay=False, path_type=Path),
            help="JSON with the public values or edges of the columns.",
        ),
        click.option(
            "--column", "columns", multiple=True, help="The columns of the data set; all of the schema's unless given."
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def must_have_torch() -> None:
    """Refuse where the extra is not installed."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise InvalidInput("`synth` must have torch installed (the extra `synth`). Got no torch.")


def public_schema(
    file: Path | None,
    columns: Sequence[str],
    *,
    schema_file: Path | None,
    bins: Sequence[str],
    domain_from_file: bool = False,
    other: str | None = None,
    table: str | None = None,
) -> tuple[Schema, tuple[str, ...]]:
    """The features of the fit, and the names of those whose values were read from the rows."""
    from hybridp.public.queries import Schema

    known = {} if schema_file is None else features_of(schema_file)
    for text in bins:
        made = _binned(text)
        known[made.name] = made
    names = list(dict.fromkeys(columns)) or list(known)
    must(bool(names), "columns", "must be named, or a schema must list them", "neither")
    if columns:
        for text in bins:
            asked = _binned(text).name
            must(asked in names, "bins", "must be of one of the columns", f"`{asked}`")
    read = tuple(name for name in names if name not in known)
    if read and file is None:
        raise InvalidInput(f"`columns` must have public values: give --schema or --bins. Got `{read[0]}`.")
    if read and not domain_from_file:
        raise InvalidInput(
            "`columns` must have public values: list them in --schema, cut them by --bins, or declare the file's own "
            f"values public with --domain-from-file. Got `{read[0]}`."
        )
    if read and file is not None:
        from hybridp.curator.marginals import read_domain

        known |= read_domain(file, read, table=table)
    return Schema(tuple(known[name] for name in names)).counting(other), read


def features_of(file: Path) -> dict[str, Feature]:
    """A schema file: {"features": [{"name", "values" or "edges", "missing"}]}, or {name: values} for categories.

    A number in place of the values, {name: 85}, stands for the whole numbers from 0 to 84.
    """
    try:
        kept = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        problem = InvalidInput(f"`schema` must be a readable JSON file. Got {file} ({type(error).__name__}).")
    else:
        listed = kept.get("features", kept) if isinstance(kept, dict) else None
        if isinstance(listed, Mapping):
            listed = [{"name": name, "values": values} for name, values in listed.items()]
        if isinstance(listed, list) and listed and all(isinstance(one, dict) for one in listed):
            found = [_feature(one) for one in listed]
            must(len({f.name for f in found}) == len(found), "schema", "must name every feature once", file)
            return {feature.name: feature for feature in found}
        problem = InvalidInput(f"`schema` must list features with values or edges. Got {file}.")
    raise problem


def _feature(kept: dict[str, Any]) -> Feature:
    from hybridp.public.queries import MISSING, Feature

    name, values, edges, missing = (kept.get(key) for key in ("name", "values", "edges", "missing"))
    rule = "must have a name, a list of values or of edges, and perhaps missing: true or one of the values"
    must(isinstance(name, str) and bool(name), "schema", rule, repr(name))
    must(missing in (None, True, False) or isinstance(missing, str), f"schema of {name}", rule, repr(missing))
    counted = missing if isinstance(missing, str) else kept.get("absent")
    missing = missing is True
    if edges:
        must(isinstance(edges, list) and all(_is_number(e) for e in edges), f"schema of {name}", rule, "other edges")
        return replace(Feature.binned(str(name), edges, missing=missing), absent=counted)
    if isinstance(values, int) and not isinstance(values, bool):
        rule = "must be a list of values, or how many whole numbers from 0 there are: from 2 to 65536"
        must(2 <= values <= 65_536, f"schema of {name}", rule, values)
        values = list(range(values))
    ok = isinstance(values, list) and all(isinstance(v, str) or _is_number(v) for v in values)
    must(ok, f"schema of {name}", rule, "neither")
    assert isinstance(values, list)
    labels = [str(v) for v in values]
    # A saved schema lists the missing category among the values.
    if missing and labels and labels[-1] == MISSING:
        labels.pop()
    return replace(Feature.categorical(str(name), labels, missing=missing), absent=counted)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _binned(text: str) -> Feature:
    """A column by its edges, age=0,18,65,100, or by how many values it has, sex=2."""
    from hybridp.public.queries import Feature, Schema

    name, sign, cuts = text.partition("=")
    try:
        edges = [float(cut) for cut in cuts.split(",")]
    except ValueError:
        edges = []
    must(bool(sign and name.strip() and edges), "bins", 'must be written like "age=0,18,65,100"', repr(text))
    if len(edges) > 1:
        return Feature.binned(name.strip(), edges)
    sized = cuts.strip().isdecimal() and 2 <= edges[0] <= 65_536
    must(sized, "bins", 'must have 2 values or more where only their number is given, like "sex=2"', repr(text))
    return Schema.from_domain({name.strip(): int(edges[0])}).features[0]


def workload_of(schema: Schema, asked: Mapping[str, Any]) -> Workload:
    """The workload that options state, by the names of the fields of a table's question."""
    from hybridp.public.workloads import stated_workload

    return stated_workload(
        schema,
        asked["thresholds"],
        asked["marginals"],
        law=asked.get("law", "uniform"),
        most_queries=asked.get("most_queries"),
        seed=asked.get("workload_seed", 0),
    )


def study_of(
    workload: Any, promise: Promise, question: dict[str, Any], memory: str | None, *, stated: bool, mixed: bool
) -> Any:
    """The study of a fit that options state, after what cannot go together was refused."""
    from hybridp.cli.common import check_delta
    from hybridp.protocols.synth import SynthStudy
    from hybridp.public.budgets import ApproxDP
    from hybridp.public.queries import MOST_CELLS
    from hybridp.public.synth import cells_within, usual_method

    usual = usual_method(workload) if stated else "adaptive"
    chosen = question["method"] or (usual if memory is None else "tables")
    if mixed:
        if question["method"]:
            raise InvalidInput("`method` must be left out with --trust, which has its own. Got one.")
        chosen = "mixed"
    check_delta(promise.delta)
    if not promise.delta > 0:
        raise InvalidInput(f"`delta` must be positive. Got {promise.delta:g}.")
    assert promise.epsilon is not None
    if memory is not None and chosen != "tables":
        raise InvalidInput(f"`memory` must go with --method tables. Got {memory} with {chosen}.")
    most = MOST_CELLS if memory is None else cells_within(workload, memory)
    guarantee = ApproxDP(promise.epsilon, promise.delta)
    return SynthStudy(workload, guarantee, chosen, rows=question["rows"], most_cells=most)


# --- the plan ---------------------------------------------------------------------------------------------------------


@command("synth")
@options_of(
    question=some(Table, "marginals", "thresholds", later=True),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon", "delta")),
    show=some(Releasing, "plot", "as_json"),
)
@click.option("--n", type=count, required=True, help="How many people the table has.")
@click.option("--opt-in", type=float, help="The share of people who trust the curator, where the others are local.")
@click.option("--method", type=click.Choice(["tables", "adaptive"]),
              help="Everybody trusts: what `synth fit` would be told. Default: as there.")  # fmt: skip
@click.option(
    "--like", type=click.Path(dir_okay=False, path_type=Path),
    help="Rows that may be looked at, to rehearse on in place of made-up people. They are NOT protected.",
)  # fmt: skip
@schema_options
def plan(
    question: Later,
    promise: Promise,
    show: Releasing,
    n: int,
    opt_in: float | None,
    method: str | None,
    like: Path | None,
    columns: tuple[str, ...],
    schema_file: Path | None,
    bins: tuple[str, ...],
    other: str | None,
) -> None:
    """Predicted errors of a synthetic table.

    With --opt-in: of its rows, by the trusted people alone, the local people alone, and both. Where everybody trusts
    and `synth fit` would choose what it measures: of its rows. Both rehearse a fit on made-up people, or on --like.

    With --method tables, or where `synth fit` would measure all that is asked: of each marginal, as shares of people.
    Visible: a cell with a smaller share than this is hardly told from noise.
    """
    from hybridp.bench.synth import plan_synth
    from hybridp.public.budgets import ApproxDP
    from hybridp.public.synth import usual_method
    from hybridp.public.workloads import default_workload

    schema, _ = public_schema(None, columns, schema_file=schema_file, bins=bins, other=other)
    stated = bool(question.values["thresholds"] or question.values["marginals"])
    workload = workload_of(schema, question.values) if stated else default_workload(schema)
    assert promise.epsilon is not None
    guarantee = ApproxDP(promise.epsilon, promise.delta)
    usual = usual_method(workload) if stated else "adaptive"
    rehearsed = opt_in is not None or (method or usual) == "adaptive"
    if opt_in is not None and method is not None:
        raise InvalidInput(f"`method` must be left out with --opt-in, which compares them. Got {method}.")
    if not rehearsed:
        if like is not None:
            raise InvalidInput("`like` must go with --opt-in or --method adaptive. Got it with the plan of tables.")
        show_plan(plan_synth(n, workload, guarantee), show.plot, show.as_json)
        return
    must_have_torch()
    from hybridp.bench.synth_rows import plan_rows

    rows = None
    if like is not None:
        from hybridp.curator.marginals import read_codes

        rows = read_codes(like, schema)
        note(f"NOT PROTECTED: {like} is read as rows that everybody may know.")
    found = plan_rows(n, 1.0 if opt_in is None else opt_in, workload, guarantee, like=rows)
    show_plan(found, show.plot, show.as_json)
