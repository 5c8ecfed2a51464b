"""A steered mean, from the invitation and the published numbers: one promise in three parts, each drawn once.

The invitation holds every noisy number that trusted people's data went into: what was added to the true ones is read
off. Sizes are computed here: of the counts 2, of both sums together the range, of the squares the farthest that
anything is from the window, squared.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.ledger import Ledger
from hybridp.tasks.transcript import Transcript

from .means import LEVELS, command, level, local, read, trusted, write
from .recording import Recording, apart, laplaces, span_of
from .test_quantiles_law import exact

PAY = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", 0, "--upper", 128)
NEAR = [*np.random.default_rng(1).normal(60, 12, 254).round(3).tolist(), 200.0, -5.0]
EPSILON = 16.0  # of 256 trusted people: enough for a pilot
PILOT = EPSILON * 0.045
REST = EPSILON - PILOT
PARTS = (PILOT, REST * 0.8, REST * 0.2)


def answer(raw: Path, invite: Path, out: Path) -> dict[str, Any]:
    """What local people's devices do with the invitation, which they accept whatever it asks up to 9."""
    return command("randomise", invite, raw, "--trust", "trust", "--missing", 0, "--epsilon", 9, "--out", out)


def steer(tmp_path: Path, values: list[float], *more: object) -> tuple[dict[str, Any], dict[str, Any], Recording]:
    """Phase one: the invitation, the release, and the tape."""
    own = write(tmp_path / "own.csv", [*trusted(*values), *local(*[1e9] * 3)])
    with Recording(1).as_the_systems() as tape:
        promise = ("--epsilon", 1, "--trusted-epsilon", EPSILON, "--n", 20_000, "--ledger", tmp_path / "l")
        found = command("release", "mean", own, *PAY, *promise, "--invite-out", tmp_path / "invite.json", *more)
    return said(json.loads((tmp_path / "invite.json").read_text())), found, tape


def said(document: dict[str, Any]) -> dict[str, Any]:
    """What an invitation says of trusted people: counts between values, the window in shares, and the sums."""
    asked, (*counted, last) = Transcript.opened(document).rounds, document["answers"]
    window = document["asks"]["window"]
    found: dict[str, Any] = {"window": None if window is None else [end / 128 for end in window], "trusted": last}
    looked = zip(counted, asked, strict=False)
    found["counted"] = [{"values": [128 * x for x in of.places], "noisy": one["counts"]} for one, of in looked]
    if isinstance(last, list):
        found["trusted"] = dict(zip(("inside", "outside", "squares"), last, strict=True))
        found["trusted"]["between"] = asked[-2].window.low, asked[-2].window.high
    return found


def looks(sent: dict[str, Any], values: list[float], tape: Recording) -> list[tuple[int, int]]:
    """Both looks of the pilot on the tape, with half of its epsilon each, for a sensitivity of 2 (of one place 1)."""
    spans = []
    for one in sent["counted"]:
        noisy = np.array(one["noisy"])
        scale = (1 if len(noisy) == 1 else 2) / (PILOT / 2)
        spans.append(span_of(tape, noisy - exact(one["values"], values)[: len(noisy)], laplaces(scale)))
    return spans


def sums(sent: dict[str, Any], values: list[float], tape: Recording, window: Any) -> list[tuple[int, int]]:
    """The sums within the window and beyond it, and the squares beyond: on the tape, each at its part."""
    low, high = (round(end * LEVELS) for end in window)
    levels = [level(value) for value in values]
    within = [min(max(x, low), high) for x in levels]
    beyond = [x - y for x, y in zip(levels, within, strict=True)]
    assert sum(x != 0 for x in beyond) >= 2, "somebody is outside, and is counted"
    far, told = max(low, LEVELS - high) >> 16, sent["trusted"]
    added = [
        (told["inside"] - sum(y - low for y in within), LEVELS / PARTS[1]),
        (told["outside"] - sum(beyond), LEVELS / PARTS[1]),
        (told["squares"] - sum((abs(r) >> 16) ** 2 for r in beyond), far**2 / PARTS[2]),
    ]
    with pytest.raises(AssertionError, match="stretches"):  # the check can fail
        span_of(tape, [added[1][0]], laplaces(LEVELS / REST))
    return [span_of(tape, [noise], laplaces(scale)) for noise, scale in added]


