"""BLENDER's figures on tiny logs; the mechanism as printed against exact laws; judges that notice wrong rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.bench.models import shown_probability
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.heavy import HeadList, discovery
from hybridp.public.mechanisms import ApproxDP
from hybridp_lab.baselines.heavy_metrics import ndcg_of_ndcgs
from hybridp_lab.figure.catalogue import Grid, run_figure, save_picture
from hybridp_lab.papers.blender import figures as blender_figures
from hybridp_lab.papers.blender.findings import values
from hybridp_lab.papers.blender.log import (
    PEOPLE,
    YANDEX_QUERIES,
    SearchLog,
    drawn,
    has_prefixes,
    sample_yandex_like,
    yandex_urls,
)
from hybridp_lab.papers.blender.printed import client_estimate, printed_threshold, simulate_printed
from hybridp_lab.papers.blender.trials import FORMS, VOICES, blender_trials, printed_gain_ndcg
from hybridp_lab.papers.blender.two_stage import from_two_stage, spans, two_stage

BY_NAME = {figure.name: figure for figure in blender_figures.FIGURES}
SMALL = 60_000


# --- the stand-in for Yandex ------------------------------------------------------------------------------------------


def test_the_yandex_like_law_agrees_with_what_is_said_of_the_log() -> None:
    """Expected numbers of queries found: over 500 at 3 % and epsilon 4; at 1 % over 100 but not 500."""
    ranks = np.arange(1, 20_001)
    share = 1 / ranks / (math.log(YANDEX_QUERIES) + 0.5772156649)
    best = share * 0.75 / (1 - 0.25 ** yandex_urls(ranks))  # of a query's most frequent record

    def found(epsilon: float, opt_in: float) -> float:
        people = round(0.95 * opt_in * PEOPLE["yandex"])
        return float(shown_probability(best, people, discovery(ApproxDP(epsilon, 1e-7))).sum())

    assert found(4.0, 0.03) > 500
    assert 100 < found(4.0, 0.01) < 500
    assert found(1.0, 0.03) < 500


def test_numbers_of_urls() -> None:
    ranks = np.arange(1, 4097)
    twos = [next(j for j in range(20) if r % 2 ** (j + 1)) for r in ranks.tolist()]
    assert yandex_urls(ranks).tolist() == [min(8, 1 + j) for j in twos]


def test_yandex_like_records_follow_their_law() -> None:
    n = 400_000
    ranks, urls = sample_yandex_like(n, rng=seeded(5))
    total = float(np.sum(1 / np.arange(1, YANDEX_QUERIES + 1)))

    def off(exponent: float) -> float:
        law = np.arange(1.0, 21) ** -exponent / total
        seen = np.bincount(ranks, minlength=21)[1:21] / n
        return float(np.max(np.abs(seen - law) / np.sqrt(law * (1 - law) / n)))

    assert off(1.0) < 5.5  # p about 1e-6 for all twenty
    assert off(1.05) > 5.5
    fourth = urls[ranks == 4]
    assert np.mean(fourth == 0) == pytest.approx(16 / 21, abs=0.02)
    assert fourth.max() == 2
    assert ranks.max() <= YANDEX_QUERIES


@pytest.mark.skipif(not has_prefixes(), reason="HYBRIDP_DATA has no counts of prefixes")
def test_the_second_log_has_the_published_counts_of_prefixes() -> None:
    """Of 657,427 users 18,720 and 12,292 hold the two most frequent, and 120,978 prefixes are held at all."""
    log = drawn("prefixes", 200_000, 0)
    for rank, count in ((1, 18_720), (2, 12_292)):
        share = count / 657_427
        assert abs(float(log.share(np.array([rank]))[0]) - share) < 5 * math.sqrt(share / 200_000)
    assert int(log.names.max()) <= 120_978


def test_lookups_of_a_log_are_counts() -> None:
    draw = synthetic_data_generator(seeded(6))
    queries, urls = draw.integers(1, 9, 500), draw.integers(0, 3, 500)
    log = SearchLog.of(queries, urls)
    count = Counter(queries.tolist())
    assert log.share(np.array([1, 8, 99])).tolist() == [count[1] / 500, count[8] / 500, 0.0]
    assert log.head(3).tolist() == sorted(count, key=lambda q: (-count[q], q))[:3]
    pairs = Counter(zip(queries.tolist(), urls.tolist(), strict=True))
    q, u, share = log.records(np.array([5, 2]))
    assert {(a, b): round(500 * s) for a, b, s in zip(q.tolist(), u.tolist(), share.tolist(), strict=True)} == {
        pair: many for pair, many in pairs.items() if pair[0] in (2, 5)
    }


# --- as printed -------------------------------------------------------------------------------------------------------

HEAD = HeadList.of([("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("c", "2"), ("c", "3")])
TRUTH = np.array([0.2, 0.1, 0.05, 0.15, 0.02, 0.1, 0.03, 0.05, 0.05, 0.25])


def reported_law() -> tuple[Any, np.ndarray]:
    mechanism = two_stage(HEAD, ApproxDP(2.0, 1e-4), 0.7)
    return mechanism, TRUTH @ np.array([mechanism.report_law(slot) for slot in range(len(HEAD))])


def test_the_printed_threshold_is_safe_and_not_tight() -> None:
    """Errata, part C: the exact delta is half the nominal one; 1 + (2/eps) ln(1/(2 delta)) would do."""
    for epsilon in (0.5, 1.0, 4.0):
        promise = ApproxDP(epsilon, 1e-5)
        tau, scale = printed_threshold(promise), 2 / epsilon
        assert 0.5 * math.exp(-(tau - 1) / scale) == pytest.approx(promise.delta / 2)
        assert tau > 1 + scale * math.log(1 / (2 * promise.delta))


def test_printed_client_estimates_are_unbiased() -> None:
    """Lemma 2.2.5: reports in their expected proportions give back the truth."""
    mechanism, law = reported_law()
    n = 10**9
    result = client_estimate(mechanism, np.rint(n * law).astype(np.int64))
    np.testing.assert_allclose(result.slots, TRUTH, atol=1e-7)
    np.testing.assert_allclose(result.queries, np.bincount(HEAD.query_of, weights=TRUTH), atol=1e-7)


def linear_variances(mechanism: Any, law: np.ndarray, n: int) -> np.ndarray:
    """The exact variance of each slot's estimate: it is linear in the reports, whose covariance is multinomial."""
    base = client_estimate(mechanism, np.rint(1e9 * law).astype(np.int64)).slots
    matrix = np.empty((len(law), len(law)))
    for j in range(len(law)):
        moved = np.rint(1e9 * law).astype(np.int64)
        moved[j] += 10**6
        moved[-1] -= 10**6
        matrix[:, j] = (client_estimate(mechanism, moved).slots - base) / 1e-3
    covariance = (np.diag(law) - np.outer(law, law)) / n
    return np.einsum("ij,jk,ik->i", matrix, covariance, matrix)


