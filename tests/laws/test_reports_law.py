"""What devices send, by file, Python client and browser: the stated randomiser on each person's own words.

The reports are read off the files and payloads; the words are on tape. The mechanisms are described here by their
probabilities, and drawn by the exact samplers (`tests/distributions`, `tests/contract`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.contract import library_laws
from tests.service.declared import study_of

from hybridp import Study, noise
from hybridp.device.client import local_report
from hybridp.noise import oracle_reports
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import DitheredBit, Oracle, best_randomiser, piecewise, share_oracle, unit_vector

from .means import LEVELS, LOWER, UPPER, WORD, command, flips, level, local, new, read, write
from .recording import Recording, apart

VALUES = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5)
LEVEL = np.array([level(v) for v in VALUES], dtype=np.int64)
BASE = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", LOWER, "--upper", UPPER)


def randomised(folder: Path, tape: Recording, *options: object, values: Any = VALUES) -> list[dict[str, str]]:
    raw = write(folder / "raw.csv", local(*values))
    with tape.as_the_systems():
        command("randomise", "mean", raw, *BASE, *options, "--out", new(folder / "sent.csv"))
    sent = read(folder / "sent.csv")
    assert all(row["pay"] == "" for row in sent), "a randomised row keeps no value"
    return sent


def units(sent: list[dict[str, str]], column: str = "report") -> Any:
    return np.array([(float(row[column]) - 64) / 64 for row in sent])


def law(name: str, epsilon: float, levels: Any = LEVEL) -> Any:
    """How reports are drawn, as numbers in [-1, 1]'s coordinate."""
    match name:
        case "dithered":
            mechanism: Any = DitheredBit(PureDP(epsilon), flips(epsilon))
        case "piecewise":
            mechanism = piecewise(PureDP(epsilon))
            assert library_laws.piecewise(mechanism.width, mechanism.inside).loss <= epsilon
        case "best":
            mechanism = best_randomiser(PureDP(min(epsilon, 30.0)))  # above 30 a device gives what 30 gives
    return lambda n, rng: noise.reports(mechanism, levels, rng=rng)


# --- every kind of report ---------------------------------------------------------------------------------------------

Part = tuple[Any, Any]
"""How some people's reports are drawn from the words, and what they sent."""


@dataclass(frozen=True)
class Device:
    """What devices do with a table of local people, and the laws of their reports at so many times the epsilon."""

    asked: Any  # the words of a command, or a study
    people: list[dict[str, str]]
    parts: Callable[[list[dict[str, str]], float], list[Part]]
    private: tuple[str, ...] = ("pay",)


def number(name: str, epsilon: float, *more: object) -> Device:
    return Device(("mean", *BASE, "--epsilon", epsilon, *more), local(*VALUES),
                  lambda sent, times: [(law(name, times * epsilon), units(sent))])  # fmt: skip


def response(epsilon: float, k: int) -> Oracle:
    """The largest keep with keep (k-1) <= e^epsilon (2^64 - keep), to the last few of 2^64."""
    e = math.exp(epsilon)
    return Oracle(PureDP(epsilon), k, int(WORD * (e / (e + k - 1)) * (1 - 1e-15)))


def subset(epsilon: float, k: int) -> Oracle:
    """With p = e d/(e d + k - d) the set of d holds the own option: Ye and Barg 2018."""
    e = math.exp(epsilon)
    d = round(k / (e + 1))
    return Oracle(PureDP(epsilon), k, int(WORD * (e * d / (e * d + k - d)) * (1 - 1e-15)), d)


