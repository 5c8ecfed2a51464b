"""RAP's selection, answers and surrogates: their laws exactly and by test, and the noise of a fit found on its tape."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.laws.recording import Recording, apart, gaussians, rho_of, span_of

from hybridp.curator.models import LATTICE, Codes
from hybridp.errors import InvalidInput
from hybridp.noise import Randomness, seeded
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.public.synth import gumbel_scale
from hybridp_lab.errors import all_zero, present_error
from hybridp_lab.papers.rap2023.experiments import by_threshold
from hybridp_lab.papers.rap2023.gumbel import Candidate, gumbel_keys, settled
from hybridp_lab.papers.rap2023.mechanism import (
    MeasuredQueries,
    Selection,
    _top,
    answer_sigma,
    errors,
    fit_rap,
    query_rounds,
    select,
    selected_counts,
    top_errors,
)
from hybridp_lab.papers.rap2023.relaxed import Relaxed, answers, one_hot, sparsemax_blocks
from hybridp_lab.papers.rap2023.single import selected_answers

SIZES = (3, 4, 6, 2)
SCHEMA = Schema.from_domain(dict(zip("abcd", SIZES, strict=True)))
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((1, 2, 3), 2), Threshold((0, 3), 1)))
PROMISE, PEOPLE = ApproxDP(1.0, 1e-7), 400
RHO = rho_of(1.0, 1e-7)
ROUNDS, PICKS, SELECT = 5, 4, 0.6
NONE = np.zeros(0, np.int64)


def records(people: int = PEOPLE) -> np.ndarray:
    draw = np.random.default_rng(1)
    kind = draw.integers(0, 2, people)
    columns = [
        np.where(draw.random(people) < 0.7, (kind * 2 + f) % s, draw.integers(0, s, people))
        for f, s in enumerate(SIZES)
    ]
    return np.stack(columns, axis=1)


def matches(people: np.ndarray) -> np.ndarray:
    """Every query of the workload by its definition: who matches at least r of its targets."""
    result = []
    for threshold in WORK.thresholds:
        for targets in itertools.product(*(range(SIZES[f]) for f in threshold.features)):
            hits = sum((people[:, f] == t).astype(int) for f, t in zip(threshold.features, targets, strict=True))
            result.append(hits >= threshold.r)
    return np.array(result)


# --- queries and surrogates -------------------------------------------------------------------------------------------


def test_every_form_counts_the_same_people() -> None:
    people, every = records(60), select(WORK, np.arange(WORK.queries))
    held = matches(people)
    assert selected_counts(Codes(SCHEMA, people.T), every).tolist() == held.sum(1).tolist()
    for form in ("trials", "partitions", "inclusion"):  # on one-hot rows a surrogate is the query
        result = selected_answers(one_hot(people, SIZES), every, form=form)  # type: ignore[arg-type]
        assert result.numpy() == pytest.approx(held.mean(1), abs=1e-6)
    with pytest.raises(InvalidInput, match="from 0 to"):
        select(WORK, np.array([WORK.queries]))
    with pytest.raises(InvalidInput, match="form"):
        selected_answers(one_hot(people, SIZES), every, form="other")  # type: ignore[arg-type]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_all_forms_of_evaluation_agree(seed: int) -> None:
    x = torch.rand((7, sum(SCHEMA.sizes)), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    data = Relaxed(sparsemax_blocks(1.5 * x, SIZES), SIZES)
    wanted = torch.cat([part for _, part in answers(data, WORK)]).numpy()
    for form in ("trials", "partitions", "inclusion"):
        result = selected_answers(data, select(WORK, np.arange(WORK.queries)), form=form)  # type: ignore[arg-type]
        assert result.numpy() == pytest.approx(wanted, abs=1e-12)


def test_selections_of_different_k_join() -> None:
    both = Selection(np.array([[3]]), np.array([1])).concat(Selection(np.array([[0, 4], [1, 2]]), np.array([2, 1])))
    assert both.columns.tolist() == [[3, -1], [0, 4], [1, 2]]
    assert both.k.tolist() == [1, 2, 2]


# --- the selection ----------------------------------------------------------------------------------------------------


def test_the_selection_has_the_exponential_mechanisms_probabilities() -> None:
    """Twice without replacement, by the definition; a perturbed scale is rejected."""
    people, rho, picks = np.array([0, 3, 1, 5]), 0.04, 2
    scores, rng = [(0, people[:1] * LATTICE), (1, people[1:] * LATTICE)], seeded(11)
    draws = [tuple(top_errors(scores, picks, rho, without=NONE, rng=rng).tolist()) for _ in range(6000)]
    assert gumbel_scale(rho, picks) == pytest.approx(5.0)
    for scale, right in ((5.0, True), (6.5, False)):
        weight = np.exp(people / scale)
        law = {
            (i, j): weight[i] / weight.sum() * weight[j] / (weight.sum() - weight[i])
            for i, j in itertools.permutations(range(4), 2)
        }
        counts = [draws.count(key) for key in law]
        p_value = float(stats.chisquare(counts, np.array(list(law.values())) * len(draws)).pvalue)
        assert (p_value > 1e-6) is right


def test_what_is_left_out_is_never_picked_and_ties_are_settled_by_more_bits() -> None:
    scores = [(0, np.array([9, 9]) * 10**9), (2, np.array([1, 7, 2]) * 10**9)]
    assert top_errors(scores, 2, 1.0, without=np.array([0, 3]), rng=seeded(1)).tolist() == [1, 4]
    with pytest.raises(InvalidInput, match="`per_round` must be at most the 3 queries that are left"):
        top_errors(scores, 4, 1.0, without=np.array([0, 3]), rng=seeded(1))
    left = [1 << 63] * 3 + [30 << 32, 10 << 32, 20 << 32]  # of equal errors, the smallest word makes the largest key

    def source(n: int) -> np.ndarray:
        taken, left[:] = left[:n], left[n:]
        return np.array(taken, dtype=np.uint64)

    rng = Randomness(True, "replayed", source, lambda n: [])
    assert _top([(0, np.array([5, 5, 5]))], 2, Fraction(7), NONE, rng).tolist() == [1, 2]


def test_errors_are_those_of_the_definition_and_move_by_a_person() -> None:
    people, draw = records(6), np.random.default_rng(3)
    shares = [(t, draw.random(SCHEMA.cells(t.features))) for t in WORK.thresholds]
    modelled = np.concatenate([part for _, part in shares]) * 6

    def of(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([score for _, score in errors(Codes(SCHEMA, rows.T), WORK, shares)])

    assert of(people) / LATTICE == pytest.approx(np.abs(matches(people).sum(1) - modelled), abs=1e-4)
    for other in itertools.product(*((0, s - 1) for s in SIZES)):
        moved = people.copy()
        moved[0] = other
        assert np.abs(of(moved) - of(people)).max() <= LATTICE


def test_bad_numbers_are_refused_by_name() -> None:
    calls = {"rho": lambda: answer_sigma(-1.0), "rounds": lambda: query_rounds(0.1, 0, 1)}
    calls |= {"per_round": lambda: query_rounds(0.1, 1, 0)}
    for name, call in calls.items():
        with pytest.raises(InvalidInput, match=f"`{name}`"):
            call()
    with pytest.raises(InvalidInput, match="`rounds times per_round` must be at most"):
        fit_rap(Codes(SCHEMA, records().T), WORK, PROMISE, rounds=1000, rng=seeded(1))


# --- a whole fit ------------------------------------------------------------------------------------------------------


def worst(words: np.ndarray, scores: np.ndarray, scale: float, gone: set[int]) -> list[int]:
    """The largest of error/scale + Gumbel, the Gumbel variables being -ln(-ln(1 - V)) of uniform V."""
    v = (words.astype(np.float64) + 0.5) / 2.0**64
    keys = scores / scale - np.log(-np.log1p(-v))
    keys[list(gone)] = -np.inf
    return np.argsort(-keys)[:PICKS].tolist()  # type: ignore[no-any-return]


def check(seen: list[tuple[MeasuredQueries, Relaxed]], tape: Recording, select: float = 1, answer: float = 1) -> None:
    """Every round: its picks are those of a fresh stretch of tape, and so is the noise of its answers."""
    counts, gone, spans = matches(records()).sum(1), set[int](), []
    each = RHO / ROUNDS
    scale = select * math.sqrt(PICKS / (2 * each * SELECT))
    sigma = answer * math.sqrt(PICKS / (2 * each * (1 - SELECT)))
    for asked, data in seen:
        shares = np.concatenate([part for _, part in by_threshold(data, WORK)]).astype(np.float64)
        scores = np.abs(counts - np.rint(shares * PEOPLE * 2.0**16) / 2.0**16)
        fitting = [start for start in tape.starts if start + len(counts) <= len(tape.words)]
        stretch = {start: tape.words[start : start + len(counts)] for start in fitting}
        here = [start for start, words in stretch.items() if worst(words, scores, scale, gone) == asked.flat.tolist()]
        assert len(here) == 1, f"{len(here)} stretches of the tape pick these queries"
        spans += [(here[0], here[0] + len(counts)), span_of(tape, asked.counts - counts[asked.flat], gaussians(sigma))]
        gone |= set(asked.flat.tolist())
    apart(*spans)
    assert len(gone) == ROUNDS * PICKS


def test_picks_and_answers_have_the_noise_of_their_shares() -> None:
    seen: list[tuple[MeasuredQueries, Relaxed]] = []
    tape, codes = Recording(1), Codes(SCHEMA, records().T)
    how = {"rounds": ROUNDS, "per_round": PICKS, "select_share": SELECT, "rows": 40}
    fit_rap(codes, WORK, PROMISE, **how, watch=lambda *given: seen.append(given), rng=tape.rng)  # type: ignore[arg-type]
    check(seen, tape)
    # Controls: a tenth less noise, a selection with the whole round's budget, and one whose picks cost as one.
    for wrong in (0.9, math.sqrt(SELECT), 1 / math.sqrt(PICKS)):
        with pytest.raises(AssertionError, match="0 stretches of the tape pick"):
            check(seen, tape, select=wrong)
    with pytest.raises(AssertionError, match="0 stretches of the tape are"):
        check(seen, tape, answer=0.9)


def test_made_up_rows_are_answered_well() -> None:
    codes = Codes(SCHEMA, records(5000).T)
    data = fit_rap(codes, WORK, PROMISE, rounds=12, rows=200, rng=seeded(5))
    assert present_error(codes, WORK, by_threshold(data, WORK)).l_inf < 0.12 < all_zero(codes, WORK).l_inf / 3


# --- the order of scores with Gumbel noise ----------------------------------------------------------------------------


def _replay(words: list[int]) -> Randomness:
    left = list(words)

    def source(n: int) -> np.ndarray:
        taken, left[:] = left[:n], left[n:]
        return np.array(taken, dtype=np.uint64)

    return Randomness(True, "replayed", source, lambda n: [])


def test_ties_are_settled_by_more_bits() -> None:
    same = 1 << 63
    # The keys of equal scores are in the order of the words that come after equal ones: the smallest is the largest.
    words = [same, same, same, 30 << 32, 10 << 32, 20 << 32]
    found = _top([(0, np.array([5, 5, 5]))], 3, Fraction(7), np.empty(0), _replay(words))
    assert found.tolist() == [1, 2, 0]


def test_a_word_of_zeros_says_too_little_to_decide() -> None:
    """Score 1 leads by five at the leading words, which are 0 for both; the next ones put score 0 far ahead.

    Its V is then 2^-100 and its key 69.3; the other's V is just below 2^-64, and its key 44.4 + 5.
    """
    words = [0, 0, (1 << 64) - 1, 1 << 28]
    found = _top([(0, np.array([0, 5]))], 2, Fraction(1), np.empty(0), _replay(words))
    assert found.tolist() == [0, 1]


def test_the_order_of_settled_candidates_is_that_of_high_precision_arithmetic() -> None:
    rng = np.random.default_rng(5)
    corners = [1, 2, (1 << 24) - 1, (1 << 64) - 2, (1 << 63) + 1]
    words = [*corners, *(int(w) for w in rng.integers(1 << 30, 1 << 63, 7, dtype=np.int64))]
    scale = Fraction(3)
    candidates = [Candidate(i, int(rng.integers(0, 9)), word) for i, word in enumerate(words)]
    with mpmath.workdps(60):
        keys = [
            c.score / mpmath.mpf(3) - mpmath.log(-mpmath.log(1 - mpmath.mpf(c.prefix * 2 + 1) / 2**65))
            for c in candidates
        ]
    want = sorted(range(len(words)), key=lambda i: -keys[i])
    assert settled(candidates, len(words) - 1, scale, seeded(1)).tolist() == want[:-1]


def test_float_keys_are_within_the_stated_slack() -> None:
    rng = np.random.default_rng(2)
    words = np.concatenate([rng.integers(1 << 24, 1 << 63, 300), [1 << 24, (1 << 63) - 1]]).astype(np.uint64)
    words = np.concatenate([words, np.array([(1 << 64) - (1 << 40)], dtype=np.uint64)])
    scores = rng.integers(0, 1 << 36, len(words))
    found = gumbel_keys(words, scores, 2.0**16)
    with mpmath.workdps(50):
        for word, score, key in zip(words.tolist(), scores.tolist(), found.tolist(), strict=True):
            for end in (word, word + 1):
                true = mpmath.mpf(score) / 2**16 - mpmath.log(-mpmath.log(1 - mpmath.mpf(end) / 2**64))
                assert abs(true - key) < 2.0**-20
