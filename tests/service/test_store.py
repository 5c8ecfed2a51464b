"""The store, the ledger, the writer and the keys, below the API; on both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError
from tests.results import sole

from hybridp import ledger as rule
from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput, LedgerProblem
from hybridp.ledger import Charge, Ledger
from hybridp.public.mechanisms import ApproxDP, Neighbours, PureDP
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.formats import parse_upload
from hybridp.service.problems import Refused
from hybridp.service.schema import analysts, begun, invitations, progress, reports, study_keys
from hybridp.service.settings import KeyRing, RowCipher, Settings, load_or_make, save
from hybridp.service.store import counts, reading, writing
from hybridp.service.studies import book, release_once

from .conftest import MEAN
from .declared import study_of
from .sent import rebuilt_counts, send

Make = Callable[..., dict[str, Any]]


def charge(db: Any, study: int, asked: list[Charge]) -> tuple[int, ...]:
    return tuple(rule.charge(book(db, study), asked, 0))


def test_values_are_sealed_and_tokens_and_keys_hashed(service: Service, mean_plan: Make, report: Make) -> None:
    study = studies.create_study(service, mean_plan(by_invitation=True))["id"]
    (token,) = studies.invite(service, study, 1)
    key = studies.add_analyst(service, "ada")
    assert send(service, study, [report(12345.678, token=token)]) == []
    with reading(service.engine) as db:
        body = bytes(db.execute(select(reports.c.body)).scalar_one())
        stored = [bytes(x) for x in db.execute(select(invitations.c.token)).scalars()]
        hashes = [bytes(x) for x in db.execute(select(analysts.c.key_hash)).scalars()]
        sealed = bytes(db.execute(select(study_keys.c.sealed)).scalar_one())
    import struct

    assert struct.pack("<d", 12345.678) not in body
    assert len(body) == 12 + 8 + 16
    assert token.encode() not in stored[0]
    assert key.encode() not in hashes[0]
    assert RowCipher(service.settings.keys.unseal(sealed), 1).unseal(body, _id(service)) == struct.pack("<d", 12345.678)
    with pytest.raises(HybridpError):
        RowCipher(service.settings.keys.unseal(sealed), 2).unseal(body, _id(service))


def _id(service: Service) -> bytes:
    with reading(service.engine) as db:
        return bytes(db.execute(select(reports.c.id)).scalar_one())


def test_a_failed_release_costs_nothing(service: Service, mean_plan: Make) -> None:
    studies.create_study(service, mean_plan())

    def fail(db: Connection) -> None:
        def build(ids: tuple[int, ...]) -> dict[str, Any]:
            raise ZeroDivisionError

        release_once(db, 1, "k", "final", [Charge("trusted", PureDP(1.0), "m", "p")], build)

    with pytest.raises(ZeroDivisionError):
        service.write(fail)
    with reading(service.engine) as db:
        assert all(b.spent.epsilon == 0 for b in rule.accounts(book(db, 1)))
    with pytest.raises(ValueError, match="JSON"):  # a document that cannot be stored is not charged either
        service.write(lambda db: release_once(db, 1, "k", "final", [], lambda ids: {"x": float("nan")}))


def test_charges_are_exact_and_collections_paid_once(service: Service) -> None:
    one = Charge("local", PureDP(0.1), "m", "p", collection="c")
    tenth = Charge("trusted", ApproxDP(0.1, 1e-7), "m", "p")
    with writing(service.engine) as db:
        rule.open_accounts(book(db, 7), {"trusted": ApproxDP(0.3, 3e-7), "local": PureDP(0.1)})
        assert len(charge(db, 7, [one])) == 1
        assert charge(db, 7, [one]) == ()
        for _ in range(3):  # 0.1 + 0.1 + 0.1 <= 0.3 holds for whole numbers, not for doubles
            charge(db, 7, [tenth])
    with pytest.raises(BudgetExceeded, match="epsilon 0, delta 0 left"), writing(service.engine) as db:
        charge(db, 7, [tenth])
    with pytest.raises(InvalidInput), writing(service.engine) as db:
        charge(db, 7, [replace(one, mechanism="other")])
    with pytest.raises(LedgerProblem), writing(service.engine) as db:
        charge(db, 7, [replace(tenth, people="nobody")])
    with pytest.raises(InvalidInput, match="neighbours"), writing(service.engine) as db:
        charge(db, 7, [replace(tenth, budget=PureDP(0.0, Neighbours.ADD_REMOVE))])


def test_a_set_of_reports_is_charged_once_by_its_digest_as_in_a_file(service: Service, tmp_path: Path) -> None:
    """One rule: both stores take, refuse and add up the same charges, also with another study in the same tables."""
    spring = Charge("local", PureDP(0.4), "m", "p", collection="spring", digest="a")
    asked = [spring, spring, replace(spring, collection=None), replace(spring, digest="b"),
             replace(spring, digest="b", collection=None), replace(spring, mechanism="n"),
             replace(spring, digest="c", collection="autumn")]  # fmt: skip
    totals = {"local": PureDP(1.0)}
    file = Ledger.create(tmp_path / "one.ledger", totals)
    with writing(service.engine) as db:
        rule.open_accounts(book(db, 6), totals)
        rule.open_accounts(book(db, 7), totals)
        charge(db, 6, [spring])

    def served(one: Charge) -> int:
        with writing(service.engine) as db:
            return len(charge(db, 7, [one]))

    def told(use: Callable[[Charge], int], one: Charge) -> Any:
        try:
            return use(one)
        except HybridpError as refused:
            return type(refused), str(refused)

    answers = [told(served, one) for one in asked]
    assert answers == [told(lambda c: len(file.charge([c])), one) for one in asked]
    assert [answer if isinstance(answer, int) else answer[0] for answer in answers] == [
        1, 0, 0, InvalidInput, 1, InvalidInput, BudgetExceeded
    ]  # fmt: skip
    with reading(service.engine) as db:
        assert [b.spent.epsilon for study in (6, 7) for b in rule.accounts(book(db, study))] == [0.4, 0.8]
    assert file.accounts()[0].spent.epsilon == 0.8


def test_a_key_is_for_one_kind_of_release(service: Service) -> None:
    service.write(lambda db: db.execute(begun(9)) and None)
    service.write(lambda db: release_once(db, 9, "k", "discovery", [], lambda ids: {}))
    with pytest.raises(Refused) as refused:
        service.write(lambda db: release_once(db, 9, "k", "final", [], lambda ids: {}))
    assert refused.value.code == "key-reused"


def test_a_study_cannot_be_changed(service: Service, mean_plan: Make) -> None:
    studies.create_study(service, mean_plan())
    with pytest.raises(DBAPIError, match="immutable"), writing(service.engine) as db:
        db.execute(text("UPDATE studies SET plan = '{}'"))


def test_a_plain_group_and_a_careful_one_store_the_same(service: Service, mean_plan: Make, report: Make) -> None:
    """Trusted, local and personal epsilons by the short way, then once more by the careful one: nothing is added."""
    plan = {"kind": "personal-mean", "title": "p", "bounds": {"lower": 0, "upper": 100}, "time_precision": 60,
            "allowed_epsilons": [0.5, 1.0]}  # fmt: skip
    first, second = (studies.create_study(service, one)["id"] for one in (mean_plan(), study_of(plan)))
    rows = [report(), report(group="local"), report(2.5)]
    personal = [report(epsilon=0.5), report(group="local", epsilon=1.0)]
    now = report()["time"]

    async def both(times: int) -> list[Any]:
        asked = [(first, rows), (second, personal), (first, [report(group="local")])][: times + 1]
        found: list[Any] = await asyncio.gather(*(studies.submit(service, study, some) for study, some in asked))
        return found

    _ = service.view(first), service.view(second)  # both are known, so that all join one turn of the loop
    assert asyncio.run(both(2)) == [[], [], []]
    assert asyncio.run(both(1)) == [[], []]
    with reading(service.engine) as db:
        stored = db.execute(select(reports).order_by(reports.c.study, reports.c.grp, reports.c.epsilon)).all()
        assert [(r.study, r.grp, r.epsilon, r.at) for r in stored] == [
            *[(1, 0, None, now)] * 2, *[(1, 1, None, now)] * 2, (2, 0, 1.0, now), (2, 1, 0.5, now),
        ]  # fmt: skip
        assert bytes(stored[1].body) == (1 << 31).to_bytes(4, "little") + b"\x01"
        assert counts(db, 1) == {"trusted": 2, "local": 2}
        assert counts(db, 2) == {"trusted": 1, "local": 1}
        assert db.execute(select(progress.c.taken).order_by(progress.c.study)).scalars().all() == [4, 2]


def test_one_bad_report_does_not_spoil_a_group(service: Service, mean_plan: Make, report: Make) -> None:
    """In one commit: fresh reports, one that is there, the same with another content, one of a study that closed."""
    first, second = (studies.create_study(service, mean_plan())["id"] for _ in range(2))
    before = report(7.0)
    assert send(service, first, [before]) == []
    view = service.view(second)
    service.write(lambda db: db.execute(progress.update().where(progress.c.study == 2).values(state="closed")) and None)
    assert asyncio.run(service.hot_view(second)) is view  # what is known of it is two seconds old
    fresh = [report(group="local") for _ in range(20)]

    async def many() -> list[list[dict[str, Any]]]:
        asked = [(first, [one]) for one in fresh]
        other = before | {"payload": {"answers": {"answer": 8.0}}}
        asked += [(first, [before]), (first, [other]), (second, [report()])]
        return await asyncio.gather(*(studies.submit(service, study, some) for study, some in asked))

    found = asyncio.run(many())
    assert found[:22] == [[]] * 22
    assert [f["code"] for f in found[22]] == ["closed"]
    with reading(service.engine) as db:
        assert counts(db, 1) == {"trusted": 1, "local": 20}
        assert dict(rebuilt_counts(db, 1)) == {1: 1, 0: 20}
        assert list(rebuilt_counts(db, 2)) == []


def test_what_was_sent_for_one_phase_is_not_stored_in_the_next(service: Service, report: Make) -> None:
    """Another process has opened the second phase, and what is known here is two seconds old: the first one's raw
    records, whose key went with it, would lie beside answers to the invitation."""
    plan = {"kind": "heavy-hitters", "title": "h", "epsilon": 4, "delta": 1e-5, "min_batch": 10, "time_precision": 60,
            "head": 5}  # fmt: skip
    study = studies.create_study(service, study_of(plan))["id"]
    rows = [report(payload={"answers": {"answer": ["news", "a.org"]}}) for _ in range(3)]
    assert send(service, study, rows[:1]) == []
    view = service.view(study)
    service.write(lambda db: db.execute(progress.update().values(phase=2)) and None)
    for late in ([rows[1]], [rows[0], rows[2]]):  # a plain group, and one with a report that is there
        sent = parse_upload(json.dumps({"reports": late}).encode(), 9)
        failed = asyncio.run(studies.submit_reports(service, view, sent))
        assert [failure["code"] for failure in failed] == ["wrong-phase"]
    with reading(service.engine) as db:
        assert dict(rebuilt_counts(db, 1)) == {1: 1}


def test_a_store_that_fails_is_told_and_recovers(
    service: Service, mean_plan: Make, report: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = studies.create_study(service, mean_plan())["id"]
    row = report(group="local")
    broken: Any = service.writer._commits._errors
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise broken("gone")

        patch.setattr(service.writer._commits, "_connection", fail)
        with pytest.raises(Refused) as refused:
            send(service, study, [row])
        assert (refused.value.code, refused.value.retry_after) == ("unavailable", 2)
    assert send(service, study, [row]) == []
    assert service.writer.waiting == 0


def test_two_processes_worth_of_writers_agree(
    settings: Settings, service: Service, mean_plan: Make, report: Make
) -> None:
    """Two services on one database: the same reports from both sides are stored once."""
    study = studies.create_study(service, mean_plan())["id"]
    other = Service(settings)
    rows = [report(group="local") for _ in range(60)]

    async def both() -> None:
        await asyncio.gather(
            *(studies.submit(s, study, rows[i : i + 20]) for i in range(0, 60, 10) for s in (service, other))
        )

    asyncio.run(both())
    other.close()
    with reading(service.engine) as db:
        assert dict(rebuilt_counts(db, 1)) == {0: 60}
        assert counts(db, 1)["local"] == 60


def test_a_full_queue_says_come_back(settings: Settings, service: Service, mean_plan: Make, report: Make) -> None:
    study = studies.create_study(service, mean_plan())["id"]
    service.writer._most = 5
    with pytest.raises(Refused) as refused:
        send(service, study, [report() for _ in range(6)])
    assert (refused.value.code, refused.value.retry_after) == ("overloaded", 2)


def test_closing_and_time(settings: Settings, mean_plan: Make, report: Make) -> None:
    now = [float(studies.rounded_now({"time_precision": 60}))]
    service = Service(settings, clock=lambda: now[0])
    opens, closes = int(now[0]) + 3600, int(now[0]) + 7200
    study = studies.create_study(service, mean_plan(opens=opens, closes=closes))["id"]
    assert studies.task_document(service, study)["status"] == "planned"
    with pytest.raises(Refused, match="not opened"):
        send(service, study, [report()])
    now[0] += 3700
    rows = [report(time=opens // 60 * 60) for _ in range(5)]
    assert send(service, study, rows) == []
    assert send(service, study, [report(time=opens - 60)]) == []  # the date of an answer may be a little old
    early = send(service, study, [report(time=opens - 600)])
    assert early[0]["code"] == "bad-time"
    with pytest.raises(Refused, match="close it"):
        studies.release_study(service, study)
    now[0] += 7200
    assert studies.study_summary(service, study)["status"] == "closed"
    assert send(service, study, rows) == []
    assert send(service, study, [report(time=opens // 60 * 60)])[0]["code"] == "closed"
    assert sole(studies.release_study(service, study))["groups"]["trusted"]["people"] == 6
    service.close()


def test_nobody_whom_the_estimator_listens_to_is_said(service: Service, mean_plan: Make, report: Make) -> None:
    own: dict[str, Any] = {k: MEAN[k] for k in ("title", "bounds", "min_batch", "time_precision")}
    own |= {"kind": "personal-mean", "allowed_epsilons": [0.2], "estimator": "adpm"}
    for plan, epsilon in ((mean_plan(estimator="tcm-only"), None), (own, 0.2)):
        study = studies.create_study(service, study_of(plan))["id"]
        assert send(service, study, [report(group="local", epsilon=epsilon) for _ in range(5)]) == []
        studies.close_study(service, study)
        with pytest.raises(Refused, match=r"Nobody answered the question answer whom the estimator .* listens to"):
            studies.release_study(service, study)
        assert {a["epsilon_spent"] for a in studies.study_summary(service, study)["ledger"]} == {0.0}


# --- keys and plans: no database --------------------------------------------------------------------------------------


def test_the_key_file_is_private_and_rotates(tmp_path: Path) -> None:
    path = tmp_path / "k"
    ring = load_or_make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_make(path) == ring
    sealed = ring.new_data_key()
    rotated = ring.rotated()
    save(path, rotated)
    assert load_or_make(path).unseal(sealed) == ring.unseal(sealed)
    with pytest.raises(HybridpError):
        rotated.without_old().unseal(sealed)
    with pytest.raises(HybridpError):
        KeyRing.fresh().unseal(sealed)
    path.chmod(0o644)
    with pytest.raises(HybridpError, match="owner only"):
        load_or_make(path)
    path.chmod(0o600)
    path.write_text("{}")
    with pytest.raises(HybridpError, match="key file"):
        load_or_make(path)
