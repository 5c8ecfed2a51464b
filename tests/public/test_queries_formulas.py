"""Formulas: reading, truth against Python's own operators, cell masks and refusals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.queries import Feature, Schema, Threshold
from hybridp.public.workloads import Atom, Count, Formula, Not, parse_formula

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
def test_masks_and_surrogates_agree_on_one_hot_rows(text: str, wanted: np.ndarray) -> None:
    formula = parse_formula(SCHEMA, text)
    mask = formula.mask(SCHEMA)
    assert np.array_equal(mask[tuple(CELLS[f] for f in formula.features)], wanted)
    polynomial = formula.surrogate(SCHEMA)
    hot = np.zeros((CELLS.shape[1], SCHEMA.width))
    for f, offset in enumerate(SCHEMA.offsets):
        hot[np.arange(len(hot)), offset + CELLS[f]] = 1
    value = np.zeros(len(hot))
    for coefficient, factors in polynomial.terms:
        value += coefficient * np.prod([hot[:, list(polynomial.groups[g])].sum(1) for g in factors], axis=0)
    assert np.array_equal(value, wanted.astype(float))


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


def query_formula(threshold: Threshold, codes: list[int]) -> Formula:
    atoms = tuple(Atom(f, frozenset([v])) for f, v in zip(threshold.features, codes, strict=True))
    return Formula(Count(threshold.r, threshold.k, atoms))


def test_many_atoms_have_few_terms_where_the_negation_has() -> None:
    wide = Schema.from_domain({f"f{i}": 3 for i in range(16)})
    polynomial = query_formula(Threshold(tuple(range(16)), 1), [0] * 16).surrogate(wide)
    assert len(polynomial.terms) == 2
    big = Schema.from_domain({f"f{i}": 3 for i in range(21)})
    half = query_formula(Threshold(tuple(range(21)), 1), [0] * 21)
    with pytest.raises(InvalidInput, match="cases"):
        half.surrogate(big)


SMALL = Schema.from_domain({"a": 2, "b": 3, "c": 2})
atoms = st.integers(0, 2).flatmap(
    lambda f: st.sets(st.integers(0, SMALL.sizes[f] - 1)).map(lambda codes: Atom(f, frozenset(codes)))
)
nodes = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=1, max_size=3).flatmap(
            lambda parts: st.tuples(st.integers(0, len(parts)), st.integers(0, len(parts))).map(
                lambda ends: Count(min(ends), max(ends), tuple(parts))
            )
        ),
    ),
    max_leaves=6,
)


def _plain(node: Atom | Not | Count, record: tuple[int, ...]) -> bool:
    if isinstance(node, Atom):
        return record[node.feature] in node.codes
    if isinstance(node, Not):
        return not _plain(node.part, record)
    return node.low <= sum(_plain(part, record) for part in node.parts) <= node.high


@settings(max_examples=80, deadline=None)
@given(nodes, st.lists(st.floats(0.05, 1), min_size=7, max_size=7))
def test_a_surrogate_is_the_probability_under_independent_features(
    node: Atom | Not | Count, numbers: list[float]
) -> None:
    formula = Formula(node)
    row = np.array(numbers)
    for offset, size in zip(SMALL.offsets, SMALL.sizes, strict=True):
        row[offset : offset + size] /= row[offset : offset + size].sum()
    wanted = sum(
        np.prod([row[SMALL.offsets[f] + v] for f, v in enumerate(record)])
        for record in product(*(range(s) for s in SMALL.sizes))
        if _plain(node, record)
    )
    polynomial = formula.surrogate(SMALL)
    found = sum(
        c * np.prod([row[list(polynomial.groups[g])].sum() for g in factors]) for c, factors in polynomial.terms
    )
    assert found == pytest.approx(wanted, abs=1e-12)
