"""Studies of the service in two phases: from what both releases publish back to the rows, and beside the files' way.

The server is a real one whose system randomness is a tape (`taped_service`). What a first phase publishes are true
counts or sums of the trusted people plus the stated draws; what the second one publishes is what `hybridp release
--invite` makes of the same invitation and the same reports in a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from hybridp.device.client import local_report
from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.randomisers import dithered_bit
from hybridp.randomness import seeded
from hybridp.tasks.transcript import Transcript

from . import test_service_models_law as lines
from .means import LEVELS, level
from .recording import laplaces
from .taped_service import Phases, over_files, promised, taped


def gamma(seed: int, many: int) -> list[float]:
    return [float(x) for x in np.random.default_rng(seed).gamma(4.0, 8.0, many)]


def normal(seed: int, many: int) -> list[float]:
    return [float(x) for x in np.random.default_rng(seed).normal(50, 14, many)]


WAY = {"name": "way", "kind": "number", "lower": 0, "upper": 128, "form": "steered"}
EPSILON = 24.0
CASES: dict[str, tuple[dict[str, Any], dict[str, float], int, list[Any], list[Any]]] = {
    "quantiles": (WAY | {"statistics": ["quantiles"], "at": [0.5]}, lines.PROMISE, 500, [*gamma(5, 150), 1e9, -7.0],
                  gamma(6, 500)),
    "mean": (WAY, {"epsilon": 1.0, "trusted_epsilon": EPSILON}, 5_000, [*normal(5, 150), 1e9, -7.0], normal(6, 300)),
    "line": (lines.LINE, lines.PROMISE, 500, lines.TRUSTED, lines.LOCAL),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phases]:
    question, promise, expected, trusted, local = CASES[request.param]
    with taped(tmp_path_factory.mktemp("service"), seed=44) as server:
        found = Phases(server, request.param, [question], promise, expected, trusted, local)
        found.finished()
        yield found


def counted(run: Phases, answers: list[Any], asked: list[Any], scale: float) -> None:
    """True counts between published places, and a draw for each."""
    levels = np.array([level(x) for x in run.trusted])
    for one, between in zip(answers, asked, strict=True):
        cuts = [round(place * LEVELS) for place in between.places]
        exact = np.bincount(np.searchsorted(cuts, levels), minlength=len(cuts) + 1)
        drawn = run.server.next(laplaces(scale), len(one["counts"]))
        assert one["counts"] == (exact + drawn).tolist()
        assert np.any(drawn != 0)


def first_quantiles(run: Phases) -> None:
    """A look at 24 cells, then at places around the median: each for ε/2 = 1, one count up and another one down."""
    _, *answers = run.invitation["answers"]
    (_, *asked, _) = Transcript.opened(run.invitation).rounds
    assert [round(128 * place, 9) for place in asked[0].places][4:-4] == [8.0 * i for i in range(1, 16)]
    counted(run, answers, asked, 2 / 1.0)


def first_mean(run: Phases) -> None:
    """.045 of ε for two looks; of the rest .8 for the sums within a window and beyond it, .2 for squares beyond it."""
    pilot, rest = EPSILON * 0.045, EPSILON * 0.955
    *answers, (inside, outside, squares) = run.invitation["answers"]
    counted(run, answers, Transcript.opened(run.invitation).rounds[: len(answers)], 2 / (pilot / 2))
    low, high = (end / 128 for end in run.invitation["asks"]["window"])
    levels = np.array([level(x) for x in run.trusted])
    within = np.clip(levels, round(low * LEVELS), round(high * LEVELS))
    beyond = levels - within
    assert np.count_nonzero(beyond) >= 2
    on_sums = [run.server.next(laplaces(LEVELS / (rest * 0.8)), 1)[0] for _ in range(2)]
    on_squares = run.server.next(laplaces(int(max(low, 1 - high) * 2**16) ** 2 / (rest * 0.2)), 1)[0]
    assert inside - int((within - round(low * LEVELS)).sum()) == on_sums[0] != 0
    assert outside - int(beyond.sum()) == on_sums[1] != 0
    assert squares - int(((np.abs(beyond) >> 16) ** 2).sum()) == on_squares != 0


def first_line(run: Phases) -> None:
    """500 local people cannot pay for a look at the residuals: all of ε = 2 is for the sums."""
    (published,) = run.invitation["answers"]
    drawn = run.server.next(laplaces(lines.l1(2) / 2.0), len(lines.PAIRS))
    assert np.abs(np.array(published) - lines.exact() - drawn).max() == 0
    assert len(set(np.asarray(drawn).tolist())) == len(lines.PAIRS)
    assert run.pilot["questions"]["work"]["regression"]["noisy_totals"] == [published]


FIRST: dict[str, Callable[[Phases], None]] = {"quantiles": first_quantiles, "mean": first_mean, "line": first_line}


def test_the_first_phase_publishes_true_numbers_plus_a_draw_of_the_stated_noise_each(run: Phases) -> None:
    FIRST[run.case](run)
    assert not run.pilot["simulated"]


def test_each_group_is_charged_once_in_its_own_phase(run: Phases) -> None:
    promise = CASES[run.case][1]
    trusted, local = promise["trusted_epsilon"], promise["epsilon"]
    assert run.spent_first == {"trusted": (trusted, 0.0), "local": (0.0, 0.0)}
    assert run.server.spent(run.study) == {"trusted": (trusted, 0.0), "local": (local, 0.0)}
    assert (promised(run.pilot), promised(run.told)) == ({"trusted": trusted}, {"trusted": trusted, "local": local})
    first, both = run.pilot["receipt"]["ledger_entries"], run.told["receipt"]["ledger_entries"]
    assert (len(first), len(both), both[:1]) == (1, 2, first)
    assert run.server.live.ask(f"/{run.study}/release") == run.told
    assert run.server.spent(run.study)["local"] == (local, 0.0)


def test_people_are_asked_in_turn_about_what_the_first_release_says(run: Phases) -> None:
    assert (run.first_task["groups"], run.task["groups"], run.refused_late) == (["trusted"], ["local"], "wrong-phase")
    assert (run.between["phase"], run.between["status"], run.between["raw_deleted"]) == (2, "open", True)
    with pytest.raises(InvalidInput, match="group"):
        local_report(run.first_task, run.local[0], rng=seeded(1))
    assert run.task["guarantee"]["local"] == {"epsilon": CASES[run.case][1]["epsilon"], "delta": 0.0}
    (question,) = run.task["questions"]
    assert run.invitation["digest"].removeprefix("sha256:")[:16] in question["mechanism"]
    if run.case == "line":
        found = run.pilot["questions"]["work"]["regression"]["estimate"]
        half, middle = [8.0, 4.0, 32.0], [8.0, 0.0, 32.0]
        at = found[0] + found[1] * middle[0] + found[2] * middle[1] - middle[2]
        unit = [at / half[2], found[1] * half[0] / half[2], found[2] * half[1] / half[2]]
        np.testing.assert_allclose(question["line"]["centre"], unit, rtol=1e-9)
        assert (question["line"]["form"], "line" in run.first_task["questions"][0]) == ("steered", False)
        return
    asks = run.invitation["asks"]
    windows = [[128 * end for end in window] for window in question["windows"]]
    np.testing.assert_allclose(windows, asks.get("windows") or [asks["window"]], atol=128 / 2**20)
    if run.case == "quantiles":
        told = run.pilot["questions"]["way"]["quantiles"]
        assert windows[0][0] <= told["estimate"][0] <= windows[-1][1]
        assert all(float(end) * 2**20 % 1 == 0 for window in question["windows"] for end in window)
    with pytest.raises(InvalidInput, match="windows"):
        local_report(run.first_task | {"groups": ["local"]}, 3.0, rng=seeded(1))


def test_what_was_said_before_is_kept_as_it_was(run: Phases) -> None:
    """What is asked is that of the stored release, after any restart: a view is made anew from what was published."""
    stored = run.server.live.ask(f"/{run.study}", method="GET")
    (first,) = [r["document"] for r in stored["releases"] if r["kind"] == "discovery"]
    assert json.dumps(first["invitations"], sort_keys=True) == json.dumps(run.pilot["invitations"], sort_keys=True)


def test_the_final_release_is_that_of_the_files(run: Phases, tmp_path: Path) -> None:
    """The same blend of the same numbers and reports."""
    name = CASES[run.case][0]["name"]
    found, line = over_files(run, name, tmp_path), run.case == "line"
    (facts,) = found.to_dict()["questions"].values()
    ((_, again),) = [item for item in facts.items() if item[0] != "distribution"]
    ((_, mine),) = [item for item in run.told["questions"][name].items() if item[0] != "distribution"]
    np.testing.assert_allclose(mine["estimate"], again["estimate"], rtol=1e-9)
    np.testing.assert_allclose(mine["interval"], again["interval"], rtol=1e-9)
    people = {"trusted": len(run.trusted), "local": len(run.local)}
    assert {group: part["people"] for group, part in mine["groups"].items()} == people
    if line:  # local people tell something: the blend is surer than the trusted people alone
        alone = mine["groups"]["trusted"]["standard_error"]
        assert all(a < b for a, b in zip(mine["standard_error"], alone, strict=True))
    if run.case == "mean":
        assert mine["estimator"] == again["estimator"] == "steered"
        assert mine["interval"][0] <= np.clip([*run.trusted, *run.local], 0, 128).mean() <= mine["interval"][1]


def test_a_device_says_whether_its_value_is_above_a_threshold_in_the_windows(run: Phases) -> None:
    """At ε = 30 no bit is flipped: the answer is the very comparison, of whole numbers."""
    if run.case != "quantiles":
        return
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
