"""`hybridp plan`: what is predicted, by independent computations and against what a study's plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.results import sole

from hybridp_lab.baselines import personal

from .conftest import Ran, Runner


def planned(said: Ran) -> dict[str, Any]:
    """The predictions by estimator."""
    return dict(sole(said.document)["predicted"]["estimators"])


def test_the_plan_of_a_count_is_that_of_its_share(run: Runner) -> None:
    how = "--n 5000 --opt-in 0.1 --epsilon 1 --json"
    asked = run(f"plan count --column a --value yes --shares 0.2 {how}").document["questions"]["a"]
    count = asked["count"]["predicted"]
    share = run(f"plan shares --column a --options yes,no --shares 0.2,0.8 {how}").document["questions"]["a"]["shares"]
    for who, errors in share["predicted"]["estimators"].items():
        expected = 5000 * errors["rmse_population"][0]
        assert count["estimators"][who]["rmse_population"] == pytest.approx(expected)
    # Of 500 trusted people: sampling, and Laplace noise of scale 1.
    own = 10 * (500 * 0.2 * 0.8 + 2) ** 0.5
    assert count["estimators"]["tcm-only"]["rmse_population"] == pytest.approx(own, rel=0.05)


def test_the_plan_predicts_what_happens(run: Runner) -> None:
    line = "plan shares --options yes,no --shares 0.3,0.7 --n 10000 --opt-in 5% --epsilon 1 --json"
    told = run(line).document["questions"]["choice"]["shares"]["predicted"]["estimators"]
    e, p = 2.718281828459045, 0.3
    own = p * (1 - p) / 500 + 2 / e / (1 - 1 / e) ** 2 / 500**2
    warner = p * (1 - p) / 9500 + e / (e - 1) ** 2 / 9500
    assert told["tcm-only"]["rmse_population"][0] == pytest.approx(own**0.5, rel=1e-6)
    assert told["lm-only"]["rmse_population"][0] == pytest.approx(warner**0.5, rel=1e-6)
    assert told["hybrid"]["rmse_population"][0] == pytest.approx((1 / (1 / own + 1 / warner)) ** 0.5, rel=1e-6)


def test_the_plan_has_theorem_1s_numbers(run: Runner) -> None:
    estimators = planned(run("plan mean --groups 0.1:700,2:300 --json"))
    baselines = personal.planned(np.array([0.1, 2.0]), np.array([700, 300]), 0.25, 1.0, bounded=True)
    adpm = estimators["adpm"]
    R = 1 + 8 / (0.1**2 * 1000 * 0.7)
    assert adpm["mse"] == pytest.approx(R / (4 * 1000 * (0.7 + 0.3 * R)), rel=1e-12)
    first, second = adpm["groups"]
    assert set(first) == {"epsilon", "people", "weight", "effective_epsilon"}
    assert (first["epsilon"], first["people"], first["effective_epsilon"]) == (0.1, 700, 0.1)
    assert (second["epsilon"], second["people"]) == (2, 300)
    assert second["effective_epsilon"] == pytest.approx(0.1 * R, rel=1e-12)
    assert second["weight"] / first["weight"] == pytest.approx(R, rel=1e-12)
    assert 700 * first["weight"] + 300 * second["weight"] == pytest.approx(1)
    assert adpm["saturated"] == 300
    assert baselines["uni"]["mse"] == pytest.approx(1 / 4000 + 2 / 100**2, rel=1e-12)
    assert estimators["unified"]["mse"] == pytest.approx(adpm["mse"], rel=1e-12)  # nobody is local
    assert all((e["mse"] >= adpm["mse"]) == (name != "lower-bound") for name, e in baselines.items())


def test_an_infinite_epsilon_is_planned_too(run: Runner) -> None:
    one = run("plan mean --groups 0.1:70,inf:30 --json").document
    assert sole(one)["predicted"]["estimators"]["adpm"]["groups"][1]["epsilon"] == "inf"


def test_local_people_help_the_unified_estimator_only(run: Runner) -> None:
    alone = planned(run("plan mean --groups 0.1:700,2:300 --json"))
    both = run("plan mean --groups 0.1:700,2:300 --local-groups 1:9000,0:50 --json")
    people = both.document["people"]
    assert (people["n"], people["trusted"], people["local"]) == (10_050, 1000, 9050)
    assert planned(both)["unified"]["mse"] < alone["unified"]["mse"]
    assert planned(both)["adpm"] == alone["adpm"]
    quiet = planned(run("plan mean --groups 0.1:700,2:300 --sd 0.01 --json"))
    assert quiet["adpm"]["mse"] < alone["adpm"]["mse"]
    local = planned(run("plan mean --local-groups 1:9000 --json"))
    assert list(local) == ["unified"]
    # 9,000 dithered bits on a range of 1: (1/4 + (B^2 - 2/3)/4)/9000, B = (e+1)/(e-1).
    gain = (np.e + 1) / (np.e - 1)
    assert local["unified"]["mse"] == pytest.approx((1 + gain**2 - 2 / 3) / 4 / 9000, rel=1e-6)


def test_the_plan_states_the_errors_that_a_release_has(run: Runner) -> None:
    """Everybody trusts: the rank error of the median is sqrt(1/4/n) where noise is small, and both groups help."""
    line = "plan quantiles --lower 0 --upper 100 --mean 50 --sd 15 --at .5 --epsilon 8"
    told = run(f"{line} --n 10000 --opt-in 1 --json").document["questions"]["value"]["quantiles"]["predicted"]
    assert told["estimators"]["tcm-only"]["rank_error"][0] == pytest.approx(0.005, rel=0.2)
    assert told["estimators"]["lm-only"]["rank_error"][0] is None
    both = run(f"{line} --n 10000 --opt-in 0.1 --json").document["questions"]["value"]["quantiles"]["predicted"]
    ranks = {name: facts["rank_error"][0] for name, facts in both["estimators"].items()}
    assert ranks["hybrid"] <= min(ranks["tcm-only"], ranks["lm-only"]) * 1.001
    assert run(f"{line} --n 1000 --opt-in 0.1 --sd 500").code == 2


def test_the_plan_says_whether_phases_pay(run: Runner) -> None:
    """With few trusted and many local people they do, down to about one bit a person at the quantile itself."""
    line = "plan quantiles --lower 0 --upper 100 --at .5 --json"
    told = run(f"{line} --n 1000000 --opt-in 0.002 --epsilon 1").document["questions"]["value"]["quantiles"]
    ranks = {name: facts["rank_error"][0] for name, facts in told["predicted"]["estimators"].items()}
    limit = 2.164 / 2 / 1000  # B/(2 sqrt n), B = (e + 1)/(e - 1)
    assert told["choice"] == "steered"
    assert limit < ranks["steered"] < 4 * limit  # each group by itself: those who trust hardly help
    assert ranks["steered"] < 0.5 * min(ranks["everyone"], ranks["tcm-only"], ranks["lm-only"])
    told = run(f"{line} --n 10000 --opt-in 1 --epsilon 1").document["questions"]["value"]["quantiles"]
    assert told["choice"] == told["predicted"]["default"]["estimator"] == "tcm-only"
    assert told["why"].startswith("trusted people alone")
    told = run(f"{line} --n 100000 --opt-in 0.5 --epsilon 0.1").document["questions"]["value"]["quantiles"]
    assert (told["choice"], told["predicted"]["default"]["estimator"]) == ("steered", "everyone")
    assert "if the groups are alike, trusted people alone are about as good" in told["why"]


def test_plans_predict_what_releases_show(run: Runner, tmp_path: Path) -> None:
    crowd = "--n 400 --opt-in 0.5 --lower 0 --upper 100 --epsilon 4 --sd 5 --by dept --categories law,sales,post,mail"
    line = f"plan mean {crowd} --shares 0.3,0.6,0.075,0.025 --compare law"
    public, private = (
        run(f"{line}{more} --json").document["questions"]["value"]["mean_by_group"] for more in ("", " --by-private")
    )
    errors = public["predicted"]["estimators"]["hybrid"]["rmse_population"]
    # by hand: 60 trusted people of `law` with noise of 100/4 on their sum, and 60 reports
    e = 2.718281828459045**4
    alone, local = 25 / 60 + 2 * 25**2 / 60**2, (25 + 50**2 * min(((e + 1) / (e - 1)) ** 2 - 2 / 3, 0.167)) / 60
    assert errors[0] == pytest.approx((1 / (1 / alone + 1 / local)) ** 0.5, rel=0.02)
    wider = private["predicted"]["estimators"]["hybrid"]["rmse_population"]
    assert all(p > q for p, q in zip(wider, errors, strict=True))
    gaps = public["predicted"]["differences"]
    assert [(gap["of"], gap["less"]) for gap in gaps] == [(name, "law") for name in ("sales", "post", "mail")]
    leaning = public["predicted"]["estimators"]["everyone"]["rmse_population"]
    first, second = (0.25 * (25 / n + 2 * 25**2 / n**2 + (local * 60) / n) for n in (60, 120))
    assert errors[0] < leaning[0] < first**0.5  # of alike people; each half counts by its people alone in a difference
    assert gaps[0]["standard_error"] == pytest.approx((first + second) ** 0.5, rel=0.02)
    depts = [dept for dept, n in {"law": 120, "sales": 240, "post": 30, "mail": 10}.items() for _ in range(n)]
    rows = [f"20,{dept},{('local', 'trusted')[i % 2]}" for i, dept in enumerate(depts)]
    (tmp_path / "people.csv").write_text("\n".join(["pay,dept,trust", *rows]) + "\n")
    Path("study.toml").write_text(
        "schema = 1\npeople.public = ['dept', 'trust']\n[promise]\nepsilon = 2.0\n[trust]\ncolumn = 'trust'\n"
        "[[question]]\nname = 'pay'\nkind = 'number'\n"
        "missing = 'middle'\nlower = 0\nupper = 100\nby = 'dept'\nleast = 40\n"
    )
    told = run("plan study.toml people.csv --json").document["questions"]["pay"]["mean_by_group"]
    assert told["by"]["categories"] == ["law", "sales", "other"]
    assert told["shares"] == pytest.approx([0.3, 0.6, 0.1])
    assert run("plan study.toml people.csv").code == 0
