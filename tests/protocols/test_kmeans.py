"""The conversation: who is asked how often, what is charged, and that the figure's claims hold on a small scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.phases import release_points

from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.protocols.rows import LatticePeople
from hybridp.public.kmeans import Box
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import drive
from hybridp.public.rounds import Cells
from hybridp.tasks.kmeans import KMeansTask
from hybridp_lab.simulate import held_rows

UNIT = Box((0.0, 0.0), (1.0, 1.0))
TRUE = np.array([[0.2, 0.3], [0.75, 0.25], [0.5, 0.8]])


def _points(n: int, seed: int = 1) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return TRUE[draw.integers(0, 3, n)] + 0.03 * draw.standard_normal((n, 2))


def _off(centres: np.ndarray) -> float:
    """The farthest true centre from its nearest found one."""
    return float(np.sqrt(((TRUE[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1)).max())


@pytest.mark.parametrize("promise", [PureDP(2.0), ApproxDP(2.0, 1e-6)])
@pytest.mark.parametrize(("trusted", "local"), [(3000, 0), (0, 300_000), (600, 40_000)])
def test_the_centres_are_found_by_either_group_and_both(trusted: int, local: int, promise: PureDP | ApproxDP) -> None:
    study = KMeansTask(UNIT, 3, promise)
    found = release_points(study, _points(trusted), _points(local, 2), rng=seeded(5))
    assert _off(np.array(found.facts["estimate"])) < 0.04
    assert sum(found.facts["size"]) == pytest.approx(trusted + local, rel=0.2)
    assert found.simulated


@pytest.mark.parametrize("trusted", [0, 500])
def test_every_local_person_answers_once(trusted: int) -> None:
    levels, rng = UNIT.levels(_points(5000)), seeded(2)
    people = LatticePeople(held_rows(levels[:, :trusted].T), held_rows(levels.T), rng)
    heard: list[Any] = []
    study = KMeansTask(UNIT, 3, PureDP(3.0)).mapped(trusted, 5000)
    drive(study.clustered(study.plan(trusted, 5000)), people, heard)
    assert [answer.local.people for asked, answer in heard if isinstance(asked, Cells)] == [5000]
    assert len(heard) == 1 + (trusted > 0)


def test_a_trial_without_a_useful_map_is_refused_as_its_invitation_is() -> None:
    with pytest.raises(InvalidInput, match="for a useful map"):
        release_points(KMeansTask(UNIT, 3, PureDP(0.3)), _points(50), _points(500, 2), rng=seeded(1))


@pytest.mark.parametrize(
    ("study", "name"),
    [
        ({"guarantee": PureDP(0.001)}, "epsilon"),
        ({"guarantee": PureDP(100.0)}, "epsilon"),
    ],
)
def test_bad_studies_are_refused(study: dict[str, object], name: str) -> None:
    given = {"box": UNIT, "clusters": 3, "guarantee": PureDP(1.0), **study}
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        KMeansTask(**given)  # type: ignore[arg-type]


def test_too_few_people_are_refused() -> None:
    study = KMeansTask(UNIT, 5, PureDP(1.0), 2)
    for trusted, local in ((_points(2), _points(1)), ((), None)):
        with pytest.raises(InvalidInput, match="people"):
            release_points(study, trusted, local, rng=seeded(1))
