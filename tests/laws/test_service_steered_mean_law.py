"""A steered mean in the service: from what its two releases publish back to the rows, and beside the files' way.

The server is a real one whose system randomness is a tape. What its first phase publishes are true counts and sums of
the trusted people plus the stated draws; what the second one publishes is what `hybridp release mean --invite` makes of
the same invitation and the same reports in a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.errors import InvalidInput
from hybridp.protocols.transcript import Transcript
from hybridp.public import envelope
from hybridp.randomness import seeded
from hybridp.service.plans import parse_plan
from tests import phases as files

from .means import LEVELS, level
from .recording import laplaces
from .taped_service import Taped, as_a_file, taped

WAY = {"name": "way", "kind": "number", "lower": 0, "upper": 128, "form": "steered"}
TRUSTED = [float(x) for x in np.random.default_rng(5).normal(50, 14, 150)] + [1e9, -7.0]
LOCAL = [float(x) for x in np.random.default_rng(6).normal(50, 14, 300)]
EPSILON = 24.0
PILOT, REST = EPSILON * 0.045, EPSILON * 0.955
DECLARED = {"title": "Way", "promise": {"epsilon": 1.0, "trusted_epsilon": EPSILON}, "collection": {"min_batch": 2},
            "people": {"local": 5_000}, "questions": [WAY]}  # fmt: skip


class Run:
    """One study from its first answer to its last release, with what it published and drew on the way."""

    def __init__(self, server: Taped) -> None:
        self.server, live = server, server.live
        self.study = str(live.ask("", DECLARED)["id"])
        self.first_task = fetch_task(live.url, self.study)
        assert send_reports(live.url, self.study, [trusted_report(self.first_task, x) for x in TRUSTED]) == []
        self.pilot = live.ask(f"/{self.study}/phase-two")
        sent = self.pilot["invitations"]["way"]
        self.rounds = Transcript.opened(sent).rounds
        *counted, _ = sent["answers"]
        self.counts = [server.next(laplaces(2 / (PILOT / 2)), len(one["counts"])) for one in counted]
        low, high = self.window = [end / 128 for end in sent["asks"]["window"]]
        self.far = int(max(low, 1 - high) * 2**16)
        self.sums = [server.next(laplaces(LEVELS / (REST * 0.8)), 1)[0] for _ in range(2)]
        self.squares = server.next(laplaces(self.far**2 / (REST * 0.2)), 1)[0]
        self.spent_first = server.spent(self.study)
        self.task = fetch_task(live.url, self.study)
        self.reports = [local_report(self.task, x, rng=seeded(i)) for i, x in enumerate(LOCAL)]
        assert send_reports(live.url, self.study, self.reports) == []
        self.final = server.release(self.study)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with taped(tmp_path_factory.mktemp("service"), seed=45) as server:
        yield Run(server)


def test_the_first_phase_publishes_true_numbers_plus_draws_for_the_parts_of_epsilon(run: Run) -> None:
    sent = run.pilot["invitations"]["way"]
    levels = np.array([level(x) for x in TRUSTED])
    *counted, (inside, outside, squares) = sent["answers"]
    for one, asked, drawn in zip(counted, run.rounds, run.counts, strict=False):
        cuts = [round(place * LEVELS) for place in asked.places]
        exact = np.bincount(np.searchsorted(cuts, levels), minlength=len(cuts) + 1)
        assert one["counts"] == (exact + drawn).tolist()
    low, high = (round(end * LEVELS) for end in run.window)
    within = np.clip(levels, low, high)
    beyond = levels - within
    assert np.count_nonzero(beyond) >= 2
    assert inside - int((within - low).sum()) == run.sums[0] != 0
    assert outside - int(beyond.sum()) == run.sums[1] != 0
    assert squares - int(((np.abs(beyond) >> 16) ** 2).sum()) == run.squares != 0
    assert not run.pilot["simulated"]


def test_each_group_is_charged_once_in_its_own_phase(run: Run) -> None:
    assert run.spent_first == {"trusted": (EPSILON, 0.0), "local": (0.0, 0.0)}
    assert run.server.spent(run.study) == {"trusted": (EPSILON, 0.0), "local": (1.0, 0.0)}

    def promised(found: dict[str, Any]) -> dict[str, float]:
        told = found["receipt"]["promises"]
        return {p["group"]: p["epsilon"] for p in told if p["against"].startswith("whoever")}

    assert promised(run.pilot) == {"trusted": EPSILON}
    assert promised(run.final) == {"trusted": EPSILON, "local": 1.0}
    assert run.final["receipt"]["ledger_entries"][:1] == run.pilot["receipt"]["ledger_entries"]


def test_people_are_asked_in_turn_and_within_the_window(run: Run) -> None:
    assert (run.first_task["groups"], run.task["groups"]) == (["trusted"], ["local"])
    (question,) = run.task["questions"]
    assert question["windows"] == [pytest.approx(run.window)]
    assert run.pilot["invitations"]["way"]["digest"].removeprefix("sha256:")[:16] in question["mechanism"]
    with pytest.raises(InvalidInput, match="windows"):
        local_report(run.first_task | {"groups": ["local"]}, 3.0, rng=seeded(1))


def test_the_final_release_is_that_of_the_files(run: Run, tmp_path: Path) -> None:
    invited = tmp_path / "invite.json"
    envelope.save(invited, run.pilot["invitations"]["way"])
    sent = as_a_file(tmp_path, run.reports, files.read_invitation(invited).invite)
    found = files.release_invited(sent, invited, trust="trust").to_dict()["questions"]["way"]["mean"]
    mean = run.final["questions"]["way"]["mean"]
    assert mean["estimator"] == found["estimator"] == "steered"
    assert mean["estimate"] == pytest.approx(found["estimate"], abs=1e-9)
    assert mean["interval"] == pytest.approx(found["interval"], abs=1e-9)
    assert {g: part["people"] for g, part in mean["groups"].items()} == {"trusted": len(TRUSTED), "local": len(LOCAL)}
    truth = np.clip([*TRUSTED, *LOCAL], 0, 128).mean()
    assert mean["interval"][0] <= truth <= mean["interval"][1]


def test_a_plan_says_how_many_local_people_are_expected() -> None:
    assert parse_plan(DECLARED).phased
    with pytest.raises(InvalidInput, match=r"people.local.* must say how many are expected"):
        parse_plan(DECLARED | {"people": {}})
