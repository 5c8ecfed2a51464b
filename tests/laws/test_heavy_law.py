"""Heavy hitters, from released numbers alone: every count has the stated noise of its own, in files and in the service.

Discovery: discrete Laplace of scale 2/epsilon, shown from a threshold on (Korolova et al. 2009). Estimation: discrete
Laplace of the least scale whose own law has this epsilon and delta, about 2/(epsilon - 2 ln(1 - delta)) (dissertation,
Thm 1.1.5). The two halves of the trusted people have nobody in common, so that each pays one of them.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.laws.recording import Recording, apart, laplaces, span_of
from tests.service.declared import study_of

from hybridp.curator.sums import Columns
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.release.release import CURATOR, VIEWER
from hybridp.tasks.records import RecordsTask
from hybridp_lab.testing import laws
from tests import phases as files

EPSILON, DELTA = 0.25, 1e-5
PROMISE = ApproxDP(EPSILON, DELTA)
DISCOVERY = 2 / EPSILON


def _least_scale(low: float, high: float) -> float:
    """The least discrete Laplace noise that hides two counts moved by one, from its own law."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if laws.discrete_laplace(2, middle).delta(EPSILON) <= DELTA else (middle, high)
    return high


ESTIMATION = _least_scale(DISCOVERY / 2, DISCOVERY)
COLUMNS = Columns(("query",), "trust", None, "id")
RECORDS, EACH = 24, 320
HALF = 0.5
STUDY = RecordsTask(PROMISE, depth=1, head=RECORDS, discovery_share=HALF)


def held(i: int) -> str:
    return f"q{i % RECORDS:02d}"


def write(path: Path, rows: list[tuple[Any, str, str]]) -> Path:
    path.write_text("id,query,trust\n" + "".join(f"{who},{query},{trust}\n" for who, query, trust in rows))
    return path


def people(changes: dict[int, str] | None = None) -> list[tuple[Any, str, str]]:
    return [(i, (changes or {}).get(i, held(i)), "trusted") for i in range(RECORDS * EACH)]


def book(folder: Path) -> Ledger:
    return Ledger.create(folder / "a.ledger", {"trusted": PROMISE})


