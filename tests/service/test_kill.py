"""kill -9 in the middle of everything. The benchmark of the same name does it five hundred times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks import service_kill as kill

from hybridp.service.schema import connect
from hybridp.service.settings import load_or_make


@pytest.mark.skipif(not hasattr(sys, "getwindowsversion") and not hasattr(__import__("os"), "fork"), reason="no fork")
def test_killed_at_any_moment_nothing_is_lost_or_spent_twice(database: str, tmp_path: Path) -> None:
    found, acks, told = kill.torment(database, tmp_path, 4, longest=0.2)
    assert found["kills"] == 4
    assert found.broken == 0, found
    assert found["acknowledged reports"] > 4
    # A control: the audit sees a lost report, a charge without a release and a changed release.
    engine, keys = connect(database), load_or_make(tmp_path / "kill.key")
    for damage in (
        "DELETE FROM reports WHERE study = 1",
        "UPDATE accounts SET epsilon_spent = epsilon_spent + 1 WHERE study = 1",
        "INSERT INTO charges (study, people, epsilon, delta, mechanism, purpose, noise, at, state) "
        "VALUES (2, 'trusted', 1, 0, 'm', 'p', 'null', 0, 'spent')",
    ):
        before = kill.audit(engine, keys, acks, told).broken
        with engine.begin() as db:
            db.exec_driver_sql(damage)
        assert kill.audit(engine, keys, acks, told).broken > before, damage
    engine.dispose()


def test_sixteen_threads_never_overspend(database: str) -> None:
    found = kill.contend(database, 3)
    assert found.broken == 0, found
    assert found["releases"] == 15
    assert found["rounds"] == 3
