"""What `hybridp synth` is told before it reads a row: the public schema, the workload, the memory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridp.errors import InvalidInput, must

if TYPE_CHECKING:
    from hybridp.public.queries import Feature, Schema, Workload

__all__ = ["cells_within", "features_of", "public_schema", "workload_of"]

# Read from a file, a domain of more values than these is no domain: every value would be about somebody.
_MOST_READ = 4096
# Of a fit to whole tables, in bytes: torch and the rows' codes, the largest table's noise and steps, every table kept.
_BASE, _LARGEST, _EACH = 280 << 20, 80, 24
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


# --- the schema -------------------------------------------------------------------------------------------------------


def public_schema(
    file: Path,
    columns: Sequence[str],
    *,
    schema_file: Path | None,
    bins: Sequence[str],
    domain_from_file: bool,
    other: str,
    table: str | None,
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
    if read and not domain_from_file:
        raise InvalidInput(
            "`columns` must have public values: list them in --schema, cut them by --bins, or declare the file's own "
            f"values public with --domain-from-file. Got `{read[0]}`."
        )
    if read:
        known |= _read_domain(file, read, table)
    features = [known[name] for name in names]
    if other == "missing":
        features = [_with_missing(feature) for feature in features]
    return Schema(tuple(features)), read


def features_of(file: Path) -> dict[str, Feature]:
    """A schema file: {"features": [{"name", "values" or "edges", "missing"}]}, or {name: values} for categories."""
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
    rule = "must have a name, a list of values or of edges, and perhaps missing: true"
    must(isinstance(name, str) and bool(name), "schema", rule, repr(name))
    must(missing in (None, True, False), f"schema of {name}", rule, repr(missing))
    if edges:
        must(isinstance(edges, list) and all(_is_number(e) for e in edges), f"schema of {name}", rule, "other edges")
        return Feature.binned(str(name), edges, missing=bool(missing))
    ok = isinstance(values, list) and all(isinstance(v, str) or _is_number(v) for v in values)
    must(ok, f"schema of {name}", rule, "neither")
    assert isinstance(values, list)
    labels = [str(v) for v in values]
    # A saved schema lists the missing category among the values.
    if missing and labels and labels[-1] == MISSING:
        labels.pop()
    return Feature.categorical(str(name), labels, missing=bool(missing))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _binned(text: str) -> Feature:
    from hybridp.public.queries import Feature

    name, sign, cuts = text.partition("=")
    try:
        edges = [float(cut) for cut in cuts.split(",")]
    except ValueError:
        edges = []
    must(bool(sign and name.strip() and edges), "bins", 'must be written like "age=0,18,65,100"', repr(text))
    return Feature.binned(name.strip(), edges)


def _with_missing(feature: Feature) -> Feature:
    from hybridp.public.queries import MISSING

    return feature if feature.missing else replace(feature, values=(*feature.values, MISSING), missing=True)


def _read_domain(file: Path, names: Iterable[str], table: str | None) -> dict[str, Feature]:
    """NOT PRIVATE: the distinct values of columns, for data whose domain is public or for a rehearsal."""
    from sqlglot import exp

    from hybridp.public.queries import Feature
    from hybridp.tables import open_rows
    from hybridp.tables.engine import answers
    from hybridp.tables.source import VIEW
    from hybridp.tables.sql import cast, column, named

    found = {}
    with open_rows(file, table=table) as rows:
        for name in names:
            rows.need("columns", name)
            query = exp.select(named(cast(column(name), "text"), "v")).distinct().from_(VIEW).limit(_MOST_READ + 2)
            values = [row["v"] for row in answers(rows, query)]
            labels = [str(v) for v in values if v is not None]
            rule = f"must be at most {_MOST_READ} to be read from a file: give --bins, or group them in --schema"
            must(len(labels) <= _MOST_READ, f"values of {name}", rule, "more")
            found[name] = Feature.categorical(name, sorted(labels, key=_order), missing=len(labels) < len(values))
    return found


def _order(label: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        size = float(label)
    except ValueError:
        size = math.nan
    return (math.isnan(size), 0.0 if math.isnan(size) else size, label)


# --- the workload -----------------------------------------------------------------------------------------------------


def workload_of(
    schema: Schema,
    thresholds: str | None,
    marginals: Sequence[str],
    *,
    law: str = "uniform",
    most_queries: int | None = None,
    seed: int = 0,
) -> Workload:
    """Sampled and listed thresholds together, each once."""
    import numpy as np

    from hybridp.public.queries import Workload
    from hybridp.public.workloads import feature_weights, listed_workload, sample_workload

    must(bool(thresholds or marginals), "thresholds", "must be given, or --marginals", "neither")
    must(seed >= 0, "workload-seed", "must not be negative", seed)
    name, _, parameter = law.partition(":")
    must(name in ("uniform", "zipf", "geometric"), "law", "must be uniform, zipf or geometric", repr(law))
    try:
        chosen = float(parameter) if parameter else None
    except ValueError:
        problem = InvalidInput(f"`law` must be written like zipf or zipf:1.5. Got {law!r}.")
    else:
        weights = None if name == "uniform" else feature_weights(len(schema.names), name, chosen)  # type: ignore[arg-type]
        found = list(listed_workload(schema, marginals).thresholds) if marginals else []
        if thresholds:
            draw = np.random.default_rng(seed)  # public, like the workload itself
            found += sample_workload(
                schema, thresholds, rng=draw, weights=weights, most_queries=most_queries
            ).thresholds
        return Workload(schema, tuple(dict.fromkeys(found)))
    raise problem


# --- memory -----------------------------------------------------------------------------------------------------------


def cells_within(workload: Workload, memory: str) -> int:
    """The most cells of a table, so that a fit to all tables of the workload stays within the memory.

    An estimate: 24 bytes for each measured cell, 80 more for those of the largest table, and 280 MiB for the rest.
    """
    from hybridp.public.queries import MOST_CELLS
    from hybridp.public.synth import table_plan

    limit = _bytes(memory)
    most = MOST_CELLS
    while most >= 64:
        cells = [workload.schema.cells(features) for features in table_plan(workload, most_cells=most)] or [0]
        if _BASE + _LARGEST * max(cells) + _EACH * sum(cells) <= limit:
            return most
        most //= 2
    raise InvalidInput(f"`memory` must hold tables of 64 cells beside {_BASE >> 20} MiB. Got {memory}.")


def _bytes(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", text, re.IGNORECASE)
    if found is None:
        raise InvalidInput(f"`memory` must be a size such as 1GiB or 800MB. Got {text!r}.")
    return int(float(found[1]) * _SIZES[(found[2] or "").lower()])