def test_errata_20_bessel_twice() -> None:
    """The corrected sample variance has the exact one as its limit; the printed one is larger in the query's term."""
    mechanism, law = reported_law()
    n = 40
    several = spans(HEAD)[1][HEAD.query_of] > 1

    exact = linear_variances(mechanism, law, n)
    reports = np.rint(1e9 * law).astype(np.int64)  # expected reports of many; variances rescale by their number
    many = int(reports.sum())
    right = from_two_stage(mechanism, reports).variances * (many - 1) / n
    np.testing.assert_allclose(right[several], exact[several], rtol=1e-5)
    few = np.array([14, 3, 2, 5, 2, 3, 2, 2, 2, 5])
    printed, corrected = client_estimate(mechanism, few).variances, from_two_stage(mechanism, few).variances
    assert few.sum() == n
    assert np.all(printed[several] > corrected[several] * (1 + 1e-6))  # the query's term is n/(n-1) too large
    np.testing.assert_allclose(printed[~several], corrected[~several], rtol=1e-9)


def small_log(people: int = 40_000, seed: int = 8) -> SearchLog:
    draw = synthetic_data_generator(seeded(seed))
    queries = np.minimum(draw.geometric(0.05, people), 200)
    return SearchLog.of(queries, draw.integers(0, 1 + queries % 3))


