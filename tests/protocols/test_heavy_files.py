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
from hybridp.curator.sums import Columns
from hybridp.errors import HybridpError, InvalidInput, UnusableRows
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP
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


def listed(facts: Any) -> list[tuple[tuple[str | None, ...], float, float, float]]:
    """Every record with its share and the ends of its interval."""
    records = map(tuple, facts["records"])
    return list(zip(records, facts["estimate"], *facts["interval"], strict=True))


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