def invited(path: Path, tape: Recording, out: Path, study: RecordsTask = STUDY, **more: Any) -> dict[str, Any]:
    """What phase one publishes."""
    with tape.as_the_systems():
        files.invite_to(path, study, COLUMNS, out, **more)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def released_counts(opt_in: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The noisy counts of the records among the discovery half, and of all slots among the estimation half."""
    assert [slot[0] for slot in opt_in["slots"]] == [*sorted({held(i) for i in range(RECORDS)}), None]
    shown = np.array([np.nan if x is None else x for x in opt_in["discovered"]], dtype=float)
    assert np.isnan(shown[-1])
    return shown[:-1].astype(np.int64), np.array(opt_in["counted"]).astype(np.int64)


def halves(opt_in: dict[str, Any], tape: Recording, totals: np.ndarray, *, ordered: bool) -> tuple[Any, Any]:
    """The true counts of both halves: what is left of the released ones without two stretches of the tape.

    The estimation half's own wildcard has nobody, and both halves together have everybody once. The draws of the
    discovery half are in the order of its records only where that order is public (`ordered`).
    """
    shown, counted = released_counts(opt_in)
    pairs = []
    for start in tape.starts:
        read = tape.read_from(start, laplaces(ESTIMATION), len(counted))
        if read is None or counted[-1] - read[0][-1] != 0:
            continue
        among = counted[:-1] - read[0][:-1]
        if among.min() < 0 or (among > totals).any() or among.sum() != opt_in["estimation_people"]:
            continue
        for other in tape.starts:
            found = tape.read_from(other, laplaces(DISCOVERY), len(shown))
            if found is None:
                continue
            added = shown - (totals - among)
            same = np.array_equal(added, found[0]) if ordered else sorted(added) == sorted(found[0].tolist())
            if same:
                pairs.append((among, (start, read[1]), (other, found[1])))
    assert len(pairs) == 1, f"{len(pairs)} ways to read the released counts"
    among, second, first = pairs[0]
    apart(first, second)
    assert opt_in["discovery_people"] + opt_in["estimation_people"] == totals.sum()
    return totals - among, among


def test_the_stated_scales_keep_the_promise() -> None:
    """Replacing a record moves two counts by one. A tenth less noise does not hide it."""
    assert laws.discrete_laplace(2, ESTIMATION).delta(EPSILON) <= DELTA
    assert pytest.approx(2 / (EPSILON - 2 * math.log1p(-DELTA)), rel=1e-4) == ESTIMATION
    assert laws.discrete_laplace(2, ESTIMATION * 0.9).delta(EPSILON) > 10 * DELTA
    assert laws.discrete_laplace(2, DISCOVERY).loss <= EPSILON * (1 + 1e-12)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("log") / "log.csv", people())


WIDER = replace(STUDY, guarantee=ApproxDP(4 * EPSILON, 4 * DELTA), trusted_guarantee=PROMISE)


@pytest.mark.parametrize("study", [STUDY, WIDER], ids=["one promise", "a larger one for reports"])
def test_an_invitation_carries_the_stated_noise_in_both_halves(log: Path, tmp_path: Path, study: RecordsTask) -> None:
    tape, ledger = Recording(), book(tmp_path)
    found = invited(log, tape, tmp_path / "invite.json", study, ledger=ledger)
    first, second = halves(files.opt_in(found), tape, np.full(RECORDS, EACH), ordered=True)
    # Nobody is in both, and who is in which depends on no record: a binomial share of every record's holders.
    assert stats.binomtest(int(first.sum()), RECORDS * EACH, HALF).pvalue > 1e-6
    assert stats.chisquare(first).pvalue > 1e-6
    assert first.sum() + second.sum() == RECORDS * EACH
    # What was drawn is what was charged, once.
    [entry] = ledger.history()
    assert (entry.people, entry.budget, entry.state) == ("trusted", PROMISE, "spent")
    assert found["ledger_entries"] == [entry.id]
    assert found["simulated"] is False
    whole = study.guarantee
    stated = found["task"]["guarantee"], found["task"]["trusted_guarantee"]
    assert (stated[0]["epsilon"], stated[0]["delta"]) == (whole.epsilon, whole.delta)
    assert stated[1] is None if study is STUDY else (stated[1]["epsilon"], stated[1]["delta"]) == (EPSILON, DELTA)
    assert f"epsilon={whole.epsilon!r},delta=0.0" in files.read_invitation(tmp_path / "invite.json").invite.text


def test_control_a_tenth_less_noise_is_not_on_the_tape(log: Path, tmp_path: Path) -> None:
    tape = Recording()
    found = invited(log, tape, tmp_path / "invite.json")
    counted = released_counts(files.opt_in(found))[1]
    _, second = halves(files.opt_in(found), tape, np.full(RECORDS, EACH), ordered=True)
    added = counted - np.append(second, 0)
    span_of(tape, added, laplaces(ESTIMATION))
    for wrong in (ESTIMATION * 0.9, ESTIMATION / 5, DISCOVERY / 2):
        with pytest.raises(AssertionError, match="0 stretches"):
            span_of(tape, added, laplaces(wrong))
    with pytest.raises(AssertionError):
        halves(files.opt_in(found), tape, np.full(RECORDS, EACH + 1), ordered=True)


@pytest.mark.parametrize("several", [False, True])
def test_replacing_a_person_moves_two_counts_by_one(log: Path, tmp_path: Path, several: bool) -> None:
    """The same tape, one person's record (or all of their records) replaced: both halves together move by two."""
    rows, other = people(), people({7: held(8)})
    if several:  # three records of one person on one side: still one of them counts
        other = [*people({7: held(8)}), (7, held(9), "trusted"), (7, held(10), "trusted")]
        rows = [*people(), (7, held(7), "trusted"), (7, held(11), "trusted")]
    found = []
    for name, here in (("a", rows), ("b", other)):
        tape = Recording()
        stated = files.opt_in(invited(write(tmp_path / f"{name}.csv", here), tape, tmp_path / f"{name}.json"))
        found.append((*released_counts(stated), stated["discovery_people"], stated["estimation_people"]))
        assert sum(found[-1][2:]) == RECORDS * EACH
    assert found[0][2:] == found[1][2:]  # which half somebody is in depends on no record
    moved = [np.abs(a - b) for a, b in zip(found[0][:2], found[1][:2], strict=True)]
    assert sum(int(m.sum()) for m in moved) in (0, 2)
    assert max(int(m.max()) for m in moved) <= 1
    assert sum(bool(m.any()) for m in moved) <= 1  # a person is in one half


def _lowest_threshold(epsilon: float, delta: float) -> int:
    """The first T at which a record of one person is shown with probability at most delta, summed term by term."""
    r = math.exp(-epsilon / 2)
    mass = [(1 - r) / (1 + r) * r**k for k in range(2000)]
    return next(t for t in range(2, 2000) if math.fsum(mass[t - 1 :]) <= delta)


def test_the_noisy_count_decides_and_not_the_true_one(tmp_path: Path) -> None:
    """Forty records around the threshold: those are shown whose count passes with the noise that the tape gives it."""
    t = _lowest_threshold(1.0, DELTA)
    totals = np.array([t - 5 + i % 11 for i in range(40)])
    rows = [(f"{i}-{j}", f"q{i:02d}", "trusted") for i, n in enumerate(totals) for j in range(n)]
    tape, study = Recording(12), RecordsTask(ApproxDP(1.0, DELTA), depth=1, discovery_share=1 - 1e-9)
    found = files.opt_in(invited(write(tmp_path / "log.csv", rows), tape, tmp_path / "i.json", study))
    passing = []
    for start in tape.starts:
        read = tape.read_from(start, laplaces(2.0), len(totals))
        if read is not None:
            noisy = totals + read[0]
            passing.append([(f"q{i:02d}", int(noisy[i])) for i in range(40) if noisy[i] >= t])
    shown = [(slot[0], int(x)) for slot, x in zip(found["slots"], found["discovered"], strict=True) if x is not None]
    assert passing.count(shown) == 1
    below = {f"q{i:02d}" for i in range(40) if totals[i] < t}
    assert below & {name for name, _ in shown}
    assert {f"q{i:02d}" for i in range(40)} - below - {name for name, _ in shown}


# U = 1/2 for every draw: no noise at epsilon 4, and a coin below .95 in the service.
QUIET = 1 << 63


@pytest.mark.parametrize("delta", [1e-5, 1e-7])
def test_a_record_is_shown_from_the_lowest_private_threshold_on(tmp_path: Path, delta: float) -> None:
    t = _lowest_threshold(4.0, delta)
    study = RecordsTask(ApproxDP(4.0, delta), depth=1, discovery_share=1 - 1e-9)
    rows = [(f"{name}{i}", name, "trusted") for name, n in (("below", t - 1), ("at", t), ("one", 1)) for i in range(n)]
    path = write(tmp_path / "log.csv", rows)
    found = invited(path, Recording(always=QUIET), tmp_path / "i.json", study)
    assert [slot[0] for slot in files.opt_in(found)["slots"]] == ["at", None]
    assert files.opt_in(found)["discovered"] == [t, None]


# --- the service ------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("fastapi")
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings

    running: list[Any] = []

    def serve(tape: Recording | None) -> Any:
        address = f"sqlite:///{tmp_path / f'{len(running)}.db'}"
        settings = Settings.from_environment(address, tmp_path / "hybridp.key", "http://testserver", Limits(rate=0))
        # Without a tape: from a seed, which is a trial.
        running.append(Service(settings, rng=seeded(1) if tape is None else tape.rng))
        return running[-1]

    yield serve
    for service in running:
        service.close()


def _opened(served: Any, tape: Recording | None, records: list[str], epsilon: float) -> tuple[Any, str, dict[str, Any]]:
    from hybridp.service import studies

    service = served(tape)
    plan = {"kind": "heavy-hitters", "title": "h", "epsilon": epsilon, "delta": DELTA, "record": ["query"],
            "min_batch": 2, "time_precision": 60, "head": RECORDS}  # fmt: skip
    study = studies.create_study(service, study_of(plan))["id"]
    rows = [
        {"id": studies.new_report_id(), "time": studies.rounded_now({"time_precision": 60}), "group": "trusted",
         "payload": {"answers": {"answer": [record]}}}
        for record in records
    ]  # fmt: skip
    for start in range(0, len(rows), 1000):
        assert asyncio.run(studies.submit(service, study, rows[start : start + 1000])) == []
    return service, study, studies.open_phase(service, study, sure=True)["invitations"]["answer"]


def test_the_service_adds_the_stated_noise_and_charges_for_it(served: Any) -> None:
    from hybridp.service import studies

    tape = Recording(5)
    service, study, found = _opened(served, tape, [held(i) for i in range(RECORDS * EACH)], EPSILON)
    first, _ = halves(files.opt_in(found), tape, np.full(RECORDS, EACH), ordered=False)
    assert stats.binomtest(int(first.sum()), RECORDS * EACH, 0.95).pvalue > 1e-6
    assert found["simulated"] is False
    spent = {a["people"]: a["epsilon_spent"] for a in studies.study_summary(service, study)["ledger"]}
    assert spent["trusted"] == pytest.approx(EPSILON, abs=1e-11)
    assert len(found["ledger_entries"]) == 1
    # The second phase promises, draws and charges one epsilon, and no delta.
    from hybridp.service.words import task_of

    view = service.view(study)
    task = task_of(study, view.plan, 2)
    stated = {"trusted": DELTA, "local": 0.0}
    assert task["guarantee"] == {group: {"epsilon": EPSILON, "delta": d} for group, d in stated.items()}
    keep = math.exp(EPSILON) / (math.exp(EPSILON) + RECORDS)
    assert int(task["questions"][0]["randomiser"]["keep"]) / 2**64 == pytest.approx(keep, rel=1e-12)


# --- local reports ----------------------------------------------------------------------------------------------------


def test_files_of_reports_have_the_stated_law(tmp_path: Path) -> None:
    """Everybody holds one record of a list of six slots: k-ary randomised response with all of epsilon."""
    epsilon, delta, n = 1.0, 1e-3, 20_000
    study = RecordsTask(ApproxDP(epsilon, delta), depth=1, discovery_share=1 - 1e-9, spare=1.0)
    path = write(tmp_path / "t.csv", [(i, f"r{i % 5}", "trusted") for i in range(5 * 200)])
    invite, reports = tmp_path / "i.json", tmp_path / "r.csv"
    invited(path, Recording(6), invite, study)
    head = [slot[0] for slot in files.read_invitation(invite).invite.encoding.slots]
    assert head == ["r0", "r1", "r2", "r3", "r4", None]
    mine = write(tmp_path / "l.csv", [(i, "r3", "local") for i in range(n)])
    with Recording(7).as_the_systems():
        assert files.answer(mine, invite, COLUMNS, reports) == n
    lines = reports.read_text().splitlines()[1:]
    assert not any("SIMULATED" in line for line in lines)
    seen = Counter(int(line.split(",")[0]) for line in lines)

    def p_value(epsilon: float) -> float:
        keep = math.exp(epsilon) / (math.exp(epsilon) + 5)
        law = [keep if i == 3 else (1 - keep) / 5 for i in range(6)]
        return float(stats.chisquare([seen[i] for i in range(6)], [n * p for p in law]).pvalue)

    assert p_value(epsilon) > 1e-6
    assert p_value(epsilon * 1.1) < 1e-6
    # The charge is that of the report, and so is the promise on the receipt.
    ledger = Ledger.create(tmp_path / "b.ledger", {"local": ApproxDP(epsilon, delta)})
    found = files.release_invited(reports, invite, ledger=ledger)
    promise = PureDP(epsilon)
    told = {(p.people, p.against): p.budget for p in found.receipt.promises}
    assert told["local", CURATOR] == told["local", VIEWER] == promise
    [entry] = ledger.history()
    assert (entry.people, entry.budget.epsilon, entry.budget.delta) == ("local", promise.epsilon, promise.delta)
