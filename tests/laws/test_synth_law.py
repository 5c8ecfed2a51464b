"""Synthetic data: what is measured of the rows is their truth and a stretch of tape, at the size that the budget buys.

rho is what (epsilon, delta) allows (Canonne, Kamath and Steinke 2020, Prop. 12). A marginal with noise of standard
deviation sigma costs 1/sigma^2, since replacing a record moves two of its cells by one; a choice in proportion to
exp(score/g), an exponential mechanism with epsilon' = 2/g, costs epsilon'^2/8 (Cesar and Rogers 2021). "tables" gives
15 % to one-way marginals and the rest to the others. The adaptive method gives the one-way marginals as much as three
rounds in the mean, and each round a quarter more than the one before, a tenth of it for the marginal that the
model misses most: half the L1 distance of the counts, which replacing a record moves by one. Where the noise would be
small, three fifths of rho are kept for all that is asked, and measure it once, at the end.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.laws.recording import Recording, apart, gaussians, rho_of, span_of

from hybridp.curator.models import LATTICE, Codes, gain, measure_table, pick_table
from hybridp.ledger import Ledger
from hybridp.noise import Randomness
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.release.release import CURATOR, VIEWER
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import NoSignalWarning, TableTask
from hybridp_lab.simulate import fit_synth

SIZES = (3, 4, 6, 2)
SCHEMA = Schema.from_domain(dict(zip("abcd", SIZES, strict=True))).counting("last")
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((1, 2, 3), 3), Threshold((0, 3), 1)))
EPSILON, DELTA, PEOPLE = 1.0, 1e-7, 400
PROMISE = ApproxDP(EPSILON, DELTA)
RHO = rho_of(EPSILON, DELTA)
ROUNDS = 5
SINGLES = ((0,), (1,), (2,), (3,))
TABLES = ((0, 1, 2), (1, 2, 3), (0, 3))  # two marginals, and the pair below the threshold of one of two


def records(seed: int = 1) -> np.ndarray:
    draw = np.random.default_rng(seed)
    kind = draw.integers(0, 2, PEOPLE)
    columns = [
        np.where(draw.random(PEOPLE) < 0.7, (kind + f) % s, draw.integers(0, s, PEOPLE)) for f, s in enumerate(SIZES)
    ]
    return np.stack(columns, axis=1)


def rows(seed: int = 1) -> Codes:
    return Codes(SCHEMA, records(seed).T)


def study(method: str) -> TableTask:
    return TableTask(WORK, PROMISE, method, rounds=ROUNDS, rows=40)  # type: ignore[arg-type]


def truth(people: np.ndarray, features: tuple[int, ...]) -> np.ndarray:
    """How many people are in every cell, counted one by one."""
    out = np.zeros([SIZES[f] for f in features], dtype=np.int64)
    for record in people:
        out[tuple(record[f] for f in features)] += 1
    return out


def check_tables(model: SyntheticModel, tape: Recording, people: np.ndarray, rho: float = RHO) -> None:
    assert tuple(t.features for t in model.tables) == SINGLES + TABLES
    added = [(t.counts - truth(people, t.features)).ravel() for t in model.tables]
    single = gaussians(1 / math.sqrt(rho * 0.15 / len(SINGLES)))
    several = gaussians(1 / math.sqrt(rho * 0.85 / len(TABLES)))

    def one_way(size: int, rng: Randomness) -> np.ndarray:
        """The one-way marginals, short as they are, are one stretch together."""
        return np.concatenate([single(n, rng) for n in SIZES])

    spans = [span_of(tape, np.concatenate(added[: len(SINGLES)]), one_way)]
    spans += [span_of(tape, noise, several) for noise in added[len(SINGLES) :]]
    apart(*spans)


def test_marginals_have_the_noise_that_their_share_buys(tmp_path: Path) -> None:
    tape, ledger = Recording(), Ledger.create(tmp_path / "l.ledger", {"trusted": PROMISE})
    model = fit_synth(rows(), study("tables"), ledger=ledger, rng=tape.rng)
    check_tables(model, tape, records())
    _charged(ledger, model, 2)
    with pytest.raises(AssertionError, match="0 stretches"):  # controls: a tenth less noise, another person
        check_tables(model, tape, records(), RHO / 0.81)
    with pytest.raises(AssertionError, match="0 stretches"):
        check_tables(model, tape, records()[1:])


def _charged(ledger: Ledger, model: SyntheticModel, rounds: int, promise: ApproxDP = PROMISE) -> None:
    """The rounds' charges add up to the promise, and the receipt names them and promises the same."""
    entries = ledger.history()
    assert [e.people for e in entries] == ["trusted"] * rounds
    assert {e.state for e in entries} == {"spent"}
    total = math.fsum(e.budget.epsilon for e in entries)
    assert promise.epsilon - 1e-8 < total <= promise.epsilon
    assert math.fsum(e.budget.delta for e in entries) == DELTA
    assert model.receipt.ledger_entries == tuple(e.id for e in entries)
    budgets = {(p.people, p.against): p.budget for p in model.receipt.promises}
    assert budgets == {("trusted", CURATOR): None, ("trusted", VIEWER): promise}
    assert not model.simulated


