"""The whole conversation on files when everyone brings their own epsilon."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.curator.sums import Columns, Source
from hybridp.device.reports import randomise_own
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.protocols.driver import release as release_mean
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite, OwnEpsilon
from hybridp.public.personal import PersonalDP
from hybridp.public.randomisers import Bounds
from hybridp.public.study import PERSONAL_ESTIMATORS
from hybridp.release.release import VIEWER, Release
from hybridp.tasks.personal import ACCOUNTS, PersonalTask

BOUNDS = Bounds(0, 100)
STUDY = PersonalTask(BOUNDS)
COLUMNS = Columns("pay", "trust", missing="middle")
_draw = np.random.default_rng(17)
TRUSTED, LOCAL = 400, 2_600
PAY = np.round(100 * _draw.beta(2, 3, TRUSTED + LOCAL), 3)
EPS = _draw.choice([0.0, 0.1, 0.5, 2.0, math.inf], TRUSTED + LOCAL, p=[0.05, 0.25, 0.4, 0.25, 0.05])


def write(path: Path, pay: Any = PAY, eps: Any = EPS, *, trusted: int = TRUSTED, reports: Any = None) -> Path:
    if reports is None:
        reports = randomise_own(BOUNDS.levels(pay[trusted:]), eps[trusted:], BOUNDS, rng=seeded(6))
    text = Invite(BOUNDS, OwnEpsilon(), ("pay",)).text
    rows = [f"{x!r},trusted,{e!r},,\n" for x, e in zip(pay[:trusted].tolist(), eps[:trusted].tolist(), strict=True)]
    rows += [f',local,{e!r},{y!r},"{text}"\n' for e, y in zip(eps[trusted:].tolist(), reports.tolist(), strict=True)]
    path.write_text("pay,trust,eps,report,report_mechanism\n" + "".join(rows))
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("collected") / "rows.csv")


def release(path: Path, study: PersonalTask = STUDY, seed: int = 1, **options: Any) -> Release:
    return release_mean(Source(path, public="eps"), study, COLUMNS, epsilon="eps", rng=seeded(seed), **options)


def test_the_promises_and_what_was_spent(rows: Path) -> None:
    found = release(rows)
    viewer = {p.people: p.budget for p in found.receipt.promises if p.against == VIEWER}
    assert viewer == {"trusted": PersonalDP.of(EPS[:TRUSTED]), "local": PersonalDP.of(EPS[TRUSTED:])}
    groups = found.facts["personal"]["groups"]
    assert [g["epsilon"] for g in groups] == [0, 0.1, 0.5, 2, "inf"]
    assert all(float(g["effective_epsilon"]) <= float(g["epsilon"]) for g in groups)
    assert sum(g["weight"] * g["people"] for g in groups) == pytest.approx(1, rel=1e-9)
    assert float(groups[-1]["effective_epsilon"]) < math.inf  # nobody needs the whole of infinity
    assert found.facts["personal"]["saturated"] >= groups[-1]["people"]
    assert any("free" in str(p.note) for p in found.receipt.promises)
    assert any("WARNING" in text for text in found.receipt.assumes)
    assert found.simulated


def test_whoever_asks_for_0_has_no_influence_at_all(tmp_path: Path, rows: Path) -> None:
    pay, zero = PAY.copy(), EPS == 0
    pay[zero] = 100.0
    reports = randomise_own(BOUNDS.levels(PAY[TRUSTED:]), EPS[TRUSTED:], BOUNDS, rng=seeded(6))
    reports[zero[TRUSTED:]] = 1e9
    changed = release(write(tmp_path / "changed.csv", pay, reports=reports))
    assert changed.to_dict() == release(rows).to_dict()
    pay[(EPS == 0.1).argmax()] = 100.0  # the control: a person with epsilon .1 has one
    assert release(write(tmp_path / "control.csv", pay, reports=reports)).facts["unbiased"] != changed.facts["unbiased"]


def test_everybody_public_gives_the_exact_mean(tmp_path: Path) -> None:
    eps = np.full(50, math.inf)
    path = write(tmp_path / "rows.csv", PAY[:50], eps, trusted=50, reports=np.zeros(0))
    for estimator in ("everyone", *PERSONAL_ESTIMATORS):
        found = release(path, replace(STUDY, estimator=estimator))
        assert found.facts["unbiased"] == pytest.approx(float(PAY[:50].mean()), abs=1e-7)
        assert (found.facts["mechanisms"]["trusted"], found.receipt.promises[1].budget) == ("none", PersonalDP.of(eps))


# --- the ledger ---


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "study.ledger", {name: PureDP(1.0) for name in ACCOUNTS.values()}, trial=True)


def left(ledger: Ledger) -> tuple[float, float]:
    return ledger.remaining(ACCOUNTS["trusted"]).epsilon, ledger.remaining(ACCOUNTS["local"]).epsilon


def test_shares_of_everybodys_own_epsilon_add_up(rows: Path, ledger: Ledger) -> None:
    half = replace(STUDY, share=0.5)
    first = release(rows, half, ledger=ledger, collection="first")
    assert left(ledger) == (0.5, 0.0)  # the same reports are used again at no further charge
    spent = first.facts["personal"]["groups"]
    assert [float(g["epsilon"]) for g in spent] == [0, 0.05, 0.25, 1, math.inf]
    assert all(float(g["effective_epsilon"]) <= float(g["epsilon"]) for g in spent)
    release(rows, half, ledger=ledger, collection="first")
    assert left(ledger) == (0.0, 0.0)
    with pytest.raises(BudgetExceeded):
        release(rows, half, ledger=ledger, collection="first")
    with pytest.raises(BudgetExceeded):  # other reports of the same people
        release(rows, replace(STUDY, share=1e-6), ledger=ledger, collection="second")


# --- bad input ---


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"share": 0.0}, "share"),
        ({"share": 1.5}, "share"),
        ({"share": math.nan}, "share"),
        ({"level": 1.0}, "level"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^`{name}` "):
        replace(STUDY, **changes)


def test_epsilons_too_small_for_any_estimate(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", PAY[:10], np.full(10, 0.01), trusted=10, reports=np.zeros(0))
    with pytest.raises(InvalidInput, match="midpoint"):
        release(path, replace(STUDY, estimator="adpm"))
