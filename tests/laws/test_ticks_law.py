"""Several of several: noise for all counts together, one drawn option's yes or no from every local device.

The system's randomness is on tape (`recording`), and what was added to the true counts, computed here, must be drawn
from it at the size that is stated here: a replaced person takes away at most `most` ticks and brings as many.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp import Ledger, Study, noise
from hybridp.errors import InvalidInput
from hybridp.public.randomisers import KRandomisedResponse

from .means import command, read, write
from .recording import Recording

OPTIONS = ("train", "car", "walk", "bus", "boat")
TICKS = ["train", "car;train", "walk; bus ;boat", "", "car", "plane", "boat;boat", "bus;walk;car;train", "train;"] * 3
EPSILON = 0.25


def ways(most: int) -> tuple[Any, ...]:
    return ("--column", "ways", "--options", ",".join(OPTIONS), "--several", most, "--missing", "none",
            "--trust", "trust",
            "--epsilon", EPSILON)  # fmt: skip


def held(cell: str, most: int) -> list[str]:
    listed = {part.strip() for part in cell.split(";")}
    return [option for option in OPTIONS if option in listed][:most]


def exact(cells: list[str], most: int) -> np.ndarray[Any, Any]:
    return np.array([sum(option in held(cell, most) for cell in cells) for option in OPTIONS])


def test_a_device_draws_an_option_whatever_was_ticked_and_tells_it_with_the_whole_epsilon(tmp_path: Path) -> None:
    cells = TICKS * 4
    sent = {}
    for name, told in (("a", cells), ("b", ["car"] * len(cells))):
        raw = write(tmp_path / f"{name}.csv", [{"ways": cell, "trust": "local"} for cell in told])
        with Recording(3).as_the_systems() as tape:
            command("randomise", "shares", raw, *ways(2), "--out", tmp_path / f"{name}-sent.csv")
        sent[name] = read(tmp_path / f"{name}-sent.csv")
        assert {row["ways"] for row in sent[name]} == {""}
        drawn = [row["report"].split(": ") for row in sent[name]]
        no = np.array([option not in held(cell, 2) for (option, _), cell in zip(drawn, told, strict=True)], np.int64)
        heard = np.array([answer == "no" for _, answer in drawn], np.int64)

        def made(epsilon: float, no: Any = no, heard: Any = heard, tape: Recording = tape) -> bool:
            keep = math.floor(2**64 * math.exp(epsilon) / (math.exp(epsilon) + 1))
            for guess in range(keep - 4096, keep + 4097, 2048):  # a double holds 53 bits of the chance
                bit = KRandomisedResponse.__new__(KRandomisedResponse)
                object.__setattr__(bit, "keep", guess)
                object.__setattr__(bit, "categories", 2)
                for start in tape.starts:
                    told = tape.read_from(start, lambda n, rng, bit=bit: noise.categories(bit, no, rng=rng), len(no))
                    if told is not None and np.array_equal(told[0], heard):
                        return True
            return False

        assert made(EPSILON)
        assert not made(4 * EPSILON)  # less noise is noticed
    options = {name: [row["report"].split(": ")[0] for row in rows] for name, rows in sent.items()}
    assert options["a"] == options["b"]
    assert set(options["a"]) == set(OPTIONS)
    for _ in range(2):  # the same reports are charged once
        command(
            "release", "shares", tmp_path / "a-sent.csv", *ways(2), "--estimator", "lm-only", "--ledger", tmp_path / "l"
        )
    assert [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()] == [("local", EPSILON)]


def test_a_study_asks_for_several_beside_other_questions_and_charges_once(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    chance = (0.6, 0.4, 0.3, 0.1, 0.02)
    cells = [";".join(o for o, p in zip(OPTIONS, chance, strict=True) if draw.random() < p) for _ in range(8000)]
    rows = [
        {"ways": cell, "pay": str(i % 100), "trust": ("trusted", "local")[i % 4 > 0]} for i, cell in enumerate(cells)
    ]
    write(tmp_path / "raw.csv", rows)
    asked = {"name": "ways", "kind": "choice", "options": list(OPTIONS), "several": 5, "missing": "none", "joint": True}
    pay = {"name": "pay", "kind": "number", "missing": "middle", "lower": 0, "upper": 100}
    study = Study(promise=2.0, trust="trust", level=1 - 1e-6, questions=[asked, pay])
    assert study.drawn
    study.randomise(tmp_path / "raw.csv", tmp_path / "rows.csv")
    found = study.release(tmp_path / "rows.csv", ledger=tmp_path / "l")
    true = exact(cells, 5) / len(cells)
    told = found.to_dict()["questions"]["ways"]["shares"]
    low, high = (np.array(end) for end in told["interval"])
    assert ((low <= true) & (true <= high)).all()
    assert np.abs(np.array(told["estimate"]) - true).max() < 0.1
    assert found["ways"].different == ()
    charged = [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()]
    assert charged == [("trusted", 2.0), ("local", 2.0)]
    assert not found.simulated
    trial = Study(promise=2.0, trust="trust", questions=[asked]).release(tmp_path / "raw.csv", simulate_local=True)
    assert trial.simulated
    assert np.abs(np.array(trial["ways"].facts["local"]) - true).max() < 0.2
    plan = study.plan(trusted=2000, local=6000)["ways"]
    assert plan.errors["hybrid"][0] < min(plan.errors["tcm-only"][0], plan.errors["lm-only"][0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"several": 9}, r"`ways.several` must be at most the 5 options, of which 60 may be. Got 9."),
        ({"several": 2, "other": "none"}, r"`ways.other` must be left out where several may be ticked"),
        ({"several": 2, "noise": "gaussian"}, r"`ways.noise` must be left out where several may be ticked"),
        ({"several": 2, "options": ["a;b", "c"]}, r"`ways.options` must hold no `;`"),
        ({"several": 2, "options": [], "edges": [0, 1, 2]}, r"`ways.several` must go with options"),
    ],
)
def test_what_cannot_be_ticked_is_refused(changes: dict[str, Any], said: str) -> None:
    asked = {"name": "ways", "kind": "choice", "options": list(OPTIONS), **changes}
    with pytest.raises(InvalidInput, match=said):
        Study(promise={"epsilon": 1.0, "delta": 1e-6}, trust="trust", questions=[asked])
