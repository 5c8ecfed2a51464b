"""The whole conversation about vectors on files: near the truth, private as stated, the ledger first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.blend.mean import Rule
from hybridp.curator.sums import Columns
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.protocols.driver import release as release_mean
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import TrustedSummary, VectorBounds, VectorReportSums
from hybridp.public.rounds import Answer, Crowd
from hybridp.tasks.mean import MeanTask, VectorTask, publish_mean
from hybridp.tasks.personal import PersonalTask

NAMES = ("age", "pay", "score")
BOUNDS = VectorBounds.of([0, 0, -5], [100, 200, 5])
STUDY = VectorTask(BOUNDS, PureDP(2.0))
COLUMNS = Columns(NAMES, "trust", missing="middle")
SIZE, TRUSTED = 6_000, 1_200
_draw = np.random.default_rng(12)
X = np.round(_draw.beta([2, 2, 5], [3, 5, 2], size=(SIZE, 3)) * [100, 200, 10] - [0, 0, 5], 3)


def write(path: Path, trusted: int = TRUSTED, size: int = SIZE) -> Path:
    lines = [f"{a},{b},{c},{'trusted' if i < trusted else 'local'}" for i, (a, b, c) in enumerate(X[:size].tolist())]
    path.write_text("\n".join(["age,pay,score,trust", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("people") / "people.csv")


def test_joint_intervals_are_wider_by_bonferroni(people: Path) -> None:
    wide, each = (
        release_mean(people, replace(STUDY, joint=joint, level=level), COLUMNS, simulate_local=True, rng=seeded(5))
        for joint, level in ((True, 0.94), (False, 0.98))
    )
    for one, other in zip(wide.cells, each.cells, strict=True):
        assert (one.low, one.high) == pytest.approx((other.low, other.high))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: VectorTask(BOUNDS, PureDP(1.0), level=1.0), "`level` must be strictly between 0 and 1"),
        (lambda: VectorTask(BOUNDS, PureDP(1.0), noise="gaussian"), "`delta` must be positive for Gaussian noise"),
        (lambda: VectorTask(BOUNDS, PureDP(40.0)), "`epsilon` must be at least 0.001 and at most 30"),
        (lambda: release_mean("x.csv", STUDY, Columns(("a",), "t")), "`columns` must be as many as the"),
        (lambda: release_mean("x.csv", STUDY, COLUMNS, Grouping("score")), "`by` must be another column"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert str(refusal.value).startswith(sentence)


# --- the release ------------------------------------------------------------------------------------------------------


def test_the_study_says_which_mean_it_is(people: Path) -> None:
    """An epsilon column goes with personal epsilons, and with nothing else."""
    one, own = MeanTask(BOUNDS.bounds[0], PureDP(1.0)), Columns(NAMES[0], "trust", missing="middle")
    calls: list[tuple[Any, Any, dict[str, str]]]
    calls = [(STUDY, COLUMNS, {"epsilon": "own"}), (one, own, {"epsilon": "own"}), (PersonalTask(one.bounds), own, {})]
    for study, columns, more in calls:
        with pytest.raises(InvalidInput, match=type(study).__name__):
            release_mean(people, study, columns, **more)


@pytest.mark.parametrize("norm", [None, "l2"])
def test_no_reports_whatever_move_an_anchored_column_beyond_what_it_says(norm: Any) -> None:
    """Sums and squares that no devices could send; the plain blend, the control, is pulled away."""
    draw = np.random.default_rng(3)
    bounds = VectorBounds.of([0, 0, -5], [100, 200, 5], norm=norm, radius=None if norm is None else 1.2)
    study = VectorTask(bounds, PureDP(2.0), Rule("anchored", sd=(0.4, 0.3, 0.35)), local="per-coordinate")
    steps = bounds.steps(X[:TRUSTED])
    of: dict[str, Any] = {"reach": bounds.reach_steps, "start": 0}
    trusted = [TrustedSummary(TRUSTED, int(t), study.sum_noise, **of) for t in steps.sum(axis=0)]
    counts, seen = np.full(3, SIZE), []
    crowd = Crowd.of(*NAMES, rng=seeded(1))
    for scale in (0.0, 1.0, 1e3, 1e9):
        totals = scale * draw.normal(size=3) * SIZE
        local = VectorReportSums(SIZE, counts, totals, totals**2 + scale, study.invite.mechanism)
        said = Answer(TRUSTED, trusted, local)
        found = publish_mean(study, said, crowd)
        most = np.array(found.facts["anchor"]["most"])
        away = np.abs(np.array(found.facts["unbiased"]) - np.array(found.facts["trusted"]))
        assert (away <= most * (1 + 1e-9)).all()
        seen.append((most.tolist(), found.facts["weight"]))
        plain = publish_mean(replace(study, rule=Rule("adaptive")), said, crowd)
        assert plain.facts["anchor"] is None
    assert all(one == seen[0] for one in seen)
    assert (np.abs(np.array(plain.facts["unbiased"]) - X.mean(axis=0)) > 1e3 * most).any()
