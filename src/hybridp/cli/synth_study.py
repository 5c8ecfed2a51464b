"""The public schema that `hybridp synth fit`, `randomise synth` and `plan synth` are told, the reports and the plan."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hybridp.cli.common import check_delta, count, insist_option, note, progress, rows_argument
from hybridp.cli.options import Later, command, given, must_not_join, options_of, some, trust_options
from hybridp.cli.plan import planned
from hybridp.cli.releasing import Releasing, Writing, said_randomised
from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.study import Promise, Table
from hybridp.public.study.fields import Fields, field
from hybridp.public.trust import Trusts, drawn_trust

if TYPE_CHECKING:
    from hybridp.public.queries import Feature, Schema, Workload
    from hybridp.release.plan import Plan
    from hybridp.tasks.table import TableTask

__all__ = ["SETTLED", "StatedSchema", "features_of", "must_have_torch", "plan", "randomise"]
__all__ += ["study_of", "workload_of"]

SETTLED = ("columns", "schema", "bins", "other", "marginals", "thresholds")
"""What an invitation states."""


def must_have_torch() -> None:
    """Refuse where the extra is not installed."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise InvalidInput("`synth` must have torch installed (the extra `synth`). Got no torch.")


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
        from hybridp.public.queries import Schema

        binned = {made.name: made for made in map(_binned, self.bins)}
        known = ({} if self.schema is None else features_of(self.schema)) | binned
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
            from hybridp.curator.marginals import read_domain

            known |= read_domain(rows, read, table=table)
        return Schema(tuple(known[name] for name in names)).counting(self.other), read


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
    if isinstance(values, int) and not isinstance(values, bool):
        rule = "must be a list of values, or how many whole numbers from 0 there are: from 2 to 65536"
        must(2 <= values <= 65_536, f"schema of {name}", rule, values)
        values = list(range(values))
    listed: Any = edges or values
    ok = isinstance(name, str) and bool(name) and isinstance(missing, bool | str | None) and isinstance(listed, list)
    ok = ok and all(_is_number(one) or (not edges and isinstance(one, str)) for one in listed)
    rule = "must have a name, a list of values or of edges, and perhaps missing: true or one of the values"
    must(ok, "schema", rule, repr(name))
    counted = missing if isinstance(missing, str) else kept.get("absent")
    if edges:
        return replace(Feature.binned(str(name), edges, missing=missing is True), absent=counted)
    labels = [str(one) for one in listed]
    # A saved schema lists the missing category among the values.
    if missing is True and labels and labels[-1] == MISSING:
        labels.pop()
    return replace(Feature.categorical(str(name), labels, missing=missing is True), absent=counted)


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


def workload_of(schema: Schema, asked: Mapping[str, Any]) -> tuple[Workload, str]:
    """The workload that options state, by the names of the fields of a table's question, and how it is usually fitted.

    Where none is stated: all pairs of columns, of which an adaptive fit measures those that matter.
    """
    from hybridp.public.synth import usual_method
    from hybridp.public.workloads import default_workload, stated_workload

    if not (asked["thresholds"] or asked["marginals"]):
        return default_workload(schema), "adaptive"
    workload = stated_workload(schema, asked["thresholds"], asked["marginals"])
    return workload, usual_method(workload)


def study_of(
    file: Any, schema: Any, promise: Promise, question: Later, asked: Releasing, *, device: str, memory: str | None,
    mixed: bool,
) -> TableTask:  # fmt: skip
    """The study of a fit that options state, after what cannot go together was refused."""
    from hybridp.curator.marginals import count_people
    from hybridp.public.queries import MOST_CELLS
    from hybridp.public.synth import cells_within
    from hybridp.tasks.table import TableTask

    workload, usual = workload_of(schema, question.values)
    chosen: Any = question.values["method"] or (usual if memory is None else "tables")
    if mixed:
        _must_be_stated(question.values)
        must(device == "cpu" and memory is None, "device", "and `memory` must be left out with --trust", "one of them")
        must(not question.values["method"], "method", "must be left out with --trust, which has its own", "one")
        chosen = "mixed"
    elif asked.simulate_local or asked.assume_mechanism:
        raise InvalidInput("`simulate-local` and `assume-mechanism` must go with --trust. Got no column of trust.")
    delta = promise.delta
    if not given("delta"):  # how many people there are is public
        delta = max(count_people(file, table=asked.table), 2) ** -2.0
    check_delta(delta)
    must(delta > 0, "delta", "must be positive", f"{delta:g}")
    assert promise.epsilon is not None
    must(memory is None or chosen == "tables", "memory", "must go with --method tables", f"{memory} with {chosen}")
    most = MOST_CELLS if memory is None else cells_within(workload, memory)
    guarantee = ApproxDP(promise.epsilon, delta)
    return TableTask(workload, guarantee, chosen, rows=question.values["rows"], most_cells=most)


