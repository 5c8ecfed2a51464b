"""The mean, from published numbers: its noise is one draw of the stated law, and nobody moves it further than that.

The rows are fixed and the system's randomness is on tape (`recording`). The noise is what the release published less
the true sum, which is computed here in rational arithmetic. The law is stated here too: its scale is the sensitivity
over epsilon, or, for a Gaussian, what the ledger was told, which must keep the promise by an independent computation.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from tests.results import sole

import hybridp as hp
from hybridp import noise
from hybridp.blend.mean import Rule, blend, seal
from hybridp.curator import sums
from hybridp.curator.sums import Columns
from hybridp.errors import InvalidInput, TrustRule
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.protocols.driver import release as release_groups
from hybridp.protocols.driver import release as release_mean
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary, TrustedSummary, sum_noise
from hybridp.public.randomisers import Bounds, DitheredBit, randomiser
from hybridp.release.release import VIEWER
from hybridp.tasks.distribution import DistributionTask, NumberTask
from hybridp.tasks.groups import PrivateGroupsTask
from hybridp.tasks.mean import MeanTask
from hybridp_lab.testing import laws

from .means import LEVELS, LOWER, UPPER, command, flips, level, local, number_task, read, stated, trusted, whole, write
from .recording import Recording, gaussians, laplaces, span_of

VALUES = (3.25, 127.0, 64.5, 1e9, -5.0, 0.0, 99.75, 12.5)  # two of them out of range
TRUE_SUM = sum(map(level, VALUES))
BASE = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", LOWER, "--upper", UPPER)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trusted people's values beside reports that devices made at epsilon 1."""
    folder = tmp_path_factory.mktemp("rows")
    raw = write(folder / "raw.csv", local(*range(10, 110, 10)))
    with Recording(7).as_the_systems():
        command("randomise", "mean", raw, *BASE, "--epsilon", 1, "--local", "dithered", "--out", folder / "reports.csv")
    reports = read(folder / "reports.csv")

    def make(*values: object, sent: list[dict[str, str]] = reports) -> Path:
        return write(folder / "rows.csv", [*trusted(*(values or VALUES)), *sent])

    make.reports = reports
    return make


def added(published: dict[str, Any], true_sum: int = TRUE_SUM, people: int = len(VALUES)) -> int:
    """The noise on the trusted sum, read off the published mean of the trusted group."""
    mean = sole(published)["trusted"]
    return whole((mean - LOWER) / (UPPER - LOWER) * people * LEVELS) - true_sum


# --- the noise of the trusted sum -------------------------------------------------------------------------------------

PLAIN = ("--local", "dithered", "--estimator", "adaptive")  # the trusted sum has the whole promise


def test_the_best_laplace_noise_for_a_delta_keeps_the_promise(rows: Any, tmp_path: Path) -> None:
    """Thm 1.1.5 of the dissertation: scale = sensitivity/(epsilon - 2 ln(1 - delta)), up to what rounding needs."""
    with Recording(3).as_the_systems() as tape:
        found = command(
            "release", "mean", rows(*VALUES, sent=[]), *BASE, "--epsilon", 4, "--delta", 0.05, "--estimator",
            "tcm-only", "--ledger", tmp_path / "l",
        )  # fmt: skip
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert charge.noise is not None
    kind, multiplier = charge.noise
    if kind == "laplace":
        assert multiplier == pytest.approx(1 / (4 - 2 * math.log1p(-0.05)), rel=1e-9)
        assert laws.laplace(1.0, multiplier).delta(4.0) <= 0.05
        assert span_of(tape, added(found), laplaces(multiplier * LEVELS)) == (0, len(tape.words))
    else:
        assert laws.gaussian(1.0, multiplier).delta(4.0) <= 0.05
        assert span_of(tape, added(found), gaussians(multiplier * LEVELS)) == (0, len(tape.words))


SD = ("--sd", 30)
ESTIMATORS = {
    "adaptive": (), "skew-aware": (), "kvh": SD, "pwh": (), "naive": (), "tcm-only": (),
}  # fmt: skip


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_publishes_the_same_noisy_sum(rows: Any, estimator: str) -> None:
    """Blending is post-processing: one draw, whatever the rule for the weight."""
    with Recording(4).as_the_systems() as tape:
        found = command(
            "release", "mean", rows(), *BASE, "--epsilon", 1, "--local", "dithered", "--estimator", estimator,
            *ESTIMATORS[estimator],
        )  # fmt: skip
    assert span_of(tape, added(found), laplaces(LEVELS)) == (0, len(tape.words))