def test_each_part_of_the_trusted_promise_pays_for_its_own_noise(tmp_path: Path) -> None:
    sent, found, tape = steer(tmp_path, NEAR)
    assert 20 < 128 * sent["window"][0] < 50 < 70 < 128 * sent["window"][1] < 100
    spans = looks(sent, NEAR, tape) + sums(sent, NEAR, tape, sent["window"])
    apart(*spans)
    assert sum(end - start for start, end in spans) == len(tape.words), "nothing else is drawn: local rows wait"
    charges = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in charges] == [("trusted", EPSILON)]
    assert math.fsum(PARTS) <= EPSILON * (1 + 1e-12)
    promises = found["receipt"]["promises"]
    assert [(p["group"], p["epsilon"]) for p in promises] == [("trusted", None), ("trusted", EPSILON)]
    for part in (PILOT / 2, *PARTS[1:]):
        assert f"(epsilon {part:.12g})" in promises[1]["mechanism"]
    mean = found["questions"]["pay"]["mean"]
    assert mean["estimate"] == pytest.approx(sum(map(float, np.clip(NEAR, 0, 128))) / 256, abs=1)
    assert mean["groups"]["local"]["people"] == 0
    assert not found["simulated"]


@pytest.mark.parametrize("task", ["mean", "quantiles"])
def test_an_answer_within_a_window_is_a_coin_of_the_promise(tmp_path: Path, task: str) -> None:
    """Whatever somebody's field holds: the same threshold, and an answer that differs as often as epsilon allows."""
    if task == "mean":
        steer(tmp_path, NEAR)
    else:
        own = write(tmp_path / "own.csv", trusted(*NEAR))
        command("release", task, own, *PAY, "--epsilon", 1, "--at", ".5", "--invite-out", tmp_path / "invite.json")
    times, promised = 4000, 1 / (np.exp(1.0) + 1)
    told = []
    for i, value in enumerate((-1e9, 1e9, "nan")):
        raw, out = write(tmp_path / "raw.csv", local(*[value] * times)), tmp_path / f"sent{i}.csv"
        with Recording(9).as_the_systems() as tape:
            answer(raw, tmp_path / "invite.json", out)
        told.append((np.array([float(row["report"]) for row in read(out)]) / 64 - 1, len(tape.words)))
    gain = 1 / (1 - 2 * promised)
    thresholds = [np.sort(sent - gain * np.sign(sent)) for sent, _ in told]
    assert all(np.allclose(thresholds[0], other, atol=1e-6) for other in thresholds), "thresholds know no value"
    assert len({words for _, words in told}) == 1, "nor does the number of words"
    lies = np.mean(told[0][0] > 0), np.mean(told[1][0] < 0)
    # Binomial, 5 standard errors: p < 1e-6. At twice the promise it would be .12.
    assert lies == pytest.approx((promised, promised), abs=5 * np.sqrt(promised * (1 - promised) / times))
    assert abs(lies[0] - 1 / (np.exp(2.0) + 1)) > 0.1, "the check can fail"


