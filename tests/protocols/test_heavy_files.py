"""Heavy hitters over files: one go and two phases, the ledger, and what is refused without repeating a record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.bench.models import zipf
from hybridp.curator.sources import Columns
from hybridp.errors import HybridpError, InvalidInput, UnusableRows
from hybridp.ledger import Ledger
from hybridp.public.budgets import ApproxDP
from hybridp.public.envelope import digest
from hybridp.randomness import seeded
from hybridp.release.release import Release
from hybridp.tasks.records import RecordsTask
from tests import phases as files

PROMISE = ApproxDP(4.0, 1e-5)
STUDY = RecordsTask(PROMISE)
COLUMNS = Columns(("query", "url"), "trust", None, "id")
SHARES = zipf(300, 1.2)
SECRET = "sentinel-8271"  # stands for a private record: no message may repeat it

_draw = np.random.default_rng(12)
PEOPLE, FILE_TRUSTED = 6_000, 1_500
QUERY, URL = _draw.choice(300, PEOPLE, p=SHARES), (_draw.random(PEOPLE) < 0.3).astype(int)


def write(path: Path, rows: list[tuple[Any, ...]] | None = None) -> Path:
    if rows is None:
        rows = [
            (i, f"q{q}", f"u{u}", "trusted" if i < FILE_TRUSTED else "local")
            for i, (q, u) in enumerate(zip(QUERY, URL, strict=True))
        ]
    path.write_text("id,query,url,trust\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("log") / "log.csv")


def release(path: Path, study: RecordsTask = STUDY, seed: int = 1, **options: Any) -> Release:
    options.setdefault("simulate_local", True)
    return files.release(path, study, COLUMNS, rng=seeded(seed), **options)


def held(record: tuple[str | None, ...]) -> float:
    """The true share of a record, or of a query, among the people of the file."""
    hit = np.char.add("q", QUERY.astype(str)) == record[0]
    if len(record) == 2:
        hit &= np.char.add("u", URL.astype(str)) == record[1]
    return float(hit.mean())


def listed(facts: Any) -> list[tuple[tuple[str | None, ...], float, float, float]]:
    """Every record with its share and the ends of its interval."""
    records = map(tuple, facts["records"])
    return list(zip(records, facts["estimate"], *facts["interval"], strict=True))


def distance(record: tuple[str | None, ...], estimate: float, low: float, high: float) -> float:
    return abs(estimate - held(record)) / ((high - low) / 2 / 1.96)


def test_a_release_is_near_the_truth_and_consistent(log: Path) -> None:
    found = release(log, replace(STUDY, head=10))
    assert found.people == {"trusted": FILE_TRUSTED, "local": PEOPLE - FILE_TRUSTED}
    facts = found.facts
    assert 0.9 < facts["groups"]["trusted"]["discovery"] / FILE_TRUSTED < 0.99
    records, queries, wildcards = (listed(one) for one in (facts, facts["queries"], facts["wildcards"]))
    assert len(queries) == 10 < facts["discovered_records"]
    top = [r for r in records if held(r[0]) > 0.02]
    assert len(top) >= 6
    assert max(distance(*r) for r in [*top, *queries[:5]]) < 6
    for some in (records, queries):
        estimates = [estimate for _, estimate, _, _ in some]
        assert estimates == sorted(estimates, reverse=True)
        assert all(0 <= low <= estimate <= high <= 1 for _, estimate, low, high in some)
    ranks = zip(facts["ranks"]["best"], facts["ranks"]["worst"], strict=True)
    assert all(best <= place <= worst for place, (best, worst) in enumerate(ranks, 1))
    every = [*records, *wildcards]
    assert math.fsum(estimate for _, estimate, _, _ in every) == pytest.approx(1)
    for query, estimate, _, _ in queries:
        assert math.fsum(part for record, part, _, _ in every if record[0] == query[0]) == pytest.approx(estimate)
    assert wildcards[-1][0] == (None, None)


def test_one_column_and_several_rows_a_person(tmp_path: Path) -> None:
    rows = [(i % 3000, f"q{q}", "", "trusted" if i % 3000 < 1000 else "local") for i, q in enumerate(QUERY)]
    columns = Columns(("query",), "trust", None, "id")
    study = replace(STUDY, depth=1)
    path = write(tmp_path / "log.csv", rows)
    found = files.release(path, study, columns, simulate_local=True, rng=seeded(2))
    assert found.people == {"trusted": 1000, "local": 2000}  # one record each
    assert found.facts["records"] == found.facts["queries"]["records"]
    first = listed(found.facts)[0]
    assert first[0] == ("q0",)
    assert distance(*first) < 6
    assert found.facts["wildcards"]["records"] == [[None]]


@pytest.mark.parametrize("study", [STUDY, replace(STUDY, reuse=False, spare=1.0, estimator="hybrid")])
def test_nothing_is_discovered(tmp_path: Path, study: RecordsTask) -> None:
    """Everybody holds a record of their own: the list is empty, the wildcard has everything, and nothing is named."""
    rows = [(i, f"{SECRET}{i}", "u", "trusted" if i < 200 else "local") for i in range(400)]
    path = write(tmp_path / "log.csv", rows)
    found = release(path, study)
    facts, rest = found.facts, found.facts["wildcards"]
    assert (facts["records"], facts["queries"]["records"], facts["discovered_records"]) == ([], [], 0)
    assert (rest["records"], rest["estimate"]) == ([[None, None]], [1.0])
    assert SECRET not in json.dumps(found.to_dict())
    assert found.to_frame().empty
    files.invite_to(path, study, COLUMNS, tmp_path / "invite.json", rng=seeded(1))
    assert SECRET not in (tmp_path / "invite.json").read_text()
    assert files.answer(path, tmp_path / "invite.json", COLUMNS, tmp_path / "r.csv", rng=seeded(1)) == 200
    found = files.release_invited(tmp_path / "r.csv", tmp_path / "invite.json")
    assert found.facts["wildcards"]["estimate"] == [1.0]


@pytest.mark.parametrize("trusted", [1, 2, 12])
def test_few_trusted_people_and_nobody_local(tmp_path: Path, trusted: int) -> None:
    """One person more or less in a part: a release with honest intervals, whatever the split."""
    path = write(tmp_path / "log.csv", [(i, "only", "one", "trusted") for i in range(trusted)])
    for seed in range(4):
        found = release(path, replace(STUDY, discovery_share=0.8), seed)
        every = [*listed(found.facts), *listed(found.facts["wildcards"])]
        assert math.fsum(estimate for _, estimate, _, _ in every) == pytest.approx(1)
        assert all(low <= estimate <= high for _, estimate, low, high in every)


def test_a_handful_of_clients_does_not_outweigh_the_trusted(tmp_path: Path) -> None:
    """Ten local people who hold something else say little: the trusted group's record stays."""
    rows = [(i, f"q{i % 5}", "u", "trusted") for i in range(3000)] + [
        (3000 + i, "other", "x", "local") for i in range(5)
    ]
    found = release(write(tmp_path / "few.csv", rows), replace(STUDY, reuse=False))
    assert len(found.facts["records"]) == 5
    assert max(abs(estimate - 0.2) for estimate in found.facts["estimate"]) < 0.12