# --- adaptive ---------------------------------------------------------------------------------------------------------

INSIDE = [c for t in WORK.thresholds for k in (1, 2, 3) for c in itertools.combinations(sorted(t.features), k)]
CANDIDATES = list(dict.fromkeys([*INSIDE, *itertools.combinations(range(4), 2)]))


def nearer(counts: Any, modelled: Any, sigma: float) -> float:
    """Cell by cell: how much a measurement mends, by the mean of two accounts of what its noise leaves."""
    left, total = math.sqrt(2 / math.pi) * sigma, 0.0
    for count, model in zip(np.ravel(counts), np.ravel(modelled), strict=True):
        missed = abs(count - model)
        total += (missed - left if missed > left else 0.0) / 4 + (missed - min(left, max(count, model))) / 4
    return total


LITTLE = ApproxDP(0.15, DELTA)  # noise on all that is asked would be a fifth of the people


def picked(words: list[int], gains: np.ndarray, scale: float) -> int | None:
    """The marginal that words say by turns: an even draw, and whether it is taken; None if they say more."""
    taken, bits, place = [], (len(gains) - 1).bit_length(), None
    for word in words:
        if place is None:
            place = word >> (64 - bits) if word >> (64 - bits) < len(gains) else None
            continue
        if word / 2**64 < math.exp((gains[place] - gains.max()) / scale):
            taken.append((place, word))
        place = None
    return taken[0][0] if len(taken) == 1 and taken[0][1] == words[-1] else None


