"""Missing and unreadable cells: somebody says what they count as, and those who are left out cost nobody more.

Whoever has no value stands in the middle of the sum and is not counted; the mean of the others is a ratio of a noisy
sum and a noisy count. That both together keep the sum's own epsilon is enumerated here over every pair of people.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import hybridp as hp
from hybridp.blend.mean import Rule
from hybridp.curator.sums import Columns, Raw, release_sums
from hybridp.errors import InvalidInput, UnusablePublicRows, cannot_exclude
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.protocols.driver import release as release_mean
from hybridp.protocols.driver import release as release_shares
from hybridp.public.mechanisms import ApproxDP, DiscreteLaplace, PureDP, discrete_laplace
from hybridp.public.messages import LocalSummary, answered_noise, sum_noise
from hybridp.public.queries import Feature
from hybridp.public.randomisers import Bounds, randomiser
from hybridp.public.rounds import Answer, Crowd
from hybridp.tasks.mean import MeanTask, publish_mean
from hybridp.tasks.shares import SharesTask, publish_shares

from .means import LEVELS, LOWER, UPPER, command, level, local, trusted, whole, write
from .recording import Recording, laplaces, span_of

EVERYONE = hp.TrustRule(everyone="trusted")
BASE = ("--column", "pay", "--trust", "trust", "--lower", LOWER, "--upper", UPPER, "--epsilon", 1)


# --- the promise ------------------------------------------------------------------------------------------------------


def worst(on_sum: DiscreteLaplace, on_count: DiscreteLaplace) -> float:
    """The largest log-ratio of two people's releases: they hold nothing, or a level, of which the ends tell most."""
    people = [(LEVELS // 2, 0), *((held, 1) for held in (0, 1, LEVELS // 2, LEVELS - 1, LEVELS))]
    return max(abs(a - b) / on_sum.scale + abs(m - n) / on_count.scale for (a, m), (b, n) in product(people, repeat=2))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_sum_and_count_of_those_who_answer_keep_the_epsilon_of_the_sum(epsilon: float) -> None:
    on_sum = sum_noise(PureDP(epsilon), "laplace")
    assert isinstance(on_sum, DiscreteLaplace)
    assert worst(on_sum, answered_noise(on_sum)) <= epsilon * (1 + 1e-12)
    assert worst(on_sum, answered_noise(on_sum)) >= epsilon * (1 - 1e-6)  # and nothing is wasted
    assert worst(on_sum, discrete_laplace(PureDP(epsilon), 1)) > 1.4 * epsilon  # the check can fail


def test_a_delta_does_not_shrink_the_noise_of_either() -> None:
    study = MeanTask(Bounds(0, 1), ApproxDP(1.0, 0.1), excluding=True)
    assert isinstance(study.sum_noise, DiscreteLaplace)
    assert worst(study.sum_noise, answered_noise(study.sum_noise)) <= 1 + 1e-12


def test_the_noise_of_the_count_is_a_draw_of_its_own_beside_that_of_the_sum(tmp_path: Path) -> None:
    values = [3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5] * 16
    rows = write(tmp_path / "rows.csv", trusted(*values, *["", "n/a", "NaN", None] * 32))
    with Recording(3).as_the_systems() as tape:
        found = command("release", "mean", rows, *BASE, "--missing", "exclude", "--ledger", tmp_path / "l")
    mean = found["questions"]["pay"]["mean"]
    answered = whole((1 - mean["left_out"]["share"]) * 256)
    total = whole((mean["trusted"] - 64) / 64 * answered * (LEVELS // 2))
    true = sum(level(v) - LEVELS // 2 for v in values)
    first = span_of(tape, total - true, laplaces(float(LEVELS)))
    second = span_of(tape, answered - len(values), laplaces(2.0))
    assert (first[0], first[1], second[1]) == (0, second[0], len(tape.words))
    with pytest.raises(AssertionError, match="stretches"):  # the check can fail
        span_of(tape, answered - len(values), laplaces(1.0))
    (entry,) = Ledger.open(tmp_path / "l").history()
    assert (entry.people, entry.budget.epsilon, entry.budget.delta) == ("trusted", 1.0, 0.0)
    assert entry.noise is None  # two numbers: no Laplace mechanism of one
    told = [p for p in found["receipt"]["promises"] if p["group"] == "trusted"]
    (promise,) = (p for p in told if p["against"] == "whoever sees the release")
    assert promise["epsilon"] == 1.0
    assert "number of people who have a value" in promise["mechanism"]


# --- the refusal ------------------------------------------------------------------------------------------------------


def test_a_type_that_has_a_number_in_every_row_needs_no_word_and_any_other_does() -> None:
    study, columns = MeanTask(Bounds(0, 128), PureDP(1.0)), Columns("pay", EVERYONE)

    def refused(data: Any) -> bool:
        try:
            release_mean(data, study, columns, rng=seeded(1))
        except UnusablePublicRows as error:
            return "`missing` must say" in str(error)
        return False

    whole_numbers = np.arange(100)
    assert not refused({"pay": whole_numbers})
    assert not refused({"pay": whole_numbers > 50})
    assert not refused(pd.DataFrame({"pay": whole_numbers}))
    assert refused({"pay": whole_numbers.astype(float)})
    assert refused({"pay": np.ma.masked_array(whole_numbers, whole_numbers > 1000)})
    assert refused(pd.DataFrame({"pay": pd.array(whole_numbers, dtype="Int64")}))


# --- text -------------------------------------------------------------------------------------------------------------


def test_a_column_declared_as_text_has_no_mean_unless_its_decimal_sign_is_stated(tmp_path: Path) -> None:
    file = tmp_path / "typed.parquet"
    duckdb.sql("SELECT '39,99' AS pay, '1.5' AS dot FROM range(640)").write_parquet(str(file))
    study = MeanTask(Bounds(0, 128), PureDP(30.0))
    with pytest.raises(
        UnusablePublicRows, match=r"`pay` of typed.parquet must hold numbers; its type is VARCHAR. State"
    ):
        release_mean(file, study, Columns("pay", EVERYONE, missing="middle"))

    def mean(source: Any, column: str) -> float:
        return release_mean(source, study, Columns(column, EVERYONE, missing=0.0)).estimate

    assert math.isclose(mean(hp.Source(file, decimal=","), "pay"), 39.99, abs_tol=0.1)
    assert math.isclose(mean(hp.Source(file, decimal="."), "dot"), 1.5, abs_tol=0.1)
    # A point where a comma is the decimal sign may stand between thousands: no number is better than another number.
    assert math.isclose(mean(hp.Source(file, decimal=","), "dot"), 0.0, abs_tol=0.1)
    assert math.isclose(mean(hp.Source(file, decimal="."), "pay"), 0.0, abs_tol=0.1)


def test_a_study_states_the_decimal_comma_and_devices_read_it_too(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    people = [f"{i};12,5;{'trusted' if i % 2 else 'local'}\n" for i in range(400)]
    file.write_text("id;pay;trust\n" + "".join(people))
    asked = {"name": "pay", "kind": "number", "lower": 0, "upper": 25, "missing": 25}  # what is not read counts as 25
    study = hp.Study(promise=30.0, trust="trust", questions=[asked], people={"decimal": ","})
    for ending in ("csv", "parquet"):
        study.randomise(file, tmp_path / f"sent.{ending}")
        answer = study.release(tmp_path / f"sent.{ending}")["pay"]
        assert math.isclose(answer.facts["unbiased"], 12.5, abs_tol=0.3)


# --- leaving people out -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixer", [(), ("--batch", 2, "--shuffled-delta", 1e-3)])
def test_devices_without_a_column_of_trust_are_told_what_a_missing_value_counts_as(
    tmp_path: Path, mixer: tuple[Any, ...]
) -> None:
    """Nobody's silence becomes the middle unless somebody says so, whoever reports."""
    table, out = write(tmp_path / "raw.csv", [{"pay": "3"}, {"pay": ""}, {"pay": "none"}]), tmp_path / "sent.csv"
    asked = ("randomise", "mean", table, "--column", "pay", "--lower", 0, "--upper", 8, "--epsilon", 1, "--out", out)
    with pytest.raises(AssertionError, match="`missing` must say what"):  # and the exit code 2
        command(*asked, *mixer)
    assert not out.exists()
    command(*asked, *mixer, "--missing", 2)


def test_whoever_is_local_cannot_be_left_out(tmp_path: Path) -> None:
    both = write(tmp_path / "both.csv", [*trusted(1, 2, None), *local(3)])
    study, columns = MeanTask(Bounds(0, 128), PureDP(1.0)), Columns("pay", "trust", missing="exclude")
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    for trial in (False, True):
        with pytest.raises(UnusablePublicRows) as caught:
            release_mean(both, study, columns, simulate_local=trial, ledger=None if trial else ledger)
        assert (
            trial or str(caught.value) == str(cannot_exclude()) or "no column holds their reports" in str(caught.value)
        )
    assert all(entry.state == "void" for entry in ledger.history())
    alone = replace(study, rule=Rule("tcm-only"))
    assert release_mean(both, alone, columns, simulate_local=True, rng=seeded(1)).people["trusted"] == 3
    with pytest.raises(UnusablePublicRows, match="reports cannot say that there is none"):
        hp.Study(promise=1.0, trust="trust", questions=[
            {"name": "pay", "kind": "number", "lower": 0, "upper": 9, "missing": "exclude"}]
        ).randomise(both, tmp_path / "sent.csv")  # fmt: skip
    options = ["1", "2", "3"]
    with pytest.raises(UnusablePublicRows, match="reports cannot say that there is none"):
        hp.shares(both, "pay", options=options, missing="exclude", trust="trust", epsilon=1.0, simulate_local=True)


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"statistics": ["mean", "sd"]}, "statistics"), ({"by": "town"}, "by"), ({"noise": "gaussian"}, "noise"),
     ({"estimator": "adaptive"}, "estimator"), ({"missing": 200}, "missing"), ({"missing": "mean"}, "missing")],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    question = {"name": "pay", "kind": "number", "lower": 0, "upper": 100, "missing": "exclude", **changes}
    with pytest.raises(InvalidInput, match=rf"`pay\.{field}` must be"):
        hp.Study(promise=1.0, trust={"everyone": "trusted"}, questions=[question])


def covered(trial: Callable[[np.random.Generator, int], bool], trials: int = 400) -> float:
    draw = np.random.default_rng(7)
    return sum(trial(draw, i) for i in range(trials)) / trials


@pytest.mark.parametrize(("share", "people", "epsilon"), [(0.4, 4000, 1.0), (0.4, 300, 0.2)])
def test_the_interval_covers_the_mean_of_those_who_have_a_value(share: float, people: int, epsilon: float) -> None:
    """Who has none is drawn at random; a stated sd makes the interval exact, so that too wide would show as well."""
    bounds, sd, mean = Bounds(0, 60), 8.0, 15.2
    excluding = MeanTask(bounds, PureDP(epsilon), Rule("tcm-only", sd=sd / bounds.half), excluding=True)
    nobody = LocalSummary(0, 0.0, 0.0, randomiser("best", PureDP(epsilon)))

    def released(draw: np.random.Generator, seed: int, study: MeanTask) -> Any:
        values = np.clip(draw.normal(mean, sd, people), 0, 60)
        held = bounds.levels(values[draw.random(people) >= share])
        total = int(held.sum()) + (people - len(held)) * (LEVELS // 2)
        totals = Raw(people, [total], nobody, answered=len(held) if study.excluding else None)
        rng = seeded(seed)
        sent = release_sums(totals, study.sum_noise, bounds, rng=rng)
        return publish_mean(study, Answer(people, sent), Crowd.of("value", rng=rng))

    # The mean of the clipped normal, by numerical integration.
    grid = np.linspace(-60, 120, 200_001)
    weights = np.exp(-0.5 * ((grid - mean) / sd) ** 2)
    truth = float(np.sum(np.clip(grid, 0, 60) * weights) / np.sum(weights))

    def holds(study: MeanTask) -> Callable[[np.random.Generator, int], bool]:
        def once(draw: np.random.Generator, seed: int) -> bool:
            found = released(draw, seed, study)
            return bool(found.low <= truth <= found.high)

        return once

    assert 0.92 <= covered(holds(excluding)) <= 0.99
    if people > 1000:  # the control: the middle for whoever has none is another mean
        assert covered(holds(replace(excluding, excluding=False)), 40) == 0.0


def test_shares_are_of_those_who_have_an_option() -> None:
    truth, people, share = np.array([0.5, 0.3, 0.2]), 3000, 0.4
    question = Feature.categorical("way", ["bus", "car", "walk"], missing="exclude")
    study = SharesTask(question, PureDP(0.5))
    everybody = np.append(truth * (1 - share), share)

    def once(draw: np.random.Generator, seed: int) -> np.ndarray:
        from hybridp.curator.sums import Raw, release_counts

        rng = seeded(seed)
        raw = Raw(people, draw.multinomial(people, everybody))
        sent = replace(release_counts(raw, study.count_noise, rng=rng), left_out=True)
        found = publish_shares(study, Answer(people, sent), Crowd.of("way", rng=rng))
        assert found.facts["options"] == ["bus", "car", "walk"]
        assert math.isclose(sum(found.facts["unbiased"]), 1.0)
        assert found.facts["left_out"] is not None
        low, high = np.array(found.facts["interval"])
        return (low <= truth) & (truth <= high)

    draw = np.random.default_rng(5)
    hit = np.mean([once(draw, seed) for seed in range(150)], axis=0)
    assert (hit >= 0.92).all(), hit
    assert study.count_noise.size == 4  # those who are left out are counted with the same noise as anybody


@pytest.mark.parametrize(("options", "promise"), [(12, PureDP(0.5)), (2, ApproxDP(0.5, 1e-6))])
def test_the_interval_covers_the_share_of_those_who_are_left_out(options: int, promise: Any) -> None:
    from hybridp.curator.sums import Raw, release_counts

    counts = np.full(options + 1, 40)
    people = int(counts.sum())
    noise = "laplace" if isinstance(promise, PureDP) else "gaussian"
    named = [str(number) for number in range(options)]
    study = SharesTask(Feature.categorical("way", named, missing="exclude"), promise, noise=noise)

    def once(seed: int) -> bool:
        rng = seeded(seed)
        noisy = replace(release_counts(Raw(people, counts), study.count_noise, rng=rng), left_out=True)
        found = publish_shares(study, Answer(people, noisy), Crowd.of("way", rng=rng))
        low, high = found.facts["left_out"]["interval"]
        return bool(low <= counts[-1] / people <= high)

    # Everybody is here, so that noise is all of the error; it is wider than the rounding to whole people.
    assert 0.88 <= np.mean([once(seed) for seed in range(100)]) <= 0.995


def test_an_option_stands_for_missing_fields_and_other_for_words_that_are_not_listed(tmp_path: Path) -> None:
    words = (["bus"] * 4 + ["car"] * 3 + [""] * 2 + ["boat"]) * 100
    file = write(tmp_path / "rows.csv", [{"way": word, "trust": "trusted"} for word in words])
    expected = {
        ("", "car"): [40, 60], ("", "bus"): [70, 30], ("rest", ""): [40, 30, 30], ("rest", "car"): [40, 50, 10],
    }  # fmt: skip
    for (other, missing), counts in expected.items():
        question = Feature.categorical("way", ["bus", "car"], other=other or None, missing=missing or None)
        found = release_shares(file, SharesTask(question, PureDP(30.0)), Columns("way", "trust"))
        assert np.allclose(np.array(found.facts["unbiased"]) * 100, counts, atol=1.0), (other, missing)
    left = release_shares(
        file,
        SharesTask(Feature.categorical("way", ["bus", "car"], missing="exclude"), PureDP(30.0)),
        Columns("way", "trust"),
    )
    assert np.allclose(left.facts["unbiased"], [4 / 7, 3 / 7], atol=0.02)
    assert math.isclose(left.facts["left_out"]["share"], 0.3, abs_tol=0.01)


# --- synthetic tables -------------------------------------------------------------------------------------------------


def _schema(folder: Path, **declared: Any) -> tuple[Any, ...]:
    features = [{"name": "way", "values": ["bus", "car", "walk"], **declared}, {"name": "pay", "edges": [0, 10, 20]}]
    (folder / "schema.json").write_text(json.dumps({"features": features}))
    return "--schema", folder / "schema.json", "--marginals", "way", "--marginals", "pay"


def test_a_studys_table_says_it_too_and_only_numbers_in_bins_need_no_word(tmp_path: Path) -> None:
    features = [{"name": "way", "edges": [0, 1, 2, 3]}, {"name": "age", "values": ["0", "1"], "missing": True}]
    home: dict[str, Any] = {"name": "home", "kind": "table", "features": features, "marginals": ["way,age"]}
    held = {"way": np.arange(90) % 3, "age": np.arange(90) % 2}

    def released(data: Any, question: Any) -> Any:
        study = hp.Study(promise={"epsilon": 1, "delta": 1e-5}, trust={"everyone": "trusted"}, questions=[question])
        return study.release(data, rng=seeded(1))

    assert released(held, home)  # every whole number is in a bin
    broken = {**held, "way": held["way"].astype(float)}
    with pytest.raises(UnusablePublicRows, match=r"`missing` must say what a missing or unreadable field of `way`"):
        released(broken, home)
    assert released(broken, {**home, "other": "last"})
    listed = {**home, "features": [{"name": "age", "values": ["0", "1"]}, features[0]]}
    with pytest.raises(UnusablePublicRows, match=r"unreadable field of `age`"):  # a number need not be listed
        released(held, listed)


def test_a_field_that_is_not_listed_counts_as_the_value_that_its_column_declares(tmp_path: Path) -> None:
    from hybridp.cli.synth import StatedSchema
    from hybridp.curator.models import read_codes
    from hybridp.public.queries import Schema
    from hybridp.tasks.transcript import made_of, plain_of

    file = write(tmp_path / "rows.csv", [{"way": way, "pay": "5"} for way in ("bus", "", "boat", "walk")])

    def places(other: str | None = None, **declared: Any) -> list[int]:
        found = made_of(plain_of(_named(tmp_path, other, **declared)))  # as an invitation carries it
        return read_codes(file, found).values[0].tolist()

    def _named(folder: Path, other: str | None, **declared: Any) -> Schema:
        _schema(folder, **declared)
        return StatedSchema(schema=folder / "schema.json", other=other).features()[0].counting("last")

    assert places(missing="car") == [0, 1, 1, 2]
    assert places("last") == [0, 2, 2, 2]
    assert places("missing") == [0, 3, 3, 2]
    assert places("missing", missing="bus") == [0, 0, 0, 2]  # a column's own word goes first
    assert places(missing=True) == [0, 3, 3, 2]
    with pytest.raises(InvalidInput, match="`missing of way` must be one of bus, car, walk"):
        places(missing="boat")
