"""Every frozen release and plan keeps to the schema that the package ships, and what does not is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp import result_schema

BY_FORM = {"synth"}  # the golden files that hold the types of an answer in place of its values
GOLDEN = Path(__file__).resolve().parent.parent / "golden"
WORDS = {"$schema", "$id", "$defs", "title", "description"}
TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str),
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
    "number": lambda x: isinstance(x, int | float) and not isinstance(x, bool),
    "integer": lambda x: (isinstance(x, int) and not isinstance(x, bool)) or (isinstance(x, float) and x.is_integer()),
}
NUMBER = TYPES["number"]
RULES: dict[str, Callable[[Any, Any], bool]] = {
    "const": lambda x, rule: x == rule and isinstance(x, bool) == isinstance(rule, bool),
    "type": lambda x, rule: any(TYPES[name](x) for name in ([rule] if isinstance(rule, str) else rule)),
    "minimum": lambda x, rule: not NUMBER(x) or x >= rule,
    "maximum": lambda x, rule: not NUMBER(x) or x <= rule,
    "exclusiveMinimum": lambda x, rule: not NUMBER(x) or x > rule,
    "exclusiveMaximum": lambda x, rule: not NUMBER(x) or x < rule,
    "minItems": lambda x, rule: not isinstance(x, list) or len(x) >= rule,
    "maxItems": lambda x, rule: not isinstance(x, list) or len(x) <= rule,
    "minProperties": lambda x, rule: not isinstance(x, dict) or len(x) >= rule,
    "required": lambda x, rule: not isinstance(x, dict) or x.keys() >= set(rule),
    "anyOf": lambda x, rule: any(not any(breaches(x, option)) for option in rule),
}


def breaches(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Where a document breaks a schema, by the rules of JSON Schema 2020-12 for the keywords that ours uses."""
    for keyword, rule in schema.items():
        if keyword in RULES:
            if not RULES[keyword](value, rule):
                yield f"{place}: not {keyword} {rule}"
        elif keyword == "$ref":
            yield from breaches(value, result_schema()["$defs"][rule.removeprefix("#/$defs/")], place)
        elif keyword in ("properties", "additionalProperties"):
            known = schema.get("properties", {})
            for name, one in value.items() if isinstance(value, dict) else ():
                if (name in known) == (keyword == "properties"):
                    yield from breaches(one, known.get(name, rule), f"{place}.{name}")
        elif keyword == "items":
            for i, one in enumerate(value if isinstance(value, list) else ()):
                yield from breaches(one, rule, f"{place}[{i}]")
        else:
            assert keyword in WORDS, f"{keyword} is no keyword that this test knows"


def frozen(*kinds: str) -> dict[str, Any]:
    """Frozen releases and plans by their command; the rest of a golden file is not a result, or its form alone."""
    found = {}
    for file in sorted(GOLDEN.glob("*.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        for one in told if isinstance(told, list) and file.stem not in BY_FORM else []:
            command = one.get("command", "") if isinstance(one, dict) else ""
            if command.split(" ")[0] in kinds and "invite-out" not in command:
                found[command] = one["answer"]
    return found


def form_of(command: str) -> str:
    return "release" if command.startswith("release") else "plan"


@pytest.mark.parametrize("command", frozen("release", "plan"))
def test_what_is_frozen_keeps_to_the_schema(command: str) -> None:
    document = frozen("release", "plan")[command]
    assert list(breaches(document, result_schema())) == []
    # And to its own form, not only to one of them.
    assert list(breaches(document, {"$ref": f"#/$defs/{form_of(command)}"})) == []


def test_every_kind_of_result_is_among_them() -> None:
    begun = {" ".join(command.split()[:2]) for command in frozen("release", "plan")}
    tasks = ("mean", "vector-mean", "heavy-hitters", "kmeans")
    assert begun >= {f"{verb} {task}" for verb in ("release", "plan") for task in tasks} | {"plan synth"}


def spoilt(document: Any, *path: Any, value: Any = None, drop: bool = False) -> Any:
    other = copy.deepcopy(document)
    inside = other
    for step in path[:-1]:
        inside = inside[step]
    if drop:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return other


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: spoilt(d, "schema", value=2),
        lambda d: spoilt(d, "receipt", drop=True),
        lambda d: spoilt(d, "questions", value={}),
        lambda d: spoilt(d, "questions", "pay", "mean", "interval", value={"low": 1, "high": 2}),
        lambda d: spoilt(d, "questions", "pay", "mean", "local", drop=True),
        lambda d: spoilt(d, "questions", "pay", "mean", "groups", "local", "people", value=-1),
        lambda d: spoilt(d, "receipt", "promises", 1, "epsilon", value="some"),
        lambda d: spoilt(d, "receipt", "promises", 1, "against", drop=True),
    ],
)
def test_what_is_spoilt_is_refused(spoil: Callable[[Any], Any]) -> None:
    (document, *_) = (d for c, d in frozen("release").items() if c.startswith("release mean people.csv"))
    assert not list(breaches(document, result_schema()))
    assert list(breaches(spoil(document), result_schema()))


def test_a_plan_without_predictions_is_refused() -> None:
    (document, *_) = (d for c, d in frozen("plan").items() if "mean" in d.get("questions", {}).get("value", {}))
    assert list(breaches(spoilt(document, "questions", "value", "mean", "predicted", drop=True), result_schema()))
    assert list(breaches(spoilt(document, "people", drop=True), result_schema()))


def test_a_synthetic_table_keeps_to_it_too(tmp_path: Path) -> None:
    """Its fits are frozen by their form alone, as their last digits belong to the processor."""
    from hybridp.curator.models import Codes
    from hybridp.noise import seeded
    from hybridp.public.mechanisms import ApproxDP
    from hybridp.public.queries import Schema, Threshold, Workload
    from hybridp.release.release import Release
    from hybridp.tasks.table import TableTask
    from hybridp_lab.simulate import fit_synth

    schema = Schema.from_domain({"age": 3, "sex": 2})
    rows = [[i % 3, i % 2] for i in range(60)]
    study = TableTask(Workload(schema, (Threshold((0, 1), 2),)), ApproxDP(2.0, 1e-4), rows=20)
    model = fit_synth(Codes(schema, np.array(rows).T), study, rng=seeded(1))
    answer = {"table": {"share": model.answer("age=1").to_dict()}}
    for document in (model.to_dict(), Release(answer, 0.95, model.receipt).to_dict()):
        assert list(breaches(document, {"$ref": "#/$defs/release"})) == []