@pytest.mark.parametrize(
    ("beside", "parts", "reach"),
    [({"clipped_share": 0.25, "estimator": "tcm-only"}, (1.5, 0.5), 1), ({"estimator": "anchored"}, (1.8, 0.2), 2**32),
     ({"gap": 5.0}, (1.8, 0.2), 2**32), ({"lies": 0.1}, (1.8, 0.2), 2**32)],
    ids=["a count of the clipped", "the squares of an anchored mean", "those of a stated gap", "of stated lies"],
)
def test_what_is_told_beside_the_sum_has_its_part_of_epsilon_and_a_draw_of_its_own(
    rows: Any, tmp_path: Path, beside: dict[str, Any], parts: tuple[float, float], reach: int
) -> None:
    """Of epsilon 2 a quarter goes to a count that one person changes by 1, or a tenth to squares that they move by
    2^32; the rest to the sum, and nothing else is drawn."""
    three = [*VALUES[:7], 1000.0]  # so many are clipped
    with Recording(19).as_the_systems() as tape:
        study = number_task(tmp_path / "study.toml", 2, **beside)
        found = command("release", study, rows(*three, sent=[]), "--ledger", tmp_path / "l")
    first = span_of(tape, added(found, sum(map(level, three))), laplaces(LEVELS / parts[0]))
    (drawn,), end = tape.read_from(first[1], laplaces(reach / parts[1]), 1)
    assert (first[0], end) == (0, len(tape.words))
    if reach == 1:
        shown = min(max(3 + int(drawn), 0), len(three)) / len(three)
        assert sole(found)["clipped"]["share"] == pytest.approx(shown)
        assert 0 < shown < 1  # this tape's draw is not hidden by the ends
    charged = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon, e.noise) for e in charged] == [("trusted", 2.0, None)]  # both draws at once
    assert stated(found, "trusted")["epsilon"] == 2.0


@pytest.mark.parametrize(("more", "paid"), [({}, True), ({"estimator": "tcm-only"}, False), ({"epsilon": 0.05}, False)])
def test_people_who_all_trust_pay_for_their_spread_out_of_the_same_promise(
    tmp_path: Path, more: dict[str, Any], paid: bool
) -> None:
    """A tenth of epsilon, and intervals that are as long as the spread is, not as the largest that the bounds allow."""
    frame, own = pd.DataFrame({"pay": [45.0, 55.0] * 2000}), {"epsilon": 2.0, **more}
    ledger = Ledger.create(tmp_path / "l", dict.fromkeys(("trusted", "local"), PureDP(own["epsilon"])))
    with Recording(31).as_the_systems() as tape:
        found = hp.mean(frame, "pay", bounds=(0, 100), trust=TrustRule(everyone="trusted"), missing="middle",
                        ledger=ledger, **own)  # fmt: skip
    parts = (0.9 * own["epsilon"], 0.1 * own["epsilon"]) if paid else (own["epsilon"],)
    noise = whole((found.facts["unbiased"] - 0) / 100 * 4000 * LEVELS) - 4000 * LEVELS // 2
    first = span_of(tape, noise, laplaces(LEVELS / parts[0]))
    end = tape.read_from(first[1], laplaces(2**32 / parts[1]), 1)[1] if paid else first[1]
    assert (first[0], end) == (0, len(tape.words))
    assert [(e.people, e.budget.epsilon) for e in ledger.history()] == [("trusted", own["epsilon"])]
    cell = found.cells[0]
    assert cell.low is not None
    assert cell.high is not None
    assert (cell.high - cell.low < 0.5) == paid  # 2 x 1.96 x 5/sqrt(4000) = .31; of 50 in place of 5: 3.1
    assert cell.low < 50 < cell.high