def test_errata_19_a_merged_wildcard_keeps_one_noise_draw() -> None:
    log, promise = small_log(), ApproxDP(1.0, 1e-5)
    trial = simulate_printed(log, promise, head=1, trusted=20_000, rng=seeded(2))
    n, merged = 1000, trial.discovered - (len(trial.head) - 2)
    assert merged > 20
    assert trial.opt_in is not None
    p, b = trial.opt_in.centres[-1], 2 / (1 - 2 * math.log1p(-1e-5))
    sampling = p * (1 - p) / (n - 1)
    assert trial.opt_in.errors[-1] ** 2 == pytest.approx(sampling + 2 * b * b / (n * (n - 1)), rel=1e-9)
    assert trial.opt_in.errors[-1] ** 2 < sampling + 2 * b * b * (merged + 1) / n**2


def test_errata_21_the_wildcards_differ() -> None:
    """The opt-in group counts <q, unlisted url> with everything else, the clients with the query: sums tell."""
    draw = synthetic_data_generator(seeded(3))
    people = 60_000
    queries = np.where(draw.random(people) < 0.5, 1, 2)
    # Query 1 has one frequent url and very many rare ones, which are never listed.
    urls = np.where((queries == 1) & (draw.random(people) < 0.5), draw.integers(10, 1_000_000, people), 0)
    trial = simulate_printed(SearchLog.of(queries, urls), ApproxDP(8.0, 1e-6), head=5, trusted=40_000, rng=seeded(4))
    assert trial.opt_in is not None
    assert trial.clients is not None
    assert trial.opt_in.query_centres[-1] == pytest.approx(0.25, abs=0.05)
    assert trial.clients.query_centres[-1] == pytest.approx(0.0, abs=0.02)


def test_the_printed_collection_counts_everybody() -> None:
    """With a huge epsilon the clients' estimates are the clients' true shares."""
    log = small_log()
    trial = simulate_printed(log, ApproxDP(30.0, 1e-3), head=20, trusted=20_000, rng=seeded(5))
    assert trial.clients is not None
    rest = [(str(q), str(u)) for q, u in zip(log.queries[20_000:].tolist(), log.urls[20_000:].tolist(), strict=True)]
    true = np.bincount([trial.head.slot_of(record) for record in rest], minlength=len(trial.head)) / len(rest)
    np.testing.assert_allclose(trial.clients.centres, true, atol=0.01)
    assert trial.clients.queries.sum() == pytest.approx(1)
    np.testing.assert_allclose(trial.blended.queries, np.bincount(trial.head.query_of, weights=trial.blended.slots))


def test_the_printed_gain_rewards_nothing() -> None:
    """Errata 22: for a list of strangers the gain 2^rel - 1 gives 0, and 2^(rel - 1) most of the score."""
    truth = (np.array([1, 1, 2]), np.array([0, 1, 0]), np.array([0.5, 0.2, 0.3]))
    right, wrong = np.array([[1, 0], [1, 1], [2, 0]]), np.array([[1, 1], [1, 0], [2, 0]])
    strangers = np.array([[1, 7], [2, 8]])
    assert printed_gain_ndcg(right, np.array([0.5, 0.2, 0.3]), *truth, 2) == pytest.approx(1)
    assert 0.9 < printed_gain_ndcg(wrong, np.array([0.5, 0.2, 0.3]), *truth, 2) < 1
    named = dict(zip(("true_queries", "true_urls", "true_shares"), truth, strict=True))
    assert ndcg_of_ndcgs(strangers[:, 0], strangers[:, 1], np.array([0.6, 0.4]), **named, k=2) == 0
    assert printed_gain_ndcg(strangers, np.array([0.6, 0.4]), *truth, 2) >= 0.5


# --- figures ----------------------------------------------------------------------------------------------------------


def test_what_is_declared() -> None:
    more = ["blender-2.2.3.2", "blender-2.4.2"]
    assert list(BY_NAME) == ["blender-table-2.2", *(f"blender-2.{i}" for i in range(3, 12)), *more]
    for figure in BY_NAME.values():
        assert 0 < len(figure.points("quick")) <= len(figure.points("full"))
        assert "made-up log" in figure.not_public or figure.name == "blender-2.4.2"  # which reads no data
    for pair in (("2.5", "2.7"), ("2.6", "2.8")):
        first, second = (BY_NAME[f"blender-{number}"].points("quick") for number in pair)
        assert first == second
    shared = {json.dumps(p, sort_keys=True) for n in ("2.5", "2.6") for p in BY_NAME[f"blender-{n}"].points("quick")}
    assert {json.dumps(p, sort_keys=True) for p in BY_NAME["blender-2.9"].points("quick")} <= shared