def _must_be_stated(asked: Mapping[str, Any]) -> None:
    """Refuse local people who are told no marginals."""
    stated = bool(asked["thresholds"] or asked["marginals"])
    must(stated, "marginals", "must be given, or thresholds, where local people take part", "neither")


# --- devices ----------------------------------------------------------------------------------------------------------


@command("synth")
@rows_argument
@trust_options(devices=True)
@options_of(
    stated=StatedSchema,
    question=some(Table, "marginals", "thresholds", later=True),
    stated_promise=some(Promise, "epsilon", later=True),
    asked=some(Writing, "out", "keep", "seed", "table", "as_json", "invite"),
)
@insist_option
def randomise(
    file: Path,
    stated: StatedSchema,
    trust: Trusts | None,
    question: Later,
    stated_promise: Later,
    asked: Writing,
) -> None:
    """Replace each local person's row by one report on one of the stated marginals, private by itself.

    The marginals are those of --marginals, or of the --invite of people who trust and chose them; --epsilon is then the
    most that people accept, and an invitation that asks for more is refused.

    The device draws the marginal, whatever the row holds. Without --trust all rows are randomised. Writes the same rows
    with the columns `report`, `report_mechanism` and `report_batch`; a randomised row keeps none of the schema's
    columns. Other columns are left out unless --keep names them.
    """
    from hybridp.curator.sources import Columns
    from hybridp.device.files import write_reports
    from hybridp.device.questions import must_accept
    from hybridp.protocols.devices import Randomised
    from hybridp.public.synth_reports import MarginalInvite

    if asked.invite is not None:
        from hybridp.protocols.transcript import read_invitation

        must_not_join("invite", *SETTLED)
        invite = read_invitation(asked.invite, "synthetic data").invite
        must_accept(invite.guarantee, stated_promise.values["epsilon"])
    else:
        _must_be_stated(question.values)
        if stated_promise.values["epsilon"] is None:
            raise click.UsageError("Missing option '--epsilon'.")
        workload, _ = workload_of(stated.features()[0], question.values)
        invite = MarginalInvite(workload, PureDP(stated_promise().epsilon))
    with progress() as bar:
        bar.add_task("randomising", total=None)
        columns = Columns("", trust)
        written, left_out = write_reports(
            file, invite, columns, asked.out, table=asked.table, kept=asked.kept, rng=asked.rng
        )
    drawn, counts = drawn_trust(trust), ({"table": written}, {"table": invite.text})
    simulated = asked.rng.simulated or drawn
    found = Randomised(str(asked.out), *counts, tuple(left_out), simulated, asked.rng.label, promise=invite.guarantee)
    document = {**found.alone(told="randomised"), "marginals": len(invite.marginals)}
    said_randomised(found, asked, document, invite.guarantee, drawn=drawn)


# --- the plan ---------------------------------------------------------------------------------------------------------


@planned(
    "synth",
    click.option("--n", type=count, required=True, help="How many people the table has."),
    click.option("--opt-in", type=float, help="The share of people who trust the curator, where the others are local."),
    click.option("--method", type=click.Choice(["tables", "adaptive"]),
                 help="Everybody trusts: what `synth fit` would be told. Default: as there."),
    click.option(
        "--like", type=click.Path(dir_okay=False, path_type=Path),
        help="Rows that may be looked at, to rehearse on in place of made-up people. They are NOT protected.",
    ),
    stated=StatedSchema,
    question=some(Table, "marginals", "thresholds", later=True),
    promise=some(Promise, "epsilon", "delta", needed=("epsilon", "delta")),
)  # fmt: skip
def plan(
    question: Later, promise: Promise, n: int, opt_in: float | None, method: str | None, like: Path | None,
    stated: StatedSchema,
) -> Plan:  # fmt: skip
    """Predicted errors of a synthetic table.

    With --opt-in: of its rows, by the trusted people alone, the local people alone, and both. Where everybody trusts
    and `synth fit` would choose what it measures: of its rows. Both rehearse a fit on made-up people, or on --like.

    With --method tables, or where `synth fit` would measure all that is asked: of each marginal, as shares of people.
    Visible: a cell with a smaller share than this is hardly told from noise.
    """
    from hybridp.bench.synth import plan_rows, plan_synth

    workload, usual = workload_of(stated.features()[0], question.values)
    assert promise.epsilon is not None
    guarantee = ApproxDP(promise.epsilon, promise.delta)
    if opt_in is not None and method is not None:
        raise InvalidInput(f"`method` must be left out with --opt-in, which compares them. Got {method}.")
    if opt_in is None and (method or usual) != "adaptive":
        if like is not None:
            raise InvalidInput("`like` must go with --opt-in or --method adaptive. Got it with the plan of tables.")
        return plan_synth(n, workload, guarantee)
    must_have_torch()
    rows = None
    if like is not None:
        from hybridp.curator.marginals import read_codes

        rows = read_codes(like, workload.schema)
        note(f"NOT PROTECTED: {like} is read as rows that everybody may know.")
    return plan_rows(n, 1.0 if opt_in is None else opt_in, workload, guarantee, like=rows)