@pytest.mark.parametrize(("few", "asked", "estimator"), [
    (256, "alike", "anchored"), (8, "alike", "adaptive"), (256, "everyone", "everyone")
])  # fmt: skip
def test_alike_spends_and_charges_what_the_groups_sizes_decide_and_the_default_nothing_on_it(
    rows: Any, tmp_path: Path, few: int, asked: str, estimator: str
) -> None:
    """256 trusted people hardly feel what their spread costs; eight would lose 7 % of the error, and do not pay."""
    values = [v / 2 for v in range(few)]
    with Recording(29).as_the_systems() as tape:
        found = command("release", "mean", rows(*values), *BASE, *PLAIN[:2], "--epsilon", 1, "--ledger", tmp_path / "l",
                        *(() if asked == "everyone" else ("--estimator", asked)))  # fmt: skip
    told, charged = sole(found), Ledger.open(tmp_path / "l").history()
    parts = [0.9, 0.1] if estimator == "anchored" else [1.0]
    first = span_of(tape, added(found, sum(map(level, values)), few), laplaces(LEVELS / parts[0]))
    assert first[0] == 0
    end = first[1] if len(parts) == 1 else tape.read_from(first[1], laplaces(2**32 / parts[1]), 1)[1]
    assert end == len(tape.words)  # nothing else is drawn
    assert told["estimator"] == estimator
    whole = [e for e in charged if e.people == "trusted"]
    assert [e.budget.epsilon for e in whole] == [1.0]  # one charge covers either way before the groups are counted
    assert [e.noise and e.noise[1] for e in whole] == [None if asked == "alike" else pytest.approx(1.0)]
    assert stated(found, "trusted")["epsilon"] == 1.0
    assert found["receipt"]["ledger_entries"] == [e.id for e in charged]
    said = [line for line in found["receipt"]["assumes"] if line.startswith("estimator: ")]
    assert [f"alike is {estimator} here" in line for line in said] == [True] * (asked == "alike")
    assert (told["anchor"] is not None) == (estimator == "anchored")


# --- neighbours -------------------------------------------------------------------------------------------------------


def test_one_person_with_many_records_counts_once(tmp_path: Path) -> None:
    """All of one person's records are replaced: more of them, extreme ones, other keys."""
    others = [{"who": f"p{i}", "key": str(i), **row} for i, row in enumerate(trusted(*VALUES[1:]))]
    seen = []
    for mine in ([(1, 0.0)], [(1, 128.0)], [(k, 128.0) for k in range(1, 9)], [(9, 1e9), (2, -1e9)], [(3, 64.0)]):
        own = [{"who": "me", "key": str(k), **trusted(v)[0]} for k, v in mine]
        with Recording(8).as_the_systems():
            found = command(
                "release", "mean", write(tmp_path / "rows.csv", [*others, *own]), *BASE, "--epsilon", 1,
                "--person", "who", "--record-key", "key", "--estimator", "tcm-only",
            )  # fmt: skip
        assert sole(found)["groups"]["trusted"]["people"] == 8
        seen.append(added(found))
    assert max(seen) - min(seen) == LEVELS


def test_a_local_person_with_two_reports_and_no_key_is_refused(rows: Any, tmp_path: Path) -> None:
    """Two reports cost twice what one does, and nothing says which of them was paid for."""
    sent = [{**r, "who": f"p{i}"} for i, r in enumerate(rows.reports)]
    mine = [{"who": f"t{i}", **row} for i, row in enumerate(trusted(*VALUES))]
    options = (*BASE, "--epsilon", 1, "--local", "dithered", "--person", "who")
    command("release", "mean", write(tmp_path / "once.csv", [*mine, *sent]), *options)
    with pytest.raises(AssertionError, match="each local person once"):
        command("release", "mean", write(tmp_path / "twice.csv", [*mine, *sent, sent[0]]), *options)


def test_full_lm_randomises_one_record_of_each_person(tmp_path: Path) -> None:
    """Eight people, one of them with five records: eight reports, each with the words of one."""
    mine = [{"who": "me", "key": str(k), "report": "", **row} for k, row in enumerate(trusted(*[96.0] * 5))]
    others = [{"who": f"p{i}", "key": "1", **row} for i, row in enumerate(trusted(*[96.0] * 7))]
    with Recording(20).as_the_systems() as tape:
        found = command(
            "release", "mean", write(tmp_path / "rows.csv", [*mine, *others]), *BASE, "--epsilon", 1, "--local",
            "dithered", "--estimator", "full-lm", "--person", "who", "--record-key", "key",
        )  # fmt: skip
    bit = DitheredBit(PureDP(1.0), flips(1.0))
    drawn, end = tape.read_from(0, lambda n, rng: noise.reports(bit, np.full(n, level(96.0)), rng=rng), 8)
    assert end == len(tape.words)
    assert sole(found)["unbiased"] == pytest.approx(64 + 64 * float(drawn.mean()), abs=1e-9)