def test_where_a_pilot_sees_no_window_the_rest_pays_for_a_plain_mean(tmp_path: Path) -> None:
    values = [0.0, 128.0] * 128
    sent, found, tape = steer(tmp_path, values)
    assert sent["window"] is None
    noisy, squares = sent["trusted"]["sum"], sent["trusted"]["squares"]
    parts = (REST * 0.9, REST * 0.1) if squares is not None else (REST,)
    spans = looks(sent, values, tape)
    spans.append(span_of(tape, [noisy - sum(map(level, values))], laplaces(LEVELS / parts[0])))
    if squares is not None:
        spans.append(span_of(tape, [squares - 256 * 2**32], laplaces(2**32 / parts[1])))
    apart(*spans)
    assert sum(end - start for start, end in spans) == len(tape.words)
    charges = [e.budget.epsilon for e in Ledger.open(tmp_path / "l").history()]
    assert charges == [EPSILON]
    promise = found["receipt"]["promises"][1]
    assert promise["epsilon"] == EPSILON
    assert promise["mechanism"].count("noise on counts") == 2
    assert any("no gain from a window" in line for line in found["receipt"]["assumes"])
    raw, out = write(tmp_path / "raw.csv", local(*values)), tmp_path / "sent.csv"
    answer(raw, tmp_path / "invite.json", out)
    told = command("release", tmp_path / "invite.json", out, "--ledger", tmp_path / "l")
    assert told["questions"]["pay"]["mean"]["estimator"] == "everyone"
    assert told["receipt"]["promises"][1]["epsilon"] == EPSILON


def test_where_too_much_lies_beyond_a_window_local_people_are_asked_about_all_and_nothing_more_is_drawn(
    tmp_path: Path,
) -> None:
    """One in twelve at the upper bound: twenty thousand local people tell more of them than 256 trusted ones."""
    values = [*NEAR[:-22], *[200.0] * 22]
    sent, found, tape = steer(tmp_path, values)
    assert (sent["window"], found["questions"]["pay"]["mean"]["groups"]["local"]["people"]) == (None, 0)
    spans = looks(sent, values, tape) + sums(sent, values, tape, sent["trusted"]["between"])
    apart(*spans)
    assert sum(end - start for start, end in spans) == len(tape.words)
    charges = Ledger.open(tmp_path / "l").history()
    assert [e.budget.epsilon for e in charges] == [EPSILON]
    people = (values * 20)[:4000]
    raw, out = write(tmp_path / "raw.csv", local(*people)), tmp_path / "sent.csv"
    asked = answer(raw, tmp_path / "invite.json", out)
    assert asked["window"] is None
    reports = np.array([float(row["report"]) for row in read(out)])
    release = command("release", tmp_path / "invite.json", out, "--ledger", tmp_path / "l")
    mean = release["questions"]["pay"]["mean"]
    assert "window" not in mean
    assert mean["local"] == pytest.approx(reports.mean(), abs=1e-6)
    low, told = round(sent["trusted"]["between"][0] * LEVELS), sent["trusted"]
    both = [low + told["inside"] / 256, told["outside"] / 256]
    assert mean["trusted"] == pytest.approx(128 * sum(both) / LEVELS, abs=1e-6)
    w = mean["weight"]
    assert mean["estimate"] == pytest.approx(w * 128 * sum(both) / LEVELS + (1 - w) * reports.mean(), abs=1e-6)
    assert mean["interval"][0] <= np.clip(values, 0, 128).mean() <= mean["interval"][1]
    assert any("about the whole range" in line for line in release["receipt"]["assumes"])
    assert release["receipt"]["promises"][1]["epsilon"] == EPSILON


def test_where_no_window_can_pay_all_of_epsilon_goes_into_a_plain_mean(tmp_path: Path) -> None:
    """By public numbers alone: the same draws, whoever the trusted people are, as in one go."""
    table = write(tmp_path / "rows.csv", [*trusted(*NEAR[:50]), *local(*NEAR)])
    tapes = []
    for name, how in (("plain", ()), ("steered", ("--form", "steered"))):
        with Recording(3).as_the_systems() as tape:
            found = command("release", "mean", table, *PAY, "--epsilon", 1, "--simulate-local", "--ledger",
                            tmp_path / name, *how)  # fmt: skip
        tapes.append((tape.words.tolist(), found["questions"]["pay"]["mean"]))
        assert found["simulated"]
    charges = [[(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / name).history()]
               for name in ("plain", "steered")]  # fmt: skip
    assert charges[0] == charges[1]
    assert len(tapes[0][0]) == len(tapes[1][0])
    assert any("no window could pay" in line for line in found["receipt"]["assumes"])
    assert "window" not in tapes[1][1]