# --- the ledger ---


def budget(folder: Path, times: float, *, trial: bool = True) -> Ledger:
    total = ApproxDP(times * PROMISE.epsilon, times * PROMISE.delta)
    return Ledger.create(folder / "study.ledger", {"trusted": total, "local": total}, trial=trial)


def states(ledger: Ledger) -> list[tuple[str, str]]:
    return [(entry.people, entry.state) for entry in ledger.history()]


def test_equal_counts_of_other_batches_are_other_reports(invited: Path, tmp_path: Path) -> None:
    """Counts alone could not tell them apart: devices write a random name of their batch beside them."""
    ledger = budget(tmp_path, 2)
    text = (invited / "reports.csv").read_text()
    batch = text.splitlines()[1].rsplit(",", 1)[1]
    for name in (batch, "0" * 16):
        file = tmp_path / f"{name}.csv"
        file.write_text(text.replace(batch, name))
        for _ in range(2):
            files.release_invited(file, invited / "invite.json", ledger=ledger)
    assert ledger.remaining("local").epsilon == 0.0


def test_bad_reports_are_refused_and_not_charged(log: Path, tmp_path: Path) -> None:
    ledger = budget(tmp_path, 1, trial=False)
    slots = len(files.invite_to(log, STUDY, COLUMNS, tmp_path / "invite.json", ledger=ledger).invite.encoding)
    for text in (f"{slots}", "-1", "0.5", "nan", SECRET, ""):
        (tmp_path / "reports.csv").write_text(f"report,note\n0,\n{text},\n")
        with pytest.raises(UnusableRows, match="Column `report` must hold the number of a slot") as refused:
            files.release_invited(tmp_path / "reports.csv", tmp_path / "invite.json", ledger=ledger)
        assert SECRET not in str(refused.value)
    assert states(ledger) == [("trusted", "spent")]  # reports are read before they are charged


# --- two phases ---


def test_the_order_of_reports_tells_nothing(invited: Path, tmp_path: Path) -> None:
    """One person with two rows would otherwise bring everybody's reports out of the order of the rows."""
    people = [(i, f"q{i % 3}", "u0", "local") for i in range(300)]
    for name, rows in (("one.csv", people), ("two.csv", [*people, people[0]])):
        out = tmp_path / f"reports-{name}"
        assert files.answer(write(tmp_path / name, rows), invited / "invite.json", COLUMNS, out) == 300
        slots = [int(line.split(",")[0]) for line in out.read_text().splitlines()[1:]]
        assert slots == sorted(slots)