def test_a_local_persons_raw_value_is_never_read(rows: Any) -> None:
    published = []
    for raw in ("", "128", "-1e9"):
        sent = [{**r, "pay": raw} for r in rows.reports]
        with Recording(9).as_the_systems():
            found = command("release", "mean", rows(*VALUES, sent=sent), *BASE, "--epsilon", 1, "--local", "dithered")
        published.append({**found, "receipt": found["receipt"]["promises"]})  # the rest says when it was made
    assert published[0] == published[1] == published[2]


# --- the estimate alone -----------------------------------------------------------------------------------------------

SEALED = ("--estimator", "kvh", *SD, "--publish", "estimate-only", "--local", "dithered")
FIXED = {"estimator": "fixed", "trusted_weight": 0.9, "sd": 30, "publish": "estimate-only", "local": "dithered"}


@pytest.mark.parametrize("options", [
    ("--epsilon", 1), ("--epsilon", 1, "--delta", 1e-6, "--noise", "gaussian"),
    ("--epsilon", 1, "--estimator", "everyone"),
])  # fmt: skip
def test_a_sealed_estimate_shows_nothing_else(rows: Any, options: Any) -> None:
    with Recording(11).as_the_systems():
        found = command("release", "mean", rows(), *BASE, *SEALED, *options)
    for group in ("trusted", "local"):
        assert sole(found)[group] is None
        assert sole(found)["groups"][group]["standard_error"] is None
    assert sole(found)["sd_estimate"] is None
    assert sole(found)["unbiased"] == pytest.approx(sole(found)["estimate"])
    assert set(sole(found)["disagreement"].values()) == {None}


def _unit(found: dict[str, Any]) -> float:
    return float((sole(found)["estimate"] - 64) / 64)


def test_a_sealed_estimate_moves_in_whole_steps_and_the_amplified_promise_covers_them(rows: Any) -> None:
    """Local people's reports become others, the words stay: the estimate moves by steps of the noisy sum's lattice."""
    first = rows.reports
    found = []
    for unit in (-3.0, -0.001, 0.0, 1e-7, 3.0):  # reports of a dithered bit at epsilon 1 reach 3.16
        sent = [{**first[0], "report": repr(64 + 64 * unit)}, *first[1:]]
        with Recording(12).as_the_systems():
            found.append(command("release", "mean", rows(*VALUES, sent=sent), *BASE, *SEALED, "--epsilon", 1))
    w = sole(found[0])["weight"]
    assert all(sole(f)["weight"] == w for f in found)
    step = w * 2 / (LEVELS * len(VALUES))
    moved = [(_unit(f) - _unit(found[0])) / step for f in found]
    # Doubles of size 1 tell steps of 1e-11 apart to about 1e-5 of a step.
    assert all(abs(m - round(m)) < 1e-2 for m in moved)
    claimed = stated(found[0], "local")
    if "amplified" in claimed["note"]:
        assert max(moved) - min(moved) <= claimed["epsilon"] * LEVELS