def check_adaptive(
    model: Any, tape: Recording, promise: ApproxDP, *, select: float = 1.0, noise: float = 1.0, end: float = 1.0
) -> int:
    """Every round's marginal is picked by a fresh stretch of tape, its noise is the next; how many picks agree.

    Where the promise is large, three fifths of its rho are kept for all that is asked, and measure it at the end.
    """
    from hybridp.blend.graph import GraphModel

    names, whole = CANDIDATES, rho_of(promise.epsilon, promise.delta)
    asked_last = TABLES if promise == PROMISE else ()
    chosen = 0.4 * whole if asked_last else whole
    first = chosen * 3 / (ROUNDS + 3)
    single = noise * math.sqrt(len(SINGLES) / first)
    assert tuple(t.features for t in model.tables[:4]) == SINGLES
    added = np.concatenate([t.counts - truth(records(), t.features) for t in model.tables[:4]])
    spans = [span_of(tape, added, lambda size, rng: np.concatenate([gaussians(single)(n, rng) for n in SIZES]))]
    graph, agree = GraphModel.uniform(SIZES), 0
    assert tuple(t.features for t in model.tables[4 + ROUNDS :]) == asked_last
    for i in range(ROUNDS):
        graph = graph.fit(model.tables[: 4 + i], PEOPLE, sweeps=12)
        rho = (chosen - first) * 1.25**i / sum(1.25**j for j in range(ROUNDS))
        sigma, scale = math.sqrt(1 / (0.9 * rho)), select * math.sqrt(1 / (2 * 0.1 * rho))
        gains = np.array([nearer(truth(records(), c), PEOPLE * graph.table(c), sigma) for c in names])
        now, before = model.tables[4 + i], spans[-1][1]
        spans.append(span_of(tape, (now.counts - truth(records(), now.features)).ravel(), gaussians(noise * sigma)))
        # The pick is what was drawn between the noise of two marginals.
        agree += picked(tape.words[before : spans[-1][0]].tolist(), gains, scale) == names.index(now.features)
    for last in model.tables[4 + ROUNDS :]:
        sigma = end * noise * math.sqrt(len(TABLES) / (0.6 * whole))
        spans.append(span_of(tape, (last.counts - truth(records(), last.features)).ravel(), gaussians(sigma)))
    apart(*spans)
    return agree


@pytest.mark.parametrize(("promise", "seeds"), [(PROMISE, (1, 3)), (LITTLE, (5, 7))])
def test_adaptive_picks_and_marginals_have_the_noise_of_their_shares(
    promise: ApproxDP, seeds: tuple[int, ...], tmp_path: Path
) -> None:
    wrong, rounds = 0, ROUNDS + (2 if promise == PROMISE else 1)
    for seed in seeds:
        ledger, tape = Ledger.create(tmp_path / f"{seed}.ledger", {"trusted": promise}), Recording(seed)
        with tape.as_the_systems(), warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)
            model = fit_synth(rows(), replace(study("adaptive"), guarantee=promise), ledger=ledger)
        assert check_adaptive(model, tape, promise) == ROUNDS
        _charged(ledger, model, rounds, promise)
        wrong += check_adaptive(model, tape, promise, select=math.sqrt(0.1))  # a choice with the whole round's budget
    assert wrong < len(seeds) * ROUNDS
    with pytest.raises(AssertionError, match="0 stretches"):
        check_adaptive(model, tape, promise, noise=0.9)
    if promise == PROMISE:
        with pytest.raises(AssertionError, match="0 stretches"):  # at the end with all of rho
            check_adaptive(model, tape, promise, end=math.sqrt(0.6))


def test_picks_of_tables_follow_the_exponential_mechanism_among_those_allowed() -> None:
    """Probabilities are proportional to exp(score/scale), scale = 1/sqrt(2 rho) people, among the allowed ones."""
    rho, scores = 0.125, [0, 3, 1, 2]  # people; the scale is 2
    allowed = {0, 2, 3}
    tape = Recording(9)
    picks = [pick_table([s * LATTICE for s in scores], rho, allowed.__contains__, rng=tape.rng) for _ in range(20_000)]
    for scale, right in ((2.0, True), (1.8, False)):
        odds = {i: math.exp(scores[i] / scale) for i in allowed}
        expected = [odds[i] / sum(odds.values()) for i in sorted(allowed)]
        found = [picks.count(i) / len(picks) for i in sorted(allowed)]
        sd = [math.sqrt(p * (1 - p) / len(picks)) for p in expected]
        close = all(abs(a - b) < 4.5 * s for a, b, s in zip(found, expected, sd, strict=True))
        assert close is right
    assert set(picks) == allowed
    assert pick_table([0, 0], rho, lambda _: False, rng=tape.rng) is None


