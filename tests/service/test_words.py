"""What people are told agrees with an independent computation, and charts say what they were given."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import HeadList, two_stage
from hybridp.public.randomisers import LEVELS, WORD, dithered_bit, k_randomised_response, piecewise
from hybridp.service import charts, words

EPSILONS = (0.01, 0.5, 1.0, 2.0, 5.0, 12.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.1])
def test_the_bound_is_that_of_hypothesis_testing(epsilon: float, delta: float) -> None:
    """Kairouz, Oh and Viswanath 2015: equal errors are at least (1 - delta)/(1 + e^epsilon)."""
    told = words.at_most_right(epsilon, delta)
    assert float(told) == pytest.approx(1 - (1 - delta) / (1 + math.exp(epsilon)), abs=1e-15)
    assert told >= 1 - (1 - Fraction(delta)) / (1 + Fraction(math.exp(epsilon))) - Fraction(1, 2**50)


def best_guess(one: list[Fraction], other: list[Fraction]) -> Fraction:
    """Right with probability sum max(p, q)/2: brute force over all outcomes."""
    return sum((max(p, q) for p, q in zip(one, other, strict=True)), Fraction(0)) / 2


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_dithered_bit(epsilon: float) -> None:
    flips = dithered_bit(PureDP(epsilon)).flips
    q = Fraction(flips, WORD)
    told = words.notice({"name": "dithered", "flips": str(flips)})
    assert told.right == best_guess([q, 1 - q], [1 - q, q])  # at the ends of the scale the threshold tells nothing
    assert (told.one, told.other) == (q, 1 - q)


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_the_piecewise_number(epsilon: float) -> None:
    """Over regions of cells on which both laws are constant: the two windows and the rest."""
    m = piecewise(PureDP(epsilon))
    p, w = Fraction(m.inside, WORD), m.width
    rest = (1 - p) / LEVELS
    told = words.notice({"name": "piecewise", "width": str(w), "inside": str(m.inside)})
    assert told.right == best_guess([p, rest * w, rest * (LEVELS - w)], [rest * w, p, rest * (LEVELS - w)])
    half = Fraction(LEVELS + w, 2)
    assert told.one == rest * half
    assert told.other == p + rest * (half - w)


@pytest.mark.parametrize("k", [2, 3, 50])
def test_a_response_among_many(k: int) -> None:
    keep = k_randomised_response(PureDP(1.0), k).keep
    truth = Fraction(keep, WORD)
    lie = (1 - truth) / (k - 1)
    law = [[truth if i == j else lie for i in range(k)] for j in (0, 1)]
    told = words.notice({"name": "k-rr", "categories": k, "keep": str(keep)})
    assert told.right == best_guess(*law)


def test_two_stages_are_within_the_bound() -> None:
    head = HeadList.of([("maps", "m.org"), ("news", "a.org"), ("news", "b.org")])
    mechanism = two_stage(head, ApproxDP(2.0, 1e-6))
    assert mechanism.query is not None
    stated: dict[str, Any] = {"name": "two-stage", "query": {"categories": 3, "keep": str(mechanism.query.keep)}}
    told = words.notice(stated, 2.0, 1e-6)
    laws = [mechanism.report_law(slot) for slot in range(len(head))]
    worst = max(float(np.maximum(a, b).sum() / 2) for a in laws for b in laws)
    assert not told.exact
    assert 0.5 < worst <= float(told.right)


@given(st.fractions(min_value=0, max_value=1))
def test_less_than_certain_is_never_a_hundred(share: Fraction) -> None:
    shown = words.per_hundred(share)
    assert abs(shown - 100 * share) <= 1
    assert (shown == 100) == (share == 1)


def test_words_weaken_with_epsilon() -> None:
    said = [words.in_words(e) for e in (0.05, 0.3, 1, 2, 5, 10)]
    assert len(set(said)) == 6
    assert said[0].startswith("very strong")
    assert said[-1].startswith("hardly")


# --- charts -----------------------------------------------------------------------------------------------------------


def test_bars_of_participation_are_as_tall_as_their_counts() -> None:
    bins = [{"start": 3600 * i, "trusted": i, "local": 10 * i} for i in range(1, 5)]
    svg = str(charts.participation(bins, 3600))
    import re

    for group in ("trusted", "local"):
        tall = [float(h) for h in re.findall(rf'height="([\d.]+)" class="{group}"><title>', svg)]
        assert np.allclose(np.array(tall) / tall[-1], np.arange(1, 5) / 4, atol=0.01)
    assert "10 trusted and 100 local" in svg


def test_nobody_is_a_chart_too() -> None:
    assert "Nobody" in charts.participation([], 3600)


@pytest.mark.parametrize(
    "rows", [[("a", 1.0, 1.0, 1.0)], [("a", 0.0, -1e9, 1e9), ("b", 5.0, 4.0, 6.0)], [("a", 1e-12, 0.0, 2e-12)]]
)
def test_intervals_stay_in_the_picture(rows: list[tuple[str, float, float, float]]) -> None:
    import re

    svg = str(charts.intervals(rows, "mean"))
    assert all(0 <= float(x) <= charts.WIDTH for x in re.findall(r' (?:x1|x2|cx)="([\d.-]+)"', svg))
    assert "nan" not in svg


def test_charts_have_no_script_and_no_style() -> None:
    svg = str(charts.bars([("<b onload=x>", 1.0), ("two", 0.0)], "minutes & more"))
    assert "<b" not in svg
    assert "style=" not in svg
    assert "minutes &amp; more" in svg
