"""Liars against heavy hitters: the product's, and BLENDER's as it was published.

20,000 people hold one of 60 records, whose popularity falls as 1/rank. The trusted ones discover a list; everybody
else's device reports on it, by k-ary randomised response here and by BLENDER's two stages there. Liars cannot add a
record to the list: they promote the ones that stand last on it. Errors are the distance of the shares of all records
on the list, and of the rest together, in percentage points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.heavy import Estimate, blend_heavy, held, local_estimate, trim
from hybridp.blend.shares import to_simplex
from hybridp.curator.models import threshold_counts
from hybridp.curator.sums import noisy_sums
from hybridp.noise import Randomness, categories, synthetic_data_generator
from hybridp.public.heavy import HeadList, counting_noise, discovery
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.messages import SlotReports
from hybridp.public.randomisers import Oracle
from hybridp.tasks import records as protocol
from hybridp_lab.attacks.recovering import ldp_recover, normalised
from hybridp_lab.papers.blender.two_stage import (
    TwoStage,
    TwoStageStudy,
    as_in_the_paper,
    blend_in_order,
    from_two_stage,
    report_slots,
    two_stage,
)

__all__ = ["RECORD_ATTACKS", "RECORD_ESTIMATORS", "record_errors"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RECORDS, DELTA, LISTED, TARGETS = 60, 1e-6, 20, 5
RECORD_ATTACKS = ("maximal gain", "maximal gain, five", "false values", "Sybils")
RECORD_ESTIMATORS = (
    "alike", "hybrid", "BLENDER", "tcm-only", "lm-only", "normalised", "LDPRecover", "LDPRecover*",
)  # fmt: skip


class _Collection:
    """What one design has of one crowd: the list, the trusted people's counts, and every local person's report."""

    def __init__(
        self, study: protocol.RecordsTask, records: Ints, truth: Floats, trusted: int, rng: Randomness
    ) -> None:
        n_s = round(trusted * study.discovery_share)
        distinct, counts = np.unique(records[:n_s], return_counts=True)
        passing, noisy = threshold_counts(counts.astype(np.int64), discovery(study.trusted_whole), rng=rng)
        names: list[tuple[str, ...]] = [(str(code),) for code in distinct[passing].tolist()]
        full = HeadList.of(names, 1)
        placed = np.array([full.slot_of((str(code),)) for code in range(len(truth))], dtype=np.int64)
        among = np.bincount(placed[records[n_s:trusted]], minlength=len(full)).astype(np.int64)
        counted = np.array(noisy_sums(among, counting_noise(study.trusted_whole), rng=rng))
        result = protocol.opt_in_counts(names, noisy, n_s, counted, full, trusted - n_s, study.trusted_whole)
        self.study, self.rng = study, rng
        self.head, self.trusted = trim(result, study.most, reuse=study.reuse)
        self.mechanism: Any = study.invite_to(self.head).mechanism
        if isinstance(study, TwoStageStudy):
            self.mechanism = two_stage(self.head, study.guarantee)
        here = full.fold(self.head)[placed]
        self.truth = np.bincount(here, weights=truth, minlength=len(self.head))
        self.honest = self.reports(here[records[trusted:]])

    def reports(self, slots: Ints) -> Ints:
        """One report a device, by the design's own mechanism."""
        if isinstance(self.mechanism, TwoStage):
            return report_slots(slots, self.mechanism, rng=self.rng)
        assert isinstance(self.mechanism, Oracle)
        return categories(self.mechanism, slots, rng=self.rng)

    def targets(self, attack: str) -> Ints:
        """The slots that are promoted: of the least popular records on the list (the last slot is of the rest)."""
        return np.argsort(self.truth[:-1])[: TARGETS if attack == "maximal gain, five" else 1]

    def heard(self, attack: str, liars: int) -> SlotReports:
        """Everybody's reports where so many devices lie: they name a target outright, or report honestly on it."""
        named = np.resize(self.targets(attack), liars)
        lies = self.reports(named) if attack == "false values" else named
        sent = self.honest if attack == "Sybils" else self.honest[liars:]
        together = np.concatenate([sent, lies])
        return SlotReports(len(together), np.bincount(together, minlength=len(self.head)).astype(np.int64))

    def blended(self, estimates: list[Estimate]) -> Floats:
        if isinstance(self.study, TwoStageStudy):
            return blend_in_order(self.head, estimates, self.study.order).slots
        return blend_heavy(self.head, estimates).slots


def record_errors(
    rng: Randomness, attacks: Sequence[str], shares: Sequence[float], trusted: int, local: int, epsilon: float
) -> list[tuple[str, float, dict[str, float], float | None]]:
    """One crowd under every attack, at every share of liars: distances, and the bound of alike."""
    truth = 1 / np.arange(1, RECORDS + 1)
    truth = truth / truth.sum()
    records = synthetic_data_generator(rng).choice(RECORDS, size=trusted + local, p=truth).astype(np.int64)
    promise = ApproxDP(epsilon, DELTA)
    ours = _Collection(protocol.RecordsTask(promise, depth=1, head=LISTED), records, truth, trusted, rng)
    paper = _Collection(as_in_the_paper(promise, head=LISTED, depth=1), records, truth, trusted, rng)
    result = []
    for attack in attacks:
        for share in shares:
            sent = ours.heard(attack, round(share * local))
            shown, most = _ours(ours, attack, sent)
            errors = {name: 100 * float(np.linalg.norm(each - ours.truth)) for name, each in shown.items()}
            told = from_two_stage(paper.mechanism, paper.heard(attack, round(share * local)).counts)
            published = paper.blended([*paper.trusted, told])
            errors["BLENDER"] = 100 * float(np.linalg.norm(published - paper.truth))
            result.append((attack, share, {name: errors[name] for name in RECORD_ESTIMATORS}, most))
    return result


def _ours(design: _Collection, attack: str, sent: SlotReports) -> tuple[dict[str, Floats], float | None]:
    mechanism = design.mechanism
    told = local_estimate(design.head, mechanism, sent)
    estimates, anchor, _ = held(design.head, design.trusted, [(mechanism, sent)], "alike")
    shown = {
        "alike": design.blended(estimates),
        "hybrid": design.blended([*design.trusted, told]),
        "tcm-only": design.blended(design.trusted),
        "lm-only": to_simplex(told.slots),
        "normalised": normalised(told.slots),
        "LDPRecover": ldp_recover(told.slots, mechanism),
        "LDPRecover*": ldp_recover(told.slots, mechanism, design.targets(attack).tolist()),
    }
    return shown, None if anchor is None else 100 * float(np.linalg.norm(anchor.most[np.isfinite(anchor.most)]))
