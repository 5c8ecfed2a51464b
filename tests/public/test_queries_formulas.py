"""Formulas: reading, truth against Python's own operators, cell masks and refusals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.queries import Atom, Count, Feature, Formula, Schema, parse_formula

SCHEMA = Schema(
    (
        Feature.categorical("education", ["Masters", "Some, college", "not known"]),
        Feature.categorical("sex", ["Female", "Male"], missing=True),
        Feature.binned("age", [20, 30, 40, 50]),
        Feature.categorical("income>50K", ["0", "1"]),
        Feature.binned("rate", [0.0, 0.5, 2.5]),
        Feature.categorical("hours", [str(i) for i in range(10)]),
    )
)
CELLS = np.array(list(product(*(range(s) for s in SCHEMA.sizes)))).T


def truth(text: str) -> np.ndarray:
    formula = parse_formula(SCHEMA, text)
    return formula.holds(CELLS[list(formula.features)])


EDU, SEX, AGE, RICH, RATE, HOURS = CELLS
CASES = [
    ("education=Masters", EDU == 0),
    ("education=Some, college and sex=Male", (EDU == 1) & (SEX == 1)),
    ("sex=(missing) or not sex=Female", SEX != 0),
    ("sex!=Female", SEX != 0),
    ("education=Masters|not known", (EDU == 0) | (EDU == 2)),
    ("age=30..39", AGE == 1),
    ("age=20..39", AGE <= 1),
    ("age=30..50", AGE >= 1),
    ("rate=0.5..2.5", RATE == 1),
    ("hours=3..5", (HOURS >= 3) & (HOURS <= 5)),
    ("income>50K=1", RICH == 1),
    (
        "at least 2 of: education=Masters, sex=Female, age=30..39",
        ((EDU == 0).astype(int) + (SEX == 0) + (AGE == 1)) >= 2,
    ),
    ("exactly 1 of (education=Masters, sex=Female) and age=20..29", ((EDU == 0) ^ (SEX == 0)) & (AGE == 0)),
    ("at most 1 of: hours=1, sex=Male, income>50K=0", ((HOURS == 1).astype(int) + (SEX == 1) + (RICH == 0)) <= 1),
    ("NOT (sex=Male OR age=20..29) and hours=0..8", ~((SEX == 1) | (AGE == 0)) & (HOURS <= 8)),
    ("sex=Male or sex=Female and age=20..29", (SEX == 1) | ((SEX == 0) & (AGE == 0))),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_text_means_what_python_says(text: str, wanted: np.ndarray) -> None:
    assert np.array_equal(truth(text), wanted)


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_masks_are_the_cells_in_which_it_holds(text: str, wanted: np.ndarray) -> None:
    formula = parse_formula(SCHEMA, text)
    mask = formula.mask(SCHEMA)
    assert np.array_equal(mask[tuple(CELLS[f] for f in formula.features)], wanted)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "comparison with one of the features"),
        ("salary=3", "comparison with one of the features"),
        ("sex=Woman", "a value of sex"),
        ("sex=Female sex=Male", "`and`, `or`"),
        ("(sex=Female", "closing parenthesis"),
        ("at least 3 of: sex=Female, age=20..29", "at most the 2 parts"),
        ("age=35..39", "cut at its edges"),
        ("hours=20..30", "values in the range"),
        ("hours=5..3", "ascends"),
        ("not", "comparison with"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        parse_formula(SCHEMA, text)


SMALL = Schema.from_domain({"a": 2, "b": 3, "c": 2})
atoms = st.integers(0, 2).flatmap(
    lambda f: st.sets(st.integers(0, SMALL.sizes[f] - 1)).map(lambda codes: Atom(f, frozenset(codes)))
)
nodes = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(lambda part: Count(0, 0, (part,))),
        st.lists(inner, min_size=1, max_size=3).flatmap(
            lambda parts: st.tuples(st.integers(0, len(parts)), st.integers(0, len(parts))).map(
                lambda ends: Count(min(ends), max(ends), tuple(parts))
            )
        ),
    ),
    max_leaves=6,
)


def _plain(node: Atom | Count, record: tuple[int, ...]) -> bool:
    if isinstance(node, Atom):
        return record[node.feature] in node.codes
    return node.low <= sum(_plain(part, record) for part in node.parts) <= node.high


@settings(max_examples=80, deadline=None)
@given(nodes)
def test_a_formula_holds_for_the_records_that_its_parts_say(node: Atom | Count) -> None:
    formula, records = Formula(node), list(product(*(range(size) for size in SMALL.sizes)))
    wanted = [_plain(node, record) for record in records]
    assert formula.holds(np.array(records).T[list(formula.features)]).tolist() == wanted
    mask = formula.mask(SMALL)
    assert [bool(mask[tuple(record[f] for f in formula.features)]) for record in records] == wanted
