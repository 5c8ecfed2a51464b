"""kill -9 on mixer and collector while people send; `benchmarks.mixer` does it forty times on each store."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("fastapi")

from hybridp.service.schema import connect

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """By its name, under which the servers' processes import it too."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module("benchmarks.mixer")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 4), ("postgresql", 3)])
def test_killed_at_any_moment_nothing_is_lost_and_nothing_comes_twice(
    bench: ModuleType, tmp_path: Path, request: pytest.FixtureRequest, kind: str, kills: int
) -> None:
    if kind == "sqlite":
        _torment(bench, *(f"sqlite:///{tmp_path / name}.db" for name in ("collector", "mixer")), tmp_path, kills)
        return
    both = request.getfixturevalue("postgres_schema")  # each has its own tables
    _torment(bench, both, both, tmp_path, kills)


def _torment(bench: ModuleType, collector: str, mixer: str, folder: Path, kills: int) -> None:
    found, sent = bench.torment(collector, mixer, folder, kills, longest=0.4)
    broken = {what: n for what, n in found.items() if what.startswith("BROKEN")}
    assert broken == {}
    assert found["kills of the mixer"] + found["kills of the collector"] == kills
    assert len(sent) >= 4
    # A control: the audit sees a report that is gone, and one that is there twice.
    engine = connect(collector)
    for damage, name in (
        ("INSERT INTO reports SELECT study, {other}, at, grp, epsilon, body FROM reports WHERE {some}", "twice"),
        ("DELETE FROM reports WHERE grp = 2", "lost"),
    ):
        with engine.begin() as db:
            one = db.exec_driver_sql("SELECT id FROM reports WHERE grp = 2 LIMIT 1").scalar_one()
            blob = f"'\\x{bytes(one).hex()}'" if db.dialect.name == "postgresql" else f"x'{bytes(one).hex()}'"
            db.exec_driver_sql(damage.format(other=blob.replace(bytes(one).hex(), "00" * 16), some=f"id = {blob}"))
        assert bench.audit(collector, mixer, sent)[f"BROKEN: {name}"] > 0, damage
    engine.dispose()