@pytest.fixture(scope="module")
def invited(log: Path) -> Path:
    files.invite_to(log, STUDY, COLUMNS, log.parent / "invite.json", rng=seeded(1))
    files.answer(log, log.parent / "invite.json", COLUMNS, log.parent / "reports.csv", rng=seeded(2))
    return log.parent


def test_reports_say_nothing_but_a_slot_and_the_invitation(invited: Path) -> None:
    lines = (invited / "reports.csv").read_text().splitlines()
    assert lines[0] == "report,report_mechanism,report_batch"
    assert len({line.split(",", 1)[1] for line in lines[1:]}) == 1
    assert not any("q0" in line or "u1" in line for line in lines)


GONE = object()
GUARANTEE = ("task", "guarantee")
SPOILT: dict[str, tuple[tuple[Any, ...], Any]] = {
    "a record changed": (("answers", 0, 0, 0, 0), SECRET),
    "records out of order": (("answers", 0, 0), lambda records: records[::-1]),
    "what is asked": (("asks", "slots"), lambda slots: slots + 1),
    "a count dropped": (("answers", 1, 0), GONE),
    "a count that is none": (("answers", 1, 0), math.nan),
    "a count that is text": (("answers", 1, 0), SECRET),
    "people below 0": (("answers", 0, 2), -5),
    "no answers": (("answers",), GONE),
    "one answer": (("answers", 1), GONE),
    "an answer more": (("answers",), lambda answers: [*answers, answers[1]]),
    "no simulated": (("simulated",), GONE),
    "columns": (("names",), [1]),
    "epsilon": ((*GUARANTEE, "epsilon"), -1),
    "epsilon that is text": ((*GUARANTEE, "epsilon"), SECRET),
    "delta too small for a float": ((*GUARANTEE, "delta"), 5e-324),
    "unknown setting": (("task", SECRET), 1),
    "version": (("version",), 99),
}


def spoil(document: dict[str, Any], how: str) -> Any:
    """With a digest that fits what it says now."""
    if how in SPOILT:
        (*path, last), what = SPOILT[how]
        inner: Any = document
        for key in path:
            inner = inner[key]
        if what is GONE:
            del inner[last]
        else:
            inner[last] = what(inner[last]) if callable(what) else what
    found = document | {"digest": digest(document)}
    return [found] if how == "a list" else found


def test_a_file_nested_too_deep_is_no_invitation(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(InvalidInput, match=r"^`invite` must name an invitation"):
        files.read_invitation(tmp_path / "deep.json")


def test_existing_files_are_kept(log: Path, invited: Path, tmp_path: Path) -> None:
    invite, reports = invited / "invite.json", invited / "reports.csv"
    before = invite.read_bytes(), reports.read_bytes()
    with pytest.raises(InvalidInput, match=r"^`invite-out` "):
        files.invite_to(log, STUDY, COLUMNS, invite)
    with pytest.raises(InvalidInput, match=r"^`invite-out` "):
        files.invite_to(log, STUDY, COLUMNS, tmp_path / "no" / "invite.json")
    for out in (reports, tmp_path / "reports.txt", tmp_path / "no" / "reports.csv"):
        with pytest.raises(InvalidInput, match=r"^`out` "):
            files.answer(log, invite, COLUMNS, out)
    assert (invite.read_bytes(), reports.read_bytes()) == before
    assert list(tmp_path.iterdir()) == []


def test_who_is_missing_is_said(tmp_path: Path, log: Path, invited: Path) -> None:
    nobody = write(tmp_path / "local.csv", [(i, SECRET, "u", "local") for i in range(20)])
    with pytest.raises(InvalidInput, match=r"^`trust` "):
        release(nobody)
    with pytest.raises(InvalidInput, match="nobody asked them"):
        release(log, simulate_local=False)
    one = Columns(("query",), "trust", None, "id")
    with pytest.raises(InvalidInput, match=r"^`record` "):
        files.answer(log, invited / "invite.json", one, tmp_path / "reports.csv")


@pytest.mark.parametrize(
    "text",
    [
        f"id,query,url,trust\n1,{SECRET},u,{SECRET}\n",
        f"id,query,url,trust\n{SECRET},q,u,trusted\n{SECRET},q,u,local\n",
        f"id,query,url,trust\n1,{SECRET},u\n1,2,3,4,5,6\n",
        f'id,query,url,trust\n1,"{SECRET},u,trusted\n',
        f"id,query,url\n1,{SECRET},u\n",
        f"id,query,query,trust\n1,{SECRET},u,trusted\n",
        f"{SECRET}",
        "",
    ],
)
def test_no_message_repeats_a_record(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(HybridpError) as refused:
        release(path)
    assert SECRET not in str(refused.value)
    with pytest.raises(HybridpError) as refused:
        files.invite_to(path, STUDY, COLUMNS, tmp_path / "invite.json")
    assert SECRET not in str(refused.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv"]