def members(row: dict[str, str], k: int) -> list[int]:
    """A set in bytes, first bit first."""
    return [i for i in range(k) if int(row["report"], 16) >> (-(-k // 8) * 8 - 1 - i) & 1]


def choice(options: Sequence[str], epsilon: float, oracle: Callable[[float, int], Any]) -> Device:
    held, k = [(*options, "?")[i * i % (len(options) + 1)] for i in range(64)], len(options)
    codes = np.array([options.index(word) if word in options else k - 1 for word in held])

    def parts(sent: list[dict[str, str]], times: float) -> list[Part]:
        made = oracle(times * epsilon, k)
        told = [options.index(r["report"]) if r["report"] in options else members(r, k) for r in sent]
        return [(lambda n, rng: oracle_reports(made, codes, rng=rng), told)]

    words = ("shares", "--column", "pay", "--options", ",".join(options), "--missing", options[-1], "--trust", "trust")
    return Device((*words, "--epsilon", epsilon), local(*held), parts)


def ticks() -> Device:
    """An option is drawn whatever was ticked, and told with the whole epsilon, of at most two ticks."""
    options, epsilon = ("train", "car", "walk", "bus", "boat"), 0.25
    held = ["train", "car;train", "walk; bus ;boat", "", "car", "plane", "boat;boat", "bus;walk;car;train"] * 12

    def parts(sent: list[dict[str, str]], times: float) -> list[Part]:
        drawn = [row["report"].split(": ") for row in sent]
        assert {option for option, _ in drawn} == set(options)
        listed = [{word.strip() for word in cell.split(";")} for cell in held]
        ticked = [[option for option in options if option in words][:2] for words in listed]
        no = np.array([option not in mine for (option, _), mine in zip(drawn, ticked, strict=True)], dtype=np.int64)
        bit = response(times * epsilon, 2)
        return [(lambda n, rng: noise.categories(bit, no, rng=rng), [answer == "no" for _, answer in drawn])]

    words = ("shares", "--column", "pay", "--options", ",".join(options), "--several", 2, "--missing", "none")
    return Device((*words, "--trust", "trust", "--epsilon", epsilon), local(*held), parts)


def joint(epsilon: float) -> Device:
    """A category and a number together; numbers at their bounds are rounded to themselves, so that cells are known."""
    held = [("a", LOWER), ("a", UPPER)] * 8 + [("b", UPPER)] * 8 + [("c", LOWER)] * 8
    codes = np.array([2 * "abc".index(dept) + (value == LOWER) for dept, value in held])
    names = [f"{dept}: {end:g}" for dept in "abc" for end in (UPPER, LOWER)]

    def parts(sent: list[dict[str, str]], times: float) -> list[Part]:
        oracle = share_oracle(PureDP(times * epsilon), 6)
        told = [names.index(row["report"]) if row["report"] in names else members(row, 6) for row in sent]
        return [(lambda n, rng: oracle_reports(oracle, codes, rng=rng), told)]

    words = (*BASE, "--by", "dept", "--by-private", "--categories", "a,b,c", "--epsilon", epsilon)
    people = [{"pay": str(value), "dept": dept, "trust": "local"} for dept, value in held]
    return Device(("mean", *words), people, parts, ("pay", "dept"))


def own() -> Device:
    """People of one epsilon after the other; at 0 a device says nothing."""
    asked, values = (2.0, 0.5, 0.5, 0.0, 4.0, 40.0), (1, 64, 127, 99, 32, 64)

    def parts(sent: list[dict[str, str]], times: float) -> list[Part]:
        assert units([sent[3]]).tolist() == [0.0]
        found = []
        for epsilon in sorted({*asked} - {0.0}):
            mine = [i for i, e in enumerate(asked) if e == epsilon]
            levels = np.array([level(float(values[i])) for i in mine])
            found.append((law("best", times * epsilon, levels), units([sent[i] for i in mine])))
        return found

    people = [{**row, "own": repr(e)} for row, e in zip(local(*values), asked, strict=True)]
    return Device(("mean", *BASE, "--epsilon-column", "own", "--public", "own"), people, parts)


def levels(question: dict[str, Any], held: Sequence[str], drawn: Callable[..., Part]) -> Device:
    """People of one stated epsilon after the other, as whom everybody counts by the largest that is at most their own;
    of less a device says nothing."""
    stated = ["2", "0.5", "0.4999999", "1.9999999", "0", "inf", "2.0000001"] * 8
    values = [held[i % len(held)] for i in range(len(stated))]

    def parts(sent: list[dict[str, str]], times: float) -> list[Part]:
        assert {row["report"] for row, own in zip(sent, stated, strict=True) if float(own) < 0.5} <= {"", "64.0"}
        mine = {
            0.5: [i for i, own in enumerate(stated) if 0.5 <= float(own) < 2],
            2.0: [i for i, own in enumerate(stated) if float(own) >= 2],
        }
        return [drawn(times * e, [values[i] for i in who], [sent[i] for i in who]) for e, who in mine.items()]

    promise = {"epsilon_column": "own", "allowed_epsilons": [2.0, 0.5]}
    study = Study(promise=promise, trust="trust", questions=[{"name": "pay", **question}], people={"public": ["own"]})
    people = [{**row, "own": own} for row, own in zip(local(*values), stated, strict=True)]
    return Device(study, people, parts)


def _told_option(epsilon: float, held: Sequence[str], sent: list[dict[str, str]]) -> Part:
    made, codes = response(epsilon, 4), np.array(["abcd".index(word) for word in held])
    return (lambda n, rng: oracle_reports(made, codes, rng=rng)), ["abcd".index(row["report"]) for row in sent]


def _told_number(epsilon: float, held: Sequence[str], sent: list[dict[str, str]]) -> Part:
    return law("best", epsilon, np.array([level(float(value)) for value in held])), units(sent)


def several(form: str) -> Device:
    """Two questions by the weights 3 and 1: each at its part, or one that is drawn with the whole promise."""
    bounds = {"kind": "number", "missing": "middle", "lower": LOWER, "upper": UPPER, "local": "dithered"}
    asked = [{"name": "pay", "weight": 3, **bounds}, {"name": "age", **bounds}]
    study = Study(promise={"epsilon": 1.0, "several": form}, trust="trust", questions=asked)
    held = [{"pay": 7.0 * i % 128, "age": 31.0 * i % 128} for i in range(400)]

    def parts(sent: list[dict[str, str]], times: float) -> list[Part]:
        found = []
        for name, epsilon in (("pay", 0.75), ("age", 0.25)) if form == "split" else (("pay", 1.0), ("age", 1.0)):
            mine = [i for i, row in enumerate(sent) if row[f"{name}_report"]]
            assert form == "split" or [i for i, row in enumerate(sent) if row["answered"] == name] == mine
            assert all(f"epsilon={epsilon!r}" in sent[i][f"{name}_report_mechanism"] for i in mine)
            levels = np.array([level(held[i][name]) for i in mine])
            told = units([sent[i] for i in mine], f"{name}_report")
            found.append((law("dithered", times * epsilon, levels), told))
        assert sum(len(told) for _, told in found) == len(sent) * (2 if form == "split" else 1)
        return found

    people = [{**{name: str(x) for name, x in one.items()}, "trust": "local"} for one in held]
    return Device(study, people, parts, ("pay", "age"))


TWENTY = [f"o{i}" for i in range(20)]
DEVICES = {
    "dithered": number("dithered", 1.0, "--local", "dithered"),
    "the best at 1": number("dithered", 1.0),
    "the best at 4": number("piecewise", 4.0),
    "piecewise": number("piecewise", 1.0, "--local", "piecewise"),
    "a choice of four": choice("abcd", 0.5, response),
    "a choice of four at 2": choice("abcd", 2.0, response),
    "a choice of twenty": choice(TWENTY, 1.0, subset),
    "several of five": ticks(),
    "a private group": joint(2.0),
    "a private group at 0.5": joint(0.5),
    "own epsilons": own(),
    "a choice at levels of epsilon": levels(
        {"kind": "choice", "options": [*"abcd"], "missing": "d"}, "abcddcba", _told_option),
    "a share at levels of epsilon": levels(
        {"kind": "number", "lower": LOWER, "upper": UPPER, "missing": "middle", "statistics": ["shares-below"],
         "below": [64]}, [str(value) for value in VALUES], _told_number),
    "several questions, split": several("split"),
    "several questions, drawn": several("drawn"),
}  # fmt: skip


def on_tape(tape: Recording, draw: Any, told: Any) -> tuple[int, int] | None:
    """The stretch of the tape from which these reports are drawn."""
    for start in tape.starts:
        read = tape.read_from(start, draw, len(told))
        if read is None or np.shape(read[0]) != np.shape(told):
            continue
        if np.allclose(np.asarray(read[0], dtype=float), np.asarray(told, dtype=float), rtol=0, atol=1e-9):
            return start, read[1]
    return None


def sent_by(device: Device, folder: Path, people: list[dict[str, str]], tape: Recording) -> list[dict[str, str]]:
    words = device.asked
    if isinstance(words, Study):
        words.write(new(folder / "study.toml"))
        words = (folder / "study.toml",)
    with tape.as_the_systems():
        task, *options = words
        raw = write(folder / "raw.csv", people)
        command("randomise", task, raw, *options, "--out", new(folder / "sent.csv"))
    return read(folder / "sent.csv")


@pytest.mark.parametrize("device", DEVICES.values(), ids=list(DEVICES))
def test_reports_are_the_stated_randomiser_on_everybodys_own_words(device: Device, tmp_path: Path) -> None:
    tape = Recording(1)
    sent = sent_by(device, tmp_path, device.people, tape)
    assert {row[name] for row in sent for name in device.private} == {""}, "a randomised row keeps no value"
    spans = [on_tape(tape, *part) for part in device.parts(sent, 1.0)]
    assert None not in spans
    apart(*spans)  # type: ignore[arg-type]
    assert None in [on_tape(tape, *part) for part in device.parts(sent, 1.5)], "the check can fail"
    # Somebody else's value changes nothing about mine.
    first = device.people[0] | {name: device.people[-1][name] for name in device.private}
    again = sent_by(device, tmp_path, [first, *device.people[1:]], Recording(1))
    names = [name for name in sent[0] if "report" in name and not name.endswith("report_batch")]
    assert [[row[name] for name in names] for row in again[1:]] == [[row[name] for name in names] for row in sent[1:]]


def test_thousands_of_reports_keep_the_loss_below_epsilon(tmp_path: Path) -> None:
    """Without looking at words: how often the bit says "above" for the two ends, by ranges of the threshold."""
    epsilon, people = 1.0, 20_000
    tape = Recording(3)
    sent = units(randomised(tmp_path, tape, "--epsilon", epsilon, values=[0.0] * people + [128.0] * people))
    above = sent > 0
    q = 1 / (1 + math.exp(epsilon))
    for part, p in ((above[:people], q), (above[people:], 1 - q)):
        assert stats.binomtest(int(part.sum()), people, p).pvalue > 1e-6
        assert stats.binomtest(int(part.sum()), people, 0.5 + (p - 0.5) * 1.1).pvalue < 1e-6
    related = stats.spearmanr(above[1:people], above[: people - 1]).statistic
    assert abs(related) < 5 / math.sqrt(people)


# --- several columns --------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
SIDES = ("--column", *NAMES, "--missing", "middle", "--lower", -64, "--upper", 64, "--trust", "trust")
HALF = 2**24


def vectors(folder: Path, tape: Recording, rows: Any, *options: object) -> Any:
    raw = [{"trust": "local", **dict(zip(NAMES, map(str, row), strict=True))} for row in rows]
    with tape.as_the_systems():
        command("randomise", "vector-mean", write(folder / "raw.csv", raw), *SIDES, *options, "--out",
                new(folder / "sent.csv"))  # fmt: skip
    sent = read(folder / "sent.csv")
    assert all(row[name] == "" for row in sent for name in NAMES)
    return np.array([[float(row[f"{name}_report"] or "nan") / 64 for name in NAMES] for row in sent])


def test_every_column_reported_has_its_share_of_epsilon_and_words_of_its_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = np.clip(np.round(rng.normal(0, 40, (16, 4)) * 4) / 4, -64, 64)
    tape = Recording(4)
    told = vectors(tmp_path, tape, rows, "--epsilon", 4, "--local", "per-coordinate")
    levels = ((np.floor(rows / 64 * HALF + 0.5) + HALF) * (LEVELS / (2 * HALF))).astype(np.int64).ravel()
    drawn, end = tape.read_from(0, law("dithered", 1.0, levels), 0)
    assert end == len(tape.words)
    np.testing.assert_allclose(told.ravel(), drawn, rtol=0, atol=1e-12)


def test_one_column_by_lot_takes_the_whole_epsilon(tmp_path: Path) -> None:
    """Of four columns one is chosen by two bits of a word that is used for nothing else."""
    rows = np.tile([1.0, -2.0, 3.0, 64.0], (64, 1))
    tape = Recording(5)
    told = vectors(tmp_path, tape, rows, "--epsilon", 1, "--local", "sampling")
    assert (np.isfinite(told).sum(axis=1) == 1).all()
    chosen = np.flatnonzero(np.isfinite(told)) % 4
    assert chosen.tolist() == (tape.words[:64] >> np.uint64(62)).tolist()
    levels = ((np.floor(rows[0] / 64 * HALF + 0.5) + HALF) * (LEVELS / (2 * HALF))).astype(np.int64)[chosen]
    drawn, end = tape.read_from(64, law("dithered", 1.0, levels), 0)
    assert end == len(tape.words)
    np.testing.assert_allclose(told[np.isfinite(told)], drawn, rtol=0, atol=1e-12)


def test_a_direction_is_one_of_names_that_the_value_cannot_choose(tmp_path: Path) -> None:
    """The same words, every possible value: at most 2N different reports, and all of them from one codebook."""
    rng = np.random.default_rng(2)
    seen = set()
    for row in np.round(rng.uniform(-64, 64, (8, 4))):
        told = vectors(tmp_path, Recording(6), [row], "--epsilon", 2, "--local", "unit-vector")
        seen.add(tuple(np.round(told[0], 9)))
    plan = unit_vector(PureDP(2.0), 4, 2.0)
    others, p = 2 * plan.pairs - plan.top, plan.inside / 2**64
    assert p / plan.top <= math.exp(2.0) * (1 - p) / others * (1 + 1e-12)
    assert 1 < len(seen) <= 2 * plan.pairs


# --- the client and the browser ---------------------------------------------------------------------------------------


def task_for(**plan: Any) -> dict[str, Any]:
    pytest.importorskip("fastapi")
    from hybridp.service.plans import parse_plan
    from hybridp.service.words import task_of

    common: dict[str, Any] = {"kind": "mean", "title": "t", "bounds": {"lower": LOWER, "upper": UPPER}}
    return task_of("x", parse_plan(study_of(common | plan)), 1)


@pytest.mark.parametrize(("name", "epsilon"), [("dithered", 1.0), ("piecewise", 4.0)])
def test_the_client_sends_the_stated_randomiser(name: str, epsilon: float) -> None:
    task = task_for(epsilon=epsilon, local=name)
    for value, at in zip(VALUES, LEVEL, strict=True):
        tape = Recording(7)
        told = local_report(task, value, rng=tape.rng)["payload"]["reports"]["answer"]
        (drawn,), end = tape.read_from(0, law(name, epsilon, np.array([at])), 0)
        assert end == len(tape.words)
        if name == "dithered":
            gain = 1 / (1 - 2 * flips(epsilon) / 2**64)
            unit = (2 * told["threshold"] + 1) / LEVELS - 1 + (gain if told["above"] else -gain)
            assert told["threshold"] == int(tape.words[0] >> np.uint64(32))
        else:
            unit = (told - 64) / 64
        assert unit == pytest.approx(drawn, abs=1e-9)
