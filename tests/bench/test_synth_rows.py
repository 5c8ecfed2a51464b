"""Planned errors of synthetic rows against fits of people, both groups, by the code of a release."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest

from hybridp.bench.synth import plan_rows
from hybridp.curator.models import Codes
from hybridp.curator.sums import Raw
from hybridp.device.reports import simulated_marginals
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.public.randomisers import share_oracle
from hybridp.public.rounds import Answer
from hybridp.release.plan import Plan
from hybridp.tasks.table import TableTask
from hybridp.tasks.transcript import save_model, write_invitation
from hybridp_lab.errors import evaluate
from hybridp_lab.simulate import fit_synth

SCHEMA = Schema.from_domain({"a": 6, "b": 5, "c": 4, "d": 8})
WORK = Workload(SCHEMA, tuple(Threshold(pair, 2) for pair in ((0, 1), (1, 2), (2, 3), (0, 3))))
PEOPLE, OPT_IN, PROMISE = 30_000, 0.02, ApproxDP(1.0, 1e-9)


def people(many: int, seed: int) -> Codes:
    """A law of its own: a chain of columns, each near the one before."""
    draw = synthetic_data_generator(seeded(seed))
    before = draw.binomial(5, 0.3, many)
    columns = [before]
    for size in SCHEMA.sizes[1:]:
        before = np.clip(before + draw.integers(-1, 2, many), 0, size - 1)
        columns.append(before)
    return Codes(SCHEMA, np.stack(columns).astype(np.uint16))


def part(codes: Codes, who: np.ndarray) -> Codes:
    return Codes(codes.schema, codes.values[:, who])


def distances(seed: int) -> dict[str, float]:
    """Of the rows that a release would publish, against everybody."""
    every = people(PEOPLE, 100 + seed)
    trusts = synthetic_data_generator(seeded(seed)).random(PEOPLE) < OPT_IN
    trusted, local = part(every, trusts), part(every, ~trusts)
    mixed, alone = TableTask(WORK, PROMISE, "mixed"), TableTask(WORK, PROMISE, "adaptive")
    reports = Raw(0, part(every, []), held=local, simulated_reports=True)
    with tempfile.TemporaryDirectory() as folder:
        chose = save_model(fit_synth(trusted, alone, rng=seeded(seed)), f"{folder}/pilot")
        sent = write_invitation(f"{folder}/pilot", Path(folder) / "invitation.json")
    models = {
        "trusted": chose,
        "local": fit_synth(reports, mixed, rng=seeded(seed)),
        "stated": fit_synth(Raw(trusted.people, trusted, held=local, simulated_reports=True), mixed, rng=seeded(seed)),
        "chosen": sent.released(
            Answer(local=simulated_marginals(local.values, sent.invite, rng=seeded(seed))), seeded(seed)
        ),
    }
    return {way: evaluate(model, every)["synthetic"]["total_variation"] for way, model in models.items()}


@pytest.fixture(scope="module")
def fits() -> dict[str, float]:
    runs = [distances(seed) for seed in range(2)]
    return {way: float(np.mean([run[way] for run in runs])) for way in runs[0]}


@pytest.fixture(scope="module")
def made_up() -> Plan:
    return plan_rows(PEOPLE, OPT_IN, WORK, PROMISE)


def factor(planned: dict[str, float], true: dict[str, float]) -> float:
    return max(abs(math.log(planned[way] / true[way])) for way in true)


def test_a_rehearsal_on_people_alike_is_within_a_quarter_of_the_fits(fits: dict[str, float]) -> None:
    plan = plan_rows(PEOPLE, OPT_IN, WORK, PROMISE, like=people(20_000, 1))
    assert set(plan.errors) == set(fits)
    assert factor(dict(plan.errors), fits) < math.log(1.25)
    assert fits[plan.predicted["best"]] < 1.1 * min(fits.values())
    gain = 1 - min(fits["stated"], fits["chosen"]) / fits["trusted"]
    assert plan.predicted["gain_by_local"] == pytest.approx(gain, abs=0.15)
    fewer = plan_rows(PEOPLE // 4, 0.0, WORK, PROMISE, like=people(20_000, 1))
    assert fewer.errors["local"] > 1.25 * fits["local"]  # the rule can fail


def test_a_rehearsal_on_made_up_people_is_within_a_factor_of_two(fits: dict[str, float], made_up: Plan) -> None:
    assert factor(dict(made_up.errors), fits) < math.log(2)


def test_local_people_outweigh_the_trusted_where_their_empty_cells_are_told_better(made_up: Plan) -> None:
    """The variances of both groups' empty cells, at the share of trusting people that the plan names."""
    below = made_up.predicted["local_outweigh_below_opt_in"]
    assert below is not None
    study = TableTask(WORK, PROMISE, "mixed")
    drawn = (1 - below) * PEOPLE / 4
    local = np.mean([share_oracle(PureDP(1.0), SCHEMA.cells(t.features)).variance(0.0) for t in WORK.thresholds])
    assert (study.plan[0].sigma / (below * PEOPLE)) ** 2 == pytest.approx(local / drawn, rel=1e-9)