def test_replacing_a_record_moves_a_gain_by_at_most_one_person() -> None:
    people, draw, moved = records(), np.random.default_rng(3), 0.0
    for features in sorted(CANDIDATES):
        law = draw.dirichlet(np.full(math.prod(SIZES[f] for f in features), 0.3)).reshape([SIZES[f] for f in features])
        for sigma in (4.0, 100.0):
            before = gain(Codes(SCHEMA, people.T), features, law, sigma)
            exact = nearer(truth(people, features), PEOPLE * law, sigma)
            assert before / LATTICE == pytest.approx(exact, abs=0.01)
            for other in itertools.product(*((0, s - 1) for s in SIZES)):
                changed = people.copy()
                changed[0] = other
                step = abs(gain(Codes(SCHEMA, changed.T), features, law, sigma) - before)
                assert step <= LATTICE
                moved = max(moved, step / LATTICE)
    assert moved == 1  # the bound is reached


def test_the_levels_in_the_ledger_are_no_more_private_than_the_rounds() -> None:
    """Tight accounting reads a round as Gaussian noise: its profile must bound that of picks and answers together.

    The answers alone are a Gaussian mechanism of their rho. Each pick is epsilon'-DP with epsilon' = 2/scale, which
    randomised response of that epsilon' dominates.
    """
    from hybridp.public.mechanisms import gaussian_profile

    for method, picks in (("tables", 0), ("adaptive", 1)):
        charges = study(method).charges("a test", "a fit")
        for use, charge in zip(study(method).plan, charges, strict=True):
            assert charge.noise is not None
            kind, level = charge.noise
            assert kind == "gaussian"
            assert level <= 1 / math.sqrt(2 * use.measure_rho) * (1 + 1e-12)
            if not picks or not use.select_rho:
                continue
            loss = 2 / math.sqrt(picks / (2 * use.select_rho))
            p = 1 / (1 + math.exp(-loss))
            # All picks' responses side by side: the hockey stick over how many of them told the truth.
            rest = 1 / math.sqrt(1 / level**2 - 2 * use.measure_rho)
            for epsilon in np.linspace(0, loss * picks, 9):
                worst = sum(
                    math.comb(picks, k)
                    * max(0.0, p**k * (1 - p) ** (picks - k) - math.exp(epsilon) * p ** (picks - k) * (1 - p) ** k)
                    for k in range(picks + 1)
                )
                assert gaussian_profile(1.0, rest, float(epsilon)) >= worst * (1 - 1e-9)


# --- the other doors --------------------------------------------------------------------------------------------------


def table(path: Path) -> Path:
    path.write_text("\n".join(["a,b,c,d", *(",".join(map(str, record)) for record in records().tolist())]) + "\n")
    return path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hybridp.cli.app import main
    from hybridp.tasks.transcript import load_model

    place, tape = table(tmp_path / "rows.csv"), Recording(5)
    (tmp_path / "domain.json").write_text(json.dumps(dict(zip("abcd", SIZES, strict=True))))
    line = f"synth fit {place} --schema {tmp_path / 'domain.json'} --epsilon {EPSILON} --delta {DELTA} --rows 40 --json"
    asked = ["--other", "last", "--marginals", "a,b,c", "--marginals", "b,c,d", "--marginals", "1-of: a,d"]
    with tape.as_the_systems(), pytest.raises(SystemExit) as left:
        main([*line.split(), *asked, "--method", "tables", "--out", str(tmp_path / "model")])
    assert left.value.code == 0, capsys.readouterr().err
    model = load_model(tmp_path / "model")
    assert not model.simulated
    check_tables(model, tape, records())


def test_replacing_a_record_moves_two_cells_of_every_marginal_by_one() -> None:
    people = records()
    for other in itertools.product(*((0, s - 1) for s in SIZES)):
        moved = people.copy()
        moved[0] = other
        for features in (*SINGLES, *TABLES):
            one, two = (
                measure_table(Codes(SCHEMA, p.T), features, 5.0, rng=Recording(6).rng).counts for p in (people, moved)
            )
            assert np.abs(one - two).sum() in (0, 2)
            assert np.abs(one - two).max() <= 1
