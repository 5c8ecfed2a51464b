"""The mixer's door: whoever comes too fast waits, whatever they bring, and others do not."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from hybridp.cli.app import cli
from hybridp.errors import InvalidInput
from hybridp.mixer import Route, Store, build_app
from hybridp.public.mixing import OVERHEAD, Signer, public, text, ticket
from hybridp.service.problems import Gate
from hybridp.service.schema import connect


def test_an_address_that_floods_the_mixer_waits_and_others_do_not(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path / 'mixer.db'}")
    store, own, collector = Store(engine), Signer(secrets.token_bytes(32)), Signer(secrets.token_bytes(32))
    store.join(Route("s", "http://c", "http://c", 10, 8, collector.public, public(secrets.token_bytes(32)), None))
    now = [0.0]
    app = build_app(store, own, Gate(rate=0.5, burst=2, clock=lambda: now[0]).wait)

    def sent() -> dict[str, str]:
        return {"ticket": ticket(collector, "s", secrets.token_bytes(16)), "sealed": text(bytes(8 + OVERHEAD))}

    with TestClient(app, client=("192.0.2.1", 1)) as flooding:
        asked = [flooding.post("/mix/s", json=body) for body in (sent(), {"junk": 1}, sent())]
        assert [answer.status_code for answer in asked] == [200, 422, 429]
        assert asked[2].headers["retry-after"] == "2"
        assert "come back in 2 s" in asked[2].json()["detail"]
        assert asked[2].headers["access-control-allow-origin"] == "http://c"  # the page can read it, and tries again
        assert flooding.get("/mix/s").status_code == 200  # what is public is not held back
        assert TestClient(app, client=("192.0.2.2", 1)).post("/mix/s", json=sent()).status_code == 200
        now[0] = 2.0
        assert flooding.post("/mix/s", json=sent()).status_code == 200
        assert store.waiting("s") == 3
    engine.dispose()


def test_a_mixer_that_studies_joined_never_makes_another_key(tmp_path: Path) -> None:
    """Devices and collectors know it by its key: with a new one it would hold reports that nobody takes from it."""
    database, key_file = f"sqlite:///{tmp_path / 'm.db'}", tmp_path / "k"
    where = ["--database", database, "--key-file", str(key_file)]

    def mix(*words: str) -> Result:
        return CliRunner().invoke(cli, ["mix", *words, *where])

    first = mix("key")
    assert (first.exit_code, "Made a new key" in first.stderr, key_file.stat().st_mode & 0o777) == (0, True, 0o600)
    assert (mix("key").stdout, mix("key").stderr) == (first.stdout, "")
    key_file.unlink()  # nobody named it yet
    assert (second := mix("key").stdout) not in ("", first.stdout)
    engine = connect(database)
    Store(engine).join(Route("s", "http://c", "http://c", 10, 8, b"k" * 32, b"r" * 32, None))
    engine.dispose()
    kept = key_file.rename(tmp_path / "away")
    for words in (("key",), ("join", "http://127.0.0.1:9/s/t"), ("serve", "--port", "0")):
        done = mix(*words)
        assert (done.exit_code, done.stdout, key_file.exists()) == (1, "", False)
        assert isinstance(done.exception, InvalidInput)  # which ends the program with 2
        assert f"or give another --database for a new mixer. Got no {key_file}" in str(done.exception)
    kept.rename(key_file)
    assert mix("key").stdout == second