def shrunk(grid: Grid) -> Grid:
    """The same grid with two logs of few people and lists a fifth as long."""
    heads = tuple(dict.fromkeys(max(2, head // 5) if head != 10 else 10 for head in grid.axes["head"]))
    return replace(grid, axes={**grid.axes, "log": (0, 1), "people": (SMALL,), "head": heads})


@pytest.mark.parametrize("name", ["table-2.2", *(f"2.{i}" for i in range(3, 12))])
def test_every_quick_point_runs_at_a_small_size(name: str, tmp_path: Path) -> None:
    figure = BY_NAME[f"blender-{name}"]
    grids = tuple(shrunk(grid) for grid in figure.grid["quick"])
    result = run_figure(replace(figure, grid={"quick": grids, "full": grids}), folder=tmp_path)
    json.dumps(result.to_dict(), allow_nan=False)
    for check in result.verdict.checks:
        assert check.free or (check.status == "not judgeable" and (check.stand_in or not check.trials))
    assert len(result.verdict.checks) >= 2
    for check in result.verdict.checks:
        assert check.place
        assert check.printed
        assert check.found
    save_picture(result, tmp_path / "figure.svg")


def test_the_local_model_of_whole_sets() -> None:
    point = {"log": 0, "data": "aol", "people": 3000, "form": "LDPMiner", "epsilon": 6.0, "opt_in": 0.0, "head": 3}
    for bag in (1, 10):
        (row,) = blender_trials({**point, "query_share": 0.0, "bag": bag, "trial": 0})
        assert 0 <= row["ndcg"] <= 1
        assert json.loads(json.dumps(row)) == row


# --- judges -----------------------------------------------------------------------------------------------------------


def made_up(costs: dict[str, tuple[float, float, float]], opt_ins: tuple[float, ...] = (0.001, 0.01)) -> list[Any]:
    """Rows of Figure 2.11: l1 (and 1 - NDCG) of opt-in group, clients and blend in every form."""
    rows = []
    for form, trio in costs.items():
        for log in range(3):
            for c in opt_ins:
                common = {"form": form, "log": log, "data": "yandex", "epsilon": 4.0, "opt_in": c, "head": 10}
                for voice, cost in zip(VOICES, trio, strict=True):
                    value = cost * (1 + 0.01 * log)
                    measured = {"l1": value, "ndcg": 1 - value, "mass": 1.0, "found": 10, "reached": True}
                    rows.append({**common, "voice": voice, **measured})
    return rows


def test_a_claim_is_judged_as_printed_and_the_others_are_told() -> None:
    judge = BY_NAME["blender-2.11"].judge
    good, bad = (0.3, 0.1, 0.12), (0.3, 0.1, 0.28)
    assert judge(made_up(dict.fromkeys(FORMS, good))).status == "reproduced"
    after = judge(made_up({"as printed": bad, "corrected": good, "hybridp": good}))
    assert after.status == "refuted"
    assert "corrected: reproduced" in after.checks[-1].found
    assert judge(made_up({"as printed": good, "corrected": bad, "hybridp": bad})).status == "reproduced"


def test_groups_are_compared_log_by_log() -> None:
    rows = made_up(dict.fromkeys(FORMS, (0.3, 0.2, 0.1)), opt_ins=(0.01, 0.03, 0.1))
    rows += [{**row, "epsilon": e} for row in rows if row["opt_in"] == 0.03 for e in (1.0, 6.0)]
    claims = {check.claim: check for check in BY_NAME["blender-2.9"].judge(rows).checks}
    both = claims["The blend's l1 is better than both groups' everywhere."]
    assert both.status == "reproduced"
    assert both.value == pytest.approx(np.mean([0.1 * (1 + 0.01 * log) for log in range(3)]))
    assert claims["The opt-in group improves with its share."].status == "undecided"  # it does not change at all
    assert values(rows, "l1", form="corrected", voice="clients", opt_in=0.1) == pytest.approx([0.2, 0.202, 0.204])
