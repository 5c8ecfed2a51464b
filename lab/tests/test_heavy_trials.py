"""The whole conversation on made-up Zipf people: estimates, intervals that cover, trimming, the paper's mode."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hybridp.bench.models import zipf
from hybridp.blend import heavy as blending
from hybridp.curator.sums import Columns
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.heavy import HeadList, OneSlot, counting_noise, discovery
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import OptInCounts
from hybridp.public.randomisers import Oracle
from hybridp.tasks.records import RecordsTask
from hybridp_lab.baselines.oracles import local_hashing, optimised_unary
from hybridp_lab.papers.blender.collection import HeavyTrial, simulate_heavy
from hybridp_lab.papers.blender.two_stage import TwoStageStudy, as_in_the_paper

PROMISE = ApproxDP(4.0, 1e-5)
STUDY = RecordsTask(PROMISE)
COLUMNS = Columns(("query", "url"), "trust", None, "id")
SHARES, URLS = zipf(300, 1.2), np.array([0.7, 0.3])
N, TRUSTED = 40_000, 4_000
WELL_ABOVE = 30 / (0.95 * TRUSTED)  # a share that 30 of the discovery people hold; the threshold is 7
SECRET = "sentinel-8271"  # stands for a private record: no message may repeat it


def truth(record: tuple[str | None, ...], depth: int = 2) -> float:
    share = float(SHARES[int(record[0] or 0)])
    return share * float(URLS[int(record[1] or 0)]) if depth == 2 else share


def trial(study: RecordsTask, seed: int, oracle: Any = None) -> HeavyTrial:
    draw = np.random.default_rng(seed)
    queries = draw.choice(len(SHARES), N, p=SHARES)
    urls = (draw.random(N) < URLS[1]).astype(np.int64) if study.depth == 2 else np.zeros(N, dtype=np.int64)
    return simulate_heavy(queries, urls, study, trusted=TRUSTED, oracle=oracle, rng=seeded(seed))


def deviations(study: RecordsTask, trials: int, seed: int, oracle: Any = None) -> np.ndarray:
    """(unbiased value - truth)/standard error of all records well above the threshold, over many collections."""
    out = []
    for i in range(trials):
        blended = trial(study, seed + i, oracle).blended
        for slot, centre, error in zip(blended.head.slots, blended.centres, blended.errors, strict=True):
            if None not in slot and truth(slot, study.depth) > WELL_ABOVE:
                out.append((centre - truth(slot, study.depth)) / error)
    return np.array(out)


STUDIES = {
    "best": STUDY,
    "one column": replace(STUDY, depth=1),
    "no reuse": replace(STUDY, reuse=False),
    "slots": TwoStageStudy(PROMISE, order="slots"),
    "little privacy budget": replace(STUDY, guarantee=ApproxDP(1.0, 1e-5)),
    "trimmed": replace(STUDY, head=8),
    "paper": as_in_the_paper(PROMISE),
    "oue": STUDY,
    "hashing": STUDY,
}
ORACLES = {"oue": optimised_unary, "hashing": local_hashing}


@pytest.mark.parametrize("name", list(STUDIES))
def test_estimates_are_unbiased_and_intervals_cover(name: str) -> None:
    """Records well above the threshold. Controls: intervals of half the width, and a truth moved by half an error."""
    z = deviations(STUDIES[name], 40, seed=100, oracle=ORACLES.get(name))
    assert len(z) >= 300
    assert np.abs(z).max() < 6
    # A residue of the group's own luck in its weights: a tenth of an error or so.
    assert abs(z.mean()) < 0.2
    assert (np.abs(z) < 1.96).mean() >= 0.93
    assert (np.abs(z) < 1.96 / 2).mean() < 0.80
    assert abs((z + 0.5).mean()) > 0.2


def test_pooled_coverage_is_the_nominal_one() -> None:
    z = np.concatenate([deviations(STUDIES[n], 40, seed=900) for n in ("best", "no reuse", "one column")])
    assert 0.93 <= (np.abs(z) < 1.96).mean() <= 0.97


def test_reusing_the_discovery_counts_narrows_the_intervals() -> None:
    with_reuse, without = trial(STUDY, 5).blended, trial(replace(STUDY, reuse=False), 5).blended
    errors = dict(zip(without.head.slots, without.errors, strict=True))
    ratio = [e / errors[s] for s, e in zip(with_reuse.head.slots, with_reuse.errors, strict=True) if s in errors]
    assert np.median(ratio) < 0.9


def test_the_paper_mode_is_the_papers() -> None:
    study = as_in_the_paper(PROMISE, head=10)
    result = trial(study, 3)
    assert (study.reuse, study.spare, study.order, study.query_share) == (False, 1.0, "slots", 0.85)
    assert len(result.head.queries) == 11
    assert result.blended.slots.sum() == pytest.approx(1)


def test_a_local_report_states_its_guarantee() -> None:
    mechanism = STUDY.invite_to(HeadList.of([("a", "1"), ("b", "1")])).mechanism
    assert isinstance(mechanism, Oracle)
    assert mechanism.guarantee == PureDP(4.0)
    assert isinstance(STUDY.invite_to(HeadList.of([], 2)).mechanism, OneSlot)


# --- trimming ---


def trim(result: OptInCounts, study: RecordsTask) -> tuple[HeadList, list[blending.Estimate]]:
    return blending.trim(result, study.most, reuse=study.reuse)


def opt_in(counted: list[float], discovered: list[float], estimation: int) -> OptInCounts:
    head = HeadList.of([("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")])
    shown = np.full(len(head), math.nan)
    shown[head.is_record] = discovered
    return OptInCounts(
        head, 1900, estimation, shown, np.array(counted), discovery(PROMISE), counting_noise(PROMISE)
    )  # fmt: skip


def test_trimming_keeps_the_most_probable_queries_and_merges_the_rest() -> None:
    """Queries a, b, c with 30, 45 and 15 of the 100: c is dropped, and its two slots' noise joins the wildcard's."""
    result = opt_in([20, 10, 20, 20, 5, 10, 5, 10], [380, 380, 380, 190], 100)
    for study in (replace(STUDY, head=2, spare=1.0), replace(STUDY, head=2, spare=1.0, reuse=False)):
        head, estimates = trim(result, study)
        assert head.queries == ("a", "b", None)
        assert estimates[0].slots[-1] == pytest.approx(0.25)
        assert estimates[0].noise is not None
        noise = estimates[0].noise * 100**2 / result.noise.variance
        assert noise.tolist() == pytest.approx([1, 1, 1, 1, 1, 3])
        assert len(estimates) == 1 + study.reuse
    assert trim(result, replace(STUDY, head=1, spare=1.0))[0].queries == ("b", None)
    assert trim(result, replace(STUDY, head=1))[0].queries == ("a", "b", None)  # one to spare
    assert trim(result, STUDY)[0] == result.head


@pytest.mark.parametrize("reuse", [True, False])
def test_nobody_left_to_estimate(reuse: bool) -> None:
    """With one estimation person the discovery counts alone choose what stays."""
    result = opt_in([0.0] * 8, [100, 200, 300, 400], 1)
    head, estimates = trim(result, replace(STUDY, head=1, spare=1.0, reuse=reuse))
    assert head.queries == ("b", None)
    assert len(estimates) == int(reuse)
    if reuse:
        blended = blending.blend_heavy(head, estimates)
        assert blended.slots[:2] == pytest.approx([200 / 1900, 300 / 1900])
        assert np.isinf(blended.errors[-1])
        assert blended.slots.sum() == pytest.approx(1)


def test_the_list_is_cut_to_size_when_everyone_has_counted() -> None:
    """Spare queries join the wildcard with their errors, and nothing is lost or counted twice."""
    blended = trial(replace(STUDY, head=10, spare=3.0), 9).blended
    assert len(blended.head.queries) == 11
    wide = blending.blend_heavy(*trim(opt_in([20, 10, 20, 20, 5, 10, 5, 10], [380, 380, 380, 190], 100), STUDY))
    small = blending.restrict(wide, blending.most_probable(wide.head, wide.queries, 1))
    assert small.head.queries == ("b", None)
    assert small.slots.sum() == pytest.approx(wide.slots.sum())
    kept = [wide.head.slots.index(s) for s in small.head.slots[:-1]]
    assert small.slots[:-1] == pytest.approx(wide.slots[kept])
    rest = [i for i in range(len(wide.head)) if i not in kept]
    assert small.errors[-1] == pytest.approx(math.sqrt((wide.errors[rest] ** 2).sum()))


def test_nothing_to_blend_is_refused() -> None:
    with pytest.raises(InvalidInput, match="people"):
        blending.blend_heavy(HeadList.of([], 2), [])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"guarantee": ApproxDP(1.0, 0.0)}, "delta"),
        ({"guarantee": ApproxDP(0.001, 1e-5)}, "epsilon"),
        ({"guarantee": ApproxDP(31.0, 1e-5)}, "epsilon"),
        ({"discovery_share": 1.0}, "discovery-share"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^`{name}` "):
        replace(STUDY, **changes)