def test_an_amplified_promise_is_what_the_noise_gives_for_the_largest_shift(tmp_path: Path) -> None:
    """Many local people, few trusted: replacing one report by its opposite moves the estimate by reach (1-w)/n."""
    raw = write(tmp_path / "raw.csv", local(*[64.0] * 400))
    with Recording(13).as_the_systems():
        command("randomise", "mean", raw, *BASE, "--epsilon", 1, "--local", "dithered", "--out", tmp_path / "sent.csv")
    sent = read(tmp_path / "sent.csv")
    gain = 1 / (1 - 2 * flips(1.0) / 2**64)
    ends = [[{**sent[0], "report": repr(64 + 64 * s * (gain + 1))}, *sent[1:]] for s in (-1, 1)]
    for kind, delta in (("laplace", 0.0), ("gaussian", 1e-3)):
        study = number_task(tmp_path / "study.toml", 1, delta, noise=kind, **FIXED)
        found = []
        for n, mine in enumerate(ends):
            table = write(tmp_path / f"{n}.csv", [*trusted(*VALUES), *mine])
            with Recording(14).as_the_systems():
                found.append(command("release", study, table, "--ledger", tmp_path / f"{n}{kind}"))
        w = sole(found[0])["weight"]
        shift = (_unit(found[1]) - _unit(found[0])) / (w * 2 / (LEVELS * len(VALUES)))
        claimed = stated(found[0], "local")
        assert "amplified" in claimed["note"]
        charge = next(e for e in Ledger.open(tmp_path / f"0{kind}").history() if e.people == "trusted")
        assert charge.noise is not None
        size = charge.noise[1] * LEVELS
        law = laws.laplace if kind == "laplace" else laws.gaussian
        assert law(shift, size).delta(claimed["epsilon"]) <= claimed["delta"] * (1 + 1e-6)
        assert law(shift, size).delta(claimed["epsilon"] * 0.99) > claimed["delta"]
        assert claimed["epsilon"] < 1


def every_form(found: Any) -> list[str]:
    """All that is published of a release, in every form that it has."""
    axes = found.plot()
    drawn = [str(np.asarray(line.get_xydata()).tolist()) for line in axes.lines]
    drawn += [str(np.asarray(part.get_offsets()).tolist()) for part in axes.collections]
    drawn += [text.get_text() for text in axes.figure.findobj(Text)]
    plt.close(axes.figure)
    return [json.dumps(found.to_dict(), sort_keys=True), found.to_frame().to_csv(), str(found), found._repr_html_(),
            str(found.receipt), *drawn]  # fmt: skip


SEALED_STUDY = MeanTask(
    Bounds(LOWER, UPPER), PureDP(1.0), Rule("fixed", weight=0.9, sd=0.3), publish="estimate-only", local="dithered"
)


