"""How many people the bounds clip: measured within the promise, by noise of its own, charged and on the receipt."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hybridp import curator
from hybridp.blend.mean import Rule
from hybridp.curator import mean as curating
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger import Ledger
from hybridp.protocols.driver import release as release_mean
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Bounds
from hybridp.tasks.mean import MeanStudy

COLUMNS = curating.Columns("pay", "trust", missing="middle")
STUDY = MeanStudy(Bounds(0, 100), PureDP(1.0), clipped_share=0.1)


def write(folder: Path, values: list[object], name: str = "people.csv") -> Path:
    path = folder / name
    path.write_text("pay,trust\n" + "".join(f"{v},trusted\n" for v in values))
    return path


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A thousand people, 300 of them outside [0, 100]; the bounds themselves are inside."""
    return write(tmp_path, [*[50] * 600, *[0] * 50, *[100] * 50, *[-1] * 100, *[101] * 100, *["1e9"] * 100])


def counted(path: Path) -> int:
    with curator.open_rows(path) as rows:
        return curating.read(rows, COLUMNS, STUDY.invite, count_clipped=True).clipped


def test_one_person_moves_the_count_by_at_most_one(tmp_path: Path) -> None:
    base = [50, 200, -5, 100]
    before = counted(write(tmp_path, list(base)))
    for other in (0, 100, 100.5, -1e300, 50):
        for i in range(4):
            changed: list[object] = [*base[:i], other, *base[i + 1 :]]
            assert abs(counted(write(tmp_path, changed, "changed.csv")) - before) <= 1


@pytest.mark.parametrize("share", [0.1, 0.25, 1 / 3, 0.01])
@pytest.mark.parametrize("promise", [PureDP(1.0), PureDP(0.3), ApproxDP(0.7, 1e-7)])
def test_both_parts_together_are_the_promise(people: Path, share: float, promise: PureDP | ApproxDP) -> None:
    """A ledger with exactly the promise pays for sum and count, and not for a second time."""
    study = MeanStudy(Bounds(0, 100), promise, clipped_share=share)
    ledger = Ledger.create(people.parent / f"{share}.ledger", {"trusted": promise, "local": PureDP(9.0)})
    found = release_mean(people, study, COLUMNS, ledger=ledger)
    spent = [e for e in ledger.history() if e.people == "trusted"]
    assert [e.mechanism.split(" on ")[1] for e in spent] == ["the sum", "the count of clipped people"]
    assert math.fsum(e.budget.epsilon for e in spent) == pytest.approx(promise.epsilon, rel=1e-11)
    assert math.fsum(e.budget.epsilon for e in spent) <= promise.epsilon * (1 + 1e-15)
    assert spent[1].budget.epsilon == pytest.approx(share * promise.epsilon, rel=1e-9)
    (said,) = [p for p in found.receipt.promises if p.people == "trusted" and p.budget is not None]
    assert isinstance(said.budget, PureDP | ApproxDP)
    assert said.budget.epsilon == promise.epsilon
    assert "count of clipped people" in said.mechanism
    with pytest.raises(BudgetExceeded):
        release_mean(people, study, COLUMNS, ledger=ledger)


def test_the_release_says_what_share_was_clipped(people: Path) -> None:
    found = release_mean(people, STUDY, COLUMNS)
    share, (low, high) = found.facts["clipped"]["share"], found.facts["clipped"]["interval"]
    assert low <= share <= high
    assert abs(share - 0.3) < 0.3
    assert release_mean(people, replace(STUDY, clipped_share=0.0), COLUMNS).facts["clipped"] is None


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
        replace(STUDY, **change)  # type: ignore[arg-type]
