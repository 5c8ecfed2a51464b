"""The anchored mean: what dishonest reports can do to it, and what the trusted group's spread costs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hybridp.blend.mean import Rule, blend
from hybridp.curator import sums as curating
from hybridp.curator.sums import Columns, Raw, open_rows
from hybridp.errors import InvalidInput
from hybridp.ledger import Ledger
from hybridp.noise import reports, seeded, synthetic_data_generator
from hybridp.protocols.driver import release as release_mean
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import LocalSummary, TrustedSummary
from hybridp.public.randomisers import LEVELS, Bounds, Randomiser
from hybridp.tasks.mean import MeanTask

COLUMNS = Columns("pay", "trust", missing="middle")
STUDY = MeanTask(Bounds(0, 100), PureDP(1.0), Rule("anchored"))
PEOPLE, TRUSTED = 20_000, 1_000


def table(folder: Path, values: list[object], name: str = "people.csv") -> Path:
    path = folder / name
    path.write_text("pay,trust\n" + "".join(f"{v},trusted\n" for v in values))
    return path


def totals(path: Path) -> curating.Raw:
    with open_rows(path) as rows:
        return curating.read(rows, COLUMNS, STUDY.invite, sum_squares=True, count_clipped=True)


def squares(path: Path) -> int:
    return int(totals(path).squares[0])


def summed(unit: np.ndarray, mechanism: Randomiser) -> LocalSummary:
    return LocalSummary(len(unit), float(unit.sum()), float((unit * unit).sum()), mechanism)


def collection(seed: int, liars: float, sent: float = math.inf) -> tuple[TrustedSummary, LocalSummary, float]:
    """20,000 people, 5 % of them trusting, epsilon 1; some of the others send `sent`, or the largest report."""
    rng = seeded(seed)
    people = synthetic_data_generator(rng).beta(2, 5, PEOPLE)
    levels = np.rint(people * LEVELS).astype(np.int64)
    mechanism = STUDY.invite.mechanism
    unit = reports(mechanism, levels[TRUSTED:], rng=rng)
    unit[: round(liars * len(unit))] = min(sent, mechanism.bound)
    local = summed(unit, mechanism)
    mine = levels[:TRUSTED]
    totals = Raw(TRUSTED, [int(mine.sum())], local, squares=curating.squares(mine[:, None], STUDY.bounds))
    assert STUDY.squares_noise is not None
    (own,) = curating.release_sums(totals, STUDY.sum_noise, STUDY.bounds, STUDY.squares_noise, rng=rng)
    return own, local, 2 * (2 / 7) - 1


# --- liars ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("liars", "limit"), [(0.0, 0.48), (0.05, 0.85), (0.3, 0.85)])
def test_liars_move_it_by_less_than_a_percent_of_the_range(liars: float, limit: float) -> None:
    """Root mean squared error in percent of the range; the adaptive blend, the control, is pulled away."""
    rmse = {"anchored": 0.0, "adaptive": 0.0}
    for seed in range(60):
        trusted, local, truth = collection(seed, liars)
        for name in rmse:
            own = trusted if name == "anchored" else replace(trusted, squares=None)
            rmse[name] += (50 * (blend(own, local, Rule(name)).estimate - truth)) ** 2 / 60  # type: ignore[arg-type]
    assert math.sqrt(rmse["anchored"]) < limit
    assert liars < 0.05 or math.sqrt(rmse["adaptive"]) > 3


@pytest.mark.parametrize("sent", [-1e9, -3.0, 0.0, 5.0, 1e9])
@pytest.mark.parametrize("spread", [1.0, 1e6])
def test_no_reports_whatever_move_it_beyond_what_it_says(sent: float, spread: float) -> None:
    """Not even reports that no mechanism could make, nor their squares."""
    trusted, local, _ = collection(3, 0.0)
    moved = replace(local, total=sent * local.people, squares=(sent**2 + spread) * local.people)
    honest, found = blend(trusted, local, Rule("anchored")), blend(trusted, moved, Rule("anchored"))
    assert found.anchor is not None
    assert honest.anchor is not None
    assert abs(found.estimate - trusted.mean) <= found.anchor.most * (1 + 1e-12)
    assert found.anchor.most == honest.anchor.most
    assert found.weight == honest.weight
    assert found.error == honest.error
    assert found.anchor.most < 0.03


def test_a_stated_standard_deviation_needs_no_squares() -> None:
    trusted, local, _ = collection(5, 0.0)
    stated = blend(replace(trusted, squares=None), local, Rule("anchored", sd=0.32))
    assert stated.estimate == pytest.approx(blend(trusted, local, Rule("anchored")).estimate, abs=0.003)
    with pytest.raises(InvalidInput, match="sd"):
        blend(replace(trusted, squares=None), local, Rule("anchored"))
    assert MeanTask(Bounds(0, 100), PureDP(1.0), Rule("anchored", sd=0.3)).squares_noise is None


@pytest.mark.parametrize("wrong", [{"gap": 0.1}, {"reach": 0.0}, {"reach": math.inf}])
def test_what_an_anchor_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Rule("anchored", **wrong)  # type: ignore[arg-type]


# --- what the spread costs --------------------------------------------------------------------------------------------


def test_the_squares_are_those_of_the_rows(tmp_path: Path) -> None:
    """Distances from the middle, in 65,536 steps of half the range, rounded down: counted here with fractions."""
    values = [0, 100, 50, 25, 99.9999, 1e9, -3, "", "nothing", 62.5]
    away = [1, 1, 0, 0.5, 0.999998, 1, 1, 0, 0, 0.25]
    assert squares(table(tmp_path, values)) == sum(math.floor(a * 65_536) ** 2 for a in away)
    levels = np.random.default_rng(1).integers(0, LEVELS, 500)
    exact = sum((abs(int(level) - 2**31) // 2**15) ** 2 for level in levels)
    assert curating.squares(levels[:, None], STUDY.bounds) == [exact]


def test_one_person_moves_the_squares_by_at_most_two_to_the_32_and_the_clipped_by_one(tmp_path: Path) -> None:
    base: list[object] = [50, 200, -5, 100]
    before, moves, clipped = totals(table(tmp_path, base)), [], []
    for other in (0, 50, 100, 100.5, -1e300, "text"):
        for i in range(4):
            found = totals(table(tmp_path, [*base[:i], other, *base[i + 1 :]], "changed.csv"))
            moves.append(abs(found.squares[0] - before.squares[0]))
            clipped.append(abs(found.clipped - before.clipped))
    assert (max(moves), max(clipped)) == (2**32, 1)
    noise = STUDY.squares_noise
    assert noise is not None
    assert noise.sensitivity == max(moves)
    assert noise.scale == pytest.approx(max(moves) / 0.1)


@pytest.mark.parametrize("promise", [PureDP(1.0), PureDP(0.3), ApproxDP(0.7, 1e-7)])
@pytest.mark.parametrize("clipped", [0.0, 1 / 3])
def test_all_parts_together_are_the_promise(tmp_path: Path, promise: PureDP | ApproxDP, clipped: float) -> None:
    people = table(tmp_path, [30, 40, 50, 60])
    study = MeanTask(Bounds(0, 100), promise, Rule("anchored"), clipped_share=clipped)
    ledger = Ledger.create(tmp_path / "people.ledger", {"trusted": promise, "local": PureDP(9.0)})
    found = release_mean(people, study, COLUMNS, ledger=ledger)
    spent = [e for e in ledger.history() if e.people == "trusted"]
    named = ["the sum", *(["the count of clipped people"] if clipped else []), "the sum of squares"]
    assert [e.mechanism.split(" on ")[1] for e in spent] == named
    assert math.fsum(e.budget.epsilon for e in spent) == pytest.approx(promise.epsilon, rel=1e-11)
    assert math.fsum(e.budget.epsilon for e in spent) <= promise.epsilon * (1 + 1e-15)
    assert spent[-1].budget.epsilon == pytest.approx(0.1 * promise.epsilon, rel=1e-9)
    assert not clipped or spent[1].budget.epsilon == pytest.approx(0.9 * clipped * promise.epsilon, rel=1e-9)
    (said,) = [p for p in found.receipt.promises if p.people == "trusted" and p.budget is not None]
    assert isinstance(said.budget, PureDP | ApproxDP)
    assert said.budget.epsilon == promise.epsilon
    assert "sum of squares" in said.mechanism


# --- how many people the bounds clip ----------------------------------------------------------------------------------

CLIPPED = replace(STUDY, rule=Rule("everyone"), clipped_share=0.1)


@pytest.mark.parametrize(
    "change",
    [
        {"clipped_share": 1.0},
        {"clipped_share": -0.1},
        {"rule": Rule("lm-only")},
        {"rule": Rule("full-lm")},
        {"rule": Rule("kvh", sd=0.2), "publish": "estimate-only"},
    ],
)
def test_what_has_no_count_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="clipped_share"):
        replace(CLIPPED, **change)  # type: ignore[arg-type]


# --- where groups are taken to be alike -------------------------------------------------------------------------------

DEFAULT = MeanTask(Bounds(0, 100), PureDP(1.0), Rule("alike"))


@pytest.mark.parametrize(("spread", "leash"), [(0.1, 1.5), (0.9, 1.9)])
def test_the_leash_is_that_of_the_spread_which_the_trusted_group_finds(spread: float, leash: float) -> None:
    """Little spread: the trusted know the mean, and are held on to tightly. Much: 3 % of the error loosens it."""
    _, local, _ = collection(2, 0.0)
    decided = DEFAULT.decided(1000, local.people)
    assert decided.rule.reach is None
    levels = np.rint((0.5 + spread * np.resize([-0.5, 0.5], 1000)) * LEVELS).astype(np.int64)
    totals = Raw(1000, [int(levels.sum())], local, squares=curating.squares(levels[:, None], decided.bounds))
    (trusted,) = curating.release_sums(
        totals, decided.sum_noise, decided.bounds, decided.squares_noise, rng=seeded(4)
    )
    found = blend(trusted, local, decided.rule)
    assert found.anchor is not None
    assert found.anchor.reach == pytest.approx(leash, abs=0.1)
    moved = replace(local, total=1e9, squares=1e19)
    lied = blend(trusted, moved, decided.rule)
    assert lied.anchor is not None
    assert (lied.anchor.reach, lied.anchor.most) == (found.anchor.reach, found.anchor.most)
    assert abs(lied.estimate - trusted.mean) <= found.anchor.most * (1 + 1e-12)


def test_rows_that_cannot_be_counted_are_charged_like_rows_that_cannot_be_read(tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("pay,trust\n1,trusted\n2,nobody\n")
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    with pytest.raises(InvalidInput, match="trust"):
        release_mean(people, DEFAULT, COLUMNS, ledger=ledger)
    assert [e.state for e in ledger.history()] == ["void"]  # a label is public

    def fails(*_: object) -> None:
        raise RuntimeError("something in a row")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hybridp.curator.sums.count_rows", fails)
        with pytest.raises(RuntimeError):
            release_mean(people, DEFAULT, COLUMNS, ledger=ledger)
    assert [e.state for e in ledger.history()] == ["void", "refused"]
    assert ledger.remaining("trusted").epsilon == 0.0