def seen_by_a_reader(table: Path, study: MeanTask, noise_drawn: int, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(sums, "noisy_sums", lambda totals, mechanism, *, rng: tuple(one + noise_drawn for one in totals))
    return release_mean(table, study, Columns("pay", "trust", missing="middle"), rng=seeded(1))


def told_apart(rows: Any, study: MeanTask, patch: pytest.MonkeyPatch) -> list[int]:
    """One person's two reports, all else known: by how many steps of noise every published form becomes the other's.

    Then a reader of all of them has no better odds than the noise gives to a shift of so many. Fails where none does.
    """
    mine = rows.reports[0]
    other = {**mine, "report": repr(2 * 64.0 - float(mine["report"]))}
    shifts = []
    for at in (-3, 0, 2**33 + 1):
        one = seen_by_a_reader(rows(), study, at, patch)
        other_one = seen_by_a_reader(rows(*VALUES, sent=[other, *rows.reports[1:]]), study, at, patch)
        moved = other_one.facts["unbiased"] - one.facts["unbiased"]
        steps = moved / (UPPER - LOWER) / one.facts["weight"] * len(VALUES) * LEVELS
        shifts.append(round(steps))
        assert every_form(seen_by_a_reader(rows(), study, at + shifts[-1], patch)) == every_form(other_one)
    return shifts


def test_no_published_form_of_a_sealed_release_tells_a_persons_bit_beyond_the_claimed_odds(
    rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = seen_by_a_reader(rows(), SEALED_STUDY, 0, monkeypatch)
    (claimed,) = [p.budget.epsilon for p in reader.receipt.promises if (p.people, p.against) == ("local", VIEWER)]
    assert claimed < 1.0
    shifts = told_apart(rows, SEALED_STUDY, monkeypatch)
    assert 0 < max(map(abs, shifts)) <= claimed * LEVELS  # the scale of the noise is LEVELS at epsilon 1
    with pytest.raises(AssertionError):  # the check can fail: group figures tell it
        told_apart(rows, replace(SEALED_STUDY, publish="full"), monkeypatch)


def test_nothing_but_a_sealed_number_may_stand_beside_an_amplified_promise(
    rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes a release of another kind, or with another figure, is refused by the release itself."""
    sealed = seen_by_a_reader(rows(), SEALED_STUDY, 0, monkeypatch)
    full = seen_by_a_reader(rows(), replace(SEALED_STUDY, publish="full"), 0, monkeypatch)

    def having(release: Any, name: str, figure: Any) -> Any:
        return replace(release, questions={"pay": {"mean": {**release.facts, name: figure}}})

    figures = {name: full.facts[name] for name in ("trusted", "local", "groups")}
    figures |= {"sd_estimate": 1.0, "clipped": {"share": 0.1, "interval": [0.0, 0.2]}}
    figures |= {"anchor": {"plain": 1.0, "most": 1.0, "reach": 2.0}}
    gap = sealed.facts["disagreement"]
    every = [*figures.items()]
    every += [("disagreement", {**gap, name: full.facts["disagreement"][name]}) for name in ("difference", "p_value")]
    for name, figure in every:
        assert figure is not None
        with pytest.raises(InvalidInput, match="`receipt` must claim no amplification"):
            having(sealed, name, figure)
        having(full, name, figure)  # without the promise it may


def test_an_answer_by_group_and_one_beside_counts_cannot_be_sealed(tmp_path: Path) -> None:
    """Differences of groups, and quantiles, come from reports that no seal has rounded: refused unread."""
    with pytest.raises(InvalidInput, match="`publish` must be full for an answer by group"):
        release_groups(tmp_path / "none.csv", SEALED_STUDY, Columns("pay", "trust", missing="middle"), Grouping("dept"))
    heard = replace(SEALED_STUDY, rule=Rule("tcm-only", sd=0.3), local="best")
    with pytest.raises(InvalidInput, match="`publish` must be full for an answer by group"):
        PrivateGroupsTask(heard, "pay", Grouping("dept", ("a", "b"), private=True))
    counted = DistributionTask(Bounds(LOWER, UPPER), PureDP(1.0), at=(0.5,))
    with pytest.raises(InvalidInput, match="`publish` must be full where more than the mean"):
        NumberTask(("mean", "quantiles"), replace(SEALED_STUDY, local="best"), counted)


RULES = (Rule("kvh", sd=0.3), Rule("pwh", sd=0.3), Rule("everyone", sd=0.3), Rule("fixed", weight=0.4))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["dithered", "piecewise"])
def test_a_weight_fixed_in_advance_is_the_same_whatever_people_report(rule: Rule, name: Any) -> None:
    """Amplification is claimed for it: reports may move the estimate, and never the weight."""
    assert rule.fixed_in_advance
    mechanism = randomiser(name, PureDP(1.0))
    noisy = TrustedSummary(8, TRUE_SUM, sum_noise(PureDP(1.0)))
    seen = ((-99.0, 120.0), (0.0, 900.0), (80.0, 400.0))
    reports = [LocalSummary(100, total, squares, mechanism) for total, squares in seen]
    assert len({blend(noisy, sent, rule).weight for sent in reports}) == 1
    assert len({blend(noisy, sent, Rule("adaptive")).weight for sent in reports}) == 3  # a learned one does move


@pytest.mark.parametrize("people", [2**10, 2**16, 2**20])
def test_a_sealed_promise_counts_what_sums_of_doubles_may_be_off(people: int) -> None:
    """n reports added in doubles, in any order, are off by at most n^2 2^-53 times the longest: twice."""
    mechanism = randomiser("dithered", PureDP(1.0))
    noisy = TrustedSummary(1024, 2**41, sum_noise(PureDP(1.0)))
    local_sum = LocalSummary(people, 0.25 * people, 5.0 * people, mechanism)
    mixed = blend(noisy, local_sum, Rule("fixed", weight=0.99, sd=0.3))
    claimed = seal(noisy, local_sum, mixed)[1]
    assert claimed is not None
    w, step = Fraction(mixed.weight), Fraction(2, LEVELS * 1024)
    longest = Fraction(mechanism.bound)
    moved = (1 - w) * (2 * longest / people + 2 * people * longest / 2**53) / (w * step)
    scale = Fraction(noisy.noise.scale)
    assert Fraction(claimed.epsilon) * scale >= moved
    assert Fraction(claimed.epsilon) * scale <= moved * (1 + Fraction(1, 10)) + 4


# --- the library ------------------------------------------------------------------------------------------------------
