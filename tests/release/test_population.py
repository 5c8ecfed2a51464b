"""An answer about a population whose groups are known, from people who took part as they liked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hybridp as hp
from hybridp import InvalidInput, Ledger, Study, seeded

TOWNS = {"by": "town", "categories": ["u", "v", "w"], "population": [50, 30, 20], "public": ["town", "trust"]}
PAY: dict[str, Any] = {"bounds": (0, 100), "trust": "trust", "missing": "middle", "epsilon": 2.0}


def people() -> pd.DataFrame:
    """Of 12,000 those of w, whose pay is highest, took part most."""
    rng = np.random.default_rng(1)
    town = rng.choice(["u", "v", "w"], 12_000, p=[0.2, 0.2, 0.6])
    pay = np.clip(rng.normal(pd.Series(town).map({"u": 30, "v": 40, "w": 60}), 10), 0, 100)
    trust = np.where(rng.random(12_000) < 0.2, "trusted", "local")
    way = np.where(rng.random(12_000) < pay / 100, "car", "bus")
    return pd.DataFrame({"pay": pay, "town": town, "trust": trust, "way": way})


def test_it_is_the_sum_of_its_groups_and_costs_nothing_more(tmp_path: Path) -> None:
    frame, spent = people(), []
    for name, more in (("with", TOWNS), ("without", {k: x for k, x in TOWNS.items() if k != "population"})):
        ledger = Ledger.create(tmp_path / name, {"trusted": hp.PureDP(2), "local": hp.PureDP(2)}, trial=True)
        found = hp.mean(frame, "pay", **PAY, **more, ledger=ledger, rng=seeded(3), simulate_local=True)
        spent.append([(one.people, one.budget, one.mechanism) for one in ledger.history()])
        if name == "with":
            whole = found
        else:
            assert [cell.name for cell in found.cells] == ["u", "v", "w"]
            assert [tuple(one)[2:5] for one in found.cells] == [tuple(one)[2:5] for one in whole.cells[:3]]
    assert spent[0] == spent[1]
    *each, all_of = whole.cells
    assert all_of.name == "population"
    plain = whole.facts["unbiased"]
    assert plain[3] == pytest.approx(np.dot([0.5, 0.3, 0.2], plain[:3]))
    assert all_of.trusted == pytest.approx(np.dot([0.5, 0.3, 0.2], [one.trusted for one in each]))
    assert all_of.low < 39 < all_of.high  # .5 x 30 + .3 x 40 + .2 x 60
    assert frame.pay.mean() > 47
    assert all_of.width < 1.2 * np.sqrt(sum((w * one.width) ** 2 for w, one in zip((0.5, 0.3, 0.2), each, strict=True)))
    assert "50% u, 30% v, 20% w" in " ".join(whole.remarks if hasattr(whole, "remarks") else str(whole).split("\n"))
    assert any("like those who did not" in line for line in whole.receipt.assumes)


def test_shares_and_vectors_have_one_too() -> None:
    frame = people()
    more = {"trust": "trust", "epsilon": 4.0, "rng": seeded(2), "simulate_local": True, **TOWNS}
    ways = hp.shares(frame, "way", options=["bus", "car"], missing="bus", **more)
    told = {cell.name: cell for cell in ways.cells}
    assert told["population: car"].low < 0.39 < told["population: car"].high
    assert told["population: car"].estimate + told["population: bus"].estimate == pytest.approx(1)
    asked = {"name": "both", "kind": "vector", "columns": ["pay", "twice"], "lower": 0, "upper": [100, 200],
             "missing": "middle", **{k: x for k, x in TOWNS.items() if k != "public"}}  # fmt: skip
    study = Study(questions=[asked], promise=8.0, trust="trust", people={"public": TOWNS["public"]})
    both = study.release(frame.assign(twice=2 * frame.pay), simulate_local=True, rng=seeded(4))["both"]
    ends = {cell.name: (cell.low, cell.high) for cell in both.cells}
    assert ends["population: pay"][0] < 39 < ends["population: pay"][1]
    assert ends["population: twice"][0] < 78 < ends["population: twice"][1]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"population": [1, 2]}, "population"),
     ({"population": [-1, 2, 3]}, "population"),
     ({"population": [0, 0, 0]}, "population"),
     ({"categories": []}, "population"),
     ({"by_private": True}, "population"),
     ({"by": None, "categories": []}, "population"),
     ({"categories": ["u", "v", "population"]}, "categories")],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=f"`(pay.)?{field}"):
        hp.mean(people(), "pay", **PAY, **{**TOWNS, **wrong}, rng=seeded(1), simulate_local=True)


@pytest.mark.parametrize("by", [{}, {**TOWNS}])
def test_what_is_stated_is_said_where_the_estimate_rests_on_it(by: dict[str, Any]) -> None:
    """The weight is not that of people's numbers any more, and nobody is told so."""
    frame = people().assign(pay=lambda t: t.pay + 20 * (t.trust == "trusted"))
    found = hp.mean(frame, "pay", **PAY, **by, gap=30, lies=0.02, rng=seeded(1), simulate_local=True)
    assert found.facts["stated"] == {"gap": pytest.approx(30), "lies": 0.02}
    said = " ".join(found.receipt.assumes)
    assert "differ by at most 30, and at most 2% of local people send anything" in said
    assert "number of people" not in str(found).split("Receipt")[0]


def test_lies_are_bounded_of_a_mean_alone() -> None:
    """Elsewhere they are refused, not passed over."""
    number = {"kind": "number", "name": "pay", "lower": 0, "upper": 100, "missing": "middle", "lies": 0.1}
    for more in ({"statistics": ["mean", "quantiles"], "at": [0.5]}, {"by": "town", "by_private": True,
                 "categories": ["u", "v"]}, {"estimator": "adaptive"}, {"form": "steered"}):  # fmt: skip
        with pytest.raises(InvalidInput, match="lies"):
            Study(questions=[number | more], promise=2.0, trust="trust").release(people(), simulate_local=True)


def test_what_does_not_add_up_is_refused() -> None:
    groups = {k: x for k, x in TOWNS.items() if k != "public"}
    for asked in (
        {"kind": "count", "name": "way", "value": "car"},
        {"kind": "number", "name": "pay", "lower": 0, "upper": 100, "statistics": ["quantiles"], "at": [0.5]},
    ):
        with pytest.raises(InvalidInput, match="population"):
            Study(questions=[asked | groups], promise=1.0, trust="trust")
