"""Steered quantiles in the service: from what its two releases publish back to the rows, and beside the files' way.

The server is a real one whose system randomness is a tape (`taped_service`). What the first phase publishes are true
counts of the trusted people between published places, plus the stated draws; what the second one publishes is what
`hybridp release quantiles --invite` makes of the same invitation and the same reports in a table.
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
from hybridp.protocols.transcript import Transcript, read_invitation, release_invited
from hybridp.public import envelope
from hybridp.randomness import seeded

from .means import LEVELS
from .recording import laplaces
from .taped_service import Taped, as_a_file, taped

WAY = {"name": "way", "kind": "number", "lower": 0, "upper": 128, "statistics": ["quantiles"], "at": [0.5],
       "form": "steered"}  # fmt: skip
TRUSTED = [float(x) for x in np.random.default_rng(5).gamma(4.0, 8.0, 150)] + [1e9, -7.0]
LOCAL = [float(x) for x in np.random.default_rng(6).gamma(4.0, 8.0, 500)]
PROMISE = {"epsilon": 2.5, "trusted_epsilon": 2.0}


class Run:
    """One study from its first answer to its last release, with what it published on the way."""

    def __init__(self, server: Taped) -> None:
        self.server, live = server, server.live
        declared = {"title": "Way", "promise": PROMISE, "collection": {"min_batch": 2}, "questions": [WAY]}
        self.study = str(live.ask("", declared)["id"])
        self.first_task = fetch_task(live.url, self.study)
        assert send_reports(live.url, self.study, [trusted_report(self.first_task, x) for x in TRUSTED]) == []
        self.refused_early = self._tried("local", self.first_task)
        self.pilot = live.ask(f"/{self.study}/phase-two")
        self.look = server.next(laplaces(2 / 1.0), 24)
        self.near = server.next(laplaces(2 / 1.0), len(self.pilot["invitations"]["way"]["answers"][2]["counts"]))
        self.spent_first = server.spent(self.study)
        self.between = live.ask(f"/{self.study}", method="GET")
        self.task = fetch_task(live.url, self.study)
        self.reports = [local_report(self.task, x, rng=seeded(i)) for i, x in enumerate(LOCAL)]
        assert send_reports(live.url, self.study, self.reports) == []
        self.refused_late = self._tried("trusted", self.task)
        self.final = server.release(self.study)

    def _tried(self, group: str, task: dict[str, Any]) -> str:
        """What the service says to a report of a group that is not asked now."""
        forced = task | {"groups": [group]}
        if group == "trusted":
            report = trusted_report(forced, 1.0)
        else:
            forced["questions"] = [task["questions"][0] | {"windows": [[0.25, 0.5]]}]
            report = local_report(forced, 1.0, rng=seeded(9))
        (failed,) = send_reports(self.server.live.url, self.study, [report])
        return str(failed["code"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with taped(tmp_path_factory.mktemp("service"), seed=44) as server:
        yield Run(server)


def levels(values: Any) -> Any:
    return np.array([round(min(max(x, 0.0), 128.0) / 128 * LEVELS) for x in values])


def counts_between(places: list[float]) -> Any:
    cuts = [round(place / 128 * LEVELS) for place in places]
    return np.bincount(np.searchsorted(cuts, levels(TRUSTED)), minlength=len(cuts) + 1)


def promised(found: dict[str, Any]) -> dict[str, float]:
    told = found["receipt"]["promises"]
    return {p["group"]: p["epsilon"] for p in told if p["against"].startswith(("whoever", "everyone"))}


def test_the_first_phase_publishes_true_counts_plus_two_draws_for_half_of_epsilon_each(run: Run) -> None:
    """A look at 24 cells, then at places around the median: each for ε/2 = 1, one count up and another one down."""
    _, look, near = run.pilot["invitations"]["way"]["answers"]
    (_, *asked, _) = Transcript.opened(run.pilot["invitations"]["way"]).rounds
    places = [[128 * place for place in one.places] for one in asked]
    assert [round(value, 9) for value in places[0]][4:-4] == [8.0 * i for i in range(1, 16)]
    assert look["counts"] == (counts_between(places[0]) + run.look).tolist()
    assert near["counts"] == (counts_between(places[1]) + run.near).tolist()
    assert np.any(run.look != 0)
    assert np.any(run.near != 0)
    assert not run.pilot["simulated"]


def test_each_group_is_charged_once_in_its_own_phase(run: Run) -> None:
    assert run.spent_first == {"trusted": (2.0, 0.0), "local": (0.0, 0.0)}
    assert run.server.spent(run.study) == {"trusted": (2.0, 0.0), "local": (2.5, 0.0)}
    assert promised(run.pilot) == {"trusted": 2.0}
    assert promised(run.final) == {"trusted": 2.0, "local": 2.5}
    first, both = run.pilot["receipt"]["ledger_entries"], run.final["receipt"]["ledger_entries"]
    assert (len(first), len(both), both[:1]) == (1, 2, first)
    again = run.server.live.ask(f"/{run.study}/release")
    assert again == run.final
    assert run.server.spent(run.study)["local"] == (2.5, 0.0)


def test_who_is_asked_when(run: Run) -> None:
    assert (run.first_task["groups"], run.task["groups"]) == (["trusted"], ["local"])
    assert (run.refused_early, run.refused_late) == ("wrong-phase", "wrong-phase")
    assert (run.between["phase"], run.between["status"], run.between["raw_deleted"]) == (2, "open", True)
    assert run.task["guarantee"]["local"] == {"epsilon": 2.5, "delta": 0.0}
    with pytest.raises(InvalidInput, match="windows"):
        local_report(run.first_task | {"groups": ["local"]}, 3.0, rng=seeded(1))


def test_the_task_asks_where_the_first_release_says(run: Run) -> None:
    (question,) = run.task["questions"]
    windows = [[128 * end for end in window] for window in question["windows"]]
    np.testing.assert_allclose(windows, run.pilot["invitations"]["way"]["asks"]["windows"], atol=128 / 2**20)
    told = run.pilot["questions"]["way"]["quantiles"]
    assert windows[0][0] <= told["estimate"][0] <= windows[-1][1]
    assert run.pilot["invitations"]["way"]["digest"].removeprefix("sha256:")[:16] in question["mechanism"]
    assert all(float(end) * 2**20 % 1 == 0 for window in question["windows"] for end in window)


def test_a_device_says_whether_its_value_is_above_a_threshold_in_the_windows(run: Run) -> None:
    """At ε = 30 no bit is flipped: the answer is the very comparison, of whole numbers."""
    from hybridp.public.budgets import PureDP
    from hybridp.public.randomisers import dithered_bit

    promise = {"epsilon": 30.0, "delta": 0.0}
    how = {"name": "dithered", "flips": str(dithered_bit(PureDP(30.0)).flips)}
    windows = [[0.125, 0.25], [0.5, 0.625]]
    question = run.task["questions"][0] | {"windows": windows, "randomiser": how, "guarantee": promise}
    task = run.task | {"questions": [question], "guarantee": run.task["guarantee"] | {"local": promise}}
    said = set()
    for i, value in enumerate([0.0, 17.0, 20.5, 31.0, 40.0, 64.5, 70.0, 79.0, 100.0] * 6):
        told = local_report(task, value, rng=seeded(i))["payload"]["reports"]["way"]
        half, rest = divmod(told["threshold"], LEVELS // 2)
        threshold = 128 * (windows[half][0] + 0.125 * rest / (LEVELS // 2))
        assert told["above"] == (value > threshold)
        said.add((told["above"], half))
    assert len(said) == 4
    for wrong in ([[0.5, 0.25]], [[0.1, 0.3], [0.2, 0.4]], [[-0.5, 0.5]], [[0.5, 1.5]], []):
        with pytest.raises(InvalidInput, match="windows"):
            local_report(task | {"questions": [question | {"windows": wrong}]}, 3.0, rng=seeded(1))


def released_over_files(run: Run, folder: Path, invitation: dict[str, Any]) -> Any:
    invited = folder / "invite.json"
    envelope.save(invited, invitation)
    sent = as_a_file(folder, run.reports, read_invitation(invited).invite)
    return release_invited(sent, invited, trust="trust")


def test_the_final_release_is_that_of_the_files(run: Run, tmp_path: Path) -> None:
    """The same blend of the same counts and reports, to the last digit."""
    told = run.final["questions"]["way"]["quantiles"]
    found = released_over_files(run, tmp_path, run.pilot["invitations"]["way"])
    (again,) = found.questions.values()
    assert all(told[key] == again["quantiles"][key] for key in ("estimate", "interval"))
    assert found.people == {"trusted": len(TRUSTED), "local": len(LOCAL)}
    people = {group: part["people"] for group, part in told["groups"].items()}
    assert people == {"trusted": len(TRUSTED), "local": len(LOCAL)}
